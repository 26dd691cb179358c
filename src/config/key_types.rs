//! Types of the keys of the configuration files, and which values are secrets: the one table from which schemas, the values of
//! environment variables, masking and the refusal of secrets follow.

use super::reference::{ConfigFile, keys};
use super::routing_rules::ALSO;
use codec::canonical::{CachePolicy, Region, ServiceTier};
use codec::provider::{Preset, ProviderKind};
use codec::wire::Api;
use observe::telemetry::conventions::Conventions;
use routing::account::{Losses, Signature, TierFallback};
use routing::route::Policy;

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
    /// Source of a secret: a table of which exactly one key is set.
    SecretSource,
    /// Text that is a secret, or that an owner of a resource asks to be kept like one.
    SecretText,
    /// Table with keys of the user's own, whose texts may be secrets.
    SecretTexts,
    /// URL or path, which may have a secret in its user information or its query.
    Url,
    /// Table with keys of the user's own and texts as values.
    Open,
    /// List of tables with the keys below it.
    Tables,
    /// Amount, or list of tables with the keys below it.
    AmountOrTables,
    /// Table, or list of tables, with the keys below it.
    TableOrTables,
    /// Day, a date of TOML.
    Day,
    /// List of days.
    Days,
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
    Tiers,
    TierFallbacks,
    Regions,
    /// Names that only one key has.
    Own(&'static [&'static str]),
}

impl Names {
    pub(super) fn list(self) -> Vec<&'static str> {
        match self {
            Names::Apis => Api::ALL.map(Api::name).to_vec(),
            Names::Kinds => ProviderKind::ALL.map(ProviderKind::name).to_vec(),
            Names::Dialects => Preset::ALL.map(Preset::name).to_vec(),
            Names::CachePolicies => CachePolicy::ALL.map(CachePolicy::name).to_vec(),
            Names::Policies => Policy::ALL.map(Policy::name).to_vec(),
            Names::Losses => [Losses::Allow, Losses::Warn, Losses::Refuse].map(Losses::name).to_vec(),
            Names::Signatures => vec![Signature::Hs256.name(), Signature::EdDsa.name()],
            Names::RetryAlso => ALSO.to_vec(),
            Names::Tiers => ServiceTier::NAMED.map(ServiceTier::name).to_vec(),
            Names::TierFallbacks => TierFallback::ALL.map(TierFallback::name).to_vec(),
            Names::Regions => Region::NAMED.map(Region::name).to_vec(),
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
    if is_secret_source(path) {
        return Some(KeyType::SecretSource);
    }
    let last = path.rsplit('.').next().unwrap_or(path);
    let parent = path.strip_suffix(last).unwrap_or_default();
    match parent {
        // Tables with the same keys share their types.
        "provider.timeouts." | "model.timeouts." => timeout(last),
        "model.price."
        | "model.price.tiers."
        | "model.price.long."
        | "model.price.service_tiers."
        | "model.price.regions."
        | "model.price.off_peak." => price(last),
        "key.limits." | "account.limits." => usage_limit(last),
        _ if is_secret_source(parent.trim_end_matches('.')) => Some(match last {
            "env" | "file" => KeyType::Text,
            _ => KeyType::SecretText,
        }),
        "provider.aws." => aws(last),
        "provider.google." => google(last),
        "provider.azure." => azure(last),
        "limits." => limit(last),
        "store." => store(last),
        "accounts." => (last == "unpriced").then_some(KeyType::OneOf(Names::Own(&["refuse", "free"]))),
        "telemetry." => telemetry(last),
        "breaker." | "retry." | "model.retry." => routing(last),
        "key." | "account." if last != "previous" => access(last),
        _ => other(path),
    }
}

/// Sources of secrets: tables with `env`, `file` or `value`. That of the issuer of identities is in admin.toml, which has no schema.
const SECRET_SOURCES: [&str; 6] = [
    "provider.credential",
    "provider.aws.session_token",
    "provider.azure.client_secret",
    "tokens.key.secret",
    "key.access_key.secret",
    "oidc.client_secret",
];

fn is_secret_source(path: &str) -> bool {
    SECRET_SOURCES.contains(&path)
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
        | "audio_input" | "audio_output" | "image_input" | "image_output" | "search" | "request"
        | "cache_write_12h" | "cached_audio_input" | "cached_image_input" | "factor" => KeyType::Amount,
        "image" | "video_second" => KeyType::AmountOrTables,
        "from" | "until" => KeyType::Day,
        "free" => KeyType::Flag,
        "long" | "off_peak" => KeyType::Table,
        "tiers" | "service_tiers" | "regions" => KeyType::Tables,
        "tier" => KeyType::OneOf(Names::Tiers),
        "region" => KeyType::OneOf(Names::Regions),
        "peak" => KeyType::Texts,
        "holidays" => KeyType::Days,
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
        "otlp" => KeyType::Url,
        "headers_file" | "ca" | "client_cert" | "client_key" | "slow" | "service_name" => KeyType::Text,
        "traces" | "logs" | "metrics" | "propagate" | "names" => KeyType::Flag,
        "headers" => KeyType::SecretTexts,
        "resource" => KeyType::Open,
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
        "tiers" => KeyType::Some(Names::Tiers),
        "tiers_else" => KeyType::OneOf(Names::TierFallbacks),
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
        "authority" => KeyType::Url,
        "tenant" | "client_id" | "certificate" | "token_file" | "scope" => KeyType::Text,
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
        // Not a secret to AWS, but its owner may treat it as one.
        "external_id" => KeyType::SecretText,
        "endpoint" | "sts_url" => KeyType::Url,
        "region" | "service" | "access_key_id" | "profile" | "role_arn" | "session_name" | "token_file" => {
            KeyType::Text
        }
        _ => return None,
    })
}

