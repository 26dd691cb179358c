//! Simulated Amazon Bedrock: the runtime (Converse, InvokeModel, CountTokens), reranking of the agent runtime, and the
//! lists of models of the control plane, all on one address.
//!
//! This file has the routes and headers. The submodules have the credentials (`signature`), the models (`models`), the
//! errors (`errors`), the prompt cache of Converse (`cache`), the frames of streams (`frames`), Converse's request readers (`request`, `content`, `media`,
//! `tools`) and response writer (`answer`), and InvokeModel (`invoke`). Other providers do not belong here, except that
//! `invoke` passes requests for Claude to `anthropic`.
//!
//! Requests are signed with one of the access keys of the options, or have the credential of the options as an API key.
//! A member that the service does not know is refused, although the service ignores some, so that tests notice it.
//! Errors have no `retry-after`, as recorded ones. The exception of directive `error` is that for the status of
//! `error-status`, and `serviceUnavailableException` by default; `garbage` leaves a frame whose checksum is wrong.
//!
//! Sources: the service model `bedrock-runtime-2023-09-30` of botocore 1.44, and recorded responses of 2025 and 2026.

mod answer;
mod cache;
mod content;
mod errors;
mod frames;
mod invoke;
mod media;
mod models;
mod request;
mod signature;
mod tools;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use http::Method;
use serde_json::{Value, json};

use super::http::{Reply, Request, percent_decode, stage};
use super::ids::{Ids, decode_base64};
use super::prefix_cache::PrefixCache;
use super::server::Call;
use super::{AwsAccessKey, anthropic, clock, envelope};
use errors::{ApiError, Fields, OVERLOADED, for_status, missing};
use models::Model;

/// Media type of event streams.
const STREAM: &str = "application/vnd.amazon.eventstream";
/// Maximum body in bytes.
const MAX_BODY: usize = 25_000_000;
/// Region of requests that are not signed.
const REGION: &str = "us-east-1";

/// Returns why a request for a model is refused. `None` if it is not.
pub(super) fn refusal(body: &Value, model: &str, stream: bool) -> Option<String> {
    let asked = Model::resolve(model, None).and_then(|model| request::converse(body, model, stream));
    asked.err().map(|error| error.to_string())
}

/// API, with its access keys and its clock.
#[derive(Debug)]
pub(super) struct Site {
    keys: Mutex<Vec<AwsAccessKey>>,
    /// Seconds by which the service's clock is ahead.
    clock_offset: AtomicI64,
    anthropic: anthropic::Site,
    cache: PrefixCache,
}

impl Site {
    pub(super) fn new(keys: Vec<AwsAccessKey>) -> Site {
        Site {
            keys: Mutex::new(keys),
            clock_offset: AtomicI64::new(0),
            anthropic: anthropic::Site::default(),
            cache: PrefixCache::default(),
        }
    }

