//! A scripted agent of 40 turns over both transports, and the memory of idle sockets. Prints its figures:
//! `cargo test --release --test proxy websocket::agent -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::World;
use super::client::{Socket, is_end};
use crate::support::client::post;
use crate::support::http1::Piece;

/// Turns of the agent; each but the first brings the result of a tool.
const TURNS: usize = 40;

/// What one run has cost.
#[derive(Debug, Default)]
struct Cost {
    up: usize,
    down: usize,
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

async fn over_socket(world: &World, model: &str) -> Cost {
    let mut cost = Cost::default();
    let begun = cpu(world.gateway.pid());
    let mut socket = Socket::open(&world.gateway).await;
    let mut previous = Value::Null;
    for turn in 0..TURNS {
        let request = json!({
            "type": "response.create", "model": model, "store": false, "tools": tools(), "stream": true,
            "previous_response_id": previous, "input": [{"type": "message", "role": "user", "content": result(turn)}]
        });
        cost.up += request.to_string().len();
        let sent = Instant::now();
        socket.send(&request).await;
        let mut is_first = true;
        loop {
            let event = socket.event().await;
            cost.down += event.to_string().len();
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

async fn over_http(world: &World, model: &str) -> Cost {
    let mut cost = Cost::default();
    let begun = cpu(world.gateway.pid());
    let mut client = world.gateway.connect().await;
    let mut input: Vec<Value> = Vec::new();
    for turn in 0..TURNS {
        input.push(json!({"type": "message", "role": "user", "content": result(turn)}));
        let request =
            json!({"model": model, "store": false, "tools": tools(), "stream": true, "input": input});
        let bytes = post("/v1/responses", request.to_string());
        cost.up += bytes.len();
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
        cost.down += body.len();
        let text = String::from_utf8(body).unwrap();
        let last = crate::support::sse::events(&text).pop().unwrap().json();
        input.extend(last["response"]["output"].as_array().unwrap().iter().cloned());
    }
    cost.cpu = cpu(world.gateway.pid()).saturating_sub(begun);
    cost
}

#[tokio::test]
#[ignore = "prints figures"]
async fn websocket_agent_of_forty_turns() {
    let world = World::start().await;
    for model in super::MODELS {
        over_socket(&world, model).await;
        over_http(&world, model).await;
        let mut sums = [Cost::default(), Cost::default()];
        for _ in 0..5 {
            for (sum, cost) in
                sums.iter_mut().zip([over_socket(&world, model).await, over_http(&world, model).await])
            {
                *sum = Cost {
                    up: cost.up,
                    down: cost.down,
                    cpu: sum.cpu + cost.cpu,
                    first: sum.first + cost.first,
                };
            }
        }
        let [socket, http] = sums;
        let ratio = |one: f64, other: f64| one / other;
        println!(
            "{model}: up {} / {} = {:.3}, down {} / {} = {:.3}, cpu a turn {:.2} / {:.2} ms = {:.2}, \
             first event {:.2} / {:.2} ms = {:.2}",
            socket.up,
            http.up,
            ratio(socket.up as f64, http.up as f64),
            socket.down,
            http.down,
            ratio(socket.down as f64, http.down as f64),
            socket.cpu.as_secs_f64() * 1e3 / (5 * TURNS) as f64,
            http.cpu.as_secs_f64() * 1e3 / (5 * TURNS) as f64,
            ratio(socket.cpu.as_secs_f64(), http.cpu.as_secs_f64()),
            socket.first.as_secs_f64() * 1e3 / (5 * TURNS) as f64,
            http.first.as_secs_f64() * 1e3 / (5 * TURNS) as f64,
            ratio(socket.first.as_secs_f64(), http.first.as_secs_f64()),
        );
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
