//! Behavior while the server is unreachable.

use std::time::{Duration, Instant};

use super::{assert_audit_passes, at, flush_ledger, open_admin, wait_until};
use crate::ledger::backend::valkey::OnOutage;
use crate::ledger::{Ledger, ReserveError, ReserveOutcome};
use crate::store::tests::ledger::{id, open_account, record, reserve, settle};
use crate::store::tests::server::pause;
use crate::store::tests::{OnServer, PATIENCE};

/// Time limit of operations that must not wait for an unreachable server.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Waits until the ledger has noticed the outage.
fn noticed(ledger: &crate::ledger::backend::valkey::ClusterLedger) {
    wait_until("the detection of the outage", || crate::store::tests::wait(ledger.flush()).is_err());
}

#[test]
fn outage_leased_balance_is_spent_and_then_requests_are_refused() {
    let Some(mut place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 16_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    let first = reserve(&ledger, "acme", 100).unwrap();
    place.server.kill();
    noticed(&ledger);
    let began = Instant::now();
    // A sixteenth of the free balance is leased here.
    let held: Vec<_> = (0..20).map_while(|_| reserve(&ledger, "acme", 100).ok()).collect();
    assert_eq!(held.len(), 9);
    assert_eq!(reserve(&ledger, "acme", 100).unwrap_err(), ReserveError::Unavailable);
    assert_eq!(reserve(&ledger, "other", 0).unwrap_err(), ReserveError::Unavailable);
    for held in held.into_iter().chain([first]) {
        settle(&ledger, Some(held), &record("acme", 99));
    }
    assert!(began.elapsed() < AT_ONCE);
    place.server.start_again();
    flush_ledger(&ledger);
    assert_eq!(at(&place, "acme"), (16_000 - 990, 990, 10));
    let held = reserve(&ledger, "acme", 15_010).unwrap();
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: 0 });
    drop(held);
    assert_audit_passes(&place.server);
}

#[test]
fn outage_overdraft_is_spent_and_charged_after_recovery() {
    let Some(mut place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 20);
    let ledger = place.cluster_ledger(OnOutage::Allow(500));
    drop(reserve(&ledger, "acme", 20).unwrap());
    assert!(matches!(reserve(&ledger, "acme", 21).unwrap_err(), ReserveError::Empty { .. }));
    place.server.kill();
    noticed(&ledger);
    let before = ledger.available(&id("acme")).unwrap();
    let held: Vec<_> = (0..20).map_while(|_| reserve(&ledger, "acme", 100).ok()).collect();
    assert_eq!(held.len(), 5);
    assert_eq!(reserve(&ledger, "acme", 100).unwrap_err(), ReserveError::Unavailable);
    // This account is unknown here, but keys.toml names it.
    assert_eq!(reserve(&ledger, "unseen", 500).unwrap().amount(), 500);
    for held in held {
        settle(&ledger, Some(held), &record("acme", 90));
    }
    place.server.start_again();
    flush_ledger(&ledger);
    assert_eq!(at(&place, "acme"), (20 - 450, 450, 5));
    assert_eq!(before, 20);
    wait_until("the update of the account", || ledger.available(&id("acme")) == Some(-430));
    assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Empty { available: -430 });
    assert_eq!(reserve(&ledger, "unseen", 0).unwrap_err(), ReserveError::UnknownAccount);
    assert_audit_passes(&place.server);
}

/// A gateway starts and ends while the server is unreachable: the next one ships its charges.
#[test]
fn outage_charges_are_shipped_by_the_next_gateway() {
    let Some(mut place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    let held: Vec<_> = (0..7).map(|_| reserve(&ledger, "acme", 10).unwrap()).collect();
    settle(&ledger, None, &record("", 0));
    flush_ledger(&ledger);
    place.server.kill();
    for held in held {
        settle(&ledger, Some(held), &record("acme", 9));
    }
    drop(ledger);
    let idle = place.cluster_ledger(OnOutage::Refuse);
    let refused = idle.reserve(&id("acme"), 1);
    assert!(matches!(refused, ReserveOutcome::Pending(_)), "{refused:?}");
    place.server.start_again();
    let next = place.cluster_ledger(OnOutage::Refuse);
    wait_until("the charges are shipped", || at(&place, "acme") == (1_000 - 63, 63, 7));
    // The lease of the ended gateway is released as soon as its journal was found.
    wait_until("the return of the leases", || reserve(&next, "acme", 937).is_ok());
    assert_audit_passes(&place.server);
}

/// Charges during the outage exceed the size limit of the journal.
#[test]
fn outage_full_journal_is_shipped_and_reused() {
    let Some(mut place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000_000);
    let ledger = place.cluster_ledger_with_segment(OnOutage::Allow(100_000), 4_096);
    for round in 1..=3 {
        flush_ledger(&ledger);
        let held: Vec<_> = (0..300).map(|_| reserve(&ledger, "acme", 10).unwrap()).collect();
        place.server.kill();
        noticed(&ledger);
        let full = held.into_iter().map(|held| {
            let settled = ledger.settle(Some(held), &record("acme", 9));
            settled.wait(PATIENCE).is_err()
        });
        assert!(full.filter(|full| *full).count() > 100, "both segments are full");
        // Requests whose charge could be lost are refused, whatever overdraft is allowed during an outage.
        assert_eq!(reserve(&ledger, "acme", 1).unwrap_err(), ReserveError::Unavailable);
        place.server.start_again();
        flush_ledger(&ledger);
        wait_until("the shipment of all charges", || {
            at(&place, "acme") == (1_000_000 - round * 2_700, round * 2_700, round * 300)
        });
        wait_until("the next reservation", || reserve(&ledger, "acme", 1).is_ok());
    }
    drop(ledger);
    assert_audit_passes(&place.server);
}

/// A server that accepts connections but does not respond delays no request for long.
#[test]
fn outage_unresponsive_server_does_not_block_requests() {
    let Some(place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    let held = reserve(&ledger, "acme", 10).unwrap();
    let server = place.server.process().unwrap();
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    // Noticing it takes one response time limit and one attempt to connect.
    wait_until("the detection of the outage", || {
        reserve(&ledger, "acme", 900).unwrap_err() == ReserveError::Unavailable
    });
    settle(&ledger, Some(held), &record("acme", 5));
    assert!(began.elapsed() < AT_ONCE);
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGCONT).unwrap();
    flush_ledger(&ledger);
    assert_eq!(at(&place, "acme"), (995, 5, 1));
    wait_until("the return of the leases", || reserve(&ledger, "acme", 995).is_ok());
    assert_audit_passes(&place.server);
}

#[test]
fn available_balance_stays_while_the_unused_lease_is_on_its_way_back() {
    let Some(place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 16_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    drop(reserve(&ledger, "acme", 100).unwrap());
    flush_ledger(&ledger);
    // The return of what is unused begins within some 2 s. The server answers each time 400 ms late.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        assert_eq!(place.server.ask("CLIENT PAUSE 400 WRITE"), "+OK\r\n");
        for _ in 0..400 {
            assert_eq!(ledger.available(&id("acme")), Some(16_000));
            pause(1);
        }
    }
    flush_ledger(&ledger);
    assert_eq!(ledger.available(&id("acme")), Some(16_000));
}
