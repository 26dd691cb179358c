//! Exporting thread: takes what is queued, sends it in batches, and repeats what a collector may take later. Whatever a
//! collector does, requests never wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus::IntCounterVec;
use prometheus::proto::MetricFamily;

use super::conventions::Conventions;
use super::envelope::Envelope;
use super::metrics_data::{CollectionTime, encode_metrics};
use super::queue::{Batch, ExporterSignal, SignalQueue, Taken};
use super::transport::{ExportOutcome, Transport};

/// First and longest pause before a batch is sent again.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Time after which a batch is dropped.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Shortest time between two log lines about the collector.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Time for everything that is queued when the process ends.
pub(super) const LAST_FLUSH: Duration = Duration::from_millis(1_800);
/// Maximum number of data points in one request.
const DATA_POINTS: usize = 2_000;

/// Signal: what is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Logs,
    Metrics,
}

impl Signal {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Logs => "logs",
            Signal::Metrics => "metrics",
        }
    }
}

/// Reason why items are dropped, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    /// The queue was full.
    Full,
    /// The collector has refused them.
    Rejected,
    /// They are too large for the collector.
    TooLarge,
    /// The collector was not reachable, or asked to wait for too long.
    Unavailable,
    /// The process ended before they were sent.
    Shutdown,
}

impl DropReason {
    pub(super) const fn name(self) -> &'static str {
        match self {
            DropReason::Full => "queue_full",
            DropReason::Rejected => "rejected",
            DropReason::TooLarge => "too_large",
            DropReason::Unavailable => "unavailable",
            DropReason::Shutdown => "shutdown",
        }
    }
}

/// Counters of exported and dropped items.
#[derive(Clone, Debug)]
pub(super) struct ExportCounters {
    pub(super) exported: IntCounterVec,
    pub(super) dropped: IntCounterVec,
}

impl ExportCounters {
    pub(super) fn drop_items(&self, signal: Signal, reason: DropReason, items: u64) {
        if items > 0 {
            self.dropped.with_label_values(&[signal.name(), reason.name()]).inc_by(items);
        }
    }
}

/// Source of the metrics: refreshes and gathers all families.
pub type MetricSource = Box<dyn Fn() -> Vec<MetricFamily> + Send>;

/// Metrics that are exported.
pub(super) struct MetricExport {
    pub(super) source: MetricSource,
    pub(super) every: Duration,
    pub(super) transport: Arc<Transport>,
}

/// Items that are exported from a queue.
pub(super) struct QueueExport {
    pub(super) queue: Arc<SignalQueue>,
    pub(super) transport: Arc<Transport>,
}

/// State of the exporting thread.
pub(super) struct Exporter {
    pub(super) signal: Arc<ExporterSignal>,
    pub(super) envelope: Envelope,
    pub(super) conventions: Conventions,
    pub(super) traces: Option<QueueExport>,
    pub(super) logs: Option<QueueExport>,
    pub(super) metrics: Option<MetricExport>,
    pub(super) batch: usize,
    pub(super) delay: Duration,
    pub(super) counters: ExportCounters,
    /// Start of the process, in Unix nanoseconds.
    pub(super) start: u64,
    pub(super) state: ExportState,
}

/// State that outlives a panic.
#[derive(Default)]
pub(super) struct ExportState {
    taken: Taken,
    /// The signal and number of items of `taken` that are neither sent nor counted as dropped.
    open: Option<(Signal, u64)>,
    next_metrics: Option<Instant>,
    last_log: Option<Instant>,
    /// Failures since the last line of the log.
    unlogged: u64,
    /// The last batch was given up: the next ones are sent once, until one is taken.
    is_down: bool,
    /// Time at which the process ends; set when it begins to.
    ends_at: Option<Instant>,
}

/// What has become of a batch.
enum Delivered {
    /// It was sent; so many items were rejected.
    Taken(u64),
    /// It is too large.
    TooLarge,
    /// It is dropped.
    Dropped(DropReason),
}

impl Exporter {
    /// Runs until the process ends. Called again after a panic.
    pub(super) fn run(&mut self) {
        if let Some((signal, items)) = self.state.open.take() {
            self.counters.drop_items(signal, DropReason::Rejected, items);
        }
        loop {
            let stop = self.signal.wait(self.next_wait());
            if stop {
                self.state.ends_at.get_or_insert_with(|| Instant::now() + LAST_FLUSH);
            }
            self.export_queue(Signal::Traces);
            self.export_queue(Signal::Logs);
            self.export_metrics(stop);
            if stop {
                self.signal.ended();
                return;
            }
        }
    }

    fn next_wait(&self) -> Duration {
        let metrics = self.metrics.as_ref().map(|metrics| match self.state.next_metrics {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => metrics.every,
        });
        metrics.map_or(self.delay, |wait| wait.min(self.delay))
    }

    fn export_queue(&mut self, signal: Signal) {
        let export = match signal {
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
            Signal::Metrics => return,
        };
        let Some(export) = export else { return };
        let mut taken = std::mem::take(&mut self.state.taken);
        export.queue.take(&mut taken);
        self.export(signal, &taken, self.batch);
        taken.clear();
        self.state.taken = taken;
    }

    fn export_metrics(&mut self, stop: bool) {
        let Some(metrics) = &self.metrics else { return };
        let now = Instant::now();
        let due = *self.state.next_metrics.get_or_insert(now + metrics.every);
        if now < due && !stop {
            return;
        }
        self.state.next_metrics = Some(now + metrics.every);
        let mut taken = Taken::default();
        let time = CollectionTime { start: self.start, now: unix_nanos() };
        encode_metrics(&(metrics.source)(), time, self.conventions, &mut taken);
        self.export(Signal::Metrics, &taken, DATA_POINTS);
    }

