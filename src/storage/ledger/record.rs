//! Usage record of a request (what it was, what it used, what it cost), and its binary encoding.

use codec::canonical::{ServiceTier, Usage};
use routing::account::amount::LARGEST;

/// Usage record of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord<'a> {
    /// Start of the request, in Unix milliseconds.
    pub time: i64,
    /// Id of the request.
    pub request: &'a str,
    /// Account that is charged; empty for a key without one.
    pub account: &'a str,
    /// Name of the key.
    pub key: &'a str,
    /// Model, as the client named it.
    pub model: &'a str,
    /// Name of the provider that answered.
    pub provider: &'a str,
    /// Name of the model at the provider.
    pub target: &'a str,
    /// Endpoint that the client requested.
    pub endpoint: &'a str,
    /// Format of the client's request.
    pub client_format: &'a str,
    /// Format of the request to the provider.
    pub provider_format: &'a str,
    /// Error label, if the request failed; empty otherwise.
    pub error: &'a str,
    /// Status sent to the client; 0 if the client left before that.
    pub status: u16,
    /// Number of upstream attempts.
    pub attempts: u16,
    /// Milliseconds from the start to the first byte of the response. `None` if there was none.
    pub first_byte: Option<u32>,
    /// Milliseconds from the start to the end.
    pub total: u32,
    /// True if the response was a stream.
    pub stream: bool,
    /// True if the gateway counted usage because the provider did not report all of it.
    pub counted: bool,
    /// Service tier that is charged.
    pub tier: ServiceTier,
    /// Idempotency key of the charge: a later record of the same account with the same key is ignored, whichever
    /// gateway wrote it. Empty if there is none. Must not be chosen by a client, who could repeat it.
    pub charge_id: &'a str,
    /// Usage that is charged.
    pub usage: Usage,
    /// Cost in nano-units, before [`UsageRecord::charge`] bounds it.
    pub cost: i64,
    /// Savings of prompt-cache reads against plain input, in nano-units. Part of no charge.
    pub cache_saved: u64,
    /// Surcharges of prompt-cache writes against plain input, in nano-units. Part of `cost` already.
    pub cache_surcharge: u64,
}

/// Kind of usage that a record stores.
pub struct UsageKind {
    /// Name, in reports and as a column.
    pub name: &'static str,
    /// Reads the figure of this kind.
    pub get: fn(&Usage) -> Option<u64>,
    slot: fn(&mut Usage) -> &mut Option<u64>,
}

macro_rules! kinds {
    ($($name:ident),*) => {
        [$(UsageKind { name: stringify!($name), get: |usage| usage.$name, slot: |usage| &mut usage.$name }),*]
    };
}

/// All kinds of usage that a record stores. The index is part of the encoding: append new kinds at the end.
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

/// Version of the encoding, the first byte of a record.
const VERSION: u8 = 1;
/// Longest text of a record, in bytes. Longer texts are truncated.
const LONGEST: usize = 512;
/// Largest cost of one request, in nano-units: the largest possible balance.
pub const LARGEST_COST: i64 = LARGEST;
/// Largest figure of one kind of usage in one request.
const LARGEST_USAGE: u64 = 1_000_000_000_000;
/// Time in milliseconds for which the backend knows the idempotency keys of charges: 30 days, much longer than any
/// task runs.
pub(super) const CHARGE_ID_RETENTION: i64 = 30 * 86_400_000;
const STREAM: u8 = 1;
const COUNTED: u8 = 2;
const FIRST_BYTE: u8 = 4;
const ONCE: u8 = 8;
const CACHED: u8 = 16;
const TIER: u8 = 32;

impl<'a> UsageRecord<'a> {
    /// Returns the charge in nano-units: the cost, bounded to 0 ..= [`LARGEST_COST`]. A figure beyond that is
    /// implausible, and sums of such figures would overflow.
    pub fn charge(&self) -> i64 {
        self.cost.clamp(0, LARGEST_COST)
    }

    /// Returns true if the request failed.
    pub fn failed(&self) -> bool {
        !self.error.is_empty() || self.status >= 400
    }

