//! Random conversations for property tests, as clients of each format send them.

use base64_simd::STANDARD;
use model_gateway::canonical::seal::SealedSignature;
use model_gateway::json::JsonStr;
use model_gateway::wire::Format;
use serde_json::{Value, json};

/// Tool arguments with unsorted members and a number that a careless parser would round.
const ARGUMENTS: [&str; 4] = [
    r#"{"zeta":1.50,"alpha":{"y":"é","b":[1,2]}}"#,
    "{}",
    r#"{"q":"a \"quoted\" word\n"}"#,
    r#"{"b":null,"a":1e3}"#,
];
const TEXTS: [&str; 5] = ["Hello", "a \"quoted\" é\nline", "{\"json\":true}", "x", "One.\n\nTwo."];
/// Schema with unsorted members.
pub(crate) const SCHEMA: &str = r#"{"type":"object","required":["zeta"],"properties":{"zeta":{"type":"number"},"alpha":{"type":"object"}}}"#;
/// Image of one pixel, PNG in base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Message of a conversation.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    User {
        texts: Vec<&'static str>,
        image: bool,
    },
    Model {
        thought: Option<String>,
        text: Option<&'static str>,
        calls: Vec<Call>,
    },
    /// Tool results, in the order of the calls.
    Results(Vec<Answered>),
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) arguments: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Answered {
    id: String,
    text: &'static str,
    image: bool,
    error: bool,
}

/// Source of choices. When it is exhausted, every choice is the first alternative.
pub(crate) struct Choices<'c>(std::slice::Iter<'c, u8>);

impl<'c> Choices<'c> {
    pub(crate) fn new(choices: &'c [u8]) -> Self {
        Choices(choices.iter())
    }

    fn of(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or_default()) % count
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.of(all.len())]
    }

    fn is_left(&self) -> bool {
        !self.0.as_slice().is_empty()
    }
}

/// Returns a conversation that ends with the user or with tool results.
pub(crate) fn conversation(choices: &mut Choices<'_>) -> Vec<Message> {
    let mut messages = vec![user(choices)];
    let mut calls_so_far = 0;
    while choices.is_left() {
        let calls: Vec<Call> = (0..choices.of(4))
            .map(|_| {
                calls_so_far += 1;
                Call { id: format!("call_{calls_so_far}"), arguments: choices.one(&ARGUMENTS) }
            })
            .collect();
        let thought = (choices.of(3) == 1).then(|| format!("seal-{}/+=", messages.len()));
        let text = (calls.is_empty() || choices.of(2) == 1).then(|| choices.one(&TEXTS));
        messages.push(Message::Model { thought, text, calls: calls.clone() });
        if calls.is_empty() {
            messages.push(user(choices));
        } else {
            let results = calls.into_iter().map(|call| Answered {
                id: call.id,
                text: choices.one(&TEXTS),
                image: choices.of(6) == 1,
                error: choices.of(6) == 1,
            });
            messages.push(Message::Results(results.collect()));
            if choices.of(4) == 1 {
                messages.push(user(choices));
            }
        }
    }
    messages
}

fn user(choices: &mut Choices<'_>) -> Message {
    let texts = (0..1 + choices.of(2)).map(|_| choices.one(&TEXTS)).collect();
    Message::User { texts, image: choices.of(5) == 1 }
}

/// Returns a provider signature as a client of `format` received it from the gateway.
pub(crate) fn envelope(issuer: &str, seal: &str, format: Format) -> String {
    let mut out = Vec::new();
    SealedSignature { issuer, text: JsonStr::from_escaped(seal) }.write(&mut out);
    let text = String::from_utf8(out).unwrap();
    if format == Format::Generate { STANDARD.encode_to_string(text) } else { text }
}

