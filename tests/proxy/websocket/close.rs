//! The end of a socket: drain, upgrade, lifetime, revoked keys, overload and dead peers.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::client::{Socket, raw, read_frame};
use crate::reload::halting;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{Gate, until};

fn create() -> Value {
    json!({"type": "response.create", "model": "gpt", "input": "hi"})
}

async fn quick(change: impl FnOnce(Setup) -> Setup) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::stream(&Form::Responses.frames("gpt"))).await;
    let gateway = Gateway::start(&change(Setup::providers(upstream.addr))).await;
    (upstream, gateway)
}

/// Waits until no socket is open, and checks that the next one is served.
async fn serves_the_next_socket(gateway: &Gateway) {
    gateway.wait_for_metric("gateway_websocket_connections", &[], 0.0).await;
    let mut socket = Socket::open(gateway).await;
    socket.send(&create()).await;
    completes(&mut socket).await;
}

/// Reads the events of a response that has begun to its regular end.
async fn completes(socket: &mut Socket) {
    assert_eq!(socket.events().await.pop().unwrap()["type"], "response.completed");
}

#[tokio::test]
async fn websocket_drain_completes_responses_and_closes_with_1012() {
    let gate = Gate::new();
    let upstream = halting(Form::Responses, &gate).await;
    let mut gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut idle = Socket::open(&gateway).await;
    let mut busy = Socket::open(&gateway).await;
    busy.send(&create()).await;
    busy.event().await;
    gateway.signal(Signal::SIGTERM);
    let (code, reason) = idle.closed().await.unwrap();
    assert_eq!(code, 1012);
    assert!(reason.contains("restart"), "{reason}");
    assert!(gateway.runs());
    // What is requested now is not begun.
    busy.send(&create()).await;
    gate.open();
    completes(&mut busy).await;
    assert_eq!(busy.closed().await.map(|(code, _)| code), Some(1012));
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn websocket_upgrade_of_the_process_cuts_no_response() {
    let gate = Gate::new();
    let upstream = halting(Form::Responses, &gate).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut idle = Socket::open(&gateway).await;
    let mut busy = Vec::new();
    for _ in 0..5 {
        let mut socket = Socket::open(&gateway).await;
        socket.send(&create()).await;
        socket.event().await;
        busy.push(socket);
    }
    let _ = UnixListener::bind(gateway.folder().join("unused"));
    gateway.signal(Signal::SIGUSR2);
    assert_eq!(idle.closed().await.map(|(code, _)| code), Some(1012));
    // The new process serves.
    let mut fresh = Socket::open(&gateway).await;
    gate.open();
    for socket in &mut busy {
        completes(socket).await;
        assert_eq!(socket.closed().await.map(|(code, _)| code), Some(1012));
    }
    fresh.send(&create()).await;
    completes(&mut fresh).await;
}

#[tokio::test]
async fn websocket_lifetime_ends_with_an_event_and_a_close() {
    let (_upstream, gateway) = quick(|setup| setup.limits("websocket_lifetime = \"1s\"")).await;
    let mut socket = Socket::open(&gateway).await;
    let event = socket.event().await;
    assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(400)));
    assert_eq!(event["error"]["code"], "websocket_connection_limit_reached");
    assert_eq!(socket.closed().await.map(|(code, _)| code), Some(1001));
    gateway.wait_for_metric("gateway_websocket_closes_total", &[("reason", "lifetime")], 1.0).await;
}

#[tokio::test]
async fn websocket_lifetime_lets_a_response_end() {
    let gate = Gate::new();
    let upstream = halting(Form::Responses, &gate).await;
    let setup = Setup::providers(upstream.addr).limits("websocket_lifetime = \"1s\"");
    let gateway = Gateway::start(&setup).await;
    let mut socket = Socket::open(&gateway).await;
    socket.send(&create()).await;
    socket.event().await;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    socket.send(&create()).await;
    loop {
        let event = socket.event().await;
        if event["type"] == "error" {
            assert_eq!(event["error"]["code"], "websocket_connection_limit_reached");
            break;
        }
    }
    gate.open();
    completes(&mut socket).await;
    assert_eq!(socket.closed().await.map(|(code, _)| code), Some(1001));
}

