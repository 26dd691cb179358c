//! Targets for the responses API over WebSocket.

use bytes::{Bytes, BytesMut};
use codec::wire::responses::socket::{
    ClientEvent, ContinuedFrom, ConversationMemory, ErrorEvent, Origin, error_event, provider, steer_failed,
};
use framing::websocket::{FrameFault, FrameReader, Incoming, MessageKind};
use json::Rope;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{choose, pieces};

const LIMIT: usize = 1 << 16;

/// What a socket has received: messages, control frames, and the violation that ended it.
fn read(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<FrameFault>) {
    let mut reader = FrameReader::new(LIMIT);
    let (mut buf, mut whole, mut message) = (BytesMut::new(), Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match reader.next(&mut buf) {
                Ok(None) => break,
                Ok(Some(Incoming::Part { kind, bytes, end })) => {
                    message.extend_from_slice(&bytes);
                    assert!(message.len() <= LIMIT);
                    if end {
                        message.push(u8::from(kind == MessageKind::Text));
                        whole.push(std::mem::take(&mut message));
                    }
                }
                Ok(Some(Incoming::Ping(bytes))) => whole.push(bytes.to_vec()),
                Ok(Some(Incoming::Pong)) => whole.push(b"pong".to_vec()),
                Ok(Some(Incoming::Close(code))) => {
                    whole.push(code.unwrap_or_default().to_be_bytes().to_vec())
                }
                Err(fault) => return (whole, Some(fault)),
            }
        }
    }
    (whole, None)
}

/// WebSocket frames: every split gives the same messages and the same violation.
pub fn websocket_frames(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    assert_eq!(read(&pieces(data, seed)), read(&[data]));
}

fn rope(pieces: &[&[u8]]) -> Rope {
    let mut rope = Rope::new();
    pieces.iter().for_each(|piece| rope.push(Bytes::copy_from_slice(piece)));
    rope
}

/// Returns whether bytes are JSON, also with half of a surrogate pair.
fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

/// Events of a provider: each becomes one server-sent event, and an error with a status becomes a response.
fn provider_events(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((kind, event)) = provider::read_event(text) else { return };
    let mut out = BytesMut::new();
    provider::put_server_sent(kind, text, &mut out);
    assert!(out.ends_with(b"\n\n") && out.iter().filter(|byte| **byte == b'\n').count() == 3);
    if let provider::ProviderEvent::Refused(refusal) = event {
        assert!((400..=599).contains(&refusal.status));
        refusal.headers();
        assert!(!is_json(data) || is_json(&refusal.body()));
    }
}

/// Events of both sides. Those of clients: every split reads the same; the body of a request is the event without its own members, and the
/// conversation before it goes before its input.
pub fn websocket_events(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    provider_events(data);
    let whole = ClientEvent::read(rope(&[data]));
    let split = ClientEvent::read(rope(&pieces(data, seed)));
    let (whole, split) = match (whole, split) {
        (Ok(whole), Ok(split)) => (whole, split),
        (whole, split) => {
            let (one, other) = (whole.err().unwrap(), split.err().unwrap());
            assert_eq!(one, other);
            let event =
                error_event(one.0.status, ErrorEvent::Own(&one.0), std::iter::empty(), one.1.as_deref());
            assert!(is_json(&event));
            return;
        }
    };
    match (whole, split) {
        (ClientEvent::Create(one), ClientEvent::Create(other)) => {
            assert_eq!(
                (&one.lane, &one.previous, one.generate),
                (&other.lane, &other.previous, other.generate)
            );
            let previous = one.previous.clone();
            let generates = one.generate;
            let (body, again) = match (one.into_body(None), other.into_body(None)) {
                (Ok(body), Ok(again)) => (body.concat(), again.concat()),
                (one, other) => return assert_eq!(one.unwrap_err(), other.unwrap_err()),
            };
            assert_eq!(body, again);
            assert!(is_json(&body));
            // serde_json refuses half of a surrogate pair, which is JSON and passes unchanged.
            let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["stream"], true);
            for (name, member) in value.as_object().unwrap() {
                match name.as_str() {
                    "type" | "generate" | "stream_id" | "stream" => {}
                    "previous_response_id" if previous.is_none() => {}
                    // An empty one of a request that only prepares is replaced.
                    "input" if !generates && body["input"] == "-" => {}
                    _ => assert_eq!(&body[name], member, "{name}"),
                }
            }
            continued(data, &value);
        }
        (ClientEvent::Steer(steer), ClientEvent::Steer(_)) => {
            assert!(is_json(&steer_failed(&steer, "c", "m")) && is_json(&steer.event()));
            if let Ok(items) = steer.items() {
                assert!(is_json(&[b"[", &items[..], b"]"].concat()));
            }
        }
        (ClientEvent::Other, ClientEvent::Other) => {}
        (one, other) => panic!("{one:?} {other:?}"),
    }
}

/// Puts a conversation before the event's input.
fn continued(data: &[u8], value: &Value) {
    let mut memory = ConversationMemory::new(LIMIT);
    let items = [Bytes::from_static(b"1,2"), Bytes::from_static(b"3")];
    memory.insert(None, "r".into(), Origin::Memory, ContinuedFrom::Nothing, items);
    let turn = memory.find("r");
    let Ok(ClientEvent::Create(create)) = ClientEvent::read(rope(&[data])) else { panic!() };
    let Ok(body) = create.into_body(turn.as_ref()) else { return };
    let body: Value = serde_json::from_slice(&body.concat()).unwrap();
    let input = body["input"].as_array().unwrap();
    let own = match &value["input"] {
        Value::Array(items) => items.len(),
        Value::String(_) => 1,
        _ => 0,
    };
    assert_eq!(input.len(), 3 + own);
    assert!(body.get("previous_response_id").is_none());
}
