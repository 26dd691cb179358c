//! Accepted handshake: what every request of a socket has in common.

use std::sync::Arc;

use http::{HeaderValue, Method, Version, header};
use pingora::http::RequestHeader;
use pingora::protocols::Digest;

use super::origin::RequestOrigin;
use driver::names;
use driver::provider_socket::conversation::SocketConversation;

/// Prefix of beta features that concern the socket and not the provider's HTTP interface.
const SOCKET_BETA: &str = "responses_websockets";

/// Header in which a client of OpenAI's own names itself: `codex_cli_rs`, `codex_exec`.
const ORIGINATOR: &str = "originator";

/// Accepted handshake: what every request of the socket has in common.
pub(super) struct Accepted {
    /// Head of a request without a body.
    head: http::request::Parts,
    /// Connection of the client.
    pub(super) digest: Arc<Digest>,
    /// Head of the response to the handshake.
    pub(super) response: Vec<u8>,
    /// The client is Codex, which reads events that no other client knows.
    pub(super) is_codex: bool,
}

impl Accepted {
    /// Takes over the head of a handshake, without what concerns only the connection.
    pub(super) fn new(head: &RequestHeader, digest: Arc<Digest>, response: Vec<u8>) -> Self {
        Accepted { head: common_head(head), digest, response, is_codex: is_codex(head) }
    }

    /// Returns the head that all requests of the socket have.
    pub(super) fn head(&self) -> RequestHeader {
        RequestHeader::from(self.head.clone())
    }

    /// Returns the head of one request of the socket. `turn_state` is that of the turn which the request continues.
    pub(super) fn request_head(
        &self,
        prepares: bool,
        conversation: SocketConversation,
        turn_state: Option<HeaderValue>,
    ) -> RequestHeader {
        let mut parts = self.head.clone();
        if let Some(state) = turn_state {
            parts.headers.insert(names::X_CODEX_TURN_STATE, state);
        }
        parts.extensions.insert(RequestOrigin::WebSocket { prepares, inbox: conversation.inbox.clone() });
        parts.extensions.insert(conversation);
        RequestHeader::from(parts)
    }
}

/// Returns whether the client is Codex: it names itself, and describes its session (observed with Codex CLI 0.169).
fn is_codex(head: &RequestHeader) -> bool {
    let originator = head.headers.get(ORIGINATOR).map(HeaderValue::as_bytes).unwrap_or_default();
    originator.starts_with(b"codex") || head.headers.keys().any(|name| name.as_str().starts_with("x-codex-"))
}

/// Returns the head that the requests of a socket have in common: that of the handshake, without what concerns only the
/// connection, the framing of a body, or one request.
fn common_head(head: &RequestHeader) -> http::request::Parts {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = head.uri.clone();
    parts.version = Version::HTTP_11;
    for (name, value) in &head.headers {
        let dropped = matches!(
            name.as_str(),
            "connection"
                | "upgrade"
                | "keep-alive"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "content-length"
                | "content-type"
                | "content-encoding"
                | "accept"
                | "accept-encoding"
                | "expect"
                | "x-request-id"
        ) || name.as_str().starts_with("sec-websocket-");
        // The features of the socket itself mean nothing to a provider that is called over HTTP.
        let socket_beta = *name == names::OPENAI_BETA
            && value
                .to_str()
                .is_ok_and(|value| value.split(',').all(|one| one.trim().starts_with(SOCKET_BETA)));
        if !dropped && !socket_beta {
            parts.headers.append(name.clone(), value.clone());
        }
    }
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    parts.headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_head_keeps_what_concerns_requests() {
        let mut head = RequestHeader::build("GET", b"/v1/responses?key=k", None).unwrap();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("session-id", "s"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("content-length", "0"),
            ("x-request-id", "one"),
            ("openai-beta", "responses_websockets=2026-02-06"),
            ("openai-beta", "other=1"),
        ] {
            head.append_header(name, value).unwrap();
        }
        let common = common_head(&head);
        let mut names: Vec<&str> = common.headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "authorization", "content-type", "openai-beta", "session-id"]);
        assert_eq!(common.headers.get_all("openai-beta").iter().collect::<Vec<_>>(), ["other=1"]);
        assert_eq!(
            (common.method.as_str(), common.uri.to_string().as_str()),
            ("POST", "/v1/responses?key=k")
        );
    }
}
