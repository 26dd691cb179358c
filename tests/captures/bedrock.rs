//! Recorded Converse traffic of Bedrock: passed unchanged, and translated in all pairs of formats.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{Dialect, Effort, Thinking};
use model_gateway::error::ErrorKind;
use model_gateway::framing::event_stream::EventMessage;
use model_gateway::json::EscapedString;
use model_gateway::translate::translated::Route;
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::translate::{
    Outgoing, Restore, StreamError, TranslateRequest, Translated, Verbatim, outgoing,
};
use model_gateway::wire::codec::ReplyOptions;
use model_gateway::wire::request::BodyReader;
use model_gateway::wire::{Api, Format};
use serde_json::{Map, Value, json};

use crate::recording::{find, folder};

const LIMIT: usize = 64 << 20;

/// Recorded exchange.
struct Recorded {
    name: String,
    request: Value,
    status: u64,
    /// Document; `Null` for a stream.
    body: Value,
    stream: Bytes,
}

/// Returns the recorded exchanges of Converse; none if there are no recordings.
fn recordings() -> Vec<Recorded> {
    let beside = folder().with_file_name("captures-bedrock");
    let root = std::env::var_os("GATEWAY_CAPTURES_BEDROCK").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    for api in ["bedrock-converse", "bedrock-converse-stream"] {
        let folder = root.join(api);
        if folder.is_dir() {
            find(&folder, &mut files);
        }
    }
    files.sort();
    let each = |file: PathBuf| {
        let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let base64 = value["response"]["eventstream"]["base64"].as_str().unwrap_or_default().to_owned();
        Recorded {
            name: file.file_name().unwrap().to_string_lossy().into_owned(),
            request: value["request"]["body"].take(),
            status: value["response"]["status"].as_u64().unwrap_or(200),
            body: value["response"]["body"].take(),
            stream: base64_simd::STANDARD.decode_to_vec(base64).unwrap().into(),
        }
    };
    files.into_iter().map(each).collect()
}

fn others() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Converse)
}

fn dialect(format: Format) -> Dialect<'static> {
    let effort = ReasoningSupport::efforts(Effort::Minimal, Effort::Max, true);
    let budget = ReasoningSupport::Budget { min: 1_024, max: 128_000, off: true };
    Dialect {
        reasoning: if matches!(format, Format::Chat | Format::Responses) { effort } else { budget },
        prefill: true,
        reasoning_replay: true,
        extensions: if format == Format::Converse { &["audio", "top_k", "video"] } else { &[] },

        ..Dialect::plain("model-1", "provider")
    }
}

fn request(from: Format, to: Format, body: &str) -> Result<Outgoing, model_gateway::translate::EncodeError> {
    let ask = TranslateRequest {
        client: from,
        provider: to,
        stream: false,
        array: false,
        thinking: Thinking::Unset,
        dialect: &dialect(to),
        model: &EscapedString::from("model-1"),
        id: "req_1",
        seed: "req_1",
        now: 1_700_000_000,
    };
    outgoing(&body.into(), &ask)
}

fn translated(client: Format, arrival: Arrival, stream: bool) -> Translated {
    let reply = ReplyOptions {
        model: EscapedString::from("model-1"),
        request: "req_1".into(),
        seed: "req_1".into(),
        created: 1_700_000_000,
        usage_wanted: true,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    };
    let route = Route { client, provider: Format::Converse, stream };
    Translated::new(&route, arrival, Arc::new(reply), Restore::default(), LIMIT)
}

/// Feeds a stream in pieces. Returns the output and the outcome.
fn pass(translated: &mut Translated, text: &[u8], size: usize) -> (Vec<u8>, Result<(), StreamError>) {
    let mut out = Vec::new();
    let mut feed = || -> Result<(), StreamError> {
        for piece in text.chunks(size) {
            out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece))?);
        }
        out.extend_from_slice(&translated.finish()?);
        Ok(())
    };
    let ended = feed();
    if ended.is_err() {
        out.extend_from_slice(&translated.take_ready());
    }
    (out, ended)
}

/// Splits an event stream into its events: name, payload and end in bytes.
fn events(mut stream: &[u8]) -> Vec<(String, Value, usize)> {
    let mut events = Vec::new();
    let mut at = 0;
    while stream.len() >= 4 {
        let length = u32::from_be_bytes(stream[..4].try_into().unwrap()) as usize;
        let (frame, rest) = stream.split_at(length);
        let message = EventMessage::parse(frame).unwrap();
        let name = message.text(":event-type").or(message.text(":exception-type")).unwrap().to_owned();
        at += length;
        events.push((name, serde_json::from_slice(message.payload()).unwrap(), at));
        stream = rest;
    }
    assert!(stream.is_empty());
    events
}

