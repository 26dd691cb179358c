//! Too few file descriptors: reported at start, and the admin port answers although clients hold all that they may.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;
use crate::support::{reply, soon, until};

async fn start(limit: usize, limits: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr)
        .limits(limits)
        .file("start.sh", &format!("ulimit -n {limit}\nexec \"$@\"\n"));
    let gateway = Gateway::start(&setup).await;
    (upstream, gateway)
}

#[tokio::test]
async fn descriptors_below_the_connections_are_reported_at_start() {
    let (_upstream, gateway) = start(300, "connections = 1000\npool = 10").await;
    until(|| gateway.log().contains("the limit of open files is too low for limits.connections")).await;
    let log = gateway.log();
    assert!(log.contains("\"open_files\":300") && log.contains("\"connections\":1000"), "{log}");
    let (_upstream, gateway) = start(300, "connections = 20\npool = 10").await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert!(!gateway.log().contains("too low"), "{}", gateway.log());
}

#[tokio::test]
async fn descriptors_that_are_exhausted_leave_the_admin_port_its_own() {
    let (_upstream, gateway) = start(160, "connections = 4096").await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(soon(TcpStream::connect(gateway.addr)).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..20 {
        assert_eq!(gateway.admin_status("/healthz").await, Some(200));
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("gateway_connections_refused_total", &[]) > 0.0);
    assert!(metrics.sum("gateway_connections", &[]) > 20.0);
    // One that is served meanwhile is told so, or the gateway has closed its connection.
    let answer = async {
        let mut client = gateway.connect().await;
        client.try_send(Form::Chat.request(false)).await.ok()?;
        client.try_answer().await
    };
    if let Some(answer) = soon(answer).await {
        assert_eq!(answer.status(), 503, "{}", answer.text());
    }
    // It recovers by itself.
    drop(held);
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
}

/// A provider is not blamed for what the gateway lacks.
#[tokio::test]
async fn descriptors_that_are_exhausted_are_no_fault_of_a_provider() {
    let (_upstream, gateway) = start(160, "connections = 4096").await;
    let mut client = gateway.connect().await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(soon(TcpStream::connect(gateway.addr)).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let answer = client.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    // The request is counted once its answer is sent.
    gateway.wait_for_metric("gateway_errors_total", &[("kind", "overloaded")], 1.0).await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_errors_total", &[("source", "upstream")]), 0.0);
    drop(held);
    gateway.wait_for_metric("gateway_connections", &[], 1.0).await;
    assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
}
