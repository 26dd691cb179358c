//! Lease manager, the ledger's thread: requests reservations from the server, renews leases, returns what is unused,
//! and applies the outage policy while the server is unreachable.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::account_lease::{
    AccountLease, LeaseTxn, LeaseTxnResult, LeaseTxnState, RELIABLE_AGE, parse_result,
};
use super::cluster_ledger::{ClusterCommand, ClusterLedgerConfig, OnOutage, OverdraftFloor};
use super::ship::{self, ShipError};
use super::{limits, report};
use crate::ledger::accounts::AccountStatus;
use crate::ledger::wal::{Drain, JournalFrames};
use crate::ledger::worker::{Backend, Command, FailureLog, LedgerState, Outcome, later};
use crate::ledger::{AccountId, Reservation, ReserveError, Spent};
use crate::store::StoreError;
use crate::store::valkey::ServerAddress;
use crate::store::valkey::connection::{Connection, ConnectionError};

/// Lease maintenance period.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);
/// Lease-ahead factor: a transaction requests this multiple of the largest request, for requests that follow.
const LEASE_AHEAD: i64 = 256;
/// First and longest pause between attempts to connect.
const RECONNECT_BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Maximum wait for the server at the end of the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pending reservations by account.
type PendingReservations = HashMap<AccountId, Vec<PendingReservation>, RandomState>;
type PendingReservation = (i64, oneshot::Sender<Result<Reservation, ReserveError>>);

/// Lease manager: renews leases and ships usage.
pub(super) struct LeaseManager {
    pub(super) address: ServerAddress,
    pub(super) shared: Arc<LedgerState>,
    overdraft_floor: OverdraftFloor,
    pub(super) config: ClusterLedgerConfig,
    pub(super) connection: Option<Connection>,
    attempt: Option<JoinHandle<Result<Connection, ConnectionError>>>,
    /// Time of the next attempt to connect, and the pause after it.
    next: (Instant, Duration),
    pub(super) leases: HashMap<String, AccountLease, RandomState>,
    pub(super) drain: Drain,
    /// Pieces that were shipped a moment ago, to be shipped again if a restarted server or a promoted replica lost
    /// them.
    pub(super) shipped_pieces: VecDeque<(Instant, Vec<u8>)>,
    /// Number of the last frame that was shipped, over all accounts.
    pub(super) shipped_seq: u64,
    /// True if the server has lost frames and `shipped_pieces` must be shipped again.
    pub(super) needs_replay: bool,
    /// Pairs of day and account that are in the server's index sets already.
    pub(super) indexed: HashSet<(i64, String), RandomState>,
    /// Shared limits of which this gateway has a lease.
    pub(super) limit_leases: limits::LimitLeases,
    /// Sender to this thread's own queue. Weak, so that it does not keep the thread alive.
    pub(super) commands: WeakSender<Command<ClusterCommand>>,
    /// Number of the last transaction.
    last_txn: u64,
    last_maintenance: Instant,
    last_sweep: Instant,
    failures: FailureLog,
}

impl Backend for LeaseManager {
    type Command = ClusterCommand;
    type Error = ShipError;

    fn drain(&mut self) -> &mut Drain {
        &mut self.drain
    }

    async fn apply(&mut self, piece: &[u8]) -> Result<(), ShipError> {
        // Even without a new piece, retained pieces may have to be shipped again.
        self.ship_piece(piece).await?;
        if let Some(last) = JournalFrames::new(piece).and_then(Iterator::last) {
            self.shipped_seq = last.number;
            // Only once the server has it: until then the journal's segment still holds it.
            self.retain(piece.to_vec());
        }
        Ok(())
    }

    fn interval(&self) -> Duration {
        self.config.flush
    }

    async fn start(&mut self) {
        // These are set only after a panic: reconnect, because the state of the connection is unknown.
        (self.connection, self.attempt) = (None, None);
        let connected = Connection::connect(&self.address).await;
        self.on_connected(connected);
    }

    async fn tick(&mut self) {
        self.check_journal();
        self.connect();
        if let Err(error) = self.ship_and_renew(false).await {
            self.failures.failed("server", &error);
        }
    }

    async fn event(&mut self) {
        let attempt = connect_attempt(&mut self.attempt).await;
        self.attempt = None;
        self.on_connected(attempt);
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.ship_and_renew(true).await
    }

