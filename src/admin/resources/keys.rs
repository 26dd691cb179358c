//! Keys: their rules and state, never their text or their whole hash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::change::{self, AuditAction};
use super::search::ListSearch;
use super::time;
use crate::api::AdminApi;
use crate::error::{AdminApiError, ErrorCode};
use crate::request::ApiRequest;
use crate::response::{AnswerContent, ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use config::{self, ConfigChange, EntryKind};
use routing::account::{Amount, Key, KeyHash, KeyState, MAX_PREVIOUS, NewKey, Pattern, Permission};
use routing::limits::UsageLimits;
use routing::snapshot::Snapshot;

/// Page of keys.
const PAGE: usize = 100;
/// Largest page of keys.
const LARGEST_PAGE: usize = 1_000;
/// Digits of a hash that are shown.
const HASH_DIGITS: usize = 12;

/// Limits of a key or an account.
pub(crate) const LIMITS: Record = Record {
    name: "Limits",
    text: "Limits of a key or an account; null where there is none.",
    members: &[
        optional("requests_per_minute", MemberType::Count, "Requests per minute."),
        optional("tokens_per_minute", MemberType::Count, "Tokens per minute."),
        optional("concurrent", MemberType::Count, "Concurrent requests."),
        optional("spend_per_day", MemberType::Amount, "Spend per day, UTC."),
        optional("spend_per_month", MemberType::Amount, "Spend per month, UTC."),
    ],
};

/// Earlier text of a key.
const PREVIOUS: Record = Record {
    name: "PreviousKey",
    text: "Earlier text of a key that was rotated.",
    members: &[
        member("sha256", MemberType::Text, "First 12 digits of the hash."),
        member("until", MemberType::Time, "End of its validity."),
    ],
};

/// Rotation of a key.
pub(crate) const ROTATION: Record = Record {
    name: "Rotation",
    text: "Rotation of a key.",
    members: &[optional(
        "grace",
        MemberType::Text,
        "Time for which the old text stays valid beside the new one, such as `24h`; at most 90 days. By default it is \
         refused at once.",
    )],
};

/// Key as it is shown.
pub(crate) const KEY: Record = Record {
    name: "Key",
    text: "Key of clients.",
    members: &[
        member("name", MemberType::Text, "Name."),
        member("sha256", MemberType::Text, "First 12 digits of the hash."),
        member("state", MemberType::OneOf(&["usable", "disabled", "expired"]), "Whether it may be used."),
        member("enabled", MemberType::Flag, "Whether it is enabled."),
        optional("expires", MemberType::Time, "Expiry; null if it never expires."),
        member(
            "previous",
            MemberType::List(&MemberType::Object(&PREVIOUS)),
            "Earlier texts that are still valid after a rotation with a grace period.",
        ),
        optional("account", MemberType::Text, "Account that is charged; null if there is none."),
        optional("models", MemberType::List(&MemberType::Text), "Permitted models; null for all."),
        member(
            "unmatched_models",
            MemberType::List(&MemberType::Text),
            "Those of `models` that match no configured model.",
        ),
        optional("endpoints", MemberType::List(&MemberType::Text), "Permitted APIs; null for all."),
        optional("networks", MemberType::List(&MemberType::Text), "Permitted networks; null for all."),
        optional(
            "certificates",
            MemberType::List(&MemberType::Text),
            "Names of the client certificates of which one is needed; null for none.",
        ),
        optional(
            "permits_nothing",
            MemberType::OneOf(&["models", "endpoints", "networks", "certificates"]),
            "Member because of which the key permits no request: it is empty, or matches no configured model. Null if it \
             permits some.",
        ),
        optional("access_key", MemberType::Text, "Id of its access key for AWS SDKs; null if it has none."),
        member("losses", MemberType::Text, "Policy for losses in translation."),
        optional(
            "tiers",
            MemberType::List(&MemberType::Text),
            "Permitted service tiers; null for all whose price is known.",
        ),
        member(
            "tiers_else",
            MemberType::OneOf(&["refuse", "standard"]),
            "What becomes of a request for another service tier.",
        ),
        optional("prompt_cache", MemberType::Text, "Prompt-cache policy; null for that of the model."),
        member("images", MemberType::OneOf(&["envelope", "plain"]), "Response shape of image endpoints."),
        member("limits", MemberType::Object(&LIMITS), "Limits."),
        optional("file", MemberType::Text, "File that has the key; only when one key is asked for."),
        optional("etag", MemberType::Text, "Version of this file, for `if-match`."),
    ],
};

/// Page of keys.
pub(crate) const KEYS: Record = Record {
    name: "KeyPage",
    text: "Page of keys, ordered by name.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&KEY)), "Keys."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
        member("total", MemberType::Count, "Number of the keys that `account` and `q` choose."),
    ],
};

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// Returns limits as JSON.
pub(crate) fn limits_json(limits: &UsageLimits) -> Value {
    let amount = |nanos: Option<i64>| nanos.map(|nanos| Amount(nanos).to_string());
    json!({
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrent": limits.concurrent,
        "spend_per_day": amount(limits.spend_per_day),
        "spend_per_month": amount(limits.spend_per_month),
    })
}

