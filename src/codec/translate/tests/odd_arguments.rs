//! Arguments of calls in another form than the text of one object, and finish reasons that are none.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::no_arguments::{arguments, frames};
use crate::canonical::Event;
use crate::translate::codecs::decode_answer;
use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::{Arrival, StreamError};
use crate::translate::{Exchange, Restore};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;

fn translated(client: Format, provider: Format, stream: bool, arrival: Arrival) -> Translated {
    let route = Route { client, provider, stream };
    Translated::new(&route, arrival, Arc::new(ReplyOptions::default()), Restore::default(), 1 << 20)
}

#[test]
fn arguments_in_another_form_are_the_object_for_every_client() {
    let object = json!({"q": "Grüße \"x\" \\ \n😀", "n": [1, {}]});
    let once = object.to_string();
    let twice = json!(once).to_string();
    let letters: Vec<String> = twice.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    for pieces in [
        &["{}", &*once][..],
        &["{}", "", "{", &once[1..]],
        &["", "{}", &once],
        &[&*format!("{{}}{once}")],
        &[&*twice],
        &["", &twice[..1], &twice[1..8], &twice[8..]],
        &letters,
        &[&*once],
    ] {
        // The other formats have arguments as objects, or cannot write these pieces.
        for provider in [Format::Chat, Format::Messages, Format::Converse] {
            for client in Format::ALL {
                for stream in [true, false] {
                    let mut translated = translated(client, provider, stream, Arrival::Events);
                    let mut out = Vec::new();
                    for frame in frames(provider, pieces) {
                        let frame = Bytes::from(format!("data: {frame}\n\n"));
                        out.extend_from_slice(&translated.feed(frame).unwrap());
                    }
                    out.extend_from_slice(&translated.finish().unwrap());
                    let said = arguments(client, stream, &out);
                    assert_eq!(said, object, "{provider} {client} {stream} {pieces:?}");
                }
            }
        }
    }
}

/// Clients send such arguments back, from the time when another gateway gave them.
#[test]
fn arguments_in_another_form_are_the_object_in_the_history() {
    use crate::provider::ProviderKind::{Anthropic, Bedrock, Gemini};
    let once = json!({"q": "\"x\""}).to_string();
    for text in [json!(once).to_string(), format!("{{}}{once}")] {
        let chat = json!({"model": "m", "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}]},
            {"role": "tool", "tool_call_id": "c", "content": "r"}]});
        for (kind, model, to) in [
            (Anthropic, "claude-sonnet-4-5", Format::Messages),
            (Gemini, "gemini-2.5-flash", Format::Generate),
            (Bedrock, "anthropic.claude-sonnet-4-5-v1:0", Format::Converse),
        ] {
            let (sent, _) = super::requests::sent(kind, model, Format::Chat, to, &chat);
            let inside = format!(":{once}");
            assert!(sent.to_string().contains(&inside), "{to}: {sent}");
        }
    }
}

#[test]
fn empty_object_in_front_of_arguments_may_be_an_object() {
    let chunk = |function: Value, finish: Value| {
        json!({"id": "x", "choices": [{"index": 0, "finish_reason": finish,
               "delta": {"tool_calls": [{"index": 0, "id": "c", "function": function}]}}]})
    };
    for client in [Format::Messages, Format::Responses, Format::Generate] {
        for rest in [Some(r#"{"q":"x"}"#), None] {
            let mut translated = translated(client, Format::Chat, true, Arrival::Events);
            let mut out = Vec::new();
            let mut frames = vec![chunk(json!({"name": "f", "arguments": {}}), Value::Null)];
            frames.extend(rest.map(|rest| chunk(json!({"arguments": rest}), Value::Null)));
            frames.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
            for frame in frames {
                out.extend_from_slice(&translated.feed(Bytes::from(format!("data: {frame}\n\n"))).unwrap());
            }
            out.extend_from_slice(&translated.finish().unwrap());
            let expected = rest.map_or(json!({}), |rest| serde_json::from_str(rest).unwrap());
            assert_eq!(arguments(client, true, &out), expected, "{client} {rest:?}");
        }
    }
}

/// The outer encoding is taken off in one pass, whatever the size of the pieces is.
#[test]
fn long_arguments_that_are_encoded_twice_are_decoded_in_one_pass() {
    let object = json!({"q": "\"".repeat(200_000)});
    let twice = json!(object.to_string()).to_string();
    let mut translated = translated(Format::Messages, Format::Chat, true, Arrival::Events);
    let pieces: Vec<&str> =
        twice.as_bytes().chunks(7).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let mut out = Vec::new();
    for frame in frames(Format::Chat, &pieces) {
        out.extend_from_slice(&translated.feed(Bytes::from(format!("data: {frame}\n\n"))).unwrap());
    }
    assert_eq!(arguments(Format::Messages, true, &out), object);
}

#[test]
fn error_of_google_in_a_list_has_its_words_in_every_stream() {
    let error = r#"[{"error":{"code":503,"message":"Overloaded now","status":"UNAVAILABLE"}}]"#;
    let content = r#"{"candidates":[{"content":{"parts":[{"text":"Hal"}]}}]}"#;
    for client in Format::ALL {
        let mut exchange = match client {
            Format::Generate => Exchange::Verbatim(super::super::Verbatim::new(
                crate::wire::Api::Generate,
                Arrival::Events,
                super::super::verbatim::Changes::default(),
                1 << 20,
            )),
            _ => Exchange::Translated(Box::new(translated(client, Format::Generate, true, Arrival::Events))),
        };
        exchange.feed(Bytes::from(format!("data: {content}\r\n\r\n"))).unwrap();
        let failed = exchange.feed(Bytes::from(format!("data: {error}\r\n\r\n")));
        let Err(StreamError::Failed(words)) = failed else { panic!("{client}: {failed:?}") };
        assert!(String::from_utf8_lossy(&words).contains("Overloaded now"), "{client}");
    }
}

#[test]
fn unspecified_finish_reason_is_none() {
    let body = r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#;
    let mut ends = 0;
    decode_answer(Format::Generate, body, "", false, &mut |event| {
        ends += u32::from(matches!(event, Event::End))
    })
    .unwrap();
    assert_eq!(ends, 1, "a document is complete by its length");
    let mut translated = translated(Format::Chat, Format::Generate, true, Arrival::Events);
    translated.feed(Bytes::from(format!("data: {body}\r\n\r\n"))).unwrap();
    assert_eq!(translated.finish(), Err(StreamError::Cut), "a stream is complete by its finish reason");
}
