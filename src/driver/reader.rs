//! Reader of upstream bodies: gathers pieces that are readable already, so that a burst of frames costs one write
//! instead of many, and decodes compressed bodies, a bounded piece at a time.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType};

use super::encoding::{ContentDecoder, DecodeError};
use super::provider_http1::READ_BUFFER;
use super::provider_session::{ProviderSession, ReadStep};

/// Bytes of a stream that are gathered into one write. A fast provider must not delay the client's first byte.
const GATHER: usize = 64 * 1024;
/// Bytes that are gathered of a document that is collected whole anyway.
const GATHER_WHOLE: usize = 256 * 1024;
/// Bytes that are decoded at a time.
const DECODED: usize = 256 * 1024;
/// Maximum length of an upstream error body, in bytes. What follows is discarded.
pub const MAX_ERROR_BODY: usize = 256 * 1024;
/// Error type of a body that does not match its `Content-Encoding`.
pub const UNDECODABLE: &str = "UndecodableAnswer";
/// Bytes of the size line and the line end of an HTTP/1 chunk.
const CHUNK_FRAMING: usize = 16;

/// Result of one read.
pub enum Read {
    /// Bytes, with more to come.
    Piece(Bytes),
    /// The last bytes; maybe none.
    Last(Bytes),
    /// The bytes before the fault, and the fault.
    Broken(Bytes, Box<Error>),
}

/// Reader of one upstream body.
pub struct ResponseReader {
    gathered: BytesMut,
    streaming: bool,
    blocked: bool,
    decoding: Option<Box<Decoding>>,
}

/// State of a compressed body.
struct Decoding {
    decoder: Box<ContentDecoder>,
    /// Bytes of an error body that are still to be decoded; the rest is discarded, as is an error body that cannot be
    /// decoded. `None` for other bodies.
    left: Option<usize>,
    /// End of the compressed bytes, until all of them are decoded.
    end: Option<Ending>,
    /// Whether there were compressed bytes.
    begun: bool,
}

enum Ending {
    Last,
    Broken(Box<Error>),
}

impl ResponseReader {
    /// Creates a reader. `streaming`: what is read is forwarded to the client at once.
    pub fn new(streaming: bool) -> Self {
        ResponseReader { gathered: BytesMut::new(), streaming, blocked: false, decoding: None }
    }

    /// Adds the decoder of a compressed body. Of an error body, only the first [`MAX_ERROR_BODY`] bytes are decoded.
    pub fn decoding(mut self, decoder: Option<Box<ContentDecoder>>, error: bool) -> Self {
        let left = error.then_some(MAX_ERROR_BODY);
        self.decoding = decoder.map(|decoder| Box::new(Decoding { decoder, left, end: None, begun: false }));
        self
    }

    /// Returns whether the last read had to wait for data.
    pub fn has_blocked(&self) -> bool {
        self.blocked
    }

    /// Reads the next piece. Cancel-safe: bytes that were gathered stay in the reader.
    pub async fn read(&mut self, upstream: &mut ProviderSession) -> Read {
        if self.decoding.is_none() {
            return self.gather(upstream).await;
        }
        if self.decoding.as_ref().is_some_and(|decoding| decoding.decoder.is_pending()) {
            // A few compressed bytes may expand to gigabytes. Yield, so that other tasks run between two pieces.
            self.blocked = false;
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(read) = self.decoding.as_deref_mut().and_then(Decoding::next) {
                return read;
            }
            let read = self.gather(upstream).await;
            let Some(decoding) = &mut self.decoding else { return read };
            decoding.take(read);
        }
    }

