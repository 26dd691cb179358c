//! Recordings: files of one exchange each.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model_gateway::wire::Api;
use serde_json::Value;

/// Recorded response.
pub(crate) enum Answer {
    /// Server-sent events.
    Events(Bytes),
    /// One JSON array, streamed.
    Array(Bytes),
    /// One JSON document.
    Whole(Value),
}

/// Recorded exchange.
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) api: Api,
    pub(crate) request: Option<Value>,
    pub(crate) answer: Answer,
}

/// Returns all recordings of APIs that the verbatim exchange supports. `None` if there are none.
pub(crate) fn all() -> Option<Vec<Recording>> {
    let folder = folder();
    if !folder.is_dir() {
        skipped("no recorded traffic here (GATEWAY_CAPTURES names its folder)");
        return None;
    }
    let mut files = Vec::new();
    find(&folder, &mut files);
    files.sort();
    let mut recordings: Vec<Recording> = files.iter().filter_map(|file| read(&folder, file)).collect();
    recordings.extend(of_bedrock(&folder));
    if recordings.is_empty() {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "{} holds no recordings, and GATEWAY_REQUIRE_ALL=1", folder.display());
        skipped(&format!("{} holds no recordings", folder.display()));
        return None;
    }
    Some(recordings)
}

/// Returns the recordings of Amazon Bedrock whose format is one of other providers too: answers of Claude through
/// InvokeModel, and OpenAI's formats.
fn of_bedrock(folder: &Path) -> Vec<Recording> {
    let beside = folder.with_file_name("captures-bedrock");
    let root = std::env::var_os("GATEWAY_CAPTURES_BEDROCK").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    for folder in ["bedrock-invoke", "bedrock-openai"].map(|name| root.join(name)) {
        if folder.is_dir() {
            find(&folder, &mut files);
        }
    }
    files.sort();
    let each = |file: PathBuf| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let request = value["request"]["body"].take();
        let body = value["response"]["body"].take();
        let path = value["request"]["path"].as_str().unwrap_or_default();
        let api = match () {
            () if body["type"] == "message" => Api::Messages,
            () if path.ends_with("/responses") => Api::Responses,
            () if path.ends_with("/chat/completions") => Api::Chat,
            () => return None,
        };
        // The model of InvokeModel is in the path: its requests are read in `invoke`.
        let request = Some(request).filter(|request| request["model"].is_string());
        body.is_object().then_some(Recording { name, api, request, answer: Answer::Whole(body) })
    };
    files.into_iter().filter_map(each).collect()
}

/// Returns the folder of the recordings, which may be missing.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("GATEWAY_CAPTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/captures"), PathBuf::from)
}

/// Writes to standard error directly: the test harness captures the output of eprintln.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

pub(crate) fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
}

fn read(folder: &Path, file: &Path) -> Option<Recording> {
    let name = file.strip_prefix(folder).unwrap().display().to_string();
    let mut value: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let api = match value["api"].as_str()? {
        "anthropic-messages" => Api::Messages,
        "gemini-embeddings" => Api::EmbedContent,
        "gemini-generate" => Api::Generate,
        "openai-chat" => Api::Chat,
        "openai-embeddings" => Api::Embeddings,
        "openai-responses" => Api::Responses,
        _ => return None,
    };
    let request = Some(value["request"]["body"].take()).filter(Value::is_object);
    let response = value["response"].as_object_mut()?;
    let answer = if let Some(Value::String(events)) = response.remove("sse") {
        // Some providers send a plain document with the content type of a stream.
        match serde_json::from_str::<Value>(&events) {
            Ok(whole) => Answer::Whole(whole),
            Err(_) => Answer::Events(Bytes::from(events)),
        }
    } else if let Some(Value::Array(chunks)) = response.remove("chunks") {
        Answer::Events(framed(api, &chunks))
    } else {
        match response.remove("body")? {
            array @ Value::Array(_) => Answer::Array(Bytes::from(serde_json::to_vec_pretty(&array).unwrap())),
            body => Answer::Whole(body),
        }
    };
    Some(Recording { name, api, request, answer })
}

/// Builds a stream from recorded chunks whose framing was not recorded, framed as the provider does.
fn framed(api: Api, chunks: &[Value]) -> Bytes {
    let mut text = String::new();
    for chunk in chunks {
        if let Some(kind) = chunk["type"].as_str().filter(|_| matches!(api, Api::Messages | Api::Responses)) {
            text += &format!("event: {kind}\n");
        }
        text += &format!("data: {chunk}\n\n");
    }
    if api == Api::Chat {
        text += "data: [DONE]\n\n";
    }
    Bytes::from(text)
}
