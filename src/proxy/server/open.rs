//! Opening of the stores and the ledger that the settings configure.

use std::sync::Arc;
use std::time::Duration;

use config::{self, Settings, StoreSettings as StoreIn};
use storage::kv::sqlite::{SqliteStore, SqliteTasks};
use storage::kv::valkey::ValkeyStore;
use storage::kv::{OwnerStore, Store, StoreLimits, TaskStore};
use storage::ledger::Ledger;
use storage::ledger::admin::LedgerAdmin;
use storage::ledger::backend::sqlite::{SqliteAdmin, SqliteLedger, SqliteLedgerConfig};
use storage::ledger::backend::valkey::{ClusterLedger, ClusterLedgerConfig, OnOutage, ValkeyAdmin};
use storage::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use storage::store::valkey::{ServerAddress, ServerAddressError};
use storage::store::{OpenError, StoreLock};

/// Reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The database file cannot be opened.
    #[error("store.sqlite: {0}")]
    File(OpenError),
    /// The journal of a gateway in a fleet cannot be opened.
    #[error("store.journal: {0}")]
    Journal(OpenError),
    /// The server's URL is invalid.
    #[error("store.valkey: {0}")]
    Address(#[from] ServerAddressError),
    /// The operating system refuses to start a thread.
    #[error("store.valkey: {0}")]
    Thread(std::io::Error),
}

/// Address of the fleet's server, or of its sentinels, whose credentials all users share. `None` for a database file.
#[derive(Clone)]
pub(crate) struct StoreAddress(Option<ServerAddress>);

impl StoreAddress {
    pub(crate) fn new(store: &StoreIn) -> Result<Self, StoreFault> {
        match store {
            StoreIn::Sqlite(_) => Ok(StoreAddress(None)),
            StoreIn::Valkey(fleet) => {
                let urls = fleet.urls.iter().map(|url| url.expose());
                Ok(StoreAddress(Some(ServerAddress::new(urls, fleet.sentinel.as_deref())?)))
            }
        }
    }

    fn server(&self) -> Result<ServerAddress, ServerAddressError> {
        // Only reached for a store with a server.
        self.0.clone().map_or_else(|| ServerAddress::new([], None), Ok)
    }

    /// Reads the URLs again that are secrets, for connections that are opened later. Blocks.
    ///
    /// # Errors
    /// Returns the reason if they cannot be used; those in effect stay.
    pub(crate) fn renew(&self, store: &StoreIn) -> Result<(), String> {
        let (StoreIn::Valkey(fleet), Some(address)) = (store, &self.0) else { return Ok(()) };
        let Some(urls) = fleet.read_again(&config::Environment)? else { return Ok(()) };
        let renewed = address.renew_credentials(urls.iter().map(|url| url.expose()));
        renewed.map_err(|error| error.to_string())
    }
}

/// Takes the lock of the database file. `None` for a server, which several gateways share. Blocks.
pub(crate) fn lock(settings: &Settings, takes_over: bool) -> Result<Option<StoreLock>, StoreFault> {
    match &settings.store {
        StoreIn::Sqlite(path) => StoreLock::take(path, takes_over).map(Some).map_err(StoreFault::File),
        StoreIn::Valkey(_) => Ok(None),
    }
}

/// Opens the store of responses and provider signatures. `None` if the lifetimes of both are zero.
pub(crate) fn store(
    settings: &Settings,
    address: &StoreAddress,
) -> Result<Option<Arc<dyn Store>>, StoreFault> {
    let kept = &settings.retention;
    if kept.lifetime.is_zero() && kept.seal_lifetime.is_zero() {
        return Ok(None);
    }
    let limits = StoreLimits {
        lifetime: kept.lifetime,
        response: kept.response,
        total: kept.total as u64,
        signature_lifetime: kept.seal_lifetime,
        signature_total: kept.seal_total as u64,
    };
    Ok(Some(match &settings.store {
        StoreIn::Sqlite(path) => Arc::new(SqliteStore::open(path, limits).map_err(StoreFault::File)?),
        StoreIn::Valkey(_) => {
            Arc::new(ValkeyStore::open(address.server()?, limits).map_err(StoreFault::Thread)?)
        }
    }))
}

/// Task store and owner store, which are the same object.
type TasksAndOwners = (Arc<dyn TaskStore>, Arc<dyn OwnerStore>);

/// Opens the store of tasks and of response owners. Both are small and always stored.
pub(crate) fn tasks(settings: &Settings, address: &StoreAddress) -> Result<TasksAndOwners, StoreFault> {
    Ok(match &settings.store {
        StoreIn::Sqlite(path) => {
            let board = Arc::new(SqliteTasks::open(path).map_err(StoreFault::File)?);
            (board.clone(), board)
        }
        StoreIn::Valkey(_) => {
            // This handle stores tasks and owners only, so responses and signatures get a lifetime of zero.
            let limits = StoreLimits {
                lifetime: Duration::ZERO,
                response: 0,
                total: u64::MAX,
                signature_lifetime: Duration::ZERO,
                signature_total: u64::MAX,
            };
            let valkey = Arc::new(ValkeyStore::open(address.server()?, limits).map_err(StoreFault::Thread)?);
            (valkey.clone(), valkey)
        }
    })
}

/// Opens the ledger of balances and usage.
pub(crate) fn ledger(
    settings: &Settings,
    address: &StoreAddress,
) -> Result<Option<Arc<dyn Ledger>>, StoreFault> {
    let (flush, records) = (settings.ledger.flush, settings.ledger.records);
    Ok(Some(match &settings.store {
        StoreIn::Sqlite(path) => Arc::new(
            SqliteLedger::open(path, SqliteLedgerConfig { flush, records, segment: DEFAULT_SEGMENT_LIMIT })
                .map_err(StoreFault::File)?,
        ),
        StoreIn::Valkey(fleet) => {
            let away = match fleet.away {
                config::OnOutageSetting::Refuse => OnOutage::Refuse,
                config::OnOutageSetting::Allow(allowance) => OnOutage::Allow(allowance),
            };
            let terms = ClusterLedgerConfig {
                flush,
                records,
                on_outage: away,
                journal: fleet.journal.clone(),
                segment: DEFAULT_SEGMENT_LIMIT,
            };
            Arc::new(ClusterLedger::open(address.server()?, terms).map_err(StoreFault::Journal)?)
        }
    }))
}

/// Opens the administration of the ledger. Blocks.
///
/// # Errors
/// Returns a description if the store cannot be opened.
pub(crate) fn ledger_admin(
    store: &StoreIn,
    address: &StoreAddress,
) -> Result<Box<dyn LedgerAdmin + Send>, String> {
    Ok(match store {
        StoreIn::Sqlite(path) => {
            Box::new(SqliteAdmin::open_existing(path).map_err(|error| format!("store.sqlite: {error}"))?)
        }
        StoreIn::Valkey(_) => {
            let address = address.server().map_err(|error| format!("store.valkey: {error}"))?;
            Box::new(ValkeyAdmin::open(&address).map_err(|error| format!("store.valkey: {error}"))?)
        }
    })
}
