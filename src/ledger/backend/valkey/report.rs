//! Usage reports: sums over days, and single records.

use std::collections::{BTreeSet, HashMap};
use std::io;

use foldhash::fast::RandomState;
use redis::{Cmd, Value};

use super::usage_batch;
use crate::ledger::breakdown::{Breakdown, BreakdownRow, UsageQuery};
use crate::ledger::report::{RecordPosition, UsageFilter, UsageGrouping, UsageRow, UsageSums};
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
    page(connection, filter, None, usize::MAX, usize::MAX, show).await.map(drop)
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

/// Calls `show` with the records that match the filter, from `start` on: at most `most`, out of at most `blocks` blocks.
/// Returns the position behind the last one; `None` at the end.
pub(super) async fn page(
    connection: &Connection,
    filter: &UsageFilter,
    start: Option<&RecordPlace>,
    most: usize,
    blocks: usize,
    show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
) -> Result<Option<RecordPlace>, ValkeyReportError> {
    let first = start.map_or(filter.from, |start| filter.from.max(start.day));
    let (mut shown, mut read) = (0usize, 0usize);
    for day in days(connection, first, filter.to).await? {
        for account in active(connection, day, filter.account.as_deref()).await? {
            let here = start.filter(|start| start.day == day);
            let mut next = match here.map(|start| (start, account.as_str().cmp(&start.account))) {
                Some((_, std::cmp::Ordering::Less)) => continue,
                Some((start, std::cmp::Ordering::Equal)) => start.position,
                _ => RecordPosition::default(),
            };
            loop {
                // In parts: the records of a busy day may not fit into memory.
                let mut range = get_command("LRANGE", keys::records(&account, day));
                range.arg(next.block).arg(next.block.saturating_add(BLOCKS - 1));
                let part = connection.run_one(range).await?;
                let part = parts(&part);
                for data in part {
                    let place = |position| RecordPlace { day, account: account.clone(), position };
                    if read == blocks {
                        return Ok(Some(place(next)));
                    }
                    read = read.saturating_add(1);
                    if let Value::BulkString(data) = data {
                        let unpacked = usage_batch::unpack(data)?;
                        for (index, record) in record_block::records(&unpacked).enumerate().skip(next.index) {
                            let record = record?;
                            if !filter.matches(&record) {
                                continue;
                            }
                            if shown == most {
                                return Ok(Some(place(RecordPosition { block: next.block, index })));
                            }
                            show(&record)?;
                            shown = shown.saturating_add(1);
                        }
                    }
                    next = RecordPosition { block: next.block.saturating_add(1), index: 0 };
                }
                if i64::try_from(part.len()).is_ok_and(|count| count < BLOCKS) {
                    break;
                }
            }
        }
    }
    Ok(None)
}
