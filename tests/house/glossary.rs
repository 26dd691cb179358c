//! The field's words: what docs/glossary.md defines is there, and what they replace is gone.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{code_of, root, rust, without_inline_tests, words};
use super::{assert_none, rows};

/// Names that a term of the glossary has replaced, as identifiers.
const REPLACED: &[&str] = &[
    "Vendor", "vendor", "vendors", "Till", "till", "Lefts", "Dear", "Purse", "Purses", "Clerk", "Parcel",
    "Bell", "Watchman", "Lane", "Corked", "Guarded", "Seam", "Joint", "Along", "Beside", "Mould", "Cast",
    "Sought", "Glance", "Sight", "Speech", "Seat", "Seats", "Nobody", "Learnt", "Homes", "Lack", "Keeper",
    "Habits", "Gauges", "Office", "office", "seat", "seats", "Desk", "desk", "hand", "homes", "parcel",
    "booked",
];

fn glossary() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rows = sections.iter().flat_map(|section| rows(&page, section));
    rows.map(|(term, rest)| {
        let (_, place) = rest.rsplit_once(" | ").unwrap();
        (term.trim().replace('`', ""), place.trim().replace('`', ""))
    })
    .collect()
}

#[test]
fn glossary_terms_live_where_the_glossary_says() {
    let terms = glossary();
    assert!(terms.len() > 80, "the rule sees only {} terms: it has gone blind", terms.len());
    let mut faults = Vec::new();
    for (term, place) in terms {
        let text = std::fs::read_to_string(root().join(&place)).unwrap_or_default();
        let defined = ["struct", "enum", "trait", "type"].iter().any(|kind| {
            let definition = format!("{kind} {term}");
            text.match_indices(&definition).any(|(at, _)| {
                !text[at + definition.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
            })
        });
        if !defined {
            faults.push(format!("{place}: no {term}"));
        }
    }
    assert_none("docs/glossary.md names what is there", &faults);
}

/// Words that comments do not use, because the reader has to guess what they stand for.
const BANNED: &[&str] = &[
    "nobody", "whoever", "somebody", "anybody", "vendor", "vendors", "till", "purse", "purses", "clerk",
    "parcel", "watchman", "mould", "keepsake", "brought", "hears",
];

/// The folder and the file of a definition, without the format's own folder: what siblings of one idea share.
fn place_among_siblings(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.starts_with(&["src", "codec", "wire"])
        && parts
            .get(3)
            .is_some_and(|name| ["chat", "converse", "generate", "messages", "responses"].contains(name))
    {
        parts.remove(3);
    }
    // `stream/choice/mod.rs` and `stream/choice.rs` are the same module.
    parts.join("/").replace("/mod.rs", ".rs")
}

#[test]
fn public_type_names_are_unique() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust("src").into_iter().filter(|file| !file.is_test() && file.module() != Some("simulator")) {
        let code = code_of(without_inline_tests(&file.text));
        for line in code.lines() {
            let Some(rest) = line.trim_start().strip_prefix("pub") else { continue };
            let rest =
                rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
            let mut words = words(rest);
            let kind = words.next().unwrap_or_default();
            if let (true, Some(name)) = (["struct", "enum", "trait", "type"].contains(&kind), words.next()) {
                places.entry(name.to_owned()).or_default().insert(place_among_siblings(&file.path));
            }
        }
    }
    assert!(places.len() > 300, "the rule sees only {} types: it has gone blind", places.len());
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    let faults: Vec<String> = twice.map(|(name, places)| format!("{name}: {places:?}")).collect();
    assert_none("one name, one type", &faults);
}

#[test]
fn comments_use_the_field_s_words() {
    let mut faults = Vec::new();
    for file in ["src", "tests", "benches", "fuzz"].into_iter().flat_map(rust) {
        let code = code_of(&file.text);
        for (at, (line, code)) in file.text.lines().zip(code.lines()).enumerate() {
            // Where a comment begins, the code of the line ends.
            let Some(begin) = line.find("//").filter(|_| code.trim_end().len() < line.trim_end().len())
            else {
                continue;
            };
            // Identifiers and examples stand in backticks.
            let text: String = line[begin..].split('`').step_by(2).collect();
            for word in words(&text).filter(|word| BANNED.contains(&word.to_ascii_lowercase().as_str())) {
                faults.push(format!("{}:{}: {word}", file.path, at + 1));
            }
        }
    }
    assert_none("words of comments", &faults);
}

#[test]
fn replaced_names_are_not_used() {
    let mut faults = Vec::new();
    for file in rust("src") {
        let code = code_of(&file.text);
        for word in words(&code) {
            if REPLACED.contains(&word) {
                faults.push(format!("{}: {word}", file.path));
            }
        }
    }
    faults.sort();
    faults.dedup();
    assert_none("names that the glossary has replaced", &faults);
}
