//! Models: their targets by tier, and how the name that a client sends resolves.

use serde_json::{Map, Value, json};

use super::{catalogue, change, keys, targets};
use crate::api::AdminApi;
use crate::error::AdminApiError;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use codec::catalogue::Catalogue;
use codec::wire::Api;
use config::EntryKind;
use routing::account::Amount;
use routing::account::price::TokenKind;
use routing::route::{Model, Nanos, RoutingTable, Target, upstream_api};

/// Page of models.
const PAGE: usize = 100;
/// Largest page of models.
const LARGEST_PAGE: usize = 1_000;

/// Target of a model.
pub(crate) const MODEL_TARGET: Record = Record {
    name: "ModelTarget",
    text: "Target of a model.",
    members: &[
        member("provider", MemberType::Text, "Name of the provider."),
        member("model", MemberType::Text, "Name of the model at the provider."),
        member(
            "tier",
            MemberType::Count,
            "Tier: it is used while no target of a lower one can take a request.",
        ),
        member("weight", MemberType::Count, "Weight among the targets of the tier; 0 if it is drained."),
        member("share_percent", MemberType::Count, "Share of the tier's weight, in percent."),
        member(
            "apis",
            MemberType::Open,
            "API that serves a request, by the API of the client; null if none does.",
        ),
        member("target", MemberType::Object(&targets::TARGET), "State of the target."),
        optional(
            "price",
            MemberType::Object(&catalogue::TARGET_PRICE),
            "Price in effect for requests that it serves; only when one model is asked for.",
        ),
        optional(
            "catalogue",
            MemberType::Object(&catalogue::CATALOGUE_ENTRY),
            "What the catalogue knows of it, likewise.",
        ),
    ],
};

/// Model as it is shown.
pub(crate) const MODEL: Record = Record {
    name: "Model",
    text: "Model that clients can request, with what is in effect for it.",
    members: &[
        member("id", MemberType::Text, "Id that clients send."),
        member("owned_by", MemberType::Text, "Owner in model listings."),
        optional("alias", MemberType::Text, "Second name for Claude Code."),
        optional("context_window", MemberType::Count, "Context window in tokens."),
        optional("max_output_tokens", MemberType::Count, "Maximum output in tokens."),
        optional("image_input", MemberType::Flag, "Whether it reads images, if the configuration says so."),
        optional(
            "parallel_tool_calls",
            MemberType::Flag,
            "Whether it calls several tools in a turn, likewise.",
        ),
        member("policy", MemberType::Text, "Load-balancing policy within a tier."),
        member("prompt_cache", MemberType::Text, "Prompt-cache policy."),
        member("retry", MemberType::Open, "Retry rules in effect."),
        optional("price", MemberType::Open, "Price in effect, per million tokens; null for a free model."),
        member(
            "targets",
            MemberType::List(&MemberType::Object(&MODEL_TARGET)),
            "Targets, those of fallbacks included.",
        ),
        optional(
            "resolved",
            MemberType::Open,
            "How the requested name resolves; only when one model is asked for.",
        ),
        optional("file", MemberType::Text, "File that has the model; only when one model is asked for."),
        optional("etag", MemberType::Text, "Version of this file, for `if-match`."),
    ],
};

/// Page of models.
pub(crate) const MODELS: Record = Record {
    name: "ModelPage",
    text: "Page of models, in the order of the configuration.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&MODEL)), "Models."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
        member("total", MemberType::Count, "Number of all models."),
    ],
};

fn show_target(model: &Model, target: &Target, now: Nanos) -> Value {
    let tier = target.handle.tier;
    let in_tier = model.targets.iter().filter(|other| other.handle.tier == tier);
    let sum: u64 = in_tier.map(|other| u64::from(other.handle.weight)).sum();
    let apis: Map<String, Value> = Api::ALL
        .iter()
        .map(|api| (api.name().to_owned(), json!(upstream_api(target, *api).map(Api::name))))
        .collect();
    json!({
        "provider": &*target.provider.name,
        "model": &*target.model,
        "tier": tier,
        "weight": target.handle.weight,
        "share_percent": (u64::from(target.handle.weight) * 100).checked_div(sum).unwrap_or(0),
        "apis": apis,
        "target": targets::show(target, now),
    })
}

