//! Tokens of the admin API: their roles, and the callers that they name.

use std::net::IpAddr;

use super::{KeyHash, Network};

/// Role of a caller of the admin API. A role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// Reads state, usage and configuration.
    Read,
    /// Also drains targets, reloads, and credits accounts.
    Operate,
    /// Also changes keys, accounts, models and providers.
    Admin,
}

impl AdminRole {
    /// All roles, the weakest first.
    pub const ALL: [AdminRole; 3] = [AdminRole::Read, AdminRole::Operate, AdminRole::Admin];

    /// Returns the name in files and documents.
    pub const fn name(self) -> &'static str {
        match self {
            AdminRole::Read => "read",
            AdminRole::Operate => "operate",
            AdminRole::Admin => "admin",
        }
    }

    /// Returns the role of this name; `None` if there is no such role.
    pub fn from_name(name: &str) -> Option<AdminRole> {
        AdminRole::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Token of the admin API. Only its hash is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Name, which the audit log shows.
    pub name: String,
    /// Hash of the token's text.
    pub hash: KeyHash,
    /// Role of its holder.
    pub role: AdminRole,
    /// True if the token is enabled.
    pub enabled: bool,
    /// Expiry in Unix seconds; `None` if it never expires.
    pub expires: Option<i64>,
    /// Networks that it may be used from; `None` for all.
    pub networks: Option<Vec<Network>>,
}

impl AdminToken {
    /// Returns true if the token may be used now (in Unix seconds) from an address.
    pub fn is_usable(&self, now: i64, address: Option<IpAddr>) -> bool {
        let from_here = match (&self.networks, address) {
            (None, _) => true,
            (Some(networks), Some(address)) => networks.iter().any(|network| network.contains(address)),
            (Some(_), None) => false,
        };
        self.enabled && self.expires.is_none_or(|end| end > now) && from_here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_token_is_refused_when_disabled_expired_or_elsewhere() {
        let token = AdminToken {
            name: "ops".to_owned(),
            hash: KeyHash::of("x"),
            role: AdminRole::Operate,
            enabled: true,
            expires: Some(100),
            networks: Network::parse("10.0.0.0/8").map(|network| vec![network]),
        };
        let inside = "10.1.2.3".parse().ok();
        assert!(token.is_usable(99, inside));
        assert!(!token.is_usable(100, inside));
        assert!(!token.is_usable(99, "192.0.2.1".parse().ok()));
        assert!(!token.is_usable(99, None), "a Unix socket is in no network");
        assert!(!AdminToken { enabled: false, ..token }.is_usable(99, inside));
        assert!(AdminRole::Admin > AdminRole::Operate && AdminRole::Operate > AdminRole::Read);
    }
}
