//! Ownership claims of a request (`response_owner`).

use storage::store::Pending;

/// Ownership claims of a request, stored when its response is complete.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The provider may store the response.
    pub(super) answer: bool,
    /// Ids of the responses and conversations that the request continues and that have no known owner, or whose entry
    /// it renews.
    pub(super) adopted: Vec<String>,
    /// Claims that were sent to the store.
    pub(super) pending: Vec<Pending<()>>,
}
