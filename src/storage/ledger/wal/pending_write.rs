//! Outcome of a frame that is being written, and the wake-up of the thread that writes it.

use std::sync::Arc;
use std::time::Duration;

use super::Journal;
use crate::store::{Pending, StoreError};

/// Outcome of an appended frame. Wakes the journal's thread when it is waited for or dropped.
#[derive(Debug)]
pub struct PendingWrite {
    outcome: Pending<()>,
    writer: SleepingWriter,
}

/// Journal whose thread slept when the frame was appended, if it did. Wakes it when dropped: no frame stays in the queue
/// because the request that waited for it is gone.
#[derive(Debug)]
struct SleepingWriter(Option<Arc<Journal>>);

impl Drop for SleepingWriter {
    fn drop(&mut self) {
        if let Some(journal) = &self.0 {
            journal.wake_writer();
        }
    }
}

impl PendingWrite {
    pub(super) fn new(outcome: Pending<()>, writer: Option<Arc<Journal>>) -> Self {
        PendingWrite { outcome, writer: SleepingWriter(writer) }
    }

    /// Waits for the outcome for at most `time`, outside a Tokio runtime.
    ///
    /// # Errors
    /// Returns the error of the write, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub fn wait(self, time: Duration) -> Result<(), StoreError> {
        let PendingWrite { outcome, writer } = self;
        drop(writer);
        outcome.wait(time)
    }

    /// Waits for the outcome for at most `time`. A frame whose write times out here may still be written later.
    ///
    /// # Errors
    /// Returns the error of the write, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub async fn within(self, time: Duration) -> Result<(), StoreError> {
        let PendingWrite { outcome, writer } = self;
        if writer.0.is_some() {
            // Resumes after the other requests that this worker has to run now. Those that settle share one wake-up and one
            // write; without this, each one wakes the thread, which on a busy processor interrupts the worker.
            tokio::task::yield_now().await;
        }
        drop(writer);
        outcome.within(time).await
    }
}
