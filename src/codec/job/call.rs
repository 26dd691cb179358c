//! Calls of a job: a request to its provider, or a download of remote media.

use std::time::Duration;

use bytes::Bytes;

use crate::wire::path::Action;

/// Call that a job requests from its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCall {
    /// Destination.
    pub destination: CallDestination,
    /// Request body. Not sent for [`CallDestination::Get`] and [`CallDestination::RemoteMedia`].
    pub body: Bytes,
    /// Media type of the body. `None` for JSON.
    pub media: Option<Box<str>>,
    /// Headers in addition to those of the route.
    pub headers: &'static [(&'static str, &'static str)],
    /// Delay before the call.
    pub after: Duration,
}

/// Destination of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDestination {
    /// The API of the route; the action is for providers whose path contains one.
    Api(Option<Action>),
    /// Another path of the same provider (POST).
    Path(Box<str>),
    /// Another path of the same provider, without a body (GET).
    Get(Box<str>),
    /// An address from the client or the provider, requested without credentials.
    RemoteMedia(Box<RemoteMedia>),
}

/// Remote media: an address that a client or a provider gave, to be fetched by the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteMedia {
    /// URL of the media.
    pub url: Box<str>,
    /// Field of the client's request that contains the URL. `None` for a URL from the provider.
    pub field: Option<Box<str>>,
    /// Maximum length in bytes. `None` for the gateway's general limit.
    pub max_bytes: Option<usize>,
}

impl JobCall {
    fn new(to: CallDestination, body: Bytes) -> Self {
        JobCall { destination: to, body, media: None, headers: &[], after: Duration::ZERO }
    }

    /// Creates a call of the route's API.
    pub fn api(body: Bytes, action: Option<Action>) -> Self {
        JobCall::new(CallDestination::Api(action), body)
    }

    /// Creates a call of another path of the provider.
    pub fn path(path: impl Into<Box<str>>, body: Bytes) -> Self {
        JobCall::new(CallDestination::Path(path.into()), body)
    }

    /// Creates a GET request to a path of the provider.
    pub fn get(path: impl Into<Box<str>>) -> Self {
        JobCall::new(CallDestination::Get(path.into()), Bytes::new())
    }

    /// Creates a download of remote media.
    pub fn fetch(media: RemoteMedia) -> Self {
        JobCall::new(CallDestination::RemoteMedia(Box::new(media)), Bytes::new())
    }

    /// Sets the body's media type.
    #[must_use]
    pub fn media(mut self, media: impl Into<Box<str>>) -> Self {
        self.media = Some(media.into());
        self
    }

    /// Sets additional headers.
    #[must_use]
    pub fn headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the delay before the call.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = wait;
        self
    }
}
