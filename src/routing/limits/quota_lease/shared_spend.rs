//! Leased spend, and the spend of a whole fleet as far as one gateway knows it: what the coordinator had recorded at the
//! last renewal, and what this gateway has reserved and charged since. What the other gateways have not yet reported is
//! missing.

use super::{Mode, QuotaLease};
use crate::limits::Calendar;

/// Spend that is leased from the coordinator, in nano-units; the sum of the fields is what is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeasedSpend {
    /// Spendable part; negative if requests cost more than was reserved for them.
    pub(super) available: i64,
    pub(super) slice: i64,
    pub(super) reserved: i64,
    /// Charged, but only in the journal so far.
    pub(super) charged: i64,
    pub(super) in_flight: i64,
    /// Permitted overdraft in degraded mode. `None` if the lease may not be spent at all.
    pub(super) overdraft: Option<i64>,
}

/// Spend that the coordinator has recorded, in nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LedgerSpend {
    calendar: Calendar,
    of_day: i64,
    of_month: i64,
}

impl LeasedSpend {
    pub(super) fn reserve(&mut self, amount: i64) {
        self.available = self.available.saturating_sub(amount);
        self.reserved = self.reserved.saturating_add(amount);
    }

    pub(super) fn total(&self) -> i64 {
        let charged = self.charged.saturating_add(self.in_flight);
        self.available.max(0).saturating_add(self.reserved).saturating_add(charged)
    }

    /// Returns the spend of this gateway that the coordinator has not recorded yet: reserved, charged, and on its way.
    fn unrecorded(&self) -> i64 {
        self.reserved.saturating_add(self.charged).saturating_add(self.in_flight)
    }
}

impl QuotaLease {
    /// Marks the charges so far as in flight to the ledger. They must be in the journal already.
    pub fn mark_in_flight(&self) {
        let spend = &mut self.state.lock().spend;
        spend.in_flight = spend.in_flight.saturating_add(std::mem::take(&mut spend.charged));
    }

    /// Clears the charges in flight: the ledger has them. What it had recorded at the last renewal grows by them, or else
    /// they would be missing until the next one.
    pub fn clear_in_flight(&self) {
        let mut state = self.state.lock();
        let recorded = std::mem::take(&mut state.spend.in_flight);
        if let Some(known) = &mut state.ledger_spend {
            known.of_day = known.of_day.saturating_add(recorded);
            known.of_month = known.of_month.saturating_add(recorded);
        }
    }

    /// Records what the coordinator had recorded for the day and the month of `calendar`, in nano-units.
    pub fn record_ledger_spend(&self, calendar: &Calendar, (of_day, of_month): (i64, i64)) {
        self.state.lock().ledger_spend = Some(LedgerSpend { calendar: *calendar, of_day, of_month });
    }

    /// Returns the spend of this day and this month, with what requests in progress here have reserved, in nano-units.
    /// `None` before the first renewal and in degraded mode.
    pub(in crate::limits) fn spent(&self, calendar: &Calendar) -> Option<(i64, i64)> {
        let state = self.state.lock();
        let known = state.ledger_spend.filter(|_| state.mode == Mode::Shared)?;
        let unrecorded = state.spend.unrecorded();
        // A new day or month begins with nothing recorded.
        let of = |is_current: bool, amount: i64| {
            let amount = if is_current { amount } else { 0 };
            amount.saturating_add(unrecorded)
        };
        let day = of(known.calendar.day == calendar.day, known.of_day);
        let month = of(known.calendar.month == calendar.month, known.of_month);
        Some((day, month))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LeaseGrant, LeaseRequest};
    use super::*;
    use crate::limits::{LimitRequest, UsageLimits};

    #[test]
    fn shared_spend_is_what_is_recorded_and_what_is_reserved_and_charged_here() {
        let lease = QuotaLease::default();
        let (noon, tomorrow) = (Calendar::at(43_200), Calendar::at(43_200 + 86_400));
        assert_eq!(lease.spent(&noon), None, "nothing is known before the first renewal");
        lease.record_ledger_spend(&noon, (300, 5_000));
        assert_eq!(lease.spent(&noon), None, "no lease yet");
        let grant = LeaseGrant { spend: 1_000, gateways: 2, ..LeaseGrant::default() };
        lease.on_ack(1, &LeaseRequest::default(), &grant, 0, 0);
        assert_eq!(lease.spent(&noon), Some((300, 5_000)));
        let limits = UsageLimits { spend_per_day: Some(10_000), ..UsageLimits::default() };
        let request = LimitRequest { now: 2, calendar: noon, tokens: 0, cost: 100 };
        lease.take(&limits, &request).unwrap();
        assert_eq!(lease.spent(&noon), Some((400, 5_100)));
        lease.settle_spend(100, 30);
        assert_eq!(lease.spent(&noon), Some((330, 5_030)));
        assert_eq!(lease.spent(&tomorrow), Some((30, 5_030)));
        lease.mark_in_flight();
        lease.clear_in_flight();
        assert_eq!(lease.spent(&noon), Some((330, 5_030)), "nothing is missing until the next renewal");
        lease.enter_degraded(2, None, true);
        assert_eq!(lease.spent(&noon), None);
    }
}
