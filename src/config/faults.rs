//! Faults and warnings of a document, bounded in number and in the time that they take: a file may have a million of them.

use std::cell::{Cell, RefCell};
use std::path::Path;

use super::report::Problem;

/// Maximum number of faults of a document that are reported one by one.
pub(super) const MAX_FAULTS: usize = 1_000;

/// Fault with the offset of its place in the text.
struct Fault {
    offset: usize,
    key: String,
    message: String,
    hint: Option<String>,
}

/// Faults of a document, in the order in which they were found.
#[derive(Default)]
pub(super) struct Faults {
    found: RefCell<Vec<Fault>>,
    /// Number of faults beyond [`MAX_FAULTS`].
    further: Cell<usize>,
}

impl Faults {
    /// Returns whether further faults are only counted: their hints need not be sought.
    pub(super) fn is_full(&self) -> bool {
        self.found.borrow().len() >= MAX_FAULTS
    }

    /// Counts a fault that is not described.
    pub(super) fn count(&self) {
        self.further.set(self.further.get().saturating_add(1));
    }

    /// Adds a fault at an offset.
    pub(super) fn add(&self, offset: usize, key: String, message: String, hint: Option<String>) {
        if self.is_full() {
            self.count();
        } else {
            self.found.borrow_mut().push(Fault { offset, key, message, hint });
        }
    }

    /// Returns the faults in the order of their places in `text`, which follows `lines` lines of the file.
    pub(super) fn in_order(self, file: &Path, text: &str, lines: usize) -> Vec<Problem> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|fault| fault.offset);
        let mut cursor = Cursor { offset: 0, line: lines.saturating_add(1), column: 1 };
        let mut problems: Vec<Problem> = Vec::with_capacity(found.len());
        for Fault { offset, key, message, hint } in found {
            cursor.advance(text, offset);
            let Cursor { line, column, .. } = cursor;
            problems.push(Problem { file: file.to_owned(), line, column, key, message, hint });
        }
        let further = self.further.get();
        if further > 0 {
            let message = format!("{further} further faults are not shown");
            let (key, hint) = Default::default();
            problems.push(Problem { file: file.to_owned(), line: 0, column: 0, key, message, hint });
        }
        problems
    }
}

/// Place in a text that moves forward: all places together are found in one pass.
struct Cursor {
    offset: usize,
    line: usize,
    /// Column in characters, from 1.
    column: usize,
}

impl Cursor {
    fn advance(&mut self, text: &str, offset: usize) {
        let passed = text.get(self.offset..offset).unwrap_or_default();
        let breaks = memchr::memchr_iter(b'\n', passed.as_bytes()).count();
        self.line = self.line.saturating_add(breaks);
        let (last, start) = match memchr::memrchr(b'\n', passed.as_bytes()) {
            Some(at) => (passed.get(at.saturating_add(1)..).unwrap_or_default(), 1),
            None => (passed, self.column),
        };
        self.column = last.chars().count().saturating_add(start);
        self.offset = self.offset.max(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_characters() {
        let text = "a = 1\né = \"ü\" x\n";
        for (offset, place) in [(0, (1, 1)), (text.find('x').unwrap(), (2, 9)), (text.len(), (3, 1))] {
            let faults = Faults::default();
            faults.add(offset, String::new(), String::new(), None);
            let problem = faults.in_order(Path::new("f"), text, 0).remove(0);
            assert_eq!((problem.line, problem.column), place);
        }
    }

    #[test]
    fn faults_are_ordered_by_their_places_and_counted_beyond_the_bound() {
        let text = "ä = 1\nb = [1, 2]\n";
        let faults = Faults::default();
        for offset in [13, 12, 0, 7, 13] {
            faults.add(offset, offset.to_string(), String::new(), None);
        }
        let places: Vec<_> = faults
            .in_order(Path::new("f"), text, 10)
            .into_iter()
            .map(|problem| (problem.line, problem.column, problem.key))
            .collect();
        let place = |line, column, key: &str| (line, column, key.to_owned());
        assert_eq!(
            places,
            [
                place(11, 1, "0"),
                place(12, 1, "7"),
                place(12, 6, "12"),
                place(12, 7, "13"),
                place(12, 7, "13")
            ]
        );
        let faults = Faults::default();
        (0..MAX_FAULTS + 5).for_each(|_| faults.add(0, String::new(), String::new(), None));
        let problems = faults.in_order(Path::new("f"), text, 0);
        assert_eq!(problems.len(), MAX_FAULTS + 1);
        assert_eq!(problems.last().unwrap().to_string(), "f: 5 further faults are not shown");
    }
}
