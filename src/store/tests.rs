//! What whoever uses the store may rely on.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::sqlite::Sqlite;
use super::*;

const LIMITS: Limits = Limits {
    lifetime: Duration::from_secs(3600),
    response: 1000,
    total: 10_000,
    seal_lifetime: Duration::from_secs(3600),
    seal_total: 10_000,
};
const PATIENCE: Duration = Duration::from_secs(20);

fn open(folder: &Path, limits: Limits) -> Sqlite {
    Sqlite::open(&folder.join("state.db"), limits).unwrap()
}

fn response(account: &str, id: &str, text: &str) -> Response {
    let bytes = |text: String| Bytes::from(text.into_bytes());
    Response {
        account: account.to_owned(),
        id: id.to_owned(),
        items: bytes(format!("items of {text}")),
        document: bytes(format!("document of {text}")),
    }
}

async fn find(store: &Sqlite, account: &str, id: &str) -> Option<String> {
    let found = store.find(account, id).within(PATIENCE).await.unwrap()?;
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    Some(format!("{}; {}", text(found.items), text(found.document)))
}

#[tokio::test]
async fn an_account_finds_and_removes_its_own_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    for (account, text) in [("a", "one"), ("b", "two")] {
        store.keep(response(account, "resp_1", text)).within(PATIENCE).await.unwrap();
    }
    let one = Some("items of one; document of one".to_owned());
    assert_eq!(find(&store, "a", "resp_1").await, one);
    assert_eq!(find(&store, "b", "resp_1").await.unwrap(), "items of two; document of two");
    for (account, id) in [("c", "resp_1"), ("", "resp_1"), ("a", "resp_2"), ("a", ""), ("A", "resp_1")] {
        assert_eq!(find(&store, account, id).await, None);
        assert!(!store.remove(account, id).within(PATIENCE).await.unwrap());
    }
    assert!(store.remove("b", "resp_1").within(PATIENCE).await.unwrap());
    assert!(!store.remove("b", "resp_1").within(PATIENCE).await.unwrap());
    assert_eq!(find(&store, "b", "resp_1").await, None);
    assert_eq!(find(&store, "a", "resp_1").await, one);
}

#[tokio::test]
async fn what_was_confirmed_is_there_after_the_end_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = open(folder.path(), LIMITS);
        store.keep(response("a", "resp_1", "one")).within(PATIENCE).await.unwrap();
        // Another process reads it while this one still runs.
        assert!(find(&open(folder.path(), LIMITS), "a", "resp_1").await.is_some());
    }
    let store = open(folder.path(), LIMITS);
    assert!(find(&store, "a", "resp_1").await.is_some());
    assert!(store.size() > 0);
}

#[tokio::test]
async fn what_is_expired_is_not_found_and_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let brief = open(folder.path(), Limits { lifetime: Duration::ZERO, ..LIMITS });
    brief.keep(response("a", "resp_1", "one")).within(PATIENCE).await.unwrap();
    assert_eq!(find(&brief, "a", "resp_1").await, None);
    assert!(!brief.remove("a", "resp_1").within(PATIENCE).await.unwrap());
    brief.keep(response("a", "resp_2", "two")).within(PATIENCE).await.unwrap();
    drop(brief);
    // The sweep at the start of the next process takes the rest away.
    let store = open(folder.path(), LIMITS);
    let deadline = std::time::Instant::now() + PATIENCE;
    while store.size() > 0 && std::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(store.size(), 0);
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_oldest_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    let large = store.keep(response("a", "resp_0", &"x".repeat(600))).within(PATIENCE).await;
    assert!(matches!(large, Err(StoreError::TooLarge { limit: 1000, size }) if size > 1200), "{large:?}");
    assert_eq!(large.unwrap_err().label(), "too_large");
    for n in 0..40 {
        let response = response("a", &format!("resp_{n}"), &"x".repeat(400));
        store.keep(response).within(PATIENCE).await.unwrap();
        assert!(store.size() <= LIMITS.total, "{}", store.size());
    }
    let mut there = Vec::new();
    for n in 0..40 {
        there.push(find(&store, "a", &format!("resp_{n}")).await.is_some());
    }
    let kept = there.iter().filter(|there| **there).count();
    assert!((8..=12).contains(&kept), "{kept}");
    // The last ones, without a gap.
    assert!(there.iter().rev().take(kept).all(|there| *there), "{there:?}");
}

#[tokio::test]
async fn the_same_id_again_replaces_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    for text in ["one", "two"] {
        store.keep(response("a", "resp_1", text)).within(PATIENCE).await.unwrap();
    }
    let one = store.size();
    assert_eq!(find(&store, "a", "resp_1").await.unwrap(), "items of two; document of two");
    store.keep(response("a", "resp_2", "one")).within(PATIENCE).await.unwrap();
    assert_eq!(store.size(), one * 2);
}

#[tokio::test]
async fn many_at_once_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Limits { total: 1 << 30, ..LIMITS });
    let pending: Vec<_> = (0..500).map(|n| store.keep(response("a", &format!("resp_{n}"), "one"))).collect();
    for pending in pending {
        pending.within(PATIENCE).await.unwrap();
    }
    for n in 0..500 {
        assert!(find(&store, "a", &format!("resp_{n}")).await.is_some(), "{n}");
    }
}

