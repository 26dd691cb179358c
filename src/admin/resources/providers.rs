//! Providers: what is configured, without credentials, and the last health check.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{change, keys, time};
use crate::api::AdminApi;
use crate::control::ProviderCheck;
use crate::error::AdminApiError;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use codec::provider::Provider;
use config::EntryKind;
use routing::snapshot::Snapshot;

/// Last health check of a provider.
const CHECK: Record = Record {
    name: "ProviderCheck",
    text: "Last health check of a provider.",
    members: &[
        member("outcome", MemberType::Text, "Outcome."),
        optional("status", MemberType::Count, "HTTP status of the answer."),
        member("time", MemberType::Time, "Time."),
    ],
};

/// Provider as it is shown.
pub(crate) const PROVIDER: Record = Record {
    name: "Provider",
    text: "Provider.",
    members: &[
        member("name", MemberType::Text, "Name."),
        member("kind", MemberType::Text, "Kind."),
        member("base_url", MemberType::Text, "Base URL."),
        member("apis", MemberType::List(&MemberType::Text), "APIs that it offers."),
        member("has_credential", MemberType::Flag, "Whether it has a credential, which is never shown."),
        member("headers", MemberType::List(&MemberType::Text), "Names of additional headers."),
        member("models", MemberType::List(&MemberType::Text), "Models that lead to it."),
        optional("check", MemberType::Object(&CHECK), "Last health check; null if it is not checked."),
        optional("file", MemberType::Text, "File that has the provider; only when one is asked for."),
        optional("etag", MemberType::Text, "Version of this file, for `if-match`."),
    ],
};

/// All providers.
pub(crate) const PROVIDERS: Record = Record {
    name: "ProviderList",
    text: "All providers, in the order of the configuration.",
    members: &[member("items", MemberType::List(&MemberType::Object(&PROVIDER)), "Providers.")],
};

/// Ids of the models that lead to each provider, in the order of the configuration.
type ModelsOfProviders = HashMap<Box<str>, Vec<Value>>;

fn models_of(snapshot: &Snapshot) -> ModelsOfProviders {
    let mut models = ModelsOfProviders::new();
    for model in snapshot.routes.models() {
        let mut seen = HashSet::new();
        for target in model.targets.iter().filter(|target| seen.insert(&*target.provider.name)) {
            models.entry(target.provider.name.clone()).or_default().push((&*model.id).into());
        }
    }
    models
}

fn show(models: &mut ModelsOfProviders, provider: &Provider, check: Option<ProviderCheck>) -> Value {
    let models = models.remove(&provider.name).unwrap_or_default();
    json!({
        "name": &*provider.name,
        "kind": provider.kind.name(),
        "base_url": provider.base.to_string(),
        "apis": provider.apis.iter().map(|api| Value::from(api.name())).collect::<Value>(),
        "has_credential": provider.has_credential(),
        "headers": provider.headers.iter().map(|(name, _)| Value::from(name.as_str())).collect::<Value>(),
        "models": models,
        "check": check.map(|check| json!({
            "outcome": check.outcome,
            "status": check.status,
            "time": time(check.time),
        })),
    })
}

/// Answers `GET /providers`.
pub(crate) fn list(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let mut items = Vec::new();
    api.control().with_snapshot(&mut |snapshot, _| {
        let mut models = models_of(snapshot);
        for provider in snapshot.routes.providers() {
            items.push(show(&mut models, provider, api.control().last_check(&provider.name)));
        }
    });
    Ok(ApiResponse::json(json!({ "items": items })))
}

/// Answers `GET /providers/{name}`.
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    let mut shown = None;
    api.control().with_snapshot(&mut |snapshot, _| {
        let provider = snapshot.routes.providers().iter().find(|provider| *provider.name == *name);
        shown =
            provider.map(|provider| show(&mut models_of(snapshot), provider, api.control().last_check(name)));
    });
    let shown = shown.ok_or_else(|| AdminApiError::unknown("provider", name))?;
    keys::with_file(api, EntryKind::Provider, name, shown)
}

/// Answers `POST /providers`.
pub(crate) fn create(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::create(api, request, EntryKind::Provider, "provider.create")
}

/// Answers `PATCH /providers/{name}`.
pub(crate) fn update(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::update(api, request, EntryKind::Provider, "provider.update")
}

/// Answers `DELETE /providers/{name}`.
pub(crate) fn remove(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::remove(api, request, EntryKind::Provider, "provider.delete")
}
