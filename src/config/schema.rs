//! JSON Schemas of the configuration files, for editors that check and complete TOML.
//!
//! Draft 4, which is the latest that TOML editors understand. Descriptions, defaults and required keys are those of
//! docs/configuration.md ([`reference`](super::reference)); the types are the table [`shape`]. A schema is never stricter
//! than the reader, and sees one file only: references between entries and files are left to `model-gateway check`.

use serde_json::{Map, Value, json};

use super::reference::{ConfigFile, ReferenceKey, keys, plain};
use super::routing::ALSO;
use crate::account::{Losses, Signature};
use crate::canonical::CachePolicy;
use crate::provider::{Preset, ProviderKind};
use crate::route::Policy;
use crate::telemetry::conventions::Conventions;
use crate::wire::Api;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    /// Any text.
    Text,
    /// `true` or `false`.
    Flag,
    /// Whole number within these bounds.
    Integer(i64, i64),
    /// Number that is not negative.
    Amount,
    /// Number with a unit of time.
    Duration,
    /// Number with a unit of bytes.
    Size,
    /// IP address with a port.
    Address,
    /// 64 hexadecimal digits.
    Digest,
    /// Point in time, a date-time of TOML.
    Time,
    /// One of a few names.
    OneOf(Names),
    /// List of texts.
    Texts,
    /// List of such names.
    Some(Names),
    /// List of addresses.
    Addresses,
    /// Text or list of texts.
    TextOrTexts,
    /// URL or list of URLs, each a text or the source of a secret.
    UrlsOrSource,
    /// Table with the keys below it.
    Table,
    /// Table of which exactly one key is set.
    Choice,
    /// Table with keys of the user's own and texts as values.
    Open,
    /// List of tables with the keys below it.
    Tables,
    /// Amount, or list of tables with the keys below it.
    AmountOrTables,
}

/// Names that a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Apis,
    Kinds,
    Dialects,
    CachePolicies,
    Policies,
    Losses,
    Signatures,
    RetryAlso,
    /// Names that only one key has.
    Own(&'static [&'static str]),
}

impl Names {
    fn list(self) -> Vec<&'static str> {
        match self {
            Names::Apis => Api::ALL.map(Api::name).to_vec(),
            Names::Kinds => ProviderKind::ALL.map(ProviderKind::name).to_vec(),
            Names::Dialects => Preset::ALL.map(Preset::name).to_vec(),
            Names::CachePolicies => CachePolicy::ALL.map(CachePolicy::name).to_vec(),
            Names::Policies => Policy::ALL.map(Policy::name).to_vec(),
            Names::Losses => [Losses::Allow, Losses::Warn, Losses::Refuse].map(Losses::name).to_vec(),
            Names::Signatures => vec![Signature::Hs256.name(), Signature::EdDsa.name()],
            Names::RetryAlso => ALSO.to_vec(),
            Names::Own(names) => names.to_vec(),
        }
    }
}

/// Upper bound of numbers that count requests, tokens and the like.
const BILLION: i64 = 1_000_000_000;
/// End of the year 9999 in Unix seconds.
const LAST_SECOND: i64 = 253_402_300_799;

/// Returns the type of a key by its path. `None` for a key without an entry, which a test rejects.
pub(super) fn shape(path: &str) -> Option<KeyType> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let parent = path.strip_suffix(last).unwrap_or_default();
    match parent {
        // Tables with the same keys share their types.
        "provider.timeouts." | "model.timeouts." => timeout(last),
        "model.price." | "model.price.tiers." => price(last),
        "key.limits." | "account.limits." => usage_limit(last),
        "provider.credential."
        | "provider.aws.session_token."
        | "tokens.key.secret."
        | "key.access_key.secret."
        | "provider.azure.client_secret." => Some(KeyType::Text),
        "provider.aws." => aws(last),
        "provider.google." => google(last),
        "provider.azure." => azure(last),
        "limits." => limit(last),
        "store." => store(last),
        "telemetry." => telemetry(last),
        "breaker." | "retry." | "model.retry." => routing(last),
        "key." | "account." if last != "previous" => access(last),
        _ => other(path),
    }
}