    /// Appends the binary encoding of the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = |on: bool, bit| if on { bit } else { 0 };
        let first = flag(self.first_byte.is_some(), FIRST_BYTE);
        let once = flag(!self.charge_id.is_empty(), ONCE);
        let cached = flag(self.cache_saved | self.cache_surcharge != 0, CACHED);
        out.push(VERSION);
        let tier = flag(self.tier != ServiceTier::Standard, TIER);
        out.push(flag(self.stream, STREAM) | flag(self.counted, COUNTED) | once | first | cached | tier);
        for number in [zigzag(self.time), zigzag(self.charge())] {
            put_number(out, number);
        }
        for number in [u32::from(self.status), u32::from(self.attempts), self.total] {
            put_number(out, number.into());
        }
        if let Some(first) = self.first_byte {
            put_number(out, first.into());
        }
        if !self.charge_id.is_empty() {
            put_text(out, self.charge_id);
        }
        if cached != 0 {
            put_number(out, bounded_effect(self.cache_saved));
            put_number(out, bounded_effect(self.cache_surcharge));
        }
        if tier != 0 {
            put_number(out, tier_code(self.tier));
        }
        for text in self.texts() {
            put_text(out, text);
        }
        let present = KINDS.iter().enumerate().filter(|(_, kind)| (kind.get)(&self.usage).is_some());
        let mask = present.fold(0, |mask, (at, _)| mask | 1u64 << at);
        put_number(out, mask);
        for value in KINDS.iter().filter_map(|kind| (kind.get)(&self.usage)) {
            put_number(out, value.min(LARGEST_USAGE));
        }
    }

    /// Returns the texts of the record.
    pub(super) fn texts(&self) -> [&'a str; 10] {
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

    /// Decodes a record that fills `bytes` completely. Returns `None` if the bytes are not a record of this version.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        let (&version, after) = rest.split_first()?;
        let (&flags, after) = after.split_first()?;
        rest = after;
        if version != VERSION || flags & !(STREAM | COUNTED | FIRST_BYTE | ONCE | CACHED | TIER) != 0 {
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
        if flags & ONCE != 0 {
            record.charge_id = take_text(rest)?;
        }
        if flags & CACHED != 0 {
            record.cache_saved = take_number(rest)?;
            record.cache_surcharge = take_number(rest)?;
        }
        if flags & TIER != 0 {
            let code = take_number(rest)?;
            record.tier = ServiceTier::ALL.into_iter().find(|tier| tier_code(*tier) == code)?;
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

/// Returns the number of a tier in the encoding: its place in [`ServiceTier::ALL`].
fn tier_code(tier: ServiceTier) -> u64 {
    tier as u64
}

/// Returns an effect of the prompt cache, bounded as a charge is.
fn bounded_effect(nanos: u64) -> u64 {
    nanos.min(LARGEST_COST.unsigned_abs())
}

/// Returns the longest prefix of at most [`LONGEST`] bytes that ends at a character boundary.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[allow(clippy::cast_sign_loss, reason = "only the bits matter")]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[allow(clippy::cast_possible_wrap, reason = "only the bits matter")]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ ((value & 1) as i64).wrapping_neg()
}

/// Writes a LEB128 varint: seven bits per byte, lowest first; the highest bit is set if more bytes follow.
#[allow(clippy::cast_possible_truncation, reason = "only the low bits matter")]
fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = cut(text);
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..10u32 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        // Nine bytes hold 63 bits: the tenth byte can contribute one bit only.
        if at == 9 && bits > 1 {
            return None;
        }
        value |= bits.checked_shl(at.saturating_mul(7))?;
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
        fn record_round_trips_and_truncation_is_refused(
            texts in prop::collection::vec(".{0,40}", 11),
            numbers in (any::<i64>(), 0..=LARGEST_COST, any::<u16>(), any::<u16>(), any::<u32>()),
            first_byte in prop::option::of(any::<u32>()),
            flags in any::<[bool; 2]>(),
            tier in 0..ServiceTier::ALL.len(),
            usage in usage(),
            effect in (0..=LARGEST_COST.unsigned_abs(), 0..=LARGEST_COST.unsigned_abs()),
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
                tier: ServiceTier::ALL[tier],
                charge_id: &texts[10],
                usage,
                cost,
                cache_saved: effect.0,
                cache_surcharge: effect.1,
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
    fn record_implausible_values_are_capped() {
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
