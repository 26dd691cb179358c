//! Usage as text: sums and records as CSV and as JSON lines, for the command line and the admin API alike.

use std::io::{self, Write};

use jiff::civil::Date;
use serde_json::{Map, Value, json};

use super::UsageRecord;
use super::breakdown::{BreakdownRow, DimensionValue, UsageDimension};
use super::record::KINDS;
use super::report::{UsageGrouping, UsageRow, UsageSums};
use codec::canonical::time::{date_of_day, day_of_date, rfc3339};
use routing::account::Amount;

/// Period in days since 1970-01-01, from `from` to before `to`, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsagePeriod {
    /// First day.
    pub from: i64,
    /// Day after the last.
    pub to: i64,
}

impl UsagePeriod {
    /// Parses a day, such as 2027-01-31, or a month, such as 2027-01.
    ///
    /// # Errors
    /// Returns a hint if the text is neither.
    pub fn parse(text: &str) -> Result<UsagePeriod, &'static str> {
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
        let end = begin.saturating_add(i64::from(first.days_in_month()));
        let Some(day) = day.map(i64::from) else { return Ok(UsagePeriod { from: begin, to: end }) };
        let to = begin.saturating_add(day);
        if day < 1 || to > end {
            return Err("the month does not have this day");
        }
        Ok(UsagePeriod { from: to.saturating_sub(1), to })
    }

    /// Returns the period from the first day of the month of `today` to `today`.
    pub fn this_month(today: i64) -> UsagePeriod {
        UsagePeriod { from: day_of_date(date_of_day(today).first_of_month()), to: today.saturating_add(1) }
    }
}

/// Formats nano-units as a decimal amount.
pub fn money(nanos: i64) -> String {
    format!("{:.2}", Amount(nanos))
}

/// Formats days since 1970-01-01 as a date.
pub fn date(day: i64) -> String {
    date_of_day(day).to_string()
}

/// Quotes a field of a CSV file.
pub fn csv_field(field: &str) -> String {
    // Prefix a field that a spreadsheet would evaluate as a formula, to prevent CSV injection by names of keys or
    // accounts.
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']) && field.parse::<f64>().is_err();
    let field = if formula { format!("'{field}") } else { field.to_owned() };
    if field.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

/// Returns the members of sums as JSON.
pub fn sums_json(sums: &UsageSums) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("requests".to_owned(), sums.requests.into());
    value.insert("failed".to_owned(), sums.failed.into());
    for (kind, sum) in KINDS.iter().zip(sums.usage) {
        value.insert(kind.name.to_owned(), sum.into());
    }
    value.insert("cost".to_owned(), money(sums.cost).into());
    value.insert("cache_saved".to_owned(), money(sums.cache_saved).into());
    value.insert("cache_surcharge".to_owned(), money(sums.cache_surcharge).into());
    value
}

/// Returns a line of a report as JSON.
pub fn row_json(by: UsageGrouping, row: &UsageRow) -> Value {
    let mut value = Map::new();
    value.insert(by.name().to_owned(), row.name.clone().into());
    value.extend(sums_json(&row.sums));
    Value::Object(value)
}

/// Writes lines of a report as CSV, with a line of names.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_rows_csv(out: &mut dyn Write, by: UsageGrouping, rows: &[UsageRow]) -> io::Result<()> {
    write_sum_names(out, by.name())?;
    rows.iter().try_for_each(|row| write_sums(out, &csv_field(&row.name), &row.sums))
}

/// Formats a value of a dimension. `None` for all names that have no row of their own.
pub fn dimension_text(dimension: UsageDimension, value: &DimensionValue) -> Option<String> {
    match (dimension, value) {
        (_, DimensionValue::Others) => None,
        (_, DimensionValue::Name(name)) => Some(name.to_string()),
        (UsageDimension::Hour, DimensionValue::Time(hour)) => Some(rfc3339(hour.saturating_mul(3_600))),
        (UsageDimension::Month, DimensionValue::Time(month)) => {
            Some(format!("{:04}-{:02}", month.div_euclid(12), month.rem_euclid(12).saturating_add(1)))
        }
        (_, DimensionValue::Time(day)) => Some(date(*day)),
    }
}

/// Returns a row of a breakdown as JSON.
pub fn breakdown_json(dimensions: &[UsageDimension], row: &BreakdownRow) -> Value {
    let mut value = Map::new();
    for (dimension, of) in dimensions.iter().zip(&row.values) {
        value.insert(dimension.name().to_owned(), json!(dimension_text(*dimension, of)));
    }
    if row.values.contains(&DimensionValue::Others) {
        value.insert("is_others".to_owned(), true.into());
    }
    value.extend(sums_json(&row.sums));
    Value::Object(value)
}

