//! Members of a request body that matter to its API, found by their index in [`Fields`](super::fields::Fields).

use smallvec::SmallVec;

use super::fields::MODEL;
use json::Member;

/// Members of the outermost object of a body, with one bit for each index that is present.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyMembers {
    list: SmallVec<[Member; 12]>,
    /// Indexes of names that are present exactly as the API spells them, one bit each.
    there: u32,
    /// Indexes of names that are present in a different letter case, one bit each.
    folded: u32,
}

impl BodyMembers {
    /// Creates the table from the result of a scan. A long list is reduced to the members that have an index.
    pub(super) fn new(mut list: SmallVec<[Member; 12]>) -> BodyMembers {
        if list.spilled() {
            list.retain(|member| member.wanted.is_some() || member.folded.is_some());
            list.shrink_to_fit();
        }
        let (mut there, mut folded) = (0, 0);
        for member in &list {
            there |= member.wanted.map_or(0, |index| 1 << index);
            folded |= member.folded.map_or(0, |index| 1 << index);
        }
        BodyMembers { list, there, folded }
    }

    /// Returns one bit for each index whose name is present exactly as the API spells it.
    pub(super) fn there(&self) -> u32 {
        self.there
    }

    /// Returns the member with this index, spelled exactly as the API does.
    #[inline]
    pub(super) fn find(&self, index: usize) -> Option<&Member> {
        if self.there >> index & 1 == 0 {
            return None;
        }
        self.list.iter().find(|member| member.wanted.is_some_and(|wanted| usize::from(wanted) == index))
    }

    /// Returns a member that a case-insensitive JSON reader would take for `model`, such as `Model`.
    pub(super) fn second_model(&self) -> Option<&Member> {
        if self.folded >> MODEL & 1 == 0 {
            return None;
        }
        self.list.iter().find(|member| member.folded.is_some_and(|folded| usize::from(folded) == MODEL))
    }

    /// Returns whether a member with one of these indexes is present, in any letter case.
    pub(super) fn has_any(&self, indexes: u32) -> bool {
        (self.there | self.folded) & indexes != 0
    }

    /// Returns the members with these indexes, in any letter case, each with its index.
    pub(super) fn with_any(&self, indexes: u32) -> impl Iterator<Item = (usize, &Member)> {
        let list = if self.has_any(indexes) { &self.list[..] } else { &[] };
        list.iter().filter_map(move |member| {
            let index = usize::from(member.wanted.or(member.folded)?);
            (indexes >> index & 1 == 1).then_some((index, member))
        })
    }
}
