//! Tests of the chat format on fixtures written by hand. Recorded traffic is in tests/translate_chat.rs.
//!
//! The facts, needs of clients and mapping rows under test are in docs/provider-facts.md and docs/mapping.md. Tests of
//! other formats do not belong here.

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
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport};
use crate::canonical::{Answer, Dialect, Effort, Event, Grammar, Quirks, Request};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, ReplyOptions};
use json::{EscapedString, JsonStr, RopeBuilder};

/// Returns a chunk with these choices.
fn chunk(choices: &str) -> String {
    format!(
        r#"{{"id":"c-1","object":"chat.completion.chunk","created":7,"model":"provider-model","choices":[{choices}]}}"#
    )
}

/// Returns a chunk of the only choice, with this delta.
fn delta(members: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{{{members}}},"finish_reason":null}}"#))
}

/// Returns a chunk that ends the only choice.
fn end(word: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{word}"}}"#))
}

const DONE: &str = "[DONE]";

/// Decodes frames. Returns the collected response, the events in short form, and whether the response is complete.
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

/// Decodes the frames of a complete stream.
fn read<S: AsRef<str>>(frames: &[S]) -> Answer {
    let frames: Vec<String> = frames.iter().map(|frame| frame.as_ref().to_owned()).collect();
    let (answer, _, complete) = try_read(&frames);
    assert!(complete && answer.complete, "{answer:?}");
    answer
}

/// Decodes frames and returns the events in short form.
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

/// Decodes a whole completion.
fn read_whole(body: &str) -> Answer {
    let (mut answer, mut grammar) = (Answer::default(), Grammar::default());
    whole::decode(body, "seed", false, &mut |event| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    })
    .unwrap();
    answer
}

/// Returns a completion with this message.
fn completion(message: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"c-1","object":"chat.completion","created":7,"model":"v","choices":[{{"index":0,"message":{message},"finish_reason":{finish}}}]}}"#
    )
}

/// Returns the joined text of the blocks of a kind.
fn text_of(answer: &Answer, kind: &AnswerBlockKind) -> String {
    let blocks = answer.blocks.iter().filter(|block| block.kind == *kind);
    blocks.map(|block| JsonStr::from_escaped(&block.text).decode().into_owned()).collect()
}

/// Returns id, name and arguments of the calls.
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

/// Encodes events as a stream and returns its text.
fn text_written(reply: ReplyOptions, events: &[Event<'_>]) -> String {
    let (mut out, mut grammar) = (BytesMut::new(), Grammar::default());
    let mut encoder = stream::Encoder::new(Arc::new(reply));
    for event in events {
        grammar.check(event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        encoder.event(event, &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

/// Returns the chunks in a stream's text, which must end with the terminator, or with an error.
fn chunks_in(text: &str) -> Vec<Value> {
    let rest = match text.strip_suffix("data: [DONE]\n\n") {
        Some(rest) => rest,
        None => {
            assert!(text.contains("data: {\"error\":"), "{text}");
            text
        }
    };
    let frames = rest.split_terminator("\n\n");
    frames.map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

/// Encodes events and returns the chunks.
fn written(reply: ReplyOptions, events: &[Event<'_>]) -> Vec<Value> {
    chunks_in(&text_written(reply, events))
}

/// Encodes a response and returns the completion.
fn whole_written(answer: &Answer, reply: &ReplyOptions) -> Value {
    let mut out = BytesMut::new();
    whole::encode(answer, reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn js(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

/// Returns the dialect of an OpenAI model without extensions.
fn dialect() -> Dialect<'static> {
    let reasoning = ReasoningSupport::efforts(Effort::Low, Effort::High, true);
    Dialect { reasoning, ..Dialect::plain("provider-model", "provider") }
}

/// Encodes a request. Returns the body, the losses, and the error that refuses it.
fn sent_from(
    from: Format,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
) -> (Value, Vec<String>, Option<String>) {
    let mut notes = LossNotes::new(from, Format::Chat);
    let mut out = RopeBuilder::default();
    request::encode(request, dialect, &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let refusal = notes.take_refusal().map(|error| error.message.into_owned());
    (value, notes.losses().iter().map(|loss| loss.element.to_string()).collect(), refusal)
}

/// Encodes a request of a client of another format.
fn sent(request: &Request<'_>, dialect: &Dialect<'_>) -> Value {
    sent_from(Format::Messages, request, dialect).0
}

/// Decodes a request of this format and encodes it for a provider of this format.
fn through(body: &str, dialect: &Dialect<'_>) -> (Value, Vec<String>) {
    let request = request::decode(body).unwrap();
    let (value, losses, refusal) = sent_from(Format::Chat, &request, dialect);
    assert_eq!(refusal, None);
    (value, losses)
}

/// Returns a request with these members beside one message.
fn asking(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}]{members}}}"#)
}

/// Returns a request with these messages.
fn saying(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}

/// Returns the member that the error names.
fn fault_in(body: &str) -> String {
    let error = request::decode(body).unwrap_err();
    assert_eq!(error.status, 400);
    error.param.unwrap_or_default().into_owned()
}
