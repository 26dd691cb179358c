//! The exchange with a provider, driven here on Pingora's connector.
//!
//! Pingora's own loop cannot carry a body that was read before the peer was chosen (docs/decisions/002). This loop
//! calls the same filters of the same `ProxyHttp` implementation in the same order, and can do more: it reads a
//! refusal's body and keeps that connection, gathers what is already readable into one write, holds an answer's head
//! back until it is known whether the answer is one, and knows deadlines.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use pingora::http::ResponseHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::proxy::{ProxyHttp, Session};
use pingora::{Error, ErrorType};

use super::Gateway;
use super::context::{Answer, Context};
use super::peer::Upstream;
use super::reply::{from_pingora, set_version};
use super::response::Unsent;
use crate::error::{ApiError, Kind};

/// What is gathered into one write at most. A fast provider must not keep the first byte from the client.
const GATHER: usize = 64 * 1024;
/// How much of a body is given to the connection at a time: the time-out of a write is for one piece.
const SLICE: usize = 128 * 1024;
/// How long one such piece may take.
const WRITE: Duration = Duration::from_secs(30);
/// How long the head of a stream waits for the first frame, which may be an error. After that the client gets the
/// head, and an error becomes part of the stream.
const HOLD: Duration = Duration::from_secs(2);

/// How an exchange ended.
enum End {
    /// The client has the whole answer.
    Complete,
    /// It failed; what the client is to be told.
    Failed(ApiError),
}

/// Waits for whatever ends an exchange from outside.
type Interrupt<'i> = Pin<&'i mut (dyn Future<Output = ApiError> + Send)>;

impl Gateway {
    /// Runs the exchange and brings the client its answer, or an error.
    pub(super) async fn exchange(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<()> {
        let total =
            ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| target.provider.timeouts.total);
        let deadline = tokio::time::Instant::now() + total.unwrap_or(Duration::from_secs(3_600));
        let interrupt = async {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {
                    ApiError::new(Kind::UpstreamTimeout, "The upstream provider did not finish its answer in time.")
                }
                () = self.shutdown.ended() => {
                    ApiError::new(Kind::ShuttingDown, "The gateway is restarting; please try again.")
                }
            }
        };
        tokio::pin!(interrupt);
        let end = self.attempt(session, ctx, interrupt).await;
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

