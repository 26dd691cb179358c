//! Prompt caching of translated requests: cache marks stand where those of a forwarded body stand, and keys are set
//! only where none is.

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::made_with;
use crate::canonical::{BreakpointRule, CacheBreakpoint};
use crate::provider::ProviderKind;
use crate::translate::PromptCaching;
use crate::wire::request::BodyReader;
use crate::wire::{Api, Format};

const RULE: BreakpointRule = BreakpointRule {
    instructions: CacheBreakpoint::Long,
    turns: CacheBreakpoint::Short,
    min_tokens: 0,
    tools: true,
};

/// Translates a request for a provider of the messages format.
fn to_messages(from: Format, caching: PromptCaching<'_>, body: &Value) -> (String, u8) {
    let made = made_with(
        caching,
        None,
        ProviderKind::Anthropic,
        "claude-sonnet-4-5",
        [from, Format::Messages],
        body,
    );
    (String::from_utf8(made.text().to_vec()).unwrap(), made.breakpoints)
}

/// Translates a request for Claude through Converse.
fn to_converse(from: Format, caching: PromptCaching<'_>, body: &Value) -> (String, u8) {
    let model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let made = made_with(caching, None, ProviderKind::Bedrock, model, [from, Format::Converse], body);
    (String::from_utf8(made.text().to_vec()).unwrap(), made.breakpoints)
}

/// Sets the marks of a body that is forwarded.
fn forwarded(body: &str) -> (String, u8) {
    forwarded_to(Api::Messages, body)
}

fn forwarded_to(api: Api, body: &str) -> (String, u8) {
    let mut reader = BodyReader::new(api, false);
    reader.push(Bytes::copy_from_slice(body.as_bytes())).unwrap();
    let body = reader.finish().unwrap();
    let edits = body.breakpoints(&RULE);
    let text = body.text.clone().edited(&edits.edits).into_contiguous();
    (String::from_utf8(text.to_vec()).unwrap(), edits.marks)
}

fn function(name: &str) -> Value {
    json!({"name": name, "parameters": {"type": "object", "properties": {}}})
}

/// Conversations of an agent, in the three formats without cache marks of their own.
fn conversations() -> Vec<(Format, Value)> {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let tool = |name: &str| json!({"type": "function", "function": function(name)});
    let chat = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [call("x"), call("y")]},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]},
    ]);
    let mut all: Vec<(Format, Value)> = (2..=7)
        .map(|count| {
            let turns: Vec<Value> = chat.as_array().unwrap().iter().take(count).cloned().collect();
            (Format::Chat, json!({"model": "m", "messages": turns, "tools": [tool("e"), tool("f")]}))
        })
        .collect();
    all.push((Format::Chat, json!({"model": "m", "messages": [{"role": "user", "content": "a"}]})));
    all.push((Format::Chat, json!({"model": "m", "messages": [{"role": "system", "content": "s"}]})));
    all.push((
        Format::Responses,
        json!({"model": "m", "instructions": "be brief", "input": [
            {"role": "user", "content": "a"},
            {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "x", "output": "1"},
        ], "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}]}),
    ));
    all.push((
        Format::Generate,
        json!({"systemInstruction": {"parts": [{"text": "be brief"}]}, "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "1"}}}]},
        ], "tools": [{"functionDeclarations": [function("f")]}]}),
    ));
    all
}

#[test]
fn caching_of_a_translated_request_sets_the_marks_of_a_forwarded_one() {
    let caching = PromptCaching { breakpoints: Some(RULE), key: None };
    for (from, body) in conversations() {
        let (plain, none) = to_messages(from, PromptCaching::default(), &body);
        assert!(none == 0 && !plain.contains("cache_control"), "{plain}");
        assert_eq!(to_messages(from, caching, &body), forwarded(&plain), "{body}");
    }
}

#[test]
fn caching_of_a_request_for_converse_sets_the_points_of_a_forwarded_one() {
    let caching = PromptCaching { breakpoints: Some(RULE), key: None };
    for (from, body) in conversations() {
        let (plain, none) = to_converse(from, PromptCaching::default(), &body);
        assert!(none == 0 && !plain.contains("cachePoint"), "{plain}");
        assert_eq!(to_converse(from, caching, &body), forwarded_to(Api::Converse, &plain), "{body}");
    }
}

