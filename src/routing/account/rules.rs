//! Rules of a key, shared by all keys with equal rules; and the accounts that keys belong to.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use super::{ClientCertificate, Losses, Network, Pattern, Permission, TierPolicy};
use crate::limits::{LimitRegistry, LimitState, Scope, UsageLimits};
use codec::canonical::CachePolicy;

/// Rules of a key: what it may do. The default permits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccountRules {
    /// Permitted models.
    pub models: Permission,
    /// Permitted APIs, by name.
    pub endpoints: Permission,
    /// Networks that it may be used from; `None` for all.
    pub networks: Option<Box<[Network]>>,
    /// Names of client certificates of which one is required; `None` if no certificate is.
    pub certificates: Option<Box<[Pattern]>>,
    /// Policy for losses in translation.
    pub losses: Losses,
    /// Limits of the key.
    pub limits: UsageLimits,
    /// Prompt-cache policy; `None` for that of the model.
    pub prompt_cache: Option<CachePolicy>,
    /// True if image endpoints answer in OpenAI's plain response shape by default.
    pub plain_images: bool,
    /// Service tiers that it may use.
    pub tiers: TierPolicy,
}

impl AccountRules {
    /// Returns true if the key may be used from an address. An unknown address is in no network.
    pub fn permits_address(&self, address: Option<IpAddr>) -> bool {
        match (&self.networks, address) {
            (None, _) => true,
            (Some(networks), Some(address)) => networks.iter().any(|network| network.contains(address)),
            (Some(_), None) => false,
        }
    }

    /// Returns true if the key may be used over a connection with this client certificate; `None` for a connection
    /// without one.
    pub fn permits_certificate(&self, certificate: Option<&ClientCertificate>) -> bool {
        match (&self.certificates, certificate) {
            (None, _) => true,
            (Some(patterns), Some(certificate)) => certificate.matches(patterns),
            (Some(_), None) => false,
        }
    }
}

/// Account that pays for its keys. Its balance is in the ledger, under its name.
#[derive(Clone, Debug)]
pub struct Account {
    /// Name of the account.
    pub name: Arc<str>,
    limits: OnceLock<UsageLimits>,
    tiers: OnceLock<TierPolicy>,
    limit_state: OnceLock<Arc<LimitState>>,
}

impl Account {
    /// Creates an account without limits.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Account {
            name: name.into(),
            limits: OnceLock::new(),
            tiers: OnceLock::new(),
            limit_state: OnceLock::new(),
        }
    }

    /// Sets the limits of all its keys together. Returns false if they were set before.
    pub fn limit(&self, limits: UsageLimits) -> bool {
        self.limits.set(limits).is_ok()
    }

    /// Returns the limits of all its keys together.
    pub fn limits(&self) -> &UsageLimits {
        self.limits.get_or_init(UsageLimits::default)
    }

    /// Sets the service tiers that its keys may use. Without effect if they were set before.
    pub fn restrict_tiers(&self, tiers: TierPolicy) {
        let _ = self.tiers.set(tiers);
    }

    /// Returns the service tiers that its keys may use.
    pub fn tiers(&self) -> TierPolicy {
        self.tiers.get().copied().unwrap_or_default()
    }

    /// Returns the usage of its limits.
    pub fn limit_state(&self, gauges: &LimitRegistry) -> &Arc<LimitState> {
        self.limit_state.get_or_init(|| gauges.state(Scope::Account, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_address_outside_all_networks_is_refused() {
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
