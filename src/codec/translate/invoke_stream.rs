//! Streams of Bedrock's InvokeModel: each message of the event stream has one event of the model's own format, which
//! becomes a server-sent event.
//!
//! The payload of a message is `{"bytes":"<base64>","p":"<padding>"}`
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_PayloadPart.html>). The bytes of the event pass
//! unchanged; only what Bedrock adds to the last one is removed.

use bytes::{Bytes, BytesMut};

use super::StreamError;
use framing::FrameBuffer;
use framing::Splitter;
use framing::event_stream::{EventMessage, EventStreamSplitter, MessageError};
use json::{Cursor, JsonError, JsonStr, Writer, from_utf8};

/// Beginning of the names that Bedrock adds: its measurements, and the results of guardrails.
const ADDED: &str = "amazon-bedrock-";
/// Initial capacity of the output, in bytes.
const OUT: usize = 4_096;

/// Reader of such a stream.
#[derive(Debug)]
pub struct InvokeStream {
    frames: FrameBuffer,
    out: BytesMut,
    /// Event that was decoded last.
    event: Vec<u8>,
    /// Whether what Bedrock adds to an event stays.
    keeps_added: bool,
}

impl InvokeStream {
    /// Creates a reader for messages of at most `max_frame` bytes.
    pub fn new(max_frame: usize) -> Self {
        let splitter = Splitter::EventStream(EventStreamSplitter::default());
        InvokeStream {
            frames: FrameBuffer::new(splitter, max_frame),
            out: BytesMut::new(),
            event: Vec::new(),
            keeps_added: false,
        }
    }

    /// Keeps what Bedrock adds to an event, for clients of InvokeModel.
    #[must_use]
    pub fn keeping_added(self) -> Self {
        InvokeStream { keeps_added: true, ..self }
    }

    /// Takes a piece of the stream, and returns the server-sent events that it completes.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the stream is not valid. [`take_ready`](Self::take_ready) then returns the events that
    /// were complete before the fault.
    pub fn feed(&mut self, piece: &Bytes) -> Result<Bytes, StreamError> {
        let InvokeStream { frames, out, event, keeps_added } = self;
        // Base64 makes four bytes of three: an event is shorter than its message.
        out.reserve(piece.len().max(OUT));
        frames.feed(piece, |bytes, range| {
            let frame = bytes.get(range).unwrap_or_default();
            let start = out.len();
            // A message with a fault leaves nothing behind.
            write_event(frame, event, *keeps_added, out).inspect_err(|_| out.truncate(start))
        })?;
        Ok(self.take_ready())
    }

    /// Takes the events that are ready to be forwarded.
    pub fn take_ready(&mut self) -> Bytes {
        self.out.split().freeze()
    }
}

/// Writes the event of a message. A message without one is skipped.
fn write_event(
    frame: &[u8],
    event: &mut Vec<u8>,
    keeps_added: bool,
    out: &mut BytesMut,
) -> Result<(), StreamError> {
    let invalid = |error: MessageError| StreamError::Invalid(error.to_string());
    let message = EventMessage::parse(frame).map_err(invalid)?;
    match message.text(":message-type") {
        Some("event") => {}
        Some("exception") => {
            let name = message.text(":exception-type").unwrap_or_default();
            let text = from_utf8(message.payload()).ok().and_then(|payload| member(payload, "message"));
            let text = text.map(|text| text.decode().into_owned()).unwrap_or_default();
            write_error(name, &text, out);
            return Ok(());
        }
        Some("error") => {
            let name = message.text(":error-code").unwrap_or_default();
            write_error(name, message.text(":error-message").unwrap_or_default(), out);
            return Ok(());
        }
        other => {
            let kind = other.unwrap_or("none");
            return Err(StreamError::Invalid(format!("unknown type of an event stream message: {kind}")));
        }
    }
    let broken = |what: &str| StreamError::Invalid(format!("a part of the stream {what}"));
    let payload = from_utf8(message.payload()).map_err(|_| broken("is not UTF-8"))?;
    let Some(encoded) = member(payload, "bytes") else { return Ok(()) };
    let encoded = encoded.decode();
    event.clear();
    base64_simd::STANDARD.decode_append(encoded.as_bytes(), event).map_err(|_| broken("is not base64"))?;
    let text = from_utf8(event).map_err(|_| broken("has an event that is not UTF-8"))?;
    let Some(name) = member(text, "type") else { return Ok(()) };
    out.extend_from_slice(b"event: ");
    out.extend(name.escaped().bytes().filter(|byte| !byte.is_ascii_control()));
    out.extend_from_slice(b"\ndata: ");
    let start = out.len();
    if !keeps_added && text.contains(ADDED) {
        if write_without_added(text, out).is_err() {
            return Err(broken("has an event that is not JSON"));
        }
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    // Line breaks occur only between tokens of JSON, and would end the line of the event.
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        let line = out.get_mut(start..).unwrap_or_default();
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// Returns the member of this name, if it is a string.
fn member<'t>(text: &'t str, name: &str) -> Option<JsonStr<'t>> {
    let mut json = Cursor::new(text);
    json.begin_object().ok()?;
    while let Some(key) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        if key.is(name) {
            return value.as_str();
        }
    }
    None
}

