//! The commands that packages, containers and editors run: completions, manual pages, health.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::{gateway, have};

/// Names of the commands in a help text.
fn listed(arguments: &[&str]) -> Vec<String> {
    let help = String::from_utf8(gateway(&[arguments, &["--help"]].concat()).stdout).unwrap();
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let section = rest.split("\n\n").next().unwrap();
    // The lines of a wrapped description are indented further.
    let rows = section.lines().filter_map(|line| line.strip_prefix("  ").filter(|row| !row.starts_with(' ')));
    let names = rows.filter_map(|row| row.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// All commands with their subcommands, as the words behind the program's name.
fn commands() -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut at = 0;
    while let Some(command) = all.get(at).cloned() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        for name in listed(&words) {
            all.push([command.clone(), vec![name]].concat());
        }
        at += 1;
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

#[test]
fn man_pages_exist_for_every_command_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = gateway(&["man", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected: BTreeSet<String> =
        ["gateway", "routes", "keys"].map(|file| format!("model-gateway-{file}.5")).into();
    for command in commands() {
        expected.insert(format!("{}.1", [vec!["model-gateway".to_owned()], command].concat().join("-")));
    }
    let written: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(written, expected);
    let keys = std::fs::read_to_string(folder.path().join("model-gateway-keys.5")).unwrap();
    assert!(keys.contains("spend_per_month") && !keys.contains("](") && !keys.contains('`'), "{keys}");
    check_with_man(folder.path(), &written);
}

/// Formats each page; groff must have no complaint.
fn check_with_man(folder: &Path, pages: &BTreeSet<String>) {
    if !have("man") || !have("groff") {
        return;
    }
    for page in pages {
        let output = Command::new("man")
            .args(["--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
            .arg(folder.join(page))
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{page}: {warnings}");
        assert!(!output.stdout.is_empty(), "{page} is empty");
    }
}

#[test]
fn man_reports_a_missing_folder() {
    let output = gateway(&["man", "/nonexistent/folder"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/folder"));
}

fn completions(shell: &str) -> String {
    let output = gateway(&["completions", shell]);
    assert!(output.status.success(), "{shell}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_name_every_command_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = completions(shell);
        for name in commands().into_iter().flatten() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
    assert!(!gateway(&["completions", "cmd"]).status.success());
}

#[test]
fn completions_have_valid_syntax() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, arguments) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        // The base system has bash; the other shells are optional even where all tests must run.
        let there =
            if shell == "bash" { have(shell) } else { Command::new(shell).arg("--version").output().is_ok() };
        if !there {
            continue;
        }
        let file = folder.path().join(shell);
        std::fs::write(&file, completions(shell)).unwrap();
        let output = Command::new(shell).args(arguments).arg(&file).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn completions_complete_commands_in_bash() {
    if !have("bash") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("completions");
    std::fs::write(&file, completions("bash")).unwrap();
    // The function that the script registers.
    let complete = "source \"$1\"; COMP_WORDS=(model-gateway keys cr); COMP_CWORD=2; \
                    name=$(complete -p model-gateway | grep -o -- '-F [^ ]*' | cut -d ' ' -f 2); \
                    \"$name\" model-gateway cr keys; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", complete, "bash"]).arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "create", "{output:?}");
}

/// Runs `health` against an admin port that gives one response.
fn health(response: &'static str) -> (bool, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") {
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the request head was cut");
            request.extend_from_slice(&buffer[..length]);
        }
        stream.write_all(response.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("gateway.toml");
    // Neither the other files nor the credentials are needed.
    let settings = format!("[server]\nlisten = [\"127.0.0.1:1\"]\nadmin = \"{admin}\"\n");
    std::fs::write(&conf, settings).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .args(["health", "--conf", conf.to_str().unwrap()])
        .env("http_proxy", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn health_reports_the_readiness_of_the_gateway() {
    let (well, said) = health("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nready\n");
    assert!(well && said == "ready\n", "{said}");
    let (well, said) = health(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\nconnection: close\r\n\r\ndraining\n",
    );
    assert!(!well && said.contains("503") && said.contains("draining"), "{said}");
}

#[test]
fn health_fails_without_a_gateway_or_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("gateway.toml");
    let path = conf.to_str().unwrap();
    let output = gateway(&["health", "--conf", path]);
    assert!(!output.status.success() && !output.stderr.is_empty());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(&conf, format!("[server]\nlisten = [\"127.0.0.1:1\"]\nadmin = \"{free}\"\n")).unwrap();
    let output = gateway(&["health", "--conf", path]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&free.to_string()), "{said}");
}
