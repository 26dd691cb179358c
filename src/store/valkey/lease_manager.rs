//! The ledger's thread: it asks the server for what is to be held, renews what is set aside and gives back what is not
//! used, and decides what is done while the server is away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::mpsc::{Receiver, WeakSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::account_lease::{AccountLease, Done, LIFE, LeaseTxn, LeaseTxnResult, visited};
use super::cluster_ledger::{ClusterCommand, ClusterLedgerConfig, OnOutage, Shared};
use super::connection::{Connection, ConnectionError, ServerAddress};
use super::leased_balance::State;
use super::limits;
use super::report;
use super::ship::{self, ShipError};
use crate::store::StoreError;
use crate::store::journal::Segment;
use crate::store::ledger::{AccountId, Reservation, ReserveError};

/// Asks that are answered in one turn.
const ASKS: usize = 1024;
/// How often it is seen to what is set aside.
const ROUND: Duration = Duration::from_millis(500);
/// Beyond what is needed, so many times as much is set aside, for the requests that follow.
const AHEAD: i64 = 256;
/// How long it is waited between attempts to connect: first and longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a failure is waited for before the same is said again.
const SAID: Duration = Duration::from_secs(10);
/// How long the end waits for the server.
const END: Duration = Duration::from_secs(5);

/// What is to be held, by account.
type Holds = HashMap<AccountId, Vec<Hold>, RandomState>;
type Hold = (i64, oneshot::Sender<Result<Reservation, ReserveError>>);

/// Lease manager: renews leases and ships usage.
pub(super) struct LeaseManager {
    pub(super) address: ServerAddress,
    pub(super) shared: Arc<Shared>,
    pub(super) terms: ClusterLedgerConfig,
    pub(super) link: Option<Connection>,
    attempt: Option<JoinHandle<Result<Connection, ConnectionError>>>,
    /// When to connect again, and how long to wait after that.
    next: (Instant, Duration),
    pub(super) hands: HashMap<String, AccountLease, RandomState>,
    /// The segment that is being brought to the server.
    pub(super) draining: Option<Segment>,
    /// Segments that were brought a moment ago: a server that is started anew, or that takes over, may not know them.
    pub(super) kept: VecDeque<(Instant, Vec<u8>)>,
    /// The last frame up to which all were brought.
    pub(super) through: u64,
    /// The server has forgotten something.
    pub(super) behind: bool,
    /// Days and accounts that stand in the lists of what was used.
    pub(super) listed: HashSet<(i64, String), RandomState>,
    /// Limits that are shared, of which something is in hand.
    pub(super) watch: limits::Watch,
    /// The way for those who ask this thread.
    pub(super) asks: WeakSender<ClusterCommand>,
    /// Visits so far.
    visits: u64,
    round: Instant,
    sweep: Instant,
    said: Option<Instant>,
}

impl LeaseManager {
    pub(super) fn new(
        address: ServerAddress,
        shared: Arc<Shared>,
        terms: ClusterLedgerConfig,
        asks: WeakSender<ClusterCommand>,
    ) -> Self {
        let now = Instant::now();
        LeaseManager {
            address,
            shared,
            terms,
            link: None,
            attempt: None,
            next: (now, PAUSES[0]),
            hands: HashMap::default(),
            draining: None,
            kept: VecDeque::new(),
            through: 0,
            behind: false,
            listed: HashSet::default(),
            watch: limits::Watch::default(),
            asks,
            visits: 0,
            round: now,
            sweep: now,
            said: None,
        }
    }

