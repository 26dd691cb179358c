//! Accounts: balances and credits, which the ledger has, and limits, which files of keys have.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::audit;
use super::change::{self, AuditAction};
use super::keys::{LIMITS, limits_json, with_file};
use super::search::ListSearch;
use super::time;
use crate::api::AdminApi;
use crate::error::{AdminApiError, ErrorCode};
use crate::recording::members;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use config::{ConfigChange, EntryKind};
use routing::account::amount::LARGEST;
use routing::account::{AdminRole, Amount};
use storage::ledger::AccountId;
use storage::ledger::admin::{AccountState, AdminError, Credit, Credited, LedgerAdmin};

/// Page of accounts or credits.
const PAGE: usize = 100;
/// Largest page.
const LARGEST_PAGE: usize = 1_000;
/// Longest note or reference of a credit, in bytes.
const LONGEST_TEXT: usize = 1_024;

/// Account as it is shown.
pub(crate) const ACCOUNT: Record = Record {
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
        optional("file", MemberType::Text, "File that has the limits; only when one account is asked for."),
        optional("etag", MemberType::Text, "Version of this file, for `if-match`."),
        optional("applied", MemberType::Flag, "False for a dry run; only in answers to changes."),
    ],
};

/// Page of accounts.
pub(crate) const ACCOUNTS: Record = Record {
    name: "AccountPage",
    text: "Page of accounts, ordered by name.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&ACCOUNT)), "Accounts."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
        member("total", MemberType::Count, "Number of the accounts that `q` chooses."),
    ],
};

/// Credit as it is shown.
pub(crate) const CREDIT: Record = Record {
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
pub(crate) const CREDITS: Record = Record {
    name: "CreditList",
    text: "Page of the credits of an account, the latest first.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&CREDIT)), "Credits."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
    ],
};

/// New account.
pub(crate) const NEW_ACCOUNT: Record = Record {
    name: "NewAccount",
    text: "Account to be created.",
    members: &[
        member("name", MemberType::Text, "Name, 1 to 128 bytes."),
        optional("credit", MemberType::Amount, "First credit."),
    ],
};

/// Change of an account.
pub(crate) const ACCOUNT_PATCH: Record = Record {
    name: "AccountPatch",
    text: "Change of an account.",
    members: &[
        optional("enabled", MemberType::Flag, "Whether it may spend."),
        optional(
            "limits",
            MemberType::Entry(EntryKind::Account),
            "Limits of all its keys; a null removes one.",
        ),
    ],
};

/// New credit.
pub(crate) const NEW_CREDIT: Record = Record {
    name: "NewCredit",
    text: "Credit of an account.",
    members: &[
        member(
            "amount",
            MemberType::Amount,
            "Amount; a negative one reduces the balance, and needs the role admin.",
        ),
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
pub(crate) const CREDITED: Record = Record {
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
        member("applied", MemberType::Flag, "False for a dry run: nothing has changed."),
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
pub(crate) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
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
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    shown(api, request.name(0), None)
}

/// Shows an account with its file. `applied` is that of the answer to a change.
fn shown(api: &AdminApi, name: &str, applied: Option<bool>) -> ApiResult {
    let account = api.ledger().with(|ledger| ledger.account(name))?;
    let limits = limits_of(api, &[&account.name]).remove(&account.name);
    with_file(api, EntryKind::Account, name, with_applied(show(&account, limits), applied))
}

fn with_applied(mut shown: Value, applied: Option<bool>) -> Value {
    if let (Some(members), Some(applied)) = (shown.as_object_mut(), applied) {
        members.insert("applied".to_owned(), applied.into());
    }
    shown
}

/// Answers `GET /accounts/{name}/credits`.
pub(crate) fn credits(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let before = request.parsed::<i64>("cursor", "the cursor is not valid")?;
    // One more tells whether there is a further page.
    let most = u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX);
    let mut credits = api.ledger().with(|ledger| ledger.credits(request.name(0), before, most))?;
    let has_more = credits.len() > limit;
    credits.truncate(limit);
    let next = credits.last().filter(|_| has_more).map(|credit| credit.number.to_string());
    let credit = |credit: &Credit| {
        json!({
            "time": time(credit.time.div_euclid(1000)),
            "amount": Amount(credit.amount).to_string(),
            "note": credit.note,
            "reference": credit.reference,
        })
    };
    let items = credits.iter().map(credit).collect::<Value>();
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next })))
}

