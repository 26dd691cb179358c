//! Frames as they may arrive: split at every byte, fragmented, with control frames in between.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::World;
use super::client::{Socket, frame, raw, read_frame, read_response};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

fn create() -> Vec<u8> {
    json!({"type": "response.create", "model": "gpt", "input": "é hello", "store": false})
        .to_string()
        .into_bytes()
}

async fn started() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::stream(&Form::Responses.frames("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

#[tokio::test]
async fn websocket_frame_is_read_at_every_split() {
    let (upstream, gateway) = started().await;
    let bytes = frame(0x81, &create());
    let mut socket = raw(&gateway).await;
    for at in 1..bytes.len() {
        socket.write_all(&bytes[..at]).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        socket.write_all(&bytes[at..]).await.unwrap();
        assert_eq!(read_response(&mut socket).await["type"], "response.completed", "{at}");
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), bytes.len() - 1);
    assert!(requests.iter().all(|request| request.body == requests[0].body));
    // One byte at a time.
    for byte in bytes {
        socket.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(read_response(&mut socket).await["type"], "response.completed");
}

#[tokio::test]
async fn websocket_fragments_are_one_message() {
    let (upstream, gateway) = started().await;
    let mut socket = raw(&gateway).await;
    let text = create();
    let mut bytes = frame(0x01, &text[..1]);
    for byte in &text[1..text.len() - 1] {
        bytes.extend(frame(0x00, &[*byte]));
        bytes.extend(frame(0x89, b"p"));
    }
    bytes.extend(frame(0x00, b""));
    bytes.extend(frame(0x80, &text[text.len() - 1..]));
    socket.write_all(&bytes).await.unwrap();
    assert_eq!(read_response(&mut socket).await["type"], "response.completed");
    let body: Value = upstream.only_request().json();
    assert_eq!(body["input"], "é hello");
}

#[tokio::test]
async fn websocket_ping_is_answered_with_its_payload() {
    let (_upstream, gateway) = started().await;
    let mut socket = raw(&gateway).await;
    socket.write_all(&frame(0x89, b"payload")).await.unwrap();
    assert_eq!(read_frame(&mut socket).await, Some((0x8a, b"payload".to_vec())));
    socket.write_all(&frame(0x88, &1000u16.to_be_bytes())).await.unwrap();
    assert_eq!(read_frame(&mut socket).await, Some((0x88, 1000u16.to_be_bytes().to_vec())));
    assert_eq!(read_frame(&mut socket).await, None);
    gateway.wait_for_metric("gateway_websocket_closes_total", &[("reason", "client")], 1.0).await;
}

#[tokio::test]
async fn websocket_frames_right_behind_the_handshake_are_read() {
    let (_upstream, gateway) = started().await;
    let mut socket = tokio::net::TcpStream::connect(gateway.addr).await.unwrap();
    let bytes = [super::client::handshake("/v1/responses", &[]), frame(0x81, &create())].concat();
    socket.write_all(&bytes).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::io::AsyncReadExt::read_u8(&mut socket).await.unwrap());
    }
    assert_eq!(read_response(&mut socket).await["type"], "response.completed");
}

#[tokio::test]
async fn websocket_violations_close_with_their_code() {
    let (_upstream, gateway) = started().await;
    for (bytes, code) in [
        (vec![0x81, 0x01, b'x'], 1002u16),
        (frame(0xc1, b"x"), 1002),
        (frame(0x83, b"x"), 1002),
        (frame(0x80, b"x"), 1002),
        (frame(0x81, b"{\"type\":\"\xff\"}"), 1007),
        (vec![0x81, 0xff, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0], 1009),
    ] {
        let mut socket = raw(&gateway).await;
        socket.write_all(&bytes).await.unwrap();
        let (first, payload) = read_frame(&mut socket).await.unwrap();
        assert_eq!((first, &payload[..2]), (0x88, &code.to_be_bytes()[..]), "{bytes:x?}");
        assert!(payload.len() > 2, "the close says why");
        assert_eq!(read_frame(&mut socket).await, None);
    }
}

#[tokio::test]
async fn websocket_binary_and_invalid_json_are_error_events() {
    let (_upstream, gateway) = started().await;
    let mut socket = raw(&gateway).await;
    for bytes in [frame(0x82, b"\0\x01"), frame(0x81, b"{"), frame(0x81, b"")] {
        socket.write_all(&bytes).await.unwrap();
        let event = read_response(&mut socket).await;
        assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(400)), "{event}");
    }
    socket.write_all(&frame(0x81, &create())).await.unwrap();
    assert_eq!(read_response(&mut socket).await["type"], "response.completed");
}

#[tokio::test]
async fn websocket_message_of_megabytes_passes() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    let text = "large ".repeat(1 << 19);
    let end = socket.ask(json!({"model": "fast-gpt", "input": text, "store": false})).await;
    assert_eq!(end["type"], "response.completed");
    assert_eq!(world.sent("fast-gpt")["input"].as_str().map(str::len), Some(text.len()));
    let next = json!({"model": "fast-chat", "previous_response_id": end["response"]["id"], "input": "x"});
    assert_eq!(socket.ask(next).await["type"], "response.completed");
    assert!(world.sent("fast-chat").to_string().len() > text.len());
}
