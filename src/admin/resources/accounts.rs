//! Accounts: balances and credits, which the ledger has, and limits, which files of keys have.

use serde_json::{Map, Value, json};

use super::change::{self, AuditAction};
use super::keys::{LIMITS, limits_json};
use super::search::ListSearch;
use super::time;
use crate::account::Amount;
use crate::admin::api::AdminApi;
use crate::admin::error::AdminApiError;
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiResponse, ApiResult};
use crate::admin::schema::{MemberType, Record, member, optional};
use crate::config::{ConfigChange, EntryKind};
use crate::ledger::AccountId;
use crate::ledger::admin::{AccountState, Credit};

/// Page of accounts or credits.
const PAGE: usize = 100;
/// Largest page.
const LARGEST_PAGE: usize = 1_000;
/// Longest note or reference of a credit, in bytes.
const LONGEST_TEXT: usize = 1_024;

/// Account as it is shown.
pub(in crate::admin) const ACCOUNT: Record = Record {
    name: "Account",
    text: "Account that pays for its keys.",
    members: &[
        member("name", MemberType::Text, "Name."),
        member("enabled", MemberType::Flag, "Whether it may spend."),
        member("created", MemberType::Time, "Time of its creation."),
        member("balance", MemberType::Amount, "Credits less charges."),
        member("credited", MemberType::Amount, "Sum of all credits."),
        member("charged", MemberType::Amount, "Sum of all charges."),
        optional(
            "limits",
            MemberType::Object(&LIMITS),
            "Limits of all its keys together; null if no file of keys names it.",
        ),
    ],
};

/// Page of accounts.
pub(in crate::admin) const ACCOUNTS: Record = Record {
    name: "AccountPage",
    text: "Page of accounts, ordered by name.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&ACCOUNT)), "Accounts."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
        member("total", MemberType::Count, "Number of the accounts that `q` chooses."),
    ],
};

/// Credit as it is shown.
pub(in crate::admin) const CREDIT: Record = Record {
    name: "Credit",
    text: "Credit of an account.",
    members: &[
        member("time", MemberType::Time, "Time."),
        member("amount", MemberType::Amount, "Amount; a negative one is a deduction."),
        member("note", MemberType::Text, "Purpose."),
        optional("reference", MemberType::Text, "Idempotency reference."),
    ],
};

/// Latest credits.
pub(in crate::admin) const CREDITS: Record = Record {
    name: "CreditList",
    text: "Latest credits of an account, the latest first.",
    members: &[member("items", MemberType::List(&MemberType::Object(&CREDIT)), "Credits.")],
};

/// New account.
pub(in crate::admin) const NEW_ACCOUNT: Record = Record {
    name: "NewAccount",
    text: "Account to be created.",
    members: &[
        member("name", MemberType::Text, "Name, 1 to 128 bytes."),
        optional("credit", MemberType::Amount, "First credit."),
    ],
};

/// Change of an account.
pub(in crate::admin) const ACCOUNT_PATCH: Record = Record {
    name: "AccountPatch",
    text: "Change of an account.",
    members: &[
        optional("enabled", MemberType::Flag, "Whether it may spend; needs the role operate."),
        optional(
            "limits",
            MemberType::Entry(EntryKind::Account),
            "Limits of all its keys; a null removes one.",
        ),
    ],
};

/// New credit.
pub(in crate::admin) const NEW_CREDIT: Record = Record {
    name: "NewCredit",
    text: "Credit of an account.",
    members: &[
        member("amount", MemberType::Amount, "Amount; a negative one reduces the balance."),
        optional("note", MemberType::Text, "Purpose."),
        optional(
            "reference",
            MemberType::Text,
            "Idempotency reference, such as an invoice number: a second credit with it changes nothing. Without it, the \
             header `idempotency-key` is the reference.",
        ),
    ],
};

/// Result of a credit.
pub(in crate::admin) const CREDITED: Record = Record {
    name: "Credited",
    text: "Result of a credit.",
    members: &[
        member("balance", MemberType::Amount, "Balance after the credit."),
        member(
            "repeated",
            MemberType::Flag,
            "True if the reference was credited before: nothing has changed.",
        ),
        optional("audit", MemberType::Count, "Number of the line in the audit log."),
    ],
};

fn limits_of(api: &AdminApi, names: &[&str]) -> Map<String, Value> {
    let mut limits = Map::new();
    api.control().with_snapshot(&mut |snapshot, _| {
        for account in names.iter().filter_map(|name| snapshot.keys.account(name)) {
            limits.insert(account.name.to_string(), limits_json(account.limits()));
        }
    });
    limits
}

fn show(account: &AccountState, limits: Option<Value>) -> Value {
    json!({
        "name": account.name,
        "enabled": account.enabled,
        "created": time(account.created.div_euclid(1000)),
        "balance": Amount(account.balance()).to_string(),
        "credited": Amount(account.credited).to_string(),
        "charged": Amount(account.charged).to_string(),
        "limits": limits,
    })
}

/// Answers `GET /accounts`.
pub(in crate::admin) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let after = request.parameter("cursor");
    let search = ListSearch::of(request);
    let mut accounts = api.ledger().with(|ledger| ledger.accounts())?;
    accounts.retain(|account| search.finds(&[account.name.as_str()]));
    let total = accounts.len();
    let mut behind =
        accounts.into_iter().filter(|account| after.as_ref().is_none_or(|after| account.name > *after));
    let page: Vec<AccountState> = behind.by_ref().take(limit).collect();
    let next = behind.next().and_then(|_| page.last()).map(|account| account.name.clone());
    let names: Vec<&str> = page.iter().map(|account| account.name.as_str()).collect();
    let mut limits = limits_of(api, &names);
    let items = page.iter().map(|account| show(account, limits.remove(&account.name))).collect::<Value>();
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next, "total": total })))
}

