//! Tests of tools and tool choice: decoding and encoding.

use super::*;
use crate::canonical::{CacheBreakpoint, Tool, ToolChoice, ToolKind};
use json::RawJson;

fn tool(name: &str) -> Tool<'_> {
    Tool::new(js(name), ToolKind::Function)
}

const TOOL: &str = r#"{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"z":{},"a":{}}},"strict":true}}"#;

#[test]
fn map_3_tool_definitions_round_trip_unchanged() {
    let body = asking(&format!(
        r#","tools":[{TOOL},{{"type":"function","function":{{"name":"g"}}}},{{"type":"custom","custom":{{"name":"run","description":"r","format":{{"type":"grammar","grammar":{{"syntax":"lark","definition":"x"}}}}}}}}]"#
    ));
    let request = request::decode(&body).unwrap();
    assert_eq!(request.tools[0].strict, Some(true), "strict is carried");
    assert_eq!(request.tools[1], tool("g"));
    assert_eq!((request.tools[2].kind, request.tools[2].format.is_some()), (ToolKind::Custom, true));
    let (sent, losses) = through(&body, &dialect());
    let before: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(sent["tools"], before["tools"]);
    // The order must be the same too: provider caches and responses depend on it.
    assert_eq!(sent["tools"].to_string(), before["tools"].to_string());
    assert!(losses.is_empty());
}

#[test]
fn tool_definitions_in_other_spellings_are_decoded() {
    let flat = r#"{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}"#;
    let body = asking(&format!(
        r#","tools":[{flat},{{"function":{{"name":"g"}}}}],"functions":[{{"name":"h","parameters":{{}}}}]"#
    ));
    let request = request::decode(&body).unwrap();
    assert_eq!(request.tools.iter().map(|tool| tool.name.escaped()).collect::<Vec<_>>(), ["f", "g", "h"]);
    assert_eq!(request.tools[0].description, js("d"));
}

