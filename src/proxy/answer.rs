//! Response forwarding: reads the provider's response and writes it to the client, piece by piece.
//!
//! The first frames of a stream may be held back in a [`PrefixBuffer`]: while the client has no frame of the response,
//! a failure can still be hidden by fallback. Signatures, responses and charges are recorded before the last bytes
//! leave. The meaning of the bytes belongs to `translate`; `response` applies it.

use std::time::Duration;

use bytes::Bytes;
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::time::Instant;

use super::burst::{self, BurstDetector};
use super::context::{Context, UpstreamResponse};
use super::exchange::{
    DrainDeadline, ExchangeOutcome, client_gone, failed_outcome, low_rate_error, shutdown_error,
    timeout_error,
};
use super::exchange_timer::ExchangeTimer;
use super::header_timeout::HeaderTimeoutStream;
use super::idle_tracker::{IdleDeadline, IdleTracker};
use super::offload::LARGE_BODY;
use super::reader::{Read, ResponseReader};
use super::reply::is_head_sent;
use super::response::BytesBeforeFault;
use super::throughput::Throughput;
use super::{Client, Gateway};
use crate::error::{ApiError, ErrorKind};
use crate::store::Settled;
use crate::translate::Exchange;
use crate::translate::verbatim::Arrival;
use crate::wire::watch::StreamEnd as Ending;
use crate::wire::{Format, chat};

/// Longest time that the head of a stream waits for the first frame, which may be an error. After that the client gets
/// the head, and an error can only be reported inside the stream.
const MAX_HOLD: Duration = Duration::from_secs(2);

