//! Billing state: the accounting handles of the process, and what a request holds until it is settled. Reservations are
//! made in `admit`, charges in `settle`.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;
use std::time::Instant;

use super::spend_queries::SpendQueries;
use codec::canonical::{ServiceTier, Usage};
use codec::translate::CountedRequest;
use routing::account::CacheEffect;
use routing::limits::{Calendar, LimitGrant, LimitRegistry};
use routing::limits::{Nanos, Remaining};
use storage::ledger::{Ledger, Reservation, Settled, UsageRecord};

/// Accounting handles of the process: ledger, limit registry and clock.
pub(crate) struct Billing {
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    pub(crate) limit_states: LimitRegistry,
    pub(crate) spend_queries: SpendQueries,
    epoch: Instant,
}

impl Billing {
    pub(crate) fn new(ledger: Option<Arc<dyn Ledger>>) -> Self {
        let shared = ledger.as_ref().is_some_and(|ledger| ledger.limiter().is_some());
        let gauges = if shared { LimitRegistry::shared() } else { LimitRegistry::default() };
        Billing {
            ledger,
            limit_states: gauges,
            spend_queries: SpendQueries::default(),
            epoch: Instant::now(),
        }
    }

    /// Converts a point in time to the clock of the limits: nanoseconds since the start of the process.
    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        i64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(i64::MAX)
    }

    /// Removes the limit states that are no longer used.
    pub(crate) fn sweep(&self) {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let calendar = Calendar::at(i64::try_from(unix.as_secs()).unwrap_or(i64::MAX));
        self.limit_states.sweep(self.nanos(Instant::now()), &calendar);
    }
}

impl std::fmt::Debug for Billing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Billing").field("gauges", &self.limit_states).finish_non_exhaustive()
    }
}

/// Accounting of a request: whether it is charged, and what is known of its charge.
#[derive(Debug, Default)]
pub(crate) enum Accounting {
    /// The request is free, or a task has taken its charge over: no usage record is written.
    #[default]
    None,
    /// The request will be charged and recorded, whatever its outcome.
    Open(RequestCharges),
    /// The request is charged and recorded.
    Settled(Box<ChargedUsage>),
}

/// Charges of one request: its limit grants and its reservation, until they are settled.
#[derive(Debug, Default)]
pub(crate) struct RequestCharges {
    /// Reservation on the account's balance. `None` for a key without an account.
    pub(crate) reservation: Option<Reservation>,
    /// Grants of the key's and the account's limits.
    pub(crate) grants: Vec<LimitGrant>,
    /// Request text to count the input tokens of, for a client that leaves before the response.
    pub(crate) counted_request: CountedRequest,
    /// The client's output limit for one answer, in tokens, and the number of answers it requests. `None` if the body
    /// was not examined.
    pub(crate) output_limit: Option<(Option<u64>, u64)>,
    /// Output tokens of all answers together that the client has requested at most. `None` if it set no limit.
    pub(crate) asked_output: Option<u64>,
}

/// Remaining requests and tokens, and used budgets: the tighter of the key's and the account's limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateLimitStatus {
    pub(crate) requests: Option<Remaining>,
    pub(crate) tokens: Option<Remaining>,
    /// Budget of the day.
    pub(crate) day: Option<BudgetStatus>,
    /// Budget of the month.
    pub(crate) month: Option<BudgetStatus>,
}

/// Budget of a calendar window, and how much of it is used. Ordered by the used part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BudgetStatus {
    /// Used part, in thousandths; at most 1,000.
    pub(crate) used: u32,
    /// Length of the window, in minutes.
    pub(crate) minutes: u64,
    /// End of the window, in Unix seconds.
    pub(crate) resets_at: i64,
}

