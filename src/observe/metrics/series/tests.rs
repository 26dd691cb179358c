//! Counts of many threads beside readers and reloads: exact, and never less than before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const DONE: Finished = Finished {
    status: 200,
    seconds: 1.5,
    first_token: Some(0.5),
    request_bytes: 3,
    response_bytes: 5,
    cost: 7,
    cache_saved: 0,
    cache_surcharge: 1,
};

fn series(metrics: &Metrics) -> Series {
    Series::new(metrics, "chat", "chat", "m", "p", "openai")
}

fn usage() -> Usage {
    Usage { input: Some(11), cached: Some(0), output: Some(3), ..Usage::default() }
}

/// Counts a request in all its series.
fn count(metrics: &Metrics, series: &Series) {
    series.exchange(true);
    series.attempt(metrics, 0.25, None);
    metrics.overhead.observe(0.000_1);
    series.finish(metrics, &DONE, &usage());
}

/// Returns all values by name and labels; of a histogram the number, the sum and the number in each bucket.
fn values(metrics: &Metrics) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for family in metrics.gather() {
        for sample in family.get_metric() {
            let labels: Vec<&str> = sample.get_label().iter().map(|pair| pair.value()).collect();
            let name = format!("{} {labels:?}", family.name());
            let histogram = sample.get_histogram();
            for bucket in histogram.get_bucket() {
                let name = format!("{name} {}", bucket.upper_bound());
                values.insert(name, bucket.cumulative_count() as f64);
            }
            // All observations of these tests are below the last bound.
            if let Some(last) = histogram.get_bucket().last() {
                assert_eq!(last.cumulative_count(), histogram.get_sample_count(), "{name}");
                values.insert(format!("{name} sum"), histogram.get_sample_sum());
            }
            if family.name().starts_with("g") {
                values.insert(name, sample.get_counter().get_value());
            }
        }
    }
    values
}

/// Asserts the values of this many requests.
fn assert_counted(metrics: &Metrics, requests: u32) {
    let (values, requests) = (values(metrics), f64::from(requests));
    let of = |name: &str| values.get(name).copied().unwrap_or_else(|| panic!("{name} of {values:#?}"));
    assert_eq!(of(r#"gateway_requests_total ["chat", "m", "p", "200"]"#), requests);
    assert_eq!(of(r#"gateway_request_body_bytes_total ["chat"]"#), 3.0 * requests);
    assert_eq!(of(r#"gateway_response_body_bytes_total ["chat"]"#), 5.0 * requests);
    assert_eq!(of(r#"gateway_upstream_connections_total ["p", "true"]"#), requests);
    assert_eq!(of(r#"gateway_upstream_connections_total ["p", "false"]"#), 0.0);
    assert_eq!(of(r#"gateway_cost_nano_units_total ["m", "p"]"#), 7.0 * requests);
    assert_eq!(of(r#"gateway_cache_surcharge_nano_units_total ["m", "p"]"#), requests);
    assert_eq!(of(r#"gateway_tokens_total ["input", "m", "p"]"#), 11.0 * requests);
    assert_eq!(of(r#"gateway_tokens_total ["cached_input", "m", "p"]"#), 0.0);
    assert_eq!(of(r#"gateway_tokens_total ["output", "m", "p"]"#), 3.0 * requests);
    let chat = r#"["chat", "openai", "m"]"#;
    assert_eq!(of(&format!("gen_ai_server_request_duration_seconds {chat} 1.28")), 0.0);
    assert_eq!(of(&format!("gen_ai_server_request_duration_seconds {chat} 2.56")), requests);
    assert_eq!(of(&format!("gen_ai_server_request_duration_seconds {chat} sum")), 1.5 * requests);
    assert_eq!(of(&format!("gen_ai_server_time_to_first_token_seconds {chat} sum")), 0.5 * requests);
    assert_eq!(of(&format!("gen_ai_server_time_per_output_token_seconds {chat} sum")), 0.5 * requests);
    assert_eq!(
        of(r#"gen_ai_client_operation_duration_seconds ["", "chat", "openai", "m"] sum"#),
        0.25 * requests
    );
    assert_eq!(of(r#"gen_ai_client_token_usage ["chat", "openai", "m", "input"] 16"#), requests);
    assert_eq!(of("gateway_overhead_seconds [] 0.0001"), requests);
    assert_eq!(metrics.totals().statuses, [(vec!["200".to_owned()], requests as u64)]);
    assert_eq!(metrics.totals().overhead.count, requests as u64);
    assert_eq!(metrics.overhead.count(), requests as u64);
}

#[test]
fn series_of_a_request_is_written_by_its_thread_alone_until_it_is_read() {
    let metrics = Metrics::new().unwrap();
    let series = series(&metrics);
    count(&metrics, &series);
    let shared = metrics.requests.with_label_values(&["chat", "m", "p", "200"]);
    let duration = metrics.duration.with_label_values(&["chat", "openai", "m"]);
    assert_eq!((shared.get(), duration.get_sample_count()), (0, 0));
    assert_counted(&metrics, 1);
    assert_eq!((shared.get(), duration.get_sample_count()), (1, 1));
    assert_counted(&metrics, 1);
}

#[test]
fn series_is_exact_and_monotone_beside_readers_reloads_and_threads_that_end() {
    const THREADS: u32 = 12;
    const TIMES: u32 = 2_000;
    let metrics = Metrics::new().unwrap();
    let active = Mutex::new(Arc::new(series(&metrics)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = || {
            let mut before = BTreeMap::new();
            while !done.load(Ordering::Relaxed) {
                let now = values(&metrics);
                for (name, value) in &before {
                    assert!(now.get(name).is_some_and(|now| now >= value), "{name}: {value} and then less");
                }
                before = now;
            }
        };
        let readers = [scope.spawn(reading), scope.spawn(reading)];
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // A snapshot without the series in between: the counts of the former one must not get lost.
                let former = std::mem::replace(&mut *active.lock(), Arc::new(series(&metrics)));
                drop(former);
                thread::yield_now();
            }
        });
        let counting: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for part in 0..TIMES / 100 {
                        let some = || {
                            for _ in 0..100 {
                                let series = active.lock().clone();
                                count(&metrics, &series);
                            }
                        };
                        // Some of them count on a thread that ends.
                        if part % 4 == 0 {
                            thread::scope(|scope| scope.spawn(some).join().unwrap());
                        } else {
                            some();
                        }
                    }
                })
            })
            .collect();
        counting.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_counted(&metrics, THREADS * TIMES);
}

#[test]
fn series_that_is_no_longer_used_is_counted_and_removed() {
    let metrics = Metrics::new().unwrap();
    let (first, second) = (series(&metrics), series(&metrics));
    count(&metrics, &first);
    drop(first);
    assert_counted(&metrics, 1);
    assert_eq!(metrics.series.0.lock().len(), 1);
    thread::scope(|scope| _ = scope.spawn(|| count(&metrics, &second)));
    drop(second);
    assert_counted(&metrics, 2);
    assert_eq!(metrics.series.0.lock().len(), 0);
    count(&metrics, &series(&metrics));
    assert_counted(&metrics, 3);
}

#[test]
fn series_of_former_configurations_are_removed_without_a_reader() {
    let metrics = Metrics::new().unwrap();
    for number in 0..2_000 {
        let model = number.to_string();
        let series = Series::new(&metrics, "chat", "chat", &model, "p", "openai");
        count(&metrics, &series);
    }
    assert!(metrics.series.0.lock().len() < 16);
    assert_eq!(metrics.totals().cost, 14_000);
}
