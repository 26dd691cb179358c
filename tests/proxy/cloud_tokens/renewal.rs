//! Renewal: one exchange for any number of requests, token servers that are slow, dead or lie, and tokens of one second.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{RENEWALS, assert_no_secret, bearer, provider, renewals, upstream};
use crate::support::client::ask;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::{Gateway, free_ports};
use crate::support::setup::Setup;
use crate::support::token_server::{Behavior, TOKEN, TokenServer};
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, soon, until};

fn setup(tokens: &TokenServer, vertex: &Upstream) -> Setup {
    let base = format!("http://{}/v1/projects/p/locations/global", vertex.addr);
    provider(Setup::new(), "vertex", "vertex", &base, "google = { file = \"user.json\" }")
        .model("gemini", "vertex", "gemini-2.5-flash")
        .file("user.json", &tokens.authorized_user("p"))
}

/// Returns a setup with Azure, whose token server is the same one.
fn azure(tokens: &TokenServer, upstream: &Upstream) -> Setup {
    let lines = format!(
        "[provider.azure]\nsource = \"client-secret\"\ntenant = \"t\"\nclient_id = \"c\"\nauthority = \"http://{}\"\n\
         client_secret = {{ value = \"secret-of-the-application\" }}",
        tokens.host()
    );
    let base = format!("http://{}/openai/v1", upstream.addr);
    provider(Setup::new(), "azure", "azure", &base, &lines).model("gpt", "azure", "my-gpt")
}

