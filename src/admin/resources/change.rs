//! Changes of configuration files: recorded before they take effect and with their outcome, and applied at once.

use serde_json::{Map, Value, json};

use crate::api::AdminApi;
use crate::audit::{AuditEntry, AuditOutcome};
use crate::error::AdminApiError;
use crate::recording::members;
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use config::{self, AppliedChange, ChangeConditions, ConfigChange, EntryKind};

/// Result of a change of a file.
pub(crate) const CHANGE: Record = Record {
    name: "Change",
    text: "Change of a configuration file.",
    members: &[
        member("applied", MemberType::Flag, "False for a dry run: nothing has changed."),
        member("file", MemberType::Text, "File that has the entry."),
        member("etag", MemberType::Text, "Version of the file afterwards, for `if-match`."),
        optional("generation", MemberType::Count, "Number of the configuration in effect."),
        optional("audit", MemberType::Count, "Number of the line in the audit log, for `undo`."),
        optional("before", MemberType::Open, "Entry before, with secrets masked."),
        optional("after", MemberType::Open, "Entry afterwards, with secrets masked."),
        optional("key", MemberType::Text, "Text of a new key. It is shown once."),
        optional(
            "warnings",
            MemberType::List(&MemberType::Text),
            "What is to be known about the changed key; absent if there is nothing.",
        ),
        optional(
            "repeated",
            MemberType::Flag,
            "True if the answer is that of an earlier request with the same idempotency key.",
        ),
    ],
};

/// Operation on an entry, for the audit log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditAction {
    /// Operation: `key.create`.
    pub(crate) name: &'static str,
    /// Kind of the thing.
    pub(crate) of: &'static str,
}

/// Applies a change, and records it or its refusal.
///
/// # Errors
/// Returns the error of a refused change.
pub(crate) fn apply(
    api: &AdminApi,
    request: &ApiRequest,
    action: AuditAction,
    id: &str,
    change: &ConfigChange,
) -> Result<(AppliedChange, Option<u64>), AdminApiError> {
    apply_known(api, request, action, id, change, None)
}

/// Applies a change as [`apply`] does. `known` is the entry before and afterwards of a change that concerns a whole file.
///
/// # Errors
/// Returns the error of a refused change.
pub(crate) fn apply_known(
    api: &AdminApi,
    request: &ApiRequest,
    action: AuditAction,
    id: &str,
    change: &ConfigChange,
    known: Option<(Value, Value)>,
) -> Result<(AppliedChange, Option<u64>), AdminApiError> {
    let conditions = ChangeConditions { expected: request.if_match.clone(), dry_run: request.dry_run()? };
    let mut entry = api.audit_entry(request, action.name, format!("{}/{id}", action.of));
    let mut number = None;
    let applied = api.writer().apply(change, &conditions, &mut |prepared| {
        let hash = prepared.hash_before.map(|hash| hash.to_hex());
        let (before, after) = known.as_ref().map_or((&prepared.before, &prepared.after), |(b, a)| (b, a));
        entry.details = members(json!({
            "file": prepared.path.display().to_string(),
            "hash_before": hash,
            "hash_after": prepared.hash_after.to_hex(),
            "before": before,
            "after": after,
        }));
        let line = api.audit().append(&entry.begun())?;
        number = Some(line);
        api.audit().store_text(line, prepared.text_before.unwrap_or_default())
    });
    match applied {
        Ok(mut applied) => {
            if let Some((before, after)) = known {
                (applied.before, applied.after) = (before, after);
            }
            if let Some(outcome) = &applied.reload {
                api.control().report_reload(outcome);
            }
            let ended = number.map(|begun| api.record_outcome(entry.ended(begun, AuditOutcome::Applied)));
            Ok((applied, ended.transpose()?))
        }
        Err(error) => {
            let error = AdminApiError::from(error);
            if !conditions.dry_run {
                entry.details = members(json!({ "message": error.message, "change": number }));
                record_refusal(api, entry, &error);
            }
            Err(error)
        }
    }
}

/// Records a refused attempt.
pub(crate) fn record_refusal(api: &AdminApi, entry: AuditEntry, error: &AdminApiError) {
    let entry = AuditEntry { outcome: AuditOutcome::Refused(error.code.row().0), ..entry };
    // Nothing changes, so a log that cannot be written is no reason for another answer.
    if let Err(error) = api.audit().append(&entry) {
        tracing::warn!(%error, "a refused attempt could not be recorded in the audit log");
    }
}

