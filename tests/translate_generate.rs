//! Recorded traffic of generateContent, through its codec: the decoded content equals that of a plain JSON parser, and
//! encoding a request restores it.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the tests print SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "captures/recording.rs"]
mod recording;

use model_gateway::canonical::answer::{AnswerBlockKind, FinishOwned};
use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{
    Answer, Block, Dialect, Effort, Event, Grammar, MediaSource, Request, Thinking, Turn,
};
use model_gateway::json::{JsonStr, RopeBuilder};
use model_gateway::wire::codec::LossNotes;
use model_gateway::wire::generate::{answer, request, stream};
use model_gateway::wire::{Api, Format};
use recording::Recording;
use serde_json::{Map, Value, json};

/// Content of a response as a client receives it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    thoughts: String,
    calls: Vec<(String, Value)>,
    media: Vec<String>,
    opaque: usize,
    signatures: Vec<String>,
    /// Input, output and reasoning tokens.
    usage: [Option<u64>; 3],
    /// Finish reason in the format's terms; `None` if the response is not complete.
    finish: Option<String>,
    cited: Vec<String>,
}

/// Parses frames with a plain JSON parser.
fn naive(frames: &[Value]) -> Seen {
    let mut seen = Seen::default();
    let mut grounding = Value::Null;
    let mut partial: Option<Value> = None;
    for frame in frames {
        for part in frame["candidates"][0]["content"]["parts"].as_array().unwrap_or(&Vec::new()) {
            let signature = part["thoughtSignature"].as_str().map(str::to_owned);
            let own = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"];
            if own.iter().any(|name| part.get(name).is_some()) {
                seen.opaque += 1;
                continue;
            }
            seen.signatures.extend(signature);
            if let Some(call) = part.get("functionCall") {
                if let Some(name) = call["name"].as_str() {
                    seen.calls
                        .push((name.to_owned(), call.get("args").cloned().unwrap_or_else(|| json!({}))));
                    partial = call["willContinue"].as_bool().filter(|goes_on| *goes_on).map(|_| json!({}));
                }
                for argument in call["partialArgs"].as_array().unwrap_or(&Vec::new()) {
                    set(partial.as_mut().unwrap(), argument);
                }
                if let Some(args) = &partial {
                    seen.calls.last_mut().unwrap().1 = args.clone();
                }
            } else if let Some(data) = part["inlineData"]["data"].as_str() {
                seen.media.push(data.to_owned());
            } else if part["thought"] == true {
                seen.thoughts += part["text"].as_str().unwrap_or_default();
            } else {
                seen.text += part["text"].as_str().unwrap_or_default();
            }
        }
        let candidate = &frame["candidates"][0];
        if let Some(reason) = candidate.get("finishReason") {
            let words = [json!("STOP"), json!("MAX_TOKENS")];
            let reason =
                reason.as_u64().map_or(reason, |number| &words[usize::try_from(number).unwrap() - 1]);
            seen.finish = reason.as_str().map(str::to_owned);
        }
        if frame["promptFeedback"].get("blockReason").is_some() {
            seen.finish = Some("SAFETY".to_owned());
        }
        if candidate["groundingMetadata"].as_object().is_some_and(|metadata| !metadata.is_empty()) {
            grounding = candidate["groundingMetadata"].clone();
        }
        let usage = &frame["usageMetadata"];
        let count = |name: &str| usage[name].as_u64();
        if let Some(prompt) = count("promptTokenCount") {
            seen.usage[0] = Some(prompt + count("toolUsePromptTokenCount").unwrap_or(0));
        }
        if let Some(thoughts) = count("thoughtsTokenCount") {
            seen.usage[2] = Some(thoughts);
        }
        if count("candidatesTokenCount").or(count("thoughtsTokenCount")).is_some() {
            let output =
                count("candidatesTokenCount").unwrap_or(0) + count("thoughtsTokenCount").unwrap_or(0);
            seen.usage[1] = Some(output);
        }
    }
    for support in grounding["groundingSupports"].as_array().unwrap_or(&Vec::new()) {
        let segment = &support["segment"];
        // Some recordings have quotes that were shortened afterwards: positions then lie behind the text or inside a
        // character.
        let at = |name: &str| {
            let byte = usize::try_from(segment[name].as_u64().unwrap_or(0)).unwrap();
            (0..=byte.min(seen.text.len())).rev().find(|&byte| seen.text.is_char_boundary(byte)).unwrap()
        };
        let words = seen.text[at("startIndex")..at("endIndex")].to_owned();
        for index in support["groundingChunkIndices"].as_array().unwrap() {
            let chunk = &grounding["groundingChunks"][usize::try_from(index.as_u64().unwrap()).unwrap()];
            if let Some(uri) = chunk["web"]["uri"].as_str() {
                seen.cited.push(format!("{uri} {words}"));
            }
        }
    }
    seen
}

