use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{sample_events, whole};
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Answer, BlockKind, Citation, Delta, Event, Finish, Grammar, Start, ToolKind, Usage};
use crate::error::{ApiError, ErrorKind};
use crate::wire::codec::ReplyOptions;
use crate::wire::generate::answer;
use crate::wire::generate::stream::Encoder;
use json::{EscapedString, JsonStr, RawJson};

fn reply() -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("the \"model\""),
        seed: "seed".into(),
        show_thinking: true,
        issuer: "anthropic".into(),
        ..ReplyOptions::default()
    }
}

fn s(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

fn write(events: &[Event<'_>], reply: ReplyOptions) -> String {
    let mut grammar = Grammar::default();
    let mut encoder = Encoder::new(Arc::new(reply));
    let mut out = BytesMut::new();
    for event in events {
        grammar.check(event).unwrap();
        encoder.event(event, &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

/// Returns the data of each frame. Fails if the stream has anything else.
fn frames(stream: &str) -> Vec<Value> {
    let mut frames = stream.split("\r\n\r\n").collect::<Vec<_>>();
    assert_eq!(frames.pop(), Some(""), "the last frame is complete");
    frames
        .into_iter()
        .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").expect(frame)).unwrap())
        .collect()
}

/// Returns the blocks with a start and an end around them.
fn around(blocks: &[Event<'static>], finish: Finish<'static>) -> Vec<Event<'static>> {
    let start = Start { id: s("msg_01x"), model: s("claude"), created: None };
    let mut events = vec![Event::Start(start)];
    events.extend(blocks);
    events.extend([Event::Finish { choice: 0, finish }, Event::End]);
    events
}

fn block(index: u32, kind: BlockKind<'static>, deltas: &[Delta<'static>]) -> Vec<Event<'static>> {
    let mut events = vec![Event::BlockStart { index, choice: 0, kind }];
    events.extend(deltas.iter().map(|delta| Event::Delta { index, delta: *delta }));
    events.push(Event::BlockStop { index });
    events
}

fn call(id: &'static str, name: &'static str) -> BlockKind<'static> {
    BlockKind::ToolUse { id: s(id), name: s(name), kind: ToolKind::Function, namespace: s("") }
}

fn parts(frames: &[Value]) -> Vec<Value> {
    frames
        .iter()
        .flat_map(|frame| frame["candidates"][0]["content"]["parts"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn fact_33_stream_has_data_lines_only() {
    let text = block(0, BlockKind::Text, &[Delta::Text(s("a\\n\\\"b\\u00e9")), Delta::Text(s("世"))]);
    let usage =
        Usage { input: Some(11), output: Some(7), cached: Some(0), reasoning: Some(2), ..Usage::default() };
    let mut events = around(&text, Finish::Stop);
    events.insert(1, Event::Ping);
    events.insert(1, Event::Usage(Usage { input: Some(11), output: Some(1), ..Usage::default() }));
    events.insert(events.len() - 1, Event::Usage(usage));
    let stream = write(&events, reply());
    assert!(stream.starts_with(
        r#"data: {"candidates":[{"content":{"parts":[{"text":"a\n\"b\u00e9"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":11,"totalTokenCount":11},"modelVersion":"the \"model\"","responseId":"01x"}"#
    ), "{stream}");
    assert_eq!(stream.matches('\n').count(), stream.matches("\r\n").count());
    let frames = frames(&stream);
    assert_eq!(frames.len(), 3);
    for frame in &frames {
        assert_eq!((&frame["modelVersion"], &frame["responseId"]), (&json!("the \"model\""), &json!("01x")));
        assert_eq!(frame["candidates"][0]["content"]["role"], "model");
    }
    let reasons: Vec<_> =
        frames.iter().map(|frame| frame["candidates"][0].get("finishReason").cloned()).collect();
    assert_eq!(reasons, [None, None, Some(json!("STOP"))]);
    assert_eq!(
        frames[2]["usageMetadata"],
        json!({"promptTokenCount":11,"cachedContentTokenCount":0,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":18})
    );
    assert_eq!(frames[2]["candidates"][0]["content"]["parts"], json!([{"text":""}]));
}

#[test]
fn usage_is_in_each_frame_if_it_is_known_from_the_start_and_else_in_the_last() {
    let text = block(0, BlockKind::Text, &[Delta::Text(s("a")), Delta::Text(s("b")), Delta::Text(s("c"))]);
    let usage = Usage { input: Some(11), output: Some(7), ..Usage::default() };
    for (array, known) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut events = around(&text, Finish::Stop);
        events.insert(events.len() - 1, Event::Usage(usage));
        if known {
            let start = Usage { input: Some(11), output: Some(1), ..Usage::default() };
            events.insert(0, Event::Usage(start));
        }
        let mut encoder = Encoder::new(Arc::new(ReplyOptions { array, ..reply() }));
        let mut out = BytesMut::new();
        events.iter().for_each(|event| encoder.event(event, &mut out));
        let stream = String::from_utf8(out.to_vec()).unwrap();
        let usages: Vec<_> = if array {
            let all: Vec<Value> = serde_json::from_str(&stream).unwrap();
            all.iter().map(|frame| frame.get("usageMetadata").cloned()).collect()
        } else {
            frames(&stream).iter().map(|frame| frame.get("usageMetadata").cloned()).collect()
        };
        let first = known.then(|| json!({"promptTokenCount": 11, "totalTokenCount": 11}));
        let last = json!({"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18});
        assert_eq!(usages, [first.clone(), first.clone(), first, Some(last)], "{stream}");
    }
}

#[test]
fn bug_11_tool_call_arguments_are_unescaped_once_and_whole() {
    let pieces = [Delta::Arguments(s("{\\\"q\\\":\\\"a")), Delta::Arguments(s("\\\\\\\"b\\\\n\\\"}"))];
    let events = around(&block(0, call("call_1", "f"), &pieces), Finish::ToolUse);
    let frames = frames(&write(&events, reply()));
    assert_eq!(parts(&frames)[0], json!({"functionCall":{"id":"call_1","name":"f","args":{"q":"a\"b\n"}}}));
    assert_eq!(frames[1]["candidates"][0]["finishReason"], "STOP");
}

#[test]
fn bug_7_tool_call_arguments_are_always_an_object() {
    for (deltas, args) in [
        (vec![], json!({})),
        (vec![Delta::Arguments(s(""))], json!({})),
        (vec![Delta::Arguments(s(" {} "))], json!({})),
        (vec![Delta::Object(RawJson::from_text("{\"a\":1.50}"))], json!({"a":1.5})),
        // Line breaks between tokens would end the frame's data.
        (vec![Delta::Arguments(s("{\\n  \\\"a\\\": [\\r\\n1]\\n}"))], json!({"a":[1]})),
        (vec![Delta::Object(RawJson::from_text("{\n \"a\": 1\r\n}"))], json!({"a":1})),
        (vec![Delta::Arguments(s("{\\\"a\\\":"))], json!({"_raw":"{\"a\":"})),
        (vec![Delta::Arguments(s("[1,2]"))], json!({"_raw":"[1,2]"})),
        (vec![Delta::Arguments(s("{\\\"a\\\":1,}"))], json!({"_raw":"{\"a\":1,}"})),
        (vec![Delta::Arguments(s("none"))], json!({"_raw":"none"})),
    ] {
        let events = around(&block(0, call("c", "f"), &deltas), Finish::ToolUse);
        let frames = frames(&write(&events, reply()));
        assert_eq!(parts(&frames)[0]["functionCall"]["args"], args, "{deltas:?}");
    }
}

#[test]
fn bug_6_tool_calls_open_at_once_stay_separate() {
    let fragment = |index, text| Event::Delta { index, delta: Delta::Arguments(s(text)) };
    let start = |index, id, name| Event::BlockStart { index, choice: 0, kind: call(id, name) };
    let events = around(
        &[
            start(0, "a", "f"),
            start(1, "b", "g"),
            fragment(0, "{\\\"x\\\":"),
            fragment(1, "{\\\"y\\\":2}"),
            fragment(0, "1}"),
            Event::BlockStop { index: 0 },
            Event::BlockStop { index: 1 },
        ],
        Finish::ToolUse,
    );
    let parts = parts(&frames(&write(&events, reply())));
    assert_eq!(parts[0]["functionCall"], json!({"id":"a","name":"f","args":{"x":1}}));
    assert_eq!(parts[1]["functionCall"], json!({"id":"b","name":"g","args":{"y":2}}));
}

#[test]
fn mapping_4_thoughts_are_shown_on_request_and_signatures_always() {
    let mut blocks = block(0, BlockKind::Reasoning, &[Delta::Text(s("hm")), Delta::Signature(s("EqQB/+=="))]);
    blocks.extend(block(1, BlockKind::HiddenReasoning, &[Delta::Signature(s("redacted"))]));
    blocks.extend(block(2, call("c", "f"), &[Delta::Signature(s("call"))]));
    let events = around(&blocks, Finish::ToolUse);
    let shown = parts(&frames(&write(&events, reply())));
    assert_eq!(shown[0], json!({"text":"hm","thought":true}));
    assert_eq!((&shown[1]["text"], &shown[1]["thought"]), (&json!(""), &json!(true)));
    assert_eq!((&shown[2]["text"], &shown[2]["thought"]), (&json!(""), &json!(true)));
    for (number, seal) in [(1, "EqQB/+=="), (2, "redacted"), (3, "call")] {
        let field = shown[number]["thoughtSignature"].as_str().unwrap();
        let (read, hidden) = crate::wire::generate::signature::read(s(field)).unwrap();
        assert_eq!(read.for_issuer("anthropic").map(JsonStr::escaped), Some(seal));
        assert_eq!(hidden, number == 2, "the envelope tells hidden reasoning from visible");
    }
    let hidden = parts(&frames(&write(&events, ReplyOptions { show_thinking: false, ..reply() })));
    assert_eq!(hidden, shown[1..]);
}

/// Clients fail at a part without data.
#[test]
fn every_part_has_data() {
    let mut blocks = block(0, BlockKind::Reasoning, &[Delta::Text(s("hm")), Delta::Signature(s("a"))]);
    blocks.extend(block(1, BlockKind::HiddenReasoning, &[Delta::Signature(s("b"))]));
    blocks.extend(block(2, BlockKind::Text, &[Delta::Text(s("Hi")), Delta::Signature(s("c"))]));
    blocks.extend(block(3, call("c", "f"), &[Delta::Signature(s("d"))]));
    let events = around(&blocks, Finish::ToolUse);
    for show_thinking in [true, false] {
        let options = ReplyOptions { show_thinking, ..reply() };
        let mut answer = Answer::default();
        events.iter().for_each(|event| answer.take(event));
        let mut document = BytesMut::new();
        answer::encode(&answer, &options, &mut document);
        let document: Value = serde_json::from_slice(&document).unwrap();
        let whole = document["candidates"][0]["content"]["parts"].as_array().unwrap().clone();
        for part in parts(&frames(&write(&events, options))).into_iter().chain(whole) {
            assert!(part.get("text").is_some() || part.get("functionCall").is_some(), "{part}");
        }
    }
}

#[test]
fn choices_are_separate_candidates() {
    let start = |index, choice| Event::BlockStart { index, choice, kind: BlockKind::Text };
    let text = |index, text| Event::Delta { index, delta: Delta::Text(s(text)) };
    let events = [
        Event::Start(Start::default()),
        start(0, 0),
        start(1, 1),
        text(0, "a"),
        text(1, "b"),
        Event::BlockStop { index: 0 },
        Event::BlockStop { index: 1 },
        Event::Finish { choice: 1, finish: Finish::Length },
        Event::Finish { choice: 0, finish: Finish::Stop },
        Event::End,
    ];
    let frames = frames(&write(&events, reply()));
    let indexes: Vec<_> = frames[..2].iter().map(|frame| frame["candidates"][0]["index"].clone()).collect();
    assert_eq!(indexes, [0, 1]);
    let last: Vec<_> = frames[2]["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|candidate| (candidate["index"].clone(), candidate["finishReason"].clone()))
        .collect();
    assert_eq!(last, [(json!(0), json!("STOP")), (json!(1), json!("MAX_TOKENS"))]);
    assert_eq!(frames[0]["responseId"].as_str().unwrap().len(), 24);
}

#[test]
fn fact_33_array_form_is_one_document() {
    let array = || ReplyOptions { array: true, ..reply() };
    let events = around(&block(0, BlockKind::Text, &[Delta::Text(s("a"))]), Finish::Stop);
    let stream = write(&events, array());
    assert!(stream.starts_with("[{") && stream.contains("},\r\n{") && stream.ends_with("}]"));
    assert_eq!(serde_json::from_str::<Value>(&stream).unwrap().as_array().unwrap().len(), 2);

    for begun in [false, true] {
        let mut encoder = Encoder::new(Arc::new(array()));
        let mut out = BytesMut::new();
        encoder.keep_alive(&mut out);
        if begun {
            events[..3].iter().for_each(|event| encoder.event(event, &mut out));
        }
        encoder.keep_alive(&mut out);
        encoder.fail(&ApiError::new(ErrorKind::UpstreamBroken, "cut"), &mut out);
        encoder.keep_alive(&mut out);
        encoder.event(&Event::End, &mut out);
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value.as_array().unwrap().last().unwrap()["error"]["message"], "cut");
    }
}

#[test]
fn bug_49_error_is_the_last_frame() {
    for begun in [0, 1, 3] {
        let events = around(&block(0, BlockKind::Text, &[Delta::Text(s("a"))]), Finish::Stop);
        let mut encoder = Encoder::new(Arc::new(reply()));
        let mut out = BytesMut::new();
        events[..begun].iter().for_each(|event| encoder.event(event, &mut out));
        encoder.fail(&ApiError::new(ErrorKind::UpstreamTimeout, "late"), &mut out);
        encoder.fail(&ApiError::new(ErrorKind::UpstreamTimeout, "again"), &mut out);
        events[begun..].iter().for_each(|event| encoder.event(event, &mut out));
        let frames = frames(std::str::from_utf8(&out).unwrap());
        assert_eq!(
            frames.last().unwrap(),
            &json!({"error":{"code":504,"message":"late","status":"DEADLINE_EXCEEDED"}})
        );
        assert!(frames.iter().all(|frame| frame["candidates"][0].get("finishReason").is_none()));
    }
    let raw = RawJson::from_text(r#"{"type":"overloaded_error","message":"busy"}"#);
    let frames = frames(&write(&[Event::Error(raw)], reply()));
    assert_eq!(frames[0]["error"]["message"], "busy");
}

#[test]
fn mapping_7_bug_16_finish_reason_is_encoded_for_each_kind() {
    for (finish, word) in [
        (Finish::Stop, "STOP"),
        (Finish::StopSequence(Some(s("END"))), "STOP"),
        (Finish::Length, "MAX_TOKENS"),
        (Finish::ContextFull, "MAX_TOKENS"),
        (Finish::ToolUse, "STOP"),
        (Finish::ContentFilter, "SAFETY"),
        (Finish::Pause, "STOP"),
        (Finish::Other(s("NO_IMAGE")), "NO_IMAGE"),
        (Finish::Other(s("eos")), "OTHER"),
    ] {
        let stream = write(&around(&[], finish), reply());
        let last = frames(&stream).pop().unwrap();
        assert_eq!(last["candidates"][0]["finishReason"], word, "{finish:?}");
        assert!(last.get("usageMetadata").is_none(), "nothing is known of usage");
    }
    let refusal = block(0, BlockKind::Refusal, &[Delta::Text(s("no"))]);
    let frames = frames(&write(&around(&refusal, Finish::Stop), reply()));
    assert_eq!(parts(&frames)[0], json!({"text":"no"}));
    assert_eq!(frames[1]["candidates"][0]["finishReason"], "SAFETY");
}

#[test]
fn mapping_9_bug_69_citations_become_grounding_in_bytes() {
    let citation = |url, span| {
        Delta::Citation(Citation { url: s(url), title: s("T"), quote: s("q"), span, ..Citation::default() })
    };
    let mut blocks = block(
        0,
        BlockKind::Text,
        // A citation that precedes its text.
        &[
            citation("https://a", Some((0, 5))),
            Delta::Text(s("Gr\\u00fc\\u00dfe")),
            // One of a document, which has no address.
            citation("", Some((0, 5))),
            citation("https://b", Some((2, 4))),
        ],
    );
    blocks.extend(block(1, BlockKind::Text, &[Delta::Text(s("世 ok")), citation("https://a", None)]));
    let last = frames(&write(&around(&blocks, Finish::Stop), reply())).pop().unwrap();
    assert_eq!(
        last["candidates"][0]["groundingMetadata"],
        json!({
            "groundingChunks":[{"web":{"uri":"https://a","title":"T"}},{"web":{"uri":"https://b","title":"T"}}],
            "groundingSupports":[
                {"segment":{"startIndex":0,"endIndex":7},"groundingChunkIndices":[0]},
                {"segment":{"startIndex":2,"endIndex":6},"groundingChunkIndices":[1]},
                {"segment":{"startIndex":7,"endIndex":13},"groundingChunkIndices":[0]}
            ]
        })
    );
}

#[test]
fn media_and_native_parts_are_encoded_and_foreign_ones_omitted() {
    let image = BlockKind::Media { mime: s("image\\/png") };
    let mut blocks = block(0, image, &[Delta::Data(s("QUJ")), Delta::Data(s("D")), Delta::Signature(s("x"))]);
    blocks.extend(block(1, BlockKind::Media { mime: s("video/mp4") }, &[Delta::Url(s("https://v"))]));
    let own = RawJson::from_text(r#"{"executableCode":{"language":"PYTHON","code":"1"}}"#);
    blocks.extend(block(2, BlockKind::Opaque { name: s("executableCode"), raw: own }, &[]));
    let result = RawJson::from_text(r#"{"function_response":{"name":"f","response":{}}}"#);
    blocks.extend(block(3, BlockKind::Opaque { name: s("function_response"), raw: result }, &[]));
    let foreign = RawJson::from_text(r#"{"type":"server_tool_use"}"#);
    blocks.extend(block(4, BlockKind::Opaque { name: s("server_tool_use"), raw: foreign }, &[]));
    let parts = parts(&frames(&write(&around(&blocks, Finish::Stop), reply())));
    assert_eq!(parts.len(), 5);
    assert_eq!(parts[0]["inlineData"], json!({"mimeType":"image/png","data":"QUJD"}));
    assert!(parts[0]["thoughtSignature"].is_string());
    assert_eq!(parts[1], json!({"fileData":{"mimeType":"video/mp4","fileUri":"https://v"}}));
    assert_eq!(parts[2], json!({"executableCode":{"language":"PYTHON","code":"1"}}));
    assert_eq!(parts[3], json!({"function_response":{"name":"f","response":{}}}));
}

#[test]
fn logprobs_are_encoded_in_two_lists() {
    let list = r#"[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]}]"#;
    let deltas = [
        Delta::Text(s("ab")),
        Delta::Logprobs(RawJson::from_text(list)),
        Delta::Logprobs(RawJson::from_text(list)),
    ];
    let last =
        frames(&write(&around(&block(0, BlockKind::Text, &deltas), Finish::Stop), reply())).pop().unwrap();
    let token = json!({"token":"a","logProbability":-0.5});
    assert_eq!(
        last["candidates"][0]["logprobsResult"],
        json!({"chosenCandidates":[token,token],"topCandidates":[{"candidates":[token]},{"candidates":[token]}]})
    );
}

#[test]
fn mapping_8_usage_counts_audio_and_images_separately() {
    let usage = Usage {
        input: Some(10),
        audio_input: Some(4),
        output: Some(9),
        image_output: Some(9),
        ..Usage::default()
    };
    let mut events = around(&[], Finish::Stop);
    events.insert(1, Event::Usage(usage));
    let usage = frames(&write(&events, reply())).pop().unwrap()["usageMetadata"].clone();
    assert_eq!(
        usage["promptTokensDetails"],
        json!([{"modality":"TEXT","tokenCount":6},{"modality":"AUDIO","tokenCount":4}])
    );
    assert_eq!(usage["candidatesTokensDetails"], json!([{"modality":"IMAGE","tokenCount":9}]));
}

/// A client reads the same response from a stream and from a whole response.
#[test]
fn bug_22_bug_27_stream_and_whole_response_have_the_same_content() {
    let events = sample_events();
    let mut wanted = Answer::default();
    events.iter().for_each(|event| wanted.take(event));
    let stream = write(&events, reply());
    let data: Vec<_> = stream.split("\r\n\r\n").filter_map(|frame| frame.strip_prefix("data: ")).collect();
    let streamed = whole(&data);

    let mut out = BytesMut::new();
    answer::encode(&wanted, &reply(), &mut out);
    let mut grammar = Grammar::default();
    let mut read = Answer::default();
    answer::decode(std::str::from_utf8(&out).unwrap(), "seed", &mut |event| {
        grammar.check(&event).unwrap();
        read.take(&event);
    })
    .unwrap();

    for answer in [&streamed, &read] {
        let texts = |answer: &Answer, kind: &AnswerBlockKind| -> String {
            answer.blocks.iter().filter(|block| block.kind == *kind).map(|block| &*block.text).collect()
        };
        for kind in [AnswerBlockKind::Text, AnswerBlockKind::Reasoning] {
            assert_eq!(texts(answer, &kind), texts(&wanted, &kind));
        }
        let calls = |answer: &Answer| -> Vec<String> {
            let calls =
                answer.blocks.iter().filter(|block| matches!(block.kind, AnswerBlockKind::ToolUse { .. }));
            calls.map(|block| format!("{:?}", block.kind)).collect()
        };
        assert_eq!(calls(answer), calls(&wanted));
        assert_eq!((answer.usage, &answer.finishes), (wanted.usage, &wanted.finishes));
        let seals =
            |answer: &Answer| answer.blocks.iter().filter(|block| !block.signature.is_empty()).count();
        assert_eq!(seals(answer), seals(&wanted));
    }
    assert_eq!(streamed.finishes, [(0, FinishOwned::ToolUse)]);
}
