//! Targets for automatic prompt caching: the reverse reader and the places of cache marks, compared with serde_json.

use bytes::Bytes;
use codec::canonical::{BreakpointSupport, CachePolicy};
use codec::wire::Api;
use codec::wire::request::{Body, BodyReader};
use json::{ReverseReader, Truncated};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::{choose, pieces};

/// Invariants of the reverse reader:
/// * Of a valid array or object it finds the elements that serde_json finds, byte for byte.
/// * Of any end of the document it finds a tail of these elements, or reports that the text begins too late.
/// * On any other bytes it ends without a panic.
pub fn json_reverse(mut data: &[u8]) {
    let cut = choose(&mut data, 256);
    let _ = elements(data);
    let Some(expected) = std::str::from_utf8(data).ok().and_then(expected_elements) else { return };
    let (found, complete) = elements(data);
    assert!(complete, "a whole document is not truncated");
    assert_eq!(found, expected.iter().rev().map(String::as_bytes).collect::<Vec<_>>());
    let end = data.get(cut.min(data.len())..).unwrap_or_default();
    let (of_end, _) = elements(end);
    assert!(of_end.len() <= found.len() || cut == 0);
    // A literal or number at the beginning of the slice may have been cut; everything behind it is whole.
    assert!(of_end.iter().zip(&found).all(|(one, other)| one == other), "the end has other elements");
}

/// Returns the elements, or names and values, from the last to the first, and whether the beginning was reached.
fn elements(text: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut found = Vec::new();
    let mut reader = ReverseReader::new(text, text.len());
    let mut read = || -> Result<(), Truncated> {
        let is_object = reader.peek()? == b'}';
        reader.enter()?;
        while reader.has_previous()? {
            if is_object {
                let (name, value) = reader.member()?;
                found.extend([text.get(value).unwrap_or_default(), text.get(name).unwrap_or_default()]);
            } else {
                found.push(text.get(reader.value()?).unwrap_or_default());
            }
        }
        Ok(())
    };
    let complete = read().is_ok();
    (found, complete)
}

fn expected_elements(text: &str) -> Option<Vec<String>> {
    if let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(text) {
        return Some(list.iter().map(|value| value.get().to_owned()).collect());
    }
    // Names are compared as they are written, so that those with escapes are left out.
    let object: Map<String, Value> = serde_json::from_str(text).ok().filter(|_| !text.contains('\\'))?;
    let plain: std::collections::BTreeMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
    let names = object.keys().map(String::as_str).collect::<Vec<_>>();
    // A doubled name is in the text twice.
    let written = text.matches('"').count();
    let quoted: usize = plain.values().map(|value| value.get().matches('"').count()).sum();
    (written == quoted + 2 * names.len()).then(|| {
        let members = names.iter().filter_map(|name| Some((name, plain.get(name)?)));
        members.flat_map(|(name, value)| [format!("\"{name}\""), value.get().to_owned()]).collect()
    })
}

/// Invariants of the cache marks of a messages body:
/// * They are the same however the body arrives.
/// * The body with its marks is valid JSON, and without them it is the body that was received, with some strings as one
///   text block.
/// * They are where a search in the tree of the body finds the places, and at most four.
pub fn breakpoints(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let long_pays = choose(&mut data, 2) == 1;
    cache_points(data, seed, long_pays);
    let Some(whole) = read(Api::Messages, &[data]) else { return };
    let Some(split) = read(Api::Messages, &pieces(data, seed)) else {
        panic!("another verdict for another split")
    };
    let Some(rule) = CachePolicy::Auto.rule(BreakpointSupport::full(0), long_pays) else { return };
    let marked = whole.breakpoints(&rule);
    assert_eq!(marked, split.breakpoints(&rule), "split by {seed}");
    assert_eq!(whole.wants_cache_key(), split.wants_cache_key());
    assert!(marked.marks <= 4);
    let sent = whole.text.clone().edited(&marked.edits).into_contiguous();
    let Ok(received) = serde_json::from_slice::<Value>(data) else { return };
    let sent: Value = serde_json::from_slice(&sent).expect("the marked body is JSON");
    if is_ambiguous(data) {
        return;
    }
    // With a mark of the client nothing is added; a text may have the same words.
    if data.windows(15).any(|word| word == b"\"cache_control\"") {
        assert!(marked.marks > 0 || sent == received);
        return;
    }
    let mut expected = received;
    assert_eq!(usize::from(marked.marks), mark(&mut expected, long_pays));
    assert_eq!(sent, expected);
}

