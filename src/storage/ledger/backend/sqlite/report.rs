//! Usage reports: sums over days, and single records.

use std::io;

use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{Connection, Row};

use crate::ledger::record::KINDS;
use crate::ledger::report::{
    DAY, RecordPosition, RecordQuery, UsageFilter, UsageGrouping, UsageRow, UsageSums, clamped,
};
use crate::ledger::{UsageRecord, record_block};

/// Returns the sums of the requests that match the filter: days in chronological order, names by descending cost.
pub(super) fn sums(
    connection: &Connection,
    filter: &UsageFilter,
    by: UsageGrouping,
) -> rusqlite::Result<Vec<UsageRow>> {
    let usage: String = KINDS.iter().map(|kind| format!(", {}", summed(kind.name))).collect();
    let name = by.name();
    let mut conditions = String::new();
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let named = [("account", &filter.account), ("key", &filter.key), ("model", &filter.model)];
    for (column, value) in named {
        if let Some(value) = value {
            values.push(value);
            conditions += &format!(" AND {column} = ?{}", values.len());
        }
    }
    // Iterate over the days: the primary key starts with the day, so that each day's rows of an account are adjacent.
    let ends = "SELECT (SELECT MIN(day) FROM daily), (SELECT MAX(day) FROM daily)";
    let (first, last): (Option<i64>, Option<i64>) =
        connection.query_row(ends, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(first), Some(last)) = (first, last) else { return Ok(Vec::new()) };
    let (from, to) = (filter.from.max(first), filter.to.min(last.saturating_add(1)));
    let text = format!(
        "WITH RECURSIVE days (d) AS (SELECT {from} WHERE {from} < {to} UNION ALL SELECT d + 1 FROM days WHERE d + 1 < {to})
         SELECT {name}, {}, {}, {}, {}, {}{usage}
         FROM days CROSS JOIN daily ON day = d WHERE TRUE{conditions} GROUP BY 1 ORDER BY 1",
        summed("requests"),
        summed("failed"),
        summed("cost"),
        summed("cache_saved"),
        summed("cache_surcharge"),
    );
    let mut select = connection.prepare(&text)?;
    let mut lines: Vec<UsageRow> = select.query_map(&values[..], line)?.collect::<rusqlite::Result<_>>()?;
    if by != UsageGrouping::Day {
        lines.sort_by_key(|line| std::cmp::Reverse(line.sums.cost));
    }
    Ok(lines)
}

/// Returns the SQL of a sum that cannot overflow inside SQLite: two halves, named after the column, to be read by
/// [`sum`].
pub(super) fn summed(column: &str) -> String {
    format!("SUM({column} >> 31) AS {column}_high, SUM({column} & 2147483647) AS {column}_low")
}

/// Returns a sum from the two columns of [`summed`], starting at `column`. Saturates.
pub(super) fn sum(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    let half = |column: usize| row.get::<_, Option<i64>>(column).map(|half| i128::from(half.unwrap_or(0)));
    // Two 64-bit halves: neither the shift nor the sum leaves 128 bits.
    Ok(clamped((half(column)? << 31).saturating_add(half(column.saturating_add(1))?)))
}

fn line(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let name = match row.get_ref(0)? {
        ValueRef::Integer(day) => day.to_string(),
        other => other.as_str()?.to_owned(),
    };
    let mut sums = UsageSums {
        requests: sum(row, 1)?,
        failed: sum(row, 3)?,
        cost: sum(row, 5)?,
        cache_saved: sum(row, 7)?,
        cache_surcharge: sum(row, 9)?,
        ..UsageSums::default()
    };
    for (at, used) in sums.usage.iter_mut().enumerate() {
        *used = sum(row, at.saturating_mul(2).saturating_add(11))?;
    }
    Ok(UsageRow { name, sums })
}

