//! What a user of the chat format would notice, on fixtures written by hand. Recorded traffic is in
//! tests/translate_chat.rs.
//!
//! Names say which wire fact, bug, client need or row of the mapping a test is for. Here must not live: another format.

mod answer;
mod calls;
mod dialects;
mod ends;
mod mixes;
mod request_conversation;
mod request_extensions;
mod request_media;
mod request_options;
mod request_tools;
mod request_written;
mod seals;
mod tags;
mod written;
mod written_calls;

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::{answer as whole, request, stream};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind, FinishOwned};
use crate::canonical::dialect::{Reasoning, Sampling, Structured};
use crate::canonical::{Answer, Dialect, Effort, Event, Grammar, Quirks, Request};
use crate::json::{EscapedString, JsonStr};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, ReplyOptions};

/// A chunk with these choices.
fn chunk(choices: &str) -> String {
    format!(
        r#"{{"id":"c-1","object":"chat.completion.chunk","created":7,"model":"provider-model","choices":[{choices}]}}"#
    )
}

/// A chunk of the only choice, with this delta.
fn delta(members: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{{{members}}},"finish_reason":null}}"#))
}

/// A chunk that ends the only choice.
fn end(word: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{word}"}}"#))
}

const DONE: &str = "[DONE]";

/// What frames say: the events collected and each of them in short, and whether the answer is complete.
fn try_read(frames: &[String]) -> (Answer, Vec<String>, bool) {
    let (mut answer, mut events, mut grammar) = (Answer::default(), Vec::new(), Grammar::default());
    let mut take = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
        events.push(short(&event));
    };
    let mut decoder = stream::Decoder::new("seed");
    for frame in frames {
        decoder.frame(frame, &mut take).unwrap();
    }
    let complete = decoder.finish(&mut take).is_ok();
    assert_eq!(decoder.is_over(), answer.complete || answer.error.is_some());
    (answer, events, complete)
}

/// What the frames of a complete stream say.
fn read<S: AsRef<str>>(frames: &[S]) -> Answer {
    let frames: Vec<String> = frames.iter().map(|frame| frame.as_ref().to_owned()).collect();
    let (answer, _, complete) = try_read(&frames);
    assert!(complete && answer.complete, "{answer:?}");
    answer
}

/// The events of frames, each in short.
fn events<S: AsRef<str>>(frames: &[S]) -> Vec<String> {
    let frames: Vec<String> = frames.iter().map(|frame| frame.as_ref().to_owned()).collect();
    try_read(&frames).1
}

fn short(event: &Event<'_>) -> String {
    match event {
        Event::Start(_) => "start".to_owned(),
        Event::BlockStart { index, kind, .. } => {
            let kind = format!("{kind:?}");
            format!("{index} {}", kind.split([' ', '{']).next().unwrap_or_default())
        }
        Event::Delta { index, delta } => format!("{index} {delta:?}"),
        Event::BlockStop { index } => format!("{index} stop"),
        Event::Usage(_) => "usage".to_owned(),
        Event::Finish { choice, finish } => format!("finish {choice} {finish:?}"),
        Event::Ping => "ping".to_owned(),
        Event::Error(error) => format!("error {}", error.text()),
        Event::End => "end".to_owned(),
    }
}

/// What a whole completion says.
fn read_whole(body: &str) -> Answer {
    let (mut answer, mut grammar) = (Answer::default(), Grammar::default());
    whole::decode(body, "seed", false, &mut |event| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    })
    .unwrap();
    answer
}

/// A completion with this message.
fn completion(message: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"c-1","object":"chat.completion","created":7,"model":"v","choices":[{{"index":0,"message":{message},"finish_reason":{finish}}}]}}"#
    )
}

/// The joined text of the blocks of a kind.
fn text_of(answer: &Answer, kind: &AnswerBlockKind) -> String {
    let blocks = answer.blocks.iter().filter(|block| block.kind == *kind);
    blocks.map(|block| JsonStr::from_escaped(&block.text).decode().into_owned()).collect()
}

