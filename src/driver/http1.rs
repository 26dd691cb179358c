//! HTTP/1 connection: serves its requests one after the other.
//!
//! Pingora's `HttpProxy` would do it too, with state for a cache, compression, subrequests and upgrades in every request:
//! 18 KiB that are allocated, moved and cleared each time, and held for as long as a stream lasts (docs/decisions/002).

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::BytesMut;
use http::header;
use pingora::ErrorType;
use pingora::protocols::Stream;
use pingora::protocols::http::date::get_cached_date;
use pingora::proxy::Session;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep};

use super::head::{HeadFault, HeadScan};
use super::header_timeout::HeaderTimeoutStream;
use super::hooks::{ExchangeHooks, HookFuture, Upgrade};
use super::request::{BROKEN, handle_request, refuse_request};
use super::shutdown::DrainGuard;
use codec::error::{ApiError, ErrorKind};

/// Grace period of a new connection once the process drains: it was accepted, so its first request is probably on its
/// way.
pub const NEW_CONNECTION_GRACE: Duration = Duration::from_secs(1);

/// Time and bytes for which input after a malformed head is read, so that the client receives the response and not a
/// reset.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 4 << 20;

/// Room for each further read of a head that did not arrive whole, in bytes.
const ROOM: usize = 4 * 1024;

/// Future that resolves when the process begins to drain; polled between requests.
type Draining<'d> = Pin<&'d mut (dyn Future<Output = ()> + Send)>;

/// Serves a connection until either side closes it. `first` holds the bytes that were read already. `held` is the drain
/// guard of the connection until its first head has arrived or is given up. Returns what serves the connection from then
/// on, if it was upgraded to another protocol; `None` if it is closed.
pub async fn serve<P: ExchangeHooks>(
    proxy: &P,
    stream: Box<HeaderTimeoutStream>,
    first: BytesMut,
    held: DrainGuard,
) -> Option<HookFuture<'static, ()>> {
    let settings = proxy.settings();
    let mut draining = pin!(proxy.shutdown().draining());
    let mut idle = Idle::new(settings.keepalive.max(Duration::from_secs(1)));
    let mut next = Some((stream, first));
    let mut fresh = Some(held);
    while let Some((mut stream, mut buf)) = next.take() {
        let mut scan = HeadScan::default();
        let read = {
            let reading = read_head(settings.head, &mut scan, &mut stream, &mut buf, &mut idle);
            unless_draining(reading, draining.as_mut(), fresh.is_some()).await
        };
        match read {
            Read::Head => {}
            Read::Nothing => return None,
            Read::Broken(error) => {
                let refusing = refuse(proxy, &mut stream, &error, scan.target(&buf));
                let _ = tokio::time::timeout(BROKEN, refusing).await;
                return None;
            }
        }
        // Boxed: a connection is idle most of the time, and would keep space for the state of a request.
        let serving = serve_request(proxy, stream, (buf, scan.closes()), draining.as_mut(), &mut fresh);
        let served = Box::pin(serving).await;
        let (stream, rest, upgrade) = served?;
        if let Some(upgrade) = upgrade {
            // The connection belongs to another protocol from here on.
            stream.head_complete();
            return Some(upgrade(stream, rest));
        }
        idle.begin();
        next = Some((stream, rest));
    }
    None
}

/// Connection after a request, the bytes behind the request that were read already, and what serves the connection from
/// now on, if it was upgraded.
type Served = (Box<HeaderTimeoutStream>, BytesMut, Option<Upgrade>);

/// Serves the request whose head is in the buffer; `closes` is whether the client wants the connection to be closed behind
/// it. `None` if the connection is closed or cannot be used for another one.
async fn serve_request<P: ExchangeHooks>(
    proxy: &P,
    stream: Box<HeaderTimeoutStream>,
    (buf, closes): (BytesMut, bool),
    draining: Draining<'_>,
    fresh: &mut Option<DrainGuard>,
) -> Option<Served> {
    let mut session = Session::new_h1_with_modules(stream as Stream, proxy.modules());
    session.set_keepalive(Some(proxy.settings().keepalive.as_secs().max(1)));
    // A pipelining client sends the next head before this response ends. Its bytes must not be lost.
    session.set_pipelining_enabled(true);
    session.set_pipelined_prefix(buf);
    // Boxed, and the end too: a stream would keep the space of their states while it lasts, which is more than its own.
    let parsed = Box::pin(parse_head(proxy, &mut session));
    if !unless_draining(parsed, draining, fresh.is_some()).await {
        return None;
    }
    if closes {
        session.set_keepalive(None);
    }
    let (reusable, upgrade) = {
        let mut ctx = proxy.new_ctx();
        // From here on the context delays the shutdown in place of the drain guard.
        drop(fresh.take());
        let reusable = handle_request(proxy, &mut session, &mut ctx).await;
        (reusable, proxy.take_upgrade(&mut ctx))
    };
    if !reusable {
        return None;
    }
    // Also reads the rest of the request body, whose bytes would be taken for the next head.
    let (stream, rest) = Box::pin(session.downstream_session.finish()).await.ok()??.into_parts();
    let stream = stream.into_any().downcast::<HeaderTimeoutStream>().ok()?;
    Some((stream, rest.unwrap_or_default(), upgrade))
}

