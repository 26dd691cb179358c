//! The ledger's thread: it brings the journal into the database, takes over what others changed there, brings in what
//! ended processes left, and removes records whose time is over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::replay;
use super::report;
use super::rows::{self, ApplyError, Changed};
use super::{Shared, Spent, SqliteLedgerCommand, SqliteLedgerConfig};
use crate::store::StoreError;
use crate::store::journal::{Segment, exists};
use crate::store::schema::{OpenError, Place};

/// How often it is looked at least whether the files are there.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is looked for journals of ended processes, and for records whose time is over.
const SWEEP: Duration = Duration::from_secs(10);
/// Blocks of records that are removed in one step.
const SWEPT: usize = 256;
/// Steps of a sweep, so that more is removed than the shortest `store.flush` can make in the same time.
const STEPS: usize = 16;
/// How long a failure is waited for before the same is said again.
const SAID: Duration = Duration::from_secs(10);

/// Worker that applies journal records to SQLite.
pub(super) struct JournalApplier {
    connection: Connection,
    place: Place,
    shared: Arc<Shared>,
    terms: SqliteLedgerConfig,
    folder: PathBuf,
    /// The segment that is being drained.
    draining: Option<Segment>,
    /// The highest number of a change that was seen.
    seen: i64,
    /// SQLite's count of what other connections wrote.
    version: i64,
    said: Option<Instant>,
}

impl JournalApplier {
    pub(super) fn new(
        connection: Connection,
        place: Place,
        shared: Arc<Shared>,
        terms: SqliteLedgerConfig,
        folder: &Path,
    ) -> Self {
        let folder = folder.to_owned();
        JournalApplier {
            connection,
            place,
            shared,
            terms,
            folder,
            draining: None,
            seen: 0,
            version: -1,
            said: None,
        }
    }

