//! Health check evaluation: classifies the result of a probe and updates the provider's breaker.
//!
//! A probe requests something else than clients do. It shows whether the provider is reachable and accepts the
//! credential; it says nothing about a target whose requests fail.

use super::Nanos;
use super::blame::{Blame, classify};
use super::breaker::{Breaker, BreakerAdmission, BreakerRules, BreakerState};
use codec::error::ApiError;

/// Result of a health check probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The provider responds.
    Healthy,
    /// The provider is overloaded or rate limits the probe; requests need not be affected.
    Busy,
    /// 402 or 403: the credential may not access the probed resource, but may be valid for requests.
    Forbidden,
    /// The provider rejects the credential.
    Credential,
    /// The provider fails or does not respond in time.
    Failed,
    /// No connection can be established.
    Unreachable,
}

impl ProbeOutcome {
    /// Returns the name in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            ProbeOutcome::Healthy => "well",
            ProbeOutcome::Busy => "busy",
            ProbeOutcome::Forbidden => "forbidden",
            ProbeOutcome::Credential => "credential",
            ProbeOutcome::Failed => "failed",
            ProbeOutcome::Unreachable => "unreachable",
        }
    }

    /// Classifies a probe that ended with an error; `status` is the provider's HTTP status, if a response arrived. A
    /// 404 shows a provider that responds.
    pub fn of(error: &ApiError, status: Option<u16>) -> ProbeOutcome {
        match (classify(error, status).blame, status) {
            (Blame::Credential, _) => ProbeOutcome::Credential,
            (_, Some(402 | 403)) => ProbeOutcome::Forbidden,
            (_, Some(404)) => ProbeOutcome::Healthy,
            (Blame::Busy, _) => ProbeOutcome::Busy,
            (Blame::Provider, _) => ProbeOutcome::Unreachable,
            (Blame::Client | Blame::Gateway, Some(_)) => ProbeOutcome::Healthy,
            _ => ProbeOutcome::Failed,
        }
    }
}

/// State change that a probe caused, to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeChange {
    /// No change.
    Unchanged,
    /// The provider's breaker opened.
    Opened,
    /// The provider's breaker opened because the provider rejected the credential.
    Credential,
    /// The provider's breaker closed.
    Closed,
}

/// State of a provider's health check between two probes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeState {
    /// The last probe was rejected for its credential, so the probed resource requires a valid one, and a later success
    /// proves that the credential is valid.
    was_refused: bool,
}

