//! Throughput of translated streams and requests, compared with copying the same bytes and with JSON trees.
//!
//! The baseline with trees translates only the frames of text, reasoning and arguments. Other frames, and requests, are
//! parsed into a tree and serialized, which is the least that any translator with trees does.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

mod measure;
mod translation;

use std::hint::black_box;

use bytes::Bytes;
use codec::translate::verbatim::Arrival;
use codec::wire::Format;
use criterion::Criterion;
use json::JsonText;
use measure::{Subject, copy, criterion, print_summary};
use serde_json::{Value, json};
use translation::{Fill, Said, requests};

const FRAMES: usize = 200;
/// Size of a read from a busy connection, in bytes.
const READ: usize = 16_384;

fn pass(provider: Format, client: Format, pieces: &[Bytes]) -> u64 {
    let mut exchange = translation::translated(provider, client);
    for piece in pieces {
        black_box(exchange.feed(piece.clone()).unwrap());
    }
    black_box(exchange.finish().unwrap());
    exchange.meter().frames()
}

/// Baseline with JSON trees: each frame is parsed, the frame of the other format is built, and serialized.
fn pass_as_trees(provider: Format, client: Format, pieces: &[Bytes], out: &mut Vec<u8>) {
    for (number, piece) in pieces.iter().enumerate() {
        out.clear();
        let text = std::str::from_utf8(piece).unwrap();
        for line in text.lines() {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let Ok(value) = serde_json::from_str::<Value>(data) else { continue };
            match said(provider, &value) {
                Some((said, text)) => write(client, said, text, number, out),
                None => out.extend_from_slice(value.to_string().as_bytes()),
            }
        }
        black_box(out.as_slice());
    }
}

fn said(provider: Format, frame: &Value) -> Option<(Said, &str)> {
    match provider {
        Format::Chat => {
            let delta = &frame["choices"][0]["delta"];
            if let Some(text) = delta["content"].as_str() {
                return Some((Said::Text, text));
            }
            if let Some(text) = delta["reasoning_content"].as_str() {
                return Some((Said::Reasoning, text));
            }
            Some((Said::Arguments, delta["tool_calls"][0]["function"]["arguments"].as_str()?))
        }
        Format::Messages => {
            let delta = &frame["delta"];
            match delta["type"].as_str()? {
                "text_delta" => Some((Said::Text, delta["text"].as_str()?)),
                "thinking_delta" => Some((Said::Reasoning, delta["thinking"].as_str()?)),
                "input_json_delta" => Some((Said::Arguments, delta["partial_json"].as_str()?)),
                _ => None,
            }
        }
        Format::Responses => {
            let said = match frame["type"].as_str()? {
                "response.output_text.delta" => Said::Text,
                "response.reasoning_summary_text.delta" => Said::Reasoning,
                "response.function_call_arguments.delta" => Said::Arguments,
                _ => return None,
            };
            Some((said, frame["delta"].as_str()?))
        }
        Format::Converse => {
            let delta = &frame["contentBlockDelta"]["delta"];
            if let Some(text) = delta["text"].as_str() {
                return Some((Said::Text, text));
            }
            if let Some(text) = delta["reasoningContent"]["text"].as_str() {
                return Some((Said::Reasoning, text));
            }
            Some((Said::Arguments, delta["toolUse"]["input"].as_str()?))
        }
        Format::Generate => {
            let part = &frame["candidates"][0]["content"]["parts"][0];
            let said = if part["thought"] == true { Said::Reasoning } else { Said::Text };
            Some((said, part["text"].as_str()?))
        }
    }
}

