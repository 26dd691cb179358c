use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Frame with any bits, written by the rules of RFC 6455 and by nothing of this module.
fn frame(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let bit = if masked { 0x80 } else { 0 };
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(bit | length as u8),
        length @ 126..=0xffff => {
            out.push(bit | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(bit | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    if masked {
        out.extend(KEY);
        out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ KEY[at % 4]));
    } else {
        out.extend(payload);
    }
    out
}

/// Message or control frame, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whole {
    Message(MessageKind, Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    Close(Option<u16>),
}

fn read(bytes: &[u8], size: usize) -> (Vec<Whole>, Option<FrameFault>) {
    let mut reader = FrameReader::new(1 << 20);
    let (mut buf, mut whole, mut message) = (BytesMut::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        buf.extend_from_slice(piece);
        loop {
            match reader.next(&mut buf) {
                Ok(None) => break,
                Ok(Some(Incoming::Part { kind, bytes, end })) => {
                    message.extend_from_slice(&bytes);
                    if end {
                        whole.push(Whole::Message(kind, std::mem::take(&mut message)));
                    }
                }
                Ok(Some(Incoming::Ping(bytes))) => whole.push(Whole::Ping(bytes.to_vec())),
                Ok(Some(Incoming::Pong)) => whole.push(Whole::Pong),
                Ok(Some(Incoming::Close(code))) => whole.push(Whole::Close(code)),
                Err(fault) => return (whole, Some(fault)),
            }
        }
    }
    (whole, None)
}

#[test]
fn websocket_examples_of_the_rfc_are_read() {
    // RFC 6455, section 5.7.
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let hello = Whole::Message(MessageKind::Text, b"Hello".to_vec());
    assert_eq!(read(&masked, 3), (vec![hello.clone()], None));
    let fragments = [frame(0x01, true, b"Hel"), frame(0x80, true, b"lo")].concat();
    assert_eq!(read(&fragments, 9), (vec![hello], None));
    let ping = frame(0x89, true, b"Hello");
    assert_eq!(read(&ping, 7), (vec![Whole::Ping(b"Hello".to_vec())], None));
}

#[test]
fn websocket_messages_are_the_same_at_every_split() {
    let long = vec![b'x'; 700];
    let bytes = [
        frame(0x81, true, b"{}"),
        frame(0x01, true, &long),
        frame(0x89, true, b"in between"),
        frame(0x00, true, b""),
        frame(0x80, true, b"end"),
        frame(0x8a, true, b""),
        frame(0x82, true, b"\0"),
        frame(0x88, true, &[&1000u16.to_be_bytes()[..], b"bye"].concat()),
    ]
    .concat();
    let expected = vec![
        Whole::Message(MessageKind::Text, b"{}".to_vec()),
        Whole::Ping(b"in between".to_vec()),
        Whole::Message(MessageKind::Text, [&long[..], b"end"].concat()),
        Whole::Pong,
        Whole::Message(MessageKind::Binary, vec![0]),
        Whole::Close(Some(1000)),
    ];
    for size in 1..=bytes.len() {
        assert_eq!(read(&bytes, size), (expected.clone(), None), "{size}");
    }
}

#[test]
fn websocket_violations_are_found() {
    let close = |payload: &[u8]| frame(0x88, true, payload);
    for (bytes, fault) in [
        (frame(0xc1, true, b"x"), FrameFault::ReservedBit),
        (frame(0x83, true, b"x"), FrameFault::OpCode),
        (frame(0x8b, true, b"x"), FrameFault::OpCode),
        (frame(0x81, false, b"x"), FrameFault::Masking),
        (frame(0x09, true, b"x"), FrameFault::Control),
        (frame(0x89, true, &[0; 126]), FrameFault::Control),
        (frame(0x80, true, b"x"), FrameFault::Fragment),
        ([frame(0x01, true, b"x"), frame(0x81, true, b"y")].concat(), FrameFault::Fragment),
        (vec![0x81, 0xfe, 0, 125, 0, 0, 0, 0], FrameFault::Length),
        (vec![0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0], FrameFault::Length),
        (vec![0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], FrameFault::Length),
        (vec![0x81, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0], FrameFault::TooBig(1 << 20)),
        (frame(0x81, true, b"\xff"), FrameFault::Utf8),
        (frame(0x81, true, b"a\xe2\x82"), FrameFault::Utf8),
        ([frame(0x01, true, b"\xe2"), frame(0x80, true, b"x")].concat(), FrameFault::Utf8),
        (close(&[3]), FrameFault::Close),
        (close(&1005u16.to_be_bytes()), FrameFault::Close),
        (close(&[&1000u16.to_be_bytes()[..], &[0xff]].concat()), FrameFault::Close),
    ] {
        for size in [1, 2, bytes.len()] {
            assert_eq!(read(&bytes, size).1, Some(fault), "{bytes:x?}");
        }
    }
    let halves = [frame(0x01, true, &vec![0; 1 << 19]), frame(0x80, true, &vec![0; (1 << 19) + 1])].concat();
    assert_eq!(read(&halves, 4096).1, Some(FrameFault::TooBig(1 << 20)));
}

#[test]
fn websocket_partial_message_is_known() {
    let mut reader = FrameReader::new(100);
    let mut buf = BytesMut::from(&frame(0x01, true, b"abc")[..]);
    assert!(!reader.is_partial());
    reader.next(&mut buf).unwrap();
    assert!(reader.is_partial());
    buf.extend_from_slice(&frame(0x80, true, b"")[..3]);
    assert_eq!(reader.next(&mut buf), Ok(None));
    assert_eq!(reader.left(), 0);
}

#[test]
fn websocket_close_reason_is_cut_at_a_character() {
    let payload = close_payload(CloseCode::Restart, &"é".repeat(100));
    assert_eq!(&payload[..2], &1012u16.to_be_bytes());
    assert!(payload.len() <= 125 && std::str::from_utf8(&payload[2..]).is_ok());
    assert_eq!(close_payload(CloseCode::Normal, "end"), Bytes::from_static(b"\x03\xe8end"));
}

proptest! {
    #[test]
    fn websocket_frames_of_another_implementation_are_read(
        payload in prop::collection::vec(any::<u8>(), 0..70_000),
        key in any::<[u8; 4]>(),
        size in 1usize..5_000,
    ) {
        let mut frame = tungstenite::protocol::frame::Frame::message(
            payload.clone(), OpCode::Data(Data::Binary), true,
        );
        frame.header_mut().mask = Some(key);
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        prop_assert_eq!(read(&bytes, size), (vec![Whole::Message(MessageKind::Binary, payload)], None));
    }

    #[test]
    fn websocket_headers_are_read_by_another_implementation(length in 0usize..200_000) {
        let mut bytes = Vec::new();
        put_header(OpCode::Data(Data::Text), length, &mut bytes);
        let mut cursor = std::io::Cursor::new(&bytes);
        let (header, read) = tungstenite::protocol::frame::FrameHeader::parse(&mut cursor).unwrap().unwrap();
        prop_assert_eq!((read, header.is_final, header.mask), (length as u64, true, None));
        prop_assert_eq!((header.opcode, cursor.position()), (OpCode::Data(Data::Text), bytes.len() as u64));
    }

    #[test]
    fn websocket_reader_finds_the_same_at_every_split(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        size in 1usize..40,
    ) {
        let whole = read(&bytes, bytes.len().max(1));
        prop_assert_eq!(read(&bytes, size), whole);
    }
}
