//! Fallback under load: one of three targets fails in every possible way before the first content of an answer, and the
//! clients receive complete answers.

mod hour;
mod open;
pub(crate) mod scripts;
mod times;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::support::client::post;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup, key};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, until};
use scripts::{ALL, DOCUMENTS, Failing, Fault, STREAMS, good, start, wants_stream};

/// Requests for each fault; below it the number of concurrent ones.
const REQUESTS: usize = 36;
const AT_ONCE: usize = 6;

/// Short time-outs of the failing provider, because the tests wait for the faults. The others have the usual ones, so
/// that no healthy provider is too slow on a busy machine.
const TIMES: &str = "timeouts = { connect = \"800ms\", first_byte = \"1s\", idle = \"1s\" }";

/// Returns kind, API and path version of a provider of this format.
fn kind(form: Form) -> (&'static str, &'static str, &'static str) {
    match form {
        Form::Chat => ("openai-compatible", "chat", "v1"),
        Form::Responses => ("openai", "responses", "v1"),
        Form::Messages => ("anthropic", "messages", "v1"),
        Form::Generate => ("gemini", "generate", "v1beta"),
    }
}

fn provider(setup: Setup, name: &str, form: Form, base: &str) -> Setup {
    provider_with(setup, name, form, base, "")
}

fn provider_with(setup: Setup, name: &str, form: Form, base: &str, lines: &str) -> Setup {
    let (kind, api, version) = kind(form);
    setup.provider(name, kind, &format!("{base}/{version}"), &format!("apis = [\"{api}\"]\n{lines}"))
}

/// Adds a model with these targets.
fn model(mut setup: Setup, lines: &str, targets: &[&str]) -> Setup {
    let targets: Vec<String> =
        targets.iter().map(|name| format!("{{ provider = \"{name}\", model = \"m\" }}")).collect();
    setup.routes += &format!("[[model]]\nid = \"gpt\"\n{lines}\ntargets = [{}]\n\n", targets.join(", "));
    setup
}

/// Starts an upstream that always succeeds.
async fn healthy(form: Form) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            conn.send(good(form, wants_stream(&request))).await;
        }
    })
    .await
}

/// A gateway with three targets, of which the second fails.
struct Three {
    gateway: Arc<Gateway>,
    failing: Failing,
    _others: [Upstream; 2],
}

async fn three(fault: Fault, forms: [Form; 3], lines: &str) -> Three {
    let failing = start(fault, forms[1]).await;
    let others = [healthy(forms[0]).await, healthy(forms[2]).await];
    let mut setup = Setup::new();
    setup = provider(setup, "first", forms[0], &format!("http://{}", others[0].addr));
    setup = provider_with(setup, "failing", forms[1], &failing.base, TIMES);
    setup = provider(setup, "third", forms[2], &format!("http://{}", others[1].addr));
    let setup = model(setup, lines, &["first", "failing", "third"]);
    let gateway = Arc::new(Gateway::start(&setup).await);
    Three { gateway, failing, _others: others }
}

/// Sends [`REQUESTS`] requests and returns descriptions of the failed ones.
async fn ask(gateway: &Arc<Gateway>, client: Form, stream: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..REQUESTS {
        if tasks.len() >= AT_ONCE {
            wrong.extend(tasks.join_next().await.unwrap().unwrap());
        }
        let gateway = gateway.clone();
        tasks.spawn(async move {
            let answer = gateway.ask(client.request_for("gpt", stream)).await;
            let complete = if stream {
                client.looks_complete(answer.text()) && client.stream_error(answer.text()).is_none()
            } else {
                client != Form::Chat || answer.json().get("choices").is_some()
            };
            let told = answer.get("x-gateway-target").unwrap_or("nobody").to_owned();
            (answer.status() != 200 || !complete)
                .then(|| format!("{number}: {} by {told}: {}", answer.status(), answer.text()))
        });
    }
    while let Some(asked) = tasks.join_next().await {
        wrong.extend(asked.unwrap());
    }
    wrong
}

