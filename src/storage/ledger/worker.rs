//! Flush worker: the ledger's thread, over any backend. It applies settled charges at each tick, acknowledges commands,
//! and makes charges durable in the journal while the backend does not accept them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, WeakSender, channel};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::Spent;
use super::accounts::Accounts;
use super::wal::{Drain, Journal, JournalThread};
use crate::store::{Pending, StoreError};
use sync::supervise::{self, Supervised};

/// Maximum number of queued commands: about as many as concurrent requests. Further commands fail at once.
pub(super) const QUEUE: usize = 16 << 10;
/// Maximum number of commands in one iteration.
const MAX_COMMANDS: usize = 1024;
/// Minimum interval between two log lines about the same failure.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State that requests share with the ledger's thread.
#[derive(Debug)]
pub(super) struct LedgerState {
    pub(super) accounts: Accounts,
    pub(super) journal: Arc<Journal>,
    /// Description of the current fault of the files, if there is one.
    fault: Mutex<Option<String>>,
    /// True while `fault` is set. Each reservation reads this instead of taking the lock.
    faulty: AtomicBool,
}

impl LedgerState {
    pub(super) fn new(accounts: Accounts, journal: Journal) -> Arc<Self> {
        let (fault, faulty) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(LedgerState { accounts, journal: Arc::new(journal), fault, faulty })
    }

    /// Returns true if a charge could be lost: no reservation may be granted then.
    pub(super) fn is_failing(&self) -> bool {
        self.journal.is_failing() || self.faulty.load(Ordering::Acquire)
    }

    /// Returns the current fault of the files, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Records and logs the state of the files.
    pub(super) fn set_fault(&self, fault: Option<String>) {
        let mut known = self.fault.lock();
        if *known == fault {
            return;
        }
        self.faulty.store(fault.is_some(), Ordering::Release);
        known.clone_from(&fault);
        drop(known);
        match fault {
            Some(fault) => {
                tracing::error!(fault, "requests of accounts are rejected; charges wait in the journal")
            }
            None => tracing::warn!("the files of the ledger are back"),
        }
    }
}

/// Returns a later point in time. A span beyond the range of the clock counts as zero, so that the event still occurs.
pub(super) fn later(at: Instant, span: Duration) -> Instant {
    at.checked_add(span).unwrap_or(at)
}

/// Failure log: one line for a failure that lasts, not one for each attempt.
#[derive(Debug, Default)]
pub(super) struct FailureLog(Option<Instant>);

impl FailureLog {
    /// Logs a failure to write to the `place`.
    pub(super) fn failed(&mut self, place: &str, error: &dyn fmt::Display) {
        if self.0.is_none_or(|logged| logged.elapsed() > LOG_INTERVAL) {
            tracing::error!(%error, "the {place} of the ledger cannot be written; charges wait in the journal");
            self.0 = Some(Instant::now());
        }
    }