/// Asks a gateway without a pause until `outcome` has been counted `times` times; every request must succeed.
async fn ask_until(gateway: &Gateway, outcome: &str, times: f64) {
    soon(async {
        while renewals(gateway, outcome).await < times {
            let answer = gateway.ask(Form::Chat.request_for("gpt", false)).await;
            assert_eq!(answer.status(), 200, "{outcome}: {}", answer.everything());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn azure_token_server_that_is_dead_or_lies_is_not_noticed() {
    let tokens = TokenServer::start(Behavior::Grant(8)).await;
    let upstream = upstream(Form::Chat).await;
    let gateway = Gateway::start(&azure(&tokens, &upstream)).await;
    ask_until(&gateway, "issued", 1.0).await;
    let refused =
        json!({"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret."});
    let lies = [
        (Behavior::Dead, "unreachable", 1.0),
        (Behavior::Send(401, refused.to_string()), "refused", 1.0),
        (Behavior::Send(200, "<html>lie</html>".to_owned()), "invalid", 1.0),
        (Behavior::Send(200, json!({"access_token": "", "expires_in": 60}).to_string()), "invalid", 2.0),
        (Behavior::Send(200, json!({"access_token": "lie", "expires_in": 0}).to_string()), "expired", 1.0),
    ];
    for (number, (behavior, outcome, times)) in lies.into_iter().enumerate() {
        tokens.set(behavior);
        ask_until(&gateway, outcome, times).await;
        // A true token in between, so that the next fault meets a valid one.
        tokens.set(Behavior::Grant(8));
        ask_until(&gateway, "issued", number as f64 + 2.0).await;
    }
    assert!(upstream.requests().iter().all(|request| bearer(request).starts_with(TOKEN)));
}

#[tokio::test]
async fn azure_tokens_of_one_second_fail_no_request() {
    let tokens = TokenServer::start(Behavior::Grant(1)).await;
    let upstream = upstream(Form::Chat).await;
    let gateway = Gateway::start(&azure(&tokens, &upstream)).await;
    ask_until(&gateway, "issued", 5.0).await;
    assert!(upstream.count() > tokens.granted());
}

#[tokio::test]
async fn azure_requests_that_come_first_wait_for_one_slow_exchange() {
    let gate = Gate::new();
    let tokens = TokenServer::start(Behavior::GrantAfter(gate.clone(), 3_600)).await;
    let upstream = upstream(Form::Chat).await;
    let mut gateway = Gateway::spawn(&azure(&tokens, &upstream), free_ports());
    soon(async {
        while tokio::net::TcpStream::connect(gateway.addr).await.is_err() {
            assert!(gateway.runs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut clients = JoinSet::new();
    for _ in 0..1_000 {
        let addr = gateway.addr;
        clients.spawn(async move { ask(addr, Form::Chat.request_for("gpt", false)).await.status() });
    }
    until(|| !tokens.requests().is_empty()).await;
    gate.open();
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    let refreshes = renewals(&gateway, "issued").await;
    eprintln!("1000 requests, {refreshes} renewals, {} exchanges", tokens.granted());
    assert_eq!((tokens.granted(), refreshes), (1, 1.0));
}

fn request() -> Vec<u8> {
    Form::Generate.request_for("gemini", false)
}

#[tokio::test]
async fn a_thousand_requests_at_once_make_one_exchange() {
    let gate = Gate::new();
    let tokens = TokenServer::start(Behavior::GrantAfter(gate.clone(), 3_600)).await;
    let vertex = upstream(Form::Generate).await;
    // A gateway without its first token may not be ready yet: wait for its port only.
    let mut gateway = Gateway::spawn(&setup(&tokens, &vertex), free_ports());
    soon(async {
        while tokio::net::TcpStream::connect(gateway.addr).await.is_err() {
            assert!(gateway.runs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut clients = JoinSet::new();
    for _ in 0..1_000 {
        let addr = gateway.addr;
        clients.spawn(async move { ask(addr, request()).await.status() });
    }
    // Some of the requests wait for the token, which is slow.
    until(|| !tokens.requests().is_empty()).await;
    gate.open();
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!((tokens.requests().len(), tokens.granted()), (1, 1));
    assert_eq!(renewals(&gateway, "issued").await, 1.0);
    assert!(vertex.requests().iter().all(|request| bearer(request) == format!("{TOKEN}1")));
}

#[tokio::test]
async fn dead_token_server_is_not_noticed_during_the_life_of_a_token() {
    let tokens = TokenServer::start(Behavior::Grant(12)).await;
    let vertex = upstream(Form::Generate).await;
    let gateway = Gateway::start(&setup(&tokens, &vertex)).await;
    assert_eq!(gateway.ask(request()).await.status(), 200);
    tokens.set(Behavior::Dead);
    // The token is renewed after half of its life, which fails, twice.
    soon(async {
        while renewals(&gateway, "unreachable").await < 2.0 {
            assert_eq!(gateway.ask(request()).await.status(), 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    tokens.set(Behavior::Grant(3_600));
    soon(async {
        while renewals(&gateway, "issued").await < 2.0 {
            assert_eq!(gateway.ask(request()).await.status(), 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(gateway.ask(request()).await.status(), 200);
    assert_eq!(bearer(&vertex.last_request()), format!("{TOKEN}2"));
}

#[tokio::test]
async fn lying_token_server_is_not_believed() {
    let tokens = TokenServer::start(Behavior::Grant(8)).await;
    let vertex = upstream(Form::Generate).await;
    let gateway = Gateway::start(&setup(&tokens, &vertex)).await;
    assert_eq!(gateway.ask(request()).await.status(), 200);
    for (body, outcome) in [
        (json!({"access_token": "lie-1", "expires_in": 0}).to_string(), "expired"),
        (json!({"access_token": "lie-2\r\nx: y", "expires_in": 60}).to_string(), "invalid"),
        ("<html>lie-3</html>".to_owned(), "invalid"),
    ] {
        let before = renewals(&gateway, outcome).await;
        tokens.set(Behavior::Send(200, body));
        soon(async {
            while renewals(&gateway, outcome).await == before {
                assert_eq!(gateway.ask(request()).await.status(), 200);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        // A true token in between, so that the next lie meets a valid one.
        let granted = tokens.granted();
        tokens.set(Behavior::Grant(8));
        until(|| tokens.granted() > granted).await;
    }
    assert!(vertex.requests().iter().all(|request| bearer(request).starts_with(TOKEN)));
    assert_no_secret(&gateway, &[TOKEN, "lie-"]);
}

#[tokio::test]
async fn tokens_of_one_second_fail_no_request() {
    let tokens = TokenServer::start(Behavior::Grant(1)).await;
    let vertex = upstream(Form::Generate).await;
    let gateway = Gateway::start(&setup(&tokens, &vertex)).await;
    soon(async {
        while tokens.granted() < 5 {
            assert_eq!(gateway.ask(request()).await.status(), 200);
        }
    })
    .await;
    // No request has made an exchange of its own: the tokens are far fewer.
    assert!(vertex.count() > tokens.granted());
    // The fifth one is counted once the gateway has read it.
    assert!(gateway.metrics().await.sum(RENEWALS, &[]) >= 4.0);
}

#[tokio::test]
async fn refused_token_is_replaced_and_the_request_repeated() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let refused = format!("Bearer {TOKEN}1");
    let vertex = Upstream::start(move |mut conn| {
        let refused = refused.clone();
        async move {
            while let Some(request) = conn.request().await {
                let answer = match request.head.get("authorization") == Some(&*refused) {
                    true => reply::json(401, provider_error(Form::Generate, 401, "invalid token")),
                    false => reply::json(200, Form::Generate.whole("m")),
                };
                conn.send(answer).await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&setup(&tokens, &vertex)).await;
    assert_eq!(gateway.ask(request()).await.status(), 200);
    assert_eq!(bearer(&vertex.last_request()), format!("{TOKEN}2"));
    assert_eq!(tokens.granted(), 2);
}

#[tokio::test]
async fn refusing_token_server_is_explained_in_the_log_and_not_to_clients() {
    let body =
        json!({"error": "invalid_grant", "error_description": "The account gateway-user was deleted."});
    let tokens = TokenServer::start(Behavior::Send(400, body.to_string())).await;
    let vertex = upstream(Form::Generate).await;
    let mut gateway = Gateway::spawn(&setup(&tokens, &vertex), free_ports());
    until(|| gateway.log().contains("invalid_grant: The account gateway-user was deleted.")).await;
    assert!(gateway.runs());
    let answer = gateway.ask(request()).await;
    assert!(answer.status() >= 500, "{}", answer.everything());
    assert!(!answer.everything().contains("gateway-user") && !answer.everything().contains("127.0.0.1"));
    assert_eq!(vertex.count(), 0);
}
