//! Lame duck time: after SIGTERM the gateway is not ready at once, and goes on to accept until balancers have noticed.

use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::stop::{begun, refuses, rest};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply, soon};
use crate::websocket::client::Socket;

async fn gateway(time: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr).server(&format!("lame_duck = \"{time}\""));
    let gateway = Gateway::start(&setup).await;
    (upstream, gateway)
}

async fn not_ready(gateway: &Gateway) {
    soon(async {
        while gateway.admin_status("/readyz").await != Some(503) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(gateway.admin("/readyz").await.text().contains("draining"));
}

#[tokio::test]
async fn lame_duck_serves_new_connections_while_it_is_not_ready() {
    let (_upstream, mut gateway) = gateway("8s").await;
    let mut idle = gateway.connect().await;
    assert_eq!(idle.ask(Form::Chat.request(false)).await.status(), 200);
    let mut old = http2::Client::connect(gateway.addr).await;
    assert!(old.exchange(Form::Chat, false).await.is_some());
    let at = Instant::now();
    gateway.signal(Signal::SIGTERM);
    not_ready(&gateway).await;
    assert_eq!(gateway.status().await["draining"], true);
    assert_eq!(gateway.admin_status("/healthz").await, Some(200));
    // A connection that was open is used once more, and its client is told to connect anew.
    let last = idle.ask(Form::Chat.request(false)).await;
    assert_eq!((last.status(), last.get("connection")), (200, Some("close")));
    // Over HTTP/2: GOAWAY at once.
    assert!(old.closed().await.is_ok());
    // New connections are served.
    let new = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!((new.status(), new.get("connection")), (200, Some("close")));
    let mut new = http2::Client::connect(gateway.addr).await;
    let (answer, _) = new.exchange(Form::Chat, false).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(at.elapsed().as_secs() < 8, "the test was too slow to see anything");
    // Its client is told soon after, before the time is over.
    assert!(new.closed().await.is_ok());
    refuses(&gateway).await;
    assert!(at.elapsed().as_secs() >= 8, "{:?}", at.elapsed());
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert!(gateway.access_log().iter().all(|line| line["status"] == 200));
}

/// Streams in progress have the whole drain limit after the lame duck time.
#[tokio::test]
async fn lame_duck_time_is_not_part_of_the_drain_limit() {
    let gate = Gate::new();
    let upstream = crate::reload::halting(Form::Chat, &gate).await;
    let setup = Setup::providers(upstream.addr).server("lame_duck = \"2s\"\ndrain = \"2s\"");
    let mut gateway = Gateway::start(&setup).await;
    let (mut client, seen) = begun(&gateway, Form::Chat).await;
    let at = Instant::now();
    gateway.signal(Signal::SIGTERM);
    let (text, _) = rest(&mut client, seen).await;
    assert!(text.contains("error"), "{text}");
    assert!(at.elapsed().as_secs() >= 4, "{:?}", at.elapsed());
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn lame_duck_keeps_websockets_until_the_drain() {
    let upstream = Upstream::answering(reply::stream(&Form::Responses.frames("gpt"))).await;
    let setup = Setup::providers(upstream.addr).server("lame_duck = \"1h\"");
    let mut gateway = Gateway::start(&setup).await;
    let mut open = Socket::open(&gateway).await;
    gateway.signal(Signal::SIGTERM);
    not_ready(&gateway).await;
    let mut new = Socket::open(&gateway).await;
    for socket in [&mut open, &mut new] {
        socket.send(&json!({"type": "response.create", "model": "gpt", "input": "hi"})).await;
        assert_eq!(socket.events().await.pop().unwrap()["type"], "response.completed");
    }
    gateway.signal(Signal::SIGTERM);
    for mut socket in [open, new] {
        assert_eq!(socket.closed().await.map(|(code, _)| code), Some(1012));
    }
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// A second signal ends the lame duck time: responses in progress still end. A third one ends the process.
#[tokio::test]
async fn lame_duck_time_ends_with_a_second_signal() {
    for (signal, cut) in [(Signal::SIGTERM, false), (Signal::SIGINT, false), (Signal::SIGTERM, true)] {
        let gate = Gate::new();
        let upstream = crate::reload::halting(Form::Chat, &gate).await;
        let setup = Setup::providers(upstream.addr).server("lame_duck = \"1h\"\ndrain = \"1h\"");
        let mut gateway = Gateway::start(&setup).await;
        let (mut client, seen) = begun(&gateway, Form::Chat).await;
        gateway.signal(Signal::SIGTERM);
        not_ready(&gateway).await;
        gateway.signal(signal);
        refuses(&gateway).await;
        assert!(gateway.runs());
        if cut {
            gateway.signal(Signal::SIGTERM);
        } else {
            gate.open();
            let frames = Form::Chat.frames("gpt").concat();
            assert_eq!(rest(&mut client, seen).await.0, frames);
        }
        assert_eq!(gateway.ended().await.code(), Some(0), "{signal}");
    }
}

/// Ctrl-C at a terminal, and an upgrade, which passes the listeners on.
#[tokio::test]
async fn interrupt_and_upgrade_need_no_lame_duck_time() {
    let (_upstream, mut interrupted) = gateway("1h").await;
    interrupted.signal(Signal::SIGINT);
    assert_eq!(interrupted.ended().await.code(), Some(0));
    let (_upstream, mut upgraded) = gateway("1h").await;
    upgraded.signal(Signal::SIGUSR2);
    assert_eq!(upgraded.ended().await.code(), Some(0));
    assert_eq!(upgraded.admin_status("/readyz").await, Some(200));
    assert_eq!(upgraded.ask(Form::Chat.request(false)).await.status(), 200);
}
