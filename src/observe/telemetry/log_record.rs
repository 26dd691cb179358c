//! Log records: the access log line of a request, as OTLP's logs.proto defines it.

use super::attributes::Attributes;
use super::facts::RequestFacts;
use super::protobuf::ProtobufWriter;
use super::span::{known_method, request_attributes};
use super::trace_context::{SpanId, TraceId};

/// Field of the records in `ScopeLogs`.
pub(super) const RECORDS: u32 = 2;
/// Values of `SeverityNumber`: INFO, WARN, ERROR.
const INFO: (u64, &str) = (9, "INFO");
const WARN: (u64, &str) = (13, "WARN");
const ERROR: (u64, &str) = (17, "ERROR");
/// Value of `event_name`.
const EVENT: &str = "gateway.access";

/// Trace of a record's request.
#[derive(Clone, Copy, Debug)]
pub struct RecordTrace {
    /// Trace id.
    pub trace: TraceId,
    /// Id of the request's span.
    pub span: SpanId,
    /// Whether the trace is exported.
    pub is_sampled: bool,
}

/// Encodes the log record of a request as a field of `ScopeLogs`. `trace` is `None` if the request has no trace.
pub fn encode_record(request: &RequestFacts<'_>, trace: Option<RecordTrace>, out: &mut Vec<u8>) {
    let (number, severity) = match request.error {
        Some(_) if request.is_client_fault => WARN,
        Some(_) => ERROR,
        None => INFO,
    };
    let end = request.start.saturating_add(request.nanos);
    ProtobufWriter::new(out).message(RECORDS, |record| {
        record.fixed64(1, end);
        record.varint(2, number);
        record.bytes(3, severity.as_bytes());
        let mut status = itoa::Buffer::new();
        let path = if request.route.is_empty() { "unknown path" } else { request.route };
        let status = status.format(request.status);
        record.message(5, |body| body.text_of(1, &[known_method(request.method), " ", path, " ", status]));
        let mut to = Attributes::new(record, 6);
        request_attributes(&mut to, request);
        to.double("gateway.duration", request.nanos as f64 / 1e9);
        to.optional_text("gateway.finish", request.finish);
        to.optional_integer("gateway.input_tokens", request.usage.input);
        to.optional_integer("gateway.cached_input_tokens", request.usage.cached);
        to.optional_integer("gateway.output_tokens", request.usage.output);
        to.optional_integer("gateway.reasoning_tokens", request.usage.reasoning);
        if let Some(trace) = trace {
            record.fixed32(8, u32::from(trace.is_sampled));
            record.bytes(9, trace.trace.as_bytes());
            record.bytes(10, trace.span.as_bytes());
        }
        record.fixed64(11, end);
        record.bytes(12, EVENT.as_bytes());
    });
}
