//! Runs one case a fixed number of times, for benches/instructions.sh to count instructions.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

#[allow(dead_code, reason = "the timed benchmarks use all of it")]
mod translation;
#[allow(dead_code, reason = "the timed benchmarks use all of it")]
mod workload;

use std::hint::black_box;
use std::process::ExitCode;

use bytes::Bytes;
use codec::canonical::{BreakpointRule, CacheBreakpoint};
use codec::translate::verbatim::{Arrival, Changes};
use codec::translate::{PromptCaching, Verbatim};
use codec::wire::request::{Body, BodyReader};
use codec::wire::{Api, Format};
use json::{EscapedString, JsonText};
use routing::route::affinity::fingerprint;
use translation::{Fill, Said, Script, requests};

const CASES: [&str; 19] = [
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
    "conversation-1k",
    "conversation-100k",
    "conversation-50k-system",
    "cache-marks-40k",
    "cache-marks-1m",
    "cache-key-1m",
];
/// Frames that pass before the count starts.
const WARM: usize = 100;
const FRAMES: usize = 1_000;

/// Function that valgrind is configured to measure (`--toggle-collect`).
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

/// Copies a body to an address that is a multiple of 64. Searches for a byte begin at such addresses, so that their counts
/// depend on the place, which otherwise changes with all that was allocated before.
fn aligned(body: &[u8]) -> Bytes {
    let mut block = vec![0; body.len() + 64];
    let start = block.as_ptr().align_offset(64);
    block[start..start + body.len()].copy_from_slice(body);
    Bytes::from(block).slice(start..start + body.len())
}

/// Computes the fingerprint of a conversation from the beginning of its prompt.
fn conversation(body: &[u8]) -> usize {
    let body = aligned(body);
    let mut reader = BodyReader::new(Api::Chat, false);
    for at in (0..body.len()).step_by(16_384) {
        reader.push(body.slice(at..body.len().min(at + 16_384))).unwrap();
    }
    let body = reader.finish().unwrap();
    measured(|| {
        for _ in 0..FRAMES {
            black_box(codec::wire::prompt::conversation(&body, fingerprint));
        }
    });
    FRAMES
}

/// Automatic cache marks with a minimum that all prompts reach.
const MARKS: PromptCaching<'static> = PromptCaching {
    breakpoints: Some(BreakpointRule {
        instructions: CacheBreakpoint::Short,
        turns: CacheBreakpoint::Short,
        min_tokens: 512,
        tools: true,
    }),
    key: None,
};

/// Scans a conversation of about `size` bytes that ends with a question and arrives in pieces.
fn scanned(api: Api, format: Format, size: usize) -> Body {
    let text = Bytes::from(requests::conversation_of(format, size / 2_000));
    let mut reader = BodyReader::new(api, false);
    for at in (0..text.len()).step_by(16_384) {
        reader.push(text.slice(at..text.len().min(at + 16_384))).unwrap();
    }
    reader.finish().unwrap()
}

/// Sets the automatic cache marks of a body that is forwarded.
fn cache_marks(size: usize) -> usize {
    let body = scanned(Api::Messages, Format::Messages, size);
    let rule = MARKS.breakpoints.unwrap();
    assert_eq!(body.breakpoints(&rule).marks, 4);
    measured(|| {
        for _ in 0..FRAMES {
            black_box(body.breakpoints(&rule));
        }
    });
    FRAMES
}

/// Decides whether a body that is forwarded gets a prompt-cache key.
fn cache_key(size: usize) -> usize {
    let body = scanned(Api::Chat, Format::Chat, size);
    measured(|| {
        for _ in 0..FRAMES {
            black_box(body.wants_cache_key());
        }
    });
    FRAMES
}

/// Returns a request whose system prompt is as long as that of a coding agent.
fn with_a_long_system_prompt() -> Bytes {
    let system = "Whatever is said here is said in every turn. ".repeat(1_100);
    let body = format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"system\",\"content\":\"{system}\"}},\
         {{\"role\":\"user\",\"content\":\"hello\"}}]}}"
    );
    Bytes::from(body)
}

/// Suffix of a case of a pair, and the content of its frames.
const TRANSLATED: [(&str, Said); 3] =
    [("", Said::Text), ("-reasoning", Said::Reasoning), ("-arguments", Said::Arguments)];

/// Suffix of a case of a pair whose frames have the same text in all formats, and its length in bytes.
const SAME_TEXT: [(&str, usize); 2] = [("-word", 1), ("-sentence", 150)];

/// Splits the name of a case into the pair of formats, the framing of the provider and the suffix. `bedrock` is Converse
/// in its own framing; `converse` is the same events as server-sent ones, which counts the wire format alone.
fn pair(case: &str) -> Option<(Format, Format, Arrival, String)> {
    translation::pairs().find_map(|(provider, client)| {
        let bedrock = (provider == Format::Converse).then_some(("bedrock", Arrival::EventStream));
        [(provider.name(), Arrival::Events)].into_iter().chain(bedrock).find_map(|(name, arrival)| {
            let about = case.strip_prefix(&format!("{name}-to-{client}"))?;
            Some((provider, client, arrival, about.to_owned()))
        })
    })
}

