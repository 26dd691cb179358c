//! `model-gateway usage`: usage reports and records of requests.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use jiff::civil::Date;
use serde_json::{Map, Value, json};

use super::accounts::{AccountsError, File};
use super::fail;
use super::table::{TextTable, align, csv, grouped};
use crate::account::Amount;
use crate::canonical::time::{date_of_day, day_of_date, rfc3339};
use crate::ledger::UsageRecord;
use crate::ledger::admin::AdminError;
use crate::ledger::record::KINDS;
use crate::ledger::report::{UsageFilter, UsageGrouping, UsageRow, UsageSums};

#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Only this account; "" for keys without an account.
    #[arg(long)]
    account: Option<String>,
    /// Only this key.
    #[arg(long)]
    key: Option<String>,
    /// Only this model, as clients name it.
    #[arg(long)]
    model: Option<String>,
    /// First day (UTC), such as 2027-01-31, or month, such as 2027-01. Default: the first day of this month.
    #[arg(long, value_name = "DAY", value_parser = period)]
    from: Option<Period>,
    /// Last day, or month. Default: today.
    #[arg(long, value_name = "DAY", value_parser = period)]
    to: Option<Period>,
    /// Group by day, account, key or model.
    #[arg(long, default_value = "day", value_parser = by)]
    by: UsageGrouping,
    /// Print each request instead of sums.
    #[arg(long, conflicts_with = "by")]
    records: bool,
    /// Print comma-separated values, for spreadsheets.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: File,
}

/// Period in days since 1970-01-01, from `from` to before `to`.
#[derive(Clone, Copy, Debug)]
struct Period {
    from: i64,
    to: i64,
}

fn by(word: &str) -> Result<UsageGrouping, String> {
    let names = || UsageGrouping::ALL.map(UsageGrouping::name).join(", ");
    UsageGrouping::ALL.into_iter().find(|by| by.name() == word).ok_or_else(|| format!("one of {}", names()))
}

/// Parses a day or a month.
fn period(text: &str) -> Result<Period, &'static str> {
    let wrong = "write a day, such as 2027-01-31, or a month, such as 2027-01";
    let numbers: Vec<i16> = text
        .split('-')
        .map(|part| part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit())))
        .collect::<Option<_>>()
        .ok_or(wrong)?;
    let (year, month, day) = match numbers[..] {
        [year, month] => (year, month, None),
        [year, month, day] => (year, month, Some(day)),
        _ => return Err(wrong),
    };
    let month = i8::try_from(month).map_err(|_| wrong)?;
    let first = Date::new(year, month, 1).ok().filter(|first| first.year() >= 1970).ok_or(wrong)?;
    let begin = day_of_date(first);
    let length = i64::from(first.days_in_month());
    match day.map(i64::from) {
        None => Ok(Period { from: begin, to: begin + length }),
        Some(day) if (1..=length).contains(&day) => Ok(Period { from: begin + day - 1, to: begin + day }),
        Some(_) => Err("the month does not have this day"),
    }
}

/// Formats nano-units as a decimal amount.
fn money(nanos: i64) -> String {
    format!("{:.2}", Amount(nanos))
}

/// Formats days since 1970-01-01 as a date.
fn date(day: i64) -> String {
    date_of_day(day).to_string()
}

