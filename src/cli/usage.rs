//! `model-gateway usage`: usage reports and records of requests.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use super::accounts::{AccountsError, File};
use super::out::{self, say};
use super::table::{TextTable, align, grouped};
use super::{complain, fail};
use clap::Args;
use storage::ledger::admin::AdminError;
use storage::ledger::export::{self, UsagePeriod, date, money};
use storage::ledger::record::KINDS;
use storage::ledger::report::{UsageFilter, UsageGrouping, UsageRow, UsageSums};

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
    from: Option<UsagePeriod>,
    /// Last day, or month. Default: today.
    #[arg(long, value_name = "DAY", value_parser = period)]
    to: Option<UsagePeriod>,
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

fn by(word: &str) -> Result<UsageGrouping, String> {
    let names = || UsageGrouping::ALL.map(UsageGrouping::name).join(", ");
    UsageGrouping::ALL.into_iter().find(|by| by.name() == word).ok_or_else(|| format!("one of {}", names()))
}

fn period(text: &str) -> Result<UsagePeriod, &'static str> {
    UsagePeriod::parse(text)
}

pub(super) fn run(options: &UsageArgs) -> ExitCode {
    let shown = options.file.open().and_then(|admin| {
        let filter = options.filter();
        if options.records {
            let mut out = BufWriter::new(io::stdout().lock());
            let mut first = true;
            admin.records(&filter, &mut |record| {
                if options.json {
                    return writeln!(out, "{}", export::record_json(record));
                }
                if std::mem::take(&mut first) {
                    export::write_record_names(&mut out)?;
                }
                export::write_record_csv(&mut out, record)
            })?;
            // A buffer that is dropped does not say that it could not be written.
            return Ok(out.flush().map_err(AdminError::Records)?);
        }
        let lines = admin.usage(&filter, options.by)?;
        if lines.iter().any(|line| line.sums.is_beyond()) {
            complain(format_args!("Sums that are shown as the largest number exceed it."));
        }
        options.show(lines, &filter)
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(AccountsError::Admin(AdminError::Records(error))) => {
            out::settle(Err(error));
            ExitCode::FAILURE
        }
        Err(error) => fail(error),
    }
}

impl UsageArgs {
    fn filter(&self) -> UsageFilter {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
        let today = i64::try_from(now).unwrap_or(0);
        let month = UsagePeriod::this_month(today);
        UsageFilter {
            account: self.account.clone(),
            key: self.key.clone(),
            model: self.model.clone(),
            from: self.from.map_or(month.from, |period| period.from),
            to: self.to.map_or(month.to, |period| period.to),
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
            lines.iter().try_for_each(|line| writeln!(out, "{}", export::row_json(self.by, line)))
        } else if self.csv {
            export::write_rows_csv(&mut out, self.by, &lines)
        } else {
            drop(out);
            self.print(lines, filter);
            return Ok(());
        };
        written.and_then(|()| out.flush()).map_err(|error| AdminError::Records(error).into())
    }

    fn print(&self, lines: Vec<UsageRow>, filter: &UsageFilter) {
        let span = format!("{} to {}", date(filter.from), date(filter.to - 1));
        if lines.is_empty() {
            say!("No usage from {span}.");
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
