//! Connection that carries one exchange with a provider: HTTP/1.1, a stream of HTTP/2, or a WebSocket.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::v2::client::Http2Session;
use smallvec::SmallVec;

use super::provider_http1::{BodyRead, Http1Exchange};
use super::provider_socket::conversation::SocketConversation;
use super::provider_socket::session::ProviderSocket;

/// Largest slice of a request body in one write, in bytes. The write time-out applies to one slice.
pub(super) const WRITE_SLICE: usize = 128 * 1024;

/// Pieces of a request body.
pub type RequestPieces = SmallVec<[Bytes; 2]>;

/// Connection that carries one exchange with a provider.
pub enum ProviderSession {
    /// A connection of HTTP/1.
    Http1(Http1Exchange),
    /// A stream of an HTTP/2 connection.
    Http2(Box<Http2Session>),
    /// A WebSocket.
    Socket(ProviderSocket),
}

/// Result of one step of reading.
pub enum ReadStep {
    /// Data was appended to the buffer: `length` bytes, of `received` bytes that came from the connection at once.
    Appended {
        /// Bytes of the body.
        length: usize,
        /// Bytes that arrived with them.
        received: usize,
    },
    /// A piece of its own: a frame of HTTP/2, or events of a WebSocket.
    Whole(Bytes),
    /// The body has ended.
    End,
}

impl ProviderSession {
    /// Sets the time-out of a write. Reads are bounded by the timers of the exchange.
    pub fn set_write_timeout(&mut self, timeout: Duration) {
        match self {
            ProviderSession::Http1(http1) => http1.set_write_timeout(timeout),
            ProviderSession::Http2(http2) => {
                http2.read_timeout = None;
                http2.write_timeout = Some(timeout);
            }
            ProviderSession::Socket(socket) => socket.set_write_timeout(timeout),
        }
    }

    /// Writes the request. Over a WebSocket it is one message, without the items of its `conversation` that the provider
    /// has; the handshake had the headers.
    ///
    /// # Errors
    /// Returns an error if the connection does not take it.
    pub async fn write_request(
        &mut self,
        mut head: Box<RequestHeader>,
        pieces: RequestPieces,
        conversation: Option<SocketConversation>,
    ) -> pingora::Result<()> {
        match self {
            ProviderSession::Http1(http1) => http1.write_request(head, pieces).await,
            ProviderSession::Http2(http2) => {
                // HTTP/2 carries the host in `:authority` (RFC 9113, section 8.3.1).
                head.set_version(http::Version::HTTP_2);
                head.remove_header(&header::HOST);
                http2.write_request_header(head, pieces.is_empty())?;
                let last = pieces.len().saturating_sub(1);
                for (index, mut piece) in pieces.into_iter().enumerate() {
                    loop {
                        let slice = piece.split_to(WRITE_SLICE.min(piece.len()));
                        let is_end = index == last && piece.is_empty();
                        http2.write_request_body(slice, is_end).await?;
                        if piece.is_empty() {
                            break;
                        }
                    }
                }
                Ok(())
            }
            ProviderSession::Socket(socket) => socket.send_create(&pieces, conversation).await,
        }
    }

    /// Reads the head of the next response, an interim one too.
    ///
    /// # Errors
    /// Returns an error if the connection ends before, or the head is invalid.
    pub async fn read_response_head(&mut self) -> pingora::Result<()> {
        match self {
            ProviderSession::Http1(http1) => http1.read_head().await,
            ProviderSession::Http2(http2) => http2.read_response_header().await,
            ProviderSession::Socket(socket) => socket.read_response_header().await,
        }
    }

    /// Returns the head that was read last; `None` if none was read, or it was taken.
    pub fn response_head(&self) -> Option<&ResponseHeader> {
        match self {
            ProviderSession::Http1(http1) => http1.head(),
            ProviderSession::Http2(http2) => http2.response_header(),
            ProviderSession::Socket(socket) => socket.response_header(),
        }
    }

    /// Takes the head that was read last; `None` if none was read.
    pub fn take_response_head(&mut self) -> Option<Box<ResponseHeader>> {
        match self {
            ProviderSession::Http1(http1) => http1.take_head(),
            other => other.response_head().map(|head| Box::new(head.clone())),
        }
    }

    /// Reads the next data of the body, to the end of `out` if it can choose. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if the connection ends before the body, or its framing is invalid.
    pub async fn read_body(&mut self, out: &mut BytesMut) -> pingora::Result<ReadStep> {
        let piece = match self {
            ProviderSession::Http1(http1) => {
                return Ok(match http1.read_body(out).await? {
                    BodyRead::Data { length, received } => ReadStep::Appended { length, received },
                    BodyRead::End => ReadStep::End,
                });
            }
            ProviderSession::Http2(http2) => http2.read_response_body().await?,
            ProviderSession::Socket(socket) => socket.read_response_body().await?,
        };
        Ok(match piece {
            // An empty DATA frame may carry the end of the stream, which `is_complete` finds.
            Some(piece) if piece.is_empty() => ReadStep::Appended { length: 0, received: usize::MAX },
            Some(piece) => ReadStep::Whole(piece),
            None => ReadStep::End,
        })
    }

    /// Returns whether the body is complete.
    ///
    /// # Errors
    /// Returns the error of a stream of HTTP/2 that was reset, which looks complete otherwise.
    pub fn is_complete(&mut self) -> pingora::Result<bool> {
        match self {
            ProviderSession::Http1(http1) => Ok(http1.is_complete()),
            ProviderSession::Http2(http2) => http2.check_response_end_or_error(),
            ProviderSession::Socket(socket) => Ok(socket.response_finished()),
        }
    }

    /// Whether a byte of the response has arrived, on a connection that one exchange uses at a time.
    pub fn has_response(&self) -> bool {
        matches!(self, ProviderSession::Http1(http1) if http1.has_response())
    }
}
