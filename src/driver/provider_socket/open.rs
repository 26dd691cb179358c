//! Opening handshake with a provider (RFC 6455, section 4.1).

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use tungstenite::handshake::client::{Request, generate_key};
use tungstenite::protocol::WebSocketConfig;

use super::pool::SocketKey;
use super::session::ProviderSocket;
use crate::names;

/// Read buffer of a socket, in bytes: an idle one keeps it.
const READ_BUFFER: usize = 16 * 1024;

/// Headers of one request, which the handshake does not have: the socket serves other requests too.
const REQUEST_HEADERS: [HeaderName; 11] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
    names::BAGGAGE,
    names::TRACEPARENT,
    names::TRACESTATE,
    names::X_REQUEST_ID,
];

/// Reason for which a socket was not opened over a connection.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The provider does not serve WebSockets at this path.
    #[error("the provider does not accept WebSockets: {0}")]
    Unsupported(String),
    /// It may accept one later, or for other requests: what is wrong is said by the response to the POST.
    #[error("the provider refused the WebSocket: {0}")]
    Refused(String),
}

/// Returns the head of the handshake for the requests that this one stands for.
pub fn handshake_head(request: &RequestHeader, is_encrypted: bool) -> Option<Request> {
    let mut head = Request::new(());
    *head.method_mut() = Method::GET;
    *head.version_mut() = Version::HTTP_11;
    let host = request.headers.get(header::HOST)?;
    let uri = Uri::builder().scheme(if is_encrypted { "wss" } else { "ws" }).authority(host.as_bytes());
    *head.uri_mut() = uri.path_and_query(request.uri.path_and_query()?.clone()).build().ok()?;
    for (name, value) in &request.headers {
        if !REQUEST_HEADERS.contains(name) {
            head.headers_mut().append(name.clone(), value.clone());
        }
    }
    Some(head)
}

/// Makes the handshake on a new connection. `key` is the key of the socket's pool, `largest` the largest event that is
/// read, in bytes.
///
/// # Errors
/// Returns [`HandshakeError`] if the provider does not switch protocols in time.
pub async fn open(
    stream: Stream,
    mut head: Request,
    key: SocketKey,
    largest: usize,
    within: Duration,
) -> Result<ProviderSocket, HandshakeError> {
    let headers = head.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(names::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    let nonce =
        HeaderValue::try_from(generate_key()).map_err(|error| HandshakeError::Refused(error.to_string()))?;
    headers.insert(names::SEC_WEBSOCKET_KEY, nonce);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(largest))
        .max_frame_size(Some(largest));
    let opening = tokio_tungstenite::client_async_with_config(head, stream, Some(config));
    match tokio::time::timeout(within, opening).await {
        Ok(Ok((socket, _))) => Ok(ProviderSocket::new(socket, key)),
        Ok(Err(tungstenite::Error::Http(response))) => {
            let status = response.status();
            // 200 is what a server without upgrades answers a GET with, 400 what some proxies answer an upgrade with.
            match status.as_u16() {
                401 | 402 | 403 | 408 | 409 | 425 | 429 | 500 | 502..=599 => {
                    Err(HandshakeError::Refused(status.to_string()))
                }
                _ => Err(HandshakeError::Unsupported(status.to_string())),
            }
        }
        Ok(Err(error @ (tungstenite::Error::Utf8(_) | tungstenite::Error::Url(_)))) => {
            Err(HandshakeError::Refused(error.to_string()))
        }
        Ok(Err(error)) => Err(HandshakeError::Unsupported(error.to_string())),
        Err(_) => Err(HandshakeError::Unsupported("no response to the handshake in time".to_owned())),
    }
}
