//! Metrics, access log and live requests.
//!
//! [`table`] declares every series; a test compares it with docs/metrics.md. [`Metrics`] holds the series. [`Series`]
//! holds the counts for one endpoint, model and provider, so that a request needs no label lookup. What every request
//! counts, each thread counts for itself (`shard`); they are added to the registry before it is read. The access
//! log is [`access_log`], the process log [`log`], the events of live requests [`live`], the totals of the series [`totals`].
//!
//! Decisions about a request must not live here.

pub mod access_log;
mod lines;
pub mod live;
pub mod log;
mod series;
mod shard;
pub mod table;
pub mod totals;

use std::sync::OnceLock;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use series::SeriesTable;
pub use series::{Finished, Series};
pub use shard::ThreadedHistogram;
pub use table::{MetricFamily, MetricType, TABLE};

/// Metrics registry with all series of the process. docs/metrics.md describes each series.
pub struct Metrics {
    registry: Registry,
    series: SeriesTable,
    /// Requests by endpoint, model, provider and status.
    pub requests: IntCounterVec,
    /// Errors by kind and side at fault.
    pub errors: IntCounterVec,
    /// Total duration of a request.
    pub duration: HistogramVec,
    /// Time to the first content of a response.
    pub first_token: HistogramVec,
    /// Time per output token after the first.
    pub per_token: HistogramVec,
    /// See [`table::ATTEMPT_DURATION`].
    pub attempt_duration: HistogramVec,
    /// Tokens per request.
    pub token_usage: HistogramVec,
    /// Tokens by kind.
    pub tokens: IntCounterVec,
    /// Charges, in nano-units.
    pub cost: IntCounterVec,
    /// Savings of prompt-cache reads, in nano-units.
    pub cache_saved: IntCounterVec,
    /// Surcharges of prompt-cache writes, in nano-units.
    pub cache_surcharge: IntCounterVec,
    /// Requests with automatic prompt caching, by action.
    pub cache_requests: IntCounterVec,
    /// Requests that read nothing from the prompt cache, by what changed.
    pub cache_misses: IntCounterVec,
    /// Requests rejected by a limit.
    pub limit_refusals: IntCounterVec,
    /// Failed ledger operations.
    pub ledger_failures: IntCounterVec,
    /// Time that the gateway itself adds to a request.
    pub overhead: ThreadedHistogram,
    /// Request body bytes.
    pub request_bytes: IntCounterVec,
    /// Response body bytes.
    pub response_bytes: IntCounterVec,
    /// See [`table::LARGE_BODY_WAIT`].
    pub large_body_wait: Histogram,
    /// See [`table::LARGE_BODIES_REFUSED`].
    pub large_bodies_refused: IntCounter,
    in_flight: IntGauge,
    in_flight_source: OnceLock<InFlightSource>,
    /// Open client connections.
    pub connections: IntGauge,
    /// Rejected client connections.
    pub connections_refused: IntCounter,
    /// Open WebSockets.
    pub websockets: IntGauge,
    /// WebSockets that ended, by reason.
    pub websocket_closes: IntCounterVec,
    /// Failed TLS handshakes of clients.
    pub handshakes_failed: IntCounterVec,
    /// See [`table::PROXY_HEADERS_REFUSED`].
    pub proxy_headers_refused: IntCounterVec,
    /// See [`table::CERTIFICATE_NOT_AFTER`].
    pub certificate_not_after: IntGaugeVec,
    /// See [`table::CERTIFICATE_RELOADS`].
    pub certificate_reloads: IntCounterVec,
    /// Upstream exchanges by whether the connection was reused.
    pub upstream_connections: IntCounterVec,
    /// Upstream retries.
    pub upstream_retries: IntCounterVec,
    /// Failures that were not retried although another target might have succeeded.
    pub retries_refused: IntCounterVec,
    /// See [`table::STREAMS_CONTINUED`].
    pub streams_continued: IntCounterVec,
    /// Early responses to clients (slow start).
    pub slow_starts: IntCounterVec,
    /// Breakers that opened.
    pub targets_opened: IntCounterVec,
    /// Whether a target is available.
    pub target_available: IntGaugeVec,
    /// See [`table::TARGET_REASON`].
    pub target_reason: IntGaugeVec,
    /// See [`table::TARGETS_DRAINED`].
    pub targets_drained: IntGauge,
    /// Requests in flight at a target.
    pub target_in_flight: IntGaugeVec,
    /// Health checks of providers by result.
    pub provider_checks: IntCounterVec,
    /// Whether the last health check of a provider succeeded.
    pub provider_well: IntGaugeVec,
    /// See [`table::CREDENTIAL_RENEWALS`].
    pub credential_renewals: IntCounterVec,
    /// See [`table::CREDENTIAL_END`].
    pub credential_end: IntGaugeVec,
    /// See [`table::REMOTE_FETCHES`].
    pub remote_fetches: IntCounterVec,
    /// Request elements lost in translation.
    pub losses: IntCounterVec,
    /// See [`table::TIER_REQUESTS`].
    pub tier_requests: IntCounterVec,
    /// See [`table::TIER_COST`].
    pub tier_cost: IntCounterVec,
    /// See [`table::UNPRICED_TIERS`].
    pub unpriced_tiers: IntCounterVec,
    /// Usage reports that exceeded the possible usage of their request.
    pub usage_bounded: IntCounterVec,
    /// Failed upstream exchanges.
    pub upstream_errors: IntCounterVec,
    /// Reloads.
    pub reloads: IntCounterVec,
    /// [`table::ADMIN_LOGINS`]
    pub admin_logins: IntCounterVec,
    /// See [`table::ADMIN_REQUESTS`].
    pub admin_requests: IntCounterVec,
    /// Time when the last reload took effect.
    pub reload_time: IntGauge,
    /// Configuration generation in effect.
    pub generation: IntGauge,
    /// Number of loaded models, providers and keys.
    pub loaded: IntGaugeVec,
    /// See [`table::KEYS`].
    pub keys: IntGaugeVec,
    /// See [`table::CONFIG_INFO`].
    pub config_info: IntGaugeVec,
    /// Store operations.
    pub store_operations: IntCounterVec,
    /// Bytes of stored responses.
    pub store_bytes: IntGauge,
    /// Dropped access log lines.
    pub log_dropped: IntCounter,
    /// Exported items of telemetry.
    pub telemetry_exported: IntCounterVec,
    /// Dropped items of telemetry.
    pub telemetry_dropped: IntCounterVec,
    /// Restarts of threads that panicked.
    pub thread_restarts: IntCounterVec,
}

