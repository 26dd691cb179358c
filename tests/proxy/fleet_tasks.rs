//! Tasks in a fleet: submitted at one gateway, shown and completed at others, even if the first one is gone.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::accounts::PAYING;
use crate::support::client::{Answer, post_with, request};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, KEY, Setup, key};
use crate::support::soon;
use crate::support::valkey::Server;

const API: &str = "/prod-api/svc/v4/api";

/// Starts three gateways, of which the first creates the account. A video of five seconds costs 0.25; the balance is
/// 10.
async fn fleet(server: &Server) -> (Simulator, Vec<Gateway>) {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    let provider = Simulator::start(SimulatedProvider::Ark, options).await.unwrap();
    let mut setup = Setup::new()
        .provider("ark", "ark", &provider.base_url(), "")
        .model("seedance", "ark", "doubao-seedance-1-0-lite-t2v-250428")
        .priced("video_second = 0.05")
        .account("acme", "10");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    setup.log += &format!("[store]\nvalkey = \"{}\"\n", server.url());
    let mut gateways = Vec::new();
    for _ in 0..3 {
        gateways.push(Gateway::start(&setup).await);
        setup.accounts.clear();
    }
    (provider, gateways)
}

fn data(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()["data"].clone()
}

async fn begin(gateway: &Gateway, prompt: &str, tag: &str) -> String {
    let body = json!({"model": "seedance", "prompt": prompt, "duration": "5", "aspect_ratio": "16:9",
        "req_key": tag});
    let bearer = format!("Bearer {PAYING}");
    let asked =
        post_with(&format!("{API}/svcVideoCompletions"), &[("authorization", &bearer)], body.to_string());
    data(&gateway.ask(asked).await)["task_id"].as_str().unwrap().to_owned()
}

async fn show(gateway: &Gateway, id: &str, key: &str) -> Answer {
    let path = format!("{API}/task/{id}");
    gateway.ask(request("GET", &path, &[("authorization", &format!("Bearer {key}"))])).await
}

/// Polls a task at these gateways in turn until it has ended, and returns its final state.
async fn end(gateways: &[&Gateway], id: &str) -> Value {
    soon(async {
        for gateway in gateways.iter().cycle() {
            let data = data(&show(gateway, id, PAYING).await);
            if matches!(data["task_status"].as_str().unwrap(), "SUCCEEDED" | "FAILED") {
                return data;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        unreachable!("the gateways are asked for ever")
    })
    .await
}

/// Waits until the account has this balance, and audits it against the charges.
async fn balance(gateway: &Gateway, expected: &str) {
    soon(async {
        while gateway.account("acme")["balance"] != expected {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    gateway.command(&["accounts", "audit"]);
}

#[tokio::test]
async fn fleet_task_is_shared_by_all_gateways() {
    let Some(server) = Server::start() else { return };
    let (provider, gateways) = fleet(&server).await;
    let id = begin(&gateways[0], "A cat", "one").await;
    // The idempotency key holds at every gateway: the provider makes one video.
    let asked = provider.requests();
    assert_eq!(begin(&gateways[1], "A cat", "one").await, id);
    assert_eq!(provider.requests(), asked, "the provider was asked again");
    // Other keys receive 404 at every gateway.
    for gateway in &gateways {
        assert_eq!(show(gateway, &id, KEY).await.status(), 404);
    }
    let shown = data(&show(&gateways[1], &id, PAYING).await);
    assert_eq!(shown["task_id"], id.as_str());
    let ended = end(&[&gateways[2], &gateways[1]], &id).await;
    assert_eq!(ended["task_status"], "SUCCEEDED");
    for gateway in &gateways {
        assert_eq!(data(&show(gateway, &id, PAYING).await)["video_url"], ended["video_url"]);
    }
    balance(&gateways[0], "9.75").await;
    // A canceled task costs nothing, whichever gateway learns of it.
    let cancelled = begin(&gateways[1], "A cat [[film cancel]]", "two").await;
    assert_eq!(end(&[&gateways[0], &gateways[2]], &cancelled).await["task_status"], "FAILED");
    for gateway in &gateways {
        assert_eq!(data(&show(gateway, &cancelled, PAYING).await)["task_status"], "FAILED");
    }
    let charged = gateways[2].records(3).await;
    let charged: Vec<&Value> = charged.iter().filter(|record| record["cost"] != "0.00").collect();
    assert_eq!(charged.len(), 1, "{charged:#?}");
    assert_eq!((&charged[0]["cost"], &charged[0]["account"]), (&json!("0.25"), &json!("acme")));
    balance(&gateways[0], "9.75").await;
}

#[tokio::test]
async fn fleet_task_survives_the_gateway_that_submitted_it() {
    let Some(server) = Server::start() else { return };
    let (provider, mut gateways) = fleet(&server).await;
    let asked = begin(&gateways[0], "A cat", "one").await;
    let unasked = begin(&gateways[0], "A dog [[film looks 0]]", "two").await;
    let requests = provider.requests();
    // Dropping kills the process, as `kill -9` does.
    drop(gateways.remove(0));
    // The client polls one task at the other gateways. The other task is charged without being polled.
    assert_eq!(end(&[&gateways[0], &gateways[1]], &asked).await["task_status"], "SUCCEEDED");
    balance(&gateways[1], "9.50").await;
    assert!(provider.requests() > requests);
    let shown = data(&show(&gateways[0], &unasked, PAYING).await);
    assert_eq!(shown["task_status"], "SUCCEEDED");
    assert!(shown["video_url"].as_str().unwrap().contains("/films/"), "{shown}");
    // A completed task is charged once, however often it is polled.
    for gateway in &gateways {
        show(gateway, &asked, PAYING).await;
    }
    let usage = gateways[0].command(&["usage", "--by", "model", "--json"]);
    assert!(usage.contains("\"cost\":\"0.50\""), "{usage}");
    balance(&gateways[0], "9.50").await;
    // The idempotency key is still valid after its gateway is gone.
    assert_eq!(begin(&gateways[1], "A cat", "one").await, asked);
}
