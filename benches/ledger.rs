//! Cost of the ledger in SQLite: `cargo bench --bench ledger -- hot`, `-- awaited 200000`, `-- paced 1000` (requests
//! per second), `-- accounts 100000`, `-- records 20000000`. CPU time comes from the kernel's per-thread accounting, so
//! that other load on the machine matters little.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a tool, run by hand")]

use std::path::Path;
use std::time::{Duration, Instant};

use codec::canonical::Usage;
use storage::ledger::admin::LedgerAdmin as _;
use storage::ledger::backend::sqlite::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig};
use storage::ledger::report::{UsageFilter, UsageGrouping};
use storage::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use storage::ledger::{AccountId, Ledger, ReserveOutcome, Settled, UsageRecord};

const TERMS: SqliteLedgerConfig = SqliteLedgerConfig {
    flush: Duration::from_millis(100),
    records: Duration::from_secs(4000 * 86_400),
    segment: DEFAULT_SEGMENT_LIMIT,
};
const DAY: i64 = 86_400_000;
/// 2026-01-01, in Unix milliseconds.
const FIRST: i64 = 20_454 * DAY;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let count = |default| arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(default);
    let folder = tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or_else(|_| ".".to_owned())).unwrap();
    let file = folder.path().join("state.db");
    match arguments.first().map(String::as_str) {
        Some("awaited") => awaited(&file, count(200_000)),
        Some("paced") => paced(&file, count(1_000)),
        Some("accounts") => accounts(&file, count(100_000)),
        Some("records") => records(&file, count(20_000_000)),
        _ => hot(&file, count(1_000_000)),
    }
}

