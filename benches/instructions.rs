//! One case, a given number of times: what benches/instructions.sh runs to count instructions.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark"
)]

#[allow(dead_code, reason = "the timed benchmark uses all of it")]
mod workload;

use std::hint::black_box;
use std::process::ExitCode;

use bytes::Bytes;
use model_gateway::json::EscapedString;
use model_gateway::translate::Verbatim;
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::wire::Api;
use model_gateway::wire::request::BodyReader;

const CASES: [&str; 13] = [
    "chat",
    "messages",
    "responses",
    "generate",
    "array",
    "chat-reads",
    "messages-reads",
    "chat-renamed",
    "answer",
    "request-1k",
    "request-100k",
    "request-1m",
    "request-1m-renamed",
];
/// Frames that pass before counting begins.
const WARM: usize = 100;
const FRAMES: usize = 1_000;

/// What is counted: valgrind looks for this name.
#[inline(never)]
fn measured(mut work: impl FnMut()) {
    work();
    black_box(());
}

fn stream(case: &str) -> usize {
    let (name, way) = case.split_once('-').unwrap_or((case, ""));
    let all = workload::streams(WARM + FRAMES);
    let stream = all.iter().find(|stream| stream.name == name).unwrap();
    let model = (way == "renamed").then(|| EscapedString::from("the-model"));
    let changes = Changes { model, ..Changes::default() };
    let mut exchange = Verbatim::new(stream.api, stream.arrival, changes, 1 << 20);
    let (warm, rest) = stream.frames.split_at(WARM);
    for piece in warm {
        black_box(exchange.feed(piece.clone()).unwrap());
    }
    let whole = Bytes::from(rest.concat());
    let _shared = whole.clone();
    let mut pieces = rest.to_vec();
    if way == "reads" {
        pieces = (0..whole.len())
            .step_by(16_384)
            .map(|at| whole.slice(at..whole.len().min(at + 16_384)))
            .collect();
    }
    measured(|| {
        for piece in &pieces {
            black_box(exchange.feed(piece.clone()).unwrap());
        }
    });
    rest.len()
}

fn answer() -> usize {
    let body = workload::answer();
    let _shared = body.clone();
    measured(|| {
        for _ in 0..FRAMES {
            let mut exchange = Verbatim::new(Api::Chat, Arrival::Whole, Changes::default(), 1 << 20);
            black_box(exchange.whole(body.clone()).unwrap());
        }
    });
    FRAMES
}

fn request(size: usize, edit: bool) -> usize {
    let body = workload::request(size);
    let turns = (10_000_000 / size).clamp(4, FRAMES);
    let pieces: Vec<Bytes> =
        (0..body.len()).step_by(16_384).map(|at| body.slice(at..body.len().min(at + 16_384))).collect();
    measured(|| {
        for _ in 0..turns {
            let mut reader = BodyReader::new(Api::Chat, false);
            for piece in &pieces {
                reader.push(piece.clone()).unwrap();
            }
            let body = reader.finish().unwrap();
            if edit {
                let edits: Vec<_> = body.set_model("another-model").into_iter().collect();
                black_box(body.text.edited(&edits).into_pieces());
            } else {
                black_box(&body);
            }
        }
    });
    turns
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    // How often the case came: what the instructions are divided by.
    let count = match case.as_str() {
        "answer" => answer(),
        "request-1k" => request(1_000, true),
        "request-100k" => request(100_000, true),
        "request-1m" => request(1_000_000, false),
        "request-1m-renamed" => request(1_000_000, true),
        case if CASES.contains(&case) => stream(case),
        _ => {
            println!("{}", CASES.join("\n"));
            return ExitCode::SUCCESS;
        }
    };
    eprintln!("{count}");
    ExitCode::SUCCESS
}