/// Applies an element of `partialArgs` at its path.
fn set(args: &mut Value, argument: &Value) {
    let path =
        argument["jsonPath"].as_str().unwrap().trim_start_matches("$.").replace('[', ".").replace(']', "");
    let mut node = args;
    for step in path.split('.') {
        node = match step.parse::<usize>() {
            Ok(index) => {
                if !node.is_array() {
                    *node = json!([]);
                }
                let items = node.as_array_mut().unwrap();
                while items.len() <= index {
                    items.push(Value::Null);
                }
                &mut items[index]
            }
            Err(_) => {
                if !node.is_object() {
                    *node = Value::Object(Map::new());
                }
                node.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
            }
        };
    }
    *node = match (&argument["stringValue"], &node) {
        (Value::String(more), Value::String(text)) => json!(format!("{text}{more}")),
        (Value::String(more), _) => json!(more),
        _ => argument["numberValue"].clone(),
    };
}

fn plain(escaped: &str) -> String {
    serde_json::from_str(&format!("\"{escaped}\"")).unwrap()
}

/// Returns the content of a decoded response.
fn seen(answer: &Answer) -> Seen {
    let mut seen = Seen::default();
    for block in answer.blocks_of(0) {
        if !block.signature.is_empty() {
            seen.signatures.push(plain(&block.signature));
        }
        match &block.kind {
            AnswerBlockKind::Text => seen.text += &plain(&block.text),
            AnswerBlockKind::Reasoning => seen.thoughts += &plain(&block.text),
            AnswerBlockKind::ToolUse { name, .. } => {
                let object = block.object.as_deref().unwrap_or("{}");
                seen.calls.push((plain(name), serde_json::from_str(object).unwrap()));
            }
            AnswerBlockKind::Media { .. } => seen.media.push(plain(&block.text)),
            AnswerBlockKind::Opaque { raw, .. } => {
                assert!(serde_json::from_str::<Value>(raw).is_ok());
                seen.opaque += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    seen.usage = [answer.usage.input, answer.usage.output, answer.usage.reasoning];
    let called = !seen.calls.is_empty();
    seen.finish = answer.finish_of(0).map(|finish| match finish {
        FinishOwned::ToolUse => {
            assert!(called);
            "STOP".to_owned()
        }
        FinishOwned::Stop => {
            assert!(!called);
            "STOP".to_owned()
        }
        FinishOwned::Length => "MAX_TOKENS".to_owned(),
        FinishOwned::ContentFilter => "SAFETY".to_owned(),
        FinishOwned::Other(word) => word.clone(),
        other => panic!("{other:?}"),
    });
    for citation in answer.blocks_of(0).flat_map(|block| &block.citations) {
        let words = citation.span.map_or(String::new(), |(start, end)| {
            let (start, end) = (usize::try_from(start).unwrap(), usize::try_from(end).unwrap());
            seen.text.chars().take(end).skip(start).collect()
        });
        seen.cited.push(format!("{} {words}", plain(&citation.url)));
    }
    seen
}

fn recordings() -> Vec<Recording> {
    let all = recording::all().unwrap_or_default();
    all.into_iter().filter(|recording| recording.api == Api::Generate).collect()
}

/// Returns the frames of a stream, as text.
fn frames(recording: &Recording) -> Option<Vec<String>> {
    match &recording.answer {
        recording::Answer::Events(text) => {
            let text = String::from_utf8(text.to_vec()).unwrap().replace("\r\n", "\n");
            let data = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data:"));
            Some(data.map(str::to_owned).collect())
        }
        recording::Answer::Array(text) => {
            let elements: Vec<Value> = serde_json::from_slice(text).unwrap();
            Some(elements.iter().map(Value::to_string).collect())
        }
        recording::Answer::Whole(_) => None,
    }
}

fn is_error(frames: &[Value]) -> bool {
    frames.iter().any(|frame| !frame["error"].is_null())
}

/// Maps finish reasons that the codec treats as a content filter to one, and that of a call to that of a normal end.
fn filtered(seen: &mut Seen) {
    let filters = ["RECITATION", "MODEL_ARMOR", "PROHIBITED_CONTENT"];
    if seen.finish.as_deref().is_some_and(|finish| filters.contains(&finish)) {
        seen.finish = Some("SAFETY".to_owned());
    }
    // A call that the request did not permit is one nevertheless.
    if seen.finish.as_deref() == Some("UNEXPECTED_TOOL_CALL") && !seen.calls.is_empty() {
        seen.finish = Some("STOP".to_owned());
    }
}

/// Compares the content of a response with the expected content. Citations without any text are ignored.
fn compare(name: &str, mut expected: Seen, got: &Seen, faults: &mut Vec<String>) {
    filtered(&mut expected);
    if expected.text.is_empty() {
        expected.cited.clear();
    }
    if *got != expected {
        faults.push(format!("{name}\n  expected {expected:?}\n  got      {got:?}"));
    }
}

#[test]
fn generate_recorded_stream_decodes_like_the_plain_parser() {
    let (mut faults, mut read, all) = (Vec::new(), 0, recordings());
    for recording in &all {
        let Some(frames) = frames(recording) else { continue };
        let values: Vec<Value> = frames.iter().filter_map(|frame| serde_json::from_str(frame).ok()).collect();
        let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
        let mut sink = |event: Event<'_>| {
            grammar.check(&event).unwrap_or_else(|wrong| panic!("{}: {wrong}: {event:?}", recording.name));
            answer.take(&event);
        };
        let mut decoder = stream::Decoder::new(&recording.name);
        let broken = frames.iter().filter(|frame| decoder.frame(frame, &mut sink).is_err()).count();
        assert_eq!(broken, frames.len() - values.len(), "{}", recording.name);
        let end = decoder.finish(&mut sink);
        read += 1;
        if is_error(&values) {
            assert!(answer.error.is_some() && !answer.complete, "{}", recording.name);
            continue;
        }
        let expected = naive(&values);
        assert_eq!(end.is_ok(), expected.finish.is_some(), "{}", recording.name);
        if end.is_ok() {
            compare(&recording.name, expected, &seen(&answer), &mut faults);
        }
    }
    assert!(all.is_empty() || read > 20, "only {read} streams were read");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn generate_recorded_response_decodes_like_the_plain_parser() {
    let (mut faults, mut read, all) = (Vec::new(), 0, recordings());
    for recording in &all {
        let recording::Answer::Whole(value) = &recording.answer else { continue };
        if !value.is_object() {
            continue;
        }
        for text in [serde_json::to_string(value).unwrap(), serde_json::to_string_pretty(value).unwrap()] {
            let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
            let done = answer::decode(&text, &recording.name, &mut |event| {
                grammar
                    .check(&event)
                    .unwrap_or_else(|wrong| panic!("{}: {wrong}: {event:?}", recording.name));
                answer.take(&event);
            });
            done.unwrap_or_else(|error| panic!("{}: {error}", recording.name));
            read += 1;
            if is_error(std::slice::from_ref(value)) {
                assert!(answer.error.is_some() && !answer.complete, "{}", recording.name);
                continue;
            }
            let mut expected = naive(std::slice::from_ref(value));
            expected.finish.get_or_insert_with(|| "FINISH_REASON_UNSPECIFIED".to_owned());
            compare(&recording.name, expected, &seen(&answer), &mut faults);
        }
    }
    assert!(all.is_empty() || read > 50, "only {read} answers were read");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the profile of a model that supports everything that this request uses.
fn dialect(request: &Request<'_>) -> Dialect<'static> {
    Dialect {
        reasoning: match request.thinking {
            Thinking::Effort(_) => ReasoningSupport::efforts(Effort::Minimal, Effort::Max, true),
            _ => ReasoningSupport::Budget { min: 0, max: u64::MAX, off: true },
        },
        signed_calls: true,
        developer_role: true,
        max_completion_tokens: true,
        system_in_middle: false,
        prefill: true,
        reasoning_replay: true,
        extensions: &["*"],
        ..Dialect::plain("gemini-3-pro", "google")
    }
}

/// Normalizes an uploaded file: its type is not in the request, only the provider knows it.
fn uploaded(block: &mut Block<'_>) {
    if let Block::Image { source, .. } | Block::Audio { source } | Block::Video { source } = block
        && let MediaSource::Id { .. } = source
    {
        *block = Block::File { source: *source, name: JsonStr::default(), cache: None };
    }
}

/// Normalizes a request: neighboring turns of one role are joined, except tool results, and the placeholder for calls
/// without a signature is removed.
fn settled<'a>(mut request: Request<'a>) -> Request<'a> {
    const SKIP: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";
    let mut turns: Vec<Turn<'a>> = Vec::new();
    let results = |turn: &Turn<'_>| turn.blocks.iter().any(|block| matches!(block, Block::ToolResult { .. }));
    for mut turn in request.turns {
        for block in &mut turn.blocks {
            match block {
                Block::ToolUse { signature: seal, .. } => {
                    *seal = seal.take().filter(|seal| seal.text != SKIP)
                }
                Block::ToolResult { content, .. } => content.iter_mut().for_each(uploaded),
                block => uploaded(block),
            }
        }
        match turns.last_mut() {
            Some(last) if last.role == turn.role && results(last) == results(&turn) => {
                last.blocks.extend(turn.blocks);
            }
            _ => turns.push(turn),
        }
    }
    request.turns = turns;
    // Members that pass unchanged are written in one order.
    request.extra.sort_by_key(|extra| extra.name);
    request
}

#[test]
fn generate_recorded_request_survives_encoding() {
    let (mut read, all) = (0, recordings());
    for recording in &all {
        let Some(body) = &recording.request else { continue };
        let name = &recording.name;
        let text = serde_json::to_string(body).unwrap();
        let decoded = match request::decode(&text) {
            Ok(decoded) => decoded,
            Err(error) => {
                // The provider refused what the codec refuses.
                let recording::Answer::Whole(answer) = &recording.answer else { panic!("{name}: {error}") };
                assert!(!answer["error"].is_null(), "{name}: {error}");
                continue;
            }
        };
        let mut notes = LossNotes::new(Format::Generate, Format::Generate);
        let mut out = RopeBuilder::default();
        request::encode(&decoded, &dialect(&decoded), &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        let again = std::str::from_utf8(&out).unwrap();
        serde_json::from_str::<Value>(again).unwrap();
        assert!(notes.losses().is_empty(), "{name}: {:?}", notes.losses());
        assert_eq!(notes.take_refusal(), None, "{name}");
        let again = request::decode(again).unwrap_or_else(|error| panic!("{name}: {error}\n{again}"));
        assert_eq!(settled(again), settled(decoded), "{name}");
        read += 1;
    }
    assert!(all.is_empty() || read > 100, "only {read} requests were read");
}
