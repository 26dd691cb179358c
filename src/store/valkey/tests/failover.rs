//! Servers that know less than the one before: started from an older copy, or a replica that takes over.

use std::time::Duration;

use super::limits::Gateway;
use super::{adds_up, at, desk, flushed, soon};
use crate::account::UsageLimits;
use crate::store::admin::LedgerAdmin as _;
use crate::store::journal::SEGMENT;
use crate::store::ledger::Ledger;
use crate::store::suite::ledger::{id, open_account, record, reserve, settle, stored};
use crate::store::suite::server::Server;
use crate::store::suite::{OnServer, PATIENCE, runtime};
use crate::store::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ServerAddress, ValkeyAdmin};

#[test]
fn what_a_server_has_forgotten_is_brought_again() {
    // It writes only when it is told to.
    let Some(server) = Server::start_with(&["--appendonly", "no"]) else { return };
    let mut place = OnServer { server, folder: tempfile::tempdir().unwrap() };
    open_account(&desk(&place.server), "acme", 10_000);
    let ledger = place.fleet(OnOutage::Refuse);
    for _ in 0..10 {
        settle(&ledger, Some(reserve(&ledger, "acme", 10).unwrap()), &record("acme", 7));
    }
    flushed(&ledger);
    assert_eq!(place.server.ask("SAVE"), "+OK\r\n");
    for _ in 0..20 {
        settle(&ledger, Some(reserve(&ledger, "acme", 10).unwrap()), &record("acme", 5));
        settle(&ledger, None, &record("", 0));
        flushed(&ledger);
    }
    assert_eq!(at(&place, "acme"), (10_000 - 170, 170, 30));
    place.server.kill();
    place.server.start_again();
    soon("it is brought again", || at(&place, "acme") == (10_000 - 170, 170, 30));
    soon("all is free", || reserve(&ledger, "acme", 9_830).is_ok());
    // And once.
    flushed(&ledger);
    assert_eq!(at(&place, "acme"), (10_000 - 170, 170, 30));
    adds_up(&place.server);
}

/// Sentinels find that the server is gone, and make its replica the one that is asked.
#[test]
fn a_replica_that_takes_over_has_it_all_in_the_end() {
    let Some(mut first) = Server::start() else { return };
    let port = first.port.to_string();
    let second = Server::start_with(&["--replicaof", "127.0.0.1", &port, "--appendonly", "yes"]).unwrap();
    let conf = tempfile::tempdir().unwrap();
    let file = conf.path().join("sentinel.conf");
    std::fs::write(
        &file,
        format!(
            "sentinel monitor mymaster 127.0.0.1 {port} 1\nsentinel down-after-milliseconds mymaster 500\n\
             sentinel failover-timeout mymaster 3000\n"
        ),
    )
    .unwrap();
    let sentinel = Server::start_with(&[file.to_str().unwrap(), "--sentinel"]).unwrap();
    soon("the replica follows", || {
        second.ask("INFO replication").contains("master_link_status:up")
            && sentinel.ask("SENTINEL replicas mymaster").contains(&second.port.to_string())
    });
    let address = || ServerAddress::new([&*sentinel.url()], Some("mymaster")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let terms = ClusterLedgerConfig {
        flush: Duration::from_millis(20),
        records: Duration::from_secs(400 * 86_400),
        away: OnOutage::Allow(1_000),
        journal: folder.path().join("ledger"),
        segment: SEGMENT,
    };
    let office = ValkeyAdmin::open(&address()).unwrap();
    open_account(&office, "acme", 100_000);
    drop(office);
    soon("the replica has it", || second.ask("HGET mg:{a:acme}:account free").contains("100000"));
    let other = ClusterLedgerConfig { journal: folder.path().join("other"), ..terms.clone() };
    let gateway = Gateway::new(ClusterLedger::open(address(), terms).unwrap());
    let limits = UsageLimits { concurrent: Some(3), ..UsageLimits::default() };
    let places = [(); 3].map(|()| gateway.take("acme", limits, 0, 0).unwrap());
    let ledger = &gateway.ledger;
    let runtime = runtime();
    let (mut charged, mut requests) = (0, 0);
    let mut request = || {
        let held = runtime.block_on(ledger.reserve(&id("acme"), 10).within(PATIENCE));
        if let Ok(held) = held {
            settle(ledger, Some(held), &record("acme", 9));
            (charged, requests) = (charged + 9, requests + 1);
        }
        (charged, requests)
    };
    for _ in 0..200 {
        request();
    }
    first.kill();
    // Requests go on meanwhile, with what is set aside and then the allowance.
    let mut done = (0, 0);
    soon("the replica takes over", || {
        done = request();
        second.ask("ROLE").contains("master")
    });
    flushed(ledger);
    let late = Gateway::new(ClusterLedger::open(address(), other).unwrap());
    soon("places are kept", || late.take("acme", limits, 0, 0).is_err());
    drop(places);
    soon("and free in the end", || late.take("acme", limits, 0, 0).is_ok());
    let office = ValkeyAdmin::open(&address()).unwrap();
    soon("it has it all", || stored(&office, "acme") == (100_000 - done.0, done.0, done.1));
    assert!(done.1 > 200);
    drop((gateway, late));
    assert!(office.audit().unwrap().is_empty());
    assert_eq!(first.ask("PING"), "", "the first one is gone");
}
