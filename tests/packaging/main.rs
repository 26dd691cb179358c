//! What is delivered with the program: commands for packages, manual pages, schemas, dashboards and alert rules.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod admin_api;
mod commands;
mod json_schema;
mod schemas;
mod telemetry;

use std::path::PathBuf;
use std::process::{Command, Output};

/// Root of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs the program.
fn gateway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-gateway")).args(arguments).output().unwrap()
}

/// Whether an optional tool is installed. If it is not, prints SKIPPED, or panics if `GATEWAY_REQUIRE_ALL=1`.
fn have(what: &str) -> bool {
    use std::io::Write as _;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|folder| folder.join(what).is_file());
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(there || !required, "{what} is missing, and GATEWAY_REQUIRE_ALL=1");
    if !there {
        // The test harness captures the output of eprintln and shows it for failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not on this machine");
    }
    there
}

/// Compares a committed file with what it should be; `UPDATE_GOLDEN=1` writes it.
fn golden(path: &str, expected: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{path} is not up to date: run `make golden` and review the difference");
}
