//! Metrics of the requests for one endpoint, model and provider: each thread counts in a shard of its own.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter};

use super::Metrics;
use super::shard::SeriesShard;
use codec::canonical::Usage;
use sync::PerThread;

/// Metrics of the requests for one endpoint, model and provider. Series with the same labels have the same counts.
pub struct Series {
    labels: Labels,
    pub(super) handles: Handles,
    shards: Arc<Shards>,
}

/// Shards of a series, one for each thread that has counted. The lock of a shard is that of its thread; a reader takes it
/// too, for as long as it takes to move some thirty numbers.
type Shards = PerThread<Mutex<SeriesShard>>;

/// Handles of what is shown before the first request is counted.
pub(super) struct Handles {
    pub(super) duration: Histogram,
    pub(super) request_bytes: IntCounter,
    pub(super) response_bytes: IntCounter,
    pub(super) reused: IntCounter,
    pub(super) connected: IntCounter,
}

/// Label values of a series.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    pub(super) endpoint: &'static str,
    /// Value of `gen_ai.operation.name`.
    pub(super) operation: &'static str,
    pub(super) model: Box<str>,
    pub(super) provider: Box<str>,
    pub(super) provider_kind: &'static str,
}

impl Labels {
    pub(super) fn gen_ai(&self) -> [&str; 3] {
        [self.operation, self.provider_kind, &self.model]
    }
}

/// Measurements of a finished request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finished {
    /// HTTP status sent to the client.
    pub status: u16,
    /// Total duration in seconds.
    pub seconds: f64,
    /// Time to the first content of a stream, in seconds; `None` if there was none.
    pub first_token: Option<f64>,
    /// Request body bytes.
    pub request_bytes: u64,
    /// Response body bytes.
    pub response_bytes: u64,
    /// Charge in nano-units.
    pub cost: u64,
    /// Savings of prompt-cache reads in nano-units.
    pub cache_saved: u64,
    /// Surcharge of prompt-cache writes in nano-units.
    pub cache_surcharge: u64,
}

impl Series {
    /// Looks up the series. `operation` is the value of `gen_ai.operation.name`, `provider_kind` that of
    /// `gen_ai.provider.name` (OpenTelemetry GenAI semantic conventions).
    pub fn new(
        metrics: &Metrics,
        endpoint: &'static str,
        operation: &'static str,
        model: &str,
        provider: &str,
        provider_kind: &'static str,
    ) -> Self {
        let labels =
            Labels { endpoint, operation, model: model.into(), provider: provider.into(), provider_kind };
        Series {
            handles: Handles {
                duration: metrics.duration.with_label_values(&labels.gen_ai()),
                request_bytes: metrics.request_bytes.with_label_values(&[endpoint]),
                response_bytes: metrics.response_bytes.with_label_values(&[endpoint]),
                reused: metrics.upstream_connections.with_label_values(&[provider, "true"]),
                connected: metrics.upstream_connections.with_label_values(&[provider, "false"]),
            },
            shards: metrics.series.shards(&labels),
            labels,
        }
    }

    /// Counts an upstream exchange by whether its connection was reused.
    pub fn exchange(&self, reused: bool) {
        self.shard().lock().exchange(reused);
    }

    /// Counts an attempt that has ended. `error` is the kind of its error; `None` if it succeeded.
    pub fn attempt(&self, metrics: &Metrics, seconds: f64, error: Option<&'static str>) {
        match error {
            None => self.shard().lock().attempt(metrics, &self.labels, seconds),
            Some(error) => {
                let [operation, provider_kind, model] = self.labels.gen_ai();
                let labels = [operation, provider_kind, model, error];
                metrics.attempt_duration.with_label_values(&labels).observe(seconds);
            }
        }
    }

    /// Counts a finished request.
    pub fn finish(&self, metrics: &Metrics, done: &Finished, usage: &Usage) {
        self.shard().lock().finish(metrics, &self.labels, done, usage);
    }

    fn shard(&self) -> &Mutex<SeriesShard> {
        self.shards.own(|| Mutex::new(SeriesShard::new(&self.handles)))
    }
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Series({} {} {})", self.labels.endpoint, self.labels.model, self.labels.provider)
    }
}

/// Counts of all series. They outlive their [`Series`], which a reload replaces, until they are flushed.
#[derive(Default)]
pub(super) struct SeriesTable(Mutex<HashMap<Labels, Arc<Shards>, RandomState>>);

impl SeriesTable {
    /// Returns the shards of a series, which are made if there are none.
    fn shards(&self, labels: &Labels) -> Arc<Shards> {
        let mut table = self.0.lock();
        if let Some(found) = table.get(labels) {
            return found.clone();
        }
        // Without a reader, only this removes the series of former configurations: before the table grows.
        if table.len() == table.capacity() {
            table.retain(|_, shards| !flush_unused(shards));
        }
        table.entry(labels.clone()).or_default().clone()
    }

    /// Adds what all threads have counted to the registry, and removes the series that are no longer used.
    pub(super) fn flush(&self) {
        let used: Vec<Arc<Shards>> = {
            let mut table = self.0.lock();
            table.retain(|_, shards| !flush_unused(shards));
            table.values().cloned().collect()
        };
        // Without the lock: a request that is the first of its kind must not wait for thousands of series.
        for shards in used {
            flush(&shards);
        }
    }
}

/// Flushes shards that no [`Series`] has. Returns whether they are such. If one has them, it may count between the flush
/// and the removal.
fn flush_unused(shards: &mut Arc<Shards>) -> bool {
    Arc::get_mut(shards).is_some_and(|shards| {
        flush(shards);
        true
    })
}

fn flush(shards: &Shards) {
    shards.iter().for_each(|shard| shard.lock().flush());
}

#[cfg(test)]
mod tests;