async fn hidden(fault: Fault, stream: bool) {
    let forms = [Form::Chat; 3];
    let three = three(fault, forms, "").await;
    let wrong = ask(&three.gateway, Form::Chat, stream).await;
    assert!(wrong.is_empty(), "{fault:?}, stream {stream}: {wrong:#?}");
    let mut asked = REQUESTS;
    if fault.opens() {
        // Targets are selected at random: a round may not reach the failing target often enough to open its breaker.
        let opened = async || {
            let metrics = three.gateway.metrics().await;
            metrics.sum("gateway_targets_opened_total", &[("provider", "failing")]) >= 1.0
        };
        while !opened().await {
            assert!(asked < 10 * REQUESTS, "{fault:?}: nobody left it alone");
            let wrong = ask(&three.gateway, Form::Chat, stream).await;
            assert!(wrong.is_empty(), "{fault:?}, stream {stream}: {wrong:#?}");
            asked += REQUESTS;
        }
    }
    if let Some(upstream) = &three.failing.upstream {
        assert!(upstream.connections() > 0, "{fault:?}: it was never asked");
    }
    three.gateway.wait_for_metric("gateway_requests_total", &[("status", "200")], asked as f64).await;
}

#[tokio::test]
async fn fallback_hides_every_fault_from_clients_of_documents() {
    for fault in ALL.into_iter().chain(DOCUMENTS) {
        hidden(fault, false).await;
    }
}

#[tokio::test]
async fn fallback_hides_every_fault_from_clients_of_streams() {
    for fault in ALL.into_iter().chain(STREAMS) {
        hidden(fault, true).await;
    }
}

/// The request is encoded anew for the next target, for all formats of client and targets.
#[tokio::test]
async fn fallback_to_a_target_of_another_format() {
    for client in Form::ALL {
        for (fault, stream) in [
            (Fault::Status(500), false),
            (Fault::ErrorLater, true),
            (Fault::Cut, true),
            (Fault::ShortBody, false),
        ] {
            let failing = Form::ALL.into_iter().cycle().skip_while(|form| *form != client).nth(1).unwrap();
            let three = three(fault, [client, failing, Form::Messages], "").await;
            let wrong = ask(&three.gateway, client, stream).await;
            assert!(wrong.is_empty(), "{client:?} {fault:?}: {wrong:#?}");
        }
    }
}

/// A body of several megabytes is resent completely.
#[tokio::test]
async fn fallback_resends_a_large_body() {
    let three = three(Fault::Status(503), [Form::Chat; 3], "").await;
    let text = "lang ".repeat(1 << 20);
    let body = format!("{{\"model\":\"gpt\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}");
    let failing = three.failing.upstream.as_ref().unwrap();
    // Targets are selected at random: one request in three tries the failing target first.
    for asked in 0..60 {
        if asked >= 8 && failing.count() > 0 {
            break;
        }
        let answer = three.gateway.ask(post("/v1/chat/completions", &body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    assert!(failing.count() > 0, "it was never asked");
    assert!(failing.requests().iter().all(|request| request.body.len() > text.len()));
    assert!(three._others.iter().flat_map(Upstream::requests).all(|r| r.body.len() > text.len()));
}

/// Starts a gateway with two targets; the first has priority.
async fn two(first: impl Into<Vec<u8>>, second: impl Into<Vec<u8>>, lines: &str) -> (Gateway, [Upstream; 2]) {
    let upstreams = [Upstream::answering(first).await, Upstream::answering(second).await];
    let mut setup = Setup::new().account("acme", "1000");
    setup.keys = key("alice", KEY, "account = \"acme\"") + "[[account]]\nname = \"acme\"\n";
    for (name, upstream) in ["one", "two"].into_iter().zip(&upstreams) {
        setup = provider(setup, name, Form::Chat, &format!("http://{}", upstream.addr));
    }
    setup.routes += &format!(
        "[[model]]\nid = \"gpt\"\n{lines}\nprice = {{ input = 1000, output = 1000 }}\n\
         targets = [{{ provider = \"one\", model = \"m\" }}, {{ provider = \"two\", model = \"m\", tier = 1 }}]\n"
    );
    (Gateway::start(&setup).await, upstreams)
}

fn refused(status: u16, message: &str) -> Vec<u8> {
    reply::json(status, provider_error(Form::Chat, status, message))
}

#[tokio::test]
async fn fallback_is_reported_and_charged_once() {
    let (gateway, _two) = two(refused(500, "no"), good(Form::Chat, false), "").await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.get("x-gateway-target"), Some("two/m"));
    assert_eq!(answer.get("x-gateway-attempts"), Some("2"));
    let log = gateway.wait_for_log(1).await;
    assert_eq!(log[0]["tried"], "one/m: upstream_failed 500");
    assert_eq!((log[0]["attempts"].as_u64(), log[0]["provider"].as_str()), (Some(2), Some("two")));
    let record = gateway.records(1).await.remove(0);
    assert_eq!(record["provider"], "two");
    // 11 + 7 tokens at 1000 per million.
    assert_eq!(log[0]["cost"].as_f64(), Some(0.018), "{}", log[0]);
    let metrics = gateway.metrics().await;
    let retried = [("provider", "one"), ("reason", "upstream_failed")];
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &retried), 1.0);
    assert_eq!(metrics.sum("gateway_upstream_errors_total", &[("provider", "one")]), 1.0);
}

