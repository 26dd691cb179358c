//! Response writer of Converse, whole and streamed.

use serde_json::{Map, Value, json};

use super::super::http::Reply;
use super::super::ids::{Ids, hash, seal};
use super::super::prefix_cache::Cached;
use super::super::script::{Finish, Plan, ToolCall};
use super::super::stream::{Frame, Kind, Pacing, schedule};
use super::super::text::{fragments, words};
use super::errors::{OVERLOADED, for_status};
use super::models::Family;
use super::request::Asked;
use super::{STREAM, frames};

pub(super) fn reply(asked: &Asked, cached: Cached, stream: bool, pacing: Pacing, mut ids: Ids) -> Reply {
    let plan = asked.ask.plan(0);
    let blocks = blocks(asked, &plan, &mut ids);
    if !stream {
        return Reply::json(200, &whole(asked, cached, &plan, &blocks));
    }
    let frames = stream_frames(asked, cached, &plan, &blocks, &mut ids);
    let status = asked.ask.directives.error_status.unwrap_or(OVERLOADED);
    let steps = schedule(frames, pacing, &asked.ask.directives, |_| vec![for_status(status).exception()]);
    Reply::stream(STREAM, steps)
}

/// Content block of the response.
enum Block<'a> {
    Reasoning { text: &'a str, signature: Option<String> },
    Text(&'a [String]),
    Call { id: String, call: &'a ToolCall },
}

fn blocks<'a>(asked: &Asked, plan: &'a Plan, ids: &mut Ids) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    if let Some(text) = &plan.thinking {
        let signature = (asked.model.family == Family::Claude).then(|| seal(text, asked.ask.nonce()));
        blocks.push(Block::Reasoning { text, signature });
    }
    if !plan.pieces.is_empty() {
        blocks.push(Block::Text(&plan.pieces));
    }
    blocks.extend(plan.calls.iter().map(|call| Block::Call { id: ids.base62("tooluse_", 22), call }));
    blocks
}

impl Block<'_> {
    fn whole(&self) -> Value {
        match self {
            Block::Reasoning { text, signature: Some(signature) } => {
                json!({"reasoningContent": {"reasoningText": {"signature": signature, "text": text}}})
            }
            Block::Reasoning { text, signature: None } => {
                json!({"reasoningContent": {"reasoningText": {"text": text}}})
            }
            Block::Text(pieces) => json!({"text": pieces.concat()}),
            Block::Call { id, call } => {
                let input = call.object().unwrap_or(json!({}));
                json!({"toolUse": {"input": input, "name": call.name, "toolUseId": id}})
            }
        }
    }

    /// Returns the start of the block, which only tool calls have, and its deltas.
    fn parts(&self, family: Family) -> (Option<Value>, Vec<(Kind, Value)>) {
        match self {
            Block::Reasoning { text, signature } => {
                let delta = |piece| (Kind::Delta, json!({"reasoningContent": {"text": piece}}));
                let mut deltas: Vec<(Kind, Value)> = words(text).into_iter().map(delta).collect();
                deltas.extend(
                    signature
                        .as_ref()
                        .map(|it| (Kind::Other, json!({"reasoningContent": {"signature": it}}))),
                );
                (None, deltas)
            }
            Block::Text(pieces) => {
                (None, pieces.iter().map(|piece| (Kind::Delta, json!({"text": piece}))).collect())
            }
            Block::Call { id, call } => {
                let delta = |part: String| json!({"toolUse": {"input": part}});
                // Claude starts with an empty piece; Nova sends the arguments in one piece.
                let deltas = if family == Family::Nova {
                    vec![(Kind::Delta, delta(call.arguments.clone()))]
                } else {
                    let pieces = fragments(&call.arguments).into_iter();
                    let first = (Kind::Other, delta(String::new()));
                    std::iter::once(first).chain(pieces.map(|part| (Kind::Delta, delta(part)))).collect()
                };
                (Some(json!({"toolUse": {"name": call.name, "toolUseId": id}})), deltas)
            }
        }
    }
}

