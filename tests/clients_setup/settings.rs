//! `configure` and `unconfigure`: the one undoes the other, byte for byte, and key by key after changes of the user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::home::{Home, KEY};

/// Clients with the folder of their fixtures and the file that it is for.
const CLIENTS: [(&str, &str, &str); 8] = [
    ("claude", "claude", ".claude/settings.json"),
    ("codex", "codex", ".codex/config.toml"),
    ("gemini", "gemini", ".gemini/settings.json"),
    ("gemini", "gemini_env", ".gemini/.env"),
    ("opencode", "opencode", ".config/opencode/opencode.json"),
    ("qwen", "qwen", ".qwen/settings.json"),
    ("crush", "crush", ".config/crush/crushrc"),
    ("aider", "aider", ".aider.conf.yml"),
];
/// Options of `configure` that need no gateway.
const OPTIONS: [&str; 7] =
    ["--no-check", "--url", "http://127.0.0.1:8080", "-m", "gpt-4o", "--context-window", "128000"];

fn configure(home: &Home, client: &str, more: &[&str]) -> String {
    home.ok(["configure", client].iter().chain(&OPTIONS).chain(more))
}

fn fixtures(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients_setup/fixtures").join(folder);
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn identity(only: &str) {
    for (client, folder, path) in CLIENTS.into_iter().filter(|(client, ..)| *client == only) {
        let fixtures = fixtures(folder);
        assert!(fixtures.len() >= 10, "{folder} has {} fixtures", fixtures.len());
        for (index, (name, bytes)) in fixtures.into_iter().enumerate() {
            let home = Home::new();
            let mode = [0o644, 0o600, 0o640, 0o755][index % 4];
            if index % 3 == 0 {
                // As in a repository of settings: the file is a link.
                home.write("dotfiles/file", &bytes, mode);
                let link = home.path(path);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink(home.path("dotfiles/file"), link).unwrap();
            } else {
                home.write(path, &bytes, mode);
            }
            home.write("bin/keep", "", 0o644);
            fs::create_dir_all(home.path(".local/state/model-gateway/clients")).unwrap();
            fs::create_dir_all(home.path("tmp")).unwrap();
            let before = home.snapshot();
            configure(&home, client, &[]);
            assert_ne!(fs::read(home.path(path)).unwrap(), bytes, "{name}");
            assert_eq!(home.receipts().len(), 1, "{name}");
            // The copy is the file, byte for byte, and for its owner only.
            let backups = home.backups();
            assert_eq!(backups.len(), 1, "{name}");
            assert_eq!(fs::read(&backups[0]).unwrap(), bytes, "{name}");
            assert_eq!(fs::metadata(&backups[0]).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            for receipt in home.receipts() {
                assert!(!fs::read_to_string(receipt).unwrap().contains(KEY), "{name}");
            }
            // A second time, for another model: the first previous values stay.
            home.ok(["configure", client, "--no-check", "-m", "other", "--context-window", "64000"]);
            assert_eq!(fs::read(&backups[0]).unwrap(), bytes, "{name}");
            home.ok(["unconfigure", client]);
            assert_eq!(home.snapshot(), before, "{name}");
        }
    }
}

#[test]
fn claude_settings_are_restored_byte_for_byte() {
    identity("claude");
}

#[test]
fn codex_settings_are_restored_byte_for_byte() {
    identity("codex");
}

#[test]
fn gemini_settings_are_restored_byte_for_byte() {
    identity("gemini");
}

#[test]
fn opencode_settings_are_restored_byte_for_byte() {
    identity("opencode");
}

#[test]
fn qwen_settings_are_restored_byte_for_byte() {
    identity("qwen");
}

#[test]
fn crush_settings_are_restored_byte_for_byte() {
    identity("crush");
}

#[test]
fn aider_settings_are_restored_byte_for_byte() {
    identity("aider");
}

#[test]
fn settings_that_did_not_exist_are_removed_again() {
    for (client, _, path) in CLIENTS {
        let home = Home::new();
        fs::create_dir_all(home.path(".local/state/model-gateway/clients")).unwrap();
        fs::create_dir_all(home.path("tmp")).unwrap();
        let before = home.snapshot();
        configure(&home, client, &[]);
        let mode = fs::metadata(home.path(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{client}");
        home.ok(["unconfigure", client]);
        assert_eq!(home.snapshot(), before, "{client}");
    }
}

#[test]
fn settings_with_a_key_are_readable_by_the_owner_only() {
    for client in ["claude", "codex", "gemini", "opencode", "qwen", "crush", "aider"] {
        let home = Home::new();
        let paths = CLIENTS.iter().filter(|(name, ..)| *name == client).map(|(_, _, path)| *path);
        for path in paths.chain([".qwen/.env"]) {
            home.write(path, "", 0o644);
        }
        home.install("codex", "echo codex-cli 0.169.0");
        configure(&home, client, &["--key-in-file"]);
        let with_key: Vec<_> = home
            .snapshot()
            .into_iter()
            .filter(|(_, _, bytes)| String::from_utf8_lossy(bytes).contains(KEY))
            .collect();
        assert_eq!(with_key.len(), 1, "{client}");
        assert_eq!(with_key[0].1 & 0o777, 0o600, "{client}: {:?}", with_key[0].0);
    }
}

#[test]
fn claude_settings_have_one_credential_and_one_address() {
    let home = Home::new();
    let text =
        "{\n  \"env\": {\"ANTHROPIC_API_KEY\": \"own\", \"A\": \"b\"},\n  \"apiKeyHelper\": \"x\"\n}\n";
    let path = home.write(".claude/settings.json", text, 0o600);
    configure(&home, "claude", &["--max-output", "16000"]);
    let settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        settings,
        serde_json::json!({
            "env": {
                "A": "b",
                "ANTHROPIC_AUTH_TOKEN": KEY,
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:8080",
                "ANTHROPIC_DEFAULT_FABLE_MODEL": "gpt-4o",
                "ANTHROPIC_DEFAULT_FABLE_MODEL_NAME": "gpt-4o",
                "ANTHROPIC_DEFAULT_FABLE_MODEL_DESCRIPTION": "gpt-4o by model-gateway",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": "gpt-4o",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL_NAME": "gpt-4o",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL_DESCRIPTION": "gpt-4o by model-gateway",
                "ANTHROPIC_DEFAULT_OPUS_MODEL": "gpt-4o",
                "ANTHROPIC_DEFAULT_OPUS_MODEL_NAME": "gpt-4o",
                "ANTHROPIC_DEFAULT_OPUS_MODEL_DESCRIPTION": "gpt-4o by model-gateway",
                "ANTHROPIC_DEFAULT_SONNET_MODEL": "gpt-4o",
                "ANTHROPIC_DEFAULT_SONNET_MODEL_NAME": "gpt-4o",
                "ANTHROPIC_DEFAULT_SONNET_MODEL_DESCRIPTION": "gpt-4o by model-gateway",
                "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
                "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "128000",
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16000",
                "CLAUDE_CODE_SUBAGENT_MODEL": "gpt-4o",
                "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
                "ENABLE_TOOL_SEARCH": "true",
            },
            "model": "gpt-4o",
        })
    );
}

/// Whether tools are loaded on demand is the user's choice, also after a second `configure`.
#[test]
fn claude_setting_of_tool_search_stays() {
    let home = Home::new();
    let path = home.write(".claude/settings.json", r#"{"env": {"ENABLE_TOOL_SEARCH": "auto:5"}}"#, 0o600);
    for _ in 0..2 {
        configure(&home, "claude", &[]);
        let settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(settings["env"]["ENABLE_TOOL_SEARCH"], "auto:5");
    }
    let home = Home::new();
    for _ in 0..2 {
        configure(&home, "claude", &[]);
        let settings = fs::read_to_string(home.path(".claude/settings.json")).unwrap();
        assert!(settings.contains("\"ENABLE_TOOL_SEARCH\": \"true\""), "{settings}");
    }
}

#[test]
fn output_limits_are_written_for_gemini_and_qwen() {
    let read = |home: &Home, path: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(home.path(path)).unwrap()).unwrap()
    };
    let home = Home::new();
    configure(&home, "gemini", &["--max-output", "16000"]);
    let settings = read(&home, ".gemini/settings.json");
    assert_eq!(
        settings["modelConfigs"]["customAliases"]["gpt-4o"],
        serde_json::json!({
            "extends": "chat-base",
            "modelConfig": {"model": "gpt-4o", "generateContentConfig": {"maxOutputTokens": 16_000}},
        })
    );
    // At most half of the window: 128,000 tokens.
    configure(&home, "qwen", &["--max-output", "100000"]);
    let settings = read(&home, ".qwen/settings.json");
    let config = &settings["modelProviders"]["model-gateway"][0]["generationConfig"];
    assert_eq!(
        *config,
        serde_json::json!({"contextWindowSize": 128_000, "samplingParams": {"max_tokens": 64_000}})
    );
}

#[test]
fn opencode_settings_of_version_2_keep_their_layout() {
    let home = Home::new();
    let own = "{\n  // mine\n  \"providers\": {\"own\": {\"env\": [\"KEY\"]}}\n}\n";
    let path = home.write(".config/opencode/opencode.jsonc", own, 0o600);
    configure(&home, "opencode", &[]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("// mine"), "{text}");
    let settings: serde_json::Value = serde_json::from_str(&text.replace("// mine", "")).unwrap();
    assert_eq!(
        settings,
        serde_json::json!({
            "model": "model-gateway/gpt-4o",
            "agents": {"title": {"model": "model-gateway/gpt-4o"}},
            "providers": {
                "own": {"env": ["KEY"]},
                "model-gateway": {
                    "name": "model-gateway",
                    "package": "aisdk:@ai-sdk/openai-compatible",
                    "settings": {"apiKey": "{env:MODEL_GATEWAY_KEY}", "baseURL": "http://127.0.0.1:8080/v1"},
                    "models": {"gpt-4o": {"name": "gpt-4o", "limit": {"context": 128_000, "output": 32_000}}},
                },
            },
        })
    );
    home.ok(["unconfigure", "opencode"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), own);
}

#[test]
fn unconfigure_keeps_what_the_user_changed() {
    let home = Home::new();
    let path = home.write(".claude/settings.json", "{\n  \"model\": \"opus\"\n}\n", 0o644);
    configure(&home, "claude", &[]);
    let text = fs::read_to_string(&path).unwrap();
    let changed =
        text.replace("\"model\": \"gpt-4o\"", "\"model\": \"mine\"").replace("\n}\n", ",\n  \"new\": 1\n}\n");
    fs::write(&path, changed).unwrap();
    let output = home.run(["unconfigure", "claude"]);
    assert_eq!(output.status.code(), Some(1));
    // Not all is restored, so the user needs to know where the file from before is.
    let backup = home.backups().remove(0);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(&backup.display().to_string()) && errors.contains("--force"), "{errors}");
    assert_eq!(fs::read_to_string(&backup).unwrap(), "{\n  \"model\": \"opus\"\n}\n");
    assert!(String::from_utf8_lossy(&output.stdout).contains("model stays as it is"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\n  \"model\": \"mine\",\n  \"new\": 1\n}\n");
    home.ok(["unconfigure", "claude", "--force"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\n  \"model\": \"opus\",\n  \"new\": 1\n}\n");
    assert!(home.receipts().is_empty() && home.backups().is_empty());
}

#[test]
fn unconfigure_of_settings_that_are_not_valid_any_more_names_their_copy() {
    let home = Home::new();
    let path = home.write(".codex/config.toml", "model = \"own\"\n", 0o644);
    configure(&home, "codex", &[]);
    fs::write(&path, "model = ").unwrap();
    let error = home.fails(["unconfigure", "codex"]);
    let backup = home.backups().remove(0);
    assert!(error.contains("config.toml:1") && error.contains(&backup.display().to_string()), "{error}");
    assert_eq!(fs::read_to_string(backup).unwrap(), "model = \"own\"\n");
    // A file that is gone leaves its copy as the only one.
    fs::remove_file(&path).unwrap();
    let shown = home.ok(["unconfigure", "codex"]);
    let backup = home.backups().remove(0);
    assert!(shown.contains(&backup.display().to_string()), "{shown}");
    assert!(home.receipts().is_empty());
}

#[test]
fn forget_keeps_the_settings_and_removes_receipt_and_copy() {
    let home = Home::new();
    let path = home.write(".codex/config.toml", "model = \"own\"\n", 0o644);
    configure(&home, "codex", &[]);
    let configured = fs::read(&path).unwrap();
    let shown = home.ok(["unconfigure", "codex", "--forget", "--print"]);
    assert!(shown.contains("config.toml stays as it is") && shown.contains("is removed"), "{shown}");
    assert_eq!((home.receipts().len(), home.backups().len()), (1, 1));
    home.ok(["unconfigure", "codex", "--forget"]);
    assert!(home.receipts().is_empty() && home.backups().is_empty());
    assert_eq!(fs::read(&path).unwrap(), configured);
    assert!(home.fails(["unconfigure", "codex"]).contains("is not configured by model-gateway"));
    assert_eq!(home.run(["unconfigure", "codex", "--forget", "--force"]).status.code(), Some(2));
}

/// Another tool may write its settings again: the user must hear of it before anything is strange.
#[test]
fn settings_of_another_tool_are_named() {
    let home = Home::new();
    let other =
        r#"{"env": {"ANTHROPIC_BASE_URL": "https://other.example", "ANTHROPIC_AUTH_TOKEN": "own-secret"}}"#;
    home.write(".claude/settings.json", other, 0o600);
    let notes = |client: &str| {
        let output = home.run(["configure", client].iter().chain(&OPTIONS));
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for _ in 0..2 {
        let notes = notes("claude");
        assert!(notes.contains("ANTHROPIC_BASE_URL was https://other.example"), "{notes}");
        assert!(!notes.contains("own-secret"), "{notes}");
    }
    home.write(".codex/config.toml", "# This file is managed by dotfiles-sync.\nmodel = \"x\"\n", 0o600);
    let text = notes("codex");
    assert!(text.contains("config.toml:1: another tool says that it writes this file"), "{text}");
    home.write(".aider.conf.yml", "dark-mode: true\n", 0o600);
    assert_eq!(notes("aider"), "");
}

/// The user's own credential must not come back while requests go to another address, nor the other way around.
#[test]
fn unconfigure_restores_address_and_credential_together() {
    let own = "{\n  \"env\": {\n    \"ANTHROPIC_API_KEY\": \"own\"\n  }\n}\n";
    let other = "https://other.example";
    let home = Home::new();
    let path = home.write(".claude/settings.json", own, 0o644);
    configure(&home, "claude", &[]);
    let text = fs::read_to_string(&path).unwrap().replace("http://127.0.0.1:8080", other);
    fs::write(&path, text).unwrap();
    home.fails(["unconfigure", "claude"]);
    let left = fs::read_to_string(&path).unwrap();
    assert!(left.contains(other) && left.contains(KEY) && !left.contains("own"), "{left}");
    assert!(!left.contains("gpt-4o"), "{left}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    home.ok(["unconfigure", "claude", "--force"]);
    let settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(settings, serde_json::json!({"env": {"ANTHROPIC_API_KEY": "own"}}));
}

#[test]
fn unconfigure_of_reformatted_settings_restores_every_key() {
    let home = Home::new();
    let path = home.write(".qwen/settings.json", "{\"model\":{\"name\":\"own\"}}", 0o644);
    configure(&home, "qwen", &[]);
    let settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::write(&path, settings.to_string()).unwrap();
    home.ok(["unconfigure", "qwen"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"model\":{\"name\":\"own\"}}");
}

#[test]
fn print_shows_the_settings_without_the_key_and_writes_nothing() {
    for (client, _, path) in CLIENTS {
        let home = Home::new();
        home.install("codex", "echo codex-cli 0.169.0");
        fs::create_dir_all(home.path("tmp")).unwrap();
        let before = home.snapshot();
        let shown = configure(&home, client, &["--print", "--key-in-file"]);
        assert!(shown.contains("<key>") && !shown.contains(KEY), "{shown}");
        assert!(shown.contains("127.0.0.1:8080"), "{shown}");
        assert!(shown.contains(&home.path(path).display().to_string()), "{shown}");
        assert_eq!(home.snapshot(), before);
    }
}

#[test]
fn settings_of_another_folder_have_a_receipt_of_their_own() {
    let home = Home::new();
    let mut other = home.command(["configure", "codex"].iter().chain(&OPTIONS));
    assert!(other.env("CODEX_HOME", home.path("work")).status().unwrap().success());
    configure(&home, "codex", &[]);
    assert_eq!(home.receipts().len(), 2);
    home.ok(["unconfigure", "codex"]);
    assert!(home.path("work/config.toml").exists() && !home.path(".codex/config.toml").exists());
}
