//! Command line interface of the ledger: `model-gateway accounts` and `model-gateway usage`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use model_gateway::canonical::Usage;
use model_gateway::ledger::backend::sqlite::{SqliteLedger, SqliteLedgerConfig};
use model_gateway::ledger::wal::DEFAULT_SEGMENT_LIMIT;
use model_gateway::ledger::{Ledger, UsageRecord};
use serde_json::{Value, json};
use tempfile::TempDir;

/// 2026-01-01, in Unix milliseconds.
const TIME: i64 = 1_767_225_600_000;
const DAY: i64 = 86_400_000;

/// Folder with a configuration.
struct Gateway(TempDir);

impl Gateway {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let text = "[server]\nlisten = [\"127.0.0.1:0\"]\n[store]\nsqlite = \"state.db\"\n";
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        Gateway(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command. Returns whether it succeeded, its output and its error output.
    fn run(&self, words: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
        let output = command.args(words).arg("--conf").arg(self.path("gateway.toml")).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn good(&self, words: &[&str]) -> String {
        let (good, out, error) = self.run(words);
        assert!(good, "{words:?}: {error}");
        out
    }

    #[track_caller]
    fn bad(&self, words: &[&str]) -> String {
        let (good, out, error) = self.run(words);
        assert!(!good && out.is_empty(), "{words:?}: {out}");
        error
    }
}

fn settle(file: &Path, records: &[UsageRecord<'_>]) {
    let terms = SqliteLedgerConfig {
        flush: Duration::from_millis(20),
        records: Duration::from_secs(40_000 * 86_400),
        segment: DEFAULT_SEGMENT_LIMIT,
    };
    let book = SqliteLedger::open(file, terms).unwrap();
    for record in records {
        book.settle(None, record).wait(Duration::from_secs(20)).unwrap();
    }
}

fn record(request: &'static str, time: i64, cost: i64) -> UsageRecord<'static> {
    UsageRecord {
        time,
        request,
        account: "acme",
        key: "alice",
        model: "gpt-4o",
        provider: "openai",
        target: "gpt-4o-2024-11-20",
        endpoint: "chat",
        client_format: "chat",
        provider_format: "responses",
        status: 200,
        attempts: 1,
        first_byte: Some(412),
        total: 3_801,
        stream: true,
        usage: Usage { input: Some(1_850), cached: Some(1_024), output: Some(411), ..Usage::default() },
        cost,
        ..UsageRecord::default()
    }
}

#[test]
fn accounts_command_creates_credits_disables_and_shows() {
    let gateway = Gateway::new();
    assert!(gateway.bad(&["accounts", "list"]).contains("does not exist"));
    assert_eq!(
        gateway.good(&["accounts", "create", "acme", "--credit", "10.5"]),
        "acme is created, with a balance of 10.50.\n"
    );
    assert!(gateway.bad(&["accounts", "create", "acme"]).contains("already"));
    assert!(
        gateway.bad(&["accounts", "credit", "acme", "1.0000000001"]).contains("at most 9 decimal places")
    );
    let large = gateway.bad(&["accounts", "credit", "acme", "5000000000"]);
    assert!(large.contains("the maximum is 4611686018.427387903"), "{large}");
    assert!(gateway.bad(&["accounts", "credit", "nobody", "1"]).contains("no account is named \"nobody\""));
    let credit = ["accounts", "credit", "acme", "25", "--note", "January", "--reference", "inv-1"];
    assert_eq!(gateway.good(&credit), "acme now has a balance of 35.50.\n");
    assert_eq!(gateway.good(&credit), "acme already has this credit; its balance is 35.50.\n");
    assert_eq!(gateway.good(&["accounts", "credit", "acme", "-0.5"]), "acme now has a balance of 35.00.\n");
    assert_eq!(gateway.good(&["accounts", "disable", "acme"]), "acme is now disabled.\n");
    assert_eq!(gateway.good(&["accounts", "disable", "acme"]), "acme is already disabled.\n");

    let shown: Value = serde_json::from_str(&gateway.good(&["accounts", "show", "acme", "--json"])).unwrap();
    assert_eq!((&shown["name"], &shown["enabled"]), (&json!("acme"), &json!(false)));
    assert_eq!((&shown["balance"], &shown["charged"]), (&json!("35.00"), &json!("0.00")));
    let credits: Vec<(&Value, &Value)> =
        shown["credits"].as_array().unwrap().iter().map(|one| (&one["amount"], &one["reference"])).collect();
    let expected =
        [(json!("-0.50"), json!(null)), (json!("25.00"), json!("inv-1")), (json!("10.50"), json!(null))];
    assert_eq!(credits, expected.iter().map(|(amount, reference)| (amount, reference)).collect::<Vec<_>>());
    let table = gateway.good(&["accounts", "show", "acme"]);
    assert!(
        table.contains("balance   35.00") && table.contains("inv-1") && table.contains("January"),
        "{table}"
    );

    gateway.good(&["accounts", "create", "other"]);
    let listed: Value = serde_json::from_str(&gateway.good(&["accounts", "list", "--json"])).unwrap();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|account| &account["name"]).collect();
    assert_eq!(names, ["acme", "other"]);
    assert!(gateway.good(&["accounts", "list"]).lines().nth(1).unwrap().starts_with("acme   disabled"));
    assert!(gateway.good(&["accounts", "audit"]).contains("the balances of 2 accounts are consistent"));
}

#[test]
fn usage_command_shows_what_prompt_caches_saved() {
    let gateway = Gateway::new();
    gateway.good(&["accounts", "create", "acme", "--credit", "10"]);
    let wrote = UsageRecord { cache_surcharge: 250_000_000, ..record("r1", TIME, 1_250_000_000) };
    let read = UsageRecord { cache_saved: 900_000_000, ..record("r2", TIME + 1, 100_000_000) };
    let other = UsageRecord { model: "claude", key: "bob", ..record("r3", TIME + DAY, 5) };
    settle(&gateway.path("state.db"), &[wrote, read, other]);

    let january = ["usage", "--from", "2026-01", "--to", "2026-01"];
    for (by, first) in [("day", "2026-01-01"), ("model", "gpt-4o"), ("key", "alice")] {
        let args = [&january[..], &["--by", by]].concat();
        let table = gateway.good(&args);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines[0].ends_with(&["cost", "cache", "saved"]), "{table}");
        let line = lines.iter().find(|line| line[0] == first).unwrap();
        assert!(line.ends_with(&["1.350000000", "0.65"]), "{table}");
        let json = gateway.good(&[&args[..], &["--json"]].concat());
        let line: Value =
            serde_json::from_str(json.lines().find(|line| line.contains(first)).unwrap()).unwrap();
        assert_eq!((&line["cache_saved"], &line["cache_surcharge"]), (&json!("0.90"), &json!("0.25")));
        let csv = gateway.good(&[&args[..], &["--csv"]].concat());
        let mut lines = csv.lines();
        assert!(lines.next().unwrap().ends_with(",cost,cache_saved,cache_surcharge"));
        assert!(lines.any(|line| line.starts_with(first) && line.ends_with(",1.35,0.90,0.25")), "{csv}");
    }
    let records = gateway.good(&[&january[..], &["--records"]].concat());
    assert!(records.lines().next().unwrap().ends_with(",cost,cache_saved,cache_surcharge"));
    assert!(records.lines().nth(2).unwrap().ends_with(",0.10,0.90,0.00"), "{records}");
}

#[test]
fn usage_command_prints_tables_csv_and_json() {
    let gateway = Gateway::new();
    gateway.good(&["accounts", "create", "acme", "--credit", "10"]);
    let failed = UsageRecord {
        status: 502,
        error: "upstream",
        usage: Usage::default(),
        ..record("r3", TIME + DAY, 0)
    };
    let other = UsageRecord { model: "claude, \"4\"", ..record("r4", TIME + 31 * DAY, 9) };
    let records = [record("r1", TIME, 1_500_000_000), record("r2", TIME + 1, 25), failed, other];
    settle(&gateway.path("state.db"), &records);

    let january = ["usage", "--from", "2026-01", "--to", "2026-01"];
    let table = gateway.good(&january);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["day", "requests", "failed", "input", "cached", "output", "reasoning", "cost"]);
    assert_eq!(lines[1], ["2026-01-01", "2", "0", "3,700", "2,048", "822", "0", "1.500000025"]);
    assert_eq!(lines[2], ["2026-01-02", "1", "1", "0", "0", "0", "0", "0.000000000"]);
    assert_eq!(
        lines[4],
        ["2026-01-01", "to", "2026-01-31", "3", "1", "3,700", "2,048", "822", "0", "1.500000025"]
    );

    let csv = gateway.good(&[&january[..3], &["--to", "2026-02", "--by", "model", "--csv"]].concat());
    let mut lines = csv.lines();
    let head = "model,requests,failed,input,cached,cache_write,cache_write_1h,output,reasoning,audio_input,\
        audio_output,image_output,searches,cost";
    assert!(lines.next().unwrap().starts_with(head.strip_suffix(",cost").unwrap()));
    assert!(lines.next().unwrap().starts_with("gpt-4o,3,1,3700,2048,0,0,822,"));
    assert!(lines.next().unwrap().starts_with("\"claude, \"\"4\"\"\",1,0,1850,"));

    let lines = gateway.good(&[&january[..], &["--by", "account", "--json"]].concat());
    let line: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!((&line["account"], &line["requests"]), (&json!("acme"), &json!(3)));
    assert_eq!((&line["cached"], &line["cost"]), (&json!(2048), &json!("1.500000025")));

    let records = gateway.good(&[&january[..], &["--records", "--json"]].concat());
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 3);
    assert_eq!(records[1]["time"], "2026-01-01T00:00:00.001Z");
    assert_eq!((&records[1]["request"], &records[1]["provider_format"]), (&json!("r2"), &json!("responses")));
    assert_eq!((&records[1]["first_byte_ms"], &records[1]["reasoning"]), (&json!(412), &json!(null)));
    assert_eq!((&records[2]["error"], &records[2]["status"]), (&json!("upstream"), &json!(502)));
    let csv = gateway.good(&[&january[..], &["--records", "--csv"]].concat());
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.len() == 4 && columns.iter().all(|count| *count == columns[0]), "{csv}");

    let nothing = gateway.good(&["usage", "--account", "nobody", "--from", "2026-01"]);
    assert!(nothing.starts_with("No usage from 2026-01-01 to "), "{nothing}");
    assert!(gateway.bad(&["usage", "--from", "2026-13"]).contains("2027-01-31"));
    assert!(gateway.bad(&["usage", "--by", "colour"]).contains("day, account, key, model"));
    assert!(gateway.good(&["accounts", "audit"]).contains("the balances of 1 accounts are consistent"));
}

