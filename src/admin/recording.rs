//! Lines of the audit log: changes, what signals cause, and refused requests.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::PREFIX;
use super::api::AdminApi;
use super::audit::{AuditEntry, AuditOutcome};
use super::caller::{Caller, CallerSource};
use super::error::{AdminApiError, ErrorCode};
use super::request::ApiRequest;
use super::resources::change::record_refusal;
use config::ReloadOutcome;
use routing::account::AdminRole;

/// Longest path of a refused request in the audit log, in characters.
const LONGEST_OBJECT: usize = 256;

/// Upgrade whose outcome is to be recorded.
#[derive(Debug)]
pub struct AuditedUpgrade {
    entry: AuditEntry,
    /// Number of its line. `None` if the log cannot be written.
    begun: Option<u64>,
}

/// Begins the line of what no caller has asked for.
fn event(cause: &str, action: &'static str, object: String) -> AuditEntry {
    let (actor, role) = (cause.to_owned(), AdminRole::Admin.name().into());
    AuditEntry { actor, role, action: action.into(), object, ..AuditEntry::default() }
}

/// Returns what a line has of a reload.
fn reload_details(outcome: &ReloadOutcome) -> Map<String, Value> {
    let faults: Vec<String> = outcome.faults().map(ToString::to_string).collect();
    members(json!({ "generation": outcome.generation, "faults": faults }))
}

fn reload_result(outcome: &ReloadOutcome) -> AuditOutcome {
    if outcome.is_applied() { AuditOutcome::Applied } else { AuditOutcome::Refused("invalid") }
}

