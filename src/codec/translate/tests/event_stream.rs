//! Event streams: messages pass unchanged and are translated, at every split and with every fault.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::translate::translated::Route;
use crate::translate::verbatim::{Arrival, Changes};
use crate::translate::{Restore, StreamError, Translated, Verbatim};
use crate::wire::codec::ReplyOptions;
use crate::wire::{Api, Format};
use framing::event_stream::{HeaderValue, MessageWriter, put_header};

/// Writes a message whose type and name are in its headers.
fn message(kind: &str, name: &str, payload: &str) -> Vec<u8> {
    let (mut headers, mut out) = (Vec::new(), BytesMut::new());
    put_header(&format!(":{kind}-type"), HeaderValue::Text(name), &mut headers);
    put_header(":content-type", HeaderValue::Text("application/json"), &mut headers);
    put_header(":message-type", HeaderValue::Text(kind), &mut headers);
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(payload.as_bytes());
    writer.end(&mut out);
    out.to_vec()
}

/// Writes an event whose headers are in another order than Bedrock's, with one that the gateway does not know.
fn reordered(name: &str, payload: &str) -> Vec<u8> {
    let (mut headers, mut out) = (Vec::new(), BytesMut::new());
    for (header, value) in [(":message-type", "event"), ("x", "y"), (":event-type", name)] {
        put_header(header, HeaderValue::Text(value), &mut headers);
    }
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(payload.as_bytes());
    writer.end(&mut out);
    out.to_vec()
}