    /// Works until the ledger is dropped.
    pub(super) async fn run(&mut self, asked: &mut Receiver<ClusterCommand>) {
        // Both are there after a panic alone.
        (self.link, self.attempt) = (None, None);
        let connected = Connection::connect(&self.address).await;
        self.connected(connected);
        let mut ticks = tokio::time::interval(self.terms.flush);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asks = Vec::new();
        loop {
            tokio::select! {
                count = asked.recv_many(&mut asks, ASKS) => {
                    if count == 0 {
                        break;
                    }
                    self.answer(std::mem::take(&mut asks)).await;
                }
                _ = ticks.tick() => {
                    self.look();
                    self.connect();
                    if let Err(error) = self.flush(false).await {
                        self.say(&error);
                    }
                }
                attempt = attempted(&mut self.attempt) => {
                    self.attempt = None;
                    self.connected(attempt);
                }
            }
        }
        if tokio::time::timeout(END, self.give_back()).await == Ok(true) {
            self.shared.journal.remove_if_drained();
        }
    }

    /// Looks whether the journal stands where it was made: what is written to files that were removed is lost.
    fn look(&self) {
        let gone = !self.shared.journal.is_there();
        if self.shared.gone.swap(gone, Ordering::AcqRel) != gone {
            let folder = self.terms.journal.display();
            match gone {
                true => tracing::error!(%folder, "the journal was removed; accounts are refused"),
                false => tracing::warn!(%folder, "the journal is there again"),
            }
        }
    }

    /// Begins an attempt to connect, if one is due.
    fn connect(&mut self) {
        if self.link.is_none() && self.attempt.is_none() && Instant::now() >= self.next.0 {
            let address = self.address.clone();
            self.attempt = Some(tokio::spawn(async move { Connection::connect(&address).await }));
        }
    }

    fn connected(&mut self, attempt: Result<Connection, ConnectionError>) {
        match attempt {
            Ok(link) => {
                self.link = Some(link);
                self.next.1 = PAUSES[0];
                self.shared.floor.store(0, Ordering::Release);
                self.listed.clear();
                // It is seen to all of them: the server may not be the one that it was, or not know what it knew.
                self.hands.values_mut().for_each(|hand| hand.asked = None);
                self.watch.connected();
                self.round = Instant::now();
                self.sweep = self.round;
                if self.said.take().is_some() {
                    tracing::warn!("the ledger's server is there again");
                }
            }
            Err(error) => self.lost(&error),
        }
    }

    /// The server is away.
    pub(super) fn lost(&mut self, error: &ConnectionError) {
        self.link = None;
        if let OnOutage::Allow(allowance) = self.terms.away {
            self.shared.floor.store(allowance.saturating_neg(), Ordering::Release);
        }
        let now = Instant::now();
        self.next = (now + self.next.1, (self.next.1 * 2).min(PAUSES[1]));
        self.say(&StoreError::Failed(error.to_string()));
    }

    fn say(&mut self, error: &StoreError) {
        if self.said.is_none_or(|said| said.elapsed() > SAID) {
            tracing::error!(%error, "the ledger's server takes nothing; charges wait in the journal");
            self.said = Some(Instant::now());
        }
    }

    async fn answer(&mut self, asks: Vec<ClusterCommand>) {
        let mut holds: Holds = HashMap::default();
        let (mut requests, mut spare) = (Vec::new(), Vec::new());
        for ask in asks {
            // Whoever asked may have stopped waiting.
            match ask {
                ClusterCommand::Hold { outcome, .. } if outcome.is_closed() => {}
                ClusterCommand::Limit(request) if request.outcome.is_closed() => {}
                ClusterCommand::Hold { account, amount, outcome } => {
                    holds.entry(account).or_default().push((amount, outcome));
                }
                ClusterCommand::Limit(request) => requests.push(*request),
                ClusterCommand::Spare { whose } => spare.push(whose),
                ClusterCommand::Flush { outcome } => drop(outcome.send(self.flush(true).await)),
                ClusterCommand::End { outcome } => {
                    let done = if self.give_back().await { Ok(()) } else { Err(away()) };
                    drop(outcome.send(done));
                }
                ClusterCommand::Spent { day, outcome } => match self.link.clone() {
                    // It may take a while.
                    Some(link) => drop(tokio::spawn(async move {
                        let spent = report::spent(&link, day).await;
                        let _ = outcome.send(spent.map_err(|error| StoreError::Failed(error.to_string())));
                    })),
                    None => drop(outcome.send(Err(away()))),
                },
            }
        }
        if !spare.is_empty() {
            self.spare(spare).await;
        }
        if !requests.is_empty() {
            self.limit(requests).await;
        }
        if !holds.is_empty() {
            self.hold(holds).await;
        }
    }

