//! Throughput of verbatim streams and of request bodies, compared with copying the same bytes and with parsing them
//! into JSON trees.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

mod measure;
mod workload;

use std::hint::black_box;

use bytes::Bytes;
use codec::translate::Verbatim;
use codec::translate::verbatim::{Arrival, Changes};
use codec::wire::Api;
use codec::wire::request::BodyReader;
use framing::sse::SseEvent;
use framing::{FrameBuffer, Splitter, sse::SseSplitter};
use measure::{Subject, copy, criterion, print_summary};
use serde_json::Value;
use workload::Stream;

const FRAMES: usize = 500;
const MAX_FRAME: usize = 1 << 20;
/// Size of a read from a busy connection, in bytes.
const READ: usize = 16_384;

fn pass(stream: &Stream, pieces: &[Bytes]) -> u64 {
    let mut exchange = Verbatim::new(stream.api, stream.arrival, Changes::default(), MAX_FRAME);
    for piece in pieces {
        black_box(exchange.feed(piece.clone()).unwrap());
    }
    black_box(exchange.finish().unwrap());
    exchange.meter().frames()
}

/// Baseline with JSON trees: every frame is parsed, examined and serialized.
fn pass_as_trees(stream: &Stream, out: &mut Vec<u8>) {
    let mut scratch = Vec::new();
    let mut hold = FrameBuffer::new(Splitter::Sse(SseSplitter::default()), MAX_FRAME);
    let mut write = |data: &[u8], frame: &[u8]| {
        out.clear();
        match serde_json::from_slice::<Value>(data) {
            Ok(value) => {
                black_box((&value["usage"], &value["usageMetadata"], &value["choices"][0]["finish_reason"]));
                out.extend_from_slice(b"data: ");
                serde_json::to_writer(&mut *out, &value).unwrap();
                out.extend_from_slice(b"\n\n");
            }
            Err(_) => out.extend_from_slice(frame),
        }
        black_box(out.as_slice());
    };
    for piece in &stream.frames {
        if stream.arrival == Arrival::Array {
            let element = piece.trim_ascii().trim_ascii_start();
            let element = element.strip_prefix(b"[").unwrap_or(element);
            let element = element.strip_suffix(b"]").or(element.strip_suffix(b",")).unwrap_or(element);
            write(element, piece);
            continue;
        }
        hold.feed(piece, |source, range| {
            let frame = source.get(range).unwrap_or_default();
            if let Some(data) = SseEvent::parse(frame, &mut scratch).data {
                write(data, frame);
            }
            Ok::<_, framing::frame_buffer::FrameTooLarge>(())
        })
        .unwrap();
    }
}

fn read(pieces: &[Bytes]) -> usize {
    let mut reader = BodyReader::new(Api::Chat, false);
    for piece in pieces {
        reader.push(piece.clone()).unwrap();
    }
    let body = reader.finish().unwrap();
    let edits: Vec<_> = body.set_model("another-model").into_iter().chain(body.request_usage()).collect();
    body.text.edited(&edits).into_pieces().len()
}

fn read_as_tree(body: &[u8]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(body).unwrap();
    value["model"] = Value::from("another-model");
    value["stream_options"]["include_usage"] = Value::from(true);
    serde_json::to_vec(&value).unwrap()
}

fn main() {
    let mut criterion = criterion(200, 800);
    let mut summary = Vec::new();
    let mut place = Vec::with_capacity(MAX_FRAME);

    for stream in workload::streams(FRAMES) {
        let mut subject =
            Subject::new(&mut criterion, stream.name.to_owned(), stream.len(), stream.frames.len());
        let pieces = stream.pieces(READ);
        subject.case("frames", || pass(&stream, &stream.frames));
        subject.case("reads", || pass(&stream, &pieces));
        subject.case("copy", || copy(&stream.frames, &mut place));
        subject.case("trees", || pass_as_trees(&stream, &mut place));
        summary.extend(subject.lines());
    }
    let answer = workload::answer();
    let mut subject = Subject::new(&mut criterion, "answer 3 kB".to_owned(), answer.len(), 1);
    subject.case("whole", || {
        let mut exchange = Verbatim::new(Api::Chat, Arrival::Whole, Changes::default(), MAX_FRAME);
        exchange.whole(answer.clone()).unwrap()
    });
    subject.case("copy", || copy(std::slice::from_ref(&answer), &mut place));
    subject.case("trees", || read_as_tree(&answer));
    summary.extend(subject.lines());
    for (name, size) in [("request 1 kB", 1_000), ("request 100 kB", 100_000), ("request 1 MB", 1_000_000)] {
        let body = workload::request(size);
        let pieces: Vec<Bytes> =
            (0..body.len()).step_by(READ).map(|at| body.slice(at..body.len().min(at + READ))).collect();
        let mut subject = Subject::new(&mut criterion, name.to_owned(), body.len(), 1);
        subject.case("reads", || read(&pieces));
        subject.case("copy", || copy(std::slice::from_ref(&body), &mut place));
        subject.case("trees", || read_as_tree(&body));
        summary.extend(subject.lines());
    }
    criterion.final_summary();
    print_summary(&summary);
}