fn whole(asked: &Asked, cached: Cached, plan: &Plan, blocks: &[Block<'_>]) -> Value {
    let mut body = Map::new();
    body.extend(additional(asked, plan).map(|fields| ("additionalModelResponseFields".to_owned(), fields)));
    body.insert("metrics".to_owned(), metrics(asked));
    let content: Vec<Value> = blocks.iter().map(Block::whole).collect();
    body.insert("output".to_owned(), json!({"message": {"content": content, "role": "assistant"}}));
    body.insert("stopReason".to_owned(), json!(stop_reason(asked, plan)));
    body.extend(details(asked, plan));
    body.insert("usage".to_owned(), usage(asked, cached, plan));
    Value::Object(body)
}

fn stream_frames(
    asked: &Asked,
    cached: Cached,
    plan: &Plan,
    blocks: &[Block<'_>],
    ids: &mut Ids,
) -> Vec<Frame> {
    let mut out = vec![frames::event(Kind::Lead, "messageStart", json!({"role": "assistant"}), ids)];
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = block.parts(asked.model.family);
        if let Some(start) = start {
            let start = json!({"contentBlockIndex": index, "start": start});
            out.push(frames::event(Kind::Other, "contentBlockStart", start, ids));
        }
        for (kind, delta) in deltas {
            let delta = json!({"contentBlockIndex": index, "delta": delta});
            out.push(frames::event(kind, "contentBlockDelta", delta, ids));
        }
        out.push(frames::event(Kind::Other, "contentBlockStop", json!({"contentBlockIndex": index}), ids));
    }
    let mut stop = Map::new();
    stop.extend(additional(asked, plan).map(|fields| ("additionalModelResponseFields".to_owned(), fields)));
    stop.insert("stopReason".to_owned(), json!(stop_reason(asked, plan)));
    out.push(frames::event(Kind::Other, "messageStop", Value::Object(stop), ids));
    let mut metadata = Map::new();
    metadata.insert("metrics".to_owned(), metrics(asked));
    metadata.extend(details(asked, plan));
    metadata.insert("usage".to_owned(), usage(asked, cached, plan));
    out.push(frames::event(Kind::Other, "metadata", Value::Object(metadata), ids));
    out
}

fn metrics(asked: &Asked) -> Value {
    json!({"latencyMs": 200 + hash(asked.ask.text.as_bytes()) % 2_000})
}

/// Returns the model's own members that the request wants.
fn additional(asked: &Asked, plan: &Plan) -> Option<Value> {
    let Finish::StopSequence(sequence) = &plan.finish else { return None };
    let wanted = asked.response_fields.iter().any(|path| path == "/stop_sequence");
    (wanted && asked.model.family == Family::Claude).then(|| json!({"stop_sequence": sequence}))
}

fn stop_reason<'p>(asked: &Asked, plan: &'p Plan) -> &'p str {
    match &plan.finish {
        Finish::Done => "end_turn",
        Finish::Calls => "tool_use",
        Finish::Length => "max_tokens",
        Finish::StopSequence(_) => "stop_sequence",
        Finish::Refused if asked.guardrail.is_some() => "guardrail_intervened",
        Finish::Refused => "content_filtered",
        Finish::Word(word) => word,
    }
}

/// Returns the members that repeat settings of the request, and the guardrail's trace.
fn details(asked: &Asked, plan: &Plan) -> Vec<(String, Value)> {
    let mut members = Vec::new();
    if let Some(latency) = &asked.latency {
        members.push(("performanceConfig".to_owned(), json!({"latency": latency})));
    }
    if let Some(tier) = &asked.tier {
        members.push(("serviceTier".to_owned(), json!({"type": tier})));
    }
    if let Some((id, true)) = &asked.guardrail {
        let action = if plan.finish == Finish::Refused { "BLOCKED" } else { "NONE" };
        let policy =
            json!({"topicPolicy": {"topics": [{"action": action, "name": "simulated", "type": "DENY"}]}});
        let assessment = Map::from_iter([(id.clone(), policy)]);
        members.push(("trace".to_owned(), json!({"guardrail": {"inputAssessment": assessment}})));
    }
    members
}

fn usage(asked: &Asked, cached: Cached, plan: &Plan) -> Value {
    let Cached { read, short, long } = cached;
    let (input, output, written) = (asked.ask.prompt_tokens, plan.output_tokens(), short + long);
    let mut usage = json!({"cacheReadInputTokenCount": read, "cacheReadInputTokens": read,
           "cacheWriteInputTokenCount": written, "cacheWriteInputTokens": written,
           "inputTokens": input.saturating_sub(read + written), "outputTokens": output,
           "serverToolUsage": {}, "totalTokens": input + output});
    if written > 0
        && let Some(members) = usage.as_object_mut()
    {
        let details = [("5m", short), ("1h", long)].into_iter().filter(|(_, tokens)| *tokens > 0);
        let details = details.map(|(ttl, tokens)| json!({"inputTokens": tokens, "ttl": ttl})).collect();
        members.insert("cacheDetails".to_owned(), details);
    }
    usage
}
