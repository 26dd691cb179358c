//! What things are called on the server, and what a frame of the journal holds.

use crate::store::book::DAY;
use crate::store::record::{KINDS, UsageRecord};

/// Accounts that were made.
pub(super) const ACCOUNTS: &str = "mgw:accounts";
/// Accounts that something was recorded for.
pub(super) const USED: &str = "mgw:used";

/// What a frame begins with: another version than that of a bare record, so that none is taken for the other.
const VERSION: u8 = 2;

/// The names of all that belongs to an account.
pub(super) struct Keys {
    pub(super) account: String,
    pub(super) holds: String,
    pub(super) ends: String,
    pub(super) records: String,
    pub(super) sums: String,
    pub(super) credits: String,
    pub(super) references: String,
}

impl Keys {
    pub(super) fn of(account: &str) -> Self {
        let key = |what: &str| format!("{{mgw:{account}}}{what}");
        Keys {
            account: key(""),
            holds: key(":holds"),
            ends: key(":ends"),
            records: key(":records"),
            sums: key(":sums"),
            credits: key(":credits"),
            references: key(":references"),
        }
    }
}

/// The name of a hold.
pub(super) fn hold(journal: u64, number: u64) -> String {
    format!("{journal:016x}-{number}")
}

/// Writes what a frame holds.
pub(super) fn encode(hold: u64, record: &UsageRecord<'_>, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&hold.to_le_bytes());
    record.encode(out);
}

/// Reads what a frame holds: the hold, the record, and the record's own bytes.
pub(super) fn decode(payload: &[u8]) -> Option<(u64, UsageRecord<'_>, &[u8])> {
    let rest = payload.strip_prefix(&[VERSION])?;
    let (hold, record) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*hold), UsageRecord::decode(record)?, record))
}

/// What a record adds to the sums of its day: the part of the names that they have in common, and the sums.
pub(super) fn sums(record: &UsageRecord<'_>) -> (String, Vec<(&'static str, u64)>) {
    let names = format!("{}\0{}\0{}\0", record.time.div_euclid(DAY), record.key, record.model);
    let mut sums = vec![("requests", 1)];
    sums.push(("failed", record.failed().into()));
    sums.push(("cost", record.cost.max(0).unsigned_abs()));
    sums.extend(KINDS.iter().map(|kind| (kind.name, (kind.get)(&record.usage).unwrap_or(0))));
    sums.retain(|(_, sum)| *sum != 0);
    (names, sums)
}

/// Reads the name of a sum: day, key, model, and what is summed.
pub(super) fn parse_sum(name: &str) -> Option<(i64, &str, &str, &str)> {
    let mut parts = name.split('\0');
    let (day, key) = (parts.next()?.parse().ok()?, parts.next()?);
    let (model, what) = (parts.next()?, parts.next()?);
    parts.next().is_none().then_some((day, key, model, what))
}
