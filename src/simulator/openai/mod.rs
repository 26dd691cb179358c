//! Simulated OpenAI API.
//!
//! This file has the routes and headers. The submodules have the errors (`errors`), per format a request reader
//! (`chat`, `responses`, `input`), Azure's paths (`azure`), and a response writer (`chat_answer`, `response_answer`), the smaller endpoints
//! (`embeddings`, `images`, `models`), responses over a WebSocket (`socket`), the common parts of the formats (`tools`)
//! and the stored responses (`store`).
//! Other providers do not belong here.
//!
//! Sources: the types of openai-python 3.52, and recorded responses of the API from 2025 and 2026.

mod azure;
mod chat;
mod chat_answer;
mod compaction;
mod embeddings;
mod errors;
mod images;
mod input;
mod models;
mod response_answer;
mod responses;
mod service_tier;
pub(super) mod socket;
mod store;
mod tools;

use http::Method;
use serde_json::Value;

use super::envelope;
use super::http::{Reply, Request};
use super::ids::{Ids, hash};
use super::model_rules::{self, Sampling};
use super::server::Call;
use azure::Placed;
use errors::ApiError;
use store::{Store, StoreView};

/// API, with its stored responses.
#[derive(Debug, Default)]
pub(super) struct Site {
    store: Store,
    is_azure: bool,
}

impl Site {
    /// Returns the API as Azure serves it.
    pub(super) fn azure() -> Site {
        Site { is_azure: true, ..Site::default() }
    }

    pub(super) fn answer(&self, call: &Call<'_>) -> Reply {
        let mut ids = Ids::new(call.serial, &call.request.body);
        let request_id = ids.hex("req_", 32);
        let placed = match self.is_azure.then(|| azure::place(call.request, call.credential)) {
            None => None,
            Some(Ok(placed)) => Some(placed),
            Some(Err(refused)) => return refused.with("apim-request-id", request_id),
        };
        let reply = self.route(call, &ids, placed.as_ref()).unwrap_or_else(|error| error.reply());
        with_headers(reply.with_retry_after(), call.request, request_id)
    }

    fn view(&self) -> StoreView<'_> {
        StoreView { stored: &self.store, connection: None }
    }

    fn route(&self, call: &Call<'_>, ids: &Ids, placed: Option<&Placed>) -> Result<Reply, ApiError> {
        let request = call.request;
        if let Some(linked) = super::image::linked(request) {
            return Ok(linked);
        }
        if placed.is_none() {
            authorize(request, call.credential)?;
        }
        let path = placed.map_or(&*request.path, |placed| &*placed.path).trim_end_matches('/');
        let segments: Vec<&str> = path.strip_prefix("/v1/").unwrap_or_default().split('/').collect();
        let method = &request.method;
        let post = |reply: &dyn Fn(&Value) -> Result<Reply, ApiError>| match *method {
            Method::POST => {
                let mut body = body(request)?;
                let deployment = placed.and_then(|placed| placed.deployment.as_deref());
                if let (Some(deployment), Some(members)) = (deployment, body.as_object_mut()) {
                    // The deployment decides, whatever the body says.
                    members.insert("model".to_owned(), deployment.into());
                }
                reply(&body)
            }
            _ => Err(errors::wrong_method(method.as_str(), path)),
        };
        let get = |reply: &dyn Fn() -> Result<Reply, ApiError>| match *method {
            Method::GET => reply(),
            _ => Err(errors::wrong_method(method.as_str(), path)),
        };
        match segments.as_slice() {
            ["chat", "completions"] => post(&|body| chat::answer(call, body, ids.clone())),
            ["embeddings"] => post(&|body| embeddings::answer(body)),
            ["images", "generations"] => post(&|body| images::make(request, body)),
            ["images", "edits"] if method == Method::POST => images::edit(request),
            ["models"] => get(&|| Ok(models::list())),
            ["models", id] => get(&|| models::one(id)),
            ["responses"] => post(&|body| responses::answer(call, self.view(), body, ids.clone())),
            ["responses", "compact"] => post(&|body| responses::compact(&self.store, body, ids.clone())),
            ["responses", "input_tokens"] => post(&|body| responses::input_tokens(&self.store, body)),
            ["responses", id] if method == Method::DELETE => self.store.delete(id),
            ["responses", id] => get(&|| self.store.response(id)),
            ["responses", id, "input_items"] => get(&|| self.store.input_items(id)),
            _ => Err(errors::unknown_url(method.as_str(), &request.path)),
        }
    }
}

/// Returns why a chat request is refused. `None` if it is not.
pub(super) fn chat_refusal(body: &Value) -> Option<String> {
    chat::read(body).err().map(|error| error.to_string())
}

/// Returns why a request of the responses API is refused. `None` if it is not.
pub(super) fn responses_refusal(body: &Value) -> Option<String> {
    responses::check(body).err().map(|error| error.to_string())
}