#[tokio::test]
async fn fallback_not_after_a_client_error() {
    let (gateway, [_first, second]) = two(refused(400, "messages: bad"), good(Form::Chat, false), "").await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("messages: bad"), "{}", answer.text());
    assert_eq!(second.count(), 0);
}

#[tokio::test]
async fn fallback_after_length_and_capability_errors_if_configured() {
    for (message, word) in [
        ("This model's maximum context length is 8192 tokens.", "context_length"),
        ("logprobs is not supported with this model.", "unsupported"),
    ] {
        for on in [false, true] {
            let lines = if on { format!("retry = {{ also = [\"{word}\"] }}") } else { String::new() };
            let (gateway, _two) = two(refused(400, message), good(Form::Chat, false), &lines).await;
            let answer = gateway.ask(Form::Chat.request(false)).await;
            assert_eq!(answer.status(), if on { 200 } else { 400 }, "{word}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn fallback_exhausted_returns_the_most_useful_error() {
    let (gateway, _two) = two(refused(429, "slow down"), refused(502, "bad gateway"), "").await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 429);
    assert!(answer.text().contains("slow down"), "{}", answer.text());
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_retries_refused_total", &[("reason", "targets")]), 1.0);
}

#[tokio::test]
async fn fallback_is_bounded_by_attempts_budget_and_deadline() {
    for (lines, reason) in [
        ("retry = { attempts = 1 }", "attempts"),
        ("retry = { percent = 0, reserve = 0 }", "budget"),
        ("retry = { deadline = \"0ms\" }", "deadline"),
    ] {
        let (gateway, [_first, second]) = two(refused(500, "no"), good(Form::Chat, false), lines).await;
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 500, "{lines}");
        assert_eq!(second.count(), 0);
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.sum("gateway_retries_refused_total", &[("reason", reason)]), 1.0, "{lines}");
    }
}

