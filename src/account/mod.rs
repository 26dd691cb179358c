//! Who asks, what they may do, how much of it, and what it costs.
//!
//! Here live keys, as hashes only ([`Keys`]), with what they may do ([`AccountRules`]: models, APIs, networks, limits,
//! losses) and the accounts that they belong to ([`Account`]); how much of a limit is taken ([`limit`], [`bucket`],
//! [`LimitRegistry`]), also where several gateways share it ([`share`]); prices and what a request costs by them
//! ([`price`], in integers: [`amount`]); and what is expected of a request before anything is known of it
//! ([`estimate`]), and what may be reported of it at most ([`usage_bound`]); and tokens that stand for a key
//! ([`Tokens`]). Here must not live: HTTP, where a key stands in a request, or balances, which the store keeps.

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
