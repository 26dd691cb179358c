//! What prompt caches save, in all places that show it: the response and its head, the usage record, the reports of
//! `model-gateway usage`, and the metrics. In every client format, with documents and with streams.

use serde_json::{Value, json};

use super::{
    Agent, KEY, MODEL, OFF_KEY, ask, chat_assistant, generate_agent, messages_agent, responses_agent, setup,
    simulated, text,
};
use crate::support::client::Answer;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::sse::events;
use crate::support::upstream::Upstream;

/// Agents of each client format.
const AGENTS: [Agent; 4] = [chat_assistant, messages_agent, responses_agent, generate_agent];
/// Turns of a conversation.
const TURNS: usize = 3;

/// Money that reads saved and that writes cost in addition, in nano-units of the currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Effect {
    saved: i64,
    surcharge: i64,
}

impl Effect {
    /// Returns the effect of these tokens at the prices of the tests: 3 per million for plain input, 0.3 for a read, 3.75 for
    /// a write.
    fn of(read: i64, written: i64) -> Effect {
        Effect { saved: read * 2_700, surcharge: written * 750 }
    }

    /// Reads the effect from a usage record or from a line of a report.
    fn read(value: &Value) -> Effect {
        let nanos = |name: &str| nanos(value[name].as_str().unwrap());
        Effect { saved: nanos("cache_saved"), surcharge: nanos("cache_surcharge") }
    }

    fn add(&mut self, more: Effect) {
        self.saved += more.saved;
        self.surcharge += more.surcharge;
    }
}

/// Converts an amount with up to nine decimals to nano-units.
fn nanos(amount: &str) -> i64 {
    let (units, decimals) = amount.split_once('.').unwrap_or((amount, ""));
    format!("{units}{decimals:0<9}").parse().unwrap()
}

/// Requests a turn, as a stream or as a document.
async fn turn(gateway: &Gateway, agent: Agent, turn: usize, stream: bool) -> (String, Answer) {
    let (mut path, mut body) = agent(turn);
    if stream {
        match path.contains("generateContent") {
            true => path = path.replace(":generateContent", ":streamGenerateContent?alt=sse"),
            false => body["stream"] = json!(true),
        }
        if path.ends_with("/chat/completions") {
            body["stream_options"] = json!({"include_usage": true});
        }
    }
    let answer = ask(gateway, &path, KEY, &body).await;
    (path, answer)
}

/// Returns the tokens that were read from the cache and written to it, in the members of the client's format. Gemini's has
/// none for writes.
fn shown(path: &str, answer: &Answer, stream: bool) -> (i64, Option<i64>) {
    let last = |has: fn(&Value) -> bool| match stream {
        false => answer.json(),
        true => {
            let frames = events(answer.text()).into_iter().filter(|event| event.data != "[DONE]");
            let frames: Vec<Value> = frames.map(|event| event.json()).collect();
            frames.into_iter().rfind(has).unwrap_or_else(|| panic!("{path}: {}", answer.text()))
        }
    };
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value}: {}", answer.text()));
    match path.split(['?', ':']).next().unwrap() {
        "/v1/messages" => {
            let usage = last(|frame| frame["type"] == "message_delta")["usage"].clone();
            let written = number(&usage["cache_creation_input_tokens"]);
            (number(&usage["cache_read_input_tokens"]), Some(written))
        }
        "/v1/chat/completions" => {
            let details = last(|frame| frame["usage"].is_object())["usage"]["prompt_tokens_details"].clone();
            (number(&details["cached_tokens"]), details["cache_write_tokens"].as_i64())
        }
        "/v1/responses" => {
            let frame = last(|frame| frame["response"]["usage"].is_object());
            let response = if stream { &frame["response"] } else { &frame };
            let details = &response["usage"]["input_tokens_details"];
            (number(&details["cached_tokens"]), details["cache_write_tokens"].as_i64())
        }
        _ => {
            let usage = last(|frame| frame["usageMetadata"].is_object())["usageMetadata"].clone();
            (usage["cachedContentTokenCount"].as_i64().unwrap_or(0), None)
        }
    }
}

/// Reads the header of a document: read and written tokens, and the money.
fn header(answer: &Answer) -> (i64, i64, i64) {
    let fields: Vec<&str> = answer.get("x-gateway-cache-usage").unwrap().split("; ").collect();
    let figure = |at: usize, name: &str| {
        let value: &str = fields[at].strip_prefix(name).unwrap();
        value.strip_prefix('=').unwrap()
    };
    let saved = figure(2, "saved");
    let nanos = match saved.strip_prefix('-') {
        Some(lost) => -nanos(lost),
        None => nanos(saved),
    };
    (figure(0, "read").parse().unwrap(), figure(1, "written").parse().unwrap(), nanos)
}

