//! Status of a target as operators see it.

use super::breaker::BreakerState;
use super::{Nanos, Target};

/// Status of a target, with the time until it may change, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetStatus {
    /// An operator has drained it.
    Drained,
    /// Its configured weight is 0.
    Off,
    /// The breaker of its provider is open.
    ProviderOpen(Nanos),
    /// Its breaker is open.
    Open(Nanos),
    /// The provider has asked for a pause.
    Waiting(Nanos),
    /// One request at a time is admitted as a probe.
    HalfOpen,
    /// Requests are admitted.
    Closed,
}

impl TargetStatus {
    /// Returns the status of a target at `now`.
    pub fn of(target: &Target, now: Nanos) -> TargetStatus {
        let state = &target.handle.state;
        match (state.provider_breaker.state(now), state.breaker.state(now)) {
            _ if target.drained_weight.is_some() => TargetStatus::Drained,
            _ if target.handle.weight == 0 => TargetStatus::Off,
            (BreakerState::Open(until), _) => TargetStatus::ProviderOpen(until.saturating_sub(now)),
            (_, BreakerState::Open(until)) => TargetStatus::Open(until.saturating_sub(now)),
            _ if state.cooldown_until() > now => {
                TargetStatus::Waiting(state.cooldown_until().saturating_sub(now))
            }
            (BreakerState::HalfOpen, _) | (_, BreakerState::HalfOpen) => TargetStatus::HalfOpen,
            (BreakerState::Closed, BreakerState::Closed) => TargetStatus::Closed,
        }
    }

    /// Names of all statuses.
    pub const NAMES: [&str; 7] =
        ["drained", "off", "provider_open", "open", "waiting", "half_open", "closed"];

    /// Returns the name in documents and on `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            TargetStatus::Drained => "drained",
            TargetStatus::Off => "off",
            TargetStatus::ProviderOpen(_) => "provider_open",
            TargetStatus::Open(_) => "open",
            TargetStatus::Waiting(_) => "waiting",
            TargetStatus::HalfOpen => "half_open",
            TargetStatus::Closed => "closed",
        }
    }

    /// Returns the reason in words.
    pub const fn reason(self) -> &'static str {
        match self {
            TargetStatus::Drained => "an operator has drained the target",
            TargetStatus::Off => "the configured weight is 0",
            TargetStatus::ProviderOpen(_) => {
                "the provider could not be connected to, or refused the credential; it is probed after a pause"
            }
            TargetStatus::Open(_) => "too many requests have failed; the target is probed after a pause",
            TargetStatus::Waiting(_) => "the provider has asked for a pause (retry-after)",
            TargetStatus::HalfOpen => {
                "the pause after failures is over; one request at a time probes the target"
            }
            TargetStatus::Closed => "requests are admitted",
        }
    }

    /// Returns the time until the status may change, in nanoseconds. `None` if it is unknown.
    pub const fn remaining(self) -> Option<Nanos> {
        match self {
            TargetStatus::ProviderOpen(left) | TargetStatus::Open(left) | TargetStatus::Waiting(left) => {
                Some(left)
            }
            _ => None,
        }
    }

    /// Returns whether requests are sent to the target.
    pub const fn is_available(self) -> bool {
        matches!(self, TargetStatus::Closed | TargetStatus::HalfOpen)
    }
}
