//! Row writes of the replay: charges, record blocks and daily sums, in one transaction with the number of the last
//! frame, so that each frame is applied exactly once.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::ledger::record::KINDS;
use crate::ledger::report::DAY;
use crate::ledger::wal::JournalFrame;
use crate::ledger::{UsageRecord, record_block};
use routing::account::amount::LARGEST;

/// Account row of the database; `balance` in nano-units.
#[derive(Clone, Debug)]
pub(super) struct BalanceRow {
    pub(super) name: String,
    pub(super) balance: i64,
    pub(super) enabled: bool,
}

/// Account that was charged, and the amount in nano-units.
#[derive(Debug)]
pub(super) struct Charged {
    pub(super) account: Changed,
    pub(super) charge: i64,
}

/// Account that changed.
#[derive(Debug)]
pub(super) enum Changed {
    /// New state of the account.
    Row(BalanceRow),
    /// The account does not exist in the database; its name.
    Unknown(String),
    /// The account was not charged, because the idempotency key is known; its name.
    Repeated(String),
}

/// Reason why frames were not applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error("frame {0} is from a later version")]
    Record(u64),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Sums of one account, key and model on one day.
#[derive(Clone, Copy, Default)]
struct Sums {
    requests: i64,
    failed: i64,
    cost: i64,
    usage: [i64; KINDS.len()],
    cache_saved: i64,
    cache_surcharge: i64,
}

/// SQL that adds to a daily sum. Sums saturate at `i64::MAX`: an overflow would fail the transaction and block every
/// later frame.
static ADD_TO_DAY: LazyLock<String> = LazyLock::new(|| {
    let sums = ["requests", "failed", "cost"].into_iter().chain(KINDS.iter().map(|kind| kind.name));
    let sums = sums.chain(["cache_saved", "cache_surcharge"]);
    let add = |sum: &str| format!("{sum} = MIN({sum}, {} - excluded.{sum}) + excluded.{sum}", i64::MAX);
    format!(
        "INSERT INTO daily VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
         ON CONFLICT (day, account, key, model) DO UPDATE SET {}",
        sums.map(add).collect::<Vec<_>>().join(", ")
    )
});

