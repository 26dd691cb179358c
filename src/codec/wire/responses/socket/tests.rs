use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::{ApiError, ErrorKind, RetryAfter};
use json::Rope;

fn rope(text: &str, size: usize) -> Rope {
    let mut rope = Rope::new();
    for piece in text.as_bytes().chunks(size.max(1)) {
        rope.push(Bytes::copy_from_slice(piece));
    }
    rope
}

fn create(text: &str) -> Create {
    match ClientEvent::read(rope(text, text.len())) {
        Ok(ClientEvent::Create(create)) => *create,
        other => panic!("{other:?}"),
    }
}

fn value(body: Vec<Bytes>) -> Value {
    serde_json::from_slice(&body.concat()).unwrap()
}

fn refused(text: &str) -> (ApiError, Option<Box<str>>) {
    ClientEvent::read(rope(text, 7)).err().unwrap()
}

#[test]
fn create_event_becomes_the_body_of_a_request() {
    let text = r#" { "type":"response.create", "model" : "m", "tools":[{"type":"x"}],"generate":true,
        "stream":false , "store":false,"input":"hi","stream_id":"a\"b","metadata":{"type":"t"} } "#;
    let event = create(text);
    assert_eq!((event.lane.as_deref(), event.generate, &*event.model), (Some("a\"b"), true, "m"));
    assert_eq!(
        value(event.into_body(None).unwrap()),
        json!({"stream": true, "model": "m", "tools": [{"type": "x"}], "store": false, "input": "hi",
               "metadata": {"type": "t"}})
    );
}

