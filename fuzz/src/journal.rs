//! The ledger's journal: read from whatever a crash left.

use model_gateway::store::UsageRecord;
use model_gateway::store::journal::{Frames, opening, write};

use crate::choose;

/// Three promises:
/// * Of arbitrary bytes, only what could have been written is read: written again, it is the same bytes.
/// * Of a segment that was cut, or in which something was written over, the frames before that place are read, and no
///   other.
/// * A record that was read is the same when it is written and read again.
pub fn journal(data: &[u8]) {
    exactly_what_was_written(data);
    let mut rest = data;
    let (place, what) = (choose(&mut rest, 256), choose(&mut rest, 256));
    spoilt(rest, place, what);
    record(data);
}

fn exactly_what_was_written(data: &[u8]) {
    let Some(frames) = Frames::new(data) else { return };
    let mut again = opening(frames.journal()).to_vec();
    for frame in frames {
        write(frames.journal(), frame.number, &mut again, |out| out.extend_from_slice(frame.payload));
        record(frame.payload);
    }
    assert!(data.starts_with(&again));
}

/// Writes a segment of the data, spoils it at a place, and reads it.
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
    let read: Vec<(u64, &[u8])> = match Frames::new(&segment) {
        Some(frames) => frames.map(|frame| (frame.number, frame.payload)).collect(),
        None => Vec::new(),
    };
    // The opening names the journal: without it nothing is read.
    let expected = if at < opening(ID).len() { 0 } else { whole };
    assert_eq!(read.len(), expected, "spoilt at {at} of {}", segment.len());
    assert!((1..).zip(payloads).take(expected).eq(read), "other frames than were written");
}

fn record(bytes: &[u8]) {
    if let Some(record) = UsageRecord::decode(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        // Texts are cut at a length that the gateway never reaches, so that one more round is the first to compare.
        let cut = UsageRecord::decode(&again).expect("what was written is read");
        let mut twice = Vec::new();
        cut.encode(&mut twice);
        assert_eq!(again, twice);
        assert_eq!((cut.cost, cut.time, cut.usage), (record.cost, record.time, record.usage));
    }
}
