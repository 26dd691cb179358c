//! The exchange with a provider, driven here on Pingora's connector.
//!
//! Pingora's own loop cannot carry a body that was read before the peer was chosen (docs/decisions/002). This loop
//! calls the same filters of the same `ProxyHttp` implementation in the same order, and can do more: it reads a
//! refusal's body and keeps that connection, gathers what is already readable into one write, holds an answer's head
//! back until it is known whether the answer is one, and knows deadlines.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::client::HttpSession;
use pingora::proxy::{ProxyHttp, Session};
use pingora::{Error, ErrorType};
use tokio::time::{Instant, Sleep};

use super::Gateway;
use super::context::{Answer, Context};
use super::cork::Corked;
use super::front::Guarded;
use super::peer::Upstream;
use super::reply::{from_pingora, set_version};
use super::response::Unsent;
use crate::error::{ApiError, Kind};
use crate::vendor::Timeouts;

/// What is gathered into one write at most. A fast provider must not keep the first byte from the client.
const GATHER: usize = 64 * 1024;
/// What is gathered at most of a document that is collected whole anyway.
const GATHER_WHOLE: usize = 256 * 1024;
/// How much of a body is given to the connection at a time: the time-out of a write is for one piece.
const SLICE: usize = 128 * 1024;
/// How long one such piece may take.
const WRITE: Duration = Duration::from_secs(30);
/// How long the head of a stream waits for the first frame, which may be an error. After that the client gets the
/// head, and an error becomes part of the stream.
const HOLD: Duration = Duration::from_secs(2);
/// The size line and the line end of an HTTP/1 chunk.
const CHUNK_FRAMING: usize = 16;

/// How an exchange ended.
enum End {
    /// The client has the whole answer.
    Complete,
    /// It failed; what the client is to be told.
    Failed(ApiError),
}

/// The one timer of an exchange. It stands at the next thing that may run out, and reading a frame does not touch it:
/// when it fires, it looks whether there was progress since.
struct Clock<'c> {
    sleep: Pin<&'c mut Sleep>,
    total: Instant,
    timeouts: Timeouts,
}

impl Clock<'_> {
    /// Waits for at most `span` from now on.
    fn allow(&mut self, span: Duration) {
        self.sleep.as_mut().reset((Instant::now() + span).min(self.total));
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.total
    }
}

impl Gateway {
    /// Runs the exchange and brings the client its answer, or an error.
    pub(super) async fn exchange(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<()> {
        let timeouts =
            ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| target.provider.timeouts);
        let timeouts = timeouts.unwrap_or_default();
        let total = Instant::now() + timeouts.total;
        let sleep = pin!(tokio::time::sleep_until(total));
        let mut clock = Clock { sleep, total, timeouts };
        let end = self.attempt(session, ctx, &mut clock).await;
        // The body was kept for another try; nobody needs it any more.
        if let Some(plan) = &mut ctx.plan {
            plan.body = Default::default();
        }
        match end {
            End::Complete => Ok(()),
            End::Failed(error) if session.response_written().is_some() => {
                self.break_off(session, ctx, &error).await
            }
            End::Failed(error) => self.reply_error(session, ctx, &error).await,
        }
    }

