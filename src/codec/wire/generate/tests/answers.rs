use bytes::BytesMut;
use serde_json::{Value, json};

use super::sample_events;
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Answer, Event, Grammar};
use crate::wire::codec::ReplyOptions;
use crate::wire::generate::answer::{decode, encode};
use json::EscapedString;

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
fn response_is_decoded_with_thoughts_text_calls_and_usage() {
    let answer = read(
        r#" {"candidates":[{"content":{"parts":[{"text":"Think.","thought":true},{"text":"Say.","thoughtSignature":"S"},{"functionCall":{"name":"f","args":{"a":1}}}],"role":"model"},"finishReason":"STOP","avgLogprobs":-0.1}],
        "usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2,"totalTokenCount":6},"modelVersion":"g","responseId":"r"}
        "#,
    );
    let kinds: Vec<_> =
        answer.blocks.iter().map(|block| (&block.kind, &*block.text, &*block.signature)).collect();
    assert_eq!(kinds[0], (&AnswerBlockKind::Reasoning, "Think.", ""));
    assert_eq!(kinds[1], (&AnswerBlockKind::Text, "Say.", "S"));
    assert!(matches!(kinds[2].0, AnswerBlockKind::ToolUse { name, .. } if name == "f"));
    assert_eq!(answer.finishes, [(0, FinishOwned::ToolUse)]);
    assert_eq!((answer.usage.input, answer.usage.output), (Some(4), Some(2)));
}

#[test]
fn bug_18_response_without_content_is_valid() {
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
fn response_without_a_finish_reason_is_unspecified() {
    let unspecified = [(0, FinishOwned::Other("FINISH_REASON_UNSPECIFIED".into()))];
    assert_eq!(read(r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#).finishes, unspecified);
    assert_eq!(read(r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1}}"#).finishes, unspecified);
}

#[test]
fn response_array_is_one_response() {
    let answer = read(
        r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"responseId":"r"}
,
{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}]"#,
    );
    assert_eq!((answer.blocks.len(), &*answer.blocks[0].text, &*answer.id), (1, "ab", "r"));
}

#[test]
fn response_with_an_error_and_status_200_is_an_error() {
    for body in [r#"{"error":{"code":500,"message":"m"}}"#, r#"[{"error":{"code":500,"message":"m"}}]"#] {
        assert_eq!(read(body).error.as_deref(), Some(r#"{"code":500,"message":"m"}"#));
    }
}

#[test]
fn response_invalid_body_is_refused() {
    for body in ["", "{", "[]", "{}", "null", "<html>", r#"{"choices":[]}"#, r#"{"candidates":[}"#] {
        let read = decode(body, "seed", &mut |event| assert!(!matches!(event, Event::End)));
        assert!(read.is_err(), "{body}");
    }
}

#[test]
fn response_is_encoded_as_one_document() {
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
