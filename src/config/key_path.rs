//! Path of a value in a configuration file.

use std::fmt::Write as _;

/// Path of a value: a chain of keys and indexes, formatted only for a message.
#[derive(Clone, Copy)]
pub(super) struct KeyPath<'p> {
    pub(super) parent: Option<&'p KeyPath<'p>>,
    pub(super) step: Step<'p>,
}

/// Last part of a path.
#[derive(Clone, Copy)]
pub(super) enum Step<'p> {
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
            Step::Root => {}
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            Step::Index(index) => {
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
}
