//! Resend policy: whether a request whose connection failed is sent to the same target a second time.
//!
//! A provider may close a pooled connection just before a request is written to it; then it never processes that
//! request. For the gateway this looks the same as a provider that read the request, processed it and closed. A request
//! is therefore sent again once at most, on a new connection, and only while the first case is the likely one (RFC
//! 9110, 9.2.2).

use std::time::Duration;

use pingora::{Error, ErrorType};
use tokio::time::Instant;

/// Time after the last byte of a request within which a closed connection counts as stale: its close crossed the
/// request on the way. That close arrives within a round trip, some 300 ms around the globe; a provider that has had
/// the request for longer has most likely begun to process it.
const STALE_WINDOW: Duration = Duration::from_secs(1);

/// Request whose connection failed before the response head.
#[derive(Clone, Copy, Debug)]
pub struct Unanswered<'e> {
    /// Why it failed.
    pub error: &'e Error,
    /// The connection came from the pool.
    pub reused: bool,
    /// A byte of the response has arrived.
    pub answered: bool,
    /// When the whole request had been written. `None` if it was not.
    pub delivered: Option<Instant>,
    /// The provider may receive the request twice.
    pub repeatable: bool,
}

/// Reason for which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The pooled connection had been closed.
    StaleConnection,
    /// The provider requires HTTP/1.1.
    Http1,
}

impl Reason {
    /// Returns the metric label.
    pub fn label(self) -> &'static str {
        match self {
            Reason::StaleConnection => "stale_connection",
            Reason::Http1 => "h2_downgrade",
        }
    }
}

/// Resends of one attempt at a target.
#[derive(Debug, Default)]
pub struct Resends {
    stale: bool,
    downgraded: bool,
}

impl Resends {
    /// Returns whether the request may use a pooled connection.
    pub fn may_reuse(&self) -> bool {
        !self.stale
    }

    /// Returns whether to connect again with HTTP/1.1 after the provider declined HTTP/2 while connecting. True once.
    pub fn downgrade(&mut self) -> bool {
        !std::mem::replace(&mut self.downgraded, true)
    }

    /// Decides whether the request is sent again. Returns the reason, or `None` if it must not be.
    pub fn decide(&mut self, failed: Unanswered<'_>) -> Option<Reason> {
        let Unanswered { error, reused, answered, delivered, repeatable } = failed;
        let recent = delivered.is_none_or(|at| at.elapsed() <= STALE_WINDOW);
        let unheard = repeatable && recent && !answered;
        if is_downgrade(error) {
            // `H2Downgrade` is HTTP_1_1_REQUIRED, so the request was not processed. `InvalidH2` proves nothing.
            let refused = *error.etype() == ErrorType::H2Downgrade;
            return ((refused || unheard) && self.downgrade()).then_some(Reason::Http1);
        }
        // A failed write is the same case: the close arrived a moment earlier.
        let closed = error.retry() || *error.etype() == ErrorType::WriteError;
        if reused && closed && unheard && !self.stale {
            self.stale = true;
            return Some(Reason::StaleConnection);
        }
        None
    }
}

/// Returns whether the provider must be sent HTTP/1.1 from now on.
pub fn is_downgrade(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of a pooled connection that was closed without a response byte.
    fn closed() -> Box<Error> {
        let mut error = Error::new_up(ErrorType::ConnectionClosed);
        error.retry = true.into();
        error
    }

    fn unanswered(error: &Error) -> Unanswered<'_> {
        Unanswered { error, reused: true, answered: false, delivered: None, repeatable: true }
    }

    #[tokio::test(start_paused = true)]
    async fn resend_after_a_stale_connection_happens_once() {
        let (error, mut resends) = (closed(), Resends::default());
        assert!(resends.may_reuse());
        let failed = Unanswered { delivered: Some(Instant::now()), ..unanswered(&error) };
        assert_eq!(resends.decide(failed), Some(Reason::StaleConnection));
        assert!(!resends.may_reuse());
        assert_eq!(resends.decide(failed), None);
    }

    #[tokio::test(start_paused = true)]
    async fn resend_of_a_delivered_request_is_allowed_briefly() {
        let error = closed();
        let failed = Unanswered { delivered: Some(Instant::now()), ..unanswered(&error) };
        tokio::time::advance(STALE_WINDOW).await;
        assert_eq!(Resends::default().decide(failed), Some(Reason::StaleConnection));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(Resends::default().decide(failed), None);
        // A request that was never delivered whole was not processed, however long ago it was.
        assert!(Resends::default().decide(unanswered(&error)).is_some());
    }

    #[test]
    fn resend_is_denied_if_the_request_may_have_been_processed() {
        let (error, write) = (closed(), Error::new_up(ErrorType::WriteError));
        let other = Error::new_up(ErrorType::InvalidHTTPHeader);
        for failed in [
            Unanswered { reused: false, ..unanswered(&error) },
            Unanswered { answered: true, ..unanswered(&error) },
            Unanswered { repeatable: false, ..unanswered(&error) },
            unanswered(&other),
        ] {
            assert_eq!(Resends::default().decide(failed), None, "{failed:?}");
        }
        assert_eq!(Resends::default().decide(unanswered(&write)), Some(Reason::StaleConnection));
    }

    #[tokio::test(start_paused = true)]
    async fn resend_falls_back_to_http1_once() {
        let refused = Error::new_up(ErrorType::H2Downgrade);
        let invalid = Error::new_up(ErrorType::InvalidH2);
        for error in [&refused, &invalid] {
            let mut resends = Resends::default();
            // New connections and pooled ones behave the same.
            let failed = Unanswered { reused: false, ..unanswered(error) };
            assert_eq!(resends.decide(failed), Some(Reason::Http1));
            assert_eq!(resends.decide(failed), None);
        }
        let long_ago = Some(Instant::now());
        tokio::time::advance(2 * STALE_WINDOW).await;
        let late = |error| Unanswered { delivered: long_ago, repeatable: false, ..unanswered(error) };
        assert_eq!(Resends::default().decide(late(&refused)), Some(Reason::Http1));
        assert_eq!(Resends::default().decide(late(&invalid)), None);
    }
}
