//! What a job asks for: a call of its provider, or what lies behind an address.

use std::time::Duration;

use bytes::Bytes;

use crate::wire::path::Action;

/// A call that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCall {
    /// Where it goes.
    pub to: To,
    /// The body; nothing is sent with a call that only looks something up.
    pub body: Bytes,
    /// What the body is; JSON where nothing is said.
    pub media: Option<Box<str>>,
    /// Headers beside the usual ones.
    pub headers: &'static [(&'static str, &'static str)],
    /// How long to wait before it is made.
    pub after: Duration,
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To the API that the route has chosen, with what is done with the model where that stands in the path.
    Api(Option<Action>),
    /// To another path of the same provider.
    Path(Box<str>),
    /// The same, and nothing is sent: something is looked up.
    Look(Box<str>),
    /// To an address that somebody gave, without any credential.
    Link(Box<RemoteMedia>),
}

/// Remote media: an address that a client or a provider gave, to be fetched by the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteMedia {
    /// The address.
    pub url: Box<str>,
    /// The field of the client's request that it stands in; nothing for an address that the provider gave.
    pub field: Option<Box<str>>,
    /// The most that is taken from there, bytes; as much as the gateway takes of anything where nothing is said.
    pub most: Option<usize>,
}

impl JobCall {
    fn new(to: To, body: Bytes) -> Self {
        JobCall { to, body, media: None, headers: &[], after: Duration::ZERO }
    }

    /// A call of the API that the route has chosen.
    pub fn api(body: Bytes, action: Option<Action>) -> Self {
        JobCall::new(To::Api(action), body)
    }

    /// A call of another path of the provider.
    pub fn path(path: impl Into<Box<str>>, body: Bytes) -> Self {
        JobCall::new(To::Path(path.into()), body)
    }

    /// Looks something up at a path of the provider.
    pub fn look(path: impl Into<Box<str>>) -> Self {
        JobCall::new(To::Look(path.into()), Bytes::new())
    }

    /// Brings what lies behind an address.
    pub fn link(link: RemoteMedia) -> Self {
        JobCall::new(To::Link(Box::new(link)), Bytes::new())
    }

    /// Says what the body is.
    #[must_use]
    pub fn media(mut self, media: impl Into<Box<str>>) -> Self {
        self.media = Some(media.into());
        self
    }

    /// Adds headers.
    #[must_use]
    pub fn headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    /// Waits before the call.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = wait;
        self
    }
}
