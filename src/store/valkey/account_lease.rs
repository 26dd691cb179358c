//! What the ledger's thread knows of an account: how the server counts what this gateway has of it.

use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};

use super::connection::{number, parts, text};
use super::leased_balance::{LeasedBalance, State};
use super::usage_batch::UsageBatch;
use super::{keys, script};
use crate::account::Calendar;
use crate::store::millis;

/// How long the server keeps what is set aside for a gateway that it does not hear of.
pub(super) const LIFE: std::time::Duration = std::time::Duration::from_secs(60);
/// The number of visits in the name of a gateway that has ended: the largest that a script tells from the one before.
pub(super) const ENDED: u64 = (1 << 53) - 1;
/// How long the number of a journal's last frame is known, for as long as its files may be found.
const JOURNAL: i64 = 90 * 86_400_000;

/// Lease of one account. What is leased equals what is left, what is reserved, and what was charged and is not shipped
/// yet.
pub(super) struct AccountLease {
    /// What the server has set aside for this gateway.
    pub(super) lease: i64,
    /// The number that this gateway's journal stands at there.
    pub(super) stands: u64,
    /// The last frame whose charge was taken from the lease.
    pub(super) booked: u64,
    /// When the server was asked last.
    pub(super) asked: Option<Instant>,
    /// The purse; none for keys without an account.
    pub(super) purse: Option<Arc<LeasedBalance>>,
}

impl AccountLease {
    /// Takes the charges up to a frame from the lease. What they are beyond it was taken from what was free.
    pub(super) fn book(&mut self, last: u64, cost: i64) {
        self.booked = self.booked.max(last);
        self.lease = self.lease.saturating_sub(cost);
        if self.lease < 0 {
            if let Some(purse) = &self.purse {
                purse.put(self.lease.saturating_neg());
            }
            self.lease = 0;
        }
    }
}

/// Lease transaction: charge, renewal and grant in one script call.
pub(super) struct LeaseTxn<'a> {
    pub(super) account: &'a str,
    /// Who visits: the gateway's journal.
    pub(super) gateway: u64,
    /// Visits of a gateway count up.
    pub(super) number: u64,
    /// What it keeps.
    pub(super) lease: i64,
    /// What it brings.
    pub(super) parcel: Option<UsageBatch<'a>>,
    /// What it needs.
    pub(super) needs: Vec<i64>,
    /// What it wants beyond.
    pub(super) more: i64,
}

/// What came of a visit.
pub(super) enum LeaseTxnResult {
    /// The journal stands elsewhere; nothing was done.
    Gap(u64),
    /// It was done.
    Done(Done),
}

/// How an account stands after a visit.
pub(super) struct Done {
    pub(super) state: State,
    pub(super) free: i64,
    pub(super) lease: i64,
    pub(super) granted: Vec<bool>,
}

impl LeaseTxn<'_> {
    /// The command. `records` is how long records are kept, in milliseconds.
    pub(super) fn command(self, records: i64) -> std::io::Result<Cmd> {
        let LeaseTxn { account, gateway, number, lease, parcel, needs, more } = self;
        let mut names = vec![
            keys::account(account),
            keys::leases(account),
            keys::ends(account),
            keys::journal(account, gateway),
        ];
        for day in parcel.iter().flat_map(|parcel| parcel.days.keys()) {
            let month = Calendar::at(day.saturating_mul(86_400)).month;
            names.extend([
                keys::sums(account, *day),
                keys::records(account, *day),
                keys::month(account, month),
            ]);
        }
        let mut call = script::VISIT.call(&names);
        call.arg(format!("{gateway:016x}")).arg(millis(LIFE)).arg(number).arg(lease);
        match parcel {
            None => drop(call.arg("").arg("").arg(0).arg(0).arg(0)),
            Some(UsageBatch { from, last, charge, days, .. }) => {
                call.arg(from).arg(last).arg(charge).arg(JOURNAL).arg(days.len());
                for (day, sums) in days {
                    let end = day.saturating_add(1).saturating_mul(86_400).saturating_add(records / 1000);
                    let (fields, spent) = (sums.fields(), sums.spent());
                    call.arg(end).arg(sums.block()?).arg(fields.len());
                    for (field, amount) in fields {
                        call.arg(field).arg(amount);
                    }
                    // A month ends within 31 days, and is asked for no longer.
                    call.arg(day.saturating_add(40).saturating_mul(86_400)).arg(spent.len());
                    for (field, amount) in spent {
                        call.arg(field).arg(amount);
                    }
                }
            }
        }
        call.arg(needs.len());
        for need in &needs {
            call.arg(*need);
        }
        call.arg(more);
        Ok(call)
    }
}

/// Reads what came of a visit; nothing, if it cannot be understood.
pub(super) fn visited(answer: &Value) -> Option<LeaseTxnResult> {
    match parts(answer) {
        [gap, stands] if text(gap) == "gap" => Some(LeaseTxnResult::Gap(text(stands).parse().ok()?)),
        [state, free, lease, granted] => {
            let state = match text(state) {
                "enabled" => State::Enabled,
                "disabled" => State::Disabled,
                _ => State::Missing,
            };
            let granted = text(granted).bytes().map(|flag| flag == b'1').collect();
            Some(LeaseTxnResult::Done(Done { state, free: number(free), lease: number(lease), granted }))
        }
        _ => None,
    }
}