#[test]
fn backup_command_writes_a_usable_database() {
    let gateway = Gateway::new();
    gateway.good(&["accounts", "create", "acme", "--credit", "10"]);
    settle(&gateway.path("state.db"), &[record("r1", TIME, 1_000_000_000)]);
    let copy = gateway.path("copy.db");
    let copy = copy.to_str().unwrap();
    gateway.good(&["accounts", "backup", copy]);
    assert!(gateway.bad(&["accounts", "backup", copy]).contains("exists"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
    let shown = command.args(["accounts", "show", "acme", "--json", "--store", copy]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["balance"], "9.00");
}

/// As every other program: ended by SIGPIPE, without a word. `println!` would panic.
#[test]
fn command_ends_quietly_when_the_reader_of_its_output_is_gone() {
    let gateway = Gateway::new();
    std::fs::write(gateway.path("routes.toml"), "").unwrap();
    for name in ["acme", "two", "three"] {
        gateway.good(&["accounts", "create", name, "--credit", "10.5"]);
        gateway.good(&["keys", "create", name]);
        gateway.good(&["admin", "create", name]);
    }
    settle(&gateway.path("state.db"), &[record("req-1", TIME, 1), record("req-2", TIME, 2)]);
    let conf = gateway.path("gateway.toml").display().to_string();
    let with_conf: [&[&str]; 12] = [
        &["accounts", "list"],
        &["accounts", "list", "--json"],
        &["accounts", "show", "acme"],
        &["accounts", "show", "acme", "--json"],
        &["accounts", "audit"],
        &["admin", "list"],
        &["keys", "list"],
        &["usage", "--from", "2026-01-01"],
        &["usage", "--from", "2026-01-01", "--json"],
        &["usage", "--from", "2026-01-01", "--records"],
        &["check", "--no-secrets"],
        &["check", "--no-secrets", "--print"],
    ];
    let others: [&[&str]; 4] =
        [&["explain", "--table"], &["schema", "keys"], &["completions", "bash"], &["admin", "openapi"]];
    let with_conf = with_conf.into_iter().map(|words| [words, &["--conf", conf.as_str()]].concat());
    for words in with_conf.chain(others.into_iter().map(<[&str]>::to_vec)) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
            .args(&words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!error.contains("panicked") && !error.contains("error:"), "{words:?}: {error}");
        assert_eq!(output.status.signal(), Some(13), "{words:?}: {}: {error}", output.status);
    }
    // As a user meets it.
    let program = env!("CARGO_BIN_EXE_model-gateway");
    for words in ["accounts list", "keys list", "admin list", "explain --table", "check --print --no-secrets"]
    {
        let conf = if words.starts_with("explain") { String::new() } else { format!("--conf '{conf}'") };
        let line = format!("'{program}' {words} {conf} | head -n 1");
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !error.contains("panicked"), "{line}: {error}");
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{line}");
    }
}

