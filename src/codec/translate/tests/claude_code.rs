//! Elements of Claude Code's requests, for providers of each format.

use serde_json::{Value, json};

use super::requests::sent;
use crate::provider::ProviderKind;
use crate::wire::Format;

/// Providers of the formats other than messages.
const OTHERS: [(ProviderKind, &str, Format); 3] = [
    (ProviderKind::OpenAi, "gpt-4.1", Format::Chat),
    (ProviderKind::OpenAi, "gpt-5.2", Format::Responses),
    (ProviderKind::Gemini, "gemini-2.5-flash", Format::Generate),
];

fn to_claude(body: &Value) -> (Value, Vec<String>) {
    sent(ProviderKind::Anthropic, "claude-opus-4-8", Format::Messages, Format::Messages, body)
}

fn request(members: Value) -> Value {
    let mut body =
        json!({"model": "m", "max_tokens": 32_000, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}})
}

/// Returns the names of the offered tools.
fn tools(body: &Value) -> Vec<&str> {
    let all = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let declared = all.first().and_then(|first| first["functionDeclarations"].as_array());
    let all = declared.map_or(all, Vec::as_slice);
    all.iter()
        .map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()).unwrap())
        .collect()
}

#[test]
fn mapping_12_billing_header_with_a_changing_number_reaches_anthropic_only() {
    let line = |nonce: &str| {
        format!("x-anthropic-billing-header: cc_version=2.1.330.1a2; cc_entrypoint=cli; cch={nonce};")
    };
    let block = |text: &str| json!({"type": "text", "text": text});
    let in_a_block =
        |nonce: &str| request(json!({"system": [block(&line(nonce)), block("You are an agent.")]}));
    let in_a_string = |nonce: &str| request(json!({"system": format!("{}\nYou are an agent.", line(nonce))}));
    let alone = |nonce: &str| request(json!({"system": line(nonce)}));
    let nova = (ProviderKind::Bedrock, "amazon.nova-pro-v1:0", Format::Converse);
    for (kind, model, to) in OTHERS.into_iter().chain([nova]) {
        let prompt = |body: &Value| sent(kind, model, Format::Messages, to, body).0.to_string();
        assert!(prompt(&in_a_block("36ee5")).contains("You are an agent."));
        assert!(prompt(&in_a_string("36ee5")).contains("\"You are an agent.\""));
        let bodies: [&dyn Fn(&str) -> Value; 2] = [&in_a_block, &in_a_string];
        for body in bodies {
            assert_eq!(prompt(&body("36ee5")), prompt(&body("0aaa9")), "{to}");
        }
        assert!(!prompt(&alone("36ee5")).contains("billing"), "{to}");
    }
    // A line that is the same in all requests of a conversation stays, and so does another text that speaks of it.
    let stays = |text: &str| {
        let body = request(json!({"system": [block(text), block("You are an agent.")]}));
        let (sent, losses) = sent(ProviderKind::OpenAi, "gpt-4.1", Format::Messages, Format::Chat, &body);
        assert!(sent.to_string().contains(text) && losses.is_empty(), "{sent} {losses:?}");
    };
    stays("x-anthropic-billing-header: cc_version=2.1.330.1a2; cc_entrypoint=cli;");
    stays("Never print x-anthropic-billing-header: cc_version=1; cch=1;");
    assert_eq!(to_claude(&in_a_block("36ee5")).0["system"][0]["text"], line("36ee5"));
}

#[test]
fn mapping_12_tools_found_by_a_search_are_named_in_the_result() {
    let reference = |name: &str| json!({"type": "tool_reference", "tool_name": name});
    let body = request(json!({"tools": [tool("ToolSearch"), tool("WebFetch")], "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "select:WebFetch"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
            "content": [reference("WebFetch"), reference("mcp__git__log")]}]},
    ]}));
    for (kind, model, to) in OTHERS {
        let (sent, losses) = sent(kind, model, Format::Messages, to, &body);
        let result = match to {
            Format::Chat => &sent["messages"][2]["content"],
            Format::Responses => &sent["input"][2]["output"],
            _ => &sent["contents"][2]["parts"][0]["functionResponse"],
        };
        let text = result.to_string();
        assert!(text.contains("can be called now") && text.contains("WebFetch"), "{text}");
        assert!(text.contains("mcp__git__log"), "{text}");
        assert!(losses.is_empty(), "{losses:?}");
    }
    assert_eq!(to_claude(&body).0["messages"][2], body["messages"][2]);
}

#[test]
fn mapping_12_tool_result_of_unknown_blocks_only_is_an_empty_text() {
    let body = request(json!({"tools": [tool("f")], "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
            "content": [{"type": "browser_snapshot", "id": 1}]}]},
    ]}));
    for (kind, model, to) in OTHERS {
        let (sent, losses) = sent(kind, model, Format::Messages, to, &body);
        assert_eq!(losses, ["server_tool_block"]);
        match to {
            Format::Chat => assert_eq!(sent["messages"][2]["content"], ""),
            Format::Responses => assert_eq!(sent["input"][2]["output"], ""),
            _ => assert!(sent["contents"][2]["parts"][0]["functionResponse"]["response"].is_object()),
        }
    }
}

