//! Response forwarding: reads the provider's response and writes it to the client, piece by piece.
//!
//! The first frames of a stream may be held back in a [`PrefixBuffer`]: while the client has no frame of the response,
//! a failure can still be hidden by fallback. What must be recorded before the last bytes leave is awaited first
//! ([`ExchangeHooks::before_write`]). The meaning of the bytes belongs to the proxy's filters.

use std::time::Duration;

use bytes::Bytes;
use http::header;
use pingora::Error;
use pingora::http::ResponseHeader;

use super::burst::{self, BurstDetector};
use super::downstream::{ClientEnd, client_end, client_gone, on_client_probed, set_framing, write};
use super::encoding::ContentDecoder;
use super::exchange::{ExchangeState, Sent};
use super::fault::{Fault, FaultBody};
use super::hooks::{Delivery, ExchangeHooks, Written};
use super::idle_tracker::{IdleDeadline, IdleTracker};
use super::offload::LARGE_BODY;
use super::outcome::{ExchangeOutcome, failed, low_rate_error, shutdown_error, timeout_error};
use super::peer::Upstream;
use super::prefix_buffer::PrefixBuffer;
use super::provider_session::ProviderSession;
use super::reader::{Read, ResponseReader, undecodable};
use super::throughput::Throughput;
use super::yielding::TransferTurn;
use codec::error::{ApiError, ErrorKind};

/// Longest time that the head of a stream waits for the first frame, which may be an error. After that the client gets
/// the head, and an error can only be reported inside the stream.
const MAX_HOLD: Duration = Duration::from_secs(2);

/// One response on its way to the client.
pub(super) struct Forwarding<'f, 'x, P: ExchangeHooks> {
    exchange: &'f mut ExchangeState<'x, P>,
    upstream: &'f mut ProviderSession,
    peer: &'f Upstream,
    delivery: Delivery,
    /// Head for the client; of a document, the provider's head until the document is complete. `None` once it is sent.
    head: Option<Box<ResponseHeader>>,
    held: Option<PrefixBuffer>,
    silence: IdleTracker,
    rate: Option<Throughput>,
    reader: ResponseReader,
    /// Length of what was received, in bytes.
    received: usize,
    /// The success of the target is recorded.
    succeeded: bool,
}

impl<'f, 'x, P: ExchangeHooks> Forwarding<'f, 'x, P> {
    /// Forwards the response to the client. With [`ExchangeOutcome::Complete`] and [`ExchangeOutcome::UpstreamError`]
    /// the response has been read to its end, and the connection may be reused.
    pub(super) async fn run(
        exchange: &'f mut ExchangeState<'x, P>,
        upstream: &'f mut ProviderSession,
        peer: &'f Upstream,
    ) -> ExchangeOutcome {
        match Self::begin(exchange, upstream, peer).await {
            Ok(mut forwarding) => forwarding.forward().await.err().unwrap_or(ExchangeOutcome::Complete),
            Err(error) => failed(error),
        }
    }

    /// Passes the head to the filters and prepares the timers.
    async fn begin(
        exchange: &'f mut ExchangeState<'x, P>,
        upstream: &'f mut ProviderSession,
        peer: &'f Upstream,
    ) -> pingora::Result<Self> {
        let Some(mut head) = upstream.take_response_head() else {
            let broken = "The upstream provider's response ended early.";
            return Err(Fault::raise(ApiError::new(ErrorKind::UpstreamBroken, broken), FaultBody::None));
        };
        let ExchangeState { proxy, session, ctx, clock, sent, .. } = &mut *exchange;
        proxy.upstream_response_filter(session, &mut head, ctx).await?;
        let coding = head.headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let decoder = match ContentDecoder::new(coding.unwrap_or_default()) {
            Ok(decoder) => decoder.map(Box::new),
            Err(error) => return Err(proxy.on_failure(ctx, undecodable(error))),
        };
        let delivery = proxy.delivery(ctx);
        let streaming = matches!(delivery, Delivery::Stream | Delivery::StreamOfDocument);
        let sent = *sent;
        if streaming && sent == Sent::Nothing {
            proxy.response_filter(session, &mut head, ctx).await?;
            set_framing(&session.downstream_session, &mut head, None);
        }
        // A client that has part of a response already has a head.
        let head = (!streaming || sent == Sent::Nothing).then_some(head);
        let heartbeat = if streaming { proxy.settings().heartbeat } else { Duration::ZERO };
        let silence = IdleTracker::new(clock.timeouts.idle, heartbeat);
        let held = proxy.hold(ctx).filter(|_| streaming && sent < Sent::Content).map(PrefixBuffer::new);
        if streaming && held.is_none() && sent != Sent::EarlyHead {
            // The head leaves within `MAX_HOLD`, so no early response is needed.
            clock.schedule_filler(Duration::ZERO);
        }
        let rate = Throughput::new(&clock.timeouts, streaming);
        let first =
            if streaming && held.is_none() { MAX_HOLD.min(clock.timeouts.idle) } else { silence.interval() };
        // While the head waits for the first frame, the rate check must not shorten the timer: its expiry sends the
        // head.
        let looked = rate.as_ref().filter(|_| !streaming || held.is_some());
        clock.set_deadline(next_check(first, held.as_ref(), looked));
        let reader = ResponseReader::new(streaming).decoding(decoder, delivery == Delivery::Error);
        Ok(Forwarding {
            exchange,
            upstream,
            peer,
            delivery,
            head,
            held,
            silence,
            rate,
            reader,
            received: 0,
            succeeded: false,
        })
    }

