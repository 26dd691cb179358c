//! Lines of the audit log for what commands change.
//!
//! A command writes to the log of the configuration that it is given. One that is given a file instead has no log. A user who
//! may run it may also edit the file with an editor, so that a log that cannot be written is a warning and no refusal.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::complain;
use admin::{AuditEntry, AuditLog, AuditOutcome};
use routing::account::AdminRole;

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

/// Makes a change, with a line before it and one with its outcome.
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
    let entry = |details: Value| {
        let mut members = Map::from_iter([("via".to_owned(), Value::from("command"))]);
        members.extend(details.as_object().cloned().unwrap_or_default());
        AuditEntry {
            actor: format!("uid:{}", rustix::process::getuid().as_raw()),
            role: AdminRole::Admin.name().into(),
            action: action.into(),
            object: object.clone(),
            details: members,
            ..AuditEntry::default()
        }
    };
    let unwritten = |error| complain(format!("the audit log cannot be written: {error}"));
    let begun = log.as_ref().and_then(|log| {
        let line = log.append(&entry(details.clone()).begun()).and_then(|line| {
            let stored = text_before.map(|text| log.store_text(line, &text));
            stored.transpose().map(|_| line)
        });
        line.map_err(unwritten).ok()
    });
    let done = work();
    if let (Some(log), Some(begun)) = (&log, begun) {
        let ended = match &done {
            Ok(_) => entry(details).ended(begun, AuditOutcome::Applied),
            Err(error) => {
                let details = json!({ "message": error.to_string() });
                entry(details).ended(begun, AuditOutcome::Refused("internal"))
            }
        };
        if let Err(error) = log.append(&ended) {
            unwritten(error);
        }
    }
    done
}
