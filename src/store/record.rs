//! The record of a request: what it was, what it used and what it cost, and how that is written in bytes.

use crate::account::amount::LARGEST;
use crate::canonical::Usage;

/// What is kept of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord<'a> {
    /// When it began, in Unix milliseconds.
    pub time: i64,
    /// Its id.
    pub request: &'a str,
    /// The account that it is charged to; empty for a key without one.
    pub account: &'a str,
    /// The key's name.
    pub key: &'a str,
    /// The model, as the client named it.
    pub model: &'a str,
    /// Who answered: the provider's name.
    pub provider: &'a str,
    /// The model's name there.
    pub target: &'a str,
    /// What was asked for.
    pub endpoint: &'a str,
    /// The client's format.
    pub client_format: &'a str,
    /// The format that the provider was spoken to in.
    pub provider_format: &'a str,
    /// The kind of error, if the request failed; empty otherwise.
    pub error: &'a str,
    /// The status that the client was answered with; 0 if it left before that.
    pub status: u16,
    /// Exchanges with providers that were tried.
    pub attempts: u16,
    /// Milliseconds from the beginning to the first byte of the answer, if there was one.
    pub first_byte: Option<u32>,
    /// Milliseconds from the beginning to the end.
    pub total: u32,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// Whether usage was counted by the gateway because the provider reported none.
    pub counted: bool,
    /// What was used.
    pub usage: Usage,
    /// What is charged, in nano-units.
    pub cost: i64,
}

/// A kind of usage that is kept.
pub struct UsageKind {
    /// Its name, in reports and as a column.
    pub name: &'static str,
    /// Reads it.
    pub get: fn(&Usage) -> Option<u64>,
    slot: fn(&mut Usage) -> &mut Option<u64>,
}

macro_rules! kinds {
    ($($name:ident),*) => {
        [$(UsageKind { name: stringify!($name), get: |usage| usage.$name, slot: |usage| &mut usage.$name }),*]
    };
}

/// All kinds of usage that are kept. The place in this list is part of what is written: new ones come last.
pub const KINDS: [UsageKind; 10] = kinds!(
    input,
    cached,
    cache_write,
    cache_write_1h,
    output,
    reasoning,
    audio_input,
    audio_output,
    image_output,
    searches
);

/// The version of what is written below.
const VERSION: u8 = 1;
/// Longest text of a record: more of it is cut off.
const LONGEST: usize = 512;
/// Most that one request may cost: as much as a balance may come to.
pub const LARGEST_COST: i64 = LARGEST;
/// Most of one kind that one request may use.
const LARGEST_USAGE: u64 = 1_000_000_000_000;
const STREAM: u8 = 1;
const COUNTED: u8 = 2;
const FIRST_BYTE: u8 = 4;

impl<'a> UsageRecord<'a> {
    /// What is charged: the cost, within what one request may cost. Beyond that a provider's figures are not to be
    /// believed, and sums would come to an end.
    pub fn charge(&self) -> i64 {
        self.cost.clamp(0, LARGEST_COST)
    }

    /// Whether the request failed.
    pub fn failed(&self) -> bool {
        !self.error.is_empty() || self.status >= 400
    }

