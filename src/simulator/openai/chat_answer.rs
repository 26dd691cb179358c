//! Response writer of `POST /v1/chat/completions`, whole and streamed.

use serde_json::{Map, Value, json};

use super::super::clock;
use super::super::directive::ArgumentsForm;
use super::super::http::{BARE_ERROR, Reply};
use super::super::ids::Ids;
use super::super::script::{Finish, Plan};
use super::super::stream::{Frame, Kind, Pacing, schedule};
use super::super::text::fragments;
use super::chat::Chat;
use super::errors::server_error;

pub(super) fn reply(chat: &Chat, pacing: Pacing, mut ids: Ids) -> Reply {
    let plans: Vec<Plan> = (0..chat.choices).map(|choice| chat.ask.plan(choice)).collect();
    let head = Head { id: ids.base62("chatcmpl-", 29), created: clock::unix(), chat };
    if !chat.stream {
        return Reply::json(200, &head.completion(&plans, &mut ids));
    }
    let frames = head.frames(&plans, &mut ids);
    let bare = Frame::new(Kind::Other, format!("data: {BARE_ERROR}\n\n")).bytes;
    let error = |_| match chat.ask.directives.bare {
        true => vec![bare],
        false => vec![Frame::data(Kind::Other, &server_error(500).body()).bytes],
    };
    let steps = schedule(frames, pacing, &chat.ask.directives, error);
    Reply::stream("text/event-stream; charset=utf-8", steps).with("cache-control", "no-cache")
}

/// Data that all chunks of a response share.
struct Head<'a> {
    id: String,
    created: u64,
    chat: &'a Chat,
}

