//! Responses that break off at any byte and are continued: in all formats, the client reads one response.

use std::sync::Arc;

use bytes::Bytes;

use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Answer, Event, Grammar};
use crate::translate::codecs::AnyDecoder;
use crate::translate::resume::{Continuation, Prefill, Unfit};
use crate::translate::translated::Route;
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::translate::{Exchange, Restore, Translated, Verbatim};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use json::{EscapedString, JsonStr};

/// Text of all providers, in pieces.
const PIECES: [&str; 5] = ["Gr\\u00fc\u{df}e ", "\\\"und\\\" ", "\u{1f600} so:\\n\\n", "  weiter, ", "Ende."];
const USED: (u64, u64) = (40, 9);

fn story() -> String {
    JsonStr::from_escaped(&PIECES.concat()).decode().into_owned()
}

/// Builds a stream of these texts.
fn stream(format: Format, texts: &[&str]) -> String {
    let (input, output) = USED;
    let mut out = String::new();
    match format {
        Format::Chat => {
            let chunk = |rest: &str| {
                format!(
                    "data: {{\"id\":\"own-id_1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"v\",{rest}}}\n\n"
                )
            };
            let delta = |delta: &str| {
                chunk(&format!("\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]"))
            };
            out += &delta("{\"role\":\"assistant\",\"content\":\"\"}");
            texts.iter().for_each(|text| out += &delta(&format!("{{\"content\":\"{text}\"}}")));
            out += &chunk("\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]");
            out += &chunk(&format!(
                "\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output},\"total_tokens\":49}}"
            ));
            out += "data: [DONE]\n\n";
        }
        Format::Messages => {
            let mut event = |name: &str, rest: &str| {
                out += &format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n");
            };
            event(
                "message_start",
                &format!(
                    ",\"message\":{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"v\",\"content\":[],\
                 \"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":{input},\"output_tokens\":1}}}}"
                ),
            );
            event("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
            for text in texts {
                let delta = format!(",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}");
                event("content_block_delta", &delta);
            }
            event("content_block_stop", ",\"index\":0");
            event(
                "message_delta",
                &format!(
                    ",\"delta\":{{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}},\"usage\":{{\"output_tokens\":{output}}}"
                ),
            );
            event("message_stop", "");
        }
        Format::Generate => {
            let mut chunk = |text: &str, end: &str, made: u64| {
                out += &format!(
                    "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}}{end},\"index\":0}}],\
                     \"usageMetadata\":{{\"promptTokenCount\":{input},\"candidatesTokenCount\":{made}}},\
                     \"modelVersion\":\"v\",\"responseId\":\"own-id_1\"}}\r\n\r\n"
                );
            };
            texts.iter().for_each(|text| chunk(text, "", 1));
            chunk("", ",\"finishReason\":\"STOP\"", output);
        }
        Format::Responses | Format::Converse => {}
    }
    out
}

fn reply() -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("m"),
        request: "req_1".into(),
        seed: "req_1".into(),
        created: 5,
        usage_wanted: true,
        show_thinking: true,
        ..ReplyOptions::default()
    }
}

fn exchange(provider: Format, client: Format) -> Exchange {
    let mut exchange = if provider == client {
        let changes = Changes { model: Some(EscapedString::from("m")), ..Changes::default() };
        Exchange::Verbatim(Verbatim::new(client.api(), Arrival::Events, changes, 1 << 20))
    } else {
        let route = Route { client, provider, stream: true };
        let reply = Arc::new(reply());
        Exchange::Translated(Box::new(Translated::new(
            &route,
            Arrival::Events,
            reply,
            Restore::default(),
            1 << 20,
        )))
    };
    exchange.record_transcript();
    exchange
}

/// Feeds a stream and returns the output.
fn feed(exchange: &mut Exchange, stream: &[u8]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut out = Vec::new();
    let mut pass = || -> Result<(), StreamError> {
        out.extend_from_slice(&exchange.feed(Bytes::copy_from_slice(stream))?);
        out.extend_from_slice(&exchange.finish()?);
        Ok(())
    };
    let passed = pass();
    out.extend_from_slice(&exchange.take_ready());
    (out, passed)
}

