//! What one thread has counted of a series since the last flush: plain numbers, which a reader adds to the registry.

use parking_lot::Mutex;
use prometheus::local::{LocalHistogram, LocalIntCounter};
use prometheus::{Histogram, HistogramVec, IntCounterVec};

use super::Metrics;
use super::series::{Finished, Handles, Labels};
use codec::canonical::Usage;
use sync::PerThread;

/// Statuses whose counters are local. Each of the others is looked up in the registry.
const COMMON: [u16; 8] = [200, 400, 401, 404, 429, 500, 503, 504];

/// Counts of one thread for one series: 1 to 2 KB. A counter is made when it is first used.
pub(super) struct SeriesShard {
    requests: [Option<LocalIntCounter>; COMMON.len()],
    duration: LocalHistogram,
    first_token: Option<LocalHistogram>,
    per_token: Option<LocalHistogram>,
    /// Attempts without an error.
    attempts: Option<LocalHistogram>,
    tokens: Option<LocalTokens>,
    cost: Option<LocalIntCounter>,
    cache_saved: Option<LocalIntCounter>,
    cache_surcharge: Option<LocalIntCounter>,
    request_bytes: LocalIntCounter,
    response_bytes: LocalIntCounter,
    reused: LocalIntCounter,
    connected: LocalIntCounter,
}

struct LocalTokens {
    input: LocalIntCounter,
    cached: LocalIntCounter,
    cache_write: LocalIntCounter,
    output: LocalIntCounter,
    reasoning: LocalIntCounter,
    input_usage: LocalHistogram,
    output_usage: LocalHistogram,
}

impl SeriesShard {
    pub(super) fn new(handles: &Handles) -> Self {
        SeriesShard {
            requests: Default::default(),
            duration: handles.duration.local(),
            first_token: None,
            per_token: None,
            attempts: None,
            tokens: None,
            cost: None,
            cache_saved: None,
            cache_surcharge: None,
            request_bytes: handles.request_bytes.local(),
            response_bytes: handles.response_bytes.local(),
            reused: handles.reused.local(),
            connected: handles.connected.local(),
        }
    }

    pub(super) fn exchange(&self, reused: bool) {
        if reused { &self.reused } else { &self.connected }.inc();
    }

    /// Counts an attempt without an error.
    pub(super) fn attempt(&mut self, metrics: &Metrics, labels: &Labels, seconds: f64) {
        let make = || {
            let [operation, provider_kind, model] = labels.gen_ai();
            metrics.attempt_duration.with_label_values(&[operation, provider_kind, model, ""]).local()
        };
        self.attempts.get_or_insert_with(make).observe(seconds);
    }

    pub(super) fn finish(&mut self, metrics: &Metrics, labels: &Labels, done: &Finished, usage: &Usage) {
        // Common statuses avoid the label lookup, which hashes all labels and takes a lock.
        let slot = COMMON.iter().zip(&mut self.requests).find(|(status, _)| **status == done.status);
        let requests = || {
            let mut buffer = itoa::Buffer::new();
            let status = buffer.format(done.status);
            metrics.requests.with_label_values(&[labels.endpoint, &*labels.model, &*labels.provider, status])
        };
        match slot {
            Some((_, slot)) => slot.get_or_insert_with(|| requests().local()).inc(),
            None => requests().inc(),
        }
        self.duration.observe(done.seconds);
        self.request_bytes.inc_by(done.request_bytes);
        self.response_bytes.inc_by(done.response_bytes);
        if let Some(seconds) = done.first_token {
            observe(&mut self.first_token, &metrics.first_token, labels, seconds);
            if let Some(output) = usage.output.filter(|output| *output > 1) {
                // Both values are far below 2^53, so an `f64` is exact.
                let each = (done.seconds - seconds).max(0.0) / (output - 1) as f64;
                observe(&mut self.per_token, &metrics.per_token, labels, each);
            }
        }
        add(&mut self.cost, &metrics.cost, labels, done.cost);
        add(&mut self.cache_saved, &metrics.cache_saved, labels, done.cache_saved);
        add(&mut self.cache_surcharge, &metrics.cache_surcharge, labels, done.cache_surcharge);
        if usage.is_known() {
            self.tokens.get_or_insert_with(|| LocalTokens::new(metrics, labels)).count(usage);
        }
    }

