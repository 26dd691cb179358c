//! Usage that the gateway adds to a chat completion or stream whose provider reports none. Clients rely on the member.

use bytes::BytesMut;

use super::write;
use crate::canonical::Usage;
use json::{Cursor, EscapedString, JsonStr, Writer};

/// Returns the completion `body` with a `usage` member, all other bytes unchanged. `None` if `body` has a usage object
/// already, or is not a chat completion.
pub fn with_usage(body: &str, usage: &Usage) -> Option<BytesMut> {
    let mut json = Cursor::new(body);
    json.begin_object().ok()?;
    let (mut place, mut is_answer) = (None, false);
    while let Some(key) = json.next_key().ok()? {
        let is_usage = key.escaped() == "usage";
        is_answer |= key.escaped() == "choices";
        let value = json.raw().ok()?;
        if is_usage {
            if value.text() != "null" {
                return None;
            }
            place = Some(json.offset().checked_sub(value.text().len())?..json.offset());
        }
    }
    if !is_answer {
        return None;
    }
    let (place, name) = match place {
        Some(place) => (place, ""),
        None => {
            let end = body.get(..json.offset())?.rfind('}')?;
            (end..end, ",\"usage\":")
        }
    };
    let mut out = BytesMut::with_capacity(body.len() + 160);
    out.extend_from_slice(body.get(..place.start)?.as_bytes());
    out.extend_from_slice(name.as_bytes());
    write::usage(&mut Writer::new(&mut out), usage);
    out.extend_from_slice(body.get(place.end..)?.as_bytes());
    Some(out)
}

/// Usage chunk for a stream whose provider reports none, with tokens that the gateway counted.
#[derive(Clone, Debug, Default)]
pub struct UsageChunk {
    /// Model name that the client used.
    pub model: EscapedString,
    /// Creation time of the response (Unix seconds).
    pub created: u64,
}

impl UsageChunk {
    /// Writes the chunk. `id` is the id of the previous chunks.
    pub fn put(&self, id: &str, usage: &Usage, out: &mut BytesMut) {
        let mut json = Writer::new(out);
        json.begin_object();
        // The stored id may be truncated; one that contains an escape could end inside it and break the JSON text.
        json.key("id").paste(JsonStr::from_escaped(if id.contains('\\') { "" } else { id }));
        json.key("object").string("chat.completion.chunk");
        json.key("created").number(self.created);
        json.key("model").paste(self.model.as_json_str());
        json.key("choices").begin_array().end_array();
        json.key("usage");
        write::usage(&mut json, usage);
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_inserted_if_missing() {
        let usage = Usage { input: Some(3), output: Some(4), ..Usage::default() };
        let figures = r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}"#;
        for (body, expected) in [
            (r#"{"choices":[]}"#, Some(format!(r#"{{"choices":[],"usage":{figures}}}"#))),
            (
                "{ \"choices\" : [ {} ] }\n",
                Some(format!("{{ \"choices\" : [ {{}} ] ,\"usage\":{figures}}}\n")),
            ),
            (r#"{"usage":null,"choices":[]}"#, Some(format!(r#"{{"usage":{figures},"choices":[]}}"#))),
            (r#"{"choices":[],"usage": null }"#, Some(format!(r#"{{"choices":[],"usage": {figures} }}"#))),
            (r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, None),
            (r#"{"object":"list"}"#, None),
            ("{}", None),
            ("[]", None),
            (r#"{"choices":["#, None),
        ] {
            let made = with_usage(body, &usage).map(|made| String::from_utf8(made.to_vec()).unwrap());
            assert_eq!(made, expected, "{body}");
        }
    }
}