/// Calls `each` with the day, the names and the sums of each row of the daily sums in a range of days.
pub(super) fn rows_of_daily(
    connection: &Connection,
    (from, to): (i64, i64),
    mut each: impl FnMut(i64, [&str; 3], UsageSums),
) -> rusqlite::Result<()> {
    let usage: String = KINDS.iter().map(|kind| format!(", {}", kind.name)).collect();
    let mut select = connection.prepare_cached(&format!(
        "SELECT day, account, key, model, requests, failed, cost, cache_saved, cache_surcharge{usage}
         FROM daily WHERE day >= ?1 AND day < ?2"
    ))?;
    let mut rows = select.query([from, to])?;
    while let Some(row) = rows.next()? {
        let mut sums = UsageSums {
            requests: row.get(4)?,
            failed: row.get(5)?,
            cost: row.get(6)?,
            cache_saved: row.get(7)?,
            cache_surcharge: row.get(8)?,
            ..UsageSums::default()
        };
        for (at, used) in sums.usage.iter_mut().enumerate() {
            *used = row.get(at.saturating_add(9))?;
        }
        let name = |column: usize| row.get_ref(column).and_then(|value| Ok(value.as_str()?));
        each(row.get(0)?, [name(1)?, name(2)?, name(3)?], sums);
    }
    Ok(())
}

/// Reason why records cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqliteReportError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Calls `show` with each record that matches the filter, in the order in which requests ended.
pub(super) fn records(
    connection: &Connection,
    filter: &UsageFilter,
    show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
) -> Result<(), SqliteReportError> {
    let all = PageSize { records: usize::MAX, blocks: usize::MAX, bytes: usize::MAX };
    page(connection, &RecordQuery::of(filter), None, all, show)?;
    Ok(())
}

/// Size of a page.
#[derive(Clone, Copy)]
pub(super) struct PageSize {
    /// Maximum number of records.
    pub(super) records: usize,
    /// Maximum number of blocks that are read.
    pub(super) blocks: usize,
    /// Number of uncompressed bytes from which on no further block is read.
    pub(super) bytes: usize,
}

/// Calls `show` with the records that the query chooses, from `start` on. Returns the position behind the last one; `None`
/// at the end.
pub(super) fn page(
    connection: &Connection,
    query: &RecordQuery,
    start: Option<RecordPosition>,
    most: PageSize,
    show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
) -> Result<Option<RecordPosition>, SqliteReportError> {
    let (from, to) = (query.filter.from.saturating_mul(DAY), query.filter.to.saturating_mul(DAY));
    let is_back = query.newest_first;
    let whole = if is_back { usize::MAX } else { 0 };
    let first = RecordPosition { block: if is_back { i64::MAX } else { 0 }, index: whole };
    let start = start.unwrap_or(first);
    let (side, order) = if is_back { ("<=", "DESC") } else { (">=", "ASC") };
    let mut select = connection.prepare(&format!(
        "SELECT packed, data, id FROM block WHERE last >= ?1 AND first < ?2 AND id {side} ?3 ORDER BY id {order}"
    ))?;
    let mut rows = select.query([from, to, start.block])?;
    let (mut shown, mut blocks, mut bytes) = (0usize, 0usize, 0usize);
    while let Some(row) = rows.next()? {
        let block: i64 = row.get(2)?;
        if blocks == most.blocks || bytes >= most.bytes {
            return Ok(Some(RecordPosition { block, index: whole }));
        }
        blocks = blocks.saturating_add(1);
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let begin = if block == start.block { start.index } else { whole };
        let unpacked = record_block::unpack(row.get(0)?, data)?;
        bytes = bytes.saturating_add(unpacked.len());
        if !query.may_be_in(&unpacked) {
            continue;
        }
        let mut next = None;
        record_block::visit(&unpacked, is_back, begin, &mut |index, record| {
            if !query.matches(record) {
                return Ok(true);
            }
            if shown == most.records {
                next = Some(RecordPosition { block, index });
                return Ok(false);
            }
            show(record)?;
            shown = shown.saturating_add(1);
            Ok(true)
        })?;
        if next.is_some() {
            return Ok(next);
        }
    }
    Ok(None)
}
