//! Stub collector: takes OTLP over HTTP, and decodes it with the official messages.

use std::io::Read as _;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::upstream::{Request, Upstream};
use super::{reply, until};

/// Stub collector.
pub(crate) struct Collector {
    pub(crate) upstream: Upstream,
}

/// Response that takes everything: an empty message.
pub(crate) fn taken() -> Vec<u8> {
    reply::whole(200, &[("content-type", "application/x-protobuf")], "")
}

impl Collector {
    /// Starts a collector that takes everything.
    pub(crate) async fn start() -> Collector {
        Collector { upstream: Upstream::answering(taken()).await }
    }

    /// Starts a collector that sends these responses in their order, and repeats the last one.
    pub(crate) async fn answering_each(answers: Vec<Vec<u8>>) -> Collector {
        Collector { upstream: Upstream::answering_each(answers).await }
    }

    /// Starts one that reads and never answers.
    pub(crate) async fn silent() -> Collector {
        let upstream = Upstream::start(|mut conn| async move {
            while conn.request().await.is_some() {}
            conn.closed().await;
        });
        Collector { upstream: upstream.await }
    }

    /// Starts one that resets each connection when a request has arrived.
    pub(crate) async fn resetting() -> Collector {
        let upstream = Upstream::start(|mut conn| async move {
            conn.head().await;
            conn.reset();
        });
        Collector { upstream: upstream.await }
    }

    /// Starts one that answers each request after a pause.
    pub(crate) async fn slow(pause: Duration) -> Collector {
        let upstream = Upstream::start(move |mut conn| async move {
            while conn.request().await.is_some() {
                tokio::time::sleep(pause).await;
                conn.send(taken()).await;
            }
        });
        Collector { upstream: upstream.await }
    }

    /// Returns lines of gateway.toml that export to this collector soon.
    pub(crate) fn lines(&self) -> String {
        format!("[telemetry]\notlp = \"http://{}\"\ndelay = \"20ms\"\n", self.upstream.addr)
    }

    fn bodies<M: Message + Default>(&self, path: &str) -> Vec<M> {
        let requests = self.upstream.requests();
        let of_path =
            requests.iter().filter(|request| request.head.line.starts_with(&format!("POST {path} ")));
        of_path.map(|request| M::decode(&decoded(request)[..]).unwrap()).collect()
    }

    /// Returns the spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.bodies::<ExportTraceServiceRequest>("/v1/traces").into_iter();
        let scopes =
            requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Waits for spans, and returns them.
    pub(crate) async fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        until(|| self.spans().len() >= count).await;
        self.spans()
    }

    /// Returns the log records so far.
    pub(crate) fn logs(&self) -> Vec<LogRecord> {
        let requests = self.bodies::<ExportLogsServiceRequest>("/v1/logs").into_iter();
        let scopes =
            requests.flat_map(|request| request.resource_logs).flat_map(|resource| resource.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }

    /// Returns the requests with metrics so far.
    pub(crate) fn collections(&self) -> Vec<ExportMetricsServiceRequest> {
        self.bodies("/v1/metrics")
    }

    /// Returns the metrics so far.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let requests = self.collections().into_iter();
        let scopes =
            requests.flat_map(|request| request.resource_metrics).flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).collect()
    }

    /// Returns all that was received, decompressed, as text to be searched.
    pub(crate) fn everything(&self) -> String {
        let requests = self.upstream.requests();
        requests.iter().map(|request| String::from_utf8_lossy(&decoded(request)).into_owned()).collect()
    }
}

/// Returns the body of a request, after its headers were checked.
fn decoded(request: &Request) -> Vec<u8> {
    assert_eq!(request.head.get("content-type"), Some("application/x-protobuf"));
    match request.head.get("content-encoding") {
        Some("gzip") => {
            let mut body = Vec::new();
            flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut body).unwrap();
            body
        }
        None => request.body.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns an attribute as text; `None` if it is missing.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let pair = attributes.iter().find(|pair| pair.key == key)?;
    Some(match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
