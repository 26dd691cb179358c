use serde_json::json;

use super::*;
use crate::canonical::dialect::ReasoningSupport;
use crate::canonical::quirks::Quirks;
use crate::canonical::{Effort, OutputFormat, Thinking};
use json::{JsonStr, RawJson};

fn chat(messages: Value) -> String {
    json!({"messages": messages}).to_string()
}

fn sent(body: &Value) -> Sent {
    send_as(Format::Messages, &body.to_string(), &dialect())
}

#[test]
fn turns_alternate_and_results_come_first() {
    let sent = send_as(
        Format::Chat,
        &chat(json!([
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"text": "and"}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "r"}]}}, {"text": " "}]},
        ])),
        &dialect(),
    );
    let roles: Vec<&str> =
        sent.body["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(sent.body["messages"][0]["content"], json!([{"text": "."}]));
    assert_eq!(
        sent.body["messages"][2]["content"],
        json!([{"toolResult": {"toolUseId": "t1", "content": [{"text": "r"}]}}, {"text": "and"}])
    );
    // The service requires tools where the conversation has calls.
    assert_eq!(sent.body["toolConfig"]["tools"][0]["toolSpec"]["name"], "unavailable");
}

#[test]
fn documents_have_valid_unique_names_and_a_text_beside_them() {
    let document = |name: &str| json!({"document": {"name": name, "source": {"bytes": "aGVsbG8="}}});
    let body = json!({"messages": [{"role": "user", "content": [
        document("my_report v1.0.pdf"), document("my report v1 0"), document("émile.txt"), document("???"),
        document(&"x".repeat(300)),
    ]}]});
    let sent = sent(&body);
    let content = sent.body["messages"][0]["content"].as_array().unwrap();
    let names: Vec<&str> = content.iter().filter_map(|block| block["document"]["name"].as_str()).collect();
    assert_eq!(names[..4], ["my report v1 0", "my report v1 0 (2)", "mile", "document"]);
    assert!(names.iter().all(|name| name.chars().count() <= 200));
    assert_eq!(content.last().unwrap(), &json!({"text": "See the document."}));
    let formats: Vec<&str> =
        content.iter().filter_map(|block| block["document"]["format"].as_str()).collect();
    assert_eq!(formats, ["pdf", "txt", "txt", "txt", "txt"]);
}

#[test]
fn media_that_the_service_cannot_read_is_refused() {
    let with =
        |block: Value| sent(&json!({"messages": [{"role": "user", "content": [{"text": "x"}, block]}]}));
    let svg = json!({"image": {"source": {"bytes": "PHN2Zz4="}}});
    assert_eq!(with(svg).refused.as_deref(), Some("image"));
    let binary = json!({"document": {"name": "x", "source": {"bytes": "AAECAwA="}}});
    assert_eq!(with(binary).refused.as_deref(), Some("file"));
    let sound = json!({"audio": {"format": "wav", "source": {"bytes": "UklGRgAA"}}});
    assert_eq!(with(sound).refused.as_deref(), Some("audio"));
    let stored = json!({"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/x.png"}}}});
    assert_eq!(with(stored.clone()).body["messages"][0]["content"][1], stored);
}

#[test]
fn reasoning_is_written_in_the_names_of_every_family() {
    let body = r#"{"messages":[{"role":"user","content":[{"text":"x"}]}],"inferenceConfig":{"maxTokens":100,"temperature":0.5}}"#;
    let mut request = crate::wire::converse::request::decode(body).unwrap();
    request.thinking = Thinking::Effort(Effort::High);
    let budget = send(Format::Chat, &request, &dialect()).body;
    assert_eq!(
        budget["additionalModelRequestFields"],
        json!({"thinking": {"type": "enabled", "budget_tokens": 16384}})
    );
    // The limit covers the budget as well, and a model that reasons takes no temperature.
    assert_eq!(budget["inferenceConfig"], json!({"maxTokens": 16484}));
    let effort = ReasoningSupport::efforts(Effort::Low, Effort::High, false);
    for (renames, fields) in [
        (&[][..], json!({"reasoning_effort": "high"})),
        (&[("reasoning_effort", "reasoning_config")], json!({"reasoning_config": "high"})),
        (
            &[("reasoning_effort", "reasoningConfig")],
            json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ),
    ] {
        let quirks: &'static Quirks = Box::leak(Box::new(Quirks { renames, ..Quirks::PLAIN }));
        let dialect = Dialect { reasoning: effort, quirks, ..dialect() };
        assert_eq!(send(Format::Chat, &request, &dialect).body["additionalModelRequestFields"], fields);
    }
    let adaptive = ReasoningSupport::adaptive(Effort::Max, true);
    let sent = send(Format::Chat, &request, &Dialect { reasoning: adaptive, ..dialect() });
    assert_eq!(
        sent.body["additionalModelRequestFields"],
        json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}})
    );
}

#[test]
fn only_the_last_cache_points_are_written() {
    let point = json!({"cachePoint": {"type": "default"}});
    let turn = json!({"role": "user", "content": [
        {"text": "1"}, point, {"text": "2"}, point, {"text": "3"}, point, {"text": "4"}, point,
    ]});
    let body = json!({
        "messages": [turn],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}, point]},
    });
    let sent = sent(&body);
    assert_eq!(sent.losses, ["cache_control"]);
    assert_eq!(sent.body["toolConfig"]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(sent.body["messages"], body["messages"]);
}

