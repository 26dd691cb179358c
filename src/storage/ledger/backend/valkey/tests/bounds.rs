//! Bounds: the queue of the thread, and the lifetime of leases after the end.

use std::sync::Arc;

use super::{assert_audit_passes, at, flush_ledger, open_admin, wait_until};
use crate::ledger::backend::valkey::OnOutage;
use crate::ledger::wal::{DEFAULT_SEGMENT_LIMIT, Journal};
use crate::ledger::worker::QUEUE;
use crate::ledger::{Ledger, ReserveError, ReserveOutcome};
use crate::store::tests::ledger::{id, open_account, record, reserve, settle};
use crate::store::tests::{OnServer, TestBackend as _, wait};

/// A stalled server does not grow the queue without limit, and requests whose client left are skipped.
#[test]
fn queue_for_a_stalled_server_is_bounded() {
    let Some(place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    drop(reserve(&ledger, "acme", 10).unwrap());
    let server = place.server.process().unwrap();
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for _ in 0..4 * QUEUE {
        match ledger.reserve(&id("acme"), 900) {
            ReserveOutcome::Known(Err(ReserveError::Unavailable)) => refused += 1,
            held => waiting.push(held),
        }
    }
    assert!(refused > 0, "{} wait", waiting.len());
    drop(waiting);
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGCONT).unwrap();
    wait_until("the next reservation", || reserve(&ledger, "acme", 1_000).is_ok());
    assert_audit_passes(&place.server);
}

/// Closing the ledger returns its leases, without waiting until it is dropped.
#[test]
fn close_returns_the_leases() {
    let Some(place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000);
    let (one, other) = (place.cluster_ledger(OnOutage::Refuse), place.cluster_ledger(OnOutage::Refuse));
    let held = reserve(&one, "acme", 10).unwrap();
    assert!(matches!(reserve(&other, "acme", 1_000), Err(ReserveError::Empty { .. })));
    let settled = one.settle(Some(held), &record("acme", 7));
    wait(one.close()).unwrap();
    assert_eq!(settled.wait(crate::store::tests::PATIENCE), Ok(()));
    drop(reserve(&other, "acme", 993).unwrap());
    assert_eq!(at(&place, "acme"), (993, 7, 1));
    // A settlement after that is not lost.
    drop(one.settle(None, &record("acme", 3)));
    drop(one);
    flush_ledger(&other);
    wait_until("the charges are shipped", || at(&place, "acme") == (990, 10, 2));
    assert_audit_passes(&place.server);
}

/// The search for leases of gateways that are gone is not a part of each transaction, but a reservation that needs them has
/// them at once.
#[test]
fn leases_of_a_gateway_that_is_gone_are_found_when_they_are_needed() {
    let Some(place) = OnServer::new() else { return };
    let server = &place.server;
    open_account(&open_admin(server), "acme", 1_000);
    let leases_of_ended_gateway = |amount: u32, next_search: &str| {
        server.ask(&format!("HINCRBY mg:{{a:acme}}:account free -{amount}"));
        server.ask(&format!("HSET mg:{{a:acme}}:leases 00000000000000ff {amount}"));
        server.ask("HSET mg:{a:acme}:ends 00000000000000ff 1:1");
        server.ask(&format!("HSET mg:{{a:acme}}:ends \"\" {next_search}"));
    };
    // The next search is far away.
    leases_of_ended_gateway(600, "9999999999999");
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    drop(reserve(&ledger, "acme", 100).unwrap());
    assert_eq!(server.ask("HEXISTS mg:{a:acme}:leases 00000000000000ff"), ":1\r\n");
    drop(reserve(&ledger, "acme", 900).unwrap());
    assert_eq!(server.ask("HEXISTS mg:{a:acme}:leases 00000000000000ff"), ":0\r\n");
    // It is due: any transaction makes it.
    leases_of_ended_gateway(50, "1");
    wait_until("the search", || {
        settle(&ledger, None, &record("acme", 1));
        server.ask("HEXISTS mg:{a:acme}:leases 00000000000000ff") == ":0\r\n"
    });
    wait(ledger.close()).unwrap();
    assert_eq!(server.ask("EXISTS mg:{a:acme}:ends"), ":0\r\n");
    assert_audit_passes(server);
}

/// The limit is a number of entries, whatever the names of their owners.
#[test]
fn owner_entries_count_the_same_whatever_their_names() {
    let Some(place) = OnServer::new() else { return };
    let owners = place.owners();
    wait(owners.claim([1; 32], "a")).unwrap();
    let one = place.server.ask("GET mg:{owners}-size");
    assert_eq!(one, "$3\r\n128\r\n");
    wait(owners.claim([2; 32], &"a".repeat(128))).unwrap();
    assert_eq!(place.server.ask("GET mg:{owners}-size"), "$3\r\n256\r\n");
    // A claim that changes nothing counts nothing.
    wait(owners.claim([2; 32], "b")).unwrap();
    assert_eq!(place.server.ask("GET mg:{owners}-size"), "$3\r\n256\r\n");
}

/// The journal of an ended process is larger than one piece.
#[test]
fn journal_larger_than_one_piece_is_shipped_once() {
    let Some(place) = OnServer::new() else { return };
    open_account(&open_admin(&place.server), "acme", 1_000_000);
    open_account(&open_admin(&place.server), "other", 1_000_000);
    {
        let journal =
            Arc::new(Journal::create(&place.folder.path().join("ledger"), DEFAULT_SEGMENT_LIMIT).unwrap());
        for n in 0..20_000 {
            let request = format!("request with a rather long name {n}");
            let account = if n % 2 == 0 { "acme" } else { "other" };
            let record = crate::ledger::UsageRecord { request: &request, ..record(account, 2) };
            drop(journal.append(|out| record.encode(out)));
            if n % 1_000 == 0 {
                journal.write_queued().unwrap();
            }
        }
        journal.write_queued().unwrap();
    }
    let _ledger = place.cluster_ledger(OnOutage::Refuse);
    for account in ["acme", "other"] {
        wait_until("the charges are shipped", || at(&place, account) == (980_000, 20_000, 10_000));
    }
    assert_audit_passes(&place.server);
}
