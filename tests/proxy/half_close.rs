//! Clients that close their side of the connection after a request: they get their answer (RFC 9112, section 9.6), while
//! the calls of clients that have left are ended.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::accounts::{PAYING, asking, paying};
use crate::support::client::Client;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{Setup, provider_of};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, soon, tls, until};

/// Starts a provider that sends `before`, and `after` once the gate is open.
async fn gated(before: Vec<u8>, after: Vec<u8>, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |mut conn| {
        let (before, after, gate) = (before.clone(), after.clone(), gate.clone());
        async move {
            conn.request().await;
            conn.send(&before).await;
            tokio::select! {
                () = gate.passed() => {
                    let _ = conn.try_send(&after).await;
                    conn.closed().await;
                }
                () = conn.closed() => {}
            }
        }
    })
    .await
}

/// Reads the head of the final response behind interim ones.
async fn final_status(client: &mut Client) -> u16 {
    loop {
        match client.head().await.status() {
            100 => {}
            status => return status,
        }
    }
}

#[tokio::test]
async fn half_closed_client_gets_its_document() {
    let gate = Gate::new();
    let upstream = gated(Vec::new(), reply::json(200, Form::Chat.whole("gpt")), &gate).await;
    let authority = tls::Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let setup = Setup::providers(upstream.addr).tls(&identity.chain, &identity.key);
    let gateway = Gateway::start(&setup).await;
    let (encrypted, _) = gateway.connect_tls(authority.client(&[]), "gateway.test").await.unwrap();
    let mut clients = vec![gateway.connect().await, encrypted];
    for client in &mut clients {
        client.send(Form::Chat.request(false)).await;
        client.finish_sending().await;
    }
    upstream.wait_for(2).await;
    // Long enough for the gateway to notice the end of the input.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(upstream.closed(), 0, "the calls go on");
    gate.open();
    for client in &mut clients {
        assert_eq!(final_status(client).await, 200);
        let mut body = Vec::new();
        while let Piece::Data(piece) = client.piece().await {
            body.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8(body).unwrap(), Form::Chat.whole("gpt"));
        assert_eq!(client.closed().await, b"");
    }
}

#[tokio::test]
async fn half_closed_client_gets_its_stream() {
    for form in Form::ALL {
        let frames = form.frames(form.model());
        let gate = Gate::new();
        let before = [reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat();
        let after = [reply::chunk(frames[1..].concat()), reply::LAST_CHUNK.to_vec()].concat();
        let upstream = gated(before, after, &gate).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let (mut early, mut late) = (gateway.connect().await, gateway.connect().await);
        early.send(form.request(true)).await;
        early.finish_sending().await;
        late.send(form.request(true)).await;
        let (mut of_early, mut of_late) = (Vec::new(), Vec::new());
        assert_eq!(final_status(&mut late).await, 200, "{form:?}");
        read_until(&mut late, &mut of_late, &frames[0]).await;
        late.finish_sending().await;
        assert_eq!(final_status(&mut early).await, 200, "{form:?}");
        read_until(&mut early, &mut of_early, &frames[0]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(upstream.closed(), 0, "{form:?}");
        gate.open();
        for (client, mut seen) in [(&mut early, of_early), (&mut late, of_late)] {
            while let Piece::Data(piece) = client.piece().await {
                seen.extend_from_slice(&piece);
            }
            let seen = String::from_utf8(seen).unwrap();
            assert!(form.looks_complete(&seen), "{form:?}: {seen}");
            assert!(seen.ends_with(frames.last().unwrap().as_str()), "{form:?}: {seen}");
        }
    }
}

/// A client that has left closes its connection in the same way; the first bytes that it does not take tell.
#[tokio::test]
async fn client_that_closes_ends_the_call_of_its_provider() {
    let (frames, gate) = (Form::Chat.frames("gpt"), Gate::new());
    let streaming = [reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat();
    for (before, stream) in [(Vec::new(), false), (Vec::new(), true), (streaming, true)] {
        let upstream = gated(before.clone(), Vec::new(), &gate).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut client = Client::over(soon(TcpStream::connect(gateway.addr)).await.unwrap());
        client.send(Form::Chat.request(stream)).await;
        if !before.is_empty() {
            client.head().await;
            read_until(&mut client, &mut Vec::new(), &frames[0]).await;
        }
        upstream.wait_for(1).await;
        drop(client);
        until(|| upstream.closed() == 1).await;
        let metrics = gateway.metrics_after(1).await;
        assert_eq!(metrics.sum("gateway_errors_total", &[("kind", "client_gone")]), 1.0, "{stream}");
    }
}

/// HTTP/1.0 has no interim responses, so that the end of the input is the end of the client.
#[tokio::test]
async fn client_of_http_1_0_that_closes_its_side_has_left() {
    let gate = Gate::new();
    let upstream = gated(Vec::new(), Vec::new(), &gate).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    let request = String::from_utf8(Form::Chat.request(false)).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    client.send(request).await;
    client.finish_sending().await;
    upstream.wait_for(1).await;
    until(|| upstream.closed() == 1).await;
    assert_eq!(client.closed().await, b"");
}

#[tokio::test]
async fn half_closed_client_is_charged_for_its_answer() {
    let gate = Gate::new();
    let model = provider_of(Form::Chat);
    let upstream = gated(Vec::new(), reply::json(200, Form::Chat.whole(model)), &gate).await;
    let gateway = Gateway::start(&paying(&upstream, "1")).await;
    let mut client = gateway.connect().await;
    client.send(asking(Form::Chat, model, false, PAYING)).await;
    client.finish_sending().await;
    upstream.wait_for(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.open();
    assert_eq!(final_status(&mut client).await, 200);
    let record = &gateway.records(1).await[0];
    assert_eq!((&record["status"], &record["output"]), (&200.into(), &7.into()), "{record}");
}
