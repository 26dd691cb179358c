//! The ledger under a loss of power, simulated: what a process does to its files is written down; for many moments the
//! disk is built that a loss of power would have left, with none, some or all of what was not synced, and the ledger is
//! opened on it. What was said to be on the disk must be there; nothing may be there twice; everything must add up.

#![cfg(all(feature = "proxy", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

#[path = "ledger_power/disk.rs"]
mod disk;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use disk::{Entry, Luck};
use model_gateway::store::journal::SEGMENT;
use model_gateway::store::sqlite_ledger::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig, UsageFilter};
use model_gateway::store::{AccountId, Ledger, UsageRecord};
use rand::RngExt as _;

/// Moments at which the power is cut, each with three kinds of luck.
const CUTS: usize = 100;
/// Processes, one after the other; all but the last are killed.
const PROCESSES: usize = 6;
const FOLDER: &str = "POWER_FOLDER";
const LOG: &str = "POWER_LOG";
/// 2026-01-01, in Unix milliseconds.
const TIME: i64 = 1_767_225_600_000;

fn database(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

/// What is done under the eyes of the shim. Marks say what has been promised.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut marks = File::options().create(true).append(true).open(folder.join("marks")).unwrap();
    let mut mark = |text: String| marks.write_all(text.as_bytes()).unwrap();
    let terms = SqliteLedgerConfig {
        flush: Duration::from_millis(10),
        records: Duration::from_secs(40_000 * 86_400),
        segment: SEGMENT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let desk = SqliteAdmin::open(&database(&folder)).unwrap();
    let _ = desk.create(&AccountId::new("acme").unwrap());
    let mut random = rand::rng();
    let process = std::process::id();
    let until = Instant::now() + Duration::from_millis(400);
    let mut n = 0;
    while Instant::now() < until {
        let book = SqliteLedger::open(&database(&folder), terms).unwrap();
        for _ in 0..random.random_range(5..30) {
            for _ in 0..random.random_range(0..20) {
                n += 1;
                let (request, cost) = (format!("{process}-{n}"), random.random_range(0..60));
                let record = UsageRecord {
                    time: TIME,
                    request: &request,
                    account: "acme",
                    key: "alice",
                    model: "gpt-4o",
                    cost,
                    ..UsageRecord::default()
                };
                book.settle(None, &record).wait(Duration::from_secs(20)).unwrap();
                mark(format!("confirmed {request} {cost}"));
            }
            match random.random_range(0..4) {
                0 => {
                    runtime.block_on(book.flush().within(Duration::from_secs(20))).unwrap();
                    mark("durable".to_owned());
                }
                1 => {
                    n += 1;
                    let reference = format!("{process}-{n}");
                    desk.credit("acme", 1_000, "", Some(&reference)).unwrap();
                    mark(format!("credited {reference}"));
                }
                _ => std::thread::park_timeout(Duration::from_millis(random.random_range(0..12))),
            }
        }
    }
}

/// Runs the child under the shim; returns what it did. Nothing, where there is no C compiler.
fn watched(folder: &Path, beside: &Path) -> Option<Vec<Entry>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger_power/shim.c");
    let (shim, log) = (beside.join("shim.so"), beside.join("log"));
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&shim)
        .arg(&source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("GATEWAY_REQUIRE_ALL").is_none(), "no C compiler");
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no C compiler on this machine");
        return None;
    }
    for process in 1..=PROCESSES {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child", "--test-threads", "1"])
            .env("LD_PRELOAD", &shim)
            .env(FOLDER, folder)
            .env(LOG, &log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if process < PROCESSES {
            std::thread::park_timeout(Duration::from_millis(rand::rng().random_range(100..380)));
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            assert!(child.wait().unwrap().success());
        }
    }
    Some(disk::entries(&std::fs::read(log).unwrap()))
}

/// What was promised up to a moment.
#[derive(Default)]
struct Promised<'a> {
    /// Cost and time of what was settled.
    confirmed: HashMap<&'a str, (i64, u64)>,
    /// Of those, what must be on the disk.
    durable: HashSet<&'a str>,
    credits: HashSet<&'a str>,
}