    /// Returns true if a failure was logged before.
    pub(super) fn recovered(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Receiver of the outcome of a command.
pub(super) type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

/// Command for the ledger's thread; `C` are those that only one backend has.
#[derive(Debug)]
pub(super) enum Command<C> {
    /// Reports the charges per day, account and key.
    Spent { day: i64, outcome: Outcome<Vec<Spent>> },
    /// Applies all settled charges now.
    Flush { outcome: Outcome<()> },
    /// Applies all settled charges, and returns what is leased.
    Close { outcome: Outcome<()> },
    /// Command of the backend.
    Backend(C),
    /// The thread ends at once, as if its process were killed.
    #[cfg(test)]
    Crash,
    /// The thread panics.
    #[cfg(test)]
    Panic,
}

/// Durable destination of charges.
pub(super) trait Backend {
    /// Commands that only this backend has.
    type Command: Send + 'static;
    /// Reason why charges were not applied.
    type Error: From<io::Error>;

    /// Returns the journal's drain.
    fn drain(&mut self) -> &mut Drain;

    /// Applies the frames of a piece of the journal, each exactly once, however often it is called with it. An empty
    /// piece means that nothing was settled since.
    async fn apply(&mut self, piece: &[u8]) -> Result<(), Self::Error>;

    /// Interval between two ticks.
    fn interval(&self) -> Duration;

    /// Starts the backend. Called again after a panic.
    async fn start(&mut self);

    /// Runs the periodic work: a flush, and maintenance.
    async fn tick(&mut self);

    /// Waits for an event of the backend's own and handles it. It may be dropped at each await.
    async fn event(&mut self) {
        std::future::pending().await
    }

    /// Applies all settled charges, and loads what other processes changed.
    async fn flush(&mut self) -> Result<(), StoreError>;

    /// Reports the charges of each account and key per day, from `day` on.
    async fn spent(&mut self, day: i64, outcome: Outcome<Vec<Spent>>);

    /// Runs commands of its own.
    async fn run(&mut self, commands: Vec<Self::Command>);

    /// Applies all settled charges and returns what is leased.
    async fn close(&mut self) -> Result<(), StoreError>;

    /// Ends: same as `close`, and removes the journal if all of it was applied.
    async fn end(&mut self);
}

/// Applies everything that was settled up to now, including a segment that failed before.
pub(super) async fn drain<B: Backend>(backend: &mut B) -> Result<(), B::Error> {
    if backend.drain().is_pending() {
        // A segment that failed before comes first, to keep the order of frames. More was settled since.
        drain_segment(backend).await?;
    }
    drain_segment(backend).await?;
    // Writes may have failed because the segment was full. The drain has freed one: write the queue and drain again.
    if backend.drain().has_freed_a_full_journal()? {
        drain_segment(backend).await?;
    }
    Ok(())
}

async fn drain_segment<B: Backend>(backend: &mut B) -> Result<(), B::Error> {
    let mut pieces = backend.drain().begin()?;
    let mut applied = false;
    if let Some(pieces) = &mut pieces {
        while let Some(piece) = pieces.next()? {
            backend.apply(piece).await?;
            applied = true;
        }
    }
    if !applied {
        backend.apply(&[]).await?;
    }
    Ok(backend.drain().finish()?)
}

/// Runs commands, flushes and maintenance until all senders of commands are dropped.
async fn run<B: Backend>(backend: &mut B, commands: &mut Receiver<Command<B::Command>>) {
    backend.start().await;
    let mut ticks = tokio::time::interval(backend.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            count = commands.recv_many(&mut batch, MAX_COMMANDS) => {
                if count == 0 {
                    break;
                }
                let mut own = Vec::new();
                for command in batch.drain(..) {
                    #[cfg(test)]
                    assert!(!matches!(command, Command::Panic), "on purpose");
                    // A send fails if the receiver is gone; that is fine.
                    match command {
                        Command::Spent { day, outcome } => backend.spent(day, outcome).await,
                        Command::Flush { outcome } => drop(outcome.send(backend.flush().await)),
                        Command::Close { outcome } => drop(outcome.send(backend.close().await)),
                        Command::Backend(command) => own.push(command),
                        #[cfg(test)]
                        Command::Crash => return,
                        #[cfg(test)]
                        Command::Panic => {}
                    }
                }
                if !own.is_empty() {
                    backend.run(own).await;
                }
            }
            _ = ticks.tick() => backend.tick().await,
            () = backend.event() => {}
        }
    }
    backend.end().await;
}

/// Handle of the ledger's thread and of the journal's. When it is dropped, the rest of the journal is applied and both
/// threads end.
#[derive(Debug)]
pub(super) struct FlushWorker<C> {
    commands: Option<Sender<Command<C>>>,
    supervised: Arc<Supervised>,
    thread: Option<JoinHandle<()>>,
    journal: JournalThread,
}

impl<C: Send + 'static> FlushWorker<C> {
    /// Starts both threads. `make` builds the backend from a sender to its own queue, which does not keep it alive.
    ///
    /// # Errors
    /// Returns the error of the operating system if a thread cannot be started.
    pub(super) fn start<B: Backend<Command = C> + Send + 'static>(
        journal: &Arc<Journal>,
        make: impl FnOnce(WeakSender<Command<C>>) -> B,
    ) -> io::Result<Self> {
        let (commands, mut received) = channel(QUEUE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let journal = JournalThread::start(journal)?;
        let mut backend = make(commands.downgrade());
        let work = move || runtime.block_on(run(&mut backend, &mut received));
        let (supervised, thread) = supervise::spawn("ledger", work)?;
        Ok(FlushWorker { commands: Some(commands), supervised, thread: Some(thread), journal })
    }

    /// Sends a command. Returns false if the queue is full or the thread has ended.
    pub(super) fn send(&self, command: Command<C>) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok())
    }

    fn submit<T>(&self, make: impl FnOnce(Outcome<T>) -> Command<C>) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(commands) = &self.commands
            && let Err(TrySendError::Full(_)) = commands.try_send(make(outcome))
        {
            return Pending::known(Err(StoreError::Busy));
        }
        // If the thread has ended, the dropped command closes the channel, which the receiver reports.
        pending
    }

    pub(super) fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.submit(|outcome| Command::Spent { day, outcome })
    }

    pub(super) fn flush(&self) -> Pending<()> {
        self.submit(|outcome| Command::Flush { outcome })
    }

    pub(super) fn close(&self) -> Pending<()> {
        self.submit(|outcome| Command::Close { outcome })
    }

    pub(super) fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone(), self.journal.supervised().clone()]
    }
}

impl<C> Drop for FlushWorker<C> {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // After a panic in the thread, the rest is in the journal and the next process applies it.
            let _ = thread.join();
        }
    }
}
