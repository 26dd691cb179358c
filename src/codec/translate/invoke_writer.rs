//! Streams for clients of Bedrock's InvokeModel: each event of the messages format, which arrives as a server-sent event,
//! becomes a message of an event stream. The inverse of [`invoke_stream`](super::invoke_stream).
//!
//! The bytes of the event pass unchanged. The last one gets the measurements that Bedrock adds, from which some clients
//! take the usage.

use base64_simd::AsOut as _;
use bytes::{Bytes, BytesMut};

use crate::canonical::Usage;
use crate::wire::codec::RequestClock;
use crate::wire::error::ProviderError;
use framing::event_stream::{HeaderValue, MessageWriter, put_header};
use framing::frame_buffer::FrameTooLarge;
use framing::{FrameBuffer, Splitter, sse};
use json::{Cursor, Writer, from_utf8};

/// Headers of a message with an event, in the order of Bedrock: `:event-type`, `:content-type` and `:message-type`.
const HEADERS: &[u8] = b"\x0b:event-type\x07\x00\x05chunk\x0d:content-type\x07\x00\x10application/json\x0d:message-type\x07\x00\x05event";
/// Bytes of a message around its event: prelude, headers, the object around the base64, and the checksum.
const AROUND: usize = 12 + HEADERS.len() + 12 + 4;
/// Name of the member with the measurements of a response.
const METRICS: &[u8] = b"\"amazon-bedrock-invocationMetrics\"";
/// Initial capacity of the output, in bytes.
const OUT: usize = 4_096;

/// Writer of such a stream.
#[derive(Debug)]
pub struct InvokeWriter {
    frames: FrameBuffer,
    out: BytesMut,
    /// Event with members added, or the parts of an event with several lines.
    scratch: Vec<u8>,
    clock: RequestClock,
    /// Milliseconds from the request to the first event. `None` before it.
    first_event: Option<u64>,
}

impl InvokeWriter {
    /// Creates a writer. `clock` is that of the request.
    pub fn new(clock: RequestClock) -> Self {
        InvokeWriter {
            // The input is output of an exchange, which bounds its frames and ends each piece with a whole one.
            frames: FrameBuffer::new(Splitter::Sse(sse::SseSplitter::default()), usize::MAX),
            out: BytesMut::new(),
            scratch: Vec::new(),
            clock,
            first_event: None,
        }
    }

    /// Takes server-sent events of the messages format, and returns the messages that they become. `usage` returns the
    /// usage of the response, and is called at its end.
    pub fn feed(&mut self, piece: &Bytes, usage: &mut dyn FnMut() -> Usage) -> Bytes {
        let InvokeWriter { frames, out, scratch, clock, first_event } = self;
        let first_event = *first_event.get_or_insert_with(|| clock.elapsed());
        // Base64 makes four bytes of three.
        out.reserve((piece.len() + piece.len() / 2).max(OUT));
        let fed = frames.feed(piece, |bytes, range| {
            let frame = bytes.get(range).unwrap_or_default();
            write_frame(frame, scratch, out, &mut |scratch| {
                push_metrics(&usage(), clock.elapsed(), first_event, scratch);
            });
            Ok::<(), FrameTooLarge>(())
        });
        debug_assert!(fed.is_ok(), "frames have no limit here");
        out.split().freeze()
    }
}

/// Writes the message of an event. A comment and a ping, which Bedrock does not send, have none.
fn write_frame(
    frame: &[u8],
    scratch: &mut Vec<u8>,
    out: &mut BytesMut,
    push_metrics: &mut dyn FnMut(&mut Vec<u8>),
) {
    let event = sse::SseEvent::parse_json(frame, scratch);
    let Some(data) = event.data.map(<[u8]>::trim_ascii).filter(|data| !data.is_empty()) else { return };
    match event.name.or_else(|| event_type(data)) {
        Some(b"ping") => {}
        Some(b"error") => write_exception(data, out),
        // Bedrock's own measurements stay as they are.
        Some(b"message_stop") if memchr::memmem::find(data, METRICS).is_none() => {
            let stop = data.strip_suffix(b"}").unwrap_or(data).to_vec();
            scratch.clear();
            scratch.extend_from_slice(&stop);
            push_metrics(scratch);
            scratch.push(b'}');
            write_chunk(scratch, out);
        }
        _ => write_chunk(data, out),
    }
}

/// Returns the member `type` of an event. `None` if it has none, or one with escapes, which no event has.
fn event_type(data: &[u8]) -> Option<&[u8]> {
    let mut json = Cursor::new(from_utf8(data).ok()?);
    json.begin_object().ok()?;
    while let Some(key) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        if key.is("type") {
            return value.text().as_bytes().strip_prefix(b"\"")?.strip_suffix(b"\"");
        }
    }
    None
}

/// Writes `{"bytes":"<base64>"}` as a message.
#[inline]
fn write_chunk(event: &[u8], out: &mut BytesMut) {
    let length = base64_simd::STANDARD.encoded_length(event.len());
    out.reserve(AROUND + length);
    let message = MessageWriter::begin(HEADERS, out);
    out.extend_from_slice(b"{\"bytes\":\"");
    let start = out.len();
    out.resize(start + length, 0);
    // The place has the length of the text, which the encoder checks.
    let _ = base64_simd::STANDARD.encode(event, out.get_mut(start..).unwrap_or_default().as_out());
    out.extend_from_slice(b"\"}");
    message.end(out);
}

