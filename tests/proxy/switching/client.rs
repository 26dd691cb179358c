//! Clients of the five formats that keep their part of a conversation as their SDKs do: whole turns of the model, as
//! they came.

use serde_json::{Value, json};

use crate::support::aws::{ACCESS_KEY_ID, SECRET, Signing, messages};
use crate::support::client::{Answer, post};
use crate::support::gateway::Gateway;
use crate::support::setup::{Setup, key};
use crate::support::sse::told;

/// PNG of one pixel.
pub(super) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Chat,
    Messages,
    Responses,
    Generate,
    Converse,
}

impl Format {
    pub(super) const ALL: [Format; 5] =
        [Format::Chat, Format::Messages, Format::Responses, Format::Generate, Format::Converse];
}

/// Adds the key of the clients of Converse, which sign their requests.
pub(super) fn with_access_key(mut setup: Setup) -> Setup {
    let access = format!("access_key = {{ id = \"{ACCESS_KEY_ID}\", secret = {{ file = \"aws-secret\" }} }}");
    setup.keys += &key("ann", "client-key-of-ann-0010", &access);
    setup.file("aws-secret", SECRET)
}

/// Client with its part of the conversation.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) format: Format,
    pub(super) stream: bool,
    /// Whether it keeps only texts, calls and their ids.
    pub(super) forgets: bool,
    pub(super) items: Vec<Value>,
    /// Calls that wait for their results: ids and names.
    pub(super) open: Vec<(Value, String)>,
}

impl Client {
    pub(super) fn new(format: Format, stream: bool) -> Client {
        Client { format, stream, forgets: false, items: Vec::new(), open: Vec::new() }
    }

    /// Appends a turn of the user.
    pub(super) fn say(&mut self, text: &str, pictured: bool) {
        let url = format!("data:image/png;base64,{PICTURE}");
        let (mut parts, role) = match self.format {
            Format::Chat | Format::Messages => (vec![json!({"type": "text", "text": text})], "user"),
            Format::Responses => (vec![json!({"type": "input_text", "text": text})], "user"),
            Format::Generate | Format::Converse => (vec![json!({"text": text})], "user"),
        };
        if pictured {
            parts.push(match self.format {
                Format::Chat => json!({"type": "image_url", "image_url": {"url": url}}),
                Format::Messages => json!({"type": "image", "source":
                    {"type": "base64", "media_type": "image/png", "data": PICTURE}}),
                Format::Responses => json!({"type": "input_image", "image_url": url, "detail": "auto"}),
                Format::Generate => json!({"inlineData": {"mimeType": "image/png", "data": PICTURE}}),
                Format::Converse => json!({"image": {"format": "png", "source": {"bytes": PICTURE}}}),
            });
        }
        let member = if self.format == Format::Generate { "parts" } else { "content" };
        self.items.push(json!({"role": role, member: parts}));
    }

