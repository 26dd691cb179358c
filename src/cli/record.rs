//! Lines of the audit log for what commands change.
//!
//! A command writes to the log of the configuration that it is given. One that is given a file instead has no log. A user who
//! may run it may also edit the file with an editor, so that a log that cannot be written is a warning and no refusal.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::complain;
use crate::account::AdminRole;
use crate::admin::{AuditEntry, AuditLog};
use crate::config;

/// Change that a command makes.
pub(super) struct CommandChange {
    /// Operation: `key.create`.
    pub(super) action: &'static str,
    /// Thing that is changed: `key/ci`.
    pub(super) object: String,
    /// Further members of the line.
    pub(super) details: Value,
    /// Text of the file before, for `undo`. `None` for a change of something else.
    pub(super) text_before: Option<String>,
}

/// Makes a change, after its line is written. A change that fails has a second line.
///
/// # Errors
/// Returns the error of `work`.
pub(super) fn recorded<T, E: std::fmt::Display>(
    conf: Option<&Path>,
    change: CommandChange,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let log = conf.and_then(|conf| config::admin_state_path(conf).ok()).map(|state| AuditLog::new(&state));
    let CommandChange { action, object, details, text_before } = change;
    let entry = |refused, details: Value| {
        let mut members = Map::from_iter([("via".to_owned(), Value::from("command"))]);
        members.extend(details.as_object().cloned().unwrap_or_default());
        AuditEntry {
            actor: format!("uid:{}", rustix::process::getuid().as_raw()),
            role: AdminRole::Admin.name(),
            action,
            object: object.clone(),
            refused,
            details: members,
            ..AuditEntry::default()
        }
    };
    let mut number = None;
    if let Some(log) = &log {
        let line = log.append(&entry(None, details)).and_then(|line| {
            let stored = text_before.map(|text| log.store_text(line, &text));
            stored.transpose().map(|_| line)
        });
        match line {
            Ok(line) => number = Some(line),
            Err(error) => complain(format!("the audit log cannot be written: {error}")),
        }
    }
    work().inspect_err(|error| {
        if let (Some(log), Some(_)) = (&log, number) {
            let details = json!({ "message": error.to_string(), "change": number });
            if let Err(error) = log.append(&entry(Some("internal"), details)) {
                complain(format!("the audit log cannot be written: {error}"));
            }
        }
    })
}