fn timeout(key: &str) -> Option<KeyType> {
    Some(match key {
        "connect" | "first_byte" | "idle" | "total" | "rate_window" => KeyType::Duration,
        "min_rate" => KeyType::Size,
        _ => return None,
    })
}

fn price(key: &str) -> Option<KeyType> {
    Some(match key {
        "input" | "cached_input" | "cache_write" | "cache_write_1h" | "output" | "reasoning"
        | "audio_input" | "audio_output" | "image_input" | "image_output" | "search" | "request" => {
            KeyType::Amount
        }
        "image" | "video_second" => KeyType::AmountOrTables,
        "tiers" => KeyType::Tables,
        "above" => KeyType::Integer(1, BILLION),
        _ => return None,
    })
}

fn usage_limit(key: &str) -> Option<KeyType> {
    Some(match key {
        "requests_per_minute" | "tokens_per_minute" => KeyType::Integer(1, BILLION),
        "concurrent" => KeyType::Integer(1, 1_000_000),
        "spend_per_day" | "spend_per_month" => KeyType::Amount,
        _ => return None,
    })
}

fn limit(key: &str) -> Option<KeyType> {
    Some(match key {
        "body" | "answer" | "frame" | "memory" | "head" | "fetch" => KeyType::Size,
        "connections" | "requests" => KeyType::Integer(1, 10_000_000),
        "pool" | "websockets" => KeyType::Integer(0, 10_000_000),
        "fetches" => KeyType::Integer(1, 1_000_000),
        "fetch_allow" => KeyType::Texts,
        "header_timeout" | "body_timeout" | "keepalive" | "heartbeat" | "slow_start" | "write_timeout"
        | "pool_idle" | "fetch_timeout" | "websocket_lifetime" | "websocket_ping" => KeyType::Duration,
        _ => return None,
    })
}

fn store(key: &str) -> Option<KeyType> {
    const POLICY: Names = Names::Own(&["allow", "refuse"]);
    Some(match key {
        "sqlite" | "sentinel" | "journal" => KeyType::Text,
        "valkey" => KeyType::UrlsOrSource,
        "away" | "foreign_responses" => KeyType::OneOf(POLICY),
        "away_allowance" => KeyType::Amount,
        "response_lifetime" | "seal_lifetime" | "flush" | "record_lifetime" => KeyType::Duration,
        "response_limit" | "total_limit" | "seal_limit" => KeyType::Size,
        _ => return None,
    })
}

fn telemetry(key: &str) -> Option<KeyType> {
    const NAMES: Names = Names::Own(&[Conventions::ALL[0].name(), Conventions::ALL[1].name()]);
    Some(match key {
        "otlp" | "headers_file" | "ca" | "client_cert" | "client_key" | "slow" | "service_name" => {
            KeyType::Text
        }
        "traces" | "logs" | "metrics" | "propagate" | "names" => KeyType::Flag,
        "headers" | "resource" => KeyType::Open,
        "compression" => KeyType::OneOf(Names::Own(&["gzip", "none"])),
        "timeout" | "interval" | "delay" => KeyType::Duration,
        "sample" => KeyType::Amount,
        "trust" => KeyType::Texts,
        "queue" | "batch" => KeyType::Integer(1, 100_000),
        "conventions" => KeyType::OneOf(NAMES),
        _ => return None,
    })
}

fn routing(key: &str) -> Option<KeyType> {
    Some(match key {
        "failures" | "requests" => KeyType::Integer(1, 1_000_000),
        // In `[breaker]` at least 1, which the reader checks.
        "percent" => KeyType::Integer(0, 100),
        "within" | "cooldown" | "longest" | "deadline" | "hold" => KeyType::Duration,
        "attempts" => KeyType::Integer(1, 16),
        "reserve" => KeyType::Integer(0, 1_000_000),
        "continue" => KeyType::Flag,
        "also" => KeyType::Some(Names::RetryAlso),
        _ => return None,
    })
}