/// A target is skipped during its `retry-after`; if all targets are, the client receives 429 with `retry-after`.
#[tokio::test]
async fn cooldown_by_retry_after_skips_the_target() {
    let busy = || {
        let headers = [("content-type", "application/json"), ("retry-after", "30")];
        reply::whole(429, &headers, provider_error(Form::Chat, 429, "slow down"))
    };
    let (gateway, [first, second]) = two(busy(), good(Form::Chat, false), "").await;
    for _ in 0..5 {
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    }
    assert_eq!((first.count(), second.count()), (1, 5));
    let targets = gateway.status().await["targets"].clone();
    assert_eq!(
        (targets[0]["state"].as_str(), targets[1]["state"].as_str()),
        (Some("waiting"), Some("closed"))
    );

    let (gateway, [first, second]) = two(busy(), busy(), "").await;
    for _ in 0..3 {
        let answer = gateway.ask(Form::Chat.request(false)).await;
        assert_eq!(answer.status(), 429);
        let wait: u64 = answer.get("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
    }
    assert_eq!((first.count(), second.count()), (1, 1));
}

#[tokio::test]
async fn reported_quota_exhausted_skips_the_target() {
    let headers = [
        ("content-type", "application/json"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1m0s"),
    ];
    let last = reply::whole(200, &headers, Form::Chat.whole("m"));
    let (gateway, [first, second]) = two(last, good(Form::Chat, false), "").await;
    for _ in 0..4 {
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    }
    assert_eq!((first.count(), second.count()), (1, 3));
}

/// Target state survives a reload; a changed credential resets it.
#[tokio::test]
async fn breaker_state_survives_a_reload_unless_the_credential_changes() {
    let (gateway, [first, _second]) = two(refused(401, "bad key"), good(Form::Chat, false), "").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(first.count(), 1);
    until(|| gateway.log().contains("rejects the gateway's credential")).await;
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(first.count(), 1, "it was asked again");
    let routes = std::fs::read_to_string(gateway.folder().join("routes.toml")).unwrap();
    gateway.replace("routes.toml", &routes.replacen("upstream-secret-of-the-gateway", "another-secret", 1));
    gateway.reload("applied").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(first.count(), 2, "the new credential was not tried");
}

/// A conversation stays at its target, recognized by its session header or by its first message.
#[tokio::test]
async fn affinity_keeps_a_conversation_at_its_target() {
    let three = three(Fault::Flapping, [Form::Chat; 3], "policy = \"affinity\"").await;
    // Replace the failing target by a healthy one.
    let third = healthy(Form::Chat).await;
    let routes = std::fs::read_to_string(three.gateway.folder().join("routes.toml")).unwrap();
    let routes = routes.replace(&three.failing.base, &format!("http://{}", third.addr));
    three.gateway.replace("routes.toml", &routes);
    three.gateway.reload("applied").await;
    // One connection: a request follows the end of the previous one, which no longer counts as load of its target.
    let mut client = three.gateway.connect().await;
    let mut used = std::collections::BTreeSet::new();
    for conversation in 0..12 {
        let mut messages = format!("{{\"role\":\"user\",\"content\":\"This is the {conversation}th.\"}}");
        let mut targets = std::collections::BTreeSet::new();
        for turn in 0..4 {
            let body = format!("{{\"model\":\"gpt\",\"messages\":[{messages}]}}");
            let answer = client.ask(post("/v1/chat/completions", &body)).await;
            targets.insert(answer.get("x-gateway-target").unwrap().to_owned());
            messages += &format!(
                ",{{\"role\":\"assistant\",\"content\":\"yes\"}},{{\"role\":\"user\",\"content\":\"{turn}\"}}"
            );
        }
        assert_eq!(targets.len(), 1, "{conversation}: {targets:?}");
        used.extend(targets);
    }
    assert_eq!(used.len(), 3, "twelve conversations are at {used:?}");
    let bearer = format!("Bearer {KEY}");
    let mut targets = std::collections::BTreeSet::new();
    for turn in 0..6 {
        let body =
            format!("{{\"model\":\"gpt\",\"messages\":[{{\"role\":\"user\",\"content\":\"{turn}\"}}]}}");
        let headers = [("authorization", &*bearer), ("session_id", "0199-abc")];
        let request = crate::support::client::post_with("/v1/chat/completions", &headers, body);
        let answer = client.ask(request).await;
        targets.insert(answer.get("x-gateway-target").unwrap().to_owned());
    }
    assert_eq!(targets.len(), 1, "{targets:?}");
}

/// Content that the client has received cannot be withdrawn: a stream that breaks later ends with an error.
#[tokio::test]
async fn fallback_not_after_the_first_content() {
    let gate = Gate::new();
    let waiting = gate.clone();
    let first = Upstream::start(move |mut conn| {
        let gate = waiting.clone();
        async move {
            conn.request().await;
            conn.send(reply::stream_head()).await;
            for frame in Form::Chat.frames("m").iter().take(2) {
                conn.send(reply::chunk(frame)).await;
            }
            gate.passed().await;
        }
    })
    .await;
    let second = Upstream::answering(good(Form::Chat, true)).await;
    let mut setup = Setup::new();
    for (name, upstream) in [("one", &first), ("two", &second)] {
        setup = provider(setup, name, Form::Chat, &format!("http://{}", upstream.addr));
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"one\", model = \"m\" }, \
                     { provider = \"two\", model = \"m\", tier = 1 }]\n";
    let gateway = Gateway::start(&setup).await;
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    assert_eq!(client.head().await.status(), 200);
    let mut seen = Vec::new();
    read_until(&mut client, &mut seen, "Gr").await;
    gate.open();
    read_until(&mut client, &mut seen, "data: {\"error\"").await;
    read_until(&mut client, &mut seen, "}\n\n").await;
    let seen = String::from_utf8(seen).unwrap();
    assert!(Form::Chat.stream_error(&seen).is_some(), "{seen}");
    assert_eq!(second.count(), 0);
}

/// The time of a failed attempt is not counted as overhead of the gateway.
#[tokio::test]
async fn overhead_metric_excludes_failed_attempts() {
    // Longer than the gateway itself needs for a request on a busy machine.
    const FAILS_AFTER: std::time::Duration = std::time::Duration::from_secs(3);
    let first = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            tokio::time::sleep(FAILS_AFTER).await;
            conn.send(refused(500, "no")).await;
        }
    })
    .await;
    let second = Upstream::answering(good(Form::Chat, false)).await;
    let mut setup = Setup::new();
    for (name, upstream) in [("one", &first), ("two", &second)] {
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, "");
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"one\", model = \"m\" }, \
                     { provider = \"two\", model = \"m\", tier = 1 }]\n";
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    gateway.wait_for_metric("gateway_overhead_seconds_count", &[], 1.0).await;
    let overhead = gateway.metrics().await.sum("gateway_overhead_seconds_sum", &[]);
    assert!(overhead < FAILS_AFTER.as_secs_f64(), "{overhead} s");
}

