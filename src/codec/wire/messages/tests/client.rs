//! Test client of this format: accumulates a stream as the official SDKs do, and checks its grammar more strictly.

use serde_json::{Value, json};

/// State of the client at the end of a stream.
#[derive(Debug)]
pub(super) struct Heard {
    /// Accumulated message.
    pub(super) message: Value,
    /// Name and data of each event.
    pub(super) events: Vec<(String, Value)>,
    /// Error that ended the stream.
    pub(super) error: Option<Value>,
}

impl Heard {
    /// Reads a stream.
    pub(super) fn to(stream: &str) -> Self {
        let mut heard = Heard { message: Value::Null, events: Vec::new(), error: None };
        let mut open = None;
        let mut arguments = String::new();
        let mut stopped = false;
        for frame in stream.split_terminator("\n\n") {
            let (name, data) = frame.split_once('\n').expect(frame);
            let name = name.strip_prefix("event: ").expect(frame);
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect(frame)).expect(frame);
            assert_eq!(data["type"], name, "{frame}");
            assert!(!stopped && heard.error.is_none(), "after the end: {frame}");
            heard.events.push((name.to_owned(), data.clone()));
            if name == "ping" {
                continue;
            }
            if name == "error" {
                heard.error = Some(data["error"].clone());
                continue;
            }
            if name == "message_start" {
                assert!(heard.message.is_null(), "a second start");
                heard.message = data["message"].clone();
                continue;
            }
            let message = heard.message.as_object_mut().expect("an event before the start");
            let content = message["content"].as_array_mut().unwrap();
            match name {
                "content_block_start" => {
                    assert_eq!(open, None, "a block inside a block: {frame}");
                    assert_eq!(data["index"], content.len(), "{frame}");
                    open = Some(content.len());
                    arguments.clear();
                    content.push(data["content_block"].clone());
                }
                "content_block_delta" => {
                    assert_eq!(data["index"].as_u64().map(|index| index as usize), open, "{frame}");
                    delta(content.last_mut().unwrap(), &data["delta"], &mut arguments);
                }
                "content_block_stop" => {
                    assert_eq!(data["index"].as_u64().map(|index| index as usize), open.take(), "{frame}");
                }
                "message_delta" => {
                    assert_eq!(open, None, "{frame}");
                    assert!(message["stop_reason"].is_null(), "a second message_delta");
                    for (key, value) in data["delta"].as_object().unwrap() {
                        message[key] = value.clone();
                    }
                    assert!(data["usage"]["output_tokens"].is_u64(), "{frame}");
                    for (key, value) in data["usage"].as_object().unwrap() {
                        message["usage"][key] = value.clone();
                    }
                }
                "message_stop" => {
                    assert!(message["stop_reason"].is_string(), "{frame}");
                    stopped = true;
                }
                _ => panic!("{frame}"),
            }
        }
        assert!(stopped || heard.error.is_some(), "neither a stop nor an error: {stream}");
        heard
    }

    /// Returns the blocks of the message.
    pub(super) fn content(&self) -> &Value {
        &self.message["content"]
    }

    /// Returns the names of the events, without pings.
    pub(super) fn names(&self) -> Vec<&str> {
        self.events.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "ping").collect()
    }
}

fn delta(block: &mut Value, delta: &Value, arguments: &mut String) {
    let add = |slot: &mut Value, text: &Value| {
        *slot = Value::from(slot.as_str().unwrap().to_owned() + text.as_str().unwrap());
    };
    match (block["type"].as_str().unwrap(), delta["type"].as_str().unwrap()) {
        ("text", "text_delta") => add(&mut block["text"], &delta["text"]),
        ("text", "citations_delta") => match block["citations"].as_array_mut() {
            Some(list) => list.push(delta["citation"].clone()),
            None => block["citations"] = json!([delta["citation"]]),
        },
        ("thinking", "thinking_delta") => add(&mut block["thinking"], &delta["thinking"]),
        ("thinking", "signature_delta") => block["signature"] = delta["signature"].clone(),
        ("tool_use", "input_json_delta") => {
            arguments.push_str(delta["partial_json"].as_str().unwrap());
            if arguments.is_empty() {
                return;
            }
            match serde_json::from_str(arguments) {
                Ok(input) => block["input"] = input,
                // The SDKs raise an exception at text that cannot become JSON any more.
                Err(error) => assert!(error.is_eof(), "{error}: {arguments}"),
            }
        }
        (kind, delta) => panic!("{delta} in a block of {kind}"),
    }
}
