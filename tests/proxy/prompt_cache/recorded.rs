//! Recorded conversations of several turns, replayed turn by turn against a simulated provider with a prompt cache: the
//! client sets no cache marks, and each turn reads what the one before wrote.
//!
//! The recordings are not part of this repository: see `tests/captures.rs`.

#[path = "../../captures/recording.rs"]
mod recording;

use model_gateway::wire::Api;
use serde_json::{Value, json};

use super::{KEY, simulated_with, tokens};
use crate::support::client::post_with;
use crate::support::gateway::Gateway;
use recording::Recording;

/// Model with the lowest minimum of a cacheable prefix, because recorded conversations are short.
const MODEL: &str = "claude-opus-5";
/// Minimum of a cacheable prefix in tokens.
const MIN_TOKENS: f64 = 512.0;

/// Name of the member that holds the turns.
fn turns_member(api: Api) -> Option<&'static str> {
    match api {
        Api::Chat | Api::Messages => Some("messages"),
        Api::Responses => Some("input"),
        Api::Generate => Some("contents"),
        _ => None,
    }
}

/// Whether an element of the turns comes from the model.
fn is_of_model(turn: &Value) -> bool {
    let kind = turn["type"].as_str().unwrap_or_default();
    matches!(turn["role"].as_str(), Some("assistant" | "model"))
        || kind == "reasoning"
        || kind.ends_with("_call") && !kind.starts_with("message")
}

/// Conversation of one recording: its path and the requests of its turns.
struct Conversation {
    name: String,
    path: String,
    turns: Vec<Value>,
    requests: Vec<Value>,
}

impl Conversation {
    /// Returns the conversation of a recorded request, as a client that sets no marks sends it turn by turn. `None` if
    /// it has one turn only.
    fn of(recording: &Recording) -> Option<Conversation> {
        let member = turns_member(recording.api)?;
        let mut request = recording.request.clone()?;
        remove_marks(&mut request);
        let turns = request[member].as_array()?.clone();
        let path = match recording.api {
            Api::Chat => "/v1/chat/completions".to_owned(),
            Api::Messages => "/v1/messages".to_owned(),
            Api::Responses => "/v1/responses".to_owned(),
            _ => format!("/v1beta/models/{MODEL}:generateContent"),
        };
        let members = request.as_object_mut()?;
        members.remove("stream_options");
        members.remove("thinking");
        if recording.api == Api::Generate {
            members.remove("model");
        } else {
            members.insert("model".to_owned(), MODEL.into());
            members.insert("stream".to_owned(), false.into());
        }
        if recording.api == Api::Responses {
            members.insert("store".to_owned(), false.into());
        }
        let ends = (1..=turns.len())
            .filter(|end| !is_of_model(&turns[end - 1]) && turns.get(*end).is_none_or(is_of_model));
        let requests: Vec<Value> = ends
            .map(|end| {
                let mut request = request.clone();
                request[member] = turns[..end].into();
                request
            })
            .collect();
        (requests.len() > 1).then(|| Conversation { name: recording.name.clone(), path, turns, requests })
    }
}

impl Conversation {
    /// Returns whether a request has tools or an earlier answer. The turn of any other one is not cached, because such
    /// requests are rarely continued.
    fn continues(&self, turn: usize) -> bool {
        let body = &self.requests[turn];
        let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let turns = ["messages", "input", "contents"].into_iter().filter_map(|name| body[name].as_array());
        has_tools || turns.flatten().any(is_of_model)
    }
}

/// Removes the cache marks of a client, and reasoning, whose signatures only the provider that made them accepts.
fn remove_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(remove_marks);
        }
        Value::Array(elements) => {
            let is_signed = |kind: &str| matches!(kind, "thinking" | "redacted_thinking");
            elements.retain(|element| !element["type"].as_str().is_some_and(is_signed));
            elements.iter_mut().for_each(remove_marks);
        }
        _ => {}
    }
}

/// Returns the conversations, without those that another one continues.
fn conversations(recordings: &[Recording]) -> Vec<Conversation> {
    let mut all: Vec<Conversation> = recordings.iter().filter_map(Conversation::of).collect();
    all.sort_by_key(|conversation| std::cmp::Reverse(conversation.turns.len()));
    let mut kept: Vec<Conversation> = Vec::new();
    for conversation in all {
        let continues = |other: &Conversation| {
            other.path == conversation.path && other.turns.starts_with(&conversation.turns)
        };
        if !kept.iter().any(continues) {
            kept.push(conversation);
        }
    }
    kept
}

/// Tokens of a replayed conversation.
#[derive(Clone, Copy, Debug, Default)]
struct Replayed {
    input: f64,
    read: f64,
    written: f64,
    /// Tokens of the prompts that a later turn repeats, that are long enough to be cached, and that are continued.
    reusable: f64,
}

impl Replayed {
    /// Input cost, relative to plain input.
    fn cost(&self) -> f64 {
        let plain = self.input - self.read - self.written;
        (plain + 0.1 * self.read + 1.25 * self.written) / self.input
    }
}

/// Replays a conversation. `None` if the provider cannot take part of it.
async fn replay(gateway: &Gateway, conversation: &Conversation) -> Option<Replayed> {
    let bearer = format!("Bearer {KEY}");
    let start = tokens(gateway).await;
    let (mut before, mut reusable) = (start, 0.0);
    for (turn, body) in conversation.requests.iter().enumerate() {
        let request = post_with(&conversation.path, &[("authorization", &bearer)], body.to_string());
        let answer = gateway.ask(request).await;
        if answer.status() != 200 {
            eprintln!("{} is left out: {}", conversation.name, answer.text());
            return None;
        }
        let now = tokens(gateway).await;
        let prompt = now[0] - before[0];
        let is_repeated = turn + 1 < conversation.requests.len();
        if is_repeated && prompt >= MIN_TOKENS && conversation.continues(turn) {
            reusable += prompt;
        }
        before = now;
    }
    let [input, read, written] = [0, 1, 2].map(|kind| before[kind] - start[kind]);
    Some(Replayed { input, read, written, reusable })
}

#[tokio::test]
async fn prompt_cache_recorded_conversations_read_what_they_wrote() {
    let Some(recordings) = recording::all() else { return };
    let (mut sum, mut count, mut left_out) = (Replayed::default(), 0, 0);
    for conversation in conversations(&recordings) {
        let size = json!(conversation.requests.last()).to_string().len();
        // Conversations that never reach the minimum have nothing to read.
        if size < 2_048 {
            continue;
        }
        // A gateway for each: conversations that are left out at a later turn do not repay what they wrote, and would
        // make their key's marks pause for the others.
        let (_simulator, gateway) = simulated_with(MODEL).await;
        let Some(replayed) = replay(&gateway, &conversation).await else {
            left_out += 1;
            continue;
        };
        if replayed.reusable == 0.0 {
            continue;
        }
        let (name, turns) = (&conversation.name, conversation.requests.len());
        eprintln!("{turns} turns, {replayed:?}, cost {:.2}: {name}", replayed.cost());
        assert!(replayed.read >= 0.95 * replayed.reusable, "{name}: {replayed:?}");
        sum.input += replayed.input;
        sum.read += replayed.read;
        sum.written += replayed.written;
        sum.reusable += replayed.reusable;
        count += 1;
    }
    eprintln!("{count} conversations, {left_out} left out: {sum:?}, cost {:.2}", sum.cost());
    assert!(count >= 3, "only {count} recorded conversations were replayed");
    assert!(sum.cost() < 1.0, "{sum:?}");
}
