//! The thread: it asks the server for what is reserved, brings it what is settled, keeps holds alive, and notices when the
//! server is away and when it is back.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{RedisResult, Script};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::time::MissedTickBehavior;

use super::link::Link;
use super::names::{self, Keys};
use super::push::{self, PushError};
use super::{Ask, Hold, Shared};
use crate::store::StoreError;
use crate::store::journal::{Segment, leftovers};
use crate::store::ledger::{AccountId, Refused, Reservation, Spent};

/// How often it is looked for journals of ended processes.
const SWEEP: Duration = Duration::from_secs(10);
/// How long a failure is waited for before the same is said again.
const SAID: Duration = Duration::from_secs(10);
/// How long the end waits for the server.
const END: Duration = Duration::from_secs(2);

struct Keeper {
    shared: Arc<Shared>,
    link: Rc<Link>,
    asks: WeakUnboundedSender<Ask>,
    /// What the server holds for requests under way here.
    holds: RefCell<HashMap<u64, AccountId>>,
    /// What is to be given back, and could not be yet.
    releases: RefCell<Vec<(AccountId, u64)>>,
    /// The segment that is being brought there.
    draining: RefCell<Option<Segment>>,
    pushing: tokio::sync::Mutex<()>,
    said: Cell<Option<Instant>>,
}

/// Works until the ledger is dropped.
pub(super) async fn run(
    shared: Arc<Shared>,
    link: Link,
    mut asked: UnboundedReceiver<Ask>,
    asks: WeakUnboundedSender<Ask>,
) {
    let flush = shared.terms.flush;
    let renewal = shared.terms.holds / 3;
    let keeper = Rc::new(Keeper {
        shared,
        link: Rc::new(link),
        asks,
        holds: RefCell::default(),
        releases: RefCell::default(),
        draining: RefCell::default(),
        pushing: tokio::sync::Mutex::new(()),
        said: Cell::new(None),
    });
    let ticker = |first: Duration, every: Duration| {
        let mut ticker = tokio::time::interval_at(tokio::time::Instant::now() + first, every);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticker
    };
    let (mut turns, mut renewals, mut sweeps) =
        (ticker(flush, flush), ticker(renewal, renewal), ticker(Duration::ZERO, SWEEP));
    loop {
        let keeper = keeper.clone();
        tokio::select! {
            ask = asked.recv() => match ask {
                #[cfg(test)]
                Some(Ask::Crash) => return,
                Some(ask) => drop(tokio::task::spawn_local(async move { keeper.answer(ask).await })),
                None => break,
            },
            _ = turns.tick() => drop(tokio::task::spawn_local(async move {
                // One that takes long is not overtaken.
                if let Ok(_turn) = keeper.pushing.try_lock() {
                    let _ = keeper.turn().await;
                }
            })),
            _ = renewals.tick() => drop(tokio::task::spawn_local(async move { keeper.renew().await })),
            _ = sweeps.tick() => drop(tokio::task::spawn_local(async move { keeper.recover().await })),
        }
    }
    let end = async {
        let _turn = keeper.pushing.lock().await;
        // What came while the segment before was brought there.
        if keeper.turn().await.is_ok() && keeper.turn().await.is_ok() {
            keeper.shared.sure.journal.remove_if_drained();
        }
    };
    // What does not get there is in the journal.
    let _ = tokio::time::timeout(END, end).await;
}

impl Keeper {
    async fn answer(&self, ask: Ask) {
        // Whoever asked may have stopped waiting.
        match ask {
            Ask::Reserve { account, amount, outcome } => {
                let _ = outcome.send(self.reserve(account, amount).await);
            }
            Ask::Release { account, hold } => {
                self.releases.borrow_mut().push((account, hold));
                self.release().await;
            }
            Ask::Spent { day, outcome } => {
                let _turn = self.pushing.lock().await;
                let done = self.turn().await;
                let spent = match done {
                    Ok(()) => self.spent(day).await.map_err(|error| StoreError::Failed(error.to_string())),
                    Err(error) => Err(error),
                };
                let _ = outcome.send(spent);
            }
            Ask::Flush { outcome } => {
                let _turn = self.pushing.lock().await;
                let _ = outcome.send(self.turn().await);
            }
            #[cfg(test)]
            Ask::Crash => {}
        }
    }

    async fn reserve(&self, account: AccountId, amount: i64) -> Result<Reservation, Refused> {
        let asks = self.asks.clone();
        let number = self.shared.last.fetch_add(1, Ordering::Relaxed) + 1;
        let hold = names::hold(self.shared.sure.journal.id(), number);
        let keys = Keys::of(account.as_str());
        let script = Script::new(include_str!("reserve.lua"));
        let mut call = script.prepare_invoke();
        call.key(&keys.account).key(&keys.holds).key(&keys.ends);
        call.arg(amount).arg(&hold).arg(millis(self.shared.terms.holds));
        let said: RedisResult<(String, i64)> =
            self.link.run(async |connection| call.invoke_async(connection).await).await;
        let (word, available) = match said {
            Ok(said) => said,
            Err(error) => {
                self.complain(&error);
                self.shared.set_away(true);
                // It may have been held all the same.
                self.releases.borrow_mut().push((account.clone(), number));
                return self.shared.reserve_away(&account, amount);
            }
        };
        match word.as_str() {
            "unknown" => Err(Refused::UnknownAccount),
            "disabled" => {
                self.shared.note(&account, false, 0);
                Err(Refused::Disabled)
            }
            "empty" => {
                self.shared.note(&account, true, available);
                Err(Refused::Empty { available })
            }
            _ => {
                self.shared.note(&account, true, available);
                if amount > 0 {
                    self.holds.borrow_mut().insert(number, account.clone());
                }
                Ok(Reservation::new(number, amount, Arc::new(Hold { account, asks })))
            }
        }
    }

