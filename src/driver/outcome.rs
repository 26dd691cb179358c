//! Outcomes of exchanges and attempts, and the errors that the driver itself has for clients.

use std::pin::Pin;

use bytes::Bytes;
use pingora::Error;
use tokio::time::Instant;

use super::fault::{Fault, FaultBody};
use codec::error::{ApiError, ErrorKind};

/// Future that resolves when the drain deadline of a shutdown has passed. It is polled whenever an exchange waits.
pub type DrainDeadline<'e> = Pin<&'e mut (dyn Future<Output = ()> + Send)>;

/// Outcome of one attempt or of the whole exchange.
pub enum ExchangeOutcome {
    /// The complete response was sent to the client.
    Complete,
    /// The attempt failed; the error for the client.
    Failed(ApiError),
    /// The provider answered with an error; the error and its body in the client's format.
    UpstreamError(ApiError, Bytes),
}

/// Outcome of a failure whose meaning the proxy has determined.
pub fn failed(error: Box<Error>) -> ExchangeOutcome {
    let Fault { error, body } = Fault::take(error);
    match body {
        FaultBody::Refusal(body) => ExchangeOutcome::UpstreamError(error, body),
        FaultBody::None | FaultBody::Unsent(_) => ExchangeOutcome::Failed(error),
    }
}

/// Reason why no response head arrived.
pub(super) enum AttemptError {
    /// The exchange must end (client gone, shutdown or time-out); the error for the client.
    Abort(ApiError),
    /// The connection failed. The time is that at which the whole request had been written, `None` if it had not.
    Connection(Box<Error>, Option<Instant>),
}

impl From<Box<Error>> for AttemptError {
    fn from(error: Box<Error>) -> Self {
        AttemptError::Connection(error, None)
    }
}

/// Time-out error: the provider sent nothing in time.
pub fn timeout_error() -> ApiError {
    ApiError::new(ErrorKind::UpstreamTimeout, "The upstream provider did not respond in time.")
}

/// Time-out error: the response arrives at less than `timeouts.min_rate`.
pub fn low_rate_error() -> ApiError {
    ApiError::new(ErrorKind::UpstreamTimeout, "The upstream provider's response is too slow.")
}

/// Resolution error: the provider's name has no address.
pub fn resolution_error() -> ApiError {
    let told = "The upstream provider cannot be reached: its host name has no address.";
    ApiError::new(ErrorKind::UpstreamUnreachable, told)
}

/// Shutdown error: the drain deadline has passed.
pub fn shutdown_error() -> ApiError {
    ApiError::new(ErrorKind::ShuttingDown, "The gateway is restarting; please try again.")
}