    /// Adds the counts to the registry, each once.
    pub(super) fn flush(&self) {
        let SeriesShard { requests, duration, first_token, per_token, attempts, tokens, .. } = self;
        let SeriesShard { cost, cache_saved, cache_surcharge, .. } = self;
        let SeriesShard { request_bytes, response_bytes, reused, connected, .. } = self;
        let counters = requests.iter().chain([cost, cache_saved, cache_surcharge]).flatten();
        for counter in counters.chain([request_bytes, response_bytes, reused, connected]) {
            counter.flush();
        }
        for histogram in [first_token, per_token, attempts].into_iter().flatten().chain([duration]) {
            histogram.flush();
        }
        if let Some(tokens) = tokens {
            tokens.flush();
        }
    }
}

fn observe(slot: &mut Option<LocalHistogram>, family: &HistogramVec, labels: &Labels, value: f64) {
    slot.get_or_insert_with(|| family.with_label_values(&labels.gen_ai()).local()).observe(value);
}

/// Counts an amount of money.
fn add(slot: &mut Option<LocalIntCounter>, family: &IntCounterVec, labels: &Labels, amount: u64) {
    if amount > 0 {
        let make = || family.with_label_values(&[&*labels.model, &*labels.provider]).local();
        slot.get_or_insert_with(make).inc_by(amount);
    }
}

impl LocalTokens {
    fn new(metrics: &Metrics, labels: &Labels) -> Self {
        let [operation, provider_kind, model] = labels.gen_ai();
        let counter = |kind| metrics.tokens.with_label_values(&[model, &*labels.provider, kind]).local();
        let histogram =
            |kind| metrics.token_usage.with_label_values(&[operation, provider_kind, model, kind]).local();
        LocalTokens {
            input: counter("input"),
            cached: counter("cached_input"),
            cache_write: counter("cache_write"),
            output: counter("output"),
            reasoning: counter("reasoning"),
            input_usage: histogram("input"),
            output_usage: histogram("output"),
        }
    }

    fn count(&self, usage: &Usage) {
        let add = |counter: &LocalIntCounter, n: Option<u64>| counter.inc_by(n.unwrap_or(0));
        add(&self.input, usage.input);
        add(&self.cached, usage.cached);
        add(&self.cache_write, usage.cache_writes());
        add(&self.output, usage.output);
        add(&self.reasoning, usage.reasoning);
        if let Some(input) = usage.input {
            self.input_usage.observe(input as f64);
        }
        if let Some(output) = usage.output {
            self.output_usage.observe(output as f64);
        }
    }

    fn flush(&self) {
        let LocalTokens { input, cached, cache_write, output, reasoning, input_usage, output_usage } = self;
        for counter in [input, cached, cache_write, output, reasoning] {
            counter.flush();
        }
        input_usage.flush();
        output_usage.flush();
    }
}

/// Histogram without labels that each thread writes for itself.
pub struct ThreadedHistogram {
    shared: Histogram,
    shards: PerThread<Mutex<LocalHistogram>>,
}

impl ThreadedHistogram {
    pub(super) fn new(shared: Histogram) -> Self {
        ThreadedHistogram { shared, shards: PerThread::new() }
    }

    /// Counts a value.
    pub fn observe(&self, value: f64) {
        self.shards.own(|| Mutex::new(self.shared.local())).lock().observe(value);
    }

    /// Returns the number of values that all threads have counted.
    pub fn count(&self) -> u64 {
        self.flush();
        self.shared.get_sample_count()
    }

    /// Adds the values to the registry, each once.
    pub(super) fn flush(&self) {
        self.shards.iter().for_each(|shard| shard.lock().flush());
    }

    /// Returns the registered histogram, which has the values up to the latest flush.
    pub(super) fn registered(&self) -> &Histogram {
        &self.shared
    }
}
