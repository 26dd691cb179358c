//! What the ledger's thread does again and again, and at its end: what is set aside is renewed, or given back.

use std::time::{Duration, Instant};

use super::account_lease::{LIFE, LeaseTxn, LeaseTxnResult, visited};
use super::lease_manager::LeaseManager;
use super::ship::ShipError;
use super::usage_batch::UsageBatch;

/// How old what is known of an account in use may be.
const FRESH: Duration = Duration::from_secs(1);
/// An account of which nothing is held, and that was not used for so long, is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

impl LeaseManager {
    /// Renews what is set aside, gives back what is not used, and asks how accounts stand.
    pub(super) async fn see_to_all(&mut self, all: bool) -> Result<(), ShipError> {
        let Some(link) = self.link.clone() else { return Ok(()) };
        let (gateway, number) = (self.shared.journal.id(), self.number());
        let (mut commands, mut visits, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
        for (name, hand) in &mut self.hands {
            let age = hand.asked.map(|asked| asked.elapsed());
            if !all && age.is_some_and(|age| age < FRESH) {
                continue;
            }
            let Some(purse) = &hand.purse else {
                if age.is_none() && hand.stands > 0 {
                    let parcel = Some(UsageBatch::none(hand.stands));
                    let visit = LeaseTxn {
                        account: name,
                        gateway,
                        number,
                        lease: 0,
                        parcel,
                        needs: Vec::new(),
                        more: 0,
                    };
                    commands.extend(visit.command(0).ok());
                    visits.push((name.clone(), 0));
                }
                continue;
            };
            let used = purse.take_used();
            let idle = !used && !all && age.is_some();
            if idle && hand.lease == 0 && purse.left() == 0 {
                if age.is_some_and(|age| age > FORGOTTEN) {
                    forgotten.push(name.clone());
                }
                continue;
            }
            if idle && purse.left() <= 0 && age.is_some_and(|age| age < LIFE / 4) {
                continue;
            }
            let pool = if idle { purse.empty() } else { 0 };
            let lease = hand.lease.saturating_sub(pool).max(0);
            let parcel = age.is_none().then(|| UsageBatch::none(hand.stands)).filter(|_| hand.stands > 0);
            let visit =
                LeaseTxn { account: name, gateway, number, lease, parcel, needs: Vec::new(), more: 0 };
            commands.extend(visit.command(0).ok());
            visits.push((name.clone(), pool));
        }
        for name in forgotten {
            self.hands.remove(&name);
            self.shared.purses.remove(&name);
        }
        let asked = Instant::now();
        let answers = link.all(commands).await;
        let mut outcomes = answers.iter().flatten();
        for (name, pool) in visits {
            let outcome = outcomes.next().and_then(visited);
            let Some(hand) = self.hands.get_mut(&name) else { continue };
            match outcome {
                Some(LeaseTxnResult::Done(done)) => {
                    hand.lease = done.lease;
                    hand.asked = Some(asked);
                    if let Some(purse) = &hand.purse {
                        purse.set(done.state, done.free);
                    }
                }
                other => {
                    // It may be given back already: then others may spend it.
                    hand.lease = hand.lease.saturating_sub(pool).max(0);
                    // Where it stands further on, that comes out when the frames are brought.
                    if let Some(LeaseTxnResult::Gap(stands)) = other
                        && stands < hand.stands
                    {
                        self.behind = true;
                        hand.stands = stands;
                    }
                }
            }
        }
        answers.map(drop).map_err(ShipError::Link)
    }

    /// Brings the rest, and gives back all that is set aside. Tells whether all was brought.
    pub(super) async fn give_back(&mut self) -> bool {
        if self.flush(false).await.is_err() {
            return false;
        }
        self.see_to_limits(true).await;
        let (gateway, number) = (self.shared.journal.id(), self.number());
        let mut commands = Vec::new();
        for (name, hand) in &self.hands {
            let pool = hand.purse.as_ref().map_or(0, |purse| purse.empty());
            if hand.lease > 0 {
                let lease = hand.lease.saturating_sub(pool).max(0);
                let visit = LeaseTxn {
                    account: name,
                    gateway,
                    number,
                    lease,
                    parcel: None,
                    needs: Vec::new(),
                    more: 0,
                };
                commands.extend(visit.command(0).ok());
            }
        }
        if let Some(link) = &self.link {
            let _ = link.all(commands).await;
        }
        // What came while the segment before was brought.
        self.bring().await.is_ok()
    }
}
