//! Idle streams: after `limits.heartbeat` the client receives keep-alive filler between whole frames; after
//! `timeouts.idle` the provider's stream fails.

use crate::support::client::post;
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{Setup, provider_of};
use crate::support::sse::{read_until, told};
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{Gate, reply};

/// Returns the keep-alive filler that a client of this format receives, twice.
fn filler(form: Form) -> &'static str {
    match form {
        Form::Chat | Form::Responses => "\n\n: keep-alive\n\n: keep-alive\n\n",
        Form::Messages => {
            "\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
        }
        Form::Generate => "\r\n\r\n\r\n\r\n",
    }
}

/// Starts an upstream that sends a head and `before`, waits for the gate, and sends `after` and the end.
async fn pausing(before: String, after: String, gate: Gate) -> Upstream {
    Upstream::start(move |mut conn| {
        let (before, after, gate) = (before.clone(), after.clone(), gate.clone());
        async move {
            conn.request().await;
            conn.send(reply::stream_head()).await;
            if !before.is_empty() {
                conn.send(reply::chunk(before)).await;
            }
            gate.passed().await;
            conn.send(reply::chunk(after)).await;
            conn.send(reply::LAST_CHUNK).await;
            conn.closed().await;
        }
    })
    .await
}

const SHORT: &str = "heartbeat = \"100ms\"";

