//! Difference between the clock of this machine and that of a provider, learnt from the dates of its responses.

use std::sync::atomic::{AtomicI64, Ordering};

/// Maximum duration of an exchange whose date is trusted, in seconds: the date may be that of its beginning or end.
const MAX_EXCHANGE: i64 = 900;
/// Difference from which on a refused signature may be due to the clock, in seconds: a minute below what AWS allows.
const DETECTION: i64 = 240;

/// Difference between two clocks, in seconds: what is added to the own time. Shared by all requests to one provider.
#[derive(Debug, Default)]
pub struct ClockSkew(AtomicI64);

impl ClockSkew {
    /// Returns the difference, in seconds.
    pub fn seconds(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the time to sign with, in Unix seconds, at the own time `now`.
    pub fn signing_time(&self, now: i64) -> i64 {
        now.saturating_add(self.seconds())
    }

    /// Learns the difference from a response: its `Date` (`None` if it has none), whether it has an `Age`, as responses
    /// of a cache do, and the own times at which the request was sent and the response arrived. All times are in Unix
    /// seconds. Returns whether the date was used.
    pub fn observe(&self, date: Option<i64>, from_cache: bool, sent: i64, arrived: i64) -> bool {
        let duration = arrived.saturating_sub(sent);
        let Some(date) = date.filter(|_| !from_cache && (0..=MAX_EXCHANGE).contains(&duration)) else {
            return false;
        };
        let middle = sent.saturating_add(duration / 2);
        self.0.store(date.saturating_sub(middle), Ordering::Relaxed);
        true
    }

    /// Returns whether the difference is another one than that which a request was dated with, by more than servers
    /// tolerate, so that a request with the corrected time may succeed.
    pub fn differs(&self, dated_with: i64) -> bool {
        self.seconds().saturating_sub(dated_with).abs() >= DETECTION
    }

    /// Returns whether a refused signature may be due to the clock, so that a request with the corrected time may
    /// succeed. `signed_with` is the difference that the refused request was signed with.
    pub fn explains(&self, error: &str, signed_with: i64) -> bool {
        is_clock_error(error) && self.differs(signed_with)
    }
}

/// Returns whether an error code of AWS may mean that the date of a signature is wrong.
pub fn is_clock_error(code: &str) -> bool {
    matches!(
        code,
        "RequestTimeTooSkewed"
            | "RequestExpired"
            | "RequestInTheFuture"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "AuthFailure"
            | "AccessDeniedException"
    )
}
