//! Totals since the start of the process, from which clients compute rates.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::time;
use crate::api::AdminApi;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member};
use observe::metrics::Metrics;
use observe::metrics::totals::{Distribution, GroupedTotals};
use routing::account::Amount;

/// Distribution of durations.
const DISTRIBUTION: Record = Record {
    name: "Distribution",
    text: "Distribution of durations in seconds.",
    members: &[
        member("count", MemberType::Count, "Number of observations."),
        member("sum", MemberType::Number, "Sum of all observations."),
        member("le", MemberType::List(&MemberType::Number), "Upper bounds, ascending."),
        member(
            "counts",
            MemberType::List(&MemberType::Count),
            "Observations up to each bound; those beyond the last are only in `count`.",
        ),
    ],
};

const COUNTS: MemberType = MemberType::List(&MemberType::Open);

/// Totals.
pub(crate) const TOTALS: Record = Record {
    name: "Totals",
    text: "Totals since the start of the process; the difference of two answers is what happened in between.",
    members: &[
        member("time_ms", MemberType::Count, "Time of the reading, in Unix milliseconds."),
        member("started", MemberType::Time, "Start of the process."),
        member("in_flight", MemberType::Count, "Requests in flight."),
        member("connections", MemberType::Count, "Open client connections."),
        member("requests", MemberType::Count, "Finished requests."),
        member("statuses", MemberType::Open, "Finished requests by HTTP status."),
        member("errors", COUNTS, "Errors: `kind`, `source` (side at fault), `count`."),
        member("tokens", MemberType::Open, "Tokens by kind; input and output include their parts."),
        member("cost", MemberType::Amount, "Charges."),
        member("cache_saved", MemberType::Amount, "Savings of reads from prompt caches."),
        member("cache_surcharge", MemberType::Amount, "Surcharges of writes to prompt caches."),
        member("limit_refusals", COUNTS, "Rejections by a limit: `scope`, `limit`, `count`."),
        member("upstream_errors", COUNTS, "Failed exchanges: `provider`, `kind`, `count`."),
        member("retries", COUNTS, "Retried exchanges: `provider`, `reason`, `count`."),
        member("continued", COUNTS, "Streams that broke off: `outcome`, `count`."),
        member("losses", COUNTS, "Losses in translation: `from`, `to`, `element`, `policy`, `count`."),
        member("duration", MemberType::Object(&DISTRIBUTION), "From the head to the end of a response."),
        member("first_token", MemberType::Object(&DISTRIBUTION), "From the head to the first content."),
        member("overhead", MemberType::Object(&DISTRIBUTION), "Time that the gateway adds to a request."),
        member("log_dropped", MemberType::Count, "Lost lines of the access log."),
        member("ledger_failures", MemberType::Count, "Failed ledger operations."),
    ],
};

fn amount(nanos: u64) -> String {
    Amount(i64::try_from(nanos).unwrap_or(i64::MAX)).to_string()
}

/// Returns sums by one label as an object.
fn by_name(totals: &GroupedTotals) -> Map<String, Value> {
    totals.iter().map(|(labels, count)| (labels.concat(), (*count).into())).collect()
}

/// Returns sums by several labels as a list.
fn rows(totals: &GroupedTotals, labels: &[&str]) -> Value {
    let row = |(values, count): &(Vec<String>, u64)| {
        let names = labels.iter().zip(values);
        let mut row: Map<String, Value> =
            names.map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        row.insert("count".to_owned(), (*count).into());
        Value::Object(row)
    };
    totals.iter().map(row).collect()
}

fn distribution(of: &Distribution) -> Value {
    json!({
        "count": of.count,
        "sum": of.sum,
        "le": of.buckets.iter().map(|(bound, _)| *bound).collect::<Vec<f64>>(),
        "counts": of.buckets.iter().map(|(_, count)| *count).collect::<Vec<u64>>(),
    })
}

/// Returns the totals as JSON. `started` is in Unix seconds.
pub(crate) fn totals_json(metrics: &Metrics, started: i64) -> Value {
    let totals = metrics.totals();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "started": time(started),
        "in_flight": totals.in_flight.max(0),
        "connections": totals.connections.max(0),
        "requests": totals.statuses.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count)),
        "statuses": by_name(&totals.statuses),
        "errors": rows(&totals.errors, &["kind", "source"]),
        "tokens": by_name(&totals.tokens),
        "cost": amount(totals.cost),
        "cache_saved": amount(totals.cache_saved),
        "cache_surcharge": amount(totals.cache_surcharge),
        "limit_refusals": rows(&totals.limit_refusals, &["scope", "limit"]),
        "upstream_errors": rows(&totals.upstream_errors, &["provider", "kind"]),
        "retries": rows(&totals.retries, &["provider", "reason"]),
        "continued": rows(&totals.continued, &["outcome"]),
        "losses": rows(&totals.losses, &["from", "to", "element", "policy"]),
        "duration": distribution(&totals.duration),
        "first_token": distribution(&totals.first_token),
        "overhead": distribution(&totals.overhead),
        "log_dropped": totals.log_dropped,
        "ledger_failures": totals.ledger_failures,
    })
}

/// Answers `GET /totals`.
pub(crate) fn read(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    Ok(ApiResponse::json(totals_json(api.metrics(), api.started())))
}
