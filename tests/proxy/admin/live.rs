//! Live events: requests that end and targets whose state changes.

use serde_json::{Value, json};

use super::{Ask, READER, get, with_tokens};
use crate::support::client::{Client, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::until;
use crate::support::upstream::Upstream;

/// Client of a stream of events.
struct Listener {
    client: Client,
    text: String,
}

impl Listener {
    async fn start(gateway: &Gateway, query: &str) -> Listener {
        let mut client = Client::connect(gateway.admin).await;
        client.send(get(&format!("/events{query}")).bytes()).await;
        let head = client.head().await;
        assert_eq!((head.status(), head.get("content-type")), (200, Some("text/event-stream")));
        Listener { client, text: String::new() }
    }

    /// Reads the next event of a name.
    async fn event(&mut self, name: &str) -> Value {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(data) = event.strip_prefix(&format!("event: {name}\ndata: ")) {
                    return serde_json::from_str(data).unwrap();
                }
            }
            match self.client.piece().await {
                Piece::Data(piece) => self.text.push_str(std::str::from_utf8(&piece).unwrap()),
                other => panic!("the stream ended: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn admin_live_requests_have_shape_and_timing_and_no_text() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&with_tokens(Setup::providers(upstream.addr))).await;
    let mut listener = Listener::start(&gateway, "?topic=requests").await;
    let instance = get("/instance").expect(&gateway, 200).await;
    assert_eq!(instance["listeners"], 1);
    let body =
        json!({ "model": "gpt", "messages": [{ "role": "user", "content": "open sesame" }] }).to_string();
    let headers = [("x-api-key", KEY), ("x-request-id", "live-1")];
    let answer = gateway.ask(post_with("/v1/chat/completions?x=sesame", &headers, body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let event = listener.event("request").await;
    assert_eq!(
        (&event["request_id"], &event["status"], &event["key"]),
        (&json!("live-1"), &json!(200), &json!("alice"))
    );
    assert_eq!(
        (&event["model"], &event["provider"], &event["endpoint"]),
        (&json!("gpt"), &json!("openai"), &json!("chat"))
    );
    assert!(event["duration_ms"].as_f64().unwrap() > 0.0 && event["output_tokens"].is_u64(), "{event}");
    assert!(!event.to_string().contains("sesame") && event.get("client").is_none(), "{event}");
    drop(listener);
    // The listener is gone, and requests cost nothing any more.
    crate::support::soon(async {
        while get("/instance").expect(&gateway, 200).await["listeners"] != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn admin_live_targets_are_sent_when_their_state_changes() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::new().provider("a", "openai-compatible", &format!("http://{}/v1", upstream.addr), "");
    let gateway = Gateway::start(&with_tokens(setup.model("m", "a", "m"))).await;
    let mut listener = Listener::start(&gateway, "?topic=targets").await;
    let first = listener.event("target").await;
    assert_eq!(
        (&first["model"], &first["state"], &first["models"]),
        (&json!("m"), &json!("closed"), &json!(["m"]))
    );
    Ask::new("POST", "/targets/a/m/drain").token(super::OPERATOR).expect(&gateway, 200).await;
    assert_eq!(listener.event("target").await["state"], "drained");
}

#[tokio::test]
async fn admin_live_streams_are_bounded_and_drain_does_not_wait_for_them() {
    let mut gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let mut listeners = Vec::new();
    for _ in 0..32 {
        listeners.push(Listener::start(&gateway, "").await);
    }
    let refused = Ask::new("GET", "/events").token(READER).expect(&gateway, 503).await;
    assert_eq!(refused["error"]["code"], "unavailable");
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    until(|| !gateway.runs()).await;
}