/// Result of reading a request head.
#[derive(Debug, Default)]
enum Read {
    /// The head is complete and unambiguous.
    Head,
    /// The connection has ended, or is to be closed without a response.
    #[default]
    Nothing,
    Broken(ApiError),
}

/// Runs `work`; returns the default once the process drains. A `fresh` connection, without a request so far, has the
/// grace period [`NEW_CONNECTION_GRACE`].
async fn unless_draining<T: Default>(
    work: impl Future<Output = T>,
    draining: Draining<'_>,
    fresh: bool,
) -> T {
    let stopping = async {
        draining.await;
        if fresh {
            sleep(NEW_CONNECTION_GRACE).await;
        }
    };
    tokio::select! {
        biased;
        output = work => output,
        () = stopping => T::default(),
    }
}

/// Idle time-out of a connection. The timer is not reset for each request: when it fires, it is moved to the actual
/// deadline.
struct Idle {
    span: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    fn new(span: Duration) -> Self {
        Idle { span, since: Instant::now(), timer: Box::pin(sleep(span)) }
    }

    /// Starts an idle period.
    fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Resolves when the connection has been idle for `span`.
    async fn expired(&mut self) {
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

/// Reads a head of at most `limit` bytes into `buf`, which may hold part of it already. Bytes behind the head stay in `buf`.
async fn read_head(
    limit: usize,
    scan: &mut HeadScan,
    stream: &mut HeaderTimeoutStream,
    buf: &mut BytesMut,
    idle: &mut Idle,
) -> Read {
    // Part of the head may be here already: then its time-out starts now, and not with its next byte.
    stream.begin_head(!buf.is_empty());
    let length = loop {
        match scan.advance(buf, limit) {
            Ok(Some(length)) => break length,
            Ok(None) => {}
            Err(fault) => return Read::Broken(head_error(&fault)),
        }
        let read = if buf.is_empty() {
            tokio::select! {
                biased;
                // First: a head that has arrived is not lost to the idle time-out of the same moment.
                read = stream.read_first(buf) => read,
                () = idle.expired() => return Read::Nothing,
            }
        } else {
            // The stream applies `limits.header_timeout`.
            buf.reserve(ROOM);
            stream.read_buf(buf).await
        };
        match read {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let message = "The request head did not arrive in time.";
                return Read::Broken(ApiError::new(ErrorKind::HeaderTimeout, message));
            }
            Ok(0) | Err(_) => return Read::Nothing,
        }
    };
    let length = scan.to_origin_form(buf, length);
    if scan.is_chunked()
        && let Err(misframed) = stream.watch_chunks(buf.get(length..).unwrap_or_default())
    {
        return Read::Broken(ApiError::new(
            ErrorKind::InvalidHead,
            format!("The request is not valid: {misframed}."),
        ));
    }
    Read::Head
}

fn head_error(fault: &HeadFault) -> ApiError {
    let kind = match fault {
        HeadFault::TooLarge(_) => ErrorKind::HeadTooLarge,
        _ => ErrorKind::InvalidHead,
    };
    let error = ApiError::new(kind, format!("The request head is not valid: {fault}."));
    match fault.status() {
        Some(status) => error.status(status),
        None => error,
    }
}

/// Parses a complete head. Returns false if it is invalid, after an error response, or if the connection is closed.
async fn parse_head<P: ExchangeHooks>(proxy: &P, session: &mut Session) -> bool {
    let error = match session.downstream_session.read_request().await {
        Ok(head) => return head,
        Err(error) => error,
    };
    if *error.etype() != ErrorType::InvalidHTTPHeader {
        // The connection is gone.
        return false;
    }
    let told = ApiError::new(ErrorKind::InvalidHead, "The request head is not valid HTTP.");
    refuse_request(proxy, session, &told, None).await;
    false
}

/// Writes the error response to a malformed head and closes the connection.
async fn refuse<P: ExchangeHooks>(
    proxy: &P,
    stream: &mut HeaderTimeoutStream,
    error: &ApiError,
    target: Option<&str>,
) -> io::Result<()> {
    // No session exists yet that could write this response.
    let (mut head, body) = proxy.refuse_head(error, target);
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
    // Closing a socket with unread bytes makes the kernel send a reset, which can overtake the response: read them
    // first.
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
