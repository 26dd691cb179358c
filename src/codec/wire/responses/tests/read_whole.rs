//! Tests of the decoder of whole responses.

use super::*;
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};

#[test]
fn response_is_decoded_with_reasoning_text_calls_and_usage() {
    let answer = read_whole_answer(
        r#"{"object":"response","output":[
            {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A"},{"type":"summary_text","text":"B"}],"encrypted_content":"gAA"},
            {"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation","url":"u","title":"t","start_index":0,"end_index":2}],"logprobs":[]},{"type":"refusal","refusal":"No"}]},
            {"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}],
            "id":"resp_1","model":"m","created_at":1700000000.5,"status":"completed",
            "usage":{"input_tokens":1,"output_tokens":2}}"#,
    );
    assert_eq!(
        (answer.id.as_str(), answer.model.as_str(), answer.created),
        ("resp_1", "m", Some(1_700_000_000))
    );
    assert_eq!(texts(&answer), ["A\\n\\nB", "Hi", "No", "{}"]);
    assert_eq!(answer.blocks[0].signature, "gAA");
    assert_eq!(answer.blocks[1].citations[0].span, Some((0, 2)));
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::ToolUse));
    assert!(answer.complete);
}

#[test]
fn fact_29_reasoning_text_of_open_models_is_decoded() {
    let answer = read_whole_answer(
        r#"{"object":"response","status":"completed","output":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"raw"}],"encrypted_content":null}]}"#,
    );
    assert_eq!((&answer.blocks[0].kind, texts(&answer)), (&AnswerBlockKind::Reasoning, vec!["raw"]));
}

#[test]
fn response_with_an_error_and_status_200_is_an_error() {
    for (body, error) in [
        (r#"{"error":{"message":"no","type":"t"}}"#, r#"{"message":"no","type":"t"}"#),
        (r#"{"code":"invalid-argument","error":"no"}"#, r#"{"code":"invalid-argument","message":"no"}"#),
        (
            r#"{"object":"response","status":"failed","error":{"code":"server_error","message":"no"},"output":[]}"#,
            r#"{"code":"server_error","message":"no"}"#,
        ),
    ] {
        assert_eq!(read_whole_answer(body).error.as_deref(), Some(error), "{body}");
    }
}

#[test]
fn response_invalid_body_is_refused() {
    for body in ["{}", "[]", "<html>", r#"{"object":"chat.completion"}"#, r#"{"object":"response""#] {
        assert!(answer::decode(body, "seed", &mut |_| ()).is_err(), "{body}");
    }
}

#[test]
fn fact_27_finish_reason_is_decoded_from_each_status() {
    let finish = |members: &str| {
        let body = format!(r#"{{"object":"response","output":[],{members}}}"#);
        read_whole_answer(&body).finish_of(0).cloned().unwrap()
    };
    let reason = |word: &str| format!(r#""status":"incomplete","incomplete_details":{{"reason":"{word}"}}"#);
    assert_eq!(finish(&reason("max_output_tokens")), FinishOwned::Length);
    assert_eq!(finish(&reason("content_filter")), FinishOwned::ContentFilter);
    assert_eq!(finish(r#""status":"completed""#), FinishOwned::Stop);
    assert_eq!(finish(r#""status":"queued""#), FinishOwned::Other("queued".into()));
    assert_eq!(finish(r#""id":"r""#), FinishOwned::Stop);
    let cancelled = read_whole_answer(r#"{"object":"response","output":[],"status":"cancelled"}"#);
    assert!(cancelled.error.is_some_and(|error| error.contains("cancelled")) && !cancelled.complete);
}

#[test]
fn tool_call_without_an_id_gets_a_stable_id() {
    let body = r#"{"object":"response","output":[{"type":"function_call","name":"f","arguments":{"a":1}},{"type":"function_call","name":"g"}]}"#;
    let ids = |answer: &Answer| -> Vec<String> {
        let id = |block: &AnswerBlock| match &block.kind {
            AnswerBlockKind::ToolUse { id, .. } => id.clone(),
            other => panic!("{other:?}"),
        };
        answer.blocks.iter().map(id).collect()
    };
    let answer = read_whole_answer(body);
    assert_eq!(ids(&answer), ids(&read_whole_answer(body)));
    assert_ne!(ids(&answer)[0], ids(&answer)[1]);
    assert_eq!(answer.blocks[0].object.as_deref(), Some(r#"{"a":1}"#));
}
