//! Check of a body whether each call of the model has its result, without decoding it.
//!
//! Must not live here: what becomes of a body where it has not (`translate::unanswered`).

use smallvec::SmallVec;

use super::Api;
use super::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Ids of the calls and of the results in one part of a conversation.
#[derive(Default)]
struct Ids<'a> {
    calls: SmallVec<[&'a str; 8]>,
    results: SmallVec<[&'a str; 8]>,
    /// Whether an item stands for one that the provider has stored, which may be a call.
    refers: bool,
}

impl Ids<'_> {
    /// Ends a part: returns whether each of its calls has one result, and begins the next part.
    fn close(&mut self) -> bool {
        if self.calls != self.results {
            // Results may come in another order.
            self.calls.sort_unstable();
            self.results.sort_unstable();
        }
        let is_whole = self.calls == self.results;
        self.calls.clear();
        self.results.clear();
        is_whole
    }
}

/// Returns whether a call in a conversation has no result right behind it, or a result no call. `text` is the conversation,
/// which has been scanned.
pub(super) fn is_broken(api: Api, text: &str) -> bool {
    let mut ids = Ids::default();
    let (mut is_broken, mut was_model) = (false, false);
    let read = elements(&mut Cursor::new(text), |json| {
        let message = json.raw()?;
        if api == Api::Responses {
            return item(message, &mut ids);
        }
        let role = role_of(message)?;
        let is_model = role.is("assistant") || role.is("model");
        // In chat, nothing but results may stand between calls and their results.
        if is_model && !was_model || api == Api::Chat && !is_model && !role.is("tool") {
            is_broken |= !ids.close();
        }
        was_model = is_model;
        match api {
            Api::Chat => chat(message, &mut ids),
            _ => blocks(message, if api == Api::Generate { "parts" } else { "content" }, &mut ids),
        }
    });
    read.is_ok() && !ids.refers && (is_broken || !ids.close())
}

fn role_of(message: RawJson<'_>) -> Result<JsonStr<'_>, JsonError> {
    let mut role = JsonStr::default();
    members(&mut Cursor::new(message.text()), |key, json| {
        if key.is("role") {
            role = json.raw()?.as_str().unwrap_or_default();
            return Ok(());
        }
        json.skip()
    })?;
    Ok(role)
}

fn text_of(value: RawJson<'_>) -> &str {
    value.as_str().unwrap_or_default().escaped()
}

fn chat<'a>(message: RawJson<'a>, ids: &mut Ids<'a>) -> Result<(), JsonError> {
    members(&mut Cursor::new(message.text()), |key, json| {
        match key.escaped() {
            "tool_call_id" => ids.results.push(text_of(json.raw()?)),
            "tool_calls" => {
                elements(json, |json| {
                    members(json, |key, json| {
                        let value = json.raw()?;
                        if key.is("id") {
                            ids.calls.push(text_of(value));
                        }
                        Ok(())
                    })
                })?;
            }
            _ => json.skip()?,
        }
        Ok(())
    })
}

/// Reads the blocks of a message. Calls and results are objects of a type, or members with a name.
fn blocks<'a>(message: RawJson<'a>, list: &str, ids: &mut Ids<'a>) -> Result<(), JsonError> {
    members(&mut Cursor::new(message.text()), |key, json| {
        if !key.is(list) {
            return json.skip();
        }
        elements(json, |json| {
            let (mut kind, mut call, mut result) = ("", "", "");
            members(json, |key, json| {
                match key.escaped() {
                    "type" => kind = text_of(json.raw()?),
                    "id" => call = text_of(json.raw()?),
                    "tool_use_id" => result = text_of(json.raw()?),
                    "toolUse" => ids.calls.push(member(json.raw()?, "toolUseId")?),
                    "toolResult" => ids.results.push(member(json.raw()?, "toolUseId")?),
                    // Google's results have the name of their function; ids may be absent.
                    "functionCall" | "function_call" => ids.calls.push(member(json.raw()?, "name")?),
                    "functionResponse" | "function_response" => {
                        ids.results.push(member(json.raw()?, "name")?);
                    }
                    _ => json.skip()?,
                }
                Ok(())
            })?;
            match kind {
                "tool_use" => ids.calls.push(call),
                "tool_result" => ids.results.push(result),
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    })
}

/// Reads an item of the responses format, in which a result may stand anywhere behind its call.
fn item<'a>(item: RawJson<'a>, ids: &mut Ids<'a>) -> Result<(), JsonError> {
    let (mut kind, mut id) = ("", "");
    let mut is_message = false;
    members(&mut Cursor::new(item.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "type" => kind = text_of(value),
            "role" => is_message = true,
            "call_id" => id = text_of(value),
            _ => {}
        }
        Ok(())
    })?;
    match kind {
        "function_call" | "custom_tool_call" => ids.calls.push(id),
        "function_call_output" | "custom_tool_call_output" => ids.results.push(id),
        // The type of a reference may be absent.
        "item_reference" => ids.refers = true,
        "" => ids.refers |= !is_message,
        _ => {}
    }
    Ok(())
}

