//! HTTP/2 requests that RFC 9113 forbids.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{http2, reply, soon};

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

/// Sends bytes behind the magic of the preface, and returns all frames until the connection is closed: type and payload.
async fn frames_after(gateway: &Gateway, sent: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut socket = TcpStream::connect(gateway.addr).await.unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    socket.write_all(sent).await.unwrap();
    let mut seen = Vec::new();
    let _ = soon(socket.read_to_end(&mut seen)).await;
    let (mut rest, mut frames) = (&seen[..], Vec::new());
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        frames.push((head[3], after[..length].to_vec()));
        rest = &after[length..];
    }
    frames
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test]
async fn http2_preface_without_settings_is_not_served() {
    let (upstream, gateway) = start().await;
    let ping = frame(6, 0, 0, &[0; 8]);
    let acknowledgement = frame(4, 1, 0, &[]);
    let of_a_stream = frame(4, 0, 1, &[]);
    // A request: the static table of HPACK has its method, scheme and path.
    let request = frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'x']);
    for first in [ping, acknowledgement, of_a_stream, request] {
        let frames = frames_after(&gateway, &[first.clone(), frame(4, 0, 0, &[])].concat()).await;
        let goaway = frames.iter().find(|(kind, _)| *kind == 7);
        // PROTOCOL_ERROR.
        assert_eq!(
            goaway.map(|(_, payload)| &payload[4..8]),
            Some(&[0, 0, 0, 1][..]),
            "{first:?}: {frames:?}"
        );
        assert!(!frames.iter().any(|(kind, _)| *kind == 1 || *kind == 6), "{first:?}: {frames:?}");
    }
    assert_eq!(upstream.connections(), 0);
    // The preface may arrive byte by byte.
    let mut client = http2::Client::connect(gateway.addr).await;
    assert_eq!(http2::answer(client.request(Form::Chat, false).await).await.0.status(), 200);
}

#[tokio::test]
async fn http2_faults_of_frames_have_the_codes_of_the_standard() {
    const FLOW_CONTROL: u8 = 3;
    const FRAME_SIZE: u8 = 6;
    let (_upstream, gateway) = start().await;
    let settings = frame(4, 0, 0, &[]);
    for (fault, code) in [
        (frame(6, 0, 0, &[0; 7]), FRAME_SIZE),
        (frame(4, 0, 0, &[0; 5]), FRAME_SIZE),
        (frame(4, 1, 0, &[0; 6]), FRAME_SIZE),
        (frame(8, 0, 0, &[0; 3]), FRAME_SIZE),
        (frame(3, 0, 1, &[0; 3]), FRAME_SIZE),
        (frame(2, 0, 1, &[0; 4]), FRAME_SIZE),
        (frame(4, 0, 0, &[0, 4, 0x80, 0, 0, 0]), FLOW_CONTROL),
        (frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), FLOW_CONTROL),
        // A ping of a stream, and a push by a client.
        (frame(6, 0, 1, &[0; 8]), 1),
        (frame(5, 4, 1, &[0, 0, 0, 2, 0x82]), 1),
    ] {
        let frames = frames_after(&gateway, &[settings.clone(), fault.clone()].concat()).await;
        let goaway = frames.iter().find(|(kind, _)| *kind == 7);
        assert_eq!(goaway.map(|(_, payload)| payload[7]), Some(code), "{fault:?}: {frames:?}");
    }
    // In the preface itself.
    let frames = frames_after(&gateway, &frame(4, 0, 0, &[0, 4, 0xff, 0, 0, 0])).await;
    let goaway = frames.iter().find(|(kind, _)| *kind == 7);
    assert_eq!(goaway.map(|(_, payload)| payload[7]), Some(FLOW_CONTROL), "{frames:?}");
}

#[tokio::test]
async fn http2_values_with_white_space_around_them_are_refused() {
    let (upstream, gateway) = start().await;
    let mut client = http2::Client::connect(gateway.addr).await;
    for value in [" x", "x ", "\tx", "x\t", " "] {
        let (answer, mut send) = client.begin_with("/v1/messages", &[("x-spaced", value)]).await;
        let _ = http2::send_all(&mut send, "{}".into(), true).await;
        let (head, body) = http2::answer(answer).await;
        assert_eq!(head.status(), 400, "{value:?}");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["type"], "error", "in the format of the path: {body}");
    }
    let (answer, mut send) = client.begin_with("/v1/messages", &[("host", "x:abc")]).await;
    let _ = http2::send_all(&mut send, "{}".into(), true).await;
    let (head, _) = http2::answer(answer).await;
    assert_eq!(head.status(), 400);
    assert_eq!(upstream.connections(), 0);
    let inside =
        client.begin_with(&Form::Chat.path("gpt", false), &[("x-spaced", "a b"), ("x-empty", "")]).await;
    let (answer, mut send) = inside;
    http2::send_all(&mut send, Form::Chat.body("gpt", false).into(), true).await.unwrap();
    assert_ne!(http2::answer(answer).await.0.status(), 400);
    assert_eq!(http2::answer(client.request(Form::Chat, false).await).await.0.status(), 200);
}
