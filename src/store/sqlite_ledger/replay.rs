//! The way of a journal into the database: those of this process, and those that ended processes left.

use std::path::Path;

use rusqlite::Connection;

use super::balances::BalanceRow;
use super::rows::{self, ApplyError, Changed};
use crate::store::journal::{Frame, Frames, leftovers};
use crate::store::schema::OpenError;

/// Frames that are brought in in one transaction at most, so that others get their turn.
const BATCH: usize = 4096;

/// Is told how accounts stand now, with the journal that changed them and what was charged. What others changed is told
/// with journal 0 and nothing charged.
pub(super) type Tell<'a> = &'a mut dyn FnMut(u64, Changed, i64);

/// Brings the frames of a segment, or of a piece of one, into the database, and on the disk. `seen` is the highest
/// number of a change that was told.
pub(super) fn bring_in(
    connection: &Connection,
    segment: &[u8],
    seen: &mut i64,
    tell: Tell<'_>,
) -> Result<(), ApplyError> {
    let Some(frames) = Frames::new(segment) else { return Ok(()) };
    let journal = frames.journal();
    let frames: Vec<Frame<'_>> = frames.collect();
    // The commit is on the disk when it returns.
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    for batch in frames.chunks(BATCH) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let applied = in_transaction(connection, journal, batch, *seen);
        if applied.is_err() && !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        let Applied { changed, charged, last } = applied?;
        for row in changed {
            tell(0, Changed::Row(row), 0);
        }
        for charged in charged {
            tell(journal, charged.account, charged.charge);
        }
        *seen = last;
    }
    Ok(())
}

struct Applied {
    /// What others changed before.
    changed: Vec<BalanceRow>,
    charged: Vec<rows::Charged>,
    /// The highest number of a change among both.
    last: i64,
}

fn in_transaction(
    connection: &Connection,
    journal: u64,
    frames: &[Frame<'_>],
    seen: i64,
) -> Result<Applied, ApplyError> {
    let (changed, last) = rows::changed_since(connection, seen)?;
    let stamp = rows::next_stamp(connection)?;
    let charged = rows::apply(connection, journal, frames, stamp)?;
    connection.execute_batch("COMMIT")?;
    let last = if charged.is_empty() { last } else { stamp };
    Ok(Applied { changed, charged, last })
}

/// Brings in the journals of ended processes.
pub(super) fn recover(
    connection: &Connection,
    folder: &Path,
    seen: &mut i64,
    tell: Tell<'_>,
) -> Result<(), OpenError> {
    let path = || folder.to_owned();
    let io = |source| OpenError::Io { path: path(), source };
    for leftover in leftovers(folder).map_err(io)? {
        let mut leftover = leftover.map_err(io)?;
        let id = leftover.id;
        for segment in &mut leftover.segments {
            while let Some(piece) = segment.next().map_err(io)? {
                bring_in(connection, piece, seen, tell).map_err(|error| match error {
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
