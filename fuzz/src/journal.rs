//! Targets for the ledger's journal after a crash.

use storage::ledger::UsageRecord;
use storage::ledger::wal::{JournalFrames, opening, write};

use crate::choose;

/// Invariants of the journal:
/// * Of arbitrary bytes, only frames that the writer could have written are read: encoded again, they give the same
///   bytes.
/// * Of a truncated or damaged segment, exactly the frames before the damage are read.
/// * A decoded record survives encoding and decoding.
pub fn journal(data: &[u8]) {
    exactly_what_was_written(data);
    let mut rest = data;
    let (place, what) = (choose(&mut rest, 256), choose(&mut rest, 256));
    spoilt(rest, place, what);
    record(data);
}

fn exactly_what_was_written(data: &[u8]) {
    let Some(frames) = JournalFrames::new(data) else { return };
    let mut again = opening(frames.journal()).to_vec();
    for frame in frames {
        write(frames.journal(), frame.number, &mut again, |out| out.extend_from_slice(frame.payload));
        record(frame.payload);
    }
    assert!(data.starts_with(&again));
}

/// Writes a segment of the data, damages it at a place, and reads it.
fn spoilt(data: &[u8], place: usize, what: usize) {
    const ID: u64 = 7;
    let payloads: Vec<&[u8]> = data.chunks(1 + what % 97).take(64).collect();
    let mut segment = opening(ID).to_vec();
    let mut ends = Vec::new();
    for (number, payload) in (1..).zip(&payloads) {
        write(ID, number, &mut segment, |out| out.extend_from_slice(payload));
        ends.push(segment.len());
    }
    let at = place * segment.len() / 256;
    let whole = ends.iter().filter(|end| **end <= at).count();
    if what % 2 == 0 {
        segment.truncate(at);
    } else if let Some(byte) = segment.get_mut(at) {
        *byte ^= u8::try_from(what).unwrap_or(1);
    }
    let read: Vec<(u64, &[u8])> = match JournalFrames::new(&segment) {
        Some(frames) => frames.map(|frame| (frame.number, frame.payload)).collect(),
        None => Vec::new(),
    };
    // The opening identifies the journal: without it nothing is read.
    let expected = if at < opening(ID).len() { 0 } else { whole };
    assert_eq!(read.len(), expected, "spoilt at {at} of {}", segment.len());
    assert!((1..).zip(payloads).take(expected).eq(read), "other frames than were written");
}

/// Largest count of one kind of tokens in a record.
const MOST: u64 = 1_000_000_000_000;

fn counts(record: &UsageRecord) -> impl Iterator<Item = Option<u64>> {
    let usage = &record.usage;
    [
        usage.input,
        usage.cached,
        usage.cache_write,
        usage.cache_write_1h,
        usage.output,
        usage.reasoning,
        usage.audio_input,
        usage.image_input,
        usage.audio_output,
        usage.image_output,
        usage.searches,
    ]
    .into_iter()
}

fn record(bytes: &[u8]) {
    if let Some(record) = UsageRecord::decode(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        // Encoding truncates texts at a length that the gateway never reaches, and bounds cost and usage. Therefore only
        // the second round is compared.
        let cut = UsageRecord::decode(&again).expect("what was written is read");
        let mut twice = Vec::new();
        cut.encode(&mut twice);
        assert_eq!(again, twice);
        assert_eq!((cut.cost, cut.time), (record.charge(), record.time));
        assert!(
            counts(&cut)
                .zip(counts(&record))
                .all(|(bounded, count)| bounded == count.map(|count| count.min(MOST)))
        );
    }
}
