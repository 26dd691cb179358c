//! Handle of the process's telemetry: what requests call when they end.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::conventions::Conventions;
use super::envelope::Envelope;
use super::exporter::{
    DropReason, ExportCounters, ExportState, Exporter, LAST_FLUSH, MetricExport, MetricSource, QueueExport,
    Signal, unix_nanos,
};
use super::facts::{RequestFacts, TraceFacts};
use super::log_record::{RecordTrace, encode_record};
use super::queue::{ExporterSignal, Pushed, SignalQueue};
use super::sampling::{RequestOutcome, Sampler};
use super::span::encode_request;
use super::trace_context::TraceId;
use super::transport::{CollectorEndpoint, Transport, TransportError};
use crate::metrics::Metrics;
use sync::supervise::{self, Supervised};

/// Time that the end of the process waits for the last export.
const CLOSE: Duration = Duration::from_secs(2);
/// Capacity in bytes that a thread's scratch buffer keeps.
const RETAINED_CAPACITY: usize = 16 * 1024;

/// Terms of telemetry.
#[derive(Debug)]
pub struct TelemetryTerms {
    /// Resource attributes.
    pub resource: Vec<(String, String)>,
    /// Version of the gateway.
    pub version: &'static str,
    /// Version of the GenAI conventions.
    pub conventions: Conventions,
    /// Traces; `None` if they are off.
    pub traces: Option<SignalTerms>,
    /// Log records; `None` if they are off.
    pub logs: Option<SignalTerms>,
    /// Metrics; `None` if they are off.
    pub metrics: Option<MetricTerms>,
    /// Sampler of traces.
    pub sampler: Sampler,
    /// Maximum number of queued items per signal.
    pub queue: usize,
    /// Maximum number of items in one request.
    pub batch: usize,
    /// Longest time before a queued item is sent.
    pub delay: Duration,
}

/// Terms of a signal that is queued.
#[derive(Debug)]
pub struct SignalTerms {
    /// Where it is sent to.
    pub destination: CollectorEndpoint,
}

/// Terms of the metrics.
#[derive(Debug)]
pub struct MetricTerms {
    /// Where they are sent to.
    pub destination: CollectorEndpoint,
    /// Time between two collections.
    pub every: Duration,
}

/// Reason why telemetry does not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A destination cannot be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The thread cannot be started.
    #[error(transparent)]
    Thread(#[from] io::Error),
}

