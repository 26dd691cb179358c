//! Pingora's proxy loop: what it cannot do (docs/decisions/002), and which of its phases the gateway uses for HTTP/2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use pingora::apps::ServerApp as _;
use pingora::http::ResponseHeader;
use pingora::prelude::HttpPeer;
use pingora::protocols::ALPN;
use pingora::proxy::{FailToProxy, ProxyHttp, Session, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::{Error, ErrorType, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Duration;

use super::support::{head, read_head, soon};

/// What the proxy does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Answers in `request_filter`.
    Answer,
    /// Answers in `proxy_upstream_filter`.
    AnswerLate,
    /// Fails in `proxy_upstream_filter`.
    Fail,
    /// Reads the whole body in `request_filter`, with the retry buffer, and forwards.
    ReadFirst,
    /// Forwards to an HTTP/2 upstream.
    Http2,
}

/// Phases in the order in which they were called.
type Phases = Arc<Mutex<Vec<&'static str>>>;

struct Proxy {
    mode: Mode,
    upstream: SocketAddr,
    phases: Phases,
}

impl Proxy {
    fn called(&self, phase: &'static str) {
        self.phases.lock().unwrap().push(phase);
    }
}

async fn answer(session: &mut Session) -> Result<()> {
    let mut head = head(200);
    head.insert_header("content-length", 2)?;
    session.downstream_session.write_response_header(head).await?;
    session.downstream_session.write_response_body(Bytes::from_static(b"ok"), true).await
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn early_request_filter(&self, session: &mut Session, _: &mut ()) -> Result<()> {
        self.called("early_request_filter");
        session.downstream_session.set_keepalive(Some(5));
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        self.called("request_filter");
        if self.mode == Mode::Http2 {
            return Ok(false);
        }
        session.downstream_session.enable_retry_buffering();
        while session.downstream_session.read_request_body().await?.is_some() {}
        match self.mode {
            Mode::Answer => answer(session).await.map(|()| true),
            _ => Ok(false),
        }
    }

    async fn proxy_upstream_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        self.called("proxy_upstream_filter");
        match self.mode {
            Mode::AnswerLate => answer(session).await.map(|()| false),
            Mode::Fail => Err(Error::new(ErrorType::InternalError)),
            _ => Ok(true),
        }
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        self.called("upstream_peer");
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        peer.options.read_timeout = Some(Duration::from_millis(500));
        if self.mode == Mode::Http2 {
            peer.options.alpn = ALPN::H2;
        }
        Ok(Box::new(peer))
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        head: &mut ResponseHeader,
        _: &mut (),
    ) -> Result<()> {
        head.remove_header("content-length");
        Ok(())
    }

    fn response_body_filter(
        &self,
        _: &mut Session,
        _: &mut Option<Bytes>,
        end_of_stream: bool,
        _: &mut (),
    ) -> Result<Option<Duration>> {
        self.called(if end_of_stream { "end_of_stream" } else { "response_body_filter" });
        Ok(None)
    }

    async fn fail_to_proxy(&self, session: &mut Session, _: &Error, _: &mut ()) -> FailToProxy {
        self.called("fail_to_proxy");
        let _ = answer(session).await;
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &(), _: &Error) -> bool {
        self.called("suppress_error_log");
        true
    }

    async fn logging(&self, _: &mut Session, error: Option<&Error>, _: &mut ()) {
        self.called(if error.is_some() { "logging_error" } else { "logging" });
    }
}

