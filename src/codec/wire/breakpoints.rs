//! Automatic cache marks of a request body that is forwarded without decoding.
//!
//! The places are those of [`canonical::breakpoints`](crate::canonical::breakpoints); the encoders of translated requests
//! set their marks at the same places (`super::automatic_marks`). Each format with marks has its own edits, in
//! `breakpoints` of its folder.

use smallvec::SmallVec;

use super::request::Body;
use super::{Api, converse, messages};
use crate::canonical::BreakpointRule;
use json::Edit;

/// Edits that set the automatic cache marks of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BreakpointEdits {
    /// Edits of the body, in ascending order. They only insert.
    pub edits: SmallVec<[Edit; 8]>,
    /// Number of marks.
    pub marks: u8,
}

impl Body {
    /// Returns the edits that set the automatic cache marks. None for an API without marks, and if the client has set a
    /// mark anywhere: which prefix is stable is then the client's decision.
    pub fn breakpoints(&self, rule: &BreakpointRule) -> BreakpointEdits {
        match self.api {
            Api::Messages => messages::breakpoints::edits(self, rule),
            Api::Converse => converse::breakpoints::edits(self, rule),
            _ => BreakpointEdits::default(),
        }
    }
}
