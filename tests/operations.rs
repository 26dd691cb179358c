//! Check of docs/operations.md against the code: every kind of error and every field of the access log.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use model_gateway::canonical::Usage;
use model_gateway::error::ErrorKind;
use model_gateway::metrics::Metrics;
use model_gateway::metrics::access_log::{AccessLog, Destination, Line};
use model_gateway::metrics::table::TABLE;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap()
}

/// Returns the names in backticks in the first cell of each row of a section's tables.
fn named(page: &str, section: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells
        .flat_map(|cell| cell.trim_end_matches('`').split("`, `").map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn operations_page_lists_every_kind_of_error() {
    let page = page();
    let kinds: BTreeSet<String> = ErrorKind::ALL.iter().map(|kind| kind.label().to_owned()).collect();
    assert_eq!(named(&page, "Troubleshooting"), kinds);
    for kind in ErrorKind::ALL {
        let row = page
            .lines()
            .find(|line| line.starts_with("| `") && line.contains(&format!("`{}`", kind.label())));
        let status = kind.row().status.to_string();
        assert!(row.unwrap().split(" | ").nth(1).unwrap().contains(&status), "{}: {status}", kind.label());
    }
}

#[test]
fn operations_page_lists_every_access_log_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let dropped = Metrics::new().unwrap().log_dropped;
    let log = AccessLog::open(Destination::File(path.clone()), dropped).unwrap();
    let text = Some("x");
    log.write(&Line {
        time: 1,
        request_id: "x",
        trace_id: text,
        client: Some("127.0.0.1".parse().unwrap()),
        method: "POST",
        path: "/",
        endpoint: "chat",
        http: 11,
        websocket: true,
        status: 200,
        error: text,
        detail: text,
        key: text,
        account: text,
        model: text,
        provider: text,
        upstream_model: text,
        upstream_status: Some(200),
        upstream_id: text,
        stream: true,
        finish: text,
        cache_changed: text,
        usage: Usage {
            input: Some(1),
            cached: Some(1),
            cache_write: Some(1),
            cache_write_1h: Some(1),
            output: Some(1),
            reasoning: Some(1),
            audio_input: Some(1),
            audio_output: Some(1),
            image_output: Some(1),
            searches: Some(1),
            ..Usage::default()
        },
        cost: Some(1_500_000_000),
        tier: text,
        request_bytes: 1,
        response_bytes: 1,
        frames: 1,
        attempts: 1,
        tried: text,
        micros: 1,
        first_token_micros: Some(1),
        upstream_micros: Some(1),
    });
    log.close();
    let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let fields: BTreeSet<String> = line.as_object().unwrap().keys().cloned().collect();
    assert_eq!(named(&page(), "Access log"), fields);
}

#[test]
fn operations_page_alerts_use_existing_series() {
    let page = page();
    let (_, alerts) = page.split_once("\n## Alerts\n").unwrap();
    let alerts = alerts.split("\n## ").next().unwrap();
    let words = alerts.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let used: BTreeSet<&str> = words
        .filter(|word| word.starts_with("gateway_") || word.starts_with("gen_ai_"))
        .map(|word| word.trim_end_matches("_bucket"))
        .collect();
    assert!(used.len() > 4, "{used:?}");
    for name in used {
        assert!(TABLE.iter().any(|family| family.name == name), "{name} is no series");
    }
}
