//! Table of all series: name, type, labels and description. A test compares it with docs/metrics.md.
//!
//! Names that OpenTelemetry's semantic conventions for generative AI define are written in Prometheus style
//! (`gen_ai.server.request.duration` in seconds becomes `gen_ai_server_request_duration_seconds`). Label values are
//! bounded: models and providers are names from the configuration, never names that clients choose.

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricType {
    /// Monotonic counter.
    Counter,
    /// Gauge.
    Gauge,
    /// Histogram with these upper bounds.
    Histogram(&'static [f64]),
}

/// Metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricFamily {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub shape: MetricType,
    /// Labels.
    pub labels: &'static [&'static str],
    /// Description with the unit.
    pub help: &'static str,
}

/// OpenTelemetry's recommended bounds for `gen_ai.server.request.duration`.
const DURATION_BUCKETS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// OpenTelemetry's recommended bounds for `gen_ai.server.time_to_first_token`.
const FIRST_TOKEN_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// OpenTelemetry's recommended bounds for `gen_ai.server.time_per_output_token`.
const PER_TOKEN_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// OpenTelemetry's recommended bounds for `gen_ai.client.token.usage`.
const TOKEN_BUCKETS: &[f64] = &[
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0, 67108864.0,
];
/// From 10 µs, the usual overhead of a small request, to 100 ms.
const OVERHEAD_BUCKETS: &[f64] =
    &[0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1];

/// From 1 ms to 30 s.
const LARGE_BODY_BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

const GEN_AI: &[&str] = &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"];

