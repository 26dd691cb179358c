//! Response writer of `POST /v1/responses`, whole and streamed.

use serde_json::{Map, Value, json};

use super::super::clock;
use super::super::http::Reply;
use super::super::ids::{self, Ids};
use super::super::script::{Finish, Plan};
use super::super::stream::{Frame, Kind, Pacing, schedule};
use super::super::text::{fragments, words};
use super::compaction;
use super::errors::server_error;
use super::responses::Asked;
use super::store::{StoreView, Stored};

/// Returns the response, and stores it unless the request disables `store`.
pub(super) fn reply(asked: &Asked<'_>, store: StoreView<'_>, pacing: Pacing, mut ids: Ids) -> Reply {
    let plan = asked.ask.plan(0);
    let head = Head { id: ids.hex("resp_", 50), created: clock::unix(), asked, plan: &plan };
    let items = items(asked, &plan, &mut ids);
    let output: Vec<Value> = items.iter().map(Item::done).collect();
    let response = head.object(head.status(), &output);
    remember(asked, store, &response, &output, &mut ids);
    if !asked.stream {
        return Reply::json(200, &response);
    }
    let frames = head.frames(&items, response);
    let steps = schedule(frames, pacing, &asked.ask.directives, |at| head.failure(at));
    Reply::stream("text/event-stream; charset=utf-8", steps).with("cache-control", "no-cache")
}

/// Returns the stream of a response that has neither output nor usage.
pub(super) fn empty(asked: &Asked<'_>, store: StoreView<'_>, mut ids: Ids) -> Reply {
    let plan = asked.ask.plan(0);
    let head = Head { id: ids.hex("resp_", 50), created: clock::unix(), asked, plan: &plan };
    let mut response = head.object("completed", &[]);
    if let Some(usage) = response.get_mut("usage") {
        *usage = json!({"input_tokens": 0, "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
                        "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0});
    }
    remember(asked, store, &response, &[], &mut ids);
    let mut events = Events::default();
    events.push(Kind::Lead, "response.created", json!({"response": head.object("in_progress", &[])}));
    events.push(Kind::Other, "response.completed", json!({"response": response}));
    let steps = schedule(events.frames, Pacing::default(), &asked.ask.directives, |at| head.failure(at));
    Reply::stream("text/event-stream; charset=utf-8", steps)
}

/// Adds a response to those that can be continued.
fn remember(asked: &Asked<'_>, store: StoreView<'_>, response: &Value, output: &[Value], ids: &mut Ids) {
    let listed = |item: &Value| {
        let mut item = item.clone();
        if let Some(members) = item.as_object_mut().filter(|members| !members.contains_key("id")) {
            members.insert("id".to_owned(), json!(ids.hex("msg_", 50)));
        }
        item
    };
    let input: Vec<Value> = asked.input.iter().map(listed).collect();
    let history = asked.history.iter().chain(&asked.input).chain(output).cloned().collect();
    store.insert(Stored { response: response.clone(), input, history }, asked.store);
}

/// Item status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
        }
    }
}

/// Output item, with the pieces of its stream.
#[derive(Debug)]
struct Item {
    id: String,
    kind: ItemKind,
    pieces: Vec<String>,
    end: Status,
}

#[derive(Debug)]
enum ItemKind {
    /// Reasoning with encrypted content, if requested. Without a summary it has no pieces.
    Reasoning {
        encrypted: Option<String>,
        summary: bool,
    },
    Message {
        refusal: bool,
    },
    Call {
        call_id: String,
        name: String,
        custom: bool,
    },
    /// Compaction, which has no pieces and no status.
    Compaction {
        encrypted: String,
    },
}