#[test]
fn create_event_keeps_members_as_they_were_sent() {
    let text = r#"{"model":"m","temperature":1.50,"type":"response.create","top_p":1e0}"#;
    let body = create(text).into_body(None).unwrap().concat();
    assert_eq!(body, br#"{"stream":true,"model":"m","temperature":1.50,"top_p":1e0}"#);
    let body = create(r#"{"type":"response.create"}"#).into_body(None).unwrap().concat();
    assert_eq!(body, br#"{"stream":true}"#);
    let body = create(r#"{"type":"response.create","generate":false}"#).into_body(None).unwrap().concat();
    assert_eq!(body, br#"{"stream":true,"input":"-"}"#);
    let text = r#"{"type":"response.create","previous_response_id":"resp_1","generate":null,"input":null}"#;
    let body = create(text).into_body(None).unwrap().concat();
    assert_eq!(body, br#"{"stream":true,"previous_response_id":"resp_1","input":null}"#);
}

#[test]
fn create_event_is_the_same_at_every_split() {
    let text = r#"{"type":"response.create","model":"mé","input":[{"a":1}],"stream_id":"s","store":true}"#;
    let whole = create(text).into_body(None).unwrap().concat();
    for size in 1..text.len() {
        let Ok(ClientEvent::Create(event)) = ClientEvent::read(rope(text, size)) else { panic!() };
        assert_eq!(event.lane.as_deref(), Some("s"));
        assert_eq!(event.into_body(None).unwrap().concat(), whole, "{size}");
    }
}

#[test]
fn client_event_of_another_type_is_ignored_or_refused() {
    for text in [r#"{"type":"response.processed","response_id":"r"}"#, r#"{"type":"x"}"#] {
        assert!(matches!(ClientEvent::read(rope(text, 9)), Ok(ClientEvent::Other)));
    }
    for (text, kind, param) in [
        ("", ErrorKind::InvalidJson, None),
        ("[]", ErrorKind::InvalidJson, None),
        ("{", ErrorKind::InvalidJson, None),
        (r#"{"type":"a","type":"b"}"#, ErrorKind::InvalidJson, None),
        ("{}", ErrorKind::InvalidField, Some("type")),
        (r#"{"type":1}"#, ErrorKind::InvalidField, Some("type")),
        (r#"{"type":"response.create","stream_id":""}"#, ErrorKind::InvalidField, Some("stream_id")),
        (r#"{"type":"response.create","stream_id":1}"#, ErrorKind::InvalidField, Some("stream_id")),
        (r#"{"type":"response.create","generate":1}"#, ErrorKind::InvalidField, Some("generate")),
        (r#"{"type":"response.create","background":true}"#, ErrorKind::Unsupported, Some("background")),
        (
            r#"{"type":"response.create","previous_response_id":[]}"#,
            ErrorKind::InvalidField,
            Some("previous_response_id"),
        ),
    ] {
        let (error, _) = refused(text);
        assert_eq!((error.kind, error.param.as_deref()), (kind, param), "{text}");
    }
    let (_, lane) = refused(r#"{"stream_id":"s","type":"response.create","generate":1}"#);
    assert_eq!(lane.as_deref(), Some("s"));
}

#[test]
fn steer_is_rejected_with_its_input() {
    let text = r#"{"type":"response.steer","previous_response_id":"resp_1","input":[{"role":"user"}]}"#;
    let Ok(ClientEvent::Steer(steer)) = ClientEvent::read(rope(text, 5)) else { panic!() };
    let event: Value = serde_json::from_slice(&steer_failed(&steer, "steering_not_supported", "no")).unwrap();
    assert_eq!(
        event,
        json!({"type": "response.steer.failed", "sequence_number": 0,
               "steer": {"previous_response_id": "resp_1", "input": [{"role": "user"}]},
               "error": {"type": "invalid_request_error", "code": "steering_not_supported", "message": "no"}})
    );
}

fn items(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn memory_puts_the_conversation_before_the_input() {
    let mut memory = ConversationMemory::new(1 << 20);
    let texts = [items(r#"{"a":1},{"a":2}"#), items(r#"{"b":1}"#)];
    memory.insert(None, "resp_1".into(), Origin::Memory, ContinuedFrom::Nothing, texts);
    let before = ContinuedFrom::ConversationTurn(memory.find("resp_1").unwrap());
    memory.insert(Some("x"), "resp_2".into(), Origin::Memory, before, [items(r#"{"c":1}"#), items("")]);
    let turn = memory.find("resp_2").unwrap();
    let text = r#"{"type":"response.create","previous_response_id":"resp_2","input":"d","model":"m"}"#;
    let user = json!({"type": "message", "role": "user", "content": "d"});
    assert_eq!(
        value(create(text).into_body(Some(&turn)).unwrap()),
        json!({"stream": true, "model": "m", "input": [{"a": 1}, {"a": 2}, {"b": 1}, {"c": 1}, user]})
    );
    for input in ["", r#","input":[]"#, r#","input":[ ]"#, r#","input":null"#] {
        let text = format!(r#"{{"type":"response.create"{input}}}"#);
        let body = value(create(&text).into_body(Some(&turn)).unwrap());
        assert_eq!(body["input"].as_array().unwrap().len(), 4, "{input}");
    }
    let error = create(r#"{"type":"response.create","input":7}"#).into_body(Some(&turn)).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input"));
    assert!(memory.find("resp_3").is_none());
}

#[test]
fn memory_leaves_stored_responses_to_their_store() {
    let mut memory = ConversationMemory::new(1 << 20);
    let before = ContinuedFrom::Stored("resp_0".into());
    memory.insert(None, "resp_1".into(), Origin::Memory, before, [items("1"), items("2")]);
    let turn = memory.find("resp_1").unwrap();
    let text = r#"{"type":"response.create","previous_response_id":"resp_1","input":[3]}"#;
    let body = value(create(text).into_body(Some(&turn)).unwrap());
    assert_eq!(body, json!({"stream": true, "previous_response_id": "resp_0", "input": [1, 2, 3]}));
    memory.insert(None, "resp_2".into(), Origin::Provider, ContinuedFrom::Nothing, [items("1"), items("2")]);
    let turn = memory.find("resp_2").unwrap();
    let body = value(create(text).into_body(Some(&turn)).unwrap());
    assert_eq!(body, json!({"stream": true, "previous_response_id": "resp_2", "input": [3]}));
}

#[test]
fn memory_evicts_the_oldest_and_keeps_the_latest_of_each_lane() {
    let mut memory = ConversationMemory::new(4_000);
    let text = || [Bytes::from(vec![b'1'; 400]), Bytes::from(vec![b'2'; 400])];
    memory.insert(Some("a"), "a1".into(), Origin::Memory, ContinuedFrom::Nothing, text());
    for id in ["b1", "b2", "b3", "b4"] {
        memory.insert(Some("b"), id.into(), Origin::Memory, ContinuedFrom::Nothing, text());
    }
    assert!(memory.held() <= 4_000);
    let known = ["a1", "b1", "b2", "b3", "b4"].map(|id| memory.find(id).is_some());
    assert_eq!(known, [true, false, false, true, true]);
    memory.insert(
        None,
        "big".into(),
        Origin::Memory,
        ContinuedFrom::Nothing,
        [vec![b'1'; 5_000].into(), items("")],
    );
    assert!(memory.find("big").is_none() && memory.held() == 0);
    for number in 0..2_000 {
        memory.insert(
            None,
            number.to_string().into(),
            Origin::Memory,
            ContinuedFrom::Nothing,
            [items(""), items("")],
        );
    }
    assert!(memory.held() <= 4_000 && memory.find("1999").is_some());
}

#[test]
fn memory_of_a_long_chain_is_freed_without_recursion() {
    let mut memory = ConversationMemory::new(1 << 30);
    let mut before = ContinuedFrom::Nothing;
    for number in 0..200_000 {
        let id = number.to_string();
        memory.insert(None, id.as_str().into(), Origin::Memory, before, [items("1"), items("2")]);
        before = ContinuedFrom::ConversationTurn(memory.find(&id).unwrap());
    }
    drop(before);
    let last = memory.find("199999").unwrap();
    assert_eq!(last.items().len(), 400_000);
    drop(last);
    memory.clear();
    assert_eq!(memory.held(), 0);
}

#[test]
fn memory_counts_turns_that_only_a_fork_refers_to() {
    let mut memory = ConversationMemory::new(1 << 20);
    memory.insert(None, "1".into(), Origin::Memory, ContinuedFrom::Nothing, [items("1"), items("2")]);
    let turn = memory.find("1").unwrap();
    memory.clear();
    assert!(memory.held() > 0);
    let fork = Arc::clone(&turn);
    drop(turn);
    assert!(memory.held() > 0);
    drop(fork);
    assert_eq!(memory.held(), 0);
}

#[test]
fn error_event_has_status_error_headers_and_lane() {
    let body = br#"{"error":{"message":"no","type":"rate_limit_exceeded","param":null,"code":"c"}}"#;
    let headers = [("retry-after", "7"), ("x-request-id", "req_\"1")];
    let event = error_event(429, ErrorEvent::Body(body), headers.into_iter(), Some("l\n"));
    assert_eq!(
        serde_json::from_slice::<Value>(&event).unwrap(),
        json!({"type": "error", "status": 429,
               "error": {"message": "no", "type": "rate_limit_exceeded", "param": null, "code": "c"},
               "headers": {"retry-after": "7", "x-request-id": "req_\"1"}, "stream_id": "l\n"})
    );
    for body in [&b"<html>"[..], b"{", b"", b"\xff", br#"{"error":"x"}"#, br#"{"error":{}"#] {
        let event = error_event(502, ErrorEvent::Body(body), std::iter::empty(), None);
        let event: Value = serde_json::from_slice(&event).unwrap();
        assert_eq!((&event["status"], &event["error"]["type"]), (&json!(502), &json!("server_error")));
        assert!(event.get("headers").is_none());
    }
    let error = ApiError::missing("type").retry_after(Some(RetryAfter::Header("1".to_owned())));
    let event = error_event(400, ErrorEvent::Own(&error), std::iter::empty(), None);
    let event: Value = serde_json::from_slice(&event).unwrap();
    assert_eq!(event["error"]["param"], "type");
}

#[test]
fn empty_response_has_both_events_and_no_usage() {
    let [created, completed] = empty_response("resp_\"1", "m", Some("resp_0"), 1_700_000_000);
    let (created, completed): (Value, Value) =
        (serde_json::from_slice(&created).unwrap(), serde_json::from_slice(&completed).unwrap());
    assert_eq!(
        (&created["type"], &completed["type"]),
        (&json!("response.created"), &json!("response.completed"))
    );
    assert_eq!((&created["sequence_number"], &completed["sequence_number"]), (&json!(0), &json!(1)));
    for event in [&created, &completed] {
        assert_eq!(event["response"]["id"], "resp_\"1");
        assert_eq!(event["response"]["output"], json!([]));
        assert_eq!(event["response"]["model"], "m");
        assert_eq!(event["response"]["previous_response_id"], "resp_0");
    }
    assert_eq!(created["response"]["status"], "in_progress");
    assert_eq!(completed["response"]["status"], "completed");
    assert_eq!(completed["response"]["usage"]["total_tokens"], 0);
}

#[test]
fn stream_events_are_watched_with_and_without_names() {
    let item = r#"{"type":"response.output_item.done","item":{"id":"i"},"output_index":0}"#;
    let end = r#"{"type":"response.completed","response":{"output":[ {"id":"i"} ],"id":"resp_1"}}"#;
    for (name, data, expected) in [
        ("response.output_item.done", item, Watched::Item(json::RawJson::from_text(r#"{"id":"i"}"#))),
        (
            "response.completed",
            end,
            Watched::End { id: "resp_1", output: r#"{"id":"i"}"#, is_steered: false },
        ),
        (
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","delta":"x"}"#,
            Watched::Other,
        ),
        ("error", r#"{"type":"error","code":"server_error"}"#, Watched::ErrorWithoutStatus),
        ("error", r#"{"type":"error","status":429,"error":{}}"#, Watched::Failed),
        ("response.failed", r#"{"type":"response.failed","response":{}}"#, Watched::Failed),
    ] {
        assert_eq!(watch(Some(name.as_bytes()), data, true), Ok(expected));
        assert_eq!(watch(None, data, true), Ok(expected));
    }
    let none = r#"{"type":"response.incomplete","response":{"id":"r"}}"#;
    assert_eq!(watch(None, none, true), Ok(Watched::End { id: "r", output: "", is_steered: false }));
    assert_eq!(
        watch(Some(b"response.completed"), end, false),
        Ok(Watched::End { id: "resp_1", output: "", is_steered: false })
    );
    assert!(watch(None, "{", true).is_err());
}

proptest! {
    #[test]
    fn create_event_body_equals_the_event_without_its_own_members(
        order in Just(vec![
            ("type", json!("response.create")),
            ("model", json!("m")),
            ("input", json!([{"role": "user", "content": "é\n"}])),
            ("generate", json!(true)),
            ("stream_id", json!("s")),
            ("stream", json!(true)),
            ("tools", json!([{"type": "function", "name": "f"}])),
            ("store", json!(false)),
        ]).prop_shuffle(),
        count in 0usize..8,
        size in 1usize..50,
        pretty in any::<bool>(),
    ) {
        let mut object: serde_json::Map<String, Value> =
            order.into_iter().take(count).map(|(name, value)| (name.to_owned(), value)).collect();
        object.insert("type".to_owned(), json!("response.create"));
        let whole = Value::Object(object.clone());
        let text = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) };
        let Ok(ClientEvent::Create(event)) = ClientEvent::read(rope(&text.unwrap(), size)) else { panic!() };
        for own in ["type", "generate", "stream_id"] {
            object.remove(own);
        }
        object.insert("stream".to_owned(), json!(true));
        prop_assert_eq!(value(event.into_body(None).unwrap()), Value::Object(object));
    }
}

#[test]
fn provider_request_is_the_body_with_a_type() {
    let body = [items(" "), items(" {"), items(r#""model":"m","input":[1]}"#)];
    let event = provider::create_event(&body).unwrap();
    assert_eq!(&event[..], br#"{"type":"response.create","model":"m","input":[1]}"#);
    assert!(provider::create_event(&[items("[]")]).is_none());
    assert!(provider::create_event(&[]).is_none());
}

#[test]
fn provider_events_are_classified() {
    use provider::ProviderEvent;
    let read = |text| provider::read_event(text).map(|(kind, event)| (kind.to_owned(), event));
    for (text, kind, event) in [
        (r#"{"type":"response.in_progress","response":{}}"#, "response.in_progress", ProviderEvent::Part),
        (
            r#"{"type":"response.created","response":{"id":"r"}}"#,
            "response.created",
            ProviderEvent::Created("r"),
        ),
        (
            r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"steered"},"id":"r"}}"#,
            "response.incomplete",
            ProviderEvent::End { id: "r", is_steered: true },
        ),
        (
            r#"{"type":"response.steer.pending"}"#,
            "response.steer.pending",
            ProviderEvent::Steer(SteerEvent::Pending),
        ),
        (r#"{ "a": 1, "type" : "x" }"#, "x", ProviderEvent::Part),
        (
            r#"{"type":"response.incomplete","response":{"id":"r"}}"#,
            "response.incomplete",
            ProviderEvent::End { id: "r", is_steered: false },
        ),
        (
            r#"{"type":"response.completed"}"#,
            "response.completed",
            ProviderEvent::End { id: "", is_steered: false },
        ),
        (r#"{"type":"response.failed"}"#, "response.failed", ProviderEvent::Failed),
        (r#"{"type":"codex.rate_limits"}"#, "codex.rate_limits", ProviderEvent::Account),
        // An error without a status, or with one that is none, ends the stream.
        (r#"{"type":"error","error":{}}"#, "error", ProviderEvent::Failed),
        (r#"{"type":"error","status":200,"error":{}}"#, "error", ProviderEvent::Failed),
        (r#"{"type":"error","status":429,"error":"x"}"#, "error", ProviderEvent::Failed),
    ] {
        assert_eq!(read(text), Some((kind.to_owned(), event)), "{text}");
    }
    for text in ["", "[]", "{}", r#"{"type":1}"#, "{\"type\":\"error"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn provider_error_becomes_a_response_with_its_headers() {
    let text = r#"{"type":"error","status_code":429,"error":{"code":"c","message":"m"},
        "headers":{"retry-after":"7","x-n":3,"x-o":{},"x-p":"a"}}"#;
    let Some((_, provider::ProviderEvent::Refused(refusal))) = provider::read_event(text) else { panic!() };
    assert_eq!((refusal.status, refusal.code), (429, "c"));
    assert_eq!(&refusal.body()[..], br#"{"error":{"code":"c","message":"m"}}"#);
    let headers: Vec<(String, String)> =
        refusal.headers().into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    let expected = [("retry-after", "7"), ("x-n", "3"), ("x-p", "a")];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn provider_event_becomes_one_server_sent_event() {
    let mut out = bytes::BytesMut::new();
    provider::put_server_sent("x", "{\r\n\"a\":\n\"b\\n\"}", &mut out);
    assert_eq!(&out[..], b"event: x\ndata: {  \"a\": \"b\\n\"}\n\n");
}

#[test]
fn provider_body_is_shortened_by_what_the_socket_holds() {
    let mut memory = ConversationMemory::new(1 << 20);
    let texts = [items(r#"{"a":1}"#), items(r#"{"b":"é"}"#)];
    memory.insert(None, "resp_1".into(), Origin::Memory, ContinuedFrom::Nothing, texts);
    let turn = memory.find("resp_1").unwrap();
    let text = r#"{"type":"response.create","model":"m","previous_response_id":"resp_1","input":[{"c":1}]}"#;
    let mut event = create(text);
    let held = event.held(&turn).unwrap();
    let body = event.into_body(Some(&turn)).unwrap().concat();
    let shortened =
        json!({"previous_response_id": "resp_1", "stream": true, "model": "m", "input": [{"c": 1}]});
    for size in 1..body.len() {
        let pieces: Vec<Bytes> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        assert_eq!(value(held.shorten(&pieces).unwrap()), shortened, "{size}");
    }
    // The model was renamed: the items are the same.
    let renamed = String::from_utf8(body.clone()).unwrap().replace("\"m\"", "\"gpt-4.1\"");
    assert_eq!(value(held.shorten(&[Bytes::from(renamed)]).unwrap())["model"], "gpt-4.1");
    // Items were changed, or something follows them.
    let text = String::from_utf8(body).unwrap();
    for changed in [
        text.replace("\"a\":1", "\"a\":2"),
        text.replace("]}", "],\"store\":true}"),
        text.replace("{\"a\"", "{\"x\":0,\"a\""),
        String::new(),
        "{}".to_owned(),
    ] {
        assert!(held.shorten(&[Bytes::from(changed.clone())]).is_none(), "{changed}");
    }
    // Nothing new, or the conversation begins with a response that is stored elsewhere.
    let mut nothing = create(r#"{"type":"response.create","previous_response_id":"resp_1","input":[]}"#);
    assert!(nothing.held(&turn).is_none());
    let before = ContinuedFrom::Stored("resp_0".into());
    memory.insert(None, "resp_2".into(), Origin::Memory, before, [items("1"), items("2")]);
    assert!(
        create(r#"{"type":"response.create","input":"x"}"#).held(&memory.find("resp_2").unwrap()).is_none()
    );
}
