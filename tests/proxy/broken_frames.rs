//! A message of a Bedrock stream with a wrong checksum, after the client has received the first words: towards a client of
//! the same format, one of the messages format through InvokeModel, and clients of the formats that are translated.

use serde_json::{Value, json};

use crate::support::aws::{Message, messages};
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{Setup, key};
use crate::support::sse::{events, read_until};
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};
use crate::{bedrock_invoke, support};

const PAYING: &str = "client-key-of-pia-0120";
const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
/// Words before the fault, and the word in the broken message.
const WORDS: [&str; 3] = ["Good ", "morning, ", "dear "];
const LOST: &str = "unreadable";

fn event(name: &str, payload: &Value) -> Vec<u8> {
    bedrock_invoke::message(
        &[(":event-type", name), (":content-type", "application/json"), (":message-type", "event")],
        &payload.to_string(),
    )
}

fn delta(word: &str) -> Vec<u8> {
    event("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": word}, "p": "abcdef"}))
}

fn chunk(event: &Value) -> Vec<u8> {
    bedrock_invoke::chunk(&event.to_string())
}

fn text_delta(word: &str) -> Vec<u8> {
    let delta = json!({"type": "text_delta", "text": word});
    chunk(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

/// Returns the messages before the fault, the broken one, and those behind it, which are sound and complete the stream.
fn stream(invoke: bool) -> [Vec<u8>; 3] {
    let usage = json!({"inputTokens": 9, "outputTokens": 7, "totalTokens": 16});
    let (mut before, mut broken, after) = if invoke {
        let message = json!({"id": "msg_bdrk_01", "type": "message", "role": "assistant", "model": "claude",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}});
        let block = json!({"type": "text", "text": ""});
        let before = [
            chunk(&json!({"type": "message_start", "message": message})),
            chunk(&json!({"type": "content_block_start", "index": 0, "content_block": block})),
        ];
        let ended = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 7}});
        let after = [
            chunk(&json!({"type": "content_block_stop", "index": 0})),
            chunk(&ended),
            chunk(&json!({"type": "message_stop"})),
        ];
        (before.concat(), text_delta(LOST), after.concat())
    } else {
        let after = [
            event("contentBlockStop", &json!({"contentBlockIndex": 0})),
            event("messageStop", &json!({"stopReason": "end_turn"})),
            event("metadata", &json!({"usage": usage, "metrics": {"latencyMs": 5}})),
        ];
        (event("messageStart", &json!({"role": "assistant"})), delta(LOST), after.concat())
    };
    for word in WORDS {
        before.extend(if invoke { text_delta(word) } else { delta(word) });
    }
    *broken.last_mut().unwrap() ^= 1;
    [before, broken, after]
}

/// Starts a provider that sends the first words, waits for the gate, and sends the rest. Its connections stay open.
async fn provider(invoke: bool, gate: Gate) -> Upstream {
    Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            let headers =
                [("content-type", "application/vnd.amazon.eventstream"), ("transfer-encoding", "chunked")];
            let [before, broken, after] = stream(invoke);
            while conn.request().await.is_some() {
                conn.send(reply::head(200, &headers)).await;
                conn.send(reply::chunk(&before)).await;
                gate.passed().await;
                // The gateway may close the connection before it has read all.
                for part in [reply::chunk(&broken), reply::chunk(&after), reply::LAST_CHUNK.to_vec()] {
                    let _ = conn.try_send(part).await;
                }
            }
        }
    })
    .await
}

/// Client of one of five formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Converse,
    Other(Form),
}

