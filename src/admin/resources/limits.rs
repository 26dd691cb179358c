//! Limits of keys and accounts, with what is used of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::time;
use crate::api::AdminApi;
use crate::control::LimitUse;
use crate::error::AdminApiError;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use routing::account::Amount;
use routing::limits::{Calendar, Scope};
use storage::ledger::breakdown::{self, DimensionValue, UsageDimension, UsageQuery};
use storage::ledger::report::UsageFilter;

/// Names of the limits.
const NAMES: [&str; 5] =
    ["requests_per_minute", "tokens_per_minute", "concurrent", "spend_per_day", "spend_per_month"];

/// Rows of all limits.
const ROWS: usize = 100;
/// Largest number of rows.
const MOST_ROWS: usize = 1_000;
/// Parts in which shares are compared.
const MILLIONTHS: u32 = 1_000_000;
/// Why a limit refuses requests although it is not used up.
const REASONS: [&str; 1] = ["request_exceeds_limit"];
/// Whose limits there are.
const SCOPES: [&str; 2] = ["key", "account"];

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
        optional(
            "reason",
            MemberType::OneOf(&REASONS),
            "Why requests are refused although the limit is not used up: the last one needs more than the whole limit, so that \
             no wait helps; a higher limit or a smaller request does. Null if there was none, or one was admitted since.",
        ),
        optional("needed", MemberType::Text, "What the request of `reason` needs."),
    ],
};

/// Limits of a key or an account.
pub(crate) const LIMITS_IN_USE: Record = Record {
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
pub(crate) fn of_key(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    show(api, request.name(0), Scope::Key, "key")
}

/// Answers `GET /accounts/{name}/limits`.
pub(crate) fn of_account(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    show(api, request.name(0), Scope::Account, "account")
}

/// Row of the limits of all keys and accounts.
const LIMIT_ROW: Record = Record {
    name: "LimitRow",
    text: "Limit of a key or an account, with what is used of it.",
    members: &[
        member("scope", MemberType::OneOf(&SCOPES), "Whose limit it is."),
        member("name", MemberType::Text, "Name of the key or the account."),
        optional("account", MemberType::Text, "Account of a key; null if there is none."),
        member("use", MemberType::Object(&LIMIT), "Limit."),
    ],
};

/// Limits of all keys and accounts.
pub(crate) const LIMIT_ROWS: Record = Record {
    name: "LimitRows",
    text: "Limits of all keys and accounts, those of which most is used first.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&LIMIT_ROW)), "Limits."),
        member("total", MemberType::Count, "Number of all limits of which so much is used."),
    ],
};

/// Limit, with what is used of it.
struct InUse {
    name: &'static str,
    most: u64,
    /// `None` if it is not known.
    used: Option<u64>,
    /// Whether the numbers are nano-units of money.
    is_money: bool,
    /// Time in Unix seconds at which all of it is there again. `None` if that is not known.
    resets: Option<i64>,
    /// What the last request needs that exceeds the whole limit. `None` if there is none.
    needed: Option<u64>,
}

impl InUse {
    /// Returns the used part in units of 1 / `parts`; may be above `parts`. `None` if it is not known.
    fn share(&self, parts: u32) -> Option<u64> {
        let share = u128::from(self.used?).saturating_mul(parts.into()).checked_div(self.most.into());
        Some(u64::try_from(share.unwrap_or_else(|| parts.into())).unwrap_or(u64::MAX))
    }

    fn json(&self) -> Value {
        let text = |number: u64| match self.is_money {
            true => Amount(i64::try_from(number).unwrap_or(i64::MAX)).to_string(),
            false => number.to_string(),
        };
        json!({
            "limit": self.name,
            "most": text(self.most),
            "used": self.used.map(text),
            "remaining": self.used.map(|used| text(self.most.saturating_sub(used))),
            "share_percent": self.share(100),
            "resets": self.resets.map(time),
            "reason": self.needed.map(|_| REASONS[0]),
            "needed": self.needed.map(text),
        })
    }
}

fn now() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(unix).unwrap_or(i64::MAX)
}

/// Returns the limits that are set, with what is used of them at `now`, in Unix seconds. `spent` returns the spend of this day
/// and this month, if the limits do not know it.
///
/// # Errors
/// Returns the error of `spent`.
fn in_use(
    found: &LimitUse,
    now: i64,
    spent: impl FnOnce() -> Result<(i64, i64), AdminApiError>,
) -> Result<Vec<InUse>, AdminApiError> {
    let (limits, calendar) = (&found.limits, Calendar::at(now));
    let later = |seconds: u64| Some(now.saturating_add(i64::try_from(seconds).unwrap_or(0)));
    let mut all = Vec::new();
    let (oversized, oversized_cost) = found.oversized;
    for (name, most, rate, asked) in [
        ("requests_per_minute", limits.requests_per_minute, found.requests, 0),
        ("tokens_per_minute", limits.tokens_per_minute, found.tokens, oversized),
    ] {
        let Some(most) = most else { continue };
        let used = rate.map(|rate| most.saturating_sub(rate.remaining));
        let resets = rate.and_then(|rate| later(rate.reset.as_secs()));
        let needed = Some(asked).filter(|asked| *asked > most);
        all.push(InUse { name, most, used, is_money: false, resets, needed });
    }
    if let Some(most) = limits.concurrent {
        let used = found.in_flight.map(u64::from);
        let (name, most) = ("concurrent", most.into());
        all.push(InUse { name, most, used, is_money: false, resets: None, needed: None });
    }
    if limits.spend_per_day.is_some() || limits.spend_per_month.is_some() {
        let (day, month) = match found.spent {
            Some(spent) => spent,
            None => spent()?,
        };
        let of = |nanos: i64| u64::try_from(nanos).unwrap_or(0);
        for (name, most, used, left) in [
            ("spend_per_day", limits.spend_per_day, day, calendar.day_ends_in),
            ("spend_per_month", limits.spend_per_month, month, calendar.month_ends_in),
        ] {
            let Some(most) = most else { continue };
            let (most, used) = (of(most), Some(of(used)));
            let needed = Some(of(oversized_cost)).filter(|needed| *needed > most);
            all.push(InUse { name, most, used, is_money: true, resets: later(left), needed });
        }
    }
    Ok(all)
}

