//! A cluster of three nodes: all keys of one account are in one slot, and accounts are spread over slots.

use super::limits::FleetNode;
use super::wait_until;
use crate::kv::valkey::ValkeyStore;
use crate::ledger::admin::LedgerAdmin as _;
use crate::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use crate::ledger::report::{DAY, UsageFilter, UsageGrouping};
use crate::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use crate::ledger::{Ledger, ReserveError};
use crate::store::tests::documents::{LIMITS, find, store_response};
use crate::store::tests::ledger::{id, open_account, record, reserve, settle, stored};
use crate::store::tests::server::Server;
use crate::store::tests::wait;
use crate::store::valkey::ServerAddress;
use routing::limits::{Denied, UsageLimits, Which};

const SLOTS: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
#[test]
fn cluster_spreads_accounts_and_keeps_each_on_one_node() {
    let node = || {
        Server::start_with(&[
            "--appendonly",
            "no",
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "2000",
        ])
    };
    let Some(first) = node() else { return };
    let nodes = [first, node().unwrap(), node().unwrap()];
    for (node, (from, to)) in nodes.iter().zip(SLOTS) {
        assert_eq!(node.ask(&format!("CLUSTER ADDSLOTSRANGE {from} {to}")), "+OK\r\n");
        assert_eq!(node.ask(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port)), "+OK\r\n");
    }
    wait_until("the start of the cluster", || {
        nodes.iter().all(|node| {
            let info = node.ask("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
    });
    let urls: Vec<String> = nodes.iter().map(Server::url).collect();
    let address = || ServerAddress::new(urls.iter().map(String::as_str), None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = ClusterLedgerConfig {
        flush: std::time::Duration::from_millis(20),
        records: std::time::Duration::from_secs(400 * 86_400),
        on_outage: OnOutage::Refuse,
        journal: folder.path().join("ledger"),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    let admin = ValkeyAdmin::open(&address()).unwrap();
    let names: Vec<String> = (0..30).map(|n| format!("account {n}")).collect();
    for name in &names {
        open_account(&admin, name, 1_000);
    }
    let ledger = ClusterLedger::open(address(), config).unwrap();
    for name in &names {
        let held = reserve(&ledger, name, 100).unwrap();
        assert_eq!(reserve(&ledger, name, 901).unwrap_err(), ReserveError::Empty { available: 900 });
        settle(&ledger, Some(held), &record(name, 40));
    }
    settle(&ledger, None, &record("", 0));
    wait(ledger.flush()).unwrap();
    for name in &names {
        assert_eq!(stored(&admin, name), (960, 40, 1), "{name}");
        assert_eq!(ledger.available(&id(name)), Some(960), "{name}");
    }
    let all = UsageFilter { from: 0, to: i64::MAX / DAY, ..UsageFilter::default() };
    let lines = admin.usage(&all, UsageGrouping::Account).unwrap();
    assert_eq!(lines.len(), 31);
    assert_eq!(admin.accounts().unwrap().len(), 30);
    assert_eq!(wait(ledger.spent_since(0)).unwrap().len(), 30);
    let limits = UsageLimits {
        requests_per_minute: Some(10),
        tokens_per_minute: Some(1_000),
        concurrent: Some(2),
        spend_per_day: Some(100),
        spend_per_month: Some(100),
    };
    let gateway = FleetNode::new(ledger);
    for name in &names {
        let held = [(); 2].map(|()| gateway.take(name, limits, 100, 20).unwrap());
        let Denied::LimitReached(refused) = gateway.take(name, limits, 100, 20).unwrap_err() else {
            panic!()
        };
        assert_eq!(refused.which, Which::Concurrent, "{name}");
        drop(held);
        // 40 of 100 were charged to it above. The two permits are on their way back to the server, and count until
        // then.
        wait_until("the return of the permits", || {
            let Denied::LimitReached(refused) = gateway.take(name, limits, 100, 61).unwrap_err() else {
                panic!()
            };
            assert!(matches!(refused.which, Which::Concurrent | Which::SpendPerMonth), "{name}");
            refused.which == Which::SpendPerMonth
        });
    }
    drop(gateway);
    assert!(admin.audit().unwrap().is_empty());
    // The keys are spread over all nodes.
    assert!(nodes.iter().all(|node| node.ask("DBSIZE") != ":0\r\n"));

    let store = ValkeyStore::open(address(), LIMITS).unwrap();
    for (n, name) in names.iter().enumerate() {
        store_response(&store, name, &format!("resp_{n}"), "one");
    }
    assert!(find(&store, &names[29], "resp_29").is_some() && find(&store, &names[29], "resp_1").is_none());
}