    async fn attempt(&self, session: &mut Session, ctx: &mut Context, mut interrupt: Interrupt<'_>) -> End {
        loop {
            ctx.record.attempts += 1;
            ctx.record.asked = Some(Instant::now());
            let peer = match self.peer(ctx).await {
                Ok(peer) => peer,
                Err(error) => return failed(ctx, &error),
            };
            let connected = tokio::select! {
                biased;
                connected = self.connector.get_http_session(&*peer) => connected,
                gone = client_gone(session) => return End::Failed(gone),
                error = interrupt.as_mut() => return End::Failed(error),
            };
            let (mut upstream, reused) = match connected {
                Ok(connected) => connected,
                Err(error) => {
                    if matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2) {
                        self.connector.prefer_h1(&*peer);
                        continue;
                    }
                    return failed(ctx, &error);
                }
            };
            if let Some(series) = ctx.plan.as_ref().and_then(|plan| plan.series.as_ref()) {
                series.exchange(reused);
            }
            let timeouts =
                ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| target.provider.timeouts);
            upstream.set_read_timeout(timeouts.map(|timeouts| timeouts.first_byte));
            upstream.set_write_timeout(Some(WRITE));
            let asked = tokio::select! {
                biased;
                asked = self.ask(session, ctx, &mut upstream) => Ok(asked),
                error = interrupt.as_mut() => Err(error),
            };
            match asked {
                Ok(Ok(())) => {}
                Ok(Err(Asked::Gone(error))) => return End::Failed(error),
                Ok(Err(Asked::Failed(mut error))) => {
                    // A connection from the pool may have been closed by the other side in this very moment.
                    error.retry.decide_reuse(reused);
                    if reused && error.retry() {
                        self.count_retry(ctx, "stale_connection");
                        continue;
                    }
                    if matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2) {
                        self.connector.prefer_h1(&*peer);
                        self.count_retry(ctx, "h2_downgrade");
                        continue;
                    }
                    return failed(ctx, &error);
                }
                Err(error) => return End::Failed(error),
            }
            upstream.set_read_timeout(timeouts.map(|timeouts| timeouts.idle));
            return self.answer(session, ctx, upstream, peer, interrupt).await;
        }
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
    ) -> Result<(), Asked> {
        let mut head = pingora::http::RequestHeader::build_no_case("POST", b"/", None)?;
        self.upstream_request_filter(session, &mut head, ctx).await?;
        if let HttpSession::H2(_) = upstream {
            let authority =
                ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| {
                    (target.provider.base.scheme(), target.provider.base.authority().to_owned())
                });
            if let Some((scheme, authority)) = authority {
                use_http2(&mut head, scheme, &authority)?;
            }
        }
        let mut pieces = Vec::new();
        loop {
            let mut piece = None;
            let last = ctx.plan.as_ref().is_none_or(|plan| plan.sent + 1 >= plan.body.len());
            self.request_body_filter(session, &mut piece, last, ctx).await?;
            pieces.extend(piece);
            if last {
                break;
            }
        }
        let talk = async {
            upstream.write_request_header(Box::new(head)).await?;
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                let mut rest = piece;
                loop {
                    let slice = rest.split_to(SLICE.min(rest.len()));
                    let end = rest.is_empty() && index + 1 == count;
                    upstream.write_request_body(slice, end).await?;
                    if rest.is_empty() {
                        break;
                    }
                }
            }
            if let HttpSession::H1(h1) = upstream {
                h1.finish_body().await?;
            }
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
            talked = talk => talked.map_err(|error| Asked::Failed(error.into_up())),
            gone = client_gone(session) => Err(Asked::Gone(gone)),
        }
    }

    /// Brings the answer to the client.
    async fn answer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        mut upstream: HttpSession,
        peer: Arc<Upstream>,
        mut interrupt: Interrupt<'_>,
    ) -> End {
        let mut head = match upstream.response_header() {
            Some(head) => head.clone(),
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
        let hold = tokio::time::sleep(HOLD);
        tokio::pin!(hold);
        let mut reader = Reader { upstream: &mut upstream, gathered: BytesMut::new(), streaming };
        loop {
            let read = loop {
                let written = session.response_written().is_some();
                tokio::select! {
                    biased;
                    read = reader.read() => break read,
                    gone = client_gone(session) => return End::Failed(gone),
                    error = interrupt.as_mut() => return End::Failed(error),
                    () = hold.as_mut(), if streaming && !written => {
                        if let Err(error) = self.send_head(session, ctx, &mut head, None).await {
                            return failed(ctx, &error);
                        }
                    }
                }
            };
            let (mut body, end, fault) = match read {
                Read::Piece(piece) => (Some(piece), false, None),
                Read::Last(piece) => (Some(piece), true, None),
                Read::Broken(piece, error) => (Some(piece), false, Some(error)),
            };
            let passed = self.response_body_filter(session, &mut body, end, ctx);
            if let Err(error) = passed {
                // Frames that were complete when the stream broke belong to the client.
                let unsent = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<Unsent>());
                if let Some(Unsent(frames)) = unsent
                    && let Err(error) = self.send(session, ctx, &mut head, frames.clone(), false).await
                {
                    return failed(ctx, &error);
                }
                return failed(ctx, &error);
            }
            if end && !streaming {
                return match self.send_whole(session, ctx, &mut head, body.unwrap_or_default()).await {
                    Ok(()) => {
                        self.connector
                            .release_http_session(upstream, &*peer, Some(self.limits.pool_idle))
                            .await;
                        End::Complete
                    }
                    Err(error) => failed(ctx, &error),
                };
            }
            let body = body.unwrap_or_default();
            if (!body.is_empty() || end)
                && let Err(error) = self.send(session, ctx, &mut head, body, end).await
            {
                return failed(ctx, &error);
            }
            if end {
                self.connector.release_http_session(upstream, &*peer, Some(self.limits.pool_idle)).await;
                return End::Complete;
            }
            if let Some(error) = fault {
                return failed(ctx, &error);
            }
        }
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
        if session.response_written().is_none() {
            self.send_head(session, ctx, head, None).await?;
        }
        if ctx.record.first_content.is_none()
            && ctx.passing().is_some_and(|passing| passing.verbatim.meter().content_frames() > 0)
        {
            ctx.record.first_content = Some(Instant::now());
        }
        ctx.record.response_bytes += body.len() as u64;
        session.downstream_session.write_response_body(body, end).await.map_err(|error| error.into_down())
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
        ctx.record.first_content = Some(Instant::now());
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

/// Why no answer began.
enum Asked {
    Gone(ApiError),
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
        let limit = if self.streaming { GATHER } else { 4 * GATHER };
        let mut step = next(self.upstream, &mut self.gathered).await;
        loop {
            match step {
                Next::Appended => {}
                // HTTP/2 hands its frames over; most of the time there is only one.
                Next::Whole(whole) if self.gathered.is_empty() && !self.more_now() => {
                    return self.single(whole);
                }
                Next::Whole(whole) => self.gathered.extend_from_slice(&whole),
                Next::End => return Read::Last(self.take()),
                Next::Broken(error) => return Read::Broken(self.take(), error),
            }
            match done(self.upstream) {
                Ok(false) => {}
                Ok(true) => return Read::Last(self.take()),
                Err(error) => return Read::Broken(self.take(), error),
            }
            if self.gathered.len() >= limit {
                return Read::Piece(self.take());
            }
            let more = tokio::task::unconstrained(next(self.upstream, &mut self.gathered));
            match poll_now(more) {
                None => return Read::Piece(self.take()),
                Some(next) => step = next,
            }
        }
    }

    /// Whether it is worth looking for more: HTTP/2 frames are joined only where a document is collected.
    fn more_now(&self) -> bool {
        !self.streaming
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
    /// An HTTP/1 piece was appended to what is gathered.
    Appended,
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
                    return Next::Appended;
                }
                Ok(None) => return Next::End,
                Err(error) => return Next::Broken(error.into_up()),
            }
        }
    }
    match upstream.read_response_body().await {
        Ok(Some(piece)) if piece.is_empty() => Next::Appended,
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