    /// Works until the ledger is dropped.
    pub(super) fn run(&mut self, asks: &Receiver<SqliteLedgerCommand>) {
        if !self.connection.is_autocommit() {
            // Left by a panic.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let mut sweep = Instant::now() + self.terms.flush;
        let mut turned = Instant::now();
        loop {
            let ask = asks.recv_timeout(self.terms.flush.min(LOOK));
            #[cfg(test)]
            if matches!(ask, Ok(SqliteLedgerCommand::Crash)) {
                return;
            }
            #[cfg(test)]
            assert!(!matches!(ask, Ok(SqliteLedgerCommand::Panic)), "on purpose");
            let there = self.look();
            if there.is_ok()
                && matches!(ask, Err(RecvTimeoutError::Timeout))
                && turned.elapsed() < self.terms.flush
            {
                continue;
            }
            turned = Instant::now();
            let done = there.and_then(|()| self.turn());
            match ask {
                Ok(ask) => self.answer(ask, done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // What came while the segment before was drained.
                    if done.is_ok() && self.turn().is_ok() {
                        self.shared.journal.remove_if_drained();
                    }
                    return;
                }
            }
            if Instant::now() >= sweep && self.look().is_ok() {
                self.sweep();
                sweep = Instant::now() + SWEEP.max(self.terms.flush);
            }
        }
    }

    /// Looks whether the files stand where they were opened: what is written to a file that was removed is lost.
    fn look(&self) -> Result<(), StoreError> {
        let fault = match self.place.look() {
            Ok(()) if self.shared.journal.is_there() => None,
            Ok(()) => Some(format!(
                "the journal in {} was removed or replaced; restart the gateway, and what it still holds in memory is \
                 brought in at its end",
                self.folder.display()
            )),
            Err(fault) => Some(fault),
        };
        match self.shared.note(fault.clone()) {
            Some(Some(fault)) => tracing::error!(fault, "accounts are refused; charges wait in the journal"),
            Some(None) => tracing::warn!("the ledger's files are there again"),
            None => {}
        }
        // Where it is the journal alone, the database takes what there is.
        match fault {
            Some(fault) if self.place.look().is_err() => Err(StoreError::Failed(fault)),
            _ => Ok(()),
        }
    }

    /// Brings everything in that is settled, and takes over what others changed.
    fn turn(&mut self) -> Result<(), StoreError> {
        let done = self.drain().and_then(|()| self.refresh().map_err(ApplyError::from));
        done.map_err(|error| {
            // The database does not take it: then at least the disk does.
            if let Some(segment) = &self.draining {
                let _ = self.shared.journal.sync(segment);
            }
            if self.said.is_none_or(|said| said.elapsed() > SAID) {
                tracing::error!(%error, "the ledger's database takes nothing; charges wait in the journal");
                self.said = Some(Instant::now());
            }
            StoreError::Failed(error.to_string())
        })
    }

    fn answer(&self, ask: SqliteLedgerCommand, done: Result<(), StoreError>) {
        // Whoever asked may have stopped waiting.
        match ask {
            SqliteLedgerCommand::Flush { outcome } => drop(outcome.send(done)),
            #[cfg(test)]
            SqliteLedgerCommand::Crash | SqliteLedgerCommand::Panic => {}
            SqliteLedgerCommand::Spent { day, outcome } => drop(outcome.send(
                done.and_then(|()| self.spent(day).map_err(|error| StoreError::Failed(error.to_string()))),
            )),
        }
    }

    /// Brings in what is in the journal, and what it did not take before.
    fn drain(&mut self) -> Result<(), ApplyError> {
        if self.draining.is_some() {
            // One that the database did not take before comes ahead of what came since.
            self.drain_segment()?;
        }
        self.drain_segment()?;
        // A segment may be full: there is room only now.
        if self.shared.journal.is_failing() {
            self.shared.journal.write_queued()?;
            self.drain_segment()?;
        }
        Ok(())
    }

    fn drain_segment(&mut self) -> Result<(), ApplyError> {
        if self.draining.is_none() {
            self.draining = self.shared.journal.rotate();
        }
        let Some(segment) = &self.draining else { return Ok(()) };
        let mut pieces = segment.pieces()?;
        while let Some(piece) = pieces.next()? {
            self.bring_in(piece)?;
        }
        if let Some(segment) = self.draining.take() {
            self.shared.journal.recycle(segment)?;
        }
        Ok(())
    }

    /// Brings the frames of a piece of a segment into the database, on the disk, and into the balances.
    fn bring_in(&mut self, segment: &[u8]) -> Result<(), ApplyError> {
        let own = self.shared.journal.id();
        let balances = &self.shared.balances;
        replay::bring_in(&self.connection, segment, &mut self.seen, &mut |journal, account, charge| {
            // What an ended process charged is news here.
            let charge = if journal == own { charge } else { 0 };
            match account {
                Changed::Row(row) => balances.refresh(row, charge),
                Changed::Unknown(name) => balances.owe(&name, charge),
            }
        })
    }

    /// Takes over what other connections changed.
    pub(super) fn refresh(&mut self) -> rusqlite::Result<()> {
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if version != self.version {
            let (changed, seen) = rows::changed_since(&self.connection, self.seen)?;
            for row in changed {
                self.shared.balances.refresh(row, 0);
            }
            (self.seen, self.version) = (seen, version);
        }
        Ok(())
    }

    /// Brings in the journals of ended processes.
    pub(super) fn recover(&mut self) -> Result<(), OpenError> {
        let balances = &self.shared.balances;
        replay::recover(&self.connection, &self.folder, &mut self.seen, &mut |_, account, _| {
            if let Changed::Row(row) = account {
                balances.refresh(row, 0);
            }
        })
    }

    fn sweep(&mut self) {
        if let Err(error) = self.recover() {
            tracing::error!(%error, "the journal of an ended process was not brought in");
        }
        if let Err(error) = self.forget() {
            tracing::warn!(%error, "records whose time is over were not removed");
        }
    }

    /// Removes records whose time is over, some at a time.
    fn forget(&self) -> rusqlite::Result<()> {
        let kept = i64::try_from(self.terms.records.as_millis()).unwrap_or(i64::MAX);
        let end = crate::store::now().saturating_sub(kept);
        for _ in 0..STEPS {
            let mut delete = self.connection.prepare_cached(
                "DELETE FROM block WHERE id IN (SELECT id FROM block WHERE last < ?1 LIMIT ?2)",
            )?;
            if delete.execute(params![end, i64::try_from(SWEPT).unwrap_or(i64::MAX)])? < SWEPT {
                break;
            }
        }
        // The numbers of a journal are needed for as long as it may be brought in.
        let mut select = self.connection.prepare_cached("SELECT id FROM journal WHERE time < ?1")?;
        let old: Vec<i64> = select.query_map(params![end], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for id in old {
            if !exists(&self.folder, u64::try_from(id).unwrap_or(0)) {
                self.connection.prepare_cached("DELETE FROM journal WHERE id = ?1")?.execute(params![id])?;
            }
        }
        Ok(())
    }

    fn spent(&self, day: i64) -> rusqlite::Result<Vec<Spent>> {
        let mut select = self.connection.prepare_cached(&format!(
            "SELECT day, account, key, {} FROM daily WHERE day >= ?1 GROUP BY day, account, key",
            report::summed("cost")
        ))?;
        let rows = select.query_map(params![day], |row| {
            let cost = report::sum(row, 3)?;
            Ok(Spent { day: row.get(0)?, account: row.get(1)?, key: row.get(2)?, cost })
        })?;
        rows.collect()
    }
}
