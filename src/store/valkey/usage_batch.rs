//! What frames of a journal come to for one account: a charge, sums of days, records.

use std::collections::{BTreeMap, HashMap};
use std::io;

use foldhash::fast::RandomState;

use super::keys;
use crate::store::journal::Frame;
use crate::store::record::{KINDS, UsageRecord};
use crate::store::sqlite_ledger::{DAY, UsageSums, record_block};

/// Frames that are brought in one visit at most, so that no script takes long.
const LARGEST: usize = 2048;

/// Frames of one journal, sorted by account.
pub(super) type BatchesByAccount<'a> = HashMap<&'a str, Vec<(u64, UsageRecord<'a>, &'a [u8])>, RandomState>;

/// Sorts frames by account.
///
/// # Errors
/// A frame is of a later version: its number.
pub(super) fn sort<'a>(
    frames: impl Iterator<Item = Frame<'a>>,
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
    /// The number that the journal stands at before.
    pub(super) from: u64,
    /// The number of the last frame in here.
    pub(super) last: u64,
    /// What they cost together; nothing, where nobody is charged.
    pub(super) charge: i64,
    /// The part of it whose frames were not booked before.
    pub(super) unbooked: i64,
    /// By day.
    pub(super) days: BTreeMap<i64, Day<'a>>,
}

/// Sums and records of a day.
#[derive(Default)]
pub(super) struct Day<'a> {
    sums: HashMap<(&'a str, &'a str), UsageSums, RandomState>,
    block: record_block::RecordBlockWriter,
}

impl<'a> UsageBatch<'a> {
    /// Brings nothing, but asks whether the journal still stands at a number.
    pub(super) fn none(stands: u64) -> Self {
        UsageBatch { from: stands, last: stands, charge: 0, unbooked: 0, days: BTreeMap::new() }
    }

    /// The frames that follow a number, as many as may be brought at once. Nothing, if there is none.
    pub(super) fn after(
        from: u64,
        booked: u64,
        account: &str,
        frames: &[(u64, UsageRecord<'a>, &'a [u8])],
    ) -> Option<Self> {
        let mut parcel = UsageBatch::none(from);
        for (number, record, payload) in frames.iter().filter(|frame| frame.0 > from).take(LARGEST) {
            parcel.last = *number;
            if !account.is_empty() {
                parcel.charge = parcel.charge.saturating_add(record.cost);
                if *number > booked {
                    parcel.unbooked = parcel.unbooked.saturating_add(record.cost);
                }
            }
            let day = parcel.days.entry(record.time.div_euclid(DAY)).or_default();
            day.block.add(record, payload);
            day.sums.entry((record.key, record.model)).or_default().add(&sums_of(record));
        }
        (parcel.last != from).then_some(parcel)
    }
}

impl Day<'_> {
    /// The fields of the day's sums, and by how much each grows.
    pub(super) fn fields(&self) -> Vec<(String, i64)> {
        let mut fields = Vec::with_capacity(self.sums.len() * 6);
        for ((key, model), sums) in &self.sums {
            for (code, amount) in CODES.iter().zip(amounts(sums)) {
                if amount != 0 {
                    fields.push((format!("{code}{}:{key}{model}", key.len()), amount));
                }
            }
        }
        fields
    }

    /// What was charged, to the account and to each of its keys: fields and amounts, for limits on money.
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

    /// The records, packed.
    pub(super) fn block(self) -> io::Result<Vec<u8>> {
        let (packed, mut data) = self.block.finish()?;
        data.insert(0, u8::try_from(packed).unwrap_or(u8::MAX));
        Ok(data)
    }
}

/// Reads a block.
pub(super) fn unpack(block: &[u8]) -> io::Result<std::borrow::Cow<'_, [u8]>> {
    let (packed, data) =
        block.split_first().ok_or_else(|| io::Error::other("a block of records is empty"))?;
    record_block::unpack(i64::from(*packed), data)
}

fn sums_of(record: &UsageRecord<'_>) -> UsageSums {
    let mut usage = [0; KINDS.len()];
    for (sum, kind) in usage.iter_mut().zip(&KINDS) {
        *sum = (kind.get)(&record.usage).and_then(|value| i64::try_from(value).ok()).unwrap_or(0);
    }
    UsageSums { requests: 1, failed: record.failed().into(), cost: record.cost, usage }
}

/// What a field's name begins with, in the order of [`amounts`].
const CODES: [char; 13] = ['r', 'f', 'c', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];

const _: () = assert!(CODES.len() == 3 + KINDS.len());

fn amounts(sums: &UsageSums) -> impl Iterator<Item = i64> {
    [sums.requests, sums.failed, sums.cost].into_iter().chain(sums.usage)
}

/// Takes a field of a day's sums apart: key, model, and what it says of them. Nothing, if it is none that is known.
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
        kind => *sums.usage.get_mut(kind - 3)? = amount,
    }
    Some((key, model, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_says_of_which_key_and_model_it_is() {
        for (key, model) in [("alice", "gpt-4o"), ("", ""), ("a:1", ":"), ("schlüssel", "modèle")] {
            let record = UsageRecord { key, model, cost: 7, status: 500, ..UsageRecord::default() };
            let mut payload = Vec::new();
            record.encode(&mut payload);
            let parcel = UsageBatch::after(0, 0, "a", &[(1, record, &payload)]).unwrap();
            let mut sums = UsageSums::default();
            for (name, amount) in parcel.days[&0].fields() {
                let (found, at, part) = field(&name, amount).unwrap();
                assert_eq!((found, at), (key, model));
                sums.add(&part);
            }
            assert_eq!(sums, UsageSums { requests: 1, failed: 1, cost: 7, ..UsageSums::default() });
        }
        let wrong = ["", "r", "r1", "r:", "r9:x", "x0:", "r-1:a", "r1:é"];
        assert!(wrong.iter().all(|name| field(name, 1).is_none()));
    }
}
