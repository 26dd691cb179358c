//! Lines of the audit log: changes, what signals cause, and refused requests.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::PREFIX;
use super::api::AdminApi;
use super::audit::AuditEntry;
use super::caller::{Caller, CallerSource};
use super::error::{AdminApiError, ErrorCode};
use super::request::ApiRequest;
use super::resources::change::record_refusal;
use crate::account::AdminRole;
use crate::config::{ReloadOutcome, Report};

/// Longest path of a refused request in the audit log, in characters.
const LONGEST_OBJECT: usize = 256;

impl AdminApi {
    /// Records a reload that a signal or a changed file has caused. Blocks.
    pub fn record_reload(&self, cause: &str, outcome: &ReloadOutcome, access: Option<&Report>) {
        let refused = outcome.refused.is_some() || access.is_some();
        let faults = outcome.refused.iter().chain(access).flat_map(|report| &report.problems);
        let faults: Vec<String> = faults.map(ToString::to_string).collect();
        let details = json!({ "generation": outcome.generation, "faults": faults });
        self.record_event(cause, "config.reload", refused.then_some("invalid"), details);
    }

    /// Records that a signal hands the listeners over to another process. Blocks.
    pub fn record_upgrade(&self, cause: &str) {
        self.record_event(cause, "process.upgrade", None, json!({ "pid": std::process::id() }));
    }

    /// Records a change that no caller has asked for at this time. Blocks.
    pub(super) fn record_cause(&self, cause: &str, action: &'static str, object: String) {
        let role = AdminRole::Admin.name();
        self.append(AuditEntry { actor: cause.to_owned(), role, action, object, ..AuditEntry::default() });
    }

    fn record_event(&self, cause: &str, action: &'static str, refused: Option<&'static str>, details: Value) {
        let object = action.split('.').next().unwrap_or_default().to_owned();
        let details = details.as_object().cloned().unwrap_or_default();
        let (actor, role) = (cause.to_owned(), AdminRole::Admin.name());
        self.append(AuditEntry { actor, role, action, object, refused, details, ..AuditEntry::default() });
    }

    /// Appends a line about what has its effect also without a log, as has an edit by hand.
    fn append(&self, entry: AuditEntry) {
        if let Err(error) = self.audit().append(&entry) {
            tracing::warn!(%error, action = entry.action, "the audit log cannot be written");
        }
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
            role: if caller.source == CallerSource::Unknown { "none" } else { caller.role.name() },
            client: caller.address.map(|address| address.to_string()),
            request_id: id.to_owned(),
            action: "access.refuse",
            object: path.chars().take(LONGEST_OBJECT).collect(),
            refused: Some(error.code.row().0),
            details: details.as_object().cloned().unwrap_or_default(),
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
        (entry.actor, entry.role) = ("none".to_owned(), "none");
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
            role: request.caller.role.name(),
            client: request.caller.address.map(|address| address.to_string()),
            request_id: request.id.clone(),
            action,
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
