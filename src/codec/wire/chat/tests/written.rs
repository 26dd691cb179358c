//! Tests of encoded streams: properties that OpenAI's SDKs rely on.

use super::*;
use crate::canonical::{BlockKind, Citation, Delta, Finish, Start, Usage};
use crate::error::{ApiError, ErrorKind};
use json::RawJson;

const START: Event<'static> = Event::Start(Start {
    id: JsonStr::from_escaped("msg_1"),
    model: JsonStr::from_escaped("v"),
    created: Some(7),
});

fn begin(index: u32, kind: BlockKind<'static>) -> Event<'static> {
    Event::BlockStart { index, choice: 0, kind }
}

fn text(index: u32, text: &'static str) -> Event<'static> {
    Event::Delta { index, delta: Delta::Text(js(text)) }
}

fn add(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::Delta { index, delta }
}

fn stop(index: u32) -> Event<'static> {
    Event::BlockStop { index }
}

const FINISH: Event<'static> = Event::Finish { choice: 0, finish: Finish::Stop };

fn deltas(chunks: &[Value]) -> Vec<String> {
    chunks.iter().map(|chunk| chunk["choices"][0]["delta"].to_string()).collect()
}

#[test]
fn stream_of_plain_text_is_encoded_in_full() {
    let events =
        [START, begin(0, BlockKind::Text), text(0, "He"), text(0, r"l\n"), stop(0), FINISH, Event::End];
    let head = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"client-model","choices":[{"index":0,"delta":{"#;
    let expected = [
        r#""role":"assistant","content":""},"finish_reason":null}]}"#,
        r#""content":"He"},"finish_reason":null}]}"#,
        r#""content":"l\n"},"finish_reason":null}]}"#,
        r#"},"finish_reason":"stop"}]}"#,
    ];
    let expected: String = expected.iter().map(|rest| format!("{head}{rest}\n\n")).collect();
    assert_eq!(text_written(reply(), &events), expected + "data: [DONE]\n\n");
}

#[test]
fn bug_36_usage_chunk_is_last_and_only_on_request() {
    let usage = |input, output| Event::Usage(Usage { input, output, ..Usage::default() });
    let events = [
        START,
        usage(Some(5), Some(0)),
        begin(0, BlockKind::Text),
        text(0, "a"),
        stop(0),
        FINISH,
        usage(None, Some(3)),
        Event::End,
    ];
    let chunks = written(ReplyOptions { usage_wanted: true, ..reply() }, &events);
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], serde_json::json!([]));
    let expected = serde_json::json!({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8});
    assert_eq!(last["usage"], expected);
    assert_eq!(last["id"], rest[0]["id"]);
    assert!(rest.iter().all(|chunk| chunk["usage"].is_null() && chunk["choices"][0].is_object()));
    // Neither requested nor known.
    assert!(written(reply(), &events).iter().all(|chunk| chunk.get("usage").is_none()));
    let unknown = [START, FINISH, Event::End];
    let chunks = written(ReplyOptions { usage_wanted: true, ..reply() }, &unknown);
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null()));
}

#[test]
fn bug_2_blocks_are_not_choices() {
    let events = [
        START,
        begin(0, BlockKind::Text),
        text(0, "a"),
        stop(0),
        begin(1, BlockKind::Text),
        text(1, "b"),
        stop(1),
        FINISH,
        Event::End,
    ];
    let chunks = written(reply(), &events);
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["index"] == 0));
}

