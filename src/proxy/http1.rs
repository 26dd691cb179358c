//! The requests of one HTTP/1 connection, one after the other.
//!
//! For HTTP/2 Pingora's `HttpProxy` calls the phases of [`Gateway`]; for HTTP/1, which carries nearly all traffic, the
//! same rooms are called here in the same order. `HttpProxy` has room for a cache, compression, subrequests and
//! upgrades in the state of every request: 18 KiB that are allocated, moved and cleared for each, and kept for as long
//! as a stream lasts (docs/decisions/002).

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::BytesMut;
use http::header;
use pingora::ErrorType;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::date::get_cached_date;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep};

use super::context::Context;
use super::exchange::Ended;
use super::head::{HeadFault, HeadScan};
use super::header_timeout::HeaderTimeoutStream;
use super::reply::own_error_head;
use super::shutdown::DrainGuard;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::wire::{Format, error as wire_error};

/// How long a connection that has not said anything yet may still begin once the process is stopping: it was accepted,
/// and its request is probably under way.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How long the answer to a broken head may take to be written.
const BROKEN: Duration = Duration::from_secs(2);
/// How long and how much is read behind a broken head, so that the client sees the answer and not a reset, in bytes.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 4 << 20;

/// Room for a head, in bytes; most fit, often with their body.
const ROOM: usize = 4 * 1024;

/// Resolves when the process begins to stop; polled between requests.
type Draining<'d> = Pin<&'d mut (dyn Future<Output = ()> + Send)>;

/// Serves a connection until either side closes it. `first` is what was read of it, and `held` makes those wait who
/// wait for the requests under way: until the first head has come, or has been given up.
pub(super) async fn serve(
    gateway: &Gateway,
    stream: Box<HeaderTimeoutStream>,
    first: BytesMut,
    held: DrainGuard,
) {
    let mut ended = pin!(gateway.shutdown.ended());
    let mut draining = pin!(gateway.shutdown.draining());
    let mut idle = Idle::new(gateway.limits.keepalive.max(Duration::from_secs(1)));
    let mut next = Some((stream, first));
    let mut fresh = Some(held);
    while let Some((mut stream, mut buf)) = next.take() {
        let read = {
            let reading = read_head(gateway, &mut stream, &mut buf, &mut idle);
            before_stopping(reading, draining.as_mut(), fresh.is_some()).await
        };
        match read {
            Read::Head => {}
            Read::Nothing => return,
            Read::Broken(error) => {
                gateway.count_broken_head(&error);
                let _ = tokio::time::timeout(BROKEN, refuse(&mut stream, &error)).await;
                return;
            }
        }
        let mut client = ServerSession::new_http1(stream as Stream);
        client.set_keepalive(Some(gateway.limits.keepalive.as_secs().max(1)));
        client.set_pipelining_enabled(true);
        client.set_pipelined_prefix(buf);
        let parsed = parse_head(gateway, &mut client);
        if !before_stopping(parsed, draining.as_mut(), fresh.is_some()).await {
            return;
        }
        let answered = {
            let mut ctx = gateway.new_context();
            drop(fresh.take());
            answer(gateway, &mut client, &mut ctx, ended.as_mut()).await
        };
        if !answered {
            return;
        }
        let Ok(Some(reusable)) = client.finish().await else { return };
        let (stream, rest) = reusable.into_parts();
        let Ok(stream) = stream.into_any().downcast::<HeaderTimeoutStream>() else { return };
        idle.begin();
        next = Some((stream, rest.unwrap_or_default()));
    }
}

/// Result of reading a head.
#[derive(Debug, Default)]
enum Read {
    /// It is complete and can be read in one way only.
    Head,
    /// The connection has ended, or is to end without a word.
    #[default]
    Nothing,
    Broken(ApiError),
}

/// Output of a future, or the default once the process is stopping and a connection of this kind is not waited for.
async fn before_stopping<T: Default>(
    work: impl Future<Output = T>,
    draining: Draining<'_>,
    fresh: bool,
) -> T {
    let stopping = async {
        draining.await;
        if fresh {
            sleep(FRESH).await;
        }
    };
    tokio::select! {
        biased;
        output = work => output,
        () = stopping => T::default(),
    }
}

/// Idle time-out of a connection. The timer stands where the time may run out first and is moved when it fires, so that
/// a request costs nothing for it.
struct Idle {
    span: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    fn new(span: Duration) -> Self {
        Idle { span, since: Instant::now(), timer: Box::pin(sleep(span)) }
    }