#[test]
fn caching_of_a_forwarded_converse_body_stands_behind_the_lists() {
    let point = r#",{"cachePoint":{"type":"default"}}"#;
    let hour = r#",{"cachePoint":{"type":"default","ttl":"1h"}}"#;
    for (body, expected) in [
        // Members in any order, with white space, and with a choice of a tool behind the tools.
        (
            r#"{"messages":[{"content":[{"text":"a"} ],"role":"user"},{"role":"assistant","content":[{"text":"b"}]},{"role":"user","content":[{"text":"c]"}]}],"toolConfig":{"tools" : [ {"toolSpec":{}} ] ,"toolChoice":{"any":{}}},"system":[{"text":"s"}]}"#.to_owned(),
            format!(r#"{{"messages":[{{"content":[{{"text":"a"}} {point}],"role":"user"}},{{"role":"assistant","content":[{{"text":"b"}}]}},{{"role":"user","content":[{{"text":"c]"}}{point}]}}],"toolConfig":{{"tools" : [ {{"toolSpec":{{}}}} {hour}] ,"toolChoice":{{"any":{{}}}}}},"system":[{{"text":"s"}}{hour}]}}"#),
        ),
        // Empty lists, and a single question without tools.
        (
            r#"{"system":[],"toolConfig":{"tools":[ ]},"messages":[{"role":"user","content":[{"text":"a"}]}]}"#.to_owned(),
            r#"{"system":[],"toolConfig":{"tools":[ ]},"messages":[{"role":"user","content":[{"text":"a"}]}]}"#.to_owned(),
        ),
    ] {
        assert_eq!(forwarded_to(Api::Converse, &body).0, expected);
    }
    // The name of a point that arrives in two pieces.
    let body = r#"{"system":[{"text":"s"},{"cachePoint":{"type":"default"}}],"messages":[{"role":"user","content":[{"text":"a"}]}]}"#;
    for cut in 0..body.len() {
        let mut reader = BodyReader::new(Api::Converse, false);
        for piece in [&body[..cut], &body[cut..]] {
            reader.push(Bytes::copy_from_slice(piece.as_bytes())).unwrap();
        }
        assert_eq!(reader.finish().unwrap().breakpoints(&RULE).marks, 0, "{cut}");
    }
}

#[test]
fn caching_of_a_translated_request_keeps_its_prefix_from_turn_to_turn() {
    let caching = PromptCaching { breakpoints: Some(RULE), key: None };
    let unmarked = |text: &str| {
        text.replace(r#","ttl":"1h""#, "").replace(r#","cache_control":{"type":"ephemeral"}"#, "")
    };
    let mut before: Option<String> = None;
    // A request ends with a call, or between its results, only if the client was interrupted.
    let is_whole =
        |(_, body): &(Format, Value)| !matches!(body["messages"].as_array().map(Vec::len), Some(3 | 4));
    for (from, body) in conversations().into_iter().take(6).filter(is_whole) {
        let (sent, _) = to_messages(from, caching, &body);
        let end = sent.rfind(r#","cache_control""#).unwrap();
        if let Some(before) = before.replace(unmarked(&sent[..end])) {
            assert!(unmarked(&sent).starts_with(&before), "{before} is no prefix of {sent}");
        }
    }
}

#[test]
fn caching_leaves_the_marks_of_a_client_alone() {
    let caching = PromptCaching { breakpoints: Some(RULE), key: None };
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]});
    let (plain, _) = to_messages(Format::Chat, PromptCaching::default(), &body);
    assert_eq!(to_messages(Format::Chat, caching, &body), (plain, 0));
}

#[test]
fn caching_sets_a_key_only_where_the_client_set_none() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
    let mut own = body.clone();
    own["prompt_cache_key"] = json!("own");
    let caching = PromptCaching { breakpoints: Some(RULE), key: Some("mgw-1") };
    for to in [Format::Chat, Format::Responses] {
        for (body, expected) in [(&body, "mgw-1"), (&own, "own")] {
            let from = if to == Format::Chat { Format::Messages } else { Format::Chat };
            let mut body = body.clone();
            if from == Format::Messages {
                if body.get("prompt_cache_key").is_some() {
                    continue;
                }
                body["max_tokens"] = json!(9);
            }
            let made = made_with(caching, None, ProviderKind::OpenAi, "gpt-5.2", [from, to], &body);
            let sent: Value = serde_json::from_slice(&made.text()).unwrap();
            assert_eq!(sent["prompt_cache_key"], *expected, "{sent}");
            assert!(made.losses.is_empty() && made.breakpoints == 0);
        }
    }
}
