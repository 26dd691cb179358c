//! Recorded error responses.

use std::path::Path;

use serde_json::Value;

use super::recording::{find, folder};

/// Recorded error response of any API.
pub(crate) struct RecordedError {
    pub(crate) name: String,
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Returns all recorded error responses; none if the folder is missing.
pub(crate) fn all() -> Vec<RecordedError> {
    let folder = folder();
    let mut files = Vec::new();
    if folder.is_dir() {
        find(&folder, &mut files);
    }
    files.sort();
    files.iter().filter_map(|file| read(&folder, file)).collect()
}

fn read(folder: &Path, file: &Path) -> Option<RecordedError> {
    let value: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let response = &value["response"];
    let status = response["status"].as_u64().and_then(|status| u16::try_from(status).ok())?;
    let body = match &response["body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    let name = file.strip_prefix(folder).unwrap().display().to_string();
    (status >= 400).then_some(RecordedError { name, status, body })
}
