//! A disk that stalls: ends of requests wait for the journal, and running streams continue.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::accounts::{PAYING, asking, paying};
use crate::support::client::Client;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{Setup, provider_of};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, soon};

const MODEL: &str = "at-chat";

/// Builds the `LD_PRELOAD` library that stalls the journal's disk. Returns `None` if there is no C compiler.
fn shim(folder: &Path) -> Option<PathBuf> {
    let shim = folder.join("stall.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proxy/stall.c");
    let built = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source).status();
    if built.is_ok_and(|status| status.success()) {
        return Some(shim);
    }
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(!required, "no C compiler, and GATEWAY_REQUIRE_ALL=1");
    eprintln!("SKIPPED: there is no C compiler on this machine");
    None
}

/// One worker thread, so that any blocking call would stop all requests.
fn setup(upstream: &Upstream, shim: &Path, stalled: &Path) -> Setup {
    let (shim, stalled) = (shim.display(), stalled.display());
    let script = format!("export LD_PRELOAD='{shim}' STALL='{stalled}'\nexec \"$@\"\n");
    let mut setup = paying(upstream, "1000").file("start.sh", &script);
    setup.server = "threads = 1\n".to_owned();
    setup
}

/// Starts a provider that sends a frame every 20 ms until the gate is open, and answers documents at once.
async fn provider(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            while let Some(asked) = conn.request().await {
                if serde_json::from_slice::<Value>(&asked.body).unwrap()["stream"] != true {
                    conn.send(reply::json(200, Form::Chat.whole(MODEL))).await;
                    continue;
                }
                let frames = Form::Chat.frames(MODEL);
                conn.send(reply::stream_head()).await;
                conn.send(reply::chunk(&frames[0])).await;
                while !gate.is_open() && conn.try_send(reply::chunk(&frames[1])).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                for frame in &frames[1..] {
                    conn.send(reply::chunk(frame)).await;
                }
                conn.send(reply::LAST_CHUNK).await;
            }
        }
    })
    .await
}

async fn stream(gateway: &Gateway) -> Client {
    let mut client = gateway.connect().await;
    client.send(asking(Form::Chat, provider_of(Form::Chat), true, PAYING)).await;
    assert_eq!(client.head().await.status(), 200);
    client
}

fn document() -> Vec<u8> {
    asking(Form::Chat, provider_of(Form::Chat), false, PAYING)
}

#[tokio::test]
async fn disk_stall_delays_ends_of_requests_and_no_stream_frames() {
    let beside = tempfile::tempdir().unwrap();
    let Some(shim) = shim(beside.path()) else { return };
    let stalled = beside.path().join("stalled");
    let gate = Gate::new();
    let upstream = provider(&gate).await;
    let gateway = Gateway::start(&setup(&upstream, &shim, &stalled)).await;
    assert_eq!(gateway.ask(document()).await.status(), 200);
    let mut streaming = stream(&gateway).await;
    std::fs::write(&stalled, "").unwrap();
    let mut ending = gateway.connect().await;
    ending.send(document()).await;
    upstream.wait_for(3).await;
    let mut seen = Vec::new();
    for _ in 0..20 {
        seen.clear();
        read_until(&mut streaming, &mut seen, "data: ").await;
    }
    // The document is not charged yet, so its end is not sent.
    let early = tokio::time::timeout(Duration::from_millis(200), ending.head()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
    std::fs::remove_file(&stalled).unwrap();
    assert_eq!(ending.answer().await.status(), 200);
    gate.open();
    soon(async { while !matches!(streaming.piece().await, Piece::End) {} }).await;
    gateway.records(3).await;
}

/// Measurement (`cargo test --test proxy -- --ignored --nocapture stall::figures`): time between frames of streams
/// while the disk stalls for two of every three seconds and other requests end.
#[tokio::test]
#[ignore = "a measurement"]
async fn figures() {
    let beside = tempfile::tempdir().unwrap();
    let Some(shim) = shim(beside.path()) else { return };
    let stalled = beside.path().join("stalled");
    let gate = Gate::new();
    let upstream = provider(&gate).await;
    let gateway = Gateway::start(&setup(&upstream, &shim, &stalled)).await;
    for stalls in [false, true] {
        let until = Instant::now() + Duration::from_secs(9);
        let mut streams = Vec::new();
        for _ in 0..32 {
            let mut client = stream(&gateway).await;
            streams.push(tokio::spawn(async move {
                let (mut gaps, mut last) = (Vec::new(), Instant::now());
                while Instant::now() < until {
                    assert!(matches!(client.piece().await, Piece::Data(_)));
                    gaps.push(last.elapsed());
                    last = Instant::now();
                }
                gaps
            }));
        }
        let addr = gateway.addr;
        let ending = tokio::spawn(async move {
            let mut waited = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                let answer = crate::support::client::ask(addr, document()).await;
                assert_eq!(answer.status(), 200);
                waited.push(begun.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            waited
        });
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if stalls {
                std::fs::write(&stalled, "").unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
                std::fs::remove_file(&stalled).unwrap();
            }
        }
        let mut gaps = Vec::new();
        for stream in streams {
            gaps.extend(stream.await.unwrap());
        }
        let say = |what: &str, mut times: Vec<Duration>| {
            times.sort();
            let at = |part: usize| times[(times.len() - 1) * part / 1_000].as_secs_f64() * 1e3;
            eprintln!(
                "stalls: {stalls}; {what}: {} of them, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
                times.len(),
                at(500),
                at(990),
                at(1_000)
            );
        };
        say("between frames of a stream", gaps);
        say("a request that ends", ending.await.unwrap());
    }
}
