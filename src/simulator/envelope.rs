//! Envelopes of a gateway: what one provider signed or named, packed for a client of another format. No provider knows
//! them, so each refuses a request that has one in the place of a signature or an identifier.

use serde_json::Value;

use super::ids::decode_base64;

/// Members that hold signatures, or identifiers of calls and items.
const PLACES: [&str; 11] = [
    "call_id",
    "data",
    "encrypted_content",
    "id",
    "redactedContent",
    "signature",
    "thoughtSignature",
    "thought_signature",
    "toolUseId",
    "tool_call_id",
    "tool_use_id",
];

/// Members whose objects are the application's own: arguments, results and schemas.
const FOREIGN: [&str; 8] =
    ["args", "input", "input_schema", "json", "metadata", "parameters", "parametersJsonSchema", "response"];

/// Returns the error message for a request that has an envelope.
pub(super) fn refusal(body: &Value) -> Option<String> {
    let path = find(body, String::new())?;
    Some(format!("{path}: the value was not issued by this provider"))
}

fn find(value: &Value, path: String) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match value {
                Value::String(text) => (PLACES.contains(&&**name) && is_envelope(text)).then_some(at),
                Value::Object(_) if FOREIGN.contains(&&**name) => None,
                value => find(value, at),
            }
        }),
        Value::Array(elements) => {
            elements.iter().enumerate().find_map(|(index, value)| find(value, format!("{path}[{index}]")))
        }
        _ => None,
    }
}

fn is_envelope(text: &str) -> bool {
    let begins = |text: &[u8]| text.starts_with(b"gw1.") || text.starts_with(b"gwc1.");
    begins(text.as_bytes())
        || text.contains("__gw1")
        // Whole groups of four, so that the beginning of a long text need not be decoded as a whole.
        || text.get(..8).and_then(decode_base64).is_some_and(|bytes| begins(&bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn envelopes_are_found_in_their_places_only() {
        for body in [
            json!({"messages": [{"content": [{"type": "thinking", "thinking": "", "signature": "gw1.a.Yg"}]}]}),
            json!({"messages": [{"content": [{"toolUse": {"toolUseId": "a__gw1__b__Yw", "input": {}}}]}]}),
            json!({"messages": [{"tool_calls": [{"id": "a__gw1id__b__Yw"}]}]}),
            json!({"contents": [{"parts": [{"text": "", "thoughtSignature": "Z3cxLmEuWWc="}]}]}),
            json!({"input": [{"type": "compaction", "encrypted_content": "gwc1.AAAA"}]}),
        ] {
            assert!(refusal(&body).is_some(), "{body}");
        }
        for body in [
            json!({"messages": [{"content": "gw1.a.Yg is an envelope, Z3cxLmEuWWc= is it as base64"}]}),
            json!({"messages": [{"content": [{"type": "tool_use", "id": "toolu_1", "input": {"signature": "gw1.a.Yg"}}]}]}),
            json!({"contents": [{"parts": [{"functionCall": {"id": "c", "args": {"id": "a__gw1__b__Yw"}}}]}]}),
            json!({"input": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAAABq"}]}),
        ] {
            assert_eq!(refusal(&body), None);
        }
    }
}
