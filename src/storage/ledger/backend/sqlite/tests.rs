//! Guarantees of the SQLite ledger to its callers.

mod faults;
mod model;
mod usage;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::ledger::admin::{AdminError, Credited, LedgerAdmin as _};
use crate::ledger::report::{DAY, RecordPosition, UsageFilter, UsageGrouping, UsageRow};
use crate::ledger::wal::{DEFAULT_SEGMENT_LIMIT, Journal};
use crate::store::{StoreError, schema};
use codec::canonical::Usage;

const CONFIG: SqliteLedgerConfig = SqliteLedgerConfig {
    flush: Duration::from_millis(20),
    records: Duration::from_secs(400 * 86_400),
    segment: DEFAULT_SEGMENT_LIMIT,
};
const PATIENCE: Duration = Duration::from_secs(20);

fn open(folder: &Path) -> SqliteLedger {
    SqliteLedger::open(&folder.join("state.db"), CONFIG).unwrap()
}

/// Opens a second connection to the same file.
fn open_connection(folder: &Path) -> rusqlite::Connection {
    schema::open(&folder.join("state.db")).unwrap()
}

fn credit(folder: &Path, account: &str, amount: i64) {
    let admin = SqliteAdmin::open(&folder.join("state.db")).unwrap();
    match admin.create(&id(account)) {
        Ok(()) | Err(AdminError::Exists(_)) => {}
        Err(error) => panic!("{error}"),
    }
    admin.credit(account, amount, "", None).unwrap();
}

/// Returns balance, charges and number of requests of an account, as stored in the file.
fn stored(folder: &Path, account: &str) -> (i64, i64, i64) {
    let connection = open_connection(folder);
    let balance =
        connection
            .query_row("SELECT credited - charged FROM account WHERE name = ?1", [account], |row| row.get(0));
    let sums = connection.query_row(
        "SELECT COALESCE(SUM(cost), 0), COALESCE(SUM(requests), 0) FROM daily WHERE account = ?1",
        [account],
        |row| Ok((row.get(0)?, row.get(1)?)),
    );
    let (cost, requests) = sums.unwrap();
    (balance.unwrap(), cost, requests)
}

fn id(account: &str) -> AccountId {
    AccountId::new(account).unwrap()
}

fn record(account: &'static str, cost: i64) -> UsageRecord<'static> {
    UsageRecord {
        time: 1_700_000_000_000,
        request: "req_1",
        account,
        key: "alice",
        model: "gpt-4o",
        status: 200,
        attempts: 1,
        usage: Usage { input: Some(10), output: Some(5), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

fn reserve(ledger: &SqliteLedger, account: &str, amount: i64) -> Result<Reservation, ReserveError> {
    match ledger.reserve(&id(account), amount) {
        ReserveOutcome::Known(outcome) => outcome,
        ReserveOutcome::Pending(_) => panic!("it is known at once"),
    }
}

fn settle(ledger: &SqliteLedger, reservation: Option<Reservation>, record: &UsageRecord<'_>) {
    assert_eq!(ledger.settle(reservation, record).wait(PATIENCE), Ok(()));
}

async fn flush(ledger: &SqliteLedger) {
    ledger.flush().within(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn reservation_blocks_its_amount_until_settled_or_dropped() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let ledger = open(folder.path());
    let held = reserve(&ledger, "acme", 70).unwrap();
    assert_eq!(held.amount(), 70);
    assert_eq!(reserve(&ledger, "acme", 31).unwrap_err(), ReserveError::Empty { available: 30 });
    settle(&ledger, Some(held), &record("acme", 25));
    assert_eq!(ledger.available(&id("acme")), Some(75));
    drop(reserve(&ledger, "acme", 75).unwrap());
    assert_eq!(ledger.available(&id("acme")), Some(75));
    // Cost above the reservation is charged too; after that nothing can be reserved.
    let held = reserve(&ledger, "acme", 75).unwrap();
    settle(&ledger, Some(held), &record("acme", 80));
    assert_eq!(ledger.available(&id("acme")), Some(-5));
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: -5 });
    flush(&ledger).await;
    assert_eq!(stored(folder.path(), "acme"), (-5, 105, 2));
}

#[tokio::test]
async fn reservation_of_an_unknown_or_disabled_account_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let ledger = open(folder.path());
    assert_eq!(reserve(&ledger, "unknown", 0).unwrap_err(), ReserveError::UnknownAccount);
    SqliteAdmin::open(&folder.path().join("state.db")).unwrap().set_enabled("acme", false).unwrap();
    flush(&ledger).await;
    assert_eq!(reserve(&ledger, "acme", 0).unwrap_err(), ReserveError::Disabled);
    // Requests in flight are charged even if the account is disabled meanwhile.
    settle(&ledger, None, &record("acme", 7));
    flush(&ledger).await;
    assert_eq!(stored(folder.path(), "acme"), (93, 7, 1));
    assert_eq!(ledger.available(&id("acme")), Some(93));
}

#[tokio::test]
async fn settle_without_an_account_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path());
    settle(&ledger, None, &record("", 7));
    let spent = ledger.spent_since(0).within(PATIENCE).await.unwrap();
    let expected = Spent { day: 19_675, account: String::new(), key: "alice".to_owned(), cost: 7 };
    assert_eq!(spent, [expected]);
}

