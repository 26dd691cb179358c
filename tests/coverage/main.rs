//! Coverage of the facts that tests rest on: every row of docs/provider-facts.md and docs/mapping.md has a number and
//! names tests that exist.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

use std::collections::BTreeMap;
use std::path::Path;

/// Page of facts: known defects of gateways, formats of providers, needs of clients.
const FACTS: &str = "docs/provider-facts.md";
/// Page of mapping rows, numbered by section.
const MAPPING: &str = "docs/mapping.md";

/// Row of a page.
#[derive(Debug)]
struct Row {
    /// Heading of the section, without `## `.
    section: String,
    number: String,
    fact: String,
    source: String,
    /// Tests, with the paths of their files.
    tests: Vec<(String, String)>,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the tests of a cell: a path in backticks is followed by names of tests of that file. The text between them
/// must be separators only, so that no name is overlooked because its backticks are missing.
fn tests_of(cell: &str) -> Vec<(String, String)> {
    let mut tests = Vec::new();
    let mut path = None;
    let parts: Vec<&str> = cell.split('`').collect();
    assert_eq!(parts.len() % 2, 1, "a backtick is missing: {cell}");
    for (at, part) in parts.iter().enumerate() {
        if at % 2 == 0 {
            assert!(["", " ", ", "].contains(part), "not a path or a test: {part:?} in {cell}");
        } else if part.ends_with(".rs") {
            path = Some(*part);
        } else {
            let path = path.unwrap_or_else(|| panic!("{part} precedes the path of its file"));
            tests.push((path.to_owned(), (*part).to_owned()));
        }
    }
    tests
}

/// Returns the rows of the page. Each of its tables has the same four columns.
fn rows(page: &str) -> Vec<Row> {
    let text = read(page);
    let (mut rows, mut section, mut lines_of_table) = (Vec::new(), String::new(), 0);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        if !line.starts_with('|') {
            lines_of_table = 0;
            continue;
        }
        lines_of_table += 1;
        match lines_of_table {
            1 => assert_eq!(line, "| No. | Fact | Source | Tests |", "{page}"),
            2 => assert_eq!(line, "|---|---|---|---|", "{page}"),
            _ => {
                let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
                let cells: Vec<&str> = inner.unwrap_or_else(|| panic!("{line}")).split(" | ").collect();
                let [number, fact, source, tests] = cells[..] else { panic!("not four cells: {line}") };
                rows.push(Row {
                    section: section.clone(),
                    number: number.to_owned(),
                    fact: fact.to_owned(),
                    source: source.to_owned(),
                    tests: tests_of(tests),
                });
            }
        }
    }
    rows
}

/// Returns the names of the tests of a file: functions with a test attribute.
fn tests_in(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        // Tests inside `proptest!` have the attribute before them too.
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let (true, Some(rest)) = (is_test, function) {
            names.extend(rest.split(['(', '<']).next());
            is_test = false;
        }
    }
    names
}

/// Returns the numbers of the rows whose number begins with the word, in the order of the page.
fn numbered(rows: &[Row], word: &str) -> Vec<usize> {
    let number = |row: &Row| row.number.strip_prefix(word)?.strip_prefix(' ')?.parse().ok();
    rows.iter().filter_map(number).collect()
}

#[test]
fn facts_are_numbered_without_gaps() {
    let rows = rows(FACTS);
    let mut known = 0;
    for (word, at_least) in [("fact", 44), ("client", 8), ("bug", 70)] {
        let numbers = numbered(&rows, word);
        assert!(numbers.len() >= at_least, "{FACTS} has {} rows of {word}", numbers.len());
        assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "{FACTS}: {word}");
        known += numbers.len();
    }
    let others: Vec<&str> = rows
        .iter()
        .map(|row| row.number.as_str())
        .filter(|number| !["fact ", "client ", "bug "].iter().any(|word| number.starts_with(word)))
        .collect();
    assert_eq!((known, others), (rows.len(), vec![]), "{FACTS}: rows without a number");
}

#[test]
fn mapping_rows_are_numbered_by_section_without_gaps() {
    let rows = rows(MAPPING);
    // Number of rows that each section of the mapping has at least.
    let at_least = [3, 12, 16, 22, 3, 13, 8, 4, 5, 10, 1, 16];
    let mut sections: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for row in &rows {
        let section = row.section.split('.').next().and_then(|number| number.parse().ok());
        sections.entry(section.unwrap_or_else(|| panic!("{}", row.section))).or_default().push(&row.number);
    }
    assert_eq!(sections.keys().copied().collect::<Vec<_>>(), (1..=at_least.len()).collect::<Vec<_>>());
    for ((section, numbers), at_least) in sections.iter().zip(at_least) {
        let expected: Vec<String> = (1..=numbers.len()).map(|number| format!("{section}.{number}")).collect();
        assert_eq!(*numbers, expected, "{MAPPING}");
        assert!(numbers.len() >= at_least, "{MAPPING}: section {section} has {} rows", numbers.len());
    }
}

#[test]
fn every_row_has_a_fact_a_source_and_tests_that_exist() {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut faults = Vec::new();
    for page in [FACTS, MAPPING] {
        for row in rows(page) {
            let place = format!("{page}, {}", row.number);
            if row.fact.trim().is_empty() || row.source.trim().is_empty() {
                faults.push(format!("{place}: no fact or no source"));
            }
            if row.tests.is_empty() {
                faults.push(format!("{place}: no test"));
            }
            for (path, name) in &row.tests {
                let source = files.entry(path.clone()).or_insert_with(|| read(path));
                if !tests_in(source).contains(&name.as_str()) {
                    faults.push(format!("{place}: {path} has no test {name}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The check itself finds a test behind an attribute, and only there.
#[test]
fn functions_without_a_test_attribute_are_no_tests() {
    let source = "#[test]\nfn one() {}\nfn helper() {}\n#[tokio::test(start_paused = true)]\n#[ignore]\nasync fn two() {}\n#[test]\nfn three(x in 0..9) {}\n";
    assert_eq!(tests_in(source), ["one", "two", "three"]);
    let cell = "`a.rs` `x`, `y`, `b.rs` `z`";
    let found: Vec<String> =
        tests_of(cell).into_iter().map(|(path, name)| format!("{path} {name}")).collect();
    assert_eq!(found, ["a.rs x", "a.rs y", "b.rs z"]);
}