fn show(api: &AdminApi, name: &str, scope: Scope, what: &str) -> ApiResult {
    let Some(found) = api.control().limits_in_use(scope, name) else {
        // An account may be in the ledger only: then it has no limits.
        if matches!(scope, Scope::Account) && api.ledger().with(|ledger| ledger.account(name)).is_ok() {
            return Ok(ApiResponse::json(json!({ "name": name, "account": null, "items": [] })));
        }
        return Err(AdminApiError::unknown(what, name));
    };
    let now = now();
    let all = in_use(&found, now, || spent(api, (scope, name, &found), &Calendar::at(now)))?;
    let items: Vec<Value> = all.iter().map(InUse::json).collect();
    Ok(ApiResponse::json(json!({ "name": name, "account": found.account, "items": items })))
}

/// Place of a row: its share, scope, name and limit.
type RowPlace = (Reverse<Option<u64>>, &'static str, String, &'static str);

/// Answers `GET /limits`.
pub(crate) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let hint = "write a share of the limit, such as 0.8";
    let over = request.parsed::<f64>("over", hint)?.unwrap_or(0.0);
    if !(0.0..=1_000.0).contains(&over) {
        return Err(AdminApiError::field("over", hint));
    }
    let least = (over * f64::from(MILLIONTHS)).round() as u64;
    let limit = request.limit(ROWS, MOST_ROWS)?;
    let now = now();
    let mut charges = Charges::default();
    // Of a million keys, only the rows that are shown are held.
    let mut rows: BTreeMap<RowPlace, Value> = BTreeMap::new();
    let (mut total, mut fault) = (0u64, None);
    api.control().each_limit_in_use(&mut |scope, name, found| {
        let spent = || charges.of(api, &Calendar::at(now), (scope, name, &found));
        let all = match in_use(&found, now, spent) {
            Ok(all) => all,
            Err(error) => {
                fault.get_or_insert(error);
                return;
            }
        };
        for one in all {
            let share = one.share(MILLIONTHS);
            if least > 0 && share.is_none_or(|share| share < least) {
                continue;
            }
            total = total.saturating_add(1);
            let scope = scope_name(scope);
            let place = (Reverse(share), scope, name.to_owned(), one.name);
            if rows.len() >= limit && rows.last_key_value().is_some_and(|(last, _)| place >= *last) {
                continue;
            }
            let row = json!({ "scope": scope, "name": name, "account": found.account, "use": one.json() });
            rows.insert(place, row);
            if rows.len() > limit {
                rows.pop_last();
            }
        }
    });
    match fault {
        Some(error) => Err(error),
        None => {
            let items: Vec<Value> = rows.into_values().collect();
            Ok(ApiResponse::json(json!({ "items": items, "total": total })))
        }
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Key => "key",
        Scope::Account => "account",
    }
}

/// Charges of this day and this month by account and key, in nano-units.
type ChargesByName = HashMap<(String, String), (i64, i64)>;

/// Charges that the ledger has, for limits that no request has used since the start. They are read when the first one is
/// needed.
#[derive(Default)]
struct Charges(Option<ChargesByName>);

impl Charges {
    /// Returns the charges of this day and this month of a key or an account, in nano-units.
    fn of(
        &mut self,
        api: &AdminApi,
        calendar: &Calendar,
        (scope, name, found): (Scope, &str, &LimitUse),
    ) -> Result<(i64, i64), AdminApiError> {
        let all = match &mut self.0 {
            Some(all) => all,
            empty => empty.insert(Charges::read(api, calendar)?),
        };
        let (account, key) = match scope {
            Scope::Key => (found.account.as_deref().unwrap_or_default(), name),
            Scope::Account => (name, ""),
        };
        Ok(all.get(&(account.to_owned(), key.to_owned())).copied().unwrap_or_default())
    }

    /// Reads the charges of each key, and of each account with an empty key.
    fn read(api: &AdminApi, calendar: &Calendar) -> Result<ChargesByName, AdminApiError> {
        let mut all = ChargesByName::new();
        for (from, is_day) in [(calendar.day, true), (calendar.month_begins(), false)] {
            let filter = UsageFilter { from, to: calendar.day.saturating_add(1), ..UsageFilter::default() };
            let dimensions = vec![UsageDimension::Account, UsageDimension::Key];
            let query = UsageQuery { filter, dimensions, ..UsageQuery::default() };
            for row in api.ledger().with(|ledger| ledger.breakdown(&query))? {
                let [DimensionValue::Name(account), DimensionValue::Name(key)] = row.values.as_slice() else {
                    continue;
                };
                let of_account = Some(String::new()).filter(|_| !key.is_empty());
                for key in [Some(key.to_string()), of_account].into_iter().flatten() {
                    let (day, month) = all.entry((account.to_string(), key)).or_default();
                    let sum = if is_day { day } else { month };
                    *sum = sum.saturating_add(row.sums.cost);
                }
            }
        }
        Ok(all)
    }
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