/// Returns the answer to a change.
pub(crate) fn answer(applied: &AppliedChange, audit: Option<u64>) -> ApiResponse {
    let etag = applied.hash.to_hex();
    let value = json!({
        "applied": applied.reload.is_some(),
        "file": applied.path.display().to_string(),
        "etag": etag,
        "generation": applied.reload.as_ref().map(|outcome| outcome.generation),
        "audit": audit,
        "before": applied.before,
        "after": applied.after,
    });
    ApiResponse::json(value).with_etag(Some(etag))
}

/// Returns the id of a new entry.
///
/// # Errors
/// Returns the error of a body without an id.
pub(crate) fn id_of(request: &ApiRequest, kind: EntryKind) -> Result<String, AdminApiError> {
    let id = request.body.get(kind.id()).ok_or_else(|| {
        // A misspelt name of the member itself would otherwise be reported as the absence of the right one.
        let unknown = request.body.keys().find(|name| !config::is_member(kind, name));
        let unknown =
            unknown.map_or_else(String::new, |name| format!("; `{name}` is no member of a {}", kind.name()));
        AdminApiError::field(kind.id(), format!("is missing{unknown}"))
    })?;
    let id = id.as_str().ok_or_else(|| AdminApiError::field(kind.id(), "expected a string"))?;
    if id.is_empty() || id.chars().any(char::is_control) {
        return Err(AdminApiError::field(kind.id(), "must not be empty nor have control characters"));
    }
    Ok(id.to_owned())
}

/// Returns the comment above an entry that the API adds.
pub(crate) fn comment(request: &ApiRequest) -> String {
    let caller: String = request.caller.name.chars().filter(|c| !c.is_control()).collect();
    format!("Added by {caller} through the admin API.")
}

/// Creates an entry with the members of the body.
///
/// # Errors
/// Returns the error of a refused change.
pub(crate) fn create(
    api: &AdminApi,
    request: &ApiRequest,
    kind: EntryKind,
    action: &'static str,
) -> ApiResult {
    let id = id_of(request, kind)?;
    refuse_secrets(kind, &request.body)?;
    let change = ConfigChange::Create {
        kind,
        id: id.clone(),
        members: request.body.clone(),
        comment: comment(request),
    };
    let (applied, audit) = apply(api, request, AuditAction { name: action, of: kind.name() }, &id, &change)?;
    Ok(answer(&applied, audit))
}

/// Changes the members of an entry that the body has.
///
/// # Errors
/// Returns the error of a refused change.
pub(crate) fn update(
    api: &AdminApi,
    request: &ApiRequest,
    kind: EntryKind,
    action: &'static str,
) -> ApiResult {
    let id = request.name(0);
    refuse_secrets(kind, &request.body)?;
    if request.body.is_empty() {
        return Err(AdminApiError::field("", "the body has no member to change"));
    }
    let change = ConfigChange::Merge { kind, id: id.to_owned(), patch: request.body.clone() };
    let (applied, audit) = apply(api, request, AuditAction { name: action, of: kind.name() }, id, &change)?;
    Ok(answer(&applied, audit))
}

/// Removes an entry.
///
/// # Errors
/// Returns the error of a refused change.
pub(crate) fn remove(
    api: &AdminApi,
    request: &ApiRequest,
    kind: EntryKind,
    action: &'static str,
) -> ApiResult {
    let id = request.name(0);
    let change = ConfigChange::Remove { kind, id: id.to_owned() };
    let (applied, audit) = apply(api, request, AuditAction { name: action, of: kind.name() }, id, &change)?;
    Ok(answer(&applied, audit))
}

/// Refuses secrets in the body: they would be stored in configuration files, and earlier versions of these.
pub(super) fn refuse_secrets(kind: EntryKind, body: &Map<String, Value>) -> Result<(), AdminApiError> {
    let Some(member) = config::secret_member(kind, body) else { return Ok(()) };
    let message = if member.starts_with("headers") {
        "headers may have secrets, which are not written through the API; edit the file"
    } else {
        "secrets are not written through the API; name an environment variable or a file, or edit the file"
    };
    Err(AdminApiError::field(&member, message))
}
