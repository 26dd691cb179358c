//! Bifrost: its config.json.
//!
//! Virtual keys are in [`governance`].
//!
//! Source: <https://docs.getbifrost.ai/quickstart/gateway/setting-up> and the schema
//! <https://www.getbifrost.ai/schema>, November 2026. Clients of Bifrost name a model `PROVIDER/MODEL`, which is the
//! id of the model here.

mod governance;

use std::path::Path;

use super::document::{Field, FieldResult, SourceNode, SourceValue};
use super::draft::{DraftCredential, ImportDraft, MAX_WEIGHT, ProviderDraft, TargetDraft, TimeoutDraft};
use super::file::read_text;
use super::litellm::endpoint::{base_url, vertex_url};
use super::litellm::prefixes::{self, BaseRule};
use super::report::FieldReport;
use super::secrets::Lookup;
use super::{ImportError, Imported, MAX_CONFIG, json};
use codec::provider::ProviderKind;

/// Address of Bifrost.
const LISTEN: &str = "127.0.0.1:8080";
/// Reason why keys of Amazon Bedrock are left out.
const BEDROCK: &str = "keys of AWS are not copied: add a [[provider]] of kind \"bedrock\" (docs/providers.md), and [[model]] tables";
/// What a reference to an environment variable begins with.
const REFERENCE: &str = "env.";

/// Imports a configuration.
///
/// # Errors
/// Returns an error if the file cannot be read, or has a field of the wrong type.
pub(super) fn import(file: &Path, env: Lookup<'_>) -> Result<Imported, ImportError> {
    let text = read_text(file, MAX_CONFIG)?;
    let fault = |fault| ImportError::Field { path: file.to_owned(), fault };
    let document = json::read(&text).map_err(fault)?;
    read(&document, env).map_err(fault)
}

/// Sections without a counterpart, with the reason.
const SECTIONS: &[(&str, &str)] = &[
    (
        "config_store",
        "the configuration is in three files; settings that only Bifrost's database has are not imported",
    ),
    (
        "logs_store",
        "the gateway does not store what requests and responses say; see the access log and model-gateway usage",
    ),
    ("vector_store", "the gateway does not cache responses"),
    ("framework", "prices are in routes.toml, or a price file"),
    ("plugins", "the gateway has no plugins: metrics, limits and accounts are built in"),
    ("mcp", "the gateway is no MCP server"),
    ("encryption_key", "the gateway stores hashes of keys and no credentials"),
    ("cluster_config", "gateways that work together share a server: store.valkey"),
    ("guardrails_config", "the gateway has no guardrails"),
    ("load_balancer_config", "docs/routing.md describes the policies"),
    ("scim_config", "keys.toml is the only list of keys"),
    ("audit_logs", "the access log is the record of requests"),
];

/// Members of `client` without a counterpart, with the reason.
const CLIENT: &[(&str, &str)] = &[
    ("allow_direct_keys", "clients cannot bring credentials of providers"),
    ("initial_pool_size", "memory is not reserved in advance"),
    ("enable_logging", "the gateway does not store what requests and responses say"),
    ("disable_content_logging", "the gateway does not store what requests and responses say"),
    ("log_retention_days", "store.record_lifetime is the retention of usage records"),
    ("drop_excess_requests", "a request beyond limits.requests gets a 503"),
    ("enable_governance", "a key is always required"),
    ("enforce_governance_header", "a key is always required"),
    ("enforce_auth_on_inference", "a key is always required"),
    ("prometheus_labels", "docs/metrics.md lists the labels"),
    ("enable_litellm_fallbacks", "the gateway has no endpoint for plain text completions"),
];

/// Reads a configuration.
///
/// # Errors
/// Returns a fault for a field of the wrong type.
pub(super) fn read(document: &SourceNode, env: Lookup<'_>) -> FieldResult<Imported> {
    let root = Field::root(document);
    if !matches!(document.value, SourceValue::Map(_)) {
        return Err(root.fault("not a configuration of Bifrost: expected an object with providers"));
    }
    let mut import = Import { draft: ImportDraft::default(), report: FieldReport::default(), env };
    import.draft.listen = LISTEN.to_owned();
    for key in ["$schema", "$comment"] {
        if let Some(field) = root.get(key) {
            import.report.changed(&field, "", "a remark for people and editors");
        }
    }
    for (section, reason) in SECTIONS {
        if let Some(field) = root.get(section) {
            import.report.impossible(&field, reason);
        }
    }
    import.client(&root)?;
    if let Some(providers) = root.get("providers") {
        for (name, field) in providers.members()? {
            import.provider(name, &field)?;
        }
    }
    for remark in import.draft.settle_models() {
        import.report.remark(remark);
    }
    if let Some(governance) = root.get("governance") {
        import.governance(&governance)?;
    }
    import.report.complete(document);
    Ok(Imported { draft: import.draft, report: import.report })
}