macro_rules! table {
    ($($(#[$doc:meta])* $const:ident = $name:literal $shape:expr, $labels:expr, $help:literal;)*) => {
        $($(#[$doc])* pub const $const: MetricFamily =
            MetricFamily { name: $name, shape: $shape, labels: $labels, help: $help };)*
        /// All families.
        pub const TABLE: &[MetricFamily] = &[$($const),*];
    };
}

table! {
    /// Requests.
    REQUESTS = "gateway_requests_total" MetricType::Counter, &["endpoint", "model", "provider", "status"],
        "Finished requests, by HTTP status; model and provider are empty if none was selected.";
    /// Errors by kind.
    ERRORS = "gateway_errors_total" MetricType::Counter, &["kind", "source"],
        "Errors by kind and by side at fault (downstream, upstream, internal).";
    /// Request duration.
    DURATION = "gen_ai_server_request_duration_seconds" MetricType::Histogram(DURATION_BUCKETS), GEN_AI,
        "From the request head to the end of the response, in seconds.";
    /// Time to the first token.
    FIRST_TOKEN = "gen_ai_server_time_to_first_token_seconds" MetricType::Histogram(FIRST_TOKEN_BUCKETS), GEN_AI,
        "From the request head to the first content of a stream, in seconds.";
    /// Time per output token.
    PER_TOKEN = "gen_ai_server_time_per_output_token_seconds" MetricType::Histogram(PER_TOKEN_BUCKETS), GEN_AI,
        "Time per output token after the first of a stream, in seconds.";
    /// Duration of an attempt.
    ATTEMPT_DURATION = "gen_ai_client_operation_duration_seconds" MetricType::Histogram(DURATION_BUCKETS),
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"],
        "Attempt at a provider, from its start to the end of its response, in seconds; counted while metrics are exported.";
    /// Tokens per request.
    TOKEN_USAGE = "gen_ai_client_token_usage" MetricType::Histogram(TOKEN_BUCKETS),
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"],
        "Tokens per request, by type (input, output), as reported by the provider, or counted if it reported none.";
    /// Total tokens.
    TOKENS = "gateway_tokens_total" MetricType::Counter, &["model", "provider", "kind"],
        "Tokens by kind (input, cached_input, cache_write, output, reasoning); input and output include their parts.";
    /// Charges.
    COST = "gateway_cost_nano_units_total" MetricType::Counter, &["model", "provider"],
        "Charges, in billionths of the currency of the prices.";
    /// Savings of prompt-cache reads.
    CACHE_SAVED = "gateway_cache_saved_nano_units_total" MetricType::Counter, &["model", "provider"],
        "Savings of reads from the providers' prompt caches against plain input, in billionths of the currency.";
    /// Surcharges of prompt-cache writes.
    CACHE_SURCHARGE = "gateway_cache_surcharge_nano_units_total" MetricType::Counter, &["model", "provider"],
        "Surcharges of writes to the providers' prompt caches against plain input, in billionths of the currency.";
    /// Requests with automatic prompt caching.
    CACHE_REQUESTS = "gateway_cache_requests_total" MetricType::Counter, &["model", "provider", "action"],
        "Requests with automatic prompt caching, by what the gateway added (breakpoints, key, none, or paused because \
         reads do not repay writes).";
    /// Requests with automatic prompt caching that read nothing from the cache.
    CACHE_MISSES = "gateway_cache_misses_total" MetricType::Counter, &["model", "provider", "changed"],
        "Requests with automatic prompt caching that read nothing from the provider's cache, by the first section of the \
         prompt that differs from an earlier request of the key (tools, instructions, turn, nothing, or unknown).";
    /// Requests rejected by a limit.
    LIMIT_REFUSALS = "gateway_limit_refusals_total" MetricType::Counter, &["scope", "limit"],
        "Requests that a limit of a key or an account rejected, by the limit's name in keys.toml, or balance.";
    /// Ledger failures.
    LEDGER_FAILURES = "gateway_ledger_failures_total" MetricType::Counter, &["operation", "result"],
        "Failed ledger operations, by operation (reserve, limit, settle, spent) and result.";
    /// Gateway overhead.
    OVERHEAD = "gateway_overhead_seconds" MetricType::Histogram(OVERHEAD_BUCKETS), &[],
        "Time that the gateway itself adds to a request: from the end of its body to the start of the first \
         upstream attempt, in seconds.";
    /// Request bytes.
    REQUEST_BYTES = "gateway_request_body_bytes_total" MetricType::Counter, &["endpoint"],
        "Bytes of request bodies.";
    /// Response bytes.
    RESPONSE_BYTES = "gateway_response_body_bytes_total" MetricType::Counter, &["endpoint"],
        "Bytes of response bodies.";
    /// Waiting time of large bodies.
    LARGE_BODY_WAIT = "gateway_large_body_wait_seconds" MetricType::Histogram(LARGE_BODY_BUCKETS), &[],
        "Time that a large body (256 KiB and more) waited to be translated, checked or counted, in seconds.";
    /// Rejected large bodies.
    LARGE_BODIES_REFUSED = "gateway_large_bodies_refused_total" MetricType::Counter, &[],
        "Requests with large bodies that were rejected with 503 because too many were waiting already.";
    /// Requests in flight.
    IN_FLIGHT = "gateway_requests_in_flight" MetricType::Gauge, &[],
        "Requests in progress.";
    /// Open client connections.
    CONNECTIONS = "gateway_connections" MetricType::Gauge, &[],
        "Open client connections.";
    /// Rejected client connections.
    CONNECTIONS_REFUSED = "gateway_connections_refused_total" MetricType::Counter, &[],
        "Client connections that were refused because limits.connections was reached.";
    /// Open WebSockets.
    WEBSOCKETS = "gateway_websocket_connections" MetricType::Gauge, &[],
        "Open WebSockets of clients.";
    /// Closed WebSockets.
    WEBSOCKET_CLOSES = "gateway_websocket_closes_total" MetricType::Counter, &["reason"],
        "WebSockets that ended, by reason (client, gone, drain, lifetime, key, overload, too_large, protocol, \
         silent, slow).";
    /// Failed TLS handshakes.
    HANDSHAKES_FAILED = "gateway_tls_handshakes_failed_total" MetricType::Counter, &["reason"],
        "TLS handshakes of clients that failed, by reason (failed, timeout).";
    /// Connections without a valid header of the PROXY protocol.
    PROXY_HEADERS_REFUSED = "gateway_proxy_headers_refused_total" MetricType::Counter, &["reason"],
        "Client connections that were closed because of their header of the PROXY protocol, by reason (untrusted, \
         missing, malformed, timeout).";
    /// Expiry of certificates.
    CERTIFICATE_NOT_AFTER = "gateway_tls_certificate_not_after_timestamp_seconds" MetricType::Gauge, &["listen"],
        "End of the validity of the certificate of a TLS listener or of the admin port, in Unix seconds.";
    /// Renewals of certificates.
    CERTIFICATE_RELOADS = "gateway_tls_certificate_reloads_total" MetricType::Counter, &["result"],
        "Certificates of TLS listeners that were found changed or invalid in a reload, by result (applied, refused).";
    /// Upstream connections, new and reused.
    UPSTREAM_CONNECTIONS = "gateway_upstream_connections_total" MetricType::Counter, &["provider", "reused"],
        "Exchanges with a provider, by whether their connection came from the pool.";
    /// Upstream retries.
    UPSTREAM_RETRIES = "gateway_upstream_retries_total" MetricType::Counter, &["provider", "reason"],
        "Exchanges that were retried before a byte of the response was sent to the client, by reason.";
    /// Retries that were not made because of a limit.
    RETRIES_REFUSED = "gateway_retries_refused_total" MetricType::Counter, &["model", "reason"],
        "Failures that were not retried although another target might have succeeded, by reason (targets, \
         attempts, deadline, budget).";
    /// Broken streams on routes that resume them.
    STREAMS_CONTINUED = "gateway_streams_continued_total" MetricType::Counter, &["model", "outcome"],
        "Streams that broke off on routes that continue them, by outcome (asked, limit, or the reason why \
         they were not continued).";
    /// Early responses (slow start).
    SLOW_STARTS = "gateway_slow_starts_total" MetricType::Counter, &["model"],
        "Clients that received an early response head, before the provider responded.";
    /// Breakers that opened.
    TARGETS_OPENED = "gateway_targets_opened_total" MetricType::Counter, &["provider", "target", "reason"],
        "Breakers that opened, by reason of the failures (target, provider, credential).";
    /// Target availability.
    TARGET_AVAILABLE = "gateway_target_available" MetricType::Gauge, &["provider", "target"],
        "1 for an available target, 0 for one that is skipped.";
    /// Reason why a target is skipped.
    TARGET_REASON = "gateway_target_reason" MetricType::Gauge, &["provider", "target", "reason"],
        "Always 1: why a target is skipped or probed (drained, off, provider_open, open, waiting, half_open). Absent for a \
         target that admits every request.";
    /// Targets that an operator has drained.
    TARGETS_DRAINED = "gateway_targets_drained" MetricType::Gauge, &[],
        "Targets that an operator has drained, each counted once for each model that has it.";
    /// Requests in flight by target.
    TARGET_IN_FLIGHT = "gateway_target_requests_in_flight" MetricType::Gauge, &["provider", "target"],
        "Requests in progress at a target.";
    /// Health checks.
    PROVIDER_CHECKS = "gateway_provider_checks_total" MetricType::Counter, &["provider", "result"],
        "Health checks of providers, by result (well, busy, forbidden, credential, failed, unreachable).";
    /// Result of the last health check.
    PROVIDER_WELL = "gateway_provider_well" MetricType::Gauge, &["provider"],
        "1 if the result of the provider's last health check was well, 0 otherwise.";
    /// Renewals of credentials.
    CREDENTIAL_RENEWALS = "gateway_credential_renewals_total" MetricType::Counter, &["provider", "outcome"],
        "Requests for a short-lived credential of a provider, by outcome (issued, unreachable, refused, invalid, \
         configuration, expired).";
    /// End of the present credential.
    CREDENTIAL_END = "gateway_credential_end_timestamp_seconds" MetricType::Gauge, &["provider"],
        "Time at which the present short-lived credential of a provider ends, in Unix seconds; 0 if it is not known.";
    /// Fetches of remote media.
    REMOTE_FETCHES = "gateway_links_total" MetricType::Counter, &["from", "result"],
        "Downloads of remote media, by origin of the URL (client, provider) and result.";
    /// Losses in translation.
    LOSSES = "gateway_translation_losses_total" MetricType::Counter, &["from", "to", "element", "policy"],
        "Request elements that the target's format cannot carry, by policy (silent, warn, refuse).";
    /// Requests in other service tiers than the standard one.
    TIER_REQUESTS = "gateway_tier_requests_total" MetricType::Counter, &["model", "provider", "tier"],
        "Requests that were charged in another service tier than the standard one, by tier.";
    /// Charges in other service tiers than the standard one.
    TIER_COST = "gateway_tier_cost_nano_units_total" MetricType::Counter, &["model", "provider", "tier"],
        "Charges in other service tiers than the standard one, in billionths of the currency of the prices.";
    /// Charges in tiers without a price.
    UNPRICED_TIERS = "gateway_unpriced_tiers_total" MetricType::Counter, &["model", "provider", "tier"],
        "Requests whose response states a service tier without a price; the price of the dearest known tier was charged.";
    /// Implausible usage reports.
    USAGE_BOUNDED = "gateway_usage_bounded_total" MetricType::Counter, &["provider"],
        "Usage reports that exceeded what their request can have used.";
    /// Failed upstream exchanges.
    UPSTREAM_ERRORS = "gateway_upstream_errors_total" MetricType::Counter, &["provider", "kind"],
        "Exchanges that failed because of the provider, by kind.";
    /// Reloads.
    RELOADS = "gateway_reloads_total" MetricType::Counter, &["result"],
        "Reloads of routes and keys, by result (applied, refused).";
    /// Time of the last applied reload.
    RELOAD_TIME = "gateway_reload_applied_timestamp_seconds" MetricType::Gauge, &[],
        "Time at which routes and keys last took effect, in Unix seconds.";
    /// Configuration generation.
    GENERATION = "gateway_config_generation" MetricType::Gauge, &[],
        "Generation of routes and keys in effect: 1 after startup, one more after each applied reload.";
    /// Loaded configuration entries.
    LOADED = "gateway_config_entries" MetricType::Gauge, &["kind"],
        "Loaded configuration entries, by kind (models, providers, keys).";
    /// Keys by state.
    KEYS = "gateway_keys" MetricType::Gauge, &["state"],
        "Loaded keys, by state (usable, disabled, expired).";
    /// Hash of the configuration in effect.
    CONFIG_INFO = "gateway_config_info" MetricType::Gauge, &["hash"],
        "Always 1; the hash is that of the files of routes and keys in effect.";
    /// Store operations.
    STORE_OPERATIONS = "gateway_store_operations_total" MetricType::Counter, &["operation", "result"],
        "Store operations, by operation (keep, find, remove, remember, recall, owner, claim, submit_task, \
         find_task, change_task, forget_task, due_tasks) and result (done, too_large, busy, late, failed).";
    /// Store size.
    STORE_BYTES = "gateway_store_bytes" MetricType::Gauge, &[],
        "Bytes of the stored responses with their conversations.";
    /// Dropped access log lines.
    LOG_DROPPED = "gateway_access_log_dropped_total" MetricType::Counter, &[],
        "Access log lines that were lost because their destination failed or was too slow.";
    /// Lost lines of the process log.
    LOG_LOST = "gateway_log_lost_lines_total" MetricType::Counter, &[],
        "Log lines that were lost because standard error failed or was too slow.";
    /// Exported telemetry.
    TELEMETRY_EXPORTED = "gateway_telemetry_exported_total" MetricType::Counter, &["signal"],
        "Spans, log records and data points that the collector has taken, by signal (traces, logs, metrics).";
    /// Dropped telemetry.
    TELEMETRY_DROPPED = "gateway_telemetry_dropped_total" MetricType::Counter, &["signal", "reason"],
        "Spans, log records and data points that were dropped, by signal and reason (queue_full, rejected, too_large, \
         unavailable, shutdown).";
    /// Thread restarts.
    THREAD_RESTARTS = "gateway_thread_restarts_total" MetricType::Counter, &["thread"],
        "Restarts of threads of the gateway that panicked.";
    /// Attempts to sign in to the admin API.
    ADMIN_LOGINS = "gateway_admin_logins_total" MetricType::Counter, &["method", "result"],
        "Attempts to sign in to the admin API, by method (token, oidc) and result (accepted, refused, limited).";
    /// Requests of the admin API.
    ADMIN_REQUESTS = "gateway_admin_requests_total" MetricType::Counter, &["route", "status"],
        "Requests of the admin API, by the name of the operation and HTTP status; the name is empty if there is none.";
    /// Build information.
    BUILD_INFO = "gateway_build_info" MetricType::Gauge, &["version"],
        "Always 1; version is the version of the gateway.";
}