/// An account may be charged before the database knows it. Credits by others make it known.
#[tokio::test]
async fn balance_follows_credits_and_charges_of_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()), open(folder.path()));
    settle(&one, None, &record("acme", 5));
    credit(folder.path(), "acme", 100);
    flush(&one).await;
    flush(&two).await;
    for ledger in [&one, &two] {
        assert_eq!(ledger.available(&id("acme")), Some(95));
    }
    let held = reserve(&one, "acme", 20).unwrap();
    settle(&two, None, &record("acme", 30));
    flush(&two).await;
    flush(&one).await;
    assert_eq!(one.available(&id("acme")), Some(45));
    settle(&one, Some(held), &record("acme", 1));
    flush(&one).await;
    flush(&two).await;
    for ledger in [&one, &two] {
        assert_eq!(ledger.available(&id("acme")), Some(64));
    }
    assert_eq!(stored(folder.path(), "acme"), (64, 36, 3));
}

/// The journal of an ended process is replayed exactly once, whichever process comes first.
#[tokio::test]
async fn journal_of_an_ended_process_is_replayed_once() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    {
        let folder = schema::journals(&folder.path().join("state.db"));
        let journal = Arc::new(Journal::create(&folder, DEFAULT_SEGMENT_LIMIT).unwrap());
        for cost in 1..=10 {
            drop(journal.append(|out| record("acme", cost).encode(out)));
        }
        journal.write_queued().unwrap();
    }
    let (one, two) = (open(folder.path()), open(folder.path()));
    for ledger in [&one, &two] {
        assert_eq!(ledger.available(&id("acme")), Some(945));
    }
    drop((one, two));
    assert_eq!(stored(folder.path(), "acme"), (945, 55, 10));
    let left = std::fs::read_dir(schema::journals(&folder.path().join("state.db"))).unwrap().count();
    assert_eq!(left, 0, "files of journals are left");
}

#[test]
fn reservation_from_many_threads_never_exceeds_the_balance() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let ledger = Arc::new(open(folder.path()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let ledger = ledger.clone();
            std::thread::spawn(move || {
                let mut spent = 0;
                for n in 0..2000 {
                    if let Ok(held) = reserve(&ledger, "acme", 3)
                        && n % 2 == 0
                    {
                        settle(&ledger, Some(held), &record("acme", 2));
                        spent += 2;
                    }
                    assert!(ledger.available(&id("acme")).unwrap() >= 0);
                }
                spent
            })
        })
        .collect();
    let spent: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(spent >= 996, "{spent}");
    assert_eq!(ledger.available(&id("acme")), Some(1000 - spent));
    drop(ledger);
    assert_eq!(stored(folder.path(), "acme"), (1000 - spent, spent, spent / 2));
}

