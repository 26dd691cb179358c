//! One exchange on an HTTP/1 connection to a provider.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType, OrErr as _, Result, RetryType};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::body::BodyFraming;
use super::head::{keeps_alive, take_head};
use crate::provider_session::WRITE_SLICE;
use crate::yielding::TransferTurn;

/// Size of the buffer for reads, one for each thread, in bytes: a provider's burst arrives in one read.
pub(crate) const READ_BUFFER: usize = 64 * 1024;
/// Bytes of a body with a length that are still to come, from which it is read to its place without that buffer.
const LARGE_REST: u64 = 16 * 1024;
/// Largest such read, in bytes.
const LARGE_READ: u64 = 256 * 1024;
/// Largest beginning of a body that is copied behind the head, in bytes, so that both leave in one write.
const COPIED: usize = 16 * 1024;

/// Room for a request head, in bytes: most are shorter, and have a small body behind them.
const WIRE_HEAD: usize = 2 * 1024;
/// Error type of a body whose chunks are invalid. Pingora has the same.
const INVALID_CHUNK: ErrorType = ErrorType::Custom("InvalidChunk");

thread_local! {
    /// Bytes of the read in progress. A connection that waits has no buffer of its own.
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER]);
}

/// One request and its response on an HTTP/1 connection.
pub struct Http1Exchange {
    stream: Stream,
    write_timeout: Duration,
    /// The request was `HEAD`, whose response has no body.
    is_head: bool,
    /// The request said `connection: close`.
    is_last: bool,
    /// Whether a byte of the response has arrived.
    has_response: bool,
    /// Bytes of a head that is not complete, and of the body behind it.
    received: BytesMut,
    /// Number of those bytes that were searched for a complete head.
    searched: usize,
    head: Option<Box<ResponseHeader>>,
    /// The provider keeps the connection open after the response.
    kept: bool,
    /// `None` before the head of the final response.
    framing: Option<BodyFraming>,
    /// Bytes arrived behind the end of the body.
    has_excess: bool,
}

/// Result of a read of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// Data was appended: `length` bytes, of `received` bytes that came from the connection at once.
    Data {
        /// Bytes of the body.
        length: usize,
        /// Bytes that arrived with them.
        received: usize,
    },
    /// The body has ended.
    End,
}

impl Http1Exchange {
    /// Begins an exchange on an open connection.
    pub fn new(stream: Stream) -> Self {
        Http1Exchange {
            stream,
            write_timeout: Duration::MAX,
            is_head: false,
            is_last: false,
            has_response: false,
            received: BytesMut::new(),
            searched: 0,
            head: None,
            kept: false,
            framing: None,
            has_excess: false,
        }
    }

    /// Sets the time-out of a write of up to [`WRITE_SLICE`] bytes.
    pub fn set_write_timeout(&mut self, timeout: Duration) {
        self.write_timeout = timeout;
    }

    /// Whether a byte of the response has arrived.
    pub fn has_response(&self) -> bool {
        self.has_response
    }

