//! Routing rules of a model: policy, retries and breaker thresholds, as configured.

use std::time::Duration;

use super::breaker::BreakerRules;
use super::pick::Policy;
use super::retry_budget::RetryShare;

/// Retry rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Maximum number of attempts, including the first.
    pub attempts: u8,
    /// Time since the start of the request after which no further attempt is made.
    pub deadline: Duration,
    /// Maximum time for which the start of a stream is buffered, so that fallback is still possible if it fails.
    pub hold: Duration,
    /// Retry budget.
    pub share: RetryShare,
    /// Whether to also retry a request that exceeds a target's context length.
    pub context_length: bool,
    /// Whether to also retry a request that uses a feature that the target does not support.
    pub unsupported: bool,
    /// Whether to resume a stream at another target after a part of it has been sent to the client.
    pub resume: bool,
}

impl Default for RetryRules {
    fn default() -> Self {
        RetryRules {
            // The first attempt and two retries: after three failures, a fourth attempt rarely succeeds.
            attempts: 3,
            // The official SDKs time out after 10 minutes, users much earlier.
            deadline: Duration::from_secs(60),
            // Clients tolerate this delay of the first frame, and it is no longer than their keep-alive interval.
            hold: Duration::from_secs(10),
            share: RetryShare::default(),
            context_length: false,
            unsupported: false,
            resume: false,
        }
    }
}

/// Routing rules of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutingRules {
    /// Load-balancing policy within a tier.
    pub policy: Policy,
    /// Retry rules.
    pub retry: RetryRules,
    /// Breaker thresholds and cooldowns.
    pub breaker: BreakerRules,
}
