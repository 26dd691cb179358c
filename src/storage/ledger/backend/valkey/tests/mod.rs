//! Guarantees of a fleet, tested against a real server.

mod away;
mod bounds;
mod cluster;
mod failover;
mod limits;
mod many;

use std::time::Instant;

use crate::ledger::admin::LedgerAdmin as _;
use crate::ledger::backend::valkey::{ClusterLedger, ValkeyAdmin};
use crate::store::tests::ledger::stored;
use crate::store::tests::server::{Server, pause};
use crate::store::tests::{OnServer, PATIENCE, address};

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        pause(20);
    }
}

/// Repeats an attempt until it succeeds.
fn opened<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        pause(20);
    }
}

fn open_admin(server: &Server) -> ValkeyAdmin {
    opened(|| ValkeyAdmin::open(&address(server)))
}

/// Waits until the ledger has shipped everything.
fn flush_ledger(ledger: &ClusterLedger) {
    wait_until("the flush", || crate::store::tests::wait(ledger.flush()).is_ok());
}

/// Returns balance, charges and number of requests of an account at the server.
fn at(place: &OnServer, account: &str) -> (i64, i64, i64) {
    stored(&open_admin(&place.server), account)
}

/// Checks that all leases have been returned and the audit passes.
fn assert_audit_passes(server: &Server) {
    assert!(open_admin(server).audit().unwrap().is_empty());
}
