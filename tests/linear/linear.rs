//! Linear cost of translation: valgrind counts instructions, which are the same on every run, for requests and
//! responses with many of one element, and again for four times as many, in all pairs of formats.
//!
//! The test runs itself under valgrind, once for each format, and reads one count for each case. `make linear` optimises
//! the code for it (`linear/optimised.toml`): as other tests are built, it would take several times as long, so there it
//! is ignored. Without valgrind it prints SKIPPED, or fails if `GATEWAY_REQUIRE_ALL=1`. `LINEAR_ONLY="a stream"` runs only
//! the shapes whose names contain these words. `LINEAR_FEW=500` measures 500 and 2,000 elements: it takes five times as
//! long and detects cheap quadratic scans.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod answers;
mod converse;
mod frames;
mod measured;
mod requests;
mod schemas;
mod settings;
mod slots;
mod words;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use codec::wire::Format;
use measured::{CASE, FORMAT, name_of};

/// Maximum cost of four times as many elements, relative to the cost of the smaller number.
const MOST: f64 = 4.5;

/// Runs the cases of a format under valgrind. Returns each case twice: for the smaller and the larger number.
fn counts(format: Format, folder: &Path) -> Vec<(String, u64)> {
    let out = folder.join("out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--dump-line=no"])
        .arg("--toggle-collect=linear::measured::count")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--log-file={}", folder.join("log").display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "cases_of_a_format", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FORMAT, name_of(format))
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    let counts = counts_of_functions(&std::fs::read_to_string(out).unwrap());
    let cases = said.lines().filter_map(|line| line.split_once(CASE)?.1.split_once(' '));
    cases.map(|(function, name)| (name.to_owned(), counts[function])).collect()
}

/// Parses a callgrind dump. Returns the inclusive cost of the slot functions by name. The call of a function is a line
/// `cfn=(7) name`, or `cfn=(7)` if the name was given before, then a line `calls=`, then a line that ends with the
/// cost.
fn counts_of_functions(dump: &str) -> HashMap<String, u64> {
    let mut names = HashMap::new();
    let mut counts = HashMap::new();
    let mut called = None;
    let mut lines = dump.lines();
    while let Some(line) = lines.next() {
        if let Some((which, name)) = line.split_once('=').filter(|(which, _)| matches!(*which, "fn" | "cfn"))
        {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if which == "cfn" {
                called = Some(id);
            }
        } else if line.starts_with("calls=")
            && let (Some(id), Some(cost)) = (called.take(), lines.next())
        {
            let cost: u64 = cost.rsplit(' ').next().unwrap().parse().unwrap();
            if let Some(name) = names.get(id).filter(|name| name.starts_with("linear::slots::")) {
                *counts.entry((*name).to_owned()).or_default() += cost;
            }
        }
    }
    counts
}

fn is_linear(format: Format) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "valgrind is missing, and GATEWAY_REQUIRE_ALL=1");
        // The test harness captures the output of eprintln and shows it for failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: valgrind is not on this machine");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("linear-{}", name_of(format)));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let counts = counts(format, &folder);
    assert!(counts.len() > 100 || std::env::var("LINEAR_ONLY").is_ok(), "{} cases", counts.len());
    let mut faults = Vec::new();
    for pair in counts.chunks(2) {
        let [(name, few), (again, many)] = pair else { panic!("a case without its second half") };
        assert_eq!(name, again);
        let ratio = *many as f64 / *few as f64;
        if ratio > MOST {
            faults.push(format!("{ratio:5.1} {name}: {few} and {many} instructions"));
        }
    }
    faults.sort_by(|a, b| b.cmp(a));
    assert!(
        faults.is_empty(),
        "four times as many cost more than {MOST} times as much:\n{}",
        faults.join("\n")
    );
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless its code is optimised: make linear")]
fn chat_is_translated_in_linear_time() {
    is_linear(Format::Chat);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless its code is optimised: make linear")]
fn messages_is_translated_in_linear_time() {
    is_linear(Format::Messages);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless its code is optimised: make linear")]
fn responses_is_translated_in_linear_time() {
    is_linear(Format::Responses);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless its code is optimised: make linear")]
fn generate_is_translated_in_linear_time() {
    is_linear(Format::Generate);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless its code is optimised: make linear")]
fn converse_is_translated_in_linear_time() {
    is_linear(Format::Converse);
}

#[test]
#[ignore = "what the others run under valgrind"]
fn cases_of_a_format() {
    measured::run();
}