/// Answers `GET /accounts/{name}`.
pub(in crate::admin) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let account = api.ledger().with(|ledger| ledger.account(request.name(0)))?;
    let limits = limits_of(api, &[&account.name]).remove(&account.name);
    Ok(ApiResponse::json(show(&account, limits)))
}

/// Answers `GET /accounts/{name}/credits`.
pub(in crate::admin) fn credits(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = u32::try_from(request.limit(PAGE, LARGEST_PAGE)?).unwrap_or(u32::MAX);
    let credits = api.ledger().with(|ledger| ledger.credits(request.name(0), limit))?;
    let credit = |credit: &Credit| {
        json!({
            "time": time(credit.time.div_euclid(1000)),
            "amount": Amount(credit.amount).to_string(),
            "note": credit.note,
            "reference": credit.reference,
        })
    };
    Ok(ApiResponse::json(json!({ "items": credits.iter().map(credit).collect::<Value>() })))
}

/// Returns an amount of the body in nano-units. The type is checked already.
fn amount(request: &ApiRequest, name: &str) -> Result<Option<i64>, AdminApiError> {
    let Some(text) = request.text(name) else { return Ok(None) };
    let amount = Amount::parse(text).map_err(|error| AdminApiError::field(name, error.to_string()))?;
    Ok(Some(amount.0))
}

fn details(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Runs a change of the ledger, and records it before. A change that fails afterwards has a second line.
fn recorded<T>(
    api: &AdminApi,
    request: &ApiRequest,
    action: &'static str,
    name: &str,
    members: Value,
    work: impl FnOnce() -> Result<T, AdminApiError>,
) -> Result<(T, u64), AdminApiError> {
    let mut entry = api.audit_entry(request, action, format!("account/{name}"));
    entry.details = details(members);
    let number = api.record(&entry)?;
    match work() {
        Ok(done) => Ok((done, number)),
        Err(error) => {
            entry.details = details(json!({ "message": error.message, "change": number }));
            change::record_refusal(api, entry, &error);
            Err(error)
        }
    }
}

/// Answers `POST /accounts`.
pub(in crate::admin) fn create(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.text("name").unwrap_or_default();
    let account = AccountId::new(name).ok_or_else(|| {
        AdminApiError::field("name", "a name must have 1 to 128 bytes and no control characters")
    })?;
    let credit = amount(request, "credit")?;
    let members =
        json!({ "before": null, "after": { "credit": credit.map(|nanos| Amount(nanos).to_string()) } });
    let (created, _) = recorded(api, request, "account.create", name, members, || {
        api.ledger().with(|ledger| {
            ledger.create(&account)?;
            if let Some(nanos) = credit {
                ledger.credit(name, nanos, "first credit", None)?;
            }
            ledger.account(name)
        })
    })?;
    Ok(ApiResponse::json(show(&created, None)))
}

/// Answers `PATCH /accounts/{name}`.
pub(in crate::admin) fn update(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    if let Some(enabled) = request.body.get("enabled").and_then(Value::as_bool) {
        let before = api.ledger().with(|ledger| ledger.account(name))?;
        let members = json!({ "before": { "enabled": before.enabled }, "after": { "enabled": enabled } });
        recorded(api, request, "account.update", name, members, || {
            api.ledger().with(|ledger| ledger.set_enabled(name, enabled))
        })?;
    }
    if let Some(limits) = request.body.get("limits").filter(|limits| !limits.is_null()) {
        let (kind, id) = (EntryKind::Account, name.to_owned());
        let member = |name: &str, value: Value| (name.to_owned(), value);
        let change = if api.writer().locate(kind, name)?.is_some() {
            ConfigChange::Merge { kind, id, patch: [member("limits", limits.clone())].into_iter().collect() }
        } else {
            let members =
                [member("name", name.into()), member("limits", limits.clone())].into_iter().collect();
            ConfigChange::Create { kind, id, members, comment: change::comment(request) }
        };
        let action = AuditAction { name: "account.update", of: kind.name() };
        change::apply(api, request, action, name, &change)?;
    }
    read(api, request)
}

/// Answers `POST /accounts/{name}/credits`.
pub(in crate::admin) fn credit(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    let nanos = amount(request, "amount")?.unwrap_or(0);
    let note = request.text("note").unwrap_or_default();
    let reference = request.text("reference").or(request.idempotency_key.as_deref());
    for (field, text) in [("note", Some(note)), ("reference", reference)] {
        if text.is_some_and(|text| text.len() > LONGEST_TEXT) {
            return Err(AdminApiError::field(field, format!("the maximum is {LONGEST_TEXT} bytes")));
        }
    }
    let members = json!({ "amount": Amount(nanos).to_string(), "note": note, "reference": reference });
    let (credited, audit) = recorded(api, request, "account.credit", name, members, || {
        api.ledger().with(|ledger| ledger.credit(name, nanos, note, reference))
    })?;
    Ok(ApiResponse::json(json!({
        "balance": Amount(credited.balance).to_string(),
        "repeated": credited.repeated,
        "audit": audit,
    })))
}
