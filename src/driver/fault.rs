//! Typed cause of a Pingora error: what it means for the client.

use bytes::Bytes;
use pingora::{Error, ErrorType};

use codec::error::{ApiError, ErrorKind};

/// Type of an error that has a [`Fault`] as its cause.
const FAULT: &str = "Fault";

/// Error type of `upstream_peer` if the address of the target has yet to be resolved.
pub const UNRESOLVED: &str = "Unresolved";

/// What a failure means for the client. The cause of every error that the gateway's phases return.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Fault {
    /// The error for the client.
    pub error: ApiError,
    /// What the client gets with it.
    pub body: FaultBody,
}

/// Bytes that belong to a failure.
#[derive(Debug, Default)]
pub enum FaultBody {
    /// Nothing.
    #[default]
    None,
    /// Complete frames before the fault of a stream, which were not sent yet and still belong to the client.
    Unsent(Bytes),
    /// The provider's error in the client's format.
    Refusal(Bytes),
}

impl Fault {
    /// Creates the Pingora error of a failure.
    pub fn raise(error: ApiError, body: FaultBody) -> Box<Error> {
        let context = error.message.clone().into_owned();
        let mut raised = Error::explain(ErrorType::Custom(FAULT), context);
        raised.cause = Some(Box::new(Fault { error, body }));
        raised
    }

    /// Returns the cause of an error, if it is a [`Fault`].
    pub fn of(error: &Error) -> Option<&Fault> {
        error.cause.as_ref().and_then(|cause| cause.downcast_ref::<Fault>())
    }

    /// Takes the cause of an error out. An error without one is a fault of the gateway.
    #[allow(clippy::boxed_local, reason = "errors of Pingora are boxed")]
    pub fn take(mut error: Box<Error>) -> Fault {
        let internal = || Fault {
            error: ApiError::new(ErrorKind::Internal, "Internal gateway error."),
            body: FaultBody::None,
        };
        match error.cause.take().map(|cause| cause.downcast::<Fault>()) {
            Some(Ok(fault)) => *fault,
            _ => internal(),
        }
    }
}