pub(super) fn run(options: &UsageArgs) -> ExitCode {
    let shown = options.file.open().and_then(|admin| {
        let filter = options.filter();
        if options.records {
            let mut out = BufWriter::new(io::stdout().lock());
            let mut first = true;
            return Ok(admin.records(&filter, &mut |record| {
                write_record(&mut out, record, options.json, std::mem::take(&mut first))
            })?);
        }
        let lines = admin.usage(&filter, options.by)?;
        if lines.iter().any(|line| line.sums.is_beyond()) {
            eprintln!("Sums that are shown as the largest number exceed it.");
        }
        options.show(lines, &filter)
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has closed it, for example `head`.
        Err(AccountsError::Admin(AdminError::Records(error)))
            if error.kind() == io::ErrorKind::BrokenPipe =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => fail(error),
    }
}

impl UsageArgs {
    fn filter(&self) -> UsageFilter {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
        let today = i64::try_from(now).unwrap_or(0);
        let month = || day_of_date(date_of_day(today).first_of_month());
        UsageFilter {
            account: self.account.clone(),
            key: self.key.clone(),
            model: self.model.clone(),
            from: self.from.map_or_else(month, |period| period.from),
            to: self.to.map_or(today + 1, |period| period.to),
        }
    }

    fn show(&self, mut lines: Vec<UsageRow>, filter: &UsageFilter) -> Result<(), AccountsError> {
        if self.by == UsageGrouping::Day {
            for line in &mut lines {
                line.name = line.name.parse().map_or_else(|_| line.name.clone(), date);
            }
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let written = if self.json {
            lines.iter().try_for_each(|line| writeln!(out, "{}", self.value(line)))
        } else if self.csv {
            self.write_csv(&mut out, &lines)
        } else {
            drop(out);
            self.print(lines, filter);
            return Ok(());
        };
        written.and_then(|()| out.flush()).map_err(|error| AdminError::Records(error).into())
    }

    fn value(&self, line: &UsageRow) -> Value {
        let mut value = Map::new();
        value.insert(self.by.name().to_owned(), line.name.clone().into());
        value.insert("requests".to_owned(), line.sums.requests.into());
        value.insert("failed".to_owned(), line.sums.failed.into());
        for (kind, sum) in KINDS.iter().zip(line.sums.usage) {
            value.insert(kind.name.to_owned(), sum.into());
        }
        value.insert("cost".to_owned(), money(line.sums.cost).into());
        value.insert("cache_saved".to_owned(), money(line.sums.cache_saved).into());
        value.insert("cache_surcharge".to_owned(), money(line.sums.cache_surcharge).into());
        Value::Object(value)
    }

    fn write_csv(&self, out: &mut impl Write, lines: &[UsageRow]) -> io::Result<()> {
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        writeln!(
            out,
            "{},requests,failed,{},cost,cache_saved,cache_surcharge",
            self.by.name(),
            kinds.join(",")
        )?;
        lines.iter().try_for_each(|line| {
            let UsageSums { requests, failed, cost, usage, cache_saved, cache_surcharge } = line.sums;
            let usage = usage.map(|sum| sum.to_string()).join(",");
            let money = [cost, cache_saved, cache_surcharge].map(money).join(",");
            writeln!(out, "{},{requests},{failed},{usage},{money}", csv(&line.name))
        })
    }

    fn print(&self, lines: Vec<UsageRow>, filter: &UsageFilter) {
        let span = format!("{} to {}", date(filter.from), date(filter.to - 1));
        if lines.is_empty() {
            println!("No usage from {span}.");
            return;
        }
        let mut total = UsageRow { name: span, sums: UsageSums::default() };
        for line in &lines {
            total.sums.add(&line.sums);
        }
        // Show the common kinds always, the others only if they were used.
        let usual = ["input", "cached", "output", "reasoning"];
        let shown: Vec<bool> = KINDS
            .iter()
            .zip(total.sums.usage)
            .map(|(kind, sum)| sum != 0 || usual.contains(&kind.name))
            .collect();
        let mut head = vec![self.by.name(), "requests", "failed"];
        head.extend(KINDS.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(kind, _)| kind.name));
        head.push("cost");
        // What caches saved, less what their writes cost more.
        let is_cached = total.sums.cache_saved != 0 || total.sums.cache_surcharge != 0;
        head.extend(is_cached.then_some("cache saved"));
        let mut table = TextTable::new(1, head);
        let all: Vec<UsageRow> = lines.into_iter().chain([total]).collect();
        let mut costs: Vec<String> = all.iter().map(|line| money(line.sums.cost)).collect();
        align(&mut costs.iter_mut().collect::<Vec<_>>());
        let saved = |line: &UsageRow| line.sums.cache_saved.saturating_sub(line.sums.cache_surcharge);
        let mut savings: Vec<String> = all.iter().map(|line| money(saved(line))).collect();
        align(&mut savings.iter_mut().collect::<Vec<_>>());
        for ((line, cost), saved) in all.into_iter().zip(costs).zip(savings) {
            let name = if line.name.is_empty() { "(none)".to_owned() } else { line.name };
            let mut row = vec![name, grouped(line.sums.requests), grouped(line.sums.failed)];
            row.extend(
                line.sums.usage.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(sum, _)| grouped(*sum)),
            );
            row.push(cost);
            row.extend(is_cached.then_some(saved));
            table.row(row);
        }
        table.print(1);
    }
}

