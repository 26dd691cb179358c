//! Search targets of a scan: members of the outermost object, and words at certain depths.

use super::wanted_words::{ValueLook, WantedValue, WantedWord};

/// Names of members that a scan reports, found with a perfect hash table, and words whose presence it notes.
#[derive(Debug)]
pub struct WantedMembers {
    /// Names; a member is reported with the index of its name.
    pub(super) names: &'static [&'static str],
    /// Index of the name in each hash slot; [`NONE`] for an empty slot.
    slots: [u8; SLOTS],
    /// Multiplier for which the names hash to different slots.
    factor: u32,
    /// Words to look for.
    pub(super) words: &'static [WantedWord],
    /// Members whose values are looked at.
    values: &'static [WantedValue],
    /// Set of the lengths of the words and of those members' names: bit n for length n.
    pub(super) lengths: u64,
    /// Words of each length, one bit each: most strings of a wanted length are compared with one word.
    of_length: [u32; 64],
    /// Whether the last elements of wanted arrays are noted.
    pub(super) has_tails: bool,
}

const SLOTS: usize = 128;
const NONE: u8 = u8::MAX;

impl WantedMembers {
    /// Builds the table, at compile time. Panics (a build error) if a word is too long or no collision-free factor
    /// exists.
    #[allow(clippy::indexing_slicing, clippy::panic, reason = "a fault is one of the build")]
    pub const fn new(names: &'static [&'static str], words: &'static [WantedWord]) -> Self {
        let (mut lengths, mut of_length) = (0, [0; 64]);
        let mut index = 0;
        while index < words.len() {
            let length = words[index].text.len();
            assert!(length < 64, "the word is too long");
            lengths |= 1 << length;
            of_length[length] |= 1 << index;
            index += 1;
        }
        let mut factor = 1;
        while factor < 1 << 16 {
            if let Some(slots) = table(names, factor) {
                return WantedMembers {
                    names,
                    slots,
                    factor,
                    words,
                    values: &[],
                    lengths,
                    of_length,
                    has_tails: false,
                };
            }
            factor += 2;
        }
        panic!("two of the names have the same length and letters")
    }

    /// Also has the last elements of those members noted that are arrays ([`ArrayTail`](super::ArrayTail)).
    pub const fn with_tails(mut self) -> Self {
        self.has_tails = true;
        self
    }

    /// Also looks at the values of these members. Their looks note bits that no word has.
    #[allow(clippy::indexing_slicing, reason = "a fault is one of the build")]
    pub const fn with_values(mut self, values: &'static [WantedValue]) -> Self {
        let mut index = 0;
        while index < values.len() {
            assert!(values[index].name.len() < 64, "the name is too long");
            self.lengths |= 1 << values[index].name.len();
            index += 1;
        }
        self.values = values;
        self
    }

    /// Returns the look at the value of a member with this name and `depth` containers around it; `None` if it is not
    /// wanted.
    pub(super) fn look_at(&self, name: &[u8], depth: usize) -> Option<ValueLook> {
        let is_it = |value: &&WantedValue| {
            let (least, most) = value.depth;
            (least..=most).contains(&depth) && value.name.as_bytes() == name
        };
        self.values.iter().find(is_it).map(|value| value.look)
    }

    /// Returns the set of words that equal a string, a name or a value with `depth` containers around it: bit n for
    /// word n.
    pub(super) fn words_equal_to(&self, text: &[u8], is_name: bool, depth: usize) -> u32 {
        let mut found = 0;
        let mut left = self.of_length.get(text.len()).copied().unwrap_or(0);
        while left != 0 {
            let (index, bit) = (left.trailing_zeros() as usize, left & left.wrapping_neg());
            left ^= bit;
            let Some(word) = self.words.get(index) else { continue };
            let (least, most) = word.depth;
            if word.is_name == is_name && (least..=most).contains(&depth) && word.text.as_bytes() == text {
                found |= bit;
            }
        }
        found
    }

    /// Returns the names, ordered by index.
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Returns the index of a name; `None` if it is not wanted.
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

/// Hashes the length and three letters of a name to a slot.
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

/// Names of the members that are reported.
#[derive(Clone, Copy)]
pub(super) enum MemberNames {
    /// Compared one by one.
    List(&'static [&'static str]),
    /// Looked up in a hash table.
    Table(&'static WantedMembers),
}

impl MemberNames {
    #[inline]
    pub(super) fn find(self, name: &[u8]) -> Option<u8> {
        match self {
            MemberNames::List(names) => position(names, |wanted| wanted.as_bytes() == name),
            MemberNames::Table(sought) => sought.find(name),
        }
    }

    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            MemberNames::List(names) => names,
            MemberNames::Table(sought) => sought.names(),
        }
    }
}

/// Returns the index of the first name that matches, if it is below 256: an index is stored in one byte.
pub(super) fn position(names: &[&str], fits: impl Fn(&str) -> bool) -> Option<u8> {
    names.iter().position(|name| fits(name)).and_then(|index| u8::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    static SOUGHT: WantedMembers =
        WantedMembers::new(&["model", "temperature", "tool_choice", "tools", "top_p"], &[]);

    #[test]
    fn wanted_members_lookup_finds_exactly_the_known_names() {
        for (index, name) in SOUGHT.names.iter().enumerate() {
            assert_eq!(SOUGHT.find(name.as_bytes()).map(usize::from), Some(index), "{name}");
        }
        for name in ["", "m", "models", "mode", "MODEL", "temperaturf", "ä", "tool_choicf"] {
            assert_eq!(SOUGHT.find(name.as_bytes()), None, "{name}");
        }
    }
}
