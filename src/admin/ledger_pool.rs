//! Open administrations of the ledger, which operations of the admin API take turns with.

use std::sync::Arc;

use parking_lot::Mutex;

use super::control::GatewayControl;
use super::error::{AdminApiError, ErrorCode};
use storage::ledger::admin::{AdminError, LedgerAdmin};

/// Number of administrations that stay open.
const IDLE: usize = 2;

/// Open administrations of the ledger.
pub(super) struct LedgerPool {
    control: Arc<dyn GatewayControl>,
    idle: Mutex<Vec<Box<dyn LedgerAdmin + Send>>>,
}

impl LedgerPool {
    pub(super) fn new(control: Arc<dyn GatewayControl>) -> Self {
        LedgerPool { control, idle: Mutex::default() }
    }

    /// Calls `work` with an administration of the ledger. Blocks.
    ///
    /// # Errors
    /// Returns the error of `work`, or that the store cannot be opened.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&dyn LedgerAdmin) -> Result<T, AdminError>,
    ) -> Result<T, AdminApiError> {
        let idle = self.idle.lock().pop();
        let admin = match idle {
            Some(admin) => admin,
            None => {
                let opened = self.control.open_ledger();
                opened.map_err(|reason| AdminApiError::new(ErrorCode::Unavailable, reason))?
            }
        };
        let done = work(&*admin);
        // A connection that failed is not used again.
        if !matches!(done, Err(AdminError::Database(_) | AdminError::Server(_))) {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE {
                idle.push(admin);
            }
        }
        Ok(done?)
    }
}

impl std::fmt::Debug for LedgerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LedgerPool")
    }
}
