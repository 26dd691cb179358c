use std::ops::Range;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::frame_buffer::FrameTooLarge;
use crate::{FrameBuffer, Splitter};

/// Test vectors of the official SDKs and of Bedrock's messages, each with its source.
const VECTORS: &str = include_str!("../../../tests/vectors/eventstream.json");

fn vectors() -> Vec<(String, Vec<u8>, Value)> {
    let file: Value = serde_json::from_str(VECTORS).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let each = |vector: &Value| {
        (vector["name"].as_str().unwrap().to_owned(), hex(vector["hex"].as_str().unwrap()), vector.clone())
    };
    vectors.iter().map(each).collect()
}

fn valid() -> Vec<(String, Vec<u8>, Value)> {
    vectors().into_iter().filter(|(_, _, vector)| vector.get("error").is_none()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// The value of a header as the vectors write it.
fn written(value: HeaderValue<'_>) -> (&'static str, Value) {
    let base64 = |bytes: &[u8]| base64_simd::STANDARD.encode_to_string(bytes).into();
    match value {
        HeaderValue::Bool(true) => ("bool_true", true.into()),
        HeaderValue::Bool(false) => ("bool_false", false.into()),
        HeaderValue::Byte(value) => ("byte", value.into()),
        HeaderValue::Int16(value) => ("short", value.into()),
        HeaderValue::Int32(value) => ("integer", value.into()),
        HeaderValue::Int64(value) => ("long", value.into()),
        HeaderValue::Bytes(value) => ("byte_array", base64(value)),
        HeaderValue::Text(value) => ("string", value.into()),
        HeaderValue::Timestamp(value) => ("timestamp", value.into()),
        HeaderValue::Uuid(value) => {
            ("uuid", value.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
        }
    }
}

fn write(message: &EventMessage<'_>) -> Vec<u8> {
    let mut headers = Vec::new();
    for header in message.headers() {
        let header = header.unwrap();
        put_header(header.name, header.value, &mut headers);
    }
    let mut out = BytesMut::from(&b"before"[..]);
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(message.payload());
    writer.end(&mut out);
    out[6..].to_vec()
}

/// Feeds pieces; returns the frames and the rest.
fn cut<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut buffer = FrameBuffer::new(Splitter::EventStream(EventStreamSplitter::default()), 1 << 20);
    let mut frames = Vec::new();
    for piece in pieces {
        let each = |source: &Bytes, range: Range<usize>| {
            frames.push(source[range].to_vec());
            Ok::<(), FrameTooLarge>(())
        };
        buffer.feed(&Bytes::copy_from_slice(piece), each).unwrap();
    }
    (frames, buffer.take_rest().to_vec())
}

#[test]
fn vectors_have_the_expected_headers_and_payloads() {
    assert_eq!(vectors().len(), 35);
    for (name, bytes, vector) in valid() {
        let message = EventMessage::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = vector["expect"]["headers"].as_array().unwrap();
        let headers: Vec<_> = message.headers().map(Result::unwrap).collect();
        assert_eq!(headers.len(), expected.len(), "{name}");
        for (header, expected) in headers.iter().zip(expected) {
            let (kind, value) = written(header.value);
            let expected = [&expected["name"], &expected["type"], &expected["value"]].map(Value::to_string);
            assert_eq!(
                [Value::from(header.name), kind.into(), value].map(|value| value.to_string()),
                expected
            );
        }
        let payload = base64_simd::STANDARD.encode_to_string(message.payload());
        assert_eq!(Some(&*payload), vector["expect"]["payload_base64"].as_str(), "{name}");
        assert_eq!(write(&message), bytes, "{name} written anew");
    }
}

#[test]
fn vectors_with_a_fault_are_refused() {
    let mut faults = 0;
    for (name, bytes, vector) in vectors() {
        let Some(fault) = vector.get("error") else { continue };
        faults += 1;
        let error = EventMessage::parse(&bytes).err();
        let expected: &[MessageError] = match name.as_str() {
            "botocore_duplicate_header" => &[MessageError::DuplicateHeader],
            "botocore_invalid_headers_length" => &[MessageError::HeadersLength],
            _ if vector["prelude_crc_ok"] == false => &[MessageError::PreludeChecksum],
            // A message that is not as long as it says is incomplete before its checksum can be checked.
            _ => &[MessageError::Checksum, MessageError::Incomplete, MessageError::HeadersLength],
        };
        assert!(error.is_some_and(|error| expected.contains(&error)), "{name} ({fault}): {error:?}");
    }
    assert_eq!(faults, 14);
}

/// The faults of headers, in messages whose checksums are right.
#[test]
fn header_faults_are_named() {
    let message = |headers: &[u8]| {
        let mut out = BytesMut::new();
        MessageWriter::begin(headers, &mut out).end(&mut out);
        out
    };
    let mut many = Vec::new();
    for number in 0..=MAX_HEADERS {
        put_header(&number.to_string(), HeaderValue::Bool(true), &mut many);
    }
    for (headers, error) in [
        (&b"\x00\x00"[..], MessageError::HeaderLength),
        (b"\xffname\x00", MessageError::HeaderLength),
        (b"\x04name", MessageError::HeaderLength),
        (b"\x04name\x02", MessageError::HeaderLength),
        (b"\x04name\x07\x00\x02a", MessageError::HeaderLength),
        (b"\x04name\x0a", MessageError::HeaderType(10)),
        (b"\x02\xc3(\x00", MessageError::HeaderText),
        (b"\x01n\x07\x00\x01\xff", MessageError::HeaderText),
        (&many, MessageError::TooManyHeaders),
    ] {
        assert_eq!(EventMessage::parse(&message(headers)).err(), Some(error), "{headers:?}");
    }
    let name = "n".repeat(255);
    let mut headers = Vec::new();
    put_header(&name, HeaderValue::Text("text"), &mut headers);
    let longest = message(&headers);
    assert_eq!(EventMessage::parse(&longest).unwrap().text(&name), Some("text"));
    assert_eq!(EventMessage::parse(&longest).unwrap().text("n"), None);
}

#[test]
fn stream_in_pieces_has_the_same_messages() {
    let all: Vec<Vec<u8>> = valid().into_iter().map(|(_, bytes, _)| bytes).collect();
    let stream = all.concat();
    for size in (1..200).chain([1_000, stream.len()]) {
        let (frames, rest) = cut(stream.chunks(size));
        assert_eq!(frames, all, "pieces of {size}");
        assert!(rest.is_empty());
    }
    // Every cut of one message waits for the rest.
    for message in &all {
        for at in 1..message.len() {
            let (frames, rest) = cut([&message[..at]]);
            assert_eq!((frames.len(), &rest[..]), (0, &message[..at]));
            assert_eq!(EventMessage::parse(&rest).err(), Some(MessageError::Incomplete));
        }
    }
}

#[test]
fn message_that_is_too_long_is_refused_by_its_length_alone() {
    // A payload of 24 MiB and one byte, of which nothing has arrived.
    let prelude = hex("0180002100000000dd3f33b1");
    for size in 1..=prelude.len() {
        let (frames, _) = cut(prelude.chunks(size));
        assert_eq!(frames, std::slice::from_ref(&prelude));
        assert_eq!(EventMessage::parse(&frames[0]).err(), Some(MessageError::TooLong));
    }
}

#[test]
fn invalid_prelude_is_the_last_frame() {
    let (_, valid, _) = valid().swap_remove(6);
    let mut stream = [&valid[..], &valid, &valid].concat();
    stream[valid.len() + 2] ^= 1;
    for size in 1..stream.len() {
        let (frames, _) = cut(stream.chunks(size));
        assert_eq!(frames, [&stream[..valid.len()], &stream[valid.len()..valid.len() + PRELUDE_LENGTH]]);
        assert_eq!(EventMessage::parse(&frames[1]).err(), Some(MessageError::PreludeChecksum));
    }
}

#[test]
fn changed_byte_is_detected() {
    for (name, bytes, _) in valid() {
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(EventMessage::parse(&changed).is_err(), "{name}, byte {at}");
        }
    }
}

#[test]
fn cancelled_message_leaves_the_buffer_unchanged() {
    let mut out = BytesMut::from(&b"x"[..]);
    MessageWriter::begin(b"", &mut out).cancel(&mut out);
    assert_eq!(&out[..], b"x");
}

proptest! {
    #[test]
    fn message_is_read_as_it_was_written(
        name in "[a-z:-]{1,40}",
        text in ".{0,40}",
        number: i64,
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        size in 1usize..50,
    ) {
        let mut headers = Vec::new();
        put_header(&name, HeaderValue::Text(&text), &mut headers);
        put_header("0", HeaderValue::Timestamp(number), &mut headers);
        let mut out = BytesMut::new();
        for _ in 0..3 {
            let writer = MessageWriter::begin(&headers, &mut out);
            out.extend_from_slice(&payload);
            writer.end(&mut out);
        }
        let (frames, rest) = cut(out.chunks(size));
        prop_assert!(rest.is_empty());
        prop_assert_eq!(frames.len(), 3);
        for frame in &frames {
            let message = EventMessage::parse(frame).unwrap();
            prop_assert_eq!(message.text(&name), Some(&*text));
            prop_assert_eq!(message.payload(), &payload[..]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_lose_nothing(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        size in 1usize..50,
    ) {
        let _ = EventMessage::parse(&bytes);
        let (frames, rest) = cut(bytes.chunks(size));
        prop_assert_eq!([frames.concat(), rest].concat(), bytes);
    }
}