fn raw(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the body of a request. With `mark`, the last part has a cache mark if the format has such marks.
pub(crate) fn body(format: Format, messages: &[Message], issuer: &str, mark: bool) -> String {
    // Arguments are inserted as text: a JSON tree would change the spelling of numbers.
    let hole = |number: usize| format!("HOLE-{number}-");
    let mut holes = Vec::new();
    let mut arguments = |text: &'static str| {
        holes.push(text);
        Value::String(hole(holes.len()))
    };
    let system = "Be helpful. é";
    let mut items = Vec::new();
    for message in messages {
        match format {
            Format::Chat => chat(message, issuer, &mut items),
            Format::Messages => anthropic(message, issuer, &mut items, &mut arguments),
            Format::Responses => responses(message, issuer, &mut items),
            Format::Generate => generate(message, issuer, &mut items, &mut arguments),
            Format::Converse => converse(message, issuer, &mut items, &mut arguments),
        }
    }
    let schema = arguments(SCHEMA);
    let body = match format {
        Format::Chat => {
            items.insert(0, json!({"role": "system", "content": system}));
            json!({"messages": items, "model": "m", "max_tokens": 100,
                "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}]})
        }
        Format::Messages => {
            if mark
                && let Some(last) =
                    items.last_mut().and_then(|item| item["content"].as_array_mut()?.last_mut())
            {
                last["cache_control"] = json!({"type": "ephemeral"});
            }
            json!({"messages": items, "model": "m", "max_tokens": 100, "system": system,
                "tools": [{"name": "look", "input_schema": schema}]})
        }
        Format::Responses => {
            json!({"input": items, "model": "m", "max_output_tokens": 100, "instructions": system,
            "tools": [{"type": "function", "name": "look", "parameters": schema}]})
        }
        Format::Generate => json!({"contents": items, "systemInstruction": {"parts": [{"text": system}]},
            "generationConfig": {"maxOutputTokens": 100},
            "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": schema}]}]}),
        Format::Converse => json!({"messages": items, "system": [{"text": system}],
            "inferenceConfig": {"maxTokens": 100},
            "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": schema}}}]}}),
    };
    let mut text = body.to_string();
    for (number, value) in holes.iter().enumerate() {
        text = text.replace(&format!("\"{}\"", hole(number + 1)), value);
    }
    raw(&text); // Checks that it is JSON.
    text
}

fn data_url() -> String {
    format!("data:image/png;base64,{PIXEL}")
}

fn chat(message: &Message, issuer: &str, items: &mut Vec<Value>) {
    let picture = || json!({"type": "image_url", "image_url": {"url": data_url()}});
    match message {
        Message::User { texts, image } => {
            let mut parts: Vec<Value> =
                texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            parts.extend(image.then(picture));
            items.push(json!({"role": "user", "content": parts}));
        }
        Message::Model { thought, text, calls } => {
            let mut item = json!({"role": "assistant", "content": text});
            if let Some(seal) = thought {
                item["reasoning_content"] = json!("I think.");
                item["reasoning_details"] = json!([{"type": "reasoning.text", "text": "I think.",
                    "signature": envelope(issuer, seal, Format::Chat), "index": 0}]);
            }
            if !calls.is_empty() {
                let call = |call: &Call| {
                    json!({"id": call.id, "type": "function",
                    "function": {"name": "look", "arguments": call.arguments}})
                };
                item["tool_calls"] = calls.iter().map(call).collect();
            }
            items.push(item);
        }
        Message::Results(results) => {
            for result in results {
                let mut content = vec![json!({"type": "text", "text": result.text})];
                content.extend(result.image.then(picture));
                items.push(json!({"role": "tool", "tool_call_id": result.id, "content": content}));
            }
        }
    }
}

fn anthropic(
    message: &Message,
    issuer: &str,
    items: &mut Vec<Value>,
    arguments: &mut impl FnMut(&'static str) -> Value,
) {
    let words = |text: &str| json!({"type": "text", "text": text});
    let picture =
        || json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}});
    match message {
        Message::User { texts, image } => {
            let mut parts: Vec<Value> = texts.iter().map(|text| words(text)).collect();
            parts.extend(image.then(picture));
            items.push(json!({"role": "user", "content": parts}));
        }
        Message::Model { thought, text, calls } => {
            let mut parts = Vec::new();
            if let Some(seal) = thought {
                let signature = envelope(issuer, seal, Format::Messages);
                parts.push(json!({"type": "thinking", "thinking": "I think.", "signature": signature}));
            }
            parts.extend(text.map(words));
            for call in calls {
                let input = arguments(call.arguments);
                parts.push(json!({"type": "tool_use", "id": call.id, "name": "look", "input": input}));
            }
            items.push(json!({"role": "assistant", "content": parts}));
        }
        Message::Results(results) => {
            let result = |result: &Answered| {
                let mut content = vec![words(result.text)];
                content.extend(result.image.then(picture));
                json!({"type": "tool_result", "tool_use_id": result.id, "content": content, "is_error": result.error})
            };
            items.push(json!({"role": "user", "content": results.iter().map(result).collect::<Vec<_>>()}));
        }
    }
}

