//! Response writer of `generateContent` and `streamGenerateContent`, whole and streamed.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::ids::{Ids, opaque};
use super::super::script::{Finish, Plan};
use super::super::stream::{Frame, Kind, Pacing, schedule};
use super::super::text::{MEDIA_TOKENS, tokens, words};
use super::errors::{OVERLOADED, for_status};
use super::json::{Style, line, pretty};
use super::request::Asked;

pub(super) fn reply(asked: &Asked, style: Style, pacing: Pacing, mut ids: Ids) -> Reply {
    let plans: Vec<Plan> = (0..asked.candidates).map(|choice| asked.ask.plan(choice)).collect();
    let head = Head { id: ids.base62("", 22), asked };
    let candidates: Vec<Vec<Part>> = plans.iter().map(|plan| parts(asked, plan, &mut ids)).collect();
    let reply = if style == Style::Whole {
        let whole = plans.iter().zip(&candidates).enumerate();
        let whole: Vec<Value> =
            whole.map(|(index, (plan, parts))| ended(index, plan, collected(parts))).collect();
        Reply::new(200, style.content_type(), pretty(&head.frame(whole, Some(Said::all(&plans)))))
    } else {
        let frames = head.frames(&plans, &candidates, style);
        let error = |at: usize| {
            let body = for_status(OVERLOADED).body();
            match style {
                Style::Array => vec![element(&body, at == 0).into(), "\n]\n".into()],
                Style::Whole | Style::Events => vec![event(&body).into()],
            }
        };
        let steps = schedule(frames, pacing, &asked.ask.directives, error);
        Reply::stream(style.content_type(), steps).with("content-disposition", "attachment")
    };
    reply.with("x-gemini-service-tier", "standard")
}

/// Part of the response, with its tokens.
#[derive(Debug, Clone)]
struct Part {
    value: Value,
    tokens: u64,
    kind: PartKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Thought,
    Text,
    Call,
    /// Empty text at the end of a stream, with the signature of the text.
    Signature,
}

/// Returns the parts, in the pieces of a stream.
fn parts(asked: &Asked, plan: &Plan, ids: &mut Ids) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some(thinking) = plan.thinking.as_ref().filter(|_| asked.show_thoughts) {
        parts.extend(words(thinking).into_iter().map(|piece| Part {
            tokens: 0,
            value: json!({"text": piece, "thought": true}),
            kind: PartKind::Thought,
        }));
    }
    let signature = asked.signs.then(|| opaque(ids.next()));
    let signed = |mut part: Value| {
        if let Some((signature, members)) = signature.as_ref().zip(part.as_object_mut()) {
            members.insert("thoughtSignature".to_owned(), json!(signature));
        }
        part
    };
    if plan.finish == Finish::Refused {
        return parts;
    }
    let mut bytes = 0;
    parts.extend(plan.pieces.iter().map(|piece| {
        let before = if bytes == 0 { 0 } else { tokens(bytes) };
        bytes += piece.len();
        Part { value: json!({"text": piece}), tokens: tokens(bytes) - before, kind: PartKind::Text }
    }));
    // The provider never sends part of a call: omit one that the token limit truncated.
    let whole = plan.calls.iter().filter_map(|call| Some((call, call.object()?)));
    for (at, (call, args)) in whole.enumerate() {
        let mut function = json!({"name": call.name, "args": args});
        if let Some(members) = function.as_object_mut().filter(|_| asked.call_ids) {
            members.insert("id".to_owned(), json!(ids.base36("", 8)));
        }
        let part = json!({ "functionCall": function });
        let tokens = tokens(call.name.len()) + tokens(call.arguments.len());
        // Only the first of parallel calls has a signature.
        let value = if at == 0 { signed(part) } else { part };
        parts.push(Part { value, tokens, kind: PartKind::Call });
    }
    if plan.calls.is_empty() && !plan.pieces.is_empty() && asked.signs {
        parts.push(Part { value: signed(json!({"text": ""})), tokens: 0, kind: PartKind::Signature });
    }
    parts
}

/// Merges the parts for a whole response: adjacent texts of one kind become one part, with their signature.
fn collected(parts: &[Part]) -> Vec<Value> {
    let mut all: Vec<(PartKind, Value)> = Vec::new();
    for part in parts {
        let text = part.value.get("text").and_then(Value::as_str);
        match (all.last_mut(), part.kind, text) {
            (Some((kind, Value::Object(last))), PartKind::Thought | PartKind::Text, Some(text))
                if *kind == part.kind =>
            {
                if let Some(Value::String(so_far)) = last.get_mut("text") {
                    so_far.push_str(text);
                }
            }
            (Some((PartKind::Text, Value::Object(last))), PartKind::Signature, _) => {
                if let Some(signature) = part.value.get("thoughtSignature") {
                    last.insert("thoughtSignature".to_owned(), signature.clone());
                }
            }
            _ => all.push((part.kind, part.value.clone())),
        }
    }
    all.into_iter().map(|(_, value)| value).collect()
}

/// Returns a candidate with its finish reason.
fn ended(index: usize, plan: &Plan, parts: Vec<Value>) -> Value {
    let reason = match &plan.finish {
        Finish::Done | Finish::Calls | Finish::StopSequence(_) => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::Refused => "SAFETY",
        Finish::Word(word) => word,
    };
    // The provider omits an empty `parts`. A refused candidate has no content at all.
    let mut candidate = match (parts.is_empty(), &plan.finish) {
        (_, Finish::Refused) => {
            json!({"finishReason": reason, "index": index, "safetyRatings": safety_ratings()})
        }
        (true, _) => json!({"content": {"role": "model"}, "finishReason": reason, "index": index}),
        (false, _) => {
            json!({"content": {"parts": parts, "role": "model"}, "finishReason": reason, "index": index})
        }
    };
    if let Some(members) = candidate.as_object_mut().filter(|_| plan.finish == Finish::Calls) {
        members.insert("finishMessage".to_owned(), json!("Model generated function call(s)."));
    }
    candidate
}