fn price(model: &Model, now: i64) -> Value {
    if model.price.is_empty() {
        return Value::Null;
    }
    let Some(config) = model.price.row_at(now) else { return Value::Null };
    let amount = |nanos: i64| Value::from(Amount(nanos).to_string());
    let rates = TokenKind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind.name().to_owned(), amount(config.rates.configured(kind)?))));
    let others = [("search", config.search), ("request", config.request)];
    let others = others.into_iter().filter_map(|(name, nanos)| Some((name.to_owned(), amount(nanos?))));
    Value::Object(rates.chain(others).collect())
}

fn show(table: &RoutingTable, model: &Model, now: Nanos) -> Value {
    let retry = &model.routing.retry;
    json!({
        "id": &*model.id,
        "owned_by": &*model.owned_by,
        "alias": table.aliases().of(model).map(|alias| &*alias.id),
        "context_window": model.context_window,
        "max_output_tokens": model.abilities.max_output_tokens,
        "image_input": model.abilities.image_input,
        "parallel_tool_calls": model.abilities.parallel_tool_calls,
        "policy": model.routing.policy.name(),
        "prompt_cache": model.prompt_cache.name(),
        "retry": {
            "attempts": retry.attempts,
            "deadline_ms": u64::try_from(retry.deadline.as_millis()).unwrap_or(u64::MAX),
            "hold_ms": u64::try_from(retry.hold.as_millis()).unwrap_or(u64::MAX),
            "percent": retry.share.percent,
            "reserve": retry.share.reserve,
            "context_length": retry.context_length,
            "unsupported": retry.unsupported,
            "continue": retry.resume,
        },
        "price": price(model, routing::account::price::now()),
        "targets": model.targets.iter().map(|target| show_target(model, target, now)).collect::<Value>(),
    })
}

/// Answers `GET /models`.
pub(crate) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let after = request.parameter("cursor");
    let mut answer = Err(AdminApiError::field("cursor", "names no model"));
    api.control().with_snapshot(&mut |snapshot, now| {
        let table = &snapshot.routes;
        let start = match &after {
            None => 0,
            Some(id) => match table.model(id) {
                Some(model) => model.index.saturating_add(1),
                None => return,
            },
        };
        let models = table.models();
        let page: Vec<_> = models.iter().skip(start).take(limit).collect();
        let more = start.saturating_add(page.len()) < models.len();
        answer = Ok(json!({
            "items": page.iter().map(|model| show(table, model, now)).collect::<Value>(),
            "next_cursor": page.last().filter(|_| more).map(|model| &*model.id),
            "total": models.len(),
        }));
    });
    answer.map(ApiResponse::json)
}

/// Adds to the targets of a model what is known of each.
fn add_known<'v>(known: &Catalogue, model: &Model, list: impl Iterator<Item = &'v mut Value>) {
    let now = routing::account::price::now();
    for (shown, target) in list.zip(&model.targets) {
        let Some(members) = shown.as_object_mut() else { continue };
        members.insert("price".to_owned(), catalogue::price(known, model, target, now));
        members.insert("catalogue".to_owned(), catalogue::entry(known, target, now));
    }
}

/// Answers `GET /models/{id}`: the id, or any name that clients may send for it.
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    let mut found = None;
    api.control().with_snapshot(&mut |snapshot, now| {
        let Some(named) = snapshot.routes.resolve(name) else { return };
        let mut shown = show(&snapshot.routes, named.model, now);
        if let Some(members) = shown.as_object_mut() {
            let resolved = json!({
                "requested": name,
                "provider": named.provider,
                "alias": named.alias.is_some(),
                "reasoning": format!("{:?}", named.thinking).to_ascii_lowercase(),
            });
            members.insert("resolved".to_owned(), resolved);
            let list = members.get_mut("targets").and_then(Value::as_array_mut);
            add_known(&snapshot.catalogue, named.model, list.into_iter().flatten());
        }
        found = Some((named.model.id.to_string(), shown));
    });
    let (id, shown) = found.ok_or_else(|| AdminApiError::unknown("model", name))?;
    keys::with_file(api, EntryKind::Model, &id, shown)
}

/// Answers `POST /models`.
pub(crate) fn create(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::create(api, request, EntryKind::Model, "model.create")
}

/// Answers `PATCH /models/{id}`.
pub(crate) fn update(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::update(api, request, EntryKind::Model, "model.update")
}

/// Answers `DELETE /models/{id}`.
pub(crate) fn remove(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::remove(api, request, EntryKind::Model, "model.delete")
}