#[test]
fn ids_and_failed_results_are_those_that_the_service_accepts() {
    let long = "call__gw1__".repeat(20);
    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}});
    let result = |id: &str| json!({"toolResult": {"toolUseId": id, "status": "error", "content": []}});
    let body = json!({"messages": [
        {"role": "user", "content": [{"text": "x"}]},
        {"role": "assistant", "content": [call(&long), call("a b")]},
        {"role": "user", "content": [result(&long), result("a b")]},
    ]});
    let sent = sent(&body);
    let id = |turn: usize, block: usize, member: &str| {
        sent.body["messages"][turn]["content"][block][member]["toolUseId"].as_str().unwrap().to_owned()
    };
    assert_eq!((id(1, 0, "toolUse"), id(1, 1, "toolUse")), (id(2, 0, "toolResult"), id(2, 1, "toolResult")));
    assert!(id(1, 0, "toolUse").len() <= 64 && id(1, 1, "toolUse") == "a_b");
    let failed = &sent.body["messages"][2]["content"][0]["toolResult"];
    assert_eq!((&failed["status"], &failed["content"]), (&json!("error"), &json!([{"text": "error"}])));
}

#[test]
fn forbidden_tools_are_left_out_unless_the_conversation_has_calls() {
    use crate::canonical::ToolChoice;
    let tools =
        r#""toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}]}"#;
    let body = format!(r#"{{"messages":[{{"role":"user","content":[{{"text":"x"}}]}}],{tools}}}"#);
    let mut request = crate::wire::converse::request::decode(&body).unwrap();
    request.tool_choice = Some(ToolChoice::None);
    let sent = send(Format::Chat, &request, &dialect());
    assert_eq!((&sent.body["toolConfig"], sent.losses.len()), (&Value::Null, 0));
    let call = r#"{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","name":"f","input":{}}}]}"#;
    let body = format!(r#"{{"messages":[{call}],{tools}}}"#);
    let mut request = crate::wire::converse::request::decode(&body).unwrap();
    request.tool_choice = Some(ToolChoice::None);
    let sent = send(Format::Chat, &request, &dialect());
    assert_eq!(sent.body["toolConfig"]["tools"][0]["toolSpec"]["name"], "f");
    assert_eq!(sent.losses, ["tool_choice"]);
}

#[test]
fn several_calls_in_a_turn_are_forbidden_where_the_model_can() {
    use crate::canonical::ToolChoice;
    let body = r#"{"messages":[{"role":"user","content":[{"text":"x"}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}],"toolChoice":{"auto":{}}}}"#;
    let mut request = crate::wire::converse::request::decode(body).unwrap();
    request.parallel_tools = Some(false);
    let without = send(Format::Chat, &request, &dialect());
    assert_eq!(without.losses, ["parallel_tool_calls"]);
    assert_eq!(without.body["additionalModelRequestFields"], Value::Null);
    let able = Dialect { extensions: &["disable_parallel_tool_use"], ..dialect() };
    let sent = send(Format::Chat, &request, &able);
    assert!(sent.losses.is_empty());
    let single = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    assert_eq!(sent.body["additionalModelRequestFields"], single);
    // The two choices would exclude each other.
    assert_eq!(sent.body["toolConfig"]["toolChoice"], Value::Null);
    request.tool_choice = Some(ToolChoice::Required);
    let forced = send(Format::Chat, &request, &able);
    assert_eq!(forced.losses, ["parallel_tool_calls"]);
    assert_eq!(forced.body["toolConfig"]["toolChoice"], json!({"any": {}}));
}

#[test]
fn schemas_are_those_that_the_service_accepts() {
    let limited = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}});
    let body = json!({
        "messages": [{"role": "user", "content": [{"text": "a"}]}],
        "toolConfig": {"tools": [
            {"toolSpec": {"name": "f", "strict": true, "inputSchema": {"json": limited}}},
            {"toolSpec": {"name": "g", "inputSchema": {"json": {"properties": {"a": {"minimum": 1}}}}}},
        ]},
    });
    let closed = json!({"type": "object", "properties": {"n": {"type": "integer", "description": "{minimum: 1}"}},
        "additionalProperties": false});
    let body = body.to_string();
    let mut request = super::super::request::decode(&body).unwrap();
    let text = limited.to_string();
    let (name, description) = (JsonStr::default(), JsonStr::default());
    let schema = RawJson::from_text(&text);
    request.output = OutputFormat::Schema { name, description, schema, openapi: false, strict: None };
    let body = send(Format::Messages, &request, &dialect()).body;
    let schema = |index: usize| body["toolConfig"]["tools"][index]["toolSpec"]["inputSchema"]["json"].clone();
    assert_eq!(schema(0), closed);
    assert_eq!(
        (&schema(1)["type"], &schema(1)["properties"]),
        (&json!("object"), &json!({"a": {"minimum": 1}}))
    );
    let format = &body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"];
    assert_eq!(serde_json::from_str::<Value>(format.as_str().unwrap()).unwrap(), closed);
}
