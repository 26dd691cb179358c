//! Usage batches: the frames of a journal summed up for one account as charge, daily sums and records.

use std::collections::{BTreeMap, HashMap};
use std::io;

use foldhash::fast::RandomState;

use crate::ledger::record::KINDS;
use crate::ledger::report::{DAY, UsageSums};
use crate::ledger::wal::JournalFrame;
use crate::ledger::{UsageRecord, record_block};
use crate::store::valkey::keys;

/// Maximum number of frames in one transaction, which bounds the run time of the script.
const MAX_FRAMES: usize = 2048;

/// Frames of one journal, grouped by account: number, record and its encoding.
pub(super) type BatchesByAccount<'a> = HashMap<&'a str, Vec<(u64, UsageRecord<'a>, &'a [u8])>, RandomState>;

/// Groups frames by account.
///
/// # Errors
/// Returns the number of a frame that a later version has written.
pub(super) fn group_by_account<'a>(
    frames: impl Iterator<Item = JournalFrame<'a>>,
    sorted: &mut BatchesByAccount<'a>,
) -> Result<(), u64> {
    for frame in frames {
        let record = UsageRecord::decode(frame.payload).ok_or(frame.number)?;
        sorted.entry(record.account).or_default().push((frame.number, record, frame.payload));
    }
    Ok(())
}

/// Usage batch that is shipped in one script call.
pub(super) struct UsageBatch<'a> {
    /// Sequence number that the server must have for this journal before the batch.
    pub(super) from: u64,
    /// Number of the last frame in this batch.
    pub(super) last: u64,
    /// Charge of all frames, in nano-units; zero for keys without an account.
    pub(super) charge: i64,
    /// Part of the charge whose frames were not deducted from the lease before.
    pub(super) undeducted: i64,
    /// Idempotency key of the charge, whose record is then the only one of the batch.
    pub(super) charge_id: Option<&'a str>,
    /// Sums and records by day (days since 1970-01-01, UTC).
    pub(super) days: BTreeMap<i64, Day<'a>>,
}

/// Sums and records of one day.
#[derive(Default)]
pub(super) struct Day<'a> {
    sums: HashMap<(&'a str, &'a str), UsageSums, RandomState>,
    block: record_block::RecordBlockWriter,
}

impl<'a> UsageBatch<'a> {
    /// Creates an empty batch, which only checks that the server's sequence number is still `server_seq`.
    pub(super) fn empty(server_seq: u64) -> Self {
        UsageBatch {
            from: server_seq,
            last: server_seq,
            charge: 0,
            undeducted: 0,
            charge_id: None,
            days: BTreeMap::new(),
        }
    }

    /// Creates the batch of the frames after `from`, at most [`MAX_FRAMES`]. Returns `None` if there are none.
    pub(super) fn after(
        from: u64,
        deducted_seq: u64,
        account: &str,
        frames: &[(u64, UsageRecord<'a>, &'a [u8])],
    ) -> Option<Self> {
        let mut batch = UsageBatch::empty(from);
        // A piece may be shipped again: frames that the server has already are skipped.
        for (number, record, payload) in frames.iter().filter(|frame| frame.0 > from).take(MAX_FRAMES) {
            // The server charges a batch as a whole or not at all, so a record that it may reject is alone in its
            // batch.
            if batch.charge_id.is_some() || (!record.charge_id.is_empty() && batch.last != from) {
                break;
            }
            batch.charge_id = Some(record.charge_id).filter(|id| !id.is_empty());
            batch.last = *number;
            if !account.is_empty() {
                batch.charge = batch.charge.saturating_add(record.cost);
                if *number > deducted_seq {
                    batch.undeducted = batch.undeducted.saturating_add(record.cost);
                }
            }
            let day = batch.days.entry(record.time.div_euclid(DAY)).or_default();
            day.block.add(record, payload);
            day.sums.entry((record.key, record.model)).or_default().add(&UsageSums::of(record));
        }
        (batch.last != from).then_some(batch)
    }
}

