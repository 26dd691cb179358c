//! Schedule of renewals.

use std::time::Duration;

use crate::token::{Lifetime, TokenError};

/// Rules of renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalPolicy {
    /// Time before the end of a credential at which it is renewed, or half of its life if that is later.
    pub lead: Duration,
    /// Longest random part by which a renewal is earlier, so that many gateways do not renew at once.
    pub jitter: Duration,
    /// Shortest time between two requests to the token server, whatever it grants.
    pub least: Duration,
    /// Longest life that is believed. A credential that claims more is renewed as if it had this one.
    pub longest: Duration,
    /// Life of a credential whose end is not stated.
    pub unknown: Duration,
    /// First and longest pause after a failure, while the present credential is valid.
    pub pauses: [Duration; 2],
    /// Longest pause after a failure, while there is no valid credential.
    pub urgent: Duration,
    /// Time for which an expired credential is used and not renewed, if its provider may accept it. The real time is up
    /// to twice as long, at random.
    pub stable: Duration,
    /// Shortest time between two renewals that are due to a provider's refusal.
    pub refusals: Duration,
}

impl Default for RenewalPolicy {
    fn default() -> Self {
        RenewalPolicy {
            // AWS SDKs begin 15 to 10 minutes before the end; metadata services have the next credential by then.
            lead: Duration::from_secs(600),
            jitter: Duration::from_secs(60),
            least: Duration::from_millis(500),
            // Above the longest session of AWS (36 hours) and of Azure's managed identities (24 hours).
            longest: Duration::from_secs(36 * 3_600),
            // The same as the identity cache of the AWS SDK for Rust.
            unknown: Duration::from_secs(900),
            pauses: [Duration::from_secs(1), Duration::from_secs(60)],
            urgent: Duration::from_secs(5),
            // AWS SDKs: 5 to 10 minutes.
            stable: Duration::from_secs(300),
            refusals: Duration::from_secs(30),
        }
    }
}

/// Granted credential that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedGrant {
    /// Remaining life at the time of the grant; `None` if it does not end.
    pub life: Option<Duration>,
}

/// Standing of the present credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none yet.
    Missing,
    /// It is valid.
    Valid,
    /// It has expired.
    Expired,
    /// It has expired, and is used on: its provider may accept it while the token server is away.
    Outlived,
}

/// State of the renewal of one credential. All times are those of a clock that never goes back, as the time since any
/// fixed point.
#[derive(Debug)]
pub struct Renewal {
    policy: RenewalPolicy,
    /// Whether an expired credential may be used on.
    outlives: bool,
    /// Whether there is a credential.
    has_credential: bool,
    /// End of the present credential; `None` if it does not end, or if there is none.
    end: Option<Duration>,
    /// Failures since the last grant.
    failures: u32,
    /// Time of the next renewal; `None` for never.
    due: Option<Duration>,
    /// Last renewal that was due to a refusal.
    refused_at: Option<Duration>,
}

impl Renewal {
    /// Creates the state of a credential that has never been issued: it is due at once. `outlives` is
    /// [`crate::token::CredentialSource::outlives_expiry`].
    pub fn new(policy: RenewalPolicy, outlives: bool, now: Duration) -> Self {
        Renewal {
            policy,
            outlives,
            has_credential: false,
            end: None,
            failures: 0,
            due: Some(now),
            refused_at: None,
        }
    }

    /// Returns when the next renewal is due; `None` if the credential does not end.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Returns when the present credential ends; `None` if there is none, or if it does not end.
    pub fn end(&self) -> Option<Duration> {
        self.end
    }

    /// Returns the number of failures since the last grant.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the standing of the present credential.
    pub fn standing(&self, now: Duration) -> Standing {
        match (self.has_credential, self.end) {
            (false, _) => Standing::Missing,
            (true, Some(end)) if end <= now && self.outlives => Standing::Outlived,
            (true, Some(end)) if end <= now => Standing::Expired,
            (true, _) => Standing::Valid,
        }
    }

    /// Takes a grant. `requested` is when the exchange began: the life is counted from there, so that a slow server does
    /// not prolong it. `server` is the Unix time of the server or else of this machine, in seconds; `random` is any
    /// random number.
    ///
    /// # Errors
    /// Returns [`TokenError::Expired`] if the credential has expired already; the present one stays, and the caller
    /// reports the failure with [`Renewal::fail`].
    pub fn grant(
        &mut self,
        lifetime: Lifetime,
        requested: Duration,
        now: Duration,
        server: i64,
        random: u64,
    ) -> Result<AcceptedGrant, TokenError> {
        let policy = self.policy;
        let stated = match lifetime {
            Lifetime::Unlimited | Lifetime::Unknown => None,
            Lifetime::For(life) => Some(life),
            Lifetime::Until(end) => {
                Some(Duration::from_secs(u64::try_from(end.saturating_sub(server)).unwrap_or(0)))
            }
        };
        let end = stated.map(|life| requested + life.min(policy.longest));
        let (end, due) = match end {
            None if lifetime == Lifetime::Unlimited => (None, None),
            // Its end is not known: it is renewed early, and never counts as expired.
            None => (None, Some(now + policy.unknown - part(policy.jitter, random))),
            Some(end) if end > now => (Some(end), Some(self.planned(end, now, random))),
            Some(_) if self.outlives => {
                let end = now + policy.stable + part(policy.stable, random);
                (Some(end), Some(end))
            }
            Some(_) => return Err(TokenError::Expired),
        };
        self.has_credential = true;
        self.failures = 0;
        self.end = end;
        self.due = due.map(|due| due.max(now + policy.least));
        Ok(AcceptedGrant { life: end.map(|end| end.saturating_sub(now)) })
    }

    /// Returns when a credential with this end is renewed.
    fn planned(&self, end: Duration, now: Duration, random: u64) -> Duration {
        let rest = end.saturating_sub(now);
        let early = end.saturating_sub(self.policy.lead).max(now + rest / 2);
        early.saturating_sub(part(self.policy.jitter.min(rest / 10), random)).max(now)
    }

    /// Takes a failure: the present credential stays, and the next attempt follows after a pause.
    pub fn fail(&mut self, now: Duration, random: u64) {
        let [first, longest] = self.policy.pauses;
        let doubled = first.saturating_mul(1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        let most = match (self.standing(now), self.end) {
            // At least a few attempts fit into what is left of the credential's life, also of a short one.
            (Standing::Valid, Some(end)) => longest.min(end.saturating_sub(now) / 4),
            // Requests have a credential, as far as can be known here.
            (Standing::Valid, None) | (Standing::Outlived, _) => longest,
            (Standing::Missing | Standing::Expired, _) => self.policy.urgent,
        };
        let pause = doubled.min(most);
        // Between a half and the whole of it, so that gateways that lost one server do not return in step.
        let pause = pause / 2 + part(pause / 2, random);
        self.due = Some(now + pause.max(self.policy.least));
    }

    /// Takes a provider's refusal of the present credential: it is renewed at once, but not again and again for one that
    /// is refused for good. Returns whether a renewal is due now.
    pub fn refuse(&mut self, now: Duration) -> bool {
        let recent = self.refused_at.is_some_and(|last| now.saturating_sub(last) < self.policy.refusals);
        if recent || self.due.is_none() {
            return false;
        }
        self.refused_at = Some(now);
        self.due = Some(now);
        true
    }
}

/// Returns a random part of a time.
fn part(span: Duration, random: u64) -> Duration {
    let nanos = (u128::from(random) * span.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
