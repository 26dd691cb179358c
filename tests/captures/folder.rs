//! Folder of recordings.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns all recordings with their paths. `None` if the folder is missing.
pub(crate) fn recordings() -> Option<Vec<(PathBuf, Value)>> {
    let folder = std::env::var_os("GATEWAY_CAPTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/captures"), PathBuf::from);
    if !folder.is_dir() {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "no recordings, and GATEWAY_REQUIRE_ALL=1");
        // The test harness captures the output of eprintln and shows it for failed tests only.
        let mut out = std::io::stderr();
        let _ = writeln!(out, "SKIPPED: no recorded traffic here (GATEWAY_CAPTURES names its folder)");
        return None;
    }
    let mut files = Vec::new();
    find(&folder, &mut files);
    files.sort();
    // Those of Amazon Bedrock lie beside the others.
    let beside = folder.with_file_name("captures-bedrock").join("bedrock-invoke");
    if beside.is_dir() {
        find(&beside, &mut files);
    }
    let read = |file: PathBuf| {
        let value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        (file, value)
    };
    Some(files.into_iter().map(read).collect())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
}
