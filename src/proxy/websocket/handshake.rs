//! Opening handshake (RFC 6455, section 4.2), in the request phase: an upgrade that is refused gets an ordinary error
//! response, with its log line.

use std::sync::Arc;

use http::{HeaderMap, Method, Version, header};
use pingora::http::RequestHeader;
use tungstenite::handshake::derive_accept_key;

use super::accepted::Accepted;
use super::connection;
use crate::Client;
use crate::Gateway;
use crate::gateway::auth::{authenticate, authorize, extract_key};
use crate::gateway::context::Context;
use codec::error::{ApiError, ErrorKind};
use codec::wire::path::Endpoint;
use driver::names;
use routing::account::{Key, KeyState};

/// Returns whether a request asks for a WebSocket, validly or not.
pub(crate) fn is_requested(head: &RequestHeader) -> bool {
    head.method == Method::GET
        && (has_token(&head.headers, &header::UPGRADE, "websocket")
            || head.headers.contains_key(names::SEC_WEBSOCKET_KEY)
            || head.headers.contains_key(names::SEC_WEBSOCKET_VERSION))
}

impl Gateway {
    /// Accepts the upgrade of a connection, or refuses it. A rate limit is no reason: it is a matter of each response.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UpgradeRequired`] if WebSockets are switched off or the version is not supported,
    /// [`ErrorKind::InvalidHead`] for an invalid handshake, and the errors of authentication.
    pub(crate) fn accept_websocket(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
    ) -> Result<(), ApiError> {
        if self.websockets.is_none() {
            let message = "WebSocket is not available here; send the request with POST.";
            return Err(ApiError::new(ErrorKind::UpgradeRequired, message));
        }
        let has_body = !client.is_body_empty();
        let head = client.req_header();
        let nonce = check(head)?;
        if has_body {
            return Err(invalid("it has a body"));
        }
        let key = authenticate(head, ctx)?;
        authorize(&key, client, ctx, endpoint)?;
        // Cached in the digest: the addresses cannot be asked for once the connection is closed.
        let _ = (client.client_addr(), client.server_addr());
        let digest = Arc::new(client.digest().cloned().unwrap_or_default());
        let accepted =
            Accepted::new(head, digest, response(&derive_accept_key(nonce.as_bytes()), ctx.id.as_str()));
        let gateway = self.clone();
        ctx.upgrade = Some(Box::new(move |stream, rest| {
            Box::pin(connection::serve(gateway, Arc::new(accepted), stream, rest))
        }));
        ctx.record.status = 101;
        // The driver closes a connection without keep-alive, and so would end the socket before it begins.
        client.set_keepalive(Some(self.limits.keepalive.as_secs().max(1)));
        Ok(())
    }

    /// Returns whether the key of a socket still exists and is usable.
    pub(super) fn is_key_usable(&self, accepted: &Accepted, now: i64) -> bool {
        let head = accepted.head();
        let Ok(Some(text)) = extract_key(&head) else { return false };
        let live = self.live.load();
        let key: Option<&Arc<Key>> = live.snapshot.keys.find(&text);
        key.is_some_and(|key| key.state(now) == KeyState::Usable)
    }
}

/// Checks the handshake, and returns its key.
fn check(head: &RequestHeader) -> Result<String, ApiError> {
    match head.version {
        Version::HTTP_11 => {}
        Version::HTTP_2 => return Err(invalid("it was sent over HTTP/2; use HTTP/1.1")),
        _ => return Err(ApiError::new(ErrorKind::UpgradeRequired, "A WebSocket needs HTTP/1.1.")),
    }
    let headers = &head.headers;
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if value(names::SEC_WEBSOCKET_VERSION) != Some("13") {
        let message = "This version of WebSocket is not supported; use 13.";
        return Err(ApiError::new(ErrorKind::UpgradeRequired, message));
    }
    if !has_token(headers, &header::UPGRADE, "websocket") {
        return Err(invalid("it has no 'Upgrade: websocket'"));
    }
    if !has_token(headers, &header::CONNECTION, "upgrade") {
        return Err(invalid("it has no 'Connection: Upgrade'"));
    }
    // 16 bytes in base64 (RFC 6455, section 4.1).
    let key = value(names::SEC_WEBSOCKET_KEY).filter(|key| {
        base64_simd::STANDARD.decode_to_vec(key.as_bytes()).is_ok_and(|bytes| bytes.len() == 16)
    });
    key.map(str::to_owned).ok_or_else(|| invalid("its 'Sec-WebSocket-Key' is not 16 bytes in base64"))
}

fn invalid(reason: &str) -> ApiError {
    ApiError::new(ErrorKind::InvalidHead, format!("The WebSocket handshake is not valid: {reason}."))
}

/// Returns whether a header that is a list contains this token, in any case.
fn has_token(headers: &HeaderMap, name: &http::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|one| one.trim().eq_ignore_ascii_case(token))
}

/// Returns the response to the handshake. It has no `openai-model`, which Codex takes for a rerouted model.
fn response(accept: &str, id: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nx-request-id: {id}\r\n\r\n"
    )
    .into_bytes()
}
