//! Recorded traffic of the messages format, through its codec: the decoded content equals that of a plain JSON parser,
//! and encoding it again preserves it.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the tests print SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "captures/folder.rs"]
mod folder;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Map, Value, json};

use model_gateway::canonical::answer::{AnswerBlockKind, FinishOwned};
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{
    Answer, Block, Dialect, Effort, Event, Grammar, Request, Role, Thinking, Turn,
};
use model_gateway::json::JsonStr;
use model_gateway::json::{EscapedString, RopeBuilder};
use model_gateway::wire::Format;
use model_gateway::wire::codec::{LossNotes, ReplyOptions};
use model_gateway::wire::messages::stream::{Decoder, Encoder};
use model_gateway::wire::messages::{answer, request};

/// Recorded exchange.
struct Recording {
    name: String,
    request: Option<Value>,
    response: Value,
}

/// Returns the recordings, or `None` if the folder is missing.
fn recordings() -> Option<Vec<Recording>> {
    let own = |(path, _): &(PathBuf, Value)| {
        path.parent().is_some_and(|folder| folder.ends_with("anthropic-messages"))
    };
    let read = |(path, whole): (PathBuf, Value)| {
        let request = Some(&whole["request"]["body"]).filter(|body| body.is_object()).cloned();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Recording { name, request, response: whole["response"].clone() }
    };
    Some(folder::recordings()?.into_iter().filter(own).map(read).collect())
}

/// Returns the data of each event of a recorded stream.
fn frames(response: &Value) -> Option<Vec<String>> {
    if let Some(chunks) = response["chunks"].as_array() {
        let text = |chunk: &Value| chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
        return Some(chunks.iter().map(text).collect());
    }
    let stream = response["sse"].as_str()?;
    Some(
        stream
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.trim().to_owned())
            .collect(),
    )
}

/// Content of a response, in plain values.
#[derive(Debug, Default, PartialEq)]
struct Said {
    text: String,
    thinking: String,
    seals: Vec<String>,
    calls: Vec<(String, String, Value)>,
    finish: String,
    cited: Vec<String>,
    foreign: Vec<String>,
    input: u64,
    cached: u64,
    output: u64,
    error: bool,
}

/// Folds a stream into the message that it adds up to, with a plain JSON parser.
fn fold(frames: &[String]) -> Value {
    let mut message = Value::Null;
    let mut arguments: Vec<String> = Vec::new();
    for frame in frames {
        let Ok(event) = serde_json::from_str::<Value>(frame) else { continue };
        let index = event["index"].as_u64().unwrap_or(0) as usize;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                arguments.push(String::new());
            }
            "content_block_delta" => {
                let block = &mut message["content"][index];
                for (name, value) in event["delta"].as_object().unwrap() {
                    match (name.as_str(), value) {
                        ("text" | "thinking" | "signature", Value::String(text)) => {
                            block[name] = json!(block[name].as_str().unwrap_or_default().to_owned() + text);
                        }
                        ("partial_json", Value::String(text)) => arguments[index].push_str(text),
                        ("citation", citation) => match block["citations"].as_array_mut() {
                            Some(list) => list.push(citation.clone()),
                            None => block["citations"] = json!([citation]),
                        },
                        _ => {}
                    }
                }
            }
            "content_block_stop" if !arguments[index].is_empty() => {
                message["content"][index]["input"] = serde_json::from_str(&arguments[index]).unwrap();
            }
            "message_delta" => {
                for (name, value) in event["delta"].as_object().unwrap() {
                    message[name] = value.clone();
                }
                for (name, value) in event["usage"].as_object().unwrap_or(&Map::new()) {
                    message["usage"][name] = value.clone();
                }
            }
            "error" => return event,
            _ => {}
        }
    }
    message
}

