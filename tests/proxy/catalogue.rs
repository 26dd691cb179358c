//! The operator's catalogue in a running gateway: prices by day and tier, reload under load, faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::accounts::{PAYING, asking, providers};
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{Setup, key, provider_of};
use crate::support::upstream::Upstream;
use crate::tiers::telling;

/// Key whose requests are counted apart from those of the load.
const PROBE: &str = "client-key-of-the-probe-0009";

/// Providers of the catalogue, with the models of [`Setup::each_provider`] there and families for them.
const OFFERS: [(&str, &str, &str); 4] = [
    ("at-chat", "openai", "gpt-4"),
    ("at-responses", "openai", "gpt-4"),
    ("at-messages", "anthropic", "claude-4.5"),
    ("at-generate", "gemini", "gemini-2.5-flash"),
];

/// Returns a catalogue in which each model has these price rows.
fn catalogue(rows: &str) -> String {
    let models = OFFERS.map(|(id, provider, family)| {
        format!(
            "[[model]]\nid = \"{id}\"\nfamily = \"{family}\"\nsource = \"a test\"\n[[model.at]]\nprovider = \"{provider}\"\n\
             source = \"a test\"\n{rows}\n"
        )
    });
    format!("schema = 1\n{}", models.concat())
}

fn row(days: &str, input: u64) -> String {
    format!(
        "[[model.at.price]]\n{days}input = {input}\noutput = 2\ntiers = {{ priority = 2, flex = 0.5 }}\n\
         unusual = \"a test\"\nsource = \"a test\"\n"
    )
}

/// Cost of a request with 11 input and 7 output tokens, in millionths.
fn millionths(input: u64) -> u64 {
    11 * input + 14
}

fn cost(input: u64) -> Value {
    json!(model_gateway::account::Amount(i64::try_from(millionths(input) * 1_000).unwrap()).to_string())
}

