//! How a model is routed, as the configuration says it.

use std::time::Duration;

use super::breaker::BreakerRules;
use super::pick::Policy;
use super::retry_budget::RetryShare;

/// When a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Targets that are asked at most.
    pub attempts: u8,
    /// After this time no other target is asked.
    pub deadline: Duration,
    /// How long the beginning of a stream is held back, so that another target can still be asked if it fails.
    pub hold: Duration,
    /// How many requests may be tried again.
    pub share: RetryShare,
    /// Also when the request is too long for a target.
    pub context_length: bool,
    /// Also when a target cannot do something that the request asks for.
    pub unsupported: bool,
    /// Also when a stream breaks off of which the client has a part: another target goes on with it.
    pub resume: bool,
}

impl Default for RetryRules {
    fn default() -> Self {
        RetryRules {
            // The first and two more: who fails three times will fail a fourth time.
            attempts: 3,
            // The official SDKs give up after ten minutes, people long before.
            deadline: Duration::from_secs(60),
            // As long as a client waits for the head of an answer without a thought, and no longer than its
            // keep-alives.
            hold: Duration::from_secs(10),
            share: RetryShare::default(),
            context_length: false,
            unsupported: false,
            resume: false,
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutingRules {
    /// How a target is chosen within its tier.
    pub policy: Policy,
    /// When a request is tried again.
    pub retry: RetryRules,
    /// When a target is left alone.
    pub breaker: BreakerRules,
}
