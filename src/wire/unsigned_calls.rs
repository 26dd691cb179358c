//! Calls of a generate conversation without the signature that newer Gemini models require.
//!
//! 400 "Function call is missing a thought_signature in functionCall parts" (Gemini API, "Thought signatures", November 2026):
//! the first call of each content of the model since the user's last words must have one. It is missing if another model
//! made the call, or if the client lost it.

use super::watch::{elements, members};
use crate::json::{Cursor, JsonError, RawJson};

/// What a content adds to the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The user says something: calls before it are not checked.
    Asked,
    /// The first call of the model has no signature.
    Unsigned,
    /// Anything else.
    Other,
}

/// Returns whether a call since the user's last words has no signature. `contents` is the list of a request.
pub(super) fn has_unsigned_call(contents: &str) -> bool {
    let has = |name: &str| memchr::memmem::find(contents.as_bytes(), name.as_bytes()).is_some();
    if !has("\"functionCall\"") && !has("\"function_call\"") {
        return false;
    }
    let mut found = false;
    let read = elements(&mut Cursor::new(contents), |json| {
        match turn(json.raw()?)? {
            Turn::Asked => found = false,
            Turn::Unsigned => found = true,
            Turn::Other => {}
        }
        Ok(())
    });
    read.is_ok() && found
}

fn turn(content: RawJson<'_>) -> Result<Turn, JsonError> {
    let (mut is_model, mut parts) = (false, None);
    members(&mut Cursor::new(content.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "role" => is_model = value.as_str().is_some_and(|role| role.is("model")),
            "parts" => parts = Some(value).filter(|parts| parts.text().starts_with('[')),
            _ => {}
        }
        Ok(())
    })?;
    let Some(parts) = parts else { return Ok(Turn::Other) };
    let mut said = Turn::Other;
    let mut calls = 0;
    elements(&mut Cursor::new(parts.text()), |json| {
        let (mut is_call, mut is_signed, mut is_result) = (false, false, false);
        members(json, |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "functionCall" | "function_call" => is_call = true,
                "functionResponse" | "function_response" => is_result = true,
                "thoughtSignature" | "thought_signature" => is_signed = !value.is_void(),
                _ => {}
            }
            Ok(())
        })?;
        if is_model && is_call && calls == 0 && !is_signed {
            said = Turn::Unsigned;
        }
        if !is_model && !is_result {
            said = Turn::Asked;
        }
        calls += usize::from(is_call);
        Ok(())
    })?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_call_is_one_since_the_last_words_of_the_user() {
        const ASK: &str = r#"{"role":"user","parts":[{"text":"x"}]}"#;
        const CALL: &str = r#"{"role":"model","parts":[{"text":"y"},{"functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}]}"#;
        const SIGNED: &str = r#"{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":"s"},{"functionCall":{"name":"g"}}]}"#;
        const RESULT: &str = r#"{"role":"user","parts":[{"functionResponse":{"name":"f"}}]}"#;
        for (contents, found) in [
            (&[ASK, CALL, RESULT][..], true),
            (&[ASK, SIGNED, RESULT], false),
            (&[ASK, SIGNED, RESULT, CALL, RESULT], true),
            (&[ASK, CALL, RESULT, SIGNED, RESULT], true),
            (&[ASK, CALL, RESULT, ASK], false),
            (&[ASK], false),
        ] {
            assert_eq!(has_unsigned_call(&format!("[{}]", contents.join(","))), found, "{contents:?}");
        }
        assert!(!has_unsigned_call(r#"{"functionCall":1}"#));
        assert!(!has_unsigned_call(r#"[{"parts":[{"functionCall""#));
    }
}