    /// Sends what was taken, in batches.
    fn export(&mut self, signal: Signal, taken: &Taken, size: usize) {
        self.state.open = Some((signal, taken.items()));
        let mut batches = taken.batches(size);
        batches.reverse();
        while let Some(batch) = batches.pop() {
            match self.deliver(signal, taken, &batch) {
                Delivered::Taken(rejected) => {
                    let accepted = batch.items.saturating_sub(rejected);
                    self.counters.exported.with_label_values(&[signal.name()]).inc_by(accepted);
                    self.counters.drop_items(signal, DropReason::Rejected, rejected.min(batch.items));
                }
                Delivered::TooLarge => match taken.halves(&batch) {
                    Some([first, second]) => {
                        batches.extend([second, first]);
                        continue;
                    }
                    None => self.counters.drop_items(signal, DropReason::TooLarge, batch.items),
                },
                Delivered::Dropped(reason) => self.counters.drop_items(signal, reason, batch.items),
            }
            if let Some((_, open)) = &mut self.state.open {
                *open = open.saturating_sub(batch.items);
            }
        }
        self.state.open = None;
    }

    fn transport(&self, signal: Signal) -> Option<&Transport> {
        match signal {
            Signal::Traces => self.traces.as_ref().map(|export| &*export.transport),
            Signal::Logs => self.logs.as_ref().map(|export| &*export.transport),
            Signal::Metrics => self.metrics.as_ref().map(|export| &*export.transport),
        }
    }

    /// Sends a batch, and again after a failure that may pass.
    fn deliver(&mut self, signal: Signal, taken: &Taken, batch: &Batch) -> Delivered {
        let body = self.envelope.wrap(taken.bytes_of(batch));
        let Some(body) = self.transport(signal).map(|transport| transport.compressed(body)) else {
            return Delivered::Dropped(DropReason::Rejected);
        };
        let until = Instant::now() + GIVE_UP;
        let mut pause = PAUSES[0];
        loop {
            let Some(sent) = self.send(signal, &body) else {
                return Delivered::Dropped(DropReason::Shutdown);
            };
            let (after, reason) = match sent {
                ExportOutcome::Accepted(partial) => {
                    self.state.is_down = false;
                    if partial.rejected > 0 {
                        self.log(
                            signal,
                            &format!(
                                "the collector rejected {} items: {}",
                                partial.rejected, partial.message
                            ),
                        );
                    }
                    return Delivered::Taken(partial.rejected);
                }
                ExportOutcome::TooLarge => return Delivered::TooLarge,
                ExportOutcome::Refused(reason) => {
                    self.log(signal, &reason);
                    return Delivered::Dropped(DropReason::Rejected);
                }
                ExportOutcome::Retry { after, reason } => (after, reason),
            };
            self.log(signal, &reason);
            let wait = after.unwrap_or_else(|| jittered(pause));
            pause = (pause * 2).min(PAUSES[1]);
            let left = until.saturating_duration_since(Instant::now());
            let crowded = self.queue(signal).is_some_and(SignalQueue::is_filling);
            if self.state.is_down || wait >= left || crowded {
                self.state.is_down = true;
                // Without this, a collector that refuses at once would be asked in a loop while the queue fills.
                if self.signal.wait_for_stop(wait.min(PAUSES[0])) {
                    self.state.ends_at.get_or_insert_with(|| Instant::now() + LAST_FLUSH);
                }
                return Delivered::Dropped(DropReason::Unavailable);
            }
            if self.signal.wait_for_stop(wait) {
                self.state.ends_at.get_or_insert_with(|| Instant::now() + LAST_FLUSH);
                // One more try, at the end of the process.
                self.state.is_down = true;
            }
        }
    }

    fn queue(&self, signal: Signal) -> Option<&SignalQueue> {
        match signal {
            Signal::Traces => self.traces.as_ref().map(|export| &*export.queue),
            Signal::Logs => self.logs.as_ref().map(|export| &*export.queue),
            Signal::Metrics => None,
        }
    }

    /// Sends a body once. `None` if no time is left before the process ends.
    fn send(&mut self, signal: Signal, body: &[u8]) -> Option<ExportOutcome> {
        if self.signal.is_stopping() {
            self.state.ends_at.get_or_insert_with(|| Instant::now() + LAST_FLUSH);
        }
        let transport = self.transport(signal)?;
        let mut timeout = transport.timeout();
        if let Some(end) = self.state.ends_at {
            timeout = timeout.min(end.saturating_duration_since(Instant::now()));
        }
        (timeout > Duration::ZERO).then(|| transport.send(body, timeout))
    }

    /// Logs a failure, at most once a minute.
    fn log(&mut self, signal: Signal, reason: &str) {
        self.state.unlogged += 1;
        let now = Instant::now();
        if self.state.last_log.is_some_and(|last| now.duration_since(last) < LOG_EVERY) {
            return;
        }
        let url = self.transport(signal).map(Transport::url).unwrap_or_default();
        let (signal, failures) = (signal.name(), self.state.unlogged);
        tracing::warn!(signal, url, reason, failures, "telemetry was not exported");
        self.state.last_log = Some(now);
        self.state.unlogged = 0;
    }
}

/// Returns half of a pause to all of it, at random: gateways that fail together must not return together.
fn jittered(pause: Duration) -> Duration {
    let share = rand::Rng::next_u32(&mut rand::rng());
    pause.mul_f64(0.5 + 0.5 * f64::from(share) / f64::from(u32::MAX))
}

/// Returns the Unix time in nanoseconds.
pub(super) fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