    fn is_streaming(&self) -> bool {
        matches!(self.delivery, Delivery::Stream | Delivery::StreamOfDocument)
    }

    /// Whether the client has received nothing but an early head and filler.
    fn is_early(&self) -> bool {
        self.exchange.sent == Sent::EarlyHead
    }

    /// Reads and forwards pieces to the end of the response.
    ///
    /// # Errors
    /// Returns the outcome if the response was not sent completely.
    async fn forward(&mut self) -> Result<(), ExchangeOutcome> {
        let mut pace = BurstDetector::default();
        let mut turn = TransferTurn::default();
        loop {
            if pace.is_bursting() {
                self.exchange.clock.pause(burst::PAUSE).await;
            }
            let (piece, end, fault) = match self.next().await? {
                Read::Piece(piece) => (piece, false, None),
                Read::Last(piece) => (piece, true, None),
                Read::Broken(piece, error) => (piece, false, Some(error)),
            };
            let length = piece.len();
            self.silence.on_received();
            self.forward_piece(piece, end, fault).await?;
            if end {
                self.exchange.proxy.on_complete(self.exchange.ctx);
                return Ok(());
            }
            turn.on_moved(length).await;
            if self.is_streaming() {
                pace.on_piece(self.reader.has_blocked());
            }
        }
    }

    /// Reads the next piece, while it watches the client, the shutdown and the timers.
    async fn next(&mut self) -> Result<Read, ExchangeOutcome> {
        loop {
            let ExchangeState { session, ended, clock, .. } = &mut *self.exchange;
            // Cancel-safe: `reader` keeps what it has gathered when another branch is taken.
            tokio::select! {
                biased;
                // Upstream first: data that has arrived is not lost to a time-out or shutdown of the same moment.
                read = self.reader.read(self.upstream) => return Ok(read),
                end = client_end(&mut session.downstream_session) => match end {
                    ClientEnd::Gone(gone) => return Err(ExchangeOutcome::Failed(gone)),
                    ClientEnd::HalfClosed => {
                        Box::pin(self.probe()).await?;
                        continue;
                    }
                },
                () = ended.as_mut() => return Err(ExchangeOutcome::Failed(shutdown_error())),
                () = clock.elapsed() => {}
            }
            // Boxed: it is rare, and a stream would keep the space of its state. The same holds for `end_broken`.
            Box::pin(self.on_timer()).await?;
        }
    }

    /// Finds out whether a client that has closed its side of the connection is still there: filler is written at once if
    /// the response has begun.
    async fn probe(&mut self) -> Result<(), ExchangeOutcome> {
        self.exchange.on_half_closed().await;
        on_client_probed(&self.exchange.session.downstream_session);
        if !self.is_early() && self.is_streaming() && self.head.is_none() && self.held.is_none() {
            return self.send_filler(IdleDeadline::Filler).await;
        }
        Ok(())
    }