fn start() -> Vec<u8> {
    message("event", "messageStart", r#"{"p":"abc","role":"assistant"}"#)
}

fn text() -> Vec<u8> {
    // A line break between tokens must not get into a line of another stream.
    message(
        "event",
        "contentBlockDelta",
        "{\"contentBlockIndex\":0,\n\"delta\":{\"text\":\"Gr\u{fc}\u{df}e\"}}",
    )
}

fn stream() -> Vec<Vec<u8>> {
    let usage = r#"{"metrics":{"latencyMs":1},"usage":{"inputTokens":9,"outputTokens":4,"totalTokens":13}}"#;
    vec![
        start(),
        message("event", "someFutureEvent", "{\"x\":1}"),
        text(),
        message("event", "contentBlockStop", "{\"contentBlockIndex\":0}"),
        message("event", "messageStop", "{\"stopReason\":\"end_turn\"}"),
        message("event", "metadata", usage),
    ]
}

#[test]
fn event_stream_headers_have_any_order() {
    let payloads = [
        ("messageStart", "{}"),
        ("contentBlockDelta", "{\"contentBlockIndex\":0,\n\"delta\":{\"text\":\"a\"}}"),
    ];
    let read = |write: &dyn Fn(&str, &str) -> Vec<u8>| {
        let mut exchange = translated(Format::Chat);
        let stream: Vec<u8> = payloads.iter().flat_map(|(name, payload)| write(name, payload)).collect();
        exchange.feed(Bytes::from(stream)).unwrap()
    };
    let usual = read(&|name, payload| message("event", name, payload));
    assert!(String::from_utf8_lossy(&usual).contains(r#""content":"a""#));
    assert_eq!(read(&reordered), usual);
    // A header twice, behind those that are usual.
    let mut twice = message("event", "messageStart", "{}");
    let headers_length = u32::from_be_bytes(twice[4..8].try_into().unwrap()) as usize;
    let mut headers = twice[12..12 + headers_length].to_vec();
    put_header(":event-type", HeaderValue::Text("messageStop"), &mut headers);
    let mut out = BytesMut::new();
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(b"{}");
    writer.end(&mut out);
    twice = out.to_vec();
    assert!(translated(Format::Chat).feed(Bytes::from(twice)).is_err());
}

/// Deltas in Bedrock's spelling and in others, of open blocks and unknown ones. Their payload is read in place only behind
/// the usual headers; the output must be the same.
#[test]
fn event_stream_payload_read_in_place_has_the_same_output() {
    let deltas = [
        r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"why \"so\" \u00fc"}},"p":"ab"}"#,
        r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"end","signature":"c2ln"}},"p":""}"#,
        r#"{"contentBlockIndex":1,"delta":{"text":"Grüße"},"p":"abc"}"#,
        r#"{"contentBlockIndex":1,"delta":{"text":"\ud83c\udf0d!\n"}}"#,
        r#"{"contentBlockIndex":1,"delta":{"text":""},"p":"abc"}"#,
        r#"{"contentBlockIndex":1, "delta": {"text": "spaced"}}"#,
        r#"{"delta":{"text":"turned"},"contentBlockIndex":1}"#,
        r#"{"contentBlockIndex":1,"delta":{"citation":{"title":"t","location":{}}}}"#,
        r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"a\":"}},"p":"ab"}"#,
        r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"1}"}}}"#,
        r#"{"contentBlockIndex":99999999999,"delta":{"text":"far"}}"#,
        r#"{"contentBlockIndex":-1,"delta":{"text":"negative"}}"#,
    ];
    let start = r#"{"contentBlockIndex":2,"start":{"toolUse":{"name":"f","toolUseId":"t_1"}}}"#;
    let read = |client: Format, write: &dyn Fn(&str, &str) -> Vec<u8>| {
        let mut stream = write("messageStart", r#"{"role":"assistant"}"#);
        stream.extend(write("contentBlockStart", start));
        for _ in 0..2 {
            stream.extend(deltas.iter().flat_map(|delta| write("contentBlockDelta", delta)));
        }
        stream.extend(write("messageStop", r#"{"stopReason":"end_turn"}"#));
        pass(client, &[&stream])
    };
    for client in Format::ALL {
        let usual = read(client, &|name, payload| message("event", name, payload));
        assert_eq!(usual.1, Ok(()));
        let text = String::from_utf8_lossy(&usual.0);
        assert!(["why", "Grüße", "spaced", "turned", "far"].iter().all(|part| text.contains(part)), "{text}");
        assert!(read(client, &reordered) == usual, "{client}");
    }
}

#[test]
fn event_stream_delta_with_any_byte_changed_is_refused() {
    let delta =
        message("event", "contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"a"},"p":"ab"}"#);
    for at in 0..delta.len() {
        let mut changed = delta.clone();
        changed[at] ^= 0x11;
        let (out, ended) = pass(Format::Chat, &[&start(), &delta, &changed, &delta]);
        // A length that is wrong is refused as well: its checksum is.
        assert!(matches!(ended, Err(StreamError::Invalid(_))), "byte {at}: {ended:?}");
        assert_eq!(String::from_utf8_lossy(&out).matches(r#""content":"a""#).count(), 1, "byte {at}");
    }
}

/// Faults in a payload whose checksum is right.
#[test]
fn event_stream_delta_that_is_not_json_or_not_utf8_is_refused() {
    let usual = r#"{"contentBlockIndex":0,"delta":{"text":"@"},"p":"@"}"#;
    let open = message("event", "contentBlockDelta", usual);
    for (text, padding) in [(&b"\xff"[..], &b""[..]), (b"a", b"\xc3"), (b"a\x00b", b""), (b"\\", b"")] {
        let mut parts = usual.as_bytes().split(|byte| *byte == b'@');
        let mut part = || parts.next().unwrap();
        let payload = [part(), text, part(), padding, part()].concat();
        let mut headers = Vec::new();
        for (header, value) in [
            (":event-type", "contentBlockDelta"),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ] {
            put_header(header, HeaderValue::Text(value), &mut headers);
        }
        let mut out = BytesMut::new();
        let writer = MessageWriter::begin(&headers, &mut out);
        out.extend_from_slice(&payload);
        writer.end(&mut out);
        let (_, ended) = pass(Format::Chat, &[&start(), &open, &out]);
        let shown = String::from_utf8_lossy(&payload);
        assert!(matches!(ended, Err(StreamError::Invalid(_))), "{shown}: {ended:?}");
    }
}

fn verbatim() -> Verbatim {
    Verbatim::new(Api::Converse, Arrival::EventStream, Changes::default(), 1 << 20)
}

fn translated(client: Format) -> Translated {
    let route = Route { client, provider: Format::Converse, stream: true };
    let reply = ReplyOptions { seed: "req_1".into(), show_thinking: true, ..ReplyOptions::default() };
    let reply = Arc::new(reply);
    Translated::new(&route, Arrival::EventStream, reply, Restore::default(), 1 << 20)
}

fn pass(client: Format, pieces: &[&[u8]]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut translated = translated(client);
    let mut out = Vec::new();
    let mut feed = || -> Result<(), StreamError> {
        for piece in pieces {
            out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece))?);
        }
        out.extend_from_slice(&translated.finish()?);
        Ok(())
    };
    let ended = feed();
    (out, ended)
}

#[test]
fn event_stream_passes_and_is_translated_at_every_split() {
    let whole = stream().concat();
    for at in 0..=whole.len() {
        let (one, other) = whole.split_at(at);
        let mut verbatim = verbatim();
        let mut out = verbatim.feed(Bytes::copy_from_slice(one)).unwrap().to_vec();
        out.extend_from_slice(&verbatim.feed(Bytes::copy_from_slice(other)).unwrap());
        out.extend_from_slice(&verbatim.finish().unwrap());
        assert!(out == whole, "split at {at}");
        let usage = verbatim.meter().usage();
        assert_eq!((usage.input, usage.output, verbatim.meter().finish()), (Some(9), Some(4), "end_turn"));
        for client in Format::ALL {
            let expected = pass(client, &[&whole]);
            assert_eq!(expected.1, Ok(()));
            assert!(pass(client, &[one, other]) == expected, "{client}, split at {at}");
        }
    }
    let (chat, _) = pass(Format::Chat, &[&whole]);
    let chat = String::from_utf8(chat).unwrap();
    assert!(chat.contains("Grüße") && chat.ends_with("data: [DONE]\n\n"), "{chat}");
    assert!(chat.lines().all(|line| line.is_empty() || line.starts_with("data: ")), "{chat}");
}

#[test]
fn event_stream_that_is_cut_ends_with_its_last_whole_message() {
    let frames = stream();
    let whole = frames.concat();
    let ends: Vec<usize> = (0..=frames.len()).map(|count| frames[..count].concat().len()).collect();
    for cut in 0..whole.len() {
        let mut verbatim = verbatim();
        let out = verbatim.feed(Bytes::copy_from_slice(&whole[..cut])).unwrap();
        assert_eq!(Some(&out.len()), ends.iter().rev().find(|end| **end <= cut));
        // Behind the stop reason only usage is missing.
        let complete = cut >= ends[5];
        assert_eq!(verbatim.finish().is_ok(), complete, "{cut}");
        assert_eq!(pass(Format::Messages, &[&whole[..cut]]).1.is_ok(), complete, "{cut}");
    }
}

#[test]
fn event_stream_with_a_wrong_checksum_is_invalid() {
    let mut frames = stream();
    let last = frames[2].len() - 1;
    frames[2][last] ^= 1;
    let broken = frames.concat();
    let mut verbatim = verbatim();
    let error = verbatim.feed(Bytes::from(broken.clone())).unwrap_err();
    assert!(matches!(&error, StreamError::Invalid(why) if why.contains("checksum")), "{error:?}");
    assert!(matches!(pass(Format::Chat, &[&broken]).1, Err(StreamError::Invalid(_))));
    let other = message("weird", "x", "{}");
    assert!(matches!(pass(Format::Chat, &[&other]).1, Err(StreamError::Invalid(_))));
}

#[test]
fn exception_of_an_event_stream_is_an_error_of_the_provider() {
    let exception = message("exception", "throttlingException", "{\"message\":\"slow\"}");
    let expected = Bytes::from_static(b"{\"throttlingException\":{\"message\":\"slow\"}}");
    let first = StreamError::FirstFrame(expected.clone());
    assert_eq!(verbatim().feed(Bytes::from(exception.clone())), Err(first.clone()));
    assert_eq!(pass(Format::Chat, &[&exception]).1, Err(first));
    let later = [start(), text(), exception].concat();
    assert_eq!(pass(Format::Chat, &[&later]).1, Err(StreamError::Failed(expected)));
    // A client of the same format receives the exception itself.
    let mut verbatim = verbatim();
    assert_eq!(verbatim.feed(Bytes::from(later.clone())).unwrap(), later);
    assert!(verbatim.finish().is_ok());
    // An error without a payload has its code and message in headers.
    let (mut headers, mut out) = (Vec::new(), BytesMut::new());
    for (name, value) in
        [(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "a \"b\"")]
    {
        put_header(name, HeaderValue::Text(value), &mut headers);
    }
    MessageWriter::begin(&headers, &mut out).end(&mut out);
    let Err(StreamError::FirstFrame(body)) = pass(Format::Chat, &[&out]).1 else { panic!() };
    let error = crate::wire::error::ProviderError::decode(&body);
    assert_eq!((&*error.message, error.code.as_deref()), ("a \"b\"", Some("InternalError")));
}