    /// Reads pieces until no more are readable, or enough are gathered.
    async fn gather(&mut self, upstream: &mut ProviderSession) -> Read {
        let mut step = self.first(upstream).await;
        loop {
            let is_drained = match step {
                Ok(ReadStep::Appended { length, received }) => {
                    length.saturating_add(CHUNK_FRAMING) >= received && received < READ_BUFFER
                }
                // HTTP/2 delivers frames by value. Mostly there is only one, which passes without a copy.
                Ok(ReadStep::Whole(whole)) if self.gathered.is_empty() && self.streaming => {
                    return single(upstream, whole);
                }
                Ok(ReadStep::Whole(whole)) => {
                    self.gathered.extend_from_slice(&whole);
                    false
                }
                Ok(ReadStep::End) => return Read::Last(self.take()),
                Err(error) => return Read::Broken(self.take(), error.into_up()),
            };
            // Check for the end before the next read, so that the last piece and the end leave in one write.
            match is_complete(upstream) {
                Ok(false) => {}
                Ok(true) => return Read::Last(self.take()),
                Err(error) => return Read::Broken(self.take(), error),
            }
            if self.should_flush(is_drained) {
                return Read::Piece(self.take());
            }
            // Bypass Tokio's task budget: with an exhausted budget, readable data would look pending, which splits a
            // burst into many writes.
            let more = tokio::task::unconstrained(upstream.read_body(&mut self.gathered));
            match poll_now(more) {
                None => return Read::Piece(self.take()),
                Some(next) => step = next,
            }
        }
    }

    /// Reads the first piece, and notes whether it had to wait.
    async fn first(&mut self, upstream: &mut ProviderSession) -> pingora::Result<ReadStep> {
        self.blocked = false;
        let ResponseReader { gathered, blocked: waited, .. } = self;
        let mut first = std::pin::pin!(upstream.read_body(gathered));
        std::future::poll_fn(|cx| {
            let polled = first.as_mut().poll(cx);
            *waited |= polled.is_pending();
            polled
        })
        .await
    }

    /// Returns whether to stop gathering: the limit is reached, or the last read from the connection contained only this
    /// piece, so that another read would find nothing.
    fn should_flush(&self, is_drained: bool) -> bool {
        if !self.streaming {
            return self.gathered.len() >= GATHER_WHOLE;
        }
        self.gathered.len() >= GATHER || is_drained
    }

    fn take(&mut self) -> Bytes {
        self.gathered.split().freeze()
    }
}

impl Decoding {
    fn take(&mut self, read: Read) {
        let piece = match read {
            Read::Piece(piece) => piece,
            Read::Last(piece) => {
                self.end = Some(Ending::Last);
                piece
            }
            Read::Broken(piece, error) => {
                self.end = Some(Ending::Broken(error));
                piece
            }
        };
        self.begun |= !piece.is_empty();
        self.decoder.push(piece);
    }

    /// Returns the next decoded piece or the end. `None` if more must be read first.
    fn next(&mut self) -> Option<Read> {
        let mut piece = Bytes::new();
        if self.decoder.is_pending() {
            match self.decoder.next(self.left.map_or(DECODED, |left| left.min(DECODED))) {
                Ok(decoded) => piece = decoded,
                // The status of an error response is known: a fault of its coding must not replace it.
                Err(_) if self.left.is_some() => self.decoder.discard(),
                Err(error) => return Some(Read::Broken(Bytes::new(), undecodable(error))),
            }
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(piece.len());
                if *left == 0 {
                    self.decoder.discard();
                }
            }
        }
        if !self.decoder.is_pending()
            && let Some(end) = self.end.take()
        {
            return Some(match end {
                // The end of the text is missing: what was decoded may not be all of it, and was not checked.
                Ending::Last if self.begun && self.left.is_none() && !self.decoder.is_complete() => {
                    Read::Broken(piece, undecodable(DecodeError::Truncated))
                }
                Ending::Last => Read::Last(piece),
                Ending::Broken(error) => Read::Broken(piece, error),
            });
        }
        (!piece.is_empty()).then_some(Read::Piece(piece))
    }
}

/// Error of a body that does not match its `Content-Encoding`.
pub(super) fn undecodable(error: DecodeError) -> Box<Error> {
    Error::because(ErrorType::Custom(UNDECODABLE), "while decoding a response", error).into_up()
}

fn single(upstream: &mut ProviderSession, whole: Bytes) -> Read {
    match is_complete(upstream) {
        Ok(false) => Read::Piece(whole),
        Ok(true) => Read::Last(whole),
        Err(error) => Read::Broken(whole, error),
    }
}

/// Returns whether the body is complete.
fn is_complete(upstream: &mut ProviderSession) -> pingora::Result<bool> {
    upstream.is_complete().map_err(|error| error.into_up())
}

/// Polls a future once. `None` if it is pending.
fn poll_now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