fn access(key: &str) -> Option<KeyType> {
    Some(match key {
        "name" | "account" => KeyType::Text,
        "sha256" => KeyType::Digest,
        "enabled" => KeyType::Flag,
        "expires" => KeyType::Time,
        "images" => KeyType::OneOf(Names::Own(&["envelope", "plain"])),
        "losses" => KeyType::OneOf(Names::Losses),
        "prompt_cache" => KeyType::OneOf(Names::CachePolicies),
        "models" | "endpoints" | "networks" | "certificates" => KeyType::Texts,
        "limits" | "access_key" => KeyType::Table,
        _ => return None,
    })
}

/// Keys of `[provider.google]`.
fn google(key: &str) -> Option<KeyType> {
    Some(match key {
        "source" => KeyType::OneOf(Names::Own(&super::google::SOURCES)),
        "file" | "env" | "service_account" => KeyType::Text,
        _ => return None,
    })
}

/// Keys of `[provider.azure]`.
fn azure(key: &str) -> Option<KeyType> {
    Some(match key {
        "source" => KeyType::OneOf(Names::Own(&super::azure::SOURCES)),
        "client_secret" => KeyType::Choice,
        "tenant" | "client_id" | "certificate" | "token_file" | "authority" | "scope" => KeyType::Text,
        _ => return None,
    })
}

/// Keys of `[provider.aws]`.
fn aws(key: &str) -> Option<KeyType> {
    Some(match key {
        "source" => KeyType::OneOf(Names::Own(&[
            "auto",
            "static",
            "profile",
            "web-identity",
            "container",
            "instance",
        ])),
        "duration" => KeyType::Duration,
        "session_token" => KeyType::Choice,
        "region" | "service" | "access_key_id" | "profile" | "role_arn" | "session_name" | "external_id"
        | "token_file" | "endpoint" | "sts_url" => KeyType::Text,
        _ => return None,
    })
}