    async fn attempt(&self, session: &mut Session, ctx: &mut Context, clock: &mut Clock<'_>) -> End {
        loop {
            ctx.record.attempts += 1;
            ctx.record.asked = Some(std::time::Instant::now());
            let peer = match self.peer(ctx).await {
                Ok(peer) => peer,
                Err(error) => return failed(ctx, &error),
            };
            let (mut upstream, reused) = match self.connections.reused(&peer).await {
                Ok(Some(upstream)) => (upstream, true),
                Ok(None) => match self.connect(session, ctx, &peer).await {
                    Ok(Some(upstream)) => (upstream, false),
                    Ok(None) => continue,
                    Err(end) => return end,
                },
                Err(error) => return failed(ctx, &error),
            };
            if let Some(series) = ctx.plan.as_ref().and_then(|plan| plan.series.as_ref()) {
                series.exchange(reused);
            }
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE));
            match self.ask(session, ctx, &mut upstream, clock).await {
                Ok(()) => return self.answer(session, ctx, upstream, &peer, clock).await,
                Err(Asked::Told(error)) => return End::Failed(error),
                Err(Asked::Failed(mut error)) => {
                    // A connection from the pool may have been closed by the other side in this very moment.
                    error.retry.decide_reuse(reused);
                    if reused && error.retry() {
                        self.count_retry(ctx, "stale_connection");
                        continue;
                    }
                    if is_downgrade(&error) {
                        self.connections.prefer_http1(&peer);
                        self.count_retry(ctx, "h2_downgrade");
                        continue;
                    }
                    return failed(ctx, &error);
                }
            }
        }
    }

    /// A new connection; nothing when the peer wants another HTTP version. Boxed, because the state of a handshake is
    /// larger than everything else here together, and most requests never need it.
    fn connect<'f>(
        &'f self,
        session: &'f mut Session,
        ctx: &'f mut Context,
        peer: &'f Upstream,
    ) -> Pin<Box<dyn Future<Output = Result<Option<HttpSession>, End>> + Send + 'f>> {
        Box::pin(async move {
            let connected = tokio::select! {
                biased;
                connected = self.connections.connect(peer) => connected,
                gone = client_gone(session) => return Err(End::Failed(gone)),
                () = self.shutdown.ended() => return Err(End::Failed(restarting())),
            };
            match connected {
                Ok(upstream) => Ok(Some(upstream)),
                Err(error) if is_downgrade(&error) => {
                    self.connections.prefer_http1(peer);
                    Ok(None)
                }
                Err(error) => Err(failed(ctx, &error)),
            }
        })
    }

    fn count_retry(&self, ctx: &mut Context, reason: &'static str) {
        if let Some(plan) = &mut ctx.plan {
            plan.sent = 0;
            let provider = plan.model.targets.get(plan.target).map_or("", |target| &target.provider.name);
            self.metrics.upstream_retries.with_label_values(&[provider, reason]).inc();
        }
    }

    /// Sends the request and waits for the head of the answer; the client may go away meanwhile.
    async fn ask(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        upstream: &mut HttpSession,
        clock: &mut Clock<'_>,
    ) -> Result<(), Asked> {
        let mut head = RequestHeader::build_no_case("POST", b"/", None)?;
        self.upstream_request_filter(session, &mut head, ctx).await?;
        if let HttpSession::H2(_) = upstream
            && let Some(target) = ctx.plan.as_ref().and_then(|plan| plan.target())
        {
            let base = &target.provider.base;
            use_http2(&mut head, base.scheme(), base.authority())?;
        }
        clock.allow(clock.timeouts.first_byte);
        let talk = async {
            if let Some(corked) = upstream.stream().and_then(Corked::of) {
                corked.cork();
            }
            upstream.write_request_header(Box::new(head)).await?;
            if let Some(corked) = upstream.stream().and_then(Corked::of) {
                corked.uncork();
            }
            loop {
                let mut piece = None;
                let last = ctx.plan.as_ref().is_none_or(|plan| plan.sent + 1 >= plan.body.len());
                self.request_body_filter(session, &mut piece, last, ctx).await?;
                send_piece(upstream, piece.unwrap_or_default(), last).await?;
                if last {
                    break;
                }
            }
            Ok::<(), Box<Error>>(())
        };
        // Writing watches its own time; a client that goes away meanwhile is noticed right after.
        talk.await.map_err(|error| Asked::Failed(error.into_up()))?;
        let listen = async {
            loop {
                upstream.read_response_header().await?;
                // 100 and 103 come before the answer.
                if upstream.response_header().is_none_or(|head| !head.status.is_informational()) {
                    return Ok::<(), Box<Error>>(());
                }
            }
        };
        tokio::select! {
            biased;
            heard = listen => heard.map_err(|error| Asked::Failed(error.into_up())),
            gone = client_gone(session) => Err(Asked::Told(gone)),
            () = clock.sleep.as_mut() => Err(Asked::Told(silent())),
            () = self.shutdown.ended() => Err(Asked::Told(restarting())),
        }
    }

    /// Brings the answer to the client.
    async fn answer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        mut upstream: HttpSession,
        peer: &Upstream,
        clock: &mut Clock<'_>,
    ) -> End {
        let mut head = match upstream.response_header() {
            Some(head) => Box::new(head.clone()),
            None => return End::Failed(broken_off()),
        };
        if let Err(error) = self.upstream_response_filter(session, &mut head, ctx).await {
            return failed(ctx, &error);
        }
        // The request is not sent again once the provider has answered: its body may go.
        if let Some(plan) = &mut ctx.plan {
            plan.body = Default::default();
        }
        let streaming = matches!(ctx.answer, Answer::Stream(_));
        clock.allow(if streaming { HOLD } else { clock.timeouts.idle });
        let mut ended = pin!(self.shutdown.ended());
        let mut reader = Reader { upstream: &mut upstream, gathered: BytesMut::new(), streaming };
        let mut progress = true;
        loop {
            let read = loop {
                tokio::select! {
                    biased;
                    read = reader.read() => break read,
                    gone = client_gone(session) => return End::Failed(gone),
                    () = ended.as_mut() => return End::Failed(restarting()),
                    () = clock.sleep.as_mut() => {
                        let waiting = streaming && session.response_written().is_none();
                        if clock.is_over() || !(progress || waiting) {
                            return End::Failed(silent());
                        }
                        if waiting && let Err(error) = self.send_head(session, ctx, &mut head, None).await {
                            return failed(ctx, &error);
                        }
                        progress = false;
                        clock.allow(clock.timeouts.idle);
                    }
                }
            };
            progress = true;
            let (mut body, end, fault) = match read {
                Read::Piece(piece) => (Some(piece), false, None),
                Read::Last(piece) => (Some(piece), true, None),
                Read::Broken(piece, error) => (Some(piece), false, Some(error)),
            };
            if let Err(error) = self.response_body_filter(session, &mut body, end, ctx) {
                return self.give_up(session, ctx, &mut head, &error).await;
            }
            let body = body.unwrap_or_default();
            let sent = if end && !streaming {
                self.send_whole(session, ctx, &mut head, body).await
            } else if !body.is_empty() || end {
                self.send(session, ctx, &mut head, body, end).await
            } else {
                Ok(())
            };
            if let Err(error) = sent {
                return failed(ctx, &error);
            }
            if let Some(error) = fault {
                return failed(ctx, &error);
            }
            if end {
                self.connections.release(upstream, peer).await;
                return End::Complete;
            }
        }
    }

    /// The answer cannot go on; frames that were complete before the fault still belong to the client.
    async fn give_up(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        head: &mut ResponseHeader,
        error: &Error,
    ) -> End {
        let unsent = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<Unsent>());
        if let Some(Unsent(frames)) = unsent
            && let Err(error) = self.send(session, ctx, head, frames.clone(), false).await
        {
            return failed(ctx, &error);
        }
        failed(ctx, error)
    }

    /// Sends frames of a stream, after the head if it has not been sent.
    async fn send(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        head: &mut ResponseHeader,
        body: Bytes,
        end: bool,
    ) -> pingora::Result<()> {
        let first = session.response_written().is_none();
        // What is written in several steps leaves in one: the head with the first frames, the last frames with the
        // end of the body.
        if (first || end)
            && let Some(guarded) = session.downstream_session.stream().and_then(Guarded::of)
        {
            guarded.cork();
        }
        if first {
            self.send_head(session, ctx, head, None).await?;
        }
        if ctx.record.first_content.is_none()
            && ctx.passing().is_some_and(|passing| passing.verbatim.meter().content_frames() > 0)
        {
            ctx.record.first_content = Some(std::time::Instant::now());
        }
        ctx.record.response_bytes += body.len() as u64;
        let downstream = &mut session.downstream_session;
        if end && !body.is_empty() {
            downstream.write_response_body(body, false).await.map_err(|error| error.into_down())?;
            uncork(downstream);
            return downstream
                .write_response_body(Bytes::new(), true)
                .await
                .map_err(|error| error.into_down());
        }
        uncork(downstream);
        downstream.write_response_body(body, end).await.map_err(|error| error.into_down())
    }

    /// Sends a document, or a refusal, with its length.
    async fn send_whole(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        head: &mut ResponseHeader,
        body: Bytes,
    ) -> pingora::Result<()> {
        if let Some(failure) = ctx.failure.take() {
            self.note(ctx, &failure);
            return self.reply_refusal(session, ctx, &failure, body).await;
        }
        ctx.record.first_content = Some(std::time::Instant::now());
        self.send_head(session, ctx, head, Some(body.len())).await?;
        ctx.record.response_bytes += body.len() as u64;
        session.downstream_session.write_response_body(body, true).await.map_err(|error| error.into_down())
    }

    async fn send_head(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        head: &mut ResponseHeader,
        length: Option<usize>,
    ) -> pingora::Result<()> {
        self.response_filter(session, head, ctx).await?;
        let mut head = Box::new(std::mem::replace(head, ResponseHeader::build_no_case(200, None)?));
        if let Some(length) = length {
            head.remove_header(&http::header::TRANSFER_ENCODING);
            head.insert_header(http::header::CONTENT_LENGTH, http::HeaderValue::from(length))?;
        }
        set_version(&mut head, session);
        ctx.record.status = head.status.as_u16();
        session.downstream_session.write_response_header(head).await.map_err(|error| error.into_down())
    }
}

