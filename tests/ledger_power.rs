//! Crash safety of the ledger at a power loss, simulated: a shim records all file operations of a process. For many
//! moments the test rebuilds the disk that a power loss would leave, with none, some or all of the unsynced writes, and
//! opens the ledger on it. Everything that was reported as durable must be there, nothing may be there twice, and the
//! sums agree.

#![cfg(target_os = "linux")]
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
use model_gateway::ledger::admin::LedgerAdmin as _;
use model_gateway::ledger::backend::sqlite::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig};
use model_gateway::ledger::report::UsageFilter;
use model_gateway::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use model_gateway::ledger::{AccountId, Ledger, UsageRecord};
use rand::RngExt as _;

/// Number of moments at which the power is cut, each with three kinds of luck.
const CUTS: usize = 100;
/// Number of processes, one after the other. All but the last are killed.
const PROCESSES: usize = 6;
const FOLDER: &str = "POWER_FOLDER";
const LOG: &str = "POWER_LOG";
/// 2026-01-01, in Unix milliseconds.
const TIME: i64 = 1_767_225_600_000;

fn database(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

/// Child process that runs under the shim. The file `marks` records what the ledger has confirmed.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut marks = File::options().create(true).append(true).open(folder.join("marks")).unwrap();
    let mut mark = |text: String| marks.write_all(text.as_bytes()).unwrap();
    let terms = SqliteLedgerConfig {
        flush: Duration::from_millis(10),
        records: Duration::from_secs(40_000 * 86_400),
        segment: DEFAULT_SEGMENT_LIMIT,
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

/// Runs the child processes under the shim and returns their file operations. `None` if there is no C compiler.
fn watched(folder: &Path, beside: &Path) -> Option<Vec<Entry>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger_power/shim.c");
    let (shim, log) = (beside.join("shim.so"), beside.join("log"));
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&shim)
        .arg(&source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "no C compiler, and GATEWAY_REQUIRE_ALL=1");
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
            // Between two operations: one that took effect and is not in the log would be missing from the disk that is
            // rebuilt, and with it what the next process wrote behind it. The first process creates the log.
            let between = File::options().create(true).append(true).open(&log).unwrap();
            between.lock().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            assert!(child.wait().unwrap().success());
        }
    }
    Some(disk::entries(&std::fs::read(log).unwrap()))
}

/// Guarantees that the ledger had given up to a moment.
#[derive(Default)]
struct Promised<'a> {
    /// Cost and time of each confirmed settlement.
    confirmed: HashMap<&'a str, (i64, u64)>,
    /// Confirmed settlements that a flush has made durable.
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
fn ledger_power_loss_loses_only_unsynced_settlements() {
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
                // A settlement that was in progress when its process was killed has no mark.
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

/// Opens the ledger on a rebuilt disk, checks it against the guarantees, and returns the cost of each recorded request.
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
        let credits = desk.credits("acme", None, u32::MAX).unwrap();
        let credits: HashSet<&str> =
            credits.iter().filter_map(|credit| credit.reference.as_deref()).collect();
        assert!(promised.credits.is_subset(&credits), "{told}: a credit is lost");
        assert!(account.credited == 1_000 * i64::try_from(credits.len()).unwrap());
    } else {
        assert!(promised.credits.is_empty() && seen.is_empty(), "{told}: the account is lost");
    }
    seen
}
