//! Sampling: which requests are exported as traces, decided when a request has ended and its outcome is known.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::trace_context::TraceId;

/// Number of values of [`TraceId::randomness`].
const RANGE: u64 = 1 << 56;
/// Share of all requests, in billionths.
const WHOLE: u64 = 1_000_000_000;
/// Relative step of a quantile estimate: it follows a change of load within some hundred requests.
const STEP: f64 = 0.05;
/// Requests before an estimate is used: until then it says nothing.
const WARM: u64 = 200;
/// Maximum number of models with an estimate. Beyond it no request counts as slow.
const MAX_MODELS: usize = 10_000;

/// Share of requests, decided by the trace id: all processes that see a trace decide alike (W3C Trace Context level 2,
/// "random-trace-id").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShare(u64);

impl SampleShare {
    /// Makes a share of billionths; more than all are all.
    pub fn from_billionths(share: u64) -> Self {
        SampleShare(share.min(WHOLE))
    }

    /// Returns whether the trace belongs to the share.
    pub fn contains(self, trace: &TraceId) -> bool {
        // The upper end of the range, as OpenTelemetry's consistent samplers do: they reject values below a threshold.
        let rejected = u128::from(RANGE) * u128::from(WHOLE - self.0) / u128::from(WHOLE);
        self.0 > 0 && u128::from(trace.randomness()) >= rejected
    }
}

/// When a request counts as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowRule {
    /// Never.
    Off,
    /// From this duration on.
    Above(Duration),
    /// Slower than 99 % of the requests for the same model, by a moving estimate.
    Percentile99,
}

/// Outcome of a request, as far as sampling depends on it.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome<'a> {
    /// Trace id.
    pub trace: &'a TraceId,
    /// Whether the request failed.
    pub is_error: bool,
    /// Whether it was retried, or its stream continued by another target.
    pub is_retried: bool,
    /// Decision of a trusted caller; `None` without one.
    pub caller: Option<bool>,
    /// Model, by its id in the configuration; `None` if none was found.
    pub model: Option<&'a str>,
    /// Total duration.
    pub duration: Duration,
}

/// Sampler of a process.
#[derive(Debug)]
pub struct Sampler {
    share: SampleShare,
    slow: SlowRule,
    models: parking_lot::RwLock<HashMap<Box<str>, Arc<MovingQuantile>>>,
}

impl Sampler {
    /// Makes a sampler.
    pub fn new(share: SampleShare, slow: SlowRule) -> Self {
        Sampler { share, slow, models: parking_lot::RwLock::default() }
    }

    /// Returns whether the share alone selects a trace: what is known of it before it ends.
    pub fn is_in_share(&self, trace: &TraceId) -> bool {
        self.share.contains(trace)
    }

    /// Returns whether a request that has ended is exported. A trusted caller's decision replaces the share.
    pub fn is_sampled(&self, request: &RequestOutcome<'_>) -> bool {
        let slow = !request.is_error && self.is_slow(request);
        let chosen = request.caller.unwrap_or_else(|| self.share.contains(request.trace));
        request.is_error || request.is_retried || slow || chosen
    }

    fn is_slow(&self, request: &RequestOutcome<'_>) -> bool {
        match self.slow {
            SlowRule::Off => false,
            SlowRule::Above(bound) => request.duration >= bound,
            SlowRule::Percentile99 => {
                let Some(model) = request.model else { return false };
                let known = self.models.read().get(model).cloned();
                let estimate = match known {
                    Some(estimate) => estimate,
                    None => {
                        let mut models = self.models.write();
                        if models.len() >= MAX_MODELS {
                            return false;
                        }
                        models.entry(model.into()).or_default().clone()
                    }
                };
                estimate.observe(request.duration.as_secs_f64())
            }
        }
    }
}

/// Moving estimate of the 99th percentile, by stochastic approximation: each value above it raises it by 99 times what
/// each value below lowers it. Updates that race lose one of them, which an estimate can bear.
#[derive(Debug, Default)]
struct MovingQuantile {
    /// Bits of an `f64`, in seconds.
    estimate: AtomicU64,
    count: AtomicU64,
}

impl MovingQuantile {
    /// Takes a value in, and returns whether it is above the estimate.
    fn observe(&self, value: f64) -> bool {
        let seen = self.count.fetch_add(1, Ordering::Relaxed);
        let before = f64::from_bits(self.estimate.load(Ordering::Relaxed));
        let above = value > before;
        let after = match () {
            // The start is the largest of the first values.
            () if seen < WARM => before.max(value),
            () if above => before * (1.0 + STEP * 0.99),
            () => before * (1.0 - STEP * 0.01),
        };
        self.estimate.store(after.to_bits(), Ordering::Relaxed);
        above && seen >= WARM
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome(trace: &TraceId) -> RequestOutcome<'_> {
        let duration = Duration::from_secs(1);
        RequestOutcome { trace, is_error: false, is_retried: false, caller: None, model: Some("m"), duration }
    }

    #[test]
    fn errors_retries_and_a_trusted_callers_traces_are_always_sampled() {
        let sampler = Sampler::new(SampleShare::from_billionths(0), SlowRule::Off);
        let trace = TraceId::from_random(1, u64::MAX);
        let plain = outcome(&trace);
        assert!(!sampler.is_sampled(&plain));
        assert!(sampler.is_sampled(&RequestOutcome { is_error: true, ..plain }));
        assert!(sampler.is_sampled(&RequestOutcome { is_retried: true, ..plain }));
        assert!(sampler.is_sampled(&RequestOutcome { caller: Some(true), ..plain }));
        let all = Sampler::new(SampleShare::from_billionths(WHOLE), SlowRule::Off);
        assert!(all.is_sampled(&plain) && !all.is_sampled(&RequestOutcome { caller: Some(false), ..plain }));
    }

    #[test]
    fn slow_requests_are_sampled_by_a_fixed_bound_or_a_moving_percentile() {
        let trace = TraceId::from_random(1, 0);
        let took = |sampler: &Sampler, millis| {
            sampler.is_sampled(&RequestOutcome { duration: Duration::from_millis(millis), ..outcome(&trace) })
        };
        let fixed = Sampler::new(SampleShare(0), SlowRule::Above(Duration::from_millis(500)));
        assert!(!took(&fixed, 499) && took(&fixed, 500));
        let moving = Sampler::new(SampleShare(0), SlowRule::Percentile99);
        let sampled = (0..20_000u64).filter(|number| took(&moving, 100 + number * 7_919 % 1_000)).count();
        assert!((50..600).contains(&sampled), "{sampled} of 20,000");
        // The load changes: the estimate follows, and does not sample everything.
        let later = (0..20_000u64).filter(|number| took(&moving, 5_000 + number * 7_919 % 1_000)).count();
        assert!((50..900).contains(&later), "{later} of 20,000");
    }

    proptest! {
        #[test]
        fn share_is_consistent_and_of_its_size(seed in any::<u64>()) {
            let (some, more) = (SampleShare::from_billionths(WHOLE / 100), SampleShare::from_billionths(WHOLE / 10));
            let mut chosen = 0;
            for number in 0..2_000u64 {
                let random = (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let trace = TraceId::from_random(random, random.rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93));
                prop_assert!(!some.contains(&trace) || more.contains(&trace));
                chosen += u32::from(more.contains(&trace));
            }
            prop_assert!((100..320).contains(&chosen), "{chosen} of 2,000");
        }
    }
}
