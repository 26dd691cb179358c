//! Cost of the ledger of a fleet: `cargo bench --bench fleet -- redis://127.0.0.1:6379`. Use a dedicated server: the
//! benchmark writes to it. CPU time comes from the kernel's per-thread accounting, so that other load on the machine
//! matters little.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a tool, run by hand")]

use std::time::{Duration, Instant};

use codec::canonical::Usage;
use storage::ledger::admin::LedgerAdmin as _;
use storage::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use storage::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use storage::ledger::{AccountId, Ledger, ReserveOutcome, UsageRecord};
use storage::store::valkey::ServerAddress;

/// Number of measured requests of an account whose balance is leased.
const HOT: u32 = 300_000;
/// Number of measured reservations that need a lease transaction.
const VISITS: u32 = 5_000;

fn main() {
    let url = std::env::args().skip(1).find(|argument| argument.contains("://"));
    let Some(url) = url else {
        println!("name a server: redis://127.0.0.1:6379");
        return;
    };
    let address = || ServerAddress::new([&*url], None).unwrap();
    let folder = tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or_else(|_| ".".to_owned())).unwrap();
    let terms = ClusterLedgerConfig {
        flush: Duration::from_millis(100),
        records: Duration::from_secs(86_400),
        on_outage: OnOutage::Refuse,
        journal: folder.path().join("ledger"),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    let desk = ValkeyAdmin::open(&address()).unwrap();
    let run = std::process::id();
    let name = |n: u32| AccountId::new(&format!("bench-{run}-{n}")).unwrap();
    for n in 0..=VISITS {
        desk.create(&name(n)).unwrap();
        desk.credit(name(n).as_str(), 1_000_000_000_000, "", None).unwrap();
    }
    let ledger = ClusterLedger::open(address(), terms).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hold = |account: &AccountId| match ledger.reserve(account, 5_000_000) {
        ReserveOutcome::Known(held) => (held.unwrap(), true),
        pending => (runtime.block_on(pending.within(Duration::from_secs(5))).unwrap(), false),
    };
    // The first reservation needs a lease transaction.
    drop(hold(&name(0)));
    let (began, own_began, thread_began) = (Instant::now(), own(), ran("ledger"));
    let (mut visits, mut worst) = (0, Duration::ZERO);
    let account = name(0);
    for n in 0..HOT {
        let before = Instant::now();
        let (held, known) = hold(&account);
        visits += u32::from(!known);
        worst = worst.max(before.elapsed());
        let record = record(account.as_str(), n);
        ledger.settle(Some(held), &record).wait(Duration::from_secs(5)).unwrap();
    }
    let (own, took) = (own() - own_began, began.elapsed());
    runtime.block_on(ledger.flush().within(Duration::from_secs(60))).unwrap();
    let thread = ran("ledger") - thread_began;
    let each = |nanos: u64| nanos as f64 / f64::from(HOT) / 1_000.0;
    println!(
        "reserve + record + settle: {:.2} us of CPU, and {:.2} us of the ledger's thread",
        each(own),
        each(thread)
    );
    println!(
        "one worker: {:.0} requests a second; {visits} of {HOT} waited for a visit, {worst:?} at most",
        f64::from(HOT) / took.as_secs_f64()
    );

    let mut times: Vec<Duration> = (1..=VISITS)
        .map(|n| {
            let (account, before) = (name(n), Instant::now());
            drop(hold(&account));
            before.elapsed()
        })
        .collect();
    times.sort();
    let at = |part: usize| times[times.len() * part / 100];
    println!("a reservation that needs a visit: {:?} half of the time, {:?} for 99 of 100", at(50), at(99));
}

fn record(account: &str, n: u32) -> UsageRecord<'_> {
    UsageRecord {
        time: i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap(),
        request: "req_0123456789abcdef0123456789abcdef",
        account,
        key: "alice",
        model: "gpt-4o",
        provider: "openai",
        target: "gpt-4o-2024-11-20",
        endpoint: "chat",
        client_format: "chat",
        provider_format: "chat",
        status: 200,
        attempts: 1,
        first_byte: Some(350),
        total: 2_000 + n % 1_000,
        stream: true,
        usage: Usage { input: Some(1_000), cached: Some(512), output: Some(300), ..Usage::default() },
        cost: 2_500_000,
        ..UsageRecord::default()
    }
}

/// Returns the CPU time of this process's threads with this name, in nanoseconds.
fn ran(name: &str) -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim_end() == name {
            sum += read("schedstat").split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// Returns the CPU time of the current thread, in nanoseconds.
fn own() -> u64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedule.split(' ').next().unwrap().parse().unwrap()
}