    async fn spent(&mut self, day: i64, outcome: Outcome<Vec<Spent>>) {
        match self.connection.clone() {
            // Runs as a task of its own: it may take a while and must not delay reservations.
            Some(connection) => drop(tokio::spawn(async move {
                let spent = report::spent(&connection, day).await;
                let _ = outcome.send(spent.map_err(|error| StoreError::Failed(error.to_string())));
            })),
            None => drop(outcome.send(Err(unavailable_error()))),
        }
    }

    async fn run(&mut self, commands: Vec<ClusterCommand>) {
        self.run_commands(commands).await;
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        if self.return_leases().await { Ok(()) } else { Err(unavailable_error()) }
    }

    async fn end(&mut self) {
        // Without a response the server reclaims the leases after their lifetime: do not delay the end for long.
        if tokio::time::timeout(CLOSE_TIMEOUT, self.return_leases()).await == Ok(true) {
            self.shared.journal.remove_if_drained();
        }
    }
}

impl LeaseManager {
    pub(super) fn new(
        address: ServerAddress,
        shared: Arc<LedgerState>,
        overdraft_floor: OverdraftFloor,
        config: ClusterLedgerConfig,
        commands: WeakSender<Command<ClusterCommand>>,
    ) -> Self {
        let now = Instant::now();
        LeaseManager {
            address,
            drain: Drain::new(shared.journal.clone()),
            shared,
            overdraft_floor,
            config,
            connection: None,
            attempt: None,
            next: (now, RECONNECT_BACKOFF[0]),
            leases: HashMap::default(),
            shipped_pieces: VecDeque::new(),
            shipped_seq: 0,
            needs_replay: false,
            indexed: HashSet::default(),
            limit_leases: limits::LimitLeases::default(),
            commands,
            last_txn: 0,
            last_maintenance: now,
            last_sweep: now,
            failures: FailureLog::default(),
        }
    }

    /// Checks that the journal is still where it was created: writes to removed files would be lost.
    fn check_journal(&self) {
        let gone = !self.shared.journal.files_exist();
        let fault = "the journal (store.journal) was removed while the gateway ran; restart it";
        self.shared.set_fault(gone.then(|| fault.to_owned()));
    }

    /// Starts an attempt to connect, if one is due.
    fn connect(&mut self) {
        if self.connection.is_none() && self.attempt.is_none() && Instant::now() >= self.next.0 {
            let address = self.address.clone();
            // As a task: meanwhile reservations are decided by the outage policy.
            self.attempt = Some(tokio::spawn(async move { Connection::connect(&address).await }));
        }
    }

    fn on_connected(&mut self, attempt: Result<Connection, ConnectionError>) {
        match attempt {
            Ok(connection) => {
                self.connection = Some(connection);
                self.next.1 = RECONNECT_BACKOFF[0];
                // The overdraft is for outages only.
                self.overdraft_floor.store(0, Ordering::Release);
                // Another server, or one that has lost data, may lack these entries.
                self.indexed.clear();
                // Force a re-sync of all leases: after failover the server may have lost state.
                self.leases.values_mut().for_each(|account_lease| account_lease.renewed_at = None);
                self.limit_leases.force_resync();
                self.last_maintenance = Instant::now();
                self.last_sweep = self.last_maintenance;
                if self.failures.recovered() {
                    tracing::warn!("the server of the ledger is available again");
                }
            }
            Err(error) => self.on_disconnected(&error),
        }
    }

    /// Handles the loss of the connection: applies the outage policy and schedules the next attempt to connect.
    pub(super) fn on_disconnected(&mut self, error: &ConnectionError) {
        self.connection = None;
        if let OnOutage::Allow(allowance) = self.config.on_outage {
            self.overdraft_floor.store(allowance.saturating_neg(), Ordering::Release);
        }
        let now = Instant::now();
        let pause = self.next.1;
        self.next = (later(now, pause), pause.saturating_mul(2).min(RECONNECT_BACKOFF[1]));
        self.failures.failed("server", error);
    }

    async fn run_commands(&mut self, commands: Vec<ClusterCommand>) {
        let mut holds: PendingReservations = HashMap::default();
        let (mut requests, mut surplus_owners) = (Vec::new(), Vec::new());
        for command in commands {
            // Skip requests whose client has left, so that they do not take a lease.
            match command {
                ClusterCommand::Reserve { outcome, .. } if outcome.is_closed() => {}
                ClusterCommand::Limit(request) if request.outcome.is_closed() => {}
                ClusterCommand::Reserve { account, amount, outcome } => {
                    holds.entry(account).or_default().push((amount, outcome));
                }
                ClusterCommand::Limit(request) => requests.push(*request),
                ClusterCommand::ReturnSurplus { owner } => surplus_owners.push(owner),
            }
        }
        if !surplus_owners.is_empty() {
            self.return_surplus(surplus_owners).await;
        }
        if !requests.is_empty() {
            self.limit(requests).await;
        }
        if !holds.is_empty() {
            self.reserve(holds).await;
        }
    }

