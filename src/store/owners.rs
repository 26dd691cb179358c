//! Owners of responses that a provider stores. A provider knows only the gateway's own account, and would let any
//! client of the gateway continue any stored response.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};

use super::sqlite_tasks::SqliteTasks;
use super::{Pending, StoreKey, millis, now};

/// Lifetime of an owner entry: OpenAI stores responses for 30 days; one day more.
pub(super) const LIFETIME: Duration = Duration::from_secs(31 * 86_400);
/// Maximum number of owner entries; the oldest are evicted. At about 100 bytes each, 200 MB.
pub(super) const MOST: i64 = 1 << 21;
/// Number of inserts between two sweeps. Each sweep examines twice as many of the oldest rows and deletes those that
/// have expired or exceed [`MOST`].
const SWEPT: i64 = 16;

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

impl OwnerStore for SqliteTasks {
    fn claim(&self, key: StoreKey, owner: &str) -> Pending<()> {
        let owner = owner.to_owned();
        self.run(move |connection| {
            let expires = now().saturating_add(millis(LIFETIME));
            connection
                .prepare_cached(
                    "INSERT INTO owner (key, owner, expires) VALUES (?1, ?2, ?3)
                     ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires = excluded.expires,
                         number = (SELECT MAX(number) FROM owner) + 1
                     WHERE owner.expires <= ?4 OR owner.owner = excluded.owner",
                )?
                .execute(params![&key[..], owner, expires, now()])?;
            // `number` is assigned in insertion order and all rows have the same lifetime: the lowest numbers are the
            // oldest.
            if connection.last_insert_rowid() % SWEPT != 0 {
                return Ok(());
            }
            connection
                .prepare_cached(
                    "DELETE FROM owner WHERE number IN (SELECT number FROM owner ORDER BY number LIMIT ?1)
                     AND (expires <= ?2 OR number <= (SELECT MAX(number) FROM owner) - ?3)",
                )?
                .execute(params![SWEPT * 2, now(), MOST])?;
            Ok(())
        })
    }

    fn owner(&self, key: StoreKey) -> Pending<Option<String>> {
        self.run(move |connection| {
            let mut select =
                connection.prepare_cached("SELECT owner FROM owner WHERE key = ?1 AND expires > ?2")?;
            select.query_row(params![&key[..], now()], |row| row.get(0)).optional()
        })
    }
}
