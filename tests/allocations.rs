//! Allocations on the hot path, counted: none per frame of a stream, and one copy of a request body.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "allocations/counting.rs"]
mod counting;
#[path = "allocations/translated.rs"]
mod translated;
#[allow(dead_code, reason = "the benchmarks use all of it")]
#[path = "../benches/translation/mod.rs"]
mod translation;

use bytes::{Bytes, BytesMut};
use codec::canonical::Usage;
use codec::translate::Verbatim;
use codec::translate::invoke_stream::InvokeStream;
use codec::translate::invoke_writer::InvokeWriter;
use codec::translate::verbatim::{Arrival, Changes};
use codec::wire::Api;
use codec::wire::codec::RequestClock;
use codec::wire::request::BodyReader;
use counting::{Count, count};
use framing::event_stream::{HeaderValue, MessageWriter, put_header};
use framing::frame_buffer::FrameTooLarge;
use framing::json_array::ArraySplitter;
use framing::sse::SseSplitter;
use framing::{FrameBuffer, Splitter};
use json::EscapedString;

const NOTHING: Count = Count { calls: 0, bytes: 0 };
/// Frames that are fed before the count starts, until every buffer has reached its final size.
const WARM: usize = 200;
const FRAMES: usize = 1_000;

/// Returns a frame in the middle of a stream.
fn frame(api: Api, n: usize) -> String {
    match api {
        Api::Chat => format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word {n}\"}},\"finish_reason\":null}}]}}\n\n"
        ),
        Api::Messages => format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\" word {n}\"}}}}\n\n"
        ),
        Api::Responses => format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\
             \"sequence_number\":{n},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\
             \"delta\":\" word\"}}\n\n"
        ),
        _ => format!("data: {}\r\n\r\n", element(n)),
    }
}

fn element(n: usize) -> String {
    format!(
        "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\" word {n}\"}}],\"role\":\"model\"}},\
         \"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":4,\"candidatesTokenCount\":{n}}},\
         \"modelVersion\":\"m\",\"responseId\":\"r\"}}"
    )
}

const FORMATS: [Api; 4] = [Api::Chat, Api::Messages, Api::Responses, Api::Generate];

/// Returns pieces that share one allocation, as they do after a read.
fn shared(texts: impl Iterator<Item = String>) -> Vec<Bytes> {
    let texts: Vec<String> = texts.collect();
    let whole = Bytes::from(texts.concat());
    let mut from = 0;
    let cut = |text: &String| {
        let piece = whole.slice(from..from + text.len());
        from += text.len();
        piece
    };
    texts.iter().map(cut).collect()
}

/// Feeds the first `warm` pieces, then counts allocations while the others pass. The output is dropped, as after a
/// write.
fn pass(mut exchange: Verbatim, warm: usize, pieces: &[Bytes]) -> Count {
    let mut feed = |pieces: &[Bytes]| {
        pieces.iter().map(|piece| exchange.feed(piece.clone()).unwrap().len()).sum::<usize>()
    };
    feed(&pieces[..warm]);
    let (count, left) = count(|| feed(&pieces[warm..]));
    assert!(left > 0);
    count
}

fn exchange(api: Api, arrival: Arrival, changes: Changes) -> Verbatim {
    Verbatim::new(api, arrival, changes, 1 << 20)
}

#[test]
fn verbatim_stream_allocates_nothing_per_frame() {
    for api in FORMATS {
        let pieces = shared((0..WARM + FRAMES).map(|n| frame(api, n)));
        let count = pass(exchange(api, Arrival::Events, Changes::default()), WARM, &pieces);
        assert_eq!(count, NOTHING, "{api}, a frame in a piece");

        let pieces = shared((0..20).map(|n| (0..100).map(|m| frame(api, n * 100 + m)).collect()));
        let count = pass(exchange(api, Arrival::Events, Changes::default()), 2, &pieces);
        assert_eq!(count, NOTHING, "{api}, many frames in a piece");
    }
}