    /// Handles the timer: time-outs, filler, and the end of the hold time.
    async fn on_timer(&mut self) -> Result<(), ExchangeOutcome> {
        let due = self.silence.check();
        let (proxy, streaming) = (self.exchange.proxy, self.is_streaming());
        if self.exchange.clock.is_expired() || due == IdleDeadline::IdleTimeout {
            return Err(ExchangeOutcome::Failed(timeout_error()));
        }
        if self.rate.as_mut().is_some_and(Throughput::is_too_low) {
            return Err(ExchangeOutcome::Failed(low_rate_error()));
        }
        if self.exchange.clock.is_due() {
            if self.held.is_some() || self.is_early() {
                // The early head takes the place of a stream's own head: the client must not get two.
                self.head = self.head.take().filter(|_| !streaming);
                self.exchange.send_early_keepalive().await.map_err(failed)?;
            } else {
                // A document or an error body gets no early stream head. Re-arm, or the timer fires continuously.
                self.exchange.clock.schedule_filler(proxy.settings().heartbeat);
            }
        }
        let early = self.is_early();
        let holding = self.held.as_ref().is_some_and(|held| held.is_holding(early));
        if !holding {
            match self.held.take().map(PrefixBuffer::into_frames) {
                Some(frames) if !frames.is_empty() => {
                    proxy.on_hold_released(self.exchange.ctx);
                    proxy.release_retry_state(self.exchange.ctx);
                    self.end_early_response();
                    self.silence.on_sent();
                    self.send(frames, false).await?;
                }
                // After an early head the exchange timer sends the filler.
                _ if early => {}
                _ => {
                    if streaming {
                        proxy.release_retry_state(self.exchange.ctx);
                        self.send_filler(due).await?;
                    }
                }
            }
        }
        let next = next_check(self.silence.interval(), self.held.as_ref(), self.rate.as_ref());
        self.exchange.clock.set_deadline(next);
        Ok(())
    }

    /// Passes a piece to the body filter and sends what it returns. `fault`: the response broke off after this piece.
    async fn forward_piece(
        &mut self,
        piece: Bytes,
        end: bool,
        fault: Option<Box<Error>>,
    ) -> Result<(), ExchangeOutcome> {
        let length = piece.len();
        self.received += length;
        let filtered = self.filter(piece, end).await?;
        let (proxy, streaming) = (self.exchange.proxy, self.is_streaming());
        if let Some(rate) = &mut self.rate {
            rate.on_received(length, proxy.stream_state(self.exchange.ctx).partial);
        }
        let body = match filtered {
            Ok(body) => body,
            Err(error) => return Err(Box::pin(self.end_broken(error)).await),
        };
        if self.held.is_some() {
            if let Some(error) = fault {
                // What was held back is dropped with the attempt: the next target sends its own first frames.
                return Err(self.exchange.failure(self.peer, error, false));
            }
            if self.hold(&body, end).map_err(ExchangeOutcome::Failed)? {
                return Ok(());
            }
        }
        let body = match self.held.take() {
            None => body,
            Some(held) => {
                proxy.on_hold_released(self.exchange.ctx);
                held.flush_with(body)
            }
        };
        if streaming {
            // Frees the retry state as soon as the stream can no longer be resumed.
            proxy.release_retry_state(self.exchange.ctx);
        }
        if let Some(recording) = proxy.before_write(self.exchange.ctx, end) {
            recording.await;
        }
        if end && !streaming {
            self.send_document(body).await?;
        } else if !body.is_empty() || end {
            self.end_early_response();
            self.silence.on_sent();
            self.send(body, end).await?;
            if let Some(rate) = &mut self.rate {
                // The upstream was not read during the write: a slow client must not count as a slow provider.
                rate.on_pause();
            }
        }
        match fault {
            Some(error) => Err(self.exchange.failure(self.peer, error, false)),
            None => Ok(()),
        }
    }

    /// Passes a piece to the body filter.
    ///
    /// # Errors
    /// Returns the outcome if the client disconnects while a large document waits for its turn.
    async fn filter(&mut self, piece: Bytes, end: bool) -> Result<pingora::Result<Bytes>, ExchangeOutcome> {
        let ExchangeState { proxy, session, ctx, .. } = &mut *self.exchange;
        let whole = matches!(self.delivery, Delivery::Document | Delivery::StreamOfDocument);
        let mut body = Some(piece);
        // A large document is translated at its end, for milliseconds to seconds: the worker's other tasks move to
        // another thread meanwhile.
        let filtered = if end && whole && self.received >= LARGE_BODY {
            let turn = tokio::select! {
                biased;
                turn = proxy.offload().acquire_for_response() => turn,
                gone = client_gone(&mut session.downstream_session) => return Err(ExchangeOutcome::Failed(gone)),
            };
            turn.run(|| proxy.response_body_filter(session, &mut body, end, ctx))
        } else {
            proxy.response_body_filter(session, &mut body, end, ctx)
        };
        Ok(filtered.map(|_| body.unwrap_or_default()))
    }

