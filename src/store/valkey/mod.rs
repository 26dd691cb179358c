//! The ledger on Valkey or Redis, for a fleet of gateways: balances and holds are there, changed by scripts that are one
//! step each; what was settled is in this gateway's journal first, and brought there a moment later.
//!
//! Here live the trait's methods, the thread, the scripts, and what is done while the server is away. Here must not live:
//! prices, limits, who may spend (`account`).
//!
//! All that belongs to an account has its name in braces, so that in a cluster it is in one place.

mod desk;
mod keeper;
mod link;
mod names;
mod push;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::journal::Sure;
use super::ledger::{AccountId, Held, Holder, Ledger, Refused, Reservation, Settled, Spent};
use super::record::UsageRecord;
use super::{Pending, StoreError};
pub use desk::ValkeyDesk;
pub use link::Mode;

/// How the ledger does its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValkeyTerms {
    /// URLs of the servers, with commas between them. They may hold passwords.
    pub addresses: String,
    /// What kind of servers they are.
    pub mode: Mode,
    /// The folder of this gateway's journal.
    pub journal: PathBuf,
    /// How often settlements are brought to the server.
    pub flush: Duration,
    /// How long records are kept there. Sums of days stay.
    pub records: Duration,
    /// How long what a gateway holds outlives it.
    pub holds: Duration,
    /// Replicas that must have a settlement before the journal gives it up.
    pub replicas: u32,
    /// What is done while the server is away.
    pub away: Away,
}

