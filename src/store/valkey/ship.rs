//! The way of a journal to the server: that of this process, and those that ended processes left. Frames go there with
//! their numbers, so that each is charged once, whatever becomes of the answers and of the server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use redis::Cmd;

use super::account_lease::{ENDED, LeaseTxn, LeaseTxnResult, visited};
use super::cluster_ledger::ClusterLedgerConfig;
use super::connection::{Connection, ConnectionError};
use super::keys;
use super::lease_manager::LeaseManager;
use super::usage_batch::{BatchesByAccount, UsageBatch, sort};
use crate::store::journal::{self, Frames, Pieces, Segment};
use crate::store::millis;

/// How often it is looked for journals of ended processes.
pub(super) const SWEEP: Duration = Duration::from_secs(10);
/// How long what was brought is kept, for a server that is started anew, or takes over, without it. Servers write to
/// their disk every second, and replicas follow within milliseconds.
const KEPT: Duration = Duration::from_secs(10);
/// Most bytes that are kept so.
const KEPT_BYTES: usize = 64 << 20;
/// How often the server may say that it stands elsewhere before something else must be wrong.
const GAPS: usize = 64;
/// Days and accounts that are remembered to stand in the lists.
const LISTED: usize = 1 << 18;

/// Why something was not brought.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShipError {
    #[error(transparent)]
    Link(#[from] ConnectionError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("frame {0} is of a later version")]
    Record(u64),
    #[error("the server does not agree on what was brought")]
    Gaps,
}

impl LeaseManager {
    /// Brings all that was settled up to now.
    pub(super) async fn bring(&mut self) -> Result<(), ShipError> {
        self.watch.bringing();
        self.bring_all().await?;
        self.watch.brought();
        Ok(())
    }

    async fn bring_all(&mut self) -> Result<(), ShipError> {
        if self.draining.is_some() {
            // From a time when it could not be brought; more has been settled since.
            self.bring_one().await?;
        }
        self.bring_one().await?;
        // A segment may be full: there is room only now.
        if self.shared.journal.is_failing() {
            self.shared.journal.write_queued()?;
            self.bring_one().await?;
        }
        Ok(())
    }

    async fn bring_one(&mut self) -> Result<(), ShipError> {
        if self.draining.is_none() {
            self.draining = self.shared.journal.rotate();
        }
        let mut pieces = self.draining.as_ref().map(Segment::pieces).transpose()?;
        // Where there is no piece, there may be something to bring again.
        let mut brought = false;
        while let Some(piece) = pieces.as_mut().map(Pieces::next).transpose()?.flatten() {
            brought = true;
            let piece = piece.to_vec();
            self.bring_segment(&piece).await?;
            let last = Frames::new(&piece).and_then(Iterator::last);
            self.through = last.map_or(self.through, |frame| frame.number);
            self.keep(piece);
        }
        if !brought {
            self.bring_segment(&[]).await?;
        }
        if let Some(segment) = self.draining.take() {
            self.shared.journal.recycle(segment)?;
        }
        Ok(())
    }

    /// Keeps a piece that was brought for a while.
    fn keep(&mut self, piece: Vec<u8>) {
        self.kept.push_back((Instant::now(), piece));
        let mut size: usize = self.kept.iter().map(|(_, bytes)| bytes.len()).sum();
        while let Some((at, bytes)) = self.kept.front()
            && (size > KEPT_BYTES || at.elapsed() > KEPT)
        {
            size -= bytes.len();
            self.kept.pop_front();
        }
    }

    async fn bring_segment(&mut self, bytes: &[u8]) -> Result<(), ShipError> {
        for _ in 0..GAPS {
            // Set by an answer further below.
            let kept = if std::mem::take(&mut self.behind) {
                std::mem::take(&mut self.kept)
            } else {
                Default::default()
            };
            let mut sorted = BatchesByAccount::default();
            let segments = kept.iter().map(|(_, bytes)| &bytes[..]).chain([bytes]);
            let read = segments
                .filter_map(Frames::new)
                .try_for_each(|frames| sort(frames, &mut sorted).map_err(ShipError::Record));
            let brought = match read {
                Ok(()) => self.bring_sorted(&sorted).await,
                Err(error) => Err(error),
            };
            drop(sorted);
            if !kept.is_empty() {
                self.kept = kept;
                // What could not be brought again now is tried again.
                self.behind |= brought.is_err();
            }
            brought?;
            if !self.behind {
                return Ok(());
            }
        }
        Err(ShipError::Gaps)
    }

