//! Service tiers and regions: what, besides the tokens, decides on the price of a request. A request asks for a tier, the
//! answer states the one that was served. The words of the formats are in `wire`.

/// Service tier: how a provider serves a request, and at what multiple of its price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceTier {
    /// The tier of the list price.
    #[default]
    Standard,
    /// Work that is handed in as a batch and served within a day.
    Batch,
    /// Cheaper: slower, or not served at times.
    Flex,
    /// Dearer: served before others.
    Priority,
    /// Dearer: the same model, faster.
    Fast,
    /// The dearest: the model at its greatest speed.
    Ultrafast,
    /// Capacity that was bought in advance.
    Reserved,
    /// A tier that this version does not know.
    Unknown,
}

impl ServiceTier {
    /// All tiers, in the order of the documentation.
    pub const ALL: [ServiceTier; 8] = [
        ServiceTier::Standard,
        ServiceTier::Batch,
        ServiceTier::Flex,
        ServiceTier::Priority,
        ServiceTier::Fast,
        ServiceTier::Ultrafast,
        ServiceTier::Reserved,
        ServiceTier::Unknown,
    ];
    /// Tiers that a configuration can name.
    pub const NAMED: [ServiceTier; 7] = [
        ServiceTier::Standard,
        ServiceTier::Batch,
        ServiceTier::Flex,
        ServiceTier::Priority,
        ServiceTier::Fast,
        ServiceTier::Ultrafast,
        ServiceTier::Reserved,
    ];

    /// Returns the name in configurations, records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ServiceTier::Standard => "standard",
            ServiceTier::Batch => "batch",
            ServiceTier::Flex => "flex",
            ServiceTier::Priority => "priority",
            ServiceTier::Fast => "fast",
            ServiceTier::Ultrafast => "ultrafast",
            ServiceTier::Reserved => "reserved",
            ServiceTier::Unknown => "unknown",
        }
    }

    /// Returns the tier of this name that a configuration can name. `None` if there is none.
    pub fn from_name(name: &str) -> Option<ServiceTier> {
        ServiceTier::NAMED.into_iter().find(|tier| tier.name() == name)
    }

    /// Returns the tier that has the same meaning elsewhere: some providers call the tier that is served before others the
    /// fast one. `None` for the others.
    pub const fn twin(self) -> Option<ServiceTier> {
        match self {
            ServiceTier::Priority => Some(ServiceTier::Fast),
            ServiceTier::Fast => Some(ServiceTier::Priority),
            _ => None,
        }
    }

    /// Returns whether the tier may cost more than the list price.
    pub const fn may_be_dearer(self) -> bool {
        matches!(
            self,
            ServiceTier::Priority | ServiceTier::Fast | ServiceTier::Ultrafast | ServiceTier::Unknown
        )
    }
}

/// Set of service tiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TierSet(u8);

impl TierSet {
    /// All tiers.
    pub const ALL: TierSet = TierSet(u8::MAX);
    /// No tier.
    pub const NONE: TierSet = TierSet(0);

    /// Returns the set of these tiers.
    pub fn of(tiers: impl IntoIterator<Item = ServiceTier>) -> TierSet {
        TierSet(tiers.into_iter().fold(0, |set, tier| set | 1 << tier as u8))
    }

    /// Returns the set of one tier.
    pub const fn one(tier: ServiceTier) -> TierSet {
        TierSet(1 << tier as u8)
    }

    /// Returns whether the set has a tier.
    pub const fn has(self, tier: ServiceTier) -> bool {
        self.0 >> tier as u8 & 1 != 0
    }

    /// Returns whether the set has no tier.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the tiers of both sets.
    #[must_use]
    pub const fn or(self, other: TierSet) -> TierSet {
        TierSet(self.0 | other.0)
    }

    /// Returns the tiers that are in both sets.
    #[must_use]
    pub const fn and(self, other: TierSet) -> TierSet {
        TierSet(self.0 & other.0)
    }

    /// Returns the tiers of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: TierSet) -> TierSet {
        TierSet(self.0 & !other.0)
    }

    /// Returns the tiers of the set, in the order of the documentation.
    pub fn tiers(self) -> impl Iterator<Item = ServiceTier> + Clone {
        ServiceTier::ALL.into_iter().filter(move |tier| self.has(*tier))
    }
}

impl Default for TierSet {
    /// Returns the set of the tier of the list price.
    fn default() -> Self {
        TierSet::one(ServiceTier::Standard)
    }
}

impl std::fmt::Debug for TierSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tiers().map(ServiceTier::name)).finish()
    }
}

/// Service tier and region that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierRequest {
    /// Tier that counts if the response states none.
    pub tier: ServiceTier,
    /// Tiers in which the request may be served.
    pub tiers: TierSet,
    /// Region that the request asks for; `None` if it asks for none with a price of its own.
    pub region: Option<Region>,
}

impl TierRequest {
    /// Returns the request for exactly this tier.
    pub const fn of(tier: ServiceTier) -> TierRequest {
        TierRequest { tier, tiers: TierSet::one(tier), region: None }
    }
}

/// Region whose requests have a price of their own: that of a regional host, of an inference profile, or the one that a
/// request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// The United States.
    Us,
    /// Europe.
    Eu,
    /// Asia and the Pacific.
    Apac,
    /// Japan.
    Jp,
    /// Australia.
    Au,
    /// India.
    In,
    /// The government of the United States.
    UsGov,
    /// Any single location, of a provider whose list price is that of all locations together.
    Regional,
    /// A region that this version does not know.
    Unknown,
}

impl Region {
    /// Regions that a configuration can name.
    pub const NAMED: [Region; 8] = [
        Region::Us,
        Region::Eu,
        Region::Apac,
        Region::Jp,
        Region::Au,
        Region::In,
        Region::UsGov,
        Region::Regional,
    ];

    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Region::Us => "us",
            Region::Eu => "eu",
            Region::Apac => "apac",
            Region::Jp => "jp",
            Region::Au => "au",
            Region::In => "in",
            Region::UsGov => "us-gov",
            Region::Regional => "regional",
            Region::Unknown => "unknown",
        }
    }

    /// Returns the region of this name that a configuration can name. `None` if there is none.
    pub fn from_name(name: &str) -> Option<Region> {
        Region::NAMED.into_iter().find(|region| region.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_tier_names_lead_back() {
        for tier in ServiceTier::NAMED {
            assert_eq!(ServiceTier::from_name(tier.name()), Some(tier));
        }
        assert_eq!(ServiceTier::from_name("unknown"), None, "it is no tier that one could ask for");
        for region in Region::NAMED {
            assert_eq!(Region::from_name(region.name()), Some(region));
        }
        assert_eq!(ServiceTier::ALL.map(|tier| tier as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn service_tier_sets_are_sets() {
        let set = TierSet::of([ServiceTier::Flex, ServiceTier::Standard]);
        assert_eq!(set.tiers().map(ServiceTier::name).collect::<Vec<_>>(), ["standard", "flex"]);
        assert!(set.has(ServiceTier::Flex) && !set.has(ServiceTier::Priority) && !set.is_empty());
        assert_eq!(set.without(TierSet::default()), TierSet::one(ServiceTier::Flex));
        assert_eq!(set.and(TierSet::default()), TierSet::default());
        assert_eq!(set.or(TierSet::ALL), TierSet::ALL);
        assert_eq!(format!("{set:?}"), r#"{"standard", "flex"}"#);
        assert!(TierSet::NONE.is_empty());
    }
}
