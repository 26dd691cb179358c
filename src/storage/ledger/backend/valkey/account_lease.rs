//! Account leases: what the lease manager knows about the lease of each account, and the lease transaction.

use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};

use super::usage_batch::UsageBatch;
use crate::ledger::accounts::{AccountBalance, AccountStatus};
use crate::ledger::record::CHARGE_ID_RETENTION;
use crate::store::millis;
use crate::store::valkey::connection::{number, parts, text};
use crate::store::valkey::{keys, script};
use routing::limits::Calendar;

/// Lifetime of a lease: the server reclaims the lease of a gateway that has not renewed it for this long.
pub(super) const LEASE_TTL: std::time::Duration = std::time::Duration::from_secs(60);
/// Age up to which a lease is relied on without contact to the server, which may reclaim it soon after.
pub(super) const RELIABLE_AGE: std::time::Duration = std::time::Duration::from_secs(LEASE_TTL.as_secs() / 2);
/// Age from which the lease of an idle account is renewed.
pub(super) const IDLE_RENEWAL_AGE: std::time::Duration =
    std::time::Duration::from_secs(LEASE_TTL.as_secs() / 4);
/// Transaction number used on behalf of an ended gateway: the largest integer that Lua, which counts in doubles,
/// distinguishes from its predecessor.
pub(super) const FINAL_TXN: u64 = (1 << 53) - 1;
/// Retention of a journal's sequence number at the server, in milliseconds: 90 days, as long as its files may still
/// turn up.
const SEQ_RETENTION: i64 = 90 * 86_400_000;

/// Lease of one account. The leased amount equals the sum of the spendable part, open reservations, and charges that
/// are not shipped yet.
pub(super) struct AccountLease {
    /// Amount that the server has leased to this gateway, in nano-units.
    pub(super) lease: i64,
    /// Last journal sequence number acknowledged by the server for this account.
    pub(super) server_seq: u64,
    /// Number of the last frame whose charge was deducted from `lease`.
    pub(super) deducted_seq: u64,
    /// Time of the last successful transaction; `None` forces one.
    pub(super) renewed_at: Option<Instant>,
    /// The spendable part; `None` for keys without an account.
    pub(super) balance: Option<Arc<AccountBalance>>,
}

impl AccountLease {
    /// Deducts the charges of frames up to `last` from the lease. The server took charges beyond the lease from the
    /// free balance; add them to the spendable part, so that the equation of [`AccountLease`] still holds.
    pub(super) fn deduct(&mut self, last: u64, cost: i64) {
        self.deducted_seq = self.deducted_seq.max(last);
        self.lease = self.lease.saturating_sub(cost);
        if self.lease < 0 {
            if let Some(balance) = &self.balance {
                balance.add(self.lease.saturating_neg());
            }
            self.lease = 0;
        }
    }
}

/// Lease transaction: charge, renewal and grant in one script call.
pub(super) struct LeaseTxn<'a> {
    pub(super) account: &'a str,
    /// Id of the gateway: the id of its journal.
    pub(super) gateway: u64,
    /// Transaction number; counts up per gateway, so that the server rejects a late duplicate.
    pub(super) number: u64,
    /// Amount of the lease to retain, in nano-units. The rest returns to the free balance.
    pub(super) lease: i64,
    /// Usage to charge.
    pub(super) usage: Option<UsageBatch<'a>>,
    /// Amounts to reserve, each granted or denied as a whole, in nano-units.
    pub(super) reservations: Vec<i64>,
    /// Amount to lease ahead, in nano-units; the server grants it in full, in part or not at all.
    pub(super) lease_ahead: i64,
}

/// Result of a lease transaction.
pub(super) enum LeaseTxnResult {
    /// The journal's sequence number at the server differs: it is this one, and nothing was done.
    Gap(u64),
    /// The transaction was executed.
    Done(LeaseTxnState),
}

/// State of an account after a lease transaction.
pub(super) struct LeaseTxnState {
    pub(super) status: AccountStatus,
    pub(super) free: i64,
    pub(super) lease: i64,
    pub(super) granted: Vec<bool>,
}

impl LeaseTxnState {
    /// Takes over the state of the account.
    pub(super) fn report_to(&self, balance: &AccountBalance) {
        balance.swap_reported(self.free);
        balance.set_status(self.status);
    }
}

impl LeaseTxn<'_> {
    /// Builds the command. `records` is the retention of usage records in milliseconds.
    pub(super) fn command(self, records: i64) -> std::io::Result<Cmd> {
        let LeaseTxn { account, gateway, number, lease, usage: batch, reservations, lease_ahead } = self;
        let mut names = vec![
            keys::account(account),
            keys::leases(account),
            keys::ends(account),
            keys::journal(account, gateway),
        ];
        for day in batch.iter().flat_map(|batch| batch.days.keys()) {
            let month = Calendar::at(day.saturating_mul(86_400)).month;
            names.extend([
                keys::sums(account, *day),
                keys::records(account, *day),
                keys::month(account, month),
            ]);
        }
        let charge_id = batch.as_ref().and_then(|batch| batch.charge_id);
        names.extend(charge_id.map(|id| keys::charge(account, id)));
        let mut call = script::VISIT.call(&names);
        call.arg(format!("{gateway:016x}")).arg(millis(LEASE_TTL)).arg(number).arg(lease);
        match batch {
            None => drop(call.arg("").arg("").arg(0).arg(0).arg(0).arg("")),
            Some(UsageBatch { from, last, charge, days, .. }) => {
                call.arg(from).arg(last).arg(charge).arg(SEQ_RETENTION).arg(days.len());
                match charge_id {
                    Some(_) => call.arg(CHARGE_ID_RETENTION),
                    None => call.arg(""),
                };
                for (day, sums) in days {
                    let end = day.saturating_add(1).saturating_mul(86_400).saturating_add(records / 1000);
                    let (fields, spent) = (sums.fields(), sums.spent());
                    call.arg(end).arg(sums.block()?).arg(fields.len());
                    for (field, amount) in fields {
                        call.arg(field).arg(amount);
                    }
                    // A month ends within 31 days, and its sum is not read after that; 40 days after the day are
                    // enough.
                    call.arg(day.saturating_add(40).saturating_mul(86_400)).arg(spent.len());
                    for (field, amount) in spent {
                        call.arg(field).arg(amount);
                    }
                }
            }
        }
        call.arg(reservations.len());
        for amount in &reservations {
            call.arg(*amount);
        }
        call.arg(lease_ahead);
        Ok(call)
    }
}

/// Parses the result of a lease transaction. Returns `None` if it is malformed or the transaction was rejected as late.
pub(super) fn parse_result(answer: &Value) -> Option<LeaseTxnResult> {
    match parts(answer) {
        [gap, server_seq] if text(gap) == "gap" => Some(LeaseTxnResult::Gap(text(server_seq).parse().ok()?)),
        [state, free, lease, granted] => {
            let status = match text(state) {
                "enabled" => AccountStatus::Enabled,
                "disabled" => AccountStatus::Disabled,
                _ => AccountStatus::Missing,
            };
            let granted = text(granted).bytes().map(|flag| flag == b'1').collect();
            Some(LeaseTxnResult::Done(LeaseTxnState {
                status,
                free: number(free),
                lease: number(lease),
                granted,
            }))
        }
        _ => None,
    }
}
