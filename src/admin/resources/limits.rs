//! Limits of keys and accounts, with what is used of them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::time;
use crate::account::Amount;
use crate::admin::api::AdminApi;
use crate::admin::control::LimitUse;
use crate::admin::error::AdminApiError;
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiResponse, ApiResult};
use crate::admin::schema::{MemberType, Record, member, optional};
use crate::ledger::breakdown::{self, UsageDimension, UsageQuery};
use crate::ledger::report::UsageFilter;
use crate::limits::{Calendar, Scope};

/// Names of the limits.
const NAMES: [&str; 5] =
    ["requests_per_minute", "tokens_per_minute", "concurrent", "spend_per_day", "spend_per_month"];

/// Limit with what is used of it.
const LIMIT: Record = Record {
    name: "LimitUse",
    text: "Limit with what is used of it: whole numbers or amounts of money, in strings.",
    members: &[
        member("limit", MemberType::OneOf(&NAMES), "Name of the limit, as in keys.toml."),
        member("most", MemberType::Text, "Limit."),
        optional(
            "used",
            MemberType::Text,
            "Used; null if that is not known, as for limits that a fleet shares.",
        ),
        optional("remaining", MemberType::Text, "What is left; null if it is not known."),
        optional("share_percent", MemberType::Count, "Used part of the limit in percent; may be above 100."),
        optional(
            "resets",
            MemberType::Time,
            "Time at which all of it is there again; null if that is not known.",
        ),
    ],
};

/// Limits of a key or an account.
pub(in crate::admin) const LIMITS_IN_USE: Record = Record {
    name: "LimitsInUse",
    text: "Limits of a key or an account that are set, with what is used of them.",
    members: &[
        member("name", MemberType::Text, "Name of the key or the account."),
        optional(
            "account",
            MemberType::Text,
            "Account of a key, whose limits apply too; null if there is none.",
        ),
        member("items", MemberType::List(&MemberType::Object(&LIMIT)), "Limits."),
    ],
};

/// Answers `GET /keys/{name}/limits`.
pub(in crate::admin) fn of_key(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    show(api, request.name(0), Scope::Key, "key")
}

/// Answers `GET /accounts/{name}/limits`.
pub(in crate::admin) fn of_account(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    show(api, request.name(0), Scope::Account, "account")
}

fn show(api: &AdminApi, name: &str, scope: Scope, what: &str) -> ApiResult {
    let Some(found) = api.control().limits_in_use(scope, name) else {
        // An account may be in the ledger only: then it has no limits.
        if matches!(scope, Scope::Account) && api.ledger().with(|ledger| ledger.account(name)).is_ok() {
            return Ok(ApiResponse::json(json!({ "name": name, "account": null, "items": [] })));
        }
        return Err(AdminApiError::unknown(what, name));
    };
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(unix).unwrap_or(i64::MAX);
    let calendar = Calendar::at(now);
    let limits = &found.limits;
    let mut items = Vec::new();
    for (name, most, rate) in [
        ("requests_per_minute", limits.requests_per_minute, found.requests),
        ("tokens_per_minute", limits.tokens_per_minute, found.tokens),
    ] {
        let Some(most) = most else { continue };
        let used = rate.map(|rate| most.saturating_sub(rate.remaining));
        let resets = rate.map(|rate| now.saturating_add(i64::try_from(rate.reset.as_secs()).unwrap_or(0)));
        items.push(item(name, (most, used), |number| number.to_string(), resets));
    }
    if let Some(most) = limits.concurrent {
        let used = found.in_flight.map(u64::from);
        items.push(item("concurrent", (u64::from(most), used), |number| number.to_string(), None));
    }
    if limits.spend_per_day.is_some() || limits.spend_per_month.is_some() {
        let (day, month) = match found.spent {
            Some(spent) => spent,
            None => spent(api, (scope, name, &found), &calendar)?,
        };
        let amount = |nanos: u64| Amount(i64::try_from(nanos).unwrap_or(i64::MAX)).to_string();
        let of = |nanos: i64| u64::try_from(nanos).unwrap_or(0);
        let ends = |left: u64| Some(now.saturating_add(i64::try_from(left).unwrap_or(0)));
        if let Some(most) = limits.spend_per_day {
            items.push(item("spend_per_day", (of(most), Some(of(day))), amount, ends(calendar.day_ends_in)));
        }
        if let Some(most) = limits.spend_per_month {
            items.push(item(
                "spend_per_month",
                (of(most), Some(of(month))),
                amount,
                ends(calendar.month_ends_in),
            ));
        }
    }
    Ok(ApiResponse::json(json!({ "name": name, "account": found.account, "items": items })))
}

/// Returns the spend of this day and this month that the ledger has, for limits that no request has used yet.
fn spent(
    api: &AdminApi,
    (scope, name, found): (Scope, &str, &LimitUse),
    calendar: &Calendar,
) -> Result<(i64, i64), AdminApiError> {
    let own = Some(name.to_owned());
    let (account, key) = match scope {
        Scope::Key => (Some(found.account.clone().unwrap_or_default()), own),
        Scope::Account => (own, None),
    };
    let sum = |from: i64| {
        let filter = UsageFilter {
            account: account.clone(),
            key: key.clone(),
            from,
            to: calendar.day.saturating_add(1),
            ..UsageFilter::default()
        };
        let query = UsageQuery { filter, dimensions: vec![UsageDimension::Month], ..UsageQuery::default() };
        api.ledger().with(|ledger| ledger.breakdown(&query)).map(|rows| breakdown::total(&rows).cost)
    };
    Ok((sum(calendar.day)?, sum(calendar.month_begins())?))
}

fn item(
    name: &str,
    (most, used): (u64, Option<u64>),
    text: impl Fn(u64) -> String,
    resets: Option<i64>,
) -> Value {
    let share = |used: u64| u128::from(used).saturating_mul(100).checked_div(u128::from(most)).unwrap_or(100);
    json!({
        "limit": name,
        "most": text(most),
        "used": used.map(&text),
        "remaining": used.map(|used| text(most.saturating_sub(used))),
        "share_percent": used.map(|used| u64::try_from(share(used)).unwrap_or(u64::MAX)),
        "resets": resets.map(time),
    })
}
