//! Thread that writes the journal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::{Journal, Queue, RETRY_INTERVAL};
use sync::supervise::{self, Supervised};

/// Journal thread. When this value is dropped, the thread writes the rest of the queue and ends.
#[derive(Debug)]
pub(crate) struct JournalThread {
    journal: Arc<Journal>,
    supervised: Arc<Supervised>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl JournalThread {
    pub(crate) fn start(journal: &Arc<Journal>) -> io::Result<Self> {
        let own = journal.clone();
        let (supervised, thread) = supervise::spawn("journal", move || own.run())?;
        Ok(JournalThread { journal: journal.clone(), supervised, thread: Some(thread) })
    }

    pub(crate) fn supervised(&self) -> &Arc<Supervised> {
        &self.supervised
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        // Set under the lock: the thread either sees it before it sleeps, or is woken.
        self.journal.queue.lock().closed = true;
        self.journal.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Journal {
    fn run(&self) {
        loop {
            let closed = self.wait();
            // A failed write is retried in the next iteration.
            let _ = self.write_queued();
            if closed {
                return;
            }
        }
    }

    /// Waits until there are frames to write. Returns true if the journal was closed and this write is the last one.
    fn wait(&self) -> bool {
        let mut queue: MutexGuard<'_, Queue> = self.queue.lock();
        // Pause between retries, otherwise a failing disk keeps this thread busy.
        if self.failing.load(Ordering::Relaxed) && !queue.closed {
            self.wake.wait_for(&mut queue, RETRY_INTERVAL);
        }
        // `writing_bytes` is not zero while a failed batch waits for its retry.
        while queue.frames.is_empty() && queue.writing_bytes == 0 && !queue.closed {
            queue.sleeping = true;
            self.wake.wait(&mut queue);
        }
        queue.sleeping = false;
        queue.closed
    }
}
