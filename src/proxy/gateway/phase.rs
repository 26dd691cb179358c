//! Phases of a request: what is known of it in each of them, and the transitions between them.
//!
//! A transition consumes the phase before it. One that does not apply to the current phase has no effect.

use std::sync::Arc;

use bytes::BytesMut;
use pingora::Error;

use super::attempt::Attempt;
use super::billing::{Accounting, RateLimitStatus};
use super::claims::Claims;
use super::response_in_progress::ResponseInProgress;
use super::retry_state::RetryState;
use super::suspended::SuspendedResponse;
use codec::canonical::TierRequest;
use codec::error::RetryAfter;
use codec::translate::Exchange;
use codec::wire::images::reply::ImageReplyShape;
use codec::wire::path::Endpoint;
use driver::body_memory::MemoryPermit;
use routing::account::Key;

/// Phase of a request.
pub(crate) enum Phase {
    /// The head has arrived; its path is not examined yet, or is unknown.
    Head,
    /// The path names an endpoint; the key is not found yet, or there is none.
    Received(Received),
    /// The key is found. The body is read, limits are granted, and a target is selected.
    Authenticated(Identity),
    /// A target is selected; its response head has not arrived.
    Asking(Asking),
    /// The response head has arrived.
    Answering(Answering),
    /// The request is counted and logged. Also the value while a transition builds the next phase.
    Done,
}

/// Request for an endpoint, from a client that is not known yet.
pub(crate) struct Received {
    endpoint: Endpoint,
    /// Response shape for image endpoints; `None` on other endpoints.
    image_shape: Option<ImageReplyShape>,
}

/// Endpoint and key of a request, and what it may cost.
pub(crate) struct Identity {
    pub(crate) endpoint: Endpoint,
    /// Response shape for image endpoints; `None` on other endpoints.
    pub(crate) image_shape: Option<ImageReplyShape>,
    pub(crate) key: Arc<Key>,
    pub(crate) accounting: Accounting,
    /// Expected input tokens; 0 before admission.
    pub(crate) expected_input: u64,
    /// Service tier and region that the request asks for.
    pub(crate) asked: TierRequest,
    /// Member whose service tier was changed to the standard one, for the warning header; `None` for none.
    pub(crate) changed_tier: Option<&'static str>,
    /// Remaining quota for the rate-limit headers; `None` for a key without limits of requests or tokens.
    pub(crate) remaining: Option<Box<RateLimitStatus>>,
}

/// Routed request: its current attempt, and what further attempts and the end of the response need.
pub(crate) struct RoutedRequest {
    pub(crate) attempt: Box<Attempt>,
    /// Retry state; `None` if no other target may be tried.
    pub(crate) retry_state: Option<Box<RetryState>>,
    /// Memory permit of the request body; `None` for a small body, and once it is not sent again.
    pub(crate) memory_permit: Option<MemoryPermit>,
    /// Ownership that is recorded when the response has arrived; `None` if there is nothing to record.
    pub(crate) claims: Option<Box<Claims>>,
}

impl From<Attempt> for RoutedRequest {
    fn from(attempt: Attempt) -> Self {
        RoutedRequest { attempt: Box::new(attempt), retry_state: None, memory_permit: None, claims: None }
    }
}

/// Request whose target has not answered.
pub(crate) struct Asking {
    identity: Identity,
    routed: RoutedRequest,
    /// Stream that broke off and that the target is to continue. `None` if no part of a response exists.
    suspended: Option<Box<SuspendedResponse>>,
}

/// Request whose response head has arrived.
pub(crate) struct Answering {
    identity: Identity,
    routed: RoutedRequest,
    response: UpstreamResponse,
}

/// Upstream response, by its kind.
pub(crate) enum UpstreamResponse {
    /// A stream, forwarded frame by frame.
    Stream(Box<ResponseInProgress>),
    /// A document, collected before it is forwarded.
    Whole(Box<ResponseInProgress>, BytesMut),
    /// An error response; its body is collected before it is converted.
    Refused {
        status: u16,
        retry_after: Option<RetryAfter>,
        /// Name that AWS gave its error in a header.
        exception: Option<&'static str>,
        body: BytesMut,
        /// Stream that the target was to continue. `None` if no part of a response exists.
        suspended: Option<Box<SuspendedResponse>>,
    },
}

impl Phase {
    /// Replaces the phase by the one that `next` builds of it.
    fn advance(&mut self, next: impl FnOnce(Phase) -> Phase) {
        *self = next(std::mem::replace(self, Phase::Done));
    }

    /// The path of the head names an endpoint.
    pub(crate) fn receive(&mut self, endpoint: Endpoint) {
        self.advance(|phase| match phase {
            Phase::Head => Phase::Received(Received { endpoint, image_shape: None }),
            other => other,
        });
    }

    /// The key of a received request is found.
    pub(crate) fn authenticate(&mut self, key: Arc<Key>) {
        self.advance(|phase| match phase {
            Phase::Received(Received { endpoint, image_shape }) => Phase::Authenticated(Identity {
                endpoint,
                image_shape,
                key,
                accounting: Accounting::default(),
                expected_input: 0,
                asked: TierRequest::default(),
                changed_tier: None,
                remaining: None,
            }),
            other => other,
        });
    }

    /// A target is selected for an authenticated request, or another one instead of the last.
    pub(crate) fn ask(&mut self, routed: RoutedRequest) {
        self.advance(|phase| match phase {
            Phase::Authenticated(identity) => Phase::Asking(Asking { identity, routed, suspended: None }),
            Phase::Asking(asking) => Phase::Asking(Asking { routed, ..asking }),
            other => other,
        });
    }

