//! What a key may do, shared by all keys that may do the same; and the accounts that keys belong to.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use super::gauges::{Gauges, Scope};
use super::limit::{Gauge, Limits};
use super::{Losses, Network, Permission};

/// What a key may do. Everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The models that it may use.
    pub models: Permission,
    /// The APIs that it may use, by name.
    pub endpoints: Permission,
    /// The networks that it may be used from; nothing for all.
    pub networks: Option<Box<[Network]>>,
    /// What is done where something would be lost in translation.
    pub losses: Losses,
    /// How much it may take.
    pub limits: Limits,
    /// Its clients want images as OpenAI's SDK reads them.
    pub plain_images: bool,
}

impl Rules {
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
    limits: OnceLock<Limits>,
    gauge: OnceLock<Arc<Gauge>>,
}

impl Account {
    /// An account of which nothing more is known.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Account { name: name.into(), limits: OnceLock::new(), gauge: OnceLock::new() }
    }

    /// Says how much all of its keys together may take; false if that has been said.
    pub fn limit(&self, limits: Limits) -> bool {
        self.limits.set(limits).is_ok()
    }

    /// How much all of its keys together may take.
    pub fn limits(&self) -> &Limits {
        self.limits.get_or_init(Limits::default)
    }

    /// How much of its limits is taken.
    pub fn gauge(&self, gauges: &Gauges) -> &Arc<Gauge> {
        self.gauge.get_or_init(|| gauges.of(Scope::Account, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_be_in_one_of_the_networks() {
        let inside = "10.1.2.3".parse().ok();
        assert!(Rules::default().permits_address(None));
        let networks =
            ["192.0.2.0/24", "10.0.0.0/8"].iter().filter_map(|text| Network::parse(text)).collect();
        let rules = Rules { networks: Some(networks), ..Rules::default() };
        assert!(rules.permits_address(inside));
        assert!(!rules.permits_address("203.0.113.1".parse().ok()));
        assert!(!rules.permits_address(None));
    }
}
