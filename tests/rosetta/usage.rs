//! Usage that a client is shown equals the usage that is charged: in all pairs of formats, for streams and documents,
//! and also where the provider reports none.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use model_gateway::canonical::Usage;
use model_gateway::framing::sse::{SseEvent, SseSplitter};
use model_gateway::tokens::{TokenizerFamily, count_request, count_text};
use model_gateway::translate::translated::{Route, Translated};
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::translate::{CountedRequest, Exchange, Restore, Verbatim, decode_request};
use model_gateway::wire::Format;
use model_gateway::wire::watch;
use serde_json::Value;

use crate::route::{pairs, reply};

const LIMIT: usize = 1 << 24;
/// Expected input tokens of the request.
const INPUT: u64 = 321;

fn exchange(provider: Format, client: Format, arrival: Arrival, stream: bool) -> Exchange {
    let mut exchange = if provider == client {
        Exchange::Verbatim(Verbatim::new(provider.api(), arrival, Changes::default(), LIMIT))
    } else {
        let route = Route { client, provider, stream };
        let reply = Arc::new(reply(provider));
        Exchange::Translated(Box::new(Translated::new(&route, arrival, reply, Restore::default(), LIMIT)))
    };
    exchange.expect(TokenizerFamily::OpenAi, INPUT);
    exchange
}

/// Returns the golden responses of a format: streams and documents.
fn answers(format: Format) -> Vec<(Arrival, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut answers = Vec::new();
    for case in ["plain", "reasoning", "tools", "length"] {
        for (arrival, kind) in [(Arrival::Events, "sse"), (Arrival::Whole, "json")] {
            let text = std::fs::read_to_string(folder.join(case).join(format!("answer.{format}.{kind}")));
            answers.extend(text.ok().map(|text| (arrival, text)));
        }
    }
    assert!(answers.len() >= 6, "{format}: answers have gone missing");
    answers
}

/// Returns a usage report with every figure that the format has.
fn rich(format: Format) -> &'static str {
    match format {
        Format::Chat => {
            r#"{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200,"prompt_tokens_details":{"cached_tokens":300,"cache_write_tokens":50,"audio_tokens":7},"completion_tokens_details":{"reasoning_tokens":150,"audio_tokens":3}}"#
        }
        Format::Messages => {
            r#"{"input_tokens":600,"cache_read_input_tokens":300,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40},"output_tokens":200,"output_tokens_details":{"thinking_tokens":150},"server_tool_use":{"web_search_requests":2}}"#
        }
        Format::Responses => {
            r#"{"input_tokens":1000,"input_tokens_details":{"cached_tokens":300},"output_tokens":200,"output_tokens_details":{"reasoning_tokens":150},"total_tokens":1200}"#
        }
        Format::Generate => {
            r#"{"promptTokenCount":1000,"cachedContentTokenCount":300,"candidatesTokenCount":50,"thoughtsTokenCount":150,"toolUsePromptTokenCount":20,"totalTokenCount":1220}"#
        }
        Format::Converse => {
            r#"{"inputTokens":600,"outputTokens":200,"totalTokens":1200,"cacheReadInputTokens":300,"cacheWriteInputTokens":100,"cacheDetails":[{"ttl":"5m","inputTokens":60},{"ttl":"1h","inputTokens":40}]}"#
        }
    }
}

/// Replaces every usage report in a document, or removes all of them if `usage` is `None`.
fn change(value: &mut Value, usage: Option<&Value>) {
    match value {
        Value::Object(members) => {
            for name in ["usage", "usageMetadata"] {
                match (members.get_mut(name), usage) {
                    (Some(old), Some(new)) if !old.is_null() => *old = new.clone(),
                    (Some(_), None) => drop(members.shift_remove(name)),
                    _ => {}
                }
            }
            members.values_mut().for_each(|member| change(member, usage));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| change(element, usage)),
        _ => {}
    }
}