    /// Reserves amounts at the server, one transaction for each account.
    async fn reserve(&mut self, holds: PendingReservations) {
        let Some(connection) = self.connection.clone() else {
            holds.into_iter().for_each(|(account, holds)| self.reserve_offline(&account, holds));
            return;
        };
        let (gateway, number) = (self.shared.journal.id(), self.next_txn());
        let (mut commands, mut waiting) = (Vec::new(), Vec::new());
        for (account, holds) in holds {
            let Some(account_lease) = self.lease(account.as_str()) else { continue };
            let Some(balance) = account_lease.balance.clone() else { continue };
            // Use the local part first. It remains leased, whatever the result of the transaction.
            let mut left = balance.take_all();
            let mut use_of = |amount: i64| {
                let part = amount.min(left);
                left = left.saturating_sub(part);
                part
            };
            let parts: Vec<i64> = holds.iter().map(|(amount, _)| use_of(*amount)).collect();
            balance.add(left);
            let lease = account_lease.lease.max(0);
            let needs: Vec<i64> =
                holds.iter().zip(&parts).map(|((amount, _), part)| amount.saturating_sub(*part)).collect();
            let more = holds.iter().map(|(amount, _)| *amount).max().unwrap_or(0).saturating_mul(LEASE_AHEAD);
            let txn = LeaseTxn {
                account: account.as_str(),
                gateway,
                number,
                lease,
                usage: None,
                reservations: needs,
                lease_ahead: more,
            };
            // Encoding fails only for record blocks, and this transaction has none.
            commands.extend(txn.command(0).ok());
            waiting.push((account, holds, parts, lease));
        }
        let sent_at = Instant::now();
        let answers = match connection.run_all(commands).await {
            Ok(answers) => answers,
            Err(error) => {
                self.on_disconnected(&error);
                Vec::new()
            }
        };
        let mut answers = answers.iter();
        for (account, holds, parts, lease) in waiting {
            match answers.next().and_then(parse_result) {
                Some(LeaseTxnResult::Done(done)) => {
                    self.on_reserved(&account, holds, &parts, &done, lease, sent_at)
                }
                _ => {
                    if let Some(balance) = self.shared.accounts.find(account.as_str()) {
                        // The parts were taken from the spendable balance, so their sum does not overflow.
                        balance.add(parts.iter().fold(0, |sum: i64, part| sum.saturating_add(*part)));
                    }
                    self.reserve_offline(&account, holds);
                }
            }
        }
    }

    /// Passes the server's grants on to the waiting requests.
    fn on_reserved(
        &mut self,
        account: &AccountId,
        holds: Vec<PendingReservation>,
        parts: &[i64],
        done: &LeaseTxnState,
        lease: i64,
        sent_at: Instant,
    ) {
        let Some(account_lease) = self.leases.get_mut(account.as_str()) else { return };
        let Some(balance) = account_lease.balance.clone() else { return };
        account_lease.lease = done.lease;
        // The time of sending, before the server's own: the lease must never seem younger than it is there.
        account_lease.renewed_at = Some(sent_at);
        // Newly spendable: the additional lease, less the part that granted requests took of it, plus the local parts
        // of denied requests.
        let mut more = done.lease.saturating_sub(lease);
        for (at, ((amount, _), part)) in holds.iter().zip(parts).enumerate() {
            match done.granted.get(at) {
                Some(true) => more = more.saturating_sub(amount.saturating_sub(*part)),
                _ => more = more.saturating_add(*part),
            }
        }
        balance.add(more);
        done.report_to(&balance);
        for (at, (amount, outcome)) in holds.into_iter().enumerate() {
            let held = if done.granted.get(at) == Some(&true) {
                Ok(balance.reservation(amount))
            } else {
                let available = balance.spendable().saturating_add(balance.reported());
                Err(balance.denial().unwrap_or(ReserveError::Empty { available }))
            };
            // If the receiver is gone, the reservation is dropped and refunded.
            let _ = outcome.send(held);
        }
    }

