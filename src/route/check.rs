//! What the answer to a check says of a provider, and what follows for its targets.
//!
//! A check asks for something else than requests do. It shows whether the provider can be reached and takes the
//! credential; it shows nothing of a target that answers, and fails.

use super::Nanos;
use super::blame::{Blame, verdict};
use super::breaker::{Breaker, BreakerAdmission, BreakerRules, BreakerState};
use crate::error::ApiError;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The provider answers.
    Well,
    /// It wants to be left alone. It has said so to a check, not to a request.
    Busy,
    /// It does not show this to whoever has the credential, which may be good for requests nevertheless.
    Forbidden,
    /// It refuses the credential.
    Credential,
    /// It fails, or does not answer in time.
    Failed,
    /// There is no connection.
    Unreachable,
}

impl ProbeOutcome {
    /// The name in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            ProbeOutcome::Well => "well",
            ProbeOutcome::Busy => "busy",
            ProbeOutcome::Forbidden => "forbidden",
            ProbeOutcome::Credential => "credential",
            ProbeOutcome::Failed => "failed",
            ProbeOutcome::Unreachable => "unreachable",
        }
    }

    /// How a check went that ended with this error and this status. Whoever says that there is no such thing answers.
    pub fn of(error: &ApiError, status: Option<u16>) -> ProbeOutcome {
        match (verdict(error, status).blame, status) {
            (Blame::Credential, _) => ProbeOutcome::Credential,
            (_, Some(402 | 403)) => ProbeOutcome::Forbidden,
            (_, Some(404)) => ProbeOutcome::Well,
            (Blame::Busy, _) => ProbeOutcome::Busy,
            (Blame::Provider, _) => ProbeOutcome::Unreachable,
            (Blame::Client | Blame::Gateway, Some(_)) => ProbeOutcome::Well,
            _ => ProbeOutcome::Failed,
        }
    }
}

/// What a check has changed, to be said loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeChange {
    /// Nothing that was not so before.
    Nothing,
    /// The provider's targets are left alone from now on.
    Gone,
    /// They are, because it refuses the credential.
    Credential,
    /// They were, and may be asked again.
    Back,
}

/// State of a provider's health check between two probes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeState {
    /// The last one was refused the credential: what is looked up is shown to nobody without a good one.
    was_refused: bool,
}