/// Invariants of the cache points of a Converse body: the same, but each point is an element of its own.
fn cache_points(data: &[u8], seed: usize, long_pays: bool) {
    let Some(whole) = read(Api::Converse, &[data]) else { return };
    let Some(split) = read(Api::Converse, &pieces(data, seed)) else {
        panic!("another verdict for another split")
    };
    let Some(rule) = CachePolicy::Auto.rule(BreakpointSupport::full(0), long_pays) else { return };
    let marked = whole.breakpoints(&rule);
    assert_eq!(marked, split.breakpoints(&rule), "split by {seed}");
    assert!(marked.marks <= 4);
    let sent = whole.text.clone().edited(&marked.edits).into_contiguous();
    let Ok(received) = serde_json::from_slice::<Value>(data) else { return };
    let mut sent: Value = serde_json::from_slice(&sent).expect("the marked body is JSON");
    if is_ambiguous(data) {
        return;
    }
    if data.windows(12).any(|word| word == b"\"cachePoint\"") {
        assert_eq!((marked.marks, sent), (0, received));
        return;
    }
    assert_eq!(remove_points(&mut sent), usize::from(marked.marks));
    assert_eq!(sent, received);
}

/// Removes all cache points, and returns their number.
fn remove_points(value: &mut Value) -> usize {
    match value {
        Value::Array(elements) => {
            let before = elements.len();
            elements.retain(|element| element.get("cachePoint").is_none());
            before - elements.len() + elements.iter_mut().map(remove_points).sum::<usize>()
        }
        Value::Object(members) => members.values_mut().map(remove_points).sum(),
        _ => 0,
    }
}

fn read(api: Api, pieces: &[&[u8]]) -> Option<Body> {
    let mut reader = BodyReader::new(api, false);
    for piece in pieces {
        reader.push(Bytes::copy_from_slice(piece)).ok()?;
    }
    reader.finish().ok()
}

/// Whether readers may disagree on a body: escapes in names or types, or doubled members, of which the tree keeps one.
fn is_ambiguous(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return true };
    let Ok(tree) = serde_json::from_str::<Value>(text) else { return true };
    text.contains('\\') || tree.to_string().matches('"').count() != text.matches('"').count()
}

/// Sets the marks in a tree. Returns their number.
fn mark(body: &mut Value, long_pays: bool) -> usize {
    let instructions =
        if long_pays { json!({"type": "ephemeral", "ttl": "1h"}) } else { json!({"type": "ephemeral"}) };
    let mut count = 0;
    let mut set = |place: Option<&mut Map<String, Value>>, mark: &Value| {
        if let Some(place) = place {
            place.insert("cache_control".to_owned(), mark.clone());
            count += 1;
        }
    };
    let has_tools = body["tools"]
        .as_array()
        .is_some_and(|tools| tools.iter().any(|tool| tool.is_object() || tool.is_array()));
    if let Some(tools) = body.get_mut("tools").and_then(Value::as_array_mut) {
        // A tool that is no object ends the search.
        let tools = tools.iter_mut().rev().map_while(Value::as_object_mut);
        set(
            tools
                .into_iter()
                .find(|tool| !tool.is_empty() && tool.get("defer_loading") != Some(&json!(true))),
            &instructions,
        );
    }
    if let Some(system) = body.get_mut("system") {
        set(last_block(system), &instructions);
    }
    let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) else { return count };
    let turns = json!({"type": "ephemeral"});
    let (answered, current) = user_turns(messages, has_tools);
    for index in [answered, current].into_iter().flatten() {
        set(messages.get_mut(index).and_then(|message| last_block(message.get_mut("content")?)), &turns);
    }
    count
}

/// Returns the indexes of the last answered user turn and of the last one, among those that have a block for a mark.
fn user_turns(messages: &mut [Value], has_tools: bool) -> (Option<usize>, Option<usize>) {
    let roles: Vec<(usize, String, bool)> = messages
        .iter_mut()
        .enumerate()
        .filter(|(_, message)| message.is_object())
        .map(|(index, message)| {
            let role = message["role"].as_str().unwrap_or_default().to_owned();
            // On a copy: a string would become a list.
            let mut content = message.get("content").cloned().unwrap_or_default();
            (index, role, last_block(&mut content).is_some())
        })
        .collect();
    let is = |role: &'static str| move |turn: &&(usize, String, bool)| turn.1 == role;
    let users: Vec<_> = roles.iter().filter(is("user")).collect();
    let Some(current) = users.iter().rev().find(|turn| turn.2) else { return (None, None) };
    let answered =
        roles.iter().filter(is("assistant")).rfind(|turn| turn.0 < current.0).and_then(|answer| {
            users.iter().rev().find(|turn| turn.0 < answer.0 && turn.2).map(|turn| turn.0)
        });
    let last_user = users.last().map_or(0, |turn| turn.0);
    let continues = has_tools || roles.iter().any(|turn| turn.1 == "assistant" && turn.0 < last_user);
    (answered, continues.then_some(current.0))
}

/// Returns the last block that can have a mark. A string that is not blank becomes a list of one text block.
fn last_block(content: &mut Value) -> Option<&mut Map<String, Value>> {
    if content.as_str().is_some_and(|text| !is_blank(text)) {
        *content = json!([{"type": "text", "text": content.take()}]);
    }
    content.as_array_mut()?.iter_mut().rev().filter_map(Value::as_object_mut).find(|block| {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => block.get("text").and_then(Value::as_str).is_some_and(|text| !is_blank(text)),
            Some("image" | "document" | "search_result" | "tool_result") => true,
            _ => false,
        }
    })
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
