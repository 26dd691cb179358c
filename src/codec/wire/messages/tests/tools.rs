//! Tests of tools that are sent to a provider.

use serde_json::{Value, json};

use super::{Sent, by_budget, dialect, send, send_as};
use crate::canonical::dialect::Structured;
use crate::canonical::request::Search;
use crate::canonical::{Dialect, Request, Role, Tool, ToolChoice, ToolKind, Turn};
use crate::wire::Format;
use json::{JsonStr, RawJson};

const fn s(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

fn tool(name: &'static str, schema: Option<&'static str>) -> Tool<'static> {
    Tool { schema: schema.map(RawJson::from_text), ..Tool::new(s(name), ToolKind::Function) }
}

fn with(tools: Vec<Tool<'static>>) -> Request<'static> {
    let turn = Turn::new(Role::User, vec![crate::canonical::Block::text(s("Hi"))]);
    Request { turns: vec![turn], tools, ..Request::default() }
}

fn sent(request: &Request<'_>) -> Sent {
    send(Format::Chat, request, &dialect())
}

#[test]
fn mapping_3_tool_definitions_are_encoded() {
    let described = Tool { description: s("d\\n"), ..tool("f", Some(r#"{"type":"object","z":1,"a":2}"#)) };
    let sent = sent(&with(vec![
        described,
        tool("g", None),
        tool("h", Some("{}")),
        tool("i", Some(r#"{"properties":{}}"#)),
    ]));
    assert_eq!(
        sent.body["tools"],
        json!([{"name": "f", "description": "d\n", "input_schema": {"type": "object", "z": 1, "a": 2}},
            {"name": "g", "input_schema": {"type": "object", "properties": {}}},
            {"name": "h", "input_schema": {"type": "object"}},
            {"name": "i", "input_schema": {"type": "object", "properties": {}}}])
    );
    assert!(sent.raw.contains(r#"{"type":"object","z":1,"a":2}"#));
}

#[test]
fn client_2_tool_schema_of_the_same_format_is_unchanged() {
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0}},"propertyNames":{"pattern":"^a"}}"#;
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"Hi"}}],"tools":[{{"name":"f","input_schema":{schema},"strict":true}}]}}"#
    );
    let sent = send_as(Format::Messages, &body, &dialect());
    assert!(sent.raw.contains(schema));
    assert_eq!(sent.body["tools"][0]["strict"], true);
}

#[test]
fn mapping_3_tool_choice_is_encoded_in_every_form() {
    let choices = [
        (ToolChoice::Auto, json!({"type": "auto"})),
        (ToolChoice::None, json!({"type": "none"})),
        (ToolChoice::Required, json!({"type": "any"})),
        (ToolChoice::Tool(s("g")), json!({"type": "tool", "name": "g"})),
        (ToolChoice::Allowed { names: vec![s("f"), s("g")], required: true }, json!({"type": "any"})),
        (ToolChoice::Allowed { names: vec![s("g")], required: true }, json!({"type": "tool", "name": "g"})),
        (ToolChoice::Allowed { names: vec![s("g")], required: false }, json!({"type": "auto"})),
    ];
    for (choice, written) in choices {
        let few = matches!(choice, ToolChoice::Allowed { .. });
        let mut request = with(vec![tool("f", None), tool("g", None), tool("h", None)]);
        request.tool_choice = Some(choice);
        let sent = sent(&request);
        assert_eq!(sent.body["tool_choice"], written);
        // A choice that allows some tools offers only these.
        let names: Vec<&Value> =
            sent.body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names.len() < 3, few, "{names:?}");
        assert!(sent.losses.is_empty());
    }
}