/// While another connection locks the file, charges wait; afterwards each is applied once.
#[tokio::test]
async fn database_locked_by_others_delays_charges_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let ledger = open(folder.path());
    let holder = open_connection(folder.path());
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    settle(&ledger, None, &record("acme", 1));
    assert!(matches!(ledger.flush().within(PATIENCE).await, Err(StoreError::Failed(_))));
    settle(&ledger, None, &record("acme", 2));
    assert_eq!(ledger.available(&id("acme")), Some(997));
    holder.execute_batch("ROLLBACK").unwrap();
    flush(&ledger).await;
    assert_eq!(stored(folder.path(), "acme"), (997, 3, 2));
}

fn open_admin(folder: &Path) -> SqliteAdmin {
    SqliteAdmin::open_existing(&folder.join("state.db")).unwrap()
}

/// Reports are read while a gateway writes: opening waits for no lock, which it would have to give up on after a while.
#[test]
fn admin_opens_and_reads_while_another_connection_writes() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let holder = open_connection(folder.path());
    holder.execute_batch("BEGIN IMMEDIATE; UPDATE account SET charged = charged + 1").unwrap();
    let admins = [(); 8].map(|()| open_admin(folder.path()));
    for admin in admins {
        assert_eq!(admin.account("acme").unwrap().balance(), 1000);
    }
    holder.execute_batch("COMMIT").unwrap();
    assert_eq!(open_admin(folder.path()).account("acme").unwrap().balance(), 999);
}

/// The pages of removed records are given back to the disk.
#[test]
fn file_is_created_so_that_it_can_shrink() {
    let folder = tempfile::tempdir().unwrap();
    let read = |connection: &rusqlite::Connection| -> i64 {
        connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap()
    };
    let (incremental, created) = (2, open_connection(folder.path()));
    assert_eq!((read(&created), read(&open_connection(folder.path()))), (incremental, incremental));
}

#[test]
fn credit_with_a_reference_is_applied_once() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        SqliteAdmin::open_existing(&folder.path().join("state.db")),
        Err(OpenError::Missing(_))
    ));
    credit(folder.path(), "acme", 5);
    let admin = open_admin(folder.path());
    let first = admin.credit("acme", 100, "January", Some("inv-1")).unwrap();
    assert_eq!(first, Credited { balance: 105, repeated: false });
    let again = admin.credit("acme", 100, "January", Some("inv-1")).unwrap();
    assert_eq!(again, Credited { balance: 105, repeated: true });
    let conflict = admin.credit("acme", 101, "January", Some("inv-1"));
    assert!(matches!(conflict, Err(AdminError::Reference { amount: 100, .. })), "{conflict:?}");
    admin.create(&id("other")).unwrap();
    assert!(!admin.credit("other", 100, "", Some("inv-1")).unwrap().repeated);
    assert_eq!(admin.credit("acme", -30, "taken back", None).unwrap().balance, 75);
    assert!(matches!(admin.credit("acme", i64::MAX, "", None), Err(AdminError::TooLarge)));
    assert!(matches!(admin.credit("unknown", 1, "", None), Err(AdminError::Unknown(_))));
    assert!(matches!(admin.create(&id("acme")), Err(AdminError::Exists(_))));
    let entries: Vec<(i64, String)> = admin
        .credits("acme", None, 2)
        .unwrap()
        .into_iter()
        .map(|credit| (credit.amount, credit.note))
        .collect();
    assert_eq!(entries, [(-30, "taken back".to_owned()), (100, "January".to_owned())]);
    assert!(admin.audit().unwrap().is_empty());
}

fn sums(lines: &[UsageRow]) -> Vec<(&str, i64, i64, i64)> {
    lines
        .iter()
        .map(|line| (line.name.as_str(), line.sums.requests, line.sums.failed, line.sums.cost))
        .collect()
}