/// A client's connection to a proxy.
struct Client {
    io: DuplexStream,
    phases: Phases,
    serving: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Client {
    fn new(mode: Mode, upstream: SocketAddr) -> Client {
        let (io, near) = tokio::io::duplex(1 << 20);
        let phases = Phases::default();
        let proxy = Proxy { mode, upstream, phases: phases.clone() };
        let serving = tokio::spawn(async move {
            let proxy = Arc::new(http_proxy(&Arc::new(ServerConf::default()), proxy));
            let (_stop, watch) = tokio::sync::watch::channel(false);
            proxy.process_new(Box::new(near), &watch).await;
        });
        Client { io, phases, serving }
    }

    async fn post(&mut self, length: usize) -> String {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        self.io.write_all((head + &"x".repeat(length)).as_bytes()).await.unwrap();
        read_head(&mut self.io).await
    }

    /// Reads the two bytes of an answer of the proxy's own.
    async fn body(&mut self) {
        let mut body = [0; 2];
        soon(self.io.read_exact(&mut body)).await.unwrap();
        assert_eq!(&body, b"ok");
    }

    fn phases(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.phases.lock().unwrap())
    }
}

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// A request that a filter has answered keeps its connection, is logged, and is not sent to an upstream: in
/// `request_filter` with `true`, in `proxy_upstream_filter` with `false`. `proxy::Gateway` serves HTTP/2 so.
#[tokio::test]
async fn answer_of_a_filter_keeps_the_connection() {
    for (mode, phases) in [
        (Mode::Answer, &["early_request_filter", "request_filter", "logging"][..]),
        (Mode::AnswerLate, &["early_request_filter", "request_filter", "proxy_upstream_filter", "logging"]),
    ] {
        let mut client = Client::new(mode, NOWHERE);
        for _ in 0..2 {
            assert!(client.post(3).await.starts_with("HTTP/1.1 200"));
            client.body().await;
        }
        drop(client.io.shutdown().await);
        soon(&mut client.serving).await.unwrap();
        assert_eq!(client.phases(), [phases, phases].concat());
    }
}

/// An error of a filter asks `suppress_error_log`, calls `fail_to_proxy`, and then `logging` with the error.
/// `proxy::Gateway` suppresses Pingora's log line and writes its own.
#[tokio::test]
async fn error_of_a_filter_is_offered_to_all_three() {
    let mut client = Client::new(Mode::Fail, NOWHERE);
    client.post(3).await;
    client.body().await;
    soon(&mut client.serving).await.unwrap();
    let mut phases = client.phases().split_off(3);
    phases.sort_unstable();
    assert_eq!(phases, ["fail_to_proxy", "logging_error", "suppress_error_log"]);
}

/// Upstream that reads a head and what follows until the body is complete or the connection ends. Returns the bytes of
/// the body.
async fn counting(listener: TcpListener, length: usize) -> usize {
    let (mut socket, _) = soon(listener.accept()).await.unwrap();
    read_head(&mut socket).await;
    let (mut seen, mut piece) = (0, vec![0; 64 * 1024]);
    while seen < length {
        match soon(socket.read(&mut piece)).await {
            Ok(count @ 1..) => seen += count,
            _ => return seen,
        }
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    seen
}

/// A body that `request_filter` has read is sent upstream only if it fits the retry buffer; of a larger one, nothing is
/// sent at all, and the request waits for a time-out. This is the reason for the gateway's own exchange loop
/// (docs/decisions/002). If this fails, read that decision again.
#[tokio::test]
async fn body_that_was_read_is_not_sent_above_64_kib() {
    for (length, sent) in [(64 * 1024, 64 * 1024), (64 * 1024 + 1, 0)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = Client::new(Mode::ReadFirst, listener.local_addr().unwrap());
        let (_, seen) = tokio::join!(client.post(length), counting(listener, length));
        assert_eq!(seen, sent, "{length}");
    }
}

/// The body filter is told of no end if an HTTP/2 upstream ends its body with trailers. `proxy::reader` finds the end
/// itself.
#[tokio::test]
async fn body_filter_is_not_told_of_an_end_by_trailers() {
    for trailers in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = Client::new(Mode::Http2, listener.local_addr().unwrap());
        let upstream = async {
            let (socket, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let (_request, mut reply) = connection.accept().await.unwrap().unwrap();
            let mut body = reply.send_response(http::Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"ok"), !trailers).unwrap();
            if trailers {
                body.send_trailers(http::HeaderMap::new()).unwrap();
            }
            while connection.accept().await.is_some() {}
        };
        let downstream = async {
            client.post(0).await;
            let mut body = Vec::new();
            while !body.ends_with(b"0\r\n\r\n") {
                body.push(client.io.read_u8().await.unwrap());
            }
        };
        tokio::select! {
            () = upstream => panic!("the upstream ended first"),
            () = soon(downstream) => {}
        }
        assert_eq!(client.phases().contains(&"end_of_stream"), !trailers);
    }
}
