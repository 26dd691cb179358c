//! Audit log of a gateway that is killed at random moments while changes are answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt as _;
use rustix::process::{WaitOptions, waitpid};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ADMIN, Ask, with_tokens};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;

/// Number of kills.
const ROUNDS: usize = 10;
/// Clients that change something at a time.
const CLIENTS: usize = 6;

/// Sends a request. `None` if its answer did not arrive as a whole.
async fn answered(address: std::net::SocketAddr, ask: &Ask) -> Option<Value> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(&ask.bytes()).await.ok()?;
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
    read.ok()?.ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| serde_json::from_str(body).ok())?
}

/// Change of a client: its action and object in the audit log.
fn change(client: usize, number: usize) -> (Ask, &'static str, String) {
    let ask = |method, path: String, body: Value| Ask::new(method, &path).token(ADMIN).body(body);
    let name = format!("k{client}-{}", number / 3);
    match number % 3 {
        0 => (ask("POST", "/keys".to_owned(), json!({ "name": name })), "key.create", format!("key/{name}")),
        1 => {
            let body = json!({ "amount": "0.000001", "note": name });
            (
                ask("POST", "/accounts/acme/credits".to_owned(), body),
                "account.credit",
                "account/acme".to_owned(),
            )
        }
        _ => {
            let body = json!({ "enabled": false });
            (ask("PATCH", format!("/keys/{name}"), body), "key.update", format!("key/{name}"))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_audit_has_what_was_answered_and_what_was_applied_after_kills() {
    let setup = with_tokens(Setup::new()).account("acme", "1");
    let gateway = Arc::new(Gateway::start(&setup).await);
    let mut pid = gateway.pid();
    let mut process = None;
    // Number of the line, action and object of each answer.
    let mut answers: Vec<(u64, &'static str, String)> = Vec::new();
    let mut next = [0; CLIENTS];
    for round in 0..ROUNDS {
        let mut clients = tokio::task::JoinSet::new();
        for (client, first) in next.iter().copied().enumerate() {
            let address = gateway.admin;
            clients.spawn(async move {
                let mut done = Vec::new();
                // Until the gateway is killed.
                for number in first.. {
                    let (ask, action, object) = change(client, number);
                    let Some(answer) = answered(address, &ask).await else {
                        return (client, number + 1, done);
                    };
                    done.push((answer["audit"].as_u64().unwrap(), action, object));
                }
                unreachable!()
            });
        }
        let time = rand::rng().random_range(50..600);
        tokio::time::sleep(Duration::from_millis(time)).await;
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
        if process.is_none() {
            // The first one has no handle that waits for it, and a process counts as running until its end is read.
            waitpid(rustix::process::Pid::from_raw(pid as i32), WaitOptions::empty()).unwrap();
        }
        let before = answers.len();
        while let Some(ended) = clients.join_next().await {
            let (client, number, done) = ended.unwrap();
            next[client] = number;
            answers.extend(done);
        }
        drop(process.take());
        let successor = gateway.start_beside(&[]);
        pid = successor.pid();
        process = Some(successor);
        for _ in 0..600 {
            if gateway.admin_status("/readyz").await == Some(200) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        eprintln!("round {round}: killed after {time} ms, {} answers", answers.len() - before);
    }
    compare(&gateway, &answers);
}

/// Compares the audit log with what was answered, and with what is there.
fn compare(gateway: &Gateway, answers: &[(u64, &'static str, String)]) {
    let log = gateway.read("admin/audit.jsonl");
    let lines: BTreeMap<u64, Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["seq"].as_u64().unwrap(), line))
        .collect();
    let is = |line: &Value, outcome: &str| line["outcome"] == outcome;
    for (number, action, object) in answers {
        let line = &lines[number];
        assert!(is(line, "applied") && line["action"] == *action && line["object"] == **object, "{line}");
    }
    // Each change that has begun has one outcome.
    let ended: Vec<u64> = lines.values().filter_map(|line| line["change"].as_u64()).collect();
    let begun: BTreeSet<u64> =
        lines.iter().filter(|(_, line)| is(line, "begun")).map(|(number, _)| *number).collect();
    assert_eq!(ended.iter().copied().collect::<BTreeSet<_>>(), begun);
    assert_eq!(ended.len(), begun.len());
    // What is applied is there, and nothing else is.
    let of = |outcome: &str, action: &str| {
        let found = lines.values().filter(|line| is(line, outcome) && line["action"] == action);
        found.map(|line| line["object"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let keys: toml::Table = gateway.read("keys.toml").parse().unwrap();
    let is_disabled = |key: &&toml::Value| key.get("enabled").and_then(toml::Value::as_bool) == Some(false);
    let keys = keys["key"].as_array().unwrap().iter();
    let name = |key: &toml::Value| format!("key/{}", key["name"].as_str().unwrap());
    let own: Vec<&toml::Value> = keys.filter(|key| name(key).starts_with("key/k")).collect();
    assert_eq!(own.iter().map(|key| name(key)).collect::<BTreeSet<_>>(), of("applied", "key.create"));
    let disabled = own.iter().copied().filter(is_disabled).map(name).collect::<BTreeSet<_>>();
    assert_eq!(disabled, of("applied", "key.update"));
    // Of a credit whose process was killed, the log says that it does not know.
    let credits = lines.values().filter(|line| line["action"] == "account.credit");
    let (sure, unsure) =
        credits.fold((0, 0), |(sure, unsure), line| match line["outcome"].as_str().unwrap() {
            "applied" => (sure + 1, unsure),
            "unknown" => (sure, unsure + 1),
            _ => (sure, unsure),
        });
    let credited = gateway.account("acme")["credited"].as_str().unwrap().parse::<f64>().unwrap();
    let credited = ((credited - 1.0) * 1e6).round() as i64;
    assert!(
        (sure..=sure + unsure).contains(&credited),
        "{credited} credits, {sure} applied, {unsure} unknown"
    );
    assert!(gateway.command(&["audit", "verify"]).contains("lines"));
    eprintln!("{} answers, {} lines, {unsure} unknown", answers.len(), lines.len());
    assert!(answers.len() > ROUNDS, "{} answers", answers.len());
}
