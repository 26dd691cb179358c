//! Task store of a fleet. All tasks are in one cluster slot, because one script decides which poller gets a due task.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::store::{ValkeyStore, bytes};
use crate::kv::tasks::IdempotencyKey;
use crate::kv::{NewTask, StoredTask, TaskStore};
use crate::store::valkey::connection::{number, parts};
use crate::store::valkey::keys::ValkeyKey;
use crate::store::valkey::script;
use crate::store::{Pending, millis};

const TASKS: ValkeyKey = ValkeyKey("tasks");

fn due_set() -> Vec<u8> {
    TASKS.order().into_bytes()
}

/// Returns the key of the entry for an idempotency key.
fn idempotency_entry(owner: &str, mark: &IdempotencyKey) -> Vec<u8> {
    let mut name = String::from("mark:");
    for byte in mark {
        let _ = write!(name, "{byte:02x}");
    }
    // Task ids contain no colon, so this cannot collide with the key of a task.
    TASKS.item(owner, name.as_bytes())
}

fn task(value: &Value) -> Option<StoredTask> {
    let [owner, id, version, facts, state] = parts(value) else { return None };
    let text = |value: &Value| String::from_utf8(bytes(value)?.to_vec()).ok();
    Some(StoredTask {
        owner: text(owner)?,
        id: text(id)?,
        version: text(version)?.parse().ok()?,
        facts: bytes(facts)?,
        state: bytes(state)?,
    })
}

impl TaskStore for ValkeyStore {
    fn threads(&self) -> Vec<std::sync::Arc<sync::supervise::Supervised>> {
        crate::kv::Store::threads(self)
    }

    fn submit(&self, task: NewTask) -> Pending<Option<String>> {
        let NewTask { owner, id, idempotency_key: mark, lifetime, due, facts, state } = task;
        let mut names = vec![TASKS.item(&owner, id.as_bytes()), due_set()];
        names.extend(mark.as_ref().map(|(mark, _)| idempotency_entry(&owner, mark)));
        let mut call = script::TASK_SUBMIT.call(&names);
        call.arg(owner).arg(id).arg(millis(lifetime)).arg(millis(due)).arg(&facts[..]).arg(&state[..]);
        call.arg(mark.map_or(0, |(_, span)| millis(span)));
        self.submit(facts.len() + state.len(), call, |_, answer| {
            let known = bytes(answer).filter(|known| !known.is_empty())?;
            String::from_utf8(known.to_vec()).ok()
        })
    }

    fn task(&self, owner: &str, id: &str) -> Pending<Option<StoredTask>> {
        let call = script::TASK_FIND.call(&[TASKS.item(owner, id.as_bytes())]);
        self.submit(0, call, |_, answer| task(answer))
    }

    fn change(
        &self,
        owner: &str,
        id: &str,
        version: u64,
        state: Bytes,
        due: Option<Duration>,
    ) -> Pending<bool> {
        let mut call = script::TASK_CHANGE.call(&[TASKS.item(owner, id.as_bytes()), due_set()]);
        let due = due.map_or_else(String::new, |due| millis(due).to_string());
        call.arg(version.to_string()).arg(&state[..]).arg(due);
        self.submit(state.len(), call, |_, answer| number(answer) == 1)
    }

    fn remove(&self, owner: &str, id: &str) -> Pending<bool> {
        let call = script::TASK_FORGET.call(&[TASKS.item(owner, id.as_bytes()), due_set()]);
        self.submit(0, call, |_, answer| number(answer) == 1)
    }

    fn due(&self, most: usize, lease: Duration) -> Pending<Vec<StoredTask>> {
        let mut call = script::TASK_DUE.call(&[due_set()]);
        call.arg(millis(lease)).arg(most);
        self.submit(0, call, |_, answer| parts(answer).iter().filter_map(task).collect())
    }
}