#[test]
fn choice_begins_with_its_role_and_ends_with_its_finish_reason() {
    let in_choice = |index, choice| Event::BlockStart { index, choice, kind: BlockKind::Text };
    let finish = |choice| Event::Finish { choice, finish: Finish::Length };
    let events = [
        START,
        in_choice(0, 0),
        in_choice(1, 12),
        text(1, "b"),
        text(0, "a"),
        stop(0),
        stop(1),
        finish(0),
        finish(12),
        finish(3),
        Event::End,
    ];
    let chunks = written(reply(), &events);
    for index in [0, 12, 3] {
        let mine: Vec<_> = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index).collect();
        assert_eq!(mine[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(mine.last().unwrap()["choices"][0]["finish_reason"], "length");
        assert_eq!(mine.last().unwrap()["choices"][0]["delta"], serde_json::json!({}), "delta is present");
    }
}

#[test]
fn reasoning_and_refusal_have_their_own_members() {
    let events = [
        START,
        begin(0, BlockKind::Reasoning),
        text(0, "hm"),
        stop(0),
        begin(1, BlockKind::Refusal),
        text(1, "no"),
        text(1, ""),
        stop(1),
        FINISH,
        Event::End,
    ];
    let chunks = written(reply(), &events);
    assert_eq!(deltas(&chunks)[1..3], [r#"{"reasoning_content":"hm"}"#, r#"{"refusal":"no"}"#]);
    let hidden = written(ReplyOptions { show_thinking: false, ..reply() }, &events);
    assert!(!deltas(&hidden).concat().contains("hm"));
}

#[test]
fn map_7_finish_reason_is_encoded_for_each_kind() {
    let words = [
        (Finish::Stop, "stop"),
        (Finish::StopSequence(None), "stop"),
        (Finish::Length, "length"),
        (Finish::ContextFull, "length"),
        // Without a call.
        (Finish::ToolUse, "stop"),
        (Finish::ContentFilter, "content_filter"),
        (Finish::Pause, "stop"),
        (Finish::Other(js("OTHER")), "stop"),
    ];
    for (finish, word) in words {
        let chunks = written(reply(), &[START, Event::Finish { choice: 0, finish }, Event::End]);
        let last = &chunks.last().unwrap()["choices"][0];
        assert_eq!(last["finish_reason"], word);
        assert_eq!(
            last.get("native_finish_reason").is_some(),
            matches!(finish, Finish::Other(_)),
            "{finish:?}"
        );
    }
}

#[test]
fn bug_69_citations_are_one_chunk_before_the_end() {
    let cite = |url, span| {
        add(0, Delta::Citation(Citation { url: js(url), title: js("T"), span, ..Citation::default() }))
    };
    let events = [
        START,
        begin(0, BlockKind::Text),
        text(0, "ab"),
        cite("https://a", Some((0, 1))),
        text(0, r"\u00e9"),
        cite("https://b", None),
        // One of a document, which has no address.
        cite("", Some((0, 1))),
        stop(0),
        FINISH,
        Event::End,
    ];
    let chunks = written(reply(), &events);
    let with: Vec<_> =
        chunks.iter().filter(|chunk| !chunk["choices"][0]["delta"]["annotations"].is_null()).collect();
    assert_eq!(with.len(), 1);
    assert_eq!(with[0], &chunks[chunks.len() - 2]);
    let annotations = &with[0]["choices"][0]["delta"]["annotations"];
    assert_eq!(annotations.as_array().map(Vec::len), Some(2));
    assert_eq!(annotations[0]["url_citation"]["end_index"], 1);
    assert_eq!(annotations[1]["url_citation"]["end_index"], 3, "the whole text");
}

#[test]
fn image_is_one_chunk() {
    let png = BlockKind::Media { mime: js("image/png") };
    let events = [
        START,
        begin(0, png),
        add(0, Delta::Data(js("QUJ"))),
        add(0, Delta::Data(js("D"))),
        stop(0),
        begin(1, png),
        add(1, Delta::Url(js("https://a"))),
        stop(1),
        begin(2, BlockKind::Media { mime: js("audio/wav") }),
        add(2, Delta::Data(js("UklG"))),
        stop(2),
        FINISH,
        Event::End,
    ];
    let chunks = written(reply(), &events);
    let image = |n: usize| &chunks[n]["choices"][0]["delta"]["images"][0];
    assert_eq!(image(1)["image_url"]["url"], "data:image/png;base64,QUJD");
    assert_eq!(image(2)["image_url"]["url"], "https://a");
    assert_eq!(chunks[3]["choices"][0]["delta"]["audio"]["data"], "UklG");
    assert_eq!(chunks.len(), 5);
}

#[test]
fn logprobs_have_their_own_chunk() {
    let list = RawJson::from_text(r#"[{"token":"a"}]"#);
    let events = [
        START,
        begin(0, BlockKind::Text),
        text(0, "a"),
        add(0, Delta::Logprobs(list)),
        stop(0),
        FINISH,
        Event::End,
    ];
    for usage_wanted in [true, false] {
        let chunks = written(ReplyOptions { usage_wanted, ..reply() }, &events);
        assert_eq!(chunks[2]["choices"][0]["logprobs"]["content"][0]["token"], "a");
        assert_eq!(chunks[2]["choices"][0]["finish_reason"], Value::Null);
    }
}

#[test]
fn opaque_blocks_of_other_formats_are_omitted() {
    let opaque = BlockKind::Opaque { name: js("server_tool_use"), raw: RawJson::from_text("{}") };
    let events = [START, begin(0, opaque), stop(0), Event::Ping, FINISH, Event::End];
    assert_eq!(written(reply(), &events).len(), 2);
}

#[test]
fn bug_49_error_ends_the_stream_in_any_state() {
    let error = ApiError::new(ErrorKind::UpstreamBroken, "The stream broke \"off\".");
    for before in [&[][..], &[START], &[START, begin(0, BlockKind::Text), text(0, "a")]] {
        let mut out = BytesMut::new();
        let mut encoder = stream::Encoder::new(Arc::new(reply()));
        before.iter().for_each(|event| encoder.event(event, &mut out));
        encoder.fail(&error, &mut out);
        // No output follows, whatever events arrive.
        encoder.event(&FINISH, &mut out);
        encoder.event(&Event::End, &mut out);
        encoder.fail(&error, &mut out);
        encoder.keep_alive(&mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(
            !text.contains("[DONE]"),
            "a client that ignores the error would take the response for whole"
        );
        let chunks = chunks_in(&text);
        let last = &chunks.last().unwrap()["error"];
        assert_eq!(last["message"], "The stream broke \"off\".");
        assert!(last["type"].is_string() && last.get("code").is_some());
        assert!(!text.contains("\"finish_reason\":\"stop\""), "no finish is invented");
    }
}

#[test]
fn bug_48_error_of_the_provider_is_forwarded() {
    let error = Event::Error(RawJson::from_text(r#"{"message":"overloaded","type":"overloaded_error"}"#));
    let chunks = written(reply(), &[START, begin(0, BlockKind::Text), text(0, "a"), error]);
    assert_eq!(chunks.last().unwrap()["error"]["message"], "overloaded");
}

#[test]
fn keep_alive_is_a_comment() {
    let mut out = BytesMut::new();
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    encoder.keep_alive(&mut out);
    assert_eq!(&out[..], b": keep-alive\n\n");
}

#[test]
fn stream_encoding_is_deterministic() {
    let start = Event::Start(Start::default());
    let events = [start, begin(0, BlockKind::Text), text(0, "a"), stop(0), FINISH, Event::End];
    let first = text_written(reply(), &events);
    assert_eq!(first, text_written(reply(), &events));
    assert!(first.contains(r#""created":1700000000"#));
}
