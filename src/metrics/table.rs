//! The table of all series: name, kind, labels, meaning. docs/metrics.md is compared with it by a test.
//!
//! Names that OpenTelemetry's semantic conventions for generative AI define are used as Prometheus spells them
//! (`gen_ai.server.request.duration` in seconds becomes `gen_ai_server_request_duration_seconds`). Labels are
//! bounded: models, providers and keys appear only as they stand in the configuration, never as a client spelled
//! them.

/// What kind of series a family is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size, with these upper bounds.
    Histogram(&'static [f64]),
}

/// One family of series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// Kind.
    pub shape: Shape,
    /// Labels.
    pub labels: &'static [&'static str],
    /// Meaning, with its unit.
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
/// From 10 microseconds, which is what a small request takes, to a tenth of a second.
const OVERHEAD_BUCKETS: &[f64] =
    &[0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1];

/// From nothing at all to what a request would rather not wait.
const LARGE_BODY_BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

const GEN_AI: &[&str] = &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"];

macro_rules! table {
    ($($(#[$doc:meta])* $const:ident = $name:literal $shape:expr, $labels:expr, $help:literal;)*) => {
        $($(#[$doc])* pub const $const: Family =
            Family { name: $name, shape: $shape, labels: $labels, help: $help };)*
        /// All families.
        pub const TABLE: &[Family] = &[$($const),*];
    };
}

table! {
    /// Requests.
    REQUESTS = "gateway_requests_total" Shape::Counter, &["endpoint", "model", "provider", "status"],
        "Requests that were answered, by HTTP status; model and provider are empty when none was chosen.";
    /// Errors.
    ERRORS = "gateway_errors_total" Shape::Counter, &["kind", "source"],
        "Errors by kind and by whose fault they are (downstream, upstream, internal).";
    /// Durations.
    DURATION = "gen_ai_server_request_duration_seconds" Shape::Histogram(DURATION_BUCKETS), GEN_AI,
        "From the request's head to the end of the answer, in seconds.";
    /// Time to the first token.
    FIRST_TOKEN = "gen_ai_server_time_to_first_token_seconds" Shape::Histogram(FIRST_TOKEN_BUCKETS), GEN_AI,
        "From the request's head to the first content of a stream, in seconds.";
    /// Time per token.
    PER_TOKEN = "gen_ai_server_time_per_output_token_seconds" Shape::Histogram(PER_TOKEN_BUCKETS), GEN_AI,
        "Time per output token behind the first of a stream, in seconds.";
    /// Token usage.
    TOKEN_USAGE = "gen_ai_client_token_usage" Shape::Histogram(TOKEN_BUCKETS),
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"],
        "Tokens per request, by type (input, output), as the provider reported them; counted where it did not.";
    /// Tokens.
    TOKENS = "gateway_tokens_total" Shape::Counter, &["model", "provider", "kind"],
        "Tokens by kind (input, cached_input, cache_write, output, reasoning); input and output include their parts.";
    /// Money.
    COST = "gateway_cost_nano_units_total" Shape::Counter, &["model", "provider"],
        "What was charged, in billionths of the currency that prices are written in.";
    /// Refusals by limits.
    LIMIT_REFUSALS = "gateway_limit_refusals_total" Shape::Counter, &["scope", "limit"],
        "Requests that a limit of a key or an account refused, by the limit's name in keys.toml, or the balance.";
    /// Failures of the ledger.
    LEDGER_FAILURES = "gateway_ledger_failures_total" Shape::Counter, &["operation", "result"],
        "What the ledger could not do at once, by operation (reserve, settle, spent) and reason.";
    /// Overhead.
    OVERHEAD = "gateway_overhead_seconds" Shape::Histogram(OVERHEAD_BUCKETS), &[],
        "Time that the gateway itself adds before the first byte of an answer: deciding and rewriting, without waiting for client or provider, in seconds.";
    /// Request bytes.
    REQUEST_BYTES = "gateway_request_body_bytes_total" Shape::Counter, &["endpoint"],
        "Bytes of request bodies.";
    /// Response bytes.
    RESPONSE_BYTES = "gateway_response_body_bytes_total" Shape::Counter, &["endpoint"],
        "Bytes of answer bodies.";
    /// Waits of large bodies.
    LARGE_BODY_WAIT = "gateway_large_body_wait_seconds" Shape::Histogram(LARGE_BODY_BUCKETS), &[],
        "How long a large body (256 KiB and more) that is translated or counted waited for its turn, in seconds.";
    /// Large bodies that were refused.
    LARGE_BODIES_REFUSED = "gateway_large_bodies_refused_total" Shape::Counter, &[],
        "Requests with large bodies that were refused with 503 because too many waited for their turn already.";
    /// In flight.
    IN_FLIGHT = "gateway_requests_in_flight" Shape::Gauge, &[],
        "Requests under way.";
    /// Connections.
    CONNECTIONS = "gateway_connections" Shape::Gauge, &[],
        "Open connections of clients.";
    /// Refused connections.
    CONNECTIONS_REFUSED = "gateway_connections_refused_total" Shape::Counter, &[],
        "Connections that were refused because limits.connections was reached.";
    /// TLS handshakes that were not completed.
    HANDSHAKES_FAILED = "gateway_tls_handshakes_failed_total" Shape::Counter, &["reason"],
        "TLS handshakes of clients that were not completed, by reason (failed, timeout).";
    /// Upstream connections.
    UPSTREAM_CONNECTIONS = "gateway_upstream_connections_total" Shape::Counter, &["provider", "reused"],
        "Exchanges with a provider, by whether their connection came from the pool.";
    /// Retries.
    UPSTREAM_RETRIES = "gateway_upstream_retries_total" Shape::Counter, &["provider", "reason"],
        "Exchanges that were tried again before a byte had gone to the client.";
    /// Retries that were not made.
    RETRIES_REFUSED = "gateway_retries_refused_total" Shape::Counter, &["model", "reason"],
        "Failures that were shown to the client although another target might have done better, by reason (targets, attempts, deadline, budget).";
    /// Streams that broke off.
    STREAMS_CONTINUED = "gateway_streams_continued_total" Shape::Counter, &["model", "outcome"],
        "Streams that broke off before their clients, on routes that continue them, by outcome (asked, limit, or why not).";
    /// Clients that waited.
    SLOW_STARTS = "gateway_slow_starts_total" Shape::Counter, &["model"],
        "Clients that were given the head of a stream before its provider had begun to answer, so that they would not give up.";
    /// Targets that are left alone.
    TARGETS_OPENED = "gateway_targets_opened_total" Shape::Counter, &["provider", "target", "reason"],
        "How often a target began to be left alone because of failures, by whose they are (target, provider, credential).";
    /// Availability of targets.
    TARGET_AVAILABLE = "gateway_target_available" Shape::Gauge, &["provider", "target"],
        "1 for a target that may be asked, 0 for one that is left alone.";
    /// Requests at targets.
    TARGET_IN_FLIGHT = "gateway_target_requests_in_flight" Shape::Gauge, &["provider", "target"],
        "Requests under way at a target.";
    /// Checks of providers.
    PROVIDER_CHECKS = "gateway_provider_checks_total" Shape::Counter, &["provider", "result"],
        "Checks of providers, by how they went (well, busy, forbidden, credential, failed, unreachable).";
    /// The last checks of providers.
    PROVIDER_WELL = "gateway_provider_well" Shape::Gauge, &["provider"],
        "1 for a provider whose last check went well, 0 for one whose last check did not.";
    /// Links.
    LINKS = "gateway_links_total" Shape::Counter, &["from", "result"],
        "Links that were followed, by whose they are (client, provider) and how it went.";
    /// Losses in translation.
    LOSSES = "gateway_translation_losses_total" Shape::Counter, &["from", "to", "element", "policy"],
        "Elements of requests that their target's format could not carry, by what was done (silent, warn, refuse).";
    /// See `Metrics::usage_bounded`.
    USAGE_BOUNDED = "gateway_usage_bounded_total" Shape::Counter, &["provider"],
        "Reports of usage that were beyond what their request could have used.";
    /// Upstream errors.
    UPSTREAM_ERRORS = "gateway_upstream_errors_total" Shape::Counter, &["provider", "kind"],
        "Exchanges that a provider failed, by kind.";
    /// Reloads.
    RELOADS = "gateway_reloads_total" Shape::Counter, &["result"],
        "Reloads of routes and keys, by result (applied, refused).";
    /// Reload time.
    RELOAD_TIME = "gateway_reload_applied_timestamp_seconds" Shape::Gauge, &[],
        "When routes and keys took effect last, in Unix seconds.";
    /// Generation.
    GENERATION = "gateway_config_generation" Shape::Gauge, &[],
        "The generation of routes and keys in effect: 1 after the start, one more with each reload that was applied.";
    /// Loaded.
    LOADED = "gateway_config_entries" Shape::Gauge, &["kind"],
        "What is loaded, by kind (models, providers, keys).";
    /// Operations of the store.
    STORE_OPERATIONS = "gateway_store_operations_total" Shape::Counter, &["operation", "result"],
        "What was asked of the store (keep, find, remove, remember, recall), by result (done, too_large, busy, late, failed).";
    /// Size of the store.
    STORE_BYTES = "gateway_store_bytes" Shape::Gauge, &[],
        "Bytes of the responses that are kept.";
    /// Dropped log lines.
    LOG_DROPPED = "gateway_access_log_dropped_total" Shape::Counter, &[],
        "Access log lines that were lost because their destination failed or did not keep up.";
    /// Lost lines of the log of the process.
    LOG_LOST = "gateway_log_lost_lines_total" Shape::Counter, &[],
        "Log lines that were lost because standard error failed or did not keep up.";
    /// Threads.
    THREAD_RESTARTS = "gateway_thread_restarts_total" Shape::Counter, &["thread"],
        "Restarts of threads of the gateway that panicked.";
    /// Build.
    BUILD_INFO = "gateway_build_info" Shape::Gauge, &["version"],
        "Always 1; the version that runs.";
}
