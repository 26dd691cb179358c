//! Recorded traffic of the responses format, through its codec: the decoded content equals that of a plain JSON parser,
//! encoding a response again preserves it, and encoding a request for a provider of this format restores it.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the tests print SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "translate_responses/plain.rs"]
mod plain;
#[path = "captures/recording.rs"]
#[allow(dead_code, reason = "this format has no arrays")]
mod recording;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::BytesMut;
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{
    Answer, Block, Dialect, Effort, Event, Grammar, Request, Thinking, ToolKind, Turn,
};
use model_gateway::error::{ApiError, ErrorKind};
use model_gateway::json::RopeBuilder;
use model_gateway::wire::codec::{LossNotes, ReplyOptions};
use model_gateway::wire::responses::{answer, request, stream};
use model_gateway::wire::{Api, Format};
use plain::Reading;
use recording::Recording;

/// Recording that its authors shortened, so that its deltas contradict its `done` events.
const SHORTENED: &str = "fixtures-openai-shell-container-1.0-09d1e8";

/// Describes the first difference of two values.
fn difference(found: &impl Debug, expected: &impl Debug) -> String {
    let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
    let at = found.chars().zip(expected.chars()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| text.chars().skip(at.saturating_sub(60)).take(240).collect::<String>();
    format!("\n    found    {}\n    expected {}", part(&found), part(&expected))
}

/// Returns the recordings of this format; none if the folder is missing.
fn recordings() -> Vec<Recording> {
    let mut all = recording::all().unwrap_or_default();
    all.retain(|recording| recording.api == Api::Responses && !recording.name.contains(SHORTENED));
    all
}

/// Collects events and checks their order.
#[derive(Default)]
struct Collected {
    grammar: Grammar,
    answer: Answer,
    faults: Vec<String>,
}

impl Collected {
    fn take(&mut self, event: &Event<'_>) {
        if let Err(fault) = self.grammar.check(event) {
            self.faults.push(format!("{fault}: {event:?}"));
        }
        self.answer.take(event);
    }
}

fn read_stream(text: &str) -> Collected {
    let mut collected = Collected::default();
    let mut decoder = stream::Decoder::new("seed");
    for data in plain::frames(text) {
        decoder.frame(&data, &mut |event| collected.take(&event)).unwrap();
    }
    if decoder.finish(&mut |event| collected.take(&event)).is_err() {
        collected.faults.push("cut".to_owned());
    }
    collected
}

fn read_whole(text: &str) -> Collected {
    let mut collected = Collected::default();
    answer::decode(text, "seed", &mut |event| collected.take(&event)).unwrap();
    collected
}

fn reply() -> ReplyOptions {
    ReplyOptions {
        model: "client's model".into(),
        seed: "seed".into(),
        created: 1_700_000_000,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    }
}

/// Decodes a stream and encodes its events as a stream.
fn write_stream(text: &str) -> String {
    let mut out = BytesMut::new();
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    let mut decoder = stream::Decoder::new("seed");
    for data in plain::frames(text) {
        decoder.frame(&data, &mut |event| encoder.event(&event, &mut out)).unwrap();
    }
    String::from_utf8(out.to_vec()).unwrap()
}

fn write_whole(answer: &Answer) -> String {
    let mut out = BytesMut::new();
    answer::encode(answer, &reply(), &mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn responses_recorded_response_decodes_like_the_plain_parser() {
    let (mut streams, mut wholes, mut faults) = (0, 0, Vec::new());
    for recording in recordings() {
        let (collected, expected) = match &recording.answer {
            recording::Answer::Events(events) => {
                let text = std::str::from_utf8(events).unwrap();
                streams += 1;
                (read_stream(text), Reading::of_stream(text))
            }
            recording::Answer::Whole(body) => {
                // A body that was recorded as text is an error page.
                if !body.is_object() {
                    continue;
                }
                wholes += 1;
                (read_whole(&body.to_string()), Reading::of_response(body))
            }
            recording::Answer::Array(_) => continue,
        };
        faults.extend(collected.faults.iter().map(|fault| format!("{}: {fault}", recording.name)));
        let found = Reading::of_answer(&collected.answer);
        if found != expected {
            faults.push(format!("{}: {}", recording.name, difference(&found, &expected)));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    println!("{streams} streams, {wholes} whole answers");
}

#[test]
fn responses_recorded_response_survives_encoding() {
    let mut faults = Vec::new();
    for recording in recordings() {
        let (first, streamed) = match &recording.answer {
            recording::Answer::Events(events) => {
                let text = std::str::from_utf8(events).unwrap();
                (read_stream(text), Some(write_stream(text)))
            }
            recording::Answer::Whole(body) if body.is_object() => (read_whole(&body.to_string()), None),
            _ => continue,
        };
        if Reading::of_answer(&first.answer).is_unfinished() {
            continue;
        }
        let expected = Reading::of_answer(&first.answer).rewritten();
        let whole = write_whole(&first.answer);
        let again = read_whole(&whole);
        faults.extend(again.faults.iter().map(|fault| format!("{}: {fault}", recording.name)));
        let found = Reading::of_answer(&again.answer).rewritten();
        if found != expected {
            faults.push(format!("{} whole: {}", recording.name, difference(&found, &expected)));
        }
        if let Some(text) = streamed {
            let again = read_stream(&text);
            faults.extend(again.faults.iter().map(|fault| format!("{}: {fault}", recording.name)));
            let found = Reading::of_answer(&again.answer).rewritten();
            if found != expected {
                faults.push(format!("{} stream: {}", recording.name, difference(&found, &expected)));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Decodes faulty frames and encodes their events. Returns the violations of the event grammar, decoded and encoded.
fn endure<'a>(frames: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut collected = Collected::default();
    let mut out = BytesMut::new();
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    let mut decoder = stream::Decoder::new("seed");
    for data in frames {
        let mut sink = |event: Event<'_>| {
            collected.take(&event);
            encoder.event(&event, &mut out);
        };
        // Half a frame is not JSON.
        let _ = decoder.frame(data, &mut sink);
    }
    encoder.fail(&ApiError::new(ErrorKind::UpstreamBroken, "cut"), &mut out);
    let written = read_stream(std::str::from_utf8(&out).unwrap());
    collected.faults.into_iter().chain(written.faults).collect()
}

#[test]
fn responses_faulty_frames_never_violate_the_event_grammar() {
    let mut faults = Vec::new();
    for recording in recordings() {
        let recording::Answer::Events(events) = &recording.answer else { continue };
        let frames = plain::frames(std::str::from_utf8(events).unwrap());
        // The middle of a long stream adds no new cases.
        let frames: Vec<String> = if frames.len() > 60 {
            frames[..30].iter().chain(&frames[frames.len() - 30..]).cloned().collect()
        } else {
            frames
        };
        let cut: Vec<String> =
            frames.iter().map(|frame| frame.chars().take(frame.chars().count() / 2).collect()).collect();
        let mut found = Vec::new();
        for n in 0..frames.len() {
            let others = |at: &usize| *at != n;
            found.extend(endure((0..frames.len()).filter(others).map(|at| &frames[at])));
            found.extend(endure(frames[..=n].iter().chain(&frames[n..])));
            found.extend(endure((0..frames.len()).map(|at| if at == n { &cut[at] } else { &frames[at] })));
        }
        found.extend(endure(frames.iter().rev()));
        found.extend(endure(frames.iter().step_by(2)));
        found.extend(endure(frames.iter().skip(1).step_by(2)));
        faults.extend(found.first().map(|fault| format!("{}: {fault}", recording.name)));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Returns the profile of a model that supports the whole format.
fn permissive() -> Dialect<'static> {
    Dialect {
        reasoning: ReasoningSupport::efforts(Effort::Minimal, Effort::Max, true),
        max_completion_tokens: true,
        prefill: true,
        reasoning_replay: true,
        extensions: &["*"],
        ..Dialect::plain("m", "provider")
    }
}

/// Normalizes a request: leading instructions become one text, and defaults become explicit.
fn settled<'a>(mut request: Request<'a>, joined: &'a mut String) -> Request<'a> {
    let is_text = |block: &Block<'_>| matches!(block, Block::Text { .. });
    let leads = |turn: &&Turn<'_>| turn.role.is_system() && turn.blocks.iter().all(is_text);
    let leading = request.turns.iter().take_while(leads).count();
    for turn in request.turns.drain(..leading) {
        for block in turn.blocks {
            if let Block::Text { text, .. } = block {
                if !joined.is_empty() {
                    joined.push_str("\\n\\n");
                }
                joined.push_str(text.escaped());
            }
        }
    }
    if !joined.is_empty() {
        let text = json::JsonStr::from_escaped(joined);
        let turn = Turn::new(model_gateway::canonical::Role::System, vec![Block::text(text)]);
        request.turns.insert(0, turn);
    }
    request.store = Some(request.store.unwrap_or(true));
    for tool in &mut request.tools {
        if tool.kind == ToolKind::Function {
            tool.strict = Some(tool.strict.unwrap_or(false));
        }
    }
    // The format cannot express adaptive thinking.
    if request.thinking == Thinking::Adaptive {
        request.thinking = Thinking::Unset;
    }
    for turn in &mut request.turns {
        turn.blocks.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
    }
    // The encoder writes the members of the location in another order.
    if let Some(search) = &mut request.search {
        search.location = None;
    }
    // The encoder adds values to `include` for a provider that does not store the response.
    request.extra.retain(|extra| extra.name != "include");
    request
}

#[test]
fn responses_recorded_request_survives_encoding() {
    let (mut count, mut faults) = (0, Vec::new());
    for recording in recordings() {
        let Some(body) = &recording.request else { continue };
        count += 1;
        let body = body.to_string();
        let first = match request::decode(&body) {
            Ok(request) => request,
            Err(error) => {
                faults.push(format!("{}: {error}", recording.name));
                continue;
            }
        };
        let mut notes = LossNotes::new(Format::Responses, Format::Responses);
        let mut out = RopeBuilder::default();
        request::encode(&first, &permissive(), &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        if !notes.losses().is_empty() || notes.take_refusal().is_some() {
            faults.push(format!("{}: lost {:?}", recording.name, notes.losses()));
        }
        let text = std::str::from_utf8(&out).unwrap();
        let (mut one, mut two) = (String::new(), String::new());
        let second = match request::decode(text) {
            Ok(request) => request,
            Err(error) => {
                faults.push(format!("{}: {error} in what was written: {text}", recording.name));
                continue;
            }
        };
        let (first, second) = (settled(first, &mut one), settled(second, &mut two));
        if first != second {
            faults.push(format!("{}: {}", recording.name, difference(&first, &second)));
        }
    }
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    println!("{count} requests");
}