    /// Decides without the server, by the outage policy.
    fn reserve_offline(&self, account: &AccountId, holds: Vec<PendingReservation>) {
        let balance = self.shared.accounts.find_or_insert(account.as_str());
        let floor = self.overdraft_floor.load(Ordering::Acquire);
        for (amount, outcome) in holds {
            let held = balance.as_ref().ok_or(ReserveError::Unavailable).and_then(|balance| {
                if let Some(refused) = balance.denial() {
                    return Err(refused);
                }
                // An account in unknown state may be disabled or missing. Only the overdraft policy accepts this risk.
                let known = balance.status() == AccountStatus::Enabled
                    || matches!(self.config.on_outage, OnOutage::Allow(_));
                if !known {
                    return Err(ReserveError::Unavailable);
                }
                balance.mark_used();
                balance.reserve(amount, floor).map_err(|_| ReserveError::Unavailable)
            });
            let _ = outcome.send(held);
        }
    }

    /// Returns the next transaction number.
    pub(super) fn next_txn(&mut self) -> u64 {
        self.last_txn = self.last_txn.saturating_add(1);
        self.last_txn
    }

    /// Returns the lease of an account, created if necessary.
    pub(super) fn lease(&mut self, account: &str) -> Option<&mut AccountLease> {
        if !self.leases.contains_key(account) {
            let balance = self.shared.accounts.find_or_insert(account);
            let account_lease = AccountLease {
                lease: 0,
                server_seq: 0,
                // Frames that were shipped before are not charged to a lease that begins now.
                deducted_seq: self.shipped_seq,
                renewed_at: None,
                balance,
            };
            self.leases.insert(account.to_owned(), account_lease);
        }
        self.leases.get_mut(account)
    }

    /// Ships settlements and maintains leases; with `all`, of all accounts regardless of their age.
    pub(super) async fn ship_and_renew(&mut self, all: bool) -> Result<(), StoreError> {
        let failed = |error: &ShipError| StoreError::Failed(error.to_string());
        if self.connection.is_none() {
            // Charges cannot be shipped: let stale leases expire, and make the journal durable instead.
            self.expire_stale();
            self.expire_limits();
            self.drain.sync();
            return Err(unavailable_error());
        }
        let shipped = self.ship().await;
        let mut done =
            shipped.map_err(|error| self.check_connection_error(error)).map_err(|error| failed(&error));
        if all || Instant::now() >= self.last_maintenance {
            self.last_maintenance = later(Instant::now(), MAINTENANCE_INTERVAL);
            if let Err(error) = self.renew_all(all).await {
                let error = self.check_connection_error(error);
                done = done.and(Err(failed(&error)));
            }
            self.renew_limits(false).await;
            self.expire_stale();
        }
        // Maintenance has found that the server lost frames: ship them again now.
        if self.needs_replay {
            let shipped = self.ship().await;
            done = done.and(shipped.map_err(|error| failed(&self.check_connection_error(error))));
        }
        if let Some(connection) = self.connection.clone()
            && Instant::now() >= self.last_sweep
        {
            self.last_sweep = later(Instant::now(), ship::SEARCH_INTERVAL);
            let swept = ship::ship_orphaned(&connection, &self.config).await;
            done = done.and(swept.map_err(|error| failed(&self.check_connection_error(error))));
        }
        // The charges stay here for longer: make them durable against a loss of power.
        if done.is_err() {
            self.drain.sync();
        }
        done
    }

    /// Handles the error as a lost connection if it is one, and returns it.
    fn check_connection_error(&mut self, error: ShipError) -> ShipError {
        if let ShipError::Connection(error) = &error {
            self.on_disconnected(error);
        }
        error
    }

    /// Expires stale account states: after half the lease lifetime without contact, the server may soon reclaim the
    /// lease.
    fn expire_stale(&mut self) {
        for account_lease in self
            .leases
            .values()
            .filter(|account_lease| account_lease.renewed_at.is_none_or(|at| at.elapsed() > RELIABLE_AGE))
        {
            if let Some(balance) = &account_lease.balance
                && balance.status() != AccountStatus::Unknown
            {
                balance.set_status(AccountStatus::Unknown);
            }
        }
    }
}

/// Waits for the current attempt to connect; pending forever if there is none.
async fn connect_attempt(
    attempt: &mut Option<JoinHandle<Result<Connection, ConnectionError>>>,
) -> Result<Connection, ConnectionError> {
    match attempt {
        Some(attempt) => attempt.await.unwrap_or(Err(ConnectionError::Timeout)),
        None => std::future::pending().await,
    }
}

fn unavailable_error() -> StoreError {
    StoreError::Failed("the server is away".to_owned())
}