/// State of an import.
struct Import<'e> {
    draft: ImportDraft,
    report: FieldReport,
    env: Lookup<'e>,
}

impl Import<'_> {
    fn client(&mut self, root: &Field<'_>) -> FieldResult<()> {
        let Some(client) = root.get("client") else { return Ok(()) };
        client.members()?;
        for (key, reason) in CLIENT {
            if let Some(field) = client.get(key) {
                self.report.impossible(&field, reason);
            }
        }
        if let Some(list) = client.get("allowed_origins") {
            for field in list.elements()? {
                match field.text() {
                    Ok(origin) if config::is_cors_origin(origin.trim()) => {
                        self.draft.origins.push(origin.trim().to_owned());
                        self.report.taken(&field, "server.cors.origins");
                    }
                    _ => {
                        self.report.impossible(&field, "not an origin such as https://app.example, or \"*\"")
                    }
                }
            }
        }
        if let Some(field) = client.set("max_request_body_size_mb") {
            self.draft.body_mebibytes = Some(field.integer()?.clamp(1, 4096));
            self.report.taken(&field, "limits.body");
        }
        Ok(())
    }

    /// Reads a provider with its keys, each of which is a provider here.
    fn provider(&mut self, name: &str, field: &Field<'_>) -> FieldResult<()> {
        field.members()?;
        let custom = field.set("custom_provider_config");
        let base_type = custom.as_ref().and_then(|custom| custom.set("base_provider_type"));
        let base_type = base_type.map(|field| field.text()).transpose()?.unwrap_or(name);
        let network = field.set("network_config");
        let mut base = None;
        let mut timeouts = TimeoutDraft::default();
        if let Some(network) = &network {
            base = self.network(network, &mut timeouts)?;
        }
        if let Some(parallel) = field.get("concurrency_and_buffer_size") {
            self.report.impossible(
                &parallel,
                "model.targets.concurrent is the limit of a target; requests do not wait in a queue",
            );
        }
        for (key, reason) in [
            ("proxy_config", "the gateway does not use HTTP proxies"),
            ("send_back_raw_request", "responses have what their format has"),
            ("send_back_raw_response", "a response in its provider's format passes unchanged"),
        ] {
            if let Some(field) = field.get(key) {
                self.report.impossible(&field, reason);
            }
        }
        if let Some(custom) = &custom {
            self.report.changed(custom, "provider.kind", "a provider of this kind at another address");
        }
        let Some(keys) = field.get("keys") else { return Ok(()) };
        for key in keys.elements()? {
            key.members()?;
            let kind = match kind_of(base_type) {
                Ok(kind) => kind,
                Err(reason) => {
                    self.report.impossible(&key, reason);
                    continue;
                }
            };
            if let Err(reason) = self.key(name, &key, &kind, base.as_deref(), timeouts)? {
                self.report.impossible(&key, &reason);
            }
        }
        Ok(())
    }

    /// Reads `network_config`. Returns the base URL.
    fn network(&mut self, network: &Field<'_>, timeouts: &mut TimeoutDraft) -> FieldResult<Option<String>> {
        network.members()?;
        let mut base = None;
        if let Some(field) = network.set("base_url") {
            base = Some(field.text()?.to_owned());
            self.report.changed(&field, "provider.base_url", "with the version of the API");
        }
        if let Some(field) = network.set("default_request_timeout_in_seconds") {
            timeouts.first_byte = Some(field.millis()?.max(1));
            self.report.changed(&field, "provider.timeouts.first_byte", "the time until the response begins");
        }
        if let Some(field) = network.set("max_retries") {
            let attempts = field.integer()?.saturating_add(1).min(16);
            self.draft.attempts = Some(self.draft.attempts.unwrap_or(1).max(attempts));
            self.report.changed(
                &field,
                "retry.attempts",
                "the number of targets of a request: a target is tried once",
            );
        }
        for key in ["retry_backoff_initial", "retry_backoff_max"] {
            if let Some(field) = network.get(key) {
                self.report.changed(&field, "", "another target is tried at once");
            }
        }
        if let Some(field) = network.get("extra_headers") {
            self.report
                .impossible(&field, "set provider.headers; a header with a secret is better a credential");
        }
        Ok(base)
    }

    /// Reads a key of a provider. Returns the reason if it has no counterpart.
    fn key(
        &mut self,
        name: &str,
        key: &Field<'_>,
        kind: &Kind,
        base: Option<&str>,
        timeouts: TimeoutDraft,
    ) -> FieldResult<Result<(), String>> {
        let label = key.set("name").or_else(|| key.set("id"));
        let label = label.map(|field| field.text()).transpose()?.unwrap_or(name).to_owned();
        let origin = format!("{} (line {})", key.path, key.node.line);
        let mut provider = ProviderDraft::new(&super::draft::printable(&label), kind.kind, origin.clone());
        provider.timeouts = timeouts;
        provider.base_url = kind.base.map(str::to_owned);
        if let Some(base) = base {
            match base_url(base, kind.rule, kind.kind) {
                Ok(base) => provider.base_url = Some(base),
                Err(reason) => return Ok(Err(reason)),
            }
            provider.dialect = kind.dialect;
        }
        if kind.kind == ProviderKind::Azure
            && let Err(reason) = self.azure(key, &mut provider)?
        {
            return Ok(Err(reason));
        }
        if kind.kind == ProviderKind::Vertex
            && let Err(reason) = self.vertex(key, &mut provider)?
        {
            return Ok(Err(reason));
        }
        if let Some(value) = key.set("value") {
            let text = value.text()?;
            let stored = match text.strip_prefix(REFERENCE) {
                Some(variable) => self.draft.secrets.reference(variable),
                None if text.trim().is_empty() => Err("the credential is empty"),
                None => self.draft.secrets.store(&label, text),
            };
            match stored {
                Ok(name) => provider.credential = Some(DraftCredential::Env(name)),
                Err(reason) if kind.kind.needs_credential() => return Ok(Err(reason.to_owned())),
                Err(_) => {}
            }
            self.report.changed(&value, "provider.credential", "read from the environment: secrets.env");
        }
        if provider.base_url.is_none() && kind.kind.default_base_url().is_none() {
            return Ok(Err("the provider has no address: network_config.base_url".to_owned()));
        }
        if provider.credential.is_none() && kind.kind.needs_credential() {
            return Ok(Err("the key has no value".to_owned()));
        }
        if provider.base_url.as_deref() == kind.kind.default_base_url() {
            provider.base_url = None;
        }
        let weight = match key.set("weight") {
            Some(field) => {
                self.report.taken(&field, "model.targets.weight");
                let weight = field.number()?.parse::<f64>().unwrap_or(1.0);
                ((weight * 1000.0).round() as u64).min(MAX_WEIGHT)
            }
            None => 1000,
        };
        for (member, target) in [("name", "provider.name"), ("id", "provider.name")] {
            if let Some(field) = key.get(member) {
                self.report.changed(&field, target, "one name, and unique");
            }
        }
        self.models(name, key, provider, weight)?;
        Ok(Ok(()))
    }

    /// Adds the models of a key.
    fn models(
        &mut self,
        name: &str,
        key: &Field<'_>,
        provider: ProviderDraft,
        weight: u64,
    ) -> FieldResult<()> {
        let azure = key.set("azure_key_config");
        let deployments = azure.as_ref().and_then(|azure| azure.set("deployments"));
        let origin = provider.origin.clone();
        let vertex = provider.kind == ProviderKind::Vertex;
        let provider = self.draft.provider(provider);
        let listed = key.get("models").map(|models| models.elements()).transpose()?.unwrap_or_default();
        let mut added = 0;
        for field in listed {
            let model = field.text()?.trim();
            let upstream = deployments.as_ref().and_then(|deployments| deployments.set(model));
            let upstream = match &upstream {
                Some(field) => field.text()?,
                None if vertex => model.rsplit('/').next().unwrap_or(model),
                None => model,
            };
            let id = format!("{name}/{model}");
            if model.contains('*') {
                let reason = "the gateway has no patterns of models: add one [[model]] for each model that clients use";
                self.report.impossible(&field, reason);
            } else if model.is_empty() || upstream.is_empty() || id.len() > 256 || upstream.len() > 256 {
                self.report.impossible(&field, "the name of a model must have 1 to 256 bytes");
            } else if vertex && !["gemini", "imagen", "veo"].iter().any(|start| upstream.starts_with(start)) {
                let reason = "of Vertex AI only Google's models are imported; add a provider of kind \"vertex-anthropic\" for Claude";
                self.report.impossible(&field, reason);
            } else {
                let target =
                    TargetDraft { weight: weight.max(1), ..TargetDraft::new(provider.clone(), upstream) };
                if self.draft.target(&id, &origin, target) {
                    added += 1;
                    self.report.taken(&field, "model.id, model.targets");
                } else {
                    self.report.impossible(&field, "a model can have at most 64 targets");
                }
            }
        }
        if weight == 0 && added > 0 {
            self.report.remark(format!(
                "{origin} has the weight 0 and becomes one of the smallest weight; set it to 0 to disable it"
            ));
        }
        if added == 0 {
            self.report.remark(format!(
                "the provider {provider:?} has no model yet: add [[model]] tables to routes.toml"
            ));
        }
        Ok(())
    }

    fn azure(&mut self, key: &Field<'_>, provider: &mut ProviderDraft) -> FieldResult<Result<(), String>> {
        let Some(config) = key.set("azure_key_config") else {
            return Ok(Err("azure_key_config is missing".to_owned()));
        };
        config.members()?;
        let Some(endpoint) = config.set("endpoint") else {
            return Ok(Err("azure_key_config.endpoint is missing".to_owned()));
        };
        let Some(url) = self.resolve(endpoint.text()?) else {
            return Ok(Err(
                "the endpoint is an environment variable that is not set: set it while importing".to_owned(),
            ));
        };
        match base_url(&url, BaseRule::Azure, ProviderKind::Azure) {
            Ok(base) => provider.base_url = Some(base),
            Err(reason) => return Ok(Err(reason)),
        }
        self.report.taken(&endpoint, "provider.base_url");
        if let Some(field) = config.set("api_version") {
            provider.api_version = self.resolve(field.text()?);
            self.report.taken(&field, "provider.api_version");
        }
        if let Some(field) = config.get("deployments") {
            for (_, field) in field.members()? {
                field.text()?;
            }
            self.report.taken(&field, "model.targets.model");
        }
        Ok(Ok(()))
    }

    fn vertex(&mut self, key: &Field<'_>, provider: &mut ProviderDraft) -> FieldResult<Result<(), String>> {
        let Some(config) = key.set("vertex_key_config") else {
            return Ok(Err("vertex_key_config is missing".to_owned()));
        };
        config.members()?;
        let mut values = Vec::new();
        for name in ["project_id", "region"] {
            let text = config.set(name).map(|field| field.text()).transpose()?;
            match text.and_then(|text| self.resolve(text)) {
                Some(value) => values.push(value),
                None => {
                    return Ok(Err(format!("vertex_key_config.{name} is not known: set it while importing")));
                }
            }
        }
        let [project, region] = values.as_slice() else { return Ok(Err("no project".to_owned())) };
        match base_url(&vertex_url(project, region), BaseRule::Whole, ProviderKind::Vertex) {
            Ok(base) => provider.base_url = Some(base),
            Err(reason) => return Ok(Err(reason)),
        }
        for name in ["project_id", "region", "project_number"] {
            if let Some(field) = config.get(name) {
                self.report.taken(&field, "provider.base_url");
            }
        }
        if let Some(field) = config.get("auth_credentials") {
            let note = "credentials of Google Cloud are not copied: set `google` of the provider in place of `credential`, which names the file \
                        vertex-token (docs/providers.md)";
            self.report.changed(&field, "provider.credential", note);
        }
        provider.credential = Some(DraftCredential::File("vertex-token".to_owned()));
        Ok(Ok(()))
    }

    /// Returns a text, or the value of the variable that it names; `None` if that is not set.
    fn resolve(&self, text: &str) -> Option<String> {
        match text.trim().strip_prefix(REFERENCE) {
            Some(name) => (self.env)(name),
            None => Some(text.trim().to_owned()),
        }
    }
}

/// Provider of Bifrost in the configuration.
struct Kind {
    kind: ProviderKind,
    base: Option<&'static str>,
    dialect: Option<&'static str>,
    rule: BaseRule,
}

/// Returns the kind of a provider, or the reason why it has none.
fn kind_of(name: &str) -> Result<Kind, &'static str> {
    // The same providers have other names at LiteLLM.
    let prefix = match name {
        "vertex" => {
            let (kind, rule) = (ProviderKind::Vertex, BaseRule::Whole);
            return Ok(Kind { kind, base: None, dialect: None, rule });
        }
        "sgl" | "vllm" => "hosted_vllm",
        "nebius" | "parasail" | "elevenlabs" => "",
        "bedrock" => return Err(BEDROCK),
        other => other,
    };
    let entry = prefixes::find(prefix).ok_or("the provider is not known: add a [[provider]] by hand")?;
    // Bifrost's addresses have no version.
    let rule = if entry.rule == BaseRule::Azure { BaseRule::Azure } else { BaseRule::Root };
    Ok(Kind { kind: entry.kind, base: entry.base, dialect: entry.dialect, rule })
}
