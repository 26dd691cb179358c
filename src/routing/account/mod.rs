//! Accounts and keys: authentication, permissions, limits and prices.
//!
//! Keys live here, as hashes only ([`Keys`]), with their rules ([`AccountRules`]: models, APIs, networks, limits,
//! losses) and the accounts that they belong to ([`Account`]); prices and the cost of a request ([`price`], in
//! integers: [`amount`]); the estimate of a request's usage ([`estimate`]) and the upper bound of what a provider may
//! report ([`usage_bound`]); the address of a client behind trusted proxies ([`TrustedProxies`]) and the names in its
//! certificate ([`ClientCertificate`]); access tokens that stand for a key ([`Tokens`]); access keys for AWS signatures
//! ([`AccessKey`]), whose secrets are the only ones here; and tokens of the admin API ([`AdminToken`]). Here must not
//! live: HTTP, the place of a key in a request, the usage of limits (`limits`), or balances (`ledger`).

mod access_key;
mod admin_token;
pub mod amount;
mod certificate;
mod client_address;
pub mod estimate;
mod key;
mod losses;
mod network;
mod permission;
mod previous_key;
pub mod price;
mod rules;
mod tier_policy;
mod token;
pub mod usage_bound;

pub use access_key::{AccessKey, NewAccessKey};
pub use admin_token::{AdminRole, AdminToken};
pub use amount::Amount;
pub use certificate::{CERTIFICATE_NAME_KINDS, ClientCertificate};
pub use client_address::{ForwardedHeader, TrustedProxies};
pub use estimate::{ExpectedUsage, PremiumInputKinds};
pub use key::{Key, KeyHash, KeyState, Keys, NewKey, is_mistyped, redact_keys};
pub use losses::Losses;
pub use network::Network;
pub use permission::{Pattern, Permission};
pub use previous_key::MAX_PREVIOUS;
pub use price::{CacheEffect, Price};
pub use rules::{Account, AccountRules};
pub use tier_policy::{TierFallback, TierPolicy};
pub use token::{Signature, TokenFault, TokenKey, TokenKeyFault, Tokens, is_token};
pub use usage_bound::UsageBound;