/// Applies frames, within a transaction that the caller begins and commits. Skips frames up to the number that the
/// database has stored for this journal.
pub(super) fn apply(
    connection: &Connection,
    journal: u64,
    frames: &[JournalFrame<'_>],
    stamp: i64,
) -> Result<Vec<Charged>, ApplyError> {
    let id = i64::try_from(journal).unwrap_or(i64::MAX);
    let drained: Option<i64> = connection
        .prepare_cached("SELECT drained FROM journal WHERE id = ?1")?
        .query_row(params![id], |row| row.get(0))
        .optional()?;
    let drained = drained.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let mut days: HashMap<(i64, &str, &str, &str), Sums, RandomState> = HashMap::default();
    let mut charges: HashMap<&str, i64, RandomState> = HashMap::default();
    let mut block = record_block::RecordBlockWriter::default();
    let mut last = drained;
    let mut repeated = Vec::new();
    for frame in frames.iter().filter(|frame| frame.number > drained) {
        let record = UsageRecord::decode(frame.payload).ok_or(ApplyError::Record(frame.number))?;
        last = frame.number;
        if !record.charge_id.is_empty() && !is_first(connection, &record)? {
            repeated
                .push(Charged { account: Changed::Repeated(record.account.to_owned()), charge: record.cost });
            continue;
        }
        block.add(&record, frame.payload);
        let day = record.time.div_euclid(DAY);
        days.entry((day, record.account, record.key, record.model)).or_default().add(&record);
        if record.cost != 0 && !record.account.is_empty() {
            let charge = charges.entry(record.account).or_default();
            *charge = charge.saturating_add(record.cost);
        }
    }
    // All of these frames were applied before.
    if last == drained {
        return Ok(Vec::new());
    }
    insert_block(connection, block)?;
    for ((day, account, key, model), sums) in days {
        sums.insert(connection, day, account, key, model)?;
    }
    let mut charged = repeated;
    for (name, charge) in charges {
        let mut update = connection.prepare_cached(
            "UPDATE account SET charged = MIN(charged, ?4 - ?2) + ?2, changed = ?3 WHERE name = ?1
             RETURNING credited - charged, enabled, charged = ?4",
        )?;
        let charge = charge.min(LARGEST);
        let row = update.query_row(params![name, charge, stamp, LARGEST], |row| {
            let full: bool = row.get(2)?;
            Ok((BalanceRow { name: name.to_owned(), balance: row.get(0)?, enabled: row.get(1)? }, full))
        });
        // A key may name an account that does not exist yet. `create_many` charges the sum to it when it is created.
        charged.push(match row.optional()? {
            // The sum is saturated: how much of this charge it contains is unknown, so report zero.
            Some((row, full)) => {
                Charged { account: Changed::Row(row), charge: if full { 0 } else { charge } }
            }
            None => Charged { account: Changed::Unknown(name.to_owned()), charge },
        });
    }
    connection
        .prepare_cached(
            "INSERT INTO journal (id, drained, time) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET drained = excluded.drained, time = excluded.time",
        )?
        .execute(params![id, i64::try_from(last).unwrap_or(i64::MAX), crate::store::now()])?;
    Ok(charged)
}

/// Stores the idempotency key of a record. Returns false if it is known already.
fn is_first(connection: &Connection, record: &UsageRecord<'_>) -> rusqlite::Result<bool> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO charge (account, id, time) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    Ok(insert.execute(params![record.account, record.charge_id, crate::store::now()])? > 0)
}

/// Inserts a record block; an empty one is left out.
fn insert_block(connection: &Connection, block: record_block::RecordBlockWriter) -> Result<(), ApplyError> {
    let Some((first, last)) = block.span() else { return Ok(()) };
    let records = block.len();
    let (packed, data) = block.finish()?;
    connection
        .prepare_cached("INSERT INTO block (first, last, records, packed, data) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![first, last, records, packed, data])?;
    Ok(())
}

impl Sums {
    fn add(&mut self, record: &UsageRecord<'_>) {
        self.requests = self.requests.saturating_add(1);
        self.failed = self.failed.saturating_add(i64::from(record.failed()));
        self.cost = self.cost.saturating_add(record.cost);
        for (sum, kind) in self.usage.iter_mut().zip(&KINDS) {
            let value = (kind.get)(&record.usage).and_then(|value| i64::try_from(value).ok());
            *sum = sum.saturating_add(value.unwrap_or(0));
        }
        self.cache_saved = self.cache_saved.saturating_add_unsigned(record.cache_saved);
        self.cache_surcharge = self.cache_surcharge.saturating_add_unsigned(record.cache_surcharge);
    }

    fn insert(
        self,
        connection: &Connection,
        day: i64,
        account: &str,
        key: &str,
        model: &str,
    ) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(&ADD_TO_DAY)?;
        let [input, cached, write, write_1h, output, reasoning, audio_input, audio_output, images, searches] =
            self.usage;
        let Sums { requests, failed, cost, cache_saved, cache_surcharge, .. } = self;
        let (name, sums) = ((day, account, key, model), (requests, failed, cost));
        insert.execute(params![
            name.0,
            name.1,
            name.2,
            name.3,
            sums.0,
            sums.1,
            sums.2,
            input,
            cached,
            write,
            write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            images,
            searches,
            cache_saved,
            cache_surcharge
        ])?;
        Ok(())
    }
}

/// Returns the next value of `account.changed`.
pub(super) fn next_stamp(connection: &Connection) -> rusqlite::Result<i64> {
    let mut last = connection.prepare_cached("SELECT COALESCE(MAX(changed), 0) FROM account")?;
    last.query_row((), |row| row.get::<_, i64>(0)).map(|last| last.saturating_add(1))
}

/// Returns the accounts that changed after `seen`, and the highest value of `account.changed` among them.
pub(super) fn changed_since(connection: &Connection, seen: i64) -> rusqlite::Result<(Vec<BalanceRow>, i64)> {
    let mut select = connection.prepare_cached(
        "SELECT name, credited - charged, enabled, changed FROM account WHERE changed > ?1",
    )?;
    let mut rows = select.query(params![seen])?;
    let (mut changed, mut last) = (Vec::new(), seen);
    while let Some(row) = rows.next()? {
        changed.push(BalanceRow { name: row.get(0)?, balance: row.get(1)?, enabled: row.get(2)? });
        last = last.max(row.get(3)?);
    }
    Ok((changed, last))
}