impl Gateway {
    /// Forwards the response to the client. With [`ExchangeOutcome::Complete`] and [`ExchangeOutcome::UpstreamError`]
    /// the response has been read to its end, and the connection may be reused.
    pub(super) async fn forward_response(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &mut HttpSession,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut DrainDeadline<'_>,
    ) -> ExchangeOutcome {
        let end = match upstream.response_header() {
            Some(head) => self.on_response_head(head, ctx),
            None => return ExchangeOutcome::Failed(ApiError::new(ErrorKind::UpstreamBroken, BROKEN)),
        };
        if let Err(error) = end {
            return failed_outcome(ctx, &error);
        }
        // The provider has answered: this body is not sent again. A fallback encodes a new one from the retry state.
        ctx.drop_body();
        let streaming = matches!(ctx.response, UpstreamResponse::Stream(_));
        // A client that has part of a response already has a head. Otherwise the head is derived from the provider's
        // and leaves with the first frame.
        let begun = is_head_sent(client);
        let mut head = if streaming && !begun { self.stream_head(client, upstream, ctx) } else { None };
        let heartbeat = if streaming { self.limits.heartbeat } else { Duration::ZERO };
        let mut silence = IdleTracker::new(clock.timeouts.idle, heartbeat);
        let mut held = ctx
            .hold_duration()
            .filter(|_| streaming && (!begun || ctx.early_head_sent))
            .map(|span| PrefixBuffer { until: Instant::now() + span, frames: Vec::new() });
        if streaming && held.is_none() && !ctx.early_head_sent {
            // The head leaves within `HOLD`, so no early response is needed.
            clock.schedule_filler(Duration::ZERO);
        }
        let mut rate = Throughput::new(&clock.timeouts, streaming);
        let first =
            if streaming && held.is_none() { MAX_HOLD.min(clock.timeouts.idle) } else { silence.interval() };
        // While the head waits for the first frame, the rate check must not shorten the timer: its expiry sends the
        // head.
        let looked = rate.as_ref().filter(|_| !streaming || held.is_some());
        clock.set_deadline(next_check(first, held.as_ref(), looked));
        let refused = matches!(ctx.response, UpstreamResponse::Refused { .. });
        let mut reader = ResponseReader::new(streaming).decoding(ctx.decoder.take(), refused);
        let mut pace = BurstDetector::default();
        let mut received = 0;
        loop {
            if pace.is_bursting() {
                clock.pause(burst::PAUSE).await;
            }
            // Cancel-safe: `reader` keeps what it has gathered when another branch is taken.
            let read = loop {
                tokio::select! {
                    biased;
                    read = reader.read(upstream) => break read,
                    gone = client_gone(client) => return ExchangeOutcome::Failed(gone),
                    () = ended.as_mut() => return ExchangeOutcome::Failed(shutdown_error()),
                    () = clock.elapsed() => {
                        let due = silence.check();
                        if clock.is_expired() || due == IdleDeadline::IdleTimeout {
                            return ExchangeOutcome::Failed(timeout_error());
                        }
                        if rate.as_mut().is_some_and(Throughput::is_too_low) {
                            return ExchangeOutcome::Failed(low_rate_error());
                        }
                        if clock.is_due() && (held.is_some() || ctx.early_head_sent) {
                            head = None;
                            if let Some((_, mut waiting)) = ctx.split_for_send()
                                && let Err(gone) = self.send_early_keepalive(client, &mut waiting, clock).await
                            {
                                return ExchangeOutcome::Failed(gone);
                            }
                        } else if clock.is_due() {
                            // A document or an error body gets no early stream head. Re-arm, or the timer fires
                            // continuously.
                            clock.schedule_filler(self.limits.heartbeat);
                        }
                        let held_on = held.as_ref().is_some_and(|held| held.is_holding(ctx.early_head_sent));
                        let kept = match held.take_if(|_| !held_on) {
                            _ if held_on => Ok(()),
                            Some(PrefixBuffer { frames, .. }) if !frames.is_empty() => {
                                ctx.release_retry_state();
                                end_early_response(ctx, clock);
                                silence.on_sent();
                                send(client, ctx, &mut head, frames.concat().into(), false).await
                            }
                            // After an early head the exchange timer sends the filler.
                            _ if ctx.early_head_sent => Ok(()),
                            _ => {
                                if streaming {
                                    ctx.release_retry_state();
                                }
                                send_filler(client, ctx, &mut head, due, &mut silence).await
                            }
                        };
                        if let Err(error) = kept {
                            return failed_outcome(ctx, &error);
                        }
                        clock.set_deadline(next_check(silence.interval(), held.as_ref(), rate.as_ref()));
                    }
                }
            };
            silence.on_received();
            let (piece, end, fault) = match read {
                Read::Piece(piece) => (piece, false, None),
                Read::Last(piece) => (piece, true, None),
                Read::Broken(piece, error) => (piece, false, Some(error)),
            };
            let length = piece.len();
            received += length;
            // A large document is translated at its end, for milliseconds to seconds: the worker's other tasks move to
            // another thread meanwhile.
            let passed = if end && received >= LARGE_BODY && is_document(ctx) {
                let turn = tokio::select! {
                    biased;
                    turn = self.offload.acquire_for_response() => turn,
                    gone = client_gone(client) => return ExchangeOutcome::Failed(gone),
                };
                turn.run(|| self.forward_piece(piece, end, ctx))
            } else {
                self.forward_piece(piece, end, ctx)
            };
            if let Some(rate) = &mut rate {
                rate.on_received(
                    length,
                    ctx.response_in_progress().is_some_and(|passing| passing.exchange.is_partial()),
                );
            }
            let body = match passed {
                Ok(body) => body,
                // No frame of this response was forwarded: fallback is possible.
                Err(error) if held.is_some() || ctx.early_head_sent => return failed_outcome(ctx, &error),
                Err(error) => return end_broken_response(client, ctx, &mut head, &error).await,
            };
            if let Some(error) = fault.as_ref().filter(|_| held.is_some()) {
                return failed_outcome(ctx, error);
            }
            // An error frame before any content is treated like an error response: the next target may do better.
            if held.is_some() && has_failed(ctx) && (!has_content(ctx) || is_opening(ctx, &body)) {
                return ExchangeOutcome::Failed(self.first_frame(ctx, last_data(&body)));
            }
            // Hold frames without content back. The first content ends fallback.
            if let Some(held) = &mut held
                && !end
                && crate::json::from_utf8(&body).is_ok()
                && (!has_content(ctx) || is_opening(ctx, &body))
                && held.push(&body, ctx.early_head_sent)
            {
                continue;
            }
            let body = match held.take() {
                None => body,
                Some(held) => {
                    ctx.release_retry_state();
                    held.flush_with(body)
                }
            };
            if streaming && ctx.retry_state.is_some() {
                // Frees the retry state as soon as the stream can no longer be resumed.
                ctx.release_retry_state();
            }
            // Store the response, its provider signatures and its ownership before the final bytes leave: the client
            // may continue from it at once.
            if let Some(pending) = self.store_response(ctx) {
                Box::pin(self.await_stored(ctx, pending)).await;
            }
            if let Some(pending) = self.store_signatures(ctx) {
                Box::pin(self.await_signatures_stored(ctx, pending)).await;
            }
            if ctx.claims.is_some() {
                self.claim(ctx);
                if self.is_final_piece(ctx, end) {
                    Box::pin(self.await_claims(ctx)).await;
                }
            }
            // Settle before the final bytes are forwarded: otherwise a crash could leave a delivered response
            // uncharged.
            if let Some(settled) = self.settle_at_end(ctx, end) {
                match settled {
                    Settled::Known(outcome) => self.count_settlement(ctx, outcome),
                    pending => Box::pin(self.await_settlement(ctx, pending)).await,
                }
            }
            if end
                && !streaming
                && let Some(failure) = ctx.failure.take()
            {
                return ExchangeOutcome::UpstreamError(*failure, body);
            }
            let sent = if end && !streaming {
                self.send_whole(client, ctx, upstream, body).await
            } else if !body.is_empty() || end {
                if ctx.early_head_sent {
                    end_early_response(ctx, clock);
                }
                silence.on_sent();
                let sent = send(client, ctx, &mut head, body, end).await;
                if let Some(rate) = &mut rate {
                    // The upstream was not read during the write: a slow client must not count as a slow provider.
                    rate.on_pause();
                }
                sent
            } else {
                Ok(())
            };
            if let Err(error) = sent {
                return failed_outcome(ctx, &error);
            }
            if let Some(error) = fault {
                return failed_outcome(ctx, &error);
            }
            if streaming {
                pace.on_piece(reader.has_blocked());
            }
            if end {
                // An empty response is a success of the target, but has no time of first content.
                if ctx.record.first_content.is_none() {
                    ctx.record_success(std::time::Instant::now());
                    ctx.record.first_content = ctx.resume.as_ref().and_then(|resume| resume.first_content);
                }
                return ExchangeOutcome::Complete;
            }
        }
    }

