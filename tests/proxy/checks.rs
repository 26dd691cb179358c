//! Health checks of providers: requests and results of checks, and their effect on targets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::scripts::closed_port;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::upstream::Upstream;
use crate::support::{reply, soon, until};

/// A short interval, because tests wait for checks, and a time-out that no check of a healthy provider reaches.
const CHECK: &str = "check = { every = \"100ms\", timeout = \"30s\" }";

/// A provider whose status codes for the model listing and for completions are set by the test.
struct Provider {
    upstream: Upstream,
    listing: Arc<AtomicU16>,
    answers: Arc<AtomicU16>,
    /// Maximum number of checks that were answered at the same time.
    most: Arc<AtomicUsize>,
}

async fn provider() -> Provider {
    let (listing, answers) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200)));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (list, answer, highest) = (listing.clone(), answers.clone(), most.clone());
    let upstream = Upstream::start(move |mut conn| {
        let (list, answer, now, most) = (list.clone(), answer.clone(), now.clone(), highest.clone());
        async move {
            while let Some(request) = conn.request().await {
                let checks = request.head.line.starts_with("GET ");
                let status = if checks { &list } else { &answer }.load(Ordering::SeqCst);
                let body = match (checks, status) {
                    (true, 200) => json!({"object": "list", "data": []}).to_string(),
                    (false, 200) => Form::Chat.whole("m"),
                    _ => provider_error(Form::Chat, status, "no"),
                };
                if checks {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                conn.send(reply::json(status, body)).await;
            }
        }
    })
    .await;
    Provider { upstream, listing, answers, most }
}

impl Provider {
    fn asked(&self, method: &str) -> usize {
        self.upstream.requests().iter().filter(|request| request.head.line.starts_with(method)).count()
    }

    /// Waits until `count` checks were received in all.
    async fn checked_in_all(&self, count: usize) {
        until(|| self.asked("GET ") >= count).await;
    }

    /// Waits for `more` further checks.
    async fn checked(&self, more: usize) {
        self.checked_in_all(self.asked("GET ") + more).await;
    }
}

/// A model whose first target is at the checked provider, and whose second target has a lower priority.
fn two(first: &str, second: &Upstream, check: &str) -> Setup {
    let mut setup = Setup::new()
        .provider("one", "openai-compatible", first, &format!("{check}\nheaders = {{ x-team = \"search\" }}"))
        .provider("two", "openai-compatible", &format!("http://{}/v1", second.addr), "");
    setup.routes = format!("[breaker]\ncooldown = \"60s\"\n\n{}", setup.routes);
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"one\", model = \"m\" }, \
                     { provider = \"two\", model = \"m\", tier = 1 }]\n";
    setup
}

async fn good() -> Upstream {
    Upstream::answering(reply::json(200, Form::Chat.whole("m"))).await
}

/// Returns the state of the first target and the result of the last check.
async fn state(gateway: &Gateway) -> (String, String) {
    let status = gateway.status().await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&status["targets"][0]["state"]), text(&status["checks"][0]["result"]))
}

