//! Response bodies of the gateway's own requests: read piece by piece or collected within a bound.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};
use tokio::time::{Instant, timeout_at};

use codec::provider::Timeouts;
use driver::connection::Connections;
use driver::encoding::ContentDecoder;
use driver::peer::Upstream;
use driver::provider_session::ProviderSession;
use driver::reader::{MAX_ERROR_BODY, Read, ResponseReader};
use driver::throughput::Throughput;

/// Pool to which a connection returns, and its peer there.
type PoolEntry = (Arc<Connections>, Arc<Upstream>);

/// Open response: the head has been read, the body has not. The connection returns to its pool when the body has been
/// read to its end, and is closed if the response is dropped before.
pub(crate) struct OpenResponse {
    /// `None` once the body has been read to its end.
    session: Option<ProviderSession>,
    pool: Option<PoolEntry>,
    reader: ResponseReader,
    until: Instant,
    timeouts: Timeouts,
    rate: Option<Throughput>,
    headers: HeaderMap,
    /// Beginning of the body that was read ahead, and the fault that ended it; both are delivered by the next reads.
    ahead: (Bytes, Option<BodyError>),
    pub(crate) status: u16,
    /// `content-length` in bytes; `None` if it is absent or not a number.
    pub(crate) length: Option<u64>,
}

/// Reason why a response body breaks off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// No byte for `timeouts.idle`, or the deadline of the request has passed.
    #[error("no data in time")]
    Timeout,
    /// The body arrives at less than `timeouts.min_rate`.
    #[error("too slow")]
    LowRate,
    #[error("{0}")]
    Broken(Box<pingora::Error>),
}

impl OpenResponse {
    /// Creates the response of a connection whose response head has been read. `None` if it has not. Without a `pool`
    /// the connection is closed at the end of the body. `until` is the deadline of the whole request.
    pub(super) fn new(
        mut session: ProviderSession,
        pool: Option<PoolEntry>,
        timeouts: Timeouts,
        until: Instant,
    ) -> Option<Self> {
        let head = http::response::Parts::from(*session.take_response_head()?);
        let mut response = OpenResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            ahead: (Bytes::new(), None),
            length: None,
            session: Some(session),
            pool,
            reader: ResponseReader::new(true),
            until,
            timeouts,
            rate: None,
        };
        let length = response.text(&header::CONTENT_LENGTH);
        response.length = length.and_then(|length| length.trim().parse().ok());
        Some(response)
    }

    /// Whether the status is 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the value of a header; `None` if it is absent or not visible ASCII.
    pub(crate) fn text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Reads an error body of at most [`MAX_ERROR_BODY`] bytes and returns it; the next reads deliver it again. Empty for
    /// a compressed body, which only its reader can decode.
    pub(super) async fn read_ahead(&mut self) -> &[u8] {
        if self.headers.contains_key(header::CONTENT_ENCODING) {
            return &[];
        }
        let mut body = BytesMut::new();
        let fault = loop {
            match self.next().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            if body.len() >= MAX_ERROR_BODY {
                break None;
            }
        };
        self.ahead = (body.freeze(), fault);
        &self.ahead.0
    }

    /// Reads the body in larger pieces, for a body that is not forwarded at once. Only before the first read.
    pub(super) fn read_whole(&mut self) {
        self.reader = ResponseReader::new(false);
    }

    /// Reads the body in larger pieces, undoes its content encoding, and enforces `timeouts.min_rate`. Of an `error`
    /// body only the first bytes are decoded. Only before the first read.
    pub(super) fn read_decoded(&mut self, decoder: Option<ContentDecoder>, error: bool) {
        self.reader = ResponseReader::new(false).decoding(decoder.map(Box::new), error);
        self.rate = Throughput::new(&self.timeouts, false);
    }

    /// Reads the next piece of the body, never an empty one. `None` at its end.
    ///
    /// # Errors
    /// Returns [`BodyError`] if the body breaks off or does not arrive in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if !self.ahead.0.is_empty() {
            return Ok(Some(std::mem::take(&mut self.ahead.0)));
        }
        if let Some(fault) = self.ahead.1.take() {
            return Err(fault);
        }
        let mut silent_at = Instant::now() + self.timeouts.idle;
        while let Some(session) = &mut self.session {
            let until = silent_at.min(self.until);
            // Also wakes at the end of a rate window: a body that stops delivers no piece that would be checked.
            let check =
                self.rate.as_ref().and_then(Throughput::until).map_or(until, |check| check.min(until));
            // Cancel-safe: when the check fires, the reader keeps what it has gathered.
            let Ok(read) = timeout_at(check, self.reader.read(session)).await else {
                if Instant::now() >= until {
                    return Err(BodyError::Timeout);
                }
                self.check_rate(0)?;
                continue;
            };
            silent_at = Instant::now() + self.timeouts.idle;
            let piece = match read {
                Read::Piece(piece) => piece,
                Read::Last(piece) => {
                    self.release();
                    piece
                }
                // The bytes before the fault are dropped: a body that is cut short is of no use to the callers.
                Read::Broken(_, error) => return Err(BodyError::Broken(error)),
            };
            if !piece.is_empty() {
                self.check_rate(piece.len())?;
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Counts received bytes. Returns an error if a rate window has ended with too few.
    fn check_rate(&mut self, bytes: usize) -> Result<(), BodyError> {
        // Without a session the body is complete: its last window is cut short and must not fail it.
        let Some(rate) = self.rate.as_mut().filter(|_| self.session.is_some()) else { return Ok(()) };
        rate.on_received(bytes, false);
        if rate.is_too_low() { Err(BodyError::LowRate) } else { Ok(()) }
    }

    /// Ends the response: its connection returns to the pool, or is closed if it has none.
    fn release(&mut self) {
        if let (Some(session), Some((connections, peer))) = (self.session.take(), self.pool.take()) {
            connections.release(session, &peer);
        }
    }

    /// Collects the rest of the body. Stops without an error after `truncate_at` bytes, which leaves the connection to
    /// be closed. `admit` is called before a piece is kept, with the bytes collected so far and those of the piece; its
    /// error ends the read. The buffer starts with `capacity` bytes.
    ///
    /// # Errors
    /// Returns the error of `admit` and the errors of [`OpenResponse::next`].
    pub(super) async fn collect<E: From<BodyError>>(
        &mut self,
        capacity: usize,
        truncate_at: usize,
        mut admit: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let mut body = BytesMut::with_capacity(capacity);
        while let Some(piece) = self.next().await? {
            admit(body.len(), piece.len())?;
            let room = truncate_at.saturating_sub(body.len()).min(piece.len());
            if self.session.is_none() && body.is_empty() && room == piece.len() {
                // Fast path: a response that arrives in one piece is not copied.
                return Ok(piece);
            }
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            if body.len() == truncate_at {
                break;
            }
        }
        Ok(body.freeze())
    }
}