fn changed(arrival: Arrival, text: &str, usage: Option<&Value>) -> String {
    let rewrite = |json: &str| {
        let mut value: Value = serde_json::from_str(json).unwrap();
        change(&mut value, usage);
        value.to_string()
    };
    if arrival == Arrival::Whole {
        return rewrite(text);
    }
    let lines = text.lines().map(|line| match line.strip_prefix("data: ") {
        Some(data) if data.starts_with('{') => format!("data: {}\n", rewrite(data)),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// Returns the usage that a response shows to its client.
fn shown(format: Format, stream: bool, text: &str) -> Usage {
    let mut usage = Usage::default();
    if !stream {
        usage.update(&watch::answer(format, text).unwrap().usage.unwrap_or_default());
        return usage;
    }
    let (mut splitter, mut from) = (SseSplitter::default(), 0);
    while let Some(end) = splitter.next_boundary(text.as_bytes(), from) {
        let mut scratch = Vec::new();
        let event = SseEvent::parse(&text.as_bytes()[from..end], &mut scratch);
        if let Some(data) = event.data
            && let Ok(sight) = watch::frame(format, std::str::from_utf8(data).unwrap())
            && let Some(later) = sight.usage
        {
            usage.update(&later);
        }
        from = end;
    }
    usage
}

/// Asserts that every figure that the client is shown equals the charged one. Figures that the client's format lacks
/// may be absent.
fn assert_same(shown: &Usage, charged: &Usage, place: &str) {
    let parts = |usage: &Usage| {
        [
            usage.cached,
            usage.cache_write,
            usage.cache_write_1h,
            usage.reasoning,
            usage.audio_input,
            usage.audio_output,
            usage.searches,
        ]
    };
    assert_eq!((shown.input, shown.output), (charged.input, charged.output), "{place}");
    for (shown, charged) in parts(shown).into_iter().zip(parts(charged)) {
        // A format without the lifetime of a cache write reports the sum of cache writes.
        assert!(
            shown.unwrap_or(0) == charged.unwrap_or(0) || shown.is_none(),
            "{place}: {shown:?} {charged:?}"
        );
    }
}

/// Passes a response through an exchange. Returns the output and the exchange with its meter.
fn pass(mut exchange: Exchange, arrival: Arrival, stream: bool, text: &str) -> (String, Exchange) {
    let mut out = Vec::new();
    if stream && arrival == Arrival::Events {
        for piece in text.as_bytes().chunks(97) {
            out.extend_from_slice(&exchange.feed(Bytes::copy_from_slice(piece)).unwrap());
        }
        out.extend_from_slice(&exchange.finish().unwrap());
    } else {
        out.extend_from_slice(&exchange.whole(Bytes::copy_from_slice(text.as_bytes())).unwrap());
    }
    (crate::route::text(Format::Converse, &out), exchange)
}

#[test]
fn bug_39_usage_shown_equals_usage_charged() {
    for (provider, client) in pairs() {
        let rich: Value = serde_json::from_str(rich(provider)).unwrap();
        for (arrival, text) in answers(provider) {
            let stream = arrival == Arrival::Events;
            for usage in [None, Some(&rich)] {
                let text = usage.map_or(text.clone(), |usage| changed(arrival, &text, Some(usage)));
                let (out, exchange) =
                    pass(exchange(provider, client, arrival, stream), arrival, stream, &text);
                let charged = exchange.meter().usage();
                let place = format!("{provider} to {client}, {arrival:?}: {out}");
                assert!(!exchange.meter().is_counted(), "{place}");
                assert!(charged.input.is_some() && charged.output.is_some(), "{place}");
                if usage.is_some() {
                    assert_eq!((charged.output, charged.cached), (Some(200), Some(300)), "{place}");
                }
                let shown = shown(client, stream, &out);
                let both = |usage: &Usage| usage.cache_write.unwrap_or(0) + usage.cache_write_1h.unwrap_or(0);
                if shown.cache_write.is_some() {
                    assert_eq!(both(&shown), both(charged), "{place}");
                }
                let merged = Usage { cache_write: None, cache_write_1h: None, ..shown };
                assert_same(&merged, charged, &place);
            }
        }
    }
}

#[test]
fn usage_not_reported_is_counted_and_shown_as_charged() {
    for (provider, client) in pairs() {
        for (arrival, text) in answers(provider) {
            let stream = arrival == Arrival::Events;
            let text = changed(arrival, &text, None);
            let (out, exchange) = pass(exchange(provider, client, arrival, stream), arrival, stream, &text);
            let charged = *exchange.meter().usage();
            let place = format!("{provider} to {client}, {arrival:?}: {out}");
            assert!(exchange.meter().is_counted(), "{place}");
            assert_eq!(charged.input, Some(INPUT), "{place}");
            assert!(charged.output.is_some_and(|tokens| (1..200).contains(&tokens)), "{place}: {charged:?}");
            if provider != client {
                assert_same(&shown(client, stream, &out), &charged, &place);
            }
        }
    }
}

/// A broken stream is charged for what was delivered, and the usage that its provider reported before counts.
#[test]
fn bug_40_bug_44_usage_of_cut_stream_is_what_was_delivered() {
    let words = "eight letters and some more words for the answer ";
    let start = r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"x","usage":{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":1}}}"#;
    let mut messages = format!(
        "event: message_start\ndata: {start}\n\nevent: content_block_start\ndata: \
         {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\n"
    );
    let mut generate = String::new();
    for _ in 0..40 {
        messages += &format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{words}\"}}}}\n\n"
        );
        generate += &format!(
            "data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"{words}\"}}]}},\"index\":0}}]}}\n\n"
        );
    }
    let delivered = count_text(TokenizerFamily::OpenAi, &words.repeat(40));
    for client in Format::ALL {
        for (provider, text, input, cached) in
            [(Format::Messages, &messages, 100, Some(90)), (Format::Generate, &generate, INPUT, None)]
        {
            let mut exchange = exchange(provider, client, Arrival::Events, true);
            exchange.feed(Bytes::copy_from_slice(text.as_bytes())).unwrap();
            assert!(exchange.finish().is_err());
            exchange.cut();
            let usage = exchange.meter().usage();
            assert_eq!((usage.input, usage.cached), (Some(input), cached), "{provider} to {client}");
            // Beyond the sample that is kept, the count is extrapolated.
            let output = usage.output.unwrap();
            assert!(output.abs_diff(delivered) <= 3, "{provider} to {client}: {output} of {delivered}");
        }
    }
}

/// Delivered text is counted with the tokenizer of the model's family, in any language. Long streams are extrapolated
/// from their beginning.
#[test]
fn usage_of_output_is_counted_by_the_family_of_the_model() {
    let english = "the quick brown fox jumps over the lazy dog and keeps running through the field ";
    let chinese = "\u{6a21}\u{578b}\u{7f51}\u{5173}\u{662f}\u{5e94}\u{7528}\u{7a0b}\u{5e8f}\u{4e0e}\u{6a21}\u{578b}\u{4e4b}\u{95f4}\u{7684}\u{6865}\u{6881}\u{3002}";
    let code = "fn main() { let xs: Vec<u32> = (0..10).collect(); println!(\"{xs:?}\"); }\n";
    for family in
        [TokenizerFamily::OpenAi, TokenizerFamily::Claude, TokenizerFamily::Gemini, TokenizerFamily::Qwen]
    {
        for text in [english, chinese, code] {
            for frames in [3, 60, 900] {
                let words: Vec<String> =
                    text.chars().collect::<Vec<_>>().chunks(7).map(String::from_iter).collect();
                let said: Vec<&str> = words.iter().map(String::as_str).cycle().take(frames).collect();
                let stream: String = said
                    .iter()
                    .map(|word| {
                        let word = serde_json::to_string(word).unwrap();
                        format!(
                            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":{word}}},\"finish_reason\":null}}]}}\n\n"
                        )
                    })
                    .collect();
                let delivered = count_text(family, &said.concat()).max(frames as u64);
                for client in [Format::Chat, Format::Messages] {
                    let mut exchange = exchange(Format::Chat, client, Arrival::Events, true);
                    exchange.expect(family, INPUT);
                    for piece in stream.as_bytes().chunks(1_000) {
                        exchange.feed(Bytes::copy_from_slice(piece)).unwrap();
                    }
                    exchange.cut();
                    let output = exchange.meter().usage().output.unwrap();
                    let most = if frames < 10 { 0 } else { delivered / 8 };
                    assert!(
                        output.abs_diff(delivered) <= most,
                        "{family:?} {client} {frames}: {output} of {delivered}: {text}"
                    );
                }
            }
        }
    }
}

/// Input is counted with the tokenizer of the model's family. A large request is extrapolated from its end.
#[test]
fn usage_of_input_is_counted_by_the_family_of_the_model() {
    let word = "\u{6865}\u{6881}\u{662f}\u{4ec0}\u{4e48}\u{ff1f} ";
    for (repeat, exactly) in [(1, true), (300, true), (3_000, false)] {
        let text = word.repeat(repeat);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let request = decode_request(Format::Chat, &body).unwrap();
        let counted = count_request(TokenizerFamily::Qwen, &request);
        let mut exchange = exchange(Format::Chat, Format::Messages, Arrival::Events, true);
        exchange.expect(TokenizerFamily::Qwen, body.len() as u64 / 4);
        let (front, back) = body.as_bytes().split_at(body.len() / 2);
        exchange
            .set_request(CountedRequest::of([front, back].into_iter().map(Bytes::copy_from_slice).collect()));
        exchange.cut();
        let input = exchange.meter().usage().input.unwrap();
        let most = if exactly { 0 } else { counted / 10 };
        assert!(input.abs_diff(counted) <= most, "{input} of {counted}");
    }
    // Base64 data contains no words to count: the expected input tokens stay.
    let image = format!("{{\"messages\":[\"{}", "iVBORw0KGgoAAAANSUhEUg".repeat(2_000));
    let mut exchange = exchange(Format::Chat, Format::Chat, Arrival::Events, true);
    exchange.set_request(CountedRequest::of([Bytes::from(image)].into_iter().collect()));
    exchange.cut();
    assert_eq!(exchange.meter().usage().input, Some(INPUT));
}

/// Codex decides by `total_tokens` alone when to compact a conversation: the response always has usage, and the total is
/// that of input, with what was cached, and output.
#[test]
fn usage_total_of_a_response_is_input_and_output_in_every_pair() {
    for provider in Format::ALL.into_iter().filter(|provider| *provider != Format::Responses) {
        let rich: Value = serde_json::from_str(rich(provider)).unwrap();
        for (arrival, text) in answers(provider) {
            let stream = arrival == Arrival::Events;
            for text in [text.clone(), changed(arrival, &text, Some(&rich)), changed(arrival, &text, None)] {
                let (out, exchange) =
                    pass(exchange(provider, Format::Responses, arrival, stream), arrival, stream, &text);
                let response: Value = if stream {
                    let data = out.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
                    let last: Value = serde_json::from_str(data).unwrap();
                    assert!(
                        ["response.completed", "response.incomplete"]
                            .contains(&last["type"].as_str().unwrap())
                    );
                    last["response"].clone()
                } else {
                    serde_json::from_str(&out).unwrap()
                };
                let usage = &response["usage"];
                let place = format!("{provider} {arrival:?}: {usage}");
                let figure = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name}: {place}"));
                let charged = exchange.meter().usage();
                assert_eq!(
                    figure("total_tokens"),
                    figure("input_tokens") + figure("output_tokens"),
                    "{place}"
                );
                assert_eq!(Some(figure("input_tokens")), charged.input, "{place}");
                let cached = usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
                assert!(cached <= figure("input_tokens"), "{place}");
            }
        }
    }
}
