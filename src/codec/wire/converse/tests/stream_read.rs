use super::*;
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::wire::watch::{self, StreamEnd};

const START: &str = r#"{"messageStart":{"role":"assistant","p":"abc"}}"#;

fn delta(index: u32, delta: &str) -> String {
    format!(r#"{{"contentBlockDelta":{{"contentBlockIndex":{index},"delta":{delta},"p":"abcd"}}}}"#)
}

fn stop(index: u32) -> String {
    format!(r#"{{"contentBlockStop":{{"contentBlockIndex":{index}}}}}"#)
}

fn end(reason: &str) -> [String; 2] {
    let usage = r#"{"inputTokens":3,"outputTokens":7,"totalTokens":1722,"cacheReadInputTokens":12,"cacheWriteInputTokens":1700,"cacheDetails":[{"ttl":"1h","inputTokens":700}]}"#;
    [
        format!(r#"{{"messageStop":{{"stopReason":"{reason}"}}}}"#),
        format!(r#"{{"metadata":{{"usage":{usage},"metrics":{{"latencyMs":5}}}}}}"#),
    ]
}

fn read_all(frames: &[String]) -> Answer {
    let frames: Vec<&str> = std::iter::once(START).chain(frames.iter().map(String::as_str)).collect();
    read(&frames).unwrap()
}

#[test]
fn text_block_needs_no_start_and_usage_follows_the_stop_reason() {
    let [reason, metadata] = end("end_turn");
    let answer = read_all(&[
        delta(0, r#"{"text":""}"#),
        delta(0, r#"{"text":"a\n"}"#),
        delta(0, r#"{"text":"b"}"#),
        stop(0),
        reason,
        metadata,
    ]);
    assert_eq!(answer.blocks[0].text, "a\\nb");
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::Stop));
    let usage = answer.usage;
    assert_eq!((usage.input, usage.output, usage.cached), (Some(1_715), Some(7), Some(12)));
    assert_eq!((usage.cache_write, usage.cache_write_1h), (Some(1_000), Some(700)));
    assert!(answer.complete);
}

#[test]
fn empty_text_block_before_reasoning_is_left_out() {
    let [reason, metadata] = end("tool_use");
    let answer = read_all(&[
        delta(0, r#"{"text":""}"#),
        stop(0),
        delta(1, r#"{"reasoningContent":{"text":"hm"}}"#),
        delta(1, r#"{"reasoningContent":{"signature":"c2ln"}}"#),
        stop(1),
        delta(2, r#"{"reasoningContent":{"redactedContent":"UmVk"}}"#),
        stop(2),
        r#"{"contentBlockStart":{"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"t1","name":"f"}}}}"#
            .into(),
        delta(3, r#"{"toolUse":{"input":""}}"#),
        delta(3, r#"{"toolUse":{"input":"{\"a\":"}}"#),
        delta(3, r#"{"toolUse":{"input":"1}"}}"#),
        stop(3),
        reason,
        metadata,
    ]);
    let kinds: Vec<_> = answer.blocks.iter().map(|block| block.kind.clone()).collect();
    assert!(matches!(
        &kinds[..],
        [AnswerBlockKind::Reasoning, AnswerBlockKind::HiddenReasoning, AnswerBlockKind::ToolUse { .. }]
    ));
    assert_eq!((&*answer.blocks[0].text, &*answer.blocks[0].signature), ("hm", "c2ln"));
    assert_eq!((&*answer.blocks[1].text, &*answer.blocks[1].signature), ("", "UmVk"));
    assert_eq!(answer.blocks[2].text, r#"{\"a\":1}"#);
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::ToolUse));
}

#[test]
fn citation_covers_the_text_of_its_block_or_the_text_before_it() {
    let web = r#"{"citation":{"title":"T","location":{"web":{"url":"https://a.example","domain":"a"}},"sourceContent":[{"text":"quote"}]}}"#;
    let [reason, metadata] = end("end_turn");
    let answer = read_all(&[
        delta(0, r#"{"text":"abc"}"#),
        stop(0),
        delta(1, r#"{"text":"defg"}"#),
        delta(1, web),
        stop(1),
        delta(2, web),
        stop(2),
        reason,
        metadata,
    ]);
    let citation = &answer.blocks[1].citations[0];
    assert_eq!((&*citation.url, &*citation.title, &*citation.quote), ("https://a.example", "T", "quote"));
    assert_eq!(citation.span, Some((3, 7)));
    assert_eq!((answer.blocks[2].text.len(), answer.blocks[2].citations[0].span), (0, Some((0, 7))));
}

#[test]
fn tool_of_the_provider_is_opaque() {
    let [reason, metadata] = end("end_turn");
    let answer = read_all(&[
        r#"{"contentBlockStart":{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t1","name":"input","type":"server_tool_use"}}}}"#.into(),
        delta(0, r#"{"toolUse":{"input":"{\"q\":\"x\"}"}}"#),
        stop(0),
        r#"{"contentBlockStart":{"contentBlockIndex":1,"start":{"toolResult":{"toolUseId":"t1","type":"nova_grounding_result"}}}}"#.into(),
        delta(1, r#"{"toolResult":[{"text":"one"}]}"#),
        delta(1, r#"{"toolResult":[{"json":{"n":2}}]}"#),
        stop(1),
        delta(2, r#"{"text":"done"}"#),
        stop(2),
        reason,
        metadata,
    ]);
    let raw = |index: usize| match &answer.blocks[index].kind {
        AnswerBlockKind::Opaque { raw, .. } => serde_json::from_str::<Value>(raw).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        raw(0),
        serde_json::json!({"toolUse": {"toolUseId": "t1", "name": "input", "type": "server_tool_use", "input": {"q": "x"}}})
    );
    assert_eq!(
        raw(1),
        serde_json::json!({"toolResult": {"toolUseId": "t1", "type": "nova_grounding_result",
            "content": [{"text": "one"}, {"json": {"n": 2}}]}})
    );
    assert_eq!(answer.blocks[2].text, "done");
}

#[test]
fn call_of_type_tool_use_is_one_of_the_client() {
    let [reason, metadata] = end("tool_use");
    let start = r#"{"contentBlockStart":{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t1","name":"f","type":"tool_use"}}}}"#;
    let answer = read_all(&[
        start.into(),
        delta(0, r#"{"toolUse":{"input":"{\"q\":1}"}}"#),
        stop(0),
        reason,
        metadata,
    ]);
    let whole = r#"{"output":{"message":{"role":"assistant","content":[{"toolUse":{"toolUseId":"t1","name":"f","input":{"q":1},"type":"tool_use"}}]}},"stopReason":"tool_use"}"#;
    let mut document = Answer::default();
    crate::wire::converse::answer::decode(whole, "s", &mut |event| document.take(&event)).unwrap();
    for answer in [answer, document] {
        let [block] = answer.blocks.as_slice() else { panic!("{answer:?}") };
        assert!(
            matches!(&block.kind, AnswerBlockKind::ToolUse { id, name, .. } if id == "t1" && name == "f")
        );
        assert_eq!(answer.finish_of(0), Some(&FinishOwned::ToolUse));
    }
}

#[test]
fn stop_reasons_and_the_stop_sequence_are_read() {
    for (reason, expected) in [
        ("end_turn", FinishOwned::Stop),
        ("max_tokens", FinishOwned::Length),
        ("stop_sequence", FinishOwned::StopSequence(None)),
        ("content_filtered", FinishOwned::ContentFilter),
        ("guardrail_intervened", FinishOwned::ContentFilter),
        ("model_context_window_exceeded", FinishOwned::ContextFull),
        ("new_reason", FinishOwned::Other("new_reason".into())),
    ] {
        let answer = read_all(&end(reason));
        assert_eq!(answer.finish_of(0), Some(&expected), "{reason}");
    }
    for reason in ["malformed_tool_use", "malformed_model_output"] {
        let answer = read_all(&end(reason));
        assert!(answer.error.is_some_and(|error| error.contains(reason)) && !answer.complete, "{reason}");
        assert!(answer.usage.is_known(), "the usage comes before the error");
    }
    let stop = r#"{"messageStop":{"additionalModelResponseFields":{"stop_sequence":"END"},"stopReason":"stop_sequence"}}"#;
    let answer = read_all(&[stop.into(), end("x")[1].clone()]);
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::StopSequence(Some("END".into()))));
}

#[test]
fn stream_is_complete_from_its_stop_reason_on() {
    let [reason, _] = end("end_turn");
    let text = delta(0, r#"{"text":"a"}"#);
    assert!(read(&[START, &text]).is_err());
    assert!(read(&[START, &text, &end("x")[1]]).is_err());
    let answer = read(&[START, &text, &reason]).unwrap();
    assert!(answer.complete && answer.usage.input.is_none());
    let facts = watch::frame(Format::Converse, &reason).unwrap();
    assert_eq!(
        (facts.finished, facts.end, facts.finish.unwrap().escaped()),
        (1, StreamEnd::Open, "end_turn")
    );
    let metadata = end("x")[1].clone();
    assert_eq!(watch::frame(Format::Converse, &metadata).unwrap().end, StreamEnd::Terminated);
}

#[test]
fn exception_ends_the_stream_with_its_status() {
    use crate::error::ErrorKind;
    use crate::wire::error::{ProviderError, from_provider};
    for (name, status, kind) in [
        ("throttlingException", 429, ErrorKind::UpstreamRateLimit),
        ("validationException", 400, ErrorKind::UpstreamRejected),
        ("serviceUnavailableException", 503, ErrorKind::UpstreamFailed),
        ("internalServerException", 500, ErrorKind::UpstreamFailed),
        ("modelStreamErrorException", 500, ErrorKind::UpstreamFailed),
    ] {
        let frame = format!(r#"{{"{name}":{{"message":"why","originalStatusCode":500}}}}"#);
        let answer = read(&[START, &frame, &delta(0, r#"{"text":"later"}"#)]).unwrap();
        let error = ProviderError::decode(answer.error.as_deref().unwrap().as_bytes());
        assert_eq!((&*error.message, error.kind.as_deref(), error.status()), ("why", Some(name), status));
        assert!(answer.blocks.is_empty() && !answer.complete);
        assert_eq!(from_provider(error.status(), error, None).kind, kind, "{name}");
        assert_eq!(watch::frame(Format::Converse, &frame).unwrap().end, StreamEnd::Failed);
    }
    // Events that later versions of the service add mean nothing.
    let [reason, metadata] = end("end_turn");
    let unknown = r#"{"someFutureEvent":{"x":[1,{}]}}"#.to_owned();
    assert!(read_all(&[unknown, reason, metadata]).complete);
}

#[test]
fn error_body_has_a_type_with_a_namespace() {
    use crate::wire::error::ProviderError;
    let error =
        ProviderError::decode(br#"{"__type":"com.amazon.coral#ThrottlingException","message":"slow"}"#);
    assert_eq!((&*error.message, error.kind.as_deref()), ("slow", Some("ThrottlingException")));
}

#[test]
fn document_has_the_same_events_as_a_stream() {
    let body = r#"{"metrics":{"latencyMs":1},"output":{"message":{"role":"assistant","content":[
        {"reasoningContent":{"reasoningText":{"text":"hm","signature":"c2ln"}}},
        {"text":"a"},
        {"citationsContent":{"content":[{"text":"b"}],"citations":[{"title":"T","location":{"documentChar":{"documentIndex":0,"start":1,"end":2}}}]}},
        {"toolUse":{"toolUseId":"t1","name":"f","input":{"x":[1]}}},
        {"image":{"format":"png","source":{"bytes":"AAAA"}}},
        {"video":{"format":"mp4"}}
    ]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}"#;
    let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
    crate::wire::converse::answer::decode(body, "req_1", &mut |event| {
        grammar.check(&event).unwrap();
        answer.take(&event);
    })
    .unwrap();
    let texts: Vec<&str> = answer.blocks.iter().map(|block| &*block.text).collect();
    assert_eq!(texts, ["hm", "a", "b", "", "AAAA", ""]);
    assert_eq!(answer.blocks[2].citations[0].span, Some((1, 2)));
    assert_eq!(answer.blocks[3].object.as_deref(), Some(r#"{"x":[1]}"#));
    assert_eq!(answer.blocks[4].kind, AnswerBlockKind::Media { mime: "image/png".into() });
    assert!(matches!(&answer.blocks[5].kind, AnswerBlockKind::Opaque { name, .. } if name == "video"));
    assert!(answer.complete);
    // An error with status 200, and something that is no response.
    let mut error = None;
    let front_end = r#"{"Output":{"__type":"com.amazon#UnknownOperationException"},"Version":"1.0"}"#;
    crate::wire::converse::answer::decode(front_end, "", &mut |event| error = Some(format!("{event:?}")))
        .unwrap();
    assert!(error.unwrap().contains("Error"));
    assert!(crate::wire::converse::answer::decode("{}", "", &mut |_| {}).is_err());
}
