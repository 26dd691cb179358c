//! The ledger on a real server, which the tests start themselves. Where there is none (valkey-server or redis-server), they
//! say SKIPPED.

mod model;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::canonical::Usage;
use crate::store::book::DeskError;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on loopback, with its file in a folder of its own.
struct Server {
    program: &'static str,
    process: Option<Child>,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Nothing, where there is no server to start.
    fn start() -> Option<Server> {
        let there = |program: &&str| {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        };
        let Some(program) = ["valkey-server", "redis-server"].into_iter().find(there) else {
            assert!(std::env::var_os("GATEWAY_REQUIRE_ALL").is_none(), "no valkey-server");
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: neither valkey-server nor redis-server is on this machine"
            );
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server { program, process: None, port, folder };
        server.run();
        Some(server)
    }

    fn run(&mut self) {
        let child = Command::new(self.program)
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"])
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            // It listens before it has read its file.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.desk().accounts().is_ok() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        panic!("the server does not answer");
    }

    /// Ends it as `kill -9` does.
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn desk(&self) -> ValkeyDesk {
        ValkeyDesk::open(&self.address(), Mode::Single).unwrap()
    }

    fn terms(&self, journals: &TempDir) -> ValkeyTerms {
        ValkeyTerms {
            addresses: self.address(),
            mode: Mode::Single,
            journal: journals.path().to_owned(),
            flush: Duration::from_millis(20),
            records: Duration::from_secs(400 * 86_400),
            holds: Duration::from_secs(60),
            replicas: 0,
            away: Away::Refuse,
        }
    }

    fn credit(&self, account: &str, amount: i64) {
        let desk = self.desk();
        match desk.create(&id(account)) {
            Ok(()) | Err(DeskError::Exists(_)) => {}
            Err(error) => panic!("{error}"),
        }
        desk.credit(account, amount, "", None).unwrap();
    }

    /// What the server holds to be spendable.
    fn available(&self, account: &str) -> i64 {
        let client = redis::Client::open(self.address()).unwrap();
        let key = names::Keys::of(account).account;
        redis::cmd("HGET").arg(key).arg("available").query(&mut client.get_connection().unwrap()).unwrap()
    }