    /// Writes the request. The head and the beginning of the body leave in one write.
    ///
    /// # Errors
    /// Returns [`ErrorType::WriteTimedout`] or [`ErrorType::WriteError`] if the connection does not take it.
    pub async fn write_request(
        &mut self,
        head: Box<RequestHeader>,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<()> {
        self.is_head = head.method == Method::HEAD;
        self.is_last = closes(&head);
        let mut first = wire_head(&head);
        // Not kept: a stream would hold its request's headers until its end.
        drop(head);
        let mut turn = TransferTurn::default();
        for mut piece in pieces {
            while !piece.is_empty() {
                let slice = piece.split_to(WRITE_SLICE.min(piece.len()));
                turn.on_moved(slice.len()).await;
                if slice.len() <= COPIED && !first.is_empty() {
                    first.extend_from_slice(&slice);
                } else {
                    self.write(&first, &slice).await?;
                    first = BytesMut::new();
                }
                if first.len() > COPIED {
                    self.write(&first, &[]).await?;
                    first = BytesMut::new();
                }
            }
        }
        if !first.is_empty() {
            self.write(&first, &[]).await?;
        }
        self.stream.flush().await.or_err(ErrorType::WriteError, "while flushing a request")
    }

    /// Writes two slices, in one call if the connection takes them.
    async fn write(&mut self, first: &[u8], second: &[u8]) -> Result<()> {
        let written = tokio::time::timeout(self.write_timeout, write_both(&mut self.stream, first, second));
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::because(ErrorType::WriteError, "while writing a request", error)),
            Err(_) => Error::e_explain(ErrorType::WriteTimedout, "while writing a request"),
        }
    }

    /// Reads the head of the next response, an interim one too. Cancel-safe.
    ///
    /// # Errors
    /// Returns [`ErrorType::ConnectionClosed`] or [`ErrorType::ReadError`] if the connection ends before, and
    /// [`ErrorType::InvalidHTTPHeader`] if the head is invalid.
    pub async fn read_head(&mut self) -> Result<()> {
        loop {
            if !self.received.is_empty()
                && let Some(head) = take_head(&mut self.received, &mut self.searched)?
            {
                if !head.status.is_informational() {
                    self.framing = Some(BodyFraming::of(&head, self.is_head));
                    self.kept = !self.is_last && keeps_alive(&head);
                }
                self.head = Some(head);
                return Ok(());
            }
            let length = std::future::poll_fn(|cx| {
                self.poll_read(cx, |exchange, bytes| exchange.received.extend_from_slice(bytes))
            });
            match length.await {
                Ok(0) => {
                    // One from the pool may have been closed while it was idle: the request may be sent again.
                    let mut error = closed("before a response head");
                    error.retry = RetryType::ReusedOnly;
                    return Err(error);
                }
                Ok(_) => {}
                Err(error) => return Err(read_error(error, "while reading a response head")),
            }
        }
    }

    /// Returns the head that was read last; `None` if none was read, or it was taken.
    pub fn head(&self) -> Option<&ResponseHeader> {
        self.head.as_deref()
    }

    /// Takes the head that was read last.
    pub fn take_head(&mut self) -> Option<Box<ResponseHeader>> {
        self.head.take()
    }

    /// Appends the next data of the body to `out`, never nothing. Cancel-safe.
    ///
    /// # Errors
    /// Returns [`ErrorType::ConnectionClosed`] or [`ErrorType::ReadError`] if the connection ends before the body, and
    /// [`ErrorType::InvalidHTTPHeader`] if its framing is invalid.
    pub async fn read_body(&mut self, out: &mut BytesMut) -> Result<BodyRead> {
        std::future::poll_fn(|cx| self.poll_body(cx, out)).await
    }

    /// Whether the body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.framing.as_ref().is_some_and(BodyFraming::is_complete)
    }

    /// Returns the connection for another exchange. `None` if it cannot carry one: it is closed then.
    pub fn into_reusable(self) -> Option<Stream> {
        let ended = self.framing.as_ref().is_some_and(|framing| framing.is_complete() && framing.has_end());
        // More than the response: nothing that follows could be told apart.
        let clean = !self.has_excess && self.received.is_empty();
        (ended && clean && self.kept).then_some(self.stream)
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<BodyRead>> {
        let what = "while reading a response";
        loop {
            if self.is_complete() {
                return Poll::Ready(Ok(BodyRead::End));
            }
            let (length, received) = if !self.received.is_empty() {
                // What arrived with the head. Its memory is freed with it.
                let bytes = std::mem::take(&mut self.received);
                (self.decode(&bytes, out)?, bytes.len())
            } else if let Some(BodyFraming::Length(left @ LARGE_REST..)) = self.framing {
                let length =
                    ready!(self.poll_large(cx, out, left)).map_err(|error| read_error(error, what))?;
                (length, length)
            } else {
                let mut decoded = Ok(0);
                let received = ready!(self.poll_read(cx, |exchange, bytes| {
                    decoded = exchange.decode(bytes, out);
                }));
                (decoded?, received.map_err(|error| read_error(error, what))?)
            };
            if length > 0 {
                return Poll::Ready(Ok(BodyRead::Data { length, received }));
            }
            if received == 0 && !self.framing.as_mut().is_some_and(BodyFraming::close) {
                return Poll::Ready(Err(closed("before the end of a response")));
            }
        }
    }

    /// Reads to the buffer of the thread, and passes what was read to `take`. Returns its length in bytes; 0 at the end
    /// of the connection.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Self, &[u8]),
    ) -> Poll<io::Result<usize>> {
        READ.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            let bytes = buffer.filled();
            self.has_response |= !bytes.is_empty();
            take(self, bytes);
            Poll::Ready(Ok(bytes.len()))
        })
    }

    /// Reads a part of a long body to its place. `left` is the length of the rest in bytes.
    fn poll_large(&mut self, cx: &mut Context<'_>, out: &mut BytesMut, left: u64) -> Poll<io::Result<usize>> {
        let most = usize::try_from(left.min(LARGE_READ)).unwrap_or(READ_BUFFER);
        if out.capacity() - out.len() < READ_BUFFER.min(most) {
            out.reserve(most);
        }
        let mut room = out.limit(most);
        let length = ready!(std::pin::pin!(self.stream.read_buf(&mut room)).poll(cx))?;
        self.framing = Some(BodyFraming::Length(left.saturating_sub(length as u64)));
        Poll::Ready(Ok(length))
    }

    /// Removes the framing of received bytes, and returns the length of their data.
    fn decode(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<usize> {
        let Some(framing) = &mut self.framing else {
            return Error::e_explain(ErrorType::InternalError, "a body was read before its head");
        };
        let before = out.len();
        let taken = framing.decode(bytes, out).or_err(INVALID_CHUNK, "while reading a response")?;
        self.has_excess |= taken < bytes.len();
        Ok(out.len() - before)
    }
}

