//! Large bodies are worked on apart from everything else: a worker that translates one answers others meanwhile.

use std::fmt::Write as _;
use std::time::Duration;

use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// Waits that were counted so far.
const WAITS: &str = "gateway_large_body_wait_seconds_count";

/// A chat request with so many members that nobody knows.
fn large(members: usize) -> Vec<u8> {
    let mut body = "{\"model\":\"claude\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]".to_owned();
    for number in 0..members {
        write!(body, ",\"k{number}\":1").unwrap();
    }
    body.push('}');
    post("/v1/chat/completions", body)
}

/// Answers in the format of the path.
async fn vendors() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let form = if request.head.line.contains("messages") { Form::Messages } else { Form::Chat };
            conn.send(reply::json(200, form.whole("x"))).await;
        }
    })
    .await
}

#[tokio::test]
async fn one_worker_answers_others_while_it_translates_a_large_body() {
    let upstream = vendors().await;
    let mut setup = Setup::vendors(upstream.addr);
    setup.server = setup.server.replace("threads = 2", "threads = 1");
    let gateway = Gateway::start(&setup).await;
    let mut slow = gateway.connect().await;
    // Some seconds of work for a build without optimisation.
    slow.send(large(400_000)).await;
    gateway.wait_for_metric(WAITS, &[], 1.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(upstream.count(), 1, "the large body was done first");
    assert_eq!(slow.answer().await.status(), 200);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_large_body_with_it() {
    let upstream = vendors().await;
    let gateway = Gateway::start(&Setup::vendors(upstream.addr)).await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // All turns are taken by those that stay.
    let mut stay = Vec::new();
    for _ in 0..(cores / 2).max(1) {
        let mut client = gateway.connect().await;
        client.send(large(300_000)).await;
        stay.push(client);
    }
    gateway.wait_for_metric(WAITS, &[], stay.len() as f64).await;
    let mut leave = gateway.connect().await;
    leave.send(large(30_000)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(leave);
    for client in &mut stay {
        assert_eq!(client.answer().await.status(), 200);
    }
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    assert_eq!(upstream.count(), stay.len(), "somebody worked for a client that had left");
}