/// Returns the members of an object; none of another value.
pub(super) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl AdminApi {
    /// Records a reload that a signal or a changed file has caused. Blocks.
    pub fn record_reload(&self, cause: &str, outcome: &ReloadOutcome) {
        let entry = event(cause, "config.reload", "config".to_owned());
        let (result, details) = (reload_result(outcome), reload_details(outcome));
        self.append(&AuditEntry { outcome: result, details, ..entry });
    }

    /// Records a reload that a caller has asked for, around `reload`.
    ///
    /// # Errors
    /// Returns an error if the log cannot be written: before the reload, which does not take place then, or afterwards.
    pub(super) fn record_reload_of(
        &self,
        request: &ApiRequest,
        reload: impl FnOnce() -> ReloadOutcome,
    ) -> Result<(ReloadOutcome, u64), AdminApiError> {
        let entry = self.audit_entry(request, "config.reload", "config".to_owned());
        let begun = self.record(&entry.begun())?;
        let outcome = reload();
        let entry = AuditEntry { details: reload_details(&outcome), ..entry };
        let audit = self.record_outcome(entry.ended(begun, reload_result(&outcome)))?;
        Ok((outcome, audit))
    }

    /// Records that a signal begins to hand the listeners over to another process. Returns what records the outcome. Blocks.
    pub fn record_upgrade(&self, cause: &str) -> AuditedUpgrade {
        let mut entry = event(cause, "process.upgrade", "process".to_owned());
        entry.details = members(json!({ "pid": std::process::id() }));
        let begun = self.append(&entry.begun());
        AuditedUpgrade { entry, begun }
    }

    /// Records the outcome of an upgrade: `failure` is the reason why it has failed. Blocks.
    pub fn record_upgraded(&self, upgrade: AuditedUpgrade, failure: Option<&str>) {
        let AuditedUpgrade { mut entry, begun } = upgrade;
        let Some(begun) = begun else { return };
        if let Some(message) = failure {
            entry.details.insert("message".to_owned(), message.into());
        }
        let outcome =
            if failure.is_some() { AuditOutcome::Refused("internal") } else { AuditOutcome::Applied };
        self.append(&entry.ended(begun, outcome));
    }

    /// Records a change that no caller has asked for at this time. Blocks.
    pub(super) fn record_cause(&self, cause: &str, action: &'static str, object: String) {
        self.append(&event(cause, action, object));
    }

    /// Writes the outcomes of changes that a process of the past has begun and not ended. Blocks.
    pub fn recover_audit(&self) {
        if let Err(error) = self.audit().recover() {
            tracing::warn!(%error, "changes without an outcome stay so in the audit log");
        }
    }

    /// Appends a line about what has its effect also without a log, as has an edit by hand.
    fn append(&self, entry: &AuditEntry) -> Option<u64> {
        let appended = self.audit().append(entry).inspect_err(|error| {
            tracing::warn!(%error, action = %entry.action, "the audit log cannot be written");
        });
        appended.ok()
    }

    /// Runs a change, with a line before it and one with its outcome. Returns the number of the latter.
    ///
    /// # Errors
    /// Returns the error of `work`, or that the log cannot be written.
    pub(super) fn record_change<T>(
        &self,
        mut entry: AuditEntry,
        work: impl FnOnce() -> Result<T, AdminApiError>,
    ) -> Result<(T, u64), AdminApiError> {
        let begun = self.record(&entry.begun())?;
        match work() {
            Ok(done) => Ok((done, self.record_outcome(entry.ended(begun, AuditOutcome::Applied))?)),
            Err(error) => {
                entry.details = members(json!({ "message": error.message, "change": begun }));
                record_refusal(self, entry, &error);
                Err(error)
            }
        }
    }

    /// Appends the outcome of a change that is in effect. Returns its number.
    ///
    /// # Errors
    /// Returns an error if the log cannot be written: the caller must not take the change for a recorded one.
    pub(super) fn record_outcome(&self, entry: AuditEntry) -> Result<u64, AdminApiError> {
        self.audit().append(&entry).map_err(|error| {
            let message = format!("the change is in effect, but the audit log cannot be written: {error}");
            AdminApiError::new(ErrorCode::Unavailable, message)
        })
    }

    /// Records a request that is refused for its caller: a bounded number of lines a minute.
    pub(super) fn record_refused(
        self: &Arc<Self>,
        (path, operation): (&str, &'static str),
        caller: Caller,
        id: &str,
        error: &AdminApiError,
    ) {
        let Some(skipped) = self.refusals().take(Instant::now()) else { return };
        let path = path.strip_prefix(PREFIX).unwrap_or(path);
        let details = json!({ "operation": operation, "skipped": skipped });
        let entry = AuditEntry {
            actor: caller.name,
            role: if caller.source == CallerSource::Unknown { "none" } else { caller.role.name() }.into(),
            client: caller.address.map(|address| address.to_string()),
            request_id: id.to_owned(),
            action: "access.refuse".into(),
            object: path.chars().take(LONGEST_OBJECT).collect(),
            outcome: AuditOutcome::Refused(error.code.row().0),
            details: members(details),
        };
        let api = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = api.audit().append(&entry) {
                tracing::warn!(%error, "a refused request could not be recorded in the audit log");
            }
        });
    }

    /// Records a sign-in that is refused: a bounded number of lines a minute. Blocks.
    pub(super) fn record_refused_sign_in(&self, request: &ApiRequest, error: &AdminApiError) {
        let Some(skipped) = self.refusals().take(Instant::now()) else { return };
        let mut entry = self.audit_entry(request, "session.begin", "session".to_owned());
        (entry.actor, entry.role) = ("none".to_owned(), "none".into());
        entry.details.insert("skipped".to_owned(), skipped.into());
        record_refusal(self, entry, error);
    }

    /// Begins the line of the audit log for a request.
    pub(super) fn audit_entry(
        &self,
        request: &ApiRequest,
        action: &'static str,
        object: String,
    ) -> AuditEntry {
        AuditEntry {
            actor: request.caller.name.clone(),
            role: request.caller.role.name().into(),
            client: request.caller.address.map(|address| address.to_string()),
            request_id: request.id.clone(),
            action: action.into(),
            object,
            ..AuditEntry::default()
        }
    }

    /// Appends a line to the audit log. Returns its number.
    ///
    /// # Errors
    /// Returns an error if the log cannot be written: the change must not take place then.
    pub(super) fn record(&self, entry: &AuditEntry) -> Result<u64, AdminApiError> {
        self.audit().append(entry).map_err(|error| {
            AdminApiError::new(ErrorCode::Unavailable, format!("the audit log cannot be written: {error}"))
        })
    }
}
