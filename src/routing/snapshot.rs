//! Configuration snapshot: everything that decides how a request is handled. A request loads it once, so that a reload
//! never changes a request in flight.

use std::sync::Arc;

use crate::account::{Keys, Tokens};
use crate::route::RoutingTable;
use codec::catalogue::Catalogue;

/// Routes and keys of one configuration reload. Immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Number of reloads that took effect, including the first load: 1 at the start.
    pub generation: u64,
    /// Hash of the texts of its files of routes and keys, in hexadecimal digits, without their paths.
    pub hash: Arc<str>,
    /// Models, targets and providers.
    pub routes: RoutingTable,
    /// Keys.
    pub keys: Keys,
    /// Catalogue of models in effect.
    pub catalogue: Arc<Catalogue>,
    /// Issuing and verification of access tokens. `None` if they are not configured.
    pub tokens: Option<Arc<Tokens>>,
}

impl Snapshot {
    /// Returns the snapshot with another routing table. Keys are shared, not copied.
    #[must_use]
    pub fn with_routes(&self, routes: RoutingTable) -> Snapshot {
        Snapshot {
            generation: self.generation,
            hash: self.hash.clone(),
            routes,
            keys: self.keys.clone(),
            catalogue: self.catalogue.clone(),
            tokens: self.tokens.clone(),
        }
    }
}