#[tokio::test]
async fn websocket_of_a_revoked_key_is_closed_with_1008() {
    let gate = Gate::new();
    let upstream = halting(Form::Responses, &gate).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut idle = Socket::open(&gateway).await;
    let mut busy = Socket::open(&gateway).await;
    busy.send(&create()).await;
    busy.event().await;
    let keys = gateway.read("keys.toml");
    gateway.replace("keys.toml", &keys.replacen("name = \"alice\"", "name = \"alice\"\nenabled = false", 1));
    gateway.reload("applied").await;
    assert_eq!(idle.closed().await.map(|(code, _)| code), Some(1008));
    gate.open();
    completes(&mut busy).await;
    assert_eq!(busy.closed().await.map(|(code, _)| code), Some(1008));
    gateway.wait_for_metric("gateway_websocket_closes_total", &[("reason", "key")], 2.0).await;
}

#[tokio::test]
async fn websocket_beyond_the_limit_is_closed_with_1013() {
    let (_upstream, gateway) = quick(|setup| setup.limits("websockets = 1")).await;
    let mut first = Socket::open(&gateway).await;
    let mut second = Socket::open(&gateway).await;
    let (code, reason) = second.closed().await.unwrap();
    assert_eq!(code, 1013);
    assert!(!reason.is_empty());
    first.send(&create()).await;
    completes(&mut first).await;
    drop(first);
    serves_the_next_socket(&gateway).await;
}

#[tokio::test]
async fn websocket_without_memory_for_a_message_is_closed_with_1013() {
    let (_upstream, gateway) = quick(|setup| setup.limits("body = \"200KiB\"\nmemory = \"200KiB\"")).await;
    let mut held = raw(&gateway).await;
    let text = vec![b' '; 150 << 10];
    let bytes = super::client::frame(0x01, &text);
    tokio::io::AsyncWriteExt::write_all(&mut held, &bytes).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut held, &super::client::frame(0x89, b"1")).await.unwrap();
    assert_eq!(read_frame(&mut held).await.unwrap().0, 0x8a);
    let mut other = raw(&gateway).await;
    tokio::io::AsyncWriteExt::write_all(&mut other, &bytes).await.unwrap();
    let (first, payload) = read_frame(&mut other).await.unwrap();
    assert_eq!((first, &payload[..2]), (0x88, &1013u16.to_be_bytes()[..]));
    drop((held, other));
    serves_the_next_socket(&gateway).await;
}

#[tokio::test]
async fn websocket_is_pinged_and_a_dead_peer_is_given_up() {
    let (_upstream, gateway) = quick(|setup| setup.limits("websocket_ping = \"1s\"")).await;
    let mut dead = raw(&gateway).await;
    assert_eq!(read_frame(&mut dead).await, Some((0x89, Vec::new())));
    // It never sends a pong.
    while let Some((first, _)) = read_frame(&mut dead).await {
        assert_eq!(first, 0x89);
    }
    gateway.wait_for_metric("gateway_websocket_closes_total", &[("reason", "silent")], 1.0).await;
    // One that answers stays.
    let mut alive = Socket::open(&gateway).await;
    let pings = async {
        let mut pings = 0;
        while pings < 4 {
            use futures_util::StreamExt as _;
            if alive.ws.next().await.unwrap().unwrap().is_ping() {
                pings += 1;
            }
        }
    };
    crate::support::soon(pings).await;
    alive.send(&create()).await;
    completes(&mut alive).await;
}

#[tokio::test]
async fn websocket_half_open_peer_ends_its_responses() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(
            [reply::stream_head().into_bytes(), reply::chunk(&Form::Responses.frames("gpt")[0])].concat(),
        )
        .await;
        conn.closed().await;
    })
    .await;
    let setup = Setup::providers(upstream.addr).limits("websocket_ping = \"1s\"");
    let gateway = Gateway::start(&setup).await;
    let mut socket = raw(&gateway).await;
    let event = super::client::frame(0x81, create().to_string().as_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut socket, &event).await.unwrap();
    // The peer stays connected and says nothing more: no pong, no close.
    let line = super::responses_logged(&gateway, 1).await.remove(0);
    assert_eq!(line["error"], "client_gone", "{line}");
    until(|| upstream.closed() == 1).await;
}
