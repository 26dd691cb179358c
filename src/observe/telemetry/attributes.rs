//! Attributes of spans, events, log records and data points: `KeyValue` and `AnyValue` of OTLP's common.proto.

use super::protobuf::{ProtobufWriter, bytes_field_len, varint_field_len};

/// Longest text of an attribute, in bytes. Longer ones are cut: model ids and paths come from clients.
const MAX_TEXT: usize = 256;

/// Writer of attributes into a field of a message.
#[derive(Debug)]
pub struct Attributes<'m, 'b> {
    message: &'m mut ProtobufWriter<'b>,
    field: u32,
}

impl<'m, 'b> Attributes<'m, 'b> {
    /// Writes attributes into the repeated field `field`.
    pub fn new(message: &'m mut ProtobufWriter<'b>, field: u32) -> Self {
        Attributes { message, field }
    }

    /// Begins a pair whose `AnyValue` has this length, and is written next. The lengths are known before, so that
    /// nothing has to be moved.
    fn begin(&mut self, key: &str, value: usize) {
        self.message.begin(self.field, bytes_field_len(1, key.len()) + bytes_field_len(2, value));
        self.message.bytes(1, key.as_bytes());
        self.message.begin(2, value);
    }

    /// Writes a text, cut to 256 bytes; nothing for an empty one.
    pub fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            let value = shortened(value);
            self.begin(key, bytes_field_len(1, value.len()));
            self.message.bytes(1, value.as_bytes());
        }
    }

    /// Writes a text if there is one.
    pub fn optional_text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// Writes a list with one text.
    pub fn text_list(&mut self, key: &str, value: &str) {
        let value = shortened(value);
        let one = bytes_field_len(1, value.len());
        let list = bytes_field_len(1, one);
        self.begin(key, bytes_field_len(5, list));
        self.message.begin(5, list);
        self.message.begin(1, one);
        self.message.bytes(1, value.as_bytes());
    }

    /// Writes an integer.
    pub fn integer(&mut self, key: &str, value: u64) {
        // The field is signed: larger values have no meaning here.
        let value = value.min(i64::MAX.unsigned_abs());
        self.begin(key, varint_field_len(3, value));
        self.message.varint(3, value);
    }

    /// Writes an integer if there is one.
    pub fn optional_integer(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.integer(key, value);
        }
    }

    /// Writes a truth value.
    pub fn boolean(&mut self, key: &str, value: bool) {
        self.begin(key, varint_field_len(2, value.into()));
        self.message.varint(2, value.into());
    }

    /// Writes a number.
    pub fn double(&mut self, key: &str, value: f64) {
        // A tag and eight bytes.
        self.begin(key, 9);
        self.message.double(4, value);
    }

    /// Writes nanoseconds as seconds, if there are any.
    pub fn optional_seconds(&mut self, key: &str, nanos: Option<u64>) {
        if let Some(nanos) = nanos {
            self.double(key, nanos as f64 / 1e9);
        }
    }
}

/// Returns at most 256 bytes of a text, in whole characters.
fn shortened(text: &str) -> &str {
    let longest = text.len().min(MAX_TEXT);
    // A character has at most four bytes.
    let end = (longest.saturating_sub(3)..=longest).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
