//! Tests of overlapping blocks in the events, which are sequential in this format.

use serde_json::json;

use super::stream_write::{arguments, call, hear, start, stop, text};
use crate::canonical::seal::UNSIGNED;
use crate::canonical::{BlockKind, Delta, Event, Finish};
use json::{JsonStr, RawJson};

#[test]
fn bug_3_and_4_tool_calls_in_a_row_are_separate_blocks() {
    let heard = hear(
        &[
            start(0, call("a", "f")),
            arguments(0, r#"{\"x\":1}"#),
            stop(0),
            start(1, call("b", "f")),
            arguments(1, r#"{\"x\":2}"#),
            stop(1),
            start(2, call("c", "g")),
            stop(2),
        ],
        Finish::ToolUse,
    );
    assert_eq!(
        heard.content(),
        &json!([{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "f", "input": {"x": 2}},
            {"type": "tool_use", "id": "c", "name": "g", "input": {}}])
    );
}

#[test]
fn bug_5_and_6_tool_calls_that_interleave_become_separate_blocks() {
    let heard = hear(
        &[
            start(0, call("a", "f")),
            start(1, call("b", "g")),
            start(2, call("c", "h")),
            arguments(1, r#"{\"y\":"#),
            arguments(0, r#"{\"x\":"#),
            arguments(1, "2"),
            arguments(2, "{}"),
            arguments(0, "1}"),
            arguments(1, "}"),
            stop(0),
            stop(2),
            stop(1),
        ],
        Finish::ToolUse,
    );
    assert_eq!(
        heard.content(),
        &json!([{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {"y": 2}},
            {"type": "tool_use", "id": "c", "name": "h", "input": {}}])
    );
}

#[test]
fn tool_call_with_complete_arguments_does_not_delay_the_next() {
    // Chat providers end all calls together, at the end of the stream.
    let before = [
        start(0, call("a", "f")),
        arguments(0, r#"{\"x\":1}"#),
        start(1, call("b", "g")),
        arguments(1, r#"{\"y\":"#),
    ];
    let mut all = vec![super::stream_write::START];
    all.extend(before);
    let stream = super::write(super::reply(), &all);
    assert!(stream.contains(r#""partial_json":"{\"y\":""#), "{stream}");
    // Also if the next call began before the previous ones were complete.
    let all = [
        super::stream_write::START,
        start(0, call("a", "f")),
        start(1, call("b", "g")),
        arguments(1, r#"{\"y\":"#),
        arguments(0, "{}"),
        arguments(1, "1"),
    ];
    let stream = super::write(super::reply(), &all);
    assert!(stream.contains(r#""partial_json":"1""#), "{stream}");
}

#[test]
fn text_interrupted_by_a_call_continues_in_a_new_block() {
    let heard = hear(
        &[
            start(0, BlockKind::Text),
            text(0, "one "),
            start(1, call("a", "f")),
            arguments(1, "{"),
            text(0, "two "),
            text(0, "three"),
            arguments(1, "}"),
            stop(1),
            stop(0),
        ],
        Finish::ToolUse,
    );
    assert_eq!(
        heard.content(),
        &json!([{"type": "text", "text": "one "},
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            {"type": "text", "text": "two three"}])
    );
}

#[test]
fn opaque_block_waits_for_a_block_that_cannot_be_interrupted() {
    let raw = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#;
    let result = || BlockKind::Opaque {
        name: JsonStr::from_escaped("web_search_tool_result"),
        raw: RawJson::from_text(raw),
    };
    let opaque = || serde_json::from_str::<serde_json::Value>(raw).unwrap();
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": UNSIGNED});
    for stops in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let mut events = vec![
            start(0, BlockKind::Reasoning),
            text(0, "Hm"),
            start(1, result()),
            start(2, BlockKind::Text),
            text(2, "Yes"),
            text(0, "."),
        ];
        events.extend(stops.map(stop));
        let heard = hear(&events, Finish::Stop);
        assert_eq!(
            heard.content(),
            &json!([thought, opaque(), {"type": "text", "text": "Yes"}]),
            "{stops:?}"
        );
    }
    // Behind a call with incomplete arguments, which stops last.
    let events = [
        start(0, call("a", "f")),
        arguments(0, r#"{\"x\":"#),
        start(1, result()),
        start(2, result()),
        stop(2),
        stop(1),
        arguments(0, "1}"),
        stop(0),
    ];
    let heard = hear(&events, Finish::ToolUse);
    let called = json!({"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}});
    assert_eq!(heard.content(), &json!([called, opaque(), opaque()]));
}

#[test]
fn reasoning_block_stays_open_until_it_is_signed() {
    let heard = hear(
        &[
            start(0, BlockKind::Reasoning),
            text(0, "Hm"),
            start(1, BlockKind::Text),
            text(1, "Yes"),
            text(0, "m."),
            text(1, "!"),
            Event::Delta { index: 0, delta: Delta::Signature(JsonStr::from_escaped("Eq")) },
            stop(1),
            stop(0),
        ],
        Finish::Stop,
    );
    let content = heard.content();
    assert_eq!((&content[0]["thinking"], &content[1]["text"]), (&json!("Hmm."), &json!("Yes!")));
    assert!(content[0]["signature"].as_str().unwrap().starts_with("gw1."));
}

#[test]
fn blocks_that_wait_are_written_whole() {
    let object = Delta::Object(RawJson::from_text(r#"{"a":"\"\n"}"#));
    let heard = hear(
        &[
            start(0, BlockKind::Reasoning),
            start(1, call("b", "f")),
            Event::Delta { index: 1, delta: Delta::Signature(JsonStr::from_escaped("Ci")) },
            Event::Delta { index: 1, delta: object },
            start(2, BlockKind::HiddenReasoning),
            Event::Delta { index: 2, delta: Delta::Signature(JsonStr::from_escaped("Em")) },
            start(3, BlockKind::Text),
            stop(1),
            text(0, "Hmm."),
            stop(0),
            stop(2),
            text(3, "Yes."),
            stop(3),
        ],
        Finish::ToolUse,
    );
    let content = heard.content();
    assert_eq!(content.as_array().unwrap().len(), 4);
    assert_eq!(content[1]["input"], json!({"a": "\"\n"}));
    assert!(content[1]["id"].as_str().unwrap().starts_with("b__gw1__provider__"));
    assert_eq!(content[2]["type"], "redacted_thinking");
    assert_eq!(content[3]["text"], "Yes.");
}

#[test]
fn tool_calls_cut_by_the_limit_are_all_written() {
    let heard = hear(
        &[
            start(0, call("a", "f")),
            start(1, call("b", "g")),
            arguments(0, r#"{\"x\":\"ab"#),
            arguments(1, r#"{\"y\":"#),
            stop(0),
            stop(1),
        ],
        Finish::Length,
    );
    assert_eq!(heard.message["stop_reason"], "max_tokens");
    assert_eq!(heard.content().as_array().unwrap().len(), 2);
}
