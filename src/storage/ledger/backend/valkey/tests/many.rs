//! Several gateways on one server, under load.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::{assert_audit_passes, at, flush_ledger, open_admin, wait_until};
use crate::ledger::backend::valkey::{ClusterLedger, OnOutage};
use crate::ledger::{Ledger, ReserveError};
use crate::store::tests::ledger::{id, open_account, record, settle};
use crate::store::tests::server::{Server, pause};
use crate::store::tests::{OnServer, runtime};

const ACCOUNTS: [&str; 3] = ["small", "middle", "large"];
const CREDITS: [i64; 3] = [3_000, 50_000, 10_000_000];

/// Totals of what the gateways did for each account.
#[derive(Default)]
struct Tally {
    held: [AtomicI64; 3],
    most: [AtomicI64; 3],
    charged: [AtomicI64; 3],
    requests: AtomicI64,
    refused: AtomicI64,
}

/// Makes requests until `stop` is set. Each costs at most what is reserved for it.
fn work(ledger: &ClusterLedger, seed: u64, stop: &AtomicBool, tally: &Tally) {
    let runtime = runtime();
    let mut state = seed;
    while !stop.load(Ordering::Acquire) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let which = usize::try_from(state >> 60).unwrap() % 3;
        let amount = i64::try_from(state >> 33 & 63).unwrap() + 1;
        let outcome =
            runtime.block_on(ledger.reserve(&id(ACCOUNTS[which]), amount).within(Duration::from_secs(10)));
        match outcome {
            Ok(held) => {
                let now = tally.held[which].fetch_add(amount, Ordering::AcqRel) + amount;
                let charged = tally.charged[which].load(Ordering::Acquire);
                tally.most[which].fetch_max(now + charged, Ordering::AcqRel);
                let cost = amount * i64::try_from(state >> 20 & 3).unwrap() / 3;
                if state & 7 == 0 {
                    std::thread::yield_now();
                }
                tally.charged[which].fetch_add(cost, Ordering::AcqRel);
                tally.held[which].fetch_sub(amount, Ordering::AcqRel);
                tally.requests.fetch_add(1, Ordering::AcqRel);
                settle(ledger, Some(held), &record(ACCOUNTS[which], cost));
            }
            Err(ReserveError::Empty { .. } | ReserveError::Unavailable) => {
                tally.refused.fetch_add(1, Ordering::AcqRel);
                pause(1);
            }
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// Runs three gateways with two workers each, while `trouble` runs. At the end everything is charged to the unit, and
/// no balance is below zero by more than a fraction (one `part`-th) of its credit.
fn three(place: &mut OnServer, part: i64, trouble: impl FnOnce(&mut OnServer, &Tally)) -> Tally {
    let admin = open_admin(&place.server);
    for (account, credit) in ACCOUNTS.iter().zip(CREDITS) {
        open_account(&admin, account, credit);
    }
    wait_until("the write of the accounts", || {
        let written = place.server.ask("INFO persistence");
        written.contains("aof_buffer_length:0\r") && written.contains("aof_pending_bio_fsync:0\r")
    });
    let gateways = [(); 3].map(|()| place.cluster_ledger(OnOutage::Refuse));
    let (stop, tally) = (AtomicBool::new(false), Tally::default());
    std::thread::scope(|scope| {
        for (at, ledger) in gateways.iter().enumerate() {
            for worker in 0..2 {
                let seed = (at * 2 + worker) as u64 + 1;
                let (stop, tally) = (&stop, &tally);
                scope.spawn(move || work(ledger, seed, stop, tally));
            }
        }
        trouble(place, &tally);
        stop.store(true, Ordering::Release);
    });
    gateways.iter().for_each(flush_ledger);
    let mut requests = 0;
    for (which, account) in ACCOUNTS.iter().enumerate() {
        let charged = tally.charged[which].load(Ordering::Acquire);
        let (balance, sums, count) = at(place, account);
        assert_eq!((balance, sums), (CREDITS[which] - charged, charged), "{account}");
        assert!(balance >= -(CREDITS[which] * part / 16), "{account}: {balance}");
        requests += count;
    }
    assert_eq!(requests, tally.requests.load(Ordering::Acquire), "one record for each request");
    // Their leases return while they run, and at the latest when they end.
    drop(gateways);
    let last = place.cluster_ledger(OnOutage::Refuse);
    for account in ACCOUNTS {
        let balance = at(place, account).0;
        wait_until("the return of the leases", || {
            let held =
                runtime().block_on(last.reserve(&id(account), balance).within(Duration::from_secs(10)));
            held.is_ok()
        });
    }
    assert_audit_passes(&place.server);
    tally
}

fn until(tally: &Tally, requests: i64) {
    let goal = tally.requests.load(Ordering::Acquire) + requests;
    wait_until("progress under load", || tally.requests.load(Ordering::Acquire) >= goal);
}

#[test]
fn fleet_never_reserves_or_charges_more_than_the_balance() {
    let Some(mut place) = OnServer::new() else { return };
    let tally = three(&mut place, 0, |_, tally| {
        until(tally, 3_000);
        wait_until("the exhaustion of the small account", || tally.refused.load(Ordering::Acquire) > 0);
    });
    for (which, credit) in CREDITS.iter().enumerate() {
        assert!(tally.most[which].load(Ordering::Acquire) <= *credit, "{}", ACCOUNTS[which]);
    }
}

/// Kills the server under load and restarts it from its disk, repeatedly.
fn again_and_again(place: &mut OnServer, tally: &Tally) {
    let began = Instant::now();
    for _ in 0..5 {
        until(tally, 300);
        place.server.kill();
        pause(100);
        place.server.start_again();
    }
    until(tally, 300);
    assert!(began.elapsed() < super::PATIENCE * 5);
}

#[test]
fn fleet_loses_no_confirmed_charge_when_the_server_is_killed() {
    let Some(server) = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let mut place = OnServer { server, folder: tempfile::tempdir().unwrap() };
    three(&mut place, 0, again_and_again);
}

/// A server that writes every second may lose the leases of the last second. Charges are shipped again; but lost leases
/// can be spent by others: with three gateways, up to three sixteenths each time.
#[test]
fn fleet_ships_again_the_charges_that_the_server_lost() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let Some(server) = Server::start_with(&arguments) else { return };
    let mut place = OnServer { server, folder: tempfile::tempdir().unwrap() };
    three(&mut place, 5 * 3, again_and_again);
}
