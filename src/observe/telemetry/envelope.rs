//! Envelope of exported data: the resource and the scope around spans, log records or metrics. OTLP's three services have
//! messages of the same shape.

use super::attributes::Attributes;
use super::conventions::Conventions;
use super::protobuf::{MessageFields, ProtobufWriter, WireValue, bytes_field_len};

/// Name of the instrumentation scope.
const SCOPE: &str = "model-gateway";

/// Resource and scope of a process, encoded once.
#[derive(Debug)]
pub struct Envelope {
    resource: Vec<u8>,
    scope: Vec<u8>,
    schema_url: &'static str,
}

impl Envelope {
    /// Encodes a resource of these attributes.
    pub fn new<'a>(
        resource: impl Iterator<Item = (&'a str, &'a str)>,
        conventions: Conventions,
        version: &str,
    ) -> Self {
        let mut envelope =
            Envelope { resource: Vec::new(), scope: Vec::new(), schema_url: conventions.schema_url() };
        let mut message = ProtobufWriter::new(&mut envelope.resource);
        let mut attributes = Attributes::new(&mut message, 1);
        resource.for_each(|(key, value)| attributes.text(key, value));
        let mut scope = ProtobufWriter::new(&mut envelope.scope);
        scope.bytes(1, SCOPE.as_bytes());
        scope.bytes(2, version.as_bytes());
        Attributes::new(&mut scope, 3).text("gateway.semantic_conventions", conventions.name());
        envelope
    }

    /// Wraps items, which are encoded as fields of `ScopeSpans`, `ScopeLogs` or `ScopeMetrics`, into a request.
    pub fn wrap(&self, items: &[u8]) -> Vec<u8> {
        let schema = match self.schema_url.len() {
            0 => 0,
            length => bytes_field_len(3, length),
        };
        let scope = bytes_field_len(1, self.scope.len()) + items.len() + schema;
        let resource = bytes_field_len(1, self.resource.len()) + bytes_field_len(2, scope);
        let mut out = Vec::with_capacity(bytes_field_len(1, resource));
        let mut message = ProtobufWriter::new(&mut out);
        message.begin(1, resource);
        message.bytes(1, &self.resource);
        message.begin(2, scope);
        message.bytes(1, &self.scope);
        message.raw(items);
        if schema > 0 {
            message.bytes(3, self.schema_url.as_bytes());
        }
        out
    }
}

/// Partial success of an export: what the collector has not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    /// Rejected spans, log records or data points.
    pub rejected: u64,
    /// Reason; empty if the collector gives none.
    pub message: String,
}

impl PartialSuccess {
    /// Reads the response of a collector. A response without the field, and one that is not protobuf, rejects nothing.
    pub fn parse(response: &[u8]) -> Self {
        let mut partial = PartialSuccess::default();
        for (field, value) in MessageFields::new(response) {
            let (1, WireValue::Bytes(inner)) = (field, value) else { continue };
            for (field, value) in MessageFields::new(inner) {
                match (field, value) {
                    // A negative count has no meaning.
                    (1, WireValue::Varint(count)) => {
                        partial.rejected = u64::try_from(count.cast_signed()).unwrap_or(0)
                    }
                    (2, WireValue::Bytes(text)) => {
                        partial.message = String::from_utf8_lossy(text).chars().take(200).collect();
                    }
                    _ => {}
                }
            }
        }
        partial
    }
}