fn write(client: Format, said: Said, text: &str, number: usize, out: &mut Vec<u8>) {
    let (name, frame) = match client {
        Format::Chat => {
            let delta = match said {
                Said::Text => json!({"content": text}),
                Said::Reasoning => json!({"reasoning_content": text}),
                Said::Arguments => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            };
            let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
            let frame = json!({
                "id": "chatcmpl-CfZ2aXbFvYtq1mKq0WwH7rPz3uJ8N", "object": "chat.completion.chunk",
                "created": 1_750_000_000, "model": "the-model", "choices": choices, "usage": null,
            });
            (None, frame)
        }
        Format::Messages => {
            let delta = match said {
                Said::Text => json!({"type": "text_delta", "text": text}),
                Said::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
                Said::Arguments => json!({"type": "input_json_delta", "partial_json": text}),
            };
            let name = "content_block_delta";
            (Some(name), json!({"type": name, "index": 0, "delta": delta}))
        }
        Format::Responses => {
            let name = match said {
                Said::Text => "response.output_text.delta",
                Said::Reasoning => "response.reasoning_summary_text.delta",
                Said::Arguments => "response.function_call_arguments.delta",
            };
            let frame = json!({
                "type": name, "sequence_number": number, "item_id": "msg_68a1f0c2d3e4b5a69788796a",
                "output_index": 0, "content_index": 0, "delta": text, "logprobs": [],
            });
            (Some(name), frame)
        }
        Format::Converse => {
            let delta = match said {
                Said::Text => json!({"text": text}),
                Said::Reasoning => json!({"reasoningContent": {"text": text}}),
                Said::Arguments => json!({"toolUse": {"input": text}}),
            };
            (None, json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": delta}}))
        }
        Format::Generate => {
            let mut part = json!({"text": text});
            if said == Said::Reasoning {
                part["thought"] = Value::from(true);
            }
            let candidate = json!({"content": {"parts": [part], "role": "model"}, "index": 0});
            let frame = json!({
                "candidates": [candidate], "modelVersion": "the-model", "responseId": "aBcDeFgHiJkLmNoPqRsTuV",
            });
            (None, frame)
        }
    };
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(frame.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Translates a stream that arrives in reads.
fn pass_reads(provider: Format, client: Format, arrival: Arrival, reads: &[Bytes]) {
    let mut exchange = translation::translated_from(provider, client, arrival);
    for piece in reads {
        black_box(exchange.feed(piece.clone()).unwrap());
    }
    black_box(exchange.finish().unwrap());
}

/// Texts of the frames that compare the framings: a token, and several that the provider sends at once.
const SAME_TEXT: [(&str, usize); 2] = [("word", 1), ("sentence", 150)];

/// Measures streams of Bedrock in their own framing, with its checksums. Returns a line for each client format: the
/// cost of a frame, that of the other providers' frames to the same client on average, and the ratio.
///
/// The frames of all providers have the same text. The frames above have the same size: there, a frame of Bedrock has up
/// to twenty times the text of one with a longer envelope, and the ratio would compare the lengths of texts.
fn event_streams(criterion: &mut Criterion) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, size) in SAME_TEXT {
        for client in Format::ALL.into_iter().filter(|client| *client != Format::Converse) {
            let mut costs = Vec::new();
            for provider in Format::ALL.into_iter().filter(|provider| *provider != client) {
                let texts = translation::filled_text(provider, FRAMES, Fill::Text(size));
                let (name, arrival, whole) = match provider {
                    Format::Converse => {
                        let messages = texts.iter().flat_map(|frame| translation::event_message(frame));
                        ("bedrock", Arrival::EventStream, messages.collect::<Vec<u8>>())
                    }
                    _ => (provider.name(), Arrival::Events, texts.concat().into_bytes()),
                };
                let whole = Bytes::from(whole);
                let cut = |at: usize| whole.slice(at..whole.len().min(at + READ));
                let reads: Vec<Bytes> = (0..whole.len()).step_by(READ).map(cut).collect();
                let mut subject =
                    Subject::new(criterion, format!("{name}-{client} {kind}"), whole.len(), texts.len());
                subject.case("reads", || pass_reads(provider, client, arrival, &reads));
                costs.extend(subject.nanoseconds("reads").map(|each| (provider, each)));
            }
            let (bedrock, others): (Vec<_>, Vec<_>) =
                costs.into_iter().partition(|(provider, _)| *provider == Format::Converse);
            let Some((_, each)) = bedrock.first() else { continue };
            let others = others.iter().map(|(_, each)| each).sum::<f64>() / others.len() as f64;
            lines.push(format!(
                "bedrock-{client} {kind}: {each:.0} ns a frame, others {others:.0} ns, ratio {:.2}",
                each / others
            ));
        }
    }
    lines
}

/// Measures the translation of a request between all pairs of formats, beside a copy of the body and a twin that parses
/// it into a tree and serializes the tree. The baselines depend on the client's format only, but are measured beside
/// each pair, so that both see the same machine. Returns the lines of the summary.
fn bodies(criterion: &mut Criterion, kind: &str, make: impl Fn(Format) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let mut place = Vec::with_capacity(1 << 21);
    for (provider, client) in translation::pairs() {
        let body = JsonText::from(make(client));
        let mut subject = Subject::new(criterion, format!("{client}-{provider} {kind}"), body.len(), 1);
        subject.case("request", || translation::translate(client, provider, &body));
        subject.case("copy", || copy(std::slice::from_ref(body.as_bytes()), &mut place));
        subject.case("trees", || {
            let value: Value = serde_json::from_str(&body).unwrap();
            value.to_string()
        });
        lines.extend(subject.lines());
    }
    lines
}

fn main() {
    let mut criterion = criterion(100, 300);
    let mut summary = Vec::new();
    let mut place = Vec::with_capacity(1 << 21);
    for (kind, make) in [("text", translation::text as fn(_, _) -> _), ("realistic", translation::realistic)]
    {
        for (provider, client) in translation::pairs() {
            let texts: Vec<String> = make(provider, FRAMES);
            let frames = translation::shared(&texts);
            let whole = Bytes::from(texts.concat());
            let reads: Vec<Bytes> = (0..whole.len())
                .step_by(READ)
                .map(|at| whole.slice(at..whole.len().min(at + READ)))
                .collect();
            let name = format!("{provider}-{client} {kind}");
            let mut subject = Subject::new(&mut criterion, name, whole.len(), frames.len());
            subject.case("frames", || pass(provider, client, &frames));
            subject.case("reads", || pass(provider, client, &reads));
            subject.case("copy", || copy(&frames, &mut place));
            subject.case("trees", || pass_as_trees(provider, client, &frames, &mut place));
            summary.extend(subject.lines());
        }
    }
    let event_streams = event_streams(&mut criterion);
    for (kind, make) in [("turns", requests::conversation as fn(_) -> _), ("image", requests::image)] {
        summary.extend(bodies(&mut criterion, kind, make));
    }
    for (kind, size) in requests::AGENT_SIZES {
        summary.extend(bodies(&mut criterion, kind, |client| requests::agent(client, size)));
    }
    criterion.final_summary();
    print_summary(&summary);
    for line in event_streams {
        println!("{line}");
    }
}