    /// The connection is idle from now on.
    fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Resolves when the connection has been idle for too long.
    async fn over(&mut self) {
        loop {
            self.timer.as_mut().await;
            let until = self.since + self.span;
            if Instant::now() >= until {
                return;
            }
            self.timer.as_mut().reset(until);
        }
    }
}

/// Reads a head into `buf`, which may hold some of it. Bytes behind it stay there.
async fn read_head(
    gateway: &Gateway,
    stream: &mut HeaderTimeoutStream,
    buf: &mut BytesMut,
    idle: &mut Idle,
) -> Read {
    let limit = gateway.limits.head;
    let mut scan = HeadScan::default();
    stream.begin_head(!buf.is_empty());
    let length = loop {
        match scan.advance(buf, limit) {
            Ok(Some(length)) => break length,
            Ok(None) => {}
            Err(fault) => return Read::Broken(head_error(&fault)),
        }
        buf.reserve(ROOM);
        let read = if buf.is_empty() {
            tokio::select! {
                biased;
                read = stream.read_buf(buf) => read,
                () = idle.over() => return Read::Nothing,
            }
        } else {
            // The stream has a deadline for it.
            stream.read_buf(buf).await
        };
        match read {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let message = "The request's head did not arrive in time.";
                return Read::Broken(ApiError::new(Kind::HeaderTimeout, message));
            }
            Ok(0) | Err(_) => return Read::Nothing,
        }
    };
    let length = scan.to_origin_form(buf, length);
    if scan.is_chunked()
        && let Err(misframed) = stream.watch_chunks(buf.get(length..).unwrap_or_default())
    {
        return Read::Broken(ApiError::new(
            Kind::InvalidHead,
            format!("The request is not valid: {misframed}."),
        ));
    }
    Read::Head
}

fn head_error(fault: &HeadFault) -> ApiError {
    let kind = match fault {
        HeadFault::TooLarge(_) => Kind::HeadTooLarge,
        _ => Kind::InvalidHead,
    };
    ApiError::new(kind, format!("The request's head is not valid: {fault}."))
}

/// Parses a head that is there. False when it is none.
async fn parse_head(gateway: &Gateway, client: &mut Client) -> bool {
    let error = match client.read_request().await {
        Ok(head) => return head,
        Err(error) => error,
    };
    if *error.etype() != ErrorType::InvalidHTTPHeader {
        // The connection is gone.
        return false;
    }
    let told = ApiError::new(Kind::InvalidHead, "The request's head is not valid HTTP.");
    gateway.count_broken_head(&told);
    let refusing = async {
        let body = wire_error::body(Format::Chat, &told, "").freeze();
        client.set_keepalive(None);
        client.write_response_header(own_error_head(&told, body.len())).await?;
        client.write_response_body(body, true).await
    };
    let _ = tokio::time::timeout(BROKEN, refusing).await;
    false
}

/// Tells a client that its head cannot be read. No format is known, and no id.
async fn refuse(stream: &mut HeaderTimeoutStream, error: &ApiError) -> io::Result<()> {
    let body = wire_error::body(Format::Chat, error, "");
    let mut head = own_error_head(error, body.len());
    let _ = head.insert_header(header::DATE, get_cached_date());
    let _ = head.insert_header(header::CONNECTION, "close");
    let mut out = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
    stream.write_all(&out).await?;
    stream.flush().await?;
    stream.shutdown().await?;
    // Closing with unread bytes in the socket makes the kernel send a reset, which can overtake the answer.
    stream.head_complete();
    let rest = async {
        let mut seen = 0;
        let mut piece = vec![0; 16 * 1024];
        while seen < LINGER_BYTES {
            match stream.read(&mut piece).await {
                Ok(length @ 1..) => seen += length,
                Ok(0) | Err(_) => break,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, rest).await;
    Ok(())
}

/// Answers a request. False when the connection is of no more use.
async fn answer(gateway: &Gateway, client: &mut Client, ctx: &mut Context, ended: Ended<'_>) -> bool {
    gateway.begin(client, ctx);
    let result = match gateway.decide(client, ctx).await {
        Ok(true) => Ok(()),
        Ok(false) => gateway.exchange(client, ctx, ended).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &result {
        gateway.fail(client, error, ctx).await;
    }
    gateway.finish(client, result.as_ref().err().map(|error| &**error), ctx);
    result.is_ok()
}
