//! JSON as the Gemini API writes it, and the three forms of its answers.

use std::io;

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One JSON value.
    Whole,
    /// A JSON array, streamed in pieces.
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

/// With line breaks and indents, as everything but events is written.
pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// On one line, with a space after each colon, as events are written.
pub(super) fn line(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        // Neither can a Value fail to serialize nor a Vec to grow; the spaces are no reason to give up the answer.
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
    fn spaces() {
        assert_eq!(line(&json!({"a": [1, {"b": "x: y"}], "c": {}})), r#"{"a": [1,{"b": "x: y"}],"c": {}}"#);
    }
}