#[test]
fn usage_is_summed_by_group_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    // The records are of 1970. No sweep that comes before the end of this test may find them expired.
    let forever = SqliteLedgerConfig { records: Duration::from_secs(40_000 * 86_400), ..CONFIG };
    let ledger = SqliteLedger::open(&folder.path().join("state.db"), forever).unwrap();
    let day = DAY;
    for (request, account, model, time, cost, status) in [
        ("r1", "acme", "gpt-4o", 10 * day, 5, 200),
        ("r2", "acme", "gpt-4o", 10 * day + 1, 6, 200),
        ("r3", "acme", "claude", 11 * day - 1, 0, 502),
        ("r4", "acme", "claude", 11 * day, 70, 200),
        ("r5", "", "claude", 11 * day, 0, 200),
        ("r6", "acme", "claude", 12 * day, 9, 200),
    ] {
        settle(&ledger, None, &UsageRecord { request, account, model, time, cost, status, ..record("", 0) });
    }
    drop(ledger);
    let admin = open_admin(folder.path());
    let filter = UsageFilter { from: 10, to: 12, ..UsageFilter::default() };
    assert_eq!(
        sums(&admin.usage(&filter, UsageGrouping::Day).unwrap()),
        [("10", 3, 1, 11), ("11", 2, 0, 70)]
    );
    assert_eq!(
        sums(&admin.usage(&filter, UsageGrouping::Model).unwrap()),
        [("claude", 3, 1, 70), ("gpt-4o", 2, 0, 11)]
    );
    assert_eq!(
        sums(&admin.usage(&filter, UsageGrouping::Account).unwrap()),
        [("acme", 4, 1, 81), ("", 1, 0, 0)]
    );
    let acme = UsageFilter { account: Some("acme".to_owned()), model: Some("claude".to_owned()), ..filter };
    let lines = admin.usage(&acme, UsageGrouping::Key).unwrap();
    assert_eq!(sums(&lines), [("alice", 2, 1, 70)]);
    assert_eq!(lines[0].sums.usage[..5], [20, 0, 0, 0, 10]);
    let mut shown = Vec::new();
    admin
        .records(&acme, &mut |record| {
            shown.push((record.request.to_owned(), record.cost));
            Ok(())
        })
        .unwrap();
    assert_eq!(shown, [("r3".to_owned(), 0), ("r4".to_owned(), 70)]);
    let none = UsageFilter { from: 500, to: 600, ..UsageFilter::default() };
    assert!(admin.usage(&none, UsageGrouping::Day).unwrap().is_empty());
}

/// Records expire; daily sums remain, so that the audit still passes.
#[test]
fn records_expire_and_daily_sums_remain() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let all = UsageFilter { from: 0, to: i64::MAX / DAY - 1, ..UsageFilter::default() };
    let count = || {
        let mut count = 0;
        let mut show = |_: &UsageRecord<'_>| {
            count += 1;
            Ok(())
        };
        open_admin(folder.path()).records(&all, &mut show).unwrap();
        count
    };
    let slow = SqliteLedgerConfig { flush: Duration::from_secs(10), ..CONFIG };
    let ledger = SqliteLedger::open(&folder.path().join("state.db"), slow).unwrap();
    settle(&ledger, None, &UsageRecord { time: 1, ..record("acme", 5) });
    settle(&ledger, None, &UsageRecord { time: crate::store::now(), ..record("acme", 6) });
    drop(ledger);
    assert_eq!(count(), 2, "both were written together and stay together");
    let ledger = open(folder.path());
    settle(&ledger, None, &UsageRecord { time: 1, ..record("acme", 7) });
    drop(ledger);
    // The next process sweeps when it starts.
    let ledger = open(folder.path());
    let deadline = std::time::Instant::now() + PATIENCE;
    while count() > 2 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    drop(ledger);
    assert_eq!(count(), 2);
    assert_eq!(stored(folder.path(), "acme"), (982, 18, 3));
    assert!(open_admin(folder.path()).audit().unwrap().is_empty());
}

