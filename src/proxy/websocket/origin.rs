//! Origin of a request: HTTP or a WebSocket.

use std::sync::Arc;

use pingora::http::RequestHeader;

use driver::provider_socket::steering::SteerInbox;

/// Origin of a request. Requests over a WebSocket carry it as an extension of their head.
#[derive(Clone, Debug, Default)]
pub(crate) enum RequestOrigin {
    /// A request over HTTP.
    #[default]
    Http,
    /// A request over a WebSocket; `prepares` if it generates no output.
    WebSocket {
        prepares: bool,
        /// Input that the client sends during the response.
        inbox: Arc<SteerInbox>,
    },
}

impl RequestOrigin {
    /// Returns the origin of the request with this head.
    pub(crate) fn of(head: &RequestHeader) -> Self {
        head.extensions.get::<RequestOrigin>().cloned().unwrap_or_default()
    }

    /// Whether the request came over a WebSocket.
    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self, RequestOrigin::WebSocket { .. })
    }

    /// Whether the request only prepares the next one: no provider is called for it.
    pub(crate) fn only_prepares(&self) -> bool {
        matches!(self, RequestOrigin::WebSocket { prepares: true, .. })
    }

    /// Returns the input that the client may send during the response; `None` over HTTP.
    pub(crate) fn inbox(&self) -> Option<&SteerInbox> {
        match self {
            RequestOrigin::Http => None,
            RequestOrigin::WebSocket { inbox, .. } => Some(inbox),
        }
    }
}