/// Continues the exchange with a provider that gets the prefill.
fn onward(exchange: Exchange, client: Format, provider: Format, prefill: &Prefill) -> Exchange {
    exchange.resume(Continuation {
        route: Route { client, provider, stream: true },
        arrival: Arrival::Events,
        reply: &reply(),
        restore: Restore::default(),
        limit: 1 << 20,
        prefill,
        repeats: false,
    })
}

/// Continues the response with a provider that repeats the white space at the splice.
fn go_on(exchange: Exchange, client: Format, provider: Format, out: &mut Vec<u8>) -> Exchange {
    let prefill = exchange.prefill().unwrap();
    let given = prefill.text().decode().into_owned();
    let all = story();
    let rest = all.strip_prefix(&given).unwrap_or_else(|| panic!("{given:?}"));
    let mut escaped = Vec::new();
    json::push_escaped(&mut escaped, rest);
    let rest = String::from_utf8(escaped).unwrap();
    let mut exchange = onward(exchange, client, provider, &prefill);
    let (more, passed) = feed(&mut exchange, stream(provider, &[&rest]).as_bytes());
    assert_eq!(passed, Ok(()), "{}", String::from_utf8_lossy(&more));
    out.extend_from_slice(&more);
    exchange
}

/// Parses a stream as a client does.
fn read(client: Format, stream: &str) -> Answer {
    let mut decoder = AnyDecoder::new(client, "", false);
    let (mut answer, mut grammar) = (Answer::default(), Grammar::default());
    let mut take = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?} in {stream}"));
        answer.take(&event);
    };
    for event in stream.replace("\r\n", "\n").split("\n\n") {
        if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
            decoder.frame(data, &mut take).unwrap();
        }
    }
    decoder.finish(&mut take).unwrap_or_else(|_| panic!("cut: {stream}"));
    answer
}

/// Returns the offset at which the response is complete except for its last frame.
fn ended(format: Format, stream: &str) -> usize {
    let reason = match format {
        Format::Chat => "\"finish_reason\":\"stop\"",
        Format::Messages => "\"stop_reason\":\"end_turn\"",
        _ => "\"finishReason\"",
    };
    let at = stream.find(reason).unwrap();
    at + stream[at..].find("}\n\n").or(stream[at..].find("}\r\n\r\n")).unwrap()
}

#[test]
fn resume_continues_a_stream_cut_at_any_byte() {
    let providers = [Format::Chat, Format::Messages, Format::Generate];
    let mut cuts = 0;
    for client in [Format::Chat, Format::Messages, Format::Responses, Format::Generate] {
        for first in providers {
            let whole = stream(first, &PIECES);
            for cut in 0..ended(first, &whole) {
                let second = providers[cut % 3];
                let what = format!("{client} by {first} and {second}, cut at {cut}");
                let mut exchange = exchange(first, client);
                let (mut out, passed) = feed(&mut exchange, &whole.as_bytes()[..cut]);
                assert_eq!(passed, Err(StreamError::Cut), "{what}");
                exchange.cut();
                let before = exchange.usage();
                let exchange = go_on(exchange, client, second, &mut out);
                let told = String::from_utf8(out).unwrap();
                let answer = read(client, &told);
                let text: String = answer.blocks.iter().map(|block| block.text.as_str()).collect();
                assert_eq!(JsonStr::from_escaped(&text).decode(), story(), "{what}: {told:?}");
                assert_eq!(answer.blocks.len(), 1, "{what}: {answer:?}");
                assert_eq!(answer.model, "m", "{what}");
                let output = before.output.unwrap_or(0) + USED.1;
                assert_eq!((answer.usage.input, answer.usage.output), (before.input, Some(output)), "{what}");
                assert_eq!(exchange.usage().output, Some(output), "{what}");
                cuts += 1;
            }
        }
    }
    assert!(cuts > 10_000, "only {cuts}");
}

