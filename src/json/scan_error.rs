//! Errors of the JSON scanner.

use std::ops::Range;

/// Maximum number of members of the outermost object. The scanner stores a [`Member`](super::Member) for each, which
/// can be several times as long as the member's text.
pub const MOST_MEMBERS: usize = 65_536;

/// Reason why the scanner rejects a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanErrorKind {
    /// Not valid JSON.
    #[error("{0}")]
    Syntax(&'static str),
    /// JSON, but not an object.
    #[error("the document must be a JSON object")]
    NotAnObject,
    /// The outermost object has two members of the same name, so its meaning is ambiguous. The range is the name of the
    /// second one in the document, without its quotes, in bytes.
    #[error("a member of the object is given twice")]
    Duplicate(Range<usize>),
    /// Nothing but white space.
    #[error("the document is empty")]
    Empty,
    /// The outermost object has more than [`MOST_MEMBERS`] members.
    #[error("the object has more than {MOST_MEMBERS} members")]
    TooManyMembers,
}

/// Scanner error with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {at})")]
pub struct ScanError {
    /// Byte offset from the start of the document.
    pub at: usize,
    /// Reason.
    pub kind: ScanErrorKind,
}
