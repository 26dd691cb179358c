//! Tests of provider signatures: to a client of this format and back to the provider.

use super::*;
use crate::canonical::{Block as Part, BlockKind, Delta, Finish, ProviderSignature, Start};

const SEAL: &str = r"EqQB\/+==";

fn begin(index: u32, kind: BlockKind<'static>) -> Event<'static> {
    Event::BlockStart { index, choice: 0, kind }
}

fn add(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::Delta { index, delta }
}

fn stop(index: u32) -> Event<'static> {
    Event::BlockStop { index }
}

/// Returns a response with every kind of provider signature.
fn sealed_answer() -> Vec<Event<'static>> {
    let call =
        BlockKind::ToolUse { id: js("t1"), name: js("f"), kind: Default::default(), namespace: js("") };
    let seal = |index, text| add(index, Delta::Signature(js(text)));
    vec![
        Event::Start(Start::default()),
        begin(0, BlockKind::Reasoning),
        add(0, Delta::Text(js("first "))),
        add(0, Delta::Text(js(r"\u00e9"))),
        seal(0, SEAL),
        stop(0),
        begin(1, BlockKind::HiddenReasoning),
        seal(1, "hidden"),
        stop(1),
        begin(2, BlockKind::Reasoning),
        add(2, Delta::Text(js("second"))),
        add(2, Delta::Text(js(" one"))),
        seal(2, "two"),
        stop(2),
        begin(3, BlockKind::Text),
        add(3, Delta::Text(js("Hi"))),
        seal(3, "of text"),
        stop(3),
        begin(4, BlockKind::Media { mime: js("image/png") }),
        add(4, Delta::Data(js("QUJD"))),
        seal(4, "of image"),
        stop(4),
        begin(5, call),
        seal(5, "of call"),
        add(5, Delta::Arguments(js("{}"))),
        stop(5),
        Event::Finish { choice: 0, finish: Finish::ToolUse },
        Event::End,
    ]
}

/// Returns the message that a client stores after a whole response.
fn kept_whole() -> Value {
    let mut answer = Answer::default();
    sealed_answer().iter().for_each(|event| answer.take(event));
    whole_written(&answer, &reply())["choices"][0]["message"].take()
}

/// Returns the message that a client assembles from a stream: texts and lists are concatenated, calls joined by number.
fn kept_of_stream(reply: ReplyOptions) -> Value {
    let mut message = serde_json::json!({"role": "assistant"});
    for chunk in written(reply, &sealed_answer()) {
        for (name, value) in chunk["choices"][0]["delta"].as_object().unwrap() {
            match (&mut message[name], value) {
                (Value::String(so_far), Value::String(text)) if name != "role" => *so_far += text,
                (Value::Array(so_far), Value::Array(more)) if name != "tool_calls" => {
                    so_far.extend(more.clone())
                }
                (Value::Array(calls), Value::Array(more)) => {
                    let text = more[0]["function"]["arguments"].as_str().unwrap().to_owned();
                    calls[0]["function"]["arguments"] = Value::from(text);
                }
                (slot @ Value::Null, value) => *slot = value.clone(),
                _ => {}
            }
        }
    }
    message
}

