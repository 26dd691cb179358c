//! Every row of the tables of what becomes of each element, every fact of real recordings, every need of real clients
//! and every bug that others had has a test that is named after it. The tables lie beside the repository; where there
//! are none, the tests say SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Tests whose names say what they show and not which number it has.
const BY_ANOTHER_NAME: &[(&str, u32, &str)] = &[
    ("bug", 67, "everything_in_a_request_counts"),
    ("fact", 41, "each_provider_s_answer_is_read"),
    ("fact", 44, "a_refusal_in_another_shape_takes_the_clients"),
];

/// What is about endpoints that there are not yet: images and videos (docs/out-of-scope.md).
const NOT_SERVED: &[(&str, u32)] = &[("bug", 70), ("fact", 42)];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A table, where it is there.
fn reference(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(root().join("../shared/reference").join(name)).ok();
    if text.is_none() {
        eprintln!("SKIPPED: {name} is not there");
    }
    text
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|end| end == "rs") {
            out.push(path);
        }
    }
}

/// The names of all tests: functions under an attribute that makes them one.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            // Properties are tests within a macro, with the attribute before them as well.
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            if let (true, Some(rest)) = (is_test, function) {
                names.extend(rest.split(['(', '<']).next().map(str::to_owned));
                is_test = false;
            }
        }
    }
    names
}

/// The numbers that a name has behind a word: `bug_13_and_14_...` has 13 and 14.
fn numbers(name: &str, word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let parts: Vec<&str> = name.split('_').collect();
    for (at, _) in parts.iter().enumerate().filter(|(_, part)| **part == word) {
        let mut next = at + 1;
        while let Some(number) = parts.get(next).and_then(|part| part.parse().ok()) {
            found.push(number);
            // `13_and_14`
            next += if parts.get(next + 1) == Some(&"and") { 2 } else { break };
        }
    }
    found
}

/// The numbers of a numbered list.
fn listed(text: &str) -> BTreeSet<u32> {
    let number = |line: &str| line.split_once(". ")?.0.parse().ok();
    text.lines().filter_map(number).collect()
}

fn without_a_test(word: &str, wanted: &BTreeSet<u32>) -> Vec<u32> {
    let tests = tests();
    let mut named: BTreeSet<u32> = tests.iter().flat_map(|name| numbers(name, word)).collect();
    for (_, number, test) in BY_ANOTHER_NAME.iter().filter(|(kind, _, _)| *kind == word) {
        assert!(tests.contains(*test), "there is no test {test}");
        named.insert(*number);
    }
    named.extend(NOT_SERVED.iter().filter(|(kind, _)| *kind == word).map(|(_, number)| *number));
    wanted.difference(&named).copied().collect()
}

#[test]
fn every_bug_has_a_test() {
    let Some(text) = reference("bugs.md") else { return };
    let wanted = listed(&text);
    assert!(wanted.len() >= 70, "{wanted:?}");
    assert_eq!(without_a_test("bug", &wanted), []);
}

#[test]
fn every_fact_has_a_test() {
    let Some(text) = reference("wire-facts.md") else { return };
    let wanted = listed(&text);
    assert!(wanted.len() >= 44, "{wanted:?}");
    assert_eq!(without_a_test("fact", &wanted), []);
}

#[test]
fn every_need_of_a_client_has_a_test() {
    let Some(text) = reference("clients.md") else { return };
    let wanted = listed(&text);
    assert!(wanted.len() >= 8, "{wanted:?}");
    assert_eq!(without_a_test("client", &wanted), []);
}

/// The rows of the tables, by section: their first cells. The first row of a table is its head.
fn table_rows(text: &str) -> Vec<(u32, String)> {
    let mut rows = Vec::new();
    let (mut section, mut in_table) = (0, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("## ") {
            section = rest.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        }
        let Some(rest) = line.strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let first = rest.split('|').next().unwrap_or_default().trim().to_owned();
        if in_table && !first.starts_with("---") {
            rows.push((section, first));
        }
        in_table = true;
    }
    rows
}

#[test]
fn every_row_of_the_mapping_has_a_test() {
    let Some(text) = reference("mapping.md") else { return };
    let known: BTreeMap<(u32, &str), &[&str]> =
        rows::ROWS.iter().map(|(section, row, tests)| ((*section, *row), *tests)).collect();
    let rows = table_rows(&text);
    assert!(rows.len() > 90, "{}", rows.len());
    let missing: Vec<_> =
        rows.iter().filter(|(section, row)| !known.contains_key(&(*section, row.as_str()))).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:#?}");
}

#[test]
fn every_test_that_is_named_is_there() {
    let tests = tests();
    for (section, row, named) in rows::ROWS {
        assert!(!named.is_empty(), "{section} {row}");
        for name in *named {
            assert!(tests.contains(*name), "section {section}, {row}: there is no test {name}");
        }
    }
}
