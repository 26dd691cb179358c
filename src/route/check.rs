//! What the answer to a check says of a provider, and what follows for its targets.
//!
//! A check asks for something else than requests do. It shows whether the provider can be reached and takes the
//! credential; it shows nothing of a target that answers, and fails.

use super::Nanos;
use super::blame::{Blame, verdict};
use super::breaker::{Breaker, Entry, Rules, State};
use crate::error::ApiError;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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

impl Outcome {
    /// The name in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Outcome::Well => "well",
            Outcome::Busy => "busy",
            Outcome::Forbidden => "forbidden",
            Outcome::Credential => "credential",
            Outcome::Failed => "failed",
            Outcome::Unreachable => "unreachable",
        }
    }

    /// How a check went that ended with this error and this status. Whoever says that there is no such thing answers.
    pub fn of(error: &ApiError, status: Option<u16>) -> Outcome {
        match (verdict(error, status).blame, status) {
            (Blame::Credential, _) => Outcome::Credential,
            (_, Some(402 | 403)) => Outcome::Forbidden,
            (_, Some(404)) => Outcome::Well,
            (Blame::Busy, _) => Outcome::Busy,
            (Blame::Provider, _) => Outcome::Unreachable,
            (Blame::Client | Blame::Gateway, Some(_)) => Outcome::Well,
            _ => Outcome::Failed,
        }
    }
}

/// What a check has changed, to be said loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing that was not so before.
    Nothing,
    /// The provider's targets are left alone from now on.
    Gone,
    /// They are, because it refuses the credential.
    Credential,
    /// They were, and may be asked again.
    Back,
}

/// What is remembered from one check of a provider to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// The last one was refused the credential: what is looked up is shown to nobody without a good one.
    was_refused: bool,
}