/// Keys that can ask for no model.
#[test]
fn keys_command_tells_of_models_that_there_are_not() {
    let gateway = Gateway::new();
    let routes = "[[provider]]\nname = \"p\"\nkind = \"openai\"\ncredential = { value = \"sk-1\" }\n\
                  [[model]]\nid = \"claude-sonnet\"\ntargets = [{ provider = \"p\", model = \"m\" }]\n";
    std::fs::write(gateway.path("routes.toml"), routes).unwrap();
    std::fs::write(gateway.path("keys.toml"), "#:schema ../schema/keys.schema.json\n# Keys.\n").unwrap();
    for empty in ["", " "] {
        let refused = gateway.bad(&["keys", "create", "none", "--model", empty]);
        assert!(refused.contains("without --model all models are permitted"), "{refused}");
    }
    let (good, key, warning) = gateway.run(&["keys", "create", "ci", "--model", "claud-sonnet"]);
    assert!(good && key.starts_with("mgw_"), "{warning}");
    assert!(
        warning.contains("no configured model matches \"claud-sonnet\"; did you mean \"claude-sonnet\"?"),
        "{warning}"
    );
    let (good, _, warning) = gateway.run(&["keys", "create", "fine", "--model", "claude-*"]);
    assert!(good && !warning.contains("warning"), "{warning}");
    let keys = std::fs::read_to_string(gateway.path("keys.toml")).unwrap();
    assert!(keys.starts_with("#:schema ../schema/keys.schema.json\n# Keys.\n"), "{keys}");
    std::fs::write(
        gateway.path("keys.toml"),
        keys + "\n[[key]]\nname = \"nothing\"\nsha256 = \"" + &"0".repeat(64) + "\"\nmodels = []\n",
    )
    .unwrap();
    let listed = gateway.good(&["keys", "list"]);
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("ci").ends_with("claud-sonnet (no such model): permits nothing"), "{listed}");
    assert!(row("fine").ends_with("claude-*"), "{listed}");
    assert!(row("nothing").ends_with("none (permits nothing)"), "{listed}");
    let (good, _, warnings) = gateway.run(&["check"]);
    assert!(good, "{warnings}");
    assert!(warnings.contains("key \"ci\" permits no model: no configured model matches"), "{warnings}");
    assert!(warnings.contains("key \"nothing\" permits no model: its `models` are empty"), "{warnings}");
    assert!(!warnings.contains("\"fine\""), "{warnings}");
}