    /// Asks the server for what is to be held.
    async fn hold(&mut self, holds: Holds) {
        let Some(link) = self.link.clone() else {
            holds.into_iter().for_each(|(account, holds)| self.hold_away(&account, holds));
            return;
        };
        let (gateway, number) = (self.shared.journal.id(), self.number());
        let (mut commands, mut waiting) = (Vec::new(), Vec::new());
        for (account, holds) in holds {
            let Some(hand) = self.hand(account.as_str()) else { continue };
            let Some(purse) = hand.purse.clone() else { continue };
            // What is left here is used first. It stays set aside, whatever becomes of the visit.
            let mut left = purse.empty();
            let mut use_of = |amount: i64| {
                let part = amount.min(left);
                left -= part;
                part
            };
            let parts: Vec<i64> = holds.iter().map(|(amount, _)| use_of(*amount)).collect();
            purse.put(left);
            let lease = hand.lease.max(0);
            let needs: Vec<i64> =
                holds.iter().zip(&parts).map(|((amount, _), part)| amount.saturating_sub(*part)).collect();
            let more = holds.iter().map(|(amount, _)| *amount).max().unwrap_or(0).saturating_mul(AHEAD);
            let visit =
                LeaseTxn { account: account.as_str(), gateway, number, lease, parcel: None, needs, more };
            // There are no records in it that could not be packed.
            commands.extend(visit.command(0).ok());
            waiting.push((account, holds, parts, lease));
        }
        let asked = Instant::now();
        let answers = match link.all(commands).await {
            Ok(answers) => answers,
            Err(error) => {
                self.lost(&error);
                Vec::new()
            }
        };
        let mut answers = answers.iter();
        for (account, holds, parts, lease) in waiting {
            match answers.next().and_then(visited) {
                Some(LeaseTxnResult::Done(done)) => self.held(&account, holds, &parts, &done, lease, asked),
                _ => {
                    if let Some(purse) = self.shared.purses.find(account.as_str()) {
                        purse.put(parts.iter().sum());
                    }
                    self.hold_away(&account, holds);
                }
            }
        }
    }

    /// Hands out what the server has granted.
    fn held(
        &mut self,
        account: &AccountId,
        holds: Vec<Hold>,
        parts: &[i64],
        done: &Done,
        lease: i64,
        asked: Instant,
    ) {
        let Some(hand) = self.hands.get_mut(account.as_str()) else { return };
        let Some(purse) = hand.purse.clone() else { return };
        hand.lease = done.lease;
        hand.asked = Some(asked);
        let mut more = done.lease.saturating_sub(lease);
        for (at, ((amount, _), part)) in holds.iter().zip(parts).enumerate() {
            match done.granted.get(at) {
                Some(true) => more = more.saturating_sub(amount.saturating_sub(*part)),
                _ => more = more.saturating_add(*part),
            }
        }
        purse.put(more);
        purse.set(done.state, done.free);
        for (at, (amount, outcome)) in holds.into_iter().enumerate() {
            let held = if done.granted.get(at) == Some(&true) {
                Ok(purse.held(amount))
            } else {
                Err(purse.refused().unwrap_or(ReserveError::Empty { available: purse.available() }))
            };
            // Whom nobody waits for any more gives it back.
            let _ = outcome.send(held);
        }
    }