impl Head<'_> {
    fn completion(&self, plans: &[Plan], ids: &mut Ids) -> Value {
        let choices: Vec<Value> = plans
            .iter()
            .enumerate()
            .map(|(index, plan)| {
                let logprobs = self.chat.logprobs.map(|top| logprobs(&plan.pieces, top));
                json!({"index": index, "message": self.message(plan, ids), "logprobs": logprobs,
                       "finish_reason": self.finish(plan)})
            })
            .collect();
        json!({"id": self.id, "object": "chat.completion", "created": self.created, "model": self.chat.ask.model,
               "choices": choices, "usage": self.usage(plans), "service_tier": self.chat.tier,
               "system_fingerprint": null})
    }

    fn message(&self, plan: &Plan, ids: &mut Ids) -> Value {
        let text = plan.text();
        let refused = plan.finish == Finish::Refused;
        let content = if refused || (!plan.calls.is_empty() && text.is_empty()) { None } else { Some(&text) };
        let mut message =
            json!({"role": "assistant", "content": content, "refusal": refused.then_some(&text)});
        let Some(members) = message.as_object_mut() else {
            return message;
        };
        if self.chat.functions {
            for call in &plan.calls {
                let call = json!({"name": call.name, "arguments": call.arguments});
                members.insert("function_call".to_owned(), call);
            }
        } else if !plan.calls.is_empty() {
            let calls: Vec<Value> = plan
                .calls
                .iter()
                .map(|call| {
                    let id = ids.base62("call_", 24);
                    match call.custom {
                        false => json!({"id": id, "type": "function",
                                        "function": {"name": call.name, "arguments": self.arguments(&call.arguments)}}),
                        true => json!({"id": id, "type": "custom",
                                       "custom": {"name": call.name, "input": call.arguments}}),
                    }
                })
                .collect();
            members.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        members.insert("annotations".to_owned(), json!([]));
        message
    }

    fn finish<'p>(&self, plan: &'p Plan) -> &'p str {
        match &plan.finish {
            Finish::Done | Finish::StopSequence(_) | Finish::Refused => "stop",
            Finish::Calls if self.chat.functions => "function_call",
            Finish::Calls => "tool_calls",
            Finish::Length => "length",
            Finish::Word(word) => word,
        }
    }

    /// Returns the text of arguments in the form that a directive asks for.
    fn arguments(&self, text: &str) -> String {
        match self.chat.ask.directives.arguments {
            ArgumentsForm::Once => text.to_owned(),
            ArgumentsForm::Twice => json!(text).to_string(),
            ArgumentsForm::Led => format!("{{}}{text}"),
        }
    }

    fn usage(&self, plans: &[Plan]) -> Value {
        let prompt = self.chat.ask.prompt_tokens;
        let completion: u64 = plans.iter().map(Plan::output_tokens).sum();
        let reasoning: u64 = plans.iter().map(|plan| plan.thinking_tokens).sum();
        if self.chat.ask.directives.other_usage {
            return json!({"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion,
                          "input_tokens_details": {"cached_tokens": self.chat.ask.cached_tokens()},
                          "output_tokens_details": {"reasoning_tokens": reasoning}});
        }
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
               "prompt_tokens_details": {"cached_tokens": self.chat.ask.cached_tokens(), "cache_write_tokens": 0,
                                         "audio_tokens": 0},
               "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0,
                                             "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
    }

    /// Returns the frames of a stream. Several choices alternate.
    fn frames(&self, plans: &[Plan], ids: &mut Ids) -> Vec<Frame> {
        let mut choices: Vec<_> =
            plans.iter().enumerate().map(|(index, plan)| self.choice(index, plan, ids).into_iter()).collect();
        let mut frames = Vec::new();
        loop {
            let before = frames.len();
            frames.extend(choices.iter_mut().filter_map(Iterator::next));
            if frames.len() == before {
                break;
            }
        }
        if self.chat.include_usage {
            let usage = self.usage(plans);
            frames.push(Frame::data(Kind::Other, &self.chunk(json!([]), Some(usage))));
        }
        frames.push(Frame::new(Kind::Other, "data: [DONE]\n\n"));
        frames
    }

    fn choice(&self, index: usize, plan: &Plan, ids: &mut Ids) -> Vec<Frame> {
        let frame = |kind, delta: Value, pieces: &[String], finish: Option<&str>| {
            let logprobs = self.chat.logprobs.filter(|_| !pieces.is_empty()).map(|top| logprobs(pieces, top));
            let choice =
                json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
            Frame::data(kind, &self.chunk(json!([choice]), None))
        };
        let field = if plan.finish == Finish::Refused { "refusal" } else { "content" };
        let first = match (field, plan.calls.is_empty()) {
            ("refusal", _) => json!({"role": "assistant", "content": null, "refusal": ""}),
            (_, true) => json!({"role": "assistant", "content": "", "refusal": null}),
            (_, false) => json!({"role": "assistant", "content": null, "refusal": null}),
        };
        let mut frames = vec![frame(Kind::Other, first, &[], None)];
        for piece in &plan.pieces {
            let delta = Value::Object(Map::from_iter([(field.to_owned(), json!(piece))]));
            frames.push(frame(Kind::Delta, delta, std::slice::from_ref(piece), None));
        }
        let led = if self.chat.ask.directives.arguments == ArgumentsForm::Led { "{}" } else { "" };
        for (at, call) in plan.calls.iter().enumerate() {
            let (kind, named, piece): (_, _, fn(&str) -> Value) = match call.custom {
                true => ("custom", json!({"name": call.name, "input": ""}), |part| json!({"input": part})),
                false => (
                    "function",
                    json!({"name": call.name, "arguments": led}),
                    |part| json!({"arguments": part}),
                ),
            };
            let wrap = |call: Value| json!({"tool_calls": [call]});
            if self.chat.functions {
                frames.push(frame(Kind::Other, json!({"function_call": named}), &[], None));
            } else {
                let id = ids.base62("call_", 24);
                let delta = wrap(json!({"index": at, "id": id, "type": kind, kind: named}));
                frames.push(frame(Kind::Other, delta, &[], None));
            }
            let arguments = self.arguments(&call.arguments);
            let arguments =
                if call.custom { &call.arguments } else { arguments.strip_prefix(led).unwrap_or_default() };
            for part in fragments(arguments) {
                let delta = match self.chat.functions {
                    true => json!({"function_call": piece(&part)}),
                    false => wrap(json!({"index": at, kind: piece(&part)})),
                };
                frames.push(frame(Kind::Delta, delta, &[], None));
            }
        }
        frames.push(frame(Kind::Other, json!({}), &[], Some(self.finish(plan))));
        frames
    }

    fn chunk(&self, choices: Value, usage: Option<Value>) -> Value {
        let mut chunk = json!({"id": self.id, "object": "chat.completion.chunk", "created": self.created,
                               "model": self.chat.ask.model, "service_tier": self.chat.tier,
                               "system_fingerprint": null, "choices": choices});
        if let Some(members) = chunk.as_object_mut().filter(|_| self.chat.include_usage) {
            members.insert("usage".to_owned(), usage.unwrap_or(Value::Null));
        }
        chunk
    }
}

/// Returns invented log probabilities, with each piece as one token.
fn logprobs(pieces: &[String], top: usize) -> Value {
    let entry =
        |token: &str, logprob: f64| json!({"token": token, "logprob": logprob, "bytes": token.as_bytes()});
    let content: Vec<Value> = pieces
        .iter()
        .map(|piece| {
            let alternatives: Vec<Value> = (0..top)
                .map(|rank| match rank {
                    0 => entry(piece, -0.125),
                    _ => entry(&format!("{piece}{}", "~".repeat(rank)), -2.0 - rank as f64),
                })
                .collect();
            let mut token = entry(piece, -0.125);
            if let Some(members) = token.as_object_mut() {
                members.insert("top_logprobs".to_owned(), Value::Array(alternatives));
            }
            token
        })
        .collect();
    json!({"content": content, "refusal": null})
}
