//! Tasks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::server::pause;
use super::{PATIENCE, TestBackend, on_both, wait};
use crate::kv::{NewTask, StoredTask, TaskStore};

on_both!(
    task_is_found_changed_and_removed_by_its_owner_only,
    task_is_found_by_other_and_later_processes,
    task_version_admits_one_of_several_changes,
    idempotency_key_makes_one_task_of_two_submissions,
    idempotency_key_expires_after_its_lifetime,
    task_due_is_leased_to_one_poller,
    task_expired_is_not_found_and_never_due,
);

const HOUR: Duration = Duration::from_secs(3_600);

fn new(owner: &str, id: &str) -> NewTask {
    NewTask {
        owner: owner.to_owned(),
        id: id.to_owned(),
        idempotency_key: None,
        lifetime: HOUR,
        due: HOUR,
        facts: Bytes::from(format!("facts of {id}\0\u{ff}")),
        state: Bytes::from_static(b"new"),
    }
}

fn submit(tasks: &dyn TaskStore, task: NewTask) -> Option<String> {
    wait(tasks.submit(task)).unwrap()
}

fn find(tasks: &dyn TaskStore, owner: &str, id: &str) -> Option<StoredTask> {
    wait(tasks.task(owner, id)).unwrap()
}

fn change(tasks: &dyn TaskStore, owner: &str, id: &str, version: u64, state: &'static str) -> bool {
    wait(tasks.change(owner, id, version, Bytes::from_static(state.as_bytes()), None)).unwrap()
}

fn task_is_found_changed_and_removed_by_its_owner_only(place: &dyn TestBackend) {
    let tasks = &*place.tasks();
    assert_eq!(submit(tasks, new("a", "task_1")), None);
    assert_eq!(submit(tasks, new("b", "task_1")), None);
    let found = find(tasks, "a", "task_1").unwrap();
    let expected = NewTask { ..new("a", "task_1") };
    assert_eq!((&*found.owner, &*found.id, found.version), ("a", "task_1", 0));
    assert_eq!((found.facts, found.state), (expected.facts, expected.state));
    for (owner, id) in [("c", "task_1"), ("", "task_1"), ("a", "task_2"), ("a", ""), ("A", "task_1")] {
        assert_eq!(find(tasks, owner, id), None);
        assert!(!change(tasks, owner, id, 0, "other"));
        assert!(!wait(tasks.remove(owner, id)).unwrap());
    }
    assert!(change(tasks, "b", "task_1", 0, "changed"));
    assert_eq!(&find(tasks, "a", "task_1").unwrap().state[..], b"new");
    assert!(wait(tasks.remove("b", "task_1")).unwrap());
    assert!(!wait(tasks.remove("b", "task_1")).unwrap());
    assert_eq!(find(tasks, "b", "task_1"), None);
    assert!(find(tasks, "a", "task_1").is_some());
}

fn task_is_found_by_other_and_later_processes(place: &dyn TestBackend) {
    {
        let tasks = place.tasks();
        submit(&*tasks, new("a", "task_1"));
        // Another process sees it while this one still runs.
        assert!(change(&*place.tasks(), "a", "task_1", 0, "changed"));
    }
    let found = find(&*place.tasks(), "a", "task_1").unwrap();
    assert_eq!((&found.state[..], found.version), (&b"changed"[..], 1));
}

fn task_version_admits_one_of_several_changes(place: &dyn TestBackend) {
    let (one, other) = (place.tasks(), place.tasks());
    submit(&*one, new("a", "task_1"));
    let pending: Vec<_> = (0..20)
        .map(|n| if n % 2 == 0 { &one } else { &other })
        .map(|tasks| tasks.change("a", "task_1", 0, Bytes::from_static(b"changed"), None))
        .collect();
    let changed = pending.into_iter().filter(|_| true).map(|pending| wait(pending).unwrap());
    assert_eq!(changed.filter(|changed| *changed).count(), 1);
    assert!(!change(&*one, "a", "task_1", 0, "late"));
    assert!(change(&*one, "a", "task_1", 1, "next"));
}

