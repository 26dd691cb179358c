//! Outcomes of changes that a process has begun and not ended, because it was killed: written when the next one starts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::audit::{AuditEntry, AuditLog, AuditOutcome};
use super::process_stat::is_running;
use config::{FileHash, file_hash};

/// Code of a change that has no effect because its process was killed.
const INTERRUPTED: &str = "interrupted";
/// Members of a line that are those of every line.
const COMMON: [&str; 12] = [
    "seq",
    "prev",
    "time",
    "actor",
    "role",
    "client",
    "request_id",
    "action",
    "object",
    "outcome",
    "pid",
    "pid_start",
];

impl AuditLog {
    /// Appends the outcome of each change that a process of the past has begun: by the hash of its file, or `unknown` for one of
    /// the ledger or of a target. Changes of processes that run are left to them. Blocks.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub(super) fn recover(&self) -> io::Result<()> {
        for (number, line) in unfinished(self)? {
            let number_of = |name: &str| line.get(name).and_then(Value::as_u64);
            let is_running = number_of("pid").is_some_and(|pid| is_running(pid, number_of("pid_start")));
            if !is_running {
                self.append(&entry_of(&line).ended(number, outcome(&line)))?;
            }
        }
        Ok(())
    }
}

/// Returns the lines of changes without an outcome, by their numbers, of the last two files.
fn unfinished(log: &AuditLog) -> io::Result<BTreeMap<u64, Value>> {
    let mut begun = BTreeMap::new();
    for age in [1, 0] {
        let Some(text) = log.text_of(age)? else { continue };
        let is_of_change =
            |line: &&str| line.contains("\"outcome\":\"begun\"") || line.contains("\"change\":");
        for line in text.lines().filter(is_of_change) {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let number = |name: &str| line.get(name).and_then(Value::as_u64);
            if line.get("outcome").is_some_and(|outcome| outcome == AuditOutcome::Begun.name()) {
                begun.extend(number("seq").map(|number| (number, line.clone())));
            } else if let Some(change) = number("change") {
                begun.remove(&change);
            }
        }
    }
    Ok(begun)
}

/// Returns the outcome of a change, as far as its file tells it.
fn outcome(line: &Value) -> AuditOutcome {
    let text = |name: &str| line.get(name).and_then(Value::as_str);
    let (Some(file), Some(after)) = (text("file"), text("hash_after")) else { return AuditOutcome::Unknown };
    let now = file_hash(Path::new(file)).map(FileHash::to_hex);
    match now.as_deref() {
        Some(now) if now == after => AuditOutcome::Applied,
        now if now == text("hash_before") => AuditOutcome::Refused(INTERRUPTED),
        _ => AuditOutcome::Unknown,
    }
}

fn entry_of(line: &Value) -> AuditEntry {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let members = line.as_object().into_iter().flatten();
    let details: Map<String, Value> = members
        .filter(|(name, _)| !COMMON.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    AuditEntry {
        actor: text("actor"),
        role: Cow::Owned(text("role")),
        client: line.get("client").and_then(Value::as_str).map(str::to_owned),
        request_id: text("request_id"),
        action: Cow::Owned(text("action")),
        object: text("object"),
        outcome: AuditOutcome::Unknown,
        details,
    }
}

#[cfg(test)]
mod tests {
    use super::super::process_stat::ProcessStat;
    use super::*;
    use serde_json::json;

    #[test]
    fn change_of_a_killed_process_gets_its_outcome_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (state, file) = (folder.path().join("admin"), folder.path().join("keys.toml"));
        std::fs::write(&file, "new").unwrap();
        let log = AuditLog::new(&state);
        let hash = |text: &str| FileHash::of(text).to_hex();
        let begin_in = |object: &str, details: Value, (pid, start): (u32, Option<u64>)| {
            let details = details.as_object().unwrap().clone();
            let entry = AuditEntry { object: object.to_owned(), details, ..AuditEntry::default() };
            let mut begun = entry.begun();
            assert!(begun.details.get("pid_start").is_some(), "{:?}", begun.details);
            begun.details.insert("pid".to_owned(), pid.into());
            begun.details.insert("pid_start".to_owned(), start.into());
            (log.append(&begun).unwrap(), entry)
        };
        let begin = |object: &str, details: Value, pid: u32| begin_in(object, details, (pid, None));
        let of_file = |before: &str, after: &str| json!({ "file": file.display().to_string(), "hash_before": hash(before), "hash_after": hash(after) });
        let dead = std::process::id();
        let (ended, entry) = begin("ended", of_file("old", "new"), dead);
        log.append(&entry.ended(ended, AuditOutcome::Applied)).unwrap();
        begin("applied", of_file("old", "new"), dead);
        begin("interrupted", of_file("new", "newer"), dead);
        begin("edited since", of_file("old", "older"), dead);
        begin("ledger", json!({ "amount": "1" }), dead);
        let (running, _) = begin("running", json!({}), 1);
        // A child that has ended and whose status is not read is no process that goes on.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let is_zombie = || ProcessStat::of(&child.id().to_string()).is_some_and(|stat| stat.is_zombie);
        while !is_zombie() {
            std::thread::yield_now();
        }
        begin("zombie", json!({}), child.id());
        // The id has another process by now.
        let start = ProcessStat::of("1").unwrap().start;
        begin_in("reused", json!({}), (1, Some(start + 1)));
        let (same, _) = begin_in("the same process", json!({}), (1, Some(start)));
        log.recover().unwrap();
        log.recover().unwrap();
        child.wait().unwrap();
        let (lines, _) = log.page(u64::MAX, 100, &[]).unwrap();
        let outcomes: Vec<_> = lines
            .iter()
            .rev()
            .map(|line| (line["object"].as_str().unwrap(), line["outcome"].as_str().unwrap()))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("ended", "applied"),
                ("applied", "applied"),
                ("interrupted", "refused"),
                ("edited since", "unknown"),
                ("ledger", "unknown"),
                ("zombie", "unknown"),
                ("reused", "unknown"),
            ]
        );
        assert_eq!(unfinished(&log).unwrap().into_keys().collect::<Vec<_>>(), [running, same]);
    }
}
