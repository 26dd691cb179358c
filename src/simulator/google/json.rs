//! JSON in the layout of the Gemini API, and the three response styles.

use std::io;

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Response style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One JSON value.
    Whole,
    /// JSON array, streamed in pieces.
    Array,
    /// Server-sent events.
    Events,
}

impl Style {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Style::Whole | Style::Array => "application/json; charset=UTF-8",
            Style::Events => "text/event-stream",
        }
    }
}

/// Formats JSON with line breaks and indents, as in all styles but events.
pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Formats JSON on one line with a space after each colon, as in events.
pub(super) fn line(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        // Unreachable: a `Value` always serializes, and a `Vec` always grows. Without the spaces the response is still
        // valid.
        Err(_) => value.to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_line_has_a_space_after_names_only() {
        assert_eq!(line(&json!({"a": [1, {"b": "x: y"}], "c": {}})), r#"{"a": [1,{"b": "x: y"}],"c": {}}"#);
    }
}
