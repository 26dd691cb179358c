//! Whose a response is that its provider keeps: providers know one account, the gateway's, and would let everybody go
//! on from everything.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};

use super::sqlite_tasks::SqliteTasks;
use super::{Pending, SealKey, millis, now};

/// How long an owner is known: as long as OpenAI keeps responses (30 days), and a day.
pub(super) const LIFETIME: Duration = Duration::from_secs(31 * 86_400);
/// Most owners that are known; the oldest make room. At about 100 bytes each, 200 MB.
pub(super) const MOST: i64 = 1 << 21;
/// Of so many new rows, one removes as many that have expired or are too many, and some more.
const SWEPT: i64 = 16;

/// Keeps owners.
///
/// Promises: what an outcome has confirmed is found by whoever asks after that, also when the process has ended in
/// between, until it expires or makes room; no method waits. What has an owner is not to be claimed for another one.
pub trait OwnerStore: Send + Sync {
    /// Notes whose a thing is, by the hash of its name.
    fn claim(&self, key: SealKey, owner: &str) -> Pending<()>;

    /// Whose a thing is; nothing where that is not known.
    fn owner(&self, key: SealKey) -> Pending<Option<String>>;
}

impl OwnerStore for SqliteTasks {
    fn claim(&self, key: SealKey, owner: &str) -> Pending<()> {
        let owner = owner.to_owned();
        self.run(move |connection| {
            let expires = now().saturating_add(millis(LIFETIME));
            connection
                .prepare_cached(
                    "INSERT INTO owner (key, owner, expires) VALUES (?1, ?2, ?3)
                     ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
                     WHERE owner.expires <= ?4",
                )?
                .execute(params![&key[..], owner, expires, now()])?;
            // Rows are numbered as they come and all live equally long: the lowest numbers are the oldest.
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

    fn owner(&self, key: SealKey) -> Pending<Option<String>> {
        self.run(move |connection| {
            let mut select =
                connection.prepare_cached("SELECT owner FROM owner WHERE key = ?1 AND expires > ?2")?;
            select.query_row(params![&key[..], now()], |row| row.get(0)).optional()
        })
    }
}
