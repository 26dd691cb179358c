//! Targets: their state with its reason, and draining.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::time;
use crate::api::AdminApi;
use crate::drain_state::DrainNote;
use crate::error::{AdminApiError, ErrorCode};
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use codec::canonical::time::unix_seconds;
use routing::route::target_status::TargetStatus;
use routing::route::{Nanos, Target};

/// Target as it is shown.
pub(crate) const TARGET: Record = Record {
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
        optional("drained_until", MemberType::Time, "Time at which it is resumed by itself; null for never."),
        optional("drain_reason", MemberType::Text, "Reason that the operator has given."),
        optional(
            "failures_percent",
            MemberType::Count,
            "Share of failures among the requests that its breaker has counted lately; null without requests.",
        ),
        member("in_flight", MemberType::Count, "Requests in flight."),
        optional(
            "latency_us",
            MemberType::Count,
            "Mean time to the response head, in microseconds; null before the first request.",
        ),
    ],
};

/// All targets.
pub(crate) const TARGETS: Record = Record {
    name: "TargetList",
    text: "All targets, ordered by provider and model.",
    members: &[member("items", MemberType::List(&MemberType::Object(&TARGET)), "Targets.")],
};

/// Longest reason of an operator, in bytes.
const LONGEST_REASON: usize = 256;

/// Body of draining.
pub(crate) const DRAIN: Record = Record {
    name: "Drain",
    text: "Draining of a target.",
    members: &[
        optional(
            "until",
            MemberType::Time,
            "Time at which it is resumed by itself. By default it stays drained until it is resumed.",
        ),
        optional("reason", MemberType::Text, "Reason, which others see; at most 256 bytes."),
    ],
};

/// Result of closing a breaker.
pub(crate) const CLOSED: Record = Record {
    name: "ClosedBreaker",
    text: "Target after its breaker was closed.",
    members: &[
        member("changed", MemberType::Flag, "False if it was closed before."),
        member("target", MemberType::Object(&TARGET), "Target."),
        optional("audit", MemberType::Count, "Number of the line in the audit log."),
    ],
};

/// Result of draining or resuming.
pub(crate) const DRAINED: Record = Record {
    name: "DrainedTarget",
    text: "Target after it was drained or resumed.",
    members: &[
        member("changed", MemberType::Flag, "False if it was so before."),
        member("target", MemberType::Object(&TARGET), "Target."),
        optional("audit", MemberType::Count, "Number of the line in the audit log."),
    ],
};

/// Returns the state of a target as JSON.
pub(crate) fn show(target: &Target, now: Nanos) -> Value {
    let status = TargetStatus::of(target, now);
    let (failures, successes) = target.handle.state.breaker.counts();
    let all = u64::from(failures).saturating_add(successes.into());
    // A latency of some seconds is far below the range of 64 bits.
    let micros = target.handle.state.latency.observed().map(|nanos| (nanos / 1_000.0) as u64);
    json!({
        "provider": &*target.provider.name,
        "model": &*target.model,
        "models": [],
        "state": status.name(),
        "reason": status.reason(),
        "for_ms": status.remaining().map(|nanos| nanos.max(0) / 1_000_000),
        "drained": target.drained_weight.is_some(),
        "failures_percent": u64::from(failures).saturating_mul(100).checked_div(all),
        "in_flight": target.handle.state.in_flight.get(),
        "latency_us": micros,
    })
}

/// Adds what the operator has said who has drained a target.
fn noted(api: &AdminApi, mut shown: Value, target: &Target) -> Value {
    let note = api.drained().note(&target.provider.name, &target.model);
    if let (Some(members), Some(note)) = (shown.as_object_mut(), note) {
        members.insert("drained_until".to_owned(), json!(note.until.map(time)));
        members.insert("drain_reason".to_owned(), json!(note.reason));
    }
    shown
}

