//! State of the queries for spend before this process, or these keys, started to count (`spent`).

use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use storage::store::StoreError;

/// Receiver of the outcome of a query; the value is `None` until the query has ended.
pub(super) type QueryReceiver = watch::Receiver<Option<Result<(), StoreError>>>;

/// State of the spend queries.
#[derive(Debug, Default)]
pub(crate) struct SpendQueries(pub(super) Mutex<SpendState>);

#[derive(Debug, Default)]
pub(super) struct SpendState {
    /// Latest key generation whose spend is loaded.
    pub(super) loaded_generation: u64,
    /// Generation for which a query is running.
    pub(super) running: Option<(u64, QueryReceiver)>,
    /// Time and error of the last failed query.
    pub(super) failed: Option<(Instant, StoreError)>,
}