async fn wait_for(gateway: &Gateway, state_is: &str, result: &str) {
    let reached = async {
        loop {
            let now = state(gateway).await;
            if (&*now.0, &*now.1) == (state_is, result) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(reached).await;
}

/// Sends a request and returns the target that answered it.
async fn answerer(gateway: &Gateway) -> String {
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.get("x-gateway-target").unwrap().to_owned()
}

#[tokio::test]
async fn check_uses_the_route_of_requests_and_runs_one_at_a_time() {
    let (provider, other) = (provider().await, good().await);
    let gateway = Gateway::start(&two(&format!("http://{}/v1", provider.upstream.addr), &other, CHECK)).await;
    provider.checked(4).await;
    let requests = provider.upstream.requests();
    for request in requests.iter().filter(|request| request.head.line.starts_with("GET ")) {
        assert_eq!(request.head.line, "GET /v1/models HTTP/1.1");
        let bearer = format!("Bearer {CREDENTIAL}");
        assert_eq!(request.head.all("authorization"), [bearer]);
        assert_eq!(request.head.get("x-team"), Some("search"));
        assert_eq!(request.head.get("content-type"), None);
        assert!(request.body.is_empty());
    }
    assert_eq!(provider.most.load(Ordering::SeqCst), 1, "checks at a time");
    assert_eq!(provider.upstream.connections(), 1, "its connection was not kept");
    assert_eq!(answerer(&gateway).await, "one/m");
    let status = gateway.status().await;
    let checks = status["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 1, "{status}");
    assert_eq!((&checks[0]["provider"], &checks[0]["status"]), (&json!("one"), &json!(200)));
    assert!(checks[0]["time"].as_str().unwrap().ends_with('Z'), "{status}");
    let metrics = gateway.metrics_after(1).await;
    let well = [("provider", "one"), ("result", "well")];
    assert!(metrics.sum("gateway_provider_checks_total", &well) >= 3.0);
    assert_eq!(metrics.sum("gateway_provider_well", &[("provider", "one")]), 1.0);
    // A check is not counted as a request.
    assert_eq!(metrics.sum("gateway_requests_total", &[("provider", "one")]), 1.0);
    assert!(!gateway.everything_written().contains(CREDENTIAL));
}

/// An unreachable provider is detected without a client request; when it is reachable again, its targets are used
/// without waiting for the cooldown.
#[tokio::test]
async fn check_opens_and_closes_the_breaker_of_an_unreachable_provider() {
    let reserved = closed_port();
    let place = reserved.local_addr().unwrap();
    let other = good().await;
    let gateway = Gateway::start(&two(&format!("http://{place}/v1"), &other, CHECK)).await;
    wait_for(&gateway, "provider_open", "unreachable").await;
    assert_eq!(answerer(&gateway).await, "two/m");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &[]), 0.0, "a request found it out");
    let opened = [("provider", "one"), ("target", ""), ("reason", "provider")];
    assert_eq!(metrics.sum("gateway_targets_opened_total", &opened), 1.0);
    assert_eq!(metrics.sum("gateway_provider_well", &[("provider", "one")]), 0.0);

    let listener = reserved.listen(64).unwrap();
    let served = tokio::spawn(async move {
        let answer = reply::json(200, Form::Chat.whole("m"));
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                let mut buffer = [0; 4_096];
                // Every request of this test arrives in one read.
                while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    if socket.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    wait_for(&gateway, "closed", "well").await;
    assert_eq!(answerer(&gateway).await, "one/m");
    until(|| gateway.log().contains("healthy again")).await;
    served.abort();
}

#[tokio::test]
async fn check_refused_credential_opens_the_breaker_and_is_logged_once() {
    let (provider, other) = (provider().await, good().await);
    provider.listing.store(401, Ordering::SeqCst);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let gateway = Gateway::start(&two(&base, &other, CHECK)).await;
    wait_for(&gateway, "provider_open", "credential").await;
    assert_eq!(answerer(&gateway).await, "two/m");
    assert_eq!(provider.asked("POST "), 0);
    let loud = "the provider rejects the gateway's credential";
    until(|| gateway.log().contains(loud)).await;
    let said = gateway.log().lines().filter(|line| line.contains(loud)).count();
    assert_eq!(said, 1, "{}", gateway.log());
    provider.checked(3).await;
    assert_eq!(gateway.log().lines().filter(|line| line.contains(loud)).count(), 1, "said again and again");
    // The credential is accepted again.
    provider.listing.store(200, Ordering::SeqCst);
    wait_for(&gateway, "closed", "well").await;
    assert_eq!(answerer(&gateway).await, "one/m");
}

/// A successful listing, which may need no credential, does not clear a 401 that a request received.
#[tokio::test]
async fn check_success_does_not_clear_a_refused_credential() {
    let (provider, other) = (provider().await, good().await);
    provider.answers.store(401, Ordering::SeqCst);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let gateway = Gateway::start(&two(&base, &other, CHECK)).await;
    assert_eq!(answerer(&gateway).await, "two/m");
    provider.checked(4).await;
    assert_eq!(state(&gateway).await, ("provider_open".to_owned(), "well".to_owned()));
    assert_eq!(answerer(&gateway).await, "two/m");
    assert_eq!(provider.asked("POST "), 1);
}

/// A successful check of the listing does not close the breaker of a target whose completions fail.
#[tokio::test]
async fn check_success_does_not_close_the_breaker_of_a_target() {
    let (provider, other) = (provider().await, good().await);
    provider.answers.store(500, Ordering::SeqCst);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let gateway = Gateway::start(&two(&base, &other, CHECK)).await;
    for _ in 0..5 {
        assert_eq!(answerer(&gateway).await, "two/m");
    }
    assert_eq!(provider.asked("POST "), 5);
    wait_for(&gateway, "open", "well").await;
    provider.checked(4).await;
    assert_eq!(answerer(&gateway).await, "two/m");
    assert_eq!(provider.asked("POST "), 5, "a check has sent a request to a target that fails");
}

#[tokio::test]
async fn check_result_by_status_code() {
    let (provider, other) = (provider().await, good().await);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let gateway = Gateway::start(&two(&base, &other, CHECK)).await;
    for (status, result) in [(404, "well"), (405, "well"), (403, "forbidden"), (429, "busy"), (302, "well")] {
        provider.listing.store(status, Ordering::SeqCst);
        wait_for(&gateway, "closed", result).await;
        provider.checked(6).await;
        wait_for(&gateway, "closed", result).await;
        assert_eq!(answerer(&gateway).await, "one/m", "{status}");
    }
    provider.listing.store(503, Ordering::SeqCst);
    wait_for(&gateway, "provider_open", "failed").await;
    assert_eq!(answerer(&gateway).await, "two/m");
}

/// A check that times out fails, and checks continue.
#[tokio::test]
async fn check_timeout_opens_the_breaker() {
    let silent = Upstream::start(|mut conn| async move { while conn.request().await.is_some() {} }).await;
    let other = good().await;
    let base = format!("http://{}/v1", silent.addr);
    let gateway =
        Gateway::start(&two(&base, &other, "check = { every = \"100ms\", timeout = \"50ms\" }")).await;
    wait_for(&gateway, "provider_open", "failed").await;
    assert_eq!(answerer(&gateway).await, "two/m");
    assert!(silent.requests().iter().all(|request| request.head.line.starts_with("GET ")));
}

/// A reload restarts checks whose settings changed, ends removed ones and leaves the rest unchanged.
#[tokio::test]
async fn check_is_started_and_ended_by_a_reload() {
    let (provider, other) = (provider().await, good().await);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let setup = two(&base, &other, "check = { every = \"1h\" }");
    let gateway = Gateway::start(&setup).await;
    // Either of the two checks may arrive before the test waits for it.
    provider.checked_in_all(1).await;
    gateway.reload("applied").await;
    gateway.replace("routes.toml", &setup.routes.replace("\"1h\"", "\"1h\", path = \"/health?deep=1\""));
    gateway.reload("applied").await;
    provider.checked_in_all(2).await;
    assert_eq!(provider.upstream.last_request().head.line, "GET /health?deep=1 HTTP/1.1");
    assert_eq!(provider.asked("GET "), 2, "a reload without a change has asked anew");
    wait_for(&gateway, "closed", "well").await;

    gateway.replace("routes.toml", &setup.routes.replace("check = { every = \"1h\" }", ""));
    gateway.reload("applied").await;
    until_no_checks(&gateway).await;
    let metrics = gateway.metrics().await;
    assert!(!metrics.0.contains_key("gateway_provider_well"), "a provider that is not checked has a series");
    assert_eq!(provider.asked("GET "), 2);
    assert_eq!(answerer(&gateway).await, "one/m");
}

async fn until_no_checks(gateway: &Gateway) {
    let none = async {
        while gateway.status().await["checks"].as_array().is_none_or(|checks| !checks.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(none).await;
}

/// After SIGTERM no checks are sent, even while the gateway drains.
#[tokio::test]
async fn check_ends_at_shutdown() {
    let (provider, other) = (provider().await, good().await);
    let base = format!("http://{}/v1", provider.upstream.addr);
    let mut gateway = Gateway::start(&two(&base, &other, CHECK)).await;
    provider.checked(2).await;
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(gateway.ended().await.success());
}
