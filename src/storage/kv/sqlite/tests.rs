//! Tests of the SQLite file. Tests that hold for every store are in `suite`.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::SqliteStore;
use crate::kv::{Store as _, StoreLimits, StoredResponse};
use crate::ledger::AccountId;
use crate::ledger::admin::LedgerAdmin as _;
use crate::ledger::backend::sqlite::SqliteAdmin;
use crate::store::tests::documents::{LIMITS, joined, response};
use crate::store::{OpenError, Pending, StoreError, schema};

const PATIENCE: Duration = Duration::from_secs(20);

fn open(folder: &Path, limits: StoreLimits) -> SqliteStore {
    SqliteStore::open(&folder.join("state.db"), limits).unwrap()
}

async fn find(store: &SqliteStore, account: &str, id: &str) -> Option<String> {
    store.find(account, id).within(PATIENCE).await.unwrap().map(joined)
}

/// Another connection locks the file: the outcome is an error, and the store stays consistent.
#[tokio::test]
async fn store_failed_write_is_reported_and_the_next_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    store.store_response(response("a", "resp_1", "one")).within(PATIENCE).await.unwrap();
    let size = store.size();
    let other = rusqlite::Connection::open(folder.path().join("state.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failed = store.store_response(response("a", "resp_2", "two")).within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    let failed = store.remove("a", "resp_1").within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    // Reads still work.
    assert!(find(&store, "a", "resp_1").await.is_some());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.size(), size);
    store.store_response(response("a", "resp_2", "two")).within(PATIENCE).await.unwrap();
    assert_eq!(store.size(), size * 2);
}

/// A write fails in the middle: what it had deleted before is there again, and others of its batch are kept.
#[tokio::test]
async fn replacement_that_fails_keeps_the_old_entries() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), LIMITS);
    store.store_response(response("a", "resp_1", "one")).within(PATIENCE).await.unwrap();
    let seal = |text: &'static str| Bytes::from_static(text.as_bytes());
    store.store_signatures("a", vec![([1; 32], seal("one"))]).within(PATIENCE).await.unwrap();
    let size = store.size();
    let other = rusqlite::Connection::open(folder.path().join("state.db")).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER no_response BEFORE INSERT ON response WHEN NEW.id = 'resp_1'
             BEGIN SELECT RAISE(ABORT, 'no room'); END;
             CREATE TRIGGER no_seal BEFORE INSERT ON seal WHEN substr(NEW.key, 1, 1) = x'02'
             BEGIN SELECT RAISE(ABORT, 'no room'); END;",
        )
        .unwrap();
    let replaced = store.store_response(response("a", "resp_1", "another"));
    let beside = store.store_response(response("a", "resp_2", "two"));
    let failed = replaced.within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    beside.within(PATIENCE).await.unwrap();
    assert_eq!(find(&store, "a", "resp_1").await.as_deref(), Some("items of one; document of one"));
    assert_eq!(find(&store, "a", "resp_2").await.as_deref(), Some("items of two; document of two"));
    assert_eq!(store.size(), size * 2);
    let entries = vec![([1; 32], seal("another")), ([2; 32], seal("two"))];
    let failed = store.store_signatures("a", entries).within(PATIENCE).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    let recalled = store.load_signatures("a", vec![[1; 32], [2; 32]]).within(PATIENCE).await.unwrap();
    assert_eq!(recalled, [Some(seal("one")), None]);
}

/// An outcome that does not arrive is abandoned after the time limit.
#[tokio::test(start_paused = true)]
async fn pending_outcome_times_out_or_fails_without_a_sender() {
    let (sender, pending) = Pending::<()>::new();
    assert_eq!(pending.within(PATIENCE).await, Err(StoreError::Timeout));
    drop(sender);
    let (sender, pending) = Pending::<()>::new();
    drop(sender);
    assert!(matches!(pending.within(PATIENCE).await, Err(StoreError::Failed(_))));
}

#[cfg(unix)]
#[test]
fn file_is_readable_by_its_owner_only() {
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
fn file_that_is_not_a_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, "this is a letter and no database, whatever its name may say").unwrap();
    let error = SqliteStore::open(&path, LIMITS).unwrap_err();
    assert!(matches!(&error, OpenError::Database { .. }), "{error}");
    assert!(error.to_string().contains("state.db"), "{error}");
    let error = SqliteStore::open(&folder.path().join("no such folder/state.db"), LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

/// File of schema version 1 with two responses of the key `demo`.
const LAYOUT_1: &[u8] = include_bytes!("../../../../tests/store/layout-1.db");

/// Several processes open an old file at the same time.
#[tokio::test]
async fn file_of_an_older_layout_is_migrated_with_its_contents() {
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
    store.store_signatures("demo", vec![([1; 32], seal.clone())]).within(PATIENCE).await.unwrap();
    assert_eq!(store.load_signatures("demo", vec![[1; 32]]).within(PATIENCE).await.unwrap(), [Some(seal)]);
    let account = AccountId::new("acme").unwrap();
    SqliteAdmin::open(&path).unwrap().create(&account).unwrap();
}

#[test]
fn file_of_a_later_layout_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    std::fs::write(&path, LAYOUT_1).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    let error = SqliteStore::open(&path, LIMITS).unwrap_err();
    assert!(matches!(error, OpenError::Layout { found: 99, .. }), "{error}");
    let error = SqliteAdmin::open(&path).unwrap_err();
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

/// Another connection locks the file, so that nothing leaves the queue.
#[tokio::test]
async fn store_queue_is_bounded_in_jobs_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let limits = StoreLimits { response: 32 << 20, total: 1 << 30, signature_total: 1 << 30, ..LIMITS };
    let store = open(folder.path(), limits);
    let other = rusqlite::Connection::open(folder.path().join("state.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let large = Bytes::from(vec![b'x'; 16 << 20]);
    let is_busy = |outcome: Pending<()>| outcome.wait(Duration::ZERO) == Err(StoreError::Busy);
    let accepted = (0..40)
        .filter(|number| {
            let id = format!("resp_{number}");
            !is_busy(
                store.store_response(StoredResponse { document: large.clone(), ..response("a", &id, "") }),
            )
        })
        .count();
    // 64 MiB wait, beside those that the thread has taken already.
    assert!((3..=8).contains(&accepted), "{accepted}");
    let busy = (0..3_000_u32)
        .filter(|number| {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            is_busy(store.store_signatures("a", vec![(key, Bytes::from_static(b"s"))]))
        })
        .count();
    assert!(busy >= 3_000 - 1_024 - 128, "{busy}");
    other.execute_batch("ROLLBACK").unwrap();
}
