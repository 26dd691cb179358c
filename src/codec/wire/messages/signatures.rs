//! Places of what a model signed in a response of this format, for a provider whose signatures need an envelope in its own
//! format too.

use std::ops::Range;

use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, RawJson};

/// Returns the byte range of the signature in a frame of a stream, without its quotes. `None` for a frame that has none.
pub fn in_frame(data: &str) -> Option<Range<usize>> {
    let has = |word: &[u8]| memchr::memmem::find(data.as_bytes(), word).is_some();
    // Most frames are fragments of texts.
    if !has(b"\"signature") && !has(b"\"redacted_thinking\"") {
        return None;
    }
    let mut found = None;
    // A frame that is no JSON passes as it is.
    let _ = members(&mut Cursor::new(data), |key, json| {
        let value = json.raw()?;
        if key.is("delta") || key.is("content_block") {
            found = of_block(value)?.map(|text| place_of(text, data));
        }
        Ok(())
    });
    found
}

/// Returns the byte ranges of the signatures in a whole response, without their quotes, in ascending order.
pub fn in_document(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let _ = members(&mut Cursor::new(text), |key, json| {
        if !key.is("content") {
            return json.skip();
        }
        elements(json, |json| {
            found.extend(of_block(json.raw()?)?.map(|signature| place_of(signature, text)));
            Ok(())
        })?;
        Ok(())
    });
    found
}

/// Returns the signature of a block, or of a fragment of one, as the inside of a JSON string.
fn of_block<'a>(block: RawJson<'a>) -> Result<Option<&'a str>, JsonError> {
    let (mut kind, mut signature, mut data) = ("", None, None);
    members(&mut Cursor::new(block.text()), |key, json| {
        let text = json.raw()?.as_str().map(|text| text.escaped()).filter(|text| !text.is_empty());
        match key.escaped() {
            "type" => kind = text.unwrap_or_default(),
            "signature" => signature = text,
            "data" => data = text,
            _ => {}
        }
        Ok(())
    })?;
    Ok(match kind {
        "thinking" | "signature_delta" => signature,
        "redacted_thinking" => data,
        _ => None,
    })
}

fn place_of(part: &str, whole: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_a_response_is_found_in_its_places() {
        let text = |data: &str| in_frame(data).map(|at| data[at].to_owned());
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"a-b\n"}}"#;
        assert_eq!(text(delta).as_deref(), Some("a-b\\n"));
        let hidden =
            r#"{"type":"content_block_start","content_block":{"data":"D","type":"redacted_thinking"}}"#;
        assert_eq!(text(hidden).as_deref(), Some("D"));
        for none in [
            r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"\"signature\":\"x\""}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","signature":"x"}}"#,
            "[DONE]",
            "\"signature",
        ] {
            assert_eq!(in_frame(none), None, "{none}");
        }
        let whole = r#"{"content":[{"type":"thinking","thinking":"t","signature":"S1"},{"type":"text","text":"x","signature":"no"},
            {"type":"redacted_thinking","data":"S2"},"s"],"signature":"no"}"#;
        let found: Vec<&str> = in_document(whole).into_iter().map(|at| &whole[at]).collect();
        assert_eq!(found, ["S1", "S2"]);
    }
}
