//! What a fleet costs its Valkey server: `cargo bench --bench fleet_load -- redis://127.0.0.1:6379`. Use a dedicated
//! server: the benchmark writes to it. Fleets of several sizes send requests of accounts that all gateways share, or of
//! accounts of their own, at a steady rate; printed is the server's own processor time (`INFO cpu`), which other load
//! on the machine does not change. From two of the rows follow the cost of a visit (a gateway reports and renews one
//! account, every 100 ms while it is in use) and of a request; the others check the sum.
//!
//! The gateways here are their ledgers, each with its thread, its journal and its connections; the rest of a gateway
//! does not reach the server. The profile does not matter for the figures: `--profile dev` builds faster.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a tool, run by hand, that has threads of its own"
)]

use std::time::{Duration, Instant};

use codec::canonical::Usage;
use storage::ledger::admin::LedgerAdmin as _;
use storage::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use storage::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use storage::ledger::{AccountId, Ledger, ReserveOutcome, UsageRecord};
use storage::store::valkey::ServerAddress;

/// Time for which each load is measured.
const MEASURED: Duration = Duration::from_secs(8);
/// Time between two bursts of requests at a gateway.
const TICK: Duration = Duration::from_millis(50);

/// A fleet and what it is asked.
#[derive(Clone, Copy)]
struct Load {
    gateways: usize,
    /// Accounts that send requests to each gateway.
    accounts: usize,
    /// Whether all gateways have the same accounts.
    shared: bool,
    /// Requests per second, of all gateways together.
    rate: usize,
}

/// What the server did meanwhile.
struct Cost {
    /// Processor time in seconds per second.
    processor: f64,
    /// Scripts per second.
    scripts: f64,
    /// Requests per second that were sent in fact.
    rate: f64,
}

const LOADS: [Load; 8] = [
    Load { gateways: 10, accounts: 1, shared: true, rate: 0 },
    Load { gateways: 10, accounts: 10, shared: true, rate: 200 },
    Load { gateways: 10, accounts: 10, shared: true, rate: 10_000 },
    Load { gateways: 10, accounts: 1, shared: true, rate: 10_000 },
    Load { gateways: 10, accounts: 10, shared: false, rate: 5_000 },
    Load { gateways: 40, accounts: 10, shared: true, rate: 10_000 },
    Load { gateways: 100, accounts: 1, shared: true, rate: 10_000 },
    Load { gateways: 100, accounts: 10, shared: true, rate: 10_000 },
];

fn main() {
    let url = std::env::args().skip(1).find(|argument| argument.contains("://"));
    let Some(url) = url else {
        println!("name a server: redis://127.0.0.1:6379");
        return;
    };
    println!("gateways accounts shared | requests/s scripts/s | server's processor, us/script us/request");
    for load in LOADS {
        let cost = measure(&url, load);
        println!(
            "{:8} {:8} {:>6} | {:10.0} {:9.0} | {:8.2} % {:10.1} {:10.1}",
            load.gateways,
            load.accounts,
            load.shared,
            cost.rate,
            cost.scripts,
            100.0 * cost.processor,
            1e6 * cost.processor / cost.scripts.max(1.0),
            1e6 * cost.processor / cost.rate.max(1.0),
        );
    }
}