/// The next provider may send a document although a stream was requested.
#[test]
fn resume_continues_with_a_whole_response() {
    for client in [Format::Chat, Format::Messages, Format::Generate, Format::Responses] {
        let mut exchange = exchange(Format::Messages, client);
        let whole = stream(Format::Messages, &PIECES[..3]);
        let end = whole.find("event: content_block_stop").unwrap();
        let (mut out, _) = feed(&mut exchange, &whole.as_bytes()[..end]);
        let prefill = exchange.prefill().unwrap();
        let mut exchange = exchange.resume(Continuation {
            route: Route { client, provider: Format::Chat, stream: true },
            arrival: Arrival::Whole,
            reply: &reply(),
            restore: Restore::default(),
            limit: 1 << 20,
            prefill: &prefill,
            repeats: false,
        });
        let document = r#"{"id":"c","object":"chat.completion","created":1,"model":"v","choices":[{"index":0,"message":{"role":"assistant","content":"\n\n  weiter, Ende."},"finish_reason":"stop"}],"usage":{"prompt_tokens":50,"completion_tokens":9,"total_tokens":59}}"#;
        let (more, passed) = feed(&mut exchange, document.as_bytes());
        assert_eq!(passed, Ok(()));
        out.extend_from_slice(&more);
        let answer = read(client, &String::from_utf8(out).unwrap());
        assert_eq!(JsonStr::from_escaped(&answer.blocks[0].text).decode(), story(), "{client}");
        assert_eq!((answer.blocks.len(), answer.usage.input), (1, Some(USED.0)), "{client}");
    }
}

/// The next provider may break off as well.
#[test]
fn resume_works_a_second_time() {
    for client in [Format::Chat, Format::Messages, Format::Generate, Format::Responses] {
        let mut exchange = exchange(Format::Chat, client);
        let whole = stream(Format::Chat, &PIECES[..2]);
        let (mut out, _) = feed(&mut exchange, &whole.as_bytes()[..ended(Format::Chat, &whole) - 80]);
        let prefill = exchange.prefill().unwrap();
        let mut exchange = onward(exchange, client, Format::Messages, &prefill);
        let next = stream(Format::Messages, &[" ", PIECES[2], PIECES[3]]);
        let (more, passed) =
            feed(&mut exchange, &next.as_bytes()[..next.find("event: content_block_stop").unwrap()]);
        assert_eq!(passed, Err(StreamError::Cut));
        out.extend_from_slice(&more);
        go_on(exchange, client, Format::Generate, &mut out);
        let answer = read(client, &String::from_utf8(out).unwrap());
        assert_eq!(JsonStr::from_escaped(&answer.blocks[0].text).decode(), story(), "{client}");
        assert_eq!((answer.blocks.len(), &answer.blocks[0].kind), (1, &AnswerBlockKind::Text));
        assert_eq!(answer.usage.input, Some(0), "what the first was given was not counted here");
    }
}

/// A client of the provider's own format keeps the provider's response id.
#[test]
fn resume_keeps_the_response_id() {
    for (format, id) in
        [(Format::Chat, "\"id\":\"own-id_1\""), (Format::Generate, "\"responseId\":\"own-id_1\"")]
    {
        let mut exchange = exchange(format, format);
        let whole = stream(format, &PIECES);
        let (mut out, _) = feed(&mut exchange, &whole.as_bytes()[..ended(format, &whole) - 100]);
        go_on(exchange, format, Format::Messages, &mut out);
        let out = String::from_utf8(out).unwrap();
        let frames = out.matches("data: {").count();
        assert_eq!(out.matches(id).count(), frames, "{out}");
    }
}

/// An error, or a frame that clients cannot read, is not forwarded.
#[test]
fn resume_holds_back_an_error_in_mid_stream() {
    for (format, error) in [
        (Format::Chat, "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"),
        (
            Format::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"overloaded\"}}\n\n",
        ),
        (Format::Generate, "data: {\"error\":{\"code\":503,\"message\":\"overloaded\"}}\r\n\r\n"),
        (Format::Chat, "data: {\"choices\":[{]}\n\n"),
    ] {
        let whole = stream(format, &PIECES);
        let at = whole.find("weiter").unwrap();
        let at = at + whole[at..].find("\n\n").or(whole[at..].find("\r\n\r\n")).unwrap();
        let at =
            at + whole[at..].find("data:").map_or(0, |next| whole[at..at + next].rfind('\n').unwrap() + 1);
        let broken = [&whole[..at], error, &whole[at..]].concat();
        let mut exchange = exchange(format, format);
        let (mut out, passed) = feed(&mut exchange, broken.as_bytes());
        assert!(matches!(passed, Err(StreamError::Failed(_) | StreamError::Invalid(_))), "{passed:?}");
        assert!(!String::from_utf8_lossy(&out).contains("overloaded"));
        go_on(exchange, format, Format::Chat, &mut out);
        let answer = read(format, &String::from_utf8(out).unwrap());
        assert_eq!(JsonStr::from_escaped(&answer.blocks[0].text).decode(), story());
    }
}