/// Returns all targets by provider and model. A target that several models share is listed once, as used if one of them
/// uses it.
pub(crate) fn list(api: &AdminApi) -> BTreeMap<String, Value> {
    let mut targets: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    api.control().with_snapshot(&mut |snapshot, now| {
        for model in snapshot.routes.models() {
            for target in &model.targets {
                let name = format!("{}\n{}", target.provider.name, target.model);
                let show = || noted(api, show(target, now), target);
                let entry = targets.entry(name).or_insert_with(|| (show(), Vec::new()));
                let is_off = entry.0.get("state").is_some_and(|state| state == TargetStatus::Off.name());
                if is_off && target.handle.weight > 0 {
                    entry.0 = show();
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
pub(crate) fn read_all(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let items: Vec<Value> = list(api).into_values().collect();
    Ok(ApiResponse::json(json!({ "items": items })))
}

fn find(api: &AdminApi, request: &ApiRequest) -> Result<Value, AdminApiError> {
    let (provider, model) = (request.name(0), request.name(1));
    let found = list(api).remove(&format!("{provider}\n{model}"));
    found.ok_or_else(|| AdminApiError::unknown("target", &format!("{provider}/{model}")))
}

/// Answers `GET /targets/{provider}/{model}`.
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    find(api, request).map(ApiResponse::json)
}

/// Answers `POST /targets/{provider}/{model}/drain`.
pub(crate) fn drain(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let until = request.text("until").map(|text| {
        unix_seconds(text)
            .ok_or_else(|| AdminApiError::field("until", "write a time such as 2027-01-31T00:00:00Z"))
    });
    let until = until.transpose()?;
    if until.is_some_and(|until| until <= now()) {
        return Err(AdminApiError::field("until", "the time is over"));
    }
    let reason = request.text("reason").filter(|reason| !reason.is_empty()).map(str::to_owned);
    if reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(AdminApiError::field("reason", format!("the maximum is {LONGEST_REASON} bytes")));
    }
    set_drained(api, request, Some(DrainNote { until, reason }))
}

/// Answers `POST /targets/{provider}/{model}/resume`.
pub(crate) fn resume(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    set_drained(api, request, None)
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

fn note_json(note: Option<&DrainNote>) -> Value {
    json!({
        "drained": note.is_some(),
        "until": note.and_then(|note| note.until).map(time),
        "reason": note.and_then(|note| note.reason.as_deref()),
    })
}

fn set_drained(api: &AdminApi, request: &ApiRequest, note: Option<DrainNote>) -> ApiResult {
    let before = find(api, request)?;
    let (provider, model) = (request.name(0), request.name(1));
    let action = if note.is_some() { "target.drain" } else { "target.resume" };
    let note_before = api.drained().note(provider, model);
    if note_before == note || request.dry_run()? {
        return Ok(ApiResponse::json(json!({ "changed": false, "target": before, "audit": null })));
    }
    let mut entry = api.audit_entry(request, action, format!("target/{provider}/{model}"));
    entry.details.insert("before".to_owned(), note_json(note_before.as_ref()));
    entry.details.insert("after".to_owned(), note_json(note.as_ref()));
    let drained = note.is_some();
    let (target, number) = api.record_change(entry, || {
        // First the file: a drained target must stay so if the process ends now.
        api.drained().set(provider, model, note).map_err(|error| {
            let message = format!("the state folder cannot be written: {error}");
            AdminApiError::new(ErrorCode::Unavailable, message)
        })?;
        api.control().set_drained(provider, model, drained);
        find(api, request)
    })?;
    Ok(ApiResponse::json(json!({ "changed": true, "target": target, "audit": number })))
}

/// Resumes the targets whose time is over. Blocks.
pub(crate) fn resume_over(api: &AdminApi) {
    for (provider, model) in api.drained().over(now()) {
        // It stays drained until its end is stored: the next process would drain it again.
        if let Err(error) = api.drained().set(&provider, &model, None) {
            tracing::warn!(%error, "the end of a draining cannot be stored");
            continue;
        }
        api.control().set_drained(&provider, &model, false);
        // The line is no condition: the time was in that of the draining.
        api.record_cause("clock", "target.resume", format!("target/{provider}/{model}"));
    }
}

/// Answers `POST /targets/{provider}/{model}/close`: closes the breakers of a target and its provider.
pub(crate) fn close(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let before = find(api, request)?;
    let (provider, model) = (request.name(0), request.name(1));
    let is_open = before.get("state").and_then(Value::as_str);
    let is_open = is_open.is_some_and(|state| ["open", "provider_open", "half_open"].contains(&state));
    if !is_open || request.dry_run()? {
        return Ok(ApiResponse::json(json!({ "changed": false, "target": before, "audit": null })));
    }
    let mut entry = api.audit_entry(request, "target.close", format!("target/{provider}/{model}"));
    entry.details.insert("before".to_owned(), json!({ "state": before.get("state") }));
    let ((changed, target), number) = api.record_change(entry, || {
        let mut changed = false;
        api.control().with_snapshot(&mut |snapshot, _| {
            let targets = snapshot.routes.models().iter().flat_map(|one| &one.targets);
            for target in
                targets.filter(|target| *target.provider.name == *provider && *target.model == *model)
            {
                changed |= target.handle.state.provider_breaker.recover(true);
                changed |= target.handle.state.breaker.recover(true);
            }
        });
        Ok((changed, find(api, request)?))
    })?;
    Ok(ApiResponse::json(json!({ "changed": changed, "target": target, "audit": number })))
}
