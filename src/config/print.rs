//! Configuration in effect as TOML, with defaults and masked secrets (`check --print`).

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::masking::masked_url;
use super::overrides::mark_origins;
use super::print_listeners::{write_listeners, write_proxies};
use super::print_telemetry;
use super::routing_rules::ALSO;
use super::{
    AccessLogSettings, AdminApiSettings, ClientCertificates, ConfigSources, FleetSettings, LedgerSettings,
    Limits, Loaded, LogFormat, LogSettings, OnOutageSetting, ReloadRules, RetentionSettings, Settings,
    StoreSettings,
};
use codec::canonical::CachePolicy;
use codec::provider::guardrail::Guardrail;
use codec::provider::{CloudAccess, HttpVersion, Timeouts};
use routing::account::{Amount, Keys};
use routing::route::{ConfiguredAbilities, Model, RetryRules, RoutingTable, Target};
use routing::snapshot::Snapshot;

/// Returns the configuration in effect as TOML. Secrets are shown as `***`, keys by their number only.
pub fn effective(loaded: &Loaded) -> String {
    effective_of(&loaded.settings, &loaded.snapshot)
}

/// Returns the same as [`effective`], from the parts of a configuration.
pub(super) fn effective_of(settings: &Settings, snapshot: &Snapshot) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_settings(&mut out, settings);
    if !settings.overrides.is_empty() {
        out = mark_origins(&out, &settings.overrides);
    }
    let _ = write_routes(&mut out, &snapshot.routes);
    let _ = write_keys(&mut out, &snapshot.keys);
    out
}

pub(super) fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

pub(super) fn span(value: Duration) -> String {
    let millis = value.as_millis();
    if millis > 0 && millis.is_multiple_of(86_400_000) {
        return format!("\"{}d\"", millis / 86_400_000);
    }
    if millis.is_multiple_of(1_000) { format!("\"{}s\"", millis / 1_000) } else { format!("\"{millis}ms\"") }
}

fn bytes(value: usize) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if value >= size && value.is_multiple_of(size) {
            return format!("\"{}{unit}\"", value / size);
        }
    }
    format!("\"{value}B\"")
}

// Each structure is taken apart without `..`: a setting that is added and not printed here does not compile.
fn write_settings(out: &mut String, settings: &Settings) -> std::fmt::Result {
    let Settings {
        listen,
        http,
        tls,
        trusted_proxies,
        cors,
        admin,
        routes,
        keys,
        catalogue,
        threads,
        upgrade_socket,
        websocket,
        lame_duck,
        drain,
        limits,
        reload: ReloadRules { allow_empty, settle },
        log: LogSettings { level, format, access },
        store,
        refuse_unpriced,
        retention,
        ledger,
        admin_api,
        telemetry,
        warnings: _,
        overrides: _,
    } = settings;
    let listen: Vec<String> = listen.iter().map(|address| format!("\"{address}\"")).collect();
    writeln!(out, "# gateway.toml")?;
    if let Some(path) = catalogue {
        writeln!(out, "catalogue = {}\n", text(&path.display().to_string()))?;
    }
    writeln!(out, "[server]")?;
    writeln!(out, "listen         = [{}]", listen.join(", "))?;
    writeln!(out, "admin          = \"{admin}\"")?;
    writeln!(out, "routes         = {}", paths(routes))?;
    writeln!(out, "keys           = {}", paths(keys))?;
    writeln!(out, "threads        = {threads}")?;
    writeln!(out, "websocket      = {websocket}")?;
    writeln!(out, "lame_duck      = {}", span(*lame_duck))?;
    writeln!(out, "drain          = {}", span(*drain))?;
    writeln!(out, "upgrade_socket = {}", text(&upgrade_socket.display().to_string()))?;
    write_proxies(out, trusted_proxies)?;
    write_listeners(out, http, tls, cors)?;
    write_limits(out, limits)?;
    writeln!(out, "\n[reload]")?;
    writeln!(out, "allow_empty = {allow_empty}")?;
    writeln!(out, "settle      = {}", span(*settle))?;
    writeln!(out, "\n[log]")?;
    writeln!(out, "level  = {}", text(level))?;
    writeln!(out, "format = \"{}\"", if *format == LogFormat::Json { "json" } else { "text" })?;
    match access {
        AccessLogSettings::Off => writeln!(out, "access = \"off\"")?,
        AccessLogSettings::Stdout => writeln!(out, "access = \"stdout\"")?,
        AccessLogSettings::File(path) => writeln!(out, "access = {}", text(&path.display().to_string()))?,
    }
    write_store(out, store, retention, ledger)?;
    writeln!(out, "\n[accounts]")?;
    writeln!(out, "unpriced = \"{}\"", if *refuse_unpriced { "refuse" } else { "free" })?;
    write_admin(out, admin_api)?;
    print_telemetry::write(out, telemetry)
}