/// Writes an event without the members that Bedrock adds.
fn write_without_added(text: &str, out: &mut BytesMut) -> Result<(), JsonError> {
    let mut json = Cursor::new(text);
    json.begin_object()?;
    out.extend_from_slice(b"{");
    let start = out.len();
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        if key.decode().starts_with(ADDED) {
            continue;
        }
        if out.len() > start {
            out.extend_from_slice(b",");
        }
        for part in ["\"", key.escaped(), "\":", value.text()] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"}");
    Ok(())
}

/// Writes an exception as an error event of the messages format
/// (<https://docs.anthropic.com/en/api/errors>).
fn write_error(name: &str, message: &str, out: &mut BytesMut) {
    let name = name.to_ascii_lowercase();
    let kind = match name.strip_suffix("exception").unwrap_or(&name) {
        "throttling" => "rate_limit_error",
        "validation" => "invalid_request_error",
        "serviceunavailable" | "modelnotready" => "overloaded_error",
        "modeltimeout" => "timeout_error",
        _ => "api_error",
    };
    out.extend_from_slice(b"event: error\ndata: ");
    let mut json = Writer::new(&mut *out);
    json.begin_object().key("type").string("error");
    json.key("error").begin_object().key("type").string(kind);
    json.key("message").string(message).end_object().end_object();
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use framing::event_stream::{HeaderValue, MessageWriter, put_header};

    fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
        let mut block = Vec::new();
        headers.iter().for_each(|(name, value)| put_header(name, HeaderValue::Text(value), &mut block));
        let mut out = BytesMut::new();
        let writer = MessageWriter::begin(&block, &mut out);
        out.extend_from_slice(payload.as_bytes());
        writer.end(&mut out);
        out.to_vec()
    }

    fn chunk(event: &str) -> Vec<u8> {
        let bytes = base64_simd::STANDARD.encode_to_string(event);
        message(
            &[(":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")],
            &format!(r#"{{"bytes":"{bytes}","p":"abcdefgh"}}"#),
        )
    }

    fn read(stream: &[u8], step: usize) -> Result<String, StreamError> {
        let mut reader = InvokeStream::new(1 << 20);
        let mut out = Vec::new();
        for piece in stream.chunks(step) {
            out.extend_from_slice(&reader.feed(&Bytes::copy_from_slice(piece))?);
        }
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn invoke_stream_passes_events_unchanged_in_pieces_of_any_size() {
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq+/\"é"}}"#;
        let stream = [chunk(delta), chunk(r#"{"no":"type"}"#), chunk("{\"type\":\n\"ping\"}")].concat();
        let expected = format!(
            "event: content_block_delta\ndata: {delta}\n\nevent: ping\ndata: {{\"type\": \"ping\"}}\n\n"
        );
        for step in [1, 7, 100, stream.len()] {
            assert_eq!(read(&stream, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn invoke_stream_removes_what_bedrock_adds() {
        let stop =
            r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9},"x":1}"#;
        let expected = "event: message_stop\ndata: {\"type\":\"message_stop\",\"x\":1}\n\n";
        assert_eq!(read(&chunk(stop), 64).unwrap(), expected);
        let mut keeping = InvokeStream::new(1 << 20).keeping_added();
        let kept = keeping.feed(&Bytes::from(chunk(stop))).unwrap();
        assert_eq!(kept, format!("event: message_stop\ndata: {stop}\n\n"));
        // A text that names such a member stays.
        let text = r#"{"type":"content_block_delta","delta":{"text":"amazon-bedrock-trace"}}"#;
        assert!(read(&chunk(text), 64).unwrap().contains(text));
    }

    #[test]
    fn invoke_stream_exception_becomes_an_error_event() {
        let exception = |name| {
            message(
                &[(":exception-type", name), (":message-type", "exception")],
                r#"{"message":"Too many \"tokens\""}"#,
            )
        };
        for (name, kind) in [
            ("throttlingException", "rate_limit_error"),
            ("serviceUnavailableException", "overloaded_error"),
            ("modelStreamErrorException", "api_error"),
        ] {
            let expected = format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"Too many \\\"tokens\\\"\"}}}}\n\n"
            );
            assert_eq!(read(&exception(name), 5).unwrap(), expected);
        }
    }

    #[test]
    fn invoke_stream_keeps_the_events_before_a_fault() {
        let mut wrong = chunk(r#"{"type":"ping","amazon-bedrock-x":1}"#);
        *wrong.last_mut().unwrap() ^= 1;
        let cut = chunk(r#"{"type":"ping","amazon-bedrock-x":"#);
        for fault in [wrong, cut] {
            let mut reader = InvokeStream::new(1 << 20);
            let piece = [chunk(r#"{"type":"a"}"#), chunk(r#"{"type":"b"}"#), fault].concat();
            assert!(matches!(reader.feed(&Bytes::from(piece)), Err(StreamError::Invalid(_))));
            let expected = "event: a\ndata: {\"type\":\"a\"}\n\nevent: b\ndata: {\"type\":\"b\"}\n\n";
            assert_eq!(reader.take_ready(), expected);
            assert!(reader.take_ready().is_empty());
        }
    }

    #[test]
    fn invoke_stream_with_a_fault_is_refused() {
        let mut wrong = chunk(r#"{"type":"ping"}"#);
        *wrong.last_mut().unwrap() ^= 1;
        assert!(matches!(read(&wrong, 64), Err(StreamError::Invalid(_))));
        let no_base64 = message(&[(":message-type", "event")], r#"{"bytes":"?"}"#);
        assert!(matches!(read(&no_base64, 64), Err(StreamError::Invalid(_))));
    }
}