/// The recorded text is limited, and half a surrogate pair is not sent.
#[test]
fn resume_is_refused_for_long_text_or_half_a_surrogate_pair() {
    let long = "wort ".repeat(60_000);
    let whole = stream(Format::Messages, &[&long]);
    let half = stream(Format::Messages, &["so \\ud83d"]);
    for (stream, unfit) in [(whole, Unfit::Long), (half, Unfit::Content)] {
        for client in [Format::Messages, Format::Chat] {
            let mut exchange = exchange(Format::Messages, client);
            let end = stream.find("event: content_block_stop").unwrap();
            let _ = feed(&mut exchange, &stream.as_bytes()[..end]);
            assert_eq!(exchange.prefill(), Err(unfit));
        }
    }
}

/// In the generate format the stream may be a JSON array: the array continues, and is closed once.
#[test]
fn resume_continues_a_json_array_cut_at_any_byte() {
    let elements: String =
        stream(Format::Generate, &PIECES).replace("data: ", "").replace("}\r\n\r\n", "}\r\n,");
    let whole = format!("[{}]", elements.trim_end_matches(','));
    for cut in 1..whole.find("finishReason").unwrap() {
        let verbatim = Verbatim::new(Format::Generate.api(), Arrival::Array, Changes::default(), 1 << 20);
        let mut exchange = Exchange::Verbatim(verbatim);
        exchange.record_transcript();
        let (mut out, passed) = feed(&mut exchange, &whole.as_bytes()[..cut]);
        assert_eq!(passed, Err(StreamError::Cut));
        let prefill = exchange.prefill().unwrap();
        let given = prefill.text().decode().into_owned();
        let mut rest = Vec::new();
        json::push_escaped(&mut rest, story().strip_prefix(&given).unwrap());
        let mut exchange = exchange.resume(Continuation {
            route: Route { client: Format::Generate, provider: Format::Messages, stream: true },
            arrival: Arrival::Events,
            reply: &ReplyOptions { array: true, ..reply() },
            restore: Restore::default(),
            limit: 1 << 20,
            prefill: &prefill,
            repeats: false,
        });
        let next = stream(Format::Messages, &[std::str::from_utf8(&rest).unwrap()]);
        let (more, passed) = feed(&mut exchange, next.as_bytes());
        assert_eq!(passed, Ok(()));
        out.extend_from_slice(&more);
        let array: serde_json::Value = serde_json::from_slice(&out)
            .unwrap_or_else(|error| panic!("{error}, cut at {cut}: {}", String::from_utf8_lossy(&out)));
        let parts = array.as_array().unwrap().iter();
        let text: String = parts
            .map(|element| element["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(text, story(), "cut at {cut}");
    }
}

/// The prefill continues the first choice. Another choice of the next provider is left out, with its end.
#[test]
fn another_choice_of_the_next_provider_does_not_end_the_answer() {
    let chunk = |choice: usize, delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"v\",\"choices\":[{{\"index\":{choice},\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let next = [
        chunk(1, r#"{"content":"other"}"#, "null"),
        chunk(1, "{}", "\"length\""),
        chunk(0, r#"{"content":" weiter, Ende."}"#, "null"),
        chunk(0, "{}", "\"stop\""),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for client in [Format::Chat, Format::Messages, Format::Responses, Format::Generate] {
        let mut exchange = exchange(Format::Messages, client);
        let whole = stream(Format::Messages, &["Und so:"]);
        let end = whole.find("event: content_block_stop").unwrap();
        let (mut out, _) = feed(&mut exchange, &whole.as_bytes()[..end]);
        let prefill = exchange.prefill().unwrap();
        let mut exchange = onward(exchange, client, Format::Chat, &prefill);
        let (more, passed) = feed(&mut exchange, next.as_bytes());
        assert_eq!(passed, Ok(()));
        out.extend_from_slice(&more);
        let answer = read(client, &String::from_utf8(out).unwrap());
        assert_eq!((answer.blocks.len(), &*answer.blocks[0].text), (1, "Und so: weiter, Ende."), "{client}");
        let ends: Vec<u32> = answer.finishes.iter().map(|end| end.0).collect();
        assert_eq!((ends, answer.finish_of(0)), (vec![0], Some(&FinishOwned::Stop)), "{client}");
    }
}
