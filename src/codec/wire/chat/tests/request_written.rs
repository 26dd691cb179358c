//! Tests of requests of other formats, encoded for a provider of this format.

use super::*;
use crate::canonical::{
    Block as Part, CacheBreakpoint, Input, MediaSource, ProviderSignature, ResultObject, Role, Turn,
};
use json::{Cursor, RawJson};

fn text(text: &str) -> Part<'_> {
    Part::text(js(text))
}

fn call<'a>(id: &'a str, arguments: &'a str) -> Part<'a> {
    Part::ToolUse {
        id: js(id),
        name: js("f"),
        input: Input::Object(RawJson::from_text(arguments)),
        kind: Default::default(),
        namespace: js(""),
        signature: None,
        cache: None,
    }
}

fn result<'a>(id: &'a str, content: Vec<Part<'a>>) -> Part<'a> {
    Part::ToolResult {
        id: js(id),
        name: js("f"),
        content,
        object: None,
        error: false,
        kind: Default::default(),
        cache: None,
    }
}

fn image(data: &str) -> Part<'_> {
    let source = MediaSource::Base64 { mime: js("image/png"), data: js(data) };
    Part::Image { source, detail: js(""), cache: None, signature: None }
}

fn conversation(turns: Vec<(Role, Vec<Part<'_>>)>) -> Request<'_> {
    let turns = turns.into_iter().map(|(role, blocks)| Turn::new(role, blocks)).collect();
    Request { turns, ..Request::default() }
}

/// Returns the messages for these turns.
fn messages(turns: Vec<(Role, Vec<Part<'_>>)>) -> Value {
    sent(&conversation(turns), &dialect())["messages"].take()
}

use Role::{Assistant, Developer, System, User};

#[test]
fn map_1_content_of_one_text_is_a_string_and_of_parts_a_list() {
    let found = messages(vec![
        (System, vec![text("One."), text("Two.")]),
        (User, vec![text("Hi")]),
        (Assistant, vec![text("a")]),
        (User, vec![text("b"), image("QQ=="), text("c")]),
    ]);
    let expected = serde_json::json!([
        {"role": "system", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": [
            {"type": "text", "text": "b"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
            {"type": "text", "text": "c"}]},
    ]);
    assert_eq!(found, expected);
}

#[test]
fn map_1_instructions_have_the_role_and_place_of_the_provider() {
    let request = conversation(vec![
        (System, vec![text("a")]),
        (User, vec![text("b")]),
        (Developer, vec![text("c")]),
        (User, vec![text("d")]),
    ]);
    let roles = |dialect: &Dialect<'_>| {
        let messages = sent(&request, dialect)["messages"].take();
        let role = |message: &Value| format!("{}:{}", message["role"], message["content"]).replace('"', "");
        messages.as_array().unwrap().iter().map(role).collect::<Vec<_>>()
    };
    assert_eq!(roles(&dialect()), ["system:a", "user:b", "system:c", "user:d"]);
    let newer = Dialect { developer_role: true, ..dialect() };
    assert_eq!(roles(&newer), ["developer:a", "user:b", "developer:c", "user:d"]);
    let first = Dialect { system_in_middle: false, ..dialect() };
    assert_eq!(roles(&first), ["system:a", "system:c", "user:b", "user:d"]);
}

#[test]
fn bug_56_and_client_5_tool_calls_are_one_message_with_results_after_it() {
    let found = messages(vec![
        (User, vec![text("go")]),
        (Assistant, vec![Part::Reasoning { text: vec![js("hm")], signature: None, hidden: false }]),
        (Assistant, vec![text("Let me see.")]),
        (Assistant, vec![call("c1", r#"{"z": 1, "a": 2}"#)]),
        (Assistant, vec![call("c2", "{}")]),
        (User, vec![result("c1", vec![text("5")])]),
        (User, vec![result("c2", vec![text("20")]), text("Which?")]),
    ]);
    let function = |arguments: &str| serde_json::json!({"name": "f", "arguments": arguments});
    let expected = serde_json::json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [
            {"id": "c1", "type": "function", "function": function("{\"z\": 1, \"a\": 2}")},
            {"id": "c2", "type": "function", "function": function("{}")}]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
        {"role": "tool", "tool_call_id": "c2", "content": "20"},
        {"role": "user", "content": "Which?"},
    ]);
    assert_eq!(found, expected);
}

#[test]
fn bug_60_tool_result_images_follow_in_a_user_message() {
    let turns = vec![
        (Assistant, vec![call("c1", "{}"), call("c2", "{}"), call("c3", "{}")]),
        (User, vec![result("c1", vec![text("done"), image("QQ==")])]),
        (User, vec![result("c2", vec![image("Qg==")]), result("c3", vec![]), text("And?")]),
        (Assistant, vec![text("x")]),
    ];
    let found = messages(turns.clone());
    let role = |message: &Value| message["role"].as_str().unwrap().to_owned();
    let roles: Vec<_> = found.as_array().unwrap().iter().map(role).collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "tool", "user", "assistant"]);
    assert_eq!((&found[1]["content"], &found[3]["content"]), (&"done".into(), &"".into()));
    assert!(found[2]["content"].as_str().is_some_and(|text| !text.is_empty()));
    let parts = found[4]["content"].as_array().unwrap();
    let kinds: Vec<_> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["image_url", "image_url", "text"]);
    assert_eq!(parts[1]["image_url"]["url"], "data:image/png;base64,Qg==");
    // Without a later user turn, media gets a message of its own.
    let found = messages(turns[..2].to_vec());
    assert_eq!((found.as_array().unwrap().len(), &found[2]["role"]), (3, &"user".into()));
}