    pub(super) fn set_access_keys(&self, keys: Vec<AwsAccessKey>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub(super) fn set_clock_offset(&self, seconds: i64) {
        self.clock_offset.store(seconds, Ordering::SeqCst);
    }

    fn now(&self) -> i64 {
        i64::try_from(clock::unix())
            .unwrap_or(i64::MAX)
            .saturating_add(self.clock_offset.load(Ordering::SeqCst))
    }

    pub(super) fn answer(&self, call: &Call<'_>) -> Reply {
        let mut ids = Ids::new(call.serial, &call.request.body);
        let request_id = [8, 4, 4, 4, 12].map(|length| ids.hex("", length)).join("-");
        let reply = self.route(call, ids).unwrap_or_else(|error| error.reply());
        let reply = reply.with("x-amzn-requestid", request_id);
        match self.clock_offset.load(Ordering::SeqCst) {
            0 => reply,
            _ => reply.with("date", http_date(self.now())),
        }
    }

    fn route(&self, call: &Call<'_>, ids: Ids) -> Result<Reply, ApiError> {
        let request = call.request;
        let region = {
            let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            signature::authorize(request, call.credential, &keys, "bedrock", self.now())?
        };
        // The path is split before it is decoded: the slash of an ARN is encoded.
        let segments: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        let (model, action) = match segments.as_slice() {
            ["model", model, action] => (percent_decode(model), *action),
            ["rerank"] => (String::new(), "rerank"),
            ["foundation-models"] if request.method == Method::GET => {
                return Ok(models::foundation_models(region.unwrap_or(REGION)));
            }
            ["inference-profiles"] if request.method == Method::GET => {
                return Ok(models::inference_profiles(region.unwrap_or(REGION)));
            }
            _ => return Err(unknown_operation()),
        };
        if request.method != Method::POST {
            return Err(unknown_operation());
        }
        let body = body(request)?;
        if action == "rerank" {
            return invoke::rerank_documents(&body);
        }
        let model = Model::resolve(&model, region)?;
        if action != "count-tokens" {
            model.check_throughput()?;
        }
        match action {
            "converse" => self.converse(call, &body, model, false, ids),
            "converse-stream" => self.converse(call, &body, model, true, ids),
            "invoke" => invoke::invoke(&self.anthropic, call, &body, &model, false, ids),
            "invoke-with-response-stream" => invoke::invoke(&self.anthropic, call, &body, &model, true, ids),
            "count-tokens" => count_tokens(&body, model),
            _ => Err(unknown_operation()),
        }
    }
    fn converse(
        &self,
        call: &Call<'_>,
        body: &Value,
        model: Model,
        stream: bool,
        ids: Ids,
    ) -> Result<Reply, ApiError> {
        if model.name.contains("embed") || model.name.contains("rerank") {
            let message = "The model that you are using does not support the Converse API.";
            return Err(ApiError::invalid(message));
        }
        let mut asked = request::converse(body, model, stream)?;
        call.scenario.apply(&mut asked.ask, &call.request.body);
        let error = |status| for_status(status).reply();
        let overload = asked.ask.directives.error_status.unwrap_or(OVERLOADED);
        let reply = || {
            let cached = cache::account(&self.cache, body, &asked.model, &asked.ask);
            answer::reply(&asked, cached, stream, call.pacing, ids)
        };
        Ok(stage(&asked.ask.directives, overload, error, reply))
    }
}

fn unknown_operation() -> ApiError {
    ApiError::new(
        404,
        "UnknownOperationException",
        "Unable to determine service/operation name to be authorized",
    )
}

fn count_tokens(body: &Value, model: Model) -> Result<Reply, ApiError> {
    if model.by_profile {
        return Err(ApiError::invalid("The provided model doesn't support counting tokens."));
    }
    let body = Fields::new(body, "")?;
    body.only(&["input"])?;
    let input = body.object("input")?.ok_or_else(|| missing("input"))?;
    let (kind, value) = input.one()?;
    let directed = |asked: &super::script::Ask| {
        let error = |status| for_status(status).reply();
        let reply = || Reply::json(200, &json!({"inputTokens": asked.prompt_tokens}));
        stage(&asked.directives, OVERLOADED, error, reply)
    };
    match kind {
        "converse" => {
            Fields::new(value, input.at(kind))?.only(&[
                "messages",
                "system",
                "toolConfig",
                "additionalModelRequestFields",
            ])?;
            Ok(directed(&request::converse(value, model, false)?.ask))
        }
        "invokeModel" => {
            let inner = Fields::new(value, input.at(kind))?;
            inner.only(&["body"])?;
            let bytes = decode_base64(inner.require("body")?)
                .ok_or_else(|| media::invalid_base64(&inner.at("body")))?;
            Ok(directed(&invoke::count(&bytes, &model)?))
        }
        other => Err(errors::extraneous("input", other)),
    }
}

/// Parses the body of a request.
fn body(request: &Request) -> Result<Value, ApiError> {
    if request.too_large || request.body.len() > MAX_BODY {
        let message = format!("Request size exceeds the maximum of {MAX_BODY} bytes.");
        return Err(ApiError::new(413, "RequestEntityTooLargeException", message));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| {
        ApiError::new(400, "SerializationException", "The request body could not be parsed as JSON.")
    })?;
    envelope::refusal(&body).map_or(Ok(body), |refusal| Err(ApiError::invalid(refusal)))
}

/// Formats Unix seconds as the `Date` header does.
fn http_date(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
