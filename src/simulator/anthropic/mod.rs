//! Simulated Anthropic API.
//!
//! This file has the routes, keys, versions and headers. The submodules have the errors (`errors`), the request readers
//! (`request`, `tools`, `content`), the prompt cache (`cache`), the response writer (`answer`) and the models
//! (`models`), and what cloud platforms that serve Claude do otherwise (`platform`). Other providers do not belong here.
//!
//! Two API versions are supported, `2023-06-01` and `2026-10-21`; they differ in the requests that they refuse.
//! Sources: the types of anthropic-python 2.11, and recorded responses of the API from 2025 and 2026.

mod answer;
mod cache;
mod content;
mod errors;
mod models;
mod platform;
mod request;
mod tools;

use http::Method;
use serde_json::{Value, json};

use super::clock;
use super::envelope;
use super::http::{Reply, Request, stage};
use super::ids::Ids;
use super::script::Ask;
use super::server::Call;
use super::stream::Kind;
use cache::Cache;
use errors::{ApiError, OVERLOADED, for_status};
pub(super) use platform::Platform;

/// API, with the prompt prefixes in its cache.
#[derive(Debug, Default)]
pub(super) struct Site {
    cache: Cache,
    platform: Platform,
}

/// API version and betas of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    /// `2026-10-21`, which refuses some members that `2023-06-01` accepts.
    strict: bool,
    /// The request names a beta, so members of betas are known.
    beta: bool,
    /// The request names the MCP connector beta.
    mcp: bool,
    /// The request names a context management beta.
    context: bool,
}

impl Site {
    /// Creates the API as a platform serves it.
    pub(super) fn at(platform: Platform) -> Self {
        Site { platform, ..Site::default() }
    }

    pub(super) fn answer(&self, call: &Call<'_>) -> Reply {
        let mut ids = Ids::new(call.serial, &call.request.body);
        let request_id = ids.base62("req_011C", 20);
        let reply = self.route(call, &request_id, ids).unwrap_or_else(|error| error.reply(&request_id));
        with_headers(reply.with_retry_after(), call.request, request_id)
    }

    fn route(&self, call: &Call<'_>, request_id: &str, ids: Ids) -> Result<Reply, ApiError> {
        let request = call.request;
        self.platform.authorize(request, call.credential)?;
        let path = request.path.trim_end_matches('/');
        if self.platform == Platform::Vertex {
            return self.predict(call, path, request_id, ids);
        }
        let path = self.platform.own_path(path);
        let segments: Vec<&str> = path.strip_prefix("/v1/").unwrap_or_default().split('/').collect();
        let wanted = match segments.as_slice() {
            ["messages"] | ["messages", "count_tokens"] => Method::POST,
            ["models"] | ["models", _] => Method::GET,
            _ => return Err(ApiError::new(404, "not_found_error", "Not found")),
        };
        if request.method != wanted {
            return Err(for_status(405));
        }
        let version = version(request)?;
        match segments.as_slice() {
            ["models"] => models::list(request),
            ["models", id] => models::one(id),
            ["messages"] => messages(call, &body(request)?, version, &self.cache, request_id, ids),
            _ => count_tokens(&body(request)?, version, request_id),
        }
    }

    /// Answers a prediction at Vertex AI.
    fn predict(&self, call: &Call<'_>, path: &str, request_id: &str, ids: Ids) -> Result<Reply, ApiError> {
        let prediction =
            platform::prediction(path).ok_or_else(|| ApiError::new(404, "not_found_error", "Not found"))?;
        if call.request.method != Method::POST {
            return Err(for_status(405));
        }
        let received = body(call.request)?;
        let fresh = Cache::default();
        let cache = if platform::has_conversation_last(&received) { &self.cache } else { &fresh };
        let body = platform::own_body(received, &prediction)?;
        messages(call, &body, betas(call.request), cache, request_id, ids)
    }
}

/// Answers a request for a message with what `cache` has of its prompt.
fn messages(
    call: &Call<'_>,
    body: &Value,
    version: Version,
    cache: &Cache,
    request_id: &str,
    ids: Ids,
) -> Result<Reply, ApiError> {
    let mut asked = request::messages(body, version)?;
    call.scenario.apply(&mut asked.ask, &call.request.body);
    let error = |status| for_status(status).reply(request_id);
    let reply = || {
        let cached = cache.account(body, &asked.ask);
        answer::reply(&asked, cached, call.pacing, request_id, ids)
    };
    Ok(stage(&asked.ask.directives, OVERLOADED, error, reply))
}

/// Request for a message that a platform received in its own envelope.
#[derive(Debug)]
pub(super) struct PlatformRequest(request::Asked);

impl PlatformRequest {
    pub(super) fn ask(&self) -> &Ask {
        &self.0.ask
    }
}

/// Returns why a request for a message is refused. `None` if it is not. `invoked` is true for Bedrock's InvokeModel.
pub(super) fn refusal(body: &Value, invoked: bool) -> Option<String> {
    let version = Version { strict: false, beta: !invoked, mcp: !invoked, context: true };
    request::messages(body, version).err().map(|error| error.to_string())
}

