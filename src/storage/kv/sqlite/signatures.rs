//! Provider signatures in SQLite: values by account and hash, with a lifetime and a limit of their total size.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::kv::StoreKey;
use crate::store::now;

/// Accounted size of an entry beside its value and account name, in bytes: key, row header and index entries.
const OVERHEAD: u64 = 128;

/// Returns the accounted size of an entry, in bytes.
pub(super) fn size_of(account: &str, value: &Bytes) -> u64 {
    (account.len() + value.len()) as u64 + OVERHEAD
}

/// Inserts or replaces one entry. Returns the bytes that were added and the bytes that were freed.
pub(super) fn insert(
    connection: &Connection,
    account: &str,
    key: &StoreKey,
    value: &Bytes,
    expires: i64,
) -> rusqlite::Result<(u64, u64)> {
    let mut delete =
        connection.prepare_cached("DELETE FROM seal WHERE key = ?1 AND account = ?2 RETURNING size")?;
    let freed = delete.query_row(params![&key[..], account], |row| row.get::<_, i64>(0)).optional()?;
    let size = size_of(account, value);
    connection
        .prepare_cached("INSERT INTO seal (account, key, expires, size, value) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![account, &key[..], expires, i64::try_from(size).unwrap_or(i64::MAX), &value[..]])?;
    Ok((size, freed.and_then(|freed| u64::try_from(freed).ok()).unwrap_or(0)))
}

/// Finds one entry. Returns `None` if there is none or it has expired.
pub(super) fn find(
    connection: &Connection,
    account: &str,
    key: &StoreKey,
) -> rusqlite::Result<Option<Bytes>> {
    let mut select = connection
        .prepare_cached("SELECT value FROM seal WHERE key = ?1 AND account = ?2 AND expires > ?3")?;
    let found =
        select.query_row(params![&key[..], account, now()], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from));
    found.optional()
}

/// Removes the oldest entry and returns its accounted size in bytes. Returns `None` if the table is empty.
pub(super) fn remove_oldest(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let mut delete = connection.prepare_cached(
        "DELETE FROM seal WHERE number = (SELECT number FROM seal ORDER BY number LIMIT 1) RETURNING size",
    )?;
    let freed = delete.query_row((), |row| row.get::<_, i64>(0)).optional()?;
    Ok(freed.map(|freed| u64::try_from(freed).unwrap_or(0)))
}

/// Removes at most `most` expired entries and returns how many were removed.
pub(super) fn sweep(connection: &Connection, most: usize) -> rusqlite::Result<usize> {
    let mut delete = connection.prepare_cached(
        "DELETE FROM seal WHERE number IN (SELECT number FROM seal WHERE expires <= ?1 LIMIT ?2)",
    )?;
    delete.execute(params![now(), i64::try_from(most).unwrap_or(i64::MAX)])
}

/// Returns the accounted size of all entries, in bytes.
pub(super) fn total(connection: &Connection) -> rusqlite::Result<u64> {
    let total: i64 = connection.query_row("SELECT COALESCE(SUM(size), 0) FROM seal", (), |row| row.get(0))?;
    Ok(u64::try_from(total).unwrap_or(0))
}