    fn stream_head(
        &self,
        client: &Client,
        upstream: &HttpSession,
        ctx: &Context,
    ) -> Option<Box<ResponseHeader>> {
        let head = upstream.response_header()?;
        Some(Box::new(self.client_head(client.req_header(), head, ctx, None)))
    }

    /// Sends a complete document with its `content-length`.
    async fn send_whole(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &HttpSession,
        body: Bytes,
    ) -> pingora::Result<()> {
        ctx.record_success(std::time::Instant::now());
        ctx.release_retry_state();
        let mut head = upstream
            .response_header()
            .map(|head| Box::new(self.client_head(client.req_header(), head, ctx, Some(body.len()))));
        send_head(client, ctx, &mut head).await?;
        ctx.record.response_bytes += body.len() as u64;
        client.write_response_body(body, true).await.map_err(|error| error.into_down())
    }
}

/// Buffered first frames of a stream. While they are held back, fallback is still possible.
struct PrefixBuffer {
    until: Instant,
    frames: Vec<Bytes>,
}

/// Limit of the held-back frames, in bytes. Only a few lines precede the first content.
const MAX_HELD_BYTES: usize = 64 * 1024;

impl PrefixBuffer {
    /// Returns the held-back frames followed by `last`.
    fn flush_with(self, last: Bytes) -> Bytes {
        if self.frames.is_empty() {
            return last;
        }
        let mut frames = self.frames;
        frames.push(last);
        frames.concat().into()
    }

    /// Whether the stream is still held back. With an early head sent, an empty buffer may be held beyond `until`.
    fn is_holding(&self, kept: bool) -> bool {
        Instant::now() < self.until || (kept && self.frames.is_empty())
    }

    /// Returns the remaining hold time; `None` once it is over.
    fn remaining(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
    }

    /// Buffers frames. Returns false if the hold time is over or the buffer is full. With an early head sent (`kept`),
    /// a read without frames may extend the hold.
    fn push(&mut self, frames: &Bytes, kept: bool) -> bool {
        if self.remaining().is_none() && !(kept && frames.is_empty()) {
            return false;
        }
        let held: usize = self.frames.iter().map(Bytes::len).sum();
        let room = held + frames.len() <= MAX_HELD_BYTES;
        if room && !frames.is_empty() {
            self.frames.push(frames.clone());
        }
        room
    }
}

/// Returns the time until the timers of a response are checked again, at most `interval`.
fn next_check(interval: Duration, held: Option<&PrefixBuffer>, rate: Option<&Throughput>) -> Duration {
    let held = held.and_then(PrefixBuffer::remaining).unwrap_or(interval);
    let rate = rate.map_or(interval, Throughput::window);
    interval.min(held).min(rate)
}