fn permission(permission: &Permission) -> Value {
    match permission {
        Permission::All => Value::Null,
        Permission::Some(patterns) => patterns.iter().map(|pattern| Value::from(pattern.text())).collect(),
    }
}

fn digits(hash: KeyHash) -> String {
    hash.to_hex().chars().take(HASH_DIGITS).collect()
}

/// Returns the name of the state of a key.
fn state_name(key: &Key, now: i64) -> &'static str {
    match key.state(now) {
        KeyState::Usable => "usable",
        KeyState::Disabled => "disabled",
        KeyState::Expired => "expired",
    }
}

/// Returns the texts of a key that a search looks into: name, account, state and permitted models.
fn searched(key: &Key, now: i64) -> Vec<&str> {
    let mut texts: Vec<&str> = vec![&*key.name, state_name(key, now)];
    texts.extend(key.account.as_ref().map(|account| &*account.name));
    if let Permission::Some(patterns) = &key.rules.models {
        texts.extend(patterns.iter().map(|pattern| pattern.text()));
    }
    texts
}

/// Returns the ids of all models.
fn model_ids(snapshot: &Snapshot) -> impl Iterator<Item = &str> + Clone {
    snapshot.routes.models().iter().map(|model| &*model.id)
}

/// Returns the member because of which a key permits nothing; `None` if it permits something.
fn permits_nothing(key: &Key, snapshot: &Snapshot) -> Option<&'static str> {
    let rules = &key.rules;
    let is_empty =
        |permission: &Permission| matches!(permission, Permission::Some(patterns) if patterns.is_empty());
    match () {
        () if rules.models.permits_none(model_ids(snapshot)) => Some("models"),
        () if is_empty(&rules.endpoints) => Some("endpoints"),
        () if rules.networks.as_ref().is_some_and(|networks| networks.is_empty()) => Some("networks"),
        () if rules.certificates.as_ref().is_some_and(|names| names.is_empty()) => Some("certificates"),
        () => None,
    }
}

fn show(key: &Key, snapshot: &Snapshot, now: i64) -> Value {
    let (rules, keys) = (&key.rules, &snapshot.keys);
    let certificates = rules
        .certificates
        .as_ref()
        .map(|names| names.iter().map(|name| Value::from(name.text())).collect::<Value>());
    let previous = keys.previous(&key.name).into_iter().filter(|(_, until)| *until > now);
    let previous = previous.map(|(hash, until)| json!({ "sha256": digits(hash), "until": time(until) }));
    let networks = rules
        .networks
        .as_ref()
        .map(|networks| networks.iter().map(|network| Value::from(network.to_string())).collect::<Value>());
    json!({
        "name": &*key.name,
        "sha256": digits(key.hash),
        "state": state_name(key, now),
        "enabled": key.enabled,
        "expires": key.expires.map(time),
        "previous": previous.collect::<Value>(),
        "account": key.account.as_ref().map(|account| &*account.name),
        "models": permission(&rules.models),
        "unmatched_models": rules.models.unmatched(model_ids(snapshot)),
        "endpoints": permission(&rules.endpoints),
        "networks": networks,
        "certificates": certificates,
        "permits_nothing": permits_nothing(key, snapshot),
        "access_key": keys.access_key_id(&key.name),
        "losses": rules.losses.name(),
        "tiers": rules.tiers.permitted.map(|tiers| tiers.tiers().map(|tier| tier.name()).collect::<Vec<_>>()),
        "tiers_else": rules.tiers.otherwise().name(),
        "prompt_cache": rules.prompt_cache.map(|policy| policy.name()),
        "images": if rules.plain_images { "plain" } else { "envelope" },
        "limits": limits_json(&rules.limits),
    })
}

