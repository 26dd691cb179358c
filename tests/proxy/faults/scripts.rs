//! Scripted upstreams that fail, each in its own way, before the first content of an answer.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpSocket;

use crate::support::form::{Form, provider_error};
use crate::support::reply;
use crate::support::upstream::{Conn, Upstream};

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Connections are refused.
    Refuse,
    /// The host name does not resolve.
    NoAddress,
    /// The server does not speak TLS.
    NoTls,
    /// The server accepts the connection and never answers the TLS handshake.
    SilentTls,
    /// The connection is reset after the request.
    Reset,
    /// The connection is closed after the request.
    Close,
    /// The request is read and never answered.
    BlackHole,
    /// The response head is sent byte by byte.
    SlowHead,
    /// Error response with this status.
    Status(u16),
    /// Error response with this status and `retry-after`.
    Busy(u16),
    /// The response is not HTTP.
    Garbage,
    /// An HTML page with status 200.
    Page,
    /// The body is shorter than its `content-length`.
    ShortBody,
    /// A document that is cut in the middle, with a matching `content-length`.
    HalfDocument,
    /// An error with status 200.
    ErrorInside,
    /// The first frame of the stream is an error.
    ErrorFirst,
    /// An error follows the frames that precede the content.
    ErrorLater,
    /// The stream is cut after the frames that precede the content.
    Cut,
    /// The stream stalls after the frames that precede the content.
    Stall,
    /// Every other request fails.
    Flapping,
}

/// Faults of documents and streams.
pub(crate) const ALL: [Fault; 26] = [
    Fault::Refuse,
    Fault::NoAddress,
    Fault::NoTls,
    Fault::SilentTls,
    Fault::Reset,
    Fault::Close,
    Fault::BlackHole,
    Fault::SlowHead,
    Fault::Status(401),
    Fault::Status(403),
    Fault::Status(404),
    Fault::Status(408),
    Fault::Status(409),
    Fault::Status(425),
    Fault::Status(429),
    Fault::Status(500),
    Fault::Status(502),
    Fault::Status(503),
    Fault::Status(529),
    Fault::Busy(429),
    Fault::Busy(503),
    Fault::Garbage,
    Fault::Page,
    Fault::ShortBody,
    Fault::ErrorInside,
    Fault::Flapping,
];

/// Faults of documents only.
pub(crate) const DOCUMENTS: [Fault; 1] = [Fault::HalfDocument];

/// Faults of streams only.
pub(crate) const STREAMS: [Fault; 4] = [Fault::ErrorFirst, Fault::ErrorLater, Fault::Cut, Fault::Stall];

impl Fault {
    /// Whether repetitions of the fault open the breaker. Some failures are not attributed to the target, or cause a
    /// cooldown instead.
    pub(crate) fn opens(self) -> bool {
        !matches!(self, Fault::Status(404 | 409 | 425 | 429 | 529) | Fault::Busy(_) | Fault::Flapping)
    }
}

/// A failing provider: its base URL, and its upstream, which is `None` if nothing listens there.
#[derive(Debug)]
pub(crate) struct Failing {
    pub(crate) base: String,
    pub(crate) upstream: Option<Upstream>,
    _reserved: Option<TcpSocket>,
}

/// Starts a failing provider.
pub(crate) async fn start(fault: Fault, form: Form) -> Failing {
    if fault == Fault::Refuse {
        let reserved = closed_port();
        let base = format!("http://{}", reserved.local_addr().unwrap());
        return Failing { base, upstream: None, _reserved: Some(reserved) };
    }
    if fault == Fault::NoAddress {
        let base = "http://no-such-host.invalid".to_owned();
        return Failing { base, upstream: None, _reserved: None };
    }
    let turn = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::start(move |conn| serve(conn, fault, form, turn.clone())).await;
    let scheme = if matches!(fault, Fault::NoTls | Fault::SilentTls) { "https" } else { "http" };
    Failing { base: format!("{scheme}://{}", upstream.addr), upstream: Some(upstream), _reserved: None }
}

/// Returns a socket that is bound to a loopback port and does not listen: connections are refused, and no server of
/// another test can get the port.
pub(crate) fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket
}

