//! Measured cases, as they run under valgrind: each prints its name and its slot function, in which its cost is
//! counted.

use std::sync::Arc;

use bytes::Bytes;
use codec::canonical::dialect::{ReasoningSupport, Structured};
use codec::canonical::quirks::ToolChoiceSupport;
use codec::canonical::{Dialect, Quirks, Thinking};
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{Outgoing, Restore, TranslateRequest, Translated, outgoing, remote_urls};
use codec::wire::Format;
use codec::wire::codec::ReplyOptions;
use json::EscapedString;

use crate::frames::Answer;
use crate::slots::{Slot, slot};
use crate::{answers, requests, schemas, settings};

/// Environment variable with the format under test: the client's of requests, the provider's of responses.
pub(crate) const FORMAT: &str = "LINEAR_FORMAT";
/// Prefix of the output line with the slot function and the name of a case.
pub(crate) const CASE: &str = "case: ";

/// Smaller number of elements; `LINEAR_FEW` overrides it. At this number the gateway already uses hash maps instead of
/// scans. The whole test takes two to three minutes on two processors.
const FEW: usize = 100;

const FORMATS: [Format; 5] = Format::ALL;

/// Capability profile that supports everything.
const RICH: Dialect<'static> = Dialect {
    reasoning: ReasoningSupport::Budget { min: 1_024, max: 32_000, off: true },
    prefill: true,
    reasoning_replay: true,
    extensions: &["reasoning", "cache_control", "images", "top_k"],
    ..Dialect::plain("model-of-the-provider", "provider")
};

/// Capability profile that supports little.
static POOR: Dialect<'static> = Dialect {
    structured: Structured::Tool,
    json_schema: false,
    call_ids: false,
    system_in_middle: false,
    prefill: false,
    reasoning_replay: false,
    media_urls: false,
    extensions: &[],
    think_tags: true,
    quirks: &Quirks {
        lacks: &[&["name", "seed"]],
        choices: ToolChoiceSupport::USUAL,
        joins_texts: true,
        nine_letter_ids: true,
        custom_tools: false,
        calls_need_reasoning: true,
        ..Quirks::PLAIN
    },
    ..RICH
};

/// Function that valgrind is configured to measure (`--toggle-collect`).
#[inline(never)]
fn count(slot: Slot, work: &mut dyn FnMut()) {
    slot(work);
}

pub(crate) fn name_of(format: Format) -> &'static str {
    format.name()
}

fn translate(client: Format, provider: Format, dialect: &Dialect<'_>, body: &str) -> Option<Outgoing> {
    let model = EscapedString::from("m");
    let ask = TranslateRequest {
        client,
        provider,
        stream: false,
        array: false,
        thinking: Thinking::Unset,
        dialect,
        model: &model,
        id: "01JXG3ZQK5V7W8Y9A0B1C2D3E4",
        seed: "01JXG3ZQK5V7W8Y9A0B1C2D3E4",
        now: 1,
    };
    if !dialect.media_urls && body.contains("https:") {
        remote_urls(body, client, provider, dialect, codec::translate::StoreOptions::default());
    }
    // A refused request counts too: it has been decoded and encoded before.
    outgoing(&body.into(), &ask).ok()
}

fn bring(provider: Format, client: Format, answer: &Answer, restore: &Restore, stream: bool) {
    let reply = ReplyOptions {
        model: EscapedString::from("m"),
        seed: "01JXG3ZQK5V7W8Y9A0B1C2D3E4".into(),
        usage_wanted: true,
        show_thinking: true,
        issuer: "provider".into(),
        collect_signatures: true,
        ..ReplyOptions::default()
    };
    let arrival = match answer {
        Answer::Whole(_) => Arrival::Whole,
        Answer::Stream(_) => Arrival::Events,
    };
    let route = Route { client, provider, stream };
    let mut translated = Translated::new(&route, arrival, Arc::new(reply), restore.clone(), 1 << 26);
    match answer {
        Answer::Whole(body) if !stream => {
            translated.whole(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        }
        Answer::Whole(body) => {
            translated.feed(Bytes::copy_from_slice(body.as_bytes())).unwrap();
            translated.finish().unwrap();
        }
        Answer::Stream(frames) if stream => {
            for frame in frames {
                translated.feed(Bytes::copy_from_slice(frame.as_bytes())).unwrap();
            }
            translated.finish().unwrap();
        }
        Answer::Stream(frames) => {
            translated.whole(Bytes::from(frames.concat())).unwrap();
        }
    }
}

/// Runs a case once to warm up and twice measured, and prints the slot functions of the measured runs.
fn case(next: &mut usize, name: &str, works: [&mut dyn FnMut(); 2]) {
    let [few, many] = works;
    // One-time costs, such as dynamic linking, must not be counted.
    few();
    for work in [few, many] {
        let (function, function_name) = slot(*next);
        *next += 1;
        println!("{CASE}{function_name} {name}");
        count(function, work);
    }
}

/// Returns the data that restores `n` renamed tools in a response.
fn renamed(n: usize) -> Restore {
    let body = requests::with_other_names(n);
    translate(Format::Responses, Format::Chat, &RICH, &body).unwrap().restore
}

pub(crate) fn run() {
    let named = std::env::var(FORMAT).unwrap();
    let own = FORMATS.into_iter().find(|format| format.name() == named).unwrap();
    let mut next = 0;
    let only = std::env::var("LINEAR_ONLY").unwrap_or_default();
    let few = std::env::var("LINEAR_FEW").ok().and_then(|few| few.parse().ok()).unwrap_or(FEW);
    let shapes = requests::SHAPES.into_iter().chain(schemas::SHAPES).chain(settings::SHAPES);
    for (name, build) in shapes.filter(|shape| shape.0.contains(&only)) {
        let sizes = [few, 4 * few].map(|n| build(own, n));
        let [Some(few), Some(many)] = &sizes else { continue };
        for provider in FORMATS {
            for (kind, dialect) in [("rich", &RICH), ("poor", &POOR)] {
                let translate = |body: &str| drop(translate(own, provider, dialect, body));
                case(
                    &mut next,
                    &format!("{name}, {own} to {provider} ({kind})"),
                    [&mut || translate(few), &mut || translate(many)],
                );
            }
        }
    }
    let restores = [few, 4 * few].map(renamed);
    for (name, build) in answers::SHAPES.into_iter().filter(|shape| shape.0.contains(&only)) {
        let sizes = [few, 4 * few].map(|n| build(own, n));
        let [Some(few), Some(many)] = &sizes else { continue };
        for client in FORMATS {
            for (kind, stream) in [("whole", false), ("a stream", true)] {
                let bring = |answer: &Answer, restore: usize| {
                    bring(own, client, answer, &restores[restore], stream);
                };
                case(
                    &mut next,
                    &format!("{name}, {own} to {client} ({kind})"),
                    [&mut || bring(few, 0), &mut || bring(many, 1)],
                );
            }
        }
    }
}
