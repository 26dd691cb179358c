//! The instance: what runs, whether it is well, and what the caller may do.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::time;
use crate::PREFIX;
use crate::api::AdminApi;
use crate::error::fault;
use crate::openapi;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::route_table::ROUTES;
use crate::schema::{MemberType, Record, member, optional};
use config::ReloadOutcome;

/// Index of the API.
pub(crate) const INDEX: Record = Record {
    name: "Index",
    text: "What the caller may do.",
    members: &[
        member("version", MemberType::Text, "Version of the gateway."),
        member("caller", MemberType::Text, "Name of the caller, as the audit log has it."),
        member("role", MemberType::OneOf(&["read", "operate", "admin"]), "Role of the caller."),
        member("paths", MemberType::List(&MemberType::Text), "Operations that the role permits."),
        optional(
            "currency",
            MemberType::Text,
            "Currency of all amounts; null if `admin.currency` is not set.",
        ),
    ],
};

/// Result of a reload.
pub(crate) const RELOAD: Record = Record {
    name: "Reload",
    text: "Result of a reload.",
    members: &[
        member(
            "result",
            MemberType::OneOf(&["applied", "refused"]),
            "Whether the files are in effect: those of routes and keys, and admin.toml, each of which is refused by itself.",
        ),
        member("generation", MemberType::Count, "Number of the configuration in effect."),
        member("time", MemberType::Time, "Time of the result."),
        member("milliseconds", MemberType::Count, "Duration of reading and checking."),
        member("models", MemberType::Count, "Number of models in effect."),
        member("keys", MemberType::Count, "Number of keys in effect."),
        member("faults", MemberType::List(&MemberType::Object(&FAULT)), "Faults of refused files."),
    ],
};

/// Fault of a configuration file.
pub(crate) const FAULT: Record = Record {
    name: "Fault",
    text: "Fault of a configuration file.",
    members: &[
        member("file", MemberType::Text, "Path of the file."),
        member("line", MemberType::Count, "Line from 1; 0 for the file as a whole."),
        member("column", MemberType::Count, "Column from 1; 0 for the file as a whole."),
        member("key", MemberType::Text, "Path of the key in the file; may be empty."),
        member("message", MemberType::Text, "What is wrong."),
        optional("hint", MemberType::Text, "What to write instead."),
    ],
};

/// State of the process.
pub(crate) const INSTANCE: Record = Record {
    name: "Instance",
    text: "State of the process.",
    members: &[
        member("version", MemberType::Text, "Version of the gateway."),
        member("pid", MemberType::Count, "Process id."),
        member("ready", MemberType::Flag, "Whether it should get new requests."),
        optional("not_ready_because", MemberType::Text, "Reason why it should get none."),
        member("draining", MemberType::Flag, "Whether it is shutting down."),
        member("requests_in_flight", MemberType::Count, "Requests in flight."),
        member("listeners", MemberType::Count, "Open streams of live requests."),
        member(
            "keys_at_this_gateway_only",
            MemberType::Flag,
            "Whether a key that is created here is unknown to the other gateways that share the store: each has files of its \
             own.",
        ),
        member("writes", MemberType::Flag, "Whether the API may change files (`admin.writes`)."),
        member("last_reload", MemberType::Object(&RELOAD), "Result of the last reload."),
    ],
};

/// Returns the result of a reload as JSON.
pub(crate) fn reload_json(outcome: &ReloadOutcome) -> Value {
    let at = outcome.at.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs());
    json!({
        "result": if outcome.is_applied() { "applied" } else { "refused" },
        "generation": outcome.generation,
        "time": time(i64::try_from(at).unwrap_or(0)),
        "milliseconds": u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
        "models": outcome.models,
        "keys": outcome.keys,
        "faults": outcome.faults().map(fault).collect::<Value>(),
    })
}

/// Answers `GET /`.
pub(crate) fn index(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let role = request.caller.role;
    let currency = &api.settings().admin_api.currency;
    let paths = ROUTES.iter().filter(|route| route.role <= role);
    Ok(ApiResponse::json(json!({
        "version": observe::VERSION,
        "caller": request.caller.name,
        "role": role.name(),
        "currency": Some(currency).filter(|currency| !currency.is_empty()),
        "paths": paths.map(|route| format!("{} {PREFIX}{}", route.method, route.path)).collect::<Value>(),
    })))
}

/// Answers `GET /instance`.
pub(crate) fn read(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let ready = api.control().ready();
    Ok(ApiResponse::json(json!({
        "version": observe::VERSION,
        "pid": std::process::id(),
        "ready": ready.is_ok(),
        "not_ready_because": ready.err(),
        "draining": api.control().is_draining(),
        "requests_in_flight": api.control().in_flight(),
        "listeners": api.live().listeners(),
        "keys_at_this_gateway_only": api.has_local_keys(),
        "writes": api.settings().admin_api.writes,
        "last_reload": reload_json(&api.writer().reloader().last()),
    })))
}

/// Answers `GET /openapi.json`.
pub(crate) fn openapi(_api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    Ok(ApiResponse::json(openapi::document()))
}