/// Returns the text members of a record.
fn texts<'a>(record: &UsageRecord<'a>) -> [(&'static str, &'a str); 10] {
    [
        ("request", record.request),
        ("account", record.account),
        ("key", record.key),
        ("model", record.model),
        ("provider", record.provider),
        ("target", record.target),
        ("endpoint", record.endpoint),
        ("client_format", record.client_format),
        ("provider_format", record.provider_format),
        ("error", record.error),
    ]
}

/// Returns the numeric members of a record.
fn numbers(record: &UsageRecord<'_>) -> [(&'static str, Option<i64>); 4] {
    [
        ("status", Some(record.status.into())),
        ("attempts", Some(record.attempts.into())),
        ("first_byte_ms", record.first_byte.map(i64::from)),
        ("total_ms", Some(record.total.into())),
    ]
}

/// Formats the start time with milliseconds.
fn began(record: &UsageRecord<'_>) -> String {
    let seconds = rfc3339(record.time.div_euclid(1000));
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), record.time.rem_euclid(1000))
}

fn write_record(
    out: &mut impl Write,
    record: &UsageRecord<'_>,
    as_json: bool,
    first: bool,
) -> io::Result<()> {
    let usage = KINDS.iter().map(|kind| (kind.name, (kind.get)(&record.usage)));
    let cost = money(record.cost);
    let nanos = |effect: u64| i64::try_from(effect).unwrap_or(i64::MAX);
    let effects =
        [("cache_saved", nanos(record.cache_saved)), ("cache_surcharge", nanos(record.cache_surcharge))];
    if as_json {
        let mut value = Map::new();
        value.insert("time".to_owned(), began(record).into());
        value.extend(texts(record).map(|(name, text)| (name.to_owned(), text.into())));
        value.extend(numbers(record).map(|(name, number)| (name.to_owned(), json!(number))));
        value.insert("stream".to_owned(), record.stream.into());
        value.insert("counted".to_owned(), record.counted.into());
        value.extend(usage.map(|(name, sum)| (name.to_owned(), json!(sum))));
        value.insert("cost".to_owned(), cost.into());
        value.extend(effects.map(|(name, nanos)| (name.to_owned(), money(nanos).into())));
        return writeln!(out, "{}", Value::Object(value));
    }
    let (texts, numbers) = (texts(record), numbers(record));
    if first {
        let names = texts.iter().map(|(name, _)| *name).chain(numbers.iter().map(|(name, _)| *name));
        let names = names.chain(["stream", "counted"]).chain(KINDS.iter().map(|kind| kind.name));
        writeln!(out, "time,{},cost,cache_saved,cache_surcharge", names.collect::<Vec<_>>().join(","))?;
    }
    let known = |number: Option<String>| number.unwrap_or_default();
    let fields = [csv(&began(record))].into_iter();
    let fields = fields.chain(texts.iter().map(|(_, text)| csv(text)));
    let fields =
        fields.chain(numbers.iter().map(|(_, number)| known(number.map(|number| number.to_string()))));
    let fields = fields.chain([record.stream.to_string(), record.counted.to_string()]);
    let fields = fields.chain(usage.map(|(_, sum)| known(sum.map(|sum| sum.to_string())))).chain([cost]);
    let fields = fields.chain(effects.into_iter().map(|(_, nanos)| money(nanos)));
    writeln!(out, "{}", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_days_and_months_are_parsed() {
        for (text, from, to) in [
            ("1970-01-01", "1970-01-01", "1970-01-01"),
            ("2024-02", "2024-02-01", "2024-02-29"),
            ("2023-02", "2023-02-01", "2023-02-28"),
            ("2026-12", "2026-12-01", "2026-12-31"),
            ("2000-02-29", "2000-02-29", "2000-02-29"),
        ] {
            let period = period(text).unwrap();
            assert_eq!((date(period.from), date(period.to - 1)), (from.to_owned(), to.to_owned()), "{text}");
        }
        let wrong = ["", "2024", "2024-13", "2024-00-01", "2023-02-29", "2024-1-1-1", "2024-+1-01", "x-1-1"];
        assert!(wrong.iter().all(|text| period(text).is_err()));
    }
}
