//! Edits of settings files as text: comments, order and line ends stay as they are.
//!
//! One file for each syntax: [`jsonc`], [`toml`], and [`lines`] for files of independent lines. Every edit is recorded
//! with the text that it replaces, so that the steps can be undone byte for byte ([`undo`]). No file is opened here.

mod jsonc;
mod lines;
mod toml;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Replacement in a text: the bytes from `start` to `end` become `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEdit {
    start: usize,
    end: usize,
    text: String,
}

impl TextEdit {
    fn insert(at: usize, text: impl Into<String>) -> Self {
        TextEdit { start: at, end: at, text: text.into() }
    }

    fn delete(start: usize, end: usize) -> Self {
        TextEdit { start, end, text: String::new() }
    }
}

/// Applied edit, without the text that it inserted: that text may be a key, which a receipt must not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UndoStep {
    /// Position of the edit (bytes).
    at: usize,
    /// Length of the inserted text (bytes).
    inserted: usize,
    /// Text that was replaced.
    removed: String,
}

/// Fault of a settings file, or a structure that cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxFault {
    /// Line of the fault, from 1.
    pub(super) line: usize,
    /// Description of the fault.
    pub(super) what: String,
}

impl SyntaxFault {
    fn at(text: &str, position: usize, what: impl Into<String>) -> Self {
        let before = text.as_bytes().get(..position).unwrap_or(text.as_bytes());
        SyntaxFault { line: memchr::memchr_iter(b'\n', before).count() + 1, what: what.into() }
    }
}

/// Value that is written.
#[derive(Clone, Copy, Debug)]
enum NewValue<'a> {
    /// Value to be rendered in the syntax of the file.
    Rendered(&'a Value),
    /// Source text that the file had before.
    Source(&'a str),
}

/// Syntax of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileSyntax {
    /// JSON with comments and trailing commas.
    Json,
    /// JSON without extensions: the client refuses a file that has them.
    StrictJson,
    /// TOML.
    Toml,
    /// Environment file: `NAME=value` lines.
    Env,
    /// YAML with a block mapping at the top level.
    Yaml,
    /// Shell script: one marked block at the end.
    Shell,
}

impl FileSyntax {
    /// Checks the syntax of a file.
    ///
    /// # Errors
    /// Returns the first fault.
    pub(super) fn check(self, text: &str) -> Result<(), SyntaxFault> {
        match self {
            FileSyntax::Json => jsonc::check(text, false),
            FileSyntax::StrictJson => jsonc::check(text, true),
            FileSyntax::Toml => toml::check(text),
            _ => lines::check(self, text),
        }
    }

    /// Returns the source text of a value, or `None` if the key is absent.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid, or a parent of the key is no table.
    pub(super) fn get(self, text: &str, path: &[String]) -> Result<Option<String>, SyntaxFault> {
        match self {
            FileSyntax::Json | FileSyntax::StrictJson => jsonc::get(text, path),
            FileSyntax::Toml => toml::get(text, path),
            _ => Ok(lines::get(self, text, key(path))),
        }
    }

    /// Sets a value.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid, or the value cannot be set without rewriting more of the file.
    pub(super) fn set(
        self,
        text: &str,
        path: &[String],
        value: &Value,
    ) -> Result<Vec<TextEdit>, SyntaxFault> {
        match self {
            FileSyntax::Json | FileSyntax::StrictJson => jsonc::set(text, path, NewValue::Rendered(value)),
            FileSyntax::Toml => toml::set(text, path, NewValue::Rendered(value)),
            _ => lines::set(self, text, key(path), value),
        }
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid, or the key cannot be removed without rewriting more of the file.
    pub(super) fn remove(self, text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
        match self {
            FileSyntax::Json | FileSyntax::StrictJson => jsonc::remove(text, path),
            FileSyntax::Toml => toml::remove(text, path),
            _ => Ok(lines::comment_out(self, text, key(path))),
        }
    }

    /// Puts the previous value of a key back; `None` if the key was absent.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid, or the key cannot be restored.
    pub(super) fn restore(
        self,
        text: &str,
        path: &[String],
        previous: Option<&str>,
    ) -> Result<Vec<TextEdit>, SyntaxFault> {
        match (self, previous) {
            (FileSyntax::Json | FileSyntax::StrictJson, Some(source)) => {
                jsonc::set(text, path, NewValue::Source(source))
            }
            (FileSyntax::Toml, Some(source)) => toml::set(text, path, NewValue::Source(source)),
            (FileSyntax::Json | FileSyntax::StrictJson | FileSyntax::Toml, None) => self.remove(text, path),
            _ => Ok(lines::restore(self, text, key(path))),
        }
    }

    /// Removes a table if it is empty.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid.
    pub(super) fn remove_empty(self, text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
        match self {
            FileSyntax::Json | FileSyntax::StrictJson => jsonc::remove_empty(text, path),
            FileSyntax::Toml => toml::remove_empty(text, path),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the proper prefixes of a path that are no tables yet, from the longest to the shortest.
    ///
    /// # Errors
    /// Returns a fault if the file is not valid.
    pub(super) fn absent_parents(self, text: &str, path: &[String]) -> Result<Vec<Vec<String>>, SyntaxFault> {
        let mut absent = Vec::new();
        for length in (1..path.len()).rev() {
            let parent = path.get(..length).unwrap_or_default();
            let there = match self {
                FileSyntax::Json | FileSyntax::StrictJson => jsonc::get(text, parent)?.is_some(),
                FileSyntax::Toml => toml::has_table(text, parent)?,
                _ => true,
            };
            if there {
                break;
            }
            absent.push(parent.to_vec());
        }
        Ok(absent)
    }

    /// Returns the text by which two values are compared: source text without the layout that a formatter may change.
    pub(super) fn comparable(self, source: &str) -> String {
        match self {
            FileSyntax::Json | FileSyntax::StrictJson => jsonc::comparable(source),
            _ => source.trim().to_owned(),
        }
    }
}

/// Returns the key of a file of lines, whose paths have one component.
fn key(path: &[String]) -> &str {
    path.first().map_or("", String::as_str)
}

/// Applies edits that do not overlap. Returns the steps that undo them, in the order of application.
pub(super) fn apply(text: &mut String, mut edits: Vec<TextEdit>) -> Vec<UndoStep> {
    // From the end, so that the positions of the other edits stay valid.
    edits.sort_by_key(|edit| std::cmp::Reverse((edit.start, edit.end)));
    let mut steps = Vec::with_capacity(edits.len());
    for edit in edits {
        let Some(removed) = text.get(edit.start..edit.end).map(str::to_owned) else { continue };
        text.replace_range(edit.start..edit.end, &edit.text);
        steps.push(UndoStep { at: edit.start, inserted: edit.text.len(), removed });
    }
    steps
}

/// Undoes steps. Returns `None` if they do not fit the text.
pub(super) fn undo(text: &str, steps: &[UndoStep]) -> Option<String> {
    let mut text = text.to_owned();
    for step in steps.iter().rev() {
        let end = step.at.checked_add(step.inserted)?;
        text.get(step.at..end)?;
        text.replace_range(step.at..end, &step.removed);
    }
    Some(text)
}

/// Parses a JSON settings file as a tree. Returns `None` if the file has no value.
///
/// # Errors
/// Returns a fault if the file is not valid, or its top level is no object.
pub(super) fn json_tree(text: &str) -> Result<Option<Value>, SyntaxFault> {
    jsonc::tree(text)
}

/// Returns the line end of a text: that of its first line, or LF.
fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text.get(..at).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

/// Returns the start of the line with a position.
fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

/// Returns the position behind the line with a position, its line end included.
fn next_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| at + end + 1)
}

/// Returns a part of a text, empty if the positions do not fit.
fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
