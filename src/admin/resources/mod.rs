//! Operations of the admin API, one file for each kind of thing.

pub(super) mod accounts;
pub(super) mod audit;
pub(super) mod catalogue;
pub(super) mod change;
pub(super) mod config;
pub(super) mod explain;
pub(super) mod fleet;
pub(super) mod instance;
pub(super) mod keys;
pub(super) mod limits;
pub(super) mod models;
pub(super) mod playground;
pub(super) mod providers;
mod search;
pub(super) mod session;
pub(super) mod targets;
pub(super) mod totals;
pub(super) mod usage;

use codec::canonical::time::rfc3339;

/// Formats Unix seconds.
fn time(seconds: i64) -> String {
    rfc3339(seconds)
}
