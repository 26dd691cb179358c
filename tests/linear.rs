#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "linear/answers.rs"]
mod answers;
#[path = "linear/requests.rs"]
mod requests;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use model_gateway::canonical::dialect::{Reasoning, Sampling, Structured};
use model_gateway::canonical::habits::Choices;
use model_gateway::canonical::{Dialect, Habits, Thinking};
use model_gateway::json::EscapedString;
use model_gateway::translate::translated::Route;
use model_gateway::translate::verbatim::Arrival;
use model_gateway::translate::{Ask, Restore, Translated, outgoing};
use model_gateway::wire::Format;
use model_gateway::wire::codec::Reply;

const FORMATS: [Format; 4] = [Format::Chat, Format::Messages, Format::Responses, Format::Generate];

static POOR: Habits = Habits {
    lacks: &[&["name", "seed", "stop"]],
    choices: Choices::USUAL,
    joins_texts: true,
    nine_letter_ids: true,
    custom_tools: false,
    calls_need_reasoning: true,
    ..Habits::PLAIN
};

const RICH: Dialect<'static> = Dialect {
    model: "model-of-the-vendor",
    issuer: "vendor",
    reasoning: Reasoning::Budget { min: 1024, max: 32_000, off: true },
    max_output: 8_192,
    sampling: Sampling::All,
    structured: Structured::Native,
    json_schema: true,
    call_ids: true,
    developer_role: false,
    max_completion_tokens: false,
    system_in_middle: true,
    prefill: true,
    reasoning_replay: true,
    media_urls: true,
    extensions: &["reasoning", "cache_control", "images", "top_k"],
    think_tags: false,
    habits: &Habits::PLAIN,
};

static DIALECTS: [Dialect<'static>; 2] = [
    RICH,
    Dialect {
        structured: Structured::Tool,
        json_schema: false,
        call_ids: false,
        system_in_middle: false,
        prefill: false,
        reasoning_replay: false,
        media_urls: false,
        extensions: &[],
        think_tags: true,
        habits: &POOR,
        ..RICH
    },
];

#[inline(never)]
fn measured(mut work: impl FnMut()) {
    work();
}

fn translate(client: Format, vendor: Format, dialect: &Dialect<'_>, body: &str) -> Result<usize, String> {
    let model = EscapedString::from("m");
    let ask = Ask {
        client,
        vendor,
        stream: false,
        array: false,
        thinking: Thinking::Unsaid,
        dialect,
        model: &model,
        id: "01JXG3ZQK5V7W8Y9A0B1C2D3E4",
        now: 1,
    };
    outgoing(body, &ask).map(|out| out.body.len()).map_err(|refused| refused.error.message.into_owned())
}

fn bring(vendor: Format, client: Format, answer: &answers::Answer, stream: bool) -> usize {
    let reply = Reply {
        model: EscapedString::from("m"),
        seed: "01JXG3ZQK5V7W8Y9A0B1C2D3E4".into(),
        usage_wanted: true,
        show_thinking: true,
        issuer: "vendor".into(),
        remember: true,
        ..Reply::default()
    };
    let arrival = match answer {
        answers::Answer::Whole(_) => Arrival::Whole,
        answers::Answer::Stream(_) => Arrival::Events,
    };
    let route = Route { client, vendor, stream };
    let mut translated = Translated::new(&route, arrival, Arc::new(reply), Restore::default(), 1 << 26);
    let mut length = 0;
    match answer {
        answers::Answer::Whole(body) if !stream => {
            length += translated.whole(Bytes::copy_from_slice(body.as_bytes())).unwrap().len();
        }
        answers::Answer::Whole(body) => {
            length += translated.feed(Bytes::copy_from_slice(body.as_bytes())).unwrap().len();
            length += translated.finish().unwrap().len();
        }
        answers::Answer::Stream(frames) if stream => {
            for frame in frames {
                length += translated.feed(Bytes::copy_from_slice(frame.as_bytes())).unwrap().len();
            }
            length += translated.finish().unwrap().len();
        }
        answers::Answer::Stream(frames) => {
            length += translated.whole(Bytes::from(frames.concat())).unwrap().len();
        }
    }
    length
}

#[test]
#[ignore = "by time, to look for them"]
fn by_time() {
    let n: usize = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut report: Vec<(f64, String)> = Vec::new();
    let time = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        measured(work);
        begun.elapsed().as_secs_f64()
    };
    for (name, build) in requests::SHAPES {
        if !name.contains(&only) { continue }
        for client in FORMATS {
            let (Some(small), Some(large)) = (build(client, n), build(client, 4 * n)) else { continue };
            for vendor in FORMATS {
                for (which, dialect) in DIALECTS.iter().enumerate() {
                    let mut result = Ok(0);
                    let first = time(&mut || result = translate(client, vendor, dialect, &small)).min(
                     time(&mut || result = translate(client, vendor, dialect, &small)));
                    let second = time(&mut || result = translate(client, vendor, dialect, &large));
                    let told = match result { Ok(_) => "ok".to_owned(), Err(e) => e };
                    report.push((second / first, format!("{name}: {client} -> {vendor} ({which}) {:.1} ms {:.0} ns/B {told:.70}", second * 1e3, second * 1e9 / large.len() as f64)));
                }
            }
        }
    }
    for (name, build) in answers::SHAPES {
        if !name.contains(&only) { continue }
        for vendor in FORMATS {
            let (Some(small), Some(large)) = (build(vendor, n), build(vendor, 4 * n)) else { continue };
            for client in FORMATS {
                for stream in [false, true] {
                    let first = time(&mut || { bring(vendor, client, &small, stream); }).min(
                      time(&mut || { bring(vendor, client, &small, stream); }));
                    let second = time(&mut || { bring(vendor, client, &large, stream); });
                    report.push((second / first, format!("{name}: {vendor} -> {client} {stream} {:.1} ms", second * 1e3)));
                }
            }
        }
    }
    report.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, line) in report {
        println!("{ratio:6.1} {line}");
    }
}
