//! Drain of a journal: which segment is applied to the backend, so that a failed one is applied again before any other.

use std::io;
use std::sync::Arc;

use super::{Journal, Pieces, Segment};

/// Drain of a journal.
#[derive(Debug)]
pub(in crate::ledger) struct Drain {
    journal: Arc<Journal>,
    /// Segment that is being applied.
    segment: Option<Segment>,
}

impl Drain {
    pub(in crate::ledger) fn new(journal: Arc<Journal>) -> Self {
        Drain { journal, segment: None }
    }

    /// Returns true if a segment is partly applied.
    pub(in crate::ledger) fn is_pending(&self) -> bool {
        self.segment.is_some()
    }

    /// Starts to apply a segment, or restarts one that is partly applied. Returns `None` if there are no frames.
    pub(in crate::ledger) fn begin(&mut self) -> io::Result<Option<Pieces>> {
        // A partly applied segment comes first: behind a later frame, the backend would skip its rest by number.
        if self.segment.is_none() {
            self.segment = self.journal.rotate();
        }
        self.segment.as_ref().map(Segment::pieces).transpose()
    }

    /// Ends a segment whose frames are all at the backend: it can be written again.
    pub(in crate::ledger) fn finish(&mut self) -> io::Result<()> {
        match self.segment.take() {
            Some(segment) => self.journal.recycle(segment),
            None => Ok(()),
        }
    }

    /// If writes failed, writes the queue again and returns true: the segment may have been full.
    pub(in crate::ledger) fn has_freed_a_full_journal(&self) -> io::Result<bool> {
        let failing = self.journal.is_failing();
        if failing {
            self.journal.write_queued()?;
        }
        Ok(failing)
    }

    /// Flushes the journal to the disk (fsync) while the backend does not accept charges.
    pub(in crate::ledger) fn sync(&mut self) {
        if self.segment.is_none() {
            self.segment = self.journal.rotate();
        }
        if let Some(segment) = &self.segment
            && let Err(error) = self.journal.sync(segment)
        {
            tracing::error!(%error, "the journal cannot be written to the disk");
        }
    }
}