fn member<'a>(object: RawJson<'a>, name: &str) -> Result<&'a str, JsonError> {
    let mut found = "";
    members(&mut Cursor::new(object.text()), |key, json| {
        let value = json.raw()?;
        if key.is(name) {
            found = text_of(value);
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn broken(api: Api, turns: &Value) -> bool {
        is_broken(api, &turns.to_string())
    }

    #[test]
    fn unanswered_calls_and_orphan_results_are_found_in_every_format() {
        let turn = |api: Api, kind: &str, ids: &[&str]| {
            let list = |make: &dyn Fn(&str) -> Value| ids.iter().map(|id| make(id)).collect::<Vec<_>>();
            match (api, kind) {
                (Api::Chat, "calls") => vec![
                    json!({"role": "assistant", "tool_calls": list(&|id| json!({"id": id, "type": "function"}))}),
                ],
                (Api::Chat, "results") => {
                    list(&|id| json!({"role": "tool", "tool_call_id": id, "content": "x"}))
                }
                (Api::Messages, "calls") => vec![
                    json!({"role": "assistant", "content": list(&|id| json!({"type": "tool_use", "id": id}))}),
                ],
                (Api::Messages, "results") => vec![
                    json!({"role": "user", "content": list(&|id| json!({"tool_use_id": id, "type": "tool_result"}))}),
                ],
                (Api::Converse, "calls") => vec![
                    json!({"role": "assistant", "content": list(&|id| json!({"toolUse": {"toolUseId": id}}))}),
                ],
                (Api::Converse, "results") => vec![
                    json!({"role": "user", "content": list(&|id| json!({"toolResult": {"toolUseId": id}}))}),
                ],
                (Api::Generate, "calls") => {
                    vec![json!({"role": "model", "parts": list(&|id| json!({"functionCall": {"name": id}}))})]
                }
                (Api::Generate, "results") => vec![
                    json!({"role": "user", "parts": list(&|id| json!({"functionResponse": {"name": id}}))}),
                ],
                (Api::Responses, "calls") => list(&|id| json!({"type": "function_call", "call_id": id})),
                (Api::Responses, "results") => {
                    list(&|id| json!({"type": "function_call_output", "call_id": id}))
                }
                (Api::Generate, role) => {
                    let role = if role == "user" { "user" } else { "model" };
                    vec![json!({"role": role, "parts": [{"text": "x"}]})]
                }
                (_, role) => vec![json!({"role": role, "content": "x"})],
            }
        };
        for api in [Api::Chat, Api::Messages, Api::Converse, Api::Generate, Api::Responses] {
            let talk = |parts: &[(&str, &[&str])]| -> Value {
                parts.iter().flat_map(|(kind, ids)| turn(api, kind, ids)).collect::<Vec<_>>().into()
            };
            for whole in [
                &[("user", &[][..]), ("assistant", &[]), ("user", &[])][..],
                &[("user", &[]), ("calls", &["a", "b"]), ("results", &["b", "a"]), ("user", &[])],
                // Ids of the same model may repeat.
                &[("calls", &["a"]), ("results", &["a"]), ("calls", &["a"]), ("results", &["a"])],
            ] {
                assert!(!broken(api, &talk(whole)), "{api:?} {whole:?}");
            }
            for wrong in [
                &[("user", &[][..]), ("calls", &["a"])][..],
                &[("user", &[]), ("calls", &["a"]), ("user", &[])],
                &[("calls", &["a", "b"]), ("results", &["a"]), ("assistant", &[]), ("user", &[])],
                &[("user", &[]), ("results", &["a"])],
                &[("calls", &["a"]), ("results", &["a", "a"])],
            ] {
                assert!(broken(api, &talk(wrong)), "{api:?} {wrong:?}");
            }
            let stored = json!([{"type": "item_reference", "id": "fc_1"}, {"type": "function_call_output", "call_id": "a"}]);
            assert!(!broken(Api::Responses, &stored));
            let late = talk(&[("calls", &["a"]), ("assistant", &[]), ("user", &[]), ("results", &["a"])]);
            assert_eq!(broken(api, &late), api == Api::Chat, "{api:?}");
        }
    }
}