/// Another program holds the file: the outcome says so, and nothing is out of step afterwards.
#[tokio::test]
async fn a_write_that_fails_is_told_and_the_next_one_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    store.keep(response("a", "resp_1", "one")).within(PATIENCE).await.unwrap();
    let size = store.size();
    let other = rusqlite::Connection::open(folder.path().join("state.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failed = store.keep(response("a", "resp_2", "two")).within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    let failed = store.remove("a", "resp_1").within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    // What is there can be read meanwhile.
    assert!(find(&store, "a", "resp_1").await.is_some());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.size(), size);
    store.keep(response("a", "resp_2", "two")).within(PATIENCE).await.unwrap();
    assert_eq!(store.size(), size * 2);
}

/// The end of an answer waits for a while, and then no longer.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_does_not_come_is_given_up() {
    let (sender, pending) = Pending::<()>::new();
    assert_eq!(pending.within(PATIENCE).await, Err(StoreError::Late));
    drop(sender);
    let (sender, pending) = Pending::<()>::new();
    drop(sender);
    assert!(matches!(pending.within(PATIENCE).await, Err(StoreError::Failed(_))));
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let _store = open(folder.path(), LIMITS);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn a_file_that_is_none_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, "this is a letter and no database, whatever its name may say").unwrap();
    let error = Sqlite::open(&path, LIMITS).unwrap_err();
    assert!(matches!(&error, OpenError::Database { .. }), "{error}");
    assert!(error.to_string().contains("state.db"), "{error}");
    let error = Sqlite::open(&folder.path().join("no such folder/state.db"), LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

async fn recall(store: &Sqlite, account: &str, keys: &[u8]) -> Vec<Option<String>> {
    let keys = keys.iter().map(|key| [*key; 32]).collect();
    let found = store.recall(account, keys).within(PATIENCE).await.unwrap();
    found.into_iter().map(|seal| seal.map(|seal| String::from_utf8(seal.to_vec()).unwrap())).collect()
}

async fn remember(store: &Sqlite, account: &str, key: u8, text: &str) {
    let entries = vec![([key; 32], Bytes::from(text.to_owned().into_bytes()))];
    store.remember(account, entries).within(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn seals_are_found_by_their_account_alone() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = open(folder.path(), LIMITS);
        remember(&store, "a", 1, "one").await;
        remember(&store, "a", 2, "two").await;
        remember(&store, "b", 1, "other").await;
        remember(&store, "a", 2, "three").await;
    }
    let store = open(folder.path(), LIMITS);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(recall(&store, "a", &[2, 3, 1]).await, [text("three"), None, text("one")]);
    assert_eq!(recall(&store, "b", &[1, 2]).await, [text("other"), None]);
    assert_eq!(recall(&store, "c", &[1]).await, [None]);
    assert!(recall(&store, "a", &[]).await.is_empty());
    assert_eq!(store.size(), 0, "seals are no responses");
}

#[tokio::test]
async fn the_oldest_seals_make_room_and_what_is_too_large_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    let large = vec![([1; 32], Bytes::from(vec![b'x'; 10_001]))];
    let large = store.remember("a", large).within(PATIENCE).await;
    assert!(matches!(large, Err(StoreError::TooLarge { limit: 10_000, .. })), "{large:?}");
    for key in 0..50 {
        remember(&store, "a", key, &"x".repeat(900)).await;
    }
    let there: Vec<u8> = (0..50).collect();
    let there = recall(&store, "a", &there).await;
    let kept = there.iter().filter(|seal| seal.is_some()).count();
    assert!((8..=10).contains(&kept), "{kept}");
    assert!(there.iter().rev().take(kept).all(Option::is_some));
}

#[tokio::test]
async fn seals_expire() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Limits { seal_lifetime: Duration::ZERO, ..LIMITS });
    remember(&store, "a", 1, "one").await;
    assert_eq!(recall(&store, "a", &[1]).await, [None]);
}

/// What a gateway of layout 1 left, with two responses of the key `demo`.
const LAYOUT_1: &[u8] = include_bytes!("../../tests/store/layout-1.db");

/// Several processes find an old file at the same time.
#[tokio::test]
async fn a_file_of_an_older_layout_is_brought_up_and_keeps_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, LAYOUT_1).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| drop(schema::open(&path).unwrap()));
        }
    });
    let store = open(folder.path(), Limits { total: 1 << 20, ..LIMITS });
    for id in ["resp_06baefaf72daa9e56473ca9dd56d8d55", "resp_d16c70fc0018fac0ecf3bcd61e934b28"] {
        let found = find(&store, "demo", id).await.unwrap();
        assert!(found.contains("Hello") && found.contains(id), "{found}");
    }
    remember(&store, "demo", 1, "one").await;
    assert_eq!(recall(&store, "demo", &[1]).await, [Some("one".to_owned())]);
    let account = AccountId::new("acme").unwrap();
    book::Desk::open(&path).unwrap().create(&account).unwrap();
}

#[test]
fn a_file_of_a_later_layout_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, LAYOUT_1).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    let error = Sqlite::open(&path, LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Layout { found: 99, .. }), "{error}");
    let error = book::Desk::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Layout { found: 99, .. }), "{error}");
    let tables: i64 = connection
        .query_row(
            "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'account'",
            (),
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(tables, 0);
}
