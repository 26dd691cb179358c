//! Strict stream reader for tests: checks the event grammar of a format and collects what an SDK would read.

use serde_json::Value;

use crate::support::form::Form;
use crate::support::sse::{Event, events};

/// Content of a complete stream, as an SDK would read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) text: String,
    pub(super) reason: String,
    /// Input and output tokens.
    pub(super) usage: (u64, u64),
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Reads a complete stream. Panics if it violates the grammar of its format.
pub(super) fn read(form: Form, stream: &str) -> Told {
    let events = events(stream);
    match form {
        Form::Chat => chat(events),
        Form::Messages => messages(&events),
        Form::Responses => responses(&events),
        Form::Generate => generate(&events),
    }
}

fn chat(mut events: Vec<Event>) -> Told {
    assert_eq!(events.pop().map(|event| event.data).as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events.iter().map(Event::json).collect();
    let first = chunks[0].clone();
    let mut told = Told {
        id: text(&first["id"]),
        model: text(&first["model"]),
        text: String::new(),
        reason: String::new(),
        usage: (0, 0),
    };
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    for (at, chunk) in chunks.iter().enumerate() {
        for name in ["id", "model", "object", "created"] {
            assert_eq!(chunk[name], first[name], "{name} of chunk {at}: {chunk}");
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            assert_eq!(at + 1, chunks.len(), "usage stands at the end");
            assert_eq!(chunk["choices"], serde_json::json!([]));
            told.usage = (number(&usage["prompt_tokens"]), number(&usage["completion_tokens"]));
            assert_eq!(number(&usage["total_tokens"]), told.usage.0 + told.usage.1);
            continue;
        }
        let choice = &chunk["choices"][0];
        assert_eq!(choice["index"], 0);
        assert!(told.reason.is_empty(), "a chunk behind the reason: {chunk}");
        assert!(at == 0 || choice["delta"].get("role").is_none(), "a second role: {chunk}");
        told.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        told.reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    told
}

fn messages(events: &[Event]) -> Told {
    let (mut told, mut open, mut next) = (None::<Told>, None, 0);
    for event in events {
        let data = event.json();
        assert_eq!(data["type"], event.name.as_str());
        match &*event.name {
            "message_start" => {
                assert!(told.is_none(), "a second message_start");
                let message = &data["message"];
                told = Some(Told {
                    id: text(&message["id"]),
                    model: text(&message["model"]),
                    text: String::new(),
                    reason: String::new(),
                    usage: (number(&message["usage"]["input_tokens"]), 0),
                });
            }
            "ping" => {}
            "content_block_start" => {
                assert_eq!((open, number(&data["index"])), (None, next), "{data}");
                assert!(told.as_ref().is_some_and(|told| told.reason.is_empty()));
                open = Some(next);
                next += 1;
            }
            "content_block_delta" => {
                assert_eq!(open, Some(number(&data["index"])), "{data}");
                told.as_mut().unwrap().text.push_str(data["delta"]["text"].as_str().unwrap_or_default());
            }
            "content_block_stop" => assert_eq!(open.take(), Some(number(&data["index"]))),
            "message_delta" => {
                assert_eq!(open, None);
                let told = told.as_mut().unwrap();
                assert!(told.reason.is_empty(), "a second reason");
                told.reason = text(&data["delta"]["stop_reason"]);
                let usage = &data["usage"];
                told.usage.1 = number(&usage["output_tokens"]);
                told.usage.0 = usage["input_tokens"].as_u64().unwrap_or(told.usage.0);
            }
            "message_stop" => assert_eq!(event, events.last().unwrap()),
            other => panic!("{other}: {data}"),
        }
    }
    assert_eq!(events.last().unwrap().name, "message_stop");
    told.unwrap()
}

fn responses(events: &[Event]) -> Told {
    let (mut said, mut item) = (String::new(), None);
    for (at, event) in events.iter().enumerate() {
        let data = event.json();
        assert_eq!(number(&data["sequence_number"]), at as u64, "{data}");
        assert_eq!(data["type"], event.name.as_str());
        match &*event.name {
            "response.created" => assert_eq!(at, 0),
            "response.output_item.added" => {
                assert_eq!(data["output_index"], 0, "a second item: {data}");
                item = Some(text(&data["item"]["id"]));
            }
            "response.output_text.delta" => {
                assert_eq!(data["item_id"].as_str(), item.as_deref());
                said.push_str(data["delta"].as_str().unwrap());
            }
            "response.output_text.done" => assert_eq!(data["text"], said.as_str()),
            _ => {}
        }
    }
    let (first, last) = (events[0].json(), events.last().unwrap().json());
    let (begun, done) = (&first["response"], &last["response"]);
    assert_eq!(begun["id"], done["id"]);
    assert_eq!(begun["model"], done["model"]);
    assert_eq!(done["output"][0]["content"][0]["text"], said.as_str());
    assert_eq!(done["output"].as_array().unwrap().len(), 1);
    Told {
        id: text(&done["id"]),
        model: text(&done["model"]),
        text: said,
        reason: text(&done["status"]),
        usage: (number(&done["usage"]["input_tokens"]), number(&done["usage"]["output_tokens"])),
    }
}

fn generate(events: &[Event]) -> Told {
    let chunks: Vec<Value> = events.iter().map(Event::json).collect();
    let mut told = Told {
        id: text(&chunks[0]["responseId"]),
        model: text(&chunks[0]["modelVersion"]),
        text: String::new(),
        reason: String::new(),
        usage: (0, 0),
    };
    for chunk in &chunks {
        assert_eq!(
            (text(&chunk["responseId"]), text(&chunk["modelVersion"])),
            (told.id.clone(), told.model.clone())
        );
        assert!(told.reason.is_empty(), "a chunk behind the reason: {chunk}");
        let candidate = &chunk["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            told.text.push_str(part["text"].as_str().unwrap_or_default());
        }
        told.reason.push_str(candidate["finishReason"].as_str().unwrap_or_default());
        if let Some(usage) = chunk.get("usageMetadata") {
            told.usage =
                (number(&usage["promptTokenCount"]), usage["candidatesTokenCount"].as_u64().unwrap_or(0));
        }
    }
    assert!(!told.reason.is_empty());
    told
}