#[test]
fn bug_57_and_58_parallel_tool_use_is_disabled() {
    let choice = |choice, parallel| {
        let mut request = with(vec![tool("f", None)]);
        (request.tool_choice, request.parallel_tools) = (choice, Some(parallel));
        sent(&request).body["tool_choice"].clone()
    };
    assert_eq!(choice(None, false), json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(choice(None, true), Value::Null);
    assert_eq!(
        choice(Some(ToolChoice::Required), false),
        json!({"type": "any", "disable_parallel_tool_use": true})
    );
    // The provider refuses the switch beside `none`.
    assert_eq!(choice(Some(ToolChoice::None), false), json!({"type": "none"}));
}

#[test]
fn tool_choice_without_tools_is_not_sent() {
    let mut request = with(vec![]);
    (request.tool_choice, request.parallel_tools) = (Some(ToolChoice::Auto), Some(false));
    let sent = sent(&request);
    assert!(sent.body.get("tool_choice").is_none() && sent.body.get("tools").is_none());
}

#[test]
fn mapping_4_tool_choice_is_not_forced_with_a_thinking_budget() {
    for (choice, kind, kind_by_budget) in [
        (ToolChoice::Required, "any", "auto"),
        (ToolChoice::Tool(s("f")), "tool", "auto"),
        (ToolChoice::None, "none", "none"),
    ] {
        let mut request = with(vec![tool("f", None)]);
        request.tool_choice = Some(choice);
        request.thinking = crate::canonical::Thinking::Budget(2048);
        let by_budget = send(Format::Chat, &request, &by_budget());
        assert_eq!(by_budget.body["tool_choice"], json!({"type": kind_by_budget}));
        assert_eq!(by_budget.losses.contains(&"tool_choice".to_owned()), kind != kind_by_budget);
        assert_eq!(sent(&request).body["tool_choice"]["type"], kind);
    }
}

#[test]
fn bug_58_strict_is_sent_only_if_supported() {
    let strict = |strict, structured, from| {
        let request = with(vec![Tool { strict, ..tool("f", Some(r#"{"type":"object","properties":{}}"#)) }]);
        let sent = send(from, &request, &Dialect { structured, ..dialect() });
        (sent.body["tools"][0]["strict"].clone(), sent.losses)
    };
    assert_eq!(strict(Some(true), Structured::Native, Format::Chat), (json!(true), vec![]));
    assert_eq!(
        strict(Some(true), Structured::Tool, Format::Chat),
        (Value::Null, vec!["tool_strict".to_owned()])
    );
    assert_eq!(strict(Some(false), Structured::Native, Format::Responses), (Value::Null, vec![]));
    assert_eq!(strict(Some(false), Structured::Tool, Format::Messages), (json!(false), vec![]));
}

#[test]
fn mapping_9_web_search_tool_is_encoded() {
    let search = |search: Search<'static>| {
        let mut request = with(vec![tool("f", None)]);
        request.search = Some(search);
        let sent = sent(&request);
        (sent.body["tools"][1].clone(), sent.losses)
    };
    let plain = json!({"type": "web_search_20250305", "name": "web_search"});
    assert_eq!(search(Search::default()), (plain, vec![]));
    let location = r#"{"type":"approximate","country":"NO","city":"Oslo","extra":1}"#;
    let full = Search {
        context: s("medium"),
        allowed_domains: Some(RawJson::from_text(r#"["a.example"]"#)),
        blocked_domains: Some(RawJson::from_text(r#"["b.example"]"#)),
        location: Some(RawJson::from_text(location)),
        ..Search::default()
    };
    let written = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 5,
        "allowed_domains": ["a.example"],
        "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"}});
    assert_eq!(search(full), (written, vec!["web_search_filters".to_owned()]));
    let (written, _) = search(Search { context: s("low"), max_uses: Some(3), ..Search::default() });
    assert_eq!(written["max_uses"], 3);
    // A function of that name would be a duplicate.
    let mut request = with(vec![tool("web_search", None)]);
    request.search = Some(Search::default());
    let sent = sent(&request);
    assert_eq!(sent.body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(sent.refused.as_deref(), Some("web_search"));
}

#[test]
fn mapping_12_server_tools_are_sent_in_the_same_format_only() {
    let body = r#"{"messages":[{"role":"user","content":"Hi"}],"tools":[
        {"type":"bash_20250124","name":"bash"},{"name":"f","input_schema":{"type":"object"},"input_examples":[{}]}]}"#;
    let own = send_as(Format::Messages, body, &dialect());
    assert_eq!(own.body["tools"][1], json!({"type": "bash_20250124", "name": "bash"}));
    let foreign = send_as(Format::Responses, body, &dialect());
    assert_eq!(foreign.body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(foreign.refused.as_deref(), Some("server_tool"));
    assert!(foreign.losses.contains(&"input_examples".to_owned()));
}