/// Keys of tables that no other table resembles.
#[expect(clippy::too_many_lines, reason = "one line for each setting")]
fn other(path: &str) -> Option<KeyType> {
    Some(match path {
        "server" | "limits" | "reload" | "log" | "store" | "admin" | "admin.tls" | "telemetry" | "tokens"
        | "breaker" | "retry" | "provider.timeouts" | "provider.check" | "provider.aws"
        | "provider.guardrail" | "provider.google" | "provider.azure" | "model.timeouts" | "model.retry"
        | "model.price" => KeyType::Table,
        "server.http" | "server.tls" | "server.cors" | "tokens.key" | "provider" | "model"
        | "model.targets" | "key" | "account" => KeyType::Tables,
        "provider.credential" | "tokens.key.secret" | "key.access_key.secret" => KeyType::Choice,
        "key.access_key.id" => KeyType::Text,
        "key.previous" => KeyType::Tables,
        "key.previous.sha256" => KeyType::Digest,
        "key.previous.until" => KeyType::Time,
        "provider.headers" => KeyType::Open,
        "server.listen" => KeyType::Addresses,
        "server.admin" | "server.http.listen" | "server.tls.listen" => KeyType::Address,
        "server.http.proxy_protocol" | "server.tls.proxy_protocol" => {
            KeyType::OneOf(Names::Own(&["off", "optional", "required"]))
        }
        "server.tls.client_certificate" => KeyType::OneOf(Names::Own(&["required", "optional"])),
        "server.forwarded_header" => KeyType::OneOf(Names::Own(&["x-forwarded-for", "forwarded"])),
        "server.trusted_proxies" | "server.cors.origins" | "server.cors.methods" | "server.cors.headers" => {
            KeyType::Texts
        }
        "server.cors.max_age" => KeyType::Duration,
        "server.threads" => KeyType::Integer(0, 1024),
        "server.lame_duck"
        | "server.drain"
        | "reload.settle"
        | "tokens.lifetime"
        | "provider.check.every"
        | "provider.check.timeout" => KeyType::Duration,
        "reload.allow_empty"
        | "server.websocket"
        | "admin.writes"
        | "admin.console"
        | "admin.insecure"
        | "provider.think_tags"
        | "provider.prefill"
        | "model.image_input"
        | "model.parallel_tool_calls"
        | "provider.ask_usage"
        | "provider.forward_client"
        | "provider.websocket" => KeyType::Flag,
        "log.format" => KeyType::OneOf(Names::Own(&["json", "text"])),
        "tokens.key.algorithm" => KeyType::OneOf(Names::Signatures),
        "provider.kind" => KeyType::OneOf(Names::Kinds),
        "provider.dialect" => KeyType::OneOf(Names::Dialects),
        "provider.apis" => KeyType::Some(Names::Apis),
        "provider.http" => KeyType::OneOf(Names::Own(&["auto", "1.1", "2"])),
        "provider.guardrail.trace" => KeyType::OneOf(Names::Own(&["disabled", "enabled", "enabled_full"])),
        "provider.errors" => KeyType::OneOf(Names::Own(&["standard", "own"])),
        "model.policy" => KeyType::OneOf(Names::Policies),
        "model.prompt_cache" => KeyType::OneOf(Names::CachePolicies),
        "model.created" => KeyType::Integer(0, LAST_SECOND),
        "model.context_window"
        | "model.max_output_tokens"
        | "model.targets.concurrent"
        | "model.targets.requests_per_minute"
        | "model.targets.tokens_per_minute" => KeyType::Integer(1, BILLION),
        "model.targets.weight" => KeyType::Integer(0, 1_000_000),
        "model.targets.tier" => KeyType::Integer(0, 15),
        "model.fallback" | "admin.hosts" => KeyType::Texts,
        "server.routes" | "server.keys" => KeyType::TextOrTexts,
        "model.price.image.each" | "model.price.video_second.each" => KeyType::Amount,
        "prices"
        | "claude_alias"
        | "admin.tokens"
        | "admin.state"
        | "admin.socket"
        | "admin.tls.cert"
        | "admin.tls.key"
        | "admin.tls.client_ca"
        | "admin.tls.client_crl"
        | "server.upgrade_socket"
        | "server.tls.cert"
        | "server.tls.key"
        | "server.tls.client_ca"
        | "server.tls.client_crl"
        | "log.level"
        | "log.access"
        | "tokens.issuer"
        | "tokens.audience"
        | "tokens.key.id"
        | "tokens.key.public"
        | "provider.name"
        | "provider.api_version"
        | "provider.base_url"
        | "provider.ca"
        | "provider.client_cert"
        | "provider.client_key"
        | "provider.check.path"
        | "provider.guardrail.id"
        | "provider.guardrail.version"
        | "model.id"
        | "model.owned_by"
        | "model.targets.provider"
        | "model.targets.model"
        | "model.targets.family"
        | "model.targets.price"
        | "model.price.image.size"
        | "model.price.image.quality"
        | "model.price.video_second.size" => KeyType::Text,
        _ => return None,
    })
}

/// Returns the schema of a file as JSON text with a final line break.
pub fn schema(file: ConfigFile) -> String {
    let keys = keys(file);
    let mut root = Map::new();
    root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-04/schema#"));
    root.insert("title".to_owned(), json!(format!("{}.toml of model-gateway", file.name())));
    root.extend(table(&keys, ""));
    format!("{:#}\n", Value::Object(root))
}

/// Returns the members that describe a table: those whose path is `parent` and one name.
fn table(keys: &[ReferenceKey], parent: &str) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys {
        let name = key.path.strip_prefix(parent).filter(|name| !name.is_empty() && !name.contains('.'));
        let Some(name) = name else { continue };
        properties.insert(name.to_owned(), property(keys, key));
        if key.default == "required" {
            required.push(json!(name));
        }
    }
    let mut table = Map::new();
    table.insert("type".to_owned(), json!("object"));
    if !required.is_empty() {
        table.insert("required".to_owned(), Value::Array(required));
    }
    table.insert("properties".to_owned(), Value::Object(properties));
    table.insert("additionalProperties".to_owned(), json!(false));
    table
}

