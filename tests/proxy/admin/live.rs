//! Live events: requests that end and targets whose state changes.

use serde_json::{Value, json};

use super::sessions::cookie_of;
use super::{ADMIN, Ask, OPERATOR, READER, get, post, with_tokens};
use crate::support::client::{Client, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{soon, until};

/// Client of a stream of events.
struct Listener {
    client: Client,
    text: String,
}

impl Listener {
    async fn start(gateway: &Gateway, query: &str) -> Listener {
        Listener::of(gateway, &get(&format!("/events{query}"))).await
    }

    async fn of(gateway: &Gateway, ask: &Ask) -> Listener {
        let mut client = Client::connect(gateway.admin).await;
        client.send(ask.bytes()).await;
        let head = client.head().await;
        assert_eq!((head.status(), head.get("content-type")), (200, Some("text/event-stream")));
        Listener { client, text: String::new() }
    }

    /// Waits for the end of the stream.
    async fn ends(mut self) {
        soon(async { while let Piece::Data(_) = self.client.piece().await {} }).await;
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
    soon(async {
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
    Ask::new("POST", "/targets/a/m/drain").token(OPERATOR).expect(&gateway, 200).await;
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

/// What a listener may see ends with its right to see it.
#[tokio::test]
async fn admin_live_stream_ends_with_the_authority_of_its_caller() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let sign_in = Ask::new("POST", "/session").header("sec-fetch-site", "same-origin");
    let session = sign_in.body(json!({ "token": OPERATOR })).send(&gateway).await;
    let (cookie, csrf) = (cookie_of(&session), session.json()["csrf"].as_str().unwrap().to_owned());
    let by_session = Ask::new("GET", "/events?topic=requests").header("cookie", &cookie);
    let by_session = Listener::of(&gateway, &by_session).await;
    let sign_out = Ask::new("DELETE", "/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    sign_out.header("sec-fetch-site", "same-origin").expect(&gateway, 200).await;
    by_session.ends().await;

    let by_token = Listener::start(&gateway, "?topic=requests").await;
    let mut other = Listener::of(&gateway, &Ask::new("GET", "/events?topic=totals").token(ADMIN)).await;
    let rita = "name = \"rita\"\n";
    let tokens = gateway.read("admin.toml").replace(rita, &format!("{rita}enabled = false\n"));
    gateway.replace("admin.toml", &tokens);
    post("/config/reload").expect(&gateway, 200).await;
    by_token.ends().await;
    // Others go on.
    other.event("totals").await;
    other.event("totals").await;
}