    /// Gives back what is to be given back. What cannot be is tried again at the next turn.
    async fn release(&self) {
        let mut by_account: HashMap<AccountId, Vec<u64>> = HashMap::new();
        for (account, hold) in self.releases.take() {
            by_account.entry(account).or_default().push(hold);
        }
        for (account, holds) in by_account {
            let keys = Keys::of(account.as_str());
            let script = Script::new(include_str!("release.lua"));
            let mut call = script.prepare_invoke();
            call.key(&keys.account).key(&keys.holds).key(&keys.ends);
            for hold in &holds {
                call.arg(names::hold(self.shared.sure.journal.id(), *hold));
            }
            let done: RedisResult<i64> =
                self.link.run(async |connection| call.invoke_async(connection).await).await;
            if done.is_ok() {
                self.holds.borrow_mut().retain(|hold, _| !holds.contains(hold));
            } else {
                self.releases.borrow_mut().extend(holds.into_iter().map(|hold| (account.clone(), hold)));
            }
        }
    }

    /// Keeps what is held alive.
    async fn renew(&self) {
        let mut by_account: HashMap<AccountId, Vec<u64>> = HashMap::new();
        for (hold, account) in self.holds.borrow().iter() {
            by_account.entry(account.clone()).or_default().push(*hold);
        }
        for (account, holds) in by_account {
            let script = Script::new(include_str!("renew.lua"));
            let mut call = script.prepare_invoke();
            call.key(Keys::of(account.as_str()).ends).arg(millis(self.shared.terms.holds));
            for hold in holds {
                call.arg(names::hold(self.shared.sure.journal.id(), hold));
            }
            let done: RedisResult<i64> =
                self.link.run(async |connection| call.invoke_async(connection).await).await;
            if let Err(error) = done {
                self.complain(&error);
            }
        }
    }

    /// Brings everything there that is settled, and sees whether the server is back.
    async fn turn(&self) -> Result<(), StoreError> {
        let done = self.drain().await;
        let done = match done {
            Ok(()) if self.shared.away.load(Ordering::Acquire) => self.ping().await.map_err(PushError::from),
            done => done,
        };
        match done {
            Ok(()) => {
                self.shared.set_away(false);
                if !self.releases.borrow().is_empty() {
                    self.release().await;
                }
                Ok(())
            }
            Err(error) => {
                self.complain(&error);
                let reaches = matches!(error, PushError::Replicas { .. } | PushError::Record(_));
                self.shared.set_away(!reaches);
                if let Some(segment) = &*self.draining.borrow() {
                    // The server does not take it: then at least the disk does.
                    let _ = self.shared.sure.journal.sync(segment);
                }
                Err(StoreError::Failed(error.to_string()))
            }
        }
    }

    async fn ping(&self) -> RedisResult<()> {
        self.link.run(async |connection| redis::cmd("PING").query_async::<()>(connection).await).await
    }

    async fn drain(&self) -> Result<(), PushError> {
        self.shared.sure.write_the_rest()?;
        let bytes = {
            let mut draining = self.draining.borrow_mut();
            if draining.is_none() {
                *draining = self.shared.sure.journal.rotate();
            }
            let Some(segment) = &*draining else { return Ok(()) };
            segment.read()?
        };
        let ended = push::push(&self.link, &self.shared.terms, &bytes).await?;
        for hold in ended {
            self.holds.borrow_mut().remove(&hold);
        }
        let segment = self.draining.borrow_mut().take();
        if let Some(segment) = segment {
            self.shared.sure.journal.recycle(segment)?;
        }
        Ok(())
    }

    /// Brings in the journals of ended processes of this machine.
    async fn recover(&self) {
        if let Err(error) = self.bring_in_leftovers().await {
            self.complain(&error);
        }
    }

    async fn bring_in_leftovers(&self) -> Result<(), PushError> {
        for leftover in leftovers(self.shared.folder())? {
            for segment in &leftover.segments {
                push::push(&self.link, &self.shared.terms, segment).await?;
            }
            leftover.remove()?;
        }
        Ok(())
    }

    async fn spent(&self, from: i64) -> RedisResult<Vec<Spent>> {
        let used: Vec<String> = self
            .link
            .run(async |connection| redis::cmd("SMEMBERS").arg(names::USED).query_async(connection).await)
            .await?;
        let mut spent = Vec::new();
        for account in used {
            let sums: HashMap<String, i64> = self
                .link
                .run(async |connection| {
                    redis::cmd("HGETALL").arg(Keys::of(&account).sums).query_async(connection).await
                })
                .await?;
            let mut by_key: HashMap<(i64, &str), i64> = HashMap::new();
            for (name, sum) in &sums {
                if let Some((day, key, _, "cost")) = names::parse_sum(name)
                    && day >= from
                {
                    *by_key.entry((day, key)).or_default() += sum;
                }
            }
            spent.extend(by_key.into_iter().map(|((day, key), cost)| Spent {
                day,
                account: account.clone(),
                key: key.to_owned(),
                cost,
            }));
        }
        Ok(spent)
    }

    fn complain(&self, error: &dyn std::fmt::Display) {
        if self.said.get().is_none_or(|said| said.elapsed() > SAID) {
            tracing::error!(%error, "valkey");
            self.said.set(Some(Instant::now()));
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
