//! Targets for framing.

use std::ops::Range;

use bytes::Bytes;
use framing::frame_buffer::FrameTooLarge;
use framing::json_array::{ArraySplitter, element};
use framing::sse::{SseEvent, SseSplitter};
use framing::{FrameBuffer, Splitter};

use crate::{choose, pieces};

const LIMIT: usize = 1 << 20;

fn cut(splitter: Splitter, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
    let mut hold = FrameBuffer::new(splitter, LIMIT);
    let mut frames = Vec::new();
    for piece in pieces {
        let each = |source: &Bytes, range: Range<usize>| {
            frames.push(source[range].to_vec());
            Ok::<(), FrameTooLarge>(())
        };
        hold.feed(&Bytes::copy_from_slice(piece), each).unwrap();
    }
    let closed = matches!(hold.splitter(), Splitter::JsonArray(array) if array.is_closed());
    (frames, hold.take_rest().to_vec(), closed)
}

/// Returns the data of all events. Reference implementation that splits into lines first.
fn naive(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(&byte) = stream.get(at) {
        at += 1;
        if byte == b'\r' && stream.get(at) == Some(&b'\n') {
            at += 1;
        }
        if matches!(byte, b'\r' | b'\n') {
            lines.push(std::mem::take(&mut line));
        } else {
            line.push(byte);
        }
    }
    let (mut events, mut data): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    for line in lines {
        if line.is_empty() {
            events.extend(data.take());
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        if name == b"data" {
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            data = Some(match data.take() {
                None => value.to_vec(),
                Some(before) => [&before, &b"\n"[..], value].concat(),
            });
        }
    }
    events
}

/// Framing of server-sent events and JSON arrays: every split gives the same frames, no byte is lost, and the events
/// are those of the WHATWG specification.
pub fn framing(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    for splitter in [Splitter::Sse(SseSplitter::default()), Splitter::JsonArray(ArraySplitter::default())] {
        let is_sse = matches!(splitter, Splitter::Sse(_));
        let (frames, rest, closed) = cut(splitter.clone(), &[data]);
        let (split, split_rest, split_closed) = cut(splitter, &pieces(data, seed));
        assert_eq!([split.concat(), split_rest.clone()].concat(), data);
        assert_eq!([frames.concat(), rest].concat(), data);
        assert_eq!(split_closed, closed);
        let read = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let mut scratch = Vec::new();
            let each = |frame: &Vec<u8>| match is_sse {
                true => SseEvent::parse(frame, &mut scratch).data.map(<[u8]>::to_vec),
                false => element(frame).map(<[u8]>::to_vec),
            };
            frames.iter().filter_map(each).collect()
        };
        assert_eq!(read(&split), read(&frames));
        if is_sse && !data.windows(3).skip(1).any(|three| three == b"\xef\xbb\xbf") {
            assert_eq!(read(&frames), naive(data));
        }
    }
    // An array of objects is split into its elements.
    if let Ok(serde_json::Value::Array(elements)) = serde_json::from_slice(data) {
        let (frames, _, closed) = cut(Splitter::JsonArray(ArraySplitter::default()), &pieces(data, seed));
        assert!(closed);
        if elements.iter().all(serde_json::Value::is_object) {
            let read = frames.iter().filter_map(|frame| element(frame));
            let read: Vec<serde_json::Value> =
                read.map(|text| serde_json::from_slice(text).unwrap()).collect();
            assert_eq!(read, elements);
        }
    }
}
