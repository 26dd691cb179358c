use serde_json::json;

use super::*;
use crate::canonical::{BlockKind, Citation, Delta, Finish, Start, ToolKind, Usage};
use crate::error::{ApiError, ErrorKind};
use json::{JsonStr, RawJson};

fn text(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

fn call(index: u32, id: &'static str) -> Event<'static> {
    let kind = BlockKind::ToolUse {
        id: text(id),
        name: text("f"),
        kind: ToolKind::Function,
        namespace: JsonStr::default(),
    };
    Event::BlockStart { index, choice: 0, kind }
}

fn begin(index: u32, kind: BlockKind<'_>) -> Event<'_> {
    Event::BlockStart { index, choice: 0, kind }
}

fn put(index: u32, delta: Delta<'_>) -> Event<'_> {
    Event::Delta { index, delta }
}

const START: Event<'static> =
    Event::Start(Start { id: JsonStr::from_escaped(""), model: JsonStr::from_escaped(""), created: None });

fn finish(finish: Finish<'_>) -> [Event<'_>; 2] {
    [Event::Finish { choice: 0, finish }, Event::End]
}

/// Name of each event with its payload, as one line.
fn lines(events: &[(String, Value)]) -> Vec<String> {
    events.iter().map(|(name, payload)| format!("{name} {payload}")).collect()
}

#[test]
fn stream_has_bedrocks_events_in_their_order() {
    let mut events = vec![
        START,
        begin(0, BlockKind::Reasoning),
        put(0, Delta::Text(text("hm"))),
        put(0, Delta::Signature(text("sig"))),
        Event::BlockStop { index: 0 },
        begin(1, BlockKind::Text),
        put(1, Delta::Text(text("a\\\"b"))),
        Event::BlockStop { index: 1 },
        call(2, "t1"),
        put(2, Delta::Arguments(text("{\\\"x\\\":"))),
        put(2, Delta::Arguments(text("1}"))),
        Event::BlockStop { index: 2 },
        Event::Usage(Usage {
            input: Some(20),
            output: Some(5),
            cached: Some(6),
            cache_write_1h: Some(4),
            ..Usage::default()
        }),
    ];
    events.extend(finish(Finish::ToolUse));
    let written = write(&events);
    let signature = written[2].1["delta"]["reasoningContent"]["signature"].as_str().unwrap().to_owned();
    assert!(signature.starts_with("gw1.provider."), "{signature}");
    assert_eq!(
        lines(&written),
        [
            r#"messageStart {"role":"assistant"}"#.to_owned(),
            r#"contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"hm"}}}"#.to_owned(),
            format!(r#"contentBlockDelta {{"contentBlockIndex":0,"delta":{{"reasoningContent":{{"signature":"{signature}"}}}}}}"#),
            r#"contentBlockStop {"contentBlockIndex":0}"#.to_owned(),
            r#"contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"a\"b"}}"#.to_owned(),
            r#"contentBlockStop {"contentBlockIndex":1}"#.to_owned(),
            r#"contentBlockStart {"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"f"}}}"#.to_owned(),
            r#"contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"x\":"}}}"#.to_owned(),
            r#"contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"1}"}}}"#.to_owned(),
            r#"contentBlockStop {"contentBlockIndex":2}"#.to_owned(),
            r#"messageStop {"stopReason":"tool_use"}"#.to_owned(),
            r#"metadata {"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":25,"cacheReadInputTokens":6,"cacheWriteInputTokens":4,"cacheDetails":[{"ttl":"1h","inputTokens":4}]}}"#.to_owned(),
        ]
    );
}

#[test]
fn overlapping_blocks_are_written_one_after_another() {
    let mut events = vec![
        START,
        begin(0, BlockKind::Text),
        put(0, Delta::Text(text("one"))),
        call(1, "t1"),
        call(2, "t2"),
        put(2, Delta::Arguments(text("{}"))),
        put(0, Delta::Text(text(" two"))),
        put(1, Delta::Arguments(text("{\\\"a\\\":1}"))),
        Event::BlockStop { index: 2 },
        Event::BlockStop { index: 1 },
        Event::BlockStop { index: 0 },
    ];
    events.extend(finish(Finish::Stop));
    let written = write(&events);
    let (mut open, mut next, mut texts, mut inputs) = (None, 0, String::new(), Vec::new());
    for (name, payload) in &written {
        let index = payload["contentBlockIndex"].as_u64();
        match name.as_str() {
            "contentBlockStart" | "contentBlockDelta" => {
                if open != index {
                    assert_eq!((open, index), (None, Some(next)), "{payload}");
                    (open, next) = (index, next + 1);
                }
                texts += payload["delta"]["text"].as_str().unwrap_or_default();
                inputs.extend(payload["delta"]["toolUse"]["input"].as_str());
            }
            "contentBlockStop" => assert_eq!(open.take(), index),
            _ => assert_eq!(open, None),
        }
    }
    assert_eq!((&*texts, inputs), ("one two", vec!["{\"a\":1}", "{}"]));
    assert_eq!(written[written.len() - 2].1["stopReason"], "tool_use");
}

#[test]
fn call_without_input_and_response_without_blocks_have_one() {
    let mut events = vec![START, call(0, "t1"), Event::BlockStop { index: 0 }];
    events.extend(finish(Finish::ToolUse));
    assert_eq!(write(&events)[2].1["delta"]["toolUse"]["input"], "{}");
    let mut empty = vec![START];
    empty.extend(finish(Finish::Length));
    let written = write(&empty);
    assert_eq!(written[1].1, json!({"contentBlockIndex": 0, "delta": {"text": ""}}));
    assert_eq!(written[3].1["stopReason"], "max_tokens");
}

#[test]
fn hidden_reasoning_is_a_blob_that_a_request_returns() {
    let mut events = vec![
        START,
        begin(0, BlockKind::HiddenReasoning),
        put(0, Delta::Signature(text("RXRr+/=="))),
        Event::BlockStop { index: 0 },
    ];
    events.extend(finish(Finish::Stop));
    let written = write(&events);
    let blob = written[1].1["delta"]["reasoningContent"]["redactedContent"].as_str().unwrap();
    let body = json!({"messages": [{"role": "assistant", "content": [{"reasoningContent": {"redactedContent": blob}}]}]});
    let body = body.to_string();
    let request = crate::wire::converse::request::decode(&body).unwrap();
    let crate::canonical::Block::Reasoning { signature: Some(seal), hidden: true, .. } =
        &request.turns[0].blocks[0]
    else {
        panic!("{request:?}")
    };
    assert_eq!(seal.for_issuer("provider").map(JsonStr::escaped), Some("RXRr+/=="));
}

#[test]
fn media_citations_and_blocks_of_tools_of_the_provider_are_written() {
    let web = Citation { url: text("https://a.example"), title: text("T"), ..Citation::default() };
    let raw = r#"{"toolUse":{"toolUseId":"s1","name":"nova_grounding","type":"server_tool_use","input":{"q":"x"}}}"#;
    let mut events = vec![
        START,
        begin(0, BlockKind::Text),
        put(0, Delta::Text(text("a"))),
        put(0, Delta::Citation(web)),
        Event::BlockStop { index: 0 },
        begin(1, BlockKind::Media { mime: text("image/jpeg") }),
        put(1, Delta::Data(text("AA"))),
        put(1, Delta::Data(text("AA"))),
        Event::BlockStop { index: 1 },
        begin(2, BlockKind::Opaque { name: text("toolUse"), raw: RawJson::from_text(raw) }),
        Event::BlockStop { index: 2 },
        begin(3, BlockKind::Opaque { name: text("server_tool_use"), raw: RawJson::NULL }),
        Event::BlockStop { index: 3 },
    ];
    events.extend(finish(Finish::Stop));
    let written = write(&events);
    let found: Vec<&Value> = written.iter().map(|(_, payload)| payload).collect();
    assert_eq!(
        found[2]["delta"]["citation"],
        json!({"title": "T", "location": {"web": {"url": "https://a.example"}}})
    );
    assert_eq!(found[4]["start"], json!({"image": {"format": "jpeg"}}));
    assert_eq!(found[5]["delta"], json!({"image": {"source": {"bytes": "AAAA"}}}));
    assert_eq!(
        found[7]["start"],
        json!({"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"}})
    );
    assert_eq!(found[8]["delta"], json!({"toolUse": {"input": "{\"q\":\"x\"}"}}));
    assert_eq!(written[10].0, "messageStop");
}

#[test]
fn failure_is_an_exception_of_the_service_model() {
    let cases = [
        (ApiError::new(ErrorKind::UpstreamRateLimit, "slow"), "throttlingException"),
        (ApiError::new(ErrorKind::UpstreamBroken, "cut"), "modelStreamErrorException"),
        (ApiError::new(ErrorKind::InvalidField, "bad"), "validationException"),
        (ApiError::new(ErrorKind::UpstreamFailed, "down").status(503), "serviceUnavailableException"),
    ];
    for (error, name) in cases {
        let mut encoder = Encoder::new(Arc::new(reply()));
        let mut out = BytesMut::new();
        encoder.event(&START, &mut out);
        encoder.fail(&error, &mut out);
        // Nothing follows an exception.
        encoder.event(&Event::End, &mut out);
        let written = messages(&out);
        assert_eq!(written.len(), 2);
        assert_eq!((&*written[1].0, &written[1].1["message"]), (name, &json!(*error.message)));
    }
    // A response without a stop reason may be cut.
    let mut encoder = Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    encoder.event(&START, &mut out);
    encoder.event(&Event::End, &mut out);
    assert_eq!(messages(&out)[1].0, "modelStreamErrorException");
}
