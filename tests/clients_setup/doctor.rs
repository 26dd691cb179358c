//! `doctor`: what it finds, and what it says to do.

use std::fs;

use crate::gateway::{Demo, scripted};
use crate::home::{Home, KEY, text};
use crate::start::LISTING;

/// Runs `doctor` against the demo, and returns the exit status and the output.
fn doctor(home: &Home, demo: &Demo, client: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut command = home.command(["doctor", client, "--url", &demo.url].iter().chain(more));
    let output = command.env("MODEL_GATEWAY_KEY", &demo.key).output().unwrap();
    (output.status.code(), text(&output))
}

fn configure(home: &Home, demo: &Demo, client: &str) {
    let mut command = home.command(["configure", client, "--url", &demo.url, "-m", "gpt-4o"]);
    let output = command.env("MODEL_GATEWAY_KEY", &demo.key).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn doctor_reports_faults() {
    let home = Home::new();
    home.install("codex", "echo codex-cli 0.169.0");
    let url = scripted("200 OK", LISTING);
    home.ok(["configure", "codex", "--url", &url, "-m", "gpt-4o"]);
    let shown = home.ok(["doctor", "codex", "--url", &url, "-m", "gpt-4o"]);
    for expected in [
        "codex-cli 0.169.0",
        "4 models for conversations, 3 of them with their context window",
        "it has the model catalogue",
        "context window 128000 tokens, maximum output 16000 tokens",
        &format!("configured for {url}"),
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    let path = home.path(".codex/config.toml");
    let changed = fs::read_to_string(&path).unwrap().replace("model = \"gpt-4o\"", "model = \"x\"");
    fs::write(path, changed).unwrap();
    let output = home.run(["doctor", "codex", "--url", "http://127.0.0.1:1"]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("model was changed since") && shown.contains("cannot connect"), "{shown}");
}

/// What the clients request besides conversations is requested in the same way.
#[test]
fn doctor_requests_what_the_clients_request() {
    let demo = Demo::start();
    let home = Home::new();
    home.install("claude", "echo 2.1.330");
    home.install("codex", "echo codex-cli 0.169.0");
    let (code, shown) = doctor(&home, &demo, "claude", &["-m", "claude-gw-gpt-4o"]);
    assert_eq!(code, Some(0), "{shown}");
    for expected in [
        "ok program: ",
        "ok gateway: the key is accepted",
        "ok model claude-gw-gpt-4o (an alias of gpt-4o): context window ",
        "ok discovery: ",
        "ok count_tokens: it counts for claude-gw-gpt-4o",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in {shown}");
    }
    let (code, shown) = doctor(&home, &demo, "codex", &["-m", "gpt-4o"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("ok websocket: the gateway serves it"), "{shown}");
    assert!(shown.contains("ok gateway: it has the model catalogue of Codex"), "{shown}");
}

#[test]
fn doctor_says_what_takes_precedence_over_the_settings() {
    let demo = Demo::start();
    let home = Home::new();
    home.install("claude", "echo 2.1.330");
    configure(&home, &demo, "claude");
    fs::create_dir_all(home.path("project/.git")).unwrap();
    fs::create_dir_all(home.path("project/sub")).unwrap();
    let run = |change: &dyn Fn(&mut std::process::Command)| {
        let mut command = home.command(["doctor", "claude", "--url", &demo.url]);
        command.env("MODEL_GATEWAY_KEY", &demo.key).current_dir(home.path("project/sub"));
        change(&mut command);
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    let (code, shown) = run(&|_| {});
    assert!(
        code == Some(0) && shown.contains(&format!("ok address: claude sends its requests to {}", demo.url)),
        "{shown}"
    );
    let (code, shown) = run(&|command| {
        command.env("ANTHROPIC_API_KEY", "own-secret");
    });
    assert!(
        code == Some(1) && shown.contains("fault address: the variable ANTHROPIC_API_KEY takes precedence"),
        "{shown}"
    );
    assert!(!shown.contains("own-secret") && shown.contains("model-gateway run claude"), "{shown}");
    home.write(
        "project/.claude/settings.local.json",
        r#"{"model": "opus", "env": {"ANTHROPIC_BASE_URL": "https://other.example"}}"#,
        0o600,
    );
    let (code, shown) = run(&|_| {});
    assert_eq!(code, Some(1), "{shown}");
    let file = home.path("project/.claude/settings.local.json").display().to_string();
    assert!(
        shown.contains(&format!("env.ANTHROPIC_BASE_URL in {file} (\"https://other.example\")")),
        "{shown}"
    );
    assert!(shown.contains(&format!("note settings: model in {file}")), "{shown}");
    assert!(!shown.contains("ok address"), "{shown}");
}

#[test]
fn doctor_says_that_the_variable_with_the_key_is_missing() {
    let demo = Demo::start();
    let home = Home::new();
    home.install("qwen", "echo 0.24.4");
    configure(&home, &demo, "qwen");
    let key = home.write("key", &demo.key, 0o600);
    let mut command =
        home.command(["doctor", "qwen", "--url", &demo.url, "--key-file", &key.display().to_string()]);
    let output = command.env_remove("MODEL_GATEWAY_KEY").output().unwrap();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("fault key: the settings name the variable MODEL_GATEWAY_KEY, which is not set"),
        "{shown}"
    );
}

#[test]
fn doctor_notes_a_window_that_is_unknown_or_too_small() {
    let url = scripted("200 OK", LISTING);
    let home = Home::new();
    home.install("claude", "echo 2.1.330");
    let shown = text(&home.run(["doctor", "claude", "--url", &url, "-m", "tiny"]));
    assert!(
        shown.contains("note model: tiny has a context window of 32000 tokens. Claude Code needs 48000"),
        "{shown}"
    );
    home.install("opencode", "echo 1.18.33");
    let shown = home.ok(["doctor", "opencode", "--url", &url, "-m", "claude-haiku-4-5"]);
    assert!(
        shown.contains("note model: the gateway does not say the context window of claude-haiku-4-5"),
        "{shown}"
    );
}

/// The script does what the client would do with its tool: it reads the file that the prompt names.
#[test]
fn doctor_session_is_judged_by_what_the_client_answers() {
    let url = scripted("200 OK", LISTING);
    let home = Home::new();
    let client = |answer: &str, window: u32| {
        let script = format!(
            r#"[ "$1" = --version ] && echo 2.1.330 && exit
[ "$ANTHROPIC_AUTH_TOKEN" = {KEY} ] || exit 3
echo '{{"result":"'{answer}'","usage":{{"input_tokens":10,"cache_read_input_tokens":5}},'
echo '"modelUsage":{{"gpt-4o":{{"contextWindow":{window}}}}}}}'"#
        );
        home.install("claude", &script);
        let output = home.run(["doctor", "claude", "--url", &url, "-m", "gpt-4o", "--session"]);
        (output.status.code(), text(&output))
    };
    let (code, shown) = client("$(cat model-gateway-doctor.txt)", 128_000);
    assert!(code == Some(0) && shown.contains("ok session: the client read a file with a tool"), "{shown}");
    assert!(shown.contains("ok session: the client shows 15 input tokens"), "{shown}");
    let (code, shown) = client("$(cat model-gateway-doctor.txt)", 1_000_000);
    assert!(
        code == Some(1) && shown.contains("assumes a context window of 1000000 tokens instead of 128000"),
        "{shown}"
    );
    let (code, shown) = client("I cannot", 128_000);
    assert!(
        code == Some(1) && shown.contains("fault session: it did not find out what is in a file"),
        "{shown}"
    );
    assert_eq!(fs::read_dir(home.path("tmp")).unwrap().count(), 0);
    // It costs tokens, so it needs to know of which model.
    assert_eq!(home.run(["doctor", "claude", "--session"]).status.code(), Some(2));
}