#[test]
fn map_3_tool_choice_is_decoded_and_encoded_in_every_form() {
    let named = r#"{"type":"function","function":{"name":"f"}}"#;
    let allowed =
        format!(r#"{{"type":"allowed_tools","allowed_tools":{{"mode":"required","tools":[{named}]}}}}"#);
    let one = || ToolChoice::Tool(js("f"));
    let some = || ToolChoice::Allowed { names: vec![js("f")], required: true };
    for (choice, expected) in [
        ("\"auto\"", ToolChoice::Auto),
        ("\"none\"", ToolChoice::None),
        ("\"required\"", ToolChoice::Required),
        (named, one()),
        (&allowed, some()),
    ] {
        let body = asking(&format!(r#","tools":[{TOOL}],"tool_choice":{choice}"#));
        assert_eq!(request::decode(&body).unwrap().tool_choice, Some(expected));
        let (sent, _) = through(&body, &dialect());
        assert_eq!(sent["tool_choice"], serde_json::from_str::<Value>(choice).unwrap(), "not widened");
    }
    for (choice, expected) in [
        ("\"any\"", ToolChoice::Required),
        (r#"{"type":"tool","name":"f"}"#, one()),
        (r#"{"type":"none"}"#, ToolChoice::None),
        (r#"{"function":{"name":"f"}}"#, one()),
    ] {
        let body = asking(&format!(r#","tool_choice":{choice}"#));
        assert_eq!(request::decode(&body).unwrap().tool_choice, Some(expected), "{choice}");
    }
    for (choice, expected) in
        [("\"auto\"", ToolChoice::Auto), ("\"none\"", ToolChoice::None), (r#"{"name":"f"}"#, one())]
    {
        let body = asking(&format!(r#","functions":[{{"name":"f"}}],"function_call":{choice}"#));
        assert_eq!(request::decode(&body).unwrap().tool_choice, Some(expected), "{choice}");
    }
    // A custom tool is named as such in `tool_choice`.
    let body = asking(
        r#","tools":[{"type":"custom","custom":{"name":"run"}}],"tool_choice":{"type":"custom","custom":{"name":"run"}}"#,
    );
    assert_eq!(through(&body, &dialect()).0["tool_choice"]["type"], "custom");
}

#[test]
fn tool_malformed_is_refused_with_its_path() {
    for (members, path) in [
        (r#","tools":{}"#, "tools"),
        (r#","tools":[1]"#, "tools[0]"),
        (r#","tools":[{"type":"function"}]"#, "tools[0].function"),
        (r#","tools":[{"type":"function","function":{"description":"d"}}]"#, "tools[0].function.name"),
        (
            r#","tools":[{"type":"function","function":{"name":"f","parameters":[]}}]"#,
            "tools[0].function.parameters",
        ),
        (r#","tool_choice":"maybe""#, "tool_choice"),
        (r#","tool_choice":{"type":"function"}"#, "tool_choice.function.name"),
        (r#","parallel_tool_calls":"no""#, "parallel_tool_calls"),
    ] {
        assert_eq!(fault_in(&asking(members)), path, "{members}");
    }
}

#[test]
fn tool_choice_without_tools_is_not_sent() {
    let body = asking(r#","tool_choice":"auto","parallel_tool_calls":false,"tools":[]"#);
    let (sent, _) = through(&body, &dialect());
    for name in ["tools", "tool_choice", "parallel_tool_calls"] {
        assert!(sent.get(name).is_none(), "{name}");
    }
    let body = asking(&format!(r#","parallel_tool_calls":false,"tools":[{TOOL}]"#));
    assert_eq!(through(&body, &dialect()).0["parallel_tool_calls"], false);
}

#[test]
fn bug_61_tool_schema_of_openapi_becomes_json_schema() {
    let schema =
        RawJson::from_text(r#"{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true}}}"#);
    let definition = Tool { schema: Some(schema), openapi: true, ..tool("f") };
    let request = Request { tools: vec![definition], ..Request::default() };
    let parameters = &sent(&request, &dialect())["tools"][0]["function"]["parameters"];
    let expected = serde_json::json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}});
    assert_eq!(*parameters, expected);
}

#[test]
fn server_tools_are_sent_in_the_same_format_only() {
    let body = asking(
        r#","tools":[{"type":"builtin_function","function":{"name":"$web_search"}},{"type":"openrouter:advisor","parameters":{}}]"#,
    );
    let request = request::decode(&body).unwrap();
    assert_eq!((request.tools.len(), request.extra.len()), (0, 2));
    assert!(request.extra.iter().all(|extra| extra.name == "server_tool"));
    let before: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(through(&body, &dialect()).0["tools"], before["tools"]);
    // This provider has no equivalent for server tools of another format.
    let (_, losses, refusal) = sent_from(Format::Messages, &request, &dialect());
    assert!(losses == ["server_tool"] && refusal.is_some());
}

#[test]
fn web_search_settings_are_independent_of_member_order() {
    let tool = r#""tools":[{"type":"web_search","search_context_size":"low"}]"#;
    let options = r#""web_search_options":{"search_context_size":"high"}"#;
    let switch = r#""enable_search":true"#;
    for (one, other, context) in [(tool, switch, "low"), (options, switch, "high"), (tool, options, "high")] {
        for members in [format!(",{one},{other}"), format!(",{other},{one}")] {
            let body = asking(&members);
            let request = request::decode(&body).unwrap();
            assert_eq!(request.search.unwrap().context.escaped(), context, "{members}");
            assert!(request.extra.is_empty(), "{members}: {:?}", request.extra);
        }
    }
    let body = asking(r#","enable_search":false"#);
    assert!(request::decode(&body).unwrap().search.is_none());
}

#[test]
fn map_9_web_search_is_decoded_in_each_spelling_and_encoded_in_one() {
    let options = r#""web_search_options":{"search_context_size":"low","user_location":{"type":"approximate","approximate":{"city":"Oslo","country":"NO"}}}"#;
    let body = asking(&format!(",{options}"));
    let request = request::decode(&body).unwrap();
    let search = request.search.as_ref().unwrap();
    assert_eq!(search.context, js("low"));
    assert_eq!(search.location.unwrap().text(), r#"{"city":"Oslo","country":"NO"}"#);
    let before: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(through(&body, &dialect()).0["web_search_options"], before["web_search_options"]);
    // Without a type, flat, as a tool, as a boolean.
    for members in [
        r#""web_search_options":{"user_location":{"approximate":{"city":"Oslo"}}}"#,
        r#""web_search_options":{"user_location":{"type":"approximate","city":"Oslo"}}"#,
        r#""tools":[{"type":"web_search","user_location":{"city":"Oslo"}}]"#,
    ] {
        let (sent, _) = through(&asking(&format!(",{members}")), &dialect());
        let location = &sent["web_search_options"]["user_location"];
        assert_eq!(
            (&location["type"], &location["approximate"]["city"]),
            (&"approximate".into(), &"Oslo".into())
        );
        assert!(location["approximate"].get("type").is_none(), "{members}");
    }
    let body = asking(r#","web_search_options":{}"#);
    assert_eq!(through(&body, &dialect()).0["web_search_options"], serde_json::json!({}));
}

#[test]
fn cache_marks_on_tools_are_sent_only_if_supported() {
    let request = Request {
        tools: vec![Tool { cache: Some(CacheBreakpoint::Long), ..tool("f") }],
        ..Request::default()
    };
    let knows = Dialect { extensions: &["cache_control"], ..dialect() };
    let mark = serde_json::json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(sent(&request, &knows)["tools"][0]["cache_control"], mark);
    let (value, losses, refusal) = sent_from(Format::Messages, &request, &dialect());
    assert!(value["tools"][0].get("cache_control").is_none());
    assert_eq!((losses, refusal), (vec!["cache_control".to_owned()], None));
}