fn safety_ratings() -> Vec<Value> {
    let categories = ["HATE_SPEECH", "DANGEROUS_CONTENT", "HARASSMENT", "SEXUALLY_EXPLICIT"];
    let rating = |name: &str| {
        let category = format!("HARM_CATEGORY_{name}");
        match name {
            "DANGEROUS_CONTENT" => json!({"category": category, "probability": "HIGH", "blocked": true}),
            _ => json!({"category": category, "probability": "NEGLIGIBLE"}),
        }
    };
    categories.into_iter().map(rating).collect()
}

/// Tokens generated so far.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    thoughts: u64,
    candidates: u64,
}

impl Said {
    fn all(plans: &[Plan]) -> Said {
        Said {
            thoughts: plans.iter().map(|plan| plan.thinking_tokens).sum(),
            candidates: plans.iter().map(|plan| plan.answer_tokens).sum(),
        }
    }
}

/// Data that all frames of a response share.
struct Head<'a> {
    id: String,
    asked: &'a Asked,
}

impl Head<'_> {
    fn frame(&self, candidates: Vec<Value>, said: Option<Said>) -> Value {
        json!({"candidates": candidates, "usageMetadata": self.usage(said.unwrap_or_default()),
               "modelVersion": self.asked.ask.model, "responseId": self.id})
    }

    fn usage(&self, said: Said) -> Value {
        let prompt = self.asked.ask.prompt_tokens;
        let total = prompt + said.candidates + said.thoughts;
        let mut usage = json!({"promptTokenCount": prompt});
        let Some(members) = usage.as_object_mut() else {
            return usage;
        };
        let mut insert = |name: &str, value: Value| members.insert(name.to_owned(), value);
        if said.candidates > 0 {
            insert("candidatesTokenCount", json!(said.candidates));
        }
        insert("totalTokenCount", json!(total));
        let cached = self.asked.ask.cached_tokens();
        if cached > 0 {
            insert("cachedContentTokenCount", json!(cached));
            insert("cacheTokensDetails", json!([{"modality": "TEXT", "tokenCount": cached}]));
        }
        insert("promptTokensDetails", Value::Array(self.modalities(prompt)));
        if said.thoughts > 0 {
            insert("thoughtsTokenCount", json!(said.thoughts));
        }
        insert("serviceTier", json!(self.asked.tier));
        usage
    }

    /// Returns the prompt tokens by modality, which add up to `prompt`.
    fn modalities(&self, prompt: u64) -> Vec<Value> {
        let media = self.asked.ask.media;
        let mut text = prompt;
        let mut details = Vec::new();
        for (name, count) in [
            ("IMAGE", media.images),
            ("DOCUMENT", media.documents),
            ("AUDIO", media.recordings),
            ("VIDEO", media.videos),
        ] {
            let tokens = ((count * MEDIA_TOKENS) as u64).min(text);
            text -= tokens;
            if tokens > 0 {
                details.push(json!({"modality": name, "tokenCount": tokens}));
            }
        }
        details.insert(0, json!({"modality": "TEXT", "tokenCount": text}));
        details
    }

    /// Returns the frames of a stream. Several candidates alternate and end together.
    fn frames(&self, plans: &[Plan], candidates: &[Vec<Part>], style: Style) -> Vec<Frame> {
        let mut frames = Vec::new();
        let write = |kind: Kind, value: &Value, first: bool| match style {
            Style::Array => Frame::new(kind, element(value, first)),
            Style::Whole | Style::Events => Frame::new(kind, event(value)),
        };
        // Thinking precedes the first frame, so its tokens count from there.
        let mut said = Said { candidates: 0, ..Said::all(plans) };
        let longest = candidates.iter().map(Vec::len).max().unwrap_or(0);
        let mut last: Vec<Vec<Value>> = vec![Vec::new(); candidates.len()];
        for step in 0..longest {
            for (index, parts) in candidates.iter().enumerate() {
                let Some(part) = parts.get(step) else {
                    continue;
                };
                if part.kind == PartKind::Signature {
                    if let Some(last) = last.get_mut(index) {
                        last.push(part.value.clone());
                    }
                    continue;
                }
                said.candidates += part.tokens;
                let content = json!({"parts": [part.value], "role": "model"});
                let frame = self.frame(vec![json!({"content": content, "index": index})], Some(said));
                frames.push(write(Kind::Delta, &frame, frames.is_empty()));
            }
        }
        let ends = plans.iter().zip(last).enumerate().map(|(index, (plan, parts))| {
            let said_nothing = candidates.get(index).is_none_or(Vec::is_empty);
            let parts = match parts.is_empty() && !said_nothing {
                true => vec![json!({"text": ""})],
                false => parts,
            };
            ended(index, plan, parts)
        });
        let end = self.frame(ends.collect(), Some(Said::all(plans)));
        frames.push(write(Kind::Other, &end, frames.is_empty()));
        if style == Style::Array {
            frames.push(Frame::new(Kind::Other, "\n]\n"));
        }
        frames
    }
}

/// Returns one element of a streamed array, with the bracket or comma before it.
fn element(value: &Value, first: bool) -> String {
    format!("{}{value:#}", if first { "[" } else { ",\r\n" })
}

fn event(value: &Value) -> String {
    format!("data: {}\r\n\r\n", line(value))
}
