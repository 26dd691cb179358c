//! Path of a value in a configuration file.

use std::fmt::Write as _;
use std::ops::Range;

/// Path of a value: a chain of keys and indexes, formatted only for a message.
#[derive(Clone, Copy)]
pub(super) struct KeyPath<'p> {
    pub(super) parent: Option<&'p KeyPath<'p>>,
    pub(super) step: KeyStep<'p>,
}

/// Last part of a path.
#[derive(Clone, Copy)]
pub(super) enum KeyStep<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl KeyPath<'_> {
    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.step {
            KeyStep::Root => {}
            KeyStep::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            KeyStep::Index(index) => {
                let _ = write!(out, "[{index}]");
            }
        }
    }

    /// Returns the path as a text: `model[3].targets`.
    pub(super) fn path(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Returns the path without indexes, as the table of types has it: `model.targets`.
    pub(super) fn key_type_path(&self) -> String {
        let mut out = self.parent.map(KeyPath::key_type_path).unwrap_or_default();
        if let KeyStep::Key(key) = self.step {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(key);
        }
        out
    }
}

/// Position of a value, independent of the document.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) span: Range<usize>,
    pub(super) key: String,
}
