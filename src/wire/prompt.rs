//! How the prompt of a conversation begins: what stays the same from turn to turn.
//!
//! A conversation grows at its end. Its messages up to the first one of the user stay as they are, but for the marks that
//! clients move along (`cache_control`), which is why what is said is read and not the text around it.

use super::watch::members;
use crate::json::{Cursor, JsonError, Kind, RawJson};

/// Of what is no text (an image, a file), so much is enough to know it again.
const BINARY: usize = 256;

/// Gives what is said in the messages up to the first of the user. `content` is the list of them in any format, or its
/// beginning; or a text. False when what is looked for goes on behind what was given.
pub fn beginning(content: &str, each: &mut impl FnMut(&[u8])) -> bool {
    messages(content, each).is_ok()
}

fn messages(content: &str, each: &mut impl FnMut(&[u8])) -> Result<(), JsonError> {
    let mut json = Cursor::new(content);
    if json.kind()? != Kind::Array {
        each(json.raw()?.text().as_bytes());
        return Ok(());
    }
    json.begin_array()?;
    while json.next_element()? {
        if json.kind()? != Kind::Object {
            each(json.raw()?.text().as_bytes());
            continue;
        }
        let mut user = true;
        members(&mut json, |key, json| {
            match key.escaped() {
                "role" => user = json.raw()?.text() == "\"user\"",
                // In the responses format, what is no message has no role.
                "type" => user &= json.raw()?.text() == "\"message\"",
                "content" | "parts" => said(json.raw()?, each)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        if user {
            return Ok(());
        }
    }
    Ok(())
}

/// The content of a message: a text, or parts.
fn said(content: RawJson<'_>, each: &mut impl FnMut(&[u8])) -> Result<(), JsonError> {
    let mut json = Cursor::new(content.text());
    if json.kind()? != Kind::Array {
        each(content.text().as_bytes());
        return Ok(());
    }
    json.begin_array()?;
    while json.next_element()? {
        if json.kind()? != Kind::Object {
            each(json.raw()?.text().as_bytes());
            continue;
        }
        members(&mut json, |key, json| {
            match key.escaped() {
                "text" => each(json.raw()?.text().as_bytes()),
                "image_url" | "source" | "inlineData" | "inline_data" | "fileData" | "file"
                | "input_audio" => {
                    let text = json.raw()?.text().as_bytes();
                    each(text.get(..BINARY).unwrap_or(text));
                }
                _ => json.skip()?,
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: &str) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let whole = beginning(content, &mut |piece| {
            out.extend_from_slice(piece);
            out.push(b'|');
        });
        (out, whole)
    }

    #[test]
    fn a_conversation_that_grows_begins_as_before() {
        for (first, later, other) in [
            (
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]"#,
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"more"}]"#,
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hullo"}]"#,
            ),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}]"#,
                r#"[{"content":[{"text":"hello","type":"text"}],"role":"user"},{"role":"assistant","content":"hi"}]"#,
                r#"[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image","source":{"data":"AAAA"}}]}]"#,
            ),
            (
                r#"[{"role":"user","parts":[{"text":"hello"}]}]"#,
                r#"[{"parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"hi"}]}]"#,
                r#"[{"role":"user","parts":[{"text":"hello "}]}]"#,
            ),
            (
                r#"[{"type":"message","role":"developer","content":"x"},{"role":"user","content":"a"}]"#,
                r#"[{"type":"message","role":"developer","content":"x"},{"role":"user","content":"a"},{"type":"function_call","name":"f"}]"#,
                r#"[{"type":"message","role":"developer","content":"y"},{"role":"user","content":"a"}]"#,
            ),
            (r#""hello""#, r#""hello""#, r#""hello!""#),
        ] {
            assert_eq!(of(first), of(later));
            assert!(of(first).1, "{first}");
            assert_ne!(of(first), of(other), "{first}");
        }
    }

    #[test]
    fn what_is_cut_off_is_told_from_what_is_whole() {
        let long = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant"}]"#;
        let end = long.find(r#",{"role":"assistant"#).unwrap();
        for cut in 0..end {
            assert!(!of(&long[..cut]).1, "{}", &long[..cut]);
        }
        for cut in end..=long.len() {
            assert_eq!(of(&long[..cut]), of(long));
        }
    }
}
