//! Origin of a request: HTTP or a WebSocket.

use pingora::http::RequestHeader;

/// Origin of a request. Requests over a WebSocket carry it as an extension of their head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) enum RequestOrigin {
    /// A request over HTTP.
    #[default]
    Http,
    /// A request over a WebSocket; `prepares` if it generates no output.
    WebSocket { prepares: bool },
}

impl RequestOrigin {
    /// Returns the origin of the request with this head.
    pub(in crate::proxy) fn of(head: &RequestHeader) -> Self {
        head.extensions.get::<RequestOrigin>().copied().unwrap_or_default()
    }

    /// Whether the request came over a WebSocket.
    pub(in crate::proxy) fn is_websocket(self) -> bool {
        self != RequestOrigin::Http
    }

    /// Whether the request only prepares the next one: no provider is called for it.
    pub(in crate::proxy) fn only_prepares(self) -> bool {
        self == RequestOrigin::WebSocket { prepares: true }
    }
}
