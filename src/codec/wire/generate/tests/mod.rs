//! Tests of the generate format, from hand-written frames and requests. The facts, needs of clients and mapping rows
//! under test are in docs/provider-facts.md and docs/mapping.md.

mod answers;
mod properties;
mod request_decode;
mod request_settings;
mod request_turns;
mod stream_decode;
mod stream_encode;
mod written;

use crate::canonical::dialect::{Dialect, ReasoningSupport};
use crate::canonical::{Answer, BlockKind, Delta, Event, Finish, Grammar, Start, ToolKind, Usage};
use crate::wire::codec::CutText;
use crate::wire::generate::stream::Decoder;
use json::{JsonStr, RawJson};

/// Decodes a stream and asserts the event grammar.
fn read(frames: &[&str]) -> (Answer, Result<(), CutText>) {
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

/// Decodes a stream that must be complete.
fn whole(frames: &[&str]) -> Answer {
    let (answer, end) = read(frames);
    end.unwrap();
    answer
}

/// Events of a response with every element that all formats have.
fn sample_events() -> Vec<Event<'static>> {
    let s = JsonStr::from_escaped;
    let call = |id, name| BlockKind::ToolUse {
        id: s(id),
        name: s(name),
        kind: ToolKind::Function,
        namespace: s(""),
    };
    let start = |index, kind| Event::BlockStart { index, choice: 0, kind };
    let delta = |index, delta| Event::Delta { index, delta };
    let stop = |index| Event::BlockStop { index };
    vec![
        Event::Start(Start { id: s("chatcmpl-9x"), model: s("gpt"), created: Some(1) }),
        start(0, BlockKind::Reasoning),
        delta(0, Delta::Text(s("Let me "))),
        delta(0, Delta::Text(s("see."))),
        delta(0, Delta::Signature(s("EqQB"))),
        stop(0),
        start(1, BlockKind::Text),
        delta(1, Delta::Text(s("Gr\\u00fc\\u00dfe "))),
        stop(1),
        start(2, call("call_1", "f")),
        delta(2, Delta::Arguments(s("{\\\"city\\\":"))),
        delta(2, Delta::Arguments(s("\\\"Oslo\\\"}"))),
        stop(2),
        start(3, call("call_2", "g")),
        delta(3, Delta::Object(RawJson::from_text("{}"))),
        stop(3),
        Event::Usage(Usage { input: Some(11), output: Some(7), reasoning: Some(3), ..Usage::default() }),
        Event::Finish { choice: 0, finish: Finish::ToolUse },
        Event::End,
    ]
}

/// Dialect of a model that supports everything; those of the third generation have signed calls.
fn dialect(model: &str) -> Dialect<'_> {
    Dialect {
        signed_calls: model.starts_with("gemini-3"),
        reasoning: ReasoningSupport::Budget { min: 0, max: 24_576, off: true },
        developer_role: true,
        max_completion_tokens: true,
        system_in_middle: false,
        prefill: true,
        reasoning_replay: true,
        extensions: &["*"],
        ..Dialect::plain(model, "google")
    }
}