fn property(keys: &[ReferenceKey], key: &ReferenceKey) -> Value {
    let below = || table(keys, &format!("{}.", key.path));
    let mut property = Map::new();
    let description = description(key);
    if !description.is_empty() {
        property.insert("description".to_owned(), json!(description));
    }
    let shape = shape(&key.path);
    match shape {
        Some(KeyType::Table) => property.extend(below()),
        Some(KeyType::Choice) => {
            property.extend(below());
            property.insert("minProperties".to_owned(), json!(1));
            property.insert("maxProperties".to_owned(), json!(1));
        }
        Some(KeyType::Tables) => {
            property.insert("type".to_owned(), json!("array"));
            property.insert("items".to_owned(), Value::Object(below()));
        }
        Some(KeyType::AmountOrTables) => {
            let list = json!({ "type": "array", "items": below() });
            property.insert("anyOf".to_owned(), json!([amount(), list]));
        }
        Some(shape) => property.extend(simple(shape)),
        None => {}
    }
    if let Some(default) = default(&key.default) {
        property.insert("default".to_owned(), default);
    }
    Value::Object(property)
}

/// Returns the meaning, and the default where it is a text about other keys.
fn description(key: &ReferenceKey) -> String {
    let meaning = plain(&key.meaning);
    let stated = ["", "required", "none"].contains(&key.default.as_str()) || default(&key.default).is_some();
    let default = if stated { String::new() } else { format!("Default: {}.", plain(&key.default)) };
    [meaning, default].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a default that is written as a value of TOML. `None` for a text about it.
fn default(cell: &str) -> Option<Value> {
    let code = cell.strip_prefix('`')?.strip_suffix('`')?;
    let value: toml::Table = format!("value = {code}").parse().ok()?;
    serde_json::to_value(value.get("value")?).ok()
}

fn amount() -> Value {
    json!({ "type": "number", "minimum": 0 })
}

/// Returns the members that describe a value without keys.
fn simple(shape: KeyType) -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let names = |names: Names| json!({ "type": "string", "enum": names.list() });
    let address = json!({ "type": "string", "pattern": "^[^ ]+:[0-9]{1,5}$" });
    let value = match shape {
        KeyType::Text => text,
        KeyType::Flag => json!({ "type": "boolean" }),
        KeyType::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        KeyType::Amount => amount(),
        KeyType::Duration => json!({ "type": "string", "pattern": "^[0-9]+ *(ms|s|m|min|h|d)$" }),
        KeyType::Size => json!({ "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB|kB|KB|MB|GB)$" }),
        KeyType::Address => address,
        KeyType::Addresses => json!({ "type": "array", "items": address }),
        KeyType::Digest => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" }),
        KeyType::Time => json!({ "type": "string", "format": "date-time" }),
        KeyType::OneOf(list) => names(list),
        KeyType::Some(list) => json!({ "type": "array", "items": names(list) }),
        KeyType::Texts => json!({ "type": "array", "items": text }),
        KeyType::TextOrTexts => json!({ "anyOf": [text, { "type": "array", "items": text }] }),
        KeyType::UrlsOrSource => {
            let source = json!({
                "type": "object",
                "properties": { "env": text, "file": text, "value": text },
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1,
            });
            let url = json!({ "anyOf": [text, source] });
            json!({ "anyOf": [text, source, { "type": "array", "items": url }] })
        }
        KeyType::Open => json!({ "type": "object", "additionalProperties": text }),
        // Described by the caller.
        KeyType::Table | KeyType::Choice | KeyType::Tables | KeyType::AmountOrTables => return Map::new(),
    };
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
