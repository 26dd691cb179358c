//! Recorded streams of Claude through Bedrock's InvokeModel: the events pass byte for byte, and make a complete stream of
//! the messages format.

use std::path::PathBuf;

use bytes::Bytes;
use model_gateway::framing::event_stream::{EventMessage, EventStreamSplitter};
use model_gateway::translate::Verbatim;
use model_gateway::translate::invoke_stream::InvokeStream;
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::wire::Api;
use serde_json::Value;

use crate::recording::{find, folder};

const LIMIT: usize = 64 << 20;

/// Returns the names and bytes of the recorded streams of Claude; none if there are no recordings.
fn recordings() -> Vec<(String, Bytes)> {
    let beside = folder().with_file_name("captures-bedrock");
    let root = std::env::var_os("GATEWAY_CAPTURES_BEDROCK").map_or(beside, PathBuf::from);
    let folder = root.join("bedrock-invoke-stream");
    let mut files = Vec::new();
    if folder.is_dir() {
        find(&folder, &mut files);
    }
    files.sort();
    let each = |file: PathBuf| {
        let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let base64 = value["response"]["eventstream"]["base64"].as_str()?;
        let is_claude = value["request"]["body"]["anthropic_version"].is_string();
        let stream = base64_simd::STANDARD.decode_to_vec(base64).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (is_claude && value["response"]["status"] == 200).then(|| (name, stream.into()))
    };
    files.into_iter().filter_map(each).collect()
}

/// Returns the texts of the events, read by other means.
fn events(stream: &Bytes) -> Vec<String> {
    let (mut splitter, mut from, mut events) = (EventStreamSplitter::default(), 0, Vec::new());
    while let Some(end) = splitter.next_boundary(stream, from) {
        let message = EventMessage::parse(&stream[from..end]).unwrap();
        let payload: Value = serde_json::from_slice(message.payload()).unwrap();
        if let Some(bytes) = payload["bytes"].as_str() {
            events.push(String::from_utf8(base64_simd::STANDARD.decode_to_vec(bytes).unwrap()).unwrap());
        }
        from = end;
    }
    events
}

#[test]
fn recorded_invoke_stream_passes_event_by_event() {
    let recordings = recordings();
    assert!(recordings.is_empty() || recordings.len() > 5, "{} streams", recordings.len());
    for (name, stream) in recordings {
        for step in [usize::MAX, 1, 61, 1_021] {
            if step == 1 && stream.len() > 48 << 10 {
                continue;
            }
            let mut reader = InvokeStream::new(LIMIT);
            let mut exchange = Verbatim::new(Api::Messages, Arrival::Events, Changes::default(), LIMIT);
            let (mut text, mut passed) = (Vec::new(), Vec::new());
            for piece in stream.chunks(step.min(stream.len())) {
                let out = reader.feed(&Bytes::copy_from_slice(piece)).unwrap();
                text.extend_from_slice(&out);
                if !out.is_empty() {
                    passed.extend_from_slice(&exchange.feed(out).unwrap());
                }
            }
            passed.extend_from_slice(&exchange.finish().unwrap());
            assert_eq!(text, passed, "{name}");
            let text = String::from_utf8(text).unwrap();
            let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            let events = events(&stream);
            assert_eq!(data.len(), events.len(), "{name}");
            for (data, event) in data.iter().zip(&events) {
                if event.contains("\"amazon-bedrock-") {
                    let mut event: Value = serde_json::from_str(event).unwrap();
                    event.as_object_mut().unwrap().retain(|key, _| !key.starts_with("amazon-bedrock-"));
                    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), event, "{name}");
                } else {
                    assert_eq!(data, event, "{name}");
                }
            }
        }
    }
}