/// Returns a successful response.
pub(crate) fn good(form: Form, stream: bool) -> Vec<u8> {
    if stream { reply::stream(&form.frames("m")) } else { reply::json(200, form.whole("m")) }
}

/// Whether the request asks for a stream.
pub(crate) fn wants_stream(request: &crate::support::upstream::Request) -> bool {
    request.head.target().contains("streamGenerate") || request.text().contains("\"stream\":true")
}

async fn serve(mut conn: Conn, fault: Fault, form: Form, turn: Arc<AtomicUsize>) {
    match fault {
        Fault::NoTls => {
            conn.send("220 mail.test ESMTP\r\n").await;
            return conn.closed().await;
        }
        Fault::SilentTls => return conn.closed().await,
        _ => {}
    }
    while let Some(request) = conn.request().await {
        let stream = wants_stream(&request);
        let Some(goes_on) = answer(conn, fault, form, stream, &turn).await else { return };
        conn = goes_on;
    }
}

/// Answers a request with the fault. Returns the connection if it can be reused.
pub(crate) async fn answer(
    mut conn: Conn,
    fault: Fault,
    form: Form,
    stream: bool,
    turn: &AtomicUsize,
) -> Option<Conn> {
    let beginning = || form.opening("m");
    match fault {
        Fault::Reset => {
            conn.reset();
            return None;
        }
        Fault::Close => return None,
        Fault::BlackHole => {
            conn.closed().await;
            return None;
        }
        Fault::SlowHead => {
            for byte in reply::head(200, &[("content-type", "application/json")]).bytes() {
                conn.try_send([byte]).await.ok()?;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            return None;
        }
        Fault::Status(status) => conn.send(reply::json(status, provider_error(form, status, "no"))).await,
        Fault::Busy(status) => {
            let headers = [("content-type", "application/json"), ("retry-after", "30")];
            conn.send(reply::whole(status, &headers, provider_error(form, status, "busy"))).await;
        }
        Fault::Garbage => {
            conn.send(b"\x00\xff\xfeSSH-2.0-nothing\r\n\r\n").await;
            return None;
        }
        Fault::Page => {
            conn.send(reply::whole(200, &[("content-type", "text/html")], "<html>hello</html>")).await;
        }
        Fault::ShortBody => {
            let kind = if stream { "text/event-stream" } else { "application/json" };
            conn.send(reply::head(200, &[("content-type", kind), ("content-length", "10000")])).await;
            conn.send(if stream { beginning() } else { form.whole("m") }).await;
            return None;
        }
        Fault::HalfDocument => {
            let whole = form.whole("m");
            let half: String = whole.chars().take(whole.chars().count() / 2).collect();
            conn.send(reply::json(200, half)).await;
        }
        Fault::ErrorInside => conn.send(reply::json(200, provider_error(form, 500, "inside"))).await,
        Fault::ErrorFirst | Fault::ErrorLater => {
            conn.send(reply::stream_head()).await;
            if fault == Fault::ErrorLater {
                conn.send(reply::chunk(beginning())).await;
            }
            let name = if form == Form::Messages || form == Form::Responses { "event: error\n" } else { "" };
            let body: String = provider_error(form, 529, "overloaded").split_whitespace().collect();
            conn.send(reply::chunk(format!("{name}data: {body}\n\n"))).await;
            conn.send(reply::LAST_CHUNK).await;
        }
        Fault::Cut => {
            conn.send(reply::stream_head()).await;
            conn.send(reply::chunk(beginning())).await;
            return None;
        }
        Fault::Stall => {
            conn.send(reply::stream_head()).await;
            conn.send(reply::chunk(beginning())).await;
            conn.closed().await;
            return None;
        }
        Fault::Flapping if turn.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => {
            conn.send(reply::json(503, provider_error(form, 503, "down"))).await;
        }
        Fault::Flapping => conn.send(good(form, stream)).await,
        Fault::Refuse | Fault::NoAddress | Fault::NoTls | Fault::SilentTls => return None,
    }
    Some(conn)
}
