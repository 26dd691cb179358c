//! Tests of the conversation that is sent to a provider.

use serde_json::{Value, json};

use super::{Sent, by_budget, dialect, send, send_as};
use crate::canonical::request::Extra;
use crate::canonical::{
    Block, CacheBreakpoint, Dialect, Input, MediaSource, ProviderSignature, Request, ResultObject, Role,
    Thinking, ToolKind, Turn,
};
use crate::wire::Format;
use json::{Cursor, JsonStr, RawJson};

pub(super) const fn s(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

pub(super) fn text(text: &str) -> Block<'_> {
    Block::text(s(text))
}

fn call<'a>(id: &'a str, input: Input<'a>) -> Block<'a> {
    Block::ToolUse {
        id: s(id),
        name: s("f"),
        input,
        kind: ToolKind::Function,
        namespace: s(""),
        signature: None,
        cache: None,
    }
}

fn result<'a>(id: &'a str, content: Vec<Block<'a>>) -> Block<'a> {
    Block::ToolResult {
        id: s(id),
        name: s("f"),
        content,
        object: None,
        error: false,
        kind: ToolKind::Function,
        cache: None,
    }
}

fn reasoning(text: &'static str, seal: Option<&'static str>) -> Block<'static> {
    let seal = seal.map(|seal| ProviderSignature { issuer: Some("provider".into()), text: seal.into() });
    Block::Reasoning { text: vec![s(text)], signature: seal, hidden: text.is_empty() }
}

pub(super) fn of<'a>(turns: Vec<(Role, Vec<Block<'a>>)>) -> Request<'a> {
    let turns = turns.into_iter().map(|(role, blocks)| Turn::new(role, blocks)).collect();
    Request { turns, ..Request::default() }
}

pub(super) fn chat(turns: Vec<(Role, Vec<Block<'_>>)>) -> Sent {
    send(Format::Chat, &of(turns), &dialect())
}

use Role::{Assistant, Developer, System, User};

#[test]
fn mapping_1_instructions_at_the_start_become_the_system_field() {
    let sent = chat(vec![
        (System, vec![text("A.")]),
        (Developer, vec![text("B."), text(" ")]),
        (User, vec![text("Hi")]),
    ]);
    assert_eq!(sent.body["system"], json!([{"type": "text", "text": "A."}, {"type": "text", "text": "B."}]));
    assert_eq!(sent.body["messages"], json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]));
}

#[test]
fn mapping_1_instructions_in_the_middle_stay_or_move_to_system() {
    let turns = vec![
        (System, vec![text("A.")]),
        (User, vec![text("1")]),
        (Developer, vec![text("B.")]),
        (User, vec![text("2")]),
    ];
    let roles = |sent: &Sent| -> Vec<Value> {
        sent.body["messages"].as_array().unwrap().iter().map(|turn| turn["role"].clone()).collect()
    };
    assert_eq!(roles(&chat(turns.clone())), ["user", "system", "user"]);
    let without = Dialect { system_in_middle: false, ..dialect() };
    let sent = send(Format::Chat, &of(turns), &without);
    assert_eq!(roles(&sent), ["user"]);
    assert_eq!(sent.body["system"].as_array().unwrap().len(), 2);
    assert_eq!(sent.body["messages"][0]["content"].as_array().unwrap().len(), 2);
}

#[test]
fn mapping_1_instructions_alone_become_a_user_turn() {
    let sent = chat(vec![(System, vec![text("Say hi.")])]);
    assert!(sent.body.get("system").is_none());
    assert_eq!(
        sent.body["messages"],
        json!([{"role": "user", "content": [{"type": "text", "text": "Say hi."}]}])
    );
}

#[test]
fn mapping_1_turns_alternate_and_empty_ones_are_dropped() {
    let sent = chat(vec![
        (User, vec![text("a")]),
        (User, vec![text("b")]),
        (Assistant, vec![text("")]),
        (User, vec![text("\\n\\t "), text("c")]),
        (Assistant, vec![text("d")]),
        (Assistant, vec![text("e")]),
        (User, vec![text("f")]),
    ]);
    let texts: Vec<(Value, usize)> = sent.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| (turn["role"].clone(), turn["content"].as_array().unwrap().len()))
        .collect();
    assert_eq!(texts, [(json!("user"), 3), (json!("assistant"), 2), (json!("user"), 1)]);
    assert!(sent.losses.is_empty());
}

