//! Check of docs/metrics.md against the metric registry: both have the same series, with the same types and labels.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use model_gateway::canonical::Usage;
use model_gateway::metrics::{Finished, MetricType, Metrics, Series, TABLE};
use model_gateway::provider::{OTEL_HOSTS, Preset, ProviderKind};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap()
}

/// Returns the texts in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Type and labels of each series, by name.
type Declared = BTreeMap<String, (String, BTreeSet<String>)>;

/// Parses the rows of the page that have the five columns of a series.
fn described() -> Declared {
    let page = page();
    let mut series = Declared::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, kind, labels, _, meaning] = cells[..] {
            assert!(meaning.ends_with('.'), "{row}");
            let name = quoted(name).remove(0);
            let labels = quoted(labels).into_iter().collect();
            let twice = series.insert(name.clone(), (kind.to_owned(), labels));
            assert!(twice.is_none(), "{name} has two rows");
        }
    }
    series
}

/// Returns a registry in which every metric has been counted once.
fn counted() -> Metrics {
    let metrics = Metrics::new().unwrap();
    let some = Some(5);
    let usage = Usage {
        input: some,
        cached: some,
        cache_write: some,
        output: some,
        reasoning: some,
        ..Usage::default()
    };
    let done = Finished {
        status: 200,
        seconds: 1.0,
        first_token: Some(0.5),
        request_bytes: 1,
        response_bytes: 1,
        cost: 1,
        cache_saved: 1,
        cache_surcharge: 1,
    };
    let series = Series::new(&metrics, "chat", "chat", "m", "p", "openai");
    series.attempt(&metrics, 0.5, None);
    series.attempt(&metrics, 0.5, Some("upstream_overloaded"));
    series.exchange(true);
    series.exchange(false);
    series.finish(&metrics, &done, &usage);
    metrics.errors.with_label_values(&["rate_limited", "upstream"]).inc();
    metrics.cache_requests.with_label_values(&["m", "p", "breakpoints"]).inc();
    metrics.cache_misses.with_label_values(&["m", "p", "tools"]).inc();
    metrics.limit_refusals.with_label_values(&["key", "concurrent"]).inc();
    metrics.ledger_failures.with_label_values(&["settle", "failed"]).inc();
    metrics.upstream_retries.with_label_values(&["p", "stale_connection"]).inc();
    metrics.retries_refused.with_label_values(&["m", "budget"]).inc();
    metrics.streams_continued.with_label_values(&["m", "asked"]).inc();
    metrics.slow_starts.with_label_values(&["m"]).inc();
    metrics.targets_opened.with_label_values(&["p", "m", "provider"]).inc();
    metrics.target_available.with_label_values(&["p", "m"]).set(1);
    metrics.target_reason.with_label_values(&["p", "m", "drained"]).set(1);
    metrics.target_in_flight.with_label_values(&["p", "m"]).set(1);
    metrics.provider_checks.with_label_values(&["p", "well"]).inc();
    metrics.provider_well.with_label_values(&["p"]).set(1);
    metrics.remote_fetches.with_label_values(&["provider", "ok"]).inc();
    metrics.upstream_errors.with_label_values(&["p", "rate_limited"]).inc();
    metrics.losses.with_label_values(&["chat", "messages", "temperature", "warn"]).inc();
    metrics.handshakes_failed.with_label_values(&["failed"]).inc();
    metrics.certificate_not_after.with_label_values(&["127.0.0.1:8443"]).set(1);
    metrics.certificate_reloads.with_label_values(&["applied"]).inc();
    metrics.proxy_headers_refused.with_label_values(&["missing"]).inc();
    metrics.websocket_closes.with_label_values(&["client"]).inc();
    metrics.usage_bounded.with_label_values(&["p"]).inc();
    for counter in [&metrics.tier_requests, &metrics.tier_cost, &metrics.unpriced_tiers] {
        counter.with_label_values(&["m", "p", "priority"]).inc();
    }
    metrics.store_operations.with_label_values(&["keep", "done"]).inc();
    metrics.admin_logins.with_label_values(&["token", "accepted"]).inc();
    metrics.credential_renewals.with_label_values(&["p", "renewed"]).inc();
    metrics.credential_end.with_label_values(&["p"]).set(1);
    metrics.reloads.with_label_values(&["applied"]).inc();
    metrics.telemetry_exported.with_label_values(&["traces"]).inc();
    metrics.telemetry_dropped.with_label_values(&["logs", "queue_full"]).inc();
    metrics.thread_restarts.with_label_values(&["ledger"]).inc();
    metrics.admin_requests.with_label_values(&["readKey", "200"]).inc();
    metrics.keys.with_label_values(&["usable"]).set(1);
    metrics.config_info.with_label_values(&["0123"]).set(1);
    metrics.loaded.with_label_values(&["models"]).set(1);
    metrics
}

