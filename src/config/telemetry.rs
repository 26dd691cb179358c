//! `[telemetry]` of gateway.toml, and the environment variables that fill what it leaves unset.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use super::Vault;
use super::node::ConfigTable;
use super::telemetry_env::{OtelVariables, headers, millis, pairs, truth};
use super::values;
use files::{certificates, private_key};
use observe::telemetry::conventions::Conventions;
use observe::telemetry::sampling::{SampleShare, SlowRule};
use observe::telemetry::transport::{ClientIdentity, CollectorEndpoint};
use routing::account::{Network, amount};

mod files;

/// Settings of telemetry over OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Where traces are sent to; `None` if they are off.
    pub traces: Option<CollectorEndpoint>,
    /// Where log records are sent to; `None` if they are off.
    pub logs: Option<CollectorEndpoint>,
    /// Where metrics are sent to; `None` if they are off.
    pub metrics: Option<CollectorEndpoint>,
    /// Time between two exports of metrics.
    pub interval: Duration,
    /// Share of requests whose traces are exported, in billionths.
    pub sample: u64,
    /// Which requests count as slow, and are sampled in any case.
    pub slow: SlowRule,
    /// Networks whose decision about sampling is followed.
    pub trust: Vec<Network>,
    /// Whether providers receive the trace context of the attempt.
    pub propagate: bool,
    /// Whether names of keys and accounts, and addresses of clients, are exported.
    pub names: bool,
    /// Value of `service.name`.
    pub service_name: String,
    /// Further resource attributes.
    pub resource: Vec<(String, String)>,
    /// Maximum number of queued items per signal.
    pub queue: usize,
    /// Maximum number of items in one request.
    pub batch: usize,
    /// Longest time before a queued item is sent.
    pub delay: Duration,
    /// Version of the GenAI conventions.
    pub conventions: Conventions,
    /// Files with headers and certificates, which a reload reads again.
    pub files: Vec<PathBuf>,
    /// Keys that environment variables have filled, with the variable.
    pub origins: Vec<(&'static str, String)>,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        TelemetrySettings {
            traces: None,
            logs: None,
            metrics: None,
            // The default of OTEL_METRIC_EXPORT_INTERVAL.
            interval: Duration::from_secs(60),
            // Enough to see the usual case; errors, retries and slow requests are sampled in any case.
            sample: 10_000_000,
            slow: SlowRule::Percentile99,
            trust: Vec::new(),
            propagate: false,
            names: false,
            service_name: "model-gateway".to_owned(),
            resource: Vec::new(),
            // The defaults of OTEL_BSP_*.
            queue: 2_048,
            batch: 512,
            delay: Duration::from_secs(5),
            conventions: Conventions::default(),
            files: Vec::new(),
            origins: Vec::new(),
        }
    }
}

/// Default of `telemetry.timeout`, that of OTEL_EXPORTER_OTLP_TIMEOUT.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest `telemetry.queue`: with 4 KiB for an item, 400 MiB.
const MAX_QUEUE: i64 = 100_000;
/// Whole of `telemetry.sample`, in billionths.
const WHOLE: i64 = 1_000_000_000;

/// What `[telemetry]` sets.
#[derive(Default)]
struct FileSettings {
    otlp: Option<Url>,
    signals: [Option<bool>; 3],
    headers: Option<Vec<(HeaderName, HeaderValue)>>,
    gzip: Option<bool>,
    timeout: Option<Duration>,
    roots: Option<Arc<[Vec<u8>]>>,
    identity: Option<Arc<ClientIdentity>>,
    interval: Option<Duration>,
    sample: Option<u64>,
    slow: Option<SlowRule>,
    trust: Vec<Network>,
    propagate: Option<bool>,
    names: Option<bool>,
    service_name: Option<String>,
    resource: Vec<(String, String)>,
    queue: Option<usize>,
    batch: Option<usize>,
    delay: Option<Duration>,
    conventions: Option<Conventions>,
    files: Vec<PathBuf>,
}

/// Signals: the key, the path of OTLP, the part of the variables' names, and whether it is on by default.
const SIGNALS: [(&str, &str, &str, bool); 3] = [
    ("traces", "v1/traces", "TRACES", true),
    ("logs", "v1/logs", "LOGS", false),
    ("metrics", "v1/metrics", "METRICS", false),
];

