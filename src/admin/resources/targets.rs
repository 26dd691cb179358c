//! Targets: their state with its reason, and draining.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::change::record_refusal;
use crate::admin::api::AdminApi;
use crate::admin::control::GatewayControl;
use crate::admin::error::{AdminApiError, ErrorCode};
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiResponse, ApiResult};
use crate::admin::schema::{MemberType, Record, member, optional};
use crate::route::target_status::TargetStatus;
use crate::route::{Nanos, Target};

/// Target as it is shown.
pub(in crate::admin) const TARGET: Record = Record {
    name: "Target",
    text: "Model at a provider. All models that lead to it share its state.",
    members: &[
        member("provider", MemberType::Text, "Name of the provider."),
        member("model", MemberType::Text, "Name of the model at the provider."),
        member("models", MemberType::List(&MemberType::Text), "Models that lead to it."),
        member("state", MemberType::OneOf(&TargetStatus::NAMES), "State."),
        member("reason", MemberType::Text, "Reason of the state."),
        optional("for_ms", MemberType::Count, "Time until the state may change; null if unknown."),
        member("drained", MemberType::Flag, "Whether an operator has drained it."),
        member("in_flight", MemberType::Count, "Requests in flight."),
        member("latency_us", MemberType::Count, "Mean time to the response head, in microseconds."),
    ],
};

/// All targets.
pub(in crate::admin) const TARGETS: Record = Record {
    name: "TargetList",
    text: "All targets, ordered by provider and model.",
    members: &[member("items", MemberType::List(&MemberType::Object(&TARGET)), "Targets.")],
};

/// Result of draining or resuming.
pub(in crate::admin) const DRAINED: Record = Record {
    name: "DrainedTarget",
    text: "Target after it was drained or resumed.",
    members: &[
        member("changed", MemberType::Flag, "False if it was so before."),
        member("target", MemberType::Object(&TARGET), "Target."),
        optional("audit", MemberType::Count, "Number of the line in the audit log."),
    ],
};

/// Returns the state of a target as JSON.
pub(in crate::admin) fn show(target: &Target, now: Nanos) -> Value {
    let status = TargetStatus::of(target, now);
    // A latency of some seconds is far below the range of 64 bits.
    let micros = (target.handle.state.latency.mean(now) / 1_000.0) as u64;
    json!({
        "provider": &*target.provider.name,
        "model": &*target.model,
        "models": [],
        "state": status.name(),
        "reason": status.reason(),
        "for_ms": status.remaining().map(|nanos| nanos.max(0) / 1_000_000),
        "drained": target.drained_weight.is_some(),
        "in_flight": target.handle.state.in_flight.get(),
        "latency_us": micros,
    })
}

/// Returns all targets by provider and model. A target that several models share is listed once, as used if one of them
/// uses it.
pub(in crate::admin) fn list(control: &dyn GatewayControl) -> BTreeMap<String, Value> {
    let mut targets: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    control.with_snapshot(&mut |snapshot, now| {
        for model in snapshot.routes.models() {
            for target in &model.targets {
                let name = format!("{}\n{}", target.provider.name, target.model);
                let entry = targets.entry(name).or_insert_with(|| (show(target, now), Vec::new()));
                let is_off = entry.0.get("state").is_some_and(|state| state == TargetStatus::Off.name());
                if is_off && target.handle.weight > 0 {
                    entry.0 = show(target, now);
                }
                entry.1.push((&*model.id).into());
            }
        }
    });
    let with_models = |(name, (mut target, models)): (String, (Value, Vec<Value>))| {
        if let Some(members) = target.as_object_mut() {
            members.insert("models".to_owned(), models.into());
        }
        (name, target)
    };
    targets.into_iter().map(with_models).collect()
}

/// Answers `GET /targets`.
pub(in crate::admin) fn read_all(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let items: Vec<Value> = list(&**api.control()).into_values().collect();
    Ok(ApiResponse::json(json!({ "items": items })))
}

fn find(api: &AdminApi, request: &ApiRequest) -> Result<Value, AdminApiError> {
    let (provider, model) = (request.name(0), request.name(1));
    let found = list(&**api.control()).remove(&format!("{provider}\n{model}"));
    found.ok_or_else(|| AdminApiError::unknown("target", &format!("{provider}/{model}")))
}

/// Answers `GET /targets/{provider}/{model}`.
pub(in crate::admin) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    find(api, request).map(ApiResponse::json)
}

/// Answers `POST /targets/{provider}/{model}/drain`.
pub(in crate::admin) fn drain(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    set_drained(api, request, true)
}

/// Answers `POST /targets/{provider}/{model}/resume`.
pub(in crate::admin) fn resume(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    set_drained(api, request, false)
}

fn set_drained(api: &AdminApi, request: &ApiRequest, drained: bool) -> ApiResult {
    let before = find(api, request)?;
    let (provider, model) = (request.name(0), request.name(1));
    let action = if drained { "target.drain" } else { "target.resume" };
    let was_drained = before.get("drained").and_then(Value::as_bool).unwrap_or(false);
    if was_drained == drained || request.dry_run()? {
        return Ok(ApiResponse::json(json!({ "changed": false, "target": before, "audit": null })));
    }
    let mut entry = api.audit_entry(request, action, format!("target/{provider}/{model}"));
    entry.details.insert("before".to_owned(), json!({ "drained": was_drained }));
    entry.details.insert("after".to_owned(), json!({ "drained": drained }));
    let number = api.record(&entry)?;
    // First the file: a drained target must stay so if the process ends now.
    if let Err(error) = api.drained().set(provider, model, drained) {
        let message = format!("the state folder cannot be written: {error}");
        let error = AdminApiError::new(ErrorCode::Unavailable, message);
        record_refusal(api, entry, &error);
        return Err(error);
    }
    let changed = api.control().set_drained(provider, model, drained);
    let target = find(api, request)?;
    Ok(ApiResponse::json(json!({ "changed": changed, "target": target, "audit": number })))
}
