//! Retries on stale connections: how often a provider receives a request whose connection ends before the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::client::{post, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};

/// Pooled connections before a test begins.
const POOLED: usize = 5;

/// Reaction of the provider to the request under test.
#[derive(Clone, Copy)]
enum Then {
    /// Closes the previously pooled connections, and answers on others.
    ClosesOld,
    /// Reads the request on any connection, waits for this duration, and closes.
    Closes(Duration),
}

/// A provider whose first connections serve one request each, all at the same time, and are pooled afterwards. Requests
/// whose path ends in `end` are those under test; they are counted once their body has been read.
struct Provider {
    upstream: Upstream,
    seen: Arc<AtomicUsize>,
    gate: Gate,
}

impl Provider {
    async fn start(end: &'static str, answer: String, warm: String, then: Then) -> Provider {
        let (seen, gate) = (Arc::new(AtomicUsize::new(0)), Gate::new());
        let (counted, waiting) = (seen.clone(), gate.clone());
        let upstream = Upstream::start(move |mut conn| {
            let (seen, gate, answer, warm) = (counted.clone(), waiting.clone(), answer.clone(), warm.clone());
            async move {
                while let Some(request) = conn.request().await {
                    let path = request.head.line.split(' ').nth(1).unwrap_or_default();
                    if !gate.is_open() {
                        gate.passed().await;
                        conn.send(reply::json(200, &warm)).await;
                        continue;
                    }
                    if !path.ends_with(end) {
                        conn.send(reply::json(200, &warm)).await;
                        continue;
                    }
                    seen.fetch_add(1, Ordering::SeqCst);
                    match then {
                        Then::ClosesOld if conn.number < POOLED => return,
                        Then::ClosesOld => conn.send(reply::json(200, &answer)).await,
                        Then::Closes(after) => {
                            tokio::time::sleep(after).await;
                            return;
                        }
                    }
                }
            }
        })
        .await;
        Provider { upstream, seen, gate }
    }

