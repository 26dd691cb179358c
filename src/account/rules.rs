//! What a key may do, shared by all keys that may do the same; and the accounts that keys belong to.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use super::limit::{LimitState, UsageLimits};
use super::limit_registry::{LimitRegistry, Scope};
use super::{Losses, Network, Permission};

/// What a key may do. Everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccountRules {
    /// The models that it may use.
    pub models: Permission,
    /// The APIs that it may use, by name.
    pub endpoints: Permission,
    /// The networks that it may be used from; nothing for all.
    pub networks: Option<Box<[Network]>>,
    /// What is done where something would be lost in translation.
    pub losses: Losses,
    /// How much it may take.
    pub limits: UsageLimits,
    /// Its clients want images as OpenAI's SDK reads them.
    pub plain_images: bool,
}

impl AccountRules {
    /// Whether the key may be used from an address. One that is not known is in no network.
    pub fn permits_address(&self, address: Option<IpAddr>) -> bool {
        match (&self.networks, address) {
            (None, _) => true,
            (Some(networks), Some(address)) => networks.iter().any(|network| network.contains(address)),
            (Some(_), None) => false,
        }
    }
}

/// Who pays: keys belong to it. Its money is in the ledger, under its name.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name.
    pub name: Arc<str>,
    limits: OnceLock<UsageLimits>,
    gauge: OnceLock<Arc<LimitState>>,
}

impl Account {
    /// An account of which nothing more is known.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Account { name: name.into(), limits: OnceLock::new(), gauge: OnceLock::new() }
    }

    /// Says how much all of its keys together may take; false if that has been said.
    pub fn limit(&self, limits: UsageLimits) -> bool {
        self.limits.set(limits).is_ok()
    }

    /// How much all of its keys together may take.
    pub fn limits(&self) -> &UsageLimits {
        self.limits.get_or_init(UsageLimits::default)
    }

    /// How much of its limits is taken.
    pub fn gauge(&self, gauges: &LimitRegistry) -> &Arc<LimitState> {
        self.gauge.get_or_init(|| gauges.of(Scope::Account, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_be_in_one_of_the_networks() {
        let inside = "10.1.2.3".parse().ok();
        assert!(AccountRules::default().permits_address(None));
        let networks =
            ["192.0.2.0/24", "10.0.0.0/8"].iter().filter_map(|text| Network::parse(text)).collect();
        let rules = AccountRules { networks: Some(networks), ..AccountRules::default() };
        assert!(rules.permits_address(inside));
        assert!(!rules.permits_address("203.0.113.1".parse().ok()));
        assert!(!rules.permits_address(None));
    }
}
