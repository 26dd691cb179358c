//! Usage reports: sums over days, and single records.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::io;

use foldhash::fast::RandomState;
use redis::{Cmd, Value};

use super::usage_batch;
use crate::ledger::breakdown::{Breakdown, BreakdownRow, UsageQuery};
use crate::ledger::report::{
    PAGE_BYTES, RecordPosition, RecordQuery, UsageFilter, UsageGrouping, UsageRow, UsageSums,
};
use crate::ledger::{Spent, UsageRecord, record_block};
use crate::store::valkey::connection::{Connection, ConnectionError, number, pairs, parts, text};
use crate::store::valkey::keys;

/// Number of record blocks that are read at a time.
const BLOCKS: i64 = 64;

fn get_command(name: &str, key: String) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

/// Returns the days in `from..to` that have usage, in chronological order.
pub(super) async fn days(
    connection: &Connection,
    from: i64,
    to: i64,
) -> Result<BTreeSet<i64>, ConnectionError> {
    let days = connection.run_one(get_command("SMEMBERS", keys::days())).await?;
    Ok(parts(&days).iter().map(number).filter(|day| (from..to).contains(day)).collect())
}

/// Returns the accounts with usage on a day, ordered by name; only `required`, unless it is `None`.
async fn active(
    connection: &Connection,
    day: i64,
    required: Option<&str>,
) -> Result<Vec<String>, ConnectionError> {
    if let Some(required) = required {
        return Ok(vec![required.to_owned()]);
    }
    let active = connection.run_one(get_command("SMEMBERS", keys::active(day))).await?;
    let mut active: Vec<String> = parts(&active).iter().map(|name| text(name).to_owned()).collect();
    active.sort();
    Ok(active)
}

/// Calls `show` with the sums of each account, key and model on a day.
async fn each(
    connection: &Connection,
    day: i64,
    required: Option<&str>,
    mut show: impl FnMut(&str, &str, &str, &UsageSums),
) -> Result<(), ConnectionError> {
    let accounts = active(connection, day, required).await?;
    let commands = accounts.iter().map(|account| get_command("HGETALL", keys::sums(account, day)));
    let answers = connection.run_all(commands.collect()).await?;
    for (account, answer) in accounts.iter().zip(&answers) {
        for (name, amount) in pairs(answer) {
            if let Some((key, model, sums)) = usage_batch::field(text(name), number(amount)) {
                show(account, key, model, &sums);
            }
        }
    }
    Ok(())
}

/// Returns the charges of each account and key per day, from `day` on.
pub(super) async fn spent(connection: &Connection, day: i64) -> Result<Vec<Spent>, ConnectionError> {
    let mut spent: HashMap<(i64, String, String), i64, RandomState> = HashMap::default();
    for day in days(connection, day, i64::MAX).await? {
        each(connection, day, None, |account, key, _, sums| {
            if sums.cost != 0 {
                let cost = spent.entry((day, account.to_owned(), key.to_owned())).or_default();
                *cost = cost.saturating_add(sums.cost);
            }
        })
        .await?;
    }
    Ok(spent.into_iter().map(|((day, account, key), cost)| Spent { day, account, key, cost }).collect())
}

/// Returns the sums of the requests that match the filter: days in chronological order, names by descending cost.
pub(super) async fn sums(
    connection: &Connection,
    filter: &UsageFilter,
    by: UsageGrouping,
) -> Result<Vec<UsageRow>, ConnectionError> {
    let matches =
        |required: &Option<String>, value: &str| required.as_deref().is_none_or(|required| required == value);
    let mut lines: HashMap<String, UsageSums, RandomState> = HashMap::default();
    for day in days(connection, filter.from, filter.to).await? {
        each(connection, day, filter.account.as_deref(), |account, key, model, sums| {
            if matches(&filter.key, key) && matches(&filter.model, model) {
                let name = match by {
                    UsageGrouping::Day => day.to_string(),
                    UsageGrouping::Account => account.to_owned(),
                    UsageGrouping::Key => key.to_owned(),
                    UsageGrouping::Model => model.to_owned(),
                };
                lines.entry(name).or_default().add(sums);
            }
        })
        .await?;
    }
    let mut lines: Vec<UsageRow> = lines.into_iter().map(|(name, sums)| UsageRow { name, sums }).collect();
    match by {
        UsageGrouping::Day => lines.sort_by_key(|line| line.name.parse::<i64>().unwrap_or(0)),
        _ => lines.sort_by(|a, b| b.sums.cost.cmp(&a.sums.cost).then_with(|| a.name.cmp(&b.name))),
    }
    Ok(lines)
}

