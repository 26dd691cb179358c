//! The running gateway as the admin port sees it.

use std::borrow::Cow;

use crate::config::ReloadOutcome;
use crate::ledger::admin::LedgerAdmin;
use crate::limits::{Remaining, Scope, UsageLimits};
use crate::route::Nanos;
use crate::snapshot::Snapshot;

/// Result of the last health check of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderCheck {
    /// Name of the outcome.
    pub outcome: &'static str,
    /// HTTP status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// Time in Unix seconds.
    pub time: i64,
}

/// Limits of a key or an account, with what is used of them.
#[derive(Clone, Debug)]
pub struct LimitUse {
    /// Limits.
    pub limits: UsageLimits,
    /// Account of a key. `None` for a key without one, and for an account.
    pub account: Option<String>,
    /// Requests that are left. `None` without a limit.
    pub requests: Option<Remaining>,
    /// Tokens that are left. `None` without a limit.
    pub tokens: Option<Remaining>,
    /// Requests in flight. `None` if that is not known, as for limits that a fleet shares.
    pub in_flight: Option<u32>,
    /// Spend of this day and this month, with what requests in progress have reserved, in nano-units. `None` if no
    /// request has needed it yet.
    pub spent: Option<(i64, i64)>,
}

/// Control of the running gateway.
pub trait GatewayControl: Send + Sync + 'static {
    /// Returns an error with the reason if the process should not get new requests.
    fn ready(&self) -> Result<(), Cow<'static, str>>;

    /// Returns the loaded configuration, the result of the last reload and the state of the targets as JSON, for
    /// `/status`.
    fn status_json(&self) -> String;

    /// Updates the series that are not maintained continuously, before a scrape.
    fn refresh(&self) {}

    /// Returns whether the process is draining.
    fn is_draining(&self) -> bool;

    /// Returns the number of requests in flight.
    fn in_flight(&self) -> usize;

    /// Calls `look` with the active snapshot and the present time of its clock.
    fn with_snapshot(&self, look: &mut dyn FnMut(&Snapshot, Nanos));

    /// Returns the last health check of a provider; `None` if it is not checked, or was not yet.
    fn last_check(&self, provider: &str) -> Option<ProviderCheck>;

    /// Returns the limits of a key or an account, with what is used of them. `None` if the configuration has none of this
    /// name.
    fn limits_in_use(&self, scope: Scope, name: &str) -> Option<LimitUse>;

    /// Drains a target in all models, or ends that. Returns false if nothing changes.
    fn set_drained(&self, provider: &str, model: &str, drained: bool) -> bool;

    /// Counts and logs a reload that the admin API has caused.
    fn report_reload(&self, outcome: &ReloadOutcome);

    /// Opens the administration of the ledger. Blocks.
    ///
    /// # Errors
    /// Returns a description if the store cannot be opened.
    fn open_ledger(&self) -> Result<Box<dyn LedgerAdmin + Send>, String>;
}