fn authorize(request: &Request, credential: Option<&str>) -> Result<(), ApiError> {
    match (credential, request.bearer()) {
        (None, _) => Ok(()),
        (Some(expected), Some(key)) if key == expected => Ok(()),
        (Some(_), Some(key)) if !key.is_empty() => Err(errors::wrong_key(key)),
        (Some(_), _) => Err(errors::no_key()),
    }
}

/// Parses the body of a request, which must be a JSON object.
fn body(request: &Request) -> Result<Value, ApiError> {
    if request.too_large {
        return Err(errors::too_large());
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| errors::not_json())?;
    if !body.is_object() {
        return Err(errors::not_json());
    }
    envelope::refusal(&body).map_or(Ok(body), |refusal| Err(ApiError::invalid(refusal)))
}

/// Returns the model of a request.
fn model(name: Option<&str>) -> Result<&str, ApiError> {
    let name = name.unwrap_or_default();
    if name.is_empty() {
        return Err(ApiError::invalid("you must provide a model parameter"));
    }
    if name.starts_with("missing-") { Err(errors::model_not_found(name)) } else { Ok(name) }
}

/// Returns true if a model supports only the Responses API (OpenAI's "Models" page: o1-pro, o3-pro, Codex models and
/// others).
fn is_for_responses(model: &str) -> bool {
    let families = ["o1-pro", "o3-pro", "gpt-5-pro", "gpt-5-codex", "codex-mini", "computer-use"];
    families.iter().any(|family| model.starts_with(family)) || model.contains("deep-research")
}

/// Returns true for a reasoning model, which refuses sampling parameters.
fn is_reasoning_model(model: &str) -> bool {
    let gpt5 = model.strip_prefix("gpt-5").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let o_series = ["o1", "o3", "o4"].iter().any(|family| {
        model.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    (gpt5 && !model.contains("chat")) || o_series
}

/// Refuses what this model does not take.
fn check_model(
    fields: errors::Fields<'_>,
    model: &str,
    effort: Option<&str>,
    path: &str,
) -> Result<(), ApiError> {
    let Some(rules) = model_rules::of(model) else { return Ok(()) };
    if let Some(effort) = effort.filter(|effort| !rules.takes(effort)) {
        let message = format!("Unsupported value: '{path}' does not support '{effort}' with this model.");
        return Err(ApiError::invalid(message).param(path).code("unsupported_value"));
    }
    let limits = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
    for (name, limit) in limits.iter().filter_map(|name| Some((*name, fields.get(name)?.as_u64()?))) {
        if rules.output > 0 && limit > rules.output {
            let most = rules.output;
            let message = format!(
                "{name} is too large: {limit}. This model supports at most {most} completion tokens, whereas you provided \
                 {limit}."
            );
            return Err(ApiError::invalid(message).param(name).code("invalid_value"));
        }
    }
    let is_refused = match rules.sampling {
        Sampling::Always => false,
        Sampling::WhileOff => rules.reasons(effort),
        Sampling::Never => true,
    };
    for name in ["temperature", "top_p"] {
        let value = fields.get(name).and_then(Value::as_f64);
        if is_refused && value.is_some_and(|value| (value - 1.0).abs() > f64::EPSILON) {
            let message = format!("Unsupported parameter: '{name}' is not supported with this model.");
            return Err(ApiError::invalid(message).param(name).code("unsupported_parameter"));
        }
    }
    Ok(())
}

/// Refuses what this model does not take in chat completions.
fn check_chat_model(fields: errors::Fields<'_>, model: &str, has_tools: bool) -> Result<(), ApiError> {
    let effort = fields.string("reasoning_effort")?;
    check_model(fields, model, effort, "reasoning_effort")?;
    let by_responses = model_rules::of(model).is_some_and(|rules| rules.tools_by_responses);
    let reasons = model_rules::of(model).is_some_and(|rules| rules.reasons(effort));
    if by_responses && reasons && has_tools {
        let message = format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. Please use \
             /v1/responses instead."
        );
        return Err(ApiError::invalid(message).param("reasoning_effort"));
    }
    if by_responses && effort == Some("max") {
        return Err(ApiError::invalid("Unsupported value: 'max'.").param("reasoning_effort"));
    }
    Ok(())
}

/// Adds the headers of every response. Errors before the model have no rate-limit headers.
fn with_headers(reply: Reply, request: &Request, request_id: String) -> Reply {
    let used = hash(&request.body) % 90;
    let reply = reply.with("x-request-id", request_id).with("openai-version", "2020-10-01");
    if matches!(reply.status, 401 | 403 | 404 | 405) {
        return reply;
    }
    let remaining_tokens = 30_000_000usize.saturating_sub(request.body.len() / 4);
    reply
        .with("openai-organization", "org-simulated")
        .with("openai-processing-ms", (10 + used).to_string())
        .with("x-ratelimit-limit-requests", "10000")
        .with("x-ratelimit-limit-tokens", "30000000")
        .with("x-ratelimit-remaining-requests", "9999")
        .with("x-ratelimit-remaining-tokens", remaining_tokens.to_string())
        .with("x-ratelimit-reset-requests", "6ms")
        .with("x-ratelimit-reset-tokens", "0s")
}
