//! What is bounded: what waits for the thread, and for how long what is set aside stays so after the end.

use super::{adds_up, at, desk, flushed, soon};
use crate::store::journal::{Journal, SEGMENT};
use crate::store::ledger::{Ledger, ReserveError, ReserveOutcome};
use crate::store::suite::ledger::{id, open_account, record, reserve};
use crate::store::suite::{OnServer, wait};
use crate::store::valkey::OnOutage;
use crate::store::valkey::cluster_ledger::QUEUE;

/// A server that stands still makes no endless queue, and nobody is served who has left.
#[test]
fn what_waits_for_the_server_is_bounded() {
    let Some(place) = OnServer::new() else { return };
    open_account(&desk(&place.server), "acme", 1_000);
    let ledger = place.fleet(OnOutage::Refuse);
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
    soon("requests go on", || reserve(&ledger, "acme", 1_000).is_ok());
    adds_up(&place.server);
}

/// What ends gives back what is set aside for it, without waiting for its own destruction.
#[test]
fn the_end_gives_back_what_is_set_aside() {
    let Some(place) = OnServer::new() else { return };
    open_account(&desk(&place.server), "acme", 1_000);
    let (one, other) = (place.fleet(OnOutage::Refuse), place.fleet(OnOutage::Refuse));
    let held = reserve(&one, "acme", 10).unwrap();
    assert!(matches!(reserve(&other, "acme", 1_000), Err(ReserveError::Empty { .. })));
    let settled = one.settle(Some(held), &record("acme", 7));
    wait(one.close()).unwrap();
    assert_eq!(settled.wait(crate::store::suite::PATIENCE), Ok(()));
    drop(reserve(&other, "acme", 993).unwrap());
    assert_eq!(at(&place, "acme"), (993, 7, 1));
    // What is settled after that is not lost.
    drop(one.settle(None, &record("acme", 3)));
    drop(one);
    flushed(&other);
    soon("it is brought", || at(&place, "acme") == (990, 10, 2));
    adds_up(&place.server);
}

/// The journal of an ended process is larger than what is read of it at a time.
#[test]
fn a_large_journal_is_brought_once() {
    let Some(place) = OnServer::new() else { return };
    open_account(&desk(&place.server), "acme", 1_000_000);
    open_account(&desk(&place.server), "other", 1_000_000);
    {
        let journal = Journal::create(&place.folder.path().join("ledger"), SEGMENT).unwrap();
        for n in 0..20_000 {
            let request = format!("request with a rather long name {n}");
            let account = if n % 2 == 0 { "acme" } else { "other" };
            let record = crate::store::UsageRecord { request: &request, ..record(account, 2) };
            drop(journal.append(|out| record.encode(out)));
            if n % 1_000 == 0 {
                journal.write_queued().unwrap();
            }
        }
        journal.write_queued().unwrap();
    }
    let _ledger = place.fleet(OnOutage::Refuse);
    for account in ["acme", "other"] {
        soon("it is brought", || at(&place, account) == (980_000, 20_000, 10_000));
    }
    adds_up(&place.server);
}
