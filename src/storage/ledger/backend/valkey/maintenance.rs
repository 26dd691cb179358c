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
        let Some(connection) = self.connection.clone() else { return Ok(()) };
        let (gateway, number) = (self.shared.journal.id(), self.next_txn());
        let (mut commands, mut txns, mut evicted) = (Vec::new(), Vec::new(), Vec::new());
        for (name, account_lease) in &mut self.leases {
            let age = account_lease.renewed_at.map(|sent_at| sent_at.elapsed());
            if !all && age.is_some_and(|age| age < MAX_STATE_AGE) {
                continue;
            }
            let Some(balance) = &account_lease.balance else {
                if age.is_none() && account_lease.server_seq > 0 {
                    let usage = Some(UsageBatch::empty(account_lease.server_seq));
                    // A key without an account has no lease. After a reconnect, check that the server still has its
                    // frames.
                    let txn = LeaseTxn {
                        account: name,
                        gateway,
                        number,
                        lease: 0,
                        usage,
                        reservations: Vec::new(),
                        lease_ahead: 0,
                    };
                    commands.extend(txn.command(0).ok());
                    txns.push((name.clone(), 0));
                }
                continue;
            };
            let used = balance.take_used();
            let idle = !used && !all && age.is_some();
            if idle && account_lease.lease == 0 && balance.spendable() == 0 {
                if age.is_some_and(|age| age > EVICT_AFTER) {
                    evicted.push(name.clone());
                }
                continue;
            }
            // Nothing to return, and the renewal of the lease is not due yet.
            if idle && balance.spendable() <= 0 && age.is_some_and(|age| age < IDLE_RENEWAL_AGE) {
                continue;
            }
            // Take the unused part out before the call: workers must not spend what is being returned.
            let unused = if idle { balance.take_all() } else { 0 };
            // Until the server reports again, the account still has what is on its way back.
            balance.swap_reported(balance.reported().saturating_add(unused));
            let lease = account_lease.lease.saturating_sub(unused).max(0);
            let usage = age
                .is_none()
                .then(|| UsageBatch::empty(account_lease.server_seq))
                .filter(|_| account_lease.server_seq > 0);
            let txn = LeaseTxn {
                account: name,
                gateway,
                number,
                lease,
                usage,
                reservations: Vec::new(),
                lease_ahead: 0,
            };
            commands.extend(txn.command(0).ok());
            txns.push((name.clone(), unused));
        }
        for name in evicted {
            self.leases.remove(&name);
            self.shared.accounts.remove(&name);
        }
        let sent_at = Instant::now();
        let answers = connection.run_all(commands).await;
        let outcomes = answers.iter().flatten().map(parse_result);
        self.record_renewals(sent_at, txns, outcomes);
        answers.map(drop).map_err(ShipError::Connection)
    }

    /// Records the results of renewals that were sent at `sent_at`. `txns` names the accounts, in order, with the unused
    /// amount that each returned; the results of the last ones may be missing.
    fn record_renewals(
        &mut self,
        sent_at: Instant,
        txns: Vec<(String, i64)>,
        mut outcomes: impl Iterator<Item = Option<LeaseTxnResult>>,
    ) {
        for (name, unused) in txns {
            let outcome = outcomes.next().flatten();
            let Some(account_lease) = self.leases.get_mut(&name) else { continue };
            match outcome {
                Some(LeaseTxnResult::Done(done)) => {
                    account_lease.lease = done.lease;
                    account_lease.renewed_at = Some(sent_at);
                    if let Some(balance) = &account_lease.balance {
                        done.report_to(balance);
                    }
                }
                other => {
                    // The result is unknown, so the server may have taken it back: do not make it spendable again.
                    account_lease.lease = account_lease.lease.saturating_sub(unused).max(0);
                    // If the server has more frames than known here, the next shipment finds out.
                    if let Some(LeaseTxnResult::Gap(server_seq)) = other
                        && server_seq < account_lease.server_seq
                    {
                        self.needs_replay = true;
                        account_lease.server_seq = server_seq;
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
        for (name, account_lease) in &self.leases {
            // What open reservations hold stays leased, so that their charges are still covered.
            let unused = account_lease.balance.as_ref().map_or(0, |balance| balance.take_all());
            if account_lease.lease > 0 {
                let lease = account_lease.lease.saturating_sub(unused).max(0);
                let txn = LeaseTxn {
                    account: name,
                    gateway,
                    number,
                    lease,
                    usage: None,
                    reservations: Vec::new(),
                    lease_ahead: 0,
                };
                commands.extend(txn.command(0).ok());
            }
        }
        if let Some(connection) = &self.connection {
            let _ = connection.run_all(commands).await;
        }
        // Frames that were appended while the previous segment was shipped.
        self.ship().await.is_ok()
    }
}