/// Function that returns the number of requests in flight.
type InFlightSource = Box<dyn Fn() -> usize + Send + Sync>;

/// Reason why a series could not be registered: a duplicate name, or a name that Prometheus rejects.
#[derive(Debug, thiserror::Error)]
#[error("metric {name}: {source}")]
pub struct MetricsError {
    name: &'static str,
    source: prometheus::Error,
}

impl Metrics {
    /// Creates and registers all series of the table.
    ///
    /// # Errors
    /// Returns [`MetricsError`] if the table has a duplicate or invalid name.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let build = make.gauges(&table::BUILD_INFO)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let metrics = Metrics {
            requests: make.counters(&table::REQUESTS)?,
            errors: make.counters(&table::ERRORS)?,
            duration: make.histograms(&table::DURATION)?,
            first_token: make.histograms(&table::FIRST_TOKEN)?,
            per_token: make.histograms(&table::PER_TOKEN)?,
            attempt_duration: make.histograms(&table::ATTEMPT_DURATION)?,
            token_usage: make.histograms(&table::TOKEN_USAGE)?,
            tokens: make.counters(&table::TOKENS)?,
            cost: make.counters(&table::COST)?,
            cache_saved: make.counters(&table::CACHE_SAVED)?,
            cache_surcharge: make.counters(&table::CACHE_SURCHARGE)?,
            cache_requests: make.counters(&table::CACHE_REQUESTS)?,
            cache_misses: make.counters(&table::CACHE_MISSES)?,
            limit_refusals: make.counters(&table::LIMIT_REFUSALS)?,
            ledger_failures: make.counters(&table::LEDGER_FAILURES)?,
            overhead: ThreadedHistogram::new(make.histogram(&table::OVERHEAD)?),
            request_bytes: make.counters(&table::REQUEST_BYTES)?,
            response_bytes: make.counters(&table::RESPONSE_BYTES)?,
            large_body_wait: make.histogram(&table::LARGE_BODY_WAIT)?,
            large_bodies_refused: make.counter(&table::LARGE_BODIES_REFUSED)?,
            in_flight: make.gauge(&table::IN_FLIGHT)?,
            in_flight_source: OnceLock::new(),
            connections: make.gauge(&table::CONNECTIONS)?,
            connections_refused: make.counter(&table::CONNECTIONS_REFUSED)?,
            websockets: make.gauge(&table::WEBSOCKETS)?,
            websocket_closes: make.counters(&table::WEBSOCKET_CLOSES)?,
            handshakes_failed: make.counters(&table::HANDSHAKES_FAILED)?,
            proxy_headers_refused: make.counters(&table::PROXY_HEADERS_REFUSED)?,
            certificate_not_after: make.gauges(&table::CERTIFICATE_NOT_AFTER)?,
            certificate_reloads: make.counters(&table::CERTIFICATE_RELOADS)?,
            upstream_connections: make.counters(&table::UPSTREAM_CONNECTIONS)?,
            upstream_retries: make.counters(&table::UPSTREAM_RETRIES)?,
            retries_refused: make.counters(&table::RETRIES_REFUSED)?,
            streams_continued: make.counters(&table::STREAMS_CONTINUED)?,
            slow_starts: make.counters(&table::SLOW_STARTS)?,
            targets_opened: make.counters(&table::TARGETS_OPENED)?,
            target_available: make.gauges(&table::TARGET_AVAILABLE)?,
            target_reason: make.gauges(&table::TARGET_REASON)?,
            targets_drained: make.gauge(&table::TARGETS_DRAINED)?,
            target_in_flight: make.gauges(&table::TARGET_IN_FLIGHT)?,
            provider_checks: make.counters(&table::PROVIDER_CHECKS)?,
            provider_well: make.gauges(&table::PROVIDER_WELL)?,
            credential_renewals: make.counters(&table::CREDENTIAL_RENEWALS)?,
            credential_end: make.gauges(&table::CREDENTIAL_END)?,
            remote_fetches: make.counters(&table::REMOTE_FETCHES)?,
            losses: make.counters(&table::LOSSES)?,
            tier_requests: make.counters(&table::TIER_REQUESTS)?,
            tier_cost: make.counters(&table::TIER_COST)?,
            unpriced_tiers: make.counters(&table::UNPRICED_TIERS)?,
            usage_bounded: make.counters(&table::USAGE_BOUNDED)?,
            upstream_errors: make.counters(&table::UPSTREAM_ERRORS)?,
            reloads: make.counters(&table::RELOADS)?,
            admin_logins: make.counters(&table::ADMIN_LOGINS)?,
            admin_requests: make.counters(&table::ADMIN_REQUESTS)?,
            reload_time: make.gauge(&table::RELOAD_TIME)?,
            generation: make.gauge(&table::GENERATION)?,
            loaded: make.gauges(&table::LOADED)?,
            keys: make.gauges(&table::KEYS)?,
            config_info: make.gauges(&table::CONFIG_INFO)?,
            store_operations: make.counters(&table::STORE_OPERATIONS)?,
            store_bytes: make.gauge(&table::STORE_BYTES)?,
            log_dropped: make.counter(&table::LOG_DROPPED)?,
            telemetry_exported: make.counters(&table::TELEMETRY_EXPORTED)?,
            telemetry_dropped: make.counters(&table::TELEMETRY_DROPPED)?,
            thread_restarts: make.counters(&table::THREAD_RESTARTS)?,
            series: SeriesTable::default(),
            registry,
        };
        if let Some(lost) = log::lost() {
            make_log(&metrics.registry, lost)?;
        }
        let process = prometheus::process_collector::ProcessCollector::for_self();
        make_process(&metrics.registry, process)?;
        Ok(metrics)
    }

    /// Returns all series in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Encoding fails only for an invalid metric family; the families before it are still useful.
        let _ = prometheus::TextEncoder::new().encode_utf8(&self.gather(), &mut out);
        out
    }

    /// Returns all series, with all that was counted before the call.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.flush();
        self.registry.gather()
    }

    /// Adds what the threads have counted to the registry. Must precede each read of it.
    fn flush(&self) {
        self.series.flush();
        self.overhead.flush();
        self.in_flight.set(self.in_flight());
    }

    /// Sets the function that returns the number of requests in flight. Only the first call has an effect.
    pub fn set_in_flight_source(&self, source: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.in_flight_source.set(Box::new(source));
    }

    /// Returns the number of requests in flight; 0 before its source is set.
    pub fn in_flight(&self) -> i64 {
        self.in_flight_source.get().map_or(0, |count| i64::try_from(count()).unwrap_or(i64::MAX))
    }

    /// Returns the names of all registered families, to compare them with docs/metrics.md.
    pub fn names(&self) -> Vec<String> {
        self.gather().iter().map(|family| family.name().to_owned()).collect()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

fn make_process(
    registry: &Registry,
    collector: prometheus::process_collector::ProcessCollector,
) -> Result<(), MetricsError> {
    registry.register(Box::new(collector)).map_err(|source| MetricsError { name: "process", source })
}

/// Registers the counter of lost log lines. The process log starts before the registry exists, so it owns the counter.
fn make_log(registry: &Registry, lost: IntCounter) -> Result<(), MetricsError> {
    registry.register(Box::new(lost)).map_err(|source| MetricsError { name: table::LOG_LOST.name, source })
}

struct Maker<'r> {
    registry: &'r Registry,
}