    /// Decides without the server.
    fn hold_away(&self, account: &AccountId, holds: Vec<Hold>) {
        let purse = self.shared.purses.find_or_insert(account.as_str());
        let floor = self.shared.floor.load(Ordering::Acquire);
        for (amount, outcome) in holds {
            let held = purse.as_ref().ok_or(ReserveError::Unavailable).and_then(|purse| {
                if let Some(refused) = purse.refused() {
                    return Err(refused);
                }
                let known = purse.state() == State::Enabled || matches!(self.terms.away, OnOutage::Allow(_));
                known.then(|| purse.hold(amount, floor)).flatten().ok_or(ReserveError::Unavailable)
            });
            let _ = outcome.send(held);
        }
    }

    /// The number of the visits that follow.
    pub(super) fn number(&mut self) -> u64 {
        self.visits += 1;
        self.visits
    }

    /// What is known of an account, made if there is nothing.
    pub(super) fn hand(&mut self, account: &str) -> Option<&mut AccountLease> {
        if !self.hands.contains_key(account) {
            let purse = self.shared.purses.find_or_insert(account);
            let hand = AccountLease { lease: 0, stands: 0, booked: self.through, asked: None, purse };
            self.hands.insert(account.to_owned(), hand);
        }
        self.hands.get_mut(account)
    }

    /// Brings what was settled to the server, and sees to what is set aside; of all accounts, if `all` is true.
    pub(super) async fn flush(&mut self, all: bool) -> Result<(), StoreError> {
        let failed = |error: &ShipError| StoreError::Failed(error.to_string());
        if self.link.is_none() {
            self.age();
            self.age_limits();
            self.secure();
            return Err(away());
        }
        let brought = self.bring().await;
        let mut done = brought.map_err(|error| self.unless_lost(error)).map_err(|error| failed(&error));
        if all || Instant::now() >= self.round {
            self.round = Instant::now() + ROUND;
            if let Err(error) = self.see_to_all(all).await {
                let error = self.unless_lost(error);
                done = done.and(Err(failed(&error)));
            }
            self.see_to_limits(false).await;
            self.age();
        }
        if self.behind {
            let brought = self.bring().await;
            done = done.and(brought.map_err(|error| failed(&self.unless_lost(error))));
        }
        if let Some(link) = self.link.clone()
            && Instant::now() >= self.sweep
        {
            self.sweep = Instant::now() + ship::SWEEP;
            let swept = ship::leftovers(&link, &self.terms).await;
            done = done.and(swept.map_err(|error| failed(&self.unless_lost(error))));
        }
        if done.is_err() {
            self.secure();
        }
        done
    }

    /// Takes note if it was the connection that failed.
    fn unless_lost(&mut self, error: ShipError) -> ShipError {
        if let ShipError::Link(error) = &error {
            self.lost(error);
        }
        error
    }

    /// Writes to the disk what the server does not take.
    fn secure(&mut self) {
        let journal = &self.shared.journal;
        if self.draining.is_none() {
            self.draining = journal.rotate();
        }
        if let Some(segment) = &self.draining
            && let Err(error) = journal.sync(segment)
        {
            tracing::error!(%error, "the journal cannot be written to the disk");
        }
    }

    /// What is known for too long is not relied on: the server may have given away what was set aside.
    fn age(&mut self) {
        for hand in self.hands.values().filter(|hand| hand.asked.is_none_or(|at| at.elapsed() > LIFE / 2)) {
            if let Some(purse) = &hand.purse
                && purse.state() != State::Unknown
            {
                purse.expire();
            }
        }
    }
}

/// The outcome of the attempt that is under way; it does not come if there is none.
async fn attempted(
    attempt: &mut Option<JoinHandle<Result<Connection, ConnectionError>>>,
) -> Result<Connection, ConnectionError> {
    match attempt {
        Some(attempt) => attempt.await.unwrap_or(Err(ConnectionError::Late)),
        None => std::future::pending().await,
    }
}

fn away() -> StoreError {
    StoreError::Failed("the server is away".to_owned())
}
