//! The client's side of an exchange: writing to it, and noticing that it has left.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Version, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use tokio::time::sleep;

use super::header_timeout::HeaderTimeoutStream;
use codec::error::{ApiError, ErrorKind};

/// State of a TCP connection that was reset, in `tcp_info` of Linux.
const TCP_CLOSE: u8 = 7;

/// Whether the client was sent a response head. An interim response such as "100 Continue" does not count.
pub fn is_head_sent(client: &ServerSession) -> bool {
    client.response_written().is_some_and(|head| !head.status.is_informational())
}

/// How a client's side of the connection has ended.
#[derive(Debug)]
pub enum ClientEnd {
    /// The client has left.
    Gone(ApiError),
    /// The client sends nothing more. It may have left or wait for its response (RFC 9112, section 9.6): TCP tells only once
    /// something is written to it, by a reset. Reported until something was.
    HalfClosed,
}

/// Intervals at which a half-closed connection is checked for a reset.
const FIRST_CHECK: Duration = Duration::from_millis(10);
const LAST_CHECK: Duration = Duration::from_secs(1);

/// Resolves when the client closes its connection, or its side of it.
pub async fn client_end(client: &mut ServerSession) -> ClientEnd {
    // Pingora buffers the bytes of a pipelined request; this read returns only at the end or on an error of the
    // connection.
    let _ = client.read_body_or_idle(true).await;
    let gone = gone_error();
    let half_closed = match client {
        // HTTP/1.0 has no interim responses, which tell a client that waits from one that has left.
        ServerSession::H1(session) => {
            session.is_half_closed() && session.req_header().version >= Version::HTTP_11
        }
        _ => false,
    };
    let Some(stream) = client.stream().filter(|_| half_closed).and_then(HeaderTimeoutStream::of) else {
        return ClientEnd::Gone(gone);
    };
    if !stream.is_probed() {
        return ClientEnd::HalfClosed;
    }
    until_reset(stream.get_socket_digest()).await;
    ClientEnd::Gone(gone)
}

/// Resolves when a connection was reset. A connection without a state counts as reset.
async fn until_reset(socket: Option<Arc<SocketDigest>>) {
    let mut wait = FIRST_CHECK;
    while let Some(state) = socket.as_ref().and_then(|socket| socket.tcp_info())
        && state.tcpi_state != TCP_CLOSE
    {
        sleep(wait).await;
        wait = (wait * 2).min(LAST_CHECK);
    }
}

/// Finds out whether a client that has closed its side is still there, if no response was begun: writes it an interim
/// response, which every client of HTTP/1.1 skips. If it has left, its reset follows.
pub async fn probe_client(client: &mut ServerSession) {
    if !is_head_sent(client) {
        // A failure shows in the state of the connection.
        let _ = client.write_continue_response().await;
        on_client_probed(client);
    }
}

/// Records that something was written to a client that has closed its side.
pub fn on_client_probed(client: &ServerSession) {
    if let Some(stream) = client.stream().and_then(HeaderTimeoutStream::of) {
        stream.mark_probed();
    }
}

/// Resolves when the client has left. A client that only sends nothing more has not.
pub async fn client_gone(client: &mut ServerSession) -> ApiError {
    if let ClientEnd::Gone(error) = client_end(client).await {
        return error;
    }
    probe_client(client).await;
    let stream = client.stream().and_then(HeaderTimeoutStream::of);
    until_reset(stream.and_then(|stream| stream.get_socket_digest())).await;
    gone_error()
}

fn gone_error() -> ApiError {
    ApiError::new(ErrorKind::ClientGone, "The client closed the connection.")
}

/// Runs `work` until it is done or the client disconnects.
///
/// # Errors
/// Returns [`ErrorKind::ClientGone`] if the client disconnects first.
pub async fn run_while_connected<T>(
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
pub async fn write(
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
