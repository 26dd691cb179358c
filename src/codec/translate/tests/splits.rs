//! The output and the meter do not depend on how a stream is split into pieces.

use bytes::Bytes;
use proptest::prelude::*;

use super::streams::{self, SampleResponse, Style};
use super::{Notes, Passed, pass, pieces};
use crate::translate::Verbatim;
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::wire::Api;

fn whole(answer: &SampleResponse) -> Passed {
    pass(answer.api, answer.arrival, [answer.text.as_bytes()])
}

fn every_answer() -> Vec<SampleResponse> {
    Style::all().into_iter().flat_map(streams::all).collect()
}

#[test]
fn stream_passes_unchanged_and_its_figures_are_metered() {
    for answer in every_answer() {
        let passed = whole(&answer);
        assert_eq!(passed.result, Ok(()), "{answer:?}");
        assert_eq!(passed.text(), answer.text);
        let Notes { usage, id, finish, .. } = passed.notes;
        assert_eq!((usage, &*id, &*finish), (answer.usage, answer.id, answer.finish), "{answer:?}");
        assert!(passed.notes.content_frames >= 12);
    }
}

/// Splits inside a character, and line ends other than `\n`.
#[test]
fn bug_45_bug_46_stream_passes_the_same_at_every_split() {
    for answer in Style::few().into_iter().flat_map(streams::all) {
        let expected = whole(&answer);
        for cut in 1..answer.text.len() {
            let (first, second) = answer.text.as_bytes().split_at(cut);
            let passed = pass(answer.api, answer.arrival, [first, second]);
            assert_eq!(passed, expected, "cut at {cut} of {answer:?}");
        }
    }
}

#[test]
fn stream_passes_the_same_in_small_pieces() {
    for answer in every_answer() {
        let expected = whole(&answer);
        for size in [1, 2, 3, 5, 17, 64] {
            let passed = pass(answer.api, answer.arrival, pieces(answer.text.as_bytes(), &[size]));
            assert_eq!(passed, expected, "pieces of {size} of {answer:?}");
        }
    }
}

/// Frames must not be held back.
#[test]
fn bug_8_bug_51_frame_is_forwarded_with_its_last_byte() {
    for end in ["\n", "\r\n", "\r"] {
        let answer = streams::chat(Style { end, ..Style::PLAIN });
        let mut verbatim = Verbatim::new(answer.api, answer.arrival, Changes::default(), 1 << 20);
        let (mut fed, mut left) = (0, 0);
        for frame in answer.text.split_inclusive(&format!("{end}{end}")) {
            for piece in pieces(frame.as_bytes(), &[40]) {
                left += verbatim.feed(Bytes::copy_from_slice(piece)).unwrap().len();
            }
            fed += frame.len();
            // The second carriage return already ends the event.
            assert!(left == fed || end == "\r\n" && left == fed - 1, "{end:?}: {left} of {fed}");
        }
    }
}

#[test]
fn frame_whole_is_forwarded_without_a_copy() {
    for answer in streams::all(Style::PLAIN) {
        if answer.arrival == Arrival::Array {
            continue;
        }
        let mut verbatim = Verbatim::new(answer.api, answer.arrival, Changes::default(), 1 << 20);
        let piece = Bytes::from(answer.text);
        let left = verbatim.feed(piece.clone()).unwrap();
        assert_eq!((left.as_ptr(), left.len()), (piece.as_ptr(), piece.len()));
    }
}

#[test]
fn frame_in_many_pieces_is_scanned_once() {
    // If each piece cost as much as all pieces before it, this test would not end.
    let text = "x".repeat(4 << 20);
    for answer in [
        format!(
            "data: {{\"id\":\"big\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\ndata: [DONE]\n\n"
        ),
        format!(": {text}\n\ndata: {{\"id\":\"big\",\"choices\":[]}}\n\ndata: [DONE]\n\n"),
    ] {
        let mut verbatim = Verbatim::new(Api::Chat, Arrival::Events, Changes::default(), 8 << 20);
        let mut length = 0;
        for piece in answer.as_bytes().chunks(64) {
            length += verbatim.feed(Bytes::copy_from_slice(piece)).unwrap().len();
        }
        length += verbatim.finish().unwrap().len();
        assert_eq!(length, answer.len());
        assert_eq!(verbatim.meter().id(), "big");
    }
}

