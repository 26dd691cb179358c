//! Tests of whole responses: the output equals the input, for every way to split it, and so do the recorded facts.
//!
//! One file per property; [`streams`] has the sample responses. The meaning of single frames is tested in `wire`.

mod agents;
mod bounds;
mod broken_off;
mod caching;
mod caching_prefix;
mod changes;
mod claude_code;
mod compaction;
mod ends;
mod event_stream;
mod first_error;
mod first_usage;
mod keep_alive;
mod linked;
mod lite;
mod no_arguments;
mod odd_arguments;
mod requests;
mod resume;
mod rows;
mod silent_ends;
mod splits;
mod steered;
mod streams;
mod unanswered;

use bytes::Bytes;

use super::{Meter, Verbatim};
use crate::canonical::Usage;
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::wire::Api;
use crate::wire::watch::StreamEnd;

/// What the meter recorded of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notes {
    usage: Usage,
    id: String,
    finish: String,
    frames: u64,
    content_frames: u64,
    finished: bool,
    end: StreamEnd,
}

impl Notes {
    fn of(meter: &Meter) -> Notes {
        Notes {
            usage: *meter.usage(),
            id: meter.id().to_owned(),
            finish: meter.finish().to_owned(),
            frames: meter.frames(),
            content_frames: meter.content_frames(),
            finished: meter.all_finished(),
            end: meter.end(),
        }
    }
}

/// Result of passing a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Passed {
    /// Whole output.
    out: Vec<u8>,
    /// How the stream ended.
    result: Result<(), StreamError>,
    notes: Notes,
}

impl Passed {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

fn pass_changed<'p>(
    api: Api,
    arrival: Arrival,
    changes: Changes,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Passed {
    let mut verbatim = Verbatim::new(api, arrival, changes, 1 << 20);
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
    Passed { out, result, notes: Notes::of(verbatim.meter()) }
}

fn pass<'p>(api: Api, arrival: Arrival, pieces: impl IntoIterator<Item = &'p [u8]>) -> Passed {
    pass_changed(api, arrival, Changes::default(), pieces)
}

/// Server-sent events in one piece.
fn pass_events(api: Api, stream: &str) -> Passed {
    pass(api, Arrival::Events, [stream.as_bytes()])
}

/// Cuts a text into pieces of these sizes, repeated cyclically.
fn pieces<'t>(text: &'t [u8], sizes: &[usize]) -> Vec<&'t [u8]> {
    let mut rest = text;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