impl ProbeState {
    /// Applies the result of a probe to `breaker`, the breaker of the provider. `point` is uniform over all of `u64`
    /// and jitters the cooldown.
    pub fn apply(
        &mut self,
        outcome: ProbeOutcome,
        breaker: &Breaker,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> ProbeChange {
        // Open, a failed probe adds nothing and is ignored. Half open, the probe takes the breaker's only admission, as
        // a request would.
        let admission = || breaker.admit(now);
        match outcome {
            ProbeOutcome::Healthy => {
                // A success closes a tripped breaker only if the probe was rejected before: see `was_refused`.
                let proves_credential = std::mem::take(&mut self.was_refused);
                if breaker.recover(proves_credential) {
                    return ProbeChange::Closed;
                }
                // Ends a run of consecutive failures.
                if breaker.state(now) == BreakerState::Closed {
                    breaker.on_success(BreakerAdmission::Closed);
                }
                ProbeChange::Unchanged
            }
            ProbeOutcome::Failed | ProbeOutcome::Unreachable => match admission() {
                Some(admission) if breaker.on_failure(admission, now, rules, point) => ProbeChange::Opened,
                _ => ProbeChange::Unchanged,
            },
            ProbeOutcome::Credential => {
                self.was_refused = true;
                match breaker.trip(admission().unwrap_or(BreakerAdmission::Forced), now, rules, point) {
                    true => ProbeChange::Credential,
                    false => ProbeChange::Unchanged,
                }
            }
            ProbeOutcome::Busy | ProbeOutcome::Forbidden => ProbeChange::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::error::{ErrorKind, RetryAfter};

    const SECOND: Nanos = 1_000_000_000;

    fn breaker() -> (Breaker, ProbeState, BreakerRules) {
        (Breaker::default(), ProbeState::default(), BreakerRules::default())
    }

    #[test]
    fn probe_outcome_depends_on_error_kind_and_status() {
        let of = |kind: ErrorKind, status: u16| {
            ProbeOutcome::of(&ApiError::new(kind, "").status(status), Some(status))
        };
        for status in [400, 404, 405, 409, 410, 422] {
            assert_eq!(of(ErrorKind::UpstreamRejected, status), ProbeOutcome::Healthy, "{status}");
        }
        let gone = ApiError::new(ErrorKind::UpstreamRejected, "no such model").status(404);
        assert_eq!(ProbeOutcome::of(&gone, Some(404)), ProbeOutcome::Healthy);
        assert_eq!(of(ErrorKind::UpstreamAuth, 401), ProbeOutcome::Credential);
        // Google answers an invalid key with 400.
        assert_eq!(of(ErrorKind::UpstreamAuth, 400), ProbeOutcome::Credential);
        assert_eq!(of(ErrorKind::UpstreamAuth, 403), ProbeOutcome::Forbidden);
        assert_eq!(of(ErrorKind::UpstreamRateLimit, 429), ProbeOutcome::Busy);
        assert_eq!(of(ErrorKind::UpstreamFailed, 529), ProbeOutcome::Busy);
        assert_eq!(of(ErrorKind::UpstreamTimeout, 408), ProbeOutcome::Failed);
        for status in [500, 502, 503, 504] {
            assert_eq!(of(ErrorKind::UpstreamFailed, status), ProbeOutcome::Failed, "{status}");
        }
        let wait = Some(RetryAfter::Header("5".to_owned()));
        let busy = ApiError::new(ErrorKind::UpstreamFailed, "").status(503).retry_after(wait);
        assert_eq!(ProbeOutcome::of(&busy, Some(503)), ProbeOutcome::Busy);
        let without_response = |kind| ProbeOutcome::of(&ApiError::new(kind, ""), None);
        assert_eq!(without_response(ErrorKind::UpstreamUnreachable), ProbeOutcome::Unreachable);
        assert_eq!(without_response(ErrorKind::UpstreamTimeout), ProbeOutcome::Failed);
        assert_eq!(without_response(ErrorKind::UpstreamBroken), ProbeOutcome::Failed);
    }

    #[test]
    fn probe_unreachable_opens_the_breaker_and_success_closes_it() {
        let (breaker, mut probe_state, rules) = breaker();
        let mut now = SECOND;
        let mut changes = Vec::new();
        for _ in 0..rules.failures + 3 {
            changes.push(probe_state.apply(ProbeOutcome::Unreachable, &breaker, now, &rules, 0));
            now += SECOND / 10;
        }
        assert_eq!(changes.iter().filter(|change| **change == ProbeChange::Opened).count(), 1);
        assert!(matches!(breaker.state(now), BreakerState::Open(_)));
        assert_eq!(probe_state.apply(ProbeOutcome::Healthy, &breaker, now, &rules, 0), ProbeChange::Closed);
        assert_eq!(breaker.state(now), BreakerState::Closed);
        assert_eq!(
            probe_state.apply(ProbeOutcome::Healthy, &breaker, now, &rules, 0),
            ProbeChange::Unchanged
        );
    }

    #[test]
    fn probe_occasional_failures_do_not_open_the_breaker() {
        let (breaker, mut probe_state, rules) = breaker();
        for turn in 0..100 {
            let now = SECOND * 10 * turn;
            let outcome = if turn % 5 == 0 { ProbeOutcome::Failed } else { ProbeOutcome::Healthy };
            assert_eq!(
                probe_state.apply(outcome, &breaker, now, &rules, 0),
                ProbeChange::Unchanged,
                "{turn}"
            );
        }
        assert_eq!(breaker.state(SECOND * 1_000), BreakerState::Closed);
    }

    #[test]
    fn probe_serves_as_the_half_open_trial() {
        let (breaker, mut probe_state, rules) = breaker();
        for _ in 0..rules.failures {
            probe_state.apply(ProbeOutcome::Failed, &breaker, SECOND, &rules, 0);
        }
        let BreakerState::Open(until) = breaker.state(SECOND) else { panic!("it is not open") };
        assert_eq!(breaker.state(until), BreakerState::HalfOpen);
        probe_state.apply(ProbeOutcome::Failed, &breaker, until, &rules, 0);
        let BreakerState::Open(later) = breaker.state(until) else {
            panic!("a probe that failed left it half open")
        };
        assert!(later - until > until - SECOND);
        // A health check does not disturb a request that is the breaker's probe.
        let admission = breaker.admit(later).unwrap();
        assert_eq!(admission, BreakerAdmission::Probe);
        assert_eq!(
            probe_state.apply(ProbeOutcome::Failed, &breaker, later, &rules, 0),
            ProbeChange::Unchanged
        );
        assert!(!breaker.would_admit(later), "two probes at a time");
        breaker.on_success(admission);
        assert_eq!(breaker.state(later), BreakerState::Closed);
    }

    /// The probed resource may be public: its success does not prove a credential that requests were rejected for.
    #[test]
    fn probe_success_clears_a_bad_credential_only_if_a_probe_saw_it() {
        let (breaker, mut probe_state, rules) = breaker();
        let admission = breaker.admit(SECOND).unwrap();
        assert!(breaker.trip(admission, SECOND, &rules, 0));
        assert_eq!(
            probe_state.apply(ProbeOutcome::Healthy, &breaker, SECOND, &rules, 0),
            ProbeChange::Unchanged
        );
        assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        assert_eq!(
            probe_state.apply(ProbeOutcome::Credential, &breaker, SECOND, &rules, 0),
            ProbeChange::Unchanged
        );
        assert_eq!(
            probe_state.apply(ProbeOutcome::Healthy, &breaker, SECOND, &rules, 0),
            ProbeChange::Closed
        );

        assert_eq!(
            probe_state.apply(ProbeOutcome::Credential, &breaker, SECOND, &rules, 0),
            ProbeChange::Credential
        );
        assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        for outcome in [ProbeOutcome::Busy, ProbeOutcome::Forbidden] {
            assert_eq!(probe_state.apply(outcome, &breaker, SECOND, &rules, 0), ProbeChange::Unchanged);
            assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        }
        assert_eq!(
            probe_state.apply(ProbeOutcome::Healthy, &breaker, SECOND, &rules, 0),
            ProbeChange::Closed
        );
    }
}
