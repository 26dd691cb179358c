//! What a fleet may rely on, against a real server.

mod away;
mod bounds;
mod cluster;
mod failover;
mod limits;
mod many;

use std::time::Instant;

use crate::store::admin::LedgerAdmin as _;
use crate::store::suite::ledger::stored;
use crate::store::suite::server::{Server, pause};
use crate::store::suite::{OnServer, PATIENCE, address};
use crate::store::valkey::{ClusterLedger, ValkeyAdmin};

/// Waits until something holds.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        pause(20);
    }
}

fn desk(server: &Server) -> ValkeyAdmin {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ValkeyAdmin::open(&address(server)) {
            Ok(desk) => return desk,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        pause(20);
    }
}

/// Waits until the ledger has brought all that it has.
fn flushed(ledger: &ClusterLedger) {
    soon("the charges are brought", || crate::store::suite::wait(ledger.flush()).is_ok());
}

/// Balance, charges and requests of an account, as the server has them.
fn at(place: &OnServer, account: &str) -> (i64, i64, i64) {
    stored(&desk(&place.server), account)
}

/// All that is set aside has been given back, and every sum is that of its entries.
fn adds_up(server: &Server) {
    assert!(desk(server).audit().unwrap().is_empty());
}
