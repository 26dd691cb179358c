//! Members of the outermost object of a scanned document: name matching and duplicate detection.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::LazyLock;

use foldhash::fast::{FoldHasher, RandomState};
use smallvec::SmallVec;

use super::JsonStr;
use super::cursor::ValueKind;
use super::wanted_members::{MemberNames, position};

/// Maximum length of a member name that is compared with the wanted names, in bytes; a longer name is only hashed.
const MAX_NAME: usize = 256;

/// Number of members above which duplicate detection sorts instead of comparing pairs.
const FEW_MEMBERS: usize = 32;

/// Member of the outermost object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index of its name in the list given to [`Scanner::new`](super::Scanner::new); `None` if the name is not wanted.
    pub wanted: Option<u8>,
    /// Index of the wanted name that it equals except for case; `None` if it equals one exactly, or none at all. Some
    /// JSON readers ignore case (Go's `encoding/json`).
    pub folded: Option<u8>,
    /// Kind of its value.
    pub kind: ValueKind,
    /// Byte range of the value in the document, including the quotes of a string.
    pub value: Range<usize>,
    /// Byte range of the name in the document, without its quotes.
    pub name: Range<usize>,
    /// Hash of the decoded name, for duplicate detection. A name above [`MAX_NAME`] bytes is hashed as it is written.
    pub(super) hash: u64,
}

/// Collects a member name while it is read, still escaped.
pub(super) struct Name {
    text: SmallVec<[u8; 32]>,
    hash: FoldHasher<'static>,
    long: bool,
    /// Whether the name has an escape, so that it must be decoded before it is compared.
    escaped: bool,
}

impl Name {
    pub(super) fn new() -> Self {
        Name { text: SmallVec::new(), hash: hasher(), long: false, escaped: false }
    }

    /// Resets the state for the next name.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.text.clear();
        self.long = false;
        self.escaped = false;
        self.hash = hasher();
    }

    /// Appends the backslash of an escape; the rest of the escape follows with [`Self::append`].
    pub(super) fn keep_backslash(&mut self) {
        self.escaped = true;
        self.append(b"\\");
    }

    /// Appends the next bytes of the name.
    #[inline]
    pub(super) fn append(&mut self, text: &[u8]) {
        let (kept, rest) = text.split_at(text.len().min(MAX_NAME - self.text.len()));
        self.text.extend_from_slice(kept);
        if !rest.is_empty() {
            self.hash_long(rest);
        }
    }

    #[cold]
    fn hash_long(&mut self, rest: &[u8]) {
        if !self.long {
            self.long = true;
            self.hash.write(&self.text);
        }
        // Byte by byte: the hash depends on how the text is split into writes, and the pieces of the document are
        // arbitrary.
        for &byte in rest {
            self.hash.write_u8(byte);
        }
    }

    /// Ends the name. Returns the index of the wanted name that it equals, the index of the one that it equals except
    /// for case, and its hash.
    #[inline]
    pub(super) fn end(&self, wanted: MemberNames) -> (Option<u8>, Option<u8>, u64) {
        if self.long {
            return (None, None, self.hash.finish());
        }
        if self.escaped {
            // Each piece was validated as UTF-8 on arrival, and a name ends at a quote, so this cannot fail.
            let escaped = std::str::from_utf8(&self.text).unwrap_or_default();
            return Self::known(JsonStr::from_escaped(escaped).decode().as_bytes(), wanted);
        }
        // Fast path for nearly every name: without an escape it needs no decoding, and no byte is read twice.
        Self::known(&self.text, wanted)
    }

    #[inline]
    fn known(name: &[u8], wanted: MemberNames) -> (Option<u8>, Option<u8>, u64) {
        let mut hash = hasher();
        hash.write(name);
        let exact = wanted.find(name);
        let folded = if exact.is_none() { folded(name, wanted) } else { None };
        (exact, folded, hash.finish())
    }
}

/// Returns the index of the wanted name that equals this one under Unicode case folding, in which two non-ASCII letters
/// fold to `k` and `s`. A name without upper-case letters is skipped for speed. So a wanted name with capitals is not
/// found in its lower-case spelling; the readers of such members tell the two apart.
#[inline]
fn folded(name: &[u8], wanted: MemberNames) -> Option<u8> {
    let is_lower = |byte: &u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if name.iter().all(is_lower) { None } else { folded_anew(name, wanted.names()) }
}

#[cold]
fn folded_anew(name: &[u8], wanted: &[&str]) -> Option<u8> {
    if name.is_ascii() {
        return position(wanted, |wanted| wanted.as_bytes().eq_ignore_ascii_case(name));
    }
    let name = String::from_utf8_lossy(name).replace('\u{17f}', "s").replace('\u{212a}', "k");
    position(wanted, |wanted| wanted.eq_ignore_ascii_case(&name))
}

#[inline]
fn hasher() -> FoldHasher<'static> {
    // Per-process random seed, so that clients cannot construct names whose hashes collide.
    static STATE: LazyLock<RandomState> = LazyLock::new(Default::default);
    STATE.build_hasher()
}

/// Returns the first member, in document order, whose name occurred before.
pub(super) fn doubled(members: &[Member]) -> Option<&Member> {
    if members.len() <= FEW_MEMBERS {
        return members
            .iter()
            .enumerate()
            .find(|(index, member)| members.iter().take(*index).any(|earlier| earlier.hash == member.hash))
            .map(|(_, member)| member);
    }
    let mut sorted: Vec<&Member> = members.iter().collect();
    sorted.sort_unstable_by_key(|member| (member.hash, member.value.start));
    sorted
        .windows(2)
        .filter_map(|pair| match pair {
            [a, b] if a.hash == b.hash => Some(*b),
            _ => None,
        })
        .min_by_key(|member| member.value.start)
}