fn items(asked: &Asked<'_>, plan: &Plan, ids: &mut Ids) -> Vec<Item> {
    if asked.compacts {
        let (id, encrypted) = compaction::item(ids);
        let kind = ItemKind::Compaction { encrypted };
        return vec![Item { id, kind, pieces: Vec::new(), end: Status::Completed }];
    }
    let mut items = Vec::new();
    if let Some(thinking) = &plan.thinking {
        let encrypted = asked.encrypted.then(|| ids::encrypted(ids.next()));
        items.push(Item {
            id: ids.hex("rs_", 50),
            kind: ItemKind::Reasoning { encrypted, summary: asked.summary },
            pieces: if asked.summary { words(thinking) } else { Vec::new() },
            end: Status::Completed,
        });
    }
    let silent = plan.pieces.is_empty() && (!plan.calls.is_empty() || plan.finish == Finish::Length);
    if !silent {
        items.push(Item {
            id: ids.hex("msg_", 50),
            kind: ItemKind::Message { refusal: plan.finish == Finish::Refused },
            pieces: plan.pieces.clone(),
            end: Status::Completed,
        });
    }
    for call in &plan.calls {
        items.push(Item {
            id: ids.hex(if call.custom { "ctc_" } else { "fc_" }, 50),
            kind: ItemKind::Call {
                call_id: ids.base62("call_", 24),
                name: call.name.clone(),
                custom: call.custom,
            },
            pieces: fragments(&call.arguments),
            end: Status::Completed,
        });
    }
    if let Some(last) = items.last_mut().filter(|_| matches!(plan.finish, Finish::Length | Finish::Word(_))) {
        last.end = Status::Incomplete;
    }
    items
}

impl Item {
    /// Returns the item as in the finished response.
    fn done(&self) -> Value {
        self.value(self.end, &self.pieces.concat())
    }

    fn value(&self, status: Status, text: &str) -> Value {
        let finished = status != Status::InProgress;
        match &self.kind {
            ItemKind::Reasoning { encrypted, summary } => {
                let parts = if *summary && finished { vec![summary_part(text)] } else { Vec::new() };
                let mut item = json!({"id": self.id, "type": "reasoning", "content": [], "summary": parts});
                if let Some((sealed, members)) = encrypted.as_ref().zip(item.as_object_mut()) {
                    members.insert("encrypted_content".to_owned(), json!(sealed));
                }
                if let Some(members) = item.as_object_mut().filter(|_| status == Status::Incomplete) {
                    members.insert("status".to_owned(), json!(status.name()));
                }
                item
            }
            ItemKind::Message { refusal } => {
                let content = if finished { vec![content_part(*refusal, text)] } else { Vec::new() };
                json!({"id": self.id, "type": "message", "status": status.name(), "content": content,
                       "role": "assistant"})
            }
            ItemKind::Call { call_id, name, custom: false } => {
                json!({"id": self.id, "type": "function_call", "status": status.name(), "arguments": text,
                       "call_id": call_id, "name": name})
            }
            ItemKind::Call { call_id, name, custom: true } => {
                json!({"id": self.id, "type": "custom_tool_call", "status": status.name(), "input": text,
                       "call_id": call_id, "name": name})
            }
            ItemKind::Compaction { encrypted } => {
                json!({"id": self.id, "type": "compaction", "encrypted_content": encrypted})
            }
        }
    }
}

fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

fn content_part(refusal: bool, text: &str) -> Value {
    match refusal {
        true => json!({"type": "refusal", "refusal": text}),
        false => json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text}),
    }
}

/// Data that all events of a response share.
struct Head<'a> {
    id: String,
    created: u64,
    asked: &'a Asked<'a>,
    plan: &'a Plan,
}

