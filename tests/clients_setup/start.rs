//! `run` and `doctor`: what the client's process gets, and how it ends. Scripts stand in for the clients.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::gateway::{Demo, scripted};
use crate::home::{Home, KEY, text};

/// Script that prints its arguments, its environment, and the files of its temporary folder.
const DUMP: &str = r#"for argument in "$@"; do echo "argument $argument"; done
env | grep -E '^(ANTHROPIC|CLAUDE|MODEL_GATEWAY_KEY|GEMINI|GOOGLE|OPENCODE|OPENAI|QWEN|CRUSH|ENABLE_TOOL)' | sed 's/^/variable /'
for file in "$HOME"/tmp/model-gateway-run-*/* "$HOME"/tmp/model-gateway-run-*/.gemini/* \
  "$HOME"/tmp/model-gateway-run-*/state/*; do
  [ -f "$file" ] && echo "file $(stat -c %a "$file") $(basename "$file") $(tr -d '\n' < "$file")"
done
true"#;

/// Listing with limits, and with the model catalogue of Codex.
pub(crate) const LISTING: &str = r#"{"object":"list","data":[
    {"id":"gpt-4o","object":"model","context_window":128000,"max_output_tokens":16000},
    {"id":"claude-sonnet-4-6","object":"model","context_window":200000},
    {"id":"claude-haiku-4-5","object":"model"},
    {"id":"text-embedding-3-small","object":"model","conversational":false},
    {"id":"tiny","context_length":32000}],"models":[{"slug":"gpt-4o"}]}"#;

/// Starts a dumping script as a client, and returns what it printed.
fn dump(client: &str, url: &str, options: &[&str]) -> String {
    let home = Home::new();
    home.install(client, DUMP);
    let before = home.snapshot();
    let output = home.command(["run", client, "--url", url].iter().chain(options)).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    // Nothing of the user's is changed, and the temporary folder is gone.
    let mut after = home.snapshot();
    after.retain(|(path, ..)| *path != home.path("tmp"));
    if client == "gemini" {
        // Where the client keeps conversations: otherwise they would be gone with the temporary folder.
        let kept = ["", "/tmp", "/history"].map(|name| home.path(format!(".gemini{name}")));
        assert!(kept.iter().all(|folder| folder.is_dir()));
        after.retain(|(path, ..)| !kept.contains(path));
    }
    assert_eq!(after, before);
    text(&output)
}

fn has(shown: &str, lines: &[&str]) {
    for line in lines {
        assert!(shown.lines().any(|shown| shown == *line), "{line:?} is not in {shown}");
    }
}

/// Returns the JSON of a dumped file.
fn file(shown: &str, name: &str) -> Value {
    let start = format!("file 600 {name} ");
    let line = shown.lines().find_map(|line| line.strip_prefix(&start));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no {name} in {shown}"))).unwrap()
}

#[test]
fn claude_gets_variables_and_unchanged_arguments() {
    let url = scripted("200 OK", LISTING);
    let shown = dump("claude", &url, &["-m", "claude-sonnet-4-6", "-p", "a b", "--model=x", "--", "-m"]);
    has(
        &shown,
        &[
            &format!("variable ANTHROPIC_BASE_URL={url}"),
            &format!("variable ANTHROPIC_AUTH_TOKEN={KEY}"),
            "variable ANTHROPIC_MODEL=claude-sonnet-4-6",
            "variable ANTHROPIC_DEFAULT_HAIKU_MODEL=claude-haiku-4-5",
            "variable ANTHROPIC_DEFAULT_OPUS_MODEL=claude-sonnet-4-6",
            // The picker shows what stands behind a tier that the gateway does not have.
            "variable ANTHROPIC_DEFAULT_OPUS_MODEL_NAME=claude-sonnet-4-6",
            "variable ANTHROPIC_DEFAULT_FABLE_MODEL=claude-sonnet-4-6",
            "variable ENABLE_TOOL_SEARCH=true",
            "variable CLAUDE_CODE_MAX_CONTEXT_TOKENS=200000",
            "argument -p",
            "argument a b",
            "argument --model=x",
            "argument --",
            "argument -m",
        ],
    );
    assert_eq!(shown.matches("argument ").count(), 5, "{shown}");
    assert!(!shown.contains("SUBAGENT") && !shown.contains("note:"), "{shown}");
    assert!(!shown.contains("HAIKU_MODEL_NAME"), "{shown}");
    let shown = dump("claude", &url, &["-m", "tiny"]);
    assert!(
        shown.contains("context window of 32000 tokens") && shown.contains("SUBAGENT_MODEL=tiny"),
        "{shown}"
    );
}

#[test]
fn claude_settings_with_another_address_are_overridden() {
    let url = scripted("200 OK", LISTING);
    let home = Home::new();
    home.install("claude", DUMP);
    let own = r#"{"env": {"ANTHROPIC_BASE_URL": "https://other.example", "ANTHROPIC_API_KEY": "own"}}"#;
    home.write(".claude/settings.json", own, 0o644);
    let given = r#"{"theme": "dark", "env": {"FOO": "1"}}"#;
    let arguments = ["run", "claude", "--url", &url, "-m", "gpt-4o", "--settings", given, "-p", "x"];
    let shown = home.ok(arguments);
    let settings = file(&shown, "settings.json");
    assert_eq!(settings["theme"], "dark");
    assert_eq!(settings["env"]["FOO"], "1");
    assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], url);
    assert_eq!(settings["env"]["ANTHROPIC_AUTH_TOKEN"], KEY);
    assert_eq!(settings["env"]["ANTHROPIC_API_KEY"], "");
    has(&shown, &["argument --settings", "argument -p", "argument x"]);
    assert!(!shown.lines().any(|line| line.starts_with("argument") && line.contains(KEY)), "{shown}");
    assert_eq!(fs::read_to_string(home.path(".claude/settings.json")).unwrap(), own);
}

#[test]
fn codex_gets_a_provider_by_arguments() {
    let url = scripted("200 OK", LISTING);
    let shown = dump("codex", &url, &["-m", "gpt-4o", "exec", "--json", "hi"]);
    has(
        &shown,
        &[
            "argument model_provider=\"model-gateway-run\"",
            &format!("argument model_providers.model-gateway-run.base_url=\"{url}/v1\""),
            "argument model_providers.model-gateway-run.env_key=\"MODEL_GATEWAY_KEY\"",
            &format!("argument model_providers.model-gateway-run.model_catalog_url=\"{url}/v1/models\""),
            "argument model=\"gpt-4o\"",
            "argument model_context_window=128000",
            "argument exec",
            "argument --json",
            &format!("variable MODEL_GATEWAY_KEY={KEY}"),
        ],
    );
    assert!(!shown.lines().any(|line| line.starts_with("argument") && line.contains(KEY)), "{shown}");
}

#[test]
fn gemini_gets_settings_with_the_kind_of_authentication() {
    let url = scripted("200 OK", LISTING);
    let shown = dump("gemini", &url, &["-m", "gpt-4o", "-p", "hi"]);
    has(
        &shown,
        &[
            &format!("variable GOOGLE_GEMINI_BASE_URL={url}"),
            &format!("variable GEMINI_API_KEY={KEY}"),
            "variable GEMINI_MODEL=gpt-4o",
        ],
    );
    session(&shown, "variable GEMINI_CLI_CUSTOM_HEADERS=x-session-affinity: ");
    let settings = file(&shown, "settings.json");
    assert_eq!(settings["security"]["auth"]["selectedType"], "gemini-api-key");
    assert_eq!(settings["model"]["compressionThreshold"], 0.06103);
    assert_eq!(
        settings["modelConfigs"]["customAliases"]["gpt-4o"]["modelConfig"]["generateContentConfig"],
        json!({"maxOutputTokens": 16_000})
    );
    // The client's own requests, as for a summary, are of this model too.
    let aliases = &settings["modelConfigs"]["customAliases"];
    assert_eq!(aliases["chat-compression-default"], json!({"modelConfig": {"model": "gpt-4o"}}));
    assert_eq!(
        aliases["gemini-3-flash-base"],
        json!({"extends": "base", "modelConfig": {"model": "gpt-4o"}})
    );
}

/// Returns the session id behind a text, which must be the only one.
fn session(shown: &str, before: &str) -> String {
    let mut found = shown.match_indices(before);
    let (at, _) = found.next().unwrap_or_else(|| panic!("no {before} in {shown}"));
    assert!(found.next().is_none(), "{shown}");
    let rest = shown[at + before.len()..].chars();
    let id: String = rest.take_while(char::is_ascii_hexdigit).collect();
    assert_eq!(id.len(), 32, "{shown}");
    id
}

/// Each start is a session of its own, by which the gateway keeps the conversation at one target.
#[test]
fn clients_without_a_session_of_their_own_get_one_per_start() {
    let url = scripted("200 OK", LISTING);
    for (client, before) in [
        ("gemini", "x-session-affinity: "),
        ("crush", "--extra-header x-session-affinity '"),
        ("aider", "\"x-session-affinity\": \""),
    ] {
        let start = || session(&dump(client, &url, &["-m", "gpt-4o"]), before);
        assert_ne!(start(), start(), "{client}");
    }
    // Every model of the list has the same one.
    let models = || {
        let settings = file(&dump("qwen", &url, &["-m", "gpt-4o"]), "settings.json");
        let models = settings["modelProviders"]["model-gateway"].as_array().unwrap().clone();
        let header = |model: &Value| model["generationConfig"]["customHeaders"]["x-session-affinity"].clone();
        assert!(models.iter().all(|model| header(model) == header(&models[0])));
        header(&models[0])
    };
    assert!(models().is_string() && models() != models());
    for client in ["claude", "codex", "opencode"] {
        let shown = dump(client, &url, &["-m", "gpt-4o"]);
        assert!(!shown.contains("x-session-affinity"), "{shown}");
    }

    // The user's own headers and settings stay.
    let home = Home::new();
    home.install("gemini", DUMP);
    home.install("aider", DUMP);
    let mut command = home.command(["run", "gemini", "--url", &url, "-m", "gpt-4o"]);
    let shown = text(&command.env("GEMINI_CLI_CUSTOM_HEADERS", "a: b").output().unwrap());
    session(&shown, "variable GEMINI_CLI_CUSTOM_HEADERS=a: b, x-session-affinity: ");
    home.write(".aider.model.settings.yml", "- name: aider/extra_params\n  extra_params: {}\n", 0o600);
    let shown = home.ok(["run", "aider", "--url", &url, "-m", "gpt-4o"]);
    assert!(!shown.contains("x-session-affinity"), "{shown}");
}

/// A model that cannot converse would fail when it is picked.
#[test]
fn models_that_cannot_converse_are_not_offered() {
    let url = scripted("200 OK", LISTING);
    for client in ["opencode", "qwen", "crush", "claude", "codex", "gemini", "aider"] {
        let shown = dump(client, &url, &["-m", "gpt-4o"]);
        assert!(!shown.contains("text-embedding"), "{client}: {shown}");
    }
    let home = Home::new();
    home.install("opencode", DUMP);
    let error = home.fails(["run", "opencode", "--url", &url, "-m", "text-embedding-3-small"]);
    assert!(
        error.contains("text-embedding-3-small is no model for conversations; the gateway has tiny, gpt-4o"),
        "{error}"
    );
}

/// Requests accept the alias, so the command must, and the model behind it is one that Claude Code does not know.
#[test]
fn claude_alias_of_a_foreign_model_is_set_up_as_foreign() {
    let demo = Demo::start();
    let home = Home::new();
    home.install("claude", DUMP);
    let run = |more: &[&str]| {
        let arguments = ["run", "claude", "--url", &demo.url, "-m", "claude-gw-gpt-4o"];
        let mut command = home.command(arguments.iter().chain(more));
        let output = command.env("MODEL_GATEWAY_KEY", &demo.key).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    for shown in [run(&[]), run(&["--no-check"])] {
        has(
            &shown,
            &[
                "variable ANTHROPIC_MODEL=claude-gw-gpt-4o",
                "variable CLAUDE_CODE_SUBAGENT_MODEL=claude-gw-gpt-4o",
                "variable CLAUDE_CODE_ATTRIBUTION_HEADER=0",
                "variable ANTHROPIC_DEFAULT_HAIKU_MODEL=claude-gw-gpt-4o",
                "variable ANTHROPIC_DEFAULT_HAIKU_MODEL_NAME=gpt-4o",
            ],
        );
    }
    let shown = run(&["--no-check"]);
    assert!(shown.contains("does not say the context window of claude-gw-gpt-4o"), "{shown}");
    let listed = run(&[]);
    assert!(listed.contains("variable CLAUDE_CODE_MAX_CONTEXT_TOKENS="), "{listed}");
}

#[test]
fn opencode_and_qwen_get_a_provider_with_limits() {
    let url = scripted("200 OK", LISTING);
    let shown = dump("opencode", &url, &["-m", "gpt-4o", "run", "hi"]);
    let content = shown.lines().find_map(|line| line.strip_prefix("variable OPENCODE_CONFIG_CONTENT="));
    let content: Value = serde_json::from_str(content.unwrap()).unwrap();
    assert_eq!(content["model"], "model-gateway/gpt-4o");
    let provider = &content["provider"]["model-gateway"];
    assert_eq!(
        provider["options"],
        json!({"baseURL": format!("{url}/v1"), "apiKey": "{env:MODEL_GATEWAY_KEY}"})
    );
    assert_eq!(provider["models"]["gpt-4o"]["limit"], json!({"context": 128_000, "output": 16_000}));
    assert_eq!(
        provider["models"]["claude-sonnet-4-6"]["limit"],
        json!({"context": 200_000, "output": 32_000})
    );

    // Settings in the layout of version 2 stay in it.
    let home = Home::new();
    home.install("opencode", DUMP);
    let own = r#"{"agents": {"build": {"steps": 9}}}"#;
    let output = home
        .command(["run", "opencode", "--url", &scripted("200 OK", LISTING), "-m", "gpt-4o"])
        .env("OPENCODE_CONFIG_CONTENT", own)
        .output()
        .unwrap();
    let shown = text(&output);
    let content = shown.lines().find_map(|line| line.strip_prefix("variable OPENCODE_CONFIG_CONTENT="));
    let content: Value = serde_json::from_str(content.unwrap()).unwrap();
    assert_eq!(content["agents"]["build"]["steps"], 9);
    assert_eq!(content["agents"]["title"]["model"], "model-gateway/gpt-4o");
    assert_eq!(content["providers"]["model-gateway"]["package"], "aisdk:@ai-sdk/openai-compatible");
    assert!(content.get("provider").is_none() && content.get("small_model").is_none(), "{content}");

    let settings = file(&dump("qwen", &url, &["-m", "gpt-4o"]), "settings.json");
    assert_eq!(settings["model"]["name"], "gpt-4o");
    assert_eq!(
        settings["modelProviders"]["model-gateway"][0]["generationConfig"]["contextWindowSize"],
        128_000
    );
    assert!(!settings.to_string().contains(KEY));
}

#[test]
fn crush_and_aider_get_temporary_files() {
    let url = scripted("200 OK", LISTING);
    let shown = dump("crush", &url, &["-m", "gpt-4o"]);
    let script = shown.lines().find(|line| line.starts_with("file 600 crushrc")).unwrap();
    assert!(script.contains("--context-window 128000 --default-max-tokens 16000"), "{script}");
    assert!(script.contains("--api-key \"$MODEL_GATEWAY_KEY\"") && !script.contains(KEY), "{script}");

    let shown = dump("aider", &url, &["-m", "gpt-4o", "--yes"]);
    has(&shown, &["argument openai/gpt-4o", "argument --yes", &format!("variable OPENAI_API_BASE={url}/v1")]);
    // Commit messages and summaries must not go to a model that the gateway may not have.
    has(&shown, &["argument --weak-model", "argument --editor-model"]);
    assert_eq!(shown.matches("argument openai/gpt-4o").count(), 3, "{shown}");
    let limits = file(&shown, "metadata.json");
    assert_eq!(limits["openai/gpt-4o"]["max_input_tokens"], 128_000);
}

/// The client's dialog stores the selected model in the folder of its state, which takes precedence over crushrc.
#[test]
fn crush_selection_of_another_model_is_set_aside() {
    let home = Home::new();
    home.install("crush", DUMP);
    home.write(".config/crush/crushrc", "source ./more\n", 0o644);
    let state = r#"{"models": {"large": {"model": "x", "provider": "y"}},
        "providers": {"y": {"api_key": "own"}}, "options": {"debug": true}}"#;
    home.write(".local/share/crush/crush.json", state, 0o600);
    home.write(".local/share/crush/projects.json", "{}", 0o600);
    let shown = home.ok(["run", "crush", "--url", &scripted("200 OK", LISTING), "-m", "gpt-4o"]);
    assert!(shown.lines().any(|line| line.starts_with("variable CRUSH_GLOBAL_DATA=/")), "{shown}");
    assert_eq!(file(&shown, "crush.json"), json!({"options": {"debug": true}}));
    assert!(shown.contains("projects.json {}"), "{shown}");
    let own = home.path(".config/crush");
    let script = shown.lines().find(|line| line.starts_with("file 600 crushrc")).unwrap();
    assert!(script.contains(&format!("cd '{0}'source '{0}/crushrc'", own.display())), "{script}");
    assert_eq!(fs::read_to_string(home.path(".local/share/crush/crush.json")).unwrap(), state);
}

#[test]
fn run_against_the_demo_checks_key_and_model_first() {
    let demo = Demo::start();
    let home = Home::new();
    home.install("claude", "echo started");
    let run = |key: &str, more: &[&str]| {
        let mut command =
            home.command(["run", "claude", "--url", &demo.url].iter().copied().chain(more.iter().copied()));
        let output = command.env("MODEL_GATEWAY_KEY", key).output().unwrap();
        (output.status.code(), text(&output))
    };
    let (code, shown) = run(&demo.key, &["-m", "claude-sonnet-4-6"]);
    assert!(code == Some(0) && shown.contains("started"), "{shown}");
    // A name with the prefix of a provider is not listed, but valid.
    let (code, shown) = run(&demo.key, &["-m", "anthropic/claude-sonnet-4-6"]);
    assert!(code == Some(0) && shown.contains("started"), "{shown}");
    let (code, shown) = run(&demo.key, &["-m", "claude-sonnet-9"]);
    assert!(code == Some(1) && !shown.contains("started"), "{shown}");
    assert!(shown.contains("no model \"claude-sonnet-9\"; it has claude-sonnet-4-6, "), "{shown}");
    let (code, shown) = run("mgw_wrong", &[]);
    assert!(
        code == Some(1) && shown.contains("refused the key of MODEL_GATEWAY_KEY (status 401)"),
        "{shown}"
    );
    assert!(!shown.contains("started") && !shown.contains("mgw_wrong"), "{shown}");

    let doctor =
        home.command(["doctor", "claude", "--url", &demo.url]).env("MODEL_GATEWAY_KEY", &demo.key).output();
    let shown = text(&doctor.unwrap());
    assert!(
        shown.contains("ok gateway: the key is accepted") && shown.contains("ok settings: not configured"),
        "{shown}"
    );
}

#[test]
fn gateway_that_does_not_answer_as_one_is_a_clear_error() {
    let home = Home::new();
    home.install("claude", "echo started");
    let huge = format!("{{\"data\":[]}}{}", " ".repeat(5 << 20));
    for (url, expected) in [
        ("http://127.0.0.1:1".to_owned(), "cannot connect to http://127.0.0.1:1/v1/models"),
        (scripted("200 OK", "<html>"), "did not answer with a list of models"),
        (scripted("404 Not Found", ""), "status 404; is this the address of a gateway?"),
        (scripted("302 Found", ""), "status 302"),
        (scripted("200 OK", huge), "larger than 4 MiB"),
    ] {
        let error = home.fails(["run", "claude", "--url", &url]);
        assert!(error.contains(expected), "{error}");
    }
    let missing = home.run(["run", "codex", "--no-check"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing).contains("npm install -g @openai/codex"), "{}", text(&missing));
}

#[test]
fn exit_status_is_that_of_the_client() {
    let home = Home::new();
    home.install("claude", "exit $1");
    for code in [0, 1, 2, 42, 255] {
        let output = home.run(["run", "claude", "--no-check", &code.to_string()]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    }
    home.install("claude", "kill -9 $$");
    assert_eq!(home.run(["run", "claude", "--no-check"]).status.code(), Some(128 + 9));
    assert_eq!(fs::read_dir(home.path("tmp")).unwrap().count(), 0);
}

#[test]
fn signals_reach_the_client_and_the_temporary_folder_is_removed() {
    for (signal, name, code) in
        [(Signal::SIGTERM, "TERM", 7), (Signal::SIGINT, "INT", 8), (Signal::SIGHUP, "HUP", 9)]
    {
        let home = Home::new();
        // The loop ends by itself if the signal does not arrive.
        let script =
            format!("trap 'exit {code}' {name}\necho ready\nfor i in $(seq 400); do sleep 0.1; done");
        home.install("aider", &script);
        let mut command = home.command(["run", "aider", "--no-check", "-m", "gpt-4o"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert_eq!(fs::read_dir(home.path("tmp")).unwrap().count(), 1);
        kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(code), "{name}");
        assert_eq!(fs::read_dir(home.path("tmp")).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn print_shows_the_start_without_the_key_and_starts_nothing() {
    for client in ["claude", "codex", "gemini", "opencode", "qwen", "crush", "aider"] {
        let home = Home::new();
        home.install(client, "echo started");
        let shown =
            home.ok(["run", client, "--no-check", "--print", "-m", "gpt-4o", "--context-window", "9", "x y"]);
        assert!(!shown.contains(KEY) && shown.contains("<key>") && !shown.contains("started"), "{shown}");
        assert!(shown.trim_end().ends_with("'x y'"), "{shown}");
    }
}