/// Returns the CPU time of this process's threads whose names begin with `name`, in nanoseconds.
fn ran(name: &str) -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim_end().starts_with(name) {
            sum += read("schedstat").split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

fn own() -> u64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedule.split(' ').next().unwrap().parse().unwrap()
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn record<'a>(names: &'a [String; 3], request: &'a str, time: i64, cost: i64) -> UsageRecord<'a> {
    UsageRecord {
        time,
        request,
        account: &names[0],
        key: &names[1],
        model: &names[2],
        provider: "openai",
        target: "gpt-4o-2024-11-20",
        endpoint: "chat",
        client_format: "chat",
        provider_format: "chat",
        status: 200,
        attempts: 1,
        first_byte: Some(412),
        total: 3_801,
        stream: true,
        usage: Usage { input: Some(1_850), cached: Some(1_024), output: Some(411), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

fn reserve(book: &SqliteLedger, account: &AccountId, amount: i64) -> storage::ledger::Reservation {
    match book.reserve(account, amount) {
        ReserveOutcome::Known(outcome) => outcome.unwrap(),
        ReserveOutcome::Pending(_) => unreachable!(),
    }
}

/// Settlements in progress: as many as requests that end concurrently.
#[derive(Default)]
struct Settling(Vec<Settled>);

impl Settling {
    fn push(&mut self, settled: Settled) {
        self.0.push(settled);
        if self.0.len() == 256 {
            self.wait();
        }
    }

    fn wait(&mut self) {
        for settled in self.0.drain(..) {
            settled.wait(Duration::from_secs(20)).unwrap();
        }
    }
}

/// Measures settlements as the gateway makes them, in tasks that wait for the outcome: the CPU time of the workers and
/// of the journal's thread, and the latency of the outcome.
fn awaited(file: &Path, count: u64) {
    let desk = SqliteAdmin::open(file).unwrap();
    let account = AccountId::new("acme").unwrap();
    desk.create(&account).unwrap();
    desk.credit("acme", i64::MAX / 4, "", None).unwrap();
    let book = SqliteLedger::open(file, TERMS).unwrap();
    let book = std::sync::Arc::new(book);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("worker")
        .enable_time()
        .build()
        .unwrap();
    for tasks in [1, 8, 64, 512] {
        let (before, start) = ((ran("worker"), ran("journal")), Instant::now());
        let each = count / tasks;
        let work = |_| {
            let (book, account) = (book.clone(), account.clone());
            runtime.spawn(async move {
                let names = ["acme", "alice", "gpt-4o"].map(str::to_owned);
                let mut times = Vec::with_capacity(usize::try_from(each).unwrap());
                for _ in 0..each {
                    let held = reserve(&book, &account, 1_000_000);
                    let begun = Instant::now();
                    let record = record(&names, "req_0123456789abcdef0123", FIRST, 730_000);
                    let settled = book.settle(Some(held), &record);
                    settled.within(Duration::from_secs(20)).await.unwrap();
                    times.push(begun.elapsed());
                    tokio::task::yield_now().await;
                }
                times
            })
        };
        let running: Vec<_> = (0..tasks).map(work).collect();
        let times = runtime.block_on(async {
            let mut times = Vec::new();
            for task in running {
                times.extend(task.await.unwrap());
            }
            times
        });
        let taken = start.elapsed();
        let mut times = times;
        times.sort();
        let at = |part: usize| times[(times.len() - 1) * part / 1_000].as_secs_f64() * 1e6;
        let done = each * tasks;
        println!(
            "{tasks} at a time: {} ns CPU of workers, {} ns of the journal's thread; outcome after {:.0} us (p50), {:.0} us (p99); {:.0} a second",
            (ran("worker") - before.0) / done,
            (ran("journal") - before.1) / done,
            at(500),
            at(990),
            done as f64 / taken.as_secs_f64()
        );
    }
}

/// Measures reservations and settlements, on one thread and on two.
fn hot(file: &Path, count: u64) {
    let account = AccountId::new("acme").unwrap();
    let desk = SqliteAdmin::open(file).unwrap();
    desk.create(&account).unwrap();
    desk.credit("acme", i64::MAX / 4, "", None).unwrap();
    let names = ["acme", "alice", "gpt-4o"].map(str::to_owned);
    for threads in [1, 2] {
        let book = SqliteLedger::open(file, TERMS).unwrap();
        let start = Instant::now();
        let cpu: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let before = own();
                        let mut settling = Settling::default();
                        for n in 0..count {
                            let held = reserve(&book, &account, 1_000_000);
                            let time = FIRST + i64::try_from(n / 1_000).unwrap();
                            let record = record(&names, "req_0123456789abcdef0123", time, 730_000);
                            settling.push(book.settle(Some(held), &record));
                        }
                        own() - before
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let requests = count * threads;
        let taken = start.elapsed();
        let drained = loop {
            let before = ran("ledger");
            std::thread::park_timeout(Duration::from_millis(500));
            let after = ran("ledger");
            if after - before < 20_000_000 {
                break after;
            }
        };
        println!(
            "{threads} threads: reserve and settle {} ns CPU, ledger's thread {} ns CPU, {:.0} requests a second",
            cpu / requests,
            drained / requests,
            requests as f64 / taken.as_secs_f64()
        );
    }
    println!("audit: {:?}", desk.audit().unwrap());
}

/// Measures the CPU time of the ledger's thread at `rate` requests per second, for ten seconds: few requests share a
/// batch.
fn paced(file: &Path, rate: u64) {
    drop(SqliteAdmin::open(file).unwrap());
    let names = ["", "alice", "gpt-4o"].map(str::to_owned);
    let book = SqliteLedger::open(file, TERMS).unwrap();
    let (start, mut sent, mut settling) = (Instant::now(), 0, Settling::default());
    while start.elapsed() < Duration::from_secs(10) {
        while sent < rate * u64::try_from(start.elapsed().as_millis()).unwrap() / 1_000 {
            sent += 1;
            let record = record(&names, "req_0123456789abcdef0123", FIRST, 730_000);
            settling.push(book.settle(None, &record));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let cpu = ran("ledger");
    println!(
        "{rate} requests a second: ledger's thread {:.0} microseconds CPU a second, {} ns a request",
        cpu as f64 / 1e4,
        cpu / sent
    );
}

/// Measures many accounts: creation, loading and memory.
fn accounts(file: &Path, count: u64) {
    drop(SqliteAdmin::open(file).unwrap());
    let before = resident();
    drop(SqliteLedger::open(file, TERMS).unwrap());
    let empty = resident() - before;
    let desk = SqliteAdmin::open(file).unwrap();
    let start = Instant::now();
    desk.create_many((0..count).map(|n| AccountId::new(&format!("account-{n:07}")).unwrap())).unwrap();
    println!("{count} accounts made in {:.2} s", start.elapsed().as_secs_f64());
    let before = resident();
    let start = Instant::now();
    let book = SqliteLedger::open(file, TERMS).unwrap();
    let opened = start.elapsed();
    let bytes = (resident() - before).saturating_sub(empty) * 1024 / count;
    println!("{count} accounts loaded in {:.3} s, {bytes} bytes each", opened.as_secs_f64());
    let ids: Vec<AccountId> =
        (0..count).map(|n| AccountId::new(&format!("account-{:07}", n * 7_919 % count)).unwrap()).collect();
    let before = own();
    for id in &ids {
        drop(reserve(&book, id, 0));
    }
    println!("reserve and release on accounts at random: {} ns CPU", (own() - before) / count);
}

/// Measures many records: 200 accounts with 2 keys and 4 models each, over 400 days.
fn records(file: &Path, count: u64) {
    let names: Vec<[String; 3]> = (0..1600)
        .map(|n| {
            [format!("account-{:03}", n % 200), format!("key-{:03}", n % 400), format!("model-{}", n / 400)]
        })
        .collect();
    let book = SqliteLedger::open(file, TERMS).unwrap();
    let (start, mut settling) = (Instant::now(), Settling::default());
    for n in 0..count {
        let time = FIRST + i64::try_from(u128::from(n) * 400 * 86_400_000 / u128::from(count)).unwrap();
        // Scattered, so that neighboring records differ as in production.
        let at = usize::try_from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap() % names.len();
        let request = format!("req_{:020x}", n.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let record = record(&names[at], &request, time, 730_000 + i64::try_from(n % 9_973).unwrap());
        settling.push(book.settle(None, &record));
        if n % 200_000 == 0 {
            settling.wait();
            // The journal must not grow without limit while the database is behind.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(book.flush().within(Duration::from_secs(300))).unwrap();
        }
    }
    drop(book);
    let size = std::fs::metadata(file).unwrap().len();
    let taken = start.elapsed().as_secs_f64();
    println!(
        "{count} records in {taken:.0} s; the file has {} MB, {} bytes a record",
        size >> 20,
        size / count
    );
    let start = Instant::now();
    let desk = SqliteAdmin::open(file).unwrap();
    println!("opened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let filter = UsageFilter {
        account: Some("account-042".to_owned()),
        from: 20_454 + 181,
        to: 20_454 + 212,
        ..UsageFilter::default()
    };
    for by in UsageGrouping::ALL {
        let start = Instant::now();
        let lines = desk.usage(&filter, by).unwrap();
        let (taken, requests) = (start.elapsed(), lines.iter().map(|line| line.sums.requests).sum::<i64>());
        println!(
            "a month of one account by {}: {} lines, {requests} requests, {:.1} ms",
            by.name(),
            lines.len(),
            taken.as_secs_f64() * 1e3
        );
    }
    let all = UsageFilter { account: None, ..filter.clone() };
    let start = Instant::now();
    let lines = desk.usage(&all, UsageGrouping::Account).unwrap();
    println!(
        "a month of all by account: {} lines, {:.1} ms",
        lines.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
    let start = Instant::now();
    let mut shown = 0;
    desk.records(&filter, &mut |_| {
        shown += 1;
        Ok(())
    })
    .unwrap();
    println!("a month of one account, each record: {shown}, {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
}