/// Returns the content of a message, with a plain JSON parser.
fn plain(message: &Value) -> Said {
    let mut said = Said { error: message["type"] == "error", ..Said::default() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for block in message["content"].as_array().unwrap_or(&Vec::new()) {
        match block["type"].as_str().unwrap() {
            "text" => {
                said.text += &text(&block["text"]);
                let citations = block["citations"].as_array().cloned().unwrap_or_default();
                said.cited.extend(citations.iter().map(|citation| text(&citation["cited_text"])));
            }
            "thinking" => {
                said.thinking += &text(&block["thinking"]);
                said.seals.push(text(&block["signature"]));
            }
            "redacted_thinking" => said.seals.push(text(&block["data"])),
            "tool_use" => {
                said.calls.push((text(&block["id"]), text(&block["name"]), block["input"].clone()));
            }
            other => said.foreign.push(other.to_owned()),
        }
    }
    said.seals.retain(|seal| !seal.is_empty());
    said.finish = text(&message["stop_reason"]);
    if said.finish == "end_turn" && !said.calls.is_empty() {
        said.finish = "tool_use".to_owned();
    }
    let count = |name: &str| message["usage"][name].as_u64().unwrap_or(0);
    said.cached = count("cache_read_input_tokens");
    said.input = count("input_tokens") + said.cached + count("cache_creation_input_tokens");
    said.output = count("output_tokens");
    said
}

fn decoded(text: &str) -> String {
    JsonStr::from_escaped(text).decode().into_owned()
}

/// Returns the content of a decoded response.
fn understood(answer: &Answer) -> Said {
    let mut said = Said { error: answer.error.is_some(), ..Said::default() };
    for block in &answer.blocks {
        match &block.kind {
            AnswerBlockKind::Text => said.text += &decoded(&block.text),
            AnswerBlockKind::Reasoning => said.thinking += &decoded(&block.text),
            AnswerBlockKind::ToolUse { id, name, .. } => {
                let input = match &block.object {
                    Some(object) => serde_json::from_str(object).unwrap(),
                    None if block.text.is_empty() => json!({}),
                    None => serde_json::from_str(&decoded(&block.text)).unwrap(),
                };
                said.calls.push((decoded(id), decoded(name), input));
            }
            AnswerBlockKind::Opaque { name, .. } => said.foreign.push(name.clone()),
            AnswerBlockKind::HiddenReasoning | AnswerBlockKind::Refusal | AnswerBlockKind::Media { .. } => {}
        }
        said.cited.extend(block.citations.iter().map(|citation| decoded(&citation.quote)));
        if !block.signature.is_empty() {
            said.seals.push(decoded(&block.signature));
        }
    }
    said.finish = match answer.finish_of(0) {
        Some(FinishOwned::Stop) => "end_turn",
        Some(FinishOwned::StopSequence(_)) => "stop_sequence",
        Some(FinishOwned::Length) => "max_tokens",
        Some(FinishOwned::ContextFull) => "model_context_window_exceeded",
        Some(FinishOwned::ToolUse) => "tool_use",
        Some(FinishOwned::ContentFilter) => "refusal",
        Some(FinishOwned::Pause) => "pause_turn",
        Some(FinishOwned::Other(word)) => word,
        None => "",
    }
    .to_owned();
    let count = |count: Option<u64>| count.unwrap_or(0);
    (said.input, said.cached) = (count(answer.usage.input), count(answer.usage.cached));
    said.output = count(answer.usage.output);
    said
}

fn reply() -> Arc<ReplyOptions> {
    Arc::new(ReplyOptions {
        model: EscapedString::from("claude"),
        request: "req_1".into(),
        seed: "req_1".into(),
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    })
}

/// Normalizes what encoding changes: signatures, which are in envelopes.
fn comparable(mut said: Said) -> Said {
    said.seals = vec![said.seals.len().to_string()];
    // Only a provider can send this block.
    said.foreign.retain(|name| name != "compaction");
    said
}

#[test]
fn messages_recorded_stream_survives_decoding_and_encoding() {
    let Some(recordings) = recordings() else { return };
    let mut count = 0;
    for recording in &recordings {
        let Some(frames) = frames(&recording.response) else { continue };
        count += 1;
        let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
        let mut decoder = Decoder::new("req_1");
        let mut encoder = Encoder::new(reply());
        let mut out = BytesMut::new();
        let mut sink = |event: Event<'_>| {
            grammar.check(&event).unwrap_or_else(|fault| panic!("{}: {fault}: {event:?}", recording.name));
            answer.take(&event);
            encoder.event(&event, &mut out);
        };
        for frame in &frames {
            decoder
                .frame(frame, &mut sink)
                .unwrap_or_else(|error| panic!("{}: {error}: {frame}", recording.name));
        }
        decoder.finish(&mut sink).unwrap_or_else(|cut| panic!("{}: {cut}", recording.name));
        let expected = plain(&fold(&frames));
        let got = understood(&answer);
        assert_eq!(got, expected, "{}", recording.name);
        // The encoded stream folds into the same message.
        let again: Vec<String> = std::str::from_utf8(&out)
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(str::to_owned)
            .collect();
        assert_eq!(comparable(plain(&fold(&again))), comparable(expected), "{}", recording.name);
    }
    assert!(count > 20, "{count} streams");
}

