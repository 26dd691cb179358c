//! Faults of catalogue files, bounded in number: a file may have a million of them.

use std::cell::{Cell, RefCell};
use std::fmt;

use super::document::RowPlace;

/// Maximum number of faults that are described.
const MAX_FAULTS: usize = 200;

/// Fault of a catalogue file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueFault {
    /// Name of the file, as the caller gave it.
    pub file: Box<str>,
    /// Line number from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column number in characters, from 1; 0 for the file as a whole.
    pub column: usize,
    /// Path of the key: `model[3].at[0].provider`. Empty if no key is concerned.
    pub key: String,
    /// Description of the fault.
    pub message: String,
    /// Hint for a correct value.
    pub hint: Option<String>,
}

impl fmt::Display for CatalogueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
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

struct Found {
    place: RowPlace,
    key: String,
    message: String,
    hint: Option<String>,
}

/// Faults in the order in which they are found.
#[derive(Default)]
pub(super) struct FaultList {
    found: RefCell<Vec<Found>>,
    further: Cell<usize>,
}

impl FaultList {
    pub(super) fn add(&self, place: RowPlace, key: &str, message: String, hint: Option<String>) {
        let mut found = self.found.borrow_mut();
        if found.len() < MAX_FAULTS {
            found.push(Found { place, key: key.to_owned(), message, hint });
        } else {
            self.further.set(self.further.get().saturating_add(1));
        }
    }

    /// Returns whether there is no fault.
    pub(super) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// Returns the faults in the order of their places in the files, which are given as name and text.
    pub(super) fn into_faults(self, files: &[(&str, &str)]) -> Vec<CatalogueFault> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|fault| (fault.place.file, fault.place.offset));
        let mut faults = Vec::with_capacity(found.len());
        let mut at = Position { file: usize::MAX, offset: 0, line: 1, column: 1 };
        for Found { place, key, message, hint } in found {
            let (name, text) = files.get(place.file).copied().unwrap_or_default();
            at.advance(place, text);
            faults.push(CatalogueFault {
                file: name.into(),
                line: at.line,
                column: at.column,
                key,
                message,
                hint,
            });
        }
        let further = self.further.get();
        if further > 0 {
            let file = faults.last().map(|fault| fault.file.clone()).unwrap_or_default();
            let message = format!("{further} further faults are not shown");
            faults.push(CatalogueFault { file, line: 0, column: 0, key: String::new(), message, hint: None });
        }
        faults
    }
}

/// Place in a text that moves forward: all places together are found in one pass.
struct Position {
    file: usize,
    offset: usize,
    line: usize,
    column: usize,
}

impl Position {
    fn advance(&mut self, place: RowPlace, text: &str) {
        if place.file != self.file {
            *self = Position { file: place.file, offset: 0, line: 1, column: 1 };
        }
        for char in text.get(self.offset..place.offset).unwrap_or_default().chars() {
            if char == '\n' {
                self.line = self.line.saturating_add(1);
                self.column = 1;
            } else {
                self.column = self.column.saturating_add(1);
            }
        }
        self.offset = place.offset;
    }
}