/// Parses the text of `/metrics`.
fn exposed(text: &str) -> Declared {
    let mut series = Declared::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            series.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let (sample, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
            let family = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| sample.strip_suffix(part));
            let family = family.filter(|name| series.contains_key(*name)).unwrap_or(sample);
            let names = labels.split("=\"").map(|part| part.rsplit(['"', ',', '{']).next().unwrap());
            let names = names.filter(|name| !name.contains('}') && *name != "le" && !name.is_empty());
            series.get_mut(family).unwrap().1.extend(names.map(str::to_owned));
        }
    }
    series
}

#[test]
fn metrics_page_lists_the_exposed_series() {
    let shown = exposed(&counted().render());
    assert_eq!(described(), shown);
}

#[test]
fn metrics_table_matches_the_page() {
    let page = described();
    for family in TABLE {
        let kind = match family.shape {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram(_) => "histogram",
        };
        let labels = family.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(page.get(family.name), Some(&(kind.to_owned(), labels)), "{}", family.name);
    }
    let ours = page.keys().filter(|name| !name.starts_with("process_")).count();
    assert_eq!(ours, TABLE.len());
}

/// As Prometheus recommends, the name of a series ends with its unit, and the page names the same unit.
#[test]
fn metrics_names_end_with_their_units() {
    for row in page().lines().filter(|line| line.starts_with("| `g") && line.matches(" | ").count() > 3) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (name, kind, unit) = (quoted(cells[0]).remove(0), cells[1], cells[3]);
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        let stem = name.trim_end_matches("_total");
        assert_eq!(unit.contains("seconds"), stem.ends_with("_seconds"), "{name}: {unit}");
        assert_eq!(unit == "bytes", stem.ends_with("_bytes"), "{name}: {unit}");
    }
}

#[test]
fn metrics_page_lists_the_values_of_every_label() {
    let page = page();
    let (_, section) = page.split_once("\n## Labels\n").unwrap();
    let mut explained = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let (labels, values) = row.trim_matches('|').split_once(" | ").unwrap();
        for label in quoted(labels) {
            explained.entry(label).or_insert_with(BTreeSet::new).extend(quoted(values));
        }
    }
    let used: BTreeSet<String> = described().into_values().flat_map(|(_, labels)| labels).collect();
    assert_eq!(explained.keys().cloned().collect::<BTreeSet<_>>(), used);
    let kinds = ProviderKind::ALL.iter().map(|kind| kind.otel_name());
    let presets = Preset::ALL.iter().map(|preset| preset.otel_name());
    let hosts = OTEL_HOSTS.iter().map(|(_, name)| *name);
    let providers: BTreeSet<String> = kinds.chain(presets).chain(hosts).map(str::to_owned).collect();
    assert_eq!(explained["gen_ai_provider_name"], providers);
    // The values that were counted above must be documented.
    for line in counted().render().lines().filter(|line| line.starts_with("gateway_tokens_total{")) {
        let kind = line.split("kind=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(explained["kind"].contains(kind), "kind {kind}");
    }
}
