//! Journal replay: applies the frames of this process's journal and of orphaned journals to the database.

use std::path::Path;

use rusqlite::Connection;

use super::rows::{self, ApplyError, BalanceRow, Changed};
use crate::ledger::wal::{JournalFrame, JournalFrames, orphaned};
use crate::store::schema::OpenError;

/// Maximum number of frames in one transaction, so that other connections can write in between.
const BATCH: usize = 4096;

/// Callback for each changed account: the journal that changed it, its new state and the amount charged. Changes by
/// others are reported with journal 0 and amount 0.
pub(super) type OnChange<'a> = &'a mut dyn FnMut(u64, Changed, i64);

/// Applies the frames of a segment, or of a piece of one, to the database with fsync. `seen` is the highest value of
/// `account.changed` that was reported.
pub(super) fn apply_segment(
    connection: &Connection,
    segment: &[u8],
    seen: &mut i64,
    on_change: OnChange<'_>,
) -> Result<(), ApplyError> {
    let Some(frames) = JournalFrames::new(segment) else { return Ok(()) };
    let journal = frames.journal();
    let frames: Vec<JournalFrame<'_>> = frames.collect();
    // FULL: the commit is on the disk when it returns, so that the segment may be recycled afterwards.
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    for batch in frames.chunks(BATCH) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let applied = apply_in_transaction(connection, journal, batch, *seen);
        if applied.is_err() && !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        let Applied { changed, charged, last } = applied?;
        for row in changed {
            on_change(0, Changed::Row(row), 0);
        }
        for charged in charged {
            on_change(journal, charged.account, charged.charge);
        }
        *seen = last;
    }
    Ok(())
}

struct Applied {
    /// Accounts that others changed since the last call.
    changed: Vec<BalanceRow>,
    charged: Vec<rows::Charged>,
    /// Highest value of `account.changed` in both lists.
    last: i64,
}

fn apply_in_transaction(
    connection: &Connection,
    journal: u64,
    frames: &[JournalFrame<'_>],
    seen: i64,
) -> Result<Applied, ApplyError> {
    // Read what others changed first: the transaction excludes other writers, so `last` covers all of their changes.
    let (changed, last) = rows::changed_since(connection, seen)?;
    let stamp = rows::next_stamp(connection)?;
    let charged = rows::apply(connection, journal, frames, stamp)?;
    connection.execute_batch("COMMIT")?;
    // Without a changed row, the stamp is still free: another process may use it.
    let changes = charged.iter().any(|charged| matches!(charged.account, Changed::Row(_)));
    let last = if changes { stamp } else { last };
    Ok(Applied { changed, charged, last })
}

/// Replays the journals of ended processes and removes their files.
pub(super) fn recover(
    connection: &Connection,
    folder: &Path,
    seen: &mut i64,
    on_change: OnChange<'_>,
) -> Result<(), OpenError> {
    let path = || folder.to_owned();
    let io = |source| OpenError::Io { path: path(), source };
    for leftover in orphaned(folder).map_err(io)? {
        let mut leftover = leftover.map_err(io)?;
        let id = leftover.id;
        for segment in &mut leftover.segments {
            while let Some(piece) = segment.next().map_err(io)? {
                apply_segment(connection, piece, seen, on_change).map_err(|error| match error {
                    ApplyError::Database(source) => OpenError::Database { path: path(), source },
                    ApplyError::Io(source) => io(source),
                    ApplyError::Record(_) => OpenError::Journal { path: path(), journal: id },
                })?;
            }
        }
        leftover.remove().map_err(io)?;
    }
    Ok(())
}