fn measure(url: &str, load: Load) -> Cost {
    let address = ServerAddress::new([url], None).unwrap();
    let folder = tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or_else(|_| ".".to_owned())).unwrap();
    let desk = ValkeyAdmin::open(&address).unwrap();
    let run = format!("{}-{}", std::process::id(), unix_millis());
    let of = |gateway: usize, account: usize| {
        let owner = if load.shared { 0 } else { gateway };
        AccountId::new(&format!("load-{run}-{owner}-{account}")).unwrap()
    };
    for gateway in 0..if load.shared { 1 } else { load.gateways } {
        for account in 0..load.accounts {
            desk.create(&of(gateway, account)).unwrap();
            desk.credit(of(gateway, account).as_str(), 1_000_000_000_000_000, "", None).unwrap();
        }
    }
    let gateways: Vec<Gateway> = (0..load.gateways)
        .map(|number| Gateway {
            ledger: ClusterLedger::open(
                address.clone(),
                ClusterLedgerConfig {
                    flush: Duration::from_millis(100),
                    records: Duration::from_secs(86_400),
                    on_outage: OnOutage::Refuse,
                    journal: folder.path().join(number.to_string()),
                    segment: DEFAULT_SEGMENT_LIMIT,
                },
            )
            .unwrap(),
            accounts: (0..load.accounts).map(|account| of(number, account)).collect(),
            sent: 0,
        })
        .collect();
    let mut fleet = Fleet { gateways, load, sent: 0 };
    // The first leases, and an even state.
    fleet.run(Duration::from_secs(2));
    let mut server = redis::Client::open(url).unwrap().get_connection().unwrap();
    let (began, before) = (Instant::now(), Counts::read(&mut server));
    fleet.sent = 0;
    fleet.run(MEASURED);
    let (took, after) = (began.elapsed().as_secs_f64(), Counts::read(&mut server));
    Cost {
        processor: (after.processor - before.processor) / took,
        scripts: (after.scripts - before.scripts) / took,
        rate: fleet.sent as f64 / took,
    }
}

struct Gateway {
    ledger: ClusterLedger,
    accounts: Vec<AccountId>,
    sent: usize,
}

impl Gateway {
    /// Sends a request of the next account.
    fn request(&mut self, runtime: &tokio::runtime::Runtime) {
        let account = &self.accounts[self.sent % self.accounts.len()];
        self.sent += 1;
        let held = match self.ledger.reserve(account, 5_000_000) {
            ReserveOutcome::Known(held) => held,
            pending => runtime.block_on(pending.within(Duration::from_secs(5))),
        };
        let record = record(account.as_str());
        self.ledger.settle(Some(held.unwrap()), &record).wait(Duration::from_secs(5)).unwrap();
    }
}

struct Fleet {
    gateways: Vec<Gateway>,
    load: Load,
    /// Requests that were sent.
    sent: usize,
}

impl Fleet {
    /// Sends requests at the rate of the load for this long, to all gateways in turn.
    fn run(&mut self, time: Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let began = Instant::now();
        let (first, count) = (self.sent, self.gateways.len());
        while began.elapsed() < time {
            let due = (began.elapsed().as_secs_f64() * self.load.rate as f64) as usize;
            while self.sent - first < due {
                self.gateways[self.sent % count].request(&runtime);
                self.sent += 1;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Counters of the server since its start.
struct Counts {
    /// Processor time in seconds.
    processor: f64,
    scripts: f64,
}

impl Counts {
    fn read(server: &mut redis::Connection) -> Self {
        let text = |server: &mut redis::Connection, section: &str| -> String {
            redis::cmd("INFO").arg(section).query(server).unwrap()
        };
        let cpu = text(server, "cpu");
        let commands = text(server, "commandstats");
        let number =
            |line: &str| line.split(['=', ',', ':']).find_map(|word| word.trim().parse().ok()).unwrap_or(0.0);
        let sum = |text: &str, names: &[&str]| -> f64 {
            text.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).map(number).sum()
        };
        Counts {
            processor: sum(&cpu, &["used_cpu_sys:", "used_cpu_user:"]),
            scripts: sum(&commands, &["cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_fcall:"]),
        }
    }
}

fn unix_millis() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

fn record(account: &str) -> UsageRecord<'_> {
    UsageRecord {
        time: unix_millis(),
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
        total: 2_000,
        stream: true,
        usage: Usage { input: Some(1_000), cached: Some(512), output: Some(300), ..Usage::default() },
        cost: 2_500_000,
        ..UsageRecord::default()
    }
}