#[test]
fn verbatim_array_allocates_nothing_per_element() {
    let pieces = shared(
        (0..WARM + FRAMES).map(|n| if n == 0 { "[".to_owned() } else { ",\r\n".to_owned() } + &element(n)),
    );
    let count = pass(exchange(Api::Generate, Arrival::Array, Changes::default()), WARM, &pieces);
    assert_eq!(count, NOTHING);
}

/// The incomplete frame at the end of a piece is copied into a buffer that is reused.
#[test]
fn verbatim_straddling_frames_allocate_nothing() {
    for api in FORMATS {
        let text: String = (0..WARM + FRAMES).map(|n| frame(api, n)).collect();
        let pieces =
            shared(text.as_bytes().chunks(97).map(|piece| String::from_utf8(piece.to_vec()).unwrap()));
        let count = pass(exchange(api, Arrival::Events, Changes::default()), WARM, &pieces);
        assert_eq!(count, NOTHING, "{api}");
    }
}

/// A frame with a renamed model is copied into a reused buffer.
#[test]
fn verbatim_model_rename_allocates_nothing() {
    for api in FORMATS {
        let pieces = shared((0..WARM + FRAMES).map(|n| frame(api, n)));
        let changes =
            Changes { model: Some(EscapedString::from("another")), drop_usage: true, ..Changes::default() };
        let count = pass(exchange(api, Arrival::Events, changes), WARM, &pieces);
        assert_eq!(count, NOTHING, "{api}");
    }
}

#[test]
fn frame_buffer_allocates_nothing_per_frame() {
    let sse = || Splitter::Sse(SseSplitter::default());
    let array = || Splitter::JsonArray(ArraySplitter::default());
    let events = shared((0..FRAMES).map(|n| frame(Api::Chat, n)));
    let elements = shared((0..FRAMES).map(|n| format!("{}{}", if n == 0 { "[" } else { "," }, element(n))));
    for (splitter, pieces) in [(sse(), events), (array(), elements)] {
        let mut hold = FrameBuffer::new(splitter, 1 << 20);
        let mut frames = 0;
        let (count, ()) = count(|| {
            for piece in &pieces {
                hold.feed(piece, |_, _| {
                    frames += 1;
                    Ok::<_, FrameTooLarge>(())
                })
                .unwrap();
            }
        });
        assert_eq!((count, frames), (NOTHING, FRAMES));
    }
}

/// The setup of an exchange allocates a little before the first frame, and nothing depends on the number of frames.
#[test]
fn verbatim_stream_allocations_are_independent_of_its_length() {
    for api in FORMATS {
        let of = |frames: usize| {
            let pieces = shared((0..frames).map(|n| frame(api, n)));
            count(|| {
                let mut exchange = exchange(api, Arrival::Events, Changes::default());
                pieces.iter().map(|piece| exchange.feed(piece.clone()).unwrap().len()).sum::<usize>()
            })
            .0
        };
        let (short, long) = (of(50), of(5_000));
        assert_eq!(short.calls, long.calls, "{api}");
        assert!(long.calls <= 2 && long.bytes <= 1_024, "{api}: {long:?}");
    }
}

