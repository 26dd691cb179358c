//! The usage of an answer whose vendor says nothing of it: clients of this format may rely on the member (specification,
//! 2.1).

use bytes::BytesMut;

use super::write;
use crate::canonical::Usage;
use crate::json::{Cursor, Writer};

/// A whole answer with this usage, if it is one and has no usage of its own; everything else stays byte for byte.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_put_where_there_is_none() {
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
