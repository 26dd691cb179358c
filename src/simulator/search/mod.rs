//! Simulated providers of embeddings and reranking: Cohere, Jina, Voyage, DashScope, vLLM and Text Embeddings
//! Inference.
//!
//! This file has their common parts (keys, body fields, vectors, scores); each provider's file has its paths, member
//! names, limits, responses and errors. A member that a provider does not have is refused, so that tests notice a
//! member sent to the wrong provider. Other kinds of providers do not belong here.
//!
//! Sources: the providers' API references and SDKs (cohere 7.3, voyageai 0.5, dashscope 2.0) of November 2026, and
//! recorded responses.

mod cohere;
mod dashscope;
mod jina;
mod tei;
mod vllm;
mod voyage;

use http::Method;
use serde_json::{Map, Value, json};

use super::http::{Reply, stage};
use super::ids::{Ids, hash};
use super::server::Call;
use super::{directive, embedding, text};

/// Status of an overloaded provider.
const OVERLOADED: u16 = 503;

/// Simulated provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Cohere,
    DashScope,
    Jina,
    Tei,
    Vllm,
    Voyage,
}

/// Reason why a request is refused.
struct Refusal {
    status: u16,
    message: String,
}

/// Response, or the refusal that becomes the provider's error.
type Answered = Result<Reply, Refusal>;

impl Refusal {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Refusal { status, message: message.into() }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Refusal::new(400, message)
    }
}

impl Site {
    pub(super) fn answer(self, call: &Call<'_>) -> Reply {
        if self == Site::DashScope
            && let Some(reply) = super::image::dashscope(call)
        {
            return reply;
        }
        let mut ids = Ids::new(call.serial, &call.request.body);
        let request_id = ids.hex("", 32);
        let reply =
            self.route(call, &request_id).unwrap_or_else(|refusal| self.refuse(&refusal, &request_id));
        reply.with_retry_after().with("x-request-id", request_id)
    }

    fn route(self, call: &Call<'_>, id: &str) -> Answered {
        let request = call.request;
        match (call.credential, request.bearer()) {
            (Some(expected), key) if key != Some(expected) => {
                return Err(Refusal::new(401, self.wrong_key()));
            }
            _ => {}
        }
        if request.method != Method::POST {
            return Err(Refusal::new(405, "Method Not Allowed"));
        }
        let body: Value =
            serde_json::from_slice(&request.body).map_err(|_| Refusal::invalid("invalid JSON"))?;
        let body = body.as_object().ok_or_else(|| Refusal::invalid("invalid JSON"))?;
        let asked = Asked { body, id, site: self };
        let path = request.path.trim_end_matches('/');
        match self {
            Site::Cohere => cohere::answer(path, &asked),
            Site::DashScope => dashscope::answer(path, &asked),
            Site::Jina => jina::answer(path, &asked),
            Site::Tei => tei::answer(path, &asked),
            Site::Vllm => vllm::answer(path, &asked),
            Site::Voyage => voyage::answer(path, &asked),
        }
    }

    fn wrong_key(self) -> &'static str {
        match self {
            Site::Cohere => "invalid api token",
            Site::DashScope => "Invalid API-key provided.",
            Site::Jina => "Unauthorized",
            Site::Tei | Site::Vllm => "Unauthorized",
            Site::Voyage => "Provided API key is invalid.",
        }
    }

    /// Returns the provider's error response.
    fn refuse(self, refusal: &Refusal, id: &str) -> Reply {
        let Refusal { status, message } = refusal;
        let body = match self {
            Site::Cohere => json!({"id": id, "message": message}),
            Site::DashScope => {
                let code = match status {
                    401 => "InvalidApiKey",
                    429 => "Throttling.RateQuota",
                    404 => "ModelNotFound",
                    400..500 => "InvalidParameter",
                    _ => "InternalError",
                };
                json!({"code": code, "message": message, "request_id": id})
            }
            Site::Jina | Site::Voyage => json!({"detail": message}),
            Site::Tei => {
                let kind = if *status == 429 { "overloaded" } else { "validation" };
                json!({"error": message, "error_type": kind})
            }
            Site::Vllm => {
                json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": status})
            }
        };
        Reply::json(*status, &body)
    }
}

/// Request under evaluation.
struct Asked<'a> {
    body: &'a Map<String, Value>,
    id: &'a str,
    site: Site,
}