/// Telemetry of the process.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<Arc<SignalQueue>>,
    logs: Option<Arc<SignalQueue>>,
    sampler: Sampler,
    conventions: Conventions,
    batch: usize,
    signal: Arc<ExporterSignal>,
    counters: ExportCounters,
    /// Connections of traces, logs and metrics; `None` for a signal that is off.
    transports: [Option<Arc<Transport>>; 3],
    thread: Arc<Supervised>,
    running: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    /// Scratch buffer of a thread: the queue is locked only to append.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Telemetry {
    /// Starts the exporting thread. `source` collects the metrics. No collector need be reachable.
    ///
    /// # Errors
    /// Returns [`TelemetryError`] if a client certificate cannot be used or the thread cannot be started.
    pub fn start(
        terms: TelemetryTerms,
        metrics: &Metrics,
        source: MetricSource,
    ) -> Result<Self, TelemetryError> {
        let queue = |terms: Option<SignalTerms>, limit| {
            let export = |terms: SignalTerms| {
                let transport = Arc::new(Transport::new(terms.destination)?);
                Ok::<_, TransportError>(QueueExport { queue: Arc::new(SignalQueue::new(limit)), transport })
            };
            terms.map(export).transpose()
        };
        let traces = queue(terms.traces, terms.queue)?;
        let logs = queue(terms.logs, terms.queue)?;
        let collected = terms.metrics.map(|metrics| {
            Transport::new(metrics.destination).map(|transport| MetricExport {
                source,
                every: metrics.every,
                transport: Arc::new(transport),
            })
        });
        let collected = collected.transpose()?;
        let transports = [
            traces.as_ref().map(|export| export.transport.clone()),
            logs.as_ref().map(|export| export.transport.clone()),
            collected.as_ref().map(|export: &MetricExport| export.transport.clone()),
        ];
        let signal = Arc::new(ExporterSignal::default());
        let counters = ExportCounters {
            exported: metrics.telemetry_exported.clone(),
            dropped: metrics.telemetry_dropped.clone(),
        };
        let resource = terms.resource.iter().map(|(key, value)| (&**key, &**value));
        let of = |export: &Option<QueueExport>| export.as_ref().map(|export| export.queue.clone());
        let (trace_queue, log_queue) = (of(&traces), of(&logs));
        let mut exporter = Exporter {
            signal: signal.clone(),
            envelope: Envelope::new(resource, terms.conventions, terms.version),
            conventions: terms.conventions,
            traces,
            logs,
            metrics: collected,
            batch: terms.batch,
            delay: terms.delay,
            counters: counters.clone(),
            start: unix_nanos(),
            state: ExportState::default(),
        };
        let (thread, running) = supervise::spawn("telemetry", move || exporter.run())?;
        Ok(Telemetry {
            traces: trace_queue,
            logs: log_queue,
            sampler: terms.sampler,
            conventions: terms.conventions,
            batch: terms.batch,
            signal,
            counters,
            transports,
            thread,
            running: Mutex::new(Some(running)),
        })
    }

    /// Takes over headers and certificates of the destinations of traces, logs and metrics, for requests from now on. A
    /// signal that is off stays off, and one without a destination keeps what it has. Returns whether anything is new.
    ///
    /// # Errors
    /// Returns [`TransportError`] if a client certificate cannot be used; that of its signal stays in effect.
    pub fn renew(&self, destinations: [Option<&CollectorEndpoint>; 3]) -> Result<bool, TransportError> {
        let mut is_new = false;
        for (transport, destination) in self.transports.iter().zip(destinations) {
            if let (Some(transport), Some(destination)) = (transport, destination) {
                is_new |= transport.renew(destination)?;
            }
        }
        Ok(is_new)
    }

    /// Returns whether requests are traced.
    pub fn has_traces(&self) -> bool {
        self.traces.is_some()
    }

    /// Returns whether requests are logged.
    pub fn has_logs(&self) -> bool {
        self.logs.is_some()
    }

    /// Returns whether metrics are exported.
    pub fn has_metrics(&self) -> bool {
        let [_, _, metrics] = &self.transports;
        metrics.is_some()
    }

    /// Returns the exporting thread.
    pub fn thread(&self) -> &Arc<Supervised> {
        &self.thread
    }

    /// Returns whether a trace belongs to the share that is sampled in any case.
    pub fn is_in_share(&self, trace: &TraceId) -> bool {
        self.sampler.is_in_share(trace)
    }

    /// Returns whether the trace of a request that has ended is exported.
    pub fn is_sampled(&self, outcome: &RequestOutcome<'_>) -> bool {
        self.has_traces() && self.sampler.is_sampled(outcome)
    }

    /// Queues the spans of a request. Never waits.
    pub fn push_trace(&self, request: &RequestFacts<'_>, trace: &TraceFacts<'_>) {
        let Some(queue) = &self.traces else { return };
        self.push(Signal::Traces, queue, |out| encode_request(request, trace, self.conventions, out));
    }

    /// Queues the log record of a request. Never waits.
    pub fn push_log(&self, request: &RequestFacts<'_>, trace: Option<RecordTrace>) {
        let Some(queue) = &self.logs else { return };
        self.push(Signal::Logs, queue, |out| {
            encode_record(request, trace, out);
            1
        });
    }

    fn push(&self, signal: Signal, queue: &SignalQueue, encode: impl FnOnce(&mut Vec<u8>) -> usize) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            let items = encode(scratch);
            match queue.push(scratch, items) {
                // Only the item that completes the batch wakes the thread.
                Pushed::Queued(queued) if queued >= self.batch && queued - items < self.batch => {
                    self.signal.wake()
                }
                Pushed::Queued(_) => {}
                Pushed::Full => self.counters.drop_items(signal, DropReason::Full, items as u64),
            }
            scratch.shrink_to(RETAINED_CAPACITY);
        });
    }

    /// Exports what is queued and ends the thread. Waits at most 2 s; what is left then is lost with the process.
    pub fn close(&self) {
        const { assert!(LAST_FLUSH.as_millis() < CLOSE.as_millis()) };
        if let Some(running) = self.running.lock().take() {
            self.signal.stop(CLOSE);
            if running.is_finished() {
                let _ = running.join();
            }
        }
    }
}