/// Charged usage and cost of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChargedUsage {
    pub(crate) usage: Usage,
    /// Cost in nano-units.
    pub(crate) cost: i64,
    /// Effect of the provider's prompt cache on the cost.
    pub(crate) cache: CacheEffect,
    /// Whether the gateway counted some of the usage itself.
    pub(crate) counted: bool,
    /// Whether the provider reported more than the request could have used, so that the gateway's own count was charged.
    pub(crate) bounded: bool,
    /// Service tier that is charged.
    pub(crate) tier: ServiceTier,
    /// Whether the price of that tier is not known, so that the price of the dearest known one is charged.
    pub(crate) has_unpriced_tier: bool,
}

impl Accounting {
    /// Requires a usage record for the request from now on, whatever its outcome. Without effect on a request that is
    /// to be charged already, or was.
    pub(crate) fn open(&mut self) {
        if let Accounting::None = self {
            *self = Accounting::Open(RequestCharges::default());
        }
    }

    /// Returns the charges; `None` for a request that is free or settled.
    pub(crate) fn charges_mut(&mut self) -> Option<&mut RequestCharges> {
        match self {
            Accounting::Open(charges) => Some(charges),
            Accounting::None | Accounting::Settled(_) => None,
        }
    }

    /// Returns the charges; `None` for a request that is free or settled.
    pub(crate) fn charges(&self) -> Option<&RequestCharges> {
        match self {
            Accounting::Open(charges) => Some(charges),
            Accounting::None | Accounting::Settled(_) => None,
        }
    }

    /// Takes the charges out, to settle them or to transfer them to a task. `None` for a request that is free or
    /// settled.
    pub(super) fn take(&mut self) -> Option<RequestCharges> {
        match std::mem::take(self) {
            Accounting::Open(charges) => Some(charges),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Whether the request will be charged and recorded.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Accounting::Open(_))
    }

    /// Returns the charge; `None` before the request is settled.
    pub(crate) fn charged(&self) -> Option<&ChargedUsage> {
        match self {
            Accounting::Settled(charged) => Some(charged),
            Accounting::None | Accounting::Open(_) => None,
        }
    }
}

impl RequestCharges {
    /// Settles the reservation with the usage record of the request, and the grants with its usage. `None` without a
    /// ledger.
    pub(super) fn settle(self, billing: &Billing, record: &UsageRecord<'_>, now: Instant) -> Option<Settled> {
        let settled = billing.ledger.as_deref().map(|ledger| ledger.settle(self.reservation, record));
        // The ledger gets the record first: if the limits released their estimates before, the spend would count
        // nowhere in between.
        let tokens = record.usage.input.unwrap_or(0).saturating_add(record.usage.output.unwrap_or(0));
        settle_grants(self.grants, billing.nanos(now), tokens, record.cost);
        settled
    }

    /// Ends the accounting of a request whose task continues at the provider: its limits count the possible cost, in
    /// nano-units. The usage record is written when the task has ended.
    pub(super) fn transfer_to_task(self, billing: &Billing, cost: i64) {
        settle_grants(self.grants, billing.nanos(Instant::now()), 0, cost);
    }
}

fn settle_grants(grants: Vec<LimitGrant>, now: Nanos, tokens: u64, cost: i64) {
    for grant in grants {
        grant.settle(now, tokens, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounting_charges_are_taken_once() {
        let mut accounting = Accounting::default();
        assert!(accounting.take().is_none(), "a free request has no charges");
        accounting.open();
        assert!(accounting.is_open() && accounting.charges_mut().is_some());
        assert!(accounting.take().is_some());
        assert!(accounting.take().is_none() && !accounting.is_open());
    }

    #[test]
    fn accounting_settled_request_is_not_opened_again() {
        let charged = ChargedUsage { cost: 7, ..ChargedUsage::default() };
        let mut accounting = Accounting::Settled(Box::new(charged));
        accounting.open();
        assert!(accounting.take().is_none() && accounting.charges_mut().is_none());
        assert_eq!(accounting.charged().map(|charged| charged.cost), Some(7));
    }
}
