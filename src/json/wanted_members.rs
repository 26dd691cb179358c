//! What a scan looks for: members of the outermost object, and words at certain depths.

/// Names of members that a scan reports, found by one table lookup, and words whose presence it notes.
#[derive(Debug)]
pub struct WantedMembers {
    /// The names; a member is reported with its index.
    pub(super) names: &'static [&'static str],
    /// The index of the name with each hash; [`NONE`] for no name.
    slots: [u8; SLOTS],
    /// What makes the hashes of the names differ.
    factor: u32,
    /// The words.
    pub(super) words: &'static [WantedWord],
    /// The lengths of the words, one bit each.
    pub(super) lengths: u64,
}

/// A word: a string, or the name of a member, whose presence is noted.
#[derive(Clone, Copy, Debug)]
pub struct WantedWord {
    /// The text, in letters that need no escapes; shorter than 64 bytes.
    pub text: &'static str,
    /// It is the name of a member, and not a value.
    pub is_name: bool,
    /// How many containers it stands in, at least and at most. Members of the outermost object stand in one.
    pub depth: (usize, usize),
}

const SLOTS: usize = 128;
const NONE: u8 = u8::MAX;

impl WantedMembers {
    /// Builds the table, at compile time.
    #[allow(clippy::indexing_slicing, clippy::panic, reason = "a fault is one of the build")]
    pub const fn new(names: &'static [&'static str], words: &'static [WantedWord]) -> Self {
        let mut lengths = 0;
        let mut index = 0;
        while index < words.len() {
            assert!(words[index].text.len() < 64, "the word is too long");
            lengths |= 1 << words[index].text.len();
            index += 1;
        }
        let mut factor = 1;
        while factor < 1 << 16 {
            if let Some(slots) = table(names, factor) {
                return WantedMembers { names, slots, factor, words, lengths };
            }
            factor += 2;
        }
        panic!("two of the names have the same length and letters")
    }

    /// The names, in the order of their indexes.
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// The index of a name.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<u8> {
        let slot = *self.slots.get(hash(name, self.factor))?;
        (self.names.get(usize::from(slot))?.as_bytes() == name).then_some(slot)
    }
}

#[allow(clippy::indexing_slicing, reason = "a fault is one of the build")]
const fn table(names: &[&str], factor: u32) -> Option<[u8; SLOTS]> {
    let mut slots = [NONE; SLOTS];
    let mut index = 0;
    while index < names.len() {
        let slot = hash(names[index].as_bytes(), factor);
        if slots[slot] != NONE {
            return None;
        }
        slots[slot] = index as u8;
        index += 1;
    }
    Some(slots)
}

/// The length and three letters of a name, mixed.
#[inline]
#[allow(clippy::indexing_slicing, reason = "both places lie within the name, which is not empty")]
const fn hash(name: &[u8], factor: u32) -> usize {
    if name.is_empty() {
        return 0;
    }
    let (first, middle) = (name[0] as u32, name[name.len() / 2] as u32);
    let last = name[name.len() - 1] as u32;
    let mixed = (first ^ middle << 8 ^ last << 16 ^ (name.len() as u32) << 24).wrapping_mul(factor | 1 << 20);
    (mixed >> 25) as usize
}

/// The names of the members that are reported.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Compared one by one.
    List(&'static [&'static str]),
    /// Found in a table.
    Table(&'static WantedMembers),
}

impl Wanted {
    #[inline]
    pub(super) fn find(self, name: &[u8]) -> Option<u8> {
        match self {
            Wanted::List(names) => position(names, |wanted| wanted.as_bytes() == name),
            Wanted::Table(sought) => sought.find(name),
        }
    }

    /// The names.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Wanted::List(names) => names,
            Wanted::Table(sought) => sought.names(),
        }
    }
}

/// The index of the first name that fits; only the first 255 can.
pub(super) fn position(names: &[&str], fits: impl Fn(&str) -> bool) -> Option<u8> {
    names.iter().position(|name| fits(name)).and_then(|index| u8::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    static SOUGHT: WantedMembers =
        WantedMembers::new(&["model", "temperature", "tool_choice", "tools", "top_p"], &[]);

    #[test]
    fn each_name_is_found_and_no_other() {
        for (index, name) in SOUGHT.names.iter().enumerate() {
            assert_eq!(SOUGHT.find(name.as_bytes()).map(usize::from), Some(index), "{name}");
        }
        for name in ["", "m", "models", "mode", "MODEL", "temperaturf", "ä", "tool_choicf"] {
            assert_eq!(SOUGHT.find(name.as_bytes()), None, "{name}");
        }
    }
}