/// What a response says: text, reasoning, calls with their input, stop reason and tokens.
#[derive(Debug, Default, PartialEq)]
struct Said {
    text: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
    stop: String,
    usage: [u64; 4],
}

fn tokens(usage: &Value) -> [u64; 4] {
    ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"]
        .map(|name| usage[name].as_u64().unwrap_or(0))
}

fn input(text: &str) -> Value {
    if text.trim().is_empty() { json!({}) } else { serde_json::from_str(text).unwrap() }
}

impl Said {
    fn of_document(body: &Value) -> Said {
        let mut said = Said::default();
        for block in body["output"]["message"]["content"].as_array().into_iter().flatten() {
            said.text += block["text"].as_str().unwrap_or_default();
            for part in block["citationsContent"]["content"].as_array().into_iter().flatten() {
                said.text += part["text"].as_str().unwrap_or_default();
            }
            let reasoning = &block["reasoningContent"]["reasoningText"]["text"];
            said.reasoning += reasoning.as_str().unwrap_or_default();
            let call = &block["toolUse"];
            if call.is_object() && call["type"] != "server_tool_use" {
                said.calls.push((call["name"].as_str().unwrap().to_owned(), call["input"].clone()));
            }
        }
        said.stop = body["stopReason"].as_str().unwrap_or_default().to_owned();
        said.usage = tokens(&body["usage"]);
        said
    }

    fn of_stream(stream: &[u8]) -> Said {
        let mut said = Said::default();
        let mut calls: Map<String, Value> = Map::new();
        for (name, payload, _) in events(stream) {
            let index = payload["contentBlockIndex"].to_string();
            match name.as_str() {
                "contentBlockStart" => {
                    let call = &payload["start"]["toolUse"];
                    if call.is_object() && call["type"] != "server_tool_use" {
                        calls.insert(index, json!({"name": call["name"], "input": ""}));
                    }
                }
                "contentBlockDelta" => {
                    let delta = &payload["delta"];
                    said.text += delta["text"].as_str().unwrap_or_default();
                    said.reasoning += delta["reasoningContent"]["text"].as_str().unwrap_or_default();
                    if let (Some(part), Some(call)) =
                        (delta["toolUse"]["input"].as_str(), calls.get_mut(&index))
                    {
                        call["input"] = format!("{}{part}", call["input"].as_str().unwrap()).into();
                    }
                }
                "messageStop" => said.stop = payload["stopReason"].as_str().unwrap().to_owned(),
                "metadata" => said.usage = tokens(&payload["usage"]),
                _ => {}
            }
        }
        said.calls = calls
            .values()
            .map(|call| (call["name"].as_str().unwrap().to_owned(), input(call["input"].as_str().unwrap())))
            .collect();
        said
    }