impl Checked {
    /// Takes over what a check says. `breaker` is that of the provider as a whole, `point` uniform over all of `u64`.
    pub fn take(
        &mut self,
        outcome: Outcome,
        breaker: &Breaker,
        now: Nanos,
        rules: &Rules,
        point: u64,
    ) -> News {
        // Who comes while nobody may enter says nothing new; while one may, a check is as good as a request.
        let entry = || breaker.enter(now);
        match outcome {
            Outcome::Well => {
                let vouches = std::mem::take(&mut self.was_refused);
                if breaker.vouch(vouches) {
                    return News::Back;
                }
                // What failed before it did not do so in a row.
                if breaker.state(now) == State::Closed {
                    breaker.succeeded(Entry::Usual);
                }
                News::Nothing
            }
            Outcome::Failed | Outcome::Unreachable => match entry() {
                Some(entry) if breaker.failed(entry, now, rules, point) => News::Gone,
                _ => News::Nothing,
            },
            Outcome::Credential => {
                self.was_refused = true;
                match breaker.trip(entry().unwrap_or(Entry::Forced), now, rules, point) {
                    true => News::Credential,
                    false => News::Nothing,
                }
            }
            Outcome::Busy | Outcome::Forbidden => News::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Kind, RetryAfter};

    const SECOND: Nanos = 1_000_000_000;

    fn breaker() -> (Breaker, Checked, Rules) {
        (Breaker::default(), Checked::default(), Rules::default())
    }

    #[test]
    fn what_answers_is_well_unless_it_fails_or_refuses_the_credential() {
        let of = |kind: Kind, status: u16| Outcome::of(&ApiError::new(kind, "").status(status), Some(status));
        for status in [400, 404, 405, 409, 410, 422] {
            assert_eq!(of(Kind::UpstreamRejected, status), Outcome::Well, "{status}");
        }
        let gone = ApiError::new(Kind::UpstreamRejected, "no such model").status(404);
        assert_eq!(Outcome::of(&gone, Some(404)), Outcome::Well);
        assert_eq!(of(Kind::UpstreamAuth, 401), Outcome::Credential);
        // Google says 400 to a key that is none.
        assert_eq!(of(Kind::UpstreamAuth, 400), Outcome::Credential);
        assert_eq!(of(Kind::UpstreamAuth, 403), Outcome::Forbidden);
        assert_eq!(of(Kind::UpstreamRateLimit, 429), Outcome::Busy);
        assert_eq!(of(Kind::UpstreamFailed, 529), Outcome::Busy);
        assert_eq!(of(Kind::UpstreamTimeout, 408), Outcome::Failed);
        for status in [500, 502, 503, 504] {
            assert_eq!(of(Kind::UpstreamFailed, status), Outcome::Failed, "{status}");
        }
        let wait = Some(RetryAfter::Header("5".to_owned()));
        let busy = ApiError::new(Kind::UpstreamFailed, "").status(503).retry_after(wait);
        assert_eq!(Outcome::of(&busy, Some(503)), Outcome::Busy);
        let unheard = |kind| Outcome::of(&ApiError::new(kind, ""), None);
        assert_eq!(unheard(Kind::UpstreamUnreachable), Outcome::Unreachable);
        assert_eq!(unheard(Kind::UpstreamTimeout), Outcome::Failed);
        assert_eq!(unheard(Kind::UpstreamBroken), Outcome::Failed);
    }

    #[test]
    fn a_provider_that_does_not_answer_is_left_alone_and_back_at_once_when_it_does() {
        let (breaker, mut checked, rules) = breaker();
        let mut now = SECOND;
        let mut news = Vec::new();
        for _ in 0..rules.failures + 3 {
            news.push(checked.take(Outcome::Unreachable, &breaker, now, &rules, 0));
            now += SECOND / 10;
        }
        assert_eq!(news.iter().filter(|news| **news == News::Gone).count(), 1);
        assert!(matches!(breaker.state(now), State::Open(_)));
        assert_eq!(checked.take(Outcome::Well, &breaker, now, &rules, 0), News::Back);
        assert_eq!(breaker.state(now), State::Closed);
        assert_eq!(checked.take(Outcome::Well, &breaker, now, &rules, 0), News::Nothing);
    }

    #[test]
    fn a_check_that_fails_now_and_then_takes_nobody_out() {
        let (breaker, mut checked, rules) = breaker();
        for turn in 0..100 {
            let now = SECOND * 10 * turn;
            let outcome = if turn % 5 == 0 { Outcome::Failed } else { Outcome::Well };
            assert_eq!(checked.take(outcome, &breaker, now, &rules, 0), News::Nothing, "{turn}");
        }
        assert_eq!(breaker.state(SECOND * 1_000), State::Closed);
    }

    #[test]
    fn a_check_is_the_probe_where_no_request_is() {
        let (breaker, mut checked, rules) = breaker();
        for _ in 0..rules.failures {
            checked.take(Outcome::Failed, &breaker, SECOND, &rules, 0);
        }
        let State::Open(until) = breaker.state(SECOND) else { panic!("it is not open") };
        assert_eq!(breaker.state(until), State::HalfOpen);
        checked.take(Outcome::Failed, &breaker, until, &rules, 0);
        let State::Open(later) = breaker.state(until) else {
            panic!("a probe that failed left it half open")
        };
        assert!(later - until > until - SECOND);
        // A request that is on its way as the probe is not disturbed.
        let entry = breaker.enter(later).unwrap();
        assert_eq!(entry, Entry::Probe);
        assert_eq!(checked.take(Outcome::Failed, &breaker, later, &rules, 0), News::Nothing);
        assert!(!breaker.admits(later), "two probes at a time");
        breaker.succeeded(entry);
        assert_eq!(breaker.state(later), State::Closed);
    }

    /// What a check looks up may be shown to everybody: that it is says nothing of a credential that requests were
    /// refused.
    #[test]
    fn a_refused_credential_is_vouched_for_by_whom_it_was_refused() {
        let (breaker, mut checked, rules) = breaker();
        let entry = breaker.enter(SECOND).unwrap();
        assert!(breaker.trip(entry, SECOND, &rules, 0));
        assert_eq!(checked.take(Outcome::Well, &breaker, SECOND, &rules, 0), News::Nothing);
        assert!(matches!(breaker.state(SECOND), State::Open(_)));
        assert_eq!(checked.take(Outcome::Credential, &breaker, SECOND, &rules, 0), News::Nothing);
        assert_eq!(checked.take(Outcome::Well, &breaker, SECOND, &rules, 0), News::Back);

        assert_eq!(checked.take(Outcome::Credential, &breaker, SECOND, &rules, 0), News::Credential);
        assert!(matches!(breaker.state(SECOND), State::Open(_)));
        for outcome in [Outcome::Busy, Outcome::Forbidden] {
            assert_eq!(checked.take(outcome, &breaker, SECOND, &rules, 0), News::Nothing);
            assert!(matches!(breaker.state(SECOND), State::Open(_)));
        }
        assert_eq!(checked.take(Outcome::Well, &breaker, SECOND, &rules, 0), News::Back);
    }
}