    async fn bring_sorted(&mut self, sorted: &BatchesByAccount<'_>) -> Result<(), ShipError> {
        let Some(link) = self.link.clone() else { return Err(ConnectionError::Late.into()) };
        let gateway = self.shared.journal.id();
        let records = millis(self.terms.records);
        loop {
            let number = self.number();
            let (mut lists, mut commands, mut visits) = (Vec::new(), Vec::new(), Vec::new());
            for (account, frames) in sorted {
                let Some(hand) = self.hand(account) else { continue };
                let Some(parcel) = UsageBatch::after(hand.stands, hand.booked, account, frames) else {
                    continue;
                };
                let (last, unbooked) = (parcel.last, parcel.unbooked);
                let lease = hand.lease.saturating_sub(unbooked).max(0);
                for day in parcel.days.keys() {
                    if self.listed.len() > LISTED {
                        self.listed.clear();
                    }
                    if self.listed.insert((*day, (*account).to_owned())) {
                        lists.extend(list(*day, account));
                    }
                }
                let visit = LeaseTxn {
                    account,
                    gateway,
                    number,
                    lease,
                    parcel: Some(parcel),
                    needs: Vec::new(),
                    more: 0,
                };
                commands.push(visit.command(records)?);
                visits.push((*account, last, unbooked));
            }
            if visits.is_empty() || self.behind {
                return Ok(());
            }
            let asked = Instant::now();
            if let Err(error) = link.all(lists).await {
                self.listed.clear();
                return Err(error.into());
            }
            let answers = link.all(commands).await?;
            for ((account, last, unbooked), answer) in visits.into_iter().zip(&answers) {
                let Some(hand) = self.hands.get_mut(account) else { continue };
                match visited(answer) {
                    Some(LeaseTxnResult::Done(done)) => {
                        hand.stands = last;
                        hand.book(last, unbooked);
                        hand.lease = done.lease;
                        hand.asked = Some(asked);
                        if let Some(purse) = &hand.purse {
                            purse.set(done.state, done.free);
                        }
                    }
                    Some(LeaseTxnResult::Gap(stands)) if stands > hand.stands => {
                        // It was brought already, and the answer was lost.
                        let frames = sorted.get(account).map_or(&[][..], Vec::as_slice);
                        let booked = hand.booked;
                        let lost = frames.iter().filter(|frame| frame.0 > booked && frame.0 <= stands);
                        let cost = lost.fold(0i64, |sum, (_, record, _)| sum.saturating_add(record.cost));
                        hand.stands = stands;
                        hand.book(stands, if account.is_empty() { 0 } else { cost });
                    }
                    Some(LeaseTxnResult::Gap(stands)) => {
                        hand.stands = stands;
                        self.behind = true;
                    }
                    None => return Err(ShipError::Gaps),
                }
            }
        }
    }
}

/// Puts an account on the list of a day.
fn list(day: i64, account: &str) -> [Cmd; 2] {
    let add = |list: String, member: &str| {
        let mut add = redis::cmd("SADD");
        add.arg(list).arg(member);
        add
    };
    [add(keys::days(), &day.to_string()), add(keys::active(day), account)]
}

/// Brings the journals of ended processes. What was set aside for those is free again at once.
pub(super) async fn leftovers(link: &Connection, terms: &ClusterLedgerConfig) -> Result<(), ShipError> {
    for leftover in journal::leftovers(&terms.journal)? {
        let mut leftover = leftover?;
        let id = leftover.id;
        // Where each account's frames stand at the server.
        let mut stands: HashMap<String, u64, RandomState> = HashMap::default();
        for segment in &mut leftover.segments {
            while let Some(piece) = segment.next()? {
                let mut sorted = BatchesByAccount::default();
                if let Some(frames) = Frames::new(piece) {
                    sort(frames, &mut sorted).map_err(ShipError::Record)?;
                }
                for (account, frames) in &sorted {
                    let from = stands.get(*account).copied().unwrap_or(0);
                    let to = bring_leftover(link, terms, id, account, frames, from).await?;
                    stands.insert((*account).to_owned(), to);
                }
            }
        }
        leftover.remove()?;
    }
    Ok(())
}

async fn bring_leftover(
    link: &Connection,
    terms: &ClusterLedgerConfig,
    gateway: u64,
    account: &str,
    frames: &[(u64, crate::store::UsageRecord<'_>, &[u8])],
    from: u64,
) -> Result<u64, ShipError> {
    let (mut stands, mut gaps) = (from, 0);
    while let Some(parcel) = UsageBatch::after(stands, u64::MAX, account, frames) {
        let last = parcel.last;
        link.all(parcel.days.keys().flat_map(|day| list(*day, account)).collect()).await?;
        let visit = LeaseTxn {
            account,
            gateway,
            number: ENDED,
            lease: 0,
            parcel: Some(parcel),
            needs: Vec::new(),
            more: 0,
        };
        match visited(&link.one(visit.command(millis(terms.records))?).await?) {
            Some(LeaseTxnResult::Done(_)) => stands = last,
            // What it has forgotten stands in a piece before this one: all of it is brought again the next time.
            Some(LeaseTxnResult::Gap(there)) if gaps < GAPS && there >= from => {
                (stands, gaps) = (there, gaps + 1)
            }
            _ => return Err(ShipError::Gaps),
        }
    }
    Ok(stands)
}