/// Time-outs of a model override those of its providers.
#[tokio::test]
async fn timeout_first_byte_of_the_model_overrides_its_provider() {
    let silent = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let second = Upstream::answering(good(Form::Chat, false)).await;
    let mut setup = Setup::new();
    for (name, upstream) in [("one", &silent), ("two", &second)] {
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, "");
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntimeouts = { first_byte = \"200ms\" }\nfallback = [\"other\"]\n\
                     targets = [{ provider = \"one\", model = \"m\" }]\n\n\
                     [[model]]\nid = \"other\"\ntargets = [{ provider = \"two\", model = \"m\" }]\n";
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!((answer.status(), answer.get("x-gateway-target")), (200, Some("two/m")), "{}", answer.text());
    // The response carries the name of the requested model, not of the fallback model.
    assert_eq!(answer.json()["model"], "gpt");
}

/// Embeddings and reranking fall back to the next target.
#[tokio::test]
async fn fallback_of_jobs() {
    let first = Upstream::answering(reply::json(503, provider_error(Form::Chat, 503, "no"))).await;
    let vectors = "{\"object\":\"list\",\"model\":\"m\",\"data\":[{\"object\":\"embedding\",\"index\":0,\
                   \"embedding\":[0.5,0.25]}],\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2}}";
    let orders = "{\"id\":\"r\",\"results\":[{\"index\":0,\"relevance_score\":0.9}]}";
    let second = Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let body = if request.head.target().contains("rerank") { orders } else { vectors };
            conn.send(reply::json(200, body)).await;
        }
    })
    .await;
    let mut setup = Setup::new();
    for (name, upstream) in [("one", &first), ("two", &second)] {
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, "");
    }
    setup.routes += "[[model]]\nid = \"v\"\ntargets = [{ provider = \"one\", model = \"m\" }, \
                     { provider = \"two\", model = \"m\", tier = 1 }]\n";
    let gateway = Gateway::start(&setup).await;
    for (path, body) in [
        ("/v1/embeddings", "{\"model\":\"v\",\"input\":\"a\"}"),
        ("/v1/rerank", "{\"model\":\"v\",\"query\":\"a\",\"documents\":[\"b\"]}"),
    ] {
        let answer = gateway.ask(post(path, body)).await;
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        assert_eq!(answer.get("x-gateway-target"), Some("two/m"), "{path}");
    }
    assert_eq!(first.count(), 2);
}
