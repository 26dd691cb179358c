//! The field's words: what docs/glossary.md defines is there, and what they replace is gone.

use super::source::{code_of, root, rust, words};
use super::{assert_none, rows};

/// Names that a term of the glossary has replaced, as identifiers.
const REPLACED: &[&str] = &[
    "Vendor", "vendor", "vendors", "Till", "till", "Lefts", "Dear", "Purse", "Purses", "Clerk", "Parcel",
    "Bell", "Watchman", "Lane", "Corked", "Guarded", "Seam", "Joint", "Along", "Beside", "Mould", "Cast",
    "Sought", "Glance", "Sight", "Speech", "Seat", "Seats", "Nobody", "Learnt", "Homes", "Lack", "Keeper",
    "Habits", "Gauges", "Office",
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
