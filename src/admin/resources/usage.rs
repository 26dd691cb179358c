//! Usage: sums by several dimensions, and single records, as pages or as files.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::api::AdminApi;
use crate::error::AdminApiError;
use crate::ledger_pool::LedgerPool;
use crate::request::ApiRequest;
use crate::response::{AnswerContent, ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use codec::wire::path::{query_value, query_values};
use storage::ledger::breakdown::{self, UsageDimension, UsageOrder, UsageQuery};
use storage::ledger::export::{self, UsagePeriod, date};
use storage::ledger::report::{LONGEST_SEARCH, RecordQuery, StatusFilter, UsageFilter};

/// Rows of a report.
const ROWS: usize = 100;
/// Largest number of rows.
const MOST_ROWS: usize = 10_000;
/// Page of records.
const PAGE: usize = 100;
/// Largest page of records.
const LARGEST_PAGE: usize = 1_000;
/// Forms of an answer.
pub(crate) const FORMATS: [&str; 3] = ["json", "csv", "ndjson"];
/// Groupings of a report.
pub(crate) const GROUPS: [&str; 8] = ["hour", "day", "month", "account", "key", "model", "provider", "error"];
/// Orders of a report.
pub(crate) const ORDERS: [&str; 5] = ["-cost", "-requests", "-failed", "-input", "-output"];
/// Orders of records.
pub(crate) const RECORD_ORDERS: [&str; 2] = ["time", "-time"];
/// Statuses of records.
pub(crate) const RECORD_STATUSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "error"];
/// Largest number of combinations of names with rows of their own.
const MOST_TOP: usize = 1_000;

/// Report.
pub(crate) const USAGE: Record = Record {
    name: "Usage",
    text: "Sums of usage. The rows and `others` add up to `total`.",
    members: &[
        member("from", MemberType::Text, "First day, UTC."),
        member("to", MemberType::Text, "Last day, UTC."),
        member("group", MemberType::Text, "What the rows are: names of `groups` with commas in between."),
        member("groups", MemberType::List(&MemberType::OneOf(&GROUPS)), "What the rows are."),
        member(
            "rows",
            MemberType::List(&MemberType::Open),
            "Sums by the groups: their values, `requests`, `failed`, tokens by kind, and amounts in strings. With `top`, \
             rows with `is_others` have the rest of their time.",
        ),
        optional("others", MemberType::Open, "Sums of the rows beyond the limit; null if there are none."),
        member("total", MemberType::Open, "Sums of all rows."),
        member("saturated", MemberType::Flag, "True if a sum is beyond the largest number."),
    ],
};

