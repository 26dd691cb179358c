//! Whether a provider takes a request: the checks of the simulated providers, and of providers of chat completions that no
//! server simulates, as a function of the body. The rules of models are in `model_rules` and `open_rules`.

use serde_json::Value;

use super::{anthropic, bedrock, compatible, google, openai};

/// API of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationApi {
    /// Chat completions.
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
    /// Content generation.
    Generate,
    /// Converse.
    Converse,
}

/// Request of a provider's API.
#[derive(Debug, Clone, Copy)]
pub struct CheckedRequest<'r> {
    /// Provider: `openai`, `anthropic`, `deepseek` ...
    pub provider: &'r str,
    /// API.
    pub api: ConversationApi,
    /// Model, where it is not in the body.
    pub model: &'r str,
    /// Body.
    pub body: &'r Value,
    /// Whether a stream is requested.
    pub stream: bool,
}

/// Returns why the provider refuses a request; `None` if it takes it.
pub fn refusal(request: &CheckedRequest<'_>) -> Option<String> {
    let CheckedRequest { provider, api, model, body, stream } = *request;
    match api {
        ConversationApi::Chat if matches!(provider, "openai" | "azure") => openai::chat_refusal(body),
        ConversationApi::Chat => compatible::refusal(provider, body),
        ConversationApi::Responses => openai::responses_refusal(body),
        ConversationApi::Messages => anthropic::refusal(&of_messages(body, model), provider == "bedrock"),
        ConversationApi::Generate => google::refusal(body, model, stream),
        ConversationApi::Converse => bedrock::refusal(body, model, stream),
    }
}

/// Returns the body as Anthropic's own API has it: cloud platforms have the model in the path.
fn of_messages(body: &Value, model: &str) -> Value {
    let mut body = body.clone();
    if let Some(members) = body.as_object_mut() {
        members.shift_remove("anthropic_version");
        let name = model.rsplit("anthropic.").next().unwrap_or(model);
        members.insert("model".to_owned(), name.into());
    }
    body
}