/// Id, name and arguments of the calls.
fn calls_of(answer: &Answer) -> Vec<(String, String, String)> {
    let call = |block: &AnswerBlock| match &block.kind {
        AnswerBlockKind::ToolUse { id, name, .. } => {
            let input = block.object.clone();
            let input = input.unwrap_or_else(|| JsonStr::from_escaped(&block.text).decode().into_owned());
            Some((id.clone(), name.clone(), input))
        }
        _ => None,
    };
    answer.blocks.iter().filter_map(call).collect()
}

fn finish_of(answer: &Answer) -> FinishOwned {
    answer.finish_of(0).unwrap().clone()
}

fn reply() -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("client-model"),
        seed: "seed".into(),
        created: 1_700_000_000,
        usage_wanted: false,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    }
}

/// What a stream encoder makes of events: the text.
fn text_written(reply: ReplyOptions, events: &[Event<'_>]) -> String {
    let (mut out, mut grammar) = (BytesMut::new(), Grammar::default());
    let mut encoder = stream::Encoder::new(Arc::new(reply));
    for event in events {
        grammar.check(event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        encoder.event(event, &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

/// The chunks in a stream's text, which must end as it should.
fn chunks_in(text: &str) -> Vec<Value> {
    let rest = text.strip_suffix("data: [DONE]\n\n").expect(text);
    let frames = rest.split_terminator("\n\n");
    frames.map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

/// The chunks that events become.
fn written(reply: ReplyOptions, events: &[Event<'_>]) -> Vec<Value> {
    chunks_in(&text_written(reply, events))
}

/// The completion that an answer becomes.
fn whole_written(answer: &Answer, reply: &ReplyOptions) -> Value {
    let mut out = BytesMut::new();
    whole::encode(answer, reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn js(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

/// A model of OpenAI's without extensions.
fn dialect() -> Dialect<'static> {
    Dialect {
        model: "provider-model",
        issuer: "provider",
        reasoning: Reasoning::Effort { min: Effort::Low, max: Effort::High, off: true },
        max_output: 8192,
        sampling: Sampling::All,
        structured: Structured::Native,
        json_schema: true,
        call_ids: true,
        developer_role: false,
        max_completion_tokens: false,
        system_in_middle: true,
        prefill: false,
        reasoning_replay: false,
        media_urls: true,
        extensions: &[],
        think_tags: false,
        habits: &Quirks::PLAIN,
    }
}

/// The request as it is sent, what was lost, and why it is refused.
fn sent_from(
    from: Format,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
) -> (Value, Vec<String>, Option<String>) {
    let mut notes = LossNotes::new(from, Format::Chat);
    let mut out = BytesMut::new();
    request::encode(request, dialect, &mut notes, &mut out);
    let value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let refusal = notes.take_refusal().map(|error| error.message.into_owned());
    (value, notes.losses().iter().map(|loss| loss.element.to_string()).collect(), refusal)
}

/// The request of a client of another format, as it is sent.
fn sent(request: &Request<'_>, dialect: &Dialect<'_>) -> Value {
    sent_from(Format::Messages, request, dialect).0
}

/// A request of this format, read and sent to a provider of this format.
fn through(body: &str, dialect: &Dialect<'_>) -> (Value, Vec<String>) {
    let request = request::decode(body).unwrap();
    let (value, losses, refusal) = sent_from(Format::Chat, &request, dialect);
    assert_eq!(refusal, None);
    (value, losses)
}

/// A request with these members beside one message.
fn asking(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}]{members}}}"#)
}

/// A request with these messages.
fn saying(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}

/// The field that an error names.
fn fault_in(body: &str) -> String {
    let error = request::decode(body).unwrap_err();
    assert_eq!(error.status, 400);
    error.param.unwrap_or_default().into_owned()
}
