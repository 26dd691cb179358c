//! Clients of the target's own format, whose request the target does not take: it is encoded again for it, and what the
//! canonical model does not know is still there.

use model_gateway::canonical::{Dialect, RequestFeatures as Features};
use model_gateway::provider::{BaseUrl, Provider, ProviderKind, Setup};
use model_gateway::wire::{Api, Format};
use serde_json::{Value, json};

use crate::{at, go, sent_from, translated};

fn claude(kind: ProviderKind) -> Provider {
    let base = BaseUrl::parse("https://api.anthropic.com").unwrap();
    Provider::new(Setup { name: "anthropic".to_owned(), kind, apis: vec![Api::Messages], base })
}

fn roles(body: &Value) -> Vec<&str> {
    body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn claude_refuses_what_its_version_does_not_take() {
    let provider = claude(ProviderKind::Anthropic);
    let refuses =
        |model: &str, feature: Features| provider.dialect(Api::Messages, model).refuses.intersects(feature);
    for (model, adaptive, effort, later, misplaced, forced, sampling) in [
        ("claude-3-5-sonnet-20241022", true, true, true, false, false, false),
        ("claude-sonnet-4-5", true, true, true, false, false, false),
        ("claude-opus-4-5-20251101", true, false, true, false, false, false),
        ("claude-opus-4-6", false, false, true, false, false, false),
        ("claude-opus-4-7", false, false, true, false, false, true),
        ("claude-opus-4-8", false, false, false, true, false, true),
        ("claude-opus-5", false, false, false, true, false, true),
        ("claude-fable-5-1", false, false, false, true, true, true),
    ] {
        let found = [
            Features::ADAPTIVE,
            Features::EFFORT,
            Features::LATER_SYSTEM,
            Features::MISPLACED_SYSTEM,
            Features::FORCED_TOOL,
            Features::SAMPLING,
        ]
        .map(|feature| refuses(model, feature));
        assert_eq!(found, [adaptive, effort, later, misplaced, forced, sampling], "{model}");
        assert!(refuses(model, Features::ENVELOPE) && refuses(model, Features::UNSIGNED), "{model}");
    }
}

#[test]
fn claude_fallback_within_the_format_is_adapted_and_loses_nothing_else() {
    let body = json!({
        "model": "m", "max_tokens": 32000, "stream": true,
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"},
        "metadata": {"user_id": "u", "k": "v"}, "service_tier": "auto", "container": "c_1",
        "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral", "scope": "global"}}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "unheard": 1},
            {"type": "web_search_20260209", "name": "web_search", "max_uses": 3, "unheard": 2},
            {"type": "code_execution_20250825", "name": "code_execution"}],
        "messages": [
            {"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}, "title": "T", "context": "C", "citations": {"enabled": true}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "EqQB", "unheard": 3},
                {"type": "text", "text": "b", "citations": [{"type": "char_location"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "r"}]}]},
                {"type": "text", "text": "c"}]},
            {"role": "system", "content": "Plan mode."}],
    });
    let provider = claude(ProviderKind::VertexAnthropic);
    let dialect =
        Dialect { model: "claude-sonnet-4-5", ..provider.dialect(Api::Messages, "claude-sonnet-4-5") };
    let sent = translated(&dialect, Format::Messages, Format::Messages, &body.to_string());
    assert_eq!(roles(&sent), ["user", "assistant", "user"]);
    assert_eq!((&sent["thinking"]["type"], &sent["output_config"]), (&json!("enabled"), &Value::Null));
    assert_eq!(sent["system"], json!([body["system"][0], {"type": "text", "text": "Plan mode."}]));
    for at in [0, 1] {
        assert_eq!(sent["messages"][at], body["messages"][at]);
    }
    assert_eq!(sent["messages"][2], body["messages"][2]);
    for member in ["metadata", "service_tier", "container", "mcp_servers", "context_management", "tools"] {
        assert_eq!(sent[member], body[member], "{member}");
    }
}

#[test]
fn claude_instructions_in_the_middle_follow_a_turn_of_the_user() {
    let provider = claude(ProviderKind::Anthropic);
    let dialect = provider.dialect(Api::Messages, "claude-opus-5");
    let ask = |turns: &[(&str, &str)]| {
        let turns: Vec<Value> =
            turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect();
        let body = json!({"model": "m", "messages": turns}).to_string();
        translated(&dialect, Format::Chat, Format::Messages, &body)
    };
    let sent = ask(&[("user", "a"), ("developer", "D"), ("user", "b")]);
    assert_eq!(roles(&sent), ["user", "system"]);
    let sent = ask(&[
        ("user", "a"),
        ("assistant", "b"),
        ("system", "D1"),
        ("user", "c"),
        ("system", "D2"),
        ("assistant", "d"),
        ("user", "e"),
    ]);
    assert_eq!(roles(&sent), ["user", "assistant", "user", "system", "assistant", "user"]);
    assert_eq!(
        sent["messages"][3]["content"],
        json!([{"type": "text", "text": "D1"}, {"type": "text", "text": "D2"}])
    );
    // Without a place: before the conversation.
    let sent = ask(&[("user", "a"), ("assistant", "b"), ("system", "D")]);
    assert_eq!((roles(&sent)[..2].to_vec(), &sent["system"]), (vec!["user", "assistant"], &text("D")));
}

