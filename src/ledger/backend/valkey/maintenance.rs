//! Lease maintenance: renews leases, returns what is unused, and returns everything at the end.

use std::time::{Duration, Instant};

use super::account_lease::{IDLE_RENEWAL_AGE, LeaseTxn, LeaseTxnResult, parse_result};
use super::lease_manager::LeaseManager;
use super::ship::ShipError;
use super::usage_batch::UsageBatch;

/// Maximum age of the state of an account in use.
const MAX_STATE_AGE: Duration = Duration::from_secs(1);
/// Time after which an account without a lease and without use is removed from memory.
const EVICT_AFTER: Duration = Duration::from_secs(60);

impl LeaseManager {
    /// Renews leases, returns what is unused and refreshes the state of accounts.
    pub(super) async fn renew_all(&mut self, all: bool) -> Result<(), ShipError> {
        let Some(link) = self.connection.clone() else { return Ok(()) };
        let (gateway, number) = (self.shared.journal.id(), self.next_txn());
        let (mut commands, mut visits, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
        for (name, hand) in &mut self.leases {
            let age = hand.renewed_at.map(|asked| asked.elapsed());
            if !all && age.is_some_and(|age| age < MAX_STATE_AGE) {
                continue;
            }
            let Some(balance) = &hand.balance else {
                if age.is_none() && hand.server_seq > 0 {
                    let parcel = Some(UsageBatch::empty(hand.server_seq));
                    // A key without an account has no lease. After a reconnect, check that the server still has its
                    // frames.
                    let visit = LeaseTxn {
                        account: name,
                        gateway,
                        number,
                        lease: 0,
                        usage: parcel,
                        reservations: Vec::new(),
                        lease_ahead: 0,
                    };
                    commands.extend(visit.command(0).ok());
                    visits.push((name.clone(), 0));
                }
                continue;
            };
            let used = balance.take_used();
            let idle = !used && !all && age.is_some();
            if idle && hand.lease == 0 && balance.spendable() == 0 {
                if age.is_some_and(|age| age > EVICT_AFTER) {
                    forgotten.push(name.clone());
                }
                continue;
            }
            // Nothing to return, and the renewal of the lease is not due yet.
            if idle && balance.spendable() <= 0 && age.is_some_and(|age| age < IDLE_RENEWAL_AGE) {
                continue;
            }
            // Take the unused part out before the call: workers must not spend what is being returned.
            let pool = if idle { balance.take_all() } else { 0 };
            let lease = hand.lease.saturating_sub(pool).max(0);
            let parcel =
                age.is_none().then(|| UsageBatch::empty(hand.server_seq)).filter(|_| hand.server_seq > 0);
            let visit = LeaseTxn {
                account: name,
                gateway,
                number,
                lease,
                usage: parcel,
                reservations: Vec::new(),
                lease_ahead: 0,
            };
            commands.extend(visit.command(0).ok());
            visits.push((name.clone(), pool));
        }
        for name in forgotten {
            self.leases.remove(&name);
            self.shared.accounts.remove(&name);
        }
        let asked = Instant::now();
        let answers = link.run_all(commands).await;
        let outcomes = answers.iter().flatten().map(parse_result);
        self.record_renewals(asked, visits, outcomes);
        answers.map(drop).map_err(ShipError::Connection)
    }

    /// Records the results of renewals, which were requested at this time. `visits` names the accounts, in order, with
    /// the amount that each returned; the results of the last ones may be missing.
    fn record_renewals(
        &mut self,
        asked: Instant,
        visits: Vec<(String, i64)>,
        mut outcomes: impl Iterator<Item = Option<LeaseTxnResult>>,
    ) {
        for (name, pool) in visits {
            let outcome = outcomes.next().flatten();
            let Some(hand) = self.leases.get_mut(&name) else { continue };
            match outcome {
                Some(LeaseTxnResult::Done(done)) => {
                    hand.lease = done.lease;
                    hand.renewed_at = Some(asked);
                    if let Some(balance) = &hand.balance {
                        done.report_to(balance);
                    }
                }
                other => {
                    // The result is unknown, so the server may have taken it back: do not make it spendable again.
                    hand.lease = hand.lease.saturating_sub(pool).max(0);
                    // If the server has more frames than known here, the next shipment finds out.
                    if let Some(LeaseTxnResult::Gap(stands)) = other
                        && stands < hand.server_seq
                    {
                        self.needs_replay = true;
                        hand.server_seq = stands;
                    }
                }
            }
        }
    }

    /// Ships the rest and returns all leases. Returns true if everything was shipped.
    pub(super) async fn return_leases(&mut self) -> bool {
        if self.ship_and_renew(false).await.is_err() {
            return false;
        }
        self.renew_limits(true).await;
        let (gateway, number) = (self.shared.journal.id(), self.next_txn());
        let mut commands = Vec::new();
        for (name, hand) in &self.leases {
            let pool = hand.balance.as_ref().map_or(0, |balance| balance.take_all());
            if hand.lease > 0 {
                let lease = hand.lease.saturating_sub(pool).max(0);
                let visit = LeaseTxn {
                    account: name,
                    gateway,
                    number,
                    lease,
                    usage: None,
                    reservations: Vec::new(),
                    lease_ahead: 0,
                };
                commands.extend(visit.command(0).ok());
            }
        }
        if let Some(link) = &self.connection {
            let _ = link.run_all(commands).await;
        }
        // Frames that were appended while the previous segment was shipped.
        self.ship().await.is_ok()
    }
}
