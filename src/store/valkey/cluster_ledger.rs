//! The ledger of one gateway of a fleet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

use super::connection::ServerAddress;
use super::lease_manager::LeaseManager;
use super::leased_balance::{LeasedBalances, State};
use super::limits;
use crate::account::quota_lease::Denied;
use crate::account::{LimitGrant, LimitState, UsageLimits, limit};
use crate::store::journal::{Journal, JournalThread};
use crate::store::ledger::{AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent};
use crate::store::record::UsageRecord;
use crate::store::schema::OpenError;
use crate::store::{Limiter, Pending, StoreError, Whose};
use crate::supervise::{self, Supervised};

/// What is done while the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// What is set aside is spent; beyond it, requests are refused.
    Refuse,
    /// Beyond it, each account may spend so much more, in nano-units, which is charged when the server is back.
    Allow(i64),
}

/// How the ledger does its work.
#[derive(Clone, Debug)]
pub struct ClusterLedgerConfig {
    /// How often what was settled is brought to the server.
    pub flush: Duration,
    /// How long records are kept. Sums of days stay.
    pub records: Duration,
    /// What is done while the server is away.
    pub away: OnOutage,
    /// The folder of the journal, where what was settled waits.
    pub journal: PathBuf,
    /// How large each of its two segments may be, in bytes; usually [`SEGMENT`](crate::store::journal::SEGMENT).
    pub segment: u64,
}

/// Asks that may wait: as many as requests that are let in at a time. What is asked beyond them is refused at once.
pub(super) const QUEUE: usize = 16 << 10;

/// Ledger of a fleet, in Valkey: balances are leased and usage is shipped in batches.
pub struct ClusterLedger {
    shared: Arc<Shared>,
    asks: Option<Sender<ClusterCommand>>,
    supervised: Arc<Supervised>,
    thread: Option<JoinHandle<()>>,
    journal: JournalThread,
}

/// What the workers and the thread share.
pub(super) struct Shared {
    pub(super) purses: LeasedBalances,
    pub(super) journal: Arc<Journal>,
    /// The journal's files were removed.
    pub(super) gone: AtomicBool,
    /// How far a purse may be overdrawn: not at all, but where that is permitted while the server is away.
    pub(super) floor: AtomicI64,
}

pub(super) type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the thread is asked.
pub(super) enum ClusterCommand {
    Hold {
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
    /// All is brought, and what is set aside is given back.
    End {
        outcome: Outcome<()>,
    },
    Limit(Box<limits::LimitTxnRequest>),
    Spare {
        whose: Whose,
    },
}

impl ClusterLedger {
    /// Makes the journal and starts the thread, which connects to the server and brings what ended processes left. The
    /// server need not be there yet. The thread ends with this value, after it has brought the rest.
    ///
    /// # Errors
    /// The journal's folder cannot be used.
    pub fn open(address: ServerAddress, terms: ClusterLedgerConfig) -> Result<Self, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        let journal = Journal::create(&terms.journal, terms.segment).map_err(io(&terms.journal))?;
        let journal = Arc::new(journal);
        let (floor, gone) = (AtomicI64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { purses: LeasedBalances::new(), journal, floor, gone });
        let (asks, mut asked) = channel(QUEUE);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io(&terms.journal))?;
        let failed = io(&terms.journal);
        let journal = JournalThread::start(&shared.journal).map_err(io(&terms.journal))?;
        let mut clerk = LeaseManager::new(address, shared.clone(), terms, asks.downgrade());
        let run = move || runtime.block_on(clerk.run(&mut asked));
        let (supervised, thread) = supervise::spawn("ledger", run).map_err(failed)?;
        Ok(ClusterLedger { shared, asks: Some(asks), supervised, thread: Some(thread), journal })
    }

    /// Brings what is settled to the server now, and takes over what others have changed there.
    pub fn flush(&self) -> Pending<()> {
        self.ask(|outcome| ClusterCommand::Flush { outcome })
    }

    fn ask<T>(&self, make: impl FnOnce(Outcome<T>) -> ClusterCommand) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(asks) = &self.asks
            && let Err(TrySendError::Full(_)) = asks.try_send(make(outcome))
        {
            return Pending::known(Err(StoreError::Busy));
        }
        // The end of the thread is told by the outcome that is dropped with the ask.
        pending
    }
}

impl Drop for ClusterLedger {
    fn drop(&mut self) {
        drop(self.asks.take());
        if let Some(thread) = self.thread.take() {
            // What it left is in the journal.
            let _ = thread.join();
        }
    }
}

impl Ledger for ClusterLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        if self.shared.journal.is_failing() || self.shared.gone.load(Ordering::Acquire) {
            return ReserveOutcome::Known(Err(ReserveError::Unavailable));
        }
        if let Some(purse) = self.shared.purses.find(account.as_str())
            && purse.state() == State::Enabled
            && let Some(held) = purse.hold(amount, self.shared.floor.load(Ordering::Acquire))
        {
            return ReserveOutcome::Known(Ok(held));
        }
        let Some(asks) = &self.asks else { return ReserveOutcome::Known(Err(ReserveError::Unavailable)) };
        let (outcome, pending) = oneshot::channel();
        let account = account.clone();
        match asks.try_send(ClusterCommand::Hold { account, amount: amount.max(0), outcome }) {
            Ok(()) => ReserveOutcome::Pending(pending),
            Err(_) => ReserveOutcome::Known(Err(ReserveError::Unavailable)),
        }
    }

    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        let settled = self.shared.journal.append(|out| record.encode(out));
        let charge = record.charge();
        match reservation {
            Some(reservation) => reservation.spend(charge),
            None if charge != 0 => {
                if let Some(purse) = self.shared.purses.find_or_insert(record.account) {
                    purse.put(charge.saturating_neg());
                }
            }
            None => {}
        }
        settled
    }

    fn available(&self, account: &AccountId) -> Option<i64> {
        let purse = self.shared.purses.find(account.as_str())?;
        matches!(purse.state(), State::Enabled | State::Disabled).then(|| purse.available())
    }

    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.ask(|outcome| ClusterCommand::Spent { day, outcome })
    }

    fn fault(&self) -> Option<String> {
        let gone = self.shared.gone.load(Ordering::Acquire);
        gone.then(|| "the journal (store.journal) was removed while the gateway ran; restart it".to_owned())
    }

    fn close(&self) -> Pending<()> {
        self.ask(|outcome| ClusterCommand::End { outcome })
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
        whose: Whose,
        gauge: &Arc<LimitState>,
        limits: &UsageLimits,
        ask: &limit::LimitRequest,
    ) -> oneshot::Receiver<Result<LimitGrant, Denied>> {
        let (outcome, pending) = oneshot::channel();
        let (gauge, limits, ask) = (gauge.clone(), *limits, *ask);
        let at = Instant::now();
        let request = limits::LimitTxnRequest { whose, gauge, limits, ask, at, again: false, outcome };
        if let Some(asks) = &self.asks {
            // The end of the thread, and that too many wait, is told by the outcome that is dropped with the ask.
            let _ = asks.try_send(ClusterCommand::Limit(Box::new(request)));
        }
        pending
    }
}
