//! The fleet: what each gateway is, and whether all have the same configuration.

use serde_json::{Value, json};

use crate::api::AdminApi;
use crate::fleet::{SHOWN_FOR, unix_now};
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member};
use codec::canonical::time::unix_seconds;

/// Gateway of a fleet.
const GATEWAY: Record = Record {
    name: "Gateway",
    text: "What a gateway says of itself.",
    members: &[
        member("id", MemberType::Text, "Id, which outlives restarts; `this` without a shared store."),
        member("self", MemberType::Flag, "Whether it is the one that answers."),
        member("version", MemberType::Text, "Version."),
        member("pid", MemberType::Count, "Process id."),
        member("address", MemberType::Text, "Address of its admin port, as it is configured."),
        member("started", MemberType::Time, "Time of its start."),
        member("seen", MemberType::Time, "Time at which it has said so."),
        member("generation", MemberType::Count, "Number of its configuration, from 1 at its start."),
        member("config_hash", MemberType::Text, "Hash of its files of routes and keys."),
        member("ready", MemberType::Flag, "Whether it should get new requests."),
        member("draining", MemberType::Flag, "Whether it is shutting down."),
        member("drained", MemberType::List(&MemberType::Text), "Drained targets: provider, slash, model."),
    ],
};

/// Fleet.
pub(crate) const FLEET: Record = Record {
    name: "Fleet",
    text: "Gateways that share a store and were seen within a minute.",
    members: &[
        member("shared", MemberType::Flag, "False without a shared store: then only this gateway is known."),
        member("same_config", MemberType::Flag, "Whether all have the same files of routes and keys."),
        member("same_version", MemberType::Flag, "Whether all have the same version."),
        member("gateways", MemberType::List(&MemberType::Object(&GATEWAY)), "Gateways, this one first."),
    ],
};

/// Answers `GET /fleet`.
pub(crate) fn read(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let announced = api.ledger().with(|ledger| ledger.announced())?;
    let shared = announced.is_some();
    let mut gateways = vec![api.identity().describe(api)];
    let oldest = unix_now().saturating_sub(SHOWN_FOR);
    for text in announced.into_iter().flatten() {
        let Ok(gateway) = serde_json::from_str::<Value>(&text) else { continue };
        let of = |name: &str| gateway.get(name).and_then(Value::as_str);
        let is_recent = of("seen").and_then(unix_seconds).is_some_and(|seen| seen >= oldest);
        if is_recent && of("id") != Some(&api.identity().id) {
            gateways.push(gateway);
        }
    }
    if let Some(others) = gateways.get_mut(1..) {
        others.sort_by_key(|gateway| gateway.get("id").map(Value::to_string));
    }
    let same = |name: &str| {
        gateways.iter().all(|gateway| gateway.get(name) == gateways.first().and_then(|first| first.get(name)))
    };
    let (same_config, same_version) = (same("config_hash"), same("version"));
    for (index, gateway) in gateways.iter_mut().enumerate() {
        if let Some(members) = gateway.as_object_mut() {
            members.insert("self".to_owned(), (index == 0).into());
        }
    }
    Ok(ApiResponse::json(json!({
        "shared": shared,
        "same_config": same_config,
        "same_version": same_version,
        "gateways": gateways,
    })))
}