/// Returns the minimum length of a cached prefix of a model, in tokens.
pub(super) fn min_cached_tokens(model: &str) -> u64 {
    cache::min_tokens(model)
}

/// Mark of Bedrock in identifiers.
const BEDROCK: &str = "bdrk_";

/// Reads the request that a platform received. `beta` states whether it names betas. With `call`, a prescribed response
/// of its scenario applies.
///
/// # Errors
/// Returns the message of the refusal.
pub(super) fn read(body: &Value, beta: bool, call: Option<&Call<'_>>) -> Result<PlatformRequest, String> {
    let version = Version { strict: false, beta, mcp: false, context: beta };
    let mut asked = request::messages(body, version).map_err(|error| error.to_string())?;
    if let Some(call) = call {
        call.scenario.apply(&mut asked.ask, &call.request.body);
    }
    Ok(PlatformRequest(asked))
}

impl Site {
    /// Returns the message for a platform.
    pub(super) fn message(&self, body: &Value, asked: &PlatformRequest, ids: &mut Ids) -> Value {
        let cached = self.cache.account(body, &asked.0.ask);
        answer::message(&asked.0, cached, BEDROCK, ids)
    }

    /// Returns the events of the message for a platform.
    pub(super) fn events(&self, body: &Value, asked: &PlatformRequest, ids: &mut Ids) -> Vec<(Kind, Value)> {
        let cached = self.cache.account(body, &asked.0.ask);
        answer::events(&asked.0, cached, BEDROCK, ids)
    }
}

fn count_tokens(body: &Value, version: Version, request_id: &str) -> Result<Reply, ApiError> {
    let asked = request::count(body, version)?;
    let error = |status| for_status(status).reply(request_id);
    let reply = || Reply::json(200, &json!({"input_tokens": asked.ask.prompt_tokens}));
    Ok(stage(&asked.ask.directives, OVERLOADED, error, reply))
}

/// Returns the older version with the betas of a request.
fn betas(request: &Request) -> Version {
    let betas = request.headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    let betas: Vec<&str> = betas.flat_map(|value| value.split(',')).map(str::trim).collect();
    let named = |family: &str| betas.iter().any(|beta| beta.starts_with(family));
    Version {
        strict: false,
        beta: !betas.is_empty(),
        mcp: named("mcp-client-"),
        context: named("context-management-") || named("compact-"),
    }
}

fn version(request: &Request) -> Result<Version, ApiError> {
    let version = betas(request);
    match request.header("anthropic-version") {
        None => Err(ApiError::invalid("anthropic-version: header is required")),
        Some("2023-01-01" | "2023-06-01") => Ok(version),
        Some("2026-10-21") => Ok(Version { strict: true, ..version }),
        Some(other) => {
            Err(ApiError::invalid(format!("anthropic-version: \"{other}\" is not a valid version")))
        }
    }
}

/// Parses the body of a request, which must be a JSON object.
fn body(request: &Request) -> Result<Value, ApiError> {
    if request.too_large {
        return Err(errors::too_large());
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|error| {
        ApiError::invalid(format!(
            "The request body is not valid JSON: unexpected character: line {} column {}",
            error.line(),
            error.column()
        ))
    })?;
    if !body.is_object() {
        return Err(ApiError::invalid("Input should be a valid dictionary"));
    }
    envelope::refusal(&body).map_or(Ok(body), |refusal| Err(ApiError::invalid(refusal)))
}

/// Adds the headers of every response. Rate-limit headers are only on responses to requests that reached the model.
fn with_headers(reply: Reply, request: &Request, request_id: String) -> Reply {
    let reply = reply
        .with("request-id", request_id)
        .with("anthropic-organization-id", "5eed0f5e-a15e-4a1e-8d00-000000000001");
    if matches!(reply.status, 400..=405 | 413) {
        return reply;
    }
    let reset = clock::rfc3339(clock::unix() + 1);
    let used = request.body.len() / 4;
    let remaining = |limit: usize| limit.saturating_sub(used).div_ceil(1000).saturating_mul(1000).to_string();
    reply
        .with("anthropic-ratelimit-input-tokens-limit", "2000000")
        .with("anthropic-ratelimit-input-tokens-remaining", remaining(2_000_000))
        .with("anthropic-ratelimit-input-tokens-reset", reset.clone())
        .with("anthropic-ratelimit-output-tokens-limit", "400000")
        .with("anthropic-ratelimit-output-tokens-remaining", "400000")
        .with("anthropic-ratelimit-output-tokens-reset", reset.clone())
        .with("anthropic-ratelimit-requests-limit", "4000")
        .with("anthropic-ratelimit-requests-remaining", "3999")
        .with("anthropic-ratelimit-requests-reset", reset.clone())
        .with("anthropic-ratelimit-tokens-limit", "2400000")
        .with("anthropic-ratelimit-tokens-remaining", remaining(2_400_000))
        .with("anthropic-ratelimit-tokens-reset", reset)
}