#[tokio::test]
async fn prompt_cache_savings_are_shown_everywhere_in_every_format() {
    for agent in AGENTS {
        // Each conversation has a cache of its own: that of a fresh provider.
        for stream in [false, true] {
            let (_simulator, gateway) = simulated().await;
            let mut all = Effect::default();
            for at in 0..TURNS {
                let (path, answer) = turn(&gateway, agent, at, stream).await;
                let records = gateway.records(at + 1).await;
                // The newest may be the first or the last.
                let mut summed = Effect::default();
                records.iter().for_each(|record| summed.add(Effect::read(record)));
                let tokens = |name: &str| -> i64 {
                    records.iter().map(|record| record[name].as_i64().unwrap_or(0)).sum()
                };
                let charged = Effect::of(tokens("cached"), tokens("cache_write"));
                assert_eq!(summed, charged, "{path}: {records:#?}");
                let of_turn =
                    Effect { saved: summed.saved - all.saved, surcharge: summed.surcharge - all.surcharge };
                assert!((of_turn.saved > 0) == (at > 0), "{path}, turn {at}: {of_turn:?}");
                assert!(of_turn.surcharge > 0, "{path}, turn {at}: {of_turn:?}");
                all = summed;

                let (read, written) = shown(&path, &answer, stream);
                let written = written.unwrap_or(of_turn.surcharge / 750);
                assert_eq!(Effect::of(read, written), of_turn, "{path}: {}", answer.text());
                if stream {
                    // The head of a stream is sent before its usage is known.
                    assert_eq!(answer.get("x-gateway-cache-usage"), None);
                } else {
                    assert_eq!(header(&answer), (read, written, of_turn.saved - of_turn.surcharge), "{path}");
                }
            }
            for by in ["day", "account", "key", "model"] {
                let report = gateway.command(&["usage", "--by", by, "--json"]);
                let lines: Vec<Value> =
                    report.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                assert_eq!(lines.len(), 1, "{report}");
                assert_eq!(Effect::read(&lines[0]), all, "{report}");
            }
            let metrics = gateway.metrics_after(TURNS).await;
            let money = |name| metrics.sum(name, &[("model", MODEL), ("provider", "p")]) as i64;
            let counted = Effect {
                saved: money("gateway_cache_saved_nano_units_total"),
                surcharge: money("gateway_cache_surcharge_nano_units_total"),
            };
            assert_eq!(counted, all);
        }
    }
}

#[tokio::test]
async fn prompt_cache_savings_are_not_in_the_head_if_the_policy_is_off() {
    let (_simulator, gateway) = simulated().await;
    let (path, body) = messages_agent(1);
    assert_eq!(ask(&gateway, &path, OFF_KEY, &body).await.get("x-gateway-cache-usage"), None);
}

/// What the access log of the requests so far names as the cause of missed caches; empty where it names none.
async fn causes(gateway: &Gateway, requests: usize) -> Vec<String> {
    let lines = gateway.wait_for_log(requests).await;
    lines.iter().map(|line| line["cache_changed"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn cache_that_is_missed_names_the_section_that_changed() {
    let (_simulator, gateway) = simulated().await;
    let ask_with = async |tool: &str, system: &str, turn: &str| {
        let (path, mut body) = messages_agent(2);
        body["tools"][0]["description"] = json!(text(tool, 6_000));
        body["system"][0]["text"] = json!(text(system, 20_000));
        body["messages"][0]["content"] = json!(text(turn, 2_000));
        ask(&gateway, &path, KEY, &body).await;
        gateway.idle().await;
    };
    // The first miss begins the watch; a new description of a tool with each request misses from the beginning on.
    ask_with("tool 0", "system", "turn").await;
    ask_with("tool 1", "system", "turn").await;
    ask_with("tool 2", "system", "turn").await;
    // Reads of tools and instructions are no miss.
    ask_with("tool 2", "system", "other turn").await;
    assert_eq!(causes(&gateway, 4).await, ["", "", "tools", ""]);
    let misses = async |changed: &str| {
        gateway.metrics().await.sum("gateway_cache_misses_total", &[("changed", changed), ("model", MODEL)])
    };
    assert_eq!((misses("unknown").await, misses("tools").await, misses("turn").await), (2.0, 1.0, 0.0));
}

#[tokio::test]
async fn cache_that_a_provider_does_not_report_is_not_missed() {
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
                        "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 9_000, "output_tokens": 1}});
    let upstream = Upstream::answering(reply::json(200, answer.to_string())).await;
    let base = format!("http://{}/v1", upstream.addr);
    let gateway = Gateway::start(&setup("anthropic", &base, "prompt_cache = \"auto\"")).await;
    for _ in 0..2 {
        let (path, body) = messages_agent(2);
        ask(&gateway, &path, KEY, &body).await;
        gateway.idle().await;
    }
    assert_eq!(gateway.metrics().await.sum("gateway_cache_misses_total", &[]), 0.0);
}