async fn start(upstream: &Upstream, text: &str) -> Gateway {
    let mut setup =
        Setup::each_provider(upstream.addr).catalogue(text).account("acme", "100").account("probe", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    setup.keys += &key("probe", PROBE, "account = \"probe\"");
    Gateway::start(&setup).await
}

/// Requests run without a pause, documents and streams of each format, while the catalogue changes ten times: none fails, and each
/// costs what one of the files says, those of the probe what the file in force says.
#[tokio::test]
async fn catalogue_reload_under_load_charges_what_the_file_says() {
    let upstream = providers().await;
    let gateway = Arc::new(start(&upstream, &catalogue(&row("", 1))).await);
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = Form::ALL
        .into_iter()
        .flat_map(|form| [(form, false), (form, true)])
        .map(|(form, stream)| {
            let (gateway, stop, sent) = (gateway.clone(), stop.clone(), sent.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = gateway.ask(asking(form, provider_of(form), stream, PAYING)).await;
                    assert_eq!(answer.status(), 200, "{form:?} {stream}: {}", answer.text());
                    if stream {
                        let last = form.frames(provider_of(form)).pop().unwrap();
                        assert!(answer.text().ends_with(&last), "{form:?}: {}", answer.text());
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let probe = async |gateway: &Gateway| {
        let answer = gateway.ask(asking(Form::Chat, "at-chat", false, PROBE)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    };
    probe(&gateway).await;
    for input in 2..12 {
        let before = sent.load(Ordering::Relaxed);
        gateway.replace("over.toml", &catalogue(&row("", input)));
        gateway.reload("applied").await;
        probe(&gateway).await;
        // Some requests of the load fall between two changes.
        while sent.load(Ordering::Relaxed) < before + 8 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    // A row that is wrong is refused with its place and what would be right, and the file before it stays in force.
    let wrong = catalogue(&row("", 12)).replacen("input = 12", "input = \"twelve\"", 1);
    let line = wrong.lines().position(|line| line.contains("twelve")).unwrap() + 1;
    gateway.replace("over.toml", &wrong);
    gateway.reload("refused").await;
    let problems = gateway.status().await["last_reload"]["problems"].to_string();
    assert!(problems.contains(&format!("over.toml:{line}:")), "{line}: {problems}");
    assert!(problems.contains("input") && problems.contains("a price such as 2.5"), "{problems}");
    probe(&gateway).await;
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let sent = sent.load(Ordering::Relaxed);
    let records = gateway.records(sent + 12).await;
    let (mut probes, mut costs) = (BTreeMap::new(), BTreeMap::new());
    for record in &records {
        let count = if record["key"] == "probe" { &mut probes } else { &mut costs };
        *count.entry(record["cost"].to_string()).or_insert(0) += 1;
    }
    let expected: BTreeMap<String, usize> =
        (1..12).map(|input| (cost(input).to_string(), if input == 11 { 2 } else { 1 })).collect();
    assert_eq!(probes, expected);
    assert!(costs.keys().all(|cost| expected.contains_key(cost)), "{costs:?}");
    assert!(costs.len() > 5, "the load ran across the changes: {costs:?}");
    // To the nano-unit: what the accounts have left is the credit less the records.
    let spent: u64 = (1..12)
        .map(|input| {
            let one = cost(input).to_string();
            let count = costs.get(&one).copied().unwrap_or(0);
            millionths(input) * u64::try_from(count).unwrap()
        })
        .sum();
    let left = 100_000_000 - spent;
    let account = gateway.account("acme");
    let expected = model_gateway::account::Amount(i64::try_from(left * 1_000).unwrap()).to_string();
    assert_eq!(account["balance"], json!(expected), "{account}");
}

/// The price is that of the day of the request: a row that ended yesterday or begins tomorrow has no effect, and no reload is needed
/// when its day comes.
#[tokio::test]
async fn catalogue_price_is_that_of_the_day_of_the_request() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let day =
        |offset: i64| model_gateway::account::price::date(i64::try_from(now / 86_400).unwrap() + offset);
    // The second row holds tomorrow too: the test may run across midnight.
    let rows = [
        row(&format!("until = {}\n", day(-1)), 9),
        row(&format!("from = {}\nuntil = {}\n", day(0), day(1)), 3),
        row(&format!("from = {}\n", day(2)), 7),
    ];
    let upstream = providers().await;
    let gateway = start(&upstream, &catalogue(&rows.concat())).await;
    for form in Form::ALL {
        for stream in [false, true] {
            let answer = gateway.ask(asking(form, provider_of(form), stream, PAYING)).await;
            assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
        }
    }
    let records = gateway.records(2 * Form::ALL.len()).await;
    assert!(records.iter().all(|record| record["cost"] == cost(3)), "{records:?}");
}

/// A tier that the provider lowered costs the tier that it served, by the factors of the catalogue.
#[tokio::test]
async fn catalogue_factor_of_the_tier_that_was_served_is_charged() {
    let (told, bodies) = (Arc::default(), Arc::default());
    let upstream = telling(Arc::clone(&told), bodies).await;
    let gateway = start(&upstream, &catalogue(&row("", 1))).await;
    let bearer = format!("Bearer {PAYING}");
    let mut expected = Vec::new();
    for (asked, served, cost) in [
        ("priority", "priority", "0.00005"),
        ("priority", "default", "0.000025"),
        ("flex", "flex", "0.0000125"),
        ("default", "flex", "0.0000125"),
        // What is not known costs as much as the dearest tier.
        ("priority", "tier_of_tomorrow", "0.00005"),
    ] {
        *told.lock().unwrap() = (format!("\"service_tier\":\"{served}\","), String::new());
        let mut body: Value = serde_json::from_str(&Form::Chat.body("at-chat", false)).unwrap();
        body["service_tier"] = json!(asked);
        let path = Form::Chat.path("at-chat", false);
        let answer = gateway.ask(post_with(&path, &[("authorization", &bearer)], body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        expected.push(cost);
    }
    let records = gateway.records(expected.len()).await;
    let mut costs: Vec<&str> = records.iter().map(|record| record["cost"].as_str().unwrap()).collect();
    costs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(costs, expected);
}

/// A name that the catalogue only guesses has no price of its family: it is refused to accounts, or free, as the configuration says.
#[tokio::test]
async fn catalogue_guess_is_no_price() {
    for (unpriced, status) in [("refuse", 403), ("free", 200)] {
        let upstream = providers().await;
        let mut setup = Setup::new()
            .provider("openai", "openai", &format!("http://{}/v1", upstream.addr), "apis = [\"chat\"]")
            .model("at-chat", "openai", "gpt-5.2-of-tomorrow")
            .account("acme", "1");
        setup.keys += &key("pia", PAYING, "account = \"acme\"");
        setup.limits += &format!("\n[accounts]\nunpriced = \"{unpriced}\"\n");
        let gateway = Gateway::start(&setup).await;
        let answer = gateway.ask(asking(Form::Chat, "at-chat", false, PAYING)).await;
        assert_eq!(answer.status(), status, "{unpriced}: {}", answer.text());
        if status == 200 {
            assert_eq!(gateway.records(1).await[0]["cost"], "0.00");
        } else {
            assert!(answer.text().contains("at-chat"), "{}", answer.text());
        }
    }
}