/// Page of records.
pub(crate) const RECORDS: Record = Record {
    name: "UsageRecordPage",
    text: "Page of usage records, in the order in which requests ended, or the latest first. In a fleet, those of a day come \
           account by account.",
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
    let account = query_value(request.query.as_deref(), "account");
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

/// Returns the query of a report: its groups may be separated by commas, or given several times.
fn query(request: &ApiRequest) -> Result<UsageQuery, AdminApiError> {
    let given: Vec<String> =
        query_values(request.query.as_deref(), "group").map(|group| group.into_owned()).collect();
    let given = if given.is_empty() { "day".to_owned() } else { given.join(",") };
    let mut dimensions = Vec::new();
    for name in given.split(',').filter(|name| !name.is_empty()) {
        let unknown = || AdminApiError::field("group", format!("write some of {}", GROUPS.join(", ")));
        dimensions.push(UsageDimension::from_name(name).ok_or_else(unknown)?);
    }
    // An empty provider or error is a value: none has answered, or the request has succeeded.
    let name = |name: &str| query_value(request.query.as_deref(), name).map(|value| value.into_owned());
    let query = UsageQuery {
        filter: filter(request)?,
        provider: name("provider"),
        error: name("error"),
        dimensions,
        ..UsageQuery::default()
    };
    query.check().map_err(|(field, hint)| AdminApiError::field(field, hint))?;
    Ok(query)
}

/// Answers `GET /usage`.
pub(crate) fn sums(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (mut query, format) = (query(request)?, format(request)?);
    let limit = request.limit(ROWS, MOST_ROWS)?;
    let hint = format!("write a number from 1 to {MOST_TOP}");
    let top = request.parsed::<usize>("top", &hint)?;
    if top.is_some_and(|top| !(1..=MOST_TOP).contains(&top)) {
        return Err(AdminApiError::field("top", hint));
    }
    let order = request.parameter("order");
    let order = match order.as_deref() {
        None => UsageOrder::default(),
        Some(given) => {
            let known = UsageOrder::NAMES.into_iter().find(|(name, _)| *name == given);
            let unknown = || AdminApiError::field("order", format!("write one of {}", ORDERS.join(", ")));
            known.ok_or_else(unknown)?.1
        }
    };
    (query.top, query.order) = (top, order);
    let rows = api.ledger().with(|ledger| ledger.breakdown(&query))?;
    let rows = breakdown::arrange(rows, order);
    let (from, to) = (date(query.filter.from), date(query.filter.to.saturating_sub(1)));
    let dimensions = query.dimensions;
    if format != "json" {
        let (media, end) = media(format);
        let name = format!("usage-{from}.{end}");
        let write = move |out: &mut dyn std::io::Write| {
            if end == "csv" {
                return export::write_breakdown_csv(out, &dimensions, &rows);
            }
            rows.iter().try_for_each(|row| writeln!(out, "{}", export::breakdown_json(&dimensions, row)))
        };
        return Ok(ApiResponse::of(AnswerContent::Pieces(media, name, Box::new(write))));
    }
    let total = breakdown::total(&rows);
    let (shown, others) = rows.split_at(limit.min(rows.len()));
    let others = if others.is_empty() {
        Value::Null
    } else {
        Value::Object(export::sums_json(&breakdown::total(others)))
    };
    let groups: Vec<&str> = dimensions.iter().map(|dimension| dimension.name()).collect();
    Ok(ApiResponse::json(json!({
        "from": from,
        "to": to,
        "group": groups.join(","),
        "groups": groups,
        "rows": shown.iter().map(|row| export::breakdown_json(&dimensions, row)).collect::<Value>(),
        "others": others,
        "total": export::sums_json(&total),
        "saturated": total.is_beyond(),
    })))
}

/// Returns the query of single records.
fn record_query(request: &ApiRequest) -> Result<RecordQuery, AdminApiError> {
    let one_of = |names: &[&str]| format!("write one of {}", names.join(", "));
    let newest_first = match request.parameter("order").as_deref() {
        None | Some("time") => false,
        Some("-time") => true,
        Some(_) => return Err(AdminApiError::field("order", one_of(&RECORD_ORDERS))),
    };
    let status = request.parameter("status").map(|status| {
        StatusFilter::parse(&status).ok_or_else(|| AdminApiError::field("status", one_of(&RECORD_STATUSES)))
    });
    let text = request.parameter("text");
    if text.as_ref().is_some_and(|text| text.len() > LONGEST_SEARCH) {
        return Err(AdminApiError::field("text", format!("the maximum is {LONGEST_SEARCH} bytes")));
    }
    // An empty provider or error is a value, as for sums.
    let name = |name: &str| query_value(request.query.as_deref(), name).map(|value| value.into_owned());
    Ok(RecordQuery {
        filter: filter(request)?,
        request: request.parameter("request"),
        text,
        provider: name("provider"),
        error: name("error"),
        status: status.transpose()?,
        newest_first,
    })
}

/// Writes all records that a query chooses. Other operations take turns between the pages.
fn write_records(
    ledger: &LedgerPool,
    query: &RecordQuery,
    is_csv: bool,
    out: &mut dyn std::io::Write,
) -> std::io::Result<()> {
    if is_csv {
        export::write_record_names(out)?;
    }
    let mut cursor: Option<String> = None;
    loop {
        let next = ledger.with(|ledger| {
            ledger.records_page(query, cursor.as_deref(), usize::MAX, &mut |record| {
                if is_csv {
                    return export::write_record_csv(out, record);
                }
                writeln!(out, "{}", export::record_json(record))
            })
        });
        cursor = next.map_err(|error| std::io::Error::other(error.to_string()))?;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Answers `GET /usage/records`.
pub(crate) fn records(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (query, format) = (record_query(request)?, format(request)?);
    if format != "json" {
        let (media, end) = media(format);
        let name = format!("usage-records-{}.{end}", date(query.filter.from));
        let ledger = Arc::clone(api.ledger());
        let write = move |out: &mut dyn std::io::Write| write_records(&ledger, &query, end == "csv", out);
        return Ok(ApiResponse::of(AnswerContent::Pieces(media, name, Box::new(write))));
    }
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let cursor = request.parameter("cursor");
    let mut items = Vec::new();
    let next = api.ledger().with(|ledger| {
        ledger.records_page(&query, cursor.as_deref(), limit, &mut |record| {
            items.push(export::record_json(record));
            Ok(())
        })
    })?;
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next })))
}
