//! Routing: selects the target that serves a request.
//!
//! Contains the routing table of models and targets ([`RoutingTable`]), the resolution of model names ([`Named`]), the
//! load balancer ([`pick`](pick::pick)) with tiers, weights, policies and limits ([`target_handle`]), circuit breakers
//! ([`breaker`]), the evaluation of health checks ([`check`]) and of failures ([`blame`]), the decision whether another
//! target is tried ([`candidates`]), retry budgets ([`retry_budget`]), session stickiness ([`sticky`]), whether prompt
//! caching repays its cost ([`cache_yield`]), for how long entries should live ([`cache_lifetime`]) and why the cache
//! was missed (`cache_misses`). The state of a
//! target survives a reload. The caller passes in time and randomness, so that tests can simulate all of it.
//!
//! Connections, bodies and the semantics of formats must not live here.

pub mod affinity;
pub mod alias;
pub mod blame;
pub mod breaker;
mod cache_counters;
pub mod cache_lifetime;
pub mod cache_misses;
pub mod cache_yield;
pub mod candidates;
pub mod check;
pub mod load;
mod name;
pub mod pick;
pub mod reported_quota;
pub mod retry_budget;
mod rules;
mod select;
pub mod sticky;
mod table;
pub mod target_handle;
pub mod target_status;

#[cfg(test)]
mod tests;

pub use crate::limits::Nanos;
pub use pick::Policy;
pub use rules::{RetryRules, RoutingRules};

pub use {
    name::Named,
    select::{stop_sequence_api, upstream_api},
    table::{ConfiguredAbilities, ListedLimits, Model, PriceOrigin, RoutingTable, Target},
};