    /// The response head has arrived, or another response takes the place of the one that has.
    pub(crate) fn answer(&mut self, response: UpstreamResponse) {
        self.advance(|phase| match phase {
            Phase::Asking(Asking { identity, routed, .. }) => {
                Phase::Answering(Answering { identity, routed, response })
            }
            Phase::Answering(answering) => Phase::Answering(Answering { response, ..answering }),
            other => other,
        });
    }

    /// The attempt has failed: drops its response, of which nothing was forwarded. A stream that the target was to
    /// continue stays.
    pub(crate) fn ask_again(&mut self) {
        self.advance(|phase| match phase {
            Phase::Answering(Answering { identity, routed, response }) => {
                let suspended = match response {
                    UpstreamResponse::Refused { suspended, .. } => suspended,
                    UpstreamResponse::Stream(_) | UpstreamResponse::Whole(..) => None,
                };
                Phase::Asking(Asking { identity, routed, suspended })
            }
            other => other,
        });
    }

    /// A stream has broken off, for another target to continue it.
    pub(crate) fn suspend(&mut self, suspend: impl FnOnce(Exchange) -> Box<SuspendedResponse>) {
        self.advance(|phase| match phase {
            Phase::Answering(Answering { identity, routed, response: UpstreamResponse::Stream(stream) }) => {
                Phase::Asking(Asking { identity, routed, suspended: Some(suspend(stream.exchange)) })
            }
            other => other,
        });
    }

    /// Returns the stream that broke off and that the target is to continue, or was before its error response. `None`
    /// if there is none.
    pub(crate) fn suspended(&self) -> Option<&SuspendedResponse> {
        match self {
            Phase::Asking(asking) => asking.suspended.as_deref(),
            Phase::Answering(Answering { response: UpstreamResponse::Refused { suspended, .. }, .. }) => {
                suspended.as_deref()
            }
            _ => None,
        }
    }

    /// Takes out what [`Self::suspended`] returns: it is continued, or ended.
    pub(crate) fn take_suspended(&mut self) -> Option<Box<SuspendedResponse>> {
        match self {
            Phase::Asking(asking) => asking.suspended.take(),
            Phase::Answering(Answering { response: UpstreamResponse::Refused { suspended, .. }, .. }) => {
                suspended.take()
            }
            _ => None,
        }
    }

    /// Returns the endpoint; `None` if the path is not examined yet, or is unknown.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Phase::Received(received) => Some(&received.endpoint),
            phase => phase.identity().map(|identity| &identity.endpoint),
        }
    }

    /// Returns the response shape of image endpoints; `None` on other endpoints.
    pub(crate) fn image_shape(&self) -> Option<ImageReplyShape> {
        match self {
            Phase::Received(received) => received.image_shape,
            phase => phase.identity().and_then(|identity| identity.image_shape),
        }
    }

    /// Sets what [`Self::image_shape`] returns.
    pub(crate) fn set_image_shape(&mut self, shape: Option<ImageReplyShape>) {
        match self {
            Phase::Received(received) => received.image_shape = shape,
            phase => {
                if let Some(identity) = phase.identity_mut() {
                    identity.image_shape = shape;
                }
            }
        }
    }

    /// Returns endpoint, key and accounting; `None` before the key is found.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Phase::Authenticated(identity) => Some(identity),
            Phase::Asking(asking) => Some(&asking.identity),
            Phase::Answering(answering) => Some(&answering.identity),
            Phase::Head | Phase::Received(_) | Phase::Done => None,
        }
    }

    /// Returns the same as [`Self::identity`], mutably.
    pub(crate) fn identity_mut(&mut self) -> Option<&mut Identity> {
        match self {
            Phase::Authenticated(identity) => Some(identity),
            Phase::Asking(asking) => Some(&mut asking.identity),
            Phase::Answering(answering) => Some(&mut answering.identity),
            Phase::Head | Phase::Received(_) | Phase::Done => None,
        }
    }

    /// Returns the routed request; `None` before a target is selected.
    pub(crate) fn routed(&self) -> Option<&RoutedRequest> {
        match self {
            Phase::Asking(asking) => Some(&asking.routed),
            Phase::Answering(answering) => Some(&answering.routed),
            _ => None,
        }
    }

    /// Returns the same as [`Self::routed`], mutably.
    pub(crate) fn routed_mut(&mut self) -> Option<&mut RoutedRequest> {
        match self {
            Phase::Asking(asking) => Some(&mut asking.routed),
            Phase::Answering(answering) => Some(&mut answering.routed),
            _ => None,
        }
    }

    /// Returns the upstream response; `None` before its head has arrived.
    pub(crate) fn response(&self) -> Option<&UpstreamResponse> {
        match self {
            Phase::Answering(answering) => Some(&answering.response),
            _ => None,
        }
    }

    /// Returns the same as [`Self::response`], mutably.
    pub(crate) fn response_mut(&mut self) -> Option<&mut UpstreamResponse> {
        match self {
            Phase::Answering(answering) => Some(&mut answering.response),
            _ => None,
        }
    }
}

/// Internal error: a phase ran before the one that it depends on.
pub(crate) fn internal_error() -> Box<Error> {
    Error::new_in(pingora::ErrorType::InternalError)
}

#[cfg(test)]
mod tests;
