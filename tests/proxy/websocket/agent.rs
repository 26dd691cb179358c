//! A scripted agent of 40 turns over both transports: bytes on the wire, time, and an upgrade of the process on the
//! way; and the memory of idle sockets. This prints its figures:
//! `cargo test --release --test proxy websocket_agent -- --include-ignored --nocapture`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::World;
use super::client::{Socket, is_end};
use crate::support::client::{Client, post};
use crate::support::http1::Piece;
use crate::support::setup::KEY;
use crate::support::{soon, until};

/// Turns of the agent; each but the first brings the result of a tool.
const TURNS: usize = 40;

/// What one run has cost.
#[derive(Debug, Default)]
struct Cost {
    cpu: Duration,
    first: Duration,
}

fn tools() -> Value {
    // About what Codex sends with every request.
    let tool = |number: usize| {
        json!({"type": "function", "name": format!("tool_{number}"), "description": "What it does. ".repeat(100),
               "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}})
    };
    Value::Array((0..12).map(tool).collect())
}

fn result(turn: usize) -> String {
    format!("{turn}: {}", "a line of a file\n".repeat(200))
}

/// CPU time of a process.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Relay between a client and the gateway, which counts the bytes of all its connections: heads, framing and close
/// frames included.
struct Relay {
    addr: SocketAddr,
    up: Arc<AtomicUsize>,
    down: Arc<AtomicUsize>,
}

impl Relay {
    async fn start(gateway: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay { addr: listener.local_addr().unwrap(), up: Arc::default(), down: Arc::default() };
        let (up, down) = (relay.up.clone(), relay.down.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(gateway).await.unwrap();
                upstream.set_nodelay(true).unwrap();
                client.set_nodelay(true).unwrap();
                let ((from_client, to_client), (from_gateway, to_gateway)) =
                    (client.into_split(), upstream.into_split());
                tokio::spawn(pass(from_client, to_gateway, up.clone()));
                tokio::spawn(pass(from_gateway, to_client, down.clone()));
            }
        });
        relay
    }

    fn counts(&self) -> [usize; 2] {
        [&self.up, &self.down].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Passes bytes on to the end of the connection, and counts them before they leave.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: Arc<AtomicUsize>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(read, Ordering::SeqCst);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

fn create(model: &str, turn: usize, previous: &Value) -> Value {
    json!({
        "type": "response.create", "model": model, "store": false, "tools": tools(), "stream": true,
        "previous_response_id": previous, "input": [{"type": "message", "role": "user", "content": result(turn)}]
    })
}

async fn open(addr: SocketAddr) -> Socket {
    Socket::open_with(addr, "/v1/responses", &[("authorization", &format!("Bearer {KEY}"))]).await
}

async fn over_socket(world: &World, model: &str, addr: SocketAddr) -> Cost {
    let mut cost = Cost::default();
    let begun = cpu(world.gateway.pid());
    let mut socket = open(addr).await;
    let mut previous = Value::Null;
    for turn in 0..TURNS {
        let request = create(model, turn, &previous);
        let sent = Instant::now();
        socket.send(&request).await;
        let mut is_first = true;
        loop {
            let event = socket.event().await;
            if std::mem::take(&mut is_first) {
                cost.first += sent.elapsed();
            }
            if is_end(&event) {
                assert_eq!(event["type"], "response.completed", "{event}");
                previous = event["response"]["id"].clone();
                break;
            }
        }
    }
    cost.cpu = cpu(world.gateway.pid()).saturating_sub(begun);
    cost
}

/// Request over HTTP with the whole conversation, of which this text is the latest item.
fn whole(model: &str, text: String, input: &mut Vec<Value>) -> Vec<u8> {
    input.push(message(text));
    let request = json!({"model": model, "store": false, "tools": tools(), "stream": true, "input": input});
    post("/v1/responses", request.to_string())
}

/// Adds the output of a streamed response to the conversation. Returns whether the response is complete.
fn take_output(text: &str, input: &mut Vec<Value>) -> bool {
    let last = crate::support::sse::events(text).pop().unwrap().json();
    input.extend(last["response"]["output"].as_array().into_iter().flatten().cloned());
    last["type"] == "response.completed"
}

async fn over_http(world: &World, model: &str, addr: SocketAddr) -> Cost {
    let mut cost = Cost::default();
    let begun = cpu(world.gateway.pid());
    let mut client = Client::connect(addr).await;
    let mut input: Vec<Value> = Vec::new();
    for turn in 0..TURNS {
        let bytes = whole(model, result(turn), &mut input);
        let sent = Instant::now();
        client.send(bytes).await;
        let head = client.head().await;
        assert_eq!(head.status(), 200);
        let (mut body, mut is_first) = (Vec::new(), true);
        while let Piece::Data(piece) = client.piece().await {
            if std::mem::take(&mut is_first) {
                cost.first += sent.elapsed();
            }
            body.extend(piece);
        }
        assert!(take_output(&String::from_utf8(body).unwrap(), &mut input));
    }
    cost.cpu = cpu(world.gateway.pid()).saturating_sub(begun);
    cost
}

/// Returns the bytes that both transports send and receive for the turns of the agent, as they are on the wire.
async fn wire_bytes(world: &World, model: &str) -> [[usize; 2]; 2] {
    let relay = Relay::start(world.gateway.addr).await;
    over_socket(world, model, relay.addr).await;
    let socket = relay.counts();
    let relay = Relay::start(world.gateway.addr).await;
    over_http(world, model, relay.addr).await;
    [socket, relay.counts()]
}

/// The client of a socket uploads what is new. What it downloads is the same events, framed otherwise.
#[tokio::test]
async fn websocket_agent_uploads_a_fraction_of_what_it_does_over_http() {
    let world = World::start().await;
    for model in super::MODELS {
        let [[up, down], [http_up, http_down]] = wire_bytes(&world, model).await;
        let ratios = [(up, http_up), (down, http_down)].map(|(one, other)| one as f64 / other as f64);
        println!(
            "{model}: bytes on the wire, WebSocket / HTTP: sent {up} / {http_up} = {:.3}, received {down} / {http_down} = {:.3}",
            ratios[0], ratios[1]
        );
        assert!(ratios[0] < 0.25 && ratios[1] < 1.0, "{model}: {ratios:?}");
    }
}

#[tokio::test]
#[ignore = "prints figures"]
async fn websocket_agent_of_forty_turns() {
    let world = World::start().await;
    let addr = world.gateway.addr;
    for model in super::MODELS {
        over_socket(&world, model, addr).await;
        over_http(&world, model, addr).await;
        let mut sums = [Cost::default(), Cost::default()];
        for _ in 0..5 {
            let costs = [over_socket(&world, model, addr).await, over_http(&world, model, addr).await];
            for (sum, cost) in sums.iter_mut().zip(costs) {
                *sum = Cost { cpu: sum.cpu + cost.cpu, first: sum.first + cost.first };
            }
        }
        let [socket, http] = sums;
        let each = |sum: Duration| sum.as_secs_f64() * 1e3 / (5 * TURNS) as f64;
        let ratio = |one: Duration, other: Duration| one.as_secs_f64() / other.as_secs_f64();
        println!(
            "{model}: cpu a turn {:.2} / {:.2} ms = {:.2}, first event {:.2} / {:.2} ms = {:.2}",
            each(socket.cpu),
            each(http.cpu),
            ratio(socket.cpu, http.cpu),
            each(socket.first),
            each(http.first),
            ratio(socket.first, http.first),
        );
    }
}

/// What became of the turns of an agent across an upgrade.
#[derive(Debug, Default, PartialEq, Eq)]
struct Survival {
    completed: usize,
    /// Responses that began and did not end.
    cut: usize,
    /// Requests that were sent again, because their connection was closed before the response began.
    sent_again: usize,
}

/// Text of a turn across the upgrade. The response of the one in the middle lasts for as long as an upgrade takes.
fn paced(turn: usize) -> String {
    let pace = if turn == TURNS / 2 { "[[pace 150]] [[words 20]]" } else { "" };
    format!("{} {pace}", result(turn))
}

fn message(text: String) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

/// Receives the events of one response. Returns whether it has begun, and its last event.
async fn receive(socket: &mut Socket, begun: impl Fn()) -> (bool, Option<Value>) {
    let mut has_begun = false;
    while let Some(Ok(message)) = soon(socket.ws.next()).await {
        let Message::Text(text) = message else { continue };
        has_begun = true;
        begun();
        let event: Value = serde_json::from_str(&text).unwrap();
        if is_end(&event) {
            return (true, Some(event));
        }
    }
    (has_begun, None)
}

/// Runs the agent over sockets, as the SDKs do: a closed one is opened again, and gets the whole conversation.
async fn survive_over_socket(addr: SocketAddr, model: &str, halfway: &AtomicBool) -> Survival {
    let (mut survival, mut socket) = (Survival::default(), open(addr).await);
    let (mut previous, mut conversation): (Value, Vec<Value>) = (Value::Null, Vec::new());
    while survival.completed < TURNS {
        let turn = survival.completed;
        let item = message(paced(turn));
        let mut request = create(model, turn, &previous);
        let before = if previous.is_null() { conversation.as_slice() } else { &[] };
        request["input"] = json!([before, std::slice::from_ref(&item)].concat());
        let is_sent = socket.ws.send(Message::text(request.to_string())).await.is_ok();
        let begun = || halfway.store(turn >= TURNS / 2, Ordering::SeqCst);
        let (has_begun, end) = if is_sent { receive(&mut socket, begun).await } else { (false, None) };
        if let Some(event) = end.filter(|event| event["type"] == "response.completed") {
            conversation.push(item);
            conversation.extend(event["response"]["output"].as_array().unwrap().iter().cloned());
            previous = event["response"]["id"].clone();
            survival.completed += 1;
            continue;
        }
        *(if has_begun { &mut survival.cut } else { &mut survival.sent_again }) += 1;
        (socket, previous) = (open(addr).await, Value::Null);
    }
    survival
}

/// Runs the agent over HTTP. A kept connection that is closed as a request is sent on it is opened again.
async fn survive_over_http(addr: SocketAddr, model: &str, halfway: &AtomicBool) -> Survival {
    let (mut survival, mut input) = (Survival::default(), Vec::new());
    let mut client = Client::connect(addr).await;
    while survival.completed < TURNS {
        let turn = survival.completed;
        let mut sent = input.clone();
        let bytes = whole(model, paced(turn), &mut sent);
        let is_sent = client.try_send(bytes).await.is_ok();
        let head = if is_sent { client.try_head().await } else { None };
        let Some(head) = head else {
            survival.sent_again += 1;
            client = Client::connect(addr).await;
            continue;
        };
        assert_eq!(head.status(), 200);
        let mut body = Vec::new();
        let end = loop {
            match client.piece().await {
                Piece::Data(piece) => body.extend(piece),
                end => break end,
            }
            halfway.store(turn >= TURNS / 2, Ordering::SeqCst);
        };
        if end == Piece::End && take_output(&String::from_utf8(body).unwrap(), &mut sent) {
            input = sent;
            survival.completed += 1;
        } else {
            survival.cut += 1;
        }
        if end != Piece::End || head.get("connection") == Some("close") {
            client = Client::connect(addr).await;
        }
    }
    survival
}

#[tokio::test]
async fn websocket_agent_and_http_agent_are_not_cut_by_an_upgrade() {
    let mut world = World::start().await;
    let (addr, model) = (world.gateway.addr, "fast-gpt");
    let halfway = [AtomicBool::new(false), AtomicBool::new(false)];
    let upgrade = async {
        until(|| halfway.iter().all(|begun| begun.load(Ordering::SeqCst))).await;
        world.gateway.signal(Signal::SIGUSR2);
        world.gateway.ended().await.code()
    };
    let (socket, http, code) = tokio::join!(
        survive_over_socket(addr, model, &halfway[0]),
        survive_over_http(addr, model, &halfway[1]),
        upgrade,
    );
    println!(
        "{TURNS} turns across an upgrade: WebSocket {} cut, {} sent again; HTTP {} cut, {} sent again",
        socket.cut, socket.sent_again, http.cut, http.sent_again
    );
    assert_eq!(code, Some(0));
    for survival in [&socket, &http] {
        assert_eq!((survival.completed, survival.cut), (TURNS, 0), "{survival:?}");
        // The connection of the old process ends between two turns.
        assert!(survival.sent_again <= 1, "{survival:?}");
    }
}

#[tokio::test]
async fn websocket_idle_sockets_take_little_memory() {
    let world = World::start().await;
    let open = async |count: usize| {
        let mut sockets = Vec::new();
        for _ in 0..count {
            sockets.push(Socket::open(&world.gateway).await);
        }
        sockets
    };
    let _first = open(50).await;
    let before = world.gateway.memory("RssAnon");
    let _sockets = open(1_000).await;
    world.gateway.wait_for_metric("gateway_websocket_connections", &[], 1_050.0).await;
    let each = (world.gateway.memory("RssAnon") - before) as f64 / 1_000.0;
    println!("{each:.1} KiB for an idle socket");
    assert!(each <= 20.0, "{each} KiB");
}
