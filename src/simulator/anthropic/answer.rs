//! Response writer of `POST /v1/messages`, whole and streamed.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::ids::{Ids, seal};
use super::super::script::{Finish, Plan, ToolCall};
use super::super::stream::{Frame, Kind, Pacing, schedule};
use super::super::text::{fragments, words};
use super::cache::Cached;
use super::errors::{OVERLOADED, for_status};
use super::request::{Asked, Thinking};

pub(super) fn reply(asked: &Asked, cached: Cached, pacing: Pacing, request_id: &str, mut ids: Ids) -> Reply {
    if !asked.stream {
        return Reply::json(200, &message(asked, cached, "", &mut ids));
    }
    let frames = events(asked, cached, "", &mut ids).iter().map(frame).collect();
    let error = |_| vec![Frame::event(Kind::Other, "error", &for_status(OVERLOADED).body(request_id)).bytes];
    let steps = schedule(frames, pacing, &asked.ask.directives, error);
    Reply::stream("text/event-stream; charset=utf-8", steps).with("cache-control", "no-cache")
}

/// Returns the message. Identifiers contain `origin`: the mark of a platform, and empty for Anthropic itself.
pub(super) fn message(asked: &Asked, cached: Cached, origin: &str, ids: &mut Ids) -> Value {
    let plan = asked.ask.plan(0);
    let head = Head { id: ids.base62(&format!("msg_{origin}01"), 22), asked, plan: &plan, cached };
    let blocks = blocks(asked, &plan, origin, ids);
    head.message(blocks.iter().map(Block::whole).collect(), true)
}

/// Returns the events of the message with their kinds. Identifiers contain `origin`, as those of [`message`].
pub(super) fn events(asked: &Asked, cached: Cached, origin: &str, ids: &mut Ids) -> Vec<(Kind, Value)> {
    let plan = asked.ask.plan(0);
    let head = Head { id: ids.base62(&format!("msg_{origin}01"), 22), asked, plan: &plan, cached };
    let blocks = blocks(asked, &plan, origin, ids);
    head.events(&blocks)
}

fn frame((kind, event): &(Kind, Value)) -> Frame {
    match event.get("type").and_then(Value::as_str).unwrap_or_default() {
        // The provider writes this event with a space after the colon.
        "ping" => Frame::new(*kind, "event: ping\ndata: {\"type\": \"ping\"}\n\n"),
        name => Frame::event(*kind, name, event),
    }
}

/// Content block of the response.
#[derive(Debug)]
enum Block<'a> {
    Thinking { text: String, signature: String },
    Text(&'a [String]),
    Call { id: String, call: &'a ToolCall },
}

fn blocks<'a>(asked: &Asked, plan: &'a Plan, origin: &str, ids: &mut Ids) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    if let Some(thinking) = &plan.thinking {
        let text = if asked.thinking == Thinking::Omitted { String::new() } else { thinking.clone() };
        let signature = seal(&text, asked.ask.nonce());
        blocks.push(Block::Thinking { text, signature });
    }
    if !plan.pieces.is_empty() && plan.finish != Finish::Refused {
        blocks.push(Block::Text(&plan.pieces));
    }
    let prefix = format!("toolu_{origin}01");
    blocks.extend(plan.calls.iter().map(|call| Block::Call { id: ids.base62(&prefix, 22), call }));
    blocks
}

impl Block<'_> {
    fn whole(&self) -> Value {
        match self {
            Block::Thinking { text, signature } => {
                json!({"type": "thinking", "thinking": text, "signature": signature})
            }
            Block::Text(pieces) => json!({"type": "text", "text": pieces.concat()}),
            Block::Call { id, call } => call_block(id, call, call.object().unwrap_or(json!({}))),
        }
    }

    /// Returns the block as it starts, and its deltas with their frame kind and data.
    fn parts(&self) -> (Value, Vec<(Kind, Value)>) {
        match self {
            Block::Thinking { text, signature } => {
                let pieces = words(text).into_iter();
                let mut deltas: Vec<(Kind, Value)> = pieces
                    .map(|piece| (Kind::Delta, json!({"type": "thinking_delta", "thinking": piece})))
                    .collect();
                deltas.push((Kind::Other, json!({"type": "signature_delta", "signature": signature})));
                (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
            }
            Block::Text(pieces) => {
                let deltas =
                    pieces.iter().map(|piece| (Kind::Delta, json!({"type": "text_delta", "text": piece})));
                (json!({"type": "text", "text": ""}), deltas.collect())
            }
            Block::Call { id, call } => {
                let delta = |part: String| json!({"type": "input_json_delta", "partial_json": part});
                let mut deltas = vec![(Kind::Other, delta(String::new()))];
                // A call without arguments has only the empty delta.
                if call.arguments != "{}" {
                    deltas.extend(
                        fragments(&call.arguments).into_iter().map(|part| (Kind::Delta, delta(part))),
                    );
                }
                (call_block(id, call, json!({})), deltas)
            }
        }
    }
}