impl<'a> Promised<'a> {
    fn at(entries: &'a [Entry]) -> Self {
        let mut promised = Promised::default();
        for entry in entries.iter().filter(|entry| entry.kind == b'W' && entry.path.ends_with("marks")) {
            let words: Vec<&str> = std::str::from_utf8(&entry.data).unwrap().split(' ').collect();
            match words[..] {
                ["confirmed", request, cost] => {
                    promised.confirmed.insert(request, (cost.parse().unwrap(), entry.time));
                }
                ["durable"] => promised.durable = promised.confirmed.keys().copied().collect(),
                ["credited", reference] => drop(promised.credits.insert(reference)),
                _ => panic!("{words:?}"),
            }
        }
        promised
    }
}

#[test]
fn a_loss_of_power_costs_only_the_last_moments() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(entries) = watched(folder.path(), beside.path()) else { return };
    let mut costs: HashMap<&str, i64> = HashMap::new();
    let whole = Promised::at(&entries);
    costs.extend(whole.confirmed.iter().map(|(request, (cost, _))| (*request, *cost)));
    assert!(costs.len() > 500 && whole.credits.len() > 10, "the shim saw {} settlements", costs.len());
    let first = entries.iter().position(|entry| entry.path.ends_with("marks")).unwrap();
    let (mut most, mut oldest, mut sum) = (0, 0, 0);
    for cut in 0..CUTS {
        let moment = rand::rng().random_range(first..=entries.len());
        let before = &entries[..moment];
        let promised = Promised::at(before);
        for luck in [Luck::None, Luck::Some, Luck::All] {
            let image = tempfile::tempdir_in(beside.path()).unwrap();
            disk::build(before, folder.path(), image.path(), luck);
            let told = format!("cut {cut} after {moment} of {} entries, {luck:?}", entries.len());
            let seen = examine(image.path(), &promised, &told);
            for (request, cost) in &seen {
                // What was under way when a process was killed was settled and not said.
                assert!(costs.get(request.as_str()).is_none_or(|known| known == cost), "{told}: {request}");
            }
            let lost = promised.confirmed.iter().filter(|(request, _)| !seen.contains_key(**request));
            let times: Vec<u64> = lost.map(|(_, (_, time))| *time).collect();
            if matches!(luck, Luck::All) {
                assert!(
                    times.is_empty(),
                    "{told}: this is the end of the process alone, and it lost {times:?}"
                );
            }
            let now = before.last().map_or(0, |entry| entry.time);
            let age = times.iter().min().map_or(0, |time| (now - time) / 1_000_000);
            (most, oldest, sum) = (most.max(times.len()), oldest.max(age), sum + times.len());
        }
    }
    println!(
        "{CUTS} cuts of power, 3 disks each, {} settlements, flushed every 10 ms: at most {most} lost at a cut, the \
         oldest of them {oldest} ms old, {:.1} on average; none of those that were on the disk, none twice",
        costs.len(),
        sum as f64 / (CUTS * 3) as f64,
    );
}

/// Opens the ledger on a disk that was left, and holds it against what was promised. Returns what is recorded.
fn examine(image: &Path, promised: &Promised<'_>, told: &str) -> HashMap<String, i64> {
    let desk = SqliteAdmin::open(&database(image)).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(desk.audit().unwrap(), Vec::<String>::new(), "{told}");
    let mut seen = HashMap::new();
    let all = UsageFilter { from: 0, to: 100_000, ..UsageFilter::default() };
    desk.records(&all, &mut |record| {
        assert!(seen.insert(record.request.to_owned(), record.cost).is_none(), "{told}: twice");
        Ok(())
    })
    .unwrap();
    for request in &promised.durable {
        assert!(seen.contains_key(*request), "{told}: {request} was on the disk");
    }
    if let Ok(account) = desk.account("acme") {
        assert_eq!(account.charged, seen.values().sum::<i64>(), "{told}");
        let credits = desk.credits("acme", u32::MAX).unwrap();
        let credits: HashSet<&str> =
            credits.iter().filter_map(|credit| credit.reference.as_deref()).collect();
        assert!(promised.credits.is_subset(&credits), "{told}: a credit is lost");
        assert!(account.credited == 1_000 * i64::try_from(credits.len()).unwrap());
    } else {
        assert!(promised.credits.is_empty() && seen.is_empty(), "{told}: the account is lost");
    }
    seen
}