    /// Appends the results of the calls of the last turn.
    pub(super) fn run_tools(&mut self) {
        let open = std::mem::take(&mut self.open);
        let text = |name: &str| format!("{name} has found é");
        let results = open.into_iter().map(|(id, name)| match self.format {
            Format::Chat => json!({"role": "tool", "tool_call_id": id, "content": text(&name)}),
            Format::Messages => json!({"type": "tool_result", "tool_use_id": id, "content": text(&name)}),
            Format::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": text(&name)})
            }
            Format::Generate => {
                json!({"functionResponse": {"id": id, "name": name, "response": {"output": text(&name)}}})
            }
            Format::Converse => json!({"toolResult": {"toolUseId": id, "content": [{"text": text(&name)}]}}),
        });
        let results: Vec<Value> = results.collect();
        match self.format {
            Format::Chat | Format::Responses => self.items.extend(results),
            Format::Messages | Format::Converse => {
                self.items.push(json!({"role": "user", "content": results}));
            }
            Format::Generate => self.items.push(json!({"role": "user", "parts": results})),
        }
    }

    pub(super) fn body(&self, model: &str) -> Value {
        let (items, stream) = (&self.items, self.stream);
        let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
        let tools = |tool: &dyn Fn(&str) -> Value| json!([tool("look"), tool("find")]);
        match self.format {
            Format::Chat => {
                let tools = tools(
                    &|name| json!({"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}),
                );
                json!({"model": model, "stream": stream, "messages": items, "reasoning_effort": "medium",
                    "tools": tools})
            }
            Format::Messages => {
                let tools = tools(&|name| json!({"name": name, "description": "d", "input_schema": schema}));
                json!({"model": model, "stream": stream, "max_tokens": 9000, "messages": items,
                    "thinking": {"type": "enabled", "budget_tokens": 2000}, "tools": tools})
            }
            Format::Responses => {
                let tools = tools(
                    &|name| json!({"type": "function", "name": name, "description": "d", "parameters": schema}),
                );
                json!({"model": model, "stream": stream, "input": items, "store": false,
                    "include": ["reasoning.encrypted_content"],
                    "reasoning": {"effort": "medium", "summary": "auto"}, "tools": tools})
            }
            Format::Generate => {
                let tools =
                    tools(&|name| json!({"name": name, "description": "d", "parametersJsonSchema": schema}));
                json!({"contents": items, "tools": [{"functionDeclarations": tools}],
                    "generationConfig": {"thinkingConfig": {"includeThoughts": true, "thinkingBudget": 2000}}})
            }
            Format::Converse => {
                let fields = match model {
                    // Other makers' models refuse the setting of Claude.
                    "at-nova" => json!({}),
                    _ => json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}),
                };
                let tools = tools(
                    &|name| json!({"toolSpec": {"name": name, "description": "d", "inputSchema": {"json": schema}}}),
                );
                json!({"messages": items, "inferenceConfig": {"maxTokens": 9000},
                    "additionalModelRequestFields": fields,
                    "toolConfig": {"tools": tools}})
            }
        }
    }

    fn path(&self, model: &str) -> String {
        match (self.format, self.stream) {
            (Format::Chat, _) => "/v1/chat/completions".to_owned(),
            (Format::Messages, _) => "/v1/messages".to_owned(),
            (Format::Responses, _) => "/v1/responses".to_owned(),
            (Format::Generate, true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            (Format::Generate, false) => format!("/v1beta/models/{model}:generateContent"),
            (Format::Converse, true) => format!("/model/{model}/converse-stream"),
            (Format::Converse, false) => format!("/model/{model}/converse"),
        }
    }

    /// Asks a model, and appends its turn.
    pub(super) async fn ask(&mut self, gateway: &Gateway, model: &str) {
        let body = self.body(model).to_string();
        let path = self.path(model);
        let request = match self.format {
            Format::Converse => Signing::default().post(&path, body.as_bytes()),
            _ => post(&path, body.clone()),
        };
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status(), 200, "{:?} at {model}: {}\n{body}", self.format, answer.everything());
        let turn = if self.stream { self.heard(&answer) } else { whole(self.format, &answer.json()) };
        self.take(turn);
    }

    /// Appends a turn of the model: messages or items.
    pub(super) fn take(&mut self, mut turn: Vec<Value>) {
        if self.forgets {
            turn.retain(|item| item["type"] != "reasoning");
            turn.iter_mut().for_each(forget);
        }
        for item in &turn {
            let blocks = |name: &str| item[name].as_array().cloned().unwrap_or_default();
            let named = |call: &Value, id: &str, name: &Value| {
                (call[id].clone(), name.as_str().unwrap_or_default().to_owned())
            };
            match self.format {
                Format::Chat => self.open.extend(
                    blocks("tool_calls").iter().map(|call| named(call, "id", &call["function"]["name"])),
                ),
                Format::Messages => self.open.extend(
                    blocks("content")
                        .iter()
                        .filter(|block| block["type"] == "tool_use")
                        .map(|call| named(call, "id", &call["name"])),
                ),
                Format::Responses if item["type"] == "function_call" => {
                    self.open.push(named(item, "call_id", &item["name"]));
                }
                Format::Responses => {}
                Format::Generate => self.open.extend(
                    blocks("parts")
                        .iter()
                        .filter_map(|part| part.get("functionCall"))
                        .map(|call| named(call, "id", &call["name"])),
                ),
                Format::Converse => self.open.extend(
                    blocks("content")
                        .iter()
                        .filter_map(|block| block.get("toolUse"))
                        .map(|call| named(call, "toolUseId", &call["name"])),
                ),
            }
        }
        self.items.extend(turn);
    }

    /// Returns the turn of a stream.
    fn heard(&self, answer: &Answer) -> Vec<Value> {
        assert!(answer.complete, "{}", answer.everything());
        if self.format == Format::Converse {
            return vec![heard_converse(answer)];
        }
        let events = told(answer.text());
        match self.format {
            Format::Chat => vec![heard_chat(&events.iter().map(|event| &*event.data).collect::<Vec<_>>())],
            Format::Messages => {
                vec![heard_messages(&events.iter().map(|event| event.json()).collect::<Vec<_>>())]
            }
            Format::Responses => {
                let last = events.last().unwrap();
                assert_eq!(last.name, "response.completed", "{}", answer.text());
                whole(Format::Responses, &last.json()["response"])
            }
            _ => {
                let mut parts = Vec::new();
                for event in &events {
                    let chunk = event.json();
                    parts.extend(
                        chunk["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default(),
                    );
                }
                vec![json!({"role": "model", "parts": parts})]
            }
        }
    }
}