/// Returns an amount of the body in nano-units. The type is checked already.
fn amount(request: &ApiRequest, name: &str) -> Result<Option<i64>, AdminApiError> {
    let Some(text) = request.text(name) else { return Ok(None) };
    let amount = Amount::parse(text).map_err(|error| AdminApiError::field(name, error.to_string()))?;
    Ok(Some(amount.0))
}

/// Runs a change of the ledger, with its lines in the audit log.
fn recorded<T>(
    api: &AdminApi,
    request: &ApiRequest,
    action: &'static str,
    name: &str,
    details: Value,
    work: impl FnOnce() -> Result<T, AdminApiError>,
) -> Result<(T, u64), AdminApiError> {
    let mut entry = api.audit_entry(request, action, format!("account/{name}"));
    entry.details = members(details);
    api.record_change(entry, work)
}

/// Answers `POST /accounts`.
pub(crate) fn create(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.text("name").unwrap_or_default();
    let account = AccountId::new(name).ok_or_else(|| {
        AdminApiError::field("name", "a name must have 1 to 128 bytes and no control characters")
    })?;
    // Nothing is credited then.
    let credit = amount(request, "credit")?.filter(|nanos| *nanos != 0);
    if request.dry_run()? {
        let new = tried(api, name, credit.unwrap_or(0))?;
        return Ok(ApiResponse::json(with_applied(show(&new, None), Some(false))));
    }
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
    Ok(ApiResponse::json(with_applied(show(&created, None), Some(true))))
}

/// Returns the account that a request would create.
fn tried(api: &AdminApi, name: &str, credited: i64) -> Result<AccountState, AdminApiError> {
    match api.ledger().with(|ledger| ledger.account(name)) {
        Ok(_) => return Err(AdminError::Exists(name.to_owned()).into()),
        Err(error) if error.code == ErrorCode::NotFound => {}
        Err(error) => return Err(error),
    }
    checked(credited)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let created = i64::try_from(now).unwrap_or(i64::MAX);
    Ok(AccountState { name: name.to_owned(), created, enabled: true, credited, charged: 0 })
}

/// Checks a sum of credits in nano-units.
fn checked(credited: i64) -> Result<i64, AdminError> {
    if credited.unsigned_abs() <= LARGEST.unsigned_abs() { Ok(credited) } else { Err(AdminError::TooLarge) }
}

/// Returns the change of a file that a request for an account needs: `None` without limits.
fn limits_change(
    api: &AdminApi,
    request: &ApiRequest,
    name: &str,
) -> Result<Option<ConfigChange>, AdminApiError> {
    let Some(limits) = request.body.get("limits") else { return Ok(None) };
    let (kind, id) = (EntryKind::Account, name.to_owned());
    let member = |name: &str, value: Value| (name.to_owned(), value);
    if api.writer().locate(kind, name)?.is_some() {
        let patch = [member("limits", limits.clone())].into_iter().collect();
        return Ok(Some(ConfigChange::Merge { kind, id, patch }));
    }
    if limits.is_null() {
        return Ok(None);
    }
    let members = [member("name", name.into()), member("limits", limits.clone())].into_iter().collect();
    Ok(Some(ConfigChange::Create { kind, id, members, comment: change::comment(request) }))
}

/// Refuses a change if the file that has the limits of an account has another version than the caller expects.
fn check_version(api: &AdminApi, request: &ApiRequest, name: &str) -> Result<(), AdminApiError> {
    let Some(expected) = &request.if_match else { return Ok(()) };
    let located = api.writer().locate(EntryKind::Account, name)?;
    if located.is_some_and(|(_, hash)| hash.to_hex() == *expected) {
        return Ok(());
    }
    Err(AdminApiError::new(ErrorCode::Stale, "the file of the account has changed since it was read"))
}

