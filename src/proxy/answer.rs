//! Bringing a provider's answer to the client, piece by piece.

use std::time::Duration;

use bytes::Bytes;
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::time::Instant;

use super::burst::{self, BurstDetector};
use super::context::{Context, UpstreamResponse};
use super::exchange::{End, Ended, client_gone, failed, restarting, silent, too_slow};
use super::exchange_timer::ExchangeTimer;
use super::header_timeout::HeaderTimeoutStream;
use super::idle_tracker::{IdleDeadline, IdleTracker};
use super::offload::LARGE;
use super::reader::{Read, Reader};
use super::reply::has_begun;
use super::response::BytesBeforeFault;
use super::throughput::Throughput;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::store::Settled;
use crate::translate::Exchange;
use crate::translate::verbatim::Arrival;
use crate::wire::watch::StreamEnd as Ending;
use crate::wire::{Format, chat};

/// How long the head of a stream waits for the first frame, which may be an error. After that the client gets the
/// head, and an error becomes part of the stream.
const HOLD: Duration = Duration::from_secs(2);

impl Gateway {
    /// Brings the answer to the client. After the end of the answer the connection is free.
    pub(super) async fn answer(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &mut HttpSession,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut Ended<'_>,
    ) -> End {
        let end = match upstream.response_header() {
            Some(head) => self.open_answer(head, ctx),
            None => return End::Failed(ApiError::new(Kind::UpstreamBroken, BROKEN)),
        };
        if let Err(error) = end {
            return failed(ctx, &error);
        }
        // What was sent is not sent again once the provider has answered; another target gets its own.
        ctx.drop_body();
        let streaming = matches!(ctx.answer, UpstreamResponse::Stream(_));
        // The client's head is made from the provider's when the first frame leaves.
        // A client that has a part of the answer has its head.
        let begun = has_begun(client);
        let mut head = if streaming && !begun { self.stream_head(client, upstream, ctx) } else { None };
        let heartbeat = if streaming { self.limits.heartbeat } else { Duration::ZERO };
        let mut silence = IdleTracker::new(clock.timeouts.idle, heartbeat);
        let mut held = ctx
            .hold()
            .filter(|_| streaming && (!begun || ctx.kept))
            .map(|span| PrefixBuffer { until: Instant::now() + span, frames: Vec::new() });
        if streaming && held.is_none() && !ctx.kept {
            // It has its head in a moment.
            clock.wait_on(Duration::ZERO);
        }
        let mut rate = Throughput::new(&clock.timeouts, streaming);
        let first =
            if streaming && held.is_none() { HOLD.min(clock.timeouts.idle) } else { silence.interval() };
        // A head that waits for the first frame does not leave sooner for the rate's sake.
        let looked = rate.as_ref().filter(|_| !streaming || held.is_some());
        clock.allow(next_look(first, held.as_ref(), looked));
        let refused = matches!(ctx.answer, UpstreamResponse::Refused { .. });
        let mut reader = Reader::new(streaming).decoding(ctx.decoder.take(), refused);
        let mut pace = BurstDetector::default();
        let mut received = 0;
        loop {
            if pace.is_bursting() {
                clock.rest(burst::REST).await;
            }
            let read = loop {
                tokio::select! {
                    biased;
                    read = reader.read(upstream) => break read,
                    gone = client_gone(client) => return End::Failed(gone),
                    () = ended.as_mut() => return End::Failed(restarting()),
                    () = clock.out() => {
                        let due = silence.look();
                        if clock.is_over() || due == IdleDeadline::GivingUp {
                            return End::Failed(silent());
                        }
                        if rate.as_mut().is_some_and(Throughput::is_too_low) {
                            return End::Failed(too_slow());
                        }
                        if clock.is_due() && (held.is_some() || ctx.kept) {
                            head = None;
                            if let Some((_, mut waiting)) = ctx.sides()
                                && let Err(gone) = self.keep_waiting(client, &mut waiting, clock).await
                            {
                                return End::Failed(gone);
                            }
                        } else if clock.is_due() {
                            // Neither a document nor a refusal is a stream's beginning.
                            clock.wait_on(self.limits.heartbeat);
                        }
                        let held_on = held.as_ref().is_some_and(|held| held.goes_on(ctx.kept));
                        let kept = match held.take_if(|_| !held_on) {
                            _ if held_on => Ok(()),
                            Some(PrefixBuffer { frames, .. }) if !frames.is_empty() => {
                                ctx.settle_on_target();
                                begin(ctx, clock);
                                silence.said();
                                send(client, ctx, &mut head, frames.concat().into(), false).await
                            }
                            // It is kept by the clock.
                            _ if ctx.kept => Ok(()),
                            _ => {
                                if streaming {
                                    ctx.settle_on_target();
                                }
                                keep(client, ctx, &mut head, due, &mut silence).await
                            }
                        };
                        if let Err(error) = kept {
                            return failed(ctx, &error);
                        }
                        clock.allow(next_look(silence.interval(), held.as_ref(), rate.as_ref()));
                    }
                }
            };
            silence.heard();
            let (piece, end, fault) = match read {
                Read::Piece(piece) => (piece, false, None),
                Read::Last(piece) => (piece, true, None),
                Read::Broken(piece, error) => (piece, false, Some(error)),
            };
            let length = piece.len();
            received += length;
            let passed = if end && received >= LARGE && is_document(ctx) {
                let turn = tokio::select! {
                    biased;
                    turn = self.offload.turn_of_answer() => turn,
                    gone = client_gone(client) => return End::Failed(gone),
                };
                turn.run(|| self.pass(piece, end, ctx))
            } else {
                self.pass(piece, end, ctx)
            };
            if let Some(rate) = &mut rate {
                rate.received(length, ctx.passing().is_some_and(|passing| passing.exchange.is_partial()));
            }
            let body = match passed {
                Ok(body) => body,
                // Nobody has seen anything of it.
                Err(error) if held.is_some() || ctx.kept => return failed(ctx, &error),
                Err(error) => return give_up(client, ctx, &mut head, &error).await,
            };
            if let Some(error) = fault.as_ref().filter(|_| held.is_some()) {
                return failed(ctx, error);
            }
            if held.is_some() && has_failed(ctx) && (!has_content(ctx) || is_opening(ctx, &body)) {
                return End::Failed(self.first_frame(ctx, last_data(&body)));
            }
            if let Some(held) = &mut held
                && !end
                && std::str::from_utf8(&body).is_ok()
                && (!has_content(ctx) || is_opening(ctx, &body))
                && held.keep(&body, ctx.kept)
            {
                continue;
            }
            let body = match held.take() {
                None => body,
                Some(held) => {
                    ctx.settle_on_target();
                    held.with(body)
                }
            };
            if streaming && ctx.origin.is_some() {
                // Nobody can go on with it any more, perhaps.
                ctx.settle_on_target();
            }
            // Whoever has the end of an answer may go on from it at once.
            if let Some(pending) = self.keep(ctx) {
                Box::pin(self.kept(ctx, pending)).await;
            }
            if let Some(pending) = self.remember(ctx) {
                Box::pin(self.remembered(ctx, pending)).await;
            }
            if ctx.claims.is_some() && self.ends_here(ctx, end) {
                let claims = self.claim(ctx);
                Box::pin(self.claimed(ctx, claims)).await;
            }
            // Nor has anybody the end of an answer that is not charged.
            if let Some(settled) = self.settle_at_end(ctx, end) {
                match settled {
                    Settled::Known(outcome) => self.settled(ctx, outcome),
                    pending => Box::pin(self.settling(ctx, pending)).await,
                }
            }
            if end
                && !streaming
                && let Some(failure) = ctx.failure.take()
            {
                return End::Refused(*failure, body);
            }
            let sent = if end && !streaming {
                self.send_whole(client, ctx, upstream, body).await
            } else if !body.is_empty() || end {
                if ctx.kept {
                    begin(ctx, clock);
                }
                silence.said();
                let sent = send(client, ctx, &mut head, body, end).await;
                if let Some(rate) = &mut rate {
                    rate.paused();
                }
                sent
            } else {
                Ok(())
            };
            if let Err(error) = sent {
                return failed(ctx, &error);
            }
            if let Some(error) = fault {
                return failed(ctx, &error);
            }
            if streaming {
                pace.passed(reader.has_waited());
            }
            if end {
                // An answer without content is one nevertheless.
                if ctx.record.first_content.is_none() {
                    ctx.answered_well(std::time::Instant::now());
                    ctx.record.first_content = ctx.resume.as_ref().and_then(|resume| resume.first_content);
                }
                return End::Complete;
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

    /// Sends a document with its length.
    async fn send_whole(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &HttpSession,
        body: Bytes,
    ) -> pingora::Result<()> {
        ctx.answered_well(std::time::Instant::now());
        ctx.settle_on_target();
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

/// What is held back of a stream at most: what comes before the first content is a few lines.
const MOST_HELD: usize = 64 * 1024;

impl PrefixBuffer {
    /// All of it, with what came last.
    fn with(self, last: Bytes) -> Bytes {
        if self.frames.is_empty() {
            return last;
        }
        let mut frames = self.frames;
        frames.push(last);
        frames.concat().into()
    }

    /// Whether the stream is held back still. A client that is `kept` has no need of anything yet.
    fn goes_on(&self, kept: bool) -> bool {
        Instant::now() < self.until || (kept && self.frames.is_empty())
    }

    /// How long it is held back still; nothing once its time is over.
    fn rest(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
    }

    /// Keeps frames, if there is time and room.
    fn keep(&mut self, frames: &Bytes, kept: bool) -> bool {
        if self.rest().is_none() && !(kept && frames.is_empty()) {
            return false;
        }
        let held: usize = self.frames.iter().map(Bytes::len).sum();
        let room = held + frames.len() <= MOST_HELD;
        if room && !frames.is_empty() {
            self.frames.push(frames.clone());
        }
        room
    }
}

/// When an answer is to be looked at again, at the latest after `interval`.
fn next_look(interval: Duration, held: Option<&PrefixBuffer>, rate: Option<&Throughput>) -> Duration {
    let held = held.and_then(PrefixBuffer::rest).unwrap_or(interval);
    let rate = rate.map_or(interval, Throughput::window);
    interval.min(held).min(rate)
}

/// From now on the client has something of an answer, and the answer's own filler.
fn begin(ctx: &mut Context, clock: &mut ExchangeTimer<'_>) {
    ctx.kept = false;
    clock.wait_on(Duration::ZERO);
}

/// Whether the answer comes as one document, which is read when all of it has come.
fn is_document(ctx: &Context) -> bool {
    match &ctx.answer {
        UpstreamResponse::Whole(..) => true,
        UpstreamResponse::Stream(passing) => match &passing.exchange {
            Exchange::Translated(translated) => translated.arrival() == Arrival::Whole,
            Exchange::Verbatim(_) => false,
        },
        _ => false,
    }
}

/// Whether anything of what was asked for has come.
fn has_content(ctx: &Context) -> bool {
    ctx.passing().is_some_and(|passing| passing.exchange.meter().content_frames() > 0)
}

/// Whether these frames say no more than whose turn it is. Only the chat format counts that as content.
fn is_opening(ctx: &Context, frames: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(frames) else { return false };
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    if has_failed(ctx) {
        // The last one is the error.
        data.next_back();
    }
    ctx.format == Format::Chat && data.all(|data| chat::watch::is_opening(data.trim()))
}

/// Whether the stream has turned into its provider's error.
fn has_failed(ctx: &Context) -> bool {
    ctx.passing().is_some_and(|passing| passing.exchange.meter().end() == Ending::Failed)
}

/// What stands in the last frame of some.
fn last_data(frames: &[u8]) -> &[u8] {
    const DATA: &[u8] = b"data:";
    let at = memchr::memmem::rfind(frames, DATA).map_or(0, |at| at + DATA.len());
    let data = frames.get(at..).unwrap_or_default();
    let from = data.iter().position(|byte| *byte == b'{').unwrap_or(0);
    data.get(from..).unwrap_or_default()
}

const BROKEN: &str = "The upstream provider's answer broke off.";

/// The answer cannot go on; frames that were complete before the fault still belong to the client.
async fn give_up(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    error: &Error,
) -> End {
    let unsent = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<BytesBeforeFault>());
    if let Some(BytesBeforeFault(frames)) = unsent
        && let Err(error) = send(client, ctx, head, frames.clone(), false).await
    {
        return failed(ctx, &error);
    }
    failed(ctx, error)
}

/// Sends frames of a stream, after the head if it has not been sent.
pub(super) async fn send(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    body: Bytes,
    end: bool,
) -> pingora::Result<()> {
    // What is written in several steps leaves in one: the head with the first frames, the last frames with the end of
    // the body.
    if (head.is_some() || end)
        && let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of)
    {
        guarded.cork();
    }
    send_head(client, ctx, head).await?;
    if ctx.record.first_content.is_none() && has_content(ctx) {
        ctx.answered_well(std::time::Instant::now());
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

/// Keeps a client that waits: with the head, if it has not been sent, or with what means nothing, if that is due.
async fn keep(
    client: &mut Client,
    ctx: &mut Context,
    head: &mut Option<Box<ResponseHeader>>,
    due: IdleDeadline,
    silence: &mut IdleTracker,
) -> pingora::Result<()> {
    if head.is_some() {
        silence.said();
        return send_head(client, ctx, head).await;
    }
    if due == IdleDeadline::Filler {
        silence.said();
        let filler = ctx.passing_mut().map(|passing| passing.exchange.keep_alive()).unwrap_or_default();
        if !filler.is_empty() {
            return send(client, ctx, head, filler, false).await;
        }
    }
    Ok(())
}

/// Sends the head, once.
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