#[test]
fn mapping_12_tool_changes_are_applied_to_the_list_of_tools() {
    let by_name = |name: &str| json!({"type": "tool_reference", "name": name});
    let change = |kind: &str, tool: Value| json!({"type": kind, "tool": tool});
    let defined = |name: &str| json!({"type": "tool_definition", "definition": tool(name)});
    let system = |blocks: Value| json!({"role": "system", "content": blocks});
    let body = request(json!({"tools": [tool("Bash"), tool("Read"), tool("Grep")], "messages": [
        {"role": "user", "content": "hi"},
        system(json!([change("tool_removal", by_name("Bash")), change("tool_removal", by_name("Grep"))])),
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "go on"},
        system(json!([
            {"type": "text", "text": "Tools changed."},
            change("tool_addition", by_name("Grep")),
            change("tool_addition", defined("mcp__notes__save")),
            change("tool_addition", defined("Read")),
        ])),
    ]}));
    for (kind, model, to) in OTHERS {
        let (sent, losses) = sent(kind, model, Format::Messages, to, &body);
        assert_eq!(tools(&sent), ["Grep", "mcp__notes__save", "Read"], "{sent}");
        assert!(sent.to_string().contains("Tools changed.") && losses.is_empty(), "{losses:?}");
        assert!(!sent.to_string().contains("tool_removal"));
    }
    let (own, losses) = to_claude(&body);
    assert_eq!((tools(&own), losses.len()), (vec!["Bash", "Read", "Grep"], 0));
    assert_eq!(own["messages"][1], body["messages"][1]);
    // A change that cannot be read is lost, and named.
    let body = request(json!({"tools": [tool("Bash")], "messages": [
        {"role": "user", "content": "hi"}, system(json!([change("tool_removal", json!("Bash"))]))]}));
    for (kind, model, to) in OTHERS {
        let (sent, losses) = sent(kind, model, Format::Messages, to, &body);
        assert_eq!((tools(&sent), losses), (vec!["Bash"], vec!["server_tool_block".to_owned()]));
    }
}

#[test]
fn mapping_12_search_over_tools_is_dropped_and_the_tools_stay() {
    let mut deferred = tool("WebFetch");
    deferred["defer_loading"] = json!(true);
    deferred["eager_input_streaming"] = json!(true);
    let search = json!({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"});
    let body = request(json!({"tools": [tool("Bash"), deferred, search]}));
    for (kind, model, to) in OTHERS {
        let (sent, mut losses) = sent(kind, model, Format::Messages, to, &body);
        losses.sort();
        assert_eq!(tools(&sent), ["Bash", "WebFetch"]);
        assert_eq!(losses, ["defer_loading", "eager_input_streaming", "tool_search_tool"]);
    }
    let (own, losses) = to_claude(&body);
    assert_eq!((&own["tools"], losses.len()), (&body["tools"], 0));
}

#[test]
fn mapping_6_user_longer_than_openai_permits_is_dropped() {
    let id = json!({"device_id": "0".repeat(64), "account_uuid": "", "session_id": "1"}).to_string();
    for (user, is_sent) in [(id, false), ("u".repeat(65), false), ("ü".repeat(64), true)] {
        let body = request(json!({"metadata": {"user_id": user}}));
        for (kind, model, to) in [OTHERS[0], OTHERS[1]] {
            let (sent, losses) = sent(kind, model, Format::Messages, to, &body);
            assert_eq!((sent.get("user").is_some(), losses.is_empty()), (is_sent, is_sent), "{sent}");
        }
        assert_eq!(to_claude(&body).0["metadata"], body["metadata"]);
    }
}

#[test]
fn mapping_4_adaptive_thinking_with_its_display_is_carried() {
    for (display, shown) in [("updates", true), ("summarized", true), ("omitted", false)] {
        let thinking = json!({"type": "adaptive", "display": display});
        let body = request(json!({"thinking": thinking, "output_config": {"effort": "high"}}));
        let (sent_to_gpt, losses) =
            sent(ProviderKind::OpenAi, "gpt-5.2", Format::Messages, Format::Responses, &body);
        assert_eq!(sent_to_gpt["reasoning"]["effort"], "high");
        assert_eq!(sent_to_gpt["reasoning"].get("summary").is_some(), shown);
        assert!(losses.is_empty(), "{losses:?}");
        let (sent_to_gemini, _) =
            sent(ProviderKind::Gemini, "gemini-2.5-flash", Format::Messages, Format::Generate, &body);
        let config = &sent_to_gemini["generationConfig"]["thinkingConfig"];
        assert_eq!(config["includeThoughts"], shown);
        let (sent_to_chat, _) = sent(ProviderKind::OpenAi, "gpt-5.2", Format::Messages, Format::Chat, &body);
        assert_eq!(sent_to_chat["reasoning_effort"], "high");
        assert_eq!(to_claude(&body).0["output_config"], body["output_config"]);
    }
}

#[test]
fn mapping_12_members_that_only_anthropic_knows_never_fail_a_request() {
    let body = request(
        json!({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "safeguards": {"mode": "auto"}, "of_tomorrow": [1], "speed": "standard"}),
    );
    for (kind, model, to) in OTHERS {
        let (_, mut losses) = sent(kind, model, Format::Messages, to, &body);
        losses.sort();
        assert_eq!(losses, ["context_management", "of_tomorrow", "safeguards", "speed"]);
    }
    let (own, losses) = to_claude(&body);
    for name in ["context_management", "safeguards", "of_tomorrow", "speed"] {
        assert_eq!(own[name], body[name]);
    }
    assert!(losses.is_empty());
}
