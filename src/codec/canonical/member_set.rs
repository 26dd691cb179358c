//! Set of request members, by name: those that a model refuses. One bit each, so that a profile is copied without an
//! allocation.

/// Members that a model may refuse.
const NAMES: [&str; 12] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "stop",
    "tool_strict",
    "top_k",
    "user",
];

/// Set of request members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSet(u16);

impl MemberSet {
    /// No member.
    pub const EMPTY: MemberSet = MemberSet(0);

    /// Returns the set with one more member. `None` if no member has this name.
    #[must_use]
    pub fn with(self, name: &str) -> Option<MemberSet> {
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(MemberSet(self.0 | 1 << at))
    }

    /// Returns whether the set has a member.
    pub fn has(self, name: &str) -> bool {
        // Most models refuse none.
        self.0 != 0 && MemberSet::EMPTY.with(name).is_some_and(|member| self.0 & member.0 != 0)
    }

    /// Returns the names of the members.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |name| self.has(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_has_its_members_only() {
        let set = MemberSet::EMPTY.with("stop").and_then(|set| set.with("n")).unwrap();
        assert!(set.has("stop") && set.has("n") && !set.has("seed") && !set.has("unheard-of"));
        assert_eq!(set.names().collect::<Vec<_>>(), ["n", "stop"]);
        assert_eq!(set.with("unheard-of"), None);
    }
}
