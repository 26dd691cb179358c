//! The file of the store: what stands in `suite` holds wherever the store is.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::sqlite::SqliteStore;
use super::*;

const LIMITS: StoreLimits = StoreLimits {
    lifetime: Duration::from_secs(3600),
    response: 1000,
    total: 10_000,
    seal_lifetime: Duration::from_secs(3600),
    seal_total: 10_000,
};
const PATIENCE: Duration = Duration::from_secs(20);

fn open(folder: &Path, limits: StoreLimits) -> SqliteStore {
    SqliteStore::open(&folder.join("state.db"), limits).unwrap()
}

fn response(account: &str, id: &str, text: &str) -> StoredResponse {
    let bytes = |text: String| Bytes::from(text.into_bytes());
    StoredResponse {
        account: account.to_owned(),
        id: id.to_owned(),
        items: bytes(format!("items of {text}")),
        document: bytes(format!("document of {text}")),
    }
}

async fn find(store: &SqliteStore, account: &str, id: &str) -> Option<String> {
    let found = store.find(account, id).within(PATIENCE).await.unwrap()?;
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    Some(format!("{}; {}", text(found.items), text(found.document)))
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
    let error = SqliteStore::open(&path, LIMITS).unwrap_err();
    assert!(matches!(&error, OpenError::Database { .. }), "{error}");
    assert!(error.to_string().contains("state.db"), "{error}");
    let error = SqliteStore::open(&folder.path().join("no such folder/state.db"), LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
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
    let store = open(folder.path(), StoreLimits { total: 1 << 20, ..LIMITS });
    for id in ["resp_06baefaf72daa9e56473ca9dd56d8d55", "resp_d16c70fc0018fac0ecf3bcd61e934b28"] {
        let found = find(&store, "demo", id).await.unwrap();
        assert!(found.contains("Hello") && found.contains(id), "{found}");
    }
    let seal = Bytes::from_static(b"one");
    store.remember("demo", vec![([1; 32], seal.clone())]).within(PATIENCE).await.unwrap();
    assert_eq!(store.recall("demo", vec![[1; 32]]).within(PATIENCE).await.unwrap(), [Some(seal)]);
    let account = AccountId::new("acme").unwrap();
    sqlite_ledger::SqliteAdmin::open(&path).unwrap().create(&account).unwrap();
}

#[test]
fn a_file_of_a_later_layout_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, LAYOUT_1).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    let error = SqliteStore::open(&path, LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Layout { found: 99, .. }), "{error}");
    let error = sqlite_ledger::SqliteAdmin::open(&path).unwrap_err();
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
