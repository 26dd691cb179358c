use bytes::BytesMut;
use serde_json::{Value, json};

use super::sample_events;
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Answer, Event, Grammar};
use crate::json::EscapedString;
use crate::wire::codec::ReplyOptions;
use crate::wire::generate::answer::{decode, encode};

fn read(body: &str) -> Answer {
    let mut grammar = Grammar::default();
    let mut answer = Answer::default();
    decode(body, "seed", &mut |event| {
        grammar.check(&event).unwrap();
        answer.take(&event);
    })
    .unwrap();
    assert!(answer.complete || answer.error.is_some());
    answer
}

fn write(answer: &Answer) -> Value {
    let reply = ReplyOptions {
        model: EscapedString::from("m"),
        seed: "seed".into(),
        show_thinking: true,
        issuer: "anthropic".into(),
        ..ReplyOptions::default()
    };
    let mut out = BytesMut::new();
    encode(answer, &reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn an_answer_is_read_as_the_stream_of_one_frame() {
    let answer = read(
        r#" {"candidates":[{"content":{"parts":[{"text":"Think.","thought":true},{"text":"Say.","thoughtSignature":"S"},{"functionCall":{"name":"f","args":{"a":1}}}],"role":"model"},"finishReason":"STOP","avgLogprobs":-0.1}],
        "usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2,"totalTokenCount":6},"modelVersion":"g","responseId":"r"}
        "#,
    );
    let kinds: Vec<_> = answer.blocks.iter().map(|block| (&block.kind, &*block.text, &*block.seal)).collect();
    assert_eq!(kinds[0], (&AnswerBlockKind::Reasoning, "Think.", ""));
    assert_eq!(kinds[1], (&AnswerBlockKind::Text, "Say.", "S"));
    assert!(matches!(kinds[2].0, AnswerBlockKind::ToolUse { name, .. } if name == "f"));
    assert_eq!(answer.finishes, [(0, FinishOwned::ToolUse)]);
    assert_eq!((answer.usage.input, answer.usage.output), (Some(4), Some(2)));
}

#[test]
fn bug_18_an_answer_of_nothing_is_an_answer() {
    let answer =
        read(r#"{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS","index":0}]}"#);
    assert_eq!((answer.blocks.len(), &*answer.finishes), (0, &[(0, FinishOwned::Length)][..]));
    let written = write(&answer);
    assert_eq!(
        written["candidates"],
        json!([{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}])
    );
    let blocked = read(r#"{"promptFeedback":{"blockReason":"OTHER"},"modelVersion":"m"}"#);
    assert_eq!(blocked.finishes, [(0, FinishOwned::ContentFilter)]);
}

#[test]
fn an_answer_that_names_no_reason_is_whole_but_not_well() {
    let unspecified = [(0, FinishOwned::Other("FINISH_REASON_UNSPECIFIED".into()))];
    assert_eq!(read(r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#).finishes, unspecified);
    assert_eq!(read(r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1}}"#).finishes, unspecified);
}

#[test]
fn a_stream_in_one_array_is_one_answer() {
    let answer = read(
        r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"responseId":"r"}
,
{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}]"#,
    );
    assert_eq!((answer.blocks.len(), &*answer.blocks[0].text, &*answer.id), (1, "ab", "r"));
}

#[test]
fn an_error_in_a_200_is_an_error() {
    for body in [r#"{"error":{"code":500,"message":"m"}}"#, r#"[{"error":{"code":500,"message":"m"}}]"#] {
        assert_eq!(read(body).error.as_deref(), Some(r#"{"code":500,"message":"m"}"#));
    }
}

#[test]
fn what_is_no_answer_is_an_error() {
    for body in ["", "{", "[]", "{}", "null", "<html>", r#"{"choices":[]}"#, r#"{"candidates":[}"#] {
        let read = decode(body, "seed", &mut |event| assert!(!matches!(event, Event::End)));
        assert!(read.is_err(), "{body}");
    }
}

#[test]
fn an_answer_is_written_in_one_piece() {
    let mut answer = Answer::default();
    sample_events().iter().for_each(|event| answer.take(event));
    let written = write(&answer);
    let parts = written["candidates"][0]["content"]["parts"].as_array().unwrap();
    assert_eq!(parts[0]["text"], "Let me see.");
    assert!(parts[0]["thoughtSignature"].is_string() && parts[0]["thought"] == true);
    assert_eq!(parts[1], json!({"text":"Grüße "}));
    assert_eq!(parts[2]["functionCall"], json!({"id":"call_1","name":"f","args":{"city":"Oslo"}}));
    assert_eq!(parts[3]["functionCall"], json!({"id":"call_2","name":"g","args":{}}));
    assert_eq!(parts.len(), 4);
    assert_eq!(written["candidates"][0]["finishReason"], "STOP");
    assert_eq!(written["usageMetadata"]["totalTokenCount"], 18);
    assert_eq!((&written["modelVersion"], &written["responseId"]), (&json!("m"), &json!("9x")));
}
