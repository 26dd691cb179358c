//! What outlives a request, opened where the settings say that it is.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, Settings, Store as StoreIn};
use crate::store::journal::SEGMENT;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite_ledger::{self, SqliteLedger};
use crate::store::sqlite_tasks::SqliteTasks;
use crate::store::valkey::{self, ClusterLedger, ServerAddress, ServerAddressError, ValkeyStore};
use crate::store::{Ledger, OpenError, OwnerStore, Store, StoreLimits, TaskStore};

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The file of the database.
    #[error("store.sqlite: {0}")]
    File(OpenError),
    /// The journal of a gateway of a fleet.
    #[error("store.journal: {0}")]
    Journal(OpenError),
    /// The URL of a server.
    #[error("store.valkey: {0}")]
    Address(#[from] ServerAddressError),
    /// The operating system refuses.
    #[error("store.valkey: {0}")]
    Thread(std::io::Error),
}

/// Where the server of a fleet is.
fn address(fleet: &config::FleetSettings) -> Result<ServerAddress, ServerAddressError> {
    ServerAddress::new(fleet.urls.iter().map(|url| url.expose()), fleet.sentinel.as_deref())
}

/// The place where responses and seals are kept. There is none where neither may be kept for any time.
pub(super) fn store(settings: &Settings) -> Result<Option<Arc<dyn Store>>, StoreFault> {
    let kept = &settings.kept;
    if kept.lifetime.is_zero() && kept.seal_lifetime.is_zero() {
        return Ok(None);
    }
    let limits = StoreLimits {
        lifetime: kept.lifetime,
        response: kept.response,
        total: kept.total as u64,
        seal_lifetime: kept.seal_lifetime,
        seal_total: kept.seal_total as u64,
    };
    Ok(Some(match &settings.store {
        StoreIn::Sqlite(path) => Arc::new(SqliteStore::open(path, limits).map_err(StoreFault::File)?),
        StoreIn::Valkey(fleet) => {
            Arc::new(ValkeyStore::open(address(fleet)?, limits).map_err(StoreFault::Thread)?)
        }
    }))
}

/// Where tasks are kept, and where owners of responses are.
type TasksAndOwners = (Arc<dyn TaskStore>, Arc<dyn OwnerStore>);

/// The place where tasks are kept, and owners, which are as small and always kept.
pub(super) fn tasks(settings: &Settings) -> Result<TasksAndOwners, StoreFault> {
    Ok(match &settings.store {
        StoreIn::Sqlite(path) => {
            let board = Arc::new(SqliteTasks::open(path).map_err(StoreFault::File)?);
            (board.clone(), board)
        }
        StoreIn::Valkey(fleet) => {
            // Nothing but tasks is kept there.
            let limits = StoreLimits {
                lifetime: Duration::ZERO,
                response: 0,
                total: u64::MAX,
                seal_lifetime: Duration::ZERO,
                seal_total: u64::MAX,
            };
            let valkey = Arc::new(ValkeyStore::open(address(fleet)?, limits).map_err(StoreFault::Thread)?);
            (valkey.clone(), valkey)
        }
    })
}

/// The place where balances and usage are kept.
pub(super) fn ledger(settings: &Settings) -> Result<Option<Arc<dyn Ledger>>, StoreFault> {
    let (flush, records) = (settings.ledger.flush, settings.ledger.records);
    Ok(Some(match &settings.store {
        StoreIn::Sqlite(path) => Arc::new(
            SqliteLedger::open(path, sqlite_ledger::SqliteLedgerConfig { flush, records, segment: SEGMENT })
                .map_err(StoreFault::File)?,
        ),
        StoreIn::Valkey(fleet) => {
            let away = match fleet.away {
                config::OnOutageSetting::Refuse => valkey::OnOutage::Refuse,
                config::OnOutageSetting::Allow(allowance) => valkey::OnOutage::Allow(allowance),
            };
            let terms = valkey::ClusterLedgerConfig {
                flush,
                records,
                away,
                journal: fleet.journal.clone(),
                segment: SEGMENT,
            };
            Arc::new(ClusterLedger::open(address(fleet)?, terms).map_err(StoreFault::Journal)?)
        }
    }))
}