/// Translates frames of one kind in the middle of a stream, one frame in each piece.
fn translated(route: (Format, Format, Arrival), said: Said, fill: Option<Fill>) -> usize {
    let (provider, client, arrival) = route;
    let mut script = Script::new(provider);
    script.fill = fill.unwrap_or(script.fill);
    script.begin();
    script.open(said);
    let before = script.frames.len() + WARM;
    for n in 0..WARM + FRAMES {
        script.delta(said, n);
    }
    let framed = |frame: &String| match arrival {
        Arrival::EventStream => translation::event_message(frame),
        _ => frame.clone().into_bytes(),
    };
    let frames = translation::shared(&script.frames.iter().map(framed).collect::<Vec<_>>());
    let (warm, rest) = frames.split_at(before);
    let mut exchange = translation::translated_from(provider, client, arrival);
    for piece in warm {
        black_box(exchange.feed(piece.clone()).unwrap());
    }
    measured(|| {
        for piece in rest {
            black_box(exchange.feed(piece.clone()).unwrap());
        }
    });
    rest.len()
}

/// Translates a request of the client.
fn translated_request(
    (provider, client): (Format, Format),
    body: String,
    caching: PromptCaching<'_>,
) -> usize {
    let body = JsonText::from(body);
    let turns = FRAMES / 50;
    measured(|| {
        for _ in 0..turns {
            black_box(translation::translate_cached(client, provider, &body, caching));
        }
    });
    turns
}

fn translation_case(provider: Format, client: Format, arrival: Arrival, about: &str) -> Option<usize> {
    let route = (provider, client, arrival);

    // Ten turns, without and with automatic cache marks, and the conversation of a coding agent.
    let request = match about {
        "-request" => Some((requests::conversation(client), PromptCaching::default())),
        "-request-marked" => Some((requests::conversation(client), MARKS)),
        "-agent" => Some((requests::agent(client, 100_000), PromptCaching::default())),
        _ => None,
    };
    if let Some((body, caching)) = request {
        return Some(translated_request((provider, client), body, caching));
    }
    if let Some((_, size)) = SAME_TEXT.into_iter().find(|(name, _)| *name == about) {
        return Some(translated(route, Said::Text, Some(Fill::Text(size))));
    }
    let (_, said) = TRANSLATED.into_iter().find(|(name, _)| *name == about)?;
    Some(translated(route, said, None))
}

/// Ways of a request to a provider of the client's own format: encoded again, or read and passed on.
const OWN_WAYS: [&str; 2] = ["anew", "passes"];
/// Requests of these cases: ten turns, and the conversation of a coding agent.
const OWN_REQUESTS: [&str; 2] = ["request", "agent"];

/// Splits the name of a case of a client's own format: `chat-anew-request`.
fn own_format(case: &str) -> Option<usize> {
    let format = Format::ALL.into_iter().find(|format| case.starts_with(&format!("{format}-")))?;
    let (way, kind) = case.strip_prefix(&format!("{format}-"))?.split_once('-')?;
    let body = match OWN_REQUESTS.iter().position(|name| *name == kind)? {
        0 => requests::conversation(format),
        _ => requests::agent(format, 100_000),
    };
    match OWN_WAYS.iter().position(|name| *name == way)? {
        0 => Some(translated_request((format, format), body, PromptCaching::default())),
        _ => Some(passed(format.api(), &Bytes::from(body))),
    }
}

/// Reads a request that passes unchanged.
fn passed(api: Api, body: &Bytes) -> usize {
    let turns = FRAMES / 50;
    measured(|| {
        for _ in 0..turns {
            let mut reader = BodyReader::new(api, false);
            for at in (0..body.len()).step_by(16_384) {
                reader.push(body.slice(at..body.len().min(at + 16_384))).unwrap();
            }
            black_box(reader.finish().unwrap());
        }
    });
    turns
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    if let Some(count) = own_format(&case) {
        eprintln!("{count}");
        return ExitCode::SUCCESS;
    }
    if let Some((provider, client, arrival, about)) = pair(&case) {
        let Some(count) = translation_case(provider, client, arrival, &about) else {
            return ExitCode::FAILURE;
        };
        eprintln!("{count}");
        return ExitCode::SUCCESS;
    }
    // Number of repetitions, by which the instructions are divided.
    let count = match case.as_str() {
        "answer" => answer(),
        "request-1k" => request(1_000, true),
        "request-100k" => request(100_000, true),
        "request-1m" => request(1_000_000, false),
        "request-1m-renamed" => request(1_000_000, true),
        "conversation-1k" => conversation(&workload::request(1_000)),
        "conversation-100k" => conversation(&workload::request(100_000)),
        "conversation-50k-system" => conversation(&with_a_long_system_prompt()),
        "cache-marks-40k" => cache_marks(40_000),
        "cache-marks-1m" => cache_marks(1_000_000),
        "cache-key-1m" => cache_key(1_000_000),
        case if CASES.contains(&case) => stream(case),
        _ => {
            println!("{}", CASES.join("\n"));
            for format in Format::ALL {
                for kind in OWN_REQUESTS {
                    OWN_WAYS.iter().for_each(|way| println!("{format}-{way}-{kind}"));
                }
            }
            for (provider, client) in translation::pairs() {
                println!("{provider}-to-{client}");
                println!("{provider}-to-{client}-request");
                println!("{provider}-to-{client}-agent");
                if provider == Format::Messages {
                    println!("{provider}-to-{client}-request-marked");
                }
                if provider == Format::Converse {
                    println!("bedrock-to-{client}");
                }
            }
            return ExitCode::SUCCESS;
        }
    };
    eprintln!("{count}");
    ExitCode::SUCCESS
}