/// What is done while the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Requests of accounts are refused.
    Refuse,
    /// Each account that was known before may spend this much, in nano-units, through each gateway, until the server is
    /// back. It is charged then.
    Allow(i64),
}

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ValkeyError {
    /// The addresses cannot be understood.
    #[error("store.valkey: {0}")]
    Address(String),
    /// The journal cannot be made.
    #[error("{}: {source}", .path.display())]
    Journal {
        /// Its folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The ledger.
#[derive(Debug)]
pub struct Valkey {
    shared: Arc<Shared>,
    asks: Option<UnboundedSender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

/// What the workers and the thread share.
#[derive(Debug)]
struct Shared {
    sure: Sure,
    terms: ValkeyTerms,
    /// Whether the server did not answer the last time.
    away: AtomicBool,
    /// Number of the last reservation.
    last: AtomicU64,
    /// What is known of accounts, and what they spend while the server is away.
    known: Mutex<HashMap<AccountId, Arc<Known>, foldhash::fast::RandomState>>,
}

/// What this gateway knows of an account.
#[derive(Debug, Default)]
struct Known {
    state: Mutex<KnownState>,
}

#[derive(Debug, Default)]
struct KnownState {
    enabled: bool,
    available: i64,
    /// Held and charged since the server is away.
    spent: i64,
}

impl Holder for Known {
    fn give_back(&self, _: u64, amount: i64) {
        let mut state = self.state.lock();
        // The server may be back meanwhile, and all forgotten.
        state.spent = state.spent.saturating_sub(amount).max(0);
    }
}

type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the thread is asked.
#[derive(Debug)]
enum Ask {
    Reserve {
        account: AccountId,
        amount: i64,
        outcome: oneshot::Sender<Result<Reservation, Refused>>,
    },
    Release {
        account: AccountId,
        hold: u64,
    },
    Spent {
        day: i64,
        outcome: Outcome<Vec<Spent>>,
    },
    Flush {
        outcome: Outcome<()>,
    },
    #[cfg(test)]
    Crash,
}

/// An amount that the server holds.
#[derive(Debug)]
struct Hold {
    account: AccountId,
    /// Weak: a request that is still under way does not keep the thread from its end.
    asks: WeakUnboundedSender<Ask>,
}

impl Holder for Hold {
    fn give_back(&self, hold: u64, _: i64) {
        // Without the thread, the hold ends with its time.
        if let Some(asks) = self.asks.upgrade() {
            let _ = asks.send(Ask::Release { account: self.account.clone(), hold });
        }
    }
}

impl Valkey {
    /// Makes the journal and starts the thread, which connects. The thread ends with this value, after it has brought what
    /// is settled to the server.
    ///
    /// # Errors
    /// An address is none, or the journal cannot be made. A server that is away is none: it is waited for.
    pub fn open(terms: ValkeyTerms) -> Result<Self, ValkeyError> {
        let folder = terms.journal.clone();
        let journal = |source| ValkeyError::Journal { path: folder.clone(), source };
        let link = link::Link::new(&terms.addresses, terms.mode.clone())
            .map_err(|error| ValkeyError::Address(error.to_string()))?;
        let shared = Arc::new(Shared {
            sure: Sure::create(&folder).map_err(journal)?,
            terms,
            away: AtomicBool::new(false),
            last: AtomicU64::new(0),
            known: Mutex::default(),
        });
        let (asks, asked) = unbounded_channel();
        let (theirs, weak) = (shared.clone(), asks.downgrade());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(journal)?;
        let thread = std::thread::Builder::new()
            .name("valkey".to_owned())
            .spawn(move || {
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, keeper::run(theirs, link, asked, weak));
            })
            .map_err(journal)?;
        Ok(Valkey { shared, asks: Some(asks), thread: Some(thread) })
    }

    /// Brings what is settled to the server now.
    pub fn flush(&self) -> Pending<()> {
        self.ask(|outcome| Ask::Flush { outcome })
    }

    fn ask<T>(&self, make: impl FnOnce(Outcome<T>) -> Ask) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(asks) = &self.asks {
            // The end of the thread is told by the outcome that is dropped with the ask.
            let _ = asks.send(make(outcome));
        }
        pending
    }

    /// Ends as a process does that is killed: nothing more is brought anywhere.
    #[cfg(test)]
    fn crash(self) {
        if let Some(asks) = &self.asks {
            let _ = asks.send(Ask::Crash);
        }
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        drop(self.asks.take());
        if let Some(thread) = self.thread.take() {
            // What it left is in the journal.
            let _ = thread.join();
        }
    }
}

impl Ledger for Valkey {
    fn reserve(&self, account: &AccountId, amount: i64) -> Held {
        let (true, Some(asks)) = (!self.shared.sure.is_failing(), &self.asks) else {
            return Held::Known(Err(Refused::Unavailable));
        };
        let amount = amount.max(0);
        if self.shared.away.load(Ordering::Acquire) {
            return Held::Known(self.shared.reserve_away(account, amount));
        }
        let (outcome, held) = oneshot::channel();
        let _ = asks.send(Ask::Reserve { account: account.clone(), amount, outcome });
        Held::Pending(held)
    }

    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        // A hold of the server ends there, in the step in which the cost is charged.
        let hold = reservation.as_ref().map_or(0, Reservation::id);
        let kept = self.shared.sure.append(|out| names::encode(hold, record, out));
        match reservation {
            Some(reservation) if hold == 0 => reservation.spend(record.cost),
            Some(reservation) => reservation.hand_over(),
            None => {}
        }
        Settled::Known(kept.map_err(|error| StoreError::Failed(error.to_string())))
    }

    fn available(&self, account: &AccountId) -> Option<i64> {
        let known = self.shared.known.lock().get(account).cloned()?;
        let state = known.state.lock();
        Some(state.available)
    }

    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.ask(|outcome| Ask::Spent { day, outcome })
    }
}

impl Shared {
    fn folder(&self) -> &Path {
        &self.terms.journal
    }

    /// Holds an amount while the server is away.
    fn reserve_away(&self, account: &AccountId, amount: i64) -> Result<Reservation, Refused> {
        let Away::Allow(most) = self.terms.away else { return Err(Refused::Unavailable) };
        let known = self.known.lock().get(account).cloned().ok_or(Refused::Unavailable)?;
        let mut state = known.state.lock();
        if !state.enabled {
            return Err(Refused::Disabled);
        }
        // Not more than was there when the server was last heard of, either.
        let left = most.min(state.available).saturating_sub(state.spent);
        if amount > left {
            return Err(Refused::Empty { available: left });
        }
        state.spent += amount;
        drop(state);
        Ok(Reservation::new(0, amount, known))
    }

    /// Notes what the server said of an account.
    fn note(&self, account: &AccountId, enabled: bool, available: i64) {
        let known = self.known.lock().entry(account.clone()).or_default().clone();
        let mut state = known.state.lock();
        (state.enabled, state.available) = (enabled, available);
    }

    /// The server is back, or away.
    fn set_away(&self, away: bool) {
        if self.away.swap(away, Ordering::AcqRel) != away {
            if away {
                tracing::error!("valkey is away; charges wait in the journal");
            } else {
                tracing::info!("valkey is back");
                for known in self.known.lock().values() {
                    known.state.lock().spent = 0;
                }
            }
        }
    }
}