fn check_comes_back(message: &Value) {
    let body = saying(&message.to_string());
    let request = request::decode(&body).unwrap();
    let blocks = &request.turns[0].blocks;
    let text = |text: &[JsonStr<'_>]| text.iter().map(|text| text.decode().into_owned()).collect::<String>();
    let seal = |seal: &Option<ProviderSignature<'_>>| {
        let seal = seal.as_ref().unwrap();
        assert_eq!(seal.for_issuer("another"), None);
        seal.for_issuer("provider").unwrap().escaped().to_owned()
    };
    let mut thoughts = Vec::new();
    for block in blocks {
        match block {
            Part::Reasoning { text: parts, signature: of, hidden } => {
                thoughts.push((text(parts), seal(of), *hidden))
            }
            Part::Text { text, signature: of, .. } => {
                assert_eq!((text.escaped(), seal(of).as_str()), ("Hi", "of text"));
            }
            Part::Image { signature: of, .. } => assert_eq!(seal(of), "of image"),
            Part::ToolUse { id, signature: of, .. } => {
                assert_eq!((id.escaped(), seal(of).as_str()), ("t1", "of call"));
            }
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        ("first é".to_owned(), SEAL.to_owned(), false),
        (String::new(), "hidden".to_owned(), true),
        ("second one".to_owned(), "two".to_owned(), false),
    ];
    assert_eq!(thoughts, expected, "{message}");
    assert_eq!(blocks.len(), 6);
}

#[test]
fn bug_25_and_27_signatures_round_trip_in_stream_and_whole_response() {
    check_comes_back(&kept_whole());
    check_comes_back(&kept_of_stream(reply()));
}

/// OpenAI's SDK joins list elements by their `index`, which it takes for the position in the list.
#[test]
fn reasoning_details_have_the_indexes_by_which_sdks_join_them() {
    let mut joined: Vec<Value> = Vec::new();
    for chunk in written(reply(), &sealed_answer()) {
        for element in chunk["choices"][0]["delta"]["reasoning_details"].as_array().into_iter().flatten() {
            let place = element["index"].as_u64().unwrap() as usize;
            assert!(place <= joined.len(), "{element}");
            if place == joined.len() {
                joined.push(element.clone());
                continue;
            }
            for (name, value) in element.as_object().unwrap() {
                match &mut joined[place][name] {
                    Value::String(so_far) if name != "type" => *so_far += value.as_str().unwrap(),
                    slot => *slot = value.clone(),
                }
            }
        }
    }
    assert_eq!(joined.len(), 5);
    let mut message = kept_of_stream(reply());
    message["reasoning_details"] = Value::from(joined);
    check_comes_back(&message);
}

#[test]
fn reasoning_details_alone_restore_all_but_the_first_stream_text() {
    let mut message = kept_of_stream(reply());
    message.as_object_mut().unwrap().remove("reasoning_content");
    let body = saying(&message.to_string());
    let request = request::decode(&body).unwrap();
    let Part::Reasoning { text, signature: Some(_), .. } = &request.turns[0].blocks[2] else {
        panic!("{request:?}")
    };
    assert_eq!(text.iter().map(|text| text.escaped()).collect::<String>(), "second one");
    // A whole response contains all of them.
    let mut message = kept_whole();
    message.as_object_mut().unwrap().remove("reasoning_content");
    check_comes_back(&message);
}

#[test]
fn reasoning_hidden_shows_no_text_in_its_details() {
    let hidden = ReplyOptions { show_thinking: false, ..reply() };
    let message = kept_of_stream(hidden);
    let kinds: Vec<_> =
        message["reasoning_details"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    assert!(kinds.iter().all(|kind| *kind == "reasoning.encrypted"), "{message}");
    assert!(message.get("reasoning_content").is_none());
}

#[test]
fn bug_30_signature_envelope_that_was_tampered_with_is_ignored() {
    let body = saying(
        r#"{"role":"assistant","content":"a","tool_calls":[{"id":"t__gw1__provider__***","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
    );
    let request = request::decode(&body).unwrap();
    let Part::ToolUse { id, signature: seal, .. } = &request.turns[0].blocks[1] else {
        panic!("{request:?}")
    };
    assert_eq!((id.escaped(), seal), ("t__gw1__provider__***", &None));
}

/// Decodes the `reasoning_details` of a provider of this format and encodes them for the same provider.
fn round_trip(details: &str, plain: &str) -> Value {
    let message = format!(r#"{{"role":"assistant","content":"a",{plain}"reasoning_details":{details}}}"#);
    let answer = read_whole(&completion(&message, "\"stop\""));
    let to_client = whole_written(&answer, &reply())["choices"][0]["message"].take();
    let body = saying(&to_client.to_string());
    let request = request::decode(&body).unwrap();
    sent(&request, &dialect())["messages"][0]["reasoning_details"].take()
}

#[test]
fn bug_26_reasoning_details_of_the_provider_round_trip_unchanged() {
    let signed = r#"[{"type":"reasoning.text","text":"hm","signature":"Eq+/=","format":"anthropic-claude-v1","index":0}]"#;
    let two = r#"[{"type":"reasoning.text","text":"a","signature":"1","index":0},{"type":"reasoning.text","text":"b","signature":"2","index":1}]"#;
    let encrypted = r#"[{"type":"reasoning.encrypted","data":"gAAA","id":"rs_1","format":"openai-responses-v1","index":0}]"#;
    let summary = r#"[{"type":"reasoning.summary","summary":"**S**","id":"rs_1","format":"openai-responses-v1","index":0},{"type":"reasoning.encrypted","data":"gAAA","id":"rs_1","format":"openai-responses-v1","index":0}]"#;
    for (details, plain) in [
        (signed, ""),
        (signed, r#""reasoning":"hm","#),
        (two, r#""reasoning_content":"ab","#),
        (encrypted, ""),
        (summary, r#""reasoning":"**S**","#),
    ] {
        let expected: Value = serde_json::from_str(details).unwrap();
        assert_eq!(round_trip(details, plain), expected, "{details}");
    }
}

#[test]
fn signature_after_the_text_belongs_to_the_reasoning_before_it() {
    let detail = |members: &str| {
        delta(&format!(
            r#""content":"","reasoning_details":[{{"type":"reasoning.text",{members},"index":0}}]"#
        ))
    };
    let frames = [
        detail(r#""text":"h","signature":"""#),
        detail(r#""text":"m","signature":null"#),
        detail(r#""signature":"Eq""#),
        delta(r#""content":"Hi""#),
        end("stop"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    assert_eq!((answer.blocks.len(), answer.blocks[0].text.as_str()), (2, "hm"));
    assert!(answer.blocks[0].signature.contains(r#"\"signature\":\"Eq\""#), "{answer:?}");
    // Encrypted reasoning is a block of its own, unless a summary precedes it.
    let encrypted = r#""reasoning_details":[{"type":"reasoning.encrypted","data":"g"}]"#;
    let answer = read(&[&detail(r#""text":"h""#), &delta(encrypted), &end("stop"), DONE]);
    assert_eq!(answer.blocks[1].kind, AnswerBlockKind::Reasoning);
    let summary = delta(r#""reasoning_details":[{"type":"reasoning.summary","summary":"s"}]"#);
    let answer = read(&[&summary, &delta(encrypted), &end("stop"), DONE]);
    assert_eq!((answer.blocks.len(), answer.blocks[0].signature.is_empty()), (1, false));
}

#[test]
fn fact_17_thought_signature_of_a_tool_call_round_trips() {
    let call = r#"{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}"#;
    let signed = r#""extra_content":{"google":{"thought":true,"thought_signature":"AVS"}}"#;
    let on_message = format!(r#"{{"role":"assistant",{signed},"tool_calls":[{call},{call}]}}"#);
    let on_call = format!(
        r#"{{"role":"assistant","tool_calls":[{},{call}]}}"#,
        call.replace("\"type\"", &format!("{signed},\"type\""))
    );
    for message in [on_message, on_call] {
        let answer = read_whole(&completion(&message, "\"tool_calls\""));
        // Only the first call has a signature.
        assert_eq!(
            (&*answer.blocks[0].signature, &*answer.blocks[1].signature),
            ("AVS", ""),
            "only the first call is signed"
        );
        let to_client = whole_written(&answer, &reply())["choices"][0]["message"].take();
        let body = saying(&to_client.to_string());
        let back = sent(&request::decode(&body).unwrap(), &dialect());
        let calls = &back["messages"][0]["tool_calls"];
        assert_eq!(calls[0]["extra_content"]["google"]["thought_signature"], "AVS");
        assert!(calls[1].get("extra_content").is_none());
    }
}

#[test]
fn thinking_blocks_of_another_gateway_are_decoded() {
    let body = saying(
        r#"{"role":"assistant","content":"a","reasoning_content":"hm","thinking_blocks":[{"type":"thinking","thinking":"hm","signature":"Eq"},{"type":"redacted_thinking","data":"R"}]}"#,
    );
    let request = request::decode(&body).unwrap();
    let seal = |text: &str| Some(ProviderSignature { issuer: None, text: text.to_owned().into() });
    let expected = [
        Part::Reasoning { text: vec![js("hm")], signature: seal("Eq"), hidden: false },
        Part::Reasoning { text: Vec::new(), signature: seal("R"), hidden: true },
        Part::text(js("a")),
    ];
    assert_eq!(request.turns[0].blocks, expected);
}
