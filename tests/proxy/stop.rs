//! Graceful shutdown (SIGTERM, SIGINT): no new connections are accepted, requests in flight finish, then the process
//! ends.

use nix::sys::signal::Signal;
use tokio::net::TcpStream;

use crate::reload::halting;
use crate::support::client::Client;
use crate::support::form::{Form, every_form};
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::Setup;
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply, soon};

/// Sends a stream request and reads its first frame.
pub(crate) async fn begun(gateway: &Gateway, form: Form) -> (Client, Vec<u8>) {
    let mut client = gateway.connect().await;
    client.send(form.request(true)).await;
    assert_eq!(client.head().await.status(), 200);
    let mut seen = Vec::new();
    read_until(&mut client, &mut seen, &form.frames(form.model())[0]).await;
    (client, seen)
}

pub(crate) async fn rest(client: &mut Client, mut seen: Vec<u8>) -> (String, Piece) {
    loop {
        match client.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => return (String::from_utf8(seen).unwrap(), end),
        }
    }
}

pub(crate) async fn refuses(gateway: &Gateway) {
    soon(async {
        while TcpStream::connect(gateway.addr).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn shutdown_finishes_streams_in_flight() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let gate = Gate::new();
        let upstream = halting(Form::Chat, &gate).await;
        let mut gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let (mut client, seen) = begun(&gateway, Form::Chat).await;
        let mut h2 = http2::Client::connect(gateway.addr).await;
        let h2_answer = soon(h2.request(Form::Chat, true).await).await.unwrap();
        let mut idle = gateway.connect().await;
        assert_eq!(idle.ask(crate::support::client::request("GET", "/", &[])).await.status(), 200);
        gateway.signal(signal);
        refuses(&gateway).await;
        // An idle keep-alive connection is closed at once.
        assert_eq!(idle.closed().await, b"");
        assert_eq!(gateway.admin_status("/readyz").await, Some(503));
        assert!(gateway.admin("/readyz").await.text().contains("draining"));
        assert_eq!(gateway.admin_status("/healthz").await, Some(200));
        assert_eq!(gateway.status().await["requests_in_flight"], 2);
        assert!(gateway.runs());
        gate.open();
        let frames = Form::Chat.frames("gpt").concat();
        assert_eq!(rest(&mut client, seen).await, (frames.clone(), Piece::End));
        assert_eq!(client.closed().await, b"");
        let (body, error) = http2::read_body(h2_answer.into_body()).await;
        assert!(error.is_none() && body == frames.as_bytes(), "{error:?} {}", String::from_utf8_lossy(&body));
        assert_eq!(gateway.ended().await.code(), Some(0), "{signal}");
        assert_eq!(gateway.access_log().len(), 3);
    }
}

#[tokio::test]
async fn shutdown_without_requests_is_immediate() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    let mut idle = gateway.connect().await;
    assert_eq!(idle.ask(Form::Chat.request(false)).await.status(), 200);
    let _h2 = http2::Client::connect(gateway.addr).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    let log = gateway.log();
    assert!(!log.contains("drain limit"), "{log}");
    assert_eq!(gateway.access_log().len(), 1);
}

/// A request whose body is still being read is in flight too.
#[tokio::test]
async fn shutdown_serves_a_request_whose_body_is_incomplete() {
    let (_upstream, mut gateway) = crate::bodies::chat().await;
    let whole = Form::Chat.request(false);
    let mut client = gateway.connect().await;
    client.send(&whole[..whole.len() - 5]).await;
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 1.0).await;
    gateway.signal(Signal::SIGTERM);
    refuses(&gateway).await;
    client.send(&whole[whole.len() - 5..]).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.get("connection")), (200, Some("close")));
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn shutdown_at_the_drain_limit_ends_streams_with_an_error() {
    every_form(|form| async move {
        let upstream = halting(form, &Gate::new()).await;
        let mut gateway = Gateway::start(&Setup::providers(upstream.addr).server("drain = \"1s\"")).await;
        let (mut client, seen) = begun(&gateway, form).await;
        let mut h2 = http2::Client::connect(gateway.addr).await;
        let h2_answer = soon(h2.request(form, true).await).await.unwrap();
        gateway.signal(Signal::SIGTERM);
        let (text, end) = rest(&mut client, seen).await;
        assert_eq!(end, Piece::End, "{form:?}");
        assert!(form.stream_error(&text).is_some() && !form.looks_complete(&text), "{form:?}: {text}");
        let (body, error) = http2::read_body(h2_answer.into_body()).await;
        let body = String::from_utf8(body).unwrap();
        assert!(error.is_none() && form.stream_error(&body).is_some(), "{form:?}: {error:?} {body}");
        assert_eq!(gateway.ended().await.code(), Some(0));
        for line in gateway.access_log() {
            assert_eq!(line["error"], "shutting_down", "{line}");
        }
        assert_eq!(gateway.access_log().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn shutdown_at_the_drain_limit_answers_pending_requests_503() {
    every_form(|form| async move {
        let upstream = Upstream::start(|mut conn| async move {
            conn.request().await;
            conn.closed().await;
        })
        .await;
        let mut gateway = Gateway::start(&Setup::providers(upstream.addr).server("drain = \"1s\"")).await;
        let mut client = gateway.connect().await;
        client.send(form.request(false)).await;
        upstream.wait_for(1).await;
        gateway.signal(Signal::SIGTERM);
        let answer = client.answer().await;
        assert_eq!(answer.status(), 503, "{form:?}: {}", answer.text());
        form.error(&answer);
        assert_eq!(gateway.ended().await.code(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn shutdown_second_signal_ends_the_process_at_once() {
    let upstream = halting(Form::Messages, &Gate::new()).await;
    let mut gateway = Gateway::start(&Setup::providers(upstream.addr).server("drain = \"1h\"")).await;
    let (mut client, seen) = begun(&gateway, Form::Messages).await;
    gateway.signal(Signal::SIGTERM);
    refuses(&gateway).await;
    assert!(gateway.runs());
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    let (text, _) = rest(&mut client, seen).await;
    assert!(!Form::Messages.looks_complete(&text), "{text}");
}

/// Requests that arrive at the moment of the signal, on new or reused connections, are either served or closed without
/// a response; none receives a part of a response.
#[tokio::test]
async fn shutdown_never_sends_a_partial_response() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let addr = gateway.addr;
    let clients: Vec<_> = (0..6)
        .map(|n| {
            tokio::spawn(async move {
                let mut served = 0;
                let mut client: Option<Client> = None;
                loop {
                    let mut used = match client.take() {
                        Some(used) => used,
                        None => match TcpStream::connect(addr).await {
                            Ok(socket) => Client::over(socket),
                            Err(_) => return served,
                        },
                    };
                    if used.try_send(Form::Chat.request(false)).await.is_err() {
                        continue;
                    }
                    let Some(answer) = used.try_answer().await else { continue };
                    assert!(answer.complete, "half an answer");
                    assert_eq!((answer.status(), answer.text()), (200, &*Form::Chat.whole("gpt")));
                    served += 1;
                    if n % 2 == 0 && answer.get("connection") != Some("close") {
                        client = Some(used);
                    }
                }
            })
        })
        .collect();
    upstream.wait_for(200).await;
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    let mut served = 0;
    for client in clients {
        served += soon(client).await.unwrap();
    }
    assert_eq!(served, upstream.count(), "every request that was asked upstream was answered");
}