impl Head<'_> {
    fn status(&self) -> &'static str {
        match self.plan.finish {
            Finish::Length | Finish::Word(_) => "incomplete",
            _ => "completed",
        }
    }

    /// Returns the response object, which repeats the request's settings or their defaults.
    fn object(&self, status: &str, output: &[Value]) -> Value {
        let body = self.asked.body;
        let echo = |name: &str| body.get(name).cloned().unwrap_or(Value::Null);
        let or = |name: &str, default: Value| body.get(name).cloned().unwrap_or(default);
        let inner = |name: &str, member: &str| {
            body.get(name).and_then(|value| value.get(member)).cloned().unwrap_or(Value::Null)
        };
        let ended = matches!(status, "completed" | "incomplete");
        let reason = match &self.plan.finish {
            Finish::Word(word) => word.as_str(),
            _ => "max_output_tokens",
        };
        let incomplete = (status == "incomplete").then(|| json!({"reason": reason}));
        let completed_at = (status == "completed").then(clock::unix);
        let error = (status == "failed")
            .then(|| json!({"code": "server_error", "message": server_error(500).to_string()}));
        json!({"id": self.id, "object": "response", "created_at": self.created, "status": status,
               "background": or("background", json!(false)), "completed_at": completed_at, "error": error,
               "frequency_penalty": 0.0, "incomplete_details": incomplete, "instructions": echo("instructions"),
               "max_output_tokens": echo("max_output_tokens"), "max_tool_calls": echo("max_tool_calls"),
               "model": self.asked.ask.model, "moderation": null, "output": output,
               "parallel_tool_calls": or("parallel_tool_calls", json!(true)), "presence_penalty": 0.0,
               "previous_response_id": echo("previous_response_id"), "prompt_cache_key": echo("prompt_cache_key"),
               "prompt_cache_retention": or("prompt_cache_retention", json!("in_memory")),
               "reasoning": {"effort": inner("reasoning", "effort"), "summary": inner("reasoning", "summary")},
               "safety_identifier": echo("safety_identifier"),
               "service_tier": if ended { self.asked.tier } else { "auto" }, "store": self.asked.store,
               "temperature": or("temperature", json!(1.0)),
               "text": {"format": self.format(), "verbosity": match inner("text", "verbosity") {
                   Value::Null => json!("medium"),
                   given => given,
               }},
               "tool_choice": or("tool_choice", json!("auto")), "tools": self.tools(),
               "top_logprobs": or("top_logprobs", json!(0)), "top_p": or("top_p", json!(1.0)),
               "truncation": or("truncation", json!("disabled")),
               "usage": ended.then(|| self.usage()), "user": echo("user"), "metadata": or("metadata", json!({}))})
    }

    fn format(&self) -> Value {
        let format = self.asked.body.get("text").and_then(|text| text.get("format"));
        match format {
            Some(given) if given.get("schema").is_some() => {
                let member = |name: &str| given.get(name).cloned().unwrap_or(Value::Null);
                json!({"type": "json_schema", "description": member("description"), "name": member("name"),
                       "schema": member("schema"),
                       "strict": given.get("strict").and_then(Value::as_bool).unwrap_or(false)})
            }
            Some(given) => given.clone(),
            None => json!({"type": "text"}),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let tools = self.asked.body.get("tools").and_then(Value::as_array);
        let echo = |tool: &Value| {
            let member = |name: &str| tool.get(name).cloned().unwrap_or(Value::Null);
            match tool.get("type").and_then(Value::as_str) {
                Some("function") => json!({"type": "function", "description": member("description"),
                    "name": member("name"), "parameters": member("parameters"),
                    "strict": tool.get("strict").and_then(Value::as_bool).unwrap_or(true)}),
                _ => tool.clone(),
            }
        };
        tools.into_iter().flatten().map(echo).collect()
    }

    fn usage(&self) -> Value {
        let (input, output) = (self.asked.ask.prompt_tokens, self.plan.output_tokens());
        json!({"input_tokens": input,
               "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": self.asked.ask.cached_tokens()},
               "output_tokens": output, "output_tokens_details": {"reasoning_tokens": self.plan.thinking_tokens},
               "total_tokens": input + output})
    }

    fn frames(&self, items: &[Item], response: Value) -> Vec<Frame> {
        let mut events = Events::default();
        let started = self.object("in_progress", &[]);
        events.push(Kind::Lead, "response.created", json!({"response": started}));
        events.push(Kind::Lead, "response.in_progress", json!({"response": started}));
        for (index, item) in items.iter().enumerate() {
            events.item(index, item);
        }
        let last = format!("response.{}", self.status());
        events.push(Kind::Other, &last, json!({"response": response}));
        events.frames
    }

    /// Returns the frames of an error after `at` events: the error event and the failed response.
    fn failure(&self, at: usize) -> Vec<bytes::Bytes> {
        let mut events = Events { frames: Vec::new(), number: at };
        events.push(Kind::Other, "error", json!({"error": server_error(500).inner()}));
        events.push(Kind::Other, "response.failed", json!({"response": self.object("failed", &[])}));
        events.frames.into_iter().map(|frame| frame.bytes).collect()
    }
}