/// Writes rows of a breakdown as CSV, with a line of names. The names of the rest are empty.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_breakdown_csv(
    out: &mut dyn Write,
    dimensions: &[UsageDimension],
    rows: &[BreakdownRow],
) -> io::Result<()> {
    let names: Vec<&str> = dimensions.iter().map(|dimension| dimension.name()).collect();
    write_sum_names(out, &names.join(","))?;
    rows.iter().try_for_each(|row| {
        let text = |(dimension, value): (&UsageDimension, &DimensionValue)| {
            csv_field(&dimension_text(*dimension, value).unwrap_or_default())
        };
        let values: Vec<String> = dimensions.iter().zip(&row.values).map(text).collect();
        write_sums(out, &values.join(","), &row.sums)
    })
}

fn write_sum_names(out: &mut dyn Write, first: &str) -> io::Result<()> {
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    writeln!(out, "{first},requests,failed,{},cost,cache_saved,cache_surcharge", kinds.join(","))
}

fn write_sums(out: &mut dyn Write, first: &str, sums: &UsageSums) -> io::Result<()> {
    let UsageSums { requests, failed, cost, usage, cache_saved, cache_surcharge } = *sums;
    let usage = usage.map(|sum| sum.to_string()).join(",");
    let money = [cost, cache_saved, cache_surcharge].map(money).join(",");
    writeln!(out, "{first},{requests},{failed},{usage},{money}")
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

/// Returns a record as JSON.
pub fn record_json(record: &UsageRecord<'_>) -> Value {
    let usage = KINDS.iter().map(|kind| (kind.name, (kind.get)(&record.usage)));
    let mut value = Map::new();
    value.insert("time".to_owned(), began(record).into());
    value.extend(texts(record).map(|(name, text)| (name.to_owned(), text.into())));
    value.extend(numbers(record).map(|(name, number)| (name.to_owned(), json!(number))));
    value.insert("stream".to_owned(), record.stream.into());
    value.insert("counted".to_owned(), record.counted.into());
    value.insert("tier".to_owned(), record.tier.name().into());
    value.extend(usage.map(|(name, sum)| (name.to_owned(), json!(sum))));
    value.insert("cost".to_owned(), money(record.cost).into());
    value.extend(effects(record).map(|(name, nanos)| (name.to_owned(), money(nanos).into())));
    Value::Object(value)
}

fn effects(record: &UsageRecord<'_>) -> [(&'static str, i64); 2] {
    let nanos = |effect: u64| i64::try_from(effect).unwrap_or(i64::MAX);
    [("cache_saved", nanos(record.cache_saved)), ("cache_surcharge", nanos(record.cache_surcharge))]
}

/// Writes the line of names of records as CSV.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_record_names(out: &mut dyn Write) -> io::Result<()> {
    let record = UsageRecord::default();
    let names =
        texts(&record).map(|(name, _)| name).into_iter().chain(numbers(&record).map(|(name, _)| name));
    let names = names.chain(["stream", "counted", "tier"]).chain(KINDS.iter().map(|kind| kind.name));
    writeln!(out, "time,{},cost,cache_saved,cache_surcharge", names.collect::<Vec<_>>().join(","))
}

/// Writes a record as CSV.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_record_csv(out: &mut dyn Write, record: &UsageRecord<'_>) -> io::Result<()> {
    let usage = KINDS.iter().map(|kind| (kind.get)(&record.usage));
    let known = |number: Option<String>| number.unwrap_or_default();
    let fields = [csv_field(&began(record))].into_iter();
    let fields = fields.chain(texts(record).map(|(_, text)| csv_field(text)));
    let fields =
        fields.chain(numbers(record).map(|(_, number)| known(number.map(|number| number.to_string()))));
    let fields =
        fields.chain([record.stream.to_string(), record.counted.to_string(), record.tier.name().to_owned()]);
    let fields =
        fields.chain(usage.map(|sum| known(sum.map(|sum| sum.to_string())))).chain([money(record.cost)]);
    let fields = fields.chain(effects(record).map(|(_, nanos)| money(nanos)));
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
            let period = UsagePeriod::parse(text).unwrap();
            assert_eq!((date(period.from), date(period.to - 1)), (from.to_owned(), to.to_owned()), "{text}");
        }
        let wrong = ["", "2024", "2024-13", "2024-00-01", "2023-02-29", "2024-1-1-1", "2024-+1-01", "x-1-1"];
        assert!(wrong.iter().all(|text| UsagePeriod::parse(text).is_err()));
    }

    #[test]
    fn csv_fields_are_quoted_and_formulas_are_escaped() {
        assert_eq!(csv_field("acme"), "acme");
        assert_eq!(csv_field("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(csv_field("=1+1"), "'=1+1");
        assert_eq!(csv_field("-1.5"), "-1.5");
    }
}