    /// Fills the pool with [`POOLED`] connections by as many concurrent requests.
    async fn warm(&self, gateway: &Gateway, request: &[u8]) {
        let mut clients = Vec::new();
        for _ in 0..POOLED {
            let mut client = gateway.connect().await;
            client.send(request).await;
            clients.push(client);
        }
        self.upstream.wait_for(POOLED).await;
        self.gate.open();
        for client in &mut clients {
            assert_eq!(client.answer().await.status(), 200);
        }
        assert_eq!(self.upstream.connections(), POOLED);
        // A response may arrive before its connection is back in the pool.
        let released = async || gateway.metrics().await.sum("gateway_requests_in_flight", &[]) == 0.0;
        while !released().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

async fn resent(gateway: &Gateway) -> f64 {
    gateway.metrics().await.sum("gateway_upstream_retries_total", &[("reason", "stale_connection")])
}

/// Requests of an exchange and of a job, each with the end of its path and its response.
fn kinds() -> [(&'static str, Vec<u8>, String); 2] {
    let vectors = "{\"embeddings\":{\"float\":[[1]]}}".to_owned();
    let texts = post("/v1/embeddings", json!({"model": "vectors", "input": "a"}).to_string());
    [("/chat/completions", Form::Chat.request(false), Form::Chat.whole("gpt")), ("/embed", texts, vectors)]
}

fn setup(upstream: &Upstream) -> Setup {
    let addr = upstream.addr;
    Setup::providers(addr).provider("cohere", "cohere", &format!("http://{addr}/v2"), "").model(
        "vectors",
        "cohere",
        "embed-v4.0",
    )
}

#[tokio::test]
async fn retry_stale_connections_cost_one_resend() {
    for (end, request, answer) in kinds() {
        let provider = Provider::start(end, answer.clone(), answer, Then::ClosesOld).await;
        let gateway = Gateway::start(&setup(&provider.upstream)).await;
        provider.warm(&gateway, &request).await;
        let answer = gateway.ask(&request).await;
        assert_eq!(answer.status(), 200, "{end}: {}", answer.text());
        assert_eq!((provider.seen(), resent(&gateway).await), (2, 1.0), "{end}");
        assert_eq!(gateway.wait_for_log(POOLED + 1).await[POOLED]["attempts"], 2, "{end}");
    }
}

#[tokio::test]
async fn retry_stale_connection_is_limited_to_two_deliveries() {
    for (end, request, answer) in kinds() {
        let then = Then::Closes(Duration::ZERO);
        let provider = Provider::start(end, answer.clone(), answer, then).await;
        let gateway = Gateway::start(&setup(&provider.upstream)).await;
        provider.warm(&gateway, &request).await;
        let answer = gateway.ask(&request).await;
        assert_eq!(answer.status(), 500, "{end}: {}", answer.text());
        assert_eq!((provider.seen(), resent(&gateway).await), (2, 1.0), "{end}");
    }
}

/// The provider has had the request for a while and may have acted on it.
#[tokio::test]
async fn retry_not_after_a_request_was_held_for_a_while() {
    for (end, request, answer) in kinds() {
        let then = Then::Closes(Duration::from_millis(1_600));
        let provider = Provider::start(end, answer.clone(), answer, then).await;
        let gateway = Gateway::start(&setup(&provider.upstream)).await;
        provider.warm(&gateway, &request).await;
        let answer = gateway.ask(&request).await;
        assert_eq!(answer.status(), 500, "{end}: {}", answer.text());
        assert_eq!((provider.seen(), resent(&gateway).await), (1, 0.0), "{end}");
    }
}

/// A second submission would be a second video and a second charge.
#[tokio::test]
async fn retry_never_for_a_task_submission() {
    let submit = post("/v1/videos", json!({"model": "sora-2", "prompt": "a cat"}).to_string());
    let video =
        json!({"id": "video_1", "object": "video", "status": "queued", "model": "sora-2"}).to_string();
    for (then, status) in [(Then::Closes(Duration::ZERO), 500), (Then::ClosesOld, 200)] {
        let chat = Form::Chat.whole("gpt");
        let provider = Provider::start("/videos", video.clone(), chat, then).await;
        let lines = "apis = [\"chat\", \"videos\"]";
        let base = format!("http://{}/v1", provider.upstream.addr);
        let setup = Setup::new().provider("openai", "openai", &base, lines);
        let setup = setup.model("gpt", "openai", "gpt").model("sora-2", "openai", "sora-2");
        let gateway = Gateway::start(&setup).await;
        provider.warm(&gateway, &Form::Chat.request(false)).await;
        let answer = gateway.ask(&submit).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        // The submission does not use a pooled connection that the provider has closed.
        assert_eq!((provider.seen(), resent(&gateway).await), (1, 0.0), "{status}");
        if status == 200 {
            let path = format!("/v1/videos/{}", answer.json()["id"].as_str().unwrap());
            let bearer = format!("Bearer {KEY}");
            let asked = gateway.ask(request("GET", &path, &[("authorization", &bearer)])).await;
            assert_eq!(asked.status(), 200, "{}", asked.text());
        }
    }
}

/// A provider that resets every stream with HTTP_1_1_REQUIRED, although only HTTP/2 is configured.
#[tokio::test]
async fn http2_downgrade_is_tried_once_per_attempt() {
    let upstream = Upstream::accept(|_, socket, seen| async move {
        let Ok(mut connection) = h2::server::handshake(socket).await else { return };
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            seen.note(crate::support::upstream::Request::default());
            drop(request);
            answer.send_reset(h2::Reason::HTTP_1_1_REQUIRED);
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, "http = \"2\"")).await;
    for n in 1..=3 {
        let answer = gateway.ask(Form::Chat.request(false)).await;
        assert!(answer.status() >= 500, "{}", answer.text());
        assert!(upstream.count() <= 2 * n, "{} after {n}", upstream.count());
    }
}
