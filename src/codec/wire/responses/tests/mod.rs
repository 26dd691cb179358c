//! Tests of the responses format, as its users observe it. The facts, needs of clients and mapping rows under
//! test are in docs/provider-facts.md and docs/mapping.md.

mod compaction;
mod read_request;
mod read_stream;
mod read_whole;
mod settings;
mod stored;
mod write_ends;
mod write_request;
mod write_stream;
mod write_whole;

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::{answer, request, stream};
use crate::canonical::answer::AnswerBlock;
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport};
use crate::canonical::{
    Answer, BlockKind, Delta, Dialect, Effort, Event, Finish, Grammar, Start, ToolKind, Usage,
};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, ReplyOptions};
use json::{JsonStr, RopeBuilder};

/// Decodes the frames of a complete stream. Asserts the event grammar.
fn read(frames: &[&str]) -> Answer {
    let (answer, ended) = read_open(frames);
    assert!(ended, "the stream is not complete");
    answer
}

/// Decodes the frames of a stream. Returns also whether it is complete.
fn read_open(frames: &[&str]) -> (Answer, bool) {
    let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
    let mut take = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    };
    let mut decoder = stream::Decoder::new("seed");
    for frame in frames {
        decoder.frame(frame, &mut take).unwrap();
    }
    let ended = decoder.finish(&mut take).is_ok();
    assert_eq!(ended, decoder.is_over());
    (answer, ended)
}

/// Decodes these frames, enclosed by `response.created` and a successful end.
fn read_between(frames: &[&str]) -> Answer {
    let mut all = vec![
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":7,"status":"in_progress","model":"m","output":[]}}"#,
    ];
    all.extend(frames);
    all.push(r#"{"type":"response.completed","response":{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}"#);
    read(&all)
}

fn read_whole_answer(body: &str) -> Answer {
    let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
    answer::decode(body, "seed", &mut |event| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    })
    .unwrap();
    answer
}

fn reply() -> ReplyOptions {
    ReplyOptions {
        model: "the model".into(),
        seed: "req-1".into(),
        created: 1_700_000_000,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    }
}

/// Encodes the events. Asserts the event grammar.
fn write(reply: ReplyOptions, events: &[Event<'_>]) -> Frames {
    let mut grammar = Grammar::default();
    let mut encoder = stream::Encoder::new(Arc::new(reply));
    let mut out = BytesMut::new();
    for event in events {
        grammar.check(event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        encoder.event(event, &mut out);
    }
    Frames::read(&out)
}

/// Frames of an encoded stream. Asserts that each is named by its type and that sequence numbers count up from 0.
struct Frames(Vec<Value>);

impl Frames {
    fn read(out: &[u8]) -> Self {
        let text = std::str::from_utf8(out).unwrap();
        let mut frames = Vec::new();
        for frame in text.split("\n\n").filter(|frame| !frame.is_empty() && !frame.starts_with(':')) {
            let (name, data) = frame.split_once('\n').unwrap();
            let value: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name.strip_prefix("event: ").unwrap(), value["type"]);
            assert_eq!(value["sequence_number"], frames.len());
            frames.push(value);
        }
        Frames(frames)
    }

    fn names(&self) -> Vec<&str> {
        let names = self.0.iter().map(|frame| frame["type"].as_str().unwrap());
        names.map(|name| name.strip_prefix("response.").unwrap_or(name)).collect()
    }

    fn last(&self) -> &Value {
        self.0.last().unwrap()
    }

    /// Returns all frames of this type.
    fn of(&self, name: &str) -> Vec<&Value> {
        self.0.iter().filter(|frame| frame["type"] == format!("response.{name}")).collect()
    }

    /// Returns the items of the terminal event.
    fn output(&self) -> &Vec<Value> {
        self.last()["response"]["output"].as_array().unwrap()
    }
}

fn s(text: &'static str) -> JsonStr<'static> {
    JsonStr::from_escaped(text)
}

fn start() -> Event<'static> {
    Event::Start(Start { id: s("msg_9x"), model: s("provider's"), created: Some(5) })
}

fn begin(index: u32, kind: BlockKind<'static>) -> Event<'static> {
    Event::BlockStart { index, choice: 0, kind }
}

fn add(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::Delta { index, delta }
}

fn text(index: u32, text: &'static str) -> Event<'static> {
    add(index, Delta::Text(s(text)))
}

fn stop(index: u32) -> Event<'static> {
    Event::BlockStop { index }
}

fn tool(id: &'static str, name: &'static str) -> BlockKind<'static> {
    BlockKind::ToolUse { id: s(id), name: s(name), kind: ToolKind::Function, namespace: s("") }
}

fn used(input: u64, output: u64) -> Event<'static> {
    Event::Usage(Usage { input: Some(input), output: Some(output), ..Usage::default() })
}

fn finish(finish: Finish<'static>) -> Event<'static> {
    Event::Finish { choice: 0, finish }
}

/// Returns the events of a response with one block of text.
fn said(words: &'static str, why: Finish<'static>) -> Vec<Event<'static>> {
    vec![start(), begin(0, BlockKind::Text), text(0, words), stop(0), used(3, 2), finish(why), Event::End]
}

fn texts(answer: &Answer) -> Vec<&str> {
    answer.blocks.iter().map(|block: &AnswerBlock| block.text.as_str()).collect()
}

/// Dialect of an OpenAI model.
fn dialect() -> Dialect<'static> {
    Dialect {
        reasoning: ReasoningSupport::efforts(Effort::Minimal, Effort::XHigh, true),
        developer_role: true,
        max_completion_tokens: true,
        ..Dialect::plain("gpt-x", "provider")
    }
}

/// Encodes a request of this format for a provider of it, as if the client had used the format `from`. Returns the
/// body and the losses.
fn translated(from: Format, body: &str, dialect: &Dialect<'_>) -> (Value, Vec<String>) {
    let request = request::decode(body).unwrap();
    written(from, &request, dialect)
}

fn written(
    from: Format,
    request: &crate::canonical::Request<'_>,
    dialect: &Dialect<'_>,
) -> (Value, Vec<String>) {
    let mut notes = LossNotes::new(from, Format::Responses);
    let mut out = RopeBuilder::default();
    request::encode(request, dialect, &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let lost = notes.losses().iter().map(|loss| loss.element.to_string()).collect();
    (serde_json::from_slice(&out).unwrap(), lost)
}
