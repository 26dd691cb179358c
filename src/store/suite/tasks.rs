//! Tasks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::server::pause;
use super::{PATIENCE, Place, on_both, wait};
use crate::store::{NewTask, StoredTask, TaskStore};

on_both!(
    an_owner_finds_changes_and_removes_its_own_and_nothing_else,
    what_was_confirmed_is_there_for_the_next_process_and_for_others,
    one_of_several_changes_a_state,
    a_mark_makes_one_task_of_two_requests,
    a_mark_holds_for_its_time_and_no_longer_than_its_task,
    what_is_due_is_given_to_one,
    what_is_expired_is_not_found_and_never_due,
);

const HOUR: Duration = Duration::from_secs(3_600);

fn new(owner: &str, id: &str) -> NewTask {
    NewTask {
        owner: owner.to_owned(),
        id: id.to_owned(),
        mark: None,
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

fn an_owner_finds_changes_and_removes_its_own_and_nothing_else(place: &dyn Place) {
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
        assert!(!wait(tasks.forget(owner, id)).unwrap());
    }
    assert!(change(tasks, "b", "task_1", 0, "changed"));
    assert_eq!(&find(tasks, "a", "task_1").unwrap().state[..], b"new");
    assert!(wait(tasks.forget("b", "task_1")).unwrap());
    assert!(!wait(tasks.forget("b", "task_1")).unwrap());
    assert_eq!(find(tasks, "b", "task_1"), None);
    assert!(find(tasks, "a", "task_1").is_some());
}

fn what_was_confirmed_is_there_for_the_next_process_and_for_others(place: &dyn Place) {
    {
        let tasks = place.tasks();
        submit(&*tasks, new("a", "task_1"));
        // Another process knows of it while this one still runs.
        assert!(change(&*place.tasks(), "a", "task_1", 0, "changed"));
    }
    let found = find(&*place.tasks(), "a", "task_1").unwrap();
    assert_eq!((&found.state[..], found.version), (&b"changed"[..], 1));
}

fn one_of_several_changes_a_state(place: &dyn Place) {
    let (one, other) = (place.tasks(), place.tasks());
    submit(&*one, new("a", "task_1"));
    let pending: Vec<_> = (0..20)
        .map(|n| if n % 2 == 0 { &one } else { &other })
        .map(|tasks| tasks.change("a", "task_1", 0, Bytes::from_static(b"mine"), None))
        .collect();
    let changed = pending.into_iter().filter(|_| true).map(|pending| wait(pending).unwrap());
    assert_eq!(changed.filter(|changed| *changed).count(), 1);
    assert!(!change(&*one, "a", "task_1", 0, "late"));
    assert!(change(&*one, "a", "task_1", 1, "next"));
}

fn a_mark_makes_one_task_of_two_requests(place: &dyn Place) {
    let tasks = &*place.tasks();
    let marked = |owner, id, mark| NewTask { mark: Some(([mark; 32], HOUR)), ..new(owner, id) };
    assert_eq!(submit(tasks, marked("a", "task_1", 1)), None);
    assert_eq!(submit(tasks, marked("a", "task_2", 1)), Some("task_1".to_owned()));
    assert_eq!(find(tasks, "a", "task_2"), None);
    // Another owner's, and another mark.
    assert_eq!(submit(tasks, marked("b", "task_3", 1)), None);
    assert_eq!(submit(tasks, marked("a", "task_4", 2)), None);
    // A task that is removed takes its mark along.
    assert!(wait(tasks.forget("a", "task_1")).unwrap());
    assert_eq!(submit(tasks, marked("a", "task_5", 1)), None);
    assert_eq!(submit(tasks, marked("a", "task_6", 1)), Some("task_5".to_owned()));
}

fn a_mark_holds_for_its_time_and_no_longer_than_its_task(place: &dyn Place) {
    let tasks = &*place.tasks();
    let marked = |id, span| NewTask { mark: Some(([1; 32], span)), ..new("a", id) };
    assert_eq!(submit(tasks, marked("task_1", Duration::ZERO)), None);
    assert_eq!(submit(tasks, marked("task_2", HOUR)), None);
    assert!(find(tasks, "a", "task_1").is_some() && find(tasks, "a", "task_2").is_some());
    assert_eq!(submit(tasks, marked("task_3", HOUR)), Some("task_2".to_owned()));
}

/// Asks for what is due until there is nothing, or for as long as a test may take.
fn all_due(tasks: &dyn TaskStore, expected: usize) -> Vec<StoredTask> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < expected && Instant::now() < deadline {
        all.extend(wait(tasks.due(3, HOUR)).unwrap());
        pause(2);
    }
    all
}

fn what_is_due_is_given_to_one(place: &dyn Place) {
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
    // It is due again when its holder says so, and never again when it has ended.
    let state = || Bytes::from_static(b"x");
    assert!(wait(one.change("a", "task_1", 0, state(), Some(Duration::ZERO))).unwrap());
    let again = all_due(&*other, 1);
    assert_eq!((&*again[0].id, again[0].version), ("task_1", 1));
    // A lease that is over gives it to the next.
    assert!(wait(one.change("a", "task_2", 0, state(), Some(Duration::ZERO))).unwrap());
    assert_eq!(wait(one.due(9, Duration::ZERO)).unwrap().len(), 1);
    assert_eq!(all_due(&*other, 1)[0].id, "task_2");
    assert!(wait(one.change("a", "task_2", 1, state(), None)).unwrap());
    assert!(wait(one.due(9, Duration::ZERO)).unwrap().is_empty());
}

fn what_is_expired_is_not_found_and_never_due(place: &dyn Place) {
    let tasks = &*place.tasks();
    submit(tasks, NewTask { lifetime: Duration::ZERO, due: Duration::ZERO, ..new("a", "task_1") });
    assert_eq!(find(tasks, "a", "task_1"), None);
    assert!(!change(tasks, "a", "task_1", 0, "late"));
    assert!(!wait(tasks.forget("a", "task_1")).unwrap());
    assert!(wait(tasks.due(9, HOUR)).unwrap().is_empty());
}
