//! Shipping of journals to the server: the journal of this process, and those of ended processes. Frames carry their
//! sequence numbers, so that each is charged exactly once, even if responses are lost or the server fails over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use redis::Cmd;

use super::account_lease::{FINAL_TXN, LeaseTxn, LeaseTxnResult, parse_result};
use super::cluster_ledger::ClusterLedgerConfig;
use super::lease_manager::LeaseManager;
use super::usage_batch::{BatchesByAccount, UsageBatch, group_by_account};
use crate::ledger::wal::{self, JournalFrames};
use crate::ledger::worker;
use crate::store::millis;
use crate::store::valkey::connection::{Connection, ConnectionError};
use crate::store::valkey::keys;

/// Interval between two searches for orphaned journals.
pub(super) const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which shipped pieces are retained, in case a restarted server or a promoted replica has lost them. Servers
/// write to their disk every second, and replicas follow within milliseconds.
const RETENTION: Duration = Duration::from_secs(10);
/// Maximum bytes that are retained so.
const MAX_RETAINED_BYTES: usize = 64 << 20;
/// Maximum sequence-gap resyncs per flush before giving up.
const MAX_RESYNCS: usize = 64;
/// Maximum number of remembered pairs of day and account in the index sets.
const MAX_INDEXED: usize = 1 << 18;

/// Reason why usage was not shipped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShipError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("frame {0} is from a later version")]
    Record(u64),
    #[error("the server and the gateway disagree on the usage that was shipped")]
    Gaps,
}

impl LeaseManager {
    /// Ships everything that was settled up to now.
    pub(super) async fn ship(&mut self) -> Result<(), ShipError> {
        self.limit_leases.mark_in_flight();
        worker::drain(self).await?;
        self.limit_leases.clear_in_flight();
        Ok(())
    }

    /// Retains a shipped piece for a while.
    pub(super) fn retain(&mut self, piece: Vec<u8>) {
        self.shipped_pieces.push_back((Instant::now(), piece));
        let mut size: usize = self.shipped_pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        while let Some((at, bytes)) = self.shipped_pieces.front()
            && (size > MAX_RETAINED_BYTES || at.elapsed() > RETENTION)
        {
            size = size.saturating_sub(bytes.len());
            self.shipped_pieces.pop_front();
        }
    }

    pub(super) async fn ship_piece(&mut self, bytes: &[u8]) -> Result<(), ShipError> {
        for _ in 0..MAX_RESYNCS {
            // Set when the server reports a sequence number that is too low.
            let retained = if std::mem::take(&mut self.needs_replay) {
                // A server that has lost frames may have lost the index sets, too.
                self.indexed.clear();
                std::mem::take(&mut self.shipped_pieces)
            } else {
                Default::default()
            };
            let mut batches = BatchesByAccount::default();
            let segments = retained.iter().map(|(_, bytes)| &bytes[..]).chain([bytes]);
            let read = segments
                .filter_map(JournalFrames::new)
                .try_for_each(|frames| group_by_account(frames, &mut batches).map_err(ShipError::Record));
            let shipped = match read {
                Ok(()) => self.ship_batches(&batches).await,
                Err(error) => Err(error),
            };
            drop(batches);
            if !retained.is_empty() {
                self.shipped_pieces = retained;
                // If the resync failed, try it again with the next flush.
                self.needs_replay |= shipped.is_err();
            }
            shipped?;
            if !self.needs_replay {
                return Ok(());
            }
        }
        Err(ShipError::Gaps)
    }

