//! Guarantees of every store: the same tests on a file and on a server.

pub(crate) mod documents;
pub(crate) mod ledger;
pub(crate) mod owners;
#[path = "../../../../tests/support/ports.rs"]
mod ports;
pub(crate) mod records;
/// Server support, shared with the tests of the running gateway.
#[path = "../../../../tests/support/valkey.rs"]
pub(crate) mod server;
pub(crate) mod tasks;

use std::sync::Arc;
use std::time::Duration;

use super::valkey::ServerAddress;
use super::{Pending, StoreError};
use crate::kv::sqlite::{SqliteStore, SqliteTasks};
use crate::kv::valkey::ValkeyStore;
use crate::kv::{OwnerStore, Store, StoreLimits, TaskStore};
use crate::ledger::Ledger;
use crate::ledger::admin::LedgerAdmin;
use crate::ledger::backend::sqlite::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig};
use crate::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use crate::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use server::Server;

/// Time limit of one step of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
const FLUSH: Duration = Duration::from_millis(20);
const RECORDS: Duration = Duration::from_secs(400 * 86_400);

/// Waits for an outcome.
pub(crate) fn wait<T>(pending: Pending<T>) -> Result<T, StoreError> {
    runtime().block_on(pending.within(PATIENCE))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Ledger with a synchronous flush.
pub(crate) trait Flushing: Ledger {
    fn flush(&self);
}

impl Flushing for SqliteLedger {
    fn flush(&self) {
        wait(SqliteLedger::flush(self)).unwrap();
    }
}

impl Flushing for ClusterLedger {
    fn flush(&self) {
        wait(ClusterLedger::flush(self)).unwrap();
    }
}

/// Storage under test.
pub(crate) trait TestBackend {
    fn store(&self, limits: StoreLimits) -> Box<dyn Store>;
    fn tasks(&self) -> Box<dyn TaskStore>;
    fn owners(&self) -> Box<dyn OwnerStore>;
    /// Makes all owner entries expire at a time in Unix milliseconds.
    fn expire_owners(&self, time: i64);
    fn ledger(&self) -> Arc<dyn Flushing>;
    fn admin(&self) -> Box<dyn LedgerAdmin>;
}

/// Storage in a file.
struct OnFile(tempfile::TempDir);

impl OnFile {
    fn new() -> Option<Self> {
        let place = OnFile(tempfile::tempdir().unwrap());
        drop(place.admin());
        Some(place)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("state.db")
    }
}

impl TestBackend for OnFile {
    fn store(&self, limits: StoreLimits) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.path(), limits).unwrap())
    }

    fn tasks(&self) -> Box<dyn TaskStore> {
        Box::new(SqliteTasks::open(&self.path()).unwrap())
    }

    fn owners(&self) -> Box<dyn OwnerStore> {
        Box::new(SqliteTasks::open(&self.path()).unwrap())
    }

    fn expire_owners(&self, time: i64) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.execute_batch(&format!("UPDATE owner SET expires = {time}")).unwrap();
    }

    fn ledger(&self) -> Arc<dyn Flushing> {
        let config = SqliteLedgerConfig { flush: FLUSH, records: RECORDS, segment: DEFAULT_SEGMENT_LIMIT };
        Arc::new(SqliteLedger::open(&self.path(), config).unwrap())
    }

    fn admin(&self) -> Box<dyn LedgerAdmin> {
        Box::new(SqliteAdmin::open(&self.path()).unwrap())
    }
}

/// Returns the address of a server.
pub(crate) fn address(server: &Server) -> ServerAddress {
    ServerAddress::new([&*server.url()], None).unwrap()
}

/// Storage on a server, with the journal folder of one gateway.
pub(crate) struct OnServer {
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
}

impl OnServer {
    pub(crate) fn new() -> Option<Self> {
        Some(OnServer { server: Server::start()?, folder: tempfile::tempdir().unwrap() })
    }

    /// Opens a cluster ledger with this outage policy.
    pub(crate) fn cluster_ledger(&self, on_outage: OnOutage) -> ClusterLedger {
        self.cluster_ledger_with_segment(on_outage, DEFAULT_SEGMENT_LIMIT)
    }

    /// Same as `cluster_ledger`, with this segment size in bytes.
    pub(crate) fn cluster_ledger_with_segment(&self, on_outage: OnOutage, segment: u64) -> ClusterLedger {
        let config = ClusterLedgerConfig {
            flush: FLUSH,
            records: RECORDS,
            on_outage,
            journal: self.folder.path().join("ledger"),
            segment,
        };
        ClusterLedger::open(address(&self.server), config).unwrap()
    }
}

impl TestBackend for OnServer {
    fn store(&self, limits: StoreLimits) -> Box<dyn Store> {
        Box::new(ValkeyStore::open(address(&self.server), limits).unwrap())
    }

    fn tasks(&self) -> Box<dyn TaskStore> {
        Box::new(ValkeyStore::open(address(&self.server), documents::LIMITS).unwrap())
    }

    fn owners(&self) -> Box<dyn OwnerStore> {
        Box::new(ValkeyStore::open(address(&self.server), documents::LIMITS).unwrap())
    }

    fn expire_owners(&self, time: i64) {
        let expire = format!(
            "for _, name in ipairs(redis.call('ZRANGE', 'mg:{{owners}}-order', 0, -1)) do \
             redis.call('HSET', name, 'e', '{time}') end"
        );
        assert_eq!(self.server.ask(&format!("EVAL \"{expire}\" 0")), "$-1\r\n");
    }

    fn ledger(&self) -> Arc<dyn Flushing> {
        Arc::new(self.cluster_ledger(OnOutage::Refuse))
    }

    fn admin(&self) -> Box<dyn LedgerAdmin> {
        Box::new(ValkeyAdmin::open(&address(&self.server)).unwrap())
    }
}

/// Generates two tests from each function: one on a file, one on a server.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_a_file {
            $(#[test]
            fn $name() {
                super::$name(&$crate::store::tests::OnFile::new().unwrap());
            })*
        }
        mod on_a_server {
            $(#[test]
            fn $name() {
                if let Some(place) = $crate::store::tests::OnServer::new() {
                    super::$name(&place);
                }
            })*
        }
    };
}
use on_both;
