//! Simulated Gemini API.
//!
//! This file has the routes, keys and headers. The submodules have the errors (`errors`), the JSON format (`json`), the
//! request readers (`shape`, `request`, `turns`), the response writer (`answer`), and the smaller methods (`embed`,
//! `images`, `models`), and what Vertex AI does in another way (`vertex`). Other providers do not belong here.
//!
//! Sources: the reference of the Gemini API, the types of google-genai 3.4, and recorded responses of the API from 2025
//! and 2026.

mod answer;
mod embed;
mod errors;
mod images;
mod json;
mod models;
mod request;
mod shape;
mod turns;
mod vertex;

use http::Method;
use serde_json::{Value, json};

use super::envelope;
use super::http::{Reply, Request, percent_decode, stage};
use super::ids::{Ids, hash};
use super::server::Call;
use errors::{ApiError, OVERLOADED, for_status};
use json::{Style, pretty};

/// Returns why a request for content is refused. `None` if it is not.
pub(super) fn refusal(body: &Value, model: &str, stream: bool) -> Option<String> {
    let asked = request::generate(body, model).and_then(|_| request::check_limit(body, model, stream));
    asked.err().map(|error| error.to_string())
}

/// API. It has no state.
#[derive(Debug)]
pub(super) struct Site {
    /// The API is that of Vertex AI.
    pub(super) is_vertex: bool,
}

const METHODS: [&str; 6] = [
    "generateContent",
    "streamGenerateContent",
    "countTokens",
    "embedContent",
    "batchEmbedContents",
    "predict",
];

impl Site {
    pub(super) fn answer(&self, call: &Call<'_>) -> Reply {
        let request = call.request;
        let style = match (
            request.path.ends_with(":streamGenerateContent"),
            request.query("alt").or(request.query("$alt")),
        ) {
            (true, Some("sse")) => Style::Events,
            (true, _) => Style::Array,
            (false, _) => Style::Whole,
        };
        let reply = route(call, style, self.is_vertex).unwrap_or_else(|error| error.reply(style));
        with_headers(reply.with_retry_after(), request)
    }
}

fn route(call: &Call<'_>, style: Style, is_vertex: bool) -> Result<Reply, ApiError> {
    let request = call.request;
    let method = request.method.as_str();
    let nowhere = || Ok(errors::page(404, method, &request.path));
    let own = if is_vertex { vertex::own_path(&request.path) } else { Some(request.path.clone()) };
    let Some(own) = own else { return nowhere() };
    let path = own.trim_start_matches('/');
    let Some((version @ ("v1" | "v1beta" | "v1alpha"), rest)) = path.split_once('/') else {
        return nowhere();
    };
    let rest = percent_decode(rest);
    let (name, action) = match rest.rsplit_once(':') {
        Some((name, action)) => (name, Some(action)),
        None => (rest.as_str(), None),
    };
    // Some clients send `models/models%2Fgemini-...`.
    let model = name.strip_prefix("models/").map(|name| name.strip_prefix("models/").unwrap_or(name));
    let model = model.or_else(|| name.starts_with("tunedModels/").then_some(name));
    match (name, model, action) {
        ("models", None, None) => {}
        (_, Some(model), None) if !model.is_empty() && !model.contains('/') => {}
        (_, Some(model), Some(action)) if !model.is_empty() && METHODS.contains(&action) => {}
        _ => return nowhere(),
    }
    let wanted = if action.is_some() { Method::POST } else { Method::GET };
    if request.method != wanted {
        return Ok(errors::page(405, method, &request.path));
    }
    if is_vertex {
        vertex::authorize(request, call.credential)?;
        vertex::check(&body(request)?)?;
    } else {
        authorize(request, call.credential)?;
    }
    match (model, action) {
        (Some(model), Some(action)) => {
            if model.starts_with("missing-") {
                let named = if action.ends_with("Contents") || action == "embedContent" {
                    "embedContent"
                } else {
                    "generateContent"
                };
                return Err(errors::model_not_found(model, version, named));
            }
            if is_vertex && action == "predict" && model.contains("embedding") {
                return vertex::predict(&body(request)?, model);
            }
            act(call, model, action, style)
        }
        (Some(model), None) => models::one(model, version),
        (None, _) => models::list(request),
    }
}

fn act(call: &Call<'_>, model: &str, action: &str, style: Style) -> Result<Reply, ApiError> {
    let body = body(call.request)?;
    let error = |status| for_status(status).reply(style);
    match action {
        "embedContent" => embed::one(&body, model),
        "batchEmbedContents" => embed::many(&body, model),
        "predict" if model.contains("imagen") => images::predict(&body, model),
        "predict" => Err(errors::model_not_found(model, "v1beta", "predict")),
        "generateContent" if images::wanted(&body) => images::draw(&body, model),
        "countTokens" => {
            let asked = request::count(&body, model)?;
            let count = asked.ask.prompt_tokens;
            let body = json!({"totalTokens": count,
                              "promptTokensDetails": [{"modality": "TEXT", "tokenCount": count}]});
            let reply = || Reply::new(200, style.content_type(), pretty(&body));
            Ok(stage(&asked.ask.directives, OVERLOADED, error, reply))
        }
        _ => {
            let mut asked = request::generate(&body, model)?;
            call.scenario.apply(&mut asked.ask, &call.request.body);
            let ids = Ids::new(call.serial, &call.request.body);
            let reply = || answer::reply(&asked, style, call.pacing, ids);
            Ok(stage(&asked.ask.directives, OVERLOADED, error, reply))
        }
    }
}

fn authorize(request: &Request, credential: Option<&str>) -> Result<(), ApiError> {
    let Some(expected) = credential else {
        return Ok(());
    };
    let key = request.header("x-goog-api-key").or(request.query("key")).filter(|key| !key.is_empty());
    match (key, request.bearer()) {
        (Some(key), _) if key == expected => Ok(()),
        (Some(_), _) => Err(errors::wrong_key()),
        (None, Some(token)) if token == expected => Ok(()),
        (None, Some(_)) => Err(errors::bad_token()),
        (None, None) => Err(errors::no_key()),
    }
}

/// Parses the body of a request, which must be a JSON object. An empty body is a request without members.
fn body(request: &Request) -> Result<Value, ApiError> {
    if request.too_large {
        return Err(errors::too_large());
    }
    if request.body.is_empty() {
        return Ok(json!({}));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| {
        let start: String = String::from_utf8_lossy(&request.body).chars().take(40).collect();
        errors::violation("", format!("Invalid JSON payload received. Unexpected token.\n{start}\n^"))
    })?;
    if body.is_object() {
        envelope::refusal(&body).map_or(Ok(body), |refusal| Err(ApiError::invalid(refusal)))
    } else {
        let message = "Invalid JSON payload received. Unknown name \"\": Root element must be a message.";
        Err(errors::violation("", message.to_owned()))
    }
}

/// Adds the headers of every response.
fn with_headers(reply: Reply, request: &Request) -> Reply {
    let took = 20 + hash(&request.body) % 400;
    reply
        .with("vary", "Origin")
        .with("vary", "X-Origin")
        .with("vary", "Referer")
        .with("server", "scaffolding on HTTPServer2")
        .with("x-xss-protection", "0")
        .with("x-frame-options", "SAMEORIGIN")
        .with("x-content-type-options", "nosniff")
        .with("server-timing", format!("gfet4t7; dur={took}"))
}
