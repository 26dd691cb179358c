//! Automatic prompt-cache breakpoints: the places at which they are set in a request whose client set none.
//!
//! The places depend on the conversation alone, not on time or earlier requests, so that the next request of a
//! conversation reads what this one writes: behind the tools, behind the instructions, behind the user turn that the
//! model answered last, and behind the user turn that it is to answer now. The last place of one request is the third
//! place of the next, so that no search for an earlier cache entry is necessary, however many blocks a turn has.
//!
//! The lifetimes may change from request to request: a provider finds an entry by the content before the place, of
//! which the lifetime is no part, so that nothing that was written is lost.

use super::{CacheBreakpoint, Role};

/// Maximum number of automatic breakpoints of a request.
pub const MAX_BREAKPOINTS: usize = 4;

/// Bytes of JSON per token, as a lower bound. Text has three to four, dense JSON two and a half.
const MIN_BYTES_PER_TOKEN: usize = 2;

/// Prompt-cache policy of a model or a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// The gateway adds nothing to requests.
    #[default]
    Off,
    /// Breakpoints and a prompt-cache key. Entries live for 5 minutes, and those of tools and instructions for 1 hour
    /// where the pauses between requests make that the cheaper one.
    Auto,
    /// Breakpoints with a lifetime of 5 minutes, and a prompt-cache key.
    Short,
    /// Breakpoints with a lifetime of 1 hour, and a prompt-cache key.
    Hour,
}

impl CachePolicy {
    /// All policies, in the order of the documentation.
    pub const ALL: [CachePolicy; 4] =
        [CachePolicy::Off, CachePolicy::Auto, CachePolicy::Short, CachePolicy::Hour];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            CachePolicy::Off => "off",
            CachePolicy::Auto => "auto",
            CachePolicy::Short => "5m",
            CachePolicy::Hour => "1h",
        }
    }

    /// Returns the policy of this name. `None` if the name is unknown.
    pub fn from_name(name: &str) -> Option<CachePolicy> {
        CachePolicy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns the rule for automatic breakpoints at a model that takes breakpoints like this. `long_pays` is whether the
    /// pauses between requests make a long lifetime of tools and instructions the cheaper one. `None` if the gateway
    /// sets no breakpoints.
    pub const fn rule(self, support: BreakpointSupport, long_pays: bool) -> Option<BreakpointRule> {
        let (instructions, turns) = match self {
            CachePolicy::Off => return None,
            // The only lifetime that the model has.
            _ if !support.long => (CacheBreakpoint::Short, CacheBreakpoint::Short),
            CachePolicy::Auto if long_pays => (CacheBreakpoint::Long, CacheBreakpoint::Short),
            CachePolicy::Auto | CachePolicy::Short => (CacheBreakpoint::Short, CacheBreakpoint::Short),
            CachePolicy::Hour => (CacheBreakpoint::Long, CacheBreakpoint::Long),
        };
        let BreakpointSupport { min_tokens, tools, .. } = support;
        Some(BreakpointRule { instructions, turns, min_tokens, tools })
    }

    /// Returns the lifetimes that breakpoints of this policy may have: the short one also where a model has no other.
    pub const fn lifetimes(self) -> &'static [CacheBreakpoint] {
        match self {
            CachePolicy::Off => &[],
            CachePolicy::Short => &[CacheBreakpoint::Short],
            CachePolicy::Auto | CachePolicy::Hour => &[CacheBreakpoint::Short, CacheBreakpoint::Long],
        }
    }
}

/// Explicit breakpoints as a model takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakpointSupport {
    /// Minimum length of a cacheable prefix in tokens. The provider ignores a breakpoint behind a shorter prefix.
    pub min_tokens: u32,
    /// Whether a tool can have a breakpoint.
    pub tools: bool,
    /// Whether a breakpoint can have a lifetime of 1 hour.
    pub long: bool,
}

impl BreakpointSupport {
    /// Returns the support for breakpoints at all places and with both lifetimes.
    pub const fn full(min_tokens: u32) -> Self {
        BreakpointSupport { min_tokens, tools: true, long: true }
    }
}

/// Rule for the automatic breakpoints of one request. The lifetime behind tools and instructions must not be shorter
/// than that behind turns: providers refuse a long lifetime behind a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakpointRule {
    /// Lifetime of the breakpoints behind tools and instructions.
    pub instructions: CacheBreakpoint,
    /// Lifetime of the breakpoints behind turns.
    pub turns: CacheBreakpoint,
    /// Minimum length of a cacheable prefix in tokens. The provider ignores a breakpoint behind a shorter prefix.
    pub min_tokens: u32,
    /// Whether tools get a breakpoint.
    pub tools: bool,
}

impl BreakpointRule {
    /// Returns whether a prefix of this many bytes may have the minimum number of tokens.
    pub fn may_cache(&self, prefix: usize) -> bool {
        prefix / MIN_BYTES_PER_TOKEN >= usize::try_from(self.min_tokens).unwrap_or(usize::MAX)
    }
}

/// Search for the breakpoints behind turns. The turns are passed from the last to the first.
#[derive(Clone, Copy, Debug)]
pub struct TurnSearch<T> {
    current: Option<T>,
    answered: Option<T>,
    /// Whether a user turn was passed.
    has_user: bool,
    /// Whether an assistant turn before a user turn was passed.
    has_answer: bool,
    /// Whether an assistant turn before the current place was passed.
    is_answer_passed: bool,
}

