//! Accounts and keys: authentication, permissions, limits and prices.
//!
//! Keys live here, as hashes only ([`Keys`]), with their rules ([`AccountRules`]: models, APIs, networks, limits,
//! losses) and the accounts that they belong to ([`Account`]); the usage of limits ([`limit`], [`gcra`],
//! [`LimitRegistry`]), also of limits that several gateways share ([`quota_lease`]); prices and the cost of a request
//! ([`price`], in integers: [`amount`]); the estimate of a request's usage ([`estimate`]) and the upper bound of what a
//! provider may report ([`usage_bound`]); and access tokens that stand for a key ([`Tokens`]). Here must not live:
//! HTTP, the place of a key in a request, or balances, which the store holds.

pub mod amount;
mod calendar;
pub mod estimate;
pub mod gcra;
mod key;
pub mod limit;
mod limit_registry;
mod losses;
mod network;
mod permission;
pub mod price;
pub mod quota_lease;
mod rules;
mod token;
pub mod usage_bound;

pub use amount::Amount;
pub use calendar::Calendar;
pub use estimate::{ExpectedUsage, PremiumInputKinds};
pub use key::{Key, KeyHash, KeyState, Keys, NewKey, is_mistyped, redact_keys};
pub use limit::{Exceeded, LimitGrant, LimitState, UsageLimits};
pub use limit_registry::{LimitRegistry, Scope};
pub use losses::Losses;
pub use network::Network;
pub use permission::{Pattern, Permission};
pub use price::Price;
pub use rules::{Account, AccountRules};
pub use token::{Signature, TokenFault, TokenKey, TokenKeyFault, Tokens, is_token};
pub use usage_bound::UsageBound;
