use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;

use super::frame_buffer::FrameTooLarge;
use super::json_array::{ArraySplitter, element};
use super::sse::{SseEvent, SseSplitter};
use super::*;

/// Feeds pieces; returns the frames and the rest.
fn cut(splitter: Splitter, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut hold = FrameBuffer::new(splitter, 1 << 20);
    let mut frames = Vec::new();
    for piece in pieces {
        let each = |source: &Bytes, range: Range<usize>| {
            frames.push(source[range].to_vec());
            Ok::<(), FrameTooLarge>(())
        };
        hold.feed(&Bytes::copy_from_slice(piece), each).unwrap();
    }
    (frames, hold.take_rest().to_vec())
}

fn sse() -> Splitter {
    Splitter::Sse(SseSplitter::default())
}

/// Name and data of every event that has data.
fn events(frames: &[Vec<u8>]) -> Vec<(Option<String>, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    frames
        .iter()
        .filter_map(|frame| {
            let mut scratch = Vec::new();
            let event = SseEvent::parse(frame, &mut scratch);
            event.data.map(|data| (event.name.map(text), text(data)))
        })
        .collect()
}

#[test]
fn sse_event_ends_at_any_of_three_line_endings() {
    for end in ["\n", "\r\n", "\r"] {
        let stream =
            format!("event: a{end}data: 1{end}{end}data:2{end}{end}: comment{end}{end}data: 3{end}{end}");
        let (frames, rest) = cut(sse(), &[stream.as_bytes()]);
        assert_eq!(
            events(&frames),
            [(Some("a".into()), "1".into()), (None, "2".into()), (None, "3".into())],
            "{end:?}"
        );
        assert!(rest.is_empty());
        assert_eq!(frames.concat(), stream.as_bytes());
    }
}

#[test]
fn sse_data_lines_are_joined_and_other_fields_ignored() {
    let stream = "id: 7\ndata: a\nretry: 3\ndata:\ndata:  b\n\ndata\n\nevent: x\n\ndatax: no\n\n";
    let (frames, _) = cut(sse(), &[stream.as_bytes()]);
    assert_eq!(events(&frames), [(None, "a\n\n b".into()), (None, String::new())]);
}

#[test]
fn sse_byte_order_mark_is_not_part_of_the_first_field() {
    let (frames, _) = cut(sse(), &["\u{feff}data: 1\n\n".as_bytes()]);
    assert_eq!(events(&frames), [(None, "1".into())]);
}

#[test]
fn sse_unfinished_event_is_held_back() {
    let (frames, rest) = cut(sse(), &[b"data: 1\n\ndata: {\"a\"", b":1}\n"]);
    assert_eq!(frames.len(), 1);
    assert_eq!(rest, b"data: {\"a\":1}\n");
}

#[test]
fn sse_line_feed_after_a_sent_event_is_sent_at_once() {
    let (frames, rest) = cut(sse(), &[b"data: 1\r\n\r", b"\n", b"data: 2\r", b"\n\r\n"]);
    assert_eq!(frames, [&b"data: 1\r\n\r"[..], b"\n", b"data: 2\r\n\r\n"]);
    assert!(rest.is_empty());
}

#[test]
fn json_array_elements_are_frames() {
    let stream = b"[{\"a\":\"]}\\\"[\"}\n,\r\n{\"b\":[{}]}\n]\n";
    let splitter = || Splitter::JsonArray(ArraySplitter::default());
    for size in 1..stream.len() {
        let pieces: Vec<&[u8]> = stream.chunks(size).collect();
        let (frames, rest) = cut(splitter(), &pieces);
        let elements: Vec<&[u8]> = frames.iter().filter_map(|frame| element(frame)).collect();
        assert_eq!(elements, [&b"{\"a\":\"]}\\\"[\"}"[..], b"{\"b\":[{}]}"]);
        assert_eq!(rest, b"\n");
        let Splitter::JsonArray(last) = ({
            let mut hold = FrameBuffer::new(splitter(), 999);
            hold.feed(&Bytes::from_static(stream), |_, _| Ok::<(), FrameTooLarge>(())).unwrap();
            hold.splitter().clone()
        }) else {
            panic!()
        };
        assert!(last.is_closed());
    }
}

#[test]
fn json_array_replaced_by_an_object_is_one_frame() {
    let stream = b" {\"a\":{\"b\":[1,{}]}}\n";
    for size in 1..stream.len() {
        let pieces: Vec<&[u8]> = stream.chunks(size).collect();
        let (frames, rest) = cut(Splitter::JsonArray(ArraySplitter::default()), &pieces);
        let elements: Vec<&[u8]> = frames.iter().filter_map(|frame| element(frame)).collect();
        assert_eq!((elements, &rest[..]), (vec![&b"{\"a\":{\"b\":[1,{}]}}"[..]], &b"\n"[..]));
    }
}

#[test]
fn frame_without_an_end_is_refused_above_the_limit() {
    let mut hold = FrameBuffer::new(sse(), 100);
    let piece = Bytes::from(vec![b'x'; 60]);
    let each = |_: &Bytes, _: Range<usize>| Ok::<(), FrameTooLarge>(());
    assert!(hold.feed(&piece, each).is_ok());
    assert_eq!(hold.feed(&piece, each), Err(FrameTooLarge { limit: 100 }));
}

/// Reference implementation: splits the complete text into lines.
fn naive(stream: &[u8]) -> Vec<(Option<String>, String)> {
    let text = String::from_utf8(stream.to_vec()).unwrap();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = Vec::new();
    let (mut name, mut data): (Option<String>, Option<String>) = (None, None);
    // The text after the last line end is not a complete line.
    let complete = lines.rfind('\n').map_or("", |end| &lines[..end]);
    for line in complete.split('\n') {
        if line.is_empty() {
            if let Some(data) = data.take() {
                out.push((name.take(), data));
            }
            name = None;
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "data" => {
                data = Some(match data.take() {
                    None => value,
                    Some(before) => before + "\n" + &value,
                });
            }
            "event" => name = Some(value),
            _ => {}
        }
    }
    out
}

proptest! {
    #[test]
    fn sse_events_at_every_split_match_a_naive_parser(
        stream in "(\u{feff})?((data|event|:|id|datax|d)?(:| |: )?[a é]{0,3}(\n|\r|\r\n|\n\n|\r\r|\r\n\r\n)){0,12}[da:]{0,3}",
        cuts in proptest::collection::vec(1usize..9, 1..6),
    ) {
        let bytes = stream.as_bytes();
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().cycle() {
            let to = (from + cut).min(bytes.len());
            pieces.push(&bytes[from..to]);
            from = to;
            if from == bytes.len() { break; }
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        for split in [pieces, bytewise, vec![bytes]] {
            let (frames, rest) = cut(sse(), &split);
            // The frames and the rest contain every byte exactly once.
            let mut all = frames.concat();
            all.extend_from_slice(&rest);
            prop_assert_eq!(&all[..], bytes);
            prop_assert_eq!(events(&frames), naive(bytes));
        }
    }
}
