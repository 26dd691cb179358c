//! Audit log: its lines, and the undoing of changes of files.

use std::path::Path;

use serde_json::{Value, json};

use super::change::{self, AuditAction};
use crate::api::AdminApi;
use crate::audit::{AuditOutcome, AuditTopic};
use crate::error::{AdminApiError, ErrorCode};
use crate::request::ApiRequest;
use crate::response::{ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use config::{self, AppliedChange, ConfigChange};

/// Page of lines.
const PAGE: usize = 100;
/// Largest page of lines.
const LARGEST_PAGE: usize = 1_000;

/// Line of the audit log.
const LINE: Record = Record {
    name: "AuditLine",
    text: "Line of the audit log.",
    members: &[
        member("seq", MemberType::Count, "Number of the line."),
        member("prev", MemberType::Text, "Hash of the line before: the first 32 digits of its SHA-256."),
        member("time", MemberType::Time, "Time."),
        member(
            "actor",
            MemberType::Text,
            "Caller: `token:NAME`, `oidc:NAME`, `uid:NUMBER`, `local`, `none`, `signal:NAME` or `watch`.",
        ),
        member("role", MemberType::Text, "Role of the caller."),
        optional("client", MemberType::Text, "Address of the caller; null for the Unix socket."),
        member("request_id", MemberType::Text, "Id of the request."),
        member("action", MemberType::Text, "Operation, such as `key.create`."),
        member("object", MemberType::Text, "Thing that is changed, such as `key/ci`."),
        member(
            "outcome",
            MemberType::OneOf(&AuditOutcome::NAMES),
            "Outcome; `unknown` of a change whose process was killed. `begun` announces a change, and is listed on request only.",
        ),
        optional("change", MemberType::Count, "Number of the line that has announced the change."),
        optional("code", MemberType::Text, "Code of the error of a refused attempt."),
        optional("via", MemberType::OneOf(&["command"]), "Present if a command has made the change."),
    ],
};

/// Page of lines.
pub(crate) const LINES: Record = Record {
    name: "AuditPage",
    text: "Page of lines, the latest first. Changes of files also have `file`, `hash_before`, `hash_after`, `before` and \
           `after`, with secrets masked.",
    members: &[
        member("items", MemberType::List(&MemberType::Object(&LINE)), "Lines."),
        optional("next_cursor", MemberType::Text, "Cursor of the next page; null at the end."),
    ],
};

/// Answers `GET /audit`.
pub(crate) fn list(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let limit = request.limit(PAGE, LARGEST_PAGE)?;
    let before = request.parsed("cursor", "the cursor is not valid")?.unwrap_or(u64::MAX);
    let filters = ["actor", "action", "object", "outcome"];
    let wanted: Vec<(&str, Value)> =
        filters.into_iter().filter_map(|name| Some((name, request.parameter(name)?.into()))).collect();
    let topic = request.parameter("topic").and_then(|name| AuditTopic::from_name(&name));
    let (mut items, next) = api.audit().page_of(topic, before, limit, &wanted).map_err(unread)?;
    items.iter_mut().for_each(mask_line);
    Ok(ApiResponse::json(json!({ "items": items, "next_cursor": next.map(|next| next.to_string()) })))
}

/// Masks the secrets of a line, which a version that knew fewer of them may have written.
fn mask_line(line: &mut Value) {
    for name in ["before", "after"] {
        if let Some(entry) = line.get_mut(name) {
            config::mask_entry(entry);
        }
    }
}

fn unread(error: std::io::Error) -> AdminApiError {
    AdminApiError::new(ErrorCode::Unavailable, format!("the audit log cannot be read: {error}"))
}

/// Answers `POST /audit/{seq}/undo`: gives a file the text that it had before a change, if it is the last one of the
/// file.
pub(crate) fn undo(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let name = request.name(0);
    let number: u64 = name.parse().map_err(|_| AdminApiError::unknown("line of the audit log", name))?;
    let wanted = [("seq", Value::from(number))];
    let (lines, _) = api.audit().page(number.saturating_add(1), 1, &wanted).map_err(unread)?;
    let mut line =
        lines.into_iter().next().ok_or_else(|| AdminApiError::unknown("line of the audit log", name))?;
    mask_line(&mut line);
    let text = |name: &str| line.get(name).and_then(Value::as_str);
    let (Some(file), Some(hash)) = (text("file"), text("hash_after")) else {
        return Err(AdminApiError::new(ErrorCode::Invalid, "the line is no change of a file"));
    };
    let value = |name: &str| line.get(name).cloned().unwrap_or_default();
    let known = (value("after"), value("before"));
    let text = line.get("change").and_then(Value::as_u64).unwrap_or(number);
    let (applied, audit) = restore(api, request, (number, text), (Path::new(file), hash), known)?;
    Ok(change::answer(&applied, audit))
}

/// Returns the number under which the text before a change is stored, by the number of the change's line. `None` if there is no
/// such line.
pub(super) fn text_number(api: &AdminApi, line: u64) -> Option<u64> {
    let (lines, _) = api.audit().page(line.saturating_add(1), 1, &[("seq", line.into())]).ok()?;
    lines.first()?.get("change").and_then(Value::as_u64)
}

/// Gives a file the text that it had before the change with this number in the audit log, if it still has the text with the
/// hash. The text is stored under the second number. `known` is the entry as it is, and as it was.
///
/// # Errors
/// Returns the error of a text that is not stored any more, or of a refused change.
pub(super) fn restore(
    api: &AdminApi,
    request: &ApiRequest,
    (number, text): (u64, u64),
    (file, hash): (&Path, &str),
    known: (Value, Value),
) -> Result<(AppliedChange, Option<u64>), AdminApiError> {
    let before = api.audit().text(text);
    let before = before.ok_or_else(|| {
        AdminApiError::new(ErrorCode::NotFound, "the text before this change is not stored any more")
    })?;
    let change = ConfigChange::Restore { path: file.to_owned(), text: before };
    // A later change of the file would be lost, so the file must be as this change has left it.
    let conditions = ApiRequest {
        route: request.route,
        names: request.names.clone(),
        query: request.query.clone(),
        body: request.body.clone(),
        caller: request.caller.clone(),
        id: request.id.clone(),
        link: request.link.clone(),
        if_match: Some(hash.to_owned()),
        idempotency_key: None,
        limit: request.limit.clone(),
    };
    let action = AuditAction { name: "change.undo", of: "audit" };
    change::apply_known(api, &conditions, action, &number.to_string(), &change, Some(known))
}