/// Sends a request, waits for filler, opens the gate and returns the whole stream.
async fn waited(client: Form, provider: Form, before: String, after: String) -> String {
    let gate = Gate::new();
    let upstream = pausing(before, after, gate.clone()).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
    let mut connection = gateway.connect().await;
    connection.send(client.request_for(provider_of(provider), true)).await;
    assert_eq!(connection.head().await.status(), 200);
    let mut seen = Vec::new();
    read_until(&mut connection, &mut seen, filler(client)).await;
    gate.open();
    loop {
        match connection.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => {
                assert_eq!(end, Piece::End);
                return String::from_utf8(seen).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn heartbeat_is_sent_between_whole_frames() {
    every_form(|form| async move {
        let frames = form.frames(provider_of(form));
        // One frame and half of the next one.
        let half = frames[1].len() / 2;
        let before = format!("{}{}", frames[0], &frames[1][..half]);
        let after = frames.concat()[before.len()..].to_owned();
        let text = waited(form, form, before, after).await;
        assert_eq!(told(&text), told(&frames.concat()), "{form:?}: {text}");
    })
    .await;
}

#[tokio::test]
async fn heartbeat_is_sent_in_translated_streams() {
    every_form(|provider| async move {
        for client in Form::ALL.into_iter().filter(|client| *client != provider) {
            let frames = provider.frames(provider_of(provider));
            // Enough frames that the client has received some of them.
            let split = frames.len().div_ceil(2);
            let text = waited(client, provider, frames[..split].concat(), frames[split..].concat()).await;
            assert!(client.looks_complete(&text), "{provider:?} to {client:?}: {text}");
            assert!(text.contains("ße 😀"), "{provider:?} to {client:?}: {text}");
        }
    })
    .await;
}

/// The provider's head may arrive long before its first frame.
#[tokio::test]
async fn heartbeat_is_sent_before_the_first_frame() {
    every_form(|form| async move {
        let gate = Gate::new();
        let frames = form.frames(provider_of(form)).concat();
        let upstream = pausing(String::new(), frames.clone(), gate.clone()).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
        let mut connection = gateway.connect().await;
        connection.send(form.request_for(provider_of(form), true)).await;
        assert_eq!(connection.head().await.status(), 200);
        let mut seen = Vec::new();
        read_until(&mut connection, &mut seen, filler(form).trim_start_matches(['\n', '\r'])).await;
        read_until(&mut connection, &mut seen, "\n").await;
        gate.open();
        while let Piece::Data(piece) = connection.piece().await {
            seen.extend_from_slice(&piece);
        }
        let text = String::from_utf8(seen).unwrap();
        assert_eq!(told(&text), told(&frames), "{form:?}: {text}");
    })
    .await;
}

#[tokio::test]
async fn heartbeat_in_a_json_array_is_white_space() {
    let frames: Vec<String> = Form::Generate
        .frames("m")
        .iter()
        .map(|frame| frame.trim().strip_prefix("data: ").unwrap().to_owned())
        .collect();
    let whole = format!("[{}]", frames.join(",\r\n"));
    let (before, after) = whole.split_at(frames[0].len() + 20);
    let (before, after) = (before.to_owned(), after.to_owned());
    let gate = Gate::new();
    let opened = gate.clone();
    let upstream = Upstream::start(move |mut conn| {
        let (before, after, gate) = (before.clone(), after.clone(), opened.clone());
        async move {
            conn.request().await;
            let kind = [("content-type", "application/json"), ("transfer-encoding", "chunked")];
            conn.send(reply::head(200, &kind)).await;
            conn.send(reply::chunk(before)).await;
            gate.passed().await;
            conn.send(reply::chunk(after)).await;
            conn.send(reply::LAST_CHUNK).await;
            conn.closed().await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
    let mut connection = gateway.connect().await;
    let path = format!("/v1beta/models/{}:streamGenerateContent", provider_of(Form::Generate));
    connection.send(post(&path, Form::Generate.body("", true))).await;
    assert_eq!(connection.head().await.status(), 200);
    let mut seen = Vec::new();
    read_until(&mut connection, &mut seen, "}\r\n\r\n").await;
    gate.open();
    while let Piece::Data(piece) = connection.piece().await {
        seen.extend_from_slice(&piece);
    }
    let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&seen), read(whole.as_bytes()));
}

/// Frames that have no counterpart in the client's format do not count as activity towards the client.
#[tokio::test]
async fn heartbeat_is_sent_while_a_translated_provider_only_pings() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(reply::stream_head()).await;
        conn.send(reply::chunk(Form::Messages.frames("m")[..2].concat())).await;
        let ping = reply::chunk("event: ping\ndata: {\"type\": \"ping\"}\n\n");
        while conn.try_send(&ping).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
    let mut connection = gateway.connect().await;
    connection.send(Form::Chat.request_for(provider_of(Form::Messages), true)).await;
    assert_eq!(connection.head().await.status(), 200);
    read_until(&mut connection, &mut Vec::new(), filler(Form::Chat)).await;
}

/// Filler does not reset the provider's idle time-out and does not send the response head early.
#[tokio::test]
async fn heartbeat_resets_no_idle_timeout_and_sends_no_head_early() {
    let idle = "timeouts = { idle = \"3s\" }";
    for (heartbeat, filled) in [("heartbeat = \"100ms\"", true), ("heartbeat = \"0s\"", false)] {
        let upstream = pausing(Form::Chat.frames("m")[0].clone(), String::new(), Gate::new()).await;
        let setup = Setup::each_provider_with(upstream.addr, idle).limits(heartbeat);
        let gateway = Gateway::start(&setup).await;
        let answer = gateway.ask(Form::Chat.request_for(provider_of(Form::Chat), true)).await;
        assert!(Form::Chat.stream_error(answer.text()).is_some(), "{}", answer.text());
        assert_eq!(answer.text().contains(": keep-alive\n\n"), filled, "{}", answer.text());
    }
    let gate = Gate::new();
    let error = format!("data: {}\n\n", provider_error(Form::Chat, 503, "overloaded, sorry"));
    let upstream = pausing(String::new(), error, gate.clone()).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits("heartbeat = \"20ms\"")).await;
    let mut connection = gateway.connect().await;
    connection.send(Form::Chat.request_for(provider_of(Form::Chat), true)).await;
    a_moment().await;
    gate.open();
    assert_eq!(connection.head().await.status(), 500);
}
