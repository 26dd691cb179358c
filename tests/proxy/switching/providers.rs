//! Five providers that issue signatures, reasoning or call ids of their own: simulated ones behind a recorder, and a
//! scripted one of the chat format. What each was asked and what it answered is kept in one log.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::ask;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::upstream::{Request, Upstream};

/// A provider, by the name of its model at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    OpenAi,
    Anthropic,
    Gemini,
    Bedrock,
    Kimi,
    /// A model of another maker at the provider of [`Maker::Bedrock`].
    Nova,
}

impl Maker {
    pub(super) const ALL: [Maker; 5] =
        [Maker::OpenAi, Maker::Anthropic, Maker::Gemini, Maker::Bedrock, Maker::Kimi];

    /// Returns the name of the model at the gateway, which is that of the provider too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Maker::OpenAi => "at-openai",
            Maker::Anthropic => "at-anthropic",
            Maker::Gemini => "at-gemini",
            Maker::Bedrock => "at-bedrock",
            Maker::Kimi => "at-kimi",
            Maker::Nova => "at-nova",
        }
    }

    /// Returns the name of the model at the provider.
    fn model(self) -> &'static str {
        match self {
            Maker::OpenAi => "gpt-5.1",
            Maker::Anthropic => "claude-sonnet-4-5",
            Maker::Gemini => "gemini-3.1-pro-preview",
            Maker::Bedrock => "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            Maker::Kimi => "kimi-k2.6",
            Maker::Nova => "us.amazon.nova-2-lite-v1:0",
        }
    }
}

/// What a provider was asked, and what it answered.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) maker: Maker,
    pub(super) asked: Vec<u8>,
    pub(super) status: u16,
    pub(super) answered: Vec<u8>,
}

impl Exchange {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.asked).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.asked).unwrap()
    }
}

/// Log of all providers, in order. `failing` is a bit set of the providers that answer 503.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    failing: Arc<AtomicUsize>,
}

impl Log {
    pub(super) fn all(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap().clone()
    }

    /// Lets a provider, and no other, fail.
    pub(super) fn fail(&self, maker: Option<Maker>) {
        self.failing.store(maker.map_or(0, |maker| 1 << maker as usize), Ordering::SeqCst);
    }

    fn note(&self, maker: Maker, asked: Vec<u8>, status: u16, answered: &[u8]) {
        let answered = answered.to_vec();
        self.exchanges.lock().unwrap().push(Exchange { maker, asked, status, answered });
    }

    fn fails(&self, maker: Maker) -> bool {
        self.failing.load(Ordering::SeqCst) & (1 << maker as usize) != 0
    }
}

/// The running providers.
pub(super) struct Providers {
    pub(super) log: Log,
    upstreams: Vec<(Maker, Upstream)>,
    simulators: Vec<Simulator>,
}

impl Providers {
    pub(super) async fn start() -> Providers {
        let log = Log::default();
        let (mut upstreams, mut simulators) = (Vec::new(), Vec::new());
        for (maker, provider) in [
            (Maker::OpenAi, SimulatedProvider::OpenAi),
            (Maker::Anthropic, SimulatedProvider::Anthropic),
            (Maker::Gemini, SimulatedProvider::Google),
            (Maker::Bedrock, SimulatedProvider::Bedrock),
        ] {
            let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
            let simulator = Simulator::start(provider, options).await.unwrap();
            upstreams.push((maker, recorder(maker, simulator.addr(), log.clone()).await));
            simulators.push(simulator);
        }
        upstreams.push((Maker::Kimi, kimi(log.clone()).await));
        Providers { log, upstreams, simulators }
    }

    /// Returns a configuration with all of them, one model each.
    pub(super) fn setup(&self) -> Setup {
        let setup = self.upstreams.iter().fold(Setup::new(), |setup, (maker, upstream)| {
            let base = format!("http://{}", upstream.addr);
            let (kind, path, lines) = match maker {
                Maker::OpenAi => ("openai", "/v1", "apis = [\"responses\"]"),
                Maker::Anthropic => ("anthropic", "/v1", ""),
                Maker::Gemini => ("gemini", "/v1beta", ""),
                Maker::Bedrock | Maker::Nova => ("bedrock", "", "apis = [\"converse\"]"),
                Maker::Kimi => ("openai-compatible", "/v1", "apis = [\"chat\"]\ndialect = \"moonshot\""),
            };
            setup.provider(maker.name(), kind, &format!("{base}{path}"), lines).model(
                maker.name(),
                maker.name(),
                maker.model(),
            )
        });
        setup.model(Maker::Nova.name(), Maker::Bedrock.name(), Maker::Nova.model())
    }

    /// Returns a model that is served by one provider, and by another if that fails.
    pub(super) fn with_fallback(mut setup: Setup, id: &str, makers: [Maker; 2]) -> Setup {
        let [first, second] = makers.map(|maker| (maker.name(), maker.model()));
        setup.routes += &format!(
            "[[model]]\nid = \"{id}\"\ntargets = [{{ provider = \"{}\", model = \"{}\" }}, \
             {{ provider = \"{}\", model = \"{}\", tier = 1 }}]\n",
            first.0, first.1, second.0, second.1
        );
        setup
    }
}

/// Returns a response as bytes: its body in pieces that cut frames.
fn answer(status: u16, fields: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let framed = |name: &str| ["content-length", "transfer-encoding", "connection"].contains(&name);
    let mut headers: Vec<(&str, &str)> = fields
        .iter()
        .filter(|(name, _)| !framed(&name.to_ascii_lowercase()))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    headers.push(("transfer-encoding", "chunked"));
    let mut out = reply::head(status, &headers).into_bytes();
    for piece in body.chunks(701) {
        out.extend_from_slice(&reply::chunk(piece));
    }
    out.extend_from_slice(reply::LAST_CHUNK);
    out
}