#[test]
fn frame_beyond_the_limit_ends_the_stream() {
    for (arrival, begin) in [(Arrival::Events, "data: "), (Arrival::Array, "[\"")] {
        let mut verbatim = Verbatim::new(Api::Generate, arrival, Changes::default(), 1000);
        let mut fed = verbatim.feed(Bytes::from_static(begin.as_bytes()));
        for _ in 0..10 {
            fed = fed.and_then(|_| verbatim.feed(Bytes::from(vec![b'x'; 100])));
        }
        assert!(matches!(fed, Err(StreamError::Frame(_))), "{fed:?}");
    }
}

#[test]
fn frame_with_data_in_several_lines_is_parsed() {
    let stream =
        "data: {\"id\":\"a\",\ndata: \"choices\":[{\"finish_reason\":\ndata:\"stop\"}]}\n\ndata: [DONE]\n\n";
    let passed = super::pass_events(Api::Chat, stream);
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.text(), stream);
    assert_eq!((&*passed.notes.id, &*passed.notes.finish), ("a", "stop"));
}

#[test]
fn frame_that_is_not_json_passes_unparsed() {
    let stream = "data: keep-alive\n\ndata:\n\nretry: 100\n\ndata: {\"broken\n\nevent: x\n\ndata: \u{fffd}\n\ndata: [DONE]\n\n";
    let passed = super::pass_events(Api::Chat, stream);
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.text(), stream);
    assert_eq!(passed.notes.frames, 1);
    let stream = b"data: {\"id\":\"\xff\xfe\"}\n\ndata: [DONE]\n\n";
    let passed = pass(Api::Chat, Arrival::Events, [&stream[..]]);
    assert_eq!((passed.result, &passed.out[..]), (Ok(()), &stream[..]));
}

/// A stream far longer than the frames that are always parsed. Its last usage is in the last frame that was not parsed.
#[test]
fn usage_of_classified_only_frames_is_metered_at_the_end() {
    let chunk = |n: u64| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{}}}}],\"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":{n}}}}}\r\n\r\n"
        )
    };
    let stream: String = (1..=100).map(chunk).collect();
    let passed = super::pass_events(Api::Generate, &stream);
    assert_eq!(passed.result, Err(StreamError::Cut));
    assert_eq!(
        (passed.notes.usage.input, passed.notes.usage.output),
        (Some(3), Some(100)),
        "a cut stream has its usage"
    );
    let last = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3}}\r\n\r\n";
    let passed = super::pass_events(Api::Generate, &(stream + last));
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.notes.usage.output, Some(100), "what the last report leaves out stays");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn stream_passes_the_same_in_random_pieces(sizes in proptest::collection::vec(1usize..90, 1..12), style in 0usize..9) {
        for answer in streams::all(Style::all()[style]) {
            let expected = whole(&answer);
            prop_assert_eq!(&pass(answer.api, answer.arrival, pieces(answer.text.as_bytes(), &sizes)), &expected);
        }
    }

    /// For any input, nothing panics, and the output is a prefix of the input.
    #[test]
    fn stream_of_arbitrary_bytes_never_panics(
        stream in r#"((data: ?|event: |: |)(\{"(id|choices|error|type|candidates)":("a"|\[\]|\[\{\}\]|null)\}|\[DONE\]|[a\[\]{},"\\]{0,4})(\n|\r|\r\n|\n\n|,){1,2}){0,8}"#,
        sizes in proptest::collection::vec(1usize..30, 1..6),
    ) {
        for (api, arrival) in [
            (Api::Chat, Arrival::Events), (Api::Messages, Arrival::Events), (Api::Responses, Arrival::Events),
            (Api::Generate, Arrival::Events), (Api::Generate, Arrival::Array),
        ] {
            let passed = pass(api, arrival, pieces(stream.as_bytes(), &sizes));
            let came = passed.out.strip_suffix(b"\n\n").unwrap_or(&passed.out);
            prop_assert!(stream.as_bytes().starts_with(came), "{:?} of {:?}", passed, stream);
        }
    }
}
