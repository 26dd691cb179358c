//! Tests of whole responses: decoding and encoding.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::super::answer::{decode, encode};
use super::client::Heard;
use super::reply;
use super::stream_write::{START, arguments, call, finish, start, stop, text};
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Answer, BlockKind, Citation, Delta, Event, Finish, Grammar, Usage};
use crate::wire::codec::ReplyOptions;
use json::{JsonStr, RawJson};

fn read(body: &str) -> Answer {
    let (mut answer, mut grammar) = (Answer::default(), Grammar::default());
    decode(body, "req_1", &mut |event| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    })
    .unwrap();
    answer
}

/// Encodes events as a whole message, for a client without a stream.
fn whole(reply: &ReplyOptions, events: &[Event<'_>]) -> Value {
    let mut answer = Answer::default();
    for event in events {
        answer.take(event);
    }
    let mut out = BytesMut::new();
    encode(&answer, reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn response_is_decoded_with_all_kinds_of_blocks() {
    let answer = read(
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
            {"type":"thinking","thinking":"Hmm.","signature":"Eq"},
            {"type":"redacted_thinking","data":"Em"},
            {"type":"text","text":"Yes.","citations":[{"type":"web_search_result_location","url":"https://a.example/","title":null,"cited_text":"so","encrypted_index":"E"}]},
            {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}},
            {"type":"tool_use","id":"toolu_1","name":"f","input":{"a":[1]}},
            {"type":"tool_use","id":"toolu_2","name":"g","input":{}}],
            "stop_reason":"tool_use","stop_sequence":null,
            "usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}}"#,
    );
    assert_eq!((answer.id.as_str(), answer.model.as_str(), answer.complete), ("msg_1", "m", true));
    let kinds: Vec<&AnswerBlockKind> = answer.blocks.iter().map(|block| &block.kind).collect();
    assert_eq!(
        kinds[..3],
        [&AnswerBlockKind::Reasoning, &AnswerBlockKind::HiddenReasoning, &AnswerBlockKind::Text]
    );
    assert_eq!((answer.blocks[0].signature.as_str(), answer.blocks[1].signature.as_str()), ("Eq", "Em"));
    assert_eq!(answer.blocks[2].citations[0].span, Some((0, 4)));
    assert_eq!(answer.blocks[4].object.as_deref(), Some(r#"{"a":[1]}"#));
    assert_eq!(answer.blocks[5].object, None);
    assert_eq!(answer.finishes, [(0, FinishOwned::ToolUse)]);
    assert_eq!(
        (answer.usage.input, answer.usage.cached, answer.usage.reasoning),
        (Some(7), Some(4), Some(2))
    );
}

#[test]
fn response_members_may_stand_in_any_order() {
    let answer = read(
        r#"{"content":[{"text":"a","type":"text"}],"id":"msg_1","model":"m","role":"assistant","stop_reason":"stop_sequence","stop_sequence":"X","type":"message","usage":{"output_tokens":1,"input_tokens":2}}"#,
    );
    assert_eq!((answer.id.as_str(), answer.blocks[0].text.as_str()), ("msg_1", "a"));
    assert_eq!(answer.finishes[0].1, FinishOwned::StopSequence(Some("X".into())));
}

#[test]
fn intervention_of_a_guardrail_is_a_content_filter() {
    let answer = read(
        r#"{"type":"message","content":[{"type":"text","text":"No."}],"stop_reason":"end_turn","usage":{},"amazon-bedrock-guardrailAction":"INTERVENED"}"#,
    );
    assert_eq!((answer.blocks[0].text.as_str(), &answer.finishes[0].1), ("No.", &FinishOwned::ContentFilter));
}

#[test]
fn fact_22_response_without_content_is_complete() {
    let answer = read(r#"{"type":"message","content":[],"stop_reason":"refusal","usage":{}}"#);
    assert!(answer.blocks.is_empty() && answer.complete);
    assert_eq!(answer.finishes[0].1, FinishOwned::ContentFilter);
}

#[test]
fn fact_25_response_with_an_error_and_status_200_is_an_error() {
    let answer = read(r#"{"type":"error","error":{"type":"api_error","message":"No."},"request_id":"r"}"#);
    assert_eq!(answer.error.as_deref(), Some(r#"{"type":"api_error","message":"No."}"#));
    assert!(!answer.complete);
    assert!(read(r#"{"error":{"message":"No."}}"#).error.is_some());
}

#[test]
fn response_invalid_body_is_refused() {
    for body in ["", "<html>", "[]", "{\"content\":[", "{} x"] {
        assert!(decode(body, "s", &mut |_| {}).is_err(), "{body}");
    }
}

#[test]
fn response_is_encoded_like_its_stream() {
    let seal = |index| Event::Delta { index, delta: Delta::Signature(JsonStr::from_escaped("Eq")) };
    let citation = Citation { url: JsonStr::from_escaped("https://a.example/"), ..Citation::default() };
    let own = RawJson::from_text(r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#);
    let own = BlockKind::Opaque { name: JsonStr::from_escaped("web_search_tool_result"), raw: own };
    let usage = Usage {
        input: Some(30),
        cached: Some(10),
        cache_write: Some(4),
        output: Some(9),
        reasoning: Some(3),
        ..Usage::default()
    };
    let events = [
        START,
        start(0, BlockKind::Reasoning),
        text(0, "Hmm\\n"),
        seal(0),
        stop(0),
        start(1, BlockKind::HiddenReasoning),
        seal(1),
        stop(1),
        start(2, own),
        stop(2),
        start(3, BlockKind::Text),
        text(3, "Yes"),
        Event::Delta { index: 3, delta: Delta::Citation(citation) },
        stop(3),
        start(4, BlockKind::Text),
        stop(4),
        start(5, call("a", "f")),
        seal(5),
        arguments(5, r#"{\"x\":\"\n\"}"#),
        stop(5),
        start(6, call("b", "g")),
        stop(6),
        start(7, call("c", "h")),
        arguments(7, "free"),
        stop(7),
        Event::Usage(usage),
        finish(Finish::Stop),
        Event::End,
    ];
    for reply in [reply(), ReplyOptions { show_thinking: false, ..reply() }] {
        let whole = whole(&reply, &events);
        let streamed = Heard::to(&super::write(reply, &events)).message;
        assert_eq!(whole, streamed);
        assert_eq!(whole["stop_reason"], "tool_use");
    }
}

#[test]
fn bug_27_signatures_are_in_whole_responses_too() {
    let seal = Event::Delta { index: 0, delta: Delta::Signature(JsonStr::from_escaped("Eq")) };
    let message = whole(
        &reply(),
        &[START, start(0, BlockKind::Reasoning), text(0, "a"), seal, stop(0), finish(Finish::Stop)],
    );
    assert!(message["content"][0]["signature"].as_str().unwrap().starts_with("gw1.provider."));
}

#[test]
fn bug_18_and_59_empty_response_keeps_its_reason_without_empty_text() {
    let events = [START, start(0, BlockKind::Text), stop(0), finish(Finish::Length), Event::End];
    let message = whole(&reply(), &events);
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
}

#[test]
fn tool_call_cut_by_the_limit_has_its_partial_input() {
    let events = [START, start(0, call("c", "f")), arguments(0, r#"{\"a\":\"x"#), stop(0)];
    let cut = [&events[..], &[finish(Finish::Length)]].concat();
    assert_eq!(whole(&reply(), &cut)["content"][0]["input"], json!({"a": "x"}));
    let claimed = [&events[..], &[finish(Finish::ToolUse)]].concat();
    assert_eq!(whole(&reply(), &claimed)["content"][0]["input"], json!({"a": "x", "_raw": ""}));
}

#[test]
fn mapping_8_usage_of_a_whole_response_has_its_cache_parts() {
    let usage = Usage {
        input: Some(9),
        cache_write: Some(2),
        cache_write_1h: Some(3),
        output: Some(1),
        ..Usage::default()
    };
    let message = whole(&reply(), &[START, Event::Usage(usage), finish(Finish::Stop)]);
    assert_eq!(
        message["usage"],
        json!({"input_tokens": 4, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}, "output_tokens": 1})
    );
}
