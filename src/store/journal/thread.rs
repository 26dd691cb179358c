//! The thread that writes the journal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::{Journal, Queue, RETRY};
use crate::supervise::{self, Supervised};

/// The thread; it ends with this value, after it has written what there is.
#[derive(Debug)]
pub(in crate::store) struct JournalThread {
    journal: Arc<Journal>,
    supervised: Arc<Supervised>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl JournalThread {
    /// Starts it.
    pub(in crate::store) fn start(journal: &Arc<Journal>) -> io::Result<Self> {
        let own = journal.clone();
        let (supervised, thread) = supervise::spawn("journal", move || own.run())?;
        Ok(JournalThread { journal: journal.clone(), supervised, thread: Some(thread) })
    }

    /// How it is.
    pub(in crate::store) fn supervised(&self) -> &Arc<Supervised> {
        &self.supervised
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
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
            // What failed is tried again.
            let _ = self.write_queued();
            if closed {
                return;
            }
        }
    }

    /// Waits until there is something to do; tells whether it is the last.
    fn wait(&self) -> bool {
        let mut queue: MutexGuard<'_, Queue> = self.queue.lock();
        if self.failing.load(Ordering::Relaxed) && !queue.closed {
            self.wake.wait_for(&mut queue, RETRY);
        }
        while queue.frames.is_empty() && queue.taken == 0 && !queue.closed {
            queue.sleeping = true;
            self.wake.wait(&mut queue);
        }
        queue.sleeping = false;
        queue.closed
    }
}
