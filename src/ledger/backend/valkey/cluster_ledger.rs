//! Cluster ledger: the ledger of one gateway of a fleet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

use super::lease_manager::LeaseManager;
use super::limits::LimitTxnRequest;
use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::wal::{Journal, JournalThread};
use crate::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use crate::limits::{Denied, LimitGrant, LimitOwner, LimitRequest, LimitState, Limiter, UsageLimits};
use crate::store::schema::OpenError;
use crate::store::valkey::ServerAddress;
use crate::store::{Pending, StoreError};
use crate::supervise::{self, Supervised};

/// Policy for reservations while the server is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// Requests are admitted from the leased balance only; beyond it, they are refused.
    Refuse,
    /// Each account may be overdrawn by this amount, in nano-units, beyond its leased balance. The charges are shipped
    /// when the server is back.
    Allow(i64),
}

/// Configuration of the cluster ledger.
#[derive(Clone, Debug)]
pub struct ClusterLedgerConfig {
    /// Interval at which settlements are shipped to the server.
    pub flush: Duration,
    /// Retention of usage records. Daily sums are never removed.
    pub records: Duration,
    /// Policy while the server is unreachable.
    pub on_outage: OnOutage,
    /// Folder of the journal that holds settlements until they are shipped.
    pub journal: PathBuf,
    /// Maximum size of each of its two segments, in bytes; usually
    /// [`DEFAULT_SEGMENT_LIMIT`](crate::ledger::wal::DEFAULT_SEGMENT_LIMIT).
    pub segment: u64,
}

/// Maximum number of queued commands: about as many as concurrent requests. Further commands fail at once.
pub(super) const QUEUE: usize = 16 << 10;

/// Ledger of a fleet, in Valkey: balances are leased and usage is shipped in batches.
pub struct ClusterLedger {
    shared: Arc<LedgerShared>,
    commands: Option<Sender<ClusterCommand>>,
    supervised: Arc<Supervised>,
    thread: Option<JoinHandle<()>>,
    journal: JournalThread,
}

/// State that workers share with the ledger's thread.
pub(super) struct LedgerShared {
    pub(super) accounts: Accounts,
    pub(super) journal: Arc<Journal>,
    /// True while the journal's files are missing.
    pub(super) journal_missing: AtomicBool,
    /// Lowest permitted leased balance in nano-units: zero, or less while the server is unreachable and overdraft is
    /// allowed.
    pub(super) overdraft_floor: AtomicI64,
}

pub(super) type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

/// Command for the ledger's thread.
pub(super) enum ClusterCommand {
    Reserve {
        account: AccountId,
        amount: i64,
        outcome: oneshot::Sender<Result<Reservation, ReserveError>>,
    },
    Spent {
        day: i64,
        outcome: Outcome<Vec<Spent>>,
    },
    Flush {
        outcome: Outcome<()>,
    },
    /// Ships everything and returns all leases.
    Close {
        outcome: Outcome<()>,
    },
    Limit(Box<LimitTxnRequest>),
    ReturnSurplus {
        whose: LimitOwner,
    },
}

impl ClusterLedger {
    /// Creates the journal and starts the thread, which connects to the server and ships the journals of ended
    /// processes. The server need not be reachable yet. When this value is dropped, the thread ships the rest and ends.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the journal's folder cannot be used.
    pub fn open(address: ServerAddress, terms: ClusterLedgerConfig) -> Result<Self, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        let journal = Journal::create(&terms.journal, terms.segment).map_err(io(&terms.journal))?;
        let journal = Arc::new(journal);
        let (floor, gone) = (AtomicI64::new(0), AtomicBool::new(false));
        let shared = Arc::new(LedgerShared {
            accounts: Accounts::new(AccountStatus::Unknown),
            journal,
            overdraft_floor: floor,
            journal_missing: gone,
        });
        let (asks, mut asked) = channel(QUEUE);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io(&terms.journal))?;
        let failed = io(&terms.journal);
        let journal = JournalThread::start(&shared.journal).map_err(io(&terms.journal))?;
        let mut clerk = LeaseManager::new(address, shared.clone(), terms, asks.downgrade());
        let run = move || runtime.block_on(clerk.run(&mut asked));
        let (supervised, thread) = supervise::spawn("ledger", run).map_err(failed)?;
        Ok(ClusterLedger { shared, commands: Some(asks), supervised, thread: Some(thread), journal })
    }

    /// Ships all settlements to the server now, and loads what other gateways changed there.
    pub fn flush(&self) -> Pending<()> {
        self.send_command(|outcome| ClusterCommand::Flush { outcome })
    }

    fn send_command<T>(&self, make: impl FnOnce(Outcome<T>) -> ClusterCommand) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(asks) = &self.commands
            && let Err(TrySendError::Full(_)) = asks.try_send(make(outcome))
        {
            return Pending::known(Err(StoreError::Busy));
        }
        // If the thread has ended, the dropped command closes the channel, which the receiver reports.
        pending
    }
}

