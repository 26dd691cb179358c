//! Settings that are refused: a clear error, and nothing is written.

use std::fs;
use std::os::unix::fs::symlink;

use crate::home::Home;

const OPTIONS: [&str; 5] = ["--no-check", "-m", "gpt-4o", "--context-window", "128000"];

/// Asserts that `configure` fails with a text, and leaves everything as it is.
fn refused(home: &Home, client: &str, more: &[&str], expected: &str) {
    fs::create_dir_all(home.path("tmp")).unwrap();
    let before = home.snapshot();
    let error = home.fails(["configure", client].iter().chain(&OPTIONS).chain(more));
    assert!(error.contains(expected), "{client}: {expected:?} is not in {error:?}");
    assert_eq!(home.snapshot(), before, "{client}: {error}");
}

#[test]
fn settings_that_are_not_valid_are_named_with_the_line() {
    for (client, path, text, expected) in [
        ("claude", ".claude/settings.json", "{\n  \"a\": 1,\n}\n", "settings.json:2: Trailing commas"),
        ("claude", ".claude/settings.json", "{\n  // a\n}\n", "settings.json:2: Comments"),
        (
            "claude",
            ".claude/settings.json",
            "{\"env\": {}, \"env\": {}}\n",
            "settings.json:1: the key \"env\" appears twice",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{\n\n\"env\": []}\n",
            "settings.json:3: \"env\" is not an object",
        ),
        ("claude", ".claude/settings.json", "[1]\n", "settings.json:1: the top level"),
        ("claude", ".claude/settings.json", "{\n  \"env\": {\n", "settings.json:2: "),
        ("codex", ".codex/config.toml", "a = 1\nb = \n", "config.toml:2: "),
        ("codex", ".codex/config.toml", "a = 1\n[t]\n[t]\n", "config.toml:3: "),
        ("codex", ".codex/config.toml", "model_providers = {}\n", "config.toml:1: model_providers"),
        ("gemini", ".gemini/.env", "A=1\nnonsense\n", ".env:2: the line is not of the form NAME=value"),
        ("gemini", ".gemini/settings.json", "{\n'a': 1}", "settings.json:2: "),
        ("opencode", ".config/opencode/opencode.json", "{\"a\" 1}", "opencode.json:1: "),
        (
            "qwen",
            ".qwen/settings.json",
            "{\n\n  \"model\": \"x\"\n}",
            "settings.json:3: \"model\" is not an object",
        ),
        ("crush", ".config/crush/crushrc", "option a \\", "crushrc:1: the last line"),
        ("crush", ".config/crush/crushrc", "a\n# <<< model-gateway <<<\n", "crushrc:2: the marks"),
        (
            "aider",
            ".aider.conf.yml",
            "a: 1\nmodel: >\n  x\n",
            ".aider.conf.yml:2: the value of model continues",
        ),
        ("aider", ".aider.conf.yml", "{a: 1}\n", ".aider.conf.yml:1: "),
    ] {
        let home = Home::new();
        home.write(path, text, 0o644);
        refused(&home, client, &[], expected);
    }
}

#[test]
fn files_that_cannot_be_replaced_are_refused() {
    let path = ".claude/settings.json";
    let home = Home::new();
    home.write(path, "{}", 0o444);
    refused(&home, "claude", &[], "settings.json: it is read-only");

    let home = Home::new();
    fs::create_dir_all(home.path(path)).unwrap();
    refused(&home, "claude", &[], "settings.json: it is not a regular file");

    let home = Home::new();
    fs::create_dir_all(home.path(".claude")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(home.path(path)).status().unwrap().success());
    refused(&home, "claude", &[], "settings.json: it is not a regular file");

    let home = Home::new();
    fs::create_dir_all(home.path(".claude")).unwrap();
    symlink("nowhere", home.path(path)).unwrap();
    refused(&home, "claude", &[], "settings.json: the symbolic link leads to no file");

    let home = Home::new();
    let file = home.write(path, "{}", 0o644);
    fs::hard_link(file, home.path("second")).unwrap();
    refused(&home, "claude", &[], "settings.json: it has several hard links");

    let home = Home::new();
    home.write(path, b"{\n\"a\": \"\xff\"}", 0o644);
    refused(&home, "claude", &[], "settings.json: line 2 is not UTF-8");

    let home = Home::new();
    home.write(path, vec![b' '; 5 << 20], 0o644);
    refused(&home, "claude", &[], "settings.json: it is larger than 4 MiB");
}

/// Two files: if the second one is refused, the first one is not written.
#[test]
fn second_file_that_is_not_valid_leaves_the_first_one() {
    let home = Home::new();
    home.write(".gemini/.env", "A=1\n", 0o644);
    home.write(".gemini/settings.json", "{", 0o644);
    refused(&home, "gemini", &[], "settings.json:1: ");
}

#[test]
fn old_codex_gets_no_key() {
    let home = Home::new();
    home.install("codex", "echo codex-cli 0.128.0");
    refused(&home, "codex", &["--key-in-file"], "0.129.0");
    home.ok(["configure", "codex"].iter().chain(&OPTIONS));
}

#[test]
fn address_and_key_are_checked_first() {
    let home = Home::new();
    refused(&home, "claude", &["--url", "http://gateway.example"], "plain text");
    refused(&home, "claude", &["--url", "gateway"], "--url: ");
    let file = home.write("key", "two words\n", 0o600);
    let file = file.display().to_string();
    refused(&home, "claude", &["--key-file", &file], &format!("the key of {file} is not valid"));
    refused(&home, "claude", &["--key-file", "nothing"], "nothing: it does not exist");
    let no_key = home.command(["configure", "claude"]).env_remove("MODEL_GATEWAY_KEY").output().unwrap();
    assert!(String::from_utf8_lossy(&no_key.stderr).contains("no key: set MODEL_GATEWAY_KEY"));
    let no_model = home.fails(["configure", "opencode", "--no-check", "-m", "two words"]);
    assert!(no_model.contains("-m: the gateway has no model \"two words\""), "{no_model}");
    let no_model = home.fails(["configure", "opencode", "--no-check"]);
    assert!(no_model.contains("OpenCode needs a model"), "{no_model}");
}

#[test]
fn unconfigure_without_a_receipt_says_so() {
    let home = Home::new();
    assert!(home.fails(["unconfigure", "codex"]).contains("codex is not configured by model-gateway"));
    home.ok(["configure", "codex"].iter().chain(&OPTIONS));
    fs::write(&home.receipts()[0], "{}").unwrap();
    assert!(home.fails(["unconfigure", "codex"]).contains("is not a receipt"));
}