fn idempotency_key_makes_one_task_of_two_submissions(place: &dyn TestBackend) {
    let tasks = &*place.tasks();
    let with_key = |owner, id, key| NewTask { idempotency_key: Some(([key; 32], HOUR)), ..new(owner, id) };
    assert_eq!(submit(tasks, with_key("a", "task_1", 1)), None);
    assert_eq!(submit(tasks, with_key("a", "task_2", 1)), Some("task_1".to_owned()));
    assert_eq!(find(tasks, "a", "task_2"), None);
    // Another owner, and another idempotency key.
    assert_eq!(submit(tasks, with_key("b", "task_3", 1)), None);
    assert_eq!(submit(tasks, with_key("a", "task_4", 2)), None);
    // Removing a task removes its idempotency key, too.
    assert!(wait(tasks.remove("a", "task_1")).unwrap());
    assert_eq!(submit(tasks, with_key("a", "task_5", 1)), None);
    assert_eq!(submit(tasks, with_key("a", "task_6", 1)), Some("task_5".to_owned()));
}

fn idempotency_key_expires_after_its_lifetime(place: &dyn TestBackend) {
    let tasks = &*place.tasks();
    let with_key = |id, span| NewTask { idempotency_key: Some(([1; 32], span)), ..new("a", id) };
    assert_eq!(submit(tasks, with_key("task_1", Duration::ZERO)), None);
    assert_eq!(submit(tasks, with_key("task_2", HOUR)), None);
    assert!(find(tasks, "a", "task_1").is_some() && find(tasks, "a", "task_2").is_some());
    assert_eq!(submit(tasks, with_key("task_3", HOUR)), Some("task_2".to_owned()));
}

/// Collects due tasks until there are none, or until the time limit of a test.
fn all_due(tasks: &dyn TaskStore, expected: usize) -> Vec<StoredTask> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < expected && Instant::now() < deadline {
        all.extend(wait(tasks.due(3, HOUR)).unwrap());
        pause(2);
    }
    all
}

fn task_due_is_leased_to_one_poller(place: &dyn TestBackend) {
    let (one, other) = (place.tasks(), place.tasks());
    for n in 0..10 {
        submit(&*one, NewTask { due: Duration::from_millis(n), ..new("a", &format!("task_{n}")) });
    }
    submit(&*one, new("a", "later"));
    pause(20);
    let mut ids: Vec<String> = wait(other.due(4, HOUR)).unwrap().into_iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), 4);
    ids.extend(all_due(&*one, 6).into_iter().map(|task| task.id));
    assert_eq!(ids.len(), 10, "each of them once");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 10);
    assert!(wait(one.due(9, HOUR)).unwrap().is_empty());
    // It is due again at the time that its poller sets, and never again after it has ended.
    let state = || Bytes::from_static(b"x");
    assert!(wait(one.change("a", "task_1", 0, state(), Some(Duration::ZERO))).unwrap());
    let again = all_due(&*other, 1);
    assert_eq!((&*again[0].id, again[0].version), ("task_1", 1));
    // After the lease has expired, the next poller gets the task.
    assert!(wait(one.change("a", "task_2", 0, state(), Some(Duration::ZERO))).unwrap());
    assert_eq!(wait(one.due(9, Duration::ZERO)).unwrap().len(), 1);
    assert_eq!(all_due(&*other, 1)[0].id, "task_2");
    assert!(wait(one.change("a", "task_2", 1, state(), None)).unwrap());
    assert!(wait(one.due(9, Duration::ZERO)).unwrap().is_empty());
}

fn task_expired_is_not_found_and_never_due(place: &dyn TestBackend) {
    let tasks = &*place.tasks();
    submit(tasks, NewTask { lifetime: Duration::ZERO, due: Duration::ZERO, ..new("a", "task_1") });
    assert_eq!(find(tasks, "a", "task_1"), None);
    assert!(!change(tasks, "a", "task_1", 0, "late"));
    assert!(!wait(tasks.remove("a", "task_1")).unwrap());
    assert!(wait(tasks.due(9, HOUR)).unwrap().is_empty());
}