/// Answers `GET /keys`.
pub(crate) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let after = request.parameter("cursor");
    let account = request.parameter("account");
    let search = ListSearch::of(request);
    // The names behind the cursor, of which only the first are held: there may be a million keys.
    let mut first: BTreeMap<Arc<str>, Value> = BTreeMap::new();
    let (mut total, mut more, now) = (0_usize, false, now());
    api.control().with_snapshot(&mut |snapshot, _| {
        for key in snapshot.keys.iter() {
            let in_account =
                |name: &String| key.account.as_ref().is_some_and(|account| *account.name == **name);
            let is_found = || search.is_empty() || search.finds(&searched(key, now));
            if !(account.as_ref().is_none_or(in_account) && is_found()) {
                continue;
            }
            total = usize::saturating_add(total, 1);
            if after.as_ref().is_some_and(|after| *key.name <= **after)
                || (first.len() > limit && first.last_key_value().is_some_and(|(last, _)| key.name >= *last))
            {
                continue;
            }
            first.insert(key.name.clone(), show(key, snapshot, now));
            if first.len() > limit.saturating_add(1) {
                first.pop_last();
            }
        }
        if first.len() > limit {
            first.pop_last();
            more = true;
        }
    });
    let next = first.last_key_value().map(|(name, _)| name.to_string()).filter(|_| more);
    let items: Vec<Value> = first.into_values().collect();
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next, "total": total })))
}

/// Answers `GET /keys/{name}`.
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (name, now) = (request.name(0), now());
    let mut shown = None;
    api.control().with_snapshot(&mut |snapshot, _| {
        let key = snapshot.keys.iter().find(|key| *key.name == *name);
        shown = key.map(|key| show(key, snapshot, now));
    });
    let shown = shown.ok_or_else(|| AdminApiError::unknown("key", name))?;
    with_file(api, EntryKind::Key, name, shown)
}

/// Adds the file of an entry and its version.
///
/// # Errors
/// Returns the error of a file that cannot be read.
pub(crate) fn with_file(api: &AdminApi, kind: EntryKind, id: &str, mut shown: Value) -> ApiResult {
    let located = api.writer().locate(kind, id)?;
    let etag = located.as_ref().map(|(_, hash)| hash.to_hex());
    if let Some(members) = shown.as_object_mut() {
        let file = located.map(|(path, _)| path.display().to_string());
        members.insert("file".to_owned(), json!(file));
        members.insert("etag".to_owned(), json!(etag));
    }
    Ok(ApiResponse::json(shown).with_etag(etag))
}

fn generate() -> Result<NewKey, AdminApiError> {
    NewKey::generate()
        .map_err(|_| AdminApiError::new(ErrorCode::Unavailable, "random numbers are not available"))
}

/// Adds the text of a new key to an answer, unless nothing was written.
fn with_text(mut response: ApiResponse, key: &NewKey) -> ApiResponse {
    if let AnswerContent::Json(Value::Object(members)) = &mut response.content
        && members.get("applied") == Some(&Value::Bool(true))
    {
        members.insert("key".to_owned(), key.text().into());
    }
    response
}

/// Refuses a pattern without a character, which matches no model.
fn refuse_empty_pattern(request: &ApiRequest) -> Result<(), AdminApiError> {
    let models = request.body.get("models").and_then(Value::as_array).into_iter().flatten();
    match models.enumerate().find(|(_, model)| model.as_str().is_some_and(|text| text.trim().is_empty())) {
        None => Ok(()),
        Some((index, _)) => {
            let message = "an empty name matches no model; write a name or a pattern such as \"claude-*\", or [] for a key \
                           that permits none";
            Err(AdminApiError::field(&format!("models[{index}]"), message))
        }
    }
}

/// Adds what is to be known about the key of a change: models that there are not, if `models` were set; for a new one, that
/// other gateways do not have it.
fn with_warnings(api: &AdminApi, mut response: ApiResponse, models: bool, is_new: bool) -> ApiResponse {
    let AnswerContent::Json(Value::Object(members)) = &mut response.content else { return response };
    let mut warnings = Vec::new();
    if models {
        let patterns = members.get("after").and_then(|after| after.get("models")).and_then(Value::as_array);
        let patterns = patterns.map(|list| list.iter().filter_map(Value::as_str).map(Pattern::new).collect());
        api.control().with_snapshot(&mut |snapshot, _| {
            let Some(patterns) = patterns.clone() else { return };
            let permission = Permission::Some(patterns);
            let ids = || model_ids(snapshot);
            for name in permission.unmatched(ids()) {
                warnings.push(config::no_such_model(name, ids()));
            }
            if permission.permits_none(ids()) {
                warnings.push("the key permits no configured model".to_owned());
            }
        });
    }
    if is_new && api.has_local_keys() {
        warnings.push(LOCAL_KEY.to_owned());
    }
    if !warnings.is_empty() {
        members.insert("warnings".to_owned(), warnings.into());
    }
    response
}

