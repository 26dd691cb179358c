//! `model-gateway import` from a user's point of view: fixtures of each source with their golden reports and files,
//! and public configurations.
//!
//! The public configurations are not part of this repository. Their folder is GATEWAY_SAMPLES, or else
//! ../shared/samples. `UPDATE_GOLDEN=1` rewrites the golden files in `tests/import/`; review the diff.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Fixture: source, file, further arguments.
const FIXTURES: [(&str, &str, &[&str]); 5] = [
    ("litellm", "config.yaml", &["--keys", "keys.jsonl", "--teams", "teams.jsonl"]),
    ("new-api", "dump.sql", &[]),
    ("one-api", "dump.sql", &[]),
    ("bifrost", "config.json", &[]),
    ("portkey", "config.json", &["--name", "chat"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the gateway in a folder, with an environment that has no variables of providers.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .args(arguments)
        .env_clear()
        .current_dir(folder)
        .output()
        .unwrap()
}

fn import(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, &[&["import"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Copies the files of a fixture into a temporary folder.
fn fixture(source: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in std::fs::read_dir(root().join("tests/import").join(source)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    folder
}

fn check_golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "{} (UPDATE_GOLDEN=1 writes it anew)", path.display());
}

#[test]
fn fixtures_have_their_golden_reports_and_files() {
    for (source, file, more) in FIXTURES {
        let folder = fixture(source);
        let report = import(folder.path(), &[&[source, file, "--out", "out"], more].concat());
        let golden = root().join("tests/import").join(source).join("expected");
        check_golden(&golden.join("report.txt"), &report);
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(folder.path().join("out")).unwrap() {
            let path = entry.unwrap().path();
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            check_golden(&golden.join(path.file_name().unwrap()), &std::fs::read_to_string(&path).unwrap());
        }
        let expected = std::fs::read_dir(&golden).unwrap().count();
        assert_eq!(names.len() + 1, expected, "{source}: {names:?}");
        let checked = run(folder.path(), &["check", "--conf", "out/gateway.toml", "--no-secrets"]);
        assert!(checked.status.success(), "{source}: {}", String::from_utf8_lossy(&checked.stderr));
        // The same bytes a second time.
        import(folder.path(), &[&[source, file, "--out", "again"], more].concat());
        for name in names {
            let read = |out: &str| std::fs::read_to_string(folder.path().join(out).join(&name)).unwrap();
            assert_eq!(read("out"), read("again"), "{source}: {name}");
        }
    }
}

#[test]
fn json_report_has_every_field_with_its_outcome() {
    for (source, file, more) in FIXTURES {
        let folder = fixture(source);
        let text = import(folder.path(), &[&[source, file, "--out", "out", "--json"], more].concat());
        let report: Value = serde_json::from_str(&text).unwrap();
        let fields = report["fields"].as_array().unwrap();
        for (key, outcome) in [("taken", "taken"), ("changed", "changed"), ("impossible", "impossible")] {
            let count = fields.iter().filter(|field| field["outcome"] == outcome).count();
            assert_eq!(report[key], count, "{source}: {key}");
            assert!(count > 0, "{source} has nothing that is {outcome}");
        }
        for field in fields.iter().filter(|field| field["outcome"] != "taken") {
            assert!(field["note"].as_str().is_some_and(|note| !note.is_empty()), "{source}: {field}");
        }
    }
}

#[test]
fn existing_files_are_kept_and_dry_run_writes_nothing() {
    let folder = fixture("litellm");
    import(folder.path(), &["litellm", "config.yaml", "--out", "out", "--dry-run"]);
    assert!(!folder.path().join("out").exists());
    import(folder.path(), &["litellm", "config.yaml", "--out", "out"]);
    let keys = folder.path().join("out/keys.toml");
    std::fs::write(&keys, "# my own\n").unwrap();
    let refused = run(folder.path(), &["import", "litellm", "config.yaml", "--out", "out"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("exists already"));
    assert_eq!(std::fs::read_to_string(&keys).unwrap(), "# my own\n");
    import(folder.path(), &["litellm", "config.yaml", "--out", "out", "--force"]);
    assert!(std::fs::read_to_string(&keys).unwrap().contains("litellm-master-key"));
    let mode = |name: &str| {
        std::fs::metadata(folder.path().join("out").join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("secrets.env"), mode("routes.toml")), (0o600, 0o644));
    let staged = std::fs::read_dir(folder.path().join("out")).unwrap().flatten();
    assert_eq!(staged.filter(|entry| entry.file_name().to_str().unwrap().starts_with('.')).count(), 0);
}

#[test]
fn bad_input_is_an_error_that_names_file_line_and_field() {
    let folder = TempDir::new().unwrap();
    for (source, name, text, message) in [
        (
            "litellm",
            "a.yaml",
            "model_list:\n- model_name: [x]\n  litellm_params: {model: gpt-4o}\n",
            "a.yaml:2:15: model_list[0].model_name: expected a text",
        ),
        ("litellm", "b.yaml", "a: [1\nb: 2\n", "b.yaml:"),
        ("litellm", "c.yaml", "- 1\n", "c.yaml:1:1: not a configuration of LiteLLM"),
        (
            "bifrost",
            "d.json",
            "{\n \"providers\": {\"openai\": {\"keys\": 3}}}",
            "d.json:2:35: providers.openai.keys: expected a list",
        ),
        ("bifrost", "e.json", "{", "e.json:1:1: not valid JSON"),
        (
            "new-api",
            "f.sql",
            "CREATE TABLE x (y);\n\nATTACH 'other.db' AS o;\n",
            "f.sql: line 3: not authorized",
        ),
        ("new-api", "g.sql", "CREATE TABLE x (y);\n", "g.sql: the database has no table \"channels\""),
        ("one-api", "h.sql", "CREATE TABLE channels (id, type, key, auto_ban);\n", "those of New API"),
        ("litellm", "missing.yaml", "", "missing.yaml: "),
    ] {
        if !text.is_empty() {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let output = run(folder.path(), &["import", source, name, "--out", "out"]);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {shown}");
        assert!(shown.contains(message), "{name}: {shown}");
        assert!(!folder.path().join("out").exists() && !folder.path().join("other.db").exists());
    }
}

/// Accounts of the imported users have their quotas as money, and a second run of the script changes nothing.
#[test]
fn accounts_script_credits_each_balance_once() {
    let folder = fixture("new-api");
    import(folder.path(), &["new-api", "dump.sql", "--out", "out"]);
    for _ in 0..2 {
        let output = Command::new("sh")
            .arg("out/accounts.sh")
            .env("MODEL_GATEWAY", env!("CARGO_BIN_EXE_model-gateway"))
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = run(folder.path(), &["accounts", "list", "--json", "--conf", "out/gateway.toml"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    // The quota of a user, and of its tokens with a quota of their own, together.
    assert!(text.contains("\"5.00\""), "{text}");
    assert!(text.contains("\"0.500002\"") && text.contains("\"0.50\""), "{text}");
    assert_eq!((text.matches("alice").count(), text.matches("bob/token-2").count()), (1, 1), "{text}");
}

#[test]
fn sqlite_file_is_imported_like_its_dump() {
    let folder = fixture("one-api");
    let script = std::fs::read_to_string(folder.path().join("dump.sql")).unwrap();
    let database = rusqlite::Connection::open(folder.path().join("one-api.db")).unwrap();
    database.execute_batch(&script).unwrap();
    drop(database);
    import(folder.path(), &["one-api", "dump.sql", "--out", "dump"]);
    import(folder.path(), &["one-api", "one-api.db", "--out", "file"]);
    for name in ["routes.toml", "keys.toml", "secrets.env"] {
        let read = |out: &str| std::fs::read_to_string(folder.path().join(out).join(name)).unwrap();
        let body = |text: String| {
            text.lines().filter(|line| !line.starts_with("# Imported")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(body(read("dump")), body(read("file")), "{name}");
    }
}

#[test]
fn hundred_thousand_keys_are_imported() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("config.yaml"), "model_list: []\n").unwrap();
    let keys: String = (0..100_000)
        .map(|at: u32| {
            let at = model_gateway::account::KeyHash::of(&at.to_string()).to_hex();
            format!("{{\"token\": \"{at}\", \"key_alias\": \"app\", \"rpm_limit\": 60, \"spend\": 0.5}}\n")
        })
        .collect();
    std::fs::write(folder.path().join("keys.jsonl"), keys).unwrap();
    let arguments = ["litellm", "config.yaml", "--keys", "keys.jsonl", "--out", "out", "--json"];
    let report: Value = serde_json::from_str(&import(folder.path(), &arguments)).unwrap();
    assert_eq!(report["keys"], 100_000);
}

fn samples() -> Option<PathBuf> {
    let folder =
        std::env::var_os("GATEWAY_SAMPLES").map_or_else(|| root().join("../shared/samples"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(!required, "no public configurations here (GATEWAY_SAMPLES names their folder)");
    eprintln!("SKIPPED: no public configurations here (GATEWAY_SAMPLES names their folder)");
    None
}

/// Every public configuration becomes a valid one, and every deployment that is not in it has a reason.
#[test]
fn public_configurations_become_valid_ones() {
    let Some(samples) = samples() else { return };
    let mut count = 0;
    let mut served = 0;
    for source in ["litellm", "new-api", "one-api", "bifrost", "portkey"] {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(samples.join(source)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            let folder = TempDir::new().unwrap();
            let path = file.to_str().unwrap();
            let report: Value =
                serde_json::from_str(&import(folder.path(), &[source, path, "--out", "out", "--json"]))
                    .unwrap();
            let checked = run(folder.path(), &["check", "--conf", "out/gateway.toml", "--no-secrets"]);
            assert!(checked.status.success(), "{path}: {}", String::from_utf8_lossy(&checked.stderr));
            let secrets = folder.path().join("out/secrets.env");
            // With the environment that the file describes, the full check passes too.
            let mut full = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
            full.args(["check", "--conf", "out/gateway.toml"]).env_clear().current_dir(folder.path());
            for line in std::fs::read_to_string(secrets).unwrap_or_default().lines() {
                if let Some((name, value)) = line.trim_start_matches('#').split_once('=')
                    && !name.contains(' ')
                {
                    full.env(name, if value.is_empty() { "set" } else { value });
                }
            }
            std::fs::write(folder.path().join("out/vertex-token"), "token").unwrap();
            let full = full.output().unwrap();
            assert!(full.status.success(), "{path}: {}", String::from_utf8_lossy(&full.stderr));
            if report["models"] == 0 {
                assert!(report["impossible"].as_u64().unwrap() > 0, "{path} has no model and no reason");
            }
            count += 1;
            served += report["models"].as_u64().unwrap();
            eprintln!(
                "{source} {}: {} models, {} keys, {} taken, {} changed, {} impossible",
                file.file_name().unwrap().to_string_lossy(),
                report["models"],
                report["keys"],
                report["taken"],
                report["changed"],
                report["impossible"]
            );
        }
    }
    assert!(count >= 40 && served > 100, "{count} configurations with {served} models");
}
