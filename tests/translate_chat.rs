//! Recorded traffic of chat providers, through the chat codec: the decoded content equals that of a plain JSON parser,
//! and encoding it again preserves it.
//!
//! The recordings are not part of this repository; see tests/captures.rs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "translate_chat/plain.rs"]
mod plain;
#[path = "captures/recording.rs"]
mod recording;

use std::sync::Arc;

use bytes::BytesMut;
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{Answer, Block, Dialect, Effort, Event, Grammar, Request, Role, Thinking};
use model_gateway::json::{EscapedString, RopeBuilder};
use model_gateway::wire::chat::{answer, request, stream};
use model_gateway::wire::codec::{LossNotes, ReplyOptions};
use model_gateway::wire::{Api, Format};
use plain::Plain;
use recording::{Answer as Recorded, Recording};
use serde_json::Value;

/// Returns all recordings of this format; none if the folder is missing.
fn recordings() -> Vec<Recording> {
    let all = recording::all().unwrap_or_default();
    all.into_iter().filter(|recording| recording.api == Api::Chat).collect()
}

/// Collects events and checks their order.
#[derive(Default)]
struct Checked {
    grammar: Grammar,
    answer: Answer,
    fault: Option<String>,
}

impl Checked {
    fn take(&mut self, event: &Event<'_>) {
        if let Err(fault) = self.grammar.check(event) {
            self.fault.get_or_insert_with(|| format!("{fault}: {event:?}"));
        }
        self.answer.take(event);
    }
}

/// Returns the data of each frame.
fn frames(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(|data| data.trim().to_owned()).filter(|data| !data.is_empty()).collect()
}

fn read_stream(frames: &[String]) -> (Checked, bool) {
    let mut checked = Checked::default();
    let mut decoder = stream::Decoder::new("seed");
    for frame in frames {
        decoder.frame(frame, &mut |event| checked.take(&event)).unwrap();
    }
    let complete = decoder.finish(&mut |event| checked.take(&event)).is_ok();
    (checked, complete)
}

fn read_whole(body: &str) -> Result<Checked, String> {
    let mut checked = Checked::default();
    let read = answer::decode(body, "seed", false, &mut |event| checked.take(&event));
    read.map(|()| checked).map_err(|error| error.to_string())
}

fn streams(recordings: &[Recording]) -> impl Iterator<Item = (&str, Vec<String>)> {
    recordings.iter().filter_map(|recording| match &recording.answer {
        Recorded::Events(text) | Recorded::Array(text) => Some((recording.name.as_str(), frames(text))),
        Recorded::Whole(_) => None,
    })
}

fn wholes(recordings: &[Recording]) -> impl Iterator<Item = (&str, &Value)> {
    recordings.iter().filter_map(|recording| match &recording.answer {
        Recorded::Whole(body) => Some((recording.name.as_str(), body)),
        _ => None,
    })
}

fn reply(usage_wanted: bool) -> Arc<ReplyOptions> {
    Arc::new(ReplyOptions {
        model: EscapedString::from("m"),
        seed: "seed".into(),
        created: 1_700_000_000,
        usage_wanted,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    })
}