fn call_block(id: &str, call: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": call.name, "input": input, "caller": {"type": "direct"}})
}

/// Data that all events of a message share.
struct Head<'a> {
    id: String,
    asked: &'a Asked,
    plan: &'a Plan,
    cached: Cached,
}

impl Head<'_> {
    /// Returns the message object. At the start of a stream it has no stop reason and no output tokens.
    fn message(&self, content: Vec<Value>, ended: bool) -> Value {
        let mut usage = json!({
            "input_tokens": self.input_tokens(),
            "cache_creation_input_tokens": self.cached.short + self.cached.long,
            "cache_read_input_tokens": self.cached.read,
            "cache_creation": {"ephemeral_5m_input_tokens": self.cached.short,
                               "ephemeral_1h_input_tokens": self.cached.long},
            "output_tokens": if ended { self.plan.output_tokens().max(1) } else { 1 },
            "service_tier": "standard",
            "inference_geo": "not_available",
        });
        if let Some(members) = usage.as_object_mut().filter(|_| self.asked.fast) {
            members.insert("speed".to_owned(), json!("fast"));
        }
        if ended {
            self.add_thinking_tokens(&mut usage);
        }
        let (reason, sequence, details) = if ended { self.stop() } else { (None, None, Value::Null) };
        json!({"model": self.asked.ask.model, "id": self.id, "type": "message", "role": "assistant",
               "content": content, "stop_reason": reason, "stop_sequence": sequence, "stop_details": details,
               "usage": usage})
    }

    fn input_tokens(&self) -> u64 {
        let cached = self.cached.read + self.cached.short + self.cached.long;
        self.asked.ask.prompt_tokens.saturating_sub(cached)
    }

    fn add_thinking_tokens(&self, usage: &mut Value) {
        if let Some(members) = usage.as_object_mut().filter(|_| self.plan.thinking.is_some()) {
            let details = json!({"thinking_tokens": self.plan.thinking_tokens});
            members.insert("output_tokens_details".to_owned(), details);
        }
    }

    /// Returns stop reason, stop sequence and details.
    fn stop(&self) -> (Option<&str>, Option<&str>, Value) {
        match &self.plan.finish {
            Finish::Done => (Some("end_turn"), None, Value::Null),
            Finish::Calls => (Some("tool_use"), None, Value::Null),
            Finish::Length => (Some("max_tokens"), None, Value::Null),
            Finish::Word(word) => (Some(word), None, Value::Null),
            Finish::StopSequence(sequence) => (Some("stop_sequence"), Some(sequence), Value::Null),
            Finish::Refused => (
                Some("refusal"),
                None,
                json!({"type": "refusal", "category": "cyber",
                       "explanation": "This request triggered restrictions on violative cyber content and was blocked \
                                       under Anthropic's Usage Policy."}),
            ),
        }
    }

    fn events(&self, blocks: &[Block<'_>]) -> Vec<(Kind, Value)> {
        let ping = || json!({"type": "ping"});
        let start = json!({"type": "message_start", "message": self.message(Vec::new(), false)});
        let mut events = vec![(Kind::Lead, start)];
        if blocks.is_empty() {
            events.push((Kind::Other, ping()));
        }
        for (index, block) in blocks.iter().enumerate() {
            let (start, deltas) = block.parts();
            let start = json!({"type": "content_block_start", "index": index, "content_block": start});
            // The provider announces the first block at once, before the model's first token.
            let kind = if index == 0 { Kind::Lead } else { Kind::Other };
            events.push((kind, start));
            if index == 0 {
                events.push((kind, ping()));
            }
            for (kind, delta) in deltas {
                let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
                events.push((kind, delta));
            }
            events.push((Kind::Other, json!({"type": "content_block_stop", "index": index})));
        }
        let (reason, sequence, details) = self.stop();
        let mut usage = json!({
            "input_tokens": self.input_tokens(),
            "cache_creation_input_tokens": self.cached.short + self.cached.long,
            "cache_read_input_tokens": self.cached.read,
            "output_tokens": self.plan.output_tokens().max(1),
        });
        self.add_thinking_tokens(&mut usage);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence, "stop_details": details});
        events.push((Kind::Other, json!({"type": "message_delta", "delta": delta, "usage": usage})));
        events.push((Kind::Other, json!({"type": "message_stop"})));
        events
    }
}
