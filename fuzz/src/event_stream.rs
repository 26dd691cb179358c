//! Targets for what AWS clients and providers send: event streams and signed requests.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use cloud::sigv4::{
    CanonicalRequest, CredentialScope, Credentials, PathEncoding, PayloadHash, Presented, Signer,
};
use codec::canonical::Usage;
use codec::translate::invoke_stream::InvokeStream;
use codec::translate::invoke_writer::InvokeWriter;
use codec::wire::codec::RequestClock;
use framing::event_stream::{
    EventMessage, EventStreamSplitter, MAX_HEADERS_LENGTH, MessageError, MessageWriter, put_header,
};
use framing::frame_buffer::FrameTooLarge;
use framing::{FrameBuffer, Splitter};

use crate::{choose, pieces};

fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
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

/// Event streams: every split gives the same messages, no byte is lost, and a valid message that is written anew has the
/// same bytes. The input is read as a stream, and as the headers of a message whose checksums are right.
pub fn event_stream(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let (frames, rest) = cut(&[data]);
    let split = cut(&pieces(data, seed));
    assert_eq!([frames.concat(), rest.clone()].concat(), data);
    assert_eq!((&split.0, &split.1), (&frames, &rest));
    for frame in &frames {
        read_back(frame);
    }
    let headers = &data[..data.len().min(MAX_HEADERS_LENGTH)];
    let mut stream = BytesMut::new();
    for _ in 0..2 {
        let writer = MessageWriter::begin(headers, &mut stream);
        stream.extend_from_slice(&data[..data.len().min(100)]);
        writer.end(&mut stream);
    }
    let (frames, rest) = cut(&pieces(&stream, seed));
    assert_eq!((frames.len(), rest.len()), (2, 0));
    invoke_stream(data, seed);
    for frame in &frames {
        let parsed = EventMessage::parse(frame).map(|message| message.payload().to_vec());
        let is_checksum = matches!(
            parsed,
            Err(MessageError::PreludeChecksum
                | MessageError::Checksum
                | MessageError::Incomplete
                | MessageError::TooLong)
        );
        assert!(!is_checksum, "the message has right checksums");
        read_back(frame);
    }
}

/// Streams of InvokeModel: every split gives the same output, and what the writer makes of an event is read as that event.
fn invoke_stream(data: &[u8], seed: usize) {
    let clock = RequestClock { now: || 0, started: 0 };
    let read = |pieces: &[&[u8]]| {
        let mut reader = InvokeStream::new(1 << 30);
        let mut out = Vec::new();
        let fed = pieces.iter().try_for_each(|piece| {
            reader.feed(&Bytes::copy_from_slice(piece)).map(|events| out.extend_from_slice(&events))
        });
        out.extend_from_slice(&reader.take_ready());
        (out, fed.is_ok())
    };
    let write = |pieces: &[&[u8]]| -> Vec<u8> {
        let mut writer = InvokeWriter::new(clock);
        let write = |piece: &&[u8]| writer.feed(&Bytes::copy_from_slice(piece), &mut Usage::default);
        pieces.iter().map(write).collect::<Vec<_>>().concat()
    };
    assert_eq!(read(&[data]), read(&pieces(data, seed)));
    let written = write(&[data]);
    assert_eq!(written, write(&pieces(data, seed)));
    let (frames, rest) = cut(&[&written[..]]);
    assert!(rest.is_empty());
    for frame in &frames {
        EventMessage::parse(frame).expect("the writer writes valid messages");
    }
    let mut event = b"event: x\ndata: ".to_vec();
    event.extend(data.iter().filter(|byte| !byte.is_ascii_control()));
    event.extend_from_slice(b"\n\n");
    let (events, _) = read(&[&write(&[&event[..]])[..]]);
    // Members that Bedrock adds are removed.
    let has_added = data.windows(15).any(|text| text == b"amazon-bedrock-");
    if !events.is_empty() && !has_added {
        let text = |event: &[u8]| event.split(|byte| *byte == b'\n').nth(1).map(<[u8]>::to_vec);
        let sent = text(&event).map(|line| [&b"data: "[..], line[6..].trim_ascii()].concat());
        assert_eq!(text(&events), sent);
    }
}

fn read_back(frame: &[u8]) {
    let Ok(message) = EventMessage::parse(frame) else { return };
    let mut headers = Vec::new();
    for header in message.headers() {
        let header = header.expect("the headers were checked");
        put_header(header.name, header.value, &mut headers);
    }
    let mut out = BytesMut::new();
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(message.payload());
    writer.end(&mut out);
    assert_eq!(&out[..], frame);
}

/// Signed requests: no authorization header and no target makes the verifier panic, and a request that the signer signs
/// is accepted unless a byte changes. Lines of the input: authorization, target, header values, body.
pub fn signed_request(data: &[u8]) {
    const NOW: i64 = 1_795_256_000;
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let (authorization, target) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let values: Vec<&str> = lines.collect();
    let payload = PayloadHash::of([data]);
    let names = ["host", "x-amz-date", "content-type", "x-amz-security-token", "accept"];
    let headers: Vec<(&str, &str)> = names.into_iter().zip(values.iter().copied()).collect();
    if let Ok(presented) = Presented::parse(authorization) {
        let _ = presented.verify("secret", ("POST", target), &headers, &payload, NOW);
    }
    let credentials = Credentials {
        access_key_id: "AKID".into(),
        secret_access_key: "secret".into(),
        session_token: values.first().map(|value| (*value).into()),
    };
    let signer = Signer::new(credentials, CredentialScope { region: "eu-west-1", service: "bedrock" });
    let host = [("host", authorization), ("content-type", target)];
    let request = CanonicalRequest {
        method: "POST",
        target,
        headers: &host,
        payload: &payload,
        path_encoding: PathEncoding::Normalized,
    };
    let signed = signer.sign(&request, NOW);
    let mut sent = host.to_vec();
    sent.push(("x-amz-date", signed.date.as_str()));
    sent.extend(signed.session_token.as_deref().map(|token| ("x-amz-security-token", token)));
    let presented = Presented::parse(&signed.authorization).expect("the signer writes what the parser reads");
    assert_eq!(presented.verify("secret", ("POST", target), &sent, &payload, NOW), Ok(()));
    assert!(presented.verify("other", ("POST", target), &sent, &payload, NOW).is_err());
    let other = PayloadHash::of([data, b"x"]);
    assert!(presented.verify("secret", ("POST", target), &sent, &other, NOW).is_err());
}
