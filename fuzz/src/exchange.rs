//! Targets for verbatim responses.

use bytes::Bytes;
use codec::translate::Verbatim;
use codec::translate::verbatim::{Arrival, Changes, StreamError};
use codec::wire::Api;
use codec::wire::watch::StreamEnd;
use json::EscapedString;
use serde_json::Value;

use crate::{choose, pieces};

/// Frame limit, in bytes. It is never reached, because whether a frame is too large depends on the split.
const LIMIT: usize = 1 << 24;

#[derive(Debug, PartialEq)]
struct Passed {
    out: Vec<u8>,
    result: Result<(), StreamError>,
    notes: String,
    end: StreamEnd,
}

fn pass(api: Api, arrival: Arrival, changes: &Changes, pieces: &[&[u8]]) -> Passed {
    let mut verbatim = Verbatim::new(api, arrival, changes.clone(), LIMIT);
    let mut out = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        match verbatim.feed(Bytes::copy_from_slice(piece)) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    if result.is_ok() {
        result = verbatim.finish().map(|tail| out.extend_from_slice(&tail));
    }
    verbatim.parse_deferred();
    let meter = verbatim.meter();
    let notes = format!(
        "{:?} {} {} {} {} {}",
        meter.usage(),
        meter.id(),
        meter.finish(),
        meter.frames(),
        meter.content_frames(),
        meter.all_finished()
    );
    Passed { out, result, notes, end: meter.end() }
}

/// Whether the only change of a document is the added usage of a provider that reports none. A document that is not
/// JSON may be given usage too.
fn is_beside_usage(out: &[u8], came: &[u8]) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<serde_json::Map<String, Value>>(text).ok();
    let Some(mut came) = read(came) else { return true };
    let Some(mut out) = read(out) else { return false };
    let told = out.shift_remove("usage").is_some_and(|usage| usage.is_object());
    came.shift_remove("usage");
    told && out == came
}

/// Verbatim stream or document: every split gives the same output, and without a requested change nothing changes.
pub fn verbatim(mut data: &[u8]) {
    const KINDS: [(Api, Arrival); 7] = [
        (Api::Chat, Arrival::Events),
        (Api::Messages, Arrival::Events),
        (Api::Responses, Arrival::Events),
        (Api::Generate, Arrival::Events),
        (Api::Generate, Arrival::Array),
        (Api::Chat, Arrival::Whole),
        (Api::Converse, Arrival::EventStream),
    ];
    let (api, arrival) = KINDS[choose(&mut data, KINDS.len())];
    let changed = choose(&mut data, 4);
    let seed = choose(&mut data, 256);
    let changes = Changes {
        model: (changed & 1 != 0).then(|| EscapedString::from("our \"model\"")),
        drop_usage: changed & 2 != 0,
        ..Changes::default()
    };
    if arrival == Arrival::Whole {
        let mut verbatim = Verbatim::new(api, arrival, changes.clone(), LIMIT);
        if let Ok(out) = verbatim.whole(Bytes::copy_from_slice(data)) {
            assert!(changes.model.is_some() || out == data || is_beside_usage(&out, data));
        }
        return;
    }
    let whole = pass(api, arrival, &changes, &[data]);
    let split = pass(api, arrival, &changes, &pieces(data, seed));
    assert_eq!((&split.result, split.end), (&whole.result, whole.end));
    if whole.result.is_ok() {
        let text = |passed: &Passed| String::from_utf8_lossy(&passed.out).into_owned();
        assert!(split.out == whole.out, "{:?}\nagainst {:?}", text(&split), text(&whole));
        assert_eq!(split.notes, whole.notes);
    }
    if changed == 0 {
        let came = [&whole.out[..], whole.out.strip_suffix(b"\n\n").unwrap_or(&whole.out)];
        assert!(came.iter().any(|out| data.starts_with(out)), "{:?}", String::from_utf8_lossy(&whole.out));
    }
    if changed == 0 && whole.end != StreamEnd::Open && whole.result.is_ok() {
        // A complete stream passes again with the same outcome.
        let again = pass(api, arrival, &changes, &[&whole.out]);
        assert_eq!((again.result, again.end, again.notes), (Ok(()), whole.end, whole.notes));
    }
}