/// Returns the rows of a query, in no order: from the daily sums, or from single records if it needs the hour, the provider
/// or the kind of error.
pub(super) async fn breakdown(
    connection: &Connection,
    query: &UsageQuery,
) -> Result<Vec<BreakdownRow>, ValkeyReportError> {
    let mut breakdown = Breakdown::new(query);
    let filter = &query.filter;
    if query.by_hour() || query.has_outcome() {
        let mut add = |record: &UsageRecord<'_>| {
            breakdown.add_record(record);
            Ok(())
        };
        records(connection, filter, &mut add).await?;
        return Ok(breakdown.finish());
    }
    for day in days(connection, filter.from, filter.to).await? {
        each(connection, day, filter.account.as_deref(), |account, key, model, sums| {
            breakdown.add(day.saturating_mul(24), [account, key, model, "", ""], sums);
        })
        .await?;
    }
    Ok(breakdown.finish())
}

/// Reason why records cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValkeyReportError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Calls `show` with each record that matches the filter: by day and account, then in the order in which requests
/// ended.
pub(super) async fn records(
    connection: &Connection,
    filter: &UsageFilter,
    show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
) -> Result<(), ValkeyReportError> {
    page(connection, &RecordQuery::of(filter), None, (usize::MAX, usize::MAX), show).await.map(drop)
}

/// Position of a record: its day, its account, and its block and index among the account's records of this day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    day: i64,
    account: String,
    position: RecordPosition,
}

impl RecordPlace {
    /// Parses what [`Display`](std::fmt::Display) writes. `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (day, position, account) = (parts.next()?, parts.next()?, parts.next()?);
        let position = RecordPosition::parse(position)?;
        Some(RecordPlace { day: day.parse().ok()?, account: account.to_owned(), position })
    }
}

impl std::fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.day, self.position, self.account)
    }
}

/// What is left of a page.
struct Page<'q, 's> {
    query: &'q RecordQuery,
    records: usize,
    blocks: usize,
    /// Number of uncompressed bytes from which on no further block is read.
    bytes: usize,
    show: &'s mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
}

impl Page<'_, '_> {
    /// Shows the records of a block from an index on, or back from there. Returns the position of the next one if the page is
    /// full.
    fn block(&mut self, data: &Value, at: RecordPosition) -> io::Result<Option<RecordPosition>> {
        if self.blocks == 0 || self.bytes == 0 {
            return Ok(Some(at));
        }
        self.blocks = self.blocks.saturating_sub(1);
        let Value::BulkString(data) = data else { return Ok(None) };
        let unpacked = usage_batch::unpack(data)?;
        self.bytes = self.bytes.saturating_sub(unpacked.len());
        if !self.query.may_be_in(&unpacked) {
            return Ok(None);
        }
        let mut next = None;
        record_block::visit(&unpacked, self.query.newest_first, at.index, &mut |index, record| {
            if !self.query.matches(record) {
                return Ok(true);
            }
            if self.records == 0 {
                next = Some(RecordPosition { block: at.block, index });
                return Ok(false);
            }
            (self.show)(record)?;
            self.records = self.records.saturating_sub(1);
            Ok(true)
        })?;
        Ok(next)
    }
}

