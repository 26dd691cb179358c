//! Tests of tool calls in encoded streams.

use super::*;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{BlockKind, Delta, Finish, Start, ToolKind};
use json::RawJson;

fn tool(index: u32, id: &'static str, kind: ToolKind) -> Event<'static> {
    let kind = BlockKind::ToolUse { id: js(id), name: js("f"), kind, namespace: js("") };
    Event::BlockStart { index, choice: 0, kind }
}

fn add(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::Delta { index, delta }
}

fn arguments(index: u32, text: &'static str) -> Event<'static> {
    add(index, Delta::Arguments(js(text)))
}

fn stop(index: u32) -> Event<'static> {
    Event::BlockStop { index }
}

/// Returns the fragments for the events between start and end.
fn fragments(between: &[Event<'_>]) -> Vec<Value> {
    let mut events = vec![Event::Start(Start::default())];
    events.extend_from_slice(between);
    events.push(Event::Finish { choice: 0, finish: Finish::ToolUse });
    events.push(Event::End);
    let chunks = written(reply(), &events);
    let calls = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array());
    calls.flatten().cloned().collect()
}

fn input_of(fragments: &[Value], number: u64) -> String {
    let mine = fragments.iter().filter(|fragment| fragment["index"] == number);
    mine.map(|fragment| fragment["function"]["arguments"].as_str().unwrap()).collect()
}

#[test]
fn bug_1_tool_call_first_fragment_has_id_and_name_others_the_index() {
    let found = fragments(&[
        tool(0, "toolu_1", ToolKind::Function),
        arguments(0, ""),
        arguments(0, r#"{\"a\""#),
        arguments(0, ":1}"),
        stop(0),
    ]);
    let first = serde_json::json!(
        {"index": 0, "id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": ""}});
    assert_eq!(found[0], first);
    assert_eq!(found[1], serde_json::json!({"index": 0, "function": {"arguments": "{\"a\""}}));
    assert_eq!(input_of(&found, 0), r#"{"a":1}"#);
}

#[test]
fn bug_6_tool_call_index_counts_calls_only() {
    let text = Event::BlockStart { index: 0, choice: 0, kind: BlockKind::Text };
    let found = fragments(&[
        text,
        stop(0),
        tool(1, "a", ToolKind::Function),
        arguments(1, "{}"),
        stop(1),
        tool(2, "b", ToolKind::Function),
        arguments(2, "{}"),
        stop(2),
    ]);
    assert_eq!(found.iter().map(|call| call["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 0, 1, 1]);
}

#[test]
fn bug_5_tool_calls_open_at_once_may_interleave() {
    let found = fragments(&[
        tool(0, "a", ToolKind::Function),
        tool(1, "b", ToolKind::Function),
        arguments(1, r#"{\"b\":"#),
        arguments(0, "{"),
        arguments(1, "1}"),
        arguments(0, "}"),
        stop(1),
        stop(0),
    ]);
    // Calls are numbered in the order of their first fragment.
    assert_eq!((found[0]["id"].as_str(), found[0]["index"].as_u64()), (Some("b"), Some(0)));
    assert_eq!((input_of(&found, 0).as_str(), input_of(&found, 1).as_str()), (r#"{"b":1}"#, "{}"));
}

#[test]
fn bug_7_tool_call_without_arguments_has_an_empty_object() {
    for deltas in [&[][..], &[arguments(0, "")]] {
        let mut between = vec![tool(0, "a", ToolKind::Function)];
        between.extend_from_slice(deltas);
        between.push(stop(0));
        let found = fragments(&between);
        assert_eq!((found.len(), input_of(&found, 0).as_str()), (2, "{}"));
    }
}

#[test]
fn bug_11_tool_call_argument_object_is_escaped_once() {
    let object = RawJson::from_text(r#"{"a": "\"x\"", "b": 1.0}"#);
    let found = fragments(&[tool(0, "a", ToolKind::Function), add(0, Delta::Object(object)), stop(0)]);
    assert_eq!(input_of(&found, 0), object.text(), "order and numbers stay");
}

#[test]
fn map_12_custom_tool_call_has_text_input() {
    let found = fragments(&[tool(0, "a", ToolKind::Custom), arguments(0, r"x\n"), stop(0)]);
    let first =
        serde_json::json!({"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": ""}});
    assert_eq!(found[0], first);
    assert_eq!(found[1]["custom"]["input"], "x\n");
    assert_eq!(fragments(&[tool(0, "a", ToolKind::Custom), stop(0)]).len(), 1);
}

#[test]
fn bug_28_signature_travels_in_the_tool_call_id() {
    let seal = js(r#"{\"s\":\"E/+=\"}"#);
    let found = fragments(&[
        tool(0, "a", ToolKind::Function),
        add(0, Delta::Signature(seal)),
        arguments(0, "{}"),
        stop(0),
    ]);
    let id = found[0]["id"].as_str().unwrap();
    let carried = SignedCallId::read(js(id));
    assert_eq!(carried.id, js("a"));
    assert_eq!(carried.signature.unwrap().for_issuer("provider"), Some(seal));
    // A signature that arrives after the id was written is sent in `reasoning_details`.
    let events = [
        Event::Start(Start::default()),
        tool(0, "a", ToolKind::Function),
        arguments(0, "{}"),
        add(0, Delta::Signature(seal)),
        stop(0),
        Event::Finish { choice: 0, finish: Finish::ToolUse },
        Event::End,
    ];
    let text = text_written(reply(), &events);
    assert!(
        text.contains(r#""reasoning_details":[{"type":"reasoning.encrypted","id":"a","data":"gw1.provider."#)
    );
    // Whole responses carry it in the same place.
    let mut answer = Answer::default();
    events.iter().for_each(|event| answer.take(event));
    let whole = whole_written(&answer, &reply());
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["id"], id);
}