fn unavailable() -> Vec<u8> {
    reply::json(503, r#"{"error":{"message":"overloaded","type":"overloaded_error","code":503}}"#)
}

/// Starts a recorder in front of a simulated provider.
async fn recorder(maker: Maker, addr: std::net::SocketAddr, log: Log) -> Upstream {
    Upstream::start(move |mut conn| {
        let log = log.clone();
        async move {
            while let Some(request) = conn.request().await {
                let maker = if request.head.target().contains("nova") { Maker::Nova } else { maker };
                if log.fails(maker) {
                    log.note(maker, request.body, 503, b"");
                    conn.send(unavailable()).await;
                    continue;
                }
                let answered = ask(addr, forwarded(&request)).await;
                log.note(maker, request.body, answered.status(), &answered.body);
                conn.send(answer(answered.status(), &answered.head.fields, &answered.body)).await;
            }
        }
    })
    .await
}

fn forwarded(request: &Request) -> Vec<u8> {
    let mut head = format!("{}\r\n", request.head.line);
    for (name, value) in &request.head.fields {
        if !["content-length", "transfer-encoding"].contains(&&*name.to_ascii_lowercase()) {
            head += &format!("{name}: {value}\r\n");
        }
    }
    head += &format!("content-length: {}\r\n\r\n", request.body.len());
    [head.as_bytes(), &request.body].concat()
}

/// Starts a provider of the chat format, with ids and reasoning as Kimi's.
async fn kimi(log: Log) -> Upstream {
    let calls = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |mut conn| {
        let (log, calls) = (log.clone(), calls.clone());
        async move {
            while let Some(request) = conn.request().await {
                if log.fails(Maker::Kimi) {
                    log.note(Maker::Kimi, request.body, 503, b"");
                    conn.send(unavailable()).await;
                    continue;
                }
                let body = request.json();
                let (status, kind, text) = match refusal(&body) {
                    Some(message) => {
                        let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
                        (400, "application/json", error.to_string())
                    }
                    None if body["stream"] == true => (200, "text/event-stream", chunks(&body, &calls)),
                    None => (200, "application/json", document(&body, &calls)),
                };
                log.note(Maker::Kimi, request.body, status, text.as_bytes());
                let fields = [("content-type".to_owned(), kind.to_owned())];
                conn.send(answer(status, &fields, text.as_bytes())).await;
            }
        }
    })
    .await
}

/// Returns why the provider refuses a request: a call without reasoning, or calls and results that do not match.
fn refusal(body: &Value) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(found) = open.iter().position(|open| *open == id) else {
                return Some(format!("tool_call_id {id} is not found"));
            };
            open.remove(found);
            continue;
        }
        if !open.is_empty() {
            return Some(format!("messages[{at}]: tool_calls without results: {open:?}"));
        }
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !calls.is_empty() && message["reasoning_content"].as_str().is_none_or(str::is_empty) {
            return Some(format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {at}"
            ));
        }
        open.extend(calls.iter().filter_map(|call| call["id"].as_str()));
    }
    (!open.is_empty()).then(|| format!("tool_calls without results: {open:?}"))
}

/// Returns reasoning, text and calls of an answer.
fn said(body: &Value, calls: &AtomicUsize) -> (String, Option<String>, Vec<Value>) {
    let number = body["messages"].as_array().unwrap().len();
    let reasoning = format!("Kimi thinks about {number} messages.");
    if body["messages"].as_array().unwrap().last().unwrap()["role"] == "tool" {
        return (reasoning, Some(format!("Kimi has read {number} messages.")), Vec::new());
    }
    let call = |name: &str| {
        let id = format!("functions.{name}:{}", calls.fetch_add(1, Ordering::SeqCst));
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"q\": \"é\"}"}})
    };
    (reasoning, None, vec![call("look"), call("find")])
}

fn usage() -> Value {
    json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})
}

fn document(body: &Value, calls: &AtomicUsize) -> String {
    let (reasoning, text, calls) = said(body, calls);
    let mut message = json!({"role": "assistant", "content": text, "reasoning_content": reasoning});
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({"id": "cmpl-1", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage()})
    .to_string()
}

fn chunks(body: &Value, calls: &AtomicUsize) -> String {
    let (reasoning, text, calls) = said(body, calls);
    let chunk = |delta: Value, finish: Value| {
        let chunk = json!({"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {chunk}\n\n")
    };
    let mut out = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
    for word in reasoning.split_inclusive(' ') {
        out += &chunk(json!({"reasoning_content": word}), Value::Null);
    }
    for word in text.iter().flat_map(|text| text.split_inclusive(' ')) {
        out += &chunk(json!({"content": word}), Value::Null);
    }
    for (index, call) in calls.iter().enumerate() {
        let mut call = call.clone();
        call["index"] = json!(index);
        let arguments = call["function"]["arguments"].take();
        call["function"]["arguments"] = json!("");
        out += &chunk(json!({"tool_calls": [call]}), Value::Null);
        let piece = json!({"index": index, "function": {"arguments": arguments}});
        out += &chunk(json!({"tool_calls": [piece]}), Value::Null);
    }
    out += &chunk(json!({}), json!(if calls.is_empty() { "stop" } else { "tool_calls" }));
    let last = json!({"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
        "choices": [], "usage": usage()});
    format!("{out}data: {last}\n\ndata: [DONE]\n\n")
}
