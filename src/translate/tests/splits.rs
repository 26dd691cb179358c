//! However a stream is cut on its way, the same bytes leave and the same is noted.

use bytes::Bytes;
use proptest::prelude::*;

use super::streams::{self, Answer, Style};
use super::{Notes, Passed, pass, pieces};
use crate::translate::Verbatim;
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::wire::Api;

fn whole(answer: &Answer) -> Passed {
    pass(answer.api, answer.arrival, [answer.text.as_bytes()])
}

fn every_answer() -> Vec<Answer> {
    Style::all().into_iter().flat_map(streams::all).collect()
}

#[test]
fn what_leaves_is_what_came_and_its_figures_are_noted() {
    for answer in every_answer() {
        let passed = whole(&answer);
        assert_eq!(passed.result, Ok(()), "{answer:?}");
        assert_eq!(passed.text(), answer.text);
        let Notes { usage, id, finish, .. } = passed.notes;
        assert_eq!((usage, &*id, &*finish), (answer.usage, answer.id, answer.finish), "{answer:?}");
        assert!(passed.notes.content_frames >= 12);
    }
}

/// bugs.md 45: a character split across pieces. bugs.md 46: line ends other than `\n`.
#[test]
fn bug_45_bug_46_every_split_in_two_passes_the_same() {
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
fn small_pieces_of_any_size_pass_the_same() {
    for answer in every_answer() {
        let expected = whole(&answer);
        for size in [1, 2, 3, 5, 17, 64] {
            let passed = pass(answer.api, answer.arrival, pieces(answer.text.as_bytes(), &[size]));
            assert_eq!(passed, expected, "pieces of {size} of {answer:?}");
        }
    }
}

/// bugs.md 8, 51: frames held back.
#[test]
fn bug_8_bug_51_a_frame_leaves_with_its_last_byte() {
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
fn whole_frames_leave_without_a_copy() {
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
fn a_frame_of_many_pieces_is_read_once() {
    // If each piece cost as much as all before it, this would not come to an end.
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
fn a_frame_beyond_the_limit_ends_the_stream() {
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
fn data_in_several_lines_is_read_as_one() {
    let stream =
        "data: {\"id\":\"a\",\ndata: \"choices\":[{\"finish_reason\":\ndata:\"stop\"}]}\n\ndata: [DONE]\n\n";
    let passed = super::pass_events(Api::Chat, stream);
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.text(), stream);
    assert_eq!((&*passed.notes.id, &*passed.notes.finish), ("a", "stop"));
}

#[test]
fn frames_that_are_no_json_pass_unread() {
    let stream = "data: keep-alive\n\ndata:\n\nretry: 100\n\ndata: {\"broken\n\nevent: x\n\ndata: \u{fffd}\n\ndata: [DONE]\n\n";
    let passed = super::pass_events(Api::Chat, stream);
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.text(), stream);
    assert_eq!(passed.notes.frames, 1);
    let stream = b"data: {\"id\":\"\xff\xfe\"}\n\ndata: [DONE]\n\n";
    let passed = pass(Api::Chat, Arrival::Events, [&stream[..]]);
    assert_eq!((passed.result, &passed.out[..]), (Ok(()), &stream[..]));
}

/// A stream far longer than the frames that are read whole, where the last usage is in the last frame that was not.
#[test]
fn figures_of_frames_that_were_only_glanced_at_are_noted_at_the_end() {
    let chunk = |n: u64| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{}}}}],\"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":{n}}}}}\r\n\r\n"
        )
    };
    let stream: String = (1..=100).map(chunk).collect();
    let passed = super::pass_events(Api::Generate, &stream);
    assert_eq!(passed.result, Err(StreamError::Cut));
    assert_eq!((passed.notes.usage.input, passed.notes.usage.output), (Some(3), Some(100)), "bugs.md 44");
    let last = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3}}\r\n\r\n";
    let passed = super::pass_events(Api::Generate, &(stream + last));
    assert_eq!(passed.result, Ok(()));
    assert_eq!(passed.notes.usage.output, Some(100), "what the last report leaves out stays");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_split_passes_the_same(sizes in proptest::collection::vec(1usize..90, 1..12), style in 0usize..9) {
        for answer in streams::all(Style::all()[style]) {
            let expected = whole(&answer);
            prop_assert_eq!(&pass(answer.api, answer.arrival, pieces(answer.text.as_bytes(), &sizes)), &expected);
        }
    }

    /// Whatever comes, nothing panics, and what leaves is a beginning of what came.
    #[test]
    fn any_bytes_pass_or_end_in_an_error(
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