/// Leaves only texts, calls and their ids of a turn.
fn forget(item: &mut Value) {
    let members = item.as_object_mut().unwrap();
    members.retain(|name, _| !name.starts_with("reasoning"));
    for name in ["content", "parts"] {
        let Some(blocks) = members.get_mut(name).and_then(Value::as_array_mut) else { continue };
        blocks.retain(|block| {
            block["type"] != "thinking" && block["thought"] != true && block["reasoningContent"].is_null()
        });
        for block in blocks {
            block.as_object_mut().unwrap().remove("thoughtSignature");
        }
    }
}

/// Returns the turn of a document.
pub(super) fn whole(format: Format, answer: &Value) -> Vec<Value> {
    match format {
        Format::Chat => vec![answer["choices"][0]["message"].clone()],
        Format::Messages => vec![json!({"role": "assistant", "content": answer["content"]})],
        Format::Responses => answer["output"].as_array().unwrap().clone(),
        Format::Generate => vec![answer["candidates"][0]["content"].clone()],
        Format::Converse => vec![answer["output"]["message"].clone()],
    }
}

fn append(place: &mut Value, piece: &Value) {
    if let Some(piece) = piece.as_str() {
        *place = json!(format!("{}{piece}", place.as_str().unwrap_or_default()));
    }
}

fn heard_chat(events: &[&str]) -> Value {
    assert_eq!(events.last(), Some(&"[DONE]"));
    let mut message = json!({"role": "assistant", "content": null});
    for event in &events[..events.len() - 1] {
        let chunk: Value = serde_json::from_str(event).unwrap();
        let delta = &chunk["choices"][0]["delta"];
        for name in ["content", "reasoning_content"] {
            append(&mut message[name], &delta[name]);
        }
        if let Some(details) = delta["reasoning_details"].as_array() {
            if message["reasoning_details"].is_null() {
                message["reasoning_details"] = json!([]);
            }
            message["reasoning_details"].as_array_mut().unwrap().extend(details.iter().cloned());
        }
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = piece["index"].as_u64().unwrap() as usize;
            if message["tool_calls"].is_null() {
                message["tool_calls"] = json!([]);
            }
            let calls = message["tool_calls"].as_array_mut().unwrap();
            if calls.len() == index {
                calls.push(json!({"id": piece["id"], "type": "function",
                    "function": {"name": piece["function"]["name"], "arguments": ""}}));
            }
            append(&mut calls[index]["function"]["arguments"], &piece["function"]["arguments"]);
        }
    }
    message.as_object_mut().unwrap().retain(|name, value| name == "content" || !value.is_null());
    message
}

fn heard_messages(events: &[Value]) -> Value {
    let (mut blocks, mut inputs): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                blocks.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let (index, delta) = (event["index"].as_u64().unwrap() as usize, &event["delta"]);
                for name in ["text", "thinking", "signature"] {
                    append(&mut blocks[index][name], &delta[name]);
                }
                inputs[index] += delta["partial_json"].as_str().unwrap_or_default();
            }
            "error" => panic!("{event}"),
            _ => {}
        }
    }
    for (block, input) in blocks.iter_mut().zip(inputs) {
        block.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).unwrap();
        }
    }
    json!({"role": "assistant", "content": blocks})
}

fn heard_converse(answer: &Answer) -> Value {
    let (events, rest) = messages(&answer.body);
    assert_eq!(rest, 0);
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for event in &events {
        let payload = &event.payload;
        let index = payload["contentBlockIndex"].as_u64().unwrap_or_default() as usize;
        if matches!(event.name(), "contentBlockStart" | "contentBlockDelta") {
            blocks.resize(blocks.len().max(index + 1), json!({}));
            inputs.resize(inputs.len().max(index + 1), String::new());
        }
        match event.name() {
            "contentBlockStart" => blocks[index] = payload["start"].clone(),
            "contentBlockDelta" => {
                let delta = &payload["delta"];
                if delta["text"].is_string() {
                    append(&mut blocks[index]["text"], &delta["text"]);
                }
                let reasoning = &delta["reasoningContent"];
                for name in ["text", "signature"] {
                    if reasoning[name].is_string() {
                        append(
                            &mut blocks[index]["reasoningContent"]["reasoningText"][name],
                            &reasoning[name],
                        );
                    }
                }
                if reasoning["redactedContent"].is_string() {
                    blocks[index]["reasoningContent"]["redactedContent"] =
                        reasoning["redactedContent"].clone();
                }
                inputs[index] += delta["toolUse"]["input"].as_str().unwrap_or_default();
            }
            "messageStart" | "contentBlockStop" | "messageStop" | "metadata" => {}
            other => panic!("{other}: {payload}"),
        }
    }
    for (block, input) in blocks.iter_mut().zip(inputs) {
        if block["toolUse"].is_object() {
            let input = if input.is_empty() { "{}" } else { &input };
            block["toolUse"]["input"] = serde_json::from_str(input).unwrap();
        }
        block.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    json!({"role": "assistant", "content": blocks})
}