/// Sends a request, opens the gate when the words have arrived, and returns all of the response.
async fn broken(client: Asking, invoke: bool) -> (Vec<u8>, Piece, Upstream, Gateway) {
    let gate = Gate::new();
    let upstream = provider(invoke, gate.clone()).await;
    let apis = if invoke { "apis = [\"messages\"]" } else { "apis = [\"converse\"]" };
    let mut setup = Setup::new()
        .provider("aws", "bedrock", &format!("http://{}", upstream.addr), apis)
        .model("claude", "aws", CLAUDE)
        .priced("input = 1\noutput = 2")
        .account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {PAYING}");
    let (path, body) = match client {
        Asking::Converse => (
            "/model/claude/converse-stream".to_owned(),
            json!({"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}).to_string(),
        ),
        Asking::Other(form) => (form.path("claude", true), form.body("claude", true)),
    };
    let mut connection = gateway.connect().await;
    connection.send(post_with(&path, &[("authorization", &bearer)], body)).await;
    assert_eq!(connection.head().await.status(), 200, "{client:?}");
    let mut seen = Vec::new();
    read_until(&mut connection, &mut seen, WORDS[2].trim()).await;
    gate.open();
    let end = loop {
        match connection.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => break end,
        }
    };
    (seen, end, upstream, gateway)
}

/// Asserts that the words and an error arrived, and nothing of what is behind the broken message.
fn check(client: Asking, seen: &[u8]) {
    let text = String::from_utf8_lossy(seen);
    assert!(!text.contains(LOST), "{client:?}: {text}");
    match client {
        Asking::Converse => {
            let (messages, rest) = messages(seen);
            assert_eq!(rest, 0, "{messages:?}");
            let said: String = messages
                .iter()
                .filter_map(|message| message.payload.pointer("/delta/text")?.as_str())
                .collect();
            assert_eq!(said, WORDS.concat());
            let last = messages.last().unwrap();
            assert_eq!(last.header(":message-type"), "exception", "{messages:?}");
            assert!(last.payload["message"].is_string(), "{messages:?}");
            let names: Vec<&str> = messages.iter().map(Message::name).collect();
            assert!(!names.contains(&"messageStop") && !names.contains(&"metadata"), "{names:?}");
        }
        Asking::Other(form) => {
            for word in WORDS {
                assert!(text.contains(word.trim()), "{client:?}: {word} in {text}");
            }
            // A translated response of this format ends as a failed one, with all members that a response has.
            let failed = events(&text).pop().filter(|event| event.name == "response.failed");
            let is_failed =
                failed.is_some_and(|event| event.json()["response"]["error"]["message"].is_string());
            assert!(is_failed || form.stream_error(&text).is_some(), "{client:?}: {text}");
        }
    }
}

/// Asserts that the words are charged, and that the connection to the provider is not used again.
async fn settled(client: Asking, upstream: &Upstream, gateway: &Gateway) {
    let record = &gateway.records(1).await[0];
    let count = |name: &str| record[name].as_u64().unwrap();
    assert!(count("input") > 0 && (1..=7).contains(&count("output")), "{client:?}: {record}");
    let nanos = count("input") * 1_000 + count("output") * 2_000;
    assert_eq!(record["cost"], format!("0.{nanos:09}").trim_end_matches('0'), "{client:?}: {record}");
    let left: f64 = gateway.account("acme")["balance"].as_str().unwrap().parse().unwrap();
    assert!((1.0 - left - nanos as f64 / 1e9).abs() < 1e-9, "{client:?}: {left} after {record}");
    assert!(record["error"].is_string(), "{client:?}: {record}");
    let body = json!({"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}).to_string();
    let bearer = format!("Bearer {PAYING}");
    gateway.ask(post_with("/model/claude/converse-stream", &[("authorization", &bearer)], body)).await;
    let requests = upstream.requests();
    assert_ne!(requests[1].connection, requests[0].connection, "{client:?}");
}

#[tokio::test]
async fn broken_frame_of_converse_ends_the_stream_with_an_error_behind_the_words() {
    let others = Form::ALL.map(Asking::Other);
    for client in [Asking::Converse].into_iter().chain(others) {
        let (seen, end, upstream, gateway) = broken(client, false).await;
        check(client, &seen);
        assert_eq!(end, Piece::End, "{client:?}: an error in the client's format ends the body");
        settled(client, &upstream, &gateway).await;
    }
}

#[tokio::test]
async fn broken_frame_of_invoke_model_ends_the_stream_with_an_error_behind_the_words() {
    for client in [Asking::Other(Form::Messages), Asking::Other(Form::Chat), Asking::Converse] {
        let (seen, end, upstream, gateway) = broken(client, true).await;
        check(client, &seen);
        assert_eq!(end, Piece::End, "{client:?}: an error in the client's format ends the body");
        settled(client, &upstream, &gateway).await;
    }
}

/// The simulated provider breaks a message at any place: see its directive `spoil`.
#[tokio::test]
async fn broken_frame_of_the_simulated_bedrock_is_found_by_its_checksum() {
    use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
    let options = Options { credential: Some(support::setup::CREDENTIAL.to_owned()), ..Options::default() };
    let bedrock = Simulator::start(SimulatedProvider::Bedrock, options).await.unwrap();
    let setup =
        Setup::new().provider("aws", "bedrock", &bedrock.base_url(), "").model("claude", "aws", CLAUDE);
    let gateway = Gateway::start(&setup).await;
    let prompt = "[[spoil 4]] [[pace 30]] [[words 40]] Hello";
    let body = json!({"messages": [{"role": "user", "content": [{"text": prompt}]}]}).to_string();
    let bearer = format!("Bearer {}", support::setup::KEY);
    let answer =
        gateway.ask(post_with("/model/claude/converse-stream", &[("authorization", &bearer)], body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    let (messages, rest) = messages(&answer.body);
    let said: String =
        messages.iter().filter_map(|message| message.payload.pointer("/delta/text")?.as_str()).collect();
    assert_eq!((said.split_whitespace().count(), rest), (4, 0), "{said}");
    assert_eq!(messages.last().unwrap().header(":message-type"), "exception", "{messages:?}");
}
