//! Explanation of a request: what each target would get of it.

use serde_json::{Map, Value, json};

use super::targets;
use crate::api::AdminApi;
use crate::control::{ExplainRequest, ExplainedTarget};
use crate::error::{AdminApiError, ErrorCode};
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use codec::wire::Format;
use routing::account::Amount;

/// Formats that a client may have.
const FORMATS: [&str; 5] = ["chat", "messages", "responses", "generate", "converse"];

/// Request to be explained.
pub(crate) const QUESTION: Record = Record {
    name: "ExplainRequest",
    text: "Request to be explained.",
    members: &[
        member("format", MemberType::OneOf(&FORMATS), "The client's format."),
        optional("model", MemberType::Text, "Model as the client names it; by default that of the body."),
        optional("stream", MemberType::Flag, "Whether a stream is requested; by default what the body says."),
        optional("key", MemberType::Text, "Name of a key, whose permission is checked."),
        member("body", MemberType::Text, "Text of the body."),
    ],
};

/// Element that is lost.
const LOSS: Record = Record {
    name: "ExplainedLoss",
    text: "Element of a request that the target's format cannot carry as the client wrote it.",
    members: &[
        member("element", MemberType::Text, "Path of the member, or name of the part."),
        member("policy", MemberType::OneOf(&["silent", "warn", "refuse"]), "What happens to it."),
        member("clamped", MemberType::Flag, "Whether it is carried with a value moved into the range."),
    ],
};

/// Target that is explained.
const TARGET: Record = Record {
    name: "ExplainedTarget",
    text: "What a target would get of a request.",
    members: &[
        member("provider", MemberType::Text, "Name of the provider."),
        member("model", MemberType::Text, "Name of the model at the provider."),
        optional("format", MemberType::OneOf(&FORMATS), "Format of the provider; null if no API serves it."),
        member("verbatim", MemberType::Flag, "Whether the body is forwarded as it is, but for the model."),
        member(
            "asks_first",
            MemberType::Flag,
            "Whether the body is forwarded as it is first, and `body` is sent only if the provider refuses it.",
        ),
        optional("body", MemberType::Text, "Translated body; null if it is forwarded or refused."),
        member("losses", MemberType::List(&MemberType::Object(&LOSS)), "Elements lost or changed."),
        optional("error", MemberType::Text, "Reason why the target cannot serve it; null if it can."),
        optional("target", MemberType::Object(&targets::TARGET), "State of the target."),
    ],
};

/// Explanation.
pub(crate) const EXPLANATION: Record = Record {
    name: "Explanation",
    text: "What would become of a request.",
    members: &[
        member("model", MemberType::Text, "Id of the model that the name resolves to."),
        optional("permitted", MemberType::Flag, "Whether the key permits the model; null without a key."),
        optional("input_tokens", MemberType::Count, "Estimated input tokens."),
        optional("input_cost", MemberType::Amount, "Charge for them, if none is in a cache."),
        member("targets", MemberType::List(&MemberType::Object(&TARGET)), "Targets by tier."),
    ],
};

fn show(explained: &ExplainedTarget, target: Option<&Value>) -> Value {
    let loss = |(element, policy, clamped): &(String, &'static str, bool)| json!({ "element": element, "policy": policy, "clamped": clamped });
    json!({
        "provider": explained.provider,
        "model": explained.model,
        "format": explained.format.map(Format::name),
        "verbatim": explained.verbatim,
        "asks_first": explained.asks_first,
        "body": explained.body,
        "losses": explained.losses.iter().map(loss).collect::<Value>(),
        "error": explained.error,
        "target": target,
    })
}

/// Returns whether a key permits a model by its id or as it was named. `None` without a key.
fn permitted(api: &AdminApi, key: Option<&str>, names: [&str; 2]) -> Result<Option<bool>, AdminApiError> {
    let Some(name) = key else { return Ok(None) };
    let mut found = None;
    api.control().with_snapshot(&mut |snapshot, _| {
        let key = snapshot.keys.iter().find(|key| *key.name == *name);
        found = key.map(|key| names.iter().any(|name| key.rules.models.permits(name)));
    });
    found.map(Some).ok_or_else(|| AdminApiError::field("key", format!("no key is named {name:?}")))
}

/// Answers `POST /explain`.
pub(crate) fn explain(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.text("format").unwrap_or_default();
    let format = Format::ALL.into_iter().find(|format| format.name() == name);
    let format = format
        .ok_or_else(|| AdminApiError::field("format", format!("write one of {}", FORMATS.join(", "))))?;
    let body = request.text("body").unwrap_or_default();
    let parsed: Map<String, Value> = serde_json::from_str(body)
        .map_err(|error| AdminApiError::field("body", format!("the body is not a JSON object: {error}")))?;
    let named = request.text("model").or_else(|| parsed.get("model").and_then(Value::as_str));
    let model = named.ok_or_else(|| AdminApiError::field("model", "name a model, here or in the body"))?;
    let in_body = parsed.get("stream").and_then(Value::as_bool);
    let stream = request.body.get("stream").and_then(Value::as_bool).or(in_body).unwrap_or(false);
    let explained = api.control().explain(&ExplainRequest { format, model, stream, body });
    let unknown = || {
        let message = format!("no model is named {model:?}");
        AdminApiError { field: Some("model".to_owned()), ..AdminApiError::new(ErrorCode::NotFound, message) }
    };
    let explained = explained.ok_or_else(unknown)?;
    let permitted = permitted(api, request.text("key"), [&explained.model, model])?;
    let states = targets::list(api);
    let state = |target: &ExplainedTarget| states.get(&format!("{}\n{}", target.provider, target.model));
    Ok(ApiResponse::json(json!({
        "model": explained.model,
        "permitted": permitted,
        "input_tokens": explained.input_tokens,
        "input_cost": explained.input_cost.map(|nanos| Amount(nanos).to_string()),
        "targets": explained.targets.iter().map(|target| show(target, state(target))).collect::<Value>(),
    })))
}
