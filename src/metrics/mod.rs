//! What is counted, and the one line that is written for every request.
//!
//! Every series is declared in one table ([`table`]), which docs/metrics.md is compared with; [`Metrics`] holds them,
//! and [`Series`] the handles that a request for one model at one provider needs, so that no label is looked up on
//! the way. The access log is [`access_log`], the log of the process [`log`], the admin port [`admin`].
//!
//! Here must not live: anything that decides about a request.

pub mod access_log;
pub mod admin;
mod lines;
pub mod log;
mod series;
pub mod table;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

pub use series::{Finished, Series};
pub use table::{Family, Shape, TABLE};

/// All series of the process.
pub struct Metrics {
    registry: Registry,
    /// Requests by endpoint, model, provider and status.
    pub requests: IntCounterVec,
    /// Errors by kind and whose fault they are.
    pub errors: IntCounterVec,
    /// Whole time of a request.
    pub duration: HistogramVec,
    /// Time to the first content of an answer.
    pub first_token: HistogramVec,
    /// Time per output token behind the first.
    pub per_token: HistogramVec,
    /// Tokens per request.
    pub token_usage: HistogramVec,
    /// Tokens by kind.
    pub tokens: IntCounterVec,
    /// Money.
    pub cost: IntCounterVec,
    /// Requests that a limit refused.
    pub limit_refusals: IntCounterVec,
    /// What the ledger could not do.
    pub ledger_failures: IntCounterVec,
    /// The gateway's own share of a request's time.
    pub overhead: Histogram,
    /// Request body bytes.
    pub request_bytes: IntCounterVec,
    /// Answer body bytes.
    pub response_bytes: IntCounterVec,
    /// See [`table::LARGE_BODY_WAIT`].
    pub large_body_wait: Histogram,
    /// See [`table::LARGE_BODIES_REFUSED`].
    pub large_bodies_refused: IntCounter,
    /// Requests under way.
    pub in_flight: IntGauge,
    /// Connections of clients.
    pub connections: IntGauge,
    /// Connections of clients that were refused.
    pub connections_refused: IntCounter,
    /// TLS handshakes of clients that were not completed.
    pub handshakes_failed: IntCounterVec,
    /// Exchanges with providers by whether their connection was new.
    pub upstream_connections: IntCounterVec,
    /// Exchanges that were tried again.
    pub upstream_retries: IntCounterVec,
    /// Failures after which no other target was asked.
    pub retries_refused: IntCounterVec,
    /// See [`table::STREAMS_CONTINUED`].
    pub streams_continued: IntCounterVec,
    /// Clients that were given a head before their answer began.
    pub slow_starts: IntCounterVec,
    /// Targets that began to be left alone.
    pub targets_opened: IntCounterVec,
    /// Whether a target may be asked.
    pub target_available: IntGaugeVec,
    /// Requests at a target.
    pub target_in_flight: IntGaugeVec,
    /// Checks of providers by how they went.
    pub provider_checks: IntCounterVec,
    /// Whether the last check of a provider went well.
    pub provider_well: IntGaugeVec,
    /// See [`table::LINKS`].
    pub links: IntCounterVec,
    /// Elements that were lost in translation.
    pub losses: IntCounterVec,
    /// Reports of usage that were beyond what their request could have used.
    pub usage_bounded: IntCounterVec,
    /// Failed exchanges.
    pub upstream_errors: IntCounterVec,
    /// Reloads.
    pub reloads: IntCounterVec,
    /// When the last reload took effect.
    pub reload_time: IntGauge,
    /// The generation that answers.
    pub generation: IntGauge,
    /// Models and keys that are loaded.
    pub loaded: IntGaugeVec,
    /// What was asked of the store.
    pub store_operations: IntCounterVec,
    /// Bytes that are kept.
    pub store_bytes: IntGauge,
    /// Access log lines that were lost.
    pub log_dropped: IntCounter,
    /// Restarts of threads that panicked.
    pub thread_restarts: IntCounterVec,
}

/// Why the series could not be made: two with the same name, or a name that Prometheus refuses.
#[derive(Debug, thiserror::Error)]
#[error("metric {name}: {source}")]
pub struct MetricsError {
    name: &'static str,
    source: prometheus::Error,
}

