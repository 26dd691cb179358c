//! Rollup of usage records: blocks of records from the journal become cells of days and hours, which reports
//! by several dimensions read instead of single records.
//!
//! One transaction takes a bounded number of records and stores how far it came, so that each record is in the cells once,
//! whatever ends the process. A report adds the records behind that point itself.

use std::collections::BTreeMap;
use std::io;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::report::{SqliteReportError, rows_of_daily};
use crate::ledger::breakdown::{Breakdown, BreakdownRow, UsageQuery};
use crate::ledger::record_block;
use crate::ledger::report::{DAY, UsageSums};
use crate::ledger::usage_cells::{CellBlock, CellBuilder, names};

/// Cells of a day, with all names.
const DAYS: i64 = 0;
/// Cells of the hours of a day, without account and key.
const HOURS: i64 = 1;
/// Cells of an hour, with all names.
const KEY_HOURS: i64 = 2;
/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
/// Records after which a transaction ends, so that other connections can write in between.
const STEP: i64 = 20_000;

/// Returns the last block that is in the cells, and the first day whose records all are: sums of earlier days have neither
/// provider nor error.
pub(super) fn state(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let stored = connection
        .prepare_cached("SELECT block, since FROM usage_rollup")?
        .query_row((), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match stored {
        Some(stored) => Ok(stored),
        None => Ok((0, first_day(connection)?)),
    }
}

/// Returns the first day whose records are all there. Records of a file from before the cells may have expired.
fn first_day(connection: &Connection) -> rusqlite::Result<i64> {
    let ends =
        "SELECT (SELECT MIN(day) FROM daily), (SELECT MAX(day) FROM daily), (SELECT MIN(first) FROM block)";
    let (first, last, records): (Option<i64>, Option<i64>, Option<i64>) =
        connection.prepare_cached(ends)?.query_row((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(match (first, last, records.map(|time| time.div_euclid(DAY))) {
        (Some(first), _, Some(day)) if day > first => day.saturating_add(1),
        (_, Some(last), None) => last.saturating_add(1),
        _ => i64::MIN,
    })
}

/// Adds records to the cells, at most about [`STEP`]. Returns whether there are more.
pub(super) fn advance(connection: &Connection) -> Result<bool, SqliteReportError> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
    let done = step(connection);
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.prepare_cached(end)?.execute(())?;
    done
}

fn step(connection: &Connection) -> Result<bool, SqliteReportError> {
    let (mut last, since) = state(connection)?;
    let mut select =
        connection.prepare_cached("SELECT id, packed, data, records FROM block WHERE id > ?1 ORDER BY id")?;
    let mut rows = select.query(params![last])?;
    let (mut taken, mut more) = (0i64, false);
    let mut cells: BTreeMap<(i64, i64), CellBuilder> = BTreeMap::new();
    let mut buffer = String::new();
    while let Some(row) = rows.next()? {
        if taken >= STEP {
            more = true;
            break;
        }
        last = row.get(0)?;
        taken = taken.saturating_add(row.get::<_, i64>(3)?.max(1));
        let data = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        for record in record_block::records(&record_block::unpack(row.get(1)?, data)?) {
            let record = record?;
            let (hour, day) = (record.time.div_euclid(HOUR), record.time.div_euclid(DAY));
            if day < since {
                continue;
            }
            let sums = UsageSums::of(&record);
            let [account, key, model, provider, error] = names(&record, &mut buffer);
            let hour_of_day = u32::try_from(hour.rem_euclid(24)).unwrap_or(0);
            let mut add = |of: (i64, i64), hour, names| cells.entry(of).or_default().add(hour, names, &sums);
            add((DAYS, day), 0, [account, key, model, provider, error]);
            add((HOURS, day), hour_of_day, ["", "", model, provider, error]);
            add((KEY_HOURS, hour), 0, [account, key, model, provider, error]);
        }
    }
    drop(rows);
    for ((kind, period), mut builder) in cells {
        each_block(connection, kind, (period, period.saturating_add(1)), |_, block| {
            builder.load(block);
            Ok(())
        })?;
        connection
            .prepare_cached(
                "INSERT INTO usage_cells (kind, period, cells, data) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (kind, period) DO UPDATE SET cells = excluded.cells, data = excluded.data",
            )?
            .execute(params![kind, period, i64::try_from(builder.len()).unwrap_or(0), builder.finish()])?;
    }
    connection
        .prepare_cached(
            "INSERT INTO usage_rollup (id, block, since) VALUES (0, ?1, ?2)
             ON CONFLICT (id) DO UPDATE SET block = excluded.block",
        )?
        .execute(params![last, since])?;
    Ok(more)
}

/// Removes the cells of hours by key from before a time in Unix milliseconds.
pub(super) fn remove_expired(connection: &Connection, end: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM usage_cells WHERE kind = ?1 AND period < ?2")?;
    delete.execute(params![KEY_HOURS, end.div_euclid(HOUR)])?;
    Ok(())
}

/// Calls `each` with the blocks of a kind in a range of periods.
fn each_block(
    connection: &Connection,
    kind: i64,
    (from, to): (i64, i64),
    mut each: impl FnMut(i64, &CellBlock<'_>) -> io::Result<()>,
) -> Result<(), SqliteReportError> {
    let mut select = connection.prepare_cached(
        "SELECT period, data FROM usage_cells WHERE kind = ?1 AND period >= ?2 AND period < ?3 ORDER BY period",
    )?;
    let mut rows = select.query(params![kind, from, to])?;
    while let Some(row) = rows.next()? {
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        each(row.get(0)?, &CellBlock::read(data)?)?;
    }
    Ok(())
}

/// Returns the rows of a query, in no order.
pub(super) fn breakdown(
    connection: &Connection,
    query: &UsageQuery,
) -> Result<Vec<BreakdownRow>, SqliteReportError> {
    // One read transaction: a record is either in the cells or behind them.
    connection.execute_batch("BEGIN")?;
    let rows = read(connection, query);
    connection.execute_batch("COMMIT")?;
    rows
}

fn read(connection: &Connection, query: &UsageQuery) -> Result<Vec<BreakdownRow>, SqliteReportError> {
    let (last, since) = state(connection)?;
    let (from, to) = (query.filter.from, query.filter.to);
    let mut breakdown = Breakdown::new(query);
    if from < since {
        // Days from before the cells. Of their hours, providers and errors nothing is known.
        rows_of_daily(connection, (from, to.min(since)), |day, [account, key, model], sums| {
            breakdown.add(day.saturating_mul(24), [account, key, model, "", ""], &sums);
        })?;
    }
    let (kind, unit) = match (query.by_hour(), query.has_keys()) {
        (true, true) => (KEY_HOURS, 1),
        (_, false) => (HOURS, 24),
        (false, true) => (DAYS, 24),
    };
    let range = |day: i64| if kind == KEY_HOURS { day.saturating_mul(24) } else { day };
    each_block(connection, kind, (range(from.max(since)), range(to)), |period, block| {
        breakdown.add_block(period.saturating_mul(unit), block);
        Ok(())
    })?;
    // Records that came after the last step.
    let mut select = connection
        .prepare_cached("SELECT packed, data FROM block WHERE id > ?1 AND last >= ?2 AND first < ?3")?;
    let mut rows =
        select.query(params![last, from.max(since).saturating_mul(DAY), to.saturating_mul(DAY)])?;
    while let Some(row) = rows.next()? {
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        for record in record_block::records(&record_block::unpack(row.get(0)?, data)?) {
            let record = record?;
            if record.time.div_euclid(DAY) >= since {
                breakdown.add_record(&record);
            }
        }
    }
    Ok(breakdown.finish())
}