impl Maker<'_> {
    fn register<C: Collector + Clone + 'static>(
        &self,
        family: &MetricFamily,
        created: prometheus::Result<C>,
    ) -> Result<C, MetricsError> {
        let error = |source| MetricsError { name: family.name, source };
        let collector = created.map_err(error)?;
        self.registry.register(Box::new(collector.clone())).map_err(error)?;
        Ok(collector)
    }

    fn counter(&self, family: &MetricFamily) -> Result<IntCounter, MetricsError> {
        self.register(family, IntCounter::new(family.name, family.help))
    }

    fn counters(&self, family: &MetricFamily) -> Result<IntCounterVec, MetricsError> {
        self.register(family, IntCounterVec::new(Opts::new(family.name, family.help), family.labels))
    }

    fn gauge(&self, family: &MetricFamily) -> Result<IntGauge, MetricsError> {
        self.register(family, IntGauge::new(family.name, family.help))
    }

    fn gauges(&self, family: &MetricFamily) -> Result<IntGaugeVec, MetricsError> {
        self.register(family, IntGaugeVec::new(Opts::new(family.name, family.help), family.labels))
    }

    fn histogram(&self, family: &MetricFamily) -> Result<Histogram, MetricsError> {
        self.register(family, Histogram::with_opts(Self::options(family)))
    }

    fn histograms(&self, family: &MetricFamily) -> Result<HistogramVec, MetricsError> {
        self.register(family, HistogramVec::new(Self::options(family), family.labels))
    }

    fn options(family: &MetricFamily) -> HistogramOpts {
        let buckets = match family.shape {
            MetricType::Histogram(buckets) => buckets.to_vec(),
            MetricType::Counter | MetricType::Gauge => Vec::new(),
        };
        HistogramOpts::new(family.name, family.help).buckets(buckets)
    }
}
