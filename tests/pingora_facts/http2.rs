//! HTTP/2 with providers and with clients.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use pingora::ErrorType;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::v2::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::ALPN;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v2::client::Http2Session;
use pingora::server::ShutdownWatch;
use pingora::upstreams::peer::HttpPeer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use super::support::{NEVER, Recorded, soon};

/// Request at the upstream.
type Exchange = (Request<RecvStream>, SendResponse<Bytes>);

/// Upstream that hands each request to the test.
struct Upstream {
    peer: HttpPeer,
    requests: UnboundedReceiver<Exchange>,
    serving: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Upstream {
    async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let sender = sender.clone();
                connections.spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok(exchange)) = connection.accept().await {
                        let _ = sender.send(exchange);
                    }
                });
            }
        });
        let mut peer = HttpPeer::new(address, false, String::new());
        peer.options.alpn = ALPN::H2;
        peer.options.max_h2_streams = 100;
        Upstream { peer, requests, serving }
    }

    async fn next(&mut self) -> Exchange {
        soon(self.requests.recv()).await.unwrap()
    }
}

fn connector() -> Connector {
    Connector::new(Some(ConnectorOptions::new(8)))
}

async fn connect(connector: &Connector, peer: &HttpPeer) -> Http2Session {
    let session: HttpSession = soon(connector.new_http_session(peer)).await.unwrap();
    match session {
        HttpSession::H2(session) => session,
        _ => panic!("not HTTP/2"),
    }
}

/// Returns a request head without `Host`, as `proxy::exchange` sends it.
fn get() -> Box<RequestHeader> {
    let mut head = RequestHeader::build("GET", b"/", None).unwrap();
    head.set_uri("http://upstream.example/path".parse().unwrap());
    Box::new(head)
}

/// Starts an exchange and returns both sides.
async fn exchange(upstream: &mut Upstream) -> (Http2Session, Exchange) {
    let mut session = connect(&connector(), &upstream.peer).await;
    session.write_request_header(get(), true).unwrap();
    let exchange = upstream.next().await;
    (session, exchange)
}

/// The authority and the scheme of a request are those of its URI. `proxy::exchange` sends an absolute URI and removes
/// `Host`.
#[tokio::test]
async fn request_authority_is_that_of_the_uri() {
    let mut upstream = Upstream::start().await;
    let (_session, (request, _reply)) = exchange(&mut upstream).await;
    assert_eq!(request.uri(), "http://upstream.example/path");
    assert!(!request.headers().contains_key("host"));
}

/// With `Host` and no authority in the URI, the authority is that of `Host`, the scheme is always https, and `Host` is
/// sent as well. `proxy::exchange` avoids all three.
#[tokio::test]
async fn request_without_an_authority_takes_host_and_https() {
    let mut upstream = Upstream::start().await;
    let mut session = connect(&connector(), &upstream.peer).await;
    let mut head = RequestHeader::build("GET", b"/path", None).unwrap();
    head.insert_header("host", "other.example").unwrap();
    session.write_request_header(Box::new(head), true).unwrap();
    let (request, _reply) = upstream.next().await;
    assert_eq!(request.uri(), "https://other.example/path");
    assert!(request.headers().contains_key("host"));
}

/// Interim responses are skipped: the head that is read is the final one. `proxy::interim` loops for HTTP/1 only; a
/// second read of a head would panic.
#[tokio::test]
async fn interim_responses_are_skipped() {
    let mut upstream = Upstream::start().await;
    let (mut session, (_request, mut reply)) = exchange(&mut upstream).await;
    reply.send_informational(Response::builder().status(103).body(()).unwrap()).unwrap();
    reply.send_response(Response::new(()), true).unwrap();
    soon(session.read_response_header()).await.unwrap();
    assert_eq!(session.response_header().unwrap().status, 200);
}

/// Trailers end a body like its last frame: the read returns `None`. `proxy::reader` reads no trailers.
#[tokio::test]
async fn body_with_trailers_ends() {
    let mut upstream = Upstream::start().await;
    let (mut session, (_request, mut reply)) = exchange(&mut upstream).await;
    let mut stream = reply.send_response(Response::new(()), false).unwrap();
    stream.send_data(Bytes::from_static(b"body"), false).unwrap();
    stream.send_trailers(http::HeaderMap::from_iter([("x".parse().unwrap(), "y".parse().unwrap())])).unwrap();
    soon(session.read_response_header()).await.unwrap();
    assert_eq!(soon(session.read_response_body()).await.unwrap().unwrap()[..], b"body"[..]);
    assert_eq!(soon(session.read_response_body()).await.unwrap(), None);
}

/// A dropped session cancels its stream. `proxy::exchange` and `proxy::answer` drop the session when the client is
/// gone.
#[tokio::test]
async fn dropped_session_cancels_the_stream() {
    let mut upstream = Upstream::start().await;
    let (session, (_request, mut reply)) = exchange(&mut upstream).await;
    drop(session);
    let reason = soon(std::future::poll_fn(|cx| reply.poll_reset(cx))).await.unwrap();
    assert_eq!(reason, Reason::CANCEL);
}

