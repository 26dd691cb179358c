//! Chains of targets of three providers: the last one takes what the client asked of the first one, whatever the format and what
//! the conversation holds.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup};
use crate::support::upstream::Upstream;

/// Provider, its kind and a model of it.
const PROVIDERS: [(SimulatedProvider, &str, &str); 3] = [
    (SimulatedProvider::OpenAi, "openai", "gpt-6.2-sol"),
    (SimulatedProvider::Anthropic, "anthropic", "claude-opus-5-5"),
    (SimulatedProvider::Google, "gemini", "gemini-4-argon"),
];

/// An id of a call as no provider makes it, and an envelope of what a fourth provider has signed.
const ID: &str = "call.0123456789:0123456789|0123456789_0123456789_0123456789_0123456789_0123456789";
const FOREIGN: &str = "gw1.elsewhere.Z0FBQUFBQm8";

fn body(form: Form) -> Value {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]});
    match form {
        Form::Chat => json!({
            "model": "chain", "max_tokens": 200_000, "temperature": 0.2, "top_k": 5, "stop": ["END"], "logit_bias": {"5": 1},
            "reasoning_effort": "minimal", "tool_choice": "required", "parallel_tool_calls": false,
            "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
            "messages": [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
                    {"id": ID, "type": "function", "function": {"name": "look", "arguments": "{\"a\":\"b\"}"}}]},
                {"role": "tool", "tool_call_id": ID, "content": "seen"},
                {"role": "system", "content": "In French."},
                {"role": "user", "content": [{"type": "text", "text": "Go on."}]}],
        }),
        Form::Messages => json!({
            "model": "chain", "max_tokens": 200_000, "temperature": 0.2, "thinking": {"type": "enabled", "budget_tokens": 150_000},
            "tool_choice": {"type": "tool", "name": "look"}, "tools": [{"name": "look", "input_schema": schema}],
            "messages": [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": FOREIGN},
                    {"type": "tool_use", "id": ID, "name": "look", "input": {"a": "b"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ID, "content": "seen"}]},
                {"role": "system", "content": "In French."}],
        }),
        Form::Responses => json!({
            "model": "chain", "max_output_tokens": 200_000, "temperature": 0.2, "reasoning": {"effort": "minimal"},
            "tool_choice": "required", "tools": [{"type": "function", "name": "look", "parameters": schema, "strict": false}],
            "input": [
                {"role": "user", "content": "Look."},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": FOREIGN},
                {"type": "function_call", "call_id": ID, "name": "look", "arguments": "{\"a\":\"b\"}"},
                {"type": "function_call_output", "call_id": ID, "output": "seen"},
                {"role": "developer", "content": "In French."},
                {"role": "user", "content": "Go on."}],
        }),
        Form::Generate => json!({
            "contents": [
                {"role": "user", "parts": [{"text": "Look."}]},
                {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"a": "b"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "seen"}}}]},
                {"role": "model", "parts": [{"text": "Well."}]}],
            "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": schema}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {"temperature": 0.2, "topK": 5, "maxOutputTokens": 200_000, "thinkingConfig": {"thinkingBudget": 0}},
        }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_target_of_a_chain_takes_what_was_asked_of_the_first() {
    let down = Upstream::answering(reply::json(503, "{}")).await;
    let mut simulators = Vec::new();
    let mut setup = Setup::new();
    for (provider, kind, _) in PROVIDERS {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let simulator = Simulator::start(provider, options).await.unwrap();
        let path = if kind == "gemini" { "v1beta" } else { "v1" };
        setup = setup.provider(&format!("up-{kind}"), kind, &simulator.base_url(), "").provider(
            &format!("down-{kind}"),
            kind,
            &format!("http://{}/{path}", down.addr),
            "",
        );
        simulators.push(simulator);
    }
    setup.routes = format!("[retry]\nattempts = 3\n\n{}", setup.routes);
    for last in 0..3 {
        let chain: Vec<String> = (1..=3)
            .map(|step| {
                let (_, kind, model) = PROVIDERS[(last + step) % 3];
                let state = if step == 3 { "up" } else { "down" };
                format!("{{ provider = \"{state}-{kind}\", model = \"{model}\", tier = {} }}", step - 1)
            })
            .collect();
        setup.routes += &format!("[[model]]\nid = \"chain-{last}\"\ntargets = [{}]\n\n", chain.join(", "));
    }
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {KEY}");
    for form in Form::ALL {
        for (last, (_, kind, _)) in PROVIDERS.into_iter().enumerate() {
            let name = format!("chain-{last}");
            let mut body = body(form);
            if form != Form::Generate {
                body["model"] = name.as_str().into();
            }
            let head = [("authorization", &*bearer)];
            let answer = gateway.ask(post_with(&form.path(&name, false), &head, body.to_string())).await;
            assert_eq!(answer.status(), 200, "{form:?} at {kind}: {}", answer.text());
        }
    }
}