/// Each gateway has files of its own: a key is valid where it was made.
#[test]
fn keys_command_of_a_fleet_says_where_a_key_is_valid() {
    let gateway = Gateway::new();
    let text = "[server]\nlisten = [\"127.0.0.1:0\"]\n[store]\nvalkey = \"redis://127.0.0.1:1/0\"\n";
    std::fs::write(gateway.path("gateway.toml"), text).unwrap();
    let (good, key, warning) = gateway.run(&["keys", "create", "ci"]);
    assert!(good && key.starts_with("mgw_"), "{warning}");
    assert!(warning.contains("valid at this gateway only"), "{warning}");
}

/// Outside of the service there is no directory of credentials.
#[test]
fn check_command_names_the_way_without_the_credentials_of_the_service() {
    let gateway = Gateway::new();
    let routes = "[[provider]]\nname = \"p\"\nkind = \"openai\"\ncredential = { file = \"%d/secret_p\" }\n\
                  [[model]]\nid = \"m\"\ntargets = [{ provider = \"p\", model = \"m\" }]\n";
    std::fs::write(gateway.path("routes.toml"), routes).unwrap();
    std::fs::write(gateway.path("keys.toml"), "").unwrap();
    let error = gateway.bad(&["check"]);
    assert!(error.contains("CREDENTIALS_DIRECTORY") && error.contains("check --no-secrets"), "{error}");
    assert!(error.contains("/run/credentials/model-gateway.service"), "{error}");
    gateway.good(&["check", "--no-secrets"]);
}

#[test]
fn explain_and_replay_print_words() {
    let gateway = Gateway::new();
    let file = gateway.path("request.json");
    std::fs::write(&file, "{").unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_model-gateway")).args(words).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (good, error) = run(&["explain", "--from", "chat", "--to", "messages", &file.display().to_string()]);
    assert!(!good && !error.contains("no losses") && error.contains("error:"), "{error}");
    let answer = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9 }
    });
    std::fs::write(&file, answer.to_string()).unwrap();
    let (good, noted) = run(&["replay", "--from", "chat", "--to", "messages", &file.display().to_string()]);
    assert!(good, "{noted}");
    assert!(noted.starts_with("noted id chatcmpl-1, finish stop, "), "{noted}");
    assert!(noted.contains("; usage input 7, output 2"), "{noted}");
    assert!(!noted.contains("Some(") && !noted.contains('{'), "{noted}");
}