/// Calls `show` with the records that the query chooses, from `start` on: at most `most.0`, out of at most `most.1` blocks
/// and some [`PAGE_BYTES`]. Returns the position behind the last one; `None` at the end.
pub(super) async fn page(
    connection: &Connection,
    query: &RecordQuery,
    start: Option<&RecordPlace>,
    most: (usize, usize),
    show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
) -> Result<Option<RecordPlace>, ValkeyReportError> {
    let is_back = query.newest_first;
    let mut page = Page { query, records: most.0, blocks: most.1, bytes: PAGE_BYTES, show };
    let filter = &query.filter;
    let (from, to) = match start {
        Some(start) if is_back => (filter.from, filter.to.min(start.day.saturating_add(1))),
        Some(start) => (filter.from.max(start.day), filter.to),
        None => (filter.from, filter.to),
    };
    let mut days: Vec<i64> = days(connection, from, to).await?.into_iter().collect();
    if is_back {
        days.reverse();
    }
    for day in days {
        let mut accounts = active(connection, day, filter.account.as_deref()).await?;
        if is_back {
            accounts.reverse();
        }
        for account in accounts {
            let here = start.filter(|start| start.day == day);
            let place = here.map(|start| (start, account.as_str().cmp(&start.account)));
            let begin = match place {
                Some((start, Ordering::Equal)) => Some(start.position),
                Some((_, Ordering::Less)) if !is_back => continue,
                Some((_, Ordering::Greater)) if is_back => continue,
                _ => None,
            };
            let list = keys::records(&account, day);
            let next = match is_back {
                false => list_forth(connection, &list, begin, &mut page).await?,
                true => list_back(connection, &list, begin, &mut page).await?,
            };
            if let Some(position) = next {
                return Ok(Some(RecordPlace { day, account, position }));
            }
        }
    }
    Ok(None)
}

/// Returns the blocks of a list from `first` to `last`, both included.
async fn blocks(
    connection: &Connection,
    list: &str,
    (first, last): (i64, i64),
) -> Result<Value, ConnectionError> {
    let mut range = get_command("LRANGE", list.to_owned());
    range.arg(first).arg(last);
    connection.run_one(range).await
}

/// Shows the records of a list from `begin` on. Returns the position of the next one if the page is full.
async fn list_forth(
    connection: &Connection,
    list: &str,
    begin: Option<RecordPosition>,
    page: &mut Page<'_, '_>,
) -> Result<Option<RecordPosition>, ValkeyReportError> {
    let mut next = begin.unwrap_or_default();
    loop {
        // In parts: the records of a busy day may not fit into memory.
        let part = blocks(connection, list, (next.block, next.block.saturating_add(BLOCKS - 1))).await?;
        let part = parts(&part);
        for data in part {
            if let Some(full) = page.block(data, next)? {
                return Ok(Some(full));
            }
            next = RecordPosition { block: next.block.saturating_add(1), index: 0 };
        }
        if i64::try_from(part.len()).is_ok_and(|count| count < BLOCKS) {
            return Ok(None);
        }
    }
}

/// Shows the records of a list from `begin`, or from the end, back to the first. Returns the position of the next one if the
/// page is full.
async fn list_back(
    connection: &Connection,
    list: &str,
    begin: Option<RecordPosition>,
    page: &mut Page<'_, '_>,
) -> Result<Option<RecordPosition>, ValkeyReportError> {
    let mut next = match begin {
        Some(begin) => begin,
        None => {
            let length = number(&connection.run_one(get_command("LLEN", list.to_owned())).await?);
            RecordPosition { block: length.saturating_sub(1), index: usize::MAX }
        }
    };
    while next.block >= 0 {
        let first = next.block.saturating_sub(BLOCKS - 1).max(0);
        let part = blocks(connection, list, (first, next.block)).await?;
        let part: Vec<(i64, &Value)> = (first..=next.block).zip(parts(&part)).collect();
        for (block, data) in part.into_iter().rev() {
            let index = if block == next.block { next.index } else { usize::MAX };
            if let Some(full) = page.block(data, RecordPosition { block, index })? {
                return Ok(Some(full));
            }
        }
        next = RecordPosition { block: first.saturating_sub(1), index: usize::MAX };
    }
    Ok(None)
}
