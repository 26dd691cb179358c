//! Owner store in SQLite.

use rusqlite::{OptionalExtension as _, params};

use super::SqliteTasks;
use crate::kv::owners::{LIFETIME, MOST};
use crate::kv::{OwnerStore, StoreKey};
use crate::store::{Pending, millis, now};

/// Number of inserts between two sweeps. Each sweep examines twice as many of the oldest rows and deletes those that
/// have expired or exceed [`MOST`].
const SWEPT: i64 = 16;

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
