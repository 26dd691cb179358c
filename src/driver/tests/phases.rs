//! Which phases the driver calls, compared with Pingora's own loop and with the gateway's implementation.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::apps::{HttpServerOptions, ServerApp as _};
use pingora::protocols::http::v2::server::default_h2_options;
use pingora::protocols::l4::stream::Stream;
use pingora::proxy::http_proxy;
use pingora::server::configuration::ServerConf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::recorder::{Loop, Recorder};
use crate::header_timeout::HeaderTimeoutStream;
use crate::http1;
use crate::http2::Http2Server;

const BODY: &[u8] = b"{\"model\":\"m\"}";
/// Phases of a request that succeeds, in Pingora's order.
const SUCCESS: [&str; 10] = [
    "early_request_filter",
    "request_filter",
    "proxy_upstream_filter",
    "upstream_peer",
    "upstream_request_filter",
    "request_body_filter",
    "upstream_response_filter",
    "response_filter",
    "response_body_filter",
    "logging",
];
/// Phases of a request whose provider accepts no connection.
const UNREACHABLE: [&str; 7] = [
    "early_request_filter",
    "request_filter",
    "proxy_upstream_filter",
    "upstream_peer",
    "fail_to_connect",
    "fail_to_proxy",
    "logging",
];
/// Phases of a request whose provider closes the connection without a response.
const BROKEN: [&str; 9] = [
    "early_request_filter",
    "request_filter",
    "proxy_upstream_filter",
    "upstream_peer",
    "upstream_request_filter",
    "request_body_filter",
    "error_while_proxy",
    "fail_to_proxy",
    "logging",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

/// A provider that sends the body of each request back, or closes the connection after the request.
async fn provider(answers: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(BODY) {
                assert!(socket.read_buf(&mut seen).await.unwrap() > 0, "the request ended early");
            }
            if answers {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", BODY.len());
                socket.write_all(&[head.as_bytes(), BODY].concat()).await.unwrap();
            }
        }
    });
    address
}

/// Address at which nothing listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Two ends of a connection.
async fn connection() -> (TcpStream, Box<HeaderTimeoutStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let stream = Box::new(Stream::from(accepted.unwrap().0));
    (client.unwrap(), Box::new(HeaderTimeoutStream::new(stream, Duration::from_secs(60))))
}

/// Sends one request and returns the phases that ran, the status and the body of the response.
async fn exchange(http: Http, by: Loop, upstream: SocketAddr) -> (Vec<&'static str>, u16, Vec<u8>) {
    let (client, mut stream) = connection().await;
    let conf = Arc::new(ServerConf::default());
    let recorder = Recorder::new(upstream, by);
    let mut proxy = http_proxy(&conf, recorder.clone());
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    proxy.server_options = Some(options);
    let (_stop, shutdown) = tokio::sync::watch::channel(false);
    let served = tokio::spawn({
        let recorder = recorder.clone();
        async move {
            if http == Http::One && by == Loop::Driver {
                let first = stream.take_first();
                http1::serve(&recorder, stream, first, recorder.guard()).await;
                return;
            }
            stream.head_complete();
            if by == Loop::Driver {
                let keepalive = Duration::from_secs(60);
                let server = Http2Server::new(recorder, default_h2_options(), keepalive);
                Arc::new(server).process_new(stream, &shutdown).await;
            } else {
                Arc::new(proxy).process_new(stream, &shutdown).await;
            }
        }
    });
    let (status, body) = match http {
        Http::One => ask_http1(client).await,
        Http::Two => ask_http2(client).await,
    };
    served.await.unwrap();
    let phases = recorder.phases.lock().unwrap().clone();
    (phases, status, body)
}

async fn ask_http1(mut client: TcpStream) -> (u16, Vec<u8>) {
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    client.write_all(&[head.as_bytes(), BODY].concat()).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    // The driver does not know the length of a stream. Sizes of chunks stand on lines of their own, and so does the body.
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { body.lines().nth(1).unwrap_or_default() } else { body };
    (status, body.as_bytes().to_vec())
}

async fn ask_http2(client: TcpStream) -> (u16, Vec<u8>) {
    let (mut sender, connection) = h2::client::handshake(client).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = http::Request::post("http://gateway/echo").header("content-length", BODY.len());
    let request = request.body(()).unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(BODY), true).unwrap();
    let mut response = response.await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = response.body_mut().data().await {
        read.extend_from_slice(&piece.unwrap());
    }
    let status = response.status().as_u16();
    drop((response, body, sender));
    driven.await.unwrap().unwrap();
    (status, read)
}

#[tokio::test]
async fn driver_calls_the_phases_of_pingora_in_their_order() {
    for http in [Http::One, Http::Two] {
        for by in [Loop::Driver, Loop::Pingora] {
            let (phases, status, body) = exchange(http, by, provider(true).await).await;
            assert_eq!((status, &*body), (200, BODY), "{http:?} {by:?}");
            assert_eq!(phases, SUCCESS, "{http:?} {by:?}");
            let (phases, status, _) = exchange(http, by, nobody().await).await;
            assert_eq!(status, 502, "{http:?} {by:?}");
            assert_eq!(phases, UNREACHABLE, "{http:?} {by:?}");
        }
        let (phases, status, _) = exchange(http, Loop::Driver, provider(false).await).await;
        assert_eq!(status, 502, "{http:?}");
        assert_eq!(phases, BROKEN, "{http:?}");
    }
}

/// Every phase that the gateway implements runs on the path of requests, for HTTP/1 and HTTP/2 alike.
#[test]
fn driver_calls_every_phase_that_the_gateway_implements() {
    let source = include_str!("../../proxy/gateway/phases.rs");
    let (_, implemented) = source.split_once("impl ProxyHttp for Gateway {").unwrap();
    let implemented = implemented.split("\n}").next().unwrap();
    let names = implemented.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches("async ");
        line.strip_prefix("fn ")?.split('(').next()
    });
    // The driver calls `new_ctx` outside of the phases, before a request.
    let implemented: BTreeSet<&str> = names.filter(|name| *name != "new_ctx").collect();
    let called: BTreeSet<&str> = SUCCESS.into_iter().chain(UNREACHABLE).chain(BROKEN).collect();
    assert_eq!(implemented, called);
}
