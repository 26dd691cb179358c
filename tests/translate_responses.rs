//! Recorded traffic of the responses format through its codec: every stream and answer means what a plain reading of
//! it finds, means the same when it is written again, and every request comes back from a provider's format as it went.
//!
//! The recordings are no part of this repository. They are looked for in the folder that GATEWAY_CAPTURES names, or in
//! ../shared/captures; where there are none, the tests say SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "translate_responses/plain.rs"]
mod plain;
#[path = "captures/recording.rs"]
#[allow(dead_code, reason = "this format has no arrays")]
mod recording;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::BytesMut;
use model_gateway::canonical::dialect::{Reasoning, Sampling, Structured};
use model_gateway::canonical::{
    Answer, Block, Dialect, Effort, Event, Grammar, Quirks, Request, Thinking, ToolKind, Turn,
};
use model_gateway::error::{ApiError, Kind};
use model_gateway::wire::codec::{LossNotes, ReplyOptions};
use model_gateway::wire::responses::{answer, request, stream};
use model_gateway::wire::{Api, Format};
use plain::Reading;
use recording::Recording;

/// A recording that its authors shortened: what its deltas say is not what its `done` events say.
const SHORTENED: &str = "fixtures-openai-shell-container-1.0-09d1e8";

/// Where two things differ.
fn difference(found: &impl Debug, expected: &impl Debug) -> String {
    let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
    let at = found.chars().zip(expected.chars()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| text.chars().skip(at.saturating_sub(60)).take(240).collect::<String>();
    format!("\n    found    {}\n    expected {}", part(&found), part(&expected))
}

/// The recordings of this format, or nothing where there are none.
fn recordings() -> Vec<Recording> {
    let mut all = recording::all().unwrap_or_default();
    all.retain(|recording| recording.api == Api::Responses && !recording.name.contains(SHORTENED));
    all
}

/// Collects events, held against their grammar.
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

/// The events of an answer as the encoder of streams writes them.
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
fn every_recorded_answer_means_what_a_plain_reading_finds() {
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
fn every_recorded_answer_means_the_same_when_it_is_written_again() {
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

/// What these frames are, whatever is wrong with them; nothing may break the grammar of events, read or written.
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
        // Half a frame is no JSON.
        let _ = decoder.frame(data, &mut sink);
    }
    encoder.fail(&ApiError::new(Kind::UpstreamBroken, "cut"), &mut out);
    let written = read_stream(std::str::from_utf8(&out).unwrap());
    collected.faults.into_iter().chain(written.faults).collect()
}

#[test]
fn frames_that_are_lost_doubled_cut_or_out_of_order_break_no_grammar() {
    let mut faults = Vec::new();
    for recording in recordings() {
        let recording::Answer::Events(events) = &recording.answer else { continue };
        let frames = plain::frames(std::str::from_utf8(events).unwrap());
        // The middle of long streams says nothing new.
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

/// A model that takes whatever the format has.
fn permissive() -> Dialect<'static> {
    Dialect {
        model: "m",
        issuer: "provider",
        reasoning: Reasoning::Effort { min: Effort::Minimal, max: Effort::Max, off: true },
        max_output: 8192,
        sampling: Sampling::All,
        structured: Structured::Native,
        json_schema: true,
        call_ids: true,
        developer_role: false,
        max_completion_tokens: true,
        system_in_middle: true,
        prefill: true,
        reasoning_replay: true,
        media_urls: true,
        extensions: &["*"],
        think_tags: false,
        habits: &Quirks::PLAIN,
    }
}

/// Instructions that lead a conversation become one text; what was not said of keeping becomes said.
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
        let text = model_gateway::json::JsonStr::from_escaped(joined);
        let turn = Turn::new(model_gateway::canonical::Role::System, vec![Block::text(text)]);
        request.turns.insert(0, turn);
    }
    request.store = Some(request.store.unwrap_or(false));
    for tool in &mut request.tools {
        if tool.kind == ToolKind::Function {
            tool.strict = Some(tool.strict.unwrap_or(false));
        }
    }
    // The format has no word for "as the model sees fit".
    if request.thinking == Thinking::Adaptive {
        request.thinking = Thinking::Unsaid;
    }
    for turn in &mut request.turns {
        turn.blocks.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
    }
    // The same members, in another order.
    if let Some(search) = &mut request.search {
        search.location = None;
    }
    // Asked for where nothing is kept, and never seen again.
    request.extra.retain(|extra| extra.name != "include");
    request
}

#[test]
fn every_recorded_request_comes_back_as_it_went() {
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
        let mut out = BytesMut::new();
        request::encode(&first, &permissive(), &mut notes, &mut out);
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
