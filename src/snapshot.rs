//! Everything that a request is decided by, frozen: loaded once per request, so that a reload never changes a request
//! that is under way.

use std::sync::Arc;

use crate::account::{Keys, Tokens};
use crate::route::RoutingTable;

/// Routes and keys as one reload made them. Immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Counts the reloads that took effect; 1 is the start.
    pub generation: u64,
    /// Models, targets and providers.
    pub routes: RoutingTable,
    /// Keys.
    pub keys: Keys,
    /// How access tokens are issued and verified; nothing where there are none.
    pub tokens: Option<Arc<Tokens>>,
}
