//! Servers that have lost state: restarted from an older copy, or a promoted replica.

use std::time::Duration;

use super::limits::FleetNode;
use super::{assert_audit_passes, at, flush_ledger, open_admin, opened, wait_until};
use crate::ledger::admin::LedgerAdmin as _;
use crate::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use crate::ledger::report::{DAY, UsageFilter, UsageGrouping};
use crate::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use crate::ledger::{Ledger, UsageRecord};
use crate::store::tests::ledger::{id, open_account, record, reserve, settle, stored};
use crate::store::tests::server::Server;
use crate::store::tests::{OnServer, PATIENCE, address, runtime};
use crate::store::valkey::ServerAddress;
use routing::limits::UsageLimits;

fn all_days() -> UsageFilter {
    UsageFilter { from: 0, to: i64::MAX / DAY, ..UsageFilter::default() }
}

#[test]
fn failover_lost_charges_are_shipped_again_once() {
    // This server writes to its disk on command only.
    let Some(server) = Server::start_with(&["--appendonly", "no"]) else { return };
    let mut place = OnServer { server, folder: tempfile::tempdir().unwrap() };
    open_account(&open_admin(&place.server), "acme", 10_000);
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    for _ in 0..10 {
        settle(&ledger, Some(reserve(&ledger, "acme", 10).unwrap()), &record("acme", 7));
    }
    flush_ledger(&ledger);
    assert_eq!(place.server.ask("SAVE"), "+OK\r\n");
    for _ in 0..20 {
        settle(&ledger, Some(reserve(&ledger, "acme", 10).unwrap()), &record("acme", 5));
        settle(&ledger, None, &record("", 0));
        flush_ledger(&ledger);
    }
    assert_eq!(at(&place, "acme"), (10_000 - 170, 170, 30));
    place.server.kill();
    place.server.start_again();
    wait_until("the charges are shipped again", || at(&place, "acme") == (10_000 - 170, 170, 30));
    wait_until("the return of the leases", || reserve(&ledger, "acme", 9_830).is_ok());
    // Each is charged exactly once.
    flush_ledger(&ledger);
    assert_eq!(at(&place, "acme"), (10_000 - 170, 170, 30));
    assert_audit_passes(&place.server);
}

/// The server loses everything while the connection stays, as after a failover inside a cluster.
#[test]
fn usage_that_is_shipped_again_is_in_reports() {
    let Some(place) = OnServer::new() else { return };
    let ledger = place.cluster_ledger(OnOutage::Refuse);
    settle(&ledger, None, &record("", 0));
    flush_ledger(&ledger);
    assert_eq!(place.server.ask("FLUSHALL"), "+OK\r\n");
    settle(&ledger, None, &record("", 0));
    flush_ledger(&ledger);
    let lines = open_admin(&place.server).usage(&all_days(), UsageGrouping::Account).unwrap();
    assert_eq!(lines.first().map(|line| line.sums.requests), Some(2), "{lines:?}");
}

/// The server has lost frames of one account while another one begins a new day.
#[test]
fn usage_of_a_new_day_is_in_reports_after_a_gap() {
    let Some(place) = OnServer::new() else { return };
    let config = ClusterLedgerConfig {
        // Flushes happen on command only, so that one flush has all records.
        flush: Duration::from_secs(3_600),
        records: Duration::from_secs(400 * 86_400),
        on_outage: OnOutage::Refuse,
        journal: place.folder.path().join("ledger"),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    let ledger = ClusterLedger::open(address(&place.server), config).unwrap();
    settle(&ledger, None, &record("one", 1));
    flush_ledger(&ledger);
    let delete_seq =
        "EVAL \"return redis.call('DEL', unpack(redis.call('KEYS', 'mg:{a:one}:journal:*')))\" 0";
    assert_eq!(place.server.ask(delete_seq), ":1\r\n");
    settle(&ledger, None, &record("one", 1));
    // More than one transaction takes: the new day is in the second one.
    let day = record("two", 1).time;
    for n in 0..3_000 {
        let time = if n < 2_900 { day } else { day + DAY };
        drop(ledger.settle(None, &UsageRecord { time, ..record("two", 1) }));
    }
    settle(&ledger, None, &UsageRecord { time: day + DAY, ..record("two", 1) });
    flush_ledger(&ledger);
    let lines = open_admin(&place.server).usage(&all_days(), UsageGrouping::Day).unwrap();
    let requests: Vec<i64> = lines.iter().map(|line| line.sums.requests).collect();
    // The first record of `one` is shipped twice, because only its number was lost.
    assert_eq!(requests, [3 + 2_900, 101], "{lines:?}");
}

/// Sentinels detect that the server is gone and promote its replica.
#[test]
fn failover_to_a_replica_loses_no_charge_or_permit() {
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
    wait_until("the start of the replication", || {
        second.ask("INFO replication").contains("master_link_status:up")
            && sentinel.ask("SENTINEL replicas mymaster").contains(&second.port.to_string())
    });
    let address = || ServerAddress::new([&*sentinel.url()], Some("mymaster")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = ClusterLedgerConfig {
        flush: Duration::from_millis(20),
        records: Duration::from_secs(400 * 86_400),
        on_outage: OnOutage::Allow(1_000),
        journal: folder.path().join("ledger"),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    // On a busy machine the sentinel takes a master for down now and then, and names none for a moment.
    let reopen_admin = || opened(|| ValkeyAdmin::open(&address()));
    let admin = reopen_admin();
    open_account(&admin, "acme", 100_000);
    drop(admin);
    wait_until("the replication of the account", || {
        second.ask("HGET mg:{a:acme}:account free").contains("100000")
    });
    let other = ClusterLedgerConfig { journal: folder.path().join("other"), ..config.clone() };
    let gateway = FleetNode::new(opened(|| ClusterLedger::open(address(), config.clone())));
    let limits = UsageLimits { concurrent: Some(3), ..UsageLimits::default() };
    let permits = [(); 3].map(|()| gateway.take("acme", limits, 0, 0).unwrap());
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
    // Requests continue meanwhile, from the lease and then from the overdraft.
    let mut done = (0, 0);
    wait_until("the failover", || {
        done = request();
        second.ask("ROLE").contains("master")
    });
    flush_ledger(ledger);
    let late = FleetNode::new(opened(|| ClusterLedger::open(address(), other.clone())));
    wait_until("the replication of the permits", || late.take("acme", limits, 0, 0).is_err());
    drop(permits);
    wait_until("the release of the permits", || late.take("acme", limits, 0, 0).is_ok());
    let admin = reopen_admin();
    wait_until("the shipment to the new master", || {
        stored(&admin, "acme") == (100_000 - done.0, done.0, done.1)
    });
    assert!(done.1 > 200);
    drop((gateway, late));
    assert!(admin.audit().unwrap().is_empty());
    assert_eq!(first.ask("PING"), "", "the killed server responds");
}
