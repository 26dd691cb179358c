//! The client's side of an exchange: writing to it, and noticing that it has left.

use std::pin::pin;

use bytes::Bytes;
use http::{HeaderValue, Version, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

use super::header_timeout::HeaderTimeoutStream;
use crate::error::{ApiError, ErrorKind};

/// Whether the client was sent a response head. An interim response such as "100 Continue" does not count.
pub(in crate::proxy) fn is_head_sent(client: &ServerSession) -> bool {
    client.response_written().is_some_and(|head| !head.status.is_informational())
}

/// Resolves when the client closes its connection.
pub(in crate::proxy) async fn client_gone(client: &mut ServerSession) -> ApiError {
    // Pingora buffers the bytes of a pipelined request; this read returns only at the end or on an error of the
    // connection.
    let _ = client.read_body_or_idle(true).await;
    ApiError::new(ErrorKind::ClientGone, "The client closed the connection.")
}

/// Runs `work` until it is done or the client disconnects.
///
/// # Errors
/// Returns [`ErrorKind::ClientGone`] if the client disconnects first.
pub(in crate::proxy) async fn run_while_connected<T>(
    client: &mut ServerSession,
    work: impl Future<Output = T>,
) -> Result<T, ApiError> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        gone = client_gone(client) => Err(gone),
    }
}

/// Sets how the client finds the end of the body: by its length, by chunks, or by the end of the connection.
pub(super) fn set_framing(client: &ServerSession, head: &mut ResponseHeader, length: Option<usize>) {
    let version = client.req_header().version;
    let framing = match length {
        Some(length) => head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length)),
        None if version == Version::HTTP_11 => {
            head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
        }
        None => Ok(()),
    };
    // Unreachable: names and values are valid.
    debug_assert!(framing.is_ok());
    if version < Version::HTTP_11 {
        // HTTP/1.0 has no chunks, and a stream has no length: the end of the connection ends the response.
        head.set_version(Version::HTTP_10);
    }
}

/// Writes a part of a response. Corks what is written in several steps, so that it leaves in one packet: the head with
/// the first frames, the last frames with the end of the body.
pub(in crate::proxy) async fn write(
    client: &mut ServerSession,
    head: Option<Box<ResponseHeader>>,
    body: Bytes,
    end: bool,
) -> pingora::Result<()> {
    if (head.is_some() || end)
        && let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of)
    {
        guarded.cork();
    }
    if let Some(head) = head {
        client.write_response_header(head).await?;
    }
    if end && !body.is_empty() {
        client.write_response_body(body, false).await?;
        uncork(client);
        return client.write_response_body(Bytes::new(), true).await;
    }
    uncork(client);
    client.write_response_body(body, end).await
}

fn uncork(client: &ServerSession) {
    if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
        guarded.uncork();
    }
}
