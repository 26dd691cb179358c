//! Owners of responses that a provider stores. A provider knows only the gateway's own account, and would let any
//! client of the gateway continue any stored response.

use std::time::Duration;

use super::StoreKey;
use crate::store::Pending;

/// Lifetime of an owner entry: OpenAI stores responses for 30 days; one day more.
pub(super) const LIFETIME: Duration = Duration::from_secs(31 * 86_400);
/// Maximum number of owner entries; the oldest are evicted. At about 100 bytes each, 200 MB.
pub(super) const MOST: i64 = 1 << 21;

/// Store of owners.
///
/// Guarantees: a confirmed claim is visible to every later read, also after a restart of the process, until it expires
/// or is evicted; no method blocks.
pub trait OwnerStore: Send + Sync {
    /// Records the owner of a resource, by the hash of its name. A resource that has an unexpired owner keeps it: a
    /// claim of that owner renews the lifetime of the entry, and a claim of another one has no effect.
    fn claim(&self, key: StoreKey, owner: &str) -> Pending<()>;

    /// Returns the owner of a resource. The outcome is `None` if it is unknown.
    fn owner(&self, key: StoreKey) -> Pending<Option<String>>;
}
