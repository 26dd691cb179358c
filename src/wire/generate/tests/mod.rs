//! Tests of the format, from hand-written frames and requests.

mod stream_decode;

use crate::canonical::{Answer, Event, Grammar};
use crate::wire::codec::Cut;
use crate::wire::generate::stream::Decoder;

/// What a stream of these frames means, checked against the grammar.
fn read(frames: &[&str]) -> (Answer, Result<(), Cut>) {
    let mut decoder = Decoder::new("seed");
    let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
    let mut sink = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|wrong| panic!("{wrong}: {event:?}"));
        answer.take(&event);
    };
    for frame in frames {
        decoder.frame(frame, &mut sink).unwrap();
    }
    let end = decoder.finish(&mut sink);
    assert_eq!(end.is_ok(), decoder.is_over());
    (answer, end)
}

/// As [`read`], of a stream that is complete.
fn whole(frames: &[&str]) -> Answer {
    let (answer, end) = read(frames);
    end.unwrap();
    answer
}
