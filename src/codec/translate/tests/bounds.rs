//! Limits on the number of elements in a request.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::requests::sent;
use crate::canonical::Thinking;
use crate::canonical::answer::{MAX_BLOCKS, MAX_CHOICES};
use crate::error::{ApiError, ErrorKind};
use crate::provider::{BaseUrl, Provider, ProviderKind, Setup};
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{
    EncodeError, MOST_CALLS, MOST_PARTS, MOST_TOOLS, Outgoing, Restore, TranslateRequest, Translated,
    outgoing,
};
use crate::wire::Format;
use crate::wire::codec::{MOST_LOSSES, ReplyOptions};
use crate::wire::loss::LossPolicy;
use json::EscapedString;

/// Translates a request into another format.
fn translate(client: Format, body: &str) -> Result<Outgoing, EncodeError> {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let (kind, format, model) = match client {
        Format::Messages => (ProviderKind::OpenAi, Format::Chat, "gpt-4.1"),
        _ => (ProviderKind::Anthropic, Format::Messages, "claude-sonnet-4-5"),
    };
    let provider = Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![format.api()], base });
    let ask = TranslateRequest {
        client,
        provider: format,
        stream: false,
        array: false,
        thinking: Thinking::Unset,
        dialect: &provider.dialect(format.api(), model),
        model: &EscapedString::from(model),
        id: "req_1",
        seed: "req_1",
        now: 0,
    };
    outgoing(&body.into(), &ask)
}

fn list(n: usize, make: impl Fn(usize) -> String) -> String {
    (0..n).map(make).collect::<Vec<_>>().join(",")
}

fn refused(client: Format, body: &str) -> ApiError {
    translate(client, body).unwrap_err().error
}

#[test]
fn bound_on_tools_names_the_member() {
    let body = |tools: usize| {
        let tools = list(tools, |i| format!(r#"{{"type":"function","function":{{"name":"t{i}"}}}}"#));
        format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"tools":[{tools}]}}"#)
    };
    assert!(translate(Format::Chat, &body(MOST_TOOLS)).is_ok());
    let error = refused(Format::Chat, &body(MOST_TOOLS + 1));
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidField, Some("tools")));
    assert!(error.message.contains("4096"), "{}", error.message);
    let names = list(MOST_TOOLS + 1, |i| format!(r#"{{"type":"function","name":"t{i}"}}"#));
    let body = format!(
        r#"{{"input":"x","tools":[{{"type":"function","name":"t"}}],"tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{names}]}}}}"#
    );
    assert_eq!(refused(Format::Responses, &body).param.as_deref(), Some("tool_choice"));
}

#[test]
fn bound_on_calls_and_parts_names_the_member() {
    let calls = list(MOST_CALLS + 1, |i| {
        format!(r#"{{"type":"function_call","call_id":"c{i}","name":"t","arguments":"{{}}"}}"#)
    });
    let error = refused(Format::Responses, &format!(r#"{{"input":[{calls}]}}"#));
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidField, Some("input")));
    assert!(error.message.contains("tool calls"), "{}", error.message);
    let parts = list(MOST_PARTS, |_| r#"{"text":"x"}"#.to_owned());
    let error = refused(Format::Generate, &format!(r#"{{"contents":[{{"parts":[{parts}]}}]}}"#));
    assert_eq!(error.param.as_deref(), Some("contents"));
    let results = list(MOST_PARTS, |_| r#"{"type":"text","text":"x"}"#.to_owned());
    let body = format!(
        r#"{{"max_tokens":1,"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"x","content":[{results}]}}]}}]}}"#
    );
    assert_eq!(refused(Format::Messages, &body).param.as_deref(), Some("messages"));
}

#[test]
fn bound_on_losses_keeps_warnings_and_refusals() {
    let unknown = list(5_000, |i| format!(r#""k{i}":1"#));
    let body = format!(r#"{{"messages":[{{"role":"user","content":"x"}}],{unknown}}}"#);
    let losses = translate(Format::Chat, &body).unwrap().losses;
    assert_eq!(losses.len(), MOST_LOSSES);
    assert!(losses.iter().any(|loss| loss.policy == LossPolicy::Warn));
    // An unsupported member is refused even if it comes late.
    let body = format!(r#"{{"input":"x",{unknown},"background":true}}"#);
    assert_eq!(refused(Format::Responses, &body).param.as_deref(), Some("background"));
}

/// Each type of a schema once became a branch with a copy of the rest, at each level, which grew exponentially.
#[test]
fn bound_on_schema_growth_holds_for_repeated_types() {
    let mut schema = json!({"type": "string"});
    for _ in 0..40 {
        schema = json!({"type": ["object", "object"], "properties": {"p": schema}});
    }
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let body = json!({"messages": [{"role": "user", "content": "x"}], "response_format": format});
    let (sent, _) = sent(ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Chat, Format::Messages, &body);
    assert!(sent.to_string().len() < 20_000);
    // A schema that names more types than exist passes unchanged.
    let types: Vec<String> = (0..1_000).map(|n| format!("type{n}")).collect();
    let schema = json!({"type": types, "properties": {"p": {"type": "string"}}});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let body = json!({"messages": [{"role": "user", "content": "x"}], "response_format": format});
    let (sent, _) = super::requests::sent(
        ProviderKind::Anthropic,
        "claude-sonnet-4-5",
        Format::Chat,
        Format::Messages,
        &body,
    );
    assert!(sent.to_string().len() < 3 * body.to_string().len());
}

fn answered(provider: Format, body: String) -> bool {
    let route = Route { client: Format::Generate, provider, stream: false };
    let reply = Arc::new(ReplyOptions::default());
    let mut translated = Translated::new(&route, Arrival::Whole, reply, Restore::default(), 1 << 28);
    translated.whole(Bytes::from(body)).is_ok()
}

#[test]
fn bound_on_choices_and_parts_makes_the_response_invalid() {
    let chat = |index: u32| {
        format!(
            r#"{{"id":"x","choices":[{{"index":{index},"message":{{"content":"x"}},"finish_reason":"stop"}}]}}"#
        )
    };
    assert!(answered(Format::Chat, chat(MAX_CHOICES - 1)));
    assert!(!answered(Format::Chat, chat(MAX_CHOICES)));
    assert!(!answered(Format::Chat, chat(u32::MAX)));
    let generate = |index: u32| {
        format!(
            r#"{{"candidates":[{{"index":{index},"content":{{"parts":[{{"text":"x"}}]}},"finishReason":"STOP"}}],"responseId":"x"}}"#
        )
    };
    assert!(answered(Format::Generate, generate(MAX_CHOICES - 1)));
    assert!(!answered(Format::Generate, generate(MAX_CHOICES)));
    let texts = list(MAX_BLOCKS as usize + 1, |_| r#"{"type":"text","text":"x"}"#.to_owned());
    let body = format!(
        r#"{{"id":"x","type":"message","role":"assistant","model":"m","content":[{texts}],"stop_reason":"end_turn","usage":{{"input_tokens":1,"output_tokens":1}}}}"#
    );
    assert!(!answered(Format::Messages, body));
}