/// Formats the files of routes or keys: one path, or a list.
fn paths(sources: &ConfigSources) -> String {
    let written: Vec<String> = sources.written().iter().map(|path| text(path)).collect();
    match &written[..] {
        [only] => only.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

fn write_admin(out: &mut String, admin: &AdminApiSettings) -> std::fmt::Result {
    let AdminApiSettings {
        tokens,
        state,
        socket,
        hosts,
        writes,
        provider_hosts,
        credential_sources,
        console,
        currency,
        tls,
        insecure,
    } = admin;
    writeln!(out, "\n[admin]")?;
    writeln!(out, "tokens = {}", text(&tokens.display().to_string()))?;
    writeln!(out, "state  = {}", text(&state.display().to_string()))?;
    if let Some(socket) = socket {
        writeln!(out, "socket = {}", text(&socket.display().to_string()))?;
    }
    let texts = |list: &[String]| list.iter().map(|entry| text(entry)).collect::<Vec<_>>().join(", ");
    writeln!(out, "hosts  = [{}]", texts(hosts))?;
    writeln!(out, "writes = {writes}")?;
    writeln!(out, "provider_hosts = [{}]", texts(provider_hosts))?;
    writeln!(out, "credential_sources = [{}]", texts(credential_sources))?;
    writeln!(out, "console = {console}")?;
    writeln!(out, "currency = {}", text(currency))?;
    if *insecure {
        writeln!(out, "insecure = true")?;
    }
    let Some(tls) = tls else { return Ok(()) };
    writeln!(out, "\n[admin.tls]")?;
    writeln!(out, "cert = {}", text(&tls.cert.display().to_string()))?;
    writeln!(out, "key  = {}", text(&tls.key.display().to_string()))?;
    if let Some(ClientCertificates { authorities, revoked, .. }) = &tls.clients {
        writeln!(out, "client_ca = {}", text(&authorities.display().to_string()))?;
        if let Some(revoked) = revoked {
            writeln!(out, "client_crl = {}", text(&revoked.display().to_string()))?;
        }
    }
    Ok(())
}

fn write_limits(out: &mut String, limits: &Limits) -> std::fmt::Result {
    let Limits {
        body,
        answer,
        frame,
        connections,
        requests,
        memory,
        head,
        header_timeout,
        body_timeout,
        keepalive,
        heartbeat,
        slow_start,
        write_timeout,
        websockets,
        websocket_lifetime,
        websocket_ping,
        pool,
        pool_idle,
        fetch_allow,
        fetch,
        fetches,
        fetch_timeout,
    } = limits;
    writeln!(out, "\n[limits]")?;
    writeln!(out, "body           = {}", bytes(*body))?;
    writeln!(out, "answer         = {}", bytes(*answer))?;
    writeln!(out, "frame          = {}", bytes(*frame))?;
    writeln!(out, "connections    = {connections}")?;
    writeln!(out, "requests       = {requests}")?;
    writeln!(out, "memory         = {}", bytes(*memory))?;
    writeln!(out, "head           = {}", bytes(*head))?;
    writeln!(out, "header_timeout = {}", span(*header_timeout))?;
    writeln!(out, "body_timeout   = {}", span(*body_timeout))?;
    writeln!(out, "write_timeout  = {}", span(*write_timeout))?;
    writeln!(out, "heartbeat      = {}", span(*heartbeat))?;
    writeln!(out, "slow_start     = {}", span(*slow_start))?;
    writeln!(out, "keepalive      = {}", span(*keepalive))?;
    writeln!(out, "websockets     = {websockets}")?;
    writeln!(out, "websocket_lifetime = {}", span(*websocket_lifetime))?;
    writeln!(out, "websocket_ping = {}", span(*websocket_ping))?;
    writeln!(out, "pool           = {pool}")?;
    writeln!(out, "pool_idle      = {}", span(*pool_idle))?;
    let networks: Vec<String> = fetch_allow.iter().map(|network| format!("\"{network}\"")).collect();
    writeln!(out, "fetch_allow    = [{}]", networks.join(", "))?;
    writeln!(out, "fetch          = {}", bytes(*fetch))?;
    writeln!(out, "fetches        = {fetches}")?;
    writeln!(out, "fetch_timeout  = {}", span(*fetch_timeout))
}

fn write_store(
    out: &mut String,
    store: &StoreSettings,
    retention: &RetentionSettings,
    ledger: &LedgerSettings,
) -> std::fmt::Result {
    writeln!(out, "\n[store]")?;
    match store {
        StoreSettings::Sqlite(path) => writeln!(out, "sqlite = {}", text(&path.display().to_string()))?,
        StoreSettings::Valkey(fleet) => write_fleet(out, fleet)?,
    }
    let RetentionSettings { lifetime, response, total, seal_lifetime, seal_total, refuse_foreign } =
        retention;
    writeln!(out, "response_lifetime = {}", span(*lifetime))?;
    writeln!(out, "response_limit = {}", bytes(*response))?;
    writeln!(out, "total_limit = {}", bytes(*total))?;
    writeln!(out, "seal_lifetime = {}", span(*seal_lifetime))?;
    writeln!(out, "seal_limit = {}", bytes(*seal_total))?;
    writeln!(out, "foreign_responses = \"{}\"", if *refuse_foreign { "refuse" } else { "allow" })?;
    let LedgerSettings { flush, records } = ledger;
    writeln!(out, "flush = {}", span(*flush))?;
    writeln!(out, "record_lifetime = {}", span(*records))
}

fn write_fleet(out: &mut String, fleet: &FleetSettings) -> std::fmt::Result {
    let urls: Vec<String> = fleet.urls.iter().map(|url| text(&masked_url(url.expose()))).collect();
    match &urls[..] {
        [url] => writeln!(out, "valkey = {url}")?,
        urls => writeln!(out, "valkey = [{}]", urls.join(", "))?,
    }
    if let Some(name) = &fleet.sentinel {
        writeln!(out, "sentinel = {}", text(name))?;
    }
    writeln!(out, "journal = {}", text(&fleet.journal.display().to_string()))?;
    match fleet.away {
        OnOutageSetting::Refuse => writeln!(out, "away = \"refuse\""),
        OnOutageSetting::Allow(allowance) => {
            writeln!(out, "away = \"allow\"\naway_allowance = {}", Amount(allowance))
        }
    }
}

fn write_routes(out: &mut String, routes: &RoutingTable) -> std::fmt::Result {
    writeln!(out, "\n# routes.toml")?;
    writeln!(out, "claude_alias = {}", text(routes.aliases().prefix()))?;
    for provider in routes.providers() {
        let apis: Vec<String> = provider.apis.iter().map(|api| format!("\"{api}\"")).collect();
        writeln!(out, "\n[[provider]]\nname       = {}", text(&provider.name))?;
        writeln!(out, "kind       = \"{}\"", provider.kind.name())?;
        writeln!(out, "apis       = [{}]", apis.join(", "))?;
        writeln!(out, "base_url   = {}", text(&provider.base.to_string()))?;
        if let Some(access) = &provider.cloud {
            write_access(out, access)?;
        } else if provider.has_credential() {
            writeln!(out, "credential = {{ value = \"***\" }}")?;
        }
        let http = match provider.http {
            HttpVersion::Auto => "auto",
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
        };
        writeln!(out, "http       = \"{http}\"")?;
        writeln!(out, "timeouts   = {{ {} }}", times(&provider.timeouts))?;
        if let Some(check) = &provider.check {
            let path = text(&masked_url(&provider.check_path(check)));
            let (every, timeout) = (span(check.every), span(check.timeout));
            writeln!(out, "check      = {{ path = {path}, every = {every}, timeout = {timeout} }}")?;
        }
        if provider.roots.is_some() {
            writeln!(out, "# ca: certificates of its own")?;
        }
        if let Some(leaf) = provider.client_identity.as_ref().and_then(|identity| identity.chain.first()) {
            let hash = Sha256::digest(leaf);
            let digits = hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            writeln!(out, "# client_cert: sha256:{digits}")?;
        }
        for (name, _) in &provider.headers {
            writeln!(out, "# header {name}: ***")?;
        }
        writeln!(out, "ask_usage  = {}", provider.ask_usage)?;
        writeln!(out, "forward_client = {}", provider.forward_client)?;
        writeln!(out, "think_tags = {}", provider.think_tags)?;
        if provider.websocket {
            writeln!(out, "websocket  = true")?;
        }
        if !provider.states_tier {
            writeln!(out, "served_tier = \"request\"")?;
        }
        if let Some(guardrail) = &provider.guardrail {
            let Guardrail { id, version, trace } = &**guardrail;
            let (id, version, trace) = (text(id.as_ref()), text(version.as_ref()), trace.name());
            writeln!(out, "guardrail  = {{ id = {id}, version = {version}, trace = \"{trace}\" }}")?;
        }
        if !provider.standard_errors {
            writeln!(out, "errors     = \"own\"")?;
        }
        if let Some(prefill) = provider.prefill {
            writeln!(out, "prefill = {prefill}")?;
        }
    }
    if let Some(model) = routes.models().first() {
        let rules = model.routing.breaker;
        let nanos = |nanos: i64| span(Duration::from_nanos(nanos.unsigned_abs()));
        writeln!(out, "\n[breaker]\nfailures = {}\npercent  = {}", rules.failures, rules.percent)?;
        writeln!(out, "requests = {}\nwithin   = {}", rules.requests, nanos(rules.within))?;
        writeln!(out, "cooldown = {}\nlongest  = {}", nanos(rules.cooldown), nanos(rules.longest))?;
    }
    routes.models().iter().try_for_each(|model| write_model(out, model))
}

/// Writes the access to a cloud platform: its source, without secrets.
fn write_access(out: &mut String, access: &CloudAccess) -> std::fmt::Result {
    if let Some(signing) = &access.signing {
        let (region, service) = (text(&signing.region), text(&signing.service));
        writeln!(out, "aws        = {{ region = {region}, service = {service} }}")?;
    }
    writeln!(out, "# credentials: {}", access.source.name())
}

fn write_model(out: &mut String, model: &Model) -> std::fmt::Result {
    writeln!(out, "\n[[model]]\nid       = {}", text(&model.id))?;
    writeln!(out, "owned_by = {}", text(&model.owned_by))?;
    writeln!(out, "created  = {}", model.created)?;
    for (key, tokens) in
        [("context_window", model.context_window), ("max_output_tokens", model.abilities.max_output_tokens)]
    {
        if let Some(tokens) = tokens {
            writeln!(out, "{key} = {tokens}")?;
        }
    }
    let ConfiguredAbilities { max_output_tokens: _, image_input, parallel_tool_calls } = model.abilities;
    for (key, ability) in [("image_input", image_input), ("parallel_tool_calls", parallel_tool_calls)] {
        if let Some(ability) = ability {
            writeln!(out, "{key} = {ability}")?;
        }
    }
    let targets: Vec<String> = model.targets.iter().map(write_target).collect();
    writeln!(out, "targets  = [{}]", targets.join(", "))?;
    writeln!(out, "policy   = \"{}\"", model.routing.policy.name())?;
    if model.prompt_cache != CachePolicy::Off {
        writeln!(out, "prompt_cache = \"{}\"", model.prompt_cache.name())?;
    }
    if let Some(target) = model.targets.first().filter(|target| target.timeouts != target.provider.timeouts) {
        writeln!(out, "timeouts = {{ {} }}", times(&target.timeouts))?;
    }
    if model.targets.len() > 1 || model.routing.retry != RetryRules::default() {
        writeln!(out, "retry    = {{ {} }}", retry(&model.routing.retry))?;
    }
    if !model.price.is_empty() {
        writeln!(out, "price    = {}", super::print_price::price(&model.price))?;
    }
    Ok(())
}

fn times(timeouts: &Timeouts) -> String {
    let Timeouts { connect, first_byte, idle, total, min_rate, rate_window } = *timeouts;
    let [connect, first_byte, idle, total] = [connect, first_byte, idle, total].map(span);
    let mut out = format!("connect = {connect}, first_byte = {first_byte}, idle = {idle}, total = {total}");
    if min_rate > 0 {
        let _ = write!(out, ", min_rate = \"{min_rate}B\", rate_window = {}", span(rate_window));
    }
    out
}

/// Formats a target, fallbacks included, with its effective tier.
fn write_target(target: &Target) -> String {
    let (provider, model, handle) = (text(&target.provider.name), text(&target.model), &target.handle);
    let mut out = format!("{{ provider = {provider}, model = {model}, weight = {}", handle.weight);
    if let Some(family) = &target.family {
        let _ = write!(out, ", family = {}", text(family));
    }
    let limits = &handle.limits;
    for (key, value) in [
        ("tier", (handle.tier > 0).then_some(u64::from(handle.tier))),
        ("concurrent", limits.concurrent.map(u64::from)),
        ("requests_per_minute", limits.requests_per_minute),
        ("tokens_per_minute", limits.tokens_per_minute),
    ] {
        if let Some(value) = value {
            let _ = write!(out, ", {key} = {value}");
        }
    }
    out + " }"
}

fn retry(retry: &RetryRules) -> String {
    let also = [(ALSO[0], retry.context_length), (ALSO[1], retry.unsupported)];
    let also: Vec<String> =
        also.iter().filter(|(_, on)| *on).map(|(name, _)| format!("\"{name}\"")).collect();
    format!(
        "attempts = {}, deadline = {}, hold = {}, percent = {}, reserve = {}, also = [{}], continue = {}",
        retry.attempts,
        span(retry.deadline),
        span(retry.hold),
        retry.share.percent,
        retry.share.reserve,
        also.join(", "),
        retry.resume
    )
}

fn write_keys(out: &mut String, keys: &Keys) -> std::fmt::Result {
    writeln!(out, "\n# keys.toml: {} {}", keys.len(), if keys.len() == 1 { "key" } else { "keys" })
}
