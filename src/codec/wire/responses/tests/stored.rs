//! Tests of stored conversations: options of a request, joining and listing.

use bytes::BytesMut;
use serde_json::{Value, json};

use crate::wire::responses::stored::{Conversation, ItemPage, list, parse_storage, removed, with_answer};

#[test]
fn store_options_previous_id_and_store_are_read() {
    let read = |body: &str| {
        let storage = parse_storage(body);
        (storage.previous.map(String::from), storage.store)
    };
    assert_eq!(read(r#"{"input":"a"}"#), (None, true));
    assert_eq!(read(r#"{"store":false,"previous_response_id":"r\u0031"}"#), (Some("r1".to_owned()), false));
    assert_eq!(read(r#"{"store":null,"previous_response_id":null}"#), (None, true));
    assert_eq!(read(r#"{"input":[{"store":false}],"store":true}"#), (None, true));
    assert_eq!(read("["), (None, false));
}

#[test]
fn conversation_input_is_appended_to_earlier_items() {
    let join = |body: &str, before: &str| {
        let joined = Conversation::new(body, before).unwrap();
        let request: Value = serde_json::from_str(&joined.request(body)).unwrap();
        assert_eq!(request["input"].to_string(), format!("[{}]", joined.items));
        (joined.items.clone(), joined.request(body))
    };
    let text = r#"{"type":"message","role":"user","content":"a\n"}"#;
    assert_eq!(
        join(r#"{"x":1,"input":"a\n","y":2}"#, ""),
        (text.to_owned(), format!(r#"{{"x":1,"input":[{text}],"y":2}}"#))
    );
    assert_eq!(join(r#"{"input":[{"b":1}]}"#, r#"{"a":1}"#).0, r#"{"a":1},{"b":1}"#);
    assert_eq!(join(r#"{"input":[ ]}"#, r#"{"a":1}"#).0, r#"{"a":1}"#);
    assert_eq!(join(r#"{"input":null}"#, r#"{"a":1}"#).0, r#"{"a":1}"#);
    assert_eq!(join(r#" {"model":"m"}"#, r#"{"a":1}"#).1, r#"{"input":[{"a":1}],"model":"m"}"#);
    assert_eq!(join("{}", r#"{"a":1}"#).1, r#"{"input":[{"a":1}]}"#);
    assert!(Conversation::new(r#"{"input":1}"#, "").is_err());
}

#[test]
fn conversation_ends_with_the_output_of_the_response() {
    let response = r#"{"id":"r","output":[ {"b":[1]},{"c":2} ],"x":{"output":[3]}}"#;
    assert_eq!(with_answer(r#"{"a":1}"#, response).unwrap(), r#"{"a":1},{"b":[1]},{"c":2}"#);
    assert_eq!(with_answer("", response).unwrap(), r#"{"b":[1]},{"c":2}"#);
    assert_eq!(with_answer(r#"{"a":1}"#, r#"{"output":[]}"#).unwrap(), r#"{"a":1}"#);
}

fn listed(items: &str, page: &ItemPage) -> Option<Value> {
    let mut out = BytesMut::new();
    list(items, "resp_1", page, &mut out).unwrap().then(|| serde_json::from_slice(&out).unwrap())
}

#[test]
fn input_items_in_short_form_are_listed_in_full() {
    let items = r#""a\"b",{"role":"user","content":"c"},{"role":"assistant","content":"d","phase":"commentary"},
        {"type":"input_image","image_url":"u"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
        {"id":"msg_9","type":"message","role":"assistant","status":"incomplete","content":[{"type":"refusal","refusal":"no"}]}"#;
    let list = listed(items, &ItemPage { descending: false, ..ItemPage::default() }).unwrap();
    let mut data = list["data"].as_array().unwrap().clone();
    let mut ids = Vec::new();
    for item in &mut data {
        ids.push(item.as_object_mut().unwrap().remove("id").unwrap().as_str().unwrap().to_owned());
    }
    let message = |role: &str, content: Value| json!({"type": "message", "status": "completed", "role": role, "content": [content]});
    let mut ours = message("assistant", json!({"type": "output_text", "text": "d", "annotations": []}));
    ours["phase"] = "commentary".into();
    assert_eq!(
        data,
        [
            message("user", json!({"type": "input_text", "text": "a\"b"})),
            message("user", json!({"type": "input_text", "text": "c"})),
            ours,
            message("user", json!({"type": "input_image", "image_url": "u"})),
            json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}),
            json!({"type": "message", "role": "assistant", "status": "incomplete",
                   "content": [{"type": "refusal", "refusal": "no"}]}),
        ]
    );
    assert!(ids[..4].iter().all(|id| id.starts_with("msg_")) && ids[4].starts_with("fc_"), "{ids:?}");
    assert_eq!(ids[5], "msg_9");
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 6);
}

#[test]
fn input_items_are_listed_in_pages() {
    let items: Vec<String> =
        (0..5).map(|n| json!({"id": format!("i{n}"), "type": "x"}).to_string()).collect();
    let items = items.join(",");
    for descending in [false, true] {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = listed(&items, &ItemPage { limit: 2, after: after.clone(), descending }).unwrap();
            seen.extend(page["data"].as_array().unwrap().iter().map(|item| item["id"].clone()));
            after = page["last_id"].as_str().map(str::to_owned);
            if page["has_more"] == false {
                break;
            }
        }
        let mut all = vec!["i0", "i1", "i2", "i3", "i4"];
        if descending {
            all.reverse();
        }
        assert_eq!(seen, all);
    }
    assert_eq!(listed(&items, &ItemPage { after: Some("i9".to_owned()), ..ItemPage::default() }), None);
    let none = listed("", &ItemPage::default()).unwrap();
    assert_eq!(none["first_id"], Value::Null);
    let mut out = BytesMut::new();
    removed("resp_\"", &mut out);
    assert_eq!(&out[..], br#"{"id":"resp_\"","object":"response","deleted":true}"#);
}
