//! Deviations of each provider, with clients of any format: the requests that it receives, and its responses.
//!
//! A test is named after the provider's row in docs/providers.md.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "it is a test")]

mod addresses;
mod answers;
mod own_format;
mod own_words;
mod requests;
mod servers;

use model_gateway::canonical::{Dialect, Thinking};
use model_gateway::json::EscapedString;
use model_gateway::provider::{BaseUrl, Provider, ProviderKind, Setup};
use model_gateway::translate::{EncodeError, Outgoing, TranslateRequest, outgoing};
use model_gateway::wire::{Api, Format};
use serde_json::Value;

/// Returns a provider of this kind at an address.
fn provider(kind: ProviderKind, base: &str) -> Provider {
    let base = BaseUrl::parse(base).unwrap();
    Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![Api::Chat], base })
}

/// Returns a provider of chat completions whose preset is recognized by its address.
fn at(base: &str) -> Provider {
    provider(ProviderKind::OpenAiCompatible, base)
}

/// Translates a request for a provider of chat completions.
fn ask(provider: &Provider, model: &str, from: Format, body: &str) -> Result<Outgoing, EncodeError> {
    go(&provider.dialect(Api::Chat, model), from, Format::Chat, body)
}

fn go(dialect: &Dialect<'_>, from: Format, to: Format, body: &str) -> Result<Outgoing, EncodeError> {
    outgoing(
        &body.into(),
        &TranslateRequest {
            client: from,
            provider: to,
            stream: serde_json::from_str::<Value>(body).unwrap()["stream"] == true,
            array: false,
            thinking: Thinking::Unset,
            dialect,
            model: &EscapedString::from(dialect.model),
            id: "req_1",
            seed: "req_1",
            now: 0,
        },
    )
}

/// Returns the translated body of a request.
fn translated(dialect: &Dialect<'_>, from: Format, to: Format, body: &str) -> Value {
    serde_json::from_slice(&go(dialect, from, to, body).unwrap().text()).unwrap()
}

/// Returns the body that a provider of chat completions receives for a request.
fn sent_from(provider: &Provider, model: &str, from: Format, body: &str) -> Value {
    serde_json::from_slice(&ask(provider, model, from, body).unwrap().text()).unwrap()
}

/// Returns the body that is sent for members of a chat request, and the names of the lost elements.
fn sent(provider: &Provider, model: &str, members: &str) -> (Value, Vec<String>) {
    let comma = if members.is_empty() { "" } else { "," };
    let messages = if members.contains("\"messages\"") {
        String::new()
    } else {
        format!(r#"{comma}"messages":[{{"role":"user","content":"Hi"}}]"#)
    };
    let body = format!(r#"{{"model":"m",{members}{messages}}}"#);
    let outgoing = ask(provider, model, Format::Chat, &body).unwrap();
    let losses = outgoing.losses.iter().map(|loss| loss.element.to_string()).collect();
    (serde_json::from_slice(&outgoing.text()).unwrap(), losses)
}

/// Returns the parameter for which a chat request with these members is refused.
fn refused(provider: &Provider, model: &str, members: &str) -> String {
    let body = format!(r#"{{"model":"m",{members},"messages":[{{"role":"user","content":"Hi"}}]}}"#);
    let refused = ask(provider, model, Format::Chat, &body).unwrap_err();
    refused.error.param.unwrap().into_owned()
}

const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{}}}},{"type":"function","function":{"name":"find","parameters":{"type":"object","properties":{}}}}]"#;

/// Returns members of a request with two tools and this tool choice.
fn choose(choice: &str) -> String {
    format!(r#"{TOOLS},"tool_choice":{choice}"#)
}

const ONE: &str = r#"{"type":"function","function":{"name":"find"}}"#;

fn tools_of(sent: &Value) -> Vec<&str> {
    let tools = sent["tools"].as_array();
    tools
        .map(|tools| tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect())
        .unwrap_or_default()
}