/// Ends the early response: from now on the idle tracker sends the filler of the response itself.
fn end_early_response(ctx: &mut Context, clock: &mut ExchangeTimer<'_>) {
    ctx.early_head_sent = false;
    clock.schedule_filler(Duration::ZERO);
}

/// Whether the upstream response is one document, which is parsed only when it is complete.
fn is_document(ctx: &Context) -> bool {
    match &ctx.response {
        UpstreamResponse::Whole(..) => true,
        UpstreamResponse::Stream(passing) => match &passing.exchange {
            Exchange::Translated(translated) => translated.arrival() == Arrival::Whole,
            Exchange::Verbatim(_) => false,
        },
        _ => false,
    }
}

/// Whether the provider has sent a frame with content.
fn has_content(ctx: &Context) -> bool {
    ctx.response_in_progress().is_some_and(|passing| passing.exchange.meter().content_frames() > 0)
}

/// Whether these frames only open a message (its role, without content). Only the chat format counts such a frame as
/// content.
fn is_opening(ctx: &Context, frames: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(frames) else { return false };
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    if has_failed(ctx) {
        // The last frame is the error itself.
        data.next_back();
    }
    ctx.format == Format::Chat && data.all(|data| chat::watch::is_opening(data.trim()))
}

/// Whether the stream has ended with an error frame of the provider.
fn has_failed(ctx: &Context) -> bool {
    ctx.response_in_progress().is_some_and(|passing| passing.exchange.meter().end() == Ending::Failed)
}

/// Returns the data of the last SSE event in `frames`, from its first brace on.
fn last_data(frames: &[u8]) -> &[u8] {
    const DATA: &[u8] = b"data:";
    let at = memchr::memmem::rfind(frames, DATA).map_or(0, |at| at + DATA.len());
    let data = frames.get(at..).unwrap_or_default();
    let from = data.iter().position(|byte| *byte == b'{').unwrap_or(0);
    data.get(from..).unwrap_or_default()
}

const BROKEN: &str = "The upstream provider's response ended early.";

/// Ends a response that cannot continue, after sending the frames that were complete before the fault.
async fn end_broken_response(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    error: &Error,
) -> ExchangeOutcome {
    let unsent = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<BytesBeforeFault>());
    if let Some(BytesBeforeFault(frames)) = unsent
        && let Err(error) = send(client, ctx, head, frames.clone(), false).await
    {
        return failed_outcome(ctx, &error);
    }
    failed_outcome(ctx, error)
}

/// Sends frames of a stream, after the head if it has not been sent.
pub(super) async fn send(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    body: Bytes,
    end: bool,
) -> pingora::Result<()> {
    // Cork what is written in several steps, so that it leaves in one packet: the head with the first frames, the last
    // frames with the end of the body.
    if (head.is_some() || end)
        && let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of)
    {
        guarded.cork();
    }
    send_head(client, ctx, head).await?;
    if ctx.record.first_content.is_none() && has_content(ctx) {
        ctx.record_success(std::time::Instant::now());
    }
    ctx.record.response_bytes += body.len() as u64;
    if end && !body.is_empty() {
        client.write_response_body(body, false).await.map_err(|error| error.into_down())?;
        uncork(client);
        return client.write_response_body(Bytes::new(), true).await.map_err(|error| error.into_down());
    }
    uncork(client);
    client.write_response_body(body, end).await.map_err(|error| error.into_down())
}

/// Keeps the client of a silent stream connected: sends the head if it was not sent, otherwise filler if that is due.
async fn send_filler(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    due: IdleDeadline,
    silence: &mut IdleTracker,
) -> pingora::Result<()> {
    if head.is_some() {
        silence.on_sent();
        return send_head(client, ctx, head).await;
    }
    if due == IdleDeadline::Filler {
        silence.on_sent();
        let filler =
            ctx.response_in_progress_mut().map(|passing| passing.exchange.keep_alive()).unwrap_or_default();
        if !filler.is_empty() {
            return send(client, ctx, head, filler, false).await;
        }
    }
    Ok(())
}

/// Sends the head, unless it was sent already.
async fn send_head(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
) -> pingora::Result<()> {
    let Some(head) = head.take() else { return Ok(()) };
    ctx.record.status = head.status.as_u16();
    client.write_response_header(head).await.map_err(|error| error.into_down())
}

fn uncork(client: &Client) {
    if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
        guarded.uncork();
    }
}