    /// Writes the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = |on: bool, bit| if on { bit } else { 0 };
        let first = flag(self.first_byte.is_some(), FIRST_BYTE);
        out.push(VERSION);
        out.push(flag(self.stream, STREAM) | flag(self.counted, COUNTED) | first);
        for number in [zigzag(self.time), zigzag(self.charge())] {
            put_number(out, number);
        }
        for number in [u32::from(self.status), u32::from(self.attempts), self.total] {
            put_number(out, number.into());
        }
        if let Some(first) = self.first_byte {
            put_number(out, first.into());
        }
        for text in self.texts() {
            let text = cut(text);
            put_number(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        let present = KINDS.iter().enumerate().filter(|(_, kind)| (kind.get)(&self.usage).is_some());
        let mask = present.fold(0, |mask, (at, _)| mask | 1u64 << at);
        put_number(out, mask);
        for value in KINDS.iter().filter_map(|kind| (kind.get)(&self.usage)) {
            put_number(out, value.min(LARGEST_USAGE));
        }
    }

    fn texts(&self) -> [&'a str; 10] {
        [
            self.request,
            self.account,
            self.key,
            self.model,
            self.provider,
            self.target,
            self.endpoint,
            self.client_format,
            self.provider_format,
            self.error,
        ]
    }

    /// Reads a record that stands alone in these bytes. Nothing, if they are no record.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        let (&version, after) = rest.split_first()?;
        let (&flags, after) = after.split_first()?;
        rest = after;
        if version != VERSION || flags & !(STREAM | COUNTED | FIRST_BYTE) != 0 {
            return None;
        }
        let rest = &mut rest;
        let mut record = UsageRecord {
            stream: flags & STREAM != 0,
            counted: flags & COUNTED != 0,
            time: unzigzag(take_number(rest)?),
            cost: unzigzag(take_number(rest)?),
            status: take_number(rest)?.try_into().ok()?,
            attempts: take_number(rest)?.try_into().ok()?,
            total: take_number(rest)?.try_into().ok()?,
            ..UsageRecord::default()
        };
        if flags & FIRST_BYTE != 0 {
            record.first_byte = Some(take_number(rest)?.try_into().ok()?);
        }
        for slot in [
            &mut record.request,
            &mut record.account,
            &mut record.key,
            &mut record.model,
            &mut record.provider,
            &mut record.target,
            &mut record.endpoint,
            &mut record.client_format,
            &mut record.provider_format,
            &mut record.error,
        ] {
            *slot = take_text(rest)?;
        }
        let mask = take_number(rest)?;
        if mask >> KINDS.len() != 0 {
            return None;
        }
        for (_, kind) in KINDS.iter().enumerate().filter(|(at, _)| mask >> at & 1 != 0) {
            *(kind.slot)(&mut record.usage) = Some(take_number(rest)?);
        }
        rest.is_empty().then_some(record)
    }
}

/// The beginning of a text, of no more than [`LONGEST`] bytes.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[allow(clippy::cast_sign_loss, reason = "the bits are what is meant")]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[allow(clippy::cast_possible_wrap, reason = "the bits are what is meant")]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Seven bits to a byte, the lowest first; the highest bit says that more follow.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are what is meant")]
fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if at == 9 && bits > 1 {
            return None;
        }
        value |= bits << (at * 7);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage() -> impl Strategy<Value = Usage> {
        prop::collection::vec(prop::option::of(0..=LARGEST_USAGE), KINDS.len()).prop_map(|values| {
            let mut usage = Usage::default();
            for (kind, value) in KINDS.iter().zip(values) {
                *(kind.slot)(&mut usage) = value;
            }
            usage
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            texts in prop::collection::vec(".{0,40}", 10),
            numbers in (any::<i64>(), 0..=LARGEST_COST, any::<u16>(), any::<u16>(), any::<u32>()),
            first_byte in prop::option::of(any::<u32>()),
            flags in any::<[bool; 2]>(),
            usage in usage(),
        ) {
            let (time, cost, status, attempts, total) = numbers;
            let record = UsageRecord {
                time,
                request: &texts[0],
                account: &texts[1],
                key: &texts[2],
                model: &texts[3],
                provider: &texts[4],
                target: &texts[5],
                endpoint: &texts[6],
                client_format: &texts[7],
                provider_format: &texts[8],
                error: &texts[9],
                status,
                attempts,
                first_byte,
                total,
                stream: flags[0],
                counted: flags[1],
                usage,
                cost,
            };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(UsageRecord::decode(&bytes), Some(record));
            for cut in 0..bytes.len() {
                prop_assert_eq!(UsageRecord::decode(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn what_nobody_would_believe_is_cut() {
        let model = "é".repeat(LONGEST);
        let usage = Usage { input: Some(u64::MAX), ..Usage::default() };
        let record = UsageRecord { model: &model, cost: i64::MAX, usage, ..UsageRecord::default() };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let read = UsageRecord::decode(&bytes).unwrap();
        assert_eq!((read.cost, read.usage.input), (LARGEST_COST, Some(LARGEST_USAGE)));
        assert_eq!(read.model, "é".repeat(LONGEST / 2));
        assert_eq!(UsageRecord { cost: -1, ..UsageRecord::default() }.charge(), 0);
    }
}