impl ProbeState {
    /// Takes over what a check says. `breaker` is that of the provider as a whole, `point` uniform over all of `u64`.
    pub fn take(
        &mut self,
        outcome: ProbeOutcome,
        breaker: &Breaker,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> ProbeChange {
        // Who comes while nobody may enter says nothing new; while one may, a check is as good as a request.
        let entry = || breaker.enter(now);
        match outcome {
            ProbeOutcome::Well => {
                let vouches = std::mem::take(&mut self.was_refused);
                if breaker.vouch(vouches) {
                    return ProbeChange::Back;
                }
                // What failed before it did not do so in a row.
                if breaker.state(now) == BreakerState::Closed {
                    breaker.succeeded(BreakerAdmission::Closed);
                }
                ProbeChange::Nothing
            }
            ProbeOutcome::Failed | ProbeOutcome::Unreachable => match entry() {
                Some(entry) if breaker.failed(entry, now, rules, point) => ProbeChange::Gone,
                _ => ProbeChange::Nothing,
            },
            ProbeOutcome::Credential => {
                self.was_refused = true;
                match breaker.trip(entry().unwrap_or(BreakerAdmission::Forced), now, rules, point) {
                    true => ProbeChange::Credential,
                    false => ProbeChange::Nothing,
                }
            }
            ProbeOutcome::Busy | ProbeOutcome::Forbidden => ProbeChange::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Kind, RetryAfter};

    const SECOND: Nanos = 1_000_000_000;

    fn breaker() -> (Breaker, ProbeState, BreakerRules) {
        (Breaker::default(), ProbeState::default(), BreakerRules::default())
    }

    #[test]
    fn what_answers_is_well_unless_it_fails_or_refuses_the_credential() {
        let of =
            |kind: Kind, status: u16| ProbeOutcome::of(&ApiError::new(kind, "").status(status), Some(status));
        for status in [400, 404, 405, 409, 410, 422] {
            assert_eq!(of(Kind::UpstreamRejected, status), ProbeOutcome::Well, "{status}");
        }
        let gone = ApiError::new(Kind::UpstreamRejected, "no such model").status(404);
        assert_eq!(ProbeOutcome::of(&gone, Some(404)), ProbeOutcome::Well);
        assert_eq!(of(Kind::UpstreamAuth, 401), ProbeOutcome::Credential);
        // Google says 400 to a key that is none.
        assert_eq!(of(Kind::UpstreamAuth, 400), ProbeOutcome::Credential);
        assert_eq!(of(Kind::UpstreamAuth, 403), ProbeOutcome::Forbidden);
        assert_eq!(of(Kind::UpstreamRateLimit, 429), ProbeOutcome::Busy);
        assert_eq!(of(Kind::UpstreamFailed, 529), ProbeOutcome::Busy);
        assert_eq!(of(Kind::UpstreamTimeout, 408), ProbeOutcome::Failed);
        for status in [500, 502, 503, 504] {
            assert_eq!(of(Kind::UpstreamFailed, status), ProbeOutcome::Failed, "{status}");
        }
        let wait = Some(RetryAfter::Header("5".to_owned()));
        let busy = ApiError::new(Kind::UpstreamFailed, "").status(503).retry_after(wait);
        assert_eq!(ProbeOutcome::of(&busy, Some(503)), ProbeOutcome::Busy);
        let unheard = |kind| ProbeOutcome::of(&ApiError::new(kind, ""), None);
        assert_eq!(unheard(Kind::UpstreamUnreachable), ProbeOutcome::Unreachable);
        assert_eq!(unheard(Kind::UpstreamTimeout), ProbeOutcome::Failed);
        assert_eq!(unheard(Kind::UpstreamBroken), ProbeOutcome::Failed);
    }

    #[test]
    fn a_provider_that_does_not_answer_is_left_alone_and_back_at_once_when_it_does() {
        let (breaker, mut checked, rules) = breaker();
        let mut now = SECOND;
        let mut news = Vec::new();
        for _ in 0..rules.failures + 3 {
            news.push(checked.take(ProbeOutcome::Unreachable, &breaker, now, &rules, 0));
            now += SECOND / 10;
        }
        assert_eq!(news.iter().filter(|news| **news == ProbeChange::Gone).count(), 1);
        assert!(matches!(breaker.state(now), BreakerState::Open(_)));
        assert_eq!(checked.take(ProbeOutcome::Well, &breaker, now, &rules, 0), ProbeChange::Back);
        assert_eq!(breaker.state(now), BreakerState::Closed);
        assert_eq!(checked.take(ProbeOutcome::Well, &breaker, now, &rules, 0), ProbeChange::Nothing);
    }

    #[test]
    fn a_check_that_fails_now_and_then_takes_nobody_out() {
        let (breaker, mut checked, rules) = breaker();
        for turn in 0..100 {
            let now = SECOND * 10 * turn;
            let outcome = if turn % 5 == 0 { ProbeOutcome::Failed } else { ProbeOutcome::Well };
            assert_eq!(checked.take(outcome, &breaker, now, &rules, 0), ProbeChange::Nothing, "{turn}");
        }
        assert_eq!(breaker.state(SECOND * 1_000), BreakerState::Closed);
    }

    #[test]
    fn a_check_is_the_probe_where_no_request_is() {
        let (breaker, mut checked, rules) = breaker();
        for _ in 0..rules.failures {
            checked.take(ProbeOutcome::Failed, &breaker, SECOND, &rules, 0);
        }
        let BreakerState::Open(until) = breaker.state(SECOND) else { panic!("it is not open") };
        assert_eq!(breaker.state(until), BreakerState::HalfOpen);
        checked.take(ProbeOutcome::Failed, &breaker, until, &rules, 0);
        let BreakerState::Open(later) = breaker.state(until) else {
            panic!("a probe that failed left it half open")
        };
        assert!(later - until > until - SECOND);
        // A request that is on its way as the probe is not disturbed.
        let entry = breaker.enter(later).unwrap();
        assert_eq!(entry, BreakerAdmission::Probe);
        assert_eq!(checked.take(ProbeOutcome::Failed, &breaker, later, &rules, 0), ProbeChange::Nothing);
        assert!(!breaker.admits(later), "two probes at a time");
        breaker.succeeded(entry);
        assert_eq!(breaker.state(later), BreakerState::Closed);
    }

    /// What a check looks up may be shown to everybody: that it is says nothing of a credential that requests were
    /// refused.
    #[test]
    fn a_refused_credential_is_vouched_for_by_whom_it_was_refused() {
        let (breaker, mut checked, rules) = breaker();
        let entry = breaker.enter(SECOND).unwrap();
        assert!(breaker.trip(entry, SECOND, &rules, 0));
        assert_eq!(checked.take(ProbeOutcome::Well, &breaker, SECOND, &rules, 0), ProbeChange::Nothing);
        assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        assert_eq!(checked.take(ProbeOutcome::Credential, &breaker, SECOND, &rules, 0), ProbeChange::Nothing);
        assert_eq!(checked.take(ProbeOutcome::Well, &breaker, SECOND, &rules, 0), ProbeChange::Back);

        assert_eq!(
            checked.take(ProbeOutcome::Credential, &breaker, SECOND, &rules, 0),
            ProbeChange::Credential
        );
        assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        for outcome in [ProbeOutcome::Busy, ProbeOutcome::Forbidden] {
            assert_eq!(checked.take(outcome, &breaker, SECOND, &rules, 0), ProbeChange::Nothing);
            assert!(matches!(breaker.state(SECOND), BreakerState::Open(_)));
        }
        assert_eq!(checked.take(ProbeOutcome::Well, &breaker, SECOND, &rules, 0), ProbeChange::Back);
    }
}
