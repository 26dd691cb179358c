//! Reading a provider's body: pieces that are already there are gathered into one, so that a burst of frames costs one
//! write instead of many. What is compressed is decoded here, a bounded piece at a time.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::client::HttpSession;
use pingora::{Error, ErrorType};

use super::coalesce::CoalescingStream;
use super::encoding::{DecodeError, Decoder};
use super::response::MAX_ERROR_BODY;

/// What is gathered into one write at most. A fast provider must not keep the first byte from the client.
const GATHER: usize = 64 * 1024;
/// What is gathered at most of a document that is collected whole anyway.
const GATHER_WHOLE: usize = 256 * 1024;
/// What is decoded at a time, in bytes.
const DECODED: usize = 256 * 1024;
/// Type of the error of a body that is not what its encoding says.
pub(super) const UNDECODABLE: &str = "UndecodableAnswer";
/// The size line and the line end of an HTTP/1 chunk.
const CHUNK_FRAMING: usize = 16;

/// What was read of a body.
pub(super) enum Read {
    Piece(Bytes),
    Last(Bytes),
    /// What was complete before the fault, and the fault.
    Broken(Bytes, Box<Error>),
}

/// See the module.
pub(super) struct Reader {
    gathered: BytesMut,
    streaming: bool,
    waited: bool,
    decoding: Option<Box<Decoding>>,
}

/// A compressed body that is read.
struct Decoding {
    decoder: Box<Decoder>,
    /// Of an error body: how much more of it is of interest, in bytes. It tells nothing where it cannot be decoded.
    left: Option<usize>,
    /// How reading has ended, while some of what was read is not decoded.
    end: Option<Ending>,
}

enum Ending {
    Last,
    Broken(Box<Error>),
}

impl Reader {
    /// `streaming` says that what is read leaves for the client at once.
    pub(super) fn new(streaming: bool) -> Self {
        Reader { gathered: BytesMut::new(), streaming, waited: false, decoding: None }
    }

    /// The same for a body that is compressed, if there is a decoder; of an error's no more than its beginning is
    /// decoded.
    pub(super) fn decoding(mut self, decoder: Option<Box<Decoder>>, error: bool) -> Self {
        let left = error.then_some(MAX_ERROR_BODY);
        self.decoding = decoder.map(|decoder| Box::new(Decoding { decoder, left, end: None }));
        self
    }

    /// Whether nothing had been there when the last read began.
    pub(super) fn has_waited(&self) -> bool {
        self.waited
    }

    /// Cancel-safe: what was gathered stays.
    pub(super) async fn read(&mut self, upstream: &mut HttpSession) -> Read {
        if self.decoding.is_none() {
            return self.gather(upstream).await;
        }
        if self.decoding.as_ref().is_some_and(|decoding| decoding.decoder.is_pending()) {
            // A few bytes may stand for gigabytes, and others have their turn between two pieces of these.
            self.waited = false;
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

    /// The next pieces as they come.
    async fn gather(&mut self, upstream: &mut HttpSession) -> Read {
        let mut step = self.first(upstream).await;
        loop {
            let grown = match step {
                Next::Appended(length) => length,
                // HTTP/2 hands its frames over; most of the time there is only one.
                Next::Whole(whole) if self.gathered.is_empty() && self.streaming => {
                    return single(upstream, whole);
                }
                Next::Whole(whole) => {
                    self.gathered.extend_from_slice(&whole);
                    whole.len()
                }
                Next::End => return Read::Last(self.take()),
                Next::Broken(error) => return Read::Broken(self.take(), error),
            };
            match done(upstream) {
                Ok(false) => {}
                Ok(true) => return Read::Last(self.take()),
                Err(error) => return Read::Broken(self.take(), error),
            }
            if self.is_enough(upstream, grown) {
                return Read::Piece(self.take());
            }
            let more = tokio::task::unconstrained(next(upstream, &mut self.gathered));
            match poll_now(more) {
                None => return Read::Piece(self.take()),
                Some(next) => step = next,
            }
        }
    }

    /// The first step, which may have to wait.
    async fn first(&mut self, upstream: &mut HttpSession) -> Next {
        self.waited = false;
        let Reader { gathered, waited, .. } = self;
        let mut first = std::pin::pin!(next(upstream, gathered));
        std::future::poll_fn(|cx| {
            let polled = first.as_mut().poll(cx);
            *waited |= polled.is_pending();
            polled
        })
        .await
    }

    /// Whether to stop looking for more: enough is gathered, or the last read brought this piece and nothing else.
    fn is_enough(&self, upstream: &HttpSession, grown: usize) -> bool {
        if !self.streaming {
            return self.gathered.len() >= GATHER_WHOLE;
        }
        let last_read = upstream.stream().and_then(CoalescingStream::of).map(CoalescingStream::last_read);
        self.gathered.len() >= GATHER || last_read.is_some_and(|read| grown + CHUNK_FRAMING >= read)
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
        self.decoder.push(piece);
    }

    /// The next decoded piece, or the end; nothing where more must be read first.
    fn next(&mut self) -> Option<Read> {
        let mut piece = Bytes::new();
        if self.decoder.is_pending() {
            match self.decoder.next(self.left.map_or(DECODED, |left| left.min(DECODED))) {
                Ok(decoded) => piece = decoded,
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
                Ending::Last => Read::Last(piece),
                Ending::Broken(error) => Read::Broken(piece, error),
            });
        }
        (!piece.is_empty()).then_some(Read::Piece(piece))
    }
}

fn undecodable(error: DecodeError) -> Box<Error> {
    Error::because(ErrorType::Custom(UNDECODABLE), "while decoding an answer", error).into_up()
}

fn single(upstream: &mut HttpSession, whole: Bytes) -> Read {
    match done(upstream) {
        Ok(false) => Read::Piece(whole),
        Ok(true) => Read::Last(whole),
        Err(error) => Read::Broken(whole, error),
    }
}

/// One step of reading.
enum Next {
    /// An HTTP/1 piece of this length was appended to what is gathered.
    Appended(usize),
    /// An HTTP/2 frame.
    Whole(Bytes),
    End,
    Broken(Box<Error>),
}

async fn next(upstream: &mut HttpSession, gathered: &mut BytesMut) -> Next {
    if let HttpSession::H1(h1) = upstream {
        loop {
            match h1.read_body_ref().await {
                // The head of the last chunk, before its trailers.
                Ok(Some([])) => {}
                Ok(Some(piece)) => {
                    gathered.extend_from_slice(piece);
                    return Next::Appended(piece.len());
                }
                Ok(None) => return Next::End,
                Err(error) => return Next::Broken(error.into_up()),
            }
        }
    }
    match upstream.read_response_body().await {
        Ok(Some(piece)) if piece.is_empty() => Next::Appended(0),
        Ok(Some(piece)) => Next::Whole(piece),
        Ok(None) => Next::End,
        Err(error) => Next::Broken(error.into_up()),
    }
}

/// Whether the body is complete. An HTTP/2 stream that was reset looks complete until it is asked.
fn done(upstream: &mut HttpSession) -> pingora::Result<bool> {
    match upstream {
        HttpSession::H2(h2) => h2.check_response_end_or_error().map_err(|error| error.into_up()),
        other => Ok(other.response_done()),
    }
}

/// Polls a future once.
fn poll_now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