/// Returns a chat request of at least `size` bytes whose model comes first.
fn request(size: usize) -> Vec<u8> {
    let mut body = br#"{"model":"the-model","stream":true,"messages":[{"role":"user","content":""#.to_vec();
    while body.len() < size {
        body.extend_from_slice(b"some words of a prompt, \\n\\u00e9 ");
    }
    body.extend_from_slice(br#""}]}"#);
    body
}

/// Reads a body in pieces as a connection does, with one allocation for each read, and edits it.
fn read(body: &[u8], piece: usize) -> Count {
    let (count, edited) = count(|| {
        let mut reader = BodyReader::new(Api::Chat, false);
        for piece in body.chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        let body = reader.finish().unwrap();
        let edits: Vec<_> = body.set_model("another").into_iter().chain(body.request_usage()).collect();
        assert_eq!(edits.len(), 2);
        body.text.edited(&edits).into_pieces()
    });
    assert!(edited.iter().map(Bytes::len).sum::<usize>() > body.len());
    count
}

#[test]
fn request_body_is_held_once() {
    for (size, piece) in [(1_000, 16_384), (100_000, 16_384), (1_000_000, 16_384), (1_000_000, 65_536)] {
        let body = request(size);
        let count = read(&body, piece);
        // A small last piece opens a gather buffer of 16 KiB.
        let bound = body.len() as u64 * 11 / 10 + if size > piece { 16_384 } else { 1_024 };
        assert!(count.bytes <= bound, "{size} in {piece}: {count:?}");
    }
}

/// Small pieces are gathered: each byte is copied once more, and the overhead does not grow with the number of pieces.
#[test]
fn request_body_in_small_pieces_is_held_twice_at_most() {
    let body = request(1_000_000);
    for piece in [1, 100, 1_400] {
        let count = read(&body, piece);
        assert!(count.bytes <= body.len() as u64 * 22 / 10 + 4_096, "{piece}: {count:?}");
    }
}

/// Reads a body without copying it: the pieces are shared, and only a few notes are allocated.
#[test]
fn request_body_in_one_piece_is_read_without_a_copy() {
    for size in [1_000, 100_000, 10_000_000] {
        let body = Bytes::from(request(size));
        let _shared = body.clone();
        let (count, read) = count(|| {
            let mut reader = BodyReader::new(Api::Chat, false);
            reader.push(body.clone()).unwrap();
            reader.finish().unwrap()
        });
        assert!(read.stream);
        assert!(count.calls <= 4 && count.bytes <= 1_024, "{size}: {count:?}");
    }
}

/// Messages of InvokeModel for a client of InvokeModel: read, passed and written again.
#[test]
fn invoke_stream_to_invoke_client_allocates_nothing() {
    let message = |n: usize| {
        let event = format!(
            "{{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" word {}\"}}}}",
            1_000 + n
        );
        let mut headers = Vec::new();
        for (name, value) in
            [(":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")]
        {
            put_header(name, HeaderValue::Text(value), &mut headers);
        }
        let mut out = BytesMut::new();
        let writer = MessageWriter::begin(&headers, &mut out);
        let bytes = base64_simd::STANDARD.encode_to_string(event);
        out.extend_from_slice(format!("{{\"bytes\":\"{bytes}\",\"p\":\"abcdef\"}}").as_bytes());
        writer.end(&mut out);
        out.freeze()
    };
    let messages: Vec<Bytes> = (0..WARM + FRAMES).map(message).collect();
    let all = Bytes::from(messages.concat());
    for size in [messages[0].len(), 97, 16_384] {
        let pieces: Vec<Bytes> =
            (0..all.len()).step_by(size).map(|at| all.slice(at..all.len().min(at + size))).collect();
        let mut reader = InvokeStream::new(1 << 20);
        let mut exchange = Verbatim::new(Api::Messages, Arrival::Events, Changes::default(), 1 << 20);
        let mut writer = InvokeWriter::new(RequestClock { now: || 0, started: 0 });
        let mut pass = |piece: &Bytes| {
            let events = reader.feed(piece).unwrap();
            if events.is_empty() {
                return 0;
            }
            let passed = exchange.feed(events).unwrap();
            writer.feed(&passed, &mut Usage::default).len()
        };
        let (warm, rest) = pieces.split_at(pieces.len() / 2);
        warm.iter().for_each(|piece| _ = pass(piece));
        let (count, left) = count(|| rest.iter().map(&mut pass).sum::<usize>());
        assert!(left > 10_000, "{left}");
        assert_eq!(count, NOTHING, "reads of {size}");
    }
}
