{{- define "model-gateway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "model-gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "model-gateway.labels" -}}
{{ include "model-gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "model-gateway.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "model-gateway.credentials" -}}
{{- if .Values.credentials.existingSecret -}}
{{ .Values.credentials.existingSecret }}
{{- else -}}
{{ include "model-gateway.name" . }}-credentials
{{- end -}}
{{- end -}}

{{/* gateway.toml. It is a Secret, because the URL of a shared store may have a password. */}}
{{- define "model-gateway.settings" -}}
[server]
listen         = ["{{ .Values.config.address }}:8080"]
admin          = "{{ .Values.config.address }}:9090"
routes         = "/etc/model-gateway/routes.toml"
keys           = "/etc/model-gateway/keys.toml"
lame_duck      = "{{ .Values.config.lameDuckSeconds }}s"
drain          = "{{ .Values.config.drainSeconds }}s"
upgrade_socket = "/tmp/upgrade.sock"
{{ .Values.config.server }}

{{- if not (contains "[admin" (.Values.config.extra | default "")) }}

[admin]
# The probes and the monitoring reach the port over the cluster's network.
insecure = true
{{- if .Values.admin.existingSecret }}
tokens   = "/etc/model-gateway-admin/admin.toml"
{{- end }}
{{- end }}

[log]
access = "stdout"

[store]
{{- if .Values.config.valkey }}
valkey  = {{ .Values.config.valkey | quote }}
journal = "/var/lib/model-gateway/ledger"
{{- else }}
sqlite = "/var/lib/model-gateway/state.db"
{{- end }}

{{ .Values.config.extra }}
{{- end -}}
