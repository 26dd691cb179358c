//! Cluster ledger: the ledger of one gateway of a fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::lease_manager::LeaseManager;
use super::limits::LimitTxnRequest;
use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::wal::Journal;
use crate::ledger::worker::{Command, FlushWorker, LedgerState};
use crate::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use crate::store::Pending;
use crate::store::schema::OpenError;
use crate::store::valkey::ServerAddress;
use routing::limits::{Denied, LimitGrant, LimitOwner, LimitRequest, LimitState, Limiter, UsageLimits};
use sync::supervise::Supervised;

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

/// Ledger of a fleet, in Valkey: balances are leased and usage is shipped in batches.
pub struct ClusterLedger {
    shared: Arc<LedgerState>,
    overdraft_floor: OverdraftFloor,
    worker: FlushWorker<ClusterCommand>,
}

/// Lowest permitted leased balance in nano-units: zero, or less while the server is unreachable and overdraft is
/// allowed.
pub(super) type OverdraftFloor = Arc<AtomicI64>;

/// Command for the ledger's thread that needs the server.
#[derive(Debug)]
pub(super) enum ClusterCommand {
    Reserve { account: AccountId, amount: i64, outcome: oneshot::Sender<Result<Reservation, ReserveError>> },
    Limit(Box<LimitTxnRequest>),
    ReturnSurplus { owner: LimitOwner },
}

impl ClusterLedger {
    /// Creates the journal and starts the thread, which connects to the server and ships the journals of ended
    /// processes. The server need not be reachable yet. When this value is dropped, the thread ships the rest and ends.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the journal's folder cannot be used.
    pub fn open(address: ServerAddress, config: ClusterLedgerConfig) -> Result<Self, OpenError> {
        let folder = config.journal.clone();
        let io = |source| OpenError::Io { path: folder.clone(), source };
        let journal = Journal::create(&config.journal, config.segment).map_err(io)?;
        let shared = LedgerState::new(Accounts::new(AccountStatus::Unknown), journal);
        let overdraft_floor = OverdraftFloor::default();
        let (own, floor) = (shared.clone(), overdraft_floor.clone());
        let make = |commands| LeaseManager::new(address, own, floor, config, commands);
        let worker = FlushWorker::start(&shared.journal, make).map_err(io)?;
        Ok(ClusterLedger { shared, overdraft_floor, worker })
    }

    /// Ships all settlements to the server now, and loads what other gateways changed there.
    pub fn flush(&self) -> Pending<()> {
        self.worker.flush()
    }
}

impl Ledger for ClusterLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        // Without a durable journal the charge could be lost: do not let the request start.
        if self.shared.is_failing() {
            return ReserveOutcome::Known(Err(ReserveError::Unavailable));
        }
        // Fast path: the leased balance suffices and no server round trip is needed.
        if let Some(balance) = self.shared.accounts.find(account.as_str())
            && balance.status() == AccountStatus::Enabled
        {
            balance.mark_used();
            let floor = self.overdraft_floor.load(Ordering::Acquire);
            if let Ok(reservation) = balance.reserve(amount, floor) {
                return ReserveOutcome::Known(Ok(reservation));
            }
        }
        let (outcome, pending) = oneshot::channel();
        let (account, amount) = (account.clone(), amount.max(0));
        if self.worker.send(Command::Backend(ClusterCommand::Reserve { account, amount, outcome })) {
            ReserveOutcome::Pending(pending)
        } else {
            ReserveOutcome::Known(Err(ReserveError::Unavailable))
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
        self.worker.spent_since(day)
    }

    fn fault(&self) -> Option<String> {
        self.shared.fault()
    }

    fn close(&self) -> Pending<()> {
        self.worker.close()
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        self.worker.threads()
    }

    fn limiter(&self) -> Option<&dyn Limiter> {
        Some(self)
    }
}

impl Limiter for ClusterLedger {
    fn take(
        &self,
        owner: LimitOwner,
        state: &Arc<LimitState>,
        limits: &UsageLimits,
        request: &LimitRequest,
    ) -> oneshot::Receiver<Result<LimitGrant, Denied>> {
        let (outcome, pending) = oneshot::channel();
        let request = LimitTxnRequest {
            owner,
            state: state.clone(),
            limits: *limits,
            amounts: *request,
            sent_at: Instant::now(),
            is_retry: false,
            outcome,
        };
        // If the thread has ended or the queue is full, the dropped command closes the channel, which the receiver
        // reports.
        self.worker.send(Command::Backend(ClusterCommand::Limit(Box::new(request))));
        pending
    }
}
