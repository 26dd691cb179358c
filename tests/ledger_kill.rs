//! Crash safety of the ledger under `kill -9`: processes that settle continuously are killed at random moments, two
//! hundred times, while others run and accounts are credited. Afterwards every confirmed settlement is charged exactly
//! once and the sums agree.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use model_gateway::canonical::Usage;
use model_gateway::ledger::admin::LedgerAdmin as _;
use model_gateway::ledger::backend::sqlite::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig};
use model_gateway::ledger::report::UsageFilter;
use model_gateway::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use model_gateway::ledger::{AccountId, Ledger, ReserveOutcome, UsageRecord};
use rand::{Rng as _, RngExt as _};

/// Number of kills.
const KILLS: usize = 200;
/// Maximum duration of the test. A machine that is too slow to reach `KILLS` in this time fails the test.
const BOUND: Duration = Duration::from_secs(240);
/// Number of concurrent processes, as during an upgrade.
const TOGETHER: usize = 2;
const ACCOUNTS: usize = 5;
const THREADS: usize = 2;
/// Environment variable with the folder of the database.
const FOLDER: &str = "LEDGER_KILL_FOLDER";
/// 2026-01-01, in Unix milliseconds.
const TIME: i64 = 1_767_225_600_000;

fn file(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

fn account(n: usize) -> AccountId {
    AccountId::new(&format!("account-{n}")).unwrap()
}

/// Child process: settles until it is killed and prints each confirmed settlement as a line, with one write for a line.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let terms = SqliteLedgerConfig {
        flush: Duration::from_millis(15),
        records: Duration::from_secs(40_000 * 86_400),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    let book = SqliteLedger::open(&file(Path::new(&folder)), terms).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let book = &book;
            scope.spawn(move || {
                let mut random = rand::rng();
                let process = std::process::id();
                let mut n = 0;
                while Instant::now() < until {
                    n += 1;
                    let account = account(random.random_range(0..ACCOUNTS));
                    let ReserveOutcome::Known(outcome) = book.reserve(&account, random.random_range(0..50))
                    else {
                        panic!()
                    };
                    let Ok(held) = outcome else { continue };
                    // Some requests end without a charge.
                    if random.random_range(0..5) == 0 {
                        drop(held);
                        continue;
                    }
                    let cost = random.random_range(0..60);
                    let request = format!("{process}-{:08x}-{thread}-{n}", random.next_u32());
                    let record = record(&request, account.as_str(), cost);
                    book.settle(Some(held), &record).wait(BOUND).unwrap();
                    let line = format!("confirmed {request} {cost} {account}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                    if n % 16 == 0 {
                        // The pipe is read by a single thread.
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
}

fn record<'a>(request: &'a str, account: &'a str, cost: i64) -> UsageRecord<'a> {
    UsageRecord {
        time: TIME,
        request,
        account,
        key: "alice",
        model: "gpt-4o",
        status: 200,
        usage: Usage { output: Some(cost.unsigned_abs()), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture", "--test-threads", "1"])
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a child and records the settlements that it had confirmed.
fn kill(mut child: Child, early: String, confirmed: &mut HashMap<String, (i64, String)>) {
    child.kill().unwrap();
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    child.wait().unwrap();
    let said = early + &String::from_utf8(rest).unwrap();
    for line in said.lines().filter_map(|line| line.split_once("confirmed ")) {
        let mut words = line.1.split(' ');
        let (request, cost) = (words.next().unwrap(), words.next().unwrap());
        // The last line of a child may be incomplete.
        let Some(account) = words.next().filter(|account| account.len() == "account-0".len()) else {
            continue;
        };
        let before = confirmed.insert(request.to_owned(), (cost.parse().unwrap(), account.to_owned()));
        assert!(before.is_none(), "{request} was confirmed twice");
    }
}

/// Waits until a child has started, unless `wait` is false.
fn first_word(child: &mut Child, wait: bool) -> String {
    let mut word = [0; 1];
    if wait && child.stdout.as_mut().unwrap().read(&mut word).unwrap() == 1 {
        return char::from(word[0]).to_string();
    }
    String::new()
}

#[test]
fn ledger_with_killed_processes_charges_everything_once() {
    let folder = tempfile::tempdir().unwrap();
    let desk = SqliteAdmin::open(&file(folder.path())).unwrap();
    desk.create_many((0..ACCOUNTS).map(account)).unwrap();
    let begun = Instant::now();
    let credited = AtomicI64::new(0);
    let mut confirmed = HashMap::new();
    let mut random = rand::rng();
    let mut running: Vec<(Child, String)> = Vec::new();
    let mut kills = 0;
    while kills < KILLS && begun.elapsed() < BOUND {
        while running.len() < TOGETHER {
            let mut child = start(folder.path());
            // One in eight is killed during its start, while it replays the journals of other processes.
            let word = first_word(&mut child, random.random_range(0..8) > 0);
            running.push((child, word));
        }
        for n in 0..ACCOUNTS {
            let amount = random.random_range(500..4_000);
            desk.credit(account(n).as_str(), amount, "", None).unwrap();
            credited.fetch_add(amount, Ordering::Relaxed);
        }
        std::thread::park_timeout(Duration::from_micros(random.random_range(0..40_000)));
        let (child, word) = running.swap_remove(random.random_range(0..running.len()));
        kill(child, word, &mut confirmed);
        kills += 1;
        if kills % 20 == 0 {
            assert_eq!(desk.audit().unwrap(), Vec::<String>::new());
        }
    }
    for (child, word) in running {
        kill(child, word, &mut confirmed);
        kills += 1;
    }
    drop(desk);

    // Opening the database replays the journals that the killed processes left.
    let desk = SqliteAdmin::open(&file(folder.path())).unwrap();
    assert_eq!(desk.audit().unwrap(), Vec::<String>::new());
    let mut charged: HashMap<String, i64> = HashMap::new();
    let mut unconfirmed = 0;
    let all = UsageFilter { from: 0, to: 100_000, ..UsageFilter::default() };
    let mut seen: HashMap<String, i64> = HashMap::new();
    desk.records(&all, &mut |record| {
        assert!(seen.insert(record.request.to_owned(), record.cost).is_none(), "{} twice", record.request);
        *charged.entry(record.account.to_owned()).or_default() += record.cost;
        unconfirmed += usize::from(!confirmed.contains_key(record.request));
        Ok(())
    })
    .unwrap();
    let lost = confirmed.iter().filter(|(request, (cost, _))| seen.get(*request) != Some(cost)).count();
    let accounts = desk.accounts().unwrap();
    for account in &accounts {
        assert_eq!(account.charged, charged.get(&account.name).copied().unwrap_or(0), "{}", account.name);
    }
    let balances: i64 = accounts.iter().map(|account| account.balance()).sum();
    let costs: i64 = seen.values().sum();
    println!(
        "{kills} kills in {:.0} s: {} settlements confirmed, {lost} of them lost, {unconfirmed} charged and not yet \
         confirmed when the end came; credits {} = balances {balances} + charges {costs}",
        begun.elapsed().as_secs_f64(),
        confirmed.len(),
        credited.load(Ordering::Relaxed),
    );
    assert_eq!(lost, 0);
    assert_eq!(credited.load(Ordering::Relaxed), balances + costs);
    // At most one for each killed thread: settled, but not printed yet.
    assert!(unconfirmed <= kills * THREADS, "{unconfirmed}");
    assert!(kills >= KILLS, "only {kills} kills within the bound");
    assert!(confirmed.len() > KILLS * 10, "only {} settlements: there was no load", confirmed.len());
}
