//! Why a document is refused.

use std::ops::Range;

/// Members of the outermost object at most: each is kept as a [`Member`](super::Member), which is several times as long as
/// its text may be.
pub const MOST_MEMBERS: usize = 65_536;

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanErrorKind {
    /// Not JSON.
    #[error("{0}")]
    Syntax(&'static str),
    /// JSON, but not an object.
    #[error("the document must be a JSON object")]
    NotAnObject,
    /// The outermost object has a member twice: which one counts would be anybody's guess. The range is where the
    /// second one's name stands in the document, without its quotes.
    #[error("a member of the object is given twice")]
    Duplicate(Range<usize>),
    /// Nothing but white space.
    #[error("the document is empty")]
    Empty,
    /// The outermost object has more than [`MOST_MEMBERS`].
    #[error("the object has more than {MOST_MEMBERS} members")]
    TooManyMembers,
}

/// Why a document was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {at})")]
pub struct ScanError {
    /// Byte offset from the start of the document.
    pub at: usize,
    /// What is wrong.
    pub kind: ScanErrorKind,
}