impl<T> Default for TurnSearch<T> {
    fn default() -> Self {
        TurnSearch {
            current: None,
            answered: None,
            has_user: false,
            has_answer: false,
            is_answer_passed: false,
        }
    }
}

impl<T> TurnSearch<T> {
    /// Passes the next turn. Returns whether a breakpoint is wanted behind its last block that can have one; the caller
    /// then passes that block to [`set`](Self::set), if there is one.
    pub fn wants(&mut self, role: Role) -> bool {
        match role {
            // An assistant turn at the end is a prefill, which changes with the next request.
            Role::Assistant => {
                self.has_answer |= self.has_user;
                self.is_answer_passed |= self.current.is_some();
                false
            }
            Role::User => {
                self.has_user = true;
                self.current.is_none() || (self.is_answer_passed && self.answered.is_none())
            }
            Role::System | Role::Developer => false,
        }
    }

    /// Sets the place of a wanted breakpoint.
    pub fn set(&mut self, place: T) {
        if self.current.is_none() { &mut self.current } else { &mut self.answered }.replace(place);
    }

    /// Returns whether both places are found, so that earlier turns do not matter.
    pub fn is_complete(&self) -> bool {
        self.answered.is_some()
    }

    /// Returns the places in the order of the conversation. A request that has neither an earlier answer nor tools is
    /// rarely continued: the place behind its turn is omitted, because a cache entry costs more than plain input.
    pub fn finish(self, has_tools: bool) -> [Option<T>; 2] {
        let continues = self.has_answer || has_tools;
        [self.answered, self.current.filter(|_| continues)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(roles: &[Role], has_tools: bool) -> [Option<usize>; 2] {
        let mut search = TurnSearch::default();
        for (index, role) in roles.iter().enumerate().rev() {
            if search.wants(*role) {
                search.set(index);
            }
            if search.is_complete() {
                break;
            }
        }
        search.finish(has_tools)
    }

    #[test]
    fn turn_search_finds_the_answered_and_the_current_user_turn() {
        use Role::{Assistant as A, Developer as D, System as S, User as U};
        let none: [Role; 0] = [];
        for (roles, expected) in [
            (&none[..], [None, None]),
            (&[U], [None, Some(0)]),
            (&[S, U, U], [None, Some(2)]),
            (&[U, A, U], [Some(0), Some(2)]),
            (&[U, A, U, S], [Some(0), Some(2)]),
            (&[U, U, A, A, D, U, U], [Some(1), Some(6)]),
            // A prefill is not an answer.
            (&[U, A], [None, Some(0)]),
            (&[U, A, U, A], [Some(0), Some(2)]),
            (&[A, U], [None, Some(1)]),
        ] {
            assert_eq!(places(roles, true), expected, "{roles:?}");
        }
    }

    #[test]
    fn turn_search_last_place_is_the_answered_place_of_the_next_request() {
        use Role::{Assistant as A, User as U};
        let mut roles = vec![U];
        for _ in 0..10 {
            let [_, current] = places(&roles, true);
            roles.extend([A, U]);
            assert_eq!(places(&roles, true)[0], current);
        }
    }

    #[test]
    fn turn_search_omits_the_place_of_a_single_question() {
        use Role::{Assistant as A, User as U};
        assert_eq!(places(&[U], false), [None, None]);
        assert_eq!(places(&[U, A], false), [None, None], "a prefill");
        assert_eq!(places(&[U, A, U], false), [Some(0), Some(2)]);
    }

    #[test]
    fn breakpoint_rule_skips_prefixes_below_the_minimum() {
        let rule = CachePolicy::Short.rule(BreakpointSupport::full(1024), false).unwrap();
        assert!(!rule.may_cache(2047) && rule.may_cache(2048) && rule.may_cache(usize::MAX));
    }

    #[test]
    fn cache_policy_name_is_unique_and_found() {
        for policy in CachePolicy::ALL {
            assert_eq!(CachePolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(CachePolicy::from_name("on"), None);
    }

    #[test]
    fn cache_policy_long_lifetimes_precede_short_ones() {
        use CacheBreakpoint::{Long, Short};
        let of = |policy: CachePolicy, long_pays| {
            let rule = policy.rule(BreakpointSupport::full(0), long_pays);
            rule.map(|rule| [rule.instructions, rule.turns])
        };
        for long_pays in [false, true] {
            assert_eq!(of(CachePolicy::Off, long_pays), None);
            assert_eq!(of(CachePolicy::Short, long_pays), Some([Short, Short]));
            assert_eq!(of(CachePolicy::Hour, long_pays), Some([Long, Long]));
            for policy in CachePolicy::ALL {
                let lifetimes = of(policy, long_pays);
                assert_ne!(lifetimes, Some([Short, Long]), "the provider refuses this order");
                assert!(lifetimes.iter().flatten().all(|lifetime| policy.lifetimes().contains(lifetime)));
            }
        }
        assert_eq!(of(CachePolicy::Auto, false), Some([Short, Short]));
        let only_short = BreakpointSupport { long: false, tools: false, min_tokens: 9 };
        for policy in [CachePolicy::Auto, CachePolicy::Short, CachePolicy::Hour] {
            let rule = policy.rule(only_short, true);
            assert_eq!(
                rule,
                Some(BreakpointRule { instructions: Short, turns: Short, min_tokens: 9, tools: false })
            );
        }
        assert_eq!(of(CachePolicy::Auto, true), Some([Long, Short]));
    }
}
