//! Whether a request whose connection failed is sent to the same target a second time.
//!
//! A provider may close a pooled connection just before a request is written to it, and then never acts on that request.
//! From here this looks the same as a provider that read the request, worked on it and closed. A request is therefore
//! sent again once at most, on a new connection, and only while the first reading is the likely one (RFC 9110, 9.2.2).

use std::time::Duration;

use pingora::{Error, ErrorType};
use tokio::time::Instant;

/// How long after the last byte of a request the end of its connection is taken for one that crossed the request on the
/// way. That end arrives within a round trip, some 300 ms around the globe; a provider that has had the request for
/// longer has most likely begun to act on it.
const MOMENT: Duration = Duration::from_secs(1);

/// A request whose connection failed before the head of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered<'e> {
    pub(super) error: &'e Error,
    /// The connection came from the pool.
    pub(super) reused: bool,
    /// A byte of an answer has come.
    pub(super) answered: bool,
    /// When all of the request had been written.
    pub(super) delivered: Option<Instant>,
    /// The request may reach the provider twice.
    pub(super) repeatable: bool,
}

/// Why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its connection had been closed.
    StaleConnection,
    /// The provider wants HTTP/1.1.
    Http1,
}

impl Reason {
    /// The name in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Reason::StaleConnection => "stale_connection",
            Reason::Http1 => "h2_downgrade",
        }
    }
}

/// What was sent again in one attempt at a target.
#[derive(Debug, Default)]
pub(super) struct Resends {
    stale: bool,
    downgraded: bool,
}

impl Resends {
    /// Whether the request may be written to a connection from the pool.
    pub(super) fn may_reuse(&self) -> bool {
        !self.stale
    }

    /// Whether to connect anew after the provider has declined HTTP/2 while connecting: once.
    pub(super) fn downgrade(&mut self) -> bool {
        !std::mem::replace(&mut self.downgraded, true)
    }

    /// Whether the request is sent again, and why.
    pub(super) fn decide(&mut self, failed: Unanswered<'_>) -> Option<Reason> {
        let Unanswered { error, reused, answered, delivered, repeatable } = failed;
        let recent = delivered.is_none_or(|at| at.elapsed() <= MOMENT);
        let unheard = repeatable && recent && !answered;
        if is_downgrade(error) {
            // Who asks for HTTP/1.1 says that the request was not acted on; who speaks HTTP/2 badly says nothing.
            let refused = *error.etype() == ErrorType::H2Downgrade;
            return ((refused || unheard) && self.downgrade()).then_some(Reason::Http1);
        }
        // A request that could not be written is the same case, seen a moment earlier.
        let closed = error.retry() || *error.etype() == ErrorType::WriteError;
        if reused && closed && unheard && !self.stale {
            self.stale = true;
            return Some(Reason::StaleConnection);
        }
        None
    }
}

/// Whether the provider is to be spoken to in HTTP/1.1 from now on.
pub(super) fn is_downgrade(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pooled connection that was closed without a word.
    fn closed() -> Box<Error> {
        let mut error = Error::new_up(ErrorType::ConnectionClosed);
        error.retry = true.into();
        error
    }

    fn unanswered(error: &Error) -> Unanswered<'_> {
        Unanswered { error, reused: true, answered: false, delivered: None, repeatable: true }
    }

    #[tokio::test(start_paused = true)]
    async fn stale_connections_cost_one_resend_on_a_new_connection() {
        let (error, mut resends) = (closed(), Resends::default());
        assert!(resends.may_reuse());
        let failed = Unanswered { delivered: Some(Instant::now()), ..unanswered(&error) };
        assert_eq!(resends.decide(failed), Some(Reason::StaleConnection));
        assert!(!resends.may_reuse());
        assert_eq!(resends.decide(failed), None);
    }

    #[tokio::test(start_paused = true)]
    async fn delivered_requests_are_resent_within_a_moment_only() {
        let error = closed();
        let failed = Unanswered { delivered: Some(Instant::now()), ..unanswered(&error) };
        tokio::time::advance(MOMENT).await;
        assert_eq!(Resends::default().decide(failed), Some(Reason::StaleConnection));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(Resends::default().decide(failed), None);
        // What was never delivered whole was not acted on, however long it took.
        assert!(Resends::default().decide(unanswered(&error)).is_some());
    }

    #[test]
    fn requests_are_not_resent_where_they_may_have_been_heard() {
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
    async fn http2_is_given_up_once() {
        let refused = Error::new_up(ErrorType::H2Downgrade);
        let invalid = Error::new_up(ErrorType::InvalidH2);
        for error in [&refused, &invalid] {
            let mut resends = Resends::default();
            // Over a new connection as over one from the pool.
            let failed = Unanswered { reused: false, ..unanswered(error) };
            assert_eq!(resends.decide(failed), Some(Reason::Http1));
            assert_eq!(resends.decide(failed), None);
        }
        let long_ago = Some(Instant::now());
        tokio::time::advance(2 * MOMENT).await;
        let late = |error| Unanswered { delivered: long_ago, repeatable: false, ..unanswered(error) };
        assert_eq!(Resends::default().decide(late(&refused)), Some(Reason::Http1));
        assert_eq!(Resends::default().decide(late(&invalid)), None);
    }
}
