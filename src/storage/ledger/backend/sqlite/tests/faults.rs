//! Lost or damaged files, and panics of the ledger's thread: no charge is lost.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use crate::ledger::backend::sqlite::tests::*;

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn journals(folder: &Path) -> std::path::PathBuf {
    schema::journals(&folder.join("state.db"))
}

/// A panic of the thread loses no charge: the thread restarts with its state.
#[tokio::test]
async fn thread_restarts_after_a_panic_without_losing_charges() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let ledger = open(folder.path());
    settle(&ledger, None, &record("acme", 5));
    assert!(ledger.worker.send(Command::Panic));
    settle(&ledger, None, &record("acme", 7));
    wait_until("the restart", || ledger.threads()[0].restarts() == 1);
    flush(&ledger).await;
    assert!(ledger.threads().iter().all(|thread| !thread.is_down()));
    assert_eq!(ledger.available(&id("acme")), Some(88));
    assert_eq!(stored(folder.path(), "acme"), (88, 12, 2));
}

/// While the file is missing, charges wait in the journal and reservations fail.
#[test]
fn file_removed_stops_reservations_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let ledger = open(folder.path());
    assert_eq!(ledger.fault(), None);
    let (file, moved) = (folder.path().join("state.db"), folder.path().join("away.db"));
    std::fs::rename(&file, &moved).unwrap();
    wait_until("the fault", || ledger.fault().is_some_and(|fault| fault.contains("was removed")));
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Unavailable);
    settle(&ledger, None, &record("acme", 5));
    std::fs::write(&file, "").unwrap();
    wait_until("the fault", || ledger.fault().is_some_and(|fault| fault.contains("was replaced")));
    std::fs::rename(&moved, &file).unwrap();
    wait_until("the end of the fault", || ledger.fault().is_none());
    drop(reserve(&ledger, "acme", 1).unwrap());
    drop(ledger);
    assert_eq!(stored(folder.path(), "acme"), (95, 5, 1));
}

/// A gateway whose file is missing or empty beside a journal refuses to start with a new file.
#[test]
fn file_lost_beside_a_journal_is_not_created_anew() {
    for empty in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        credit(folder.path(), "acme", 100);
        let path = folder.path().join("state.db");
        let copy = folder.path().join("copy.db");
        open_admin(folder.path()).backup(&copy).unwrap();
        let ledger = open(folder.path());
        std::fs::remove_file(&path).unwrap();
        wait_until("the fault", || ledger.fault().is_some());
        settle(&ledger, None, &record("acme", 5));
        drop(ledger);
        if empty {
            std::fs::write(&path, "").unwrap();
        }
        for refused in [
            SqliteLedger::open(&path, CONFIG).map(drop),
            SqliteAdmin::open(&path).map(drop),
            crate::kv::sqlite::SqliteTasks::open(&path).map(drop),
        ] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("missing or empty") && message.contains("backup"), "{message}");
        }
        assert_eq!(path.exists(), empty, "a file was created");
        // As the error message says: restore a backup, to which the journal is applied.
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("state.db{ending}")));
        }
        std::fs::rename(&copy, &path).unwrap();
        drop(open(folder.path()));
        assert_eq!(stored(folder.path(), "acme"), (95, 5, 1));
        // Or remove the journal.
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_dir_all(journals(folder.path())).unwrap();
        assert_eq!(open(folder.path()).available(&id("acme")), None);
    }
}

/// A file without any table counts as lost, like an empty one.
#[test]
fn file_without_tables_beside_a_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA application_id = 7").unwrap();
    drop(Journal::create(&journals(folder.path()), DEFAULT_SEGMENT_LIMIT).unwrap());
    assert!(matches!(SqliteLedger::open(&path, CONFIG), Err(OpenError::Lost { .. })));
}

#[test]
fn file_with_a_damaged_page_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let path = folder.path().join("state.db");
    {
        let ledger = open(folder.path());
        for n in 0..2_000 {
            let request = format!("request {n}");
            drop(ledger.settle(None, &UsageRecord { request: &request, ..record("acme", 0) }));
        }
    }
    drop(open(folder.path()));
    let page = 4_096;
    let whole = std::fs::read(&path).unwrap();
    let pages = whole.len() / page;
    let mut found = 0;
    for at in 1..pages {
        std::fs::write(&path, &whole).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0; 4_096], (at * page) as u64).unwrap();
        for ending in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("state.db{ending}")));
        }
        match SqliteLedger::open(&path, CONFIG) {
            Err(OpenError::Damaged { .. }) => found += 1,
            // The damaged page is not in use.
            Ok(_) => {}
            Err(other) => panic!("page {at}: {other}"),
        }
    }
    assert!(found >= pages / 2 && found > 10, "{found} of {pages}");
}

/// The journal of an ended process is larger than one piece.
#[test]
fn journal_larger_than_one_piece_is_replayed_once() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1_000_000);
    {
        let journal = Arc::new(Journal::create(&journals(folder.path()), DEFAULT_SEGMENT_LIMIT).unwrap());
        for n in 0..20_000 {
            let request = format!("request with a rather long name {n}");
            drop(journal.append(|out| UsageRecord { request: &request, ..record("acme", 2) }.encode(out)));
            if n % 1_000 == 0 {
                journal.write_queued().unwrap();
            }
        }
        journal.write_queued().unwrap();
    }
    let size = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
    let sizes: u64 = std::fs::read_dir(journals(folder.path())).unwrap().map(size).sum();
    assert!(sizes > 3 << 19, "{sizes}");
    drop(open(folder.path()));
    assert_eq!(stored(folder.path(), "acme"), (960_000, 40_000, 20_000));
}
