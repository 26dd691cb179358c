//! Drained targets over restarts, and what the gateways of a fleet say of themselves.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Ask, OPERATOR, get, post, with_tokens};
use crate::support::client::{Client, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;
use crate::support::{reply, soon};

/// Returns the present day in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    model_gateway::ledger::export::date(i64::try_from(now / 86_400).unwrap())
}

async fn setup() -> (Upstream, Setup) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::new().provider("a", "openai-compatible", &format!("http://{}/v1", upstream.addr), "");
    (upstream, with_tokens(setup.model("m", "a", "org/m")))
}

#[tokio::test]
async fn admin_drained_target_stays_so_over_a_restart() {
    let (_upstream, setup) = setup().await;
    let mut gateway = Gateway::start(&setup).await;
    let drain = |action: &str| Ask::new("POST", &format!("/targets/a/org%2Fm/{action}")).token(OPERATOR);
    drain("drain").expect(&gateway, 200).await;
    assert_eq!(get("/fleet").expect(&gateway, 200).await["gateways"][0]["drained"], json!(["a/org/m"]));
    // Another process with the same state folder, as after a restart.
    gateway.signal(Signal::SIGTERM);
    gateway.ended().await;
    let mut next = setup.clone();
    next.log += &format!("[admin]\nstate = {:?}\n", gateway.folder().join("admin"));
    let restarted = Gateway::start(&next).await;
    let target = get("/targets/a/org%2Fm").expect(&restarted, 200).await;
    assert_eq!((&target["state"], &target["drained"]), (&json!("drained"), &json!(true)));
    drain("resume").expect(&restarted, 200).await;
    assert_eq!(get("/fleet").expect(&restarted, 200).await["gateways"][0]["drained"], json!([]));
    assert_eq!(std::fs::read_to_string(gateway.folder().join("admin/drained.json")).unwrap(), "[]\n");
}

#[tokio::test]
async fn admin_fleet_without_a_shared_store_is_this_gateway() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let fleet = get("/fleet").expect(&gateway, 200).await;
    assert_eq!((&fleet["shared"], &fleet["same_config"]), (&json!(false), &json!(true)));
    let own = &fleet["gateways"][0];
    assert_eq!((&own["self"], &own["id"], &own["generation"]), (&json!(true), &json!("this"), &json!(1)));
    assert!(!gateway.folder().join("admin").exists(), "nothing is stored for a fleet that is none");
}

#[tokio::test]
async fn admin_fleet_shows_every_gateway_of_the_shared_store() {
    let Some(valkey) = Server::start() else { return };
    let (_upstream, mut setup) = setup().await;
    setup.log += &format!("[store]\nvalkey = \"{}\"\n", valkey.url());
    let first = Gateway::start(&setup).await;
    setup.keys += "# Other keys.\n";
    let second = Gateway::start(&setup).await;
    Ask::new("POST", "/targets/a/org%2Fm/drain").token(OPERATOR).expect(&second, 200).await;
    // Usage is that of the fleet, whichever gateway is asked.
    let body = Form::Chat.body("m", false);
    assert_eq!(first.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body)).await.status(), 200);
    soon(async {
        for group in ["day,provider", "hour,key", "month,model"] {
            while get(&format!("/usage?group={group}&from={}", today())).expect(&second, 200).await["total"]["requests"] != 1 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    })
    .await;
    // Keys are not shared: the form and the answer say so.
    assert_eq!(get("/instance").expect(&second, 200).await["keys_at_this_gateway_only"], true);
    assert_eq!(second.status().await["keys_at_this_gateway_only"], true);
    let made = post("/keys").body(json!({ "name": "local" })).expect(&second, 200).await;
    assert!(made["warnings"][0].as_str().unwrap().contains("valid at this gateway only"), "{made}");
    get("/keys/local").expect(&first, 404).await;
    let shown = |fleet: &Value| fleet["gateways"].as_array().unwrap().len();
    soon(async {
        loop {
            let fleet = get("/fleet").expect(&first, 200).await;
            assert_eq!(fleet["shared"], true);
            if shown(&fleet) == 2 && fleet["gateways"][1]["drained"] == json!(["a/org/m"]) {
                assert_eq!(fleet["same_config"], false, "{fleet}");
                assert_eq!(
                    (&fleet["gateways"][0]["self"], &fleet["gateways"][1]["self"]),
                    (&json!(true), &json!(false))
                );
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn admin_live_requests_are_sent_when_they_begin_and_filtered() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&with_tokens(Setup::providers(upstream.addr))).await;
    let mut all = Client::connect(gateway.admin).await;
    all.send(get("/events?topic=starts&topic=requests&key=alice").bytes()).await;
    assert_eq!(all.head().await.status(), 200);
    let mut none = Client::connect(gateway.admin).await;
    none.send(get("/events?topic=requests&status=5xx").bytes()).await;
    assert_eq!(none.head().await.status(), 200);
    let headers = [("x-api-key", KEY), ("x-request-id", "live-2")];
    let body = Form::Chat.body("gpt", false);
    assert_eq!(gateway.ask(post_with("/v1/chat/completions", &headers, body)).await.status(), 200);
    let mut text = String::new();
    while !text.contains("event: request\n") || !text.ends_with("\n\n") {
        let Piece::Data(piece) = all.piece().await else { panic!("{text}") };
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    let start = text.find("event: request_start\n").unwrap();
    assert!(start < text.find("event: request\n").unwrap(), "{text}");
    let data = text[start..].lines().nth(1).unwrap().strip_prefix("data: ").unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&event["request_id"], &event["model"], &event["provider"], &event["stream"]),
        (&json!("live-2"), &json!("gpt"), &json!("openai"), &json!(false))
    );
    assert!(event["request_bytes"].as_u64().unwrap() > 0 && event.get("status").is_none(), "{event}");
    let wrong = get("/events?status=600").expect(&gateway, 400).await;
    assert_eq!(wrong["error"]["field"], "status");
}
