//! Metric handles for one endpoint, model and provider: looked up once, shared by all requests.

use std::sync::OnceLock;

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::Metrics;
use crate::canonical::Usage;

/// Statuses whose counters are cached.
const COMMON: [u16; 8] = [200, 400, 401, 404, 429, 500, 503, 504];

/// Metric handles for one endpoint, model and provider.
pub struct Series {
    labels: Labels,
    requests: [OnceLock<IntCounter>; COMMON.len()],
    duration: Histogram,
    first_token: OnceLock<Histogram>,
    per_token: OnceLock<Histogram>,
    /// Attempts without an error.
    attempts: OnceLock<Histogram>,
    tokens: OnceLock<Tokens>,
    cost: OnceLock<IntCounter>,
    cache_saved: OnceLock<IntCounter>,
    cache_surcharge: OnceLock<IntCounter>,
    request_bytes: IntCounter,
    response_bytes: IntCounter,
    reused: IntCounter,
    connected: IntCounter,
}

struct Labels {
    endpoint: &'static str,
    /// Value of `gen_ai.operation.name`.
    operation: &'static str,
    model: Box<str>,
    provider: Box<str>,
    provider_kind: &'static str,
}

struct Tokens {
    input: IntCounter,
    cached: IntCounter,
    cache_write: IntCounter,
    output: IntCounter,
    reasoning: IntCounter,
    input_usage: Histogram,
    output_usage: Histogram,
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
    /// Looks up the handles. `operation` is the value of `gen_ai.operation.name`, `provider_kind` that of
    /// `gen_ai.provider.name` (OpenTelemetry GenAI semantic conventions).
    pub fn new(
        metrics: &Metrics,
        endpoint: &'static str,
        operation: &'static str,
        model: &str,
        provider: &str,
        provider_kind: &'static str,
    ) -> Self {
        Series {
            requests: Default::default(),
            duration: metrics.duration.with_label_values(&[operation, provider_kind, model]),
            first_token: OnceLock::new(),
            per_token: OnceLock::new(),
            attempts: OnceLock::new(),
            tokens: OnceLock::new(),
            cost: OnceLock::new(),
            cache_saved: OnceLock::new(),
            cache_surcharge: OnceLock::new(),
            request_bytes: metrics.request_bytes.with_label_values(&[endpoint]),
            response_bytes: metrics.response_bytes.with_label_values(&[endpoint]),
            reused: metrics.upstream_connections.with_label_values(&[provider, "true"]),
            connected: metrics.upstream_connections.with_label_values(&[provider, "false"]),
            labels: Labels {
                endpoint,
                operation,
                model: model.into(),
                provider: provider.into(),
                provider_kind,
            },
        }
    }

    /// Counts an upstream exchange by whether its connection was reused.
    pub fn exchange(&self, reused: bool) {
        if reused { &self.reused } else { &self.connected }.inc();
    }

    /// Counts an attempt that has ended. `error` is the kind of its error; `None` if it succeeded.
    pub fn attempt(&self, metrics: &Metrics, seconds: f64, error: Option<&'static str>) {
        let with = |error| {
            let [operation, provider_kind, model] = self.gen_ai();
            metrics.attempt_duration.with_label_values(&[operation, provider_kind, model, error])
        };
        match error {
            None => self.attempts.get_or_init(|| with("")).observe(seconds),
            Some(error) => with(error).observe(seconds),
        }
    }

    /// Counts a finished request.
    pub fn finish(&self, metrics: &Metrics, done: &Finished, usage: &Usage) {
        // Common statuses avoid the label lookup, which hashes all labels and takes a lock.
        let slot = COMMON.iter().zip(&self.requests).find(|(status, _)| **status == done.status);
        match slot {
            Some((_, slot)) => slot.get_or_init(|| self.requests_with(metrics, done.status)).inc(),
            None => self.requests_with(metrics, done.status).inc(),
        }
        self.duration.observe(done.seconds);
        self.request_bytes.inc_by(done.request_bytes);
        self.response_bytes.inc_by(done.response_bytes);
        if let Some(seconds) = done.first_token {
            self.first_token(metrics).observe(seconds);
            if let Some(output) = usage.output.filter(|output| *output > 1) {
                // Both values are far below 2^53, so an `f64` is exact.
                self.per_token(metrics).observe((done.seconds - seconds).max(0.0) / (output - 1) as f64);
            }
        }
        let money = |slot: &OnceLock<IntCounter>, family: &IntCounterVec, amount: u64| {
            if amount > 0 {
                let Labels { model, provider, .. } = &self.labels;
                slot.get_or_init(|| family.with_label_values(&[&**model, &**provider])).inc_by(amount);
            }
        };
        money(&self.cost, &metrics.cost, done.cost);
        money(&self.cache_saved, &metrics.cache_saved, done.cache_saved);
        money(&self.cache_surcharge, &metrics.cache_surcharge, done.cache_surcharge);
        if usage.is_known() {
            self.count_tokens(metrics, usage);
        }
    }

    fn requests_with(&self, metrics: &Metrics, status: u16) -> IntCounter {
        let Labels { endpoint, model, provider, .. } = &self.labels;
        let mut buffer = itoa::Buffer::new();
        metrics.requests.with_label_values(&[endpoint, &**model, &**provider, buffer.format(status)])
    }

    fn gen_ai(&self) -> [&str; 3] {
        [self.labels.operation, self.labels.provider_kind, &self.labels.model]
    }

    fn first_token(&self, metrics: &Metrics) -> &Histogram {
        self.first_token.get_or_init(|| metrics.first_token.with_label_values(&self.gen_ai()))
    }

    fn per_token(&self, metrics: &Metrics) -> &Histogram {
        self.per_token.get_or_init(|| metrics.per_token.with_label_values(&self.gen_ai()))
    }

    fn count_tokens(&self, metrics: &Metrics, usage: &Usage) {
        let tokens = self.tokens.get_or_init(|| {
            let [operation, provider_kind, model] = self.gen_ai();
            let counter = |kind| metrics.tokens.with_label_values(&[model, &*self.labels.provider, kind]);
            let histogram =
                |kind| metrics.token_usage.with_label_values(&[operation, provider_kind, model, kind]);
            Tokens {
                input: counter("input"),
                cached: counter("cached_input"),
                cache_write: counter("cache_write"),
                output: counter("output"),
                reasoning: counter("reasoning"),
                input_usage: histogram("input"),
                output_usage: histogram("output"),
            }
        });
        let add = |counter: &IntCounter, n: Option<u64>| {
            if let Some(n) = n.filter(|n| *n > 0) {
                counter.inc_by(n);
            }
        };
        add(&tokens.input, usage.input);
        add(&tokens.cached, usage.cached);
        add(&tokens.cache_write, usage.cache_write);
        add(&tokens.cache_write, usage.cache_write_1h);
        add(&tokens.output, usage.output);
        add(&tokens.reasoning, usage.reasoning);
        if let Some(input) = usage.input {
            tokens.input_usage.observe(input as f64);
        }
        if let Some(output) = usage.output {
            tokens.output_usage.observe(output as f64);
        }
    }
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Series({} {} {})", self.labels.endpoint, self.labels.model, self.labels.provider)
    }
}
