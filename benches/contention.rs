//! What workers that run at the same time cost each other where they write to the same memory:
//! `cargo bench --bench contention [-- 1,2,4]`, the numbers of threads. Printed is the processor time of a thread for each
//! step of a request that all requests share, in nanoseconds, with one thread and with several. More threads than
//! processors say nothing: they do not run at the same time. The ledger has a benchmark of its own (`ledger -- hot`).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a tool, run by hand"
)]

use std::hint::black_box;
use std::sync::Barrier;

use codec::canonical::Usage;
use observe::metrics::access_log::{AccessLog, Destination, Line};
use observe::metrics::{Finished, Metrics, Series};
use sync::{DrainCount, SummedLimit};

/// Number of measurements, of which the median counts.
const ROUNDS: usize = 5;

fn main() {
    let numbers = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let numbers = numbers.unwrap_or_else(|| "1,2".to_owned());
    let numbers: Vec<usize> = numbers.split(',').map(|number| number.parse().unwrap()).collect();

    let metrics = Metrics::new().unwrap();
    let shared = Series::new(&metrics, "chat", "chat", "gpt-4o", "openai", "openai");
    let folder = tempfile::tempdir().unwrap();
    let log =
        AccessLog::open(Destination::File(folder.path().join("access.log")), metrics.log_dropped.clone())
            .unwrap();
    let usage = Usage { input: Some(1_000), cached: Some(512), output: Some(300), ..Usage::default() };

    let header = numbers.iter().map(|number| format!("{number:>11}")).collect::<String>();
    println!("threads                              {header}   nanoseconds of a thread each time");
    row("counter of all threads", 20_000_000, &numbers, |_| metrics.connections_refused.inc());
    let own: Vec<_> =
        (0..64).map(|n| metrics.requests.with_label_values(&["chat", &n.to_string(), "", "200"])).collect();
    row("counter of each thread", 20_000_000, &numbers, |thread| own.get(thread).unwrap().inc());
    row("metrics of a request", 2_000_000, &numbers, |_| {
        shared.exchange(true);
        shared.attempt(&metrics, 1.5, None);
        let done = Finished {
            status: 200,
            seconds: 1.5,
            request_bytes: 800,
            response_bytes: 900,
            ..Finished::default()
        };
        shared.finish(&metrics, &done, &usage);
        metrics.overhead.observe(0.000_1);
    });
    let (requests, limit) = (DrainCount::default(), SummedLimit::new(16_384));
    row("request in flight, within its limit", 5_000_000, &numbers, |_| {
        requests.add_request();
        assert!(limit.admits(|| requests.requests()));
        assert!(!requests.remove_request());
    });
    row("line of the access log", 400_000, &numbers, |_| {
        log.write(&Line {
            time: 1_752_000_000_123,
            request_id: "req_0123456789abcdef0123456789abcdef",
            method: "POST",
            path: "/v1/chat/completions",
            endpoint: "chat",
            status: 200,
            key: Some("alice"),
            model: Some("gpt-4o"),
            provider: Some("openai"),
            upstream_model: Some("gpt-4o-2024-11-20"),
            upstream_status: Some(200),
            finish: Some("stop"),
            usage,
            request_bytes: 800,
            response_bytes: 900,
            attempts: 1,
            micros: 1_500_000,
            ..Line::default()
        });
    });
}

/// Measures a step with each number of threads, made so many times by each, and prints the times.
fn row(name: &str, times: u32, numbers: &[usize], step: impl Fn(usize) + Sync) {
    let times = numbers.iter().map(|threads| {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| measure(*threads, times, &step)).collect();
        rounds.sort_by(f64::total_cmp);
        format!("{:>11.1}", rounds.get(ROUNDS / 2).unwrap())
    });
    println!("{name:<37}{}", times.collect::<String>());
}

/// Returns the processor time of a thread for one step, in nanoseconds: the mean over all threads.
fn measure(threads: usize, times: u32, step: &(impl Fn(usize) + Sync)) -> f64 {
    let ready = Barrier::new(threads);
    let spent: u64 = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    let before = own_time();
                    for _ in 0..times {
                        step(black_box(thread));
                    }
                    own_time() - before
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    spent as f64 / threads as f64 / f64::from(times)
}

/// Returns the processor time of this thread, in nanoseconds.
fn own_time() -> u64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedule.split(' ').next().unwrap().parse().unwrap()
}