#[test]
fn map_3_tool_results_are_text() {
    let object = |object: &'static str| {
        let mut block = result("c", vec![]);
        if let Part::ToolResult { object: slot, .. } = &mut block {
            *slot = Some(ResultObject::read(&mut Cursor::new(object)).unwrap());
        }
        messages(vec![(User, vec![block])])[0]["content"].take()
    };
    assert_eq!(object(r#"{"result":"5 degrees"}"#), "5 degrees");
    assert_eq!(object(r#"{"output":"a\nb"}"#), "a\nb");
    assert_eq!(object(r#"{"error":"timeout"}"#), "timeout");
    assert_eq!(object(r#"{"result":5}"#), r#"{"result":5}"#);
    assert_eq!(object(r#"{"b": "x", "a": 1.0}"#), r#"{"b": "x", "a": 1.0}"#);
    let several = messages(vec![(User, vec![result("c", vec![text("a"), text("b")])])]);
    assert_eq!(several[0]["content"][1]["text"], "b");
    let failed = Part::ToolResult {
        id: js("c"),
        name: js("f"),
        content: vec![text("timeout")],
        object: None,
        error: true,
        kind: Default::default(),
        cache: None,
    };
    assert_eq!(messages(vec![(User, vec![failed])])[0]["content"], "timeout");
}

#[test]
fn map_1_empty_turns_are_omitted_except_in_the_same_format() {
    let found = messages(vec![
        (User, vec![text("a")]),
        (Assistant, vec![]),
        (Assistant, vec![text("")]),
        (User, vec![]),
        (User, vec![text("b")]),
    ]);
    assert_eq!(found.as_array().unwrap().len(), 2);
    // Requests of clients of this format are not changed.
    let body = saying(
        r#"{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"}"#,
    );
    assert_eq!(through(&body, &dialect()).0["messages"][1]["content"], "");
}

#[test]
fn content_is_null_only_with_tool_calls() {
    let thought = || Part::Reasoning { text: vec![js("hm")], signature: None, hidden: false };
    let found = messages(vec![
        (Assistant, vec![thought(), call("c", "{}")]),
        (User, vec![result("c", vec![])]),
        (Assistant, vec![thought()]),
    ]);
    assert_eq!((&found[0]["content"], &found[2]["content"]), (&Value::Null, &"".into()));
}

#[test]
fn map_4_reasoning_is_replayed_only_if_the_provider_wants_it() {
    let request = conversation(vec![(
        Assistant,
        vec![Part::Reasoning { text: vec![js("a"), js("b")], signature: None, hidden: false }, text("x")],
    )]);
    let (value, losses, refusal) = sent_from(Format::Messages, &request, &dialect());
    assert!(value["messages"][0].get("reasoning_content").is_none());
    assert_eq!((losses, refusal), (vec!["thinking_block".to_owned()], None));
    let wants = Dialect { reasoning_replay: true, ..dialect() };
    let (value, losses, _) = sent_from(Format::Messages, &request, &wants);
    assert_eq!(value["messages"][0]["reasoning_content"], "ab");
    assert!(losses.is_empty());
    // The provider gets its own signature back.
    let signature = Some(ProviderSignature { issuer: Some("provider".into()), text: "Eq".into() });
    let request = conversation(vec![(
        Assistant,
        vec![Part::Reasoning { text: vec![js("a")], signature, hidden: false }, text("x")],
    )]);
    let value = sent(&request, &dialect());
    let expected = serde_json::json!([{"type": "reasoning.text", "signature": "Eq", "text": "a"}]);
    assert_eq!(value["messages"][0]["reasoning_details"], expected);
}

#[test]
fn bug_52_and_59_cache_marks_are_sent_only_if_supported() {
    let marked = Part::Text { text: js("Hi"), cache: Some(CacheBreakpoint::Short), signature: None };
    let request = conversation(vec![(User, vec![marked])]);
    let (value, losses, refusal) = sent_from(Format::Messages, &request, &dialect());
    assert_eq!(value["messages"][0]["content"], "Hi");
    assert_eq!((losses, refusal), (vec!["cache_control".to_owned()], None));
    let knows = Dialect { extensions: &["cache_control"], ..dialect() };
    let part = serde_json::json!({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}});
    assert_eq!(sent(&request, &knows)["messages"][0]["content"][0], part);
    let openai = Dialect { extensions: &["prompt_cache_breakpoint"], ..dialect() };
    let part = &sent(&request, &openai)["messages"][0]["content"][0];
    assert_eq!(part["prompt_cache_breakpoint"]["mode"], "explicit");
    // A provider that accepts all extensions still gets plain strings, unless the client wrote the mark for it.
    let all = Dialect { extensions: &["*"], ..dialect() };
    assert_eq!(sent(&request, &all)["messages"][0]["content"], "Hi");
}

#[test]
fn map_1_prefill_is_marked_if_required() {
    let request = conversation(vec![(User, vec![text("a")]), (Assistant, vec![text("b")])]);
    assert!(sent(&request, &dialect())["messages"][1].get("prefix").is_none());
    let prefix = Dialect { prefill: true, extensions: &["prefix"], ..dialect() };
    assert_eq!(sent(&request, &prefix)["messages"][1]["prefix"], true);
    let partial = Dialect { prefill: true, extensions: &["partial"], ..dialect() };
    assert_eq!(sent(&request, &partial)["messages"][1]["partial"], true);
}

#[test]
fn map_6_limits_and_sampling_depend_on_the_model() {
    let body = asking(
        r#","max_tokens":77,"temperature":0.5,"top_p":0.9,"seed":7,"presence_penalty":0.5,"frequency_penalty":0.25,"logprobs":true,"top_logprobs":2"#,
    );
    let (sent, losses) = through(&body, &dialect());
    for (name, value) in
        [("max_tokens", "77"), ("temperature", "0.5"), ("top_p", "0.9"), ("seed", "7"), ("top_logprobs", "2")]
    {
        assert_eq!(sent[name].to_string(), value);
    }
    assert!(losses.is_empty());
    let reasoning = Dialect { max_completion_tokens: true, sampling: SamplingSupport::None, ..dialect() };
    let (sent, losses) = through(&body, &reasoning);
    assert_eq!((&sent["max_completion_tokens"], sent.get("max_tokens")), (&77.into(), None));
    assert!(sent.get("temperature").is_none() && sent["seed"] == 7);
    assert_eq!(losses, ["temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs"]);
    let one = Dialect { sampling: SamplingSupport::One, ..dialect() };
    assert_eq!(through(&body, &one).1, ["top_p"]);
    // Dropping a default value is not a loss.
    assert!(through(&asking(r#","temperature":1,"top_p":1.0"#), &reasoning).1.is_empty());
    // No limit is added.
    assert!(through(&asking(""), &dialect()).0.get("max_tokens").is_none());
}

#[test]
fn map_6_stop_sequences_above_four_are_refused() {
    let stops = |n: usize| Request { stop: vec![js("x"); n], ..Request::default() };
    assert_eq!(sent(&stops(4), &dialect())["stop"].as_array().unwrap().len(), 4);
    let (_, losses, refusal) = sent_from(Format::Messages, &stops(5), &dialect());
    assert!(losses == ["stop"] && refusal.is_some());
}

#[test]
fn stream_usage_is_requested_for_streams_only() {
    let request = Request { stream: true, usage_wanted: true, ..Request::default() };
    let value = sent(&request, &dialect());
    assert_eq!((&value["stream"], &value["stream_options"]["include_usage"]), (&true.into(), &true.into()));
    let value = sent(&Request { usage_wanted: true, ..Request::default() }, &dialect());
    assert!(value.get("stream").is_none() && value.get("stream_options").is_none());
}

#[test]
fn map_6_user_cache_and_tier_options_are_encoded() {
    let request = Request {
        user: Some(js("u-42")),
        metadata: Some(RawJson::from_text(r#"{"k":"v"}"#)),
        store: Some(false),
        service_tier: Some(js("standard_only")),
        cache_key: Some(js("k")),
        verbosity: Some(js("low")),
        modalities: vec![js("TEXT")],
        choices: Some(2),
        ..Request::default()
    };
    let (value, losses, refusal) = sent_from(Format::Generate, &request, &dialect());
    assert_eq!((&value["user"], &value["service_tier"]), (&"u-42".into(), &"default".into()));
    assert_eq!(
        (&value["prompt_cache_key"], &value["verbosity"], &value["n"]),
        (&"k".into(), &"low".into(), &2.into())
    );
    for name in ["metadata", "store", "modalities"] {
        assert!(value.get(name).is_none(), "{name}");
    }
    assert_eq!((losses, refusal), (vec!["metadata".to_owned(), "store".to_owned()], None));
    let pictures = Request { modalities: vec![js("TEXT"), js("IMAGE")], ..Request::default() };
    let (_, losses, refusal) = sent_from(Format::Generate, &pictures, &dialect());
    assert!(losses == ["modalities"] && refusal.is_some());
    let continued = Request { previous: Some(js("resp_1")), ..Request::default() };
    assert!(sent_from(Format::Responses, &continued, &dialect()).2.is_some());
}

#[test]
fn model_images_stay_in_the_conversation() {
    let request = conversation(vec![
        (User, vec![text("a cat")]),
        (Assistant, vec![text("Here"), image("QQ==")]),
        (User, vec![text("and a hat")]),
    ]);
    let found = sent(&request, &dialect())["messages"].take();
    assert_eq!(found[1]["content"], "Here");
    assert_eq!(
        (&found[2]["content"][0]["type"], &found[2]["content"][1]["text"]),
        (&"image_url".into(), &"and a hat".into())
    );
    let knows = Dialect { extensions: &["images"], ..dialect() };
    let found = sent(&request, &knows)["messages"].take();
    assert_eq!(found[1]["images"][0]["image_url"]["url"], "data:image/png;base64,QQ==");
    assert_eq!(found[2]["content"], "and a hat");
}

/// History is stable: a message that was sent once is encoded byte for byte the same in later turns.
#[test]
fn client_7_conversation_history_is_encoded_to_the_same_bytes() {
    let turns = vec![
        (System, vec![text("Be brief.")]),
        (User, vec![text("Oslo?"), image("QQ==")]),
        (Assistant, vec![text("Let me see."), call("c1", r#"{"city": "Oslo"}"#)]),
        (User, vec![result("c1", vec![text("5"), image("Qg==")])]),
        (Assistant, vec![text("5 degrees.")]),
        (User, vec![text("Thanks")]),
    ];
    let whole = messages(turns.clone()).to_string();
    for length in 1..turns.len() {
        let part = messages(turns[..length].to_vec()).to_string();
        let part = part.strip_suffix(']').unwrap();
        assert!(whole.starts_with(part), "{part}");
    }
}