/// Reads `[telemetry]`, and the environment for what it leaves unset.
pub(super) fn read(root: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> TelemetrySettings {
    let file = root.table("telemetry", |table| read_table(table, folder, vault)).unwrap_or_default();
    let variables = OtelVariables::new(vault);
    let is_disabled = variables.parsed("otlp", "OTEL_SDK_DISABLED", truth).unwrap_or(false);
    let is_named =
        file.otlp.is_some() || SIGNALS.iter().any(|(_, _, part, _)| endpoint(&variables, part).is_some());
    if is_disabled || !is_named {
        if let Some(table) = root.get("telemetry").filter(|_| !is_disabled && vault.reads()) {
            table.warn(
                "nothing is exported without telemetry.otlp",
                "for example: otlp = \"http://127.0.0.1:4318\"".to_owned(),
            );
        }
        // Variables of other programs must not keep a gateway without telemetry from starting.
        return TelemetrySettings::default();
    }
    let settings = merge(file, &variables);
    variables.warn_of_others();
    TelemetrySettings { origins: variables.finish(root), ..settings }
}

/// Returns the value of the variable that has a signal's endpoint.
fn endpoint(variables: &OtelVariables<'_>, part: &str) -> Option<String> {
    let own = variables.get(&format!("OTEL_EXPORTER_OTLP_{part}_ENDPOINT"));
    own.or_else(|| variables.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

fn merge(file: FileSettings, variables: &OtelVariables<'_>) -> TelemetrySettings {
    let default = TelemetrySettings::default();
    let [traces, logs, metrics] = std::array::from_fn(|index| {
        let (key, path, part, by_default) = *SIGNALS.get(index)?;
        let set = file.signals.get(index).copied().flatten();
        let set = set.or_else(|| variables.exporter(key, &format!("OTEL_{part}_EXPORTER")));
        if !set.unwrap_or(by_default) {
            return None;
        }
        destination(&file, variables, path, part)
    });
    let sampler = match file.sample {
        Some(sample) => Some(sample),
        None => variables.parsed("sample", "OTEL_TRACES_SAMPLER", |name| sampler(name, variables)),
    };
    let mut resource = variables.parsed("resource", "OTEL_RESOURCE_ATTRIBUTES", pairs).unwrap_or_default();
    resource.retain(|(key, _)| file.resource.iter().all(|(other, _)| other != key));
    resource.extend(file.resource);
    let named = resource.iter().position(|(key, _)| key == "service.name");
    let named = named.map(|index| resource.remove(index).1);
    let service_name = file.service_name;
    let service_name = service_name
        .or_else(|| variables.parsed("service_name", "OTEL_SERVICE_NAME", |text| Ok(text.to_owned())));
    let count = |text: &str| match text.parse::<i64>() {
        Ok(count @ 1..=MAX_QUEUE) => Ok(usize::try_from(count).unwrap_or(1)),
        _ => Err(format!("write a number from 1 to {MAX_QUEUE}")),
    };
    let opted_in = || {
        variables.parsed("conventions", "OTEL_SEMCONV_STABILITY_OPT_IN", |text| {
            let latest = text.split(',').any(|part| part.trim() == "gen_ai_latest_experimental");
            Ok(if latest { Conventions::GenAi0_1 } else { Conventions::default() })
        })
    };
    // One setting is for spans and log records; the variables of spans precede those of log records.
    let queue = file.queue.or_else(|| variables.of_processor("queue", "MAX_QUEUE_SIZE", count));
    let batch = file.batch.or_else(|| variables.of_processor("batch", "MAX_EXPORT_BATCH_SIZE", count));
    let delay = file.delay.or_else(|| variables.of_processor("delay", "SCHEDULE_DELAY", millis));
    let interval =
        file.interval.or_else(|| variables.parsed("interval", "OTEL_METRIC_EXPORT_INTERVAL", millis));
    let queue = queue.unwrap_or(default.queue);
    TelemetrySettings {
        traces,
        logs,
        metrics,
        interval: interval.unwrap_or(default.interval).max(Duration::from_secs(1)),
        sample: sampler.unwrap_or(default.sample),
        slow: file.slow.unwrap_or(default.slow),
        trust: file.trust,
        propagate: file.propagate.unwrap_or(default.propagate),
        names: file.names.unwrap_or(default.names),
        service_name: service_name.or(named).unwrap_or(default.service_name),
        resource,
        queue,
        batch: batch.unwrap_or(default.batch).min(queue),
        delay: delay.unwrap_or(default.delay).max(Duration::from_millis(10)),
        conventions: file.conventions.or_else(opted_in).unwrap_or(default.conventions),
        files: file.files.into_iter().chain(variables.files()).collect(),
        origins: Vec::new(),
    }
}

/// Returns the destination of a signal. `None` if no endpoint is set, or a variable is not valid, which is reported.
fn destination(
    file: &FileSettings,
    variables: &OtelVariables<'_>,
    path: &str,
    part: &str,
) -> Option<CollectorEndpoint> {
    // The protocol is the only one that the gateway speaks, so the file has no key for it.
    variables.of_signal("otlp", part, "PROTOCOL", |text| match text {
        "http/protobuf" => Ok(()),
        _ => Err("the gateway exports \"http/protobuf\" only; collectors accept it on port 4318".to_owned()),
    });
    let url = match &file.otlp {
        Some(base) => joined(base, path),
        None => {
            let own = format!("OTEL_EXPORTER_OTLP_{part}_ENDPOINT");
            match variables.get(&own) {
                // The endpoint of one signal is used as it is.
                Some(_) => variables.parsed("otlp", &own, base_url)?.to_string(),
                None => joined(&variables.parsed("otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", base_url)?, path),
            }
        }
    };
    let gzip = || {
        variables.of_signal("compression", part, "COMPRESSION", |text| match text {
            "gzip" => Ok(true),
            "none" => Ok(false),
            _ => Err("write \"gzip\" or \"none\"".to_owned()),
        })
    };
    let certificates = |path: &str| certificates(&variables.file(path)?).map(Arc::from);
    let identity = || {
        let chain = variables.of_signal("client_cert", part, "CLIENT_CERTIFICATE", |path| {
            files::certificates(&variables.file(path)?)
        })?;
        let key = variables
            .of_signal("client_key", part, "CLIENT_KEY", |path| variables.file(path).and_then(private_key))?;
        Some(Arc::new(ClientIdentity { chain, key }))
    };
    Some(CollectorEndpoint {
        url,
        headers: match &file.headers {
            Some(headers) => headers.clone(),
            None => variables.of_signal("headers", part, "HEADERS", headers).unwrap_or_default(),
        },
        gzip: file.gzip.or_else(gzip).unwrap_or(true),
        timeout: file.timeout.unwrap_or_else(|| timeout(variables, part)).max(Duration::from_millis(100)),
        roots: file.roots.clone().or_else(|| variables.of_signal("ca", part, "CERTIFICATE", certificates)),
        identity: file.identity.clone().or_else(identity),
    })
}

/// Returns the time-out of a signal's requests by the variables: that of the exporter, or of the export if it is shorter.
fn timeout(variables: &OtelVariables<'_>, part: &str) -> Duration {
    let whole = match part {
        "TRACES" => "OTEL_BSP_EXPORT_TIMEOUT",
        "LOGS" => "OTEL_BLRP_EXPORT_TIMEOUT",
        _ => "OTEL_METRIC_EXPORT_TIMEOUT",
    };
    let own = variables.of_signal("timeout", part, "TIMEOUT", millis);
    // 0 is no limit.
    let whole = variables.parsed("timeout", whole, millis).filter(|whole| !whole.is_zero());
    let own = own.unwrap_or(TIMEOUT);
    whole.map_or(own, |whole| own.min(whole))
}

/// Parses the name of a sampler of OpenTelemetry: its share in billionths. A parent's decision is followed by
/// `telemetry.trust` only, so `parentbased_` makes no difference.
fn sampler(name: &str, variables: &OtelVariables<'_>) -> Result<u64, String> {
    match name.strip_prefix("parentbased_").unwrap_or(name) {
        "always_on" => Ok(WHOLE.unsigned_abs()),
        "always_off" => Ok(0),
        "traceidratio" => match variables.get("OTEL_TRACES_SAMPLER_ARG") {
            Some(text) => share(&text),
            None => Ok(WHOLE.unsigned_abs()),
        },
        _ => {
            Err("write always_on, always_off or traceidratio, with parentbased_ before it or not".to_owned())
        }
    }
}

/// Parses a share from 0 to 1 to billionths.
fn share(text: &str) -> Result<u64, String> {
    let nanos = amount::parse(text).ok().filter(|nanos| (0..=WHOLE).contains(nanos));
    nanos.map(i64::unsigned_abs).ok_or_else(|| "write a share from 0 to 1".to_owned())
}

fn read_table(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> FileSettings {
    let otlp = table.get("otlp").and_then(|value| value.hidden().parsed(base_url));
    let count = |key| {
        let count = table.integer(key, &(1..=MAX_QUEUE))?;
        usize::try_from(count).ok()
    };
    let sample = table.get("sample").and_then(|value| {
        let nanos = value.as_amount()?;
        if !(0..=WHOLE).contains(&nanos) {
            value.wrong("a share is a number from 0 to 1", "for example: sample = 0.01".to_owned());
        }
        Some(nanos.unsigned_abs())
    });
    let settings = FileSettings {
        otlp,
        signals: SIGNALS.map(|(key, ..)| table.boolean(key)),
        headers: files::read_headers(table, folder, vault),
        gzip: table.get("compression").and_then(|value| {
            value.parsed(|text| match text {
                "gzip" => Ok(true),
                "none" => Ok(false),
                _ => Err("write \"gzip\" or \"none\"".to_owned()),
            })
        }),
        timeout: table.duration("timeout"),
        roots: files::read_file(table, "ca", folder, vault, |text| certificates(&text).map(Arc::from)),
        identity: files::read_identity(table, folder, vault),
        files: files::named(table, folder, vault),
        interval: table.duration("interval"),
        sample,
        slow: table.get("slow").and_then(|value| value.parsed(slow_rule)),
        trust: read_networks(table),
        propagate: table.boolean("propagate"),
        names: table.boolean("names"),
        service_name: table.string("service_name"),
        resource: read_resource(table),
        queue: count("queue"),
        batch: count("batch"),
        delay: table.duration("delay"),
        conventions: table.get("conventions").and_then(|value| {
            value.parsed(|text| {
                let known = || super::routes::one_of(text, &Conventions::ALL.map(Conventions::name));
                Conventions::from_name(text).ok_or_else(known)
            })
        }),
    };
    if let (Some(queue), Some(batch)) = (settings.queue, settings.batch)
        && batch > queue
    {
        table.wrong("batch is larger than queue", "a batch is taken from the queue".to_owned());
    }
    settings
}

fn slow_rule(text: &str) -> Result<SlowRule, String> {
    match text {
        "off" => Ok(SlowRule::Off),
        "p99" => Ok(SlowRule::Percentile99),
        _ => values::duration(text)
            .map(SlowRule::Above)
            .map_err(|_| "write \"p99\", \"off\", or a time such as \"30s\"".to_owned()),
    }
}

fn read_networks(table: &ConfigTable<'_>) -> Vec<Network> {
    let mut networks = Vec::new();
    if let Some(list) = table.get("trust") {
        list.elements(|element| {
            networks.extend(element.parsed(|text| {
                let hint = || "write a network such as \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned();
                Network::parse(text).ok_or_else(hint)
            }));
        });
    }
    networks
}

fn read_resource(table: &ConfigTable<'_>) -> Vec<(String, String)> {
    let mut resource = Vec::new();
    table.table("resource", |entries| {
        entries.entries(|key, value| {
            resource.extend(value.as_str().map(|text| (key.to_owned(), text.to_owned())));
        });
    });
    resource
}

/// Parses the URL of a collector. The error is a hint for the user.
fn base_url(text: &str) -> Result<Url, String> {
    const HINT: &str = "write a URL such as \"http://127.0.0.1:4318\"";
    let url = Url::parse(text).map_err(|_| HINT.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(HINT.to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "set an authorization header in telemetry.headers instead of a user in the URL".to_owned()
        );
    }
    Ok(url)
}

/// Appends the path of a signal to a base URL (OTLP specification, "Endpoint URLs for OTLP/HTTP").
fn joined(base: &Url, path: &str) -> String {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url.to_string()
}

impl TelemetrySettings {
    /// Returns whether any signal is exported.
    pub fn is_on(&self) -> bool {
        self.traces.is_some() || self.logs.is_some() || self.metrics.is_some()
    }

    /// Returns the share of requests that are sampled.
    pub fn share(&self) -> SampleShare {
        SampleShare::from_billionths(self.sample)
    }
}

#[cfg(test)]
mod tests;