/// Decodes frames and encodes the events as a stream.
fn written_stream(frames: &[String], usage_wanted: bool) -> String {
    let mut out = BytesMut::new();
    let mut encoder = stream::Encoder::new(reply(usage_wanted));
    let mut decoder = stream::Decoder::new("seed");
    for frame in frames {
        decoder.frame(frame, &mut |event| encoder.event(&event, &mut out)).unwrap();
    }
    let _ = decoder.finish(&mut |event| encoder.event(&event, &mut out));
    String::from_utf8(out.to_vec()).unwrap()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn chat_recorded_stream_decodes_like_the_plain_parser() {
    let all = recordings();
    let mut faults = Vec::new();
    for (name, frames) in streams(&all) {
        let (checked, complete) = read_stream(&frames);
        faults.extend(checked.fault.iter().map(|fault| format!("{name}: {fault}")));
        let expected = plain::stream(&frames);
        if let Some(error) = &expected.error {
            let said = checked.answer.error.as_deref().unwrap_or_default();
            let said: Value = serde_json::from_str(said).unwrap_or_default();
            if said["message"] != error["message"] {
                faults.push(format!("{name}: error {said}"));
            }
            continue;
        }
        if !complete || !checked.answer.complete {
            faults.push(format!("{name}: not complete"));
        }
        faults.extend(expected.differ(&checked.answer).map(|fault| format!("{name}: {fault}")));
    }
    assert_none(&faults);
}

#[test]
fn chat_recorded_response_decodes_like_the_plain_parser() {
    let all = recordings();
    let mut faults = Vec::new();
    for (name, body) in wholes(&all) {
        let expected = plain::whole(body);
        match (read_whole(&body.to_string()), expected) {
            (Ok(checked), Some(expected)) => {
                faults.extend(checked.fault.iter().map(|fault| format!("{name}: {fault}")));
                faults.extend(expected.differ(&checked.answer).map(|fault| format!("{name}: {fault}")));
            }
            (Ok(checked), None) if checked.answer.error.is_some() => {}
            // The error documents of two providers have no known structure.
            (Err(_), None) => {}
            (Ok(_), None) => faults.push(format!("{name}: an answer was read")),
            (Err(error), Some(_)) => faults.push(format!("{name}: {error}")),
        }
    }
    assert_none(&faults);
}

#[test]
fn chat_recorded_stream_survives_encoding() {
    let all = recordings();
    let mut faults = Vec::new();
    for (name, frames) in streams(&all) {
        let (before, complete) = read_stream(&frames);
        if before.answer.error.is_some() || !complete {
            continue;
        }
        for usage_wanted in [true, false] {
            let again = written_stream(&frames, usage_wanted);
            faults.extend(
                plain::faults_of_stream(&again, usage_wanted).map(|fault| format!("{name}: {fault}")),
            );
            let expected = plain::stream(&frames);
            let mut written = plain::stream(&self::frames(again.as_bytes()));
            if !usage_wanted {
                written.usage = expected.usage;
            }
            faults.extend(expected.differ_from(&written).map(|fault| format!("{name}, again: {fault}")));
        }
    }
    assert_none(&faults);
}

#[test]
fn chat_recorded_response_survives_encoding() {
    let all = recordings();
    let mut faults = Vec::new();
    for (name, body) in wholes(&all) {
        let Some(expected) = plain::whole(body) else { continue };
        let checked = read_whole(&body.to_string()).unwrap();
        let mut out = BytesMut::new();
        answer::encode(&checked.answer, &reply(true), &mut out);
        let written: Value = serde_json::from_slice(&out).unwrap();
        let written: Plain = plain::whole(&written).unwrap();
        faults.extend(expected.differ_from(&written).map(|fault| format!("{name}, again: {fault}")));
    }
    assert_none(&faults);
}

/// Returns the profile of a model that supports everything, with the kind of reasoning setting that the request uses.
fn permissive(request: &Request<'_>) -> Dialect<'static> {
    const ALL: &[&str] = &[
        "*",
        "cache_control",
        "images",
        "include_reasoning",
        "modalities",
        "prefix",
        "reasoning_content",
        "tool_media",
        "tool_name",
    ];
    let full = Effort::Minimal..=Effort::Max;
    Dialect {
        reasoning: match request.thinking {
            Thinking::Budget(_) => ReasoningSupport::Budget { min: 0, max: u64::MAX, off: true },
            _ => ReasoningSupport::efforts(*full.start(), *full.end(), true),
        },
        max_output: 1,
        developer_role: request.turns.iter().any(|turn| turn.role == Role::Developer),
        max_completion_tokens: true,
        prefill: true,
        reasoning_replay: true,
        extensions: ALL,
        ..Dialect::plain("m", "provider")
    }
}

/// Returns the lines of a request, normalized: reasoning in several parts becomes one text, because this format has no
/// parts there.
fn joined(mut request: Request<'_>) -> Vec<String> {
    // The encoder omits these settings without tools, because providers refuse them.
    if request.tools.is_empty() {
        request.tool_choice = None;
        request.parallel_tools = None;
    }
    for block in request.turns.iter_mut().flat_map(|turn| &mut turn.blocks) {
        if let Block::Reasoning { text, .. } = block
            && text.len() > 1
        {
            let whole: String = text.iter().map(|text| text.escaped()).collect();
            *text = vec![json::JsonStr::from_escaped(Box::leak(whole.into_boxed_str()))];
        }
    }
    request.extra.sort_by_key(|extra| extra.name);
    format!("{request:#?}").lines().map(str::to_owned).collect()
}

#[test]
fn chat_recorded_request_survives_encoding() {
    let all = recordings();
    let mut faults = Vec::new();
    for recording in all.iter().filter(|recording| recording.request.is_some()) {
        let body = recording.request.as_ref().unwrap().to_string();
        let name = &recording.name;
        if recording.request.as_ref().unwrap()["messages"].as_array().is_none_or(Vec::is_empty) {
            assert!(request::decode(&body).is_err(), "{name}: nothing is said");
            continue;
        }
        let request = match request::decode(&body) {
            Ok(request) => request,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut out = RopeBuilder::default();
        let mut notes = LossNotes::new(Format::Chat, Format::Chat);
        request::encode(&request, &permissive(&request), &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        faults.extend(notes.losses().iter().map(|loss| format!("{name}: {loss:?}")));
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{name}: {text}");
        let again = request::decode(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        if request != again {
            let (before, after) = (joined(request), joined(again));
            let differing = before.iter().zip(&after).find(|(before, after)| before != after);
            if let Some((before, after)) = differing {
                faults.push(format!("{name}: {before} became {after}"));
            }
        }
    }
    assert_none(&faults);
}