fn responses(message: &Message, issuer: &str, items: &mut Vec<Value>) {
    let words = |text: &str| json!({"type": "input_text", "text": text});
    let picture = || json!({"type": "input_image", "image_url": data_url()});
    match message {
        Message::User { texts, image } => {
            let mut parts: Vec<Value> = texts.iter().map(|text| words(text)).collect();
            parts.extend(image.then(picture));
            items.push(json!({"role": "user", "content": parts}));
        }
        Message::Model { thought, text, calls } => {
            if let Some(seal) = thought {
                items.push(json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}],
                    "encrypted_content": envelope(issuer, seal, Format::Responses)}));
            }
            if let Some(text) = text {
                items.push(json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]}));
            }
            for call in calls {
                items.push(json!({"type": "function_call", "call_id": call.id, "name": "look", "arguments": call.arguments}));
            }
        }
        Message::Results(results) => {
            for result in results {
                let mut content = vec![words(result.text)];
                content.extend(result.image.then(picture));
                items.push(json!({"type": "function_call_output", "call_id": result.id, "output": content}));
            }
        }
    }
}

fn generate(
    message: &Message,
    issuer: &str,
    items: &mut Vec<Value>,
    arguments: &mut impl FnMut(&'static str) -> Value,
) {
    let picture = || json!({"inlineData": {"mimeType": "image/png", "data": PIXEL}});
    match message {
        Message::User { texts, image } => {
            let mut parts: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
            parts.extend(image.then(picture));
            items.push(json!({"role": "user", "parts": parts}));
        }
        Message::Model { thought, text, calls } => {
            let mut parts = Vec::new();
            if let Some(seal) = thought {
                let signature = envelope(issuer, seal, Format::Generate);
                parts.push(json!({"text": "I think.", "thought": true, "thoughtSignature": signature}));
            }
            parts.extend(text.map(|text| json!({"text": text})));
            for call in calls {
                let args = arguments(call.arguments);
                parts.push(json!({"functionCall": {"id": call.id, "name": "look", "args": args}}));
            }
            items.push(json!({"role": "model", "parts": parts}));
        }
        Message::Results(results) => {
            let mut parts: Vec<Value> = Vec::new();
            for result in results {
                let name = if result.error { "error" } else { "output" };
                parts.push(json!({"functionResponse": {"id": result.id, "name": "look", "response": {name: result.text}}}));
            }
            items.push(json!({"role": "user", "parts": parts}));
        }
    }
}

fn converse(
    message: &Message,
    issuer: &str,
    items: &mut Vec<Value>,
    arguments: &mut impl FnMut(&'static str) -> Value,
) {
    let words = |text: &str| json!({"text": text});
    let picture = || json!({"image": {"format": "png", "source": {"bytes": PIXEL}}});
    match message {
        Message::User { texts, image } => {
            let mut parts: Vec<Value> = texts.iter().map(|text| words(text)).collect();
            parts.extend(image.then(picture));
            items.push(json!({"role": "user", "content": parts}));
        }
        Message::Model { thought, text, calls } => {
            let mut parts = Vec::new();
            if let Some(seal) = thought {
                let signature = envelope(issuer, seal, Format::Converse);
                let reasoning = json!({"text": "I think.", "signature": signature});
                parts.push(json!({"reasoningContent": {"reasoningText": reasoning}}));
            }
            parts.extend(text.map(words));
            for call in calls {
                let input = arguments(call.arguments);
                parts.push(json!({"toolUse": {"toolUseId": call.id, "name": "look", "input": input}}));
            }
            items.push(json!({"role": "assistant", "content": parts}));
        }
        Message::Results(results) => {
            let result = |result: &Answered| {
                let mut content = vec![words(result.text)];
                content.extend(result.image.then(picture));
                let status = if result.error { "error" } else { "success" };
                json!({"toolResult": {"toolUseId": result.id, "content": content, "status": status}})
            };
            items.push(json!({"role": "user", "content": results.iter().map(result).collect::<Vec<_>>()}));
        }
    }
}