impl Asked<'_> {
    /// Refuses members that the provider does not have.
    fn only(&self, names: &[&str]) -> Result<(), Refusal> {
        only(self.body, names)
    }

    fn model(&self) -> Result<&str, Refusal> {
        let model = self.body.get("model").and_then(Value::as_str).unwrap_or_default();
        match model {
            "" => Err(Refusal::invalid("model is required")),
            _ if model.starts_with("missing-") => {
                Err(Refusal::new(404, format!("model '{model}' not found")))
            }
            _ => Ok(model),
        }
    }

    /// Returns the response, subject to the directives in the last text.
    fn staged(&self, last: &str, answer: impl Fn() -> Value) -> Answered {
        let (directives, _) = directive::take(last);
        let error = |status| self.site.refuse(&Refusal::new(status, "simulated"), self.id);
        Ok(stage(&directives, OVERLOADED, error, || Reply::json(200, &answer())))
    }
}

fn only(object: &Map<String, Value>, names: &[&str]) -> Result<(), Refusal> {
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            Err(Refusal::invalid(format!("unknown field: parameter '{name}' is not a valid field")))
        }
        None => Ok(()),
    }
}

/// Returns a member that must be one of `words`. `None` if it is absent or null.
fn word<'a>(object: &'a Map<String, Value>, name: &str, words: &[&str]) -> Result<Option<&'a str>, Refusal> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_str().filter(|word| words.contains(word)) {
            Some(word) => Ok(Some(word)),
            None => Err(Refusal::invalid(format!("invalid {name}: {value}; must be one of {words:?}"))),
        },
    }
}

/// Returns a member with texts: one to `most` of them, none of them empty.
fn texts<'a>(value: Option<&'a Value>, name: &str, most: usize) -> Result<Vec<&'a str>, Refusal> {
    let all: Option<Vec<&str>> = match value {
        Some(Value::String(text)) => Some(vec![text]),
        Some(Value::Array(items)) => items.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let all = all.ok_or_else(|| Refusal::invalid(format!("{name} must be a list of strings")))?;
    if all.is_empty() || all.iter().any(|text| text.is_empty()) {
        return Err(Refusal::invalid(format!("{name} must not be empty")));
    }
    if all.len() > most {
        return Err(Refusal::invalid(format!(
            "{name} has {} elements; at most {most} are allowed",
            all.len()
        )));
    }
    Ok(all)
}

fn number(object: &Map<String, Value>, name: &str) -> Result<Option<usize>, Refusal> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_u64().filter(|number| *number > 0).and_then(|n| usize::try_from(n).ok());
            number.map(Some).ok_or_else(|| Refusal::invalid(format!("{name} must be a positive integer")))
        }
    }
}

/// Returns the vector of a text. Another purpose gives another vector.
fn vector(input: &str, purpose: Option<&str>, dimensions: Option<usize>) -> Vec<f32> {
    let text = directive::take(input).1 + purpose.unwrap_or_default();
    embedding::vector(text.as_bytes(), dimensions.unwrap_or(16))
}

fn tokens(texts: &[&str]) -> u64 {
    texts.iter().map(|input| text::tokens(input.len())).sum()
}

/// Returns the `top` best documents as index and score. The score grows with the share of the query's words in the
/// document.
pub(super) fn ranked(query: &str, documents: &[&str], top: Option<usize>) -> Vec<(usize, f64)> {
    let words = |input: &str| -> Vec<String> {
        input.to_lowercase().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
    };
    let wanted = words(query);
    let score = |document: &str| {
        let has = words(document);
        let shared = wanted.iter().filter(|word| has.contains(word)).count();
        // A small share derived from the document's hash prevents equal scores.
        let own = (hash(document.as_bytes()) % 1_000) as f64 / 20_000.0;
        (shared as f64 / wanted.len().max(1) as f64 * 0.9 + own).min(1.0)
    };
    let mut all: Vec<(usize, f64)> =
        documents.iter().enumerate().map(|(index, document)| (index, score(document))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(top.unwrap_or(usize::MAX));
    all
}

/// Returns the query of a rerank request. Most providers have this member.
fn query(object: &Map<String, Value>) -> Result<&str, Refusal> {
    let query = object.get("query").and_then(Value::as_str).filter(|query| !query.is_empty());
    query.ok_or_else(|| Refusal::invalid("query must not be empty"))
}