/// Answers `PATCH /accounts/{name}`: all of it, or nothing.
pub(crate) fn update(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (name, dry_run) = (request.name(0), request.dry_run()?);
    let before = api.ledger().with(|ledger| ledger.account(name))?;
    let enabled = request.body.get("enabled").and_then(Value::as_bool);
    let action = AuditAction { name: "account.update", of: EntryKind::Account.name() };
    // The file first: its change is the one that may be refused.
    let written = match limits_change(api, request, name)? {
        Some(change) => Some(change::apply(api, request, action, name, &change)?),
        None => {
            check_version(api, request, name)?;
            None
        }
    };
    if dry_run {
        let limits = match &written {
            Some((applied, _)) => Some(limits_of_entry(&applied.after)),
            None => limits_of(api, &[name]).remove(name),
        };
        let after = AccountState { enabled: enabled.unwrap_or(before.enabled), ..before };
        return Ok(ApiResponse::json(with_applied(show(&after, limits), Some(false))));
    }
    if let Some(enabled) = enabled {
        let members = json!({ "before": { "enabled": before.enabled }, "after": { "enabled": enabled } });
        let switched = recorded(api, request, "account.update", name, members, || {
            api.ledger().with(|ledger| ledger.set_enabled(name, enabled))
        });
        if let (Err(_), Some((applied, Some(number)))) = (&switched, &written) {
            // The ledger has failed: the limits become what they were.
            let hash = applied.hash.to_hex();
            let known = (applied.after.clone(), applied.before.clone());
            let text = audit::text_number(api, *number).unwrap_or(*number);
            if let Err(error) = audit::restore(api, request, (*number, text), (&applied.path, &hash), known) {
                tracing::warn!(%error, account = name, "limits stay changed although the account does not");
            }
        }
        switched?;
    }
    shown(api, name, Some(true))
}

/// Returns the limits of an entry of a file, as accounts show them.
fn limits_of_entry(entry: &Value) -> Value {
    let of =
        |name: &str| entry.get("limits").and_then(|limits| limits.get(name)).cloned().unwrap_or_default();
    let amount = |name: &str| match of(name) {
        Value::Null => Value::Null,
        Value::String(text) => text.into(),
        number => number.to_string().into(),
    };
    json!({
        "requests_per_minute": of("requests_per_minute"),
        "tokens_per_minute": of("tokens_per_minute"),
        "concurrent": of("concurrent"),
        "spend_per_day": amount("spend_per_day"),
        "spend_per_month": amount("spend_per_month"),
    })
}

/// Answers `POST /accounts/{name}/credits`.
pub(crate) fn credit(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    let nanos = amount(request, "amount")?.unwrap_or(0);
    if nanos == 0 {
        return Err(AdminApiError::field("amount", "an amount of 0 changes nothing"));
    }
    if nanos < 0 && request.caller.role < AdminRole::Admin {
        let message = "a deduction needs the role admin";
        let error = AdminApiError {
            field: Some("amount".to_owned()),
            ..AdminApiError::new(ErrorCode::Forbidden, message)
        };
        return Err(error);
    }
    let note = request.text("note").unwrap_or_default();
    let reference = request.text("reference").or(request.idempotency_key.as_deref());
    for (field, text) in [("note", Some(note)), ("reference", reference)] {
        if text.is_some_and(|text| text.len() > LONGEST_TEXT) {
            return Err(AdminApiError::field(field, format!("the maximum is {LONGEST_TEXT} bytes")));
        }
    }
    if request.dry_run()? {
        let tried = api.ledger().with(|ledger| try_credit(ledger, name, nanos, reference))?;
        return Ok(credited_answer(tried, None));
    }
    let members = json!({ "amount": Amount(nanos).to_string(), "note": note, "reference": reference });
    let (credited, audit) = recorded(api, request, "account.credit", name, members, || {
        api.ledger().with(|ledger| ledger.credit(name, nanos, note, reference))
    })?;
    Ok(credited_answer(credited, Some(audit)))
}

fn credited_answer(credited: Credited, audit: Option<u64>) -> ApiResponse {
    ApiResponse::json(json!({
        "balance": Amount(credited.balance).to_string(),
        "repeated": credited.repeated,
        "audit": audit,
        "applied": audit.is_some(),
    }))
}

/// Returns what a credit would do.
fn try_credit(
    ledger: &dyn LedgerAdmin,
    name: &str,
    nanos: i64,
    reference: Option<&str>,
) -> Result<Credited, AdminError> {
    let account = ledger.account(name)?;
    let given = match reference {
        Some(reference) => ledger.credit_of(name, reference)?.map(|before| (reference, before)),
        None => None,
    };
    match given {
        Some((_, before)) if before == nanos => Ok(Credited { balance: account.balance(), repeated: true }),
        Some((reference, before)) => {
            Err(AdminError::Reference { reference: reference.to_owned(), amount: before })
        }
        None => {
            let credited = account.credited.checked_add(nanos).ok_or(AdminError::TooLarge)?;
            let after = AccountState { credited: checked(credited)?, ..account };
            Ok(Credited { balance: after.balance(), repeated: false })
        }
    }
}
