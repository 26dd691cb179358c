//! Scale of the key file: a million keys and a hundred thousand accounts are loaded, reloaded and looked up. Prints
//! figures without limits for them; run it with `cargo test --release --test scale -- --ignored --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use model_gateway::account::KeyHash;
use model_gateway::config::{self, NoSecrets};
use model_gateway::limits::{LimitRegistry, LimitRequest};

const KEYS: usize = 1_000_000;
const ACCOUNTS: usize = 100_000;
const LOOKUPS: usize = 1_000_000;

/// Returns the resident memory of the process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

fn name(number: usize) -> String {
    format!("client-key-{number:07}")
}

/// Returns the text of keys.toml. A tenth of the keys have permissions and limits, of ten kinds.
fn keys() -> String {
    let mut text = String::with_capacity(KEYS * 180);
    for number in 0..ACCOUNTS {
        writeln!(text, "[[account]]\nname = \"account-{number:06}\"").unwrap();
        if number % 2 == 0 {
            writeln!(text, "limits = {{ requests_per_minute = {} }}", 600 + number % 7).unwrap();
        }
    }
    for number in 0..KEYS {
        let hash = KeyHash::of(&name(number)).to_hex();
        writeln!(text, "[[key]]\nname = \"key-{number:07}\"\nsha256 = \"{hash}\"").unwrap();
        writeln!(text, "account = \"account-{:06}\"", number % ACCOUNTS).unwrap();
        if number % 10 == 0 {
            let kind = number / 10 % 10;
            writeln!(
                text,
                "models = [\"gpt-*\", \"claude-{kind}\"]\nlimits = {{ concurrent = {} }}",
                kind + 1
            )
            .unwrap();
        }
    }
    text
}

fn each(time: Duration, count: usize) -> u128 {
    time.as_nanos() / count as u128
}

#[test]
#[ignore = "takes minutes where it is not optimised"]
fn keys_one_million_are_loaded_and_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let routes =
        "[[provider]]\nname = \"p\"\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    std::fs::write(folder.path().join("keys.toml"), keys()).unwrap();
    let file = |name: &str| folder.path().join(name);
    let size = std::fs::metadata(file("keys.toml")).unwrap().len();
    println!("keys.toml: {KEYS} keys, {ACCOUNTS} accounts, {} MB", size / 1_000_000);

    let before = resident();
    let start = Instant::now();
    let first = config::load_snapshot(&file("routes.toml"), &file("keys.toml"), &NoSecrets).unwrap();
    let took = start.elapsed();
    let held = resident().saturating_sub(before);
    println!("load: {took:?}, {} ns a key; {} bytes a key resident", each(took, KEYS), held / KEYS as u64);

    let start = Instant::now();
    let second = config::load_snapshot(&file("routes.toml"), &file("keys.toml"), &NoSecrets).unwrap();
    println!("load again beside it: {:?}", start.elapsed());
    let both = resident().saturating_sub(before);
    println!("both resident: {} bytes a key", both / KEYS as u64);
    let start = Instant::now();
    drop(first);
    println!("take the old one apart: {:?}", start.elapsed());

    let names: Vec<String> = (0..LOOKUPS).map(|number| name(number * 7_919 % KEYS)).collect();
    let start = Instant::now();
    let found = names.iter().filter(|name| second.keys.find(name).is_some()).count();
    let took = start.elapsed();
    assert_eq!(found, LOOKUPS);
    println!("look-up, SHA-256 of the key included: {} ns", each(took, LOOKUPS));

    let gauges = LimitRegistry::default();
    let before = resident();
    let start = Instant::now();
    let mut limited = 0;
    for name in &names {
        let key = second.keys.find(name).unwrap();
        if !key.rules.limits.is_empty() {
            limited += 1;
            drop(key.limit_state(&gauges).admit(&key.rules.limits, &LimitRequest::default()).unwrap());
        }
    }
    let took = start.elapsed();
    println!(
        "look-up and first admission of {limited} limited keys: {} ns each; {} bytes a gauge",
        each(took, LOOKUPS),
        resident().saturating_sub(before) / limited.max(1)
    );
}
