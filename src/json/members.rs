//! Members of the outermost object of a scanned document: their names while they are read, and doubles among them.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::LazyLock;

use foldhash::fast::{FoldHasher, RandomState};
use smallvec::SmallVec;

use super::JsonStr;
use super::cursor::Kind;
use super::wanted_members::{Wanted, position};

/// A member's name is kept for comparison with the wanted ones up to this length; longer ones are only hashed.
const MAX_NAME: usize = 256;

/// Above this number of members the check for doubles sorts instead of comparing pairs.
const FEW_MEMBERS: usize = 32;

/// A member of the outermost object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which of the wanted names it has, as an index into the list given to [`Scanner::new`](super::Scanner::new).
    pub wanted: Option<u8>,
    /// Which of the wanted names it equals but for upper and lower case, where it equals none: readers exist that make no
    /// difference (Go's `encoding/json`).
    pub folded: Option<u8>,
    /// What kind of value it holds.
    pub kind: Kind,
    /// Byte offsets of the value in the document; a string's quotes are included.
    pub value: Range<usize>,
    /// Byte offsets of the name, without its quotes.
    pub name: Range<usize>,
    /// Hash of the name's meaning, to find doubles.
    pub(super) hash: u64,
}

/// A name while it is read, escapes and all.
pub(super) struct Name {
    text: SmallVec<[u8; 32]>,
    hash: FoldHasher<'static>,
    long: bool,
    /// The name holds an escape, so its text is not its meaning.
    escaped: bool,
}

impl Name {
    pub(super) fn new() -> Self {
        Name { text: SmallVec::new(), hash: hasher(), long: false, escaped: false }
    }

    /// Another name begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.text.clear();
        self.long = false;
        self.escaped = false;
        self.hash = hasher();
    }

    /// Takes the backslash of an escape; the rest of the escape follows with [`Self::keep`].
    pub(super) fn keep_backslash(&mut self) {
        self.escaped = true;
        self.keep(b"\\");
    }

    /// Takes the next bytes of the name.
    #[inline]
    pub(super) fn keep(&mut self, text: &[u8]) {
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
        // Byte by byte: the hash of a write depends on how the text is divided, and pieces divide it anyhow.
        for &byte in rest {
            self.hash.write_u8(byte);
        }
    }

    /// The name is complete: which of the wanted ones it is, or is but for case, and its hash.
    #[inline]
    pub(super) fn end(&self, wanted: Wanted) -> (Option<u8>, Option<u8>, u64) {
        if self.long {
            return (None, None, self.hash.finish());
        }
        if self.escaped {
            // The pieces were checked as UTF-8 as they came, and a name ends at a quote.
            let escaped = std::str::from_utf8(&self.text).unwrap_or_default();
            return Self::known(JsonStr::from_escaped(escaped).decode().as_bytes(), wanted);
        }
        // Nearly every name: its text is its meaning, and no byte of it is looked at twice.
        Self::known(&self.text, wanted)
    }

    #[inline]
    fn known(name: &[u8], wanted: Wanted) -> (Option<u8>, Option<u8>, u64) {
        let mut hash = hasher();
        hash.write(name);
        let exact = wanted.find(name);
        let folded = if exact.is_none() { folded(name, wanted) } else { None };
        (exact, folded, hash.finish())
    }
}

/// Which of the wanted names this one is under the folding of Unicode, by which two letters beyond ASCII are `k` and `s`.
/// Names in lower case, which nearly all are, are not looked at: a wanted name with capitals that lost them is left to its
/// reader, which tells them apart.
#[inline]
fn folded(name: &[u8], wanted: Wanted) -> Option<u8> {
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
    // Seeded per process, so that nobody can send names that collide.
    static STATE: LazyLock<RandomState> = LazyLock::new(Default::default);
    STATE.build_hasher()
}

/// The first member, in the order of the document, whose name has been there before.
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