    /// Holds frames without content back. Returns false at the first content, which ends fallback.
    ///
    /// # Errors
    /// Returns the error if the provider reports one before any content: it is treated like an error response,
    /// because the next target may do better.
    fn hold(&mut self, body: &Bytes, end: bool) -> Result<bool, ApiError> {
        let ExchangeState { proxy, ctx, .. } = &*self.exchange;
        let state = proxy.stream_state(ctx);
        let contentless = !state.content || proxy.is_opening(ctx, body);
        if state.failed && contentless {
            return Err(proxy.error_of_frames(ctx, body));
        }
        let early = self.is_early();
        let Some(held) = &mut self.held else { return Ok(false) };
        Ok(!end && contentless && json::from_utf8(body).is_ok() && held.push(body, early))
    }

    /// Ends a response that the body filter cannot continue, after sending the frames that were complete before the
    /// fault.
    async fn end_broken(&mut self, error: Box<Error>) -> ExchangeOutcome {
        let Fault { error, body } = Fault::take(error);
        // No frame of this response was forwarded: fallback is possible.
        let hidden = self.held.is_some() || self.is_early();
        match body {
            FaultBody::Refusal(body) => return ExchangeOutcome::UpstreamError(error, body),
            FaultBody::Unsent(frames) if !hidden => {
                if let Err(outcome) = self.send(frames, false).await {
                    return outcome;
                }
            }
            FaultBody::Unsent(_) | FaultBody::None => {}
        }
        ExchangeOutcome::Failed(error)
    }

    /// Sends a complete document with its `content-length`.
    async fn send_document(&mut self, body: Bytes) -> Result<(), ExchangeOutcome> {
        let ExchangeState { proxy, session, ctx, .. } = &mut *self.exchange;
        self.succeeded = true;
        proxy.on_success(ctx);
        proxy.release_retry_state(ctx);
        if let Some(head) = &mut self.head {
            proxy.response_filter(session, head, ctx).await.map_err(failed)?;
            set_framing(&session.downstream_session, head, Some(body.len()));
            proxy.on_written(ctx, Written::Head(head.status.as_u16()));
        }
        proxy.on_written(ctx, Written::Body(body.len()));
        let client = &mut session.downstream_session;
        let sent = async {
            if let Some(head) = self.head.take() {
                client.write_response_header(head).await?;
            }
            client.write_response_body(body, true).await
        };
        let sent = sent.await;
        // Also after a failed write: once the client has a head, no other target may send one.
        self.exchange.on_response_written(true);
        sent.map_err(|error| failed(self.exchange.client_failure(error)))
    }

    /// Sends frames of a stream, after the head if it has not been sent.
    async fn send(&mut self, body: Bytes, end: bool) -> Result<(), ExchangeOutcome> {
        let ExchangeState { proxy, session, ctx, .. } = &mut *self.exchange;
        if let Some(head) = &self.head {
            proxy.on_written(ctx, Written::Head(head.status.as_u16()));
        }
        // A stream that was opened is not yet a success: the provider may still report an error before any content.
        if !self.succeeded && proxy.stream_state(ctx).content {
            self.succeeded = true;
            proxy.on_success(ctx);
        }
        proxy.on_written(ctx, Written::Body(body.len()));
        let sent = write(&mut session.downstream_session, self.head.take(), body, end).await;
        self.exchange.on_response_written(end);
        sent.map_err(|error| failed(self.exchange.client_failure(error)))
    }

    /// Keeps the client of a silent stream connected: sends the head if it was not sent, otherwise filler if that is
    /// due.
    async fn send_filler(&mut self, due: IdleDeadline) -> Result<(), ExchangeOutcome> {
        let ExchangeState { proxy, session, ctx, .. } = &mut *self.exchange;
        if let Some(head) = self.head.take() {
            self.silence.on_sent();
            proxy.on_written(ctx, Written::Head(head.status.as_u16()));
            let sent = session.downstream_session.write_response_header(head).await;
            self.exchange.on_response_written(false);
            return sent.map_err(|error| failed(self.exchange.client_failure(error)));
        }
        if due == IdleDeadline::Filler {
            self.silence.on_sent();
            let filler = proxy.filler(ctx);
            if !filler.is_empty() {
                return self.send(filler, false).await;
            }
        }
        Ok(())
    }

    /// Ends the early response: from now on the idle tracker sends the filler of the response itself.
    fn end_early_response(&mut self) {
        if self.is_early() {
            self.exchange.sent = Sent::Content;
            self.exchange.clock.schedule_filler(Duration::ZERO);
        }
    }
}

/// Returns the time until the timers of a response are checked again, at most `interval`.
fn next_check(interval: Duration, held: Option<&PrefixBuffer>, rate: Option<&Throughput>) -> Duration {
    let held = held.and_then(PrefixBuffer::remaining).unwrap_or(interval);
    let rate = rate.map_or(interval, Throughput::window);
    interval.min(held).min(rate)
}
