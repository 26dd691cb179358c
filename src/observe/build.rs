//! Build script: the version that `--version` and the metrics report. A release build names its commit: that of the
//! checkout, or `MODEL_GATEWAY_COMMIT` for a build from an archive. Other builds do not, because each new commit would compile
//! the whole package again.

#![allow(clippy::print_stdout, reason = "a build script talks to Cargo on standard output")]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MODEL_GATEWAY_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("MODEL_GATEWAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    match given.or_else(|| is_release.then(commit).flatten()) {
        Some(commit) => println!("cargo:rustc-env=MODEL_GATEWAY_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=MODEL_GATEWAY_VERSION={version}"),
    }
}

/// Returns the short id of the checked-out commit. `None` outside a checkout, or without Git.
fn commit() -> Option<String> {
    // An archive that was unpacked inside another checkout is not that checkout's commit.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if std::fs::canonicalize(top).ok()?
        != std::fs::canonicalize(format!("{}/../..", env::var("CARGO_MANIFEST_DIR").ok()?)).ok()?
    {
        return None;
    }
    // These change with each commit; in a worktree they are not below this folder.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