impl Metrics {
    /// Makes and registers all series of the table.
    ///
    /// # Errors
    /// The table is wrong.
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
            token_usage: make.histograms(&table::TOKEN_USAGE)?,
            tokens: make.counters(&table::TOKENS)?,
            cost: make.counters(&table::COST)?,
            limit_refusals: make.counters(&table::LIMIT_REFUSALS)?,
            ledger_failures: make.counters(&table::LEDGER_FAILURES)?,
            overhead: make.histogram(&table::OVERHEAD)?,
            request_bytes: make.counters(&table::REQUEST_BYTES)?,
            response_bytes: make.counters(&table::RESPONSE_BYTES)?,
            large_body_wait: make.histogram(&table::LARGE_BODY_WAIT)?,
            large_bodies_refused: make.counter(&table::LARGE_BODIES_REFUSED)?,
            in_flight: make.gauge(&table::IN_FLIGHT)?,
            connections: make.gauge(&table::CONNECTIONS)?,
            connections_refused: make.counter(&table::CONNECTIONS_REFUSED)?,
            handshakes_failed: make.counters(&table::HANDSHAKES_FAILED)?,
            upstream_connections: make.counters(&table::UPSTREAM_CONNECTIONS)?,
            upstream_retries: make.counters(&table::UPSTREAM_RETRIES)?,
            retries_refused: make.counters(&table::RETRIES_REFUSED)?,
            streams_continued: make.counters(&table::STREAMS_CONTINUED)?,
            slow_starts: make.counters(&table::SLOW_STARTS)?,
            targets_opened: make.counters(&table::TARGETS_OPENED)?,
            target_available: make.gauges(&table::TARGET_AVAILABLE)?,
            target_in_flight: make.gauges(&table::TARGET_IN_FLIGHT)?,
            provider_checks: make.counters(&table::PROVIDER_CHECKS)?,
            provider_well: make.gauges(&table::PROVIDER_WELL)?,
            links: make.counters(&table::LINKS)?,
            losses: make.counters(&table::LOSSES)?,
            usage_bounded: make.counters(&table::USAGE_BOUNDED)?,
            upstream_errors: make.counters(&table::UPSTREAM_ERRORS)?,
            reloads: make.counters(&table::RELOADS)?,
            reload_time: make.gauge(&table::RELOAD_TIME)?,
            generation: make.gauge(&table::GENERATION)?,
            loaded: make.gauges(&table::LOADED)?,
            store_operations: make.counters(&table::STORE_OPERATIONS)?,
            store_bytes: make.gauge(&table::STORE_BYTES)?,
            log_dropped: make.counter(&table::LOG_DROPPED)?,
            thread_restarts: make.counters(&table::THREAD_RESTARTS)?,
            registry,
        };
        if let Some(lost) = log::lost() {
            make_log(&metrics.registry, lost)?;
        }
        let process = prometheus::process_collector::ProcessCollector::for_self();
        make_process(&metrics.registry, process)?;
        Ok(metrics)
    }

    /// All series in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Only a broken metric family fails, and then everything before it is still worth having.
        let _ = prometheus::TextEncoder::new().encode_utf8(&self.registry.gather(), &mut out);
        out
    }

    /// The names of all families that are registered, for the comparison with docs.
    pub fn names(&self) -> Vec<String> {
        self.registry.gather().iter().map(|family| family.name().to_owned()).collect()
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

/// The log is there before the series are, and counts for all of the process.
fn make_log(registry: &Registry, lost: IntCounter) -> Result<(), MetricsError> {
    registry.register(Box::new(lost)).map_err(|source| MetricsError { name: table::LOG_LOST.name, source })
}

struct Maker<'r> {
    registry: &'r Registry,
}

impl Maker<'_> {
    fn register<C: Collector + Clone + 'static>(
        &self,
        family: &Family,
        made: prometheus::Result<C>,
    ) -> Result<C, MetricsError> {
        let error = |source| MetricsError { name: family.name, source };
        let collector = made.map_err(error)?;
        self.registry.register(Box::new(collector.clone())).map_err(error)?;
        Ok(collector)
    }

    fn counter(&self, family: &Family) -> Result<IntCounter, MetricsError> {
        self.register(family, IntCounter::new(family.name, family.help))
    }

    fn counters(&self, family: &Family) -> Result<IntCounterVec, MetricsError> {
        self.register(family, IntCounterVec::new(Opts::new(family.name, family.help), family.labels))
    }

    fn gauge(&self, family: &Family) -> Result<IntGauge, MetricsError> {
        self.register(family, IntGauge::new(family.name, family.help))
    }

    fn gauges(&self, family: &Family) -> Result<IntGaugeVec, MetricsError> {
        self.register(family, IntGaugeVec::new(Opts::new(family.name, family.help), family.labels))
    }

    fn histogram(&self, family: &Family) -> Result<Histogram, MetricsError> {
        self.register(family, Histogram::with_opts(Self::options(family)))
    }

    fn histograms(&self, family: &Family) -> Result<HistogramVec, MetricsError> {
        self.register(family, HistogramVec::new(Self::options(family), family.labels))
    }

    fn options(family: &Family) -> HistogramOpts {
        let buckets = match family.shape {
            Shape::Histogram(buckets) => buckets.to_vec(),
            Shape::Counter | Shape::Gauge => Vec::new(),
        };
        HistogramOpts::new(family.name, family.help).buckets(buckets)
    }
}