#[test]
fn claude_budget_stays_within_the_output_limit() {
    let provider = claude(ProviderKind::Anthropic);
    let dialect = provider.dialect(Api::Messages, "claude-opus-4-1");
    let body = r#"{"model":"m","max_tokens":30000,"thinking":{"type":"enabled","budget_tokens":31000},"messages":[{"role":"user","content":"a"}]}"#;
    let sent = go(&dialect, Format::Messages, Format::Messages, body).unwrap();
    let value: Value = serde_json::from_slice(&sent.text()).unwrap();
    assert_eq!((&value["max_tokens"], &value["thinking"]["budget_tokens"]), (&json!(32000), &json!(2000)));
    assert!(sent.losses.iter().any(|loss| loss.element == "budget_tokens" && loss.clamped));
}

#[test]
fn mistral_gets_a_bridge_and_no_reasoning() {
    let mistral = at("https://api.mistral.ai/v1");
    let body = json!({"model": "m", "messages": [
        {"role": "system", "content": "S1"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": [{"id": "call_aaaa", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_aaaa", "content": "ok"},
        {"role": "user", "content": "stop"}, {"role": "system", "content": "S2"}, {"role": "user", "content": "go"}]}).to_string();
    let dialect = mistral.dialect(Api::Chat, "mistral-large");
    assert!(!model_gateway::wire::chat::request::fits(&body, &dialect));
    let sent = sent_from(&mistral, "mistral-large", Format::Chat, &body);
    assert_eq!(roles(&sent), ["system", "system", "user", "assistant", "tool", "assistant", "user", "user"]);
    assert!(!sent.to_string().contains("hm"));
}

#[test]
fn text_only_model_gets_a_text_in_the_place_of_an_image() {
    let deepseek = at("https://api.deepseek.com/v1");
    let body = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#;
    let sent = go(&deepseek.dialect(Api::Chat, "deepseek-v4-pro"), Format::Chat, Format::Chat, body).unwrap();
    let text = String::from_utf8(sent.text().to_vec()).unwrap();
    assert!(!text.contains("AAAA") && text.contains("An image was here"), "{text}");
    assert!(sent.losses.iter().any(|loss| loss.element == "image"));
}

#[test]
fn moonshot_calls_have_reasoning_and_ids_of_its_own() {
    let kimi = at("https://api.moonshot.ai/v1");
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "functions_f_0__gw1id__p__ZnVuY3Rpb25zLmY6MA", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "functions_f_0__gw1id__p__ZnVuY3Rpb25zLmY6MA", "content": "ok"}]}]}).to_string();
    let sent = sent_from(&kimi, "kimi-k2.6", Format::Messages, &body);
    assert_eq!(sent["messages"][0]["tool_calls"][0]["id"], "functions.f:0");
    assert_eq!(sent["messages"][1]["tool_call_id"], "functions.f:0");
    assert!(sent["messages"][0]["reasoning_content"].is_string());
    // Another provider gets an id that it takes.
    let other = body.replace("__p__", "__other__");
    let sent = sent_from(&kimi, "kimi-k2.6", Format::Messages, &other);
    let id = sent["messages"][0]["tool_calls"][0]["id"].clone();
    assert!(id.as_str().unwrap().starts_with("call_") && sent["messages"][1]["tool_call_id"] == id);
}

#[test]
fn required_tool_switches_reasoning_off_that_is_on_by_default() {
    let deepseek = at("https://api.deepseek.com/v1");
    let ask = |thinking: &str| {
        let body = format!(
            r#"{{"model":"m",{thinking}"tool_choice":"required","tools":[{{"type":"function","function":{{"name":"f","parameters":{{"type":"object"}}}}}}],"messages":[{{"role":"user","content":"a"}}]}}"#
        );
        let sent = sent_from(&deepseek, "deepseek-v4-pro", Format::Chat, &body);
        (sent["thinking"]["type"].clone(), sent["tool_choice"].clone())
    };
    assert_eq!(ask(""), (json!("disabled"), json!("required")));
    assert_eq!(ask(r#""thinking":{"type":"enabled"},"#), (json!("enabled"), json!("auto")));
}