    /// What a chat completion says.
    fn of_chat(body: &Value) -> Said {
        let message = &body["choices"][0]["message"];
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let usage = &body["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        let written = usage["prompt_tokens_details"]["cache_write_tokens"].as_u64().unwrap_or(0);
        let of = |value: &Value| value.as_u64().unwrap_or(0);
        Said {
            text: message["content"].as_str().unwrap_or_default().to_owned(),
            reasoning: message["reasoning_content"].as_str().unwrap_or_default().to_owned(),
            calls: calls
                .map(|call| {
                    let function = &call["function"];
                    let arguments = input(function["arguments"].as_str().unwrap());
                    (function["name"].as_str().unwrap().to_owned(), arguments)
                })
                .collect(),
            stop: String::new(),
            usage: [of(&usage["prompt_tokens"]), of(&usage["completion_tokens"]), cached, written],
        }
    }

    /// The same, with the stop reasons of the hub: it does not tell a guardrail from another filter, and a response
    /// that calls no tool of the client does not stop for one.
    fn written_anew(&self) -> Said {
        let stop = match self.stop.as_str() {
            "guardrail_intervened" => "content_filtered",
            "tool_use" if self.calls.is_empty() => "end_turn",
            stop => stop,
        };
        Said { stop: stop.to_owned(), ..self.as_chat().with_tokens(self.usage) }
    }

    fn with_tokens(self, usage: [u64; 4]) -> Said {
        Said { usage, ..self }
    }

    /// The same, with the tokens as chat completions count them, and without the stop reason.
    fn as_chat(&self) -> Said {
        let [input, output, read, written] = self.usage;
        Said {
            text: self.text.clone(),
            reasoning: self.reasoning.clone(),
            calls: self.calls.clone(),
            stop: String::new(),
            usage: [input + read + written, output, read, written],
        }
    }
}

#[test]
fn recorded_bedrock_response_is_translated_to_every_format() {
    let mut read = 0;
    for recorded in recordings() {
        let Recorded { name, body, status, .. } = &recorded;
        if *status != 200 || !body["output"].is_object() {
            continue;
        }
        read += 1;
        let text = Bytes::from(serde_json::to_vec(body).unwrap());
        let mut verbatim = Verbatim::new(Api::Converse, Arrival::Whole, Changes::default(), LIMIT);
        assert_eq!(verbatim.whole(text.clone()).as_ref(), Ok(&text), "{name}");
        let said = Said::of_document(body);
        let [input, output, cached, written] = said.usage;
        let usage = verbatim.meter().usage();
        assert_eq!(usage.input, Some(input + cached + written), "{name}");
        assert_eq!(usage.output, Some(output), "{name}");
        for client in Format::ALL {
            let document = translated(client, Arrival::Whole, false).whole(text.clone());
            let document: Value = serde_json::from_slice(&document.unwrap()).unwrap();
            match client {
                Format::Converse => assert_eq!(Said::of_document(&document), said.written_anew(), "{name}"),
                Format::Chat => assert_eq!(Said::of_chat(&document), said.as_chat(), "{name}"),
                _ => {}
            }
        }
    }
    assert!(recordings().is_empty() || read > 50, "{read} responses");
}

#[test]
fn recorded_bedrock_stream_is_translated_to_every_format() {
    let mut read = 0;
    for recorded in recordings() {
        let Recorded { name, stream, .. } = &recorded;
        if stream.is_empty() {
            continue;
        }
        read += 1;
        let said = Said::of_stream(stream);
        for size in [usize::MAX, 1, 7, 1_021] {
            let size = size.min(stream.len());
            let mut verbatim = Verbatim::new(Api::Converse, Arrival::EventStream, Changes::default(), LIMIT);
            let mut out = Vec::new();
            for piece in stream.chunks(size) {
                out.extend_from_slice(&verbatim.feed(Bytes::copy_from_slice(piece)).unwrap());
            }
            out.extend_from_slice(&verbatim.finish().unwrap());
            assert!(out == stream[..], "{name}, {size}");
            let [input, output, cached, written] = said.usage;
            let usage = verbatim.meter().usage();
            assert_eq!((usage.input, usage.output), (Some(input + cached + written), Some(output)), "{name}");
            assert_eq!(verbatim.meter().finish(), said.stop, "{name}");
        }
        for client in Format::ALL {
            let (whole, ended) =
                pass(&mut translated(client, Arrival::EventStream, true), stream, stream.len());
            assert_eq!(ended, Ok(()), "{name} to {client}");
            for size in [1, 7, 1_021] {
                let (out, ended) = pass(&mut translated(client, Arrival::EventStream, true), stream, size);
                assert_eq!(ended, Ok(()), "{name} to {client}, {size}");
                assert!(out == whole, "{name} to {client}, {size}");
            }
            if client == Format::Converse {
                assert_eq!(Said::of_stream(&whole), said.written_anew(), "{name}");
            }
            // A client that wants a document gets the same.
            let document = translated(client, Arrival::EventStream, false).whole(stream.clone()).unwrap();
            let document: Value = serde_json::from_slice(&document).unwrap();
            match client {
                Format::Converse => assert_eq!(Said::of_document(&document), said.written_anew(), "{name}"),
                Format::Chat => assert_eq!(Said::of_chat(&document), said.as_chat(), "{name}"),
                _ => {}
            }
        }
    }
    assert!(recordings().is_empty() || read > 20, "{read} streams");
}

#[test]
fn recorded_bedrock_stream_cut_at_any_byte_never_looks_complete() {
    let (mut cuts, mut long) = (0_usize, 0_usize);
    for recorded in recordings() {
        let Recorded { name, stream, .. } = &recorded;
        if stream.is_empty() {
            continue;
        }
        // A cut costs the bytes before it: of the longer streams a few are cut at each byte.
        let is_chosen = stream.len() < 2_000 || (stream.len() < 6_000 && long < 4);
        long += usize::from(is_chosen && stream.len() >= 2_000);
        let events = events(stream);
        let complete = events.iter().find(|(name, ..)| name == "messageStop").unwrap().2;
        // The others have the same events: they are cut around the ends of messages.
        let is_near = |cut: usize| events.iter().any(|(.., end)| end.abs_diff(cut) <= 1);
        let is_tried = |cut: &usize| is_chosen || (stream.len() < 20_000 && is_near(*cut));
        for cut in (0..stream.len()).filter(is_tried) {
            let piece = Bytes::copy_from_slice(&stream[..cut]);
            let mut verbatim = Verbatim::new(Api::Converse, Arrival::EventStream, Changes::default(), LIMIT);
            let passed = verbatim.feed(piece).unwrap();
            let frames = events.iter().rev().find(|(.., end)| *end <= cut).map_or(0, |(.., end)| *end);
            assert_eq!(passed.len(), frames, "{name}, {cut}: whole frames only");
            assert_eq!(verbatim.finish().is_ok(), cut >= complete, "{name}, {cut}");
            for client in Format::ALL {
                let mut translated = translated(client, Arrival::EventStream, true);
                let (_, ended) = pass(&mut translated, &stream[..cut], cut.max(1));
                assert_eq!(ended.is_ok(), cut >= complete, "{name} to {client}, {cut}");
                cuts += 1;
            }
        }
    }
    assert!(recordings().is_empty() || (cuts > 50_000 && long == 4), "{cuts} cuts, {long} long streams");
}

#[test]
fn recorded_bedrock_request_is_translated_to_every_format() {
    let mut carried = 0;
    for recorded in recordings() {
        let Recorded { name, request: body, status, .. } = &recorded;
        if *status != 200 || !body.is_object() {
            continue;
        }
        let text = body.to_string();
        let mut reader = BodyReader::new(Api::Converse, false);
        reader.push(Bytes::from(text.clone())).unwrap();
        let scanned = reader.finish().unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!((scanned.model, scanned.stream), (None, false), "{name}");
        for to in others() {
            match request(Format::Converse, to, &text) {
                Ok(sent) => {
                    let written = &String::from_utf8(sent.text().into()).unwrap();
                    // What is written is a request of its format, and can be translated back.
                    let back = request(to, Format::Converse, written);
                    let back =
                        back.unwrap_or_else(|error| panic!("{name} to {to} and back: {}", error.error));
                    let back: Value = serde_json::from_slice(&back.text()).unwrap();
                    // Documents may have become texts, and texts beside each other one.
                    let found = texts(&back).concat();
                    let mut rest = &*found;
                    for text in texts(body) {
                        let at = rest.find(&*text);
                        let at = at.unwrap_or_else(|| panic!("{name} to {to} and back: {text}"));
                        rest = &rest[at + text.len()..];
                    }
                    carried += 1;
                }
                Err(refused) => {
                    let kind = refused.error.kind;
                    assert_eq!(kind, ErrorKind::Unsupported, "{name} to {to}: {}", refused.error);
                }
            }
        }
        let again = request(Format::Converse, Format::Converse, &text);
        let again = again.unwrap_or_else(|error| panic!("{name}: {}", error.error));
        let again: Value = serde_json::from_slice(&again.text()).unwrap();
        // What a guardrail checks is written as plain text, with a warning.
        if !text.contains("guardContent") {
            assert_eq!(comparable(&again), comparable(body), "{name} written anew");
        }
    }
    assert!(recordings().is_empty() || carried > 200, "{carried} requests");
}

/// The texts of a conversation that every format carries: those of the turns, without those beside tools.
fn texts(body: &Value) -> Vec<String> {
    let blocks = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let turns = blocks(&body["messages"]).into_iter().flat_map(|turn| blocks(&turn["content"]));
    blocks(&body["system"])
        .into_iter()
        .chain(turns)
        .filter_map(|block| block["text"].as_str().map(|text| text.trim().to_owned()))
        .filter(|text| !matches!(text.as_str(), "" | "." | "See the document."))
        .collect()
}

/// A request in the form in which the encoder writes it: without empty lists, and with the texts of its turns.
fn comparable(body: &Value) -> Value {
    let mut written = body.clone();
    let members = written.as_object_mut().unwrap();
    members.insert("messages".to_owned(), texts(body).into());
    members.remove("modelId");
    for value in members.values_mut().filter(|value| value.is_object()) {
        value.as_object_mut().unwrap().retain(|_, value| *value != json!([]));
    }
    members.retain(|_, value| !value.is_null() && ![json!({}), json!([])].contains(value));
    written
}