fn uncork(downstream: &pingora::protocols::http::ServerSession) {
    if let Some(guarded) = downstream.stream().and_then(Guarded::of) {
        guarded.uncork();
    }
}

/// Writes a piece of the request body, in slices.
async fn send_piece(upstream: &mut HttpSession, mut piece: Bytes, last: bool) -> pingora::Result<()> {
    loop {
        let slice = piece.split_to(SLICE.min(piece.len()));
        let end = last && piece.is_empty();
        upstream.write_request_body(slice, end).await?;
        if piece.is_empty() {
            break;
        }
    }
    match upstream {
        HttpSession::H1(h1) if last => h1.finish_body().await.map(|_| ()),
        _ => Ok(()),
    }
}

/// Why no answer began.
enum Asked {
    /// What the client is to be told.
    Told(ApiError),
    /// The connection failed.
    Failed(Box<Error>),
}

impl From<Box<Error>> for Asked {
    fn from(error: Box<Error>) -> Self {
        Asked::Failed(error)
    }
}

/// What was read of a body.
enum Read {
    Piece(Bytes),
    Last(Bytes),
    /// What was complete before the fault, and the fault.
    Broken(Bytes, Box<Error>),
}

/// Reads a provider's body. Pieces that are already there are gathered into one, so that a burst of frames costs one
/// write instead of many.
struct Reader<'u> {
    upstream: &'u mut HttpSession,
    gathered: BytesMut,
    streaming: bool,
}

