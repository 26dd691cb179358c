use std::collections::BTreeMap;

use super::*;
use crate::overrides::Overrides;
use crate::settings;

/// Environment of a case.
struct Variables(BTreeMap<&'static str, &'static str>);

impl Vault for Variables {
    fn env(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("headers") => Ok("# of the collector\nauthorization: Bearer SECRET\n\n".to_owned()),
            Some("empty.pem") => Ok(String::new()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        }
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|text| (*text).to_owned())
    }
}

fn load(table: &str, variables: &[(&'static str, &'static str)]) -> Result<TelemetrySettings, String> {
    let text = format!("[server]\nlisten = [\"127.0.0.1:0\"]\n{table}");
    let vault = Variables(variables.iter().copied().collect());
    let read = settings::read(Path::new("gateway.toml"), &text, &Overrides::default(), &vault);
    read.map(|settings| settings.telemetry).map_err(|report| report.to_string())
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/");

#[test]
fn telemetry_is_off_without_an_endpoint() {
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_SERVICE_NAME", "x")];
    assert_eq!(load("", &variables).unwrap(), TelemetrySettings::default());
    assert_eq!(load("[telemetry]\nlogs = true\n", &[]).unwrap(), TelemetrySettings::default());
    let disabled = load("[telemetry]\notlp = \"http://c:4318\"", &[("OTEL_SDK_DISABLED", "true")]);
    assert!(!disabled.unwrap().is_on());
}

#[test]
fn telemetry_variables_fill_what_the_file_leaves_unset() {
    let variables = [
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs.example/ingest"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b,x-team=two"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_LOGS_EXPORTER", "otlp"),
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=a%2Cb"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1000"),
        ("OTEL_SEMCONV_STABILITY_OPT_IN", "http,gen_ai_latest_experimental"),
    ];
    let settings = load("[telemetry]\nslow = \"5s\"\n", &variables).unwrap();
    let traces = settings.traces.as_ref().unwrap();
    assert_eq!(traces.url, "http://collector:4318/base/v1/traces");
    assert_eq!((traces.timeout, traces.gzip), (Duration::from_millis(2_500), false));
    assert_eq!(traces.headers[0].1, "a b");
    assert_eq!(settings.logs.as_ref().unwrap().url, "https://logs.example/ingest");
    assert_eq!(settings.metrics, None);
    assert_eq!((settings.sample, settings.slow), (250_000_000, SlowRule::Above(Duration::from_secs(5))));
    assert_eq!(settings.service_name, "edge");
    assert_eq!(settings.resource, [("deployment.environment.name".to_owned(), "a,b".to_owned())]);
    // A batch is never larger than the queue.
    assert_eq!((settings.queue, settings.batch, settings.delay), (100, 100, Duration::from_secs(1)));
    assert_eq!(settings.conventions, Conventions::GenAi0_1);
    assert!(settings.origins.contains(&("sample", "OTEL_TRACES_SAMPLER".to_owned())));
    let debug = format!("{settings:?}");
    assert!(!debug.contains("a b"), "{debug}");
}

#[test]
fn telemetry_variables_of_other_programs_are_no_fault() {
    let variables = [
        ENDPOINT,
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_TRACES_EXPORTER", "console, otlp"),
        ("OTEL_LOGS_EXPORTER", "console"),
        ("OTEL_PROPAGATORS", "tracecontext,b3"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ];
    let settings = load("", &variables).unwrap();
    assert!(settings.traces.is_some() && settings.logs.is_none() && settings.metrics.is_none());
}

#[test]
fn telemetry_timeouts_and_queues_have_the_variables_of_each_signal() {
    let variables = [
        ENDPOINT,
        ("OTEL_LOGS_EXPORTER", "otlp"),
        ("OTEL_METRICS_EXPORTER", "otlp,prometheus"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "30000"),
        ("OTEL_BLRP_EXPORT_TIMEOUT", "4000"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "3000"),
        ("OTEL_BLRP_MAX_QUEUE_SIZE", "300"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "20"),
        ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "10"),
    ];
    let settings = load("", &variables).unwrap();
    let timeout = |signal: &Option<CollectorEndpoint>| signal.as_ref().unwrap().timeout.as_secs();
    let (traces, logs, metrics) = (&settings.traces, &settings.logs, &settings.metrics);
    assert_eq!((timeout(traces), timeout(logs), timeout(metrics)), (10, 4, 3));
    assert_eq!((settings.queue, settings.batch), (300, 20));
    let file = load("[telemetry]\ntimeout = \"7s\"\n", &variables).unwrap();
    assert_eq!(timeout(&file.logs), 7);
}

#[test]
fn telemetry_file_precedes_the_variables() {
    let table = "[telemetry]\notlp = \"http://mine:4318\"\ntraces = false\nmetrics = true\nsample = 1\n\
                 timeout = \"3s\"\nheaders_file = \"headers\"\nresource = { \"service.name\" = \"mine\" }\n";
    let variables = [
        ENDPOINT,
        ("OTEL_TRACES_EXPORTER", "otlp"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x=y"),
    ];
    let settings = load(table, &variables).unwrap();
    assert_eq!((&settings.traces, &settings.logs), (&None, &None));
    let metrics = settings.metrics.unwrap();
    assert_eq!(
        (metrics.url.as_str(), metrics.timeout),
        ("http://mine:4318/v1/metrics", Duration::from_secs(3))
    );
    assert_eq!(metrics.headers.len(), 1);
    assert_eq!(metrics.headers[0].1, "Bearer SECRET");
    assert_eq!((settings.sample, settings.service_name.as_str()), (1_000_000_000, "mine"));
    assert!(settings.origins.is_empty(), "{:?}", settings.origins);
}

#[test]
fn telemetry_faults_are_reported_with_hints_and_without_secrets() {
    let endpoint = "[telemetry]\notlp = \"http://c:4318\"\n";
    for (lines, variables, expected) in [
        ("", vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/protobuf"),
        ("", vec![("OTEL_EXPORTER_OTLP_HEADERS", "SECRET")], "OTEL_EXPORTER_OTLP_HEADERS is not valid"),
        ("", vec![("OTEL_TRACES_SAMPLER", "jaeger_remote")], "always_on"),
        ("sample = 2\n", vec![], "from 0 to 1"),
        ("slow = \"soon\"\n", vec![], "p99"),
        ("headers = { host = \"SECRET\" }\n", vec![], "manage itself"),
        ("ca = \"empty.pem\"\n", vec![], "PEM file with certificates"),
        ("client_cert = \"missing\"\n", vec![], "only one of client_cert and client_key"),
        ("trust = [\"10.0.0.0/99\"]\n", vec![], "write a network"),
        ("queue = 10\nbatch = 20\n", vec![], "batch is larger than queue"),
        ("conventions = \"2\"\n", vec![], "1.41.0"),
    ] {
        let report = load(&format!("{endpoint}{lines}"), &variables).unwrap_err();
        assert!(report.contains(expected), "{lines}{variables:?}: {report}");
        assert!(!report.contains("SECRET"), "{report}");
    }
    for url in ["collector:4318", "ftp://c", "http://", "http://user:SECRET@c:4318"] {
        let report = load(&format!("[telemetry]\notlp = \"{url}\"\n"), &[]).unwrap_err();
        assert!(report.contains("telemetry.otlp") && !report.contains("SECRET"), "{url}: {report}");
    }
}