impl Drop for ClusterLedger {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // After a panic in the thread, the rest is in the journal and the next process ships it.
            let _ = thread.join();
        }
    }
}

impl Ledger for ClusterLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        // Without a durable journal the charge could be lost: do not let the request start.
        if self.shared.journal.is_failing() || self.shared.journal_missing.load(Ordering::Acquire) {
            return ReserveOutcome::Known(Err(ReserveError::Unavailable));
        }
        // Fast path: the leased balance suffices and no server round trip is needed.
        if let Some(balance) = self.shared.accounts.find(account.as_str())
            && balance.status() == AccountStatus::Enabled
        {
            balance.mark_used();
            let floor = self.shared.overdraft_floor.load(Ordering::Acquire);
            if let Ok(reservation) = balance.reserve(amount, floor) {
                return ReserveOutcome::Known(Ok(reservation));
            }
        }
        let Some(asks) = &self.commands else { return ReserveOutcome::Known(Err(ReserveError::Unavailable)) };
        let (outcome, pending) = oneshot::channel();
        let account = account.clone();
        match asks.try_send(ClusterCommand::Reserve { account, amount: amount.max(0), outcome }) {
            Ok(()) => ReserveOutcome::Pending(pending),
            Err(_) => ReserveOutcome::Known(Err(ReserveError::Unavailable)),
        }
    }

    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        self.shared.accounts.settle(&self.shared.journal, reservation, record)
    }

    fn available(&self, account: &AccountId) -> Option<i64> {
        let balance = self.shared.accounts.find_existing(account.as_str())?;
        Some(balance.spendable().saturating_add(balance.reported()))
    }

    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.send_command(|outcome| ClusterCommand::Spent { day, outcome })
    }

    fn fault(&self) -> Option<String> {
        let gone = self.shared.journal_missing.load(Ordering::Acquire);
        gone.then(|| "the journal (store.journal) was removed while the gateway ran; restart it".to_owned())
    }

    fn close(&self) -> Pending<()> {
        self.send_command(|outcome| ClusterCommand::Close { outcome })
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone(), self.journal.supervised().clone()]
    }

    fn limiter(&self) -> Option<&dyn Limiter> {
        Some(self)
    }
}

impl Limiter for ClusterLedger {
    fn take(
        &self,
        whose: LimitOwner,
        gauge: &Arc<LimitState>,
        limits: &UsageLimits,
        ask: &LimitRequest,
    ) -> oneshot::Receiver<Result<LimitGrant, Denied>> {
        let (outcome, pending) = oneshot::channel();
        let (gauge, limits, ask) = (gauge.clone(), *limits, *ask);
        let at = Instant::now();
        let request = LimitTxnRequest {
            owner: whose,
            state: gauge,
            limits,
            amounts: ask,
            sent_at: at,
            is_retry: false,
            outcome,
        };
        if let Some(asks) = &self.commands {
            // If the thread has ended or the queue is full, the dropped command closes the channel, which the receiver
            // reports.
            let _ = asks.try_send(ClusterCommand::Limit(Box::new(request)));
        }
        pending
    }
}