/// Error of a connection that the provider has closed.
fn closed(when: &'static str) -> Box<Error> {
    Error::explain(ErrorType::ConnectionClosed, when)
}

fn read_error(error: io::Error, what: &'static str) -> Box<Error> {
    // Errors of the system are typical of a connection that was closed while it was idle; others are those of TLS.
    let by_system = error.raw_os_error().is_some();
    let mut error = Error::because(ErrorType::ReadError, what, error);
    if by_system {
        error.retry = RetryType::ReusedOnly;
    }
    error
}

/// Whether the client of the connection wants it closed after the response.
fn closes(head: &RequestHeader) -> bool {
    head.headers.get_all(header::CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// Returns the text of a request head. Its parts have no line end: Pingora's types refuse them (`tests/pingora_facts`).
fn wire_head(head: &RequestHeader) -> BytesMut {
    let mut text = BytesMut::with_capacity(WIRE_HEAD);
    for part in [head.method.as_str().as_bytes(), b" ", head.raw_path(), b" HTTP/1.1\r\n"] {
        text.extend_from_slice(part);
    }
    head.header_to_h1_wire(&mut text);
    text.extend_from_slice(b"\r\n");
    text
}

/// Writes two slices, in one call if the connection takes both.
async fn write_both(stream: &mut Stream, first: &[u8], second: &[u8]) -> io::Result<()> {
    if second.is_empty() {
        // One buffer is less work for the system than a list of two.
        return stream.write_all(first).await;
    }
    let mut written = 0;
    while let Some(rest) = first.get(written..).filter(|rest| !rest.is_empty()) {
        let slices = [IoSlice::new(rest), IoSlice::new(second)];
        match stream.write_vectored(&slices).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => written += length,
        }
    }
    stream.write_all(second.get(written.saturating_sub(first.len())..).unwrap_or_default()).await
}

#[cfg(test)]
mod tests;
