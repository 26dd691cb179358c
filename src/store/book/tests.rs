//! What whoever charges money by the ledger may rely on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::canonical::Usage;
use crate::store::schema;

const TERMS: Terms = Terms { flush: Duration::from_millis(20), records: Duration::from_secs(400 * 86_400) };
const PATIENCE: Duration = Duration::from_secs(20);

fn open(folder: &Path) -> Book {
    Book::open(&folder.join("state.db"), TERMS).unwrap()
}

/// Another program at the same file.
fn other(folder: &Path) -> rusqlite::Connection {
    schema::open(&folder.join("state.db")).unwrap()
}

fn credit(folder: &Path, account: &str, amount: i64) {
    let connection = other(folder);
    let stamp = entries::next_stamp(&connection).unwrap();
    connection
        .execute(
            "INSERT INTO account (name, created, enabled, credited, changed) VALUES (?1, 0, TRUE, ?2, ?3)
             ON CONFLICT (name) DO UPDATE SET credited = credited + ?2, changed = ?3",
            rusqlite::params![account, amount, stamp],
        )
        .unwrap();
}

/// Balance, charges and requests of an account, as they stand in the file.
fn stored(folder: &Path, account: &str) -> (i64, i64, i64) {
    let connection = other(folder);
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

fn reserve(book: &Book, account: &str, amount: i64) -> Result<Reservation, Refused> {
    match book.reserve(&id(account), amount) {
        Held::Known(outcome) => outcome,
        Held::Pending(_) => panic!("it is known at once"),
    }
}

fn settle(book: &Book, reservation: Option<Reservation>, record: &UsageRecord<'_>) {
    assert!(matches!(book.settle(reservation, record), Settled::Known(Ok(()))));
}

async fn flush(book: &Book) {
    book.flush().within(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn what_is_held_cannot_be_spent_again_and_what_is_left_can() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let book = open(folder.path());
    let held = reserve(&book, "acme", 70).unwrap();
    assert_eq!(held.amount(), 70);
    assert_eq!(reserve(&book, "acme", 31).unwrap_err(), Refused::Empty { available: 30 });
    settle(&book, Some(held), &record("acme", 25));
    assert_eq!(book.available(&id("acme")), Some(75));
    drop(reserve(&book, "acme", 75).unwrap());
    assert_eq!(book.available(&id("acme")), Some(75));
    // What a request costs beyond what was held is charged nevertheless, and then there is nothing to hold.
    let held = reserve(&book, "acme", 75).unwrap();
    settle(&book, Some(held), &record("acme", 80));
    assert_eq!(book.available(&id("acme")), Some(-5));
    assert_eq!(reserve(&book, "acme", 1).unwrap_err(), Refused::Empty { available: -5 });
    flush(&book).await;
    assert_eq!(stored(folder.path(), "acme"), (-5, 105, 2));
}

#[tokio::test]
async fn accounts_that_are_not_there_or_disabled_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 100);
    let book = open(folder.path());
    assert_eq!(reserve(&book, "nobody", 0).unwrap_err(), Refused::UnknownAccount);
    other(folder.path())
        .execute_batch("UPDATE account SET enabled = FALSE, changed = (SELECT MAX(changed) + 1 FROM account)")
        .unwrap();
    flush(&book).await;
    assert_eq!(reserve(&book, "acme", 0).unwrap_err(), Refused::Disabled);
    // What is under way is charged for nevertheless.
    settle(&book, None, &record("acme", 7));
    flush(&book).await;
    assert_eq!(stored(folder.path(), "acme"), (93, 7, 1));
    assert_eq!(book.available(&id("acme")), Some(93));
}

#[tokio::test]
async fn a_request_without_an_account_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let book = open(folder.path());
    settle(&book, None, &record("", 7));
    let spent = book.spent_since(0).within(PATIENCE).await.unwrap();
    let expected = Spent { day: 19_675, account: String::new(), key: "alice".to_owned(), cost: 7 };
    assert_eq!(spent, [expected]);
}

/// An account may be charged before the file knows it: then it is there with what others credit.
#[tokio::test]
async fn what_others_credit_and_charge_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()), open(folder.path()));
    settle(&one, None, &record("acme", 5));
    credit(folder.path(), "acme", 100);
    flush(&one).await;
    flush(&two).await;
    for book in [&one, &two] {
        assert_eq!(book.available(&id("acme")), Some(95));
    }
    let held = reserve(&one, "acme", 20).unwrap();
    settle(&two, None, &record("acme", 30));
    flush(&two).await;
    flush(&one).await;
    assert_eq!(one.available(&id("acme")), Some(45));
    settle(&one, Some(held), &record("acme", 1));
    flush(&one).await;
    flush(&two).await;
    for book in [&one, &two] {
        assert_eq!(book.available(&id("acme")), Some(64));
    }
    assert_eq!(stored(folder.path(), "acme"), (64, 36, 3));
}

/// The journal of a process that ended is brought in once, whoever comes first.
#[tokio::test]
async fn what_was_settled_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    {
        let journal = Journal::create(&schema::journals(&folder.path().join("state.db"))).unwrap();
        for cost in 1..=10 {
            journal.append(|out| record("acme", cost).encode(out)).unwrap();
        }
    }
    let (one, two) = (open(folder.path()), open(folder.path()));
    for book in [&one, &two] {
        assert_eq!(book.available(&id("acme")), Some(945));
    }
    drop((one, two));
    assert_eq!(stored(folder.path(), "acme"), (945, 55, 10));
    let left = std::fs::read_dir(schema::journals(&folder.path().join("state.db"))).unwrap().count();
    assert_eq!(left, 0, "files of journals are left");
}

#[test]
fn many_threads_never_hold_more_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let book = Arc::new(open(folder.path()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let book = book.clone();
            std::thread::spawn(move || {
                let mut spent = 0;
                for n in 0..2000 {
                    if let Ok(held) = reserve(&book, "acme", 3) {
                        if n % 2 == 0 {
                            settle(&book, Some(held), &record("acme", 2));
                            spent += 2;
                        }
                    }
                    assert!(book.available(&id("acme")).unwrap() >= 0);
                }
                spent
            })
        })
        .collect();
    let spent: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(spent >= 996, "{spent}");
    assert_eq!(book.available(&id("acme")), Some(1000 - spent));
    drop(book);
    assert_eq!(stored(folder.path(), "acme"), (1000 - spent, spent, spent / 2));
}

/// While another program holds the file, charges wait; afterwards they are there, once.
#[tokio::test]
async fn a_database_that_is_held_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    credit(folder.path(), "acme", 1000);
    let book = open(folder.path());
    let holder = other(folder.path());
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    settle(&book, None, &record("acme", 1));
    assert!(matches!(book.flush().within(PATIENCE).await, Err(StoreError::Failed(_))));
    settle(&book, None, &record("acme", 2));
    assert_eq!(book.available(&id("acme")), Some(997));
    holder.execute_batch("ROLLBACK").unwrap();
    flush(&book).await;
    flush(&book).await;
    assert_eq!(stored(folder.path(), "acme"), (997, 3, 2));
}
