//! Recorded streams of Claude through Bedrock's InvokeModel: the events pass byte for byte, make a complete stream of
//! the messages format, and reach clients of InvokeModel unchanged. Requests of such clients become messages requests.

use std::path::PathBuf;

use bytes::Bytes;
use model_gateway::framing::event_stream::{EventMessage, EventStreamSplitter};
use model_gateway::translate::Verbatim;
use model_gateway::translate::invoke_stream::InvokeStream;
use model_gateway::translate::invoke_writer::InvokeWriter;
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::wire::Api;
use model_gateway::wire::codec::RequestClock;
use model_gateway::wire::request::BodyReader;
use serde_json::{Value, json};

use crate::recording::{find, folder};

const LIMIT: usize = 64 << 20;

/// Returns the recordings of Claude in these folders; none if there are no recordings.
fn files(folders: &[&str]) -> Vec<PathBuf> {
    let beside = folder().with_file_name("captures-bedrock");
    let root = std::env::var_os("GATEWAY_CAPTURES_BEDROCK").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    for folder in folders.iter().map(|name| root.join(name)).filter(|folder| folder.is_dir()) {
        find(&folder, &mut files);
    }
    files.sort();
    files
}

/// Returns the names and bytes of the recorded streams of Claude; none if there are no recordings.
fn recordings() -> Vec<(String, Bytes)> {
    let each = |file: PathBuf| {
        let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let base64 = value["response"]["eventstream"]["base64"].as_str()?;
        let is_claude = value["request"]["body"]["anthropic_version"].is_string();
        let stream = base64_simd::STANDARD.decode_to_vec(base64).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (is_claude && value["response"]["status"] == 200).then(|| (name, stream.into()))
    };
    files(&["bedrock-invoke-stream"]).into_iter().filter_map(each).collect()
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

/// Passes a stream as a client of InvokeModel gets it.
fn pass_to_invoke_client(stream: &[u8], step: usize) -> (Vec<u8>, bool) {
    let clock = RequestClock { now: || 0, started: 0 };
    let mut reader = InvokeStream::new(LIMIT).keeping_added();
    let mut exchange = Verbatim::new(Api::Messages, Arrival::Events, Changes::default(), LIMIT);
    let (mut writer, mut out) = (InvokeWriter::new(clock), Vec::new());
    for piece in stream.chunks(step.clamp(1, stream.len().max(1))) {
        let events = reader.feed(&Bytes::copy_from_slice(piece)).unwrap();
        if !events.is_empty() {
            let passed = exchange.feed(events).unwrap();
            out.extend_from_slice(&writer.feed(&passed, &mut || *exchange.meter().usage()));
        }
    }
    let ended = exchange.finish();
    if let Ok(tail) = &ended {
        out.extend_from_slice(&writer.feed(tail, &mut || *exchange.meter().usage()));
    }
    (out, ended.is_ok())
}

#[test]
fn recorded_invoke_stream_reaches_clients_of_invoke_unchanged() {
    for (name, stream) in recordings() {
        for step in [usize::MAX, 61, 1_021] {
            let (out, is_complete) = pass_to_invoke_client(&stream, step);
            assert!(is_complete, "{name}");
            let (sent, got) = (events(&stream), events(&Bytes::from(out)));
            let (last, before) = got.split_last().unwrap();
            assert_eq!(before, &sent[..sent.len() - 1], "{name}");
            // Only recordings without measurements get those of the gateway.
            let has_metrics = sent[sent.len() - 1].contains("invocationMetrics");
            assert_eq!(*last == sent[sent.len() - 1], has_metrics, "{name}: {last}");
        }
    }
}

#[test]
fn recorded_invoke_stream_cut_at_any_byte_never_looks_complete() {
    let mut tried = 0;
    for (name, stream) in recordings() {
        if stream.len() > 6_000 || tried == 4 {
            continue;
        }
        tried += 1;
        let all = events(&stream);
        for cut in 0..stream.len() {
            let (out, is_complete) = pass_to_invoke_client(&stream[..cut], usize::MAX);
            assert!(!is_complete, "{name}, {cut}");
            let got = events(&Bytes::from(out));
            assert_eq!(got, all[..got.len()], "{name}, {cut}: whole events only");
        }
    }
    assert!(recordings().is_empty() || tried > 0, "no stream is short enough");
}

#[test]
fn recorded_invoke_request_becomes_a_messages_request_and_back() {
    let (mut seen, all) = (0, files(&["bedrock-invoke", "bedrock-invoke-stream"]));
    for file in &all {
        let value: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let body = &value["request"]["body"];
        if !body["anthropic_version"].is_string() || !body["messages"].is_array() {
            continue;
        }
        seen += 1;
        let (name, text) = (file.display(), serde_json::to_vec_pretty(body).unwrap());
        for stream in [false, true] {
            let mut reader = BodyReader::invoke("claude", stream);
            text.chunks(61).for_each(|piece| reader.push(Bytes::copy_from_slice(piece)).unwrap());
            let read = reader.finish().unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!((read.model.as_deref(), read.stream), (Some("claude"), stream), "{name}");
            let mut edits: Vec<_> = read.removals(true, Some("anthropic_version")).into_vec();
            edits.extend(read.replace_model("anthropic_version", "bedrock-2023-05-31"));
            edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
            let edited = read.text.edited(&edits).into_contiguous();
            let sent: Value =
                serde_json::from_slice(&edited).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut expected = body.clone();
            expected["anthropic_version"] = json!("bedrock-2023-05-31");
            expected.as_object_mut().unwrap().remove("anthropic_beta");
            assert_eq!(sent, expected, "{name}");
        }
    }
    assert!(all.is_empty() || seen > 12, "{seen} requests");
}