    async fn ship_batches(&mut self, batches: &BatchesByAccount<'_>) -> Result<(), ShipError> {
        let Some(connection) = self.connection.clone() else { return Err(ConnectionError::Timeout.into()) };
        let gateway = self.shared.journal.id();
        let records = millis(self.config.records);
        loop {
            let number = self.next_txn();
            let (mut lists, mut commands, mut txns) = (Vec::new(), Vec::new(), Vec::new());
            let mut unindexed = Vec::new();
            for (account, frames) in batches {
                let Some(account_lease) = self.lease(account) else { continue };
                let Some(batch) =
                    UsageBatch::after(account_lease.server_seq, account_lease.deducted_seq, account, frames)
                else {
                    continue;
                };
                let (last, undeducted) = (batch.last, batch.undeducted);
                // The charge is paid from the lease, so the gateway retains that much less.
                let lease = account_lease.lease.saturating_sub(undeducted).max(0);
                let pairs = batch.days.keys().map(|day| (*day, (*account).to_owned()));
                for pair in pairs.filter(|pair| !self.indexed.contains(pair)) {
                    lists.extend(index_commands(pair.0, account));
                    unindexed.push(pair);
                }
                let txn = LeaseTxn {
                    account,
                    gateway,
                    number,
                    lease,
                    usage: Some(batch),
                    reservations: Vec::new(),
                    lease_ahead: 0,
                };
                commands.push(txn.command(records)?);
                txns.push((*account, last, undeducted));
            }
            // After a gap, stop: frames must be shipped in order, so the retained pieces come first.
            if txns.is_empty() || self.needs_replay {
                return Ok(());
            }
            let sent_at = Instant::now();
            // Index sets first: usage of an account that no index lists would be missing from reports. A pair counts as
            // listed only after the server has confirmed it.
            connection.run_all(lists).await?;
            // Only a cache: a pair that it forgets is added again, which has no effect at the server.
            if self.indexed.len().saturating_add(unindexed.len()) > MAX_INDEXED {
                self.indexed.clear();
            }
            self.indexed.extend(unindexed);
            let answers = connection.run_all(commands).await?;
            for ((account, last, undeducted), answer) in txns.into_iter().zip(&answers) {
                let Some(account_lease) = self.leases.get_mut(account) else { continue };
                match parse_result(answer) {
                    Some(LeaseTxnResult::Done(done)) => {
                        account_lease.server_seq = last;
                        account_lease.deduct(last, undeducted);
                        account_lease.lease = done.lease;
                        account_lease.renewed_at = Some(sent_at);
                        if let Some(balance) = &account_lease.balance {
                            done.report_to(balance);
                        }
                    }
                    Some(LeaseTxnResult::Gap(server_seq)) if server_seq > account_lease.server_seq => {
                        // The batch arrived before, and its response was lost. Deduct its charge from the lease now.
                        let frames = batches.get(account).map_or(&[][..], Vec::as_slice);
                        let deducted_seq = account_lease.deducted_seq;
                        let lost =
                            frames.iter().filter(|frame| frame.0 > deducted_seq && frame.0 <= server_seq);
                        let cost = lost.fold(0i64, |sum, (_, record, _)| sum.saturating_add(record.cost));
                        account_lease.server_seq = server_seq;
                        account_lease.deduct(server_seq, if account.is_empty() { 0 } else { cost });
                    }
                    Some(LeaseTxnResult::Gap(server_seq)) => {
                        // The server has lost frames: ship the retained pieces again.
                        account_lease.server_seq = server_seq;
                        self.needs_replay = true;
                    }
                    None => return Err(ShipError::Gaps),
                }
            }
        }
    }
}

/// Returns the commands that add an account to the index sets of a day.
fn index_commands(day: i64, account: &str) -> [Cmd; 2] {
    let add = |list: String, member: &str| {
        let mut add = redis::cmd("SADD");
        add.arg(list).arg(member);
        add
    };
    [add(keys::days(), &day.to_string()), add(keys::active(day), account)]
}

/// Ships the journals of ended processes. This also releases their leases at once.
pub(super) async fn ship_orphaned(
    connection: &Connection,
    config: &ClusterLedgerConfig,
) -> Result<(), ShipError> {
    for orphan in wal::orphaned(&config.journal)? {
        let mut orphan = orphan?;
        let id = orphan.id;
        // Sequence number at the server, by account.
        let mut server_seqs: HashMap<String, u64, RandomState> = HashMap::default();
        for segment in &mut orphan.segments {
            while let Some(piece) = segment.next()? {
                let mut batches = BatchesByAccount::default();
                if let Some(frames) = JournalFrames::new(piece) {
                    group_by_account(frames, &mut batches).map_err(ShipError::Record)?;
                }
                for (account, frames) in &batches {
                    let from = server_seqs.get(*account).copied().unwrap_or(0);
                    let to = ship_orphaned_account(connection, config, id, account, frames, from).await?;
                    server_seqs.insert((*account).to_owned(), to);
                }
            }
        }
        // Only now is every frame at the server. After a failure before, the next search ships all of them again.
        orphan.remove()?;
    }
    Ok(())
}

async fn ship_orphaned_account(
    connection: &Connection,
    config: &ClusterLedgerConfig,
    gateway: u64,
    account: &str,
    frames: &[(u64, crate::ledger::UsageRecord<'_>, &[u8])],
    from: u64,
) -> Result<u64, ShipError> {
    let (mut server_seq, mut gaps) = (from, 0usize);
    // `u64::MAX`: no charge is deducted from a lease, because the transaction releases the whole lease.
    while let Some(batch) = UsageBatch::after(server_seq, u64::MAX, account, frames) {
        let last = batch.last;
        connection.run_all(batch.days.keys().flat_map(|day| index_commands(*day, account)).collect()).await?;
        let txn = LeaseTxn {
            account,
            gateway,
            number: FINAL_TXN,
            lease: 0,
            usage: Some(batch),
            reservations: Vec::new(),
            lease_ahead: 0,
        };
        match parse_result(&connection.run_one(txn.command(millis(config.records))?).await?) {
            Some(LeaseTxnResult::Done(_)) => server_seq = last,
            // The lost frames are in an earlier piece: fail, and ship the whole journal again the next time.
            Some(LeaseTxnResult::Gap(reported)) if gaps < MAX_RESYNCS && reported >= from => {
                (server_seq, gaps) = (reported, gaps.saturating_add(1))
            }
            _ => return Err(ShipError::Gaps),
        }
    }
    Ok(server_seq)
}
