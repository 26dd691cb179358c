//! Billing state: the accounting handles of the process, and what a request holds until it is settled. Reservations are
//! made in `admit`, charges in `settle`.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;
use std::time::Instant;

use super::spend_queries::SpendQueries;
use crate::canonical::Usage;
use crate::ledger::{Ledger, Reservation};
use crate::limits::{Calendar, LimitGrant, LimitRegistry};
use crate::limits::{Nanos, Remaining};
use crate::translate::CountedRequest;

/// Accounting handles of the process: ledger, limit registry and clock.
pub(in crate::proxy) struct Billing {
    pub(in crate::proxy) ledger: Option<Arc<dyn Ledger>>,
    pub(in crate::proxy) limit_states: LimitRegistry,
    pub(in crate::proxy) spend_queries: SpendQueries,
    epoch: Instant,
}

impl Billing {
    pub(in crate::proxy) fn new(ledger: Option<Arc<dyn Ledger>>) -> Self {
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
    pub(in crate::proxy) fn nanos(&self, at: Instant) -> Nanos {
        i64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(i64::MAX)
    }

    /// Removes the limit states that are no longer used.
    pub(in crate::proxy) fn sweep(&self) {
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

/// Charges of one request: its limit grants and its reservation, until they are settled.
#[derive(Debug, Default)]
pub(in crate::proxy) struct RequestCharges {
    /// Whether a usage record of the request is still to be written.
    pub(super) open: bool,
    /// Reservation on the account's balance.
    pub(in crate::proxy) reservation: Option<Reservation>,
    /// Grants of the key's and the account's limits.
    pub(in crate::proxy) grants: Vec<LimitGrant>,
    /// Remaining quota for the rate-limit headers.
    pub(in crate::proxy) remaining: Option<Box<RateLimitStatus>>,
    /// Expected input tokens.
    pub(in crate::proxy) input: u64,
    /// Request text to count the input tokens of, for a client that leaves before the response.
    pub(in crate::proxy) counted_request: CountedRequest,
    /// The client's output limit for one answer, in tokens, and the number of answers it requests. `None` if the body
    /// was not examined.
    pub(in crate::proxy) output_limit: Option<(Option<u64>, u64)>,
    pub(super) charged: Option<Box<ChargedUsage>>,
}

/// Remaining requests and tokens: the tighter of the key's and the account's limits.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proxy) struct RateLimitStatus {
    pub(in crate::proxy) requests: Option<Remaining>,
    pub(in crate::proxy) tokens: Option<Remaining>,
}

/// Charged usage and cost of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proxy) struct ChargedUsage {
    pub(in crate::proxy) usage: Usage,
    /// Cost in nano-units.
    pub(in crate::proxy) cost: i64,
    /// Whether the gateway counted some of the usage itself.
    pub(in crate::proxy) counted: bool,
    /// Whether the provider reported more than the request could have used, so that the charge was bounded.
    pub(in crate::proxy) bounded: bool,
}

impl RequestCharges {
    /// Requires a usage record for the request from now on, whatever its outcome.
    pub(in crate::proxy) fn open(&mut self) {
        self.open = true;
    }

    /// Whether the request will be charged and recorded.
    pub(in crate::proxy) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the expected input tokens.
    pub(in crate::proxy) fn expected_input(&self) -> u64 {
        self.input
    }

    /// Returns the charge; `None` before the request is settled.
    pub(in crate::proxy) fn charged(&self) -> Option<&ChargedUsage> {
        self.charged.as_deref()
    }
}