/// Keys of tables that no other table resembles.
#[expect(clippy::too_many_lines, reason = "one line for each setting")]
fn other(path: &str) -> Option<KeyType> {
    Some(match path {
        "server" | "limits" | "reload" | "log" | "store" | "accounts" | "admin" | "admin.tls"
        | "telemetry" | "tokens" | "breaker" | "retry" | "provider.timeouts" | "provider.check"
        | "provider.aws" | "provider.guardrail" | "provider.google" | "provider.azure" | "model.timeouts"
        | "model.retry" => KeyType::Table,
        "model.price" => KeyType::TableOrTables,
        "model.fallback_price" => KeyType::OneOf(Names::Own(&["answered", "requested"])),
        "provider.served_tier" => KeyType::OneOf(Names::Own(&["answer", "request"])),
        "server.http" | "server.tls" | "server.cors" | "tokens.key" | "provider" | "model"
        | "model.targets" | "key" | "account" => KeyType::Tables,
        "key.access_key.id" => KeyType::Text,
        "key.previous" => KeyType::Tables,
        "key.previous.sha256" => KeyType::Digest,
        "key.previous.until" => KeyType::Time,
        "provider.headers" => KeyType::SecretTexts,
        "provider.base_url" | "provider.check.path" => KeyType::Url,
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
        "model.fallback" | "admin.hosts" | "admin.provider_hosts" | "admin.credential_sources" => {
            KeyType::Texts
        }
        "server.routes" | "server.keys" => KeyType::TextOrTexts,
        "model.price.image.each" | "model.price.video_second.each" => KeyType::Amount,
        "catalogue"
        | "prices"
        | "claude_alias"
        | "admin.tokens"
        | "admin.state"
        | "admin.socket"
        | "admin.currency"
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
        | "provider.ca"
        | "provider.client_cert"
        | "provider.client_key"
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

/// How a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// As it is.
    Shown,
    /// Not at all.
    Hidden,
    /// Without user information and query ([`masked_url`](super::masking::masked_url)).
    Url,
    /// Its first digits, which tell two of them apart.
    Digest,
    /// The key has no type: it is none of the configuration.
    Unknown,
}

/// Returns how the value of a key may be shown. The path has no indexes.
pub(super) fn secrecy(path: &str) -> Secrecy {
    // Below a table with keys of the user's own, and below a misspelt key of a secret, the nearest known key counts.
    let above = path.match_indices('.').map(|(end, _)| path.get(..end).unwrap_or_default());
    for above in above {
        match shape(above) {
            Some(KeyType::SecretTexts) => return Secrecy::Hidden,
            Some(KeyType::Open) => return Secrecy::Shown,
            Some(KeyType::SecretSource | KeyType::UrlsOrSource) => {
                let is_source = matches!(path.get(above.len()..), Some(".env" | ".file"));
                return if is_source { Secrecy::Shown } else { Secrecy::Hidden };
            }
            _ => {}
        }
    }
    match shape(path) {
        Some(KeyType::SecretSource | KeyType::SecretText | KeyType::SecretTexts) => Secrecy::Hidden,
        Some(KeyType::Url | KeyType::UrlsOrSource) => Secrecy::Url,
        Some(KeyType::Digest) => Secrecy::Digest,
        Some(_) => Secrecy::Shown,
        None => Secrecy::Unknown,
    }
}

/// Returns whether a key is that of a table with secrets, or with tables that have some.
pub(super) fn has_secrets(path: &str) -> bool {
    let is_below = |secret: &&str| secret.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let further = ["provider.check.path", "telemetry.headers", "store.valkey"];
    SECRET_SOURCES.iter().chain(&further).any(is_below)
}

/// Returns the paths of a file's keys that have secrets or may have them, in the order of docs/configuration.md.
pub fn secret_paths(file: ConfigFile) -> Vec<String> {
    let paths = keys(file).into_iter().map(|key| key.path);
    paths.filter(|path| matches!(secrecy(path), Secrecy::Hidden | Secrecy::Url)).collect()
}