impl Day<'_> {
    /// Returns the fields of the daily sums with their increments.
    pub(super) fn fields(&self) -> Vec<(String, i64)> {
        let mut fields = Vec::with_capacity(self.sums.len().saturating_mul(6));
        for ((key, model), sums) in &self.sums {
            for (code, amount) in CODES.iter().zip(amounts(sums)) {
                if amount != 0 {
                    // The length of the key separates key and model, which may contain any character.
                    fields.push((format!("{code}{}:{key}{model}", key.len()), amount));
                }
            }
        }
        fields
    }

    /// Returns the fields of the spend counters with their increments: one for the account and one for each key.
    pub(super) fn spent(&self) -> Vec<(String, i64)> {
        let mut spent: BTreeMap<Option<&str>, i64> = BTreeMap::new();
        for ((key, _), sums) in self.sums.iter().filter(|(_, sums)| sums.cost != 0) {
            for of in [None, Some(*key)] {
                let sum = spent.entry(of).or_default();
                *sum = sum.saturating_add(sums.cost);
            }
        }
        spent.into_iter().map(|(key, cost)| (keys::spent(key), cost)).collect()
    }

    /// Returns the record block: one byte for its encoding, then its data.
    pub(super) fn block(self) -> io::Result<Vec<u8>> {
        let (packed, mut data) = self.block.finish()?;
        data.insert(0, u8::try_from(packed).unwrap_or(u8::MAX));
        Ok(data)
    }
}

/// Decodes a record block.
pub(super) fn unpack(block: &[u8]) -> io::Result<std::borrow::Cow<'_, [u8]>> {
    let (packed, data) =
        block.split_first().ok_or_else(|| io::Error::other("a block of records is empty"))?;
    record_block::unpack(i64::from(*packed), data)
}

/// First character of a field name, in the order of [`amounts`].
const CODES: [char; 15] = ['r', 'f', 'c', 's', 'w', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];

const _: () = assert!(CODES.len() == 5 + KINDS.len());

fn amounts(sums: &UsageSums) -> impl Iterator<Item = i64> {
    let UsageSums { requests, failed, cost, usage, cache_saved, cache_surcharge } = *sums;
    [requests, failed, cost, cache_saved, cache_surcharge].into_iter().chain(usage)
}

/// Parses a field of the daily sums into key, model and sums. Returns `None` if the field is of another kind.
pub(super) fn field(name: &str, amount: i64) -> Option<(&str, &str, UsageSums)> {
    let mut rest = name.chars();
    let code = rest.next()?;
    let (length, rest) = rest.as_str().split_once(':')?;
    let (key, model) = rest.split_at_checked(length.parse().ok()?)?;
    let mut sums = UsageSums::default();
    match CODES.iter().position(|known| *known == code)? {
        0 => sums.requests = amount,
        1 => sums.failed = amount,
        2 => sums.cost = amount,
        3 => sums.cache_saved = amount,
        4 => sums.cache_surcharge = amount,
        kind => *sums.usage.get_mut(kind.checked_sub(5)?)? = amount,
    }
    Some((key, model, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_field_name_encodes_key_and_model() {
        for (key, model) in [("alice", "gpt-4o"), ("", ""), ("a:1", ":"), ("schlüssel", "modèle")] {
            let cached = UsageRecord { cache_saved: 5, cache_surcharge: 3, ..UsageRecord::default() };
            let record = UsageRecord { key, model, cost: 7, status: 500, ..cached };
            let mut payload = Vec::new();
            record.encode(&mut payload);
            let batch = UsageBatch::after(0, 0, "a", &[(1, record, &payload)]).unwrap();
            let mut sums = UsageSums::default();
            for (name, amount) in batch.days[&0].fields() {
                let (found, at, part) = field(&name, amount).unwrap();
                assert_eq!((found, at), (key, model));
                sums.add(&part);
            }
            let expected = UsageSums { requests: 1, failed: 1, cost: 7, ..UsageSums::default() };
            assert_eq!(sums, UsageSums { cache_saved: 5, cache_surcharge: 3, ..expected });
        }
        let wrong = ["", "r", "r1", "r:", "r9:x", "x0:", "r-1:a", "r1:é"];
        assert!(wrong.iter().all(|name| field(name, 1).is_none()));
    }
}
