//! Balances of accounts and one usage record per request: the expected cost is reserved before a request is sent, and
//! its actual cost is charged at its end.
//!
//! The trait [`Ledger`] and its guarantees live here, with the usage record ([`record`]), the write-ahead journal that
//! makes charges durable ([`wal`]), administration ([`admin`]) reports ([`report`], [`breakdown`]) and their texts
//! ([`export`]). The two implementations are in
//! [`backend`]: SQLite and Valkey. Here must not live: prices and authorization (`account`), the decision what to
//! charge (`proxy`).

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod accounts;
pub mod admin;
pub mod backend;
pub mod breakdown;
pub mod export;
mod interface;
pub mod record;
mod record_block;
pub mod report;
mod usage_cells;
pub mod wal;
mod worker;

pub use interface::{AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent};
pub use record::UsageRecord;