#[test]
fn backup_during_writes_is_consistent() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let ledger = open(folder.path());
    let copy = folder.path().join("copy.db");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..500).for_each(|_| settle(&ledger, None, &record("acme", 1))));
        open_admin(folder.path()).backup(&copy).unwrap();
        writer.join().unwrap();
    });
    let again = open_admin(folder.path()).backup(&copy);
    assert!(matches!(again, Err(AdminError::Io { .. })), "{again:?}");
    drop(ledger);
    let copied = SqliteAdmin::open_existing(&copy).unwrap();
    assert!(copied.audit().unwrap().is_empty());
    assert!(copied.account("acme").unwrap().balance() >= 500);
    assert_eq!(open_admin(folder.path()).account("acme").unwrap().balance(), 500);
}

/// Implausible usage figures do not stop the ledger.
#[tokio::test]
async fn settle_of_implausible_figures_does_not_stop_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let ledger = open(folder.path());
    let usage = Usage { input: Some(u64::MAX), output: Some(i64::MAX.unsigned_abs()), ..Usage::default() };
    for _ in 0..10_000 {
        // The flush below applies pending outcomes, too.
        drop(ledger.settle(None, &UsageRecord { usage, ..record("acme", i64::MAX) }));
    }
    settle(&ledger, None, &record("", 5));
    flush(&ledger).await;
    assert!(matches!(reserve(&ledger, "acme", 1), Err(ReserveError::Empty { available }) if available < 0));
    let (balance, cost, requests) = stored(folder.path(), "acme");
    assert!(balance < -i64::MAX / 4 && cost == i64::MAX && requests == 10_000, "{balance} {cost}");
    assert_eq!(stored_requests(folder.path(), ""), 1);
}

fn stored_requests(folder: &Path, account: &str) -> i64 {
    let lines = open_admin(folder)
        .usage(
            &UsageFilter { account: Some(account.to_owned()), to: 100_000, ..UsageFilter::default() },
            UsageGrouping::Account,
        )
        .unwrap();
    lines.iter().map(|line| line.sums.requests).sum()
}

/// A key may name an account before it is created. Its cost until then becomes the account's debt.
#[tokio::test]
async fn settle_before_the_account_exists_becomes_its_debt() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path());
    settle(&ledger, None, &record("acme", 5));
    flush(&ledger).await;
    settle(&ledger, None, &record("acme", 7));
    credit(folder.path(), "acme", 100);
    flush(&ledger).await;
    assert_eq!(ledger.available(&id("acme")), Some(88));
    assert_eq!(stored(folder.path(), "acme"), (88, 12, 2));
    assert!(open_admin(folder.path()).audit().unwrap().is_empty());
}

/// The database is locked and the disk is full: new reservations fail, and earlier requests are charged later, once.
#[tokio::test]
async fn database_locked_and_disk_full_delays_charges_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let ledger = open(folder.path());
    let held = [reserve(&ledger, "acme", 10).unwrap(), reserve(&ledger, "acme", 10).unwrap()];
    let holder = open_connection(folder.path());
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    settle(&ledger, None, &record("acme", 1));
    // One segment waits to be applied, and the other one is full.
    assert!(ledger.flush().within(PATIENCE).await.is_err());
    (0..4).for_each(|_| settle(&ledger, None, &record("acme", 0)));
    ledger.shared.journal.set_limit(0);
    for held in held {
        let outcome = ledger.settle(Some(held), &record("acme", 2)).within(PATIENCE).await;
        assert!(matches!(outcome, Err(StoreError::Failed(_))), "{outcome:?}");
    }
    assert_eq!(ledger.available(&id("acme")), Some(995));
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Unavailable);
    holder.execute_batch("ROLLBACK").unwrap();
    assert!(ledger.flush().within(PATIENCE).await.is_err(), "the disk is still full");
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Unavailable);
    // The limit is raised: the segment accepts frames again.
    ledger.shared.journal.set_limit(200);
    flush(&ledger).await;
    drop(reserve(&ledger, "acme", 1).unwrap());
    drop(ledger);
    assert_eq!(stored(folder.path(), "acme"), (995, 5, 7));
}
