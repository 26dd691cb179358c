//! Gateways that share a server: what one charges the others know, and what one keeps the others find.

use serde_json::json;

use super::accounts::{PAYING, asking, paying, vendors};
use crate::support::client::{Answer, post, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup, key, vendor_of};
use crate::support::soon;
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;

/// A key of another account.
const OTHER: &str = "client-key-of-otto-0008";

/// A gateway of the fleet; the first one makes the accounts.
fn setup(upstream: &Upstream, server: &Server, first: bool) -> Setup {
    let mut setup = paying(upstream, "1").account("other", "1");
    setup.keys += &key("otto", OTHER, "account = \"other\"");
    if !first {
        setup.accounts.clear();
    }
    // It is the last table of the file.
    setup.log += &format!("[store]\nvalkey = \"{}\"\n", server.url());
    setup
}

async fn chat(gateway: &Gateway, key: &str) -> Answer {
    gateway.ask(asking(Form::Chat, vendor_of(Form::Chat), false, key)).await
}

#[tokio::test]
async fn three_gateways_share_balances_usage_and_conversations() {
    let Some(server) = Server::start() else { return };
    let upstream = vendors().await;
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

    // Switched off at one place, it is so everywhere.
    gateways[0].command(&["accounts", "disable", "acme"]);
    for gateway in &gateways {
        soon(async {
            while chat(gateway, PAYING).await.status() != 401 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    let body = json!({"model": vendor_of(Form::Messages), "input": "hello"});
    let answer = gateways[0].ask(post("/v1/responses", body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {KEY}");
    let path = format!("/v1/responses/{id}");
    let found = gateways[1].ask(request("GET", &path, &[("authorization", &bearer)])).await;
    assert_eq!((found.status(), &found.json()["id"]), (200, &json!(id)));
}

#[tokio::test]
async fn while_the_server_is_away_accounts_in_use_go_on_and_all_is_charged_in_the_end() {
    let Some(mut server) = Server::start() else { return };
    let upstream = vendors().await;
    let gateway = Gateway::start(&setup(&upstream, &server, true)).await;
    assert_eq!(chat(&gateway, PAYING).await.status(), 200);
    server.kill();
    // It has money set aside, a key without an account needs none, and of the other account nothing is known.
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
    // Each that was answered is charged, once.
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
