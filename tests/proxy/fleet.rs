//! Fleets: gateways that share a Valkey server share balances, usage, limits and stored responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::accounts::{PAYING, asking, paying, providers};
use crate::support::client::{Answer, post, post_with, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup, key, provider_of};
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;
use crate::support::{Gate, reply, soon};

/// A key with limits.
const LIMITED: &str = "client-key-of-lia-0010";
/// A key of another account.
const OTHER: &str = "client-key-of-otto-0008";

/// Configuration of a gateway in the fleet; only the first creates the accounts.
fn setup(upstream: &Upstream, server: &Server, first: bool) -> Setup {
    let mut setup = paying(upstream, "1").account("other", "1");
    setup.keys += &key("otto", OTHER, "account = \"other\"");
    if !first {
        setup.accounts.clear();
    }
    // Must stay the last table of the file.
    setup.log += &format!("[store]\nvalkey = \"{}\"\n", server.url());
    setup
}

async fn chat(gateway: &Gateway, key: &str) -> Answer {
    gateway.ask(asking(Form::Chat, provider_of(Form::Chat), false, key)).await
}

#[tokio::test]
async fn fleet_shares_balances_usage_and_responses() {
    let Some(server) = Server::start() else { return };
    let upstream = providers().await;
    let mut gateways = Vec::new();
    for n in 0..3 {
        gateways.push(Gateway::start(&setup(&upstream, &server, n == 0)).await);
    }
    for gateway in gateways.iter().cycle().take(24) {
        assert_eq!(chat(gateway, PAYING).await.status(), 200);
    }
    for record in gateways[2].records(24).await {
        assert_eq!((&record["cost"], &record["account"]), (&json!("0.000025"), &json!("acme")), "{record}");
    }
    assert_eq!(gateways[1].account("acme")["balance"], "0.9994");
    gateways[0].command(&["accounts", "audit"]);
    let usage = gateways[0].command(&["usage", "--by", "key", "--json"]);
    assert!(usage.contains("\"pia\"") && usage.contains("\"requests\":24"), "{usage}");

    // An account that is disabled through one gateway is disabled at all of them.
    gateways[0].command(&["accounts", "disable", "acme"]);
    for gateway in &gateways {
        soon(async {
            while chat(gateway, PAYING).await.status() != 401 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    let body = json!({"model": provider_of(Form::Messages), "input": "hello"});
    let answer = gateways[0].ask(post("/v1/responses", body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {KEY}");
    let path = format!("/v1/responses/{id}");
    let found = gateways[1].ask(request("GET", &path, &[("authorization", &bearer)])).await;
    assert_eq!((found.status(), &found.json()["id"]), (200, &json!(id)));
}

#[tokio::test]
async fn fleet_outage_serves_leased_accounts_and_charges_later() {
    let Some(mut server) = Server::start() else { return };
    let upstream = providers().await;
    let gateway = Gateway::start(&setup(&upstream, &server, true)).await;
    assert_eq!(chat(&gateway, PAYING).await.status(), 200);
    server.kill();
    // The gateway holds a leased balance of `acme`; a key without an account needs none; it has no lease of the account
    // `other`.
    for _ in 0..5 {
        assert_eq!(chat(&gateway, PAYING).await.status(), 200);
        assert_eq!(chat(&gateway, KEY).await.status(), 200);
    }
    let refused = chat(&gateway, OTHER).await;
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert!(gateway.metrics().await.sum("gateway_ledger_failures_total", &[("operation", "reserve")]) >= 1.0);
    server.start_again();
    soon(async {
        while chat(&gateway, OTHER).await.status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    // Each answered request is charged exactly once.
    soon(async {
        while gateway.account("acme")["balance"] != "0.99985"
            || gateway.account("other")["balance"] != "0.999975"
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    gateway.command(&["accounts", "audit"]);
}

/// Starts three gateways of a fleet; their provider answers the first `waiting` requests only when the gate opens.
async fn limited(server: &Server, lines: &str, waiting: usize, gate: &Gate) -> (Upstream, Vec<Gateway>) {
    let turn = Arc::new(AtomicUsize::new(0));
    let gate = gate.clone();
    let upstream = Upstream::start(move |mut conn| {
        let (turn, gate) = (turn.clone(), gate.clone());
        async move {
            while conn.request().await.is_some() {
                if turn.fetch_add(1, Ordering::SeqCst) < waiting {
                    gate.passed().await;
                }
                conn.send(reply::json(200, Form::Chat.whole(provider_of(Form::Chat)))).await;
            }
        }
    })
    .await;
    let mut setup = setup(&upstream, server, false);
    setup.keys += &key("lia", LIMITED, lines);
    let mut gateways = Vec::new();
    for _ in 0..3 {
        gateways.push(Gateway::start(&setup).await);
    }
    (upstream, gateways)
}

#[tokio::test]
async fn fleet_shares_requests_per_minute_and_reports_them() {
    let Some(server) = Server::start() else { return };
    let limits = "limits = { requests_per_minute = 60 }";
    let (upstream, gateways) = limited(&server, limits, 0, &Gate::new()).await;
    let began = std::time::Instant::now();
    let filled = || usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let left =
        |answer: &Answer| answer.get("x-ratelimit-remaining-requests").unwrap().parse::<usize>().unwrap();
    let mut answered = 0;
    for gateway in [0, 1, 2].into_iter().chain([0; 27]) {
        let answer = chat(&gateways[gateway], LIMITED).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.get("x-ratelimit-limit-requests"), Some("60"));
        answered += 1;
    }
    // Requests at one gateway reduce the remaining requests that the others report.
    soon(async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let answer = chat(&gateways[1], LIMITED).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            answered += 1;
            if left(&answer) + answered <= 60 + filled() {
                break;
            }
        }
    })
    .await;
    let mut refused = None;
    for gateway in gateways.iter().cycle().take(90) {
        let answer = chat(gateway, LIMITED).await;
        match answer.status() {
            200 => answered += 1,
            429 => {
                assert_eq!(left(&answer), 0);
                refused = Some(answer.get("retry-after").unwrap().to_owned());
            }
            status => panic!("{status}: {}", answer.text()),
        }
    }
    assert!((60..=60 + filled()).contains(&answered), "{answered} in {} s", filled());
    assert_eq!(upstream.count(), answered);
    assert_eq!(refused.unwrap(), "1");
}

/// The spend of the whole fleet is shown, not that of the gateway which answers.
#[tokio::test]
async fn fleet_shows_the_shared_budget_at_every_gateway() {
    let Some(server) = Server::start() else { return };
    let limits = "limits = { spend_per_day = 1, spend_per_month = 10 }";
    let (_upstream, gateways) = limited(&server, limits, 0, &Gate::new()).await;
    let body = json!({"model": provider_of(Form::Chat), "input": "hi", "store": false}).to_string();
    let ask = async |gateway: &Gateway| {
        let bearer = format!("Bearer {LIMITED}");
        let answer =
            gateway.ask(post_with("/v1/responses", &[("authorization", &bearer)], body.clone())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let number = |name: &str| answer.get(name).unwrap().parse::<f64>().unwrap();
        assert_eq!(number("x-codex-primary-window-minutes"), 1_440.0);
        let (day, month) = (number("x-codex-primary-used-percent"), number("x-codex-secondary-used-percent"));
        assert!(month <= day, "{month} {day}");
        day
    };
    assert_eq!(ask(&gateways[0]).await, 0.0, "nothing is spent yet");
    for _ in 0..80 {
        ask(&gateways[0]).await;
    }
    let here = ask(&gateways[0]).await;
    assert!(here >= 0.1, "{here}");
    // The other gateway has spent nothing itself. It learns of the rest with a renewal.
    soon(async {
        while ask(&gateways[1]).await < here {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn fleet_killed_gateway_releases_its_concurrency() {
    let Some(server) = Server::start() else { return };
    let gate = Gate::new();
    let (upstream, mut gateways) = limited(&server, "limits = { concurrent = 4 }", 4, &gate).await;
    let mut clients = Vec::new();
    for (at, gateway) in [0, 0, 0, 1].into_iter().enumerate() {
        let mut client = gateways[gateway].connect().await;
        client.send(asking(Form::Chat, provider_of(Form::Chat), false, LIMITED)).await;
        upstream.wait_for(at + 1).await;
        clients.push(client);
    }
    for gateway in &gateways {
        let refused = chat(gateway, LIMITED).await;
        assert_eq!((refused.status(), refused.get("retry-after")), (429, Some("1")), "{}", refused.text());
    }
    // Dropping kills the process, as `kill -9` does.
    drop(gateways.remove(0));
    soon(async {
        while chat(&gateways[1], LIMITED).await.status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    assert!(!gate.is_open(), "the request at the other gateway is under way still");
    gate.open();
}

/// A gateway returns its leased balance when it stops, not only when the lease expires.
#[tokio::test]
async fn fleet_stopped_gateway_returns_its_leased_balance() {
    let Some(server) = Server::start() else { return };
    let upstream = providers().await;
    let mut stopping = Gateway::start(&setup(&upstream, &server, true)).await;
    let other = Gateway::start(&setup(&upstream, &server, false)).await;
    assert_eq!(chat(&stopping, PAYING).await.status(), 200);
    stopping.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(stopping.ended().await.code(), Some(0));
    // The request may cost 0.98 of about 1.
    let body = json!({
        "model": provider_of(Form::Chat),
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 490_000,
    });
    let bearer = format!("Bearer {PAYING}");
    let headers = [("authorization", &*bearer)];
    let answer = other.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}