/// `shutdown` resets the stream with an error that blames the gateway. `proxy` never calls it on an upstream session.
#[tokio::test]
async fn shutdown_resets_the_stream_with_an_internal_error() {
    let mut upstream = Upstream::start().await;
    let (mut session, (_request, mut reply)) = exchange(&mut upstream).await;
    session.shutdown();
    drop(session);
    let reason = soon(std::future::poll_fn(|cx| reply.poll_reset(cx))).await.unwrap();
    assert_eq!(reason, Reason::INTERNAL_ERROR);
}

/// A stream that is refused with HTTP_1_1_REQUIRED is `H2Downgrade`. `proxy::resend` sends the request again with
/// HTTP/1.1.
#[tokio::test]
async fn refusal_of_http2_has_a_known_type() {
    let mut upstream = Upstream::start().await;
    let (mut session, (_request, mut reply)) = exchange(&mut upstream).await;
    reply.send_reset(Reason::HTTP_1_1_REQUIRED);
    let error = soon(session.read_response_header()).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::H2Downgrade);
}

/// Without TLS, ALPN decides nothing: only a peer that permits HTTP/2 alone is spoken to in HTTP/2. `proxy::peer` sets
/// it for `http = "2"`.
#[tokio::test]
async fn plaintext_is_http2_only_without_an_alternative() {
    let upstream = Upstream::start().await;
    let mut peer = upstream.peer.clone();
    peer.options.alpn = ALPN::H2H1;
    let session: HttpSession = soon(connector().new_http_session(&peer)).await.unwrap();
    assert!(matches!(session, HttpSession::H1(_)));
}

/// A connection carries `max_h2_streams` streams at a time, and no more: beyond them, none is offered for reuse. It is
/// offered again after a release. `proxy::peer` sets 100; the default is 1.
#[tokio::test]
async fn connection_is_shared_up_to_max_h2_streams() {
    let mut upstream = Upstream::start().await;
    upstream.peer.options.max_h2_streams = 2;
    let connector = connector();
    let first = connect(&connector, &upstream.peer).await;
    let second = soon(connector.reused_http_session(&upstream.peer)).await.unwrap().unwrap();
    assert!(soon(connector.reused_http_session(&upstream.peer)).await.unwrap().is_none());
    assert_eq!(first.fd(), second.fd());
    connector.release_http_session(second, &upstream.peer, None);
    assert!(soon(connector.reused_http_session(&upstream.peer)).await.unwrap().is_some());
}

/// Application that reads a request body, with a read time-out, and reports what came.
struct Reader(UnboundedSender<&'static str>);

#[async_trait]
impl HttpServerApp for Reader {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.is_http2() {
            let _ = self.0.send("http1");
            return None;
        }
        session.set_read_timeout(Some(Duration::from_millis(20)));
        let read = timeout(NEVER, session.read_request_body()).await;
        let _ = self.0.send(if read.is_err() { "waiting" } else { "read" });
        let error = session.read_body_or_idle(true).await.is_err();
        let _ = self.0.send(if error { "gone" } else { "more" });
        None
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        static OPTIONS: std::sync::LazyLock<HttpServerOptions> = std::sync::LazyLock::new(|| {
            let mut options = HttpServerOptions::default();
            options.h2c = true;
            options
        });
        Some(&OPTIONS)
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The read time-out of a session is ignored for HTTP/2, and a reset of the stream ends an idle read with an error.
/// `proxy::request` has a timer of its own, `proxy::exchange` takes the error for a disconnect.
#[tokio::test]
async fn client_stream_has_no_read_time_out_and_reports_a_reset() {
    let (mut near, far, _calls) = Recorded::new();
    near.peeks = Some(PREFACE.to_vec());
    let (sender, mut events) = unbounded_channel();
    let (_stop, watch) = tokio::sync::watch::channel(false);
    let serving =
        tokio::spawn(async move { Arc::new(Reader(sender)).process_new(Box::new(near), &watch).await });
    let (mut requests, connection) = soon(h2::client::handshake(far)).await.unwrap();
    let driving = tokio::spawn(connection);
    let request = Request::post("http://gateway.example/").body(()).unwrap();
    let (_response, mut body) = requests.send_request(request, false).unwrap();
    assert_eq!(soon(events.recv()).await, Some("waiting"));
    body.send_reset(Reason::CANCEL);
    assert_eq!(soon(events.recv()).await, Some("gone"));
    serving.abort();
    driving.abort();
}

/// With `h2c`, the preface is looked for by `try_peek`. A stream that cannot peek is taken for HTTP/2.
/// `proxy::header_timeout` implements it.
#[tokio::test]
async fn h2c_is_detected_by_peeking() {
    for (peeks, http1) in [(Some(b"POST / HTTP/1.1\r\nHost: a".to_vec()), true), (None, false)] {
        let (mut near, mut far, _calls) = Recorded::new();
        near.peeks = peeks;
        far.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let (sender, mut events) = unbounded_channel();
        let (_stop, watch) = tokio::sync::watch::channel(false);
        let app = Arc::new(Reader(sender));
        soon(app.process_new(Box::new(near), &watch)).await;
        drop(app);
        assert_eq!(soon(events.recv()).await, http1.then_some("http1"));
        // An HTTP/2 server begins with its settings.
        assert_eq!(received_any(&mut far), !http1);
    }
}

fn received_any(io: &mut tokio::io::DuplexStream) -> bool {
    use tokio::io::AsyncReadExt as _;
    let mut byte = [0; 1];
    matches!(super::support::poll_once(io.read(&mut byte)), Some(Ok(1)))
}
