//! Limits of keys and accounts, and how much of them is used.
//!
//! The rate limiter ([`gcra`]), the usage of the limits of one key or account ([`LimitState`]), the registry of all of
//! them ([`LimitRegistry`]), and this gateway's part of limits that several gateways share ([`quota_lease`],
//! [`Limiter`]) live here. Time is passed in. Here must not live: the configuration of keys (`account`), or the
//! protocol with a coordinator (`ledger`).

mod calendar;
pub mod gcra;
mod limiter;
pub mod quota_lease;
mod registry;
mod state;

pub use gcra::{Gcra, Nanos, Remaining};

pub use {
    calendar::Calendar,
    limiter::{LimitOwner, Limiter},
    quota_lease::Denied,
    registry::{LimitRegistry, Scope},
    state::{Exceeded, LimitGrant, LimitRequest, LimitState, UsageLimits, Which},
};
