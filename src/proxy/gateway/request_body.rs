//! Reading of request bodies: size limit, time-outs, minimum rate, memory budget and content decoding.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, header};
use pingora::ErrorType;

use super::context::Context;
use super::request_encoding::{RequestDecoder, content_coding, too_large};
use crate::Client;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind};
use driver::body_memory::MemoryPermit;
use driver::chunks::Misframed;
use driver::encoding::ContentCoding;
use driver::yielding::TransferTurn;

/// Minimum rate of a request body in bytes per second, once it has taken longer than two of its time-outs. Below that of
/// the slowest mobile networks, and above what holds requests open cheaply: nginx, hyper and HAProxy have none, Apache's
/// mod_reqtimeout 500 bytes per second.
const MIN_BODY_RATE: u64 = 8 * 1024;

impl Gateway {
    /// Reads the whole request body, at most `limit` decoded bytes, and passes each decoded piece to `take`, which
    /// returns the number of bytes that it holds. Returns the memory permit of the body, `None` for a small one.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnsupportedEncoding`] for an unsupported content coding, [`ErrorKind::BodyTooLarge`] beyond
    /// `limit`, [`ErrorKind::BodyTimeout`] for a slow client, [`ErrorKind::Overloaded`] if the memory budget is
    /// exhausted, [`ErrorKind::InvalidField`] for invalid framing or compressed data, and the errors of `take`.
    pub(crate) async fn read_pieces(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        limit: usize,
        mut take: impl FnMut(Bytes) -> Result<usize, ApiError>,
    ) -> Result<Option<MemoryPermit>, ApiError> {
        let head = client.req_header();
        let coding = content_coding(&head.headers)?;
        let most =
            if coding == ContentCoding::Identity { limit } else { RequestDecoder::max_received(limit) };
        if announced_length(&head.headers).is_some_and(|length| length > most as u64) {
            return Err(too_large(limit));
        }
        let expects = head.headers.get(header::EXPECT).is_some_and(|value| {
            value.as_bytes().eq_ignore_ascii_case(b"100-continue") && head.version == http::Version::HTTP_11
        });
        if expects {
            // Pingora does not send "100 Continue" by itself; a client such as curl would wait a second for it.
            let keep = client.get_keepalive();
            client.write_continue_response().await.map_err(|_| disconnect_error())?;
            // Pingora disables keep-alive for anything that is written before the end of the body. Restore it.
            client.set_keepalive(keep);
        }
        // Boxed, so that the future of a request without a coding does not become larger.
        let mut decoding =
            RequestDecoder::new(coding, limit)?.map(|decoder| Box::new(Decoding::new(decoder)));
        let (mut received, mut permit) = (0, None);
        let begun = Instant::now();
        let mut turn = TransferTurn::default();
        let read = loop {
            match read_piece(client, self.limits.body_timeout).await {
                Ok(None) => break Ok(()),
                Ok(Some(piece)) if received + piece.len() > most => break Err(too_large(limit)),
                Ok(Some(piece)) => {
                    let length = piece.len();
                    received += length;
                    let taken = match &mut decoding {
                        Some(decoding) => {
                            decoding.decoder.push(piece);
                            Box::pin(self.decode_pieces(decoding, &mut permit, &mut take)).await
                        }
                        None => take(piece).and_then(|held| self.grow(&mut permit, held.max(received))),
                    };
                    if let Err(error) = taken {
                        break Err(error);
                    }
                    // Each piece has its own time-out. Without a minimum rate, one byte at a time could hold a request
                    // open for hours.
                    let earned = Duration::from_secs(received as u64 / MIN_BODY_RATE);
                    if begun.elapsed() > self.limits.body_timeout * 2 + earned {
                        break Err(slow_body());
                    }
                    turn.on_moved(length).await;
                }
                Err(error) => {
                    // The position of the next request in the byte stream is unknown after a failed read.
                    client.set_keepalive(None);
                    break Err(body_error(&error));
                }
            }
        };
        let read = match &mut decoding {
            Some(decoding) => read.and_then(|()| take(decoding.decoder.finish()?).map(drop)),
            None => read,
        };
        let length = decoding.as_ref().map_or(received, |decoding| decoding.decoder.decoded());
        ctx.record.request_bytes = length as u64;
        read.map(|()| permit)
    }

    /// Decodes what was received, passes it to `take`, and counts it and the decoder in the memory budget.
    async fn decode_pieces(
        &self,
        decoding: &mut Decoding,
        permit: &mut Option<MemoryPermit>,
        take: &mut impl FnMut(Bytes) -> Result<usize, ApiError>,
    ) -> Result<(), ApiError> {
        loop {
            let piece = decoding.decoder.next_piece()?;
            self.grow(permit, decoding.decoder.decoded())?;
            self.grow(&mut decoding.permit, decoding.decoder.memory())?;
            let Some(piece) = piece else { return Ok(()) };
            take(piece)?;
            // A few received bytes may decode to megabytes; the worker's other tasks have their turn in between.
            tokio::task::yield_now().await;
        }
    }

    /// Raises a memory permit to `bytes`.
    fn grow(&self, permit: &mut Option<MemoryPermit>, bytes: usize) -> Result<(), ApiError> {
        if self.memory.grow(permit, bytes) { Ok(()) } else { Err(ApiError::overloaded()) }
    }
}

/// Returns the length that the header announces. `None` if it announces none.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the length of a body that is not compressed, if the header announces it.
pub(super) fn plain_length(headers: &HeaderMap) -> Option<usize> {
    let length = announced_length(headers).filter(|_| !headers.contains_key(header::CONTENT_ENCODING))?;
    usize::try_from(length).ok()
}

/// Decoder of a compressed body, with the permit for its own memory. `None` while that is small.
struct Decoding {
    decoder: RequestDecoder,
    permit: Option<MemoryPermit>,
}

impl Decoding {
    fn new(decoder: RequestDecoder) -> Self {
        Decoding { decoder, permit: None }
    }
}

/// Reads the next piece of the body. `None` at its end.
async fn read_piece(client: &mut Client, wait: Duration) -> pingora::Result<Option<Bytes>> {
    if !client.is_http2() {
        return client.read_request_body().await;
    }
    // Pingora applies its read time-out to HTTP/1 only.
    match tokio::time::timeout(wait, client.read_request_body()).await {
        Ok(read) => read,
        Err(_) => Err(pingora::Error::new_down(ErrorType::ReadTimedout)),
    }
}

fn slow_body() -> ApiError {
    ApiError::new(ErrorKind::BodyTimeout, "The request body did not arrive in time.")
}

fn disconnect_error() -> ApiError {
    ApiError::new(ErrorKind::ClientGone, "The client closed the connection.")
}

fn body_error(error: &pingora::Error) -> ApiError {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    if io.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<Misframed>()) {
        return ApiError::new(ErrorKind::InvalidField, "The framing of the request body is invalid.");
    }
    match error.etype().as_str() {
        "ReadTimedout" => slow_body(),
        // Pingora gives the last two as custom error names when it reads chunks.
        "InvalidHTTPHeader" | "InvalidChunk" | "InvalidTrailerEnd" => {
            ApiError::new(ErrorKind::InvalidField, "The framing of the request body is invalid.")
        }
        _ => disconnect_error(),
    }
}
