//! Report of an import: the outcome of each field of the source, as text and as JSON.
//!
//! Every leaf of a document is in it: one that no part of the importer has a word about is reported as unknown. No
//! value of the source is shown, since it may be a secret.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::document::{Field, SourceNode};

/// What became of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FieldOutcome {
    /// The result has the same effect.
    Taken,
    /// The result has a similar effect, or none is needed; the note says what differs.
    Changed,
    /// The result has nothing of it; the note says what to do instead.
    Impossible,
}

impl FieldOutcome {
    /// All outcomes, in the order of the report.
    const ALL: [FieldOutcome; 3] = [FieldOutcome::Taken, FieldOutcome::Changed, FieldOutcome::Impossible];

    const fn title(self) -> &'static str {
        match self {
            FieldOutcome::Taken => "Taken over",
            FieldOutcome::Changed => "Changed",
            FieldOutcome::Impossible => "Not possible",
        }
    }
}

/// Outcome of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// Path of the field in the source.
    pub(super) path: String,
    /// Line in the source file, from 1; `None` for fields of a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<usize>,
    /// What became of it.
    pub(super) outcome: FieldOutcome,
    /// Key of the configuration that it became: `model.targets.weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// Difference, or what to do instead; empty for a field that was taken over.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

/// Note of a field that the importer does not know.
pub(super) const UNKNOWN: &str =
    "unknown to the importer; see docs/configuration.md for a setting of the same effect";

/// Report of one import.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FieldReport {
    /// Outcomes, in the order of the source once the report is complete.
    pub(super) fields: Vec<Entry>,
    /// What the operator has to know or to do.
    pub(super) remarks: Vec<String>,
}

impl FieldReport {
    fn add(&mut self, field: &Field<'_>, outcome: FieldOutcome, target: &str, note: &str) {
        let target = (!target.is_empty()).then(|| target.to_owned());
        let (path, line) = (field.path.clone(), Some(field.node.line));
        self.fields.push(Entry { path, line, outcome, target, note: note.to_owned() });
    }

    /// Records a field that has the same effect in the result.
    pub(super) fn taken(&mut self, field: &Field<'_>, target: &str) {
        self.add(field, FieldOutcome::Taken, target, "");
    }

    /// Records a field that has a similar effect in the result, or needs none.
    pub(super) fn changed(&mut self, field: &Field<'_>, target: &str, note: &str) {
        self.add(field, FieldOutcome::Changed, target, note);
    }

    /// Records a field that the result has nothing of.
    pub(super) fn impossible(&mut self, field: &Field<'_>, note: &str) {
        self.add(field, FieldOutcome::Impossible, "", note);
    }

    /// Records the outcome of a column or a row of a database.
    pub(super) fn row(&mut self, path: impl Into<String>, outcome: FieldOutcome, target: &str, note: &str) {
        let target = (!target.is_empty()).then(|| target.to_owned());
        self.fields.push(Entry { path: path.into(), line: None, outcome, target, note: note.to_owned() });
    }

    /// Returns whether a field has an outcome already.
    pub(super) fn has(&self, field: &Field<'_>) -> bool {
        self.fields.iter().any(|entry| entry.path == field.path)
    }

    /// Adds a remark, once.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    /// Returns the number of fields with this outcome.
    pub(super) fn count(&self, outcome: FieldOutcome) -> usize {
        self.fields.iter().filter(|entry| entry.outcome == outcome).count()
    }

    /// Brings the outcomes into the order of the document, one for each leaf: that of the leaf itself, or else that
    /// of the nearest value around it, or else that it is unknown. Entries of other files stay at the end.
    pub(super) fn complete(&mut self, document: &SourceNode) {
        let mut by_path: HashMap<String, Vec<Entry>> = HashMap::new();
        for entry in std::mem::take(&mut self.fields) {
            by_path.entry(entry.path.clone()).or_default().push(entry);
        }
        let mut ordered: Vec<Entry> = Vec::new();
        let mut used: std::collections::HashSet<String> = std::collections::HashSet::new();
        // Outcomes of the values around the current one, with the lengths of their paths.
        let mut around: Vec<(String, Vec<Entry>)> = Vec::new();
        Field::root(document).walk(&mut |field, leaf| {
            while around.last().is_some_and(|(path, _)| !is_within(&field.path, path)) {
                around.pop();
            }
            let own = by_path.get(&field.path);
            if own.is_some() {
                used.insert(field.path.clone());
            }
            if !leaf {
                if let Some(own) = own {
                    around.push((field.path.clone(), own.clone()));
                }
                return;
            }
            let line = Some(field.node.line);
            match own.or_else(|| around.last().map(|(_, entries)| entries)) {
                Some(entries) => ordered.extend(entries.iter().map(|entry| Entry {
                    path: field.path.clone(),
                    line,
                    ..entry.clone()
                })),
                None => ordered.push(Entry {
                    path: field.path.clone(),
                    line,
                    outcome: FieldOutcome::Impossible,
                    target: None,
                    note: UNKNOWN.to_owned(),
                }),
            }
        });
        let mut rest: Vec<Entry> =
            by_path.into_iter().filter(|(path, _)| !used.contains(path)).flat_map(|(_, rest)| rest).collect();
        rest.sort_by(|one, other| one.path.cmp(&other.path));
        ordered.extend(rest);
        self.fields = ordered;
    }

    /// Returns the report as text for people.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for outcome in FieldOutcome::ALL {
            let count = self.count(outcome);
            if count == 0 {
                continue;
            }
            let _ = writeln!(out, "{} ({count})", outcome.title());
            let mut last_note = "";
            for entry in self.fields.iter().filter(|entry| entry.outcome == outcome) {
                if entry.note != last_note && !entry.note.is_empty() {
                    let _ = writeln!(out, "  * {}", entry.note);
                }
                last_note = &entry.note;
                let line = entry.line.map_or_else(String::new, |line| format!(" (line {line})"));
                let target = entry.target.as_ref().map_or_else(String::new, |target| format!(" -> {target}"));
                let _ = writeln!(out, "    {}{line}{target}", entry.path);
            }
            out.push('\n');
        }
        if !self.remarks.is_empty() {
            out.push_str("Remarks\n");
            for remark in &self.remarks {
                let _ = writeln!(out, "  * {remark}");
            }
            out.push('\n');
        }
        out
    }
}

/// Returns whether a path is that of a value inside of another one.
fn is_within(path: &str, outer: &str) -> bool {
    outer.is_empty() || path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
}