#[test]
fn messages_recorded_response_survives_decoding_and_encoding() {
    let Some(recordings) = recordings() else { return };
    let mut count = 0;
    for recording in &recordings {
        let body = &recording.response["body"];
        if !body.is_object() || body.get("input_tokens").is_some() {
            continue;
        }
        count += 1;
        let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
        answer::decode(&body.to_string(), "req_1", &mut |event| {
            grammar.check(&event).unwrap_or_else(|fault| panic!("{}: {fault}: {event:?}", recording.name));
            answer.take(&event);
        })
        .unwrap();
        let expected = plain(body);
        assert_eq!(understood(&answer), expected, "{}", recording.name);
        if expected.error {
            continue;
        }
        let mut out = BytesMut::new();
        answer::encode(&answer, &reply(), &mut out);
        let again: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(comparable(plain(&again)), comparable(expected), "{}", recording.name);
    }
    assert!(count > 20, "{count} answers");
}

/// Returns the profile of a model that supports everything, with the kind of reasoning setting that the request uses.
fn dialect(thinking: Thinking) -> Dialect<'static> {
    let reasoning = match thinking {
        Thinking::Budget(_) => ReasoningSupport::Budget { min: 0, max: u64::MAX, off: true },
        _ => ReasoningSupport::adaptive(Effort::Max, true),
    };
    Dialect {
        reasoning,
        prefill: true,
        reasoning_replay: true,
        extensions: &["*"],
        ..Dialect::plain("claude", "provider")
    }
}

/// Normalizes a request as the codec does: neighboring turns are joined, empty blocks removed and defaults explicit.
fn joined(request: Request<'_>) -> Request<'_> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for turn in request.turns {
        let blocks: Vec<Block<'_>> = turn
            .blocks
            .into_iter()
            .filter(|block| match block {
                Block::Text { text, .. } => !text.decode().trim().is_empty(),
                Block::Reasoning { signature: seal, .. } => seal.is_some(),
                _ => true,
            })
            .collect();
        match turns.last_mut() {
            Some(last) if last.role == turn.role && turn.role != Role::System => last.blocks.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => turns.push(Turn { blocks, ..turn }),
        }
    }
    let mut extra = request.extra;
    extra.sort_by_key(|extra| (extra.name, extra.value.text()));
    let shown = match request.thinking {
        Thinking::Effort(_) | Thinking::Adaptive => request.show_thinking.or(Some(true)),
        _ => request.show_thinking,
    };
    Request { turns, extra, show_thinking: shown, ..request }
}

#[test]
fn messages_recorded_request_survives_encoding() {
    let Some(recordings) = recordings() else { return };
    let mut count = 0;
    for recording in &recordings {
        let Some(body) = recording.request.as_ref().filter(|body| body["messages"].is_array()) else {
            continue;
        };
        // Deliberately invalid requests were refused by the provider.
        let valid = recording.response["status"] == 200;
        let body = body.to_string();
        let first = match request::decode(&body) {
            Ok(request) => request,
            Err(error) => {
                assert!(!valid, "{}: {}", recording.name, error.message);
                continue;
            }
        };
        count += 1;
        let mut notes = LossNotes::new(Format::Messages, Format::Messages);
        let mut out = RopeBuilder::default();
        request::encode(&first, &dialect(first.thinking), &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}: {text}", recording.name);
        let second = request::decode(&text).unwrap();
        let mut first = first;
        // The format requires this member, so the encoder always writes it.
        first.max_output = second.max_output;
        let lost: Vec<&str> = notes.losses().iter().map(|loss| loss.element.as_ref()).collect();
        // Members that the codec reported as lost.
        first.extra.retain(|extra| !lost.contains(&extra.name));
        if lost.contains(&"temperature") {
            first.sampling.temperature = None;
        }
        assert_eq!(joined(second), joined(first), "{}: {lost:?}", recording.name);
    }
    assert!(count > 20, "{count} requests");
}