/// Writes an error event of the messages format as an exception (`ResponseStream`,
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ResponseStream.html>).
fn write_exception(data: &[u8], out: &mut BytesMut) {
    let error = ProviderError::decode(data);
    let name = match error.kind.as_deref().unwrap_or_default() {
        "rate_limit_error" => "throttlingException",
        "overloaded_error" => "serviceUnavailableException",
        "timeout_error" => "modelTimeoutException",
        "api_error" | "error" | "" => "internalServerException",
        _ => "validationException",
    };
    let mut headers = Vec::with_capacity(128);
    for (header, value) in
        [(":exception-type", name), (":content-type", "application/json"), (":message-type", "exception")]
    {
        put_header(header, HeaderValue::Text(value), &mut headers);
    }
    let message = MessageWriter::begin(&headers, out);
    Writer::new(&mut *out).begin_object().key("message").string(&error.message).end_object();
    message.end(out);
}

/// Writes the measurements of a response as a further member of an object. `latency` and `first_event` are in
/// milliseconds.
fn push_metrics(usage: &Usage, latency: u64, first_event: u64, out: &mut Vec<u8>) {
    let part = |count: Option<u64>| count.unwrap_or(0);
    let read = part(usage.cached);
    let written = part(usage.cache_writes());
    let uncached = part(usage.input).saturating_sub(read).saturating_sub(written);
    if out.trim_ascii_end() != b"{" {
        out.push(b',');
    }
    out.extend_from_slice(METRICS);
    out.push(b':');
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("inputTokenCount").number(uncached).key("outputTokenCount").number(part(usage.output));
    json.key("invocationLatency").number(latency).key("firstByteLatency").number(first_event);
    if usage.cached.is_some() || written > 0 {
        json.key("cacheReadInputTokenCount").number(read).key("cacheWriteInputTokenCount").number(written);
    }
    json.end_object();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::invoke_stream::InvokeStream;
    use framing::event_stream::EventMessage;

    const CLOCK: RequestClock = RequestClock { now: || 30, started: 10 };

    fn write(text: &str, step: usize) -> Vec<u8> {
        let mut writer = InvokeWriter::new(CLOCK);
        let usage = Usage { input: Some(12), cached: Some(3), output: Some(7), ..Usage::default() };
        let pieces = text.as_bytes().chunks(step);
        let written = pieces.map(|piece| writer.feed(&Bytes::copy_from_slice(piece), &mut || usage));
        written.collect::<Vec<_>>().concat()
    }

    #[test]
    fn invoke_writer_is_the_inverse_of_the_reader() {
        let delta =
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße \"é\""}}"#;
        let text = format!(
            "event: content_block_delta\ndata: {delta}\n\n: comment\n\ndata: {delta}\n\nevent: ping\ndata: {{\"type\":\"ping\"}}\n\n"
        );
        for step in [1, 7, 100, text.len()] {
            let stream = write(&text, step);
            let read = InvokeStream::new(1 << 20).feed(&Bytes::from(stream)).unwrap();
            let event = format!("event: content_block_delta\ndata: {delta}\n\n");
            assert_eq!(read, event.repeat(2), "{step}");
        }
    }

    #[test]
    fn invoke_writer_adds_the_measurements_to_the_last_event() {
        let stream = write("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", 1000);
        let message = EventMessage::parse(&stream).unwrap();
        assert_eq!(message.text(":event-type"), Some("chunk"));
        let payload: serde_json::Value = serde_json::from_slice(message.payload()).unwrap();
        let event = base64_simd::STANDARD.decode_to_vec(payload["bytes"].as_str().unwrap()).unwrap();
        let expected = "{\"type\":\"message_stop\",\"amazon-bedrock-invocationMetrics\":{\"inputTokenCount\":9,\"outputTokenCount\":7,\
                        \"invocationLatency\":20,\"firstByteLatency\":20,\"cacheReadInputTokenCount\":3,\"cacheWriteInputTokenCount\":0}}";
        assert_eq!(String::from_utf8(event).unwrap(), expected);
    }

    #[test]
    fn invoke_writer_turns_error_events_into_exceptions() {
        for (kind, name) in [
            ("rate_limit_error", "throttlingException"),
            ("overloaded_error", "serviceUnavailableException"),
            ("timeout_error", "modelTimeoutException"),
            ("api_error", "internalServerException"),
            ("invalid_request_error", "validationException"),
        ] {
            let error = format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"Too \\\"much\\\"\"}}}}\n\n"
            );
            let stream = write(&error, 1000);
            let message = EventMessage::parse(&stream).unwrap();
            assert_eq!(message.text(":exception-type"), Some(name));
            assert_eq!(message.text(":message-type"), Some("exception"));
            assert_eq!(message.payload(), br#"{"message":"Too \"much\""}"#);
        }
    }
}
