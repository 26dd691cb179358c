//! Tests of whole completions: decoding and encoding.

use super::*;
use crate::canonical::Usage;
use crate::canonical::answer::CitationOwned;

fn block(kind: AnswerBlockKind, text: &str) -> AnswerBlock {
    AnswerBlock {
        choice: 0,
        kind,
        text: text.to_owned(),
        object: None,
        url: None,
        signature: String::new(),
        citations: Vec::new(),
        logprobs: String::new(),
    }
}

fn answer(blocks: Vec<AnswerBlock>, finish: FinishOwned) -> Answer {
    Answer {
        id: "msg_1".to_owned(),
        blocks,
        finishes: vec![(0, finish)],
        complete: true,
        ..Answer::default()
    }
}

fn call(id: &str, text: &str) -> AnswerBlock {
    let kind = AnswerBlockKind::ToolUse {
        id: id.to_owned(),
        name: "f".to_owned(),
        kind: Default::default(),
        namespace: String::new(),
    };
    block(kind, text)
}

#[test]
fn completion_is_decoded_with_reasoning_text_calls_and_usage() {
    let body = r#"

        {"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"v","choices":[{"index":0,"message":
        {"role":"assistant","content":"Hi","refusal":null,"reasoning_content":"hm","annotations":[],"tool_calls":[
        {"id":"c","index":0,"type":"function","function":{"name":"f","arguments":"{}"}}]},
        "logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
    let read = read_whole(body);
    assert_eq!((read.id.as_str(), read.created), ("chatcmpl-1", Some(7)));
    assert_eq!(text_of(&read, &AnswerBlockKind::Reasoning), "hm");
    assert_eq!(text_of(&read, &AnswerBlockKind::Text), "Hi");
    assert_eq!(calls_of(&read).len(), 1);
    assert_eq!((read.usage.input, read.usage.output), (Some(5), Some(2)));
    assert!(read.complete);
}

#[test]
fn fact_9_completion_without_a_finish_reason_is_complete() {
    for word in ["\"\"", "null"] {
        let read = read_whole(&completion(r#"{"content":"a"}"#, word));
        assert_eq!(finish_of(&read), FinishOwned::Stop);
    }
}

#[test]
fn completion_message_takes_precedence_over_a_delta() {
    let body = r#"{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    assert_eq!(text_of(&read_whole(body), &AnswerBlockKind::Text), "Hi");
}

#[test]
fn map_7_finish_reason_is_encoded_for_each_kind() {
    use FinishOwned as F;
    let words = [
        (F::Stop, "stop"),
        (F::StopSequence(Some("X".to_owned())), "stop"),
        (F::Length, "length"),
        (F::ContextFull, "length"),
        (F::ContentFilter, "content_filter"),
        (F::Pause, "stop"),
    ];
    for (finish, word) in words {
        let written = whole_written(&answer(vec![block(AnswerBlockKind::Text, "a")], finish), &reply());
        assert_eq!(written["choices"][0]["finish_reason"], word);
    }
    let written = whole_written(&answer(vec![call("c", "")], F::Stop), &reply());
    assert_eq!(written["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn bug_16_finish_reason_unknown_is_stop_with_the_native_reason() {
    let finish = FinishOwned::Other("made_up".to_owned());
    let written = whole_written(&answer(vec![block(AnswerBlockKind::Text, "a")], finish), &reply());
    assert_eq!(written["choices"][0]["finish_reason"], "stop");
    assert_eq!(written["choices"][0]["native_finish_reason"], "made_up");
}

#[test]
fn completion_has_every_member_that_sdks_require() {
    let blocks = vec![
        block(AnswerBlockKind::Reasoning, "hm"),
        block(AnswerBlockKind::Text, "He"),
        block(AnswerBlockKind::Text, "llo"),
    ];
    let written = whole_written(&answer(blocks, FinishOwned::Stop), &reply());
    assert_eq!(written["id"], "chatcmpl-1");
    assert_eq!(written["object"], "chat.completion");
    assert_eq!(written["created"], 1_700_000_000);
    assert_eq!(written["model"], "client-model");
    let message = &written["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["content"], "Hello");
    assert_eq!(message["refusal"], Value::Null);
    assert_eq!(message["reasoning_content"], "hm");
    assert_eq!(written["choices"][0]["logprobs"], Value::Null);
    assert!(written.get("usage").is_none() && message.get("tool_calls").is_none());
    assert!(message.get("reasoning_details").is_none());
}

#[test]
fn reasoning_is_omitted_if_thinking_is_hidden() {
    let blocks = vec![block(AnswerBlockKind::Reasoning, "hm"), block(AnswerBlockKind::Text, "a")];
    let hidden = ReplyOptions { show_thinking: false, ..reply() };
    let written = whole_written(&answer(blocks, FinishOwned::Stop), &hidden);
    assert!(!written.to_string().contains("hm"));
}

#[test]
fn tool_call_arguments_are_strings_and_content_without_text_is_null() {
    let object = AnswerBlock { object: Some(r#"{"b": 1, "a": "\n"}"#.to_owned()), ..call("c2", "") };
    let blocks = vec![call("c1", r#"{\"a\":1}"#), object, call("c3", "")];
    let written = whole_written(&answer(blocks, FinishOwned::ToolUse), &reply());
    let message = &written["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    let arguments = |n: usize| message["tool_calls"][n]["function"]["arguments"].as_str().unwrap();
    assert_eq!(
        [arguments(0), arguments(1), arguments(2)],
        [r#"{"a":1}"#, r#"{"b": 1, "a": "\n"}"#, "{}"],
        "valid JSON, escaped once, in the order of the provider"
    );
    assert_eq!(message["tool_calls"][0]["type"], "function");
    assert_eq!(message["tool_calls"][0]["id"], "c1");
}

#[test]
fn map_8_usage_details_are_written_only_if_reported() {
    let usage = Usage {
        input: Some(10),
        output: Some(7),
        cached: Some(0),
        cache_write: Some(2),
        cache_write_1h: Some(3),
        ..Usage::default()
    };
    let read = Answer { usage, ..answer(vec![block(AnswerBlockKind::Text, "a")], FinishOwned::Stop) };
    let written = whole_written(&read, &reply());
    let expected = serde_json::json!({
        "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 5},
    });
    assert_eq!(written["usage"], expected, "a zero stays, an absent count stays absent");
    // The round trip preserves usage, except for the lifetime of cache writes.
    let again = read_whole(&written.to_string()).usage;
    assert_eq!((again.input, again.output, again.cached), (Some(10), Some(7), Some(0)));
}

#[test]
fn refusal_has_its_own_member() {
    let written =
        whole_written(&answer(vec![block(AnswerBlockKind::Refusal, "no")], FinishOwned::Stop), &reply());
    let message = &written["choices"][0]["message"];
    assert_eq!((&message["content"], message["refusal"].as_str()), (&Value::Null, Some("no")));
}

#[test]
fn map_9_citation_without_a_span_covers_its_block() {
    let citation = |url: &str, span| CitationOwned { url: url.to_owned(), span, ..CitationOwned::default() };
    let mut first = block(AnswerBlockKind::Text, r"g\u00fc\n");
    first.citations.push(citation("https://a", None));
    let mut second = block(AnswerBlockKind::Text, "\u{1f30d}!");
    second.citations.push(citation("https://b", None));
    second.citations.push(citation("https://c", Some((1, 2))));
    let written = whole_written(&answer(vec![first, second], FinishOwned::Stop), &reply());
    let annotations = &written["choices"][0]["message"]["annotations"];
    let span = |n: usize| {
        let cited = &annotations[n]["url_citation"];
        (cited["url"].as_str().unwrap(), cited["start_index"].as_u64(), cited["end_index"].as_u64())
    };
    assert_eq!(span(0), ("https://a", Some(0), Some(3)));
    assert_eq!(span(1), ("https://b", Some(3), Some(5)));
    assert_eq!(span(2), ("https://c", Some(1), Some(2)));
    assert_eq!(annotations[0]["type"], "url_citation");
    assert_eq!(annotations[0]["url_citation"]["title"], "");
}

#[test]
fn map_9_citation_of_a_document_is_no_annotation() {
    let mut text = block(AnswerBlockKind::Text, "a");
    text.citations.push(CitationOwned { title: "T".to_owned(), quote: "q".to_owned(), ..Default::default() });
    let written = whole_written(&answer(vec![text], FinishOwned::Stop), &reply());
    assert_eq!(written["choices"][0]["message"].get("annotations"), None);
}

#[test]
fn map_2_media_round_trips() {
    let image = block(AnswerBlockKind::Media { mime: "image/png".to_owned() }, "QUJD");
    let mut linked = block(AnswerBlockKind::Media { mime: "image/*".to_owned() }, "");
    linked.url = Some("https://a/b.png".to_owned());
    let sound = block(AnswerBlockKind::Media { mime: "audio/wav".to_owned() }, "UklG");
    let before = answer(vec![image, linked, sound], FinishOwned::Stop);
    let written = whole_written(&before, &reply());
    let message = &written["choices"][0]["message"];
    assert_eq!(message["images"][0]["image_url"]["url"], "data:image/png;base64,QUJD");
    assert_eq!(message["audio"]["data"], "UklG");
    assert!(message["audio"]["expires_at"].is_u64() && message["audio"]["id"].is_string());
    let again = read_whole(&written.to_string());
    assert_eq!(again.blocks, before.blocks);
}

#[test]
fn map_6_logprobs_are_written_unchanged() {
    let mut text = block(AnswerBlockKind::Text, "ab");
    text.logprobs = r#"{"token":"a","logprob":-0.5},{"token":"b","logprob":-9999.0}"#.to_owned();
    let written = whole_written(&answer(vec![text], FinishOwned::Stop), &reply());
    assert_eq!(written["choices"][0]["logprobs"]["content"][1]["token"], "b");
    assert_eq!(written["choices"][0]["logprobs"]["refusal"], Value::Null);
}

#[test]
fn choices_are_separate_messages() {
    let mut second = block(AnswerBlockKind::Text, "b");
    second.choice = 1;
    let mut both = answer(vec![block(AnswerBlockKind::Text, "a"), second], FinishOwned::Stop);
    both.finishes.push((1, FinishOwned::Length));
    let written = whole_written(&both, &reply());
    assert_eq!(written["choices"][1]["index"], 1);
    assert_eq!(written["choices"][1]["message"]["content"], "b");
    assert_eq!(written["choices"][1]["finish_reason"], "length");
}

#[test]
fn id_has_the_style_of_the_format_and_is_stable() {
    let id = |provider: &str| {
        let answer = Answer { id: provider.to_owned(), ..answer(Vec::new(), FinishOwned::Stop) };
        whole_written(&answer, &reply())["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id("resp_0a"), "chatcmpl-0a");
    assert_eq!(id("chatcmpl-x"), "chatcmpl-x");
    assert_eq!(id("a\\\"b"), "chatcmpl-a__b");
    assert_eq!(id(""), id(""));
    assert!(id("").len() > 20);
}