    /// All records, by their requests.
    fn records(&self, account: &str) -> HashMap<String, i64> {
        let client = redis::Client::open(self.address()).unwrap();
        let key = names::Keys::of(account).records;
        let entries: Vec<(String, Vec<Vec<u8>>)> = redis::cmd("XRANGE")
            .arg(key)
            .arg("-")
            .arg("+")
            .query(&mut client.get_connection().unwrap())
            .unwrap();
        let mut records = HashMap::new();
        for (_, fields) in &entries {
            let record = UsageRecord::decode(&fields[1]).unwrap();
            let before = records.insert(record.request.to_owned(), record.cost);
            assert!(before.is_none(), "{} is there twice", record.request);
        }
        records
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn id(account: &str) -> AccountId {
    AccountId::new(account).unwrap()
}

fn record<'a>(request: &'a str, account: &'a str, cost: i64) -> UsageRecord<'a> {
    UsageRecord {
        time: 1_700_000_000_000,
        request,
        account,
        key: "alice",
        model: "gpt-4o",
        status: 200,
        usage: Usage { input: Some(10), output: Some(5), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

/// Waits on a runtime of its own: the ledger must not need the caller's.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn reserve(ledger: &Valkey, account: &str, amount: i64) -> Result<Reservation, Refused> {
    wait(ledger.reserve(&id(account), amount).within(PATIENCE))
}

fn settle(ledger: &Valkey, held: Option<Reservation>, record: &UsageRecord<'_>) {
    wait(ledger.settle(held, record).within(PATIENCE)).unwrap();
}

fn flush(ledger: &Valkey) {
    wait(ledger.flush().within(PATIENCE)).unwrap();
}

/// Waits for something that happens by itself.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: this did not happen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn what_is_held_cannot_be_spent_again_and_what_is_left_can() {
    let (Some(server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    // Beyond what a number of Lua can hold exactly.
    let much = 9_007_199_254_740_993;
    server.credit("acme", much);
    let ledger = Valkey::open(server.terms(&journals)).unwrap();
    let held = reserve(&ledger, "acme", much - 30).unwrap();
    assert_eq!(reserve(&ledger, "acme", 31).unwrap_err(), Refused::Empty { available: 30 });
    settle(&ledger, Some(held), &record("r1", "acme", 25));
    flush(&ledger);
    assert_eq!(server.available("acme"), much - 25);
    drop(reserve(&ledger, "acme", much - 25).unwrap());
    until("a release", || server.available("acme") == much - 25);
    let held = reserve(&ledger, "acme", much - 25).unwrap();
    settle(&ledger, Some(held), &record("r2", "acme", much - 20));
    flush(&ledger);
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), Refused::Empty { available: -5 });
    assert_eq!(reserve(&ledger, "nobody", 0).unwrap_err(), Refused::UnknownAccount);
    server.desk().set_enabled("acme", false).unwrap();
    assert_eq!(reserve(&ledger, "acme", 0).unwrap_err(), Refused::Disabled);
    settle(&ledger, None, &record("r3", "", 0));
    let mut spent = wait(ledger.spent_since(19_675).within(PATIENCE)).unwrap();
    spent.retain(|spent| spent.cost != 0);
    let (day, key) = (19_675, "alice".to_owned());
    assert_eq!(spent, [Spent { day, account: "acme".to_owned(), key, cost: much + 5 }]);
    assert_eq!(server.desk().account("acme").unwrap().balance(), -5);
    assert_eq!(server.records("").len(), 1);
}

#[test]
fn a_reference_is_credited_once() {
    let Some(server) = Server::start() else { return };
    let desk = server.desk();
    assert!(matches!(desk.credit("acme", 1, "", None), Err(DeskError::Unknown(_))));
    desk.create(&id("acme")).unwrap();
    assert!(matches!(desk.create(&id("acme")), Err(DeskError::Exists(_))));
    let first = desk.credit("acme", 100, "January", Some("inv-1")).unwrap();
    assert_eq!((first.balance, first.repeated), (100, false));
    let again = desk.credit("acme", 100, "January", Some("inv-1")).unwrap();
    assert_eq!((again.balance, again.repeated), (100, true));
    let other = desk.credit("acme", 101, "", Some("inv-1"));
    assert!(matches!(other, Err(DeskError::Reference { amount: 100, .. })), "{other:?}");
    assert!(matches!(desk.credit("acme", i64::MAX, "", None), Err(DeskError::TooLarge)));
    assert_eq!(desk.credit("acme", -30, "", None).unwrap().balance, 70);
}

/// What a gateway held that ended comes back with its time, and what it had settled is brought in by the next one.
#[test]
fn a_gateway_that_ends_leaves_neither_holds_nor_debts() {
    let (Some(server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    server.credit("acme", 100);
    let slow = Duration::from_secs(3600);
    let terms = ValkeyTerms { flush: slow, holds: Duration::from_millis(1500), ..server.terms(&journals) };
    let ledger = Valkey::open(terms.clone()).unwrap();
    let held = [reserve(&ledger, "acme", 60).unwrap(), reserve(&ledger, "acme", 20).unwrap()];
    let [one, two] = held;
    settle(&ledger, Some(one), &record("r1", "acme", 7));
    ledger.crash();
    drop(two);
    assert_eq!(server.available("acme"), 20);
    let ledger = Valkey::open(terms).unwrap();
    until("the charge of the one that ended", || server.available("acme") == 73);
    // The other hold ends by itself.
    until("the end of a hold", || reserve(&ledger, "acme", 90).is_ok());
    drop(ledger);
    assert_eq!(server.records("acme"), HashMap::from([("r1".to_owned(), 7)]));
    assert_eq!(server.desk().account("acme").unwrap().balance(), 93);
}

/// A request takes longer than a hold lives: it is kept alive.
#[test]
fn a_hold_lives_as_long_as_its_request() {
    let (Some(server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    server.credit("acme", 100);
    let terms = ValkeyTerms { holds: Duration::from_millis(600), ..server.terms(&journals) };
    let ledger = Valkey::open(terms).unwrap();
    let held = reserve(&ledger, "acme", 60).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2000) {
        assert_eq!(reserve(&ledger, "acme", 50).unwrap_err(), Refused::Empty { available: 40 });
        std::thread::park_timeout(Duration::from_millis(50));
    }
    settle(&ledger, Some(held), &record("r1", "acme", 1));
}

/// The server is killed and comes back, again and again, under load: nothing is lost and nothing is charged twice.
#[test]
fn a_server_that_is_killed_costs_nothing() {
    let (Some(mut server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    server.credit("acme", 1_000_000);
    let ledger = Valkey::open(server.terms(&journals)).unwrap();
    let (mut settled, mut refused) = (HashMap::new(), 0);
    for round in 0..6 {
        for n in 0..60 {
            match reserve(&ledger, "acme", 50) {
                Ok(held) => {
                    let request = format!("{round}-{n}");
                    settle(&ledger, Some(held), &record(&request, "acme", n));
                    settled.insert(request, n);
                }
                Err(Refused::Unavailable) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            match n {
                20 => server.kill(),
                // Long enough that the ledger meets nobody.
                40 => {
                    std::thread::park_timeout(Duration::from_millis(60));
                    server.run();
                    until("the way back", || reserve(&ledger, "acme", 0).is_ok());
                }
                _ => {}
            }
        }
    }
    assert!(refused > 50 && settled.len() > 100, "{refused} refused, {} settled", settled.len());
    flush(&ledger);
    drop(ledger);
    let charged: i64 = settled.values().sum();
    assert_eq!(server.records("acme"), settled);
    assert_eq!(server.desk().account("acme").unwrap().balance(), 1_000_000 - charged);
    until("the end of all holds", || server.available("acme") == 1_000_000 - charged);
}

/// While the server is away, each account may spend what the terms say, and is charged when it is back.
#[test]
fn an_allowance_is_spent_while_the_server_is_away() {
    let (Some(mut server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    server.credit("acme", 1_000);
    server.credit("other", 1_000);
    let terms = ValkeyTerms { away: Away::Allow(100), ..server.terms(&journals) };
    let ledger = Valkey::open(terms).unwrap();
    drop(reserve(&ledger, "acme", 1).unwrap());
    until("a release", || server.available("acme") == 1_000);
    server.kill();
    let held = reserve(&ledger, "acme", 60).unwrap();
    assert_eq!(reserve(&ledger, "acme", 60).unwrap_err(), Refused::Empty { available: 40 });
    settle(&ledger, Some(held), &record("r1", "acme", 10));
    assert_eq!(reserve(&ledger, "acme", 91).unwrap_err(), Refused::Empty { available: 90 });
    drop(reserve(&ledger, "acme", 90).unwrap());
    // Nothing is known of this one.
    assert_eq!(reserve(&ledger, "other", 1).unwrap_err(), Refused::Unavailable);
    server.run();
    until("the charge", || server.desk().account("acme").unwrap().balance() == 990);
    until("the way back", || reserve(&ledger, "other", 1).is_ok());
    assert_eq!(server.records("acme").len(), 1);
}

/// Three gateways spend one balance to its end, and never beyond.
#[test]
fn a_fleet_never_holds_more_than_there_is() {
    let (Some(server), journals) = (Server::start(), tempfile::tempdir().unwrap()) else { return };
    server.credit("acme", 1_000);
    let spent: i64 = std::thread::scope(|scope| {
        let gateways: Vec<_> = (0..3)
            .map(|gateway| {
                let terms = server.terms(&journals);
                scope.spawn(move || {
                    let ledger = Valkey::open(terms).unwrap();
                    let mut spent = 0;
                    for n in 0..300 {
                        let Ok(held) = reserve(&ledger, "acme", 7) else { continue };
                        if n % 3 == 0 {
                            drop(held);
                        } else {
                            settle(&ledger, Some(held), &record(&format!("{gateway}-{n}"), "acme", 5));
                            spent += 5;
                        }
                    }
                    spent
                })
            })
            .collect();
        gateways.into_iter().map(|gateway| gateway.join().unwrap()).sum()
    });
    let account = server.desk().account("acme").unwrap();
    assert_eq!((account.charged, account.balance()), (spent, 1_000 - spent));
    assert!(account.balance() >= 0 && spent >= 600, "{spent}");
    assert_eq!(server.available("acme"), 1_000 - spent);
}
