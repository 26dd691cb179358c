//! Service tiers that a key or an account may use.

use codec::canonical::{ServiceTier, TierSet};

/// What becomes of a request for a service tier that is not permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TierFallback {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is served in the standard tier.
    Standard,
}

impl TierFallback {
    /// All, in the order of the documentation.
    pub const ALL: [TierFallback; 2] = [TierFallback::Refuse, TierFallback::Standard];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TierFallback::Refuse => "refuse",
            TierFallback::Standard => "standard",
        }
    }

    /// Returns the one of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        TierFallback::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// Service tiers that a key or an account may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TierPolicy {
    /// Permitted tiers; `None` for all whose price is known.
    pub permitted: Option<TierSet>,
    /// What becomes of a request for another tier. `None` for the default, which refuses it.
    pub otherwise: Option<TierFallback>,
}

impl TierPolicy {
    /// Returns the policy of a key with this policy whose account has the other one: both must permit a tier, and the key
    /// says what becomes of the others.
    #[must_use]
    pub fn with_account(self, account: TierPolicy) -> TierPolicy {
        let permitted = match (self.permitted, account.permitted) {
            (Some(own), Some(other)) => Some(own.and(other)),
            (own, other) => own.or(other),
        };
        TierPolicy { permitted, otherwise: self.otherwise.or(account.otherwise) }
    }

    /// Returns whether the policy permits a tier by name. `None` if it names no tiers.
    pub fn permits(&self, tier: ServiceTier) -> Option<bool> {
        let permitted = self.permitted?;
        Some(permitted.has(tier) || tier.twin().is_some_and(|twin| permitted.has(twin)))
    }

    /// Returns what becomes of a request for a tier that is not permitted.
    pub fn otherwise(&self) -> TierFallback {
        self.otherwise.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_policy_of_key_and_account_permits_what_both_permit() {
        use ServiceTier::*;
        let of = |tiers: &[ServiceTier]| TierPolicy {
            permitted: Some(TierSet::of(tiers.iter().copied())),
            otherwise: None,
        };
        let both = of(&[Standard, Flex]).with_account(of(&[Standard, Priority]));
        assert_eq!(both, of(&[Standard]));
        assert_eq!(TierPolicy::default().with_account(of(&[Flex])), of(&[Flex]));
        assert_eq!(of(&[Flex]).with_account(TierPolicy::default()), of(&[Flex]));
        assert_eq!(of(&[Priority]).permits(Fast), Some(true), "two names of one tier");
        assert_eq!(of(&[Standard]).permits(Unknown), Some(false));
        assert_eq!(TierPolicy::default().permits(Unknown), None);
        let account = TierPolicy { otherwise: Some(TierFallback::Standard), ..TierPolicy::default() };
        assert_eq!(TierPolicy::default().with_account(account).otherwise(), TierFallback::Standard);
        assert_eq!(TierPolicy::default().otherwise(), TierFallback::Refuse);
    }
}