impl Reader<'_> {
    /// Cancel-safe: what was gathered stays.
    async fn read(&mut self) -> Read {
        let mut step = next(self.upstream, &mut self.gathered).await;
        loop {
            let grown = match step {
                Next::Appended(length) => length,
                // HTTP/2 hands its frames over; most of the time there is only one.
                Next::Whole(whole) if self.gathered.is_empty() && self.streaming => {
                    return self.single(whole);
                }
                Next::Whole(whole) => {
                    self.gathered.extend_from_slice(&whole);
                    whole.len()
                }
                Next::End => return Read::Last(self.take()),
                Next::Broken(error) => return Read::Broken(self.take(), error),
            };
            match done(self.upstream) {
                Ok(false) => {}
                Ok(true) => return Read::Last(self.take()),
                Err(error) => return Read::Broken(self.take(), error),
            }
            if self.is_enough(grown) {
                return Read::Piece(self.take());
            }
            let more = tokio::task::unconstrained(next(self.upstream, &mut self.gathered));
            match poll_now(more) {
                None => return Read::Piece(self.take()),
                Some(next) => step = next,
            }
        }
    }

    /// Whether to stop looking for more: enough is gathered, or the last read brought this piece and nothing else.
    fn is_enough(&self, grown: usize) -> bool {
        if !self.streaming {
            return self.gathered.len() >= GATHER_WHOLE;
        }
        let last_read = self.upstream.stream().and_then(Corked::of).map(Corked::last_read);
        self.gathered.len() >= GATHER || last_read.is_some_and(|read| grown + CHUNK_FRAMING >= read)
    }

    fn single(&mut self, whole: Bytes) -> Read {
        match done(self.upstream) {
            Ok(false) => Read::Piece(whole),
            Ok(true) => Read::Last(whole),
            Err(error) => Read::Broken(whole, error),
        }
    }

    fn take(&mut self) -> Bytes {
        self.gathered.split().freeze()
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
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// Resolves when the client goes away.
async fn client_gone(session: &mut Session) -> ApiError {
    // Bytes of a next request are kept by Pingora; only an end or an error of the connection comes back.
    let _ = session.downstream_session.read_body_or_idle(true).await;
    ApiError::new(Kind::ClientGone, "The client closed the connection.")
}

fn use_http2(
    head: &mut pingora::http::RequestHeader,
    scheme: crate::vendor::Scheme,
    authority: &str,
) -> pingora::Result<()> {
    let path = String::from_utf8_lossy(head.raw_path()).into_owned();
    let scheme = if scheme == crate::vendor::Scheme::Https { "https" } else { "http" };
    let uri = http::Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    let uri = uri.map_err(|error| Error::because(ErrorType::InvalidHTTPHeader, "upstream address", error))?;
    head.set_version(http::Version::HTTP_2);
    head.remove_header(&http::header::HOST);
    head.set_uri(uri);
    Ok(())
}

fn is_downgrade(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2)
}

fn silent() -> ApiError {
    ApiError::new(Kind::UpstreamTimeout, "The upstream provider did not answer in time.")
}

fn restarting() -> ApiError {
    ApiError::new(Kind::ShuttingDown, "The gateway is restarting; please try again.")
}

fn broken_off() -> ApiError {
    ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer broke off.")
}

/// The failure that a filter left, or what the connection's error means.
fn failed(ctx: &mut Context, error: &Error) -> End {
    if ctx.record.detail.is_none() {
        ctx.record.detail = Some(error.to_string().into_boxed_str());
    }
    End::Failed(match ctx.failure.take() {
        Some(failure) => *failure,
        None => from_pingora(error),
    })
}
