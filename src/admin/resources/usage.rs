//! Usage: sums by day, account, key or model, and single records, as pages or as files.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::admin::api::AdminApi;
use crate::admin::error::AdminApiError;
use crate::admin::request::ApiRequest;
use crate::admin::response::{AnswerContent, ApiResponse, ApiResult};
use crate::admin::schema::{MemberType, Record, member, optional};
use crate::ledger::export::{self, UsagePeriod, date};
use crate::ledger::report::{UsageFilter, UsageGrouping, UsageRow, UsageSums};

/// Rows of a report.
const ROWS: usize = 100;
/// Largest number of rows.
const MOST_ROWS: usize = 10_000;
/// Page of records.
const PAGE: usize = 100;
/// Largest page of records.
const LARGEST_PAGE: usize = 1_000;
/// Forms of an answer.
pub(in crate::admin) const FORMATS: [&str; 3] = ["json", "csv", "ndjson"];
/// Groupings of a report.
pub(in crate::admin) const GROUPS: [&str; 4] = ["day", "account", "key", "model"];

/// Report.
pub(in crate::admin) const USAGE: Record = Record {
    name: "Usage",
    text: "Sums of usage. The rows and `others` add up to `total`.",
    members: &[
        member("from", MemberType::Text, "First day, UTC."),
        member("to", MemberType::Text, "Last day, UTC."),
        member("group", MemberType::OneOf(&GROUPS), "What the rows are."),
        member(
            "rows",
            MemberType::List(&MemberType::Open),
            "Sums by the group: its name, `requests`, `failed`, tokens by kind, and amounts in strings.",
        ),
        optional("others", MemberType::Open, "Sums of the rows beyond the limit; null if there are none."),
        member("total", MemberType::Open, "Sums of all rows."),
        member("saturated", MemberType::Flag, "True if a sum is beyond the largest number."),
    ],
};

/// Page of records.
pub(in crate::admin) const RECORDS: Record = Record {
    name: "UsageRecordPage",
    text: "Page of usage records, in the order in which requests ended.",
    members: &[
        member(
            "items",
            MemberType::List(&MemberType::Open),
            "Records, as `model-gateway usage --records --json`.",
        ),
        optional(
            "next_cursor",
            MemberType::Text,
            "Cursor of the next page; null at the end. A page may be empty.",
        ),
    ],
};

fn filter(request: &ApiRequest) -> Result<UsageFilter, AdminApiError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let month = UsagePeriod::this_month(i64::try_from(now).unwrap_or(0));
    let period = |name: &str| {
        let text = request.parameter(name);
        text.map(|text| UsagePeriod::parse(&text).map_err(|hint| AdminApiError::field(name, hint)))
            .transpose()
    };
    let (from, to) = (period("from")?, period("to")?);
    let (from, to) = (from.map_or(month.from, |period| period.from), to.map_or(month.to, |period| period.to));
    if from >= to {
        return Err(AdminApiError::field("to", "the last day is before the first"));
    }
    // An empty account selects keys without one.
    let account = crate::wire::path::query_value(request.query.as_deref(), "account");
    let account = account.map(|account| account.into_owned());
    Ok(UsageFilter { account, key: request.parameter("key"), model: request.parameter("model"), from, to })
}

fn format(request: &ApiRequest) -> Result<&'static str, AdminApiError> {
    let Some(name) = request.parameter("format") else { return Ok("json") };
    let known = FORMATS.into_iter().find(|known| *known == name);
    known.ok_or_else(|| AdminApiError::field("format", format!("write one of {}", FORMATS.join(", "))))
}

/// Returns the media type of a form, and its name for a file.
fn media(format: &str) -> (&'static str, &'static str) {
    if format == "csv" {
        ("text/csv; charset=utf-8; header=present", "csv")
    } else {
        ("application/x-ndjson", "ndjson")
    }
}

/// Answers `GET /usage`.
pub(in crate::admin) fn sums(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (filter, format) = (filter(request)?, format(request)?);
    let group = request.parameter("group").unwrap_or_else(|| "day".to_owned());
    let by = UsageGrouping::ALL.into_iter().find(|by| by.name() == group);
    let by =
        by.ok_or_else(|| AdminApiError::field("group", format!("write one of {}", GROUPS.join(", "))))?;
    let limit = request.limit(ROWS, MOST_ROWS)?;
    let mut rows = api.ledger().with(|ledger| ledger.usage(&filter, by))?;
    if by == UsageGrouping::Day {
        for row in &mut rows {
            row.name = row.name.parse().map_or_else(|_| row.name.clone(), date);
        }
    }
    if format != "json" {
        let (media, end) = media(format);
        let name = format!("usage-{}.{end}", date(filter.from));
        let write = move |out: &mut dyn std::io::Write| {
            if end == "csv" {
                return export::write_rows_csv(out, by, &rows);
            }
            rows.iter().try_for_each(|row| writeln!(out, "{}", export::row_json(by, row)))
        };
        return Ok(ApiResponse { content: AnswerContent::Pieces(media, name, Box::new(write)), etag: None });
    }
    let add = |rows: &[UsageRow]| {
        rows.iter().fold(UsageSums::default(), |mut sum, row| {
            sum.add(&row.sums);
            sum
        })
    };
    let total = add(&rows);
    let (shown, others) = rows.split_at(limit.min(rows.len()));
    let others = if others.is_empty() { Value::Null } else { Value::Object(export::sums_json(&add(others))) };
    Ok(ApiResponse::json(json!({
        "from": date(filter.from),
        "to": date(filter.to.saturating_sub(1)),
        "group": by.name(),
        "rows": shown.iter().map(|row| export::row_json(by, row)).collect::<Value>(),
        "others": others,
        "total": export::sums_json(&total),
        "saturated": total.is_beyond(),
    })))
}

/// Answers `GET /usage/records`.
pub(in crate::admin) fn records(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (filter, format) = (filter(request)?, format(request)?);
    if format != "json" {
        let (media, end) = media(format);
        let name = format!("usage-records-{}.{end}", date(filter.from));
        let ledger = Arc::clone(api.ledger());
        let write = move |out: &mut dyn std::io::Write| {
            if end == "csv" {
                export::write_record_names(out)?;
            }
            let written = ledger.with(|ledger| {
                ledger.records(&filter, &mut |record| {
                    if end == "csv" {
                        return export::write_record_csv(out, record);
                    }
                    writeln!(out, "{}", export::record_json(record))
                })
            });
            written.map_err(|error| std::io::Error::other(error.to_string()))
        };
        return Ok(ApiResponse { content: AnswerContent::Pieces(media, name, Box::new(write)), etag: None });
    }
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let cursor = request.parameter("cursor");
    let mut items = Vec::new();
    let next = api.ledger().with(|ledger| {
        ledger.records_page(&filter, cursor.as_deref(), limit, &mut |record| {
            items.push(export::record_json(record));
            Ok(())
        })
    })?;
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next })))
}