/// Event writer with sequence numbers.
#[derive(Debug, Default)]
struct Events {
    frames: Vec<Frame>,
    number: usize,
}

impl Events {
    /// Adds an event. `fields` follow its type and precede its sequence number.
    fn push(&mut self, kind: Kind, name: &str, fields: Value) {
        let mut event = Map::from_iter([("type".to_owned(), json!(name))]);
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        event.insert("sequence_number".to_owned(), json!(self.number));
        self.number += 1;
        self.frames.push(Frame::event(kind, name, &Value::Object(event)));
    }

    fn item(&mut self, index: usize, item: &Item) {
        let added = item.value(Status::InProgress, "");
        self.push(Kind::Other, "response.output_item.added", json!({"item": added, "output_index": index}));
        match &item.kind {
            ItemKind::Reasoning { summary, .. } => {
                if *summary {
                    self.summary(index, item);
                }
            }
            ItemKind::Message { refusal } => self.message(index, item, *refusal),
            ItemKind::Call { custom, .. } => self.call(index, item, *custom),
            ItemKind::Compaction { .. } => {}
        }
        self.push(
            Kind::Other,
            "response.output_item.done",
            json!({"item": item.done(), "output_index": index}),
        );
    }

    fn summary(&mut self, index: usize, item: &Item) {
        let at = |key: &str, value: Value| {
            let place = json!({"item_id": item.id, "output_index": index, "summary_index": 0});
            with(place, key, value)
        };
        self.push(Kind::Other, "response.reasoning_summary_part.added", at("part", summary_part("")));
        for piece in &item.pieces {
            self.push(Kind::Delta, "response.reasoning_summary_text.delta", at("delta", json!(piece)));
        }
        let text = item.pieces.concat();
        self.push(Kind::Other, "response.reasoning_summary_text.done", at("text", json!(text)));
        self.push(Kind::Other, "response.reasoning_summary_part.done", at("part", summary_part(&text)));
    }

    fn message(&mut self, index: usize, item: &Item, refusal: bool) {
        let at = |key: &str, value: Value| {
            let place = json!({"content_index": 0, "item_id": item.id, "output_index": index});
            with(place, key, value)
        };
        let text_at = |key: &str, value: Value| match refusal {
            true => at(key, value),
            false => with(at(key, value), "logprobs", json!([])),
        };
        let name = if refusal { "response.refusal" } else { "response.output_text" };
        let whole = if refusal { "refusal" } else { "text" };
        self.push(Kind::Other, "response.content_part.added", at("part", content_part(refusal, "")));
        for piece in &item.pieces {
            self.push(Kind::Delta, &format!("{name}.delta"), text_at("delta", json!(piece)));
        }
        let text = item.pieces.concat();
        self.push(Kind::Other, &format!("{name}.done"), text_at(whole, json!(text)));
        self.push(Kind::Other, "response.content_part.done", at("part", content_part(refusal, &text)));
    }

    fn call(&mut self, index: usize, item: &Item, custom: bool) {
        let at =
            |key: &str, value: Value| with(json!({"item_id": item.id, "output_index": index}), key, value);
        let (name, whole) = match custom {
            true => ("response.custom_tool_call_input", "input"),
            false => ("response.function_call_arguments", "arguments"),
        };
        for piece in &item.pieces {
            self.push(Kind::Delta, &format!("{name}.delta"), at("delta", json!(piece)));
        }
        self.push(Kind::Other, &format!("{name}.done"), at(whole, json!(item.pieces.concat())));
    }
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
    object
}
