//! Soak test: one hour of faults, compressed. Each simulated minute another of three targets fails in another way,
//! while some clients disconnect. Every answer is complete, and no memory, descriptor or thread leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::scripts::{Fault, answer, good, wants_stream};
use super::{kind, model};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

const MINUTES: usize = 60;
/// Duration of a simulated minute: slightly longer than the default cooldown of one second.
const MINUTE: std::time::Duration = std::time::Duration::from_millis(1_300);
/// Requests per simulated minute; below it the number of concurrent ones.
const REQUESTS: usize = 60;
const AT_ONCE: usize = 8;

/// Faults of a target in its failing minutes, in this order.
const FAULTS: [Fault; 17] = [
    Fault::Reset,
    Fault::Status(500),
    Fault::BlackHole,
    Fault::Cut,
    Fault::Status(429),
    Fault::Garbage,
    Fault::ErrorLater,
    Fault::ShortBody,
    Fault::Status(503),
    Fault::Stall,
    Fault::Page,
    Fault::Close,
    Fault::ErrorInside,
    Fault::SlowHead,
    Fault::Flapping,
    Fault::Status(529),
    Fault::ErrorFirst,
];

/// Starts one of three upstreams; each fails in every third minute.
async fn one_of_three(which: usize, minute: Arc<AtomicUsize>) -> Upstream {
    let turn = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |mut conn| {
        let (minute, turn) = (minute.clone(), turn.clone());
        async move {
            while let Some(request) = conn.request().await {
                let (now, stream) = (minute.load(Ordering::SeqCst), wants_stream(&request));
                if now % 3 == which {
                    let fault = FAULTS[now / 3 % FAULTS.len()];
                    match answer(conn, fault, Form::Chat, stream, &turn).await {
                        Some(goes_on) => conn = goes_on,
                        None => return,
                    }
                } else {
                    conn.send(good(Form::Chat, stream)).await;
                }
            }
        }
    })
    .await
}

/// Returns resident memory in bytes, open descriptors and threads of the gateway.
async fn taken(gateway: &Gateway) -> [f64; 3] {
    let metrics = gateway.metrics().await;
    ["process_resident_memory_bytes", "process_open_fds", "process_threads"]
        .map(|name| metrics.sum(name, &[]))
}

#[tokio::test]
#[ignore = "takes a minute and a half"]
async fn soak_hour_of_faults_leaks_no_memory_descriptors_or_threads() {
    let minute = Arc::new(AtomicUsize::new(0));
    let mut setup = Setup::new();
    setup.routes += "[breaker]\ncooldown = \"100ms\"\nlongest = \"400ms\"\n\n";
    let mut upstreams = Vec::new();
    let (provider, api, version) = kind(Form::Chat);
    for (which, name) in ["first", "second", "third"].into_iter().enumerate() {
        let upstream = one_of_three(which, minute.clone()).await;
        let lines = format!(
            "apis = [\"{api}\"]\ntimeouts = {{ connect = \"400ms\", first_byte = \"300ms\", idle = \"300ms\" }}"
        );
        setup = setup.provider(name, provider, &format!("http://{}/{version}", upstream.addr), &lines);
        upstreams.push(upstream);
    }
    let policy = "policy = \"latency\"\nretry = { percent = 50, reserve = 1000 }";
    let setup = model(setup, policy, &["first", "second", "third"]);
    let gateway = Arc::new(Gateway::start(&setup).await);
    let mut before = [0.0; 3];
    for now in 0..MINUTES {
        minute.store(now, Ordering::SeqCst);
        let ends = tokio::time::Instant::now() + MINUTE;
        let mut tasks = JoinSet::new();
        for number in 0..REQUESTS {
            if tasks.len() >= AT_ONCE {
                tasks.join_next().await.unwrap().unwrap();
            }
            let gateway = gateway.clone();
            tasks.spawn(async move {
                let stream = number % 2 == 0;
                if number % 15 == 7 {
                    // This client disconnects at once.
                    let mut client = gateway.connect().await;
                    client.send(Form::Chat.request(true)).await;
                    return;
                }
                let answer = gateway.ask(Form::Chat.request(stream)).await;
                let fault = FAULTS[now / 3 % FAULTS.len()];
                assert_eq!(answer.status(), 200, "minute {now}, {fault:?}: {}", answer.text());
                let whole = if stream {
                    Form::Chat.looks_complete(answer.text())
                        && Form::Chat.stream_error(answer.text()).is_none()
                } else {
                    answer.json().get("choices").is_some()
                };
                assert!(whole, "minute {now}, {fault:?}: {}", answer.text());
            });
        }
        while let Some(asked) = tasks.join_next().await {
            asked.unwrap();
        }
        tokio::time::sleep_until(ends).await;
        if now == MINUTES / 3 {
            before = taken(&gateway).await;
        }
    }
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    gateway.wait_for_metric("gateway_target_requests_in_flight", &[], 0.0).await;
    let after = taken(&gateway).await;
    println!(
        "memory, descriptors, threads: {before:?} after {} minutes, {after:?} after {MINUTES}",
        MINUTES / 3
    );
    assert!(after[0] < before[0] * 1.1 + 4e6, "memory: {before:?}, {after:?}");
    assert!(after[1] <= before[1] + 16.0, "descriptors: {before:?}, {after:?}");
    assert_eq!(after[2], before[2], "threads");
}
