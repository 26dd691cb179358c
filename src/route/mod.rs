//! Which target answers a request for a model.
//!
//! Here live the table of models and their targets ([`RoutingTable`]), what a client may call them ([`Named`]), and the
//! choice among them ([`pick`](pick::pick)): tiers, weights, policies, limits ([`target_handle`]), what is left alone
//! because it fails ([`breaker`]) and what checks say of it ([`check`]), whose fault a failure is ([`blame`]), how
//! often a request may be tried again ([`retry_budget`]) and who has what a request goes on from ([`sticky`]). What is
//! known of a target outlives a reload. Time and chance are given by the caller, so that all of it can be simulated.
//!
//! Here must not live: connections, bodies, or what a format means.

pub mod affinity;
pub mod blame;
pub mod breaker;
pub mod check;
pub mod load;
#[cfg(feature = "proxy")]
mod name;
pub mod pick;
pub mod reported_quota;
pub mod retry_budget;
#[cfg(feature = "proxy")]
mod rules;
#[cfg(feature = "proxy")]
mod select;
pub mod sticky;
#[cfg(feature = "proxy")]
mod table;
pub mod target_handle;

#[cfg(test)]
mod tests;

/// A point in time: nanoseconds since some beginning that is the same for all.
pub type Nanos = i64;

pub use pick::Policy;

#[cfg(feature = "proxy")]
pub use {
    name::Named,
    rules::{RetryRules, RoutingRules},
    select::{api_that_stops, upstream_api},
    table::{Model, RoutingTable, Target},
};
