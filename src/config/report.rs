//! Report of configuration faults, each with its position and a hint.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Configuration fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File.
    pub file: PathBuf,
    /// Line number from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column number in characters, from 1; 0 for the file as a whole.
    pub column: usize,
    /// Path of the key in the file: `model[3].targets[0].provider`. Empty if no key is concerned.
    pub key: String,
    /// Description of the fault.
    pub message: String,
    /// Hint for a correct value.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// All faults of a configuration. Has at least one fault when it is returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Faults, ordered by file and position.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Creates a report of one fault of a file as a whole.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Report {
        let problem = Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            message: message.into(),
            hint: None,
        };
        Report { problems: vec![problem] }
    }

    /// Adds the faults of another file.
    pub fn merge(&mut self, other: Report) {
        self.problems.extend(other.problems);
    }

    /// Converts the report to a result.
    ///
    /// # Errors
    /// Returns the report if it has any fault.
    pub fn into_result(self) -> Result<(), Report> {
        if self.problems.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// Returns the first line of a span for a message, at most 60 characters.
pub(super) fn excerpt(text: &str, span: &Range<usize>) -> String {
    let text = text.get(span.clone()).unwrap_or_default();
    text.lines().next().unwrap_or_default().chars().take(60).collect()
}

/// Longest word, in bytes, for which a similar one is sought.
const LONGEST_WORD: usize = 256;
/// Maximum number of candidates that a word is compared with.
const MAX_CANDIDATES: usize = 1_000;

/// Returns the candidate with the smallest edit distance, or `None` if none is close enough to be a likely typo.
pub(super) fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // The distance takes the product of both lengths, and a file has any number of wrong words and of candidates.
    if word.len() > LONGEST_WORD {
        return None;
    }
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= LONGEST_WORD)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the warning for a model of a key that matches none of the configured ones.
pub fn no_such_model<'m>(name: &str, models: impl IntoIterator<Item = &'m str>) -> String {
    let meant = closest(name, models).map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
    format!("no configured model matches {name:?}{meant}")
}

/// Computes the Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX);
            let best = (diagonal + usize::from(x != *y)).min(left + 1).min(above + 1);
            diagonal = above;
            if let Some(slot) = row.get_mut(j) {
                *slot = left;
            }
            left = best;
        }
        if let Some(slot) = row.last_mut() {
            *slot = left;
        }
    }
    row.last().copied().unwrap_or(0)
}