/// Said of a new key if several gateways share a store.
const LOCAL_KEY: &str = "the key is valid at this gateway only: gateways that share a store do not share keys, so the others \
                         need the same entry in their files";

/// Answers `POST /keys`.
pub(crate) fn create(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    api.repeats().once(request, || create_new(api, request))
}

fn create_new(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = change::id_of(request, EntryKind::Key)?;
    if name.len() > 128 {
        return Err(AdminApiError::field("name", "a name must have 1 to 128 bytes"));
    }
    change::refuse_secrets(EntryKind::Key, &request.body)?;
    refuse_empty_pattern(request)?;
    let mut members = serde_json::Map::new();
    members.insert("name".to_owned(), name.as_str().into());
    // A hash in the body is that of a key that exists elsewhere.
    let key = if request.body.contains_key("sha256") { None } else { Some(generate()?) };
    if let Some(key) = &key {
        members.insert("sha256".to_owned(), key.hash().to_hex().into());
    }
    members
        .extend(request.body.iter().filter(|(name, _)| *name != "name").map(|(k, v)| (k.clone(), v.clone())));
    let kind = EntryKind::Key;
    let change = ConfigChange::Create { kind, id: name.clone(), members, comment: change::comment(request) };
    let action = AuditAction { name: "key.create", of: kind.name() };
    let (applied, audit) = change::apply(api, request, action, &name, &change)?;
    let response =
        with_warnings(api, change::answer(&applied, audit), request.body.contains_key("models"), true);
    Ok(match &key {
        Some(key) => with_text(response, key),
        None => response,
    })
}

/// Answers `PATCH /keys/{name}`.
pub(crate) fn update(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    if request.body.contains_key("sha256") {
        return Err(AdminApiError::field("sha256", "the hash is changed by rotating the key"));
    }
    if request.body.get("previous").is_some_and(|previous| !previous.is_null()) {
        let message = "earlier texts are those of rotations; a null ends their validity";
        return Err(AdminApiError::field("previous", message));
    }
    refuse_empty_pattern(request)?;
    let response = change::update(api, request, EntryKind::Key, "key.update")?;
    Ok(with_warnings(api, response, request.body.contains_key("models"), false))
}

/// Answers `DELETE /keys/{name}`.
pub(crate) fn remove(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    change::remove(api, request, EntryKind::Key, "key.delete")
}

/// Answers `POST /keys/{name}/rotate`.
pub(crate) fn rotate(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    api.repeats().once(request, || rotate_to_new(api, request))
}

fn rotate_to_new(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (kind, name) = (EntryKind::Key, request.name(0));
    let grace = request.text("grace").map(config::parse_grace).transpose();
    let grace = grace.map_err(|hint| AdminApiError::field("grace", hint))?;
    let key = generate()?;
    let previous = match grace {
        Some(grace) => earlier_texts(api, name, grace),
        None => Value::Null,
    };
    let sha256 = Value::from(key.hash().to_hex());
    let patch = [("sha256".to_owned(), sha256), ("previous".to_owned(), previous)].into_iter().collect();
    let change = ConfigChange::Merge { kind, id: name.to_owned(), patch };
    let action = AuditAction { name: "key.rotate", of: kind.name() };
    let (applied, audit) = change::apply(api, request, action, name, &change)?;
    Ok(with_text(change::answer(&applied, audit), &key))
}

/// Returns the texts of a key that stay valid after a rotation: the present one, and earlier ones whose time is not over.
fn earlier_texts(api: &AdminApi, name: &str, grace: Duration) -> Value {
    let now = now();
    let until = now.saturating_add(i64::try_from(grace.as_secs()).unwrap_or(0));
    let mut texts = Vec::new();
    api.control().with_snapshot(&mut |snapshot, _| {
        let present = snapshot.keys.iter().find(|key| *key.name == *name).map(|key| (key.hash, until));
        let earlier = snapshot.keys.previous(name).into_iter().filter(|(_, until)| *until > now);
        texts = present.into_iter().chain(earlier).take(MAX_PREVIOUS).collect();
    });
    texts.iter().map(|(hash, until)| json!({ "sha256": hash.to_hex(), "until": time(*until) })).collect()
}