#[test]
fn mapping_1_first_turn_of_the_model_is_preceded_by_a_user_turn() {
    let sent = chat(vec![(Assistant, vec![text("Welcome!")]), (User, vec![text("Hi")])]);
    assert_eq!(sent.body["messages"][0], json!({"role": "user", "content": [{"type": "text", "text": "."}]}));
    assert_eq!(sent.body["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn mapping_1_prefill_is_kept_only_if_supported() {
    let turns = vec![(User, vec![text("Hi")]), (Assistant, vec![text("x \\\\n\\n \\t")])];
    let sent = chat(turns.clone());
    // Trailing white space is refused; an escaped backslash followed by `n` is not white space.
    assert_eq!(sent.body["messages"][1]["content"], json!([{"type": "text", "text": "x \\n"}]));
    assert!(sent.losses.is_empty());

    let cannot = Dialect { prefill: false, ..dialect() };
    let sent = send(Format::Messages, &of(turns.clone()), &cannot);
    assert_eq!(sent.body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(sent.losses, ["prefill"]);
    // In other formats it is an ordinary turn and stays.
    let sent = send(Format::Chat, &of(turns), &cannot);
    assert_eq!(sent.body["messages"][2]["content"][0]["text"], ".");
    assert_eq!(sent.losses, ["prefill"]);
}

#[test]
fn paused_turn_is_sent_back_unchanged() {
    let raw = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#;
    let opaque = Block::Opaque { name: s("server_tool_use"), raw: RawJson::from_text(raw) };
    let turns = vec![(User, vec![text("a")]), (Assistant, vec![text("b"), opaque])];
    let sent = send(Format::Messages, &of(turns), &Dialect { prefill: false, ..dialect() });
    assert_eq!(sent.body["messages"][1]["content"].as_array().unwrap().len(), 2);
    assert!(sent.losses.is_empty());
}

#[test]
fn prefill_is_dropped_with_reasoning() {
    let mut request = of(vec![(User, vec![text("a")]), (Assistant, vec![text("b")])]);
    request.thinking = Thinking::Budget(2048);
    let sent = send(Format::Chat, &request, &by_budget());
    assert_eq!(sent.body["messages"][2]["role"], "user");
    assert_eq!(sent.losses, ["prefill"]);
}

#[test]
fn bug_55_and_client_5_tool_results_are_first_in_one_user_turn() {
    let sent = chat(vec![
        (User, vec![text("go")]),
        (Assistant, vec![text("Let me see.")]),
        (Assistant, vec![call("a", Input::Text(s("{}")))]),
        (Assistant, vec![call("b", Input::Text(s("{}")))]),
        (User, vec![result("a", vec![text("1")])]),
        (User, vec![text("Which?"), result("b", vec![text("2")])]),
    ]);
    let messages = sent.body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3);
    let kinds = |index: usize| -> Vec<&str> {
        let blocks = messages[index]["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap()).collect()
    };
    assert_eq!(kinds(1), ["text", "tool_use", "tool_use"]);
    assert_eq!(kinds(2), ["tool_result", "tool_result", "text"]);
    assert_eq!(messages[2]["content"][1]["tool_use_id"], "b");
}

#[test]
fn mapping_3_tool_call_arguments_become_objects() {
    for (input, object) in [
        (Input::Text(s("")), json!({})),
        (Input::Text(s(" \\n")), json!({})),
        (Input::Text(s("{}")), json!({})),
        (Input::Text(s(r#" {\"b\":\"\\n\",\"a\":[1.50]} "#)), json!({"b": "\n", "a": [1.5]})),
        (Input::Text(s("not json")), json!({"_raw": "not json"})),
        (Input::Text(s(r#"{\"a\":1"#)), json!({"_raw": "{\"a\":1"})),
        (Input::Text(s("[1]")), json!({"_raw": "[1]"})),
        (Input::Object(RawJson::from_text(r#"{"a":1}"#)), json!({"a": 1})),
        (Input::Object(RawJson::from_text("[1]")), json!({"_raw": "[1]"})),
    ] {
        let sent = chat(vec![
            (User, vec![text("go")]),
            (Assistant, vec![call("a", input)]),
            (User, vec![result("a", vec![])]),
        ]);
        assert_eq!(sent.body["messages"][1]["content"][0]["input"], object, "{input:?}");
    }
}

#[test]
fn bug_54_tool_call_arguments_keep_their_member_order() {
    let sent = chat(vec![
        (User, vec![text("go")]),
        (Assistant, vec![call("a", Input::Text(s(r#"{\"z\": 1, \"a\": 2, \"m\": 1e5}"#)))]),
        (User, vec![result("a", vec![])]),
    ]);
    assert!(sent.raw.contains(r#""input":{"z": 1, "a": 2, "m": 1e5}"#), "{}", sent.raw);
    assert!(sent.raw.find("\"messages\"") > sent.raw.find("\"max_tokens\""));
}

#[test]
fn bug_10_tool_call_id_is_sanitized_alike_on_call_and_result() {
    for (id, sent_id) in
        [("call_1-x", "call_1-x"), ("functions.f:0", "functions_f_0"), ("a\\/b\\u00fc", "a_b_"), ("0", "0")]
    {
        let sent = chat(vec![
            (User, vec![text("go")]),
            (Assistant, vec![call(id, Input::Text(s("{}")))]),
            (User, vec![result(id, vec![])]),
        ]);
        assert_eq!(sent.body["messages"][1]["content"][0]["id"], sent_id);
        assert_eq!(sent.body["messages"][2]["content"][0]["tool_use_id"], sent_id);
    }
}

#[test]
fn fact_8_tool_call_id_that_repeats_is_made_unique() {
    let sent = chat(vec![
        (User, vec![text("go")]),
        (Assistant, vec![call("0", Input::Text(s("{}"))), call("1", Input::Text(s("{}")))]),
        (User, vec![result("0", vec![]), result("1", vec![])]),
        (Assistant, vec![call("0", Input::Text(s("{}"))), call("0", Input::Text(s("{}")))]),
        (User, vec![result("0", vec![text("a")]), result("0", vec![text("b")])]),
    ]);
    let ids = |turn: usize, member: &str| -> Vec<Value> {
        let blocks = sent.body["messages"][turn]["content"].as_array().unwrap().iter();
        blocks.map(|block| block[member].clone()).collect()
    };
    assert_eq!(ids(1, "id"), ["0", "1"]);
    assert_eq!(ids(2, "tool_use_id"), ["0", "1"]);
    assert_eq!(ids(3, "id"), ["0_2", "0_3"]);
    assert_eq!(ids(4, "tool_use_id"), ["0_2", "0_3"]);
}

#[test]
fn mapping_3_tool_results_of_every_kind_are_encoded() {
    let image = |data, mime| Block::Image {
        source: MediaSource::Base64 { mime: s(mime), data: s(data) },
        detail: s(""),
        cache: None,
        signature: None,
    };
    let one = |block: Block<'static>| {
        let sent = chat(vec![
            (User, vec![text("go")]),
            (Assistant, vec![call("a", Input::Text(s("{}")))]),
            (User, vec![block]),
        ]);
        let mut block = sent.body["messages"][2]["content"][0].clone();
        let block = block.as_object_mut().unwrap();
        block.remove("type");
        block.remove("tool_use_id");
        Value::from(block.clone())
    };
    assert_eq!(one(result("a", vec![])), json!({}));
    assert_eq!(one(result("a", vec![text("")])), json!({}));
    assert_eq!(one(result("a", vec![text("5")])), json!({"content": "5"}));
    // An image file is sent as an image block.
    assert_eq!(
        one(result("a", vec![text("done"), image("iVBORw0KGgo=", "image/png")])),
        json!({"content": [{"type": "text", "text": "done"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]})
    );
    let object = |text: &'static str, error| {
        let mut block = result("a", vec![]);
        if let Block::ToolResult { object, error: failed, .. } = &mut block {
            (*object, *failed) = (Some(ResultObject::read(&mut Cursor::new(text)).unwrap()), error);
        }
        one(block)
    };
    assert_eq!(object(r#"{"output":"5 °\n"}"#, false), json!({"content": "5 °\n"}));
    assert_eq!(object(r#"{"result":"5"}"#, true), json!({"content": "5", "is_error": true}));
    assert_eq!(object(r#"{"error":"no"}"#, false), json!({"content": "no", "is_error": true}));
    assert_eq!(object(r#"{"output":5}"#, false), json!({"content": "{\"output\":5}"}));
    assert_eq!(object(r#"{"a":"x","b":1}"#, false), json!({"content": "{\"a\":\"x\",\"b\":1}"}));
}

#[test]
fn bug_26_reasoning_is_sent_back_unchanged_and_in_place() {
    let sent = chat(vec![
        (User, vec![text("go")]),
        (
            Assistant,
            vec![
                reasoning("Hm \\u00fc\\n", Some("Eq\\/+==")),
                reasoning("", Some("Em")),
                text("a"),
                call("a", Input::Text(s("{}"))),
            ],
        ),
        (User, vec![result("a", vec![])]),
    ]);
    assert!(sent.raw.contains(r#"{"type":"thinking","thinking":"Hm \u00fc\n","signature":"Eq\/+=="}"#));
    assert!(sent.raw.contains(r#"{"type":"redacted_thinking","data":"Em"},{"type":"text""#));
}

#[test]
fn bug_34_reasoning_without_a_signature_is_omitted() {
    let sent = chat(vec![
        (User, vec![text("a")]),
        (Assistant, vec![reasoning("Hm.", None), text("b")]),
        (User, vec![text("c")]),
    ]);
    assert_eq!(sent.body["messages"][1]["content"], json!([{"type": "text", "text": "b"}]));
    assert_eq!(sent.losses, ["thinking_block"]);
}

#[test]
fn mapping_4_reasoning_is_disabled_in_a_tool_loop_without_signatures() {
    let turns = |seal| {
        let mut request = of(vec![
            (User, vec![text("go")]),
            (Assistant, vec![reasoning("Hm.", seal), call("a", Input::Text(s("{}")))]),
            (User, vec![result("a", vec![text("1")])]),
        ]);
        request.thinking = Thinking::Budget(2048);
        request
    };
    let sent = send(Format::Chat, &turns(None), &by_budget());
    assert!(sent.body.get("thinking").is_none());
    assert!(sent.losses.contains(&"thinking".to_owned()));
    let sent = send(Format::Chat, &turns(Some("Eq")), &by_budget());
    assert_eq!(sent.body["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    // Models with adaptive reasoning do not require it.
    let sent = send(Format::Chat, &turns(None), &dialect());
    assert_eq!(sent.body["thinking"]["type"], "adaptive");
}

#[test]
fn bug_53_cache_marks_are_at_most_four_and_the_last() {
    let marked = |text: &'static str| Block::Text {
        text: s(text),
        cache: Some(CacheBreakpoint::Short),
        signature: None,
    };
    let mut request = of(vec![
        (System, vec![marked("a"), marked("b")]),
        (User, vec![marked("c"), marked(" "), text("d"), marked("e")]),
        (Assistant, vec![text("f")]),
        (User, vec![marked("g")]),
    ]);
    request.turns[0].blocks.push(Block::Text {
        text: s("x"),
        cache: Some(CacheBreakpoint::Long),
        signature: None,
    });
    let sent = send(Format::Messages, &request, &dialect());
    assert_eq!(sent.raw.matches("cache_control").count(), 4);
    assert!(sent.body["system"][0].get("cache_control").is_none());
    assert_eq!(sent.body["system"][2]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
    assert_eq!(sent.body["messages"][2]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(sent.losses, ["cache_control"]);
    // The cache mark of the request itself counts towards the four.
    request.extra.push(Extra { name: "cache_control", value: RawJson::from_text(r#"{"type":"ephemeral"}"#) });
    let sent = send(Format::Messages, &request, &dialect());
    assert_eq!(sent.raw.matches("cache_control").count(), 4);
}

#[test]
fn cache_marks_are_dropped_only_for_marks_that_are_sent() {
    const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;
    let marked = |text: &str| format!(r#"{{"type":"text","text":"{text}",{MARK}}}"#);
    let four = [marked("a"), marked("b"), marked("c"), marked("d")].join(",");
    let body = |tools: &str, blocks: &str| {
        format!(r#"{{"max_tokens":9,"tools":[{tools}],"messages":[{{"role":"user","content":[{blocks}]}}]}}"#)
    };
    // A search tool whose name is taken, and an empty block in a tool result, are not sent.
    let search = format!(
        r#"{{"name":"web_search","input_schema":{{"type":"object"}}}},{{"type":"web_search_20250305","name":"web_search",{MARK}}}"#
    );
    let result = format!(
        r#"{{"type":"tool_result","tool_use_id":"t","content":[{},{}]}},{four}"#,
        marked(" "),
        r#"{"type":"text","text":"x"}"#
    );
    for body in [body(&search, &four), body("", &result)] {
        let sent = send_as(Format::Messages, &body, &dialect());
        assert_eq!(sent.raw.matches("cache_control").count(), 4, "{}", sent.raw);
        assert!(!sent.losses.contains(&"cache_control".to_owned()), "{:?}", sent.losses);
    }
    // Marks of tools and blocks that are sent unchanged count, but cannot be dropped.
    let hosted = format!(r#"{{"type":"bash_20250124","name":"bash",{MARK}}}"#);
    let inner = marked("in").replace("\"in\"", "\"cache_control\"");
    let opaque =
        format!(r#"{{"type":"mcp_tool_result","tool_use_id":"m","content":[{inner}],{MARK}}},{four}"#);
    for (body, left) in [(body(&hosted, &four), ["b", "c", "d"].as_slice()), (body("", &opaque), &["c", "d"])]
    {
        let sent = send_as(Format::Messages, &body, &dialect());
        assert_eq!(sent.raw.matches(MARK).count(), 4, "{}", sent.raw);
        let content = sent.body["messages"][0]["content"].as_array().unwrap();
        let kept =
            content.iter().filter(|block| block["type"] == "text" && block.get("cache_control").is_some());
        let kept: Vec<&str> = kept.map(|block| block["text"].as_str().unwrap()).collect();
        assert_eq!(kept, left);
        assert!(sent.losses.contains(&"cache_control".to_owned()), "{:?}", sent.losses);
    }
}

#[test]
fn bug_59_empty_blocks_and_their_marks_are_dropped() {
    let blank = Block::Text { text: s(" \\n"), cache: Some(CacheBreakpoint::Short), signature: None };
    let sent = chat(vec![(User, vec![text("a"), blank])]);
    assert_eq!(sent.body["messages"][0]["content"], json!([{"type": "text", "text": "a"}]));
}

#[test]
fn names_and_phases_are_dropped_as_losses() {
    let mut request = of(vec![(User, vec![text("a")])]);
    request.turns[0].name = s("ann");
    request.turns[0].phase = s("final_answer");
    assert_eq!(send(Format::Chat, &request, &dialect()).losses, ["name", "phase"]);
}

#[test]
fn server_tool_blocks_are_sent_in_the_same_format_only() {
    let raw = r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#;
    let opaque = Block::Opaque { name: s("web_search_tool_result"), raw: RawJson::from_text(raw) };
    let turns = vec![(User, vec![text("a")]), (Assistant, vec![opaque, text("b")]), (User, vec![text("c")])];
    let sent = send(Format::Messages, &of(turns.clone()), &dialect());
    assert!(sent.raw.contains(raw));
    let sent = chat(turns);
    assert!(!sent.raw.contains("web_search"));
    assert_eq!(sent.losses, ["server_tool_block"]);
}

#[test]
fn client_7_conversation_history_is_encoded_to_the_same_bytes() {
    let turns = [
        r#"{"role":"user","content":"go"}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"ok"},{"type":"tool_use","id":"a","name":"f","input":{"z":1,"a":2}}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"text","text":"and?"}]}"#,
        r#"{"role":"assistant","content":"done"}"#,
        r#"{"role":"user","content":"more"}"#,
    ];
    let mut before: Option<String> = None;
    for count in [1, 3, 5] {
        let body = format!(
            r#"{{"max_tokens":9,"system":"S","tools":[{{"name":"f","input_schema":{{"type":"object"}}}}],"messages":[{}]}}"#,
            turns[..count].join(",")
        );
        for from in [Format::Messages, Format::Chat] {
            let sent = send_as(from, &body, &dialect());
            assert_eq!(sent.raw, send_as(from, &body, &dialect()).raw);
            if let Some(before) = &before {
                // Everything except the closing brackets.
                assert!(sent.raw.starts_with(before.trim_end_matches(['}', ']'])), "{before}\n{}", sent.raw);
            }
            if from == Format::Chat {
                before = Some(sent.raw);
            }
        }
    }
}
