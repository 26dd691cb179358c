//! `model-gateway demo` from a user's point of view: every printed command is pasted into a shell.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64_simd::STANDARD;
use serde_json::Value;
use tempfile::TempDir;

/// Text that is printed before the lines of requests.
const READY: &str = "Ctrl-C ends the demo";

/// Running demo, with a temporary folder for all files that it writes.
struct Demo {
    process: Child,
    shown: Arc<Mutex<String>>,
    folder: TempDir,
    ended: bool,
}

impl Demo {
    fn start(arguments: &[&str]) -> Demo {
        let folder = TempDir::new().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = process.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let theirs = shown.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut piece) {
                theirs.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        Demo { process, shown, folder, ended: false }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until the output satisfies `fits`. Panics after a minute.
    fn wait_for(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        for _ in 0..3_000 {
            let shown = self.shown();
            if fits(&shown) {
                return shown;
            }
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the demo ended ({status}) before {what}: {shown}");
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        panic!("{what} did not come: {}", self.shown());
    }

    fn ready(&mut self) -> String {
        self.wait_for("the page", |shown| shown.contains(READY))
    }

    /// Sends SIGINT, as Ctrl-C does, and returns the exit status.
    fn interrupt(&mut self) -> Option<i32> {
        self.ended = true;
        let kill = format!("kill -INT {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if !self.ended {
            self.interrupt();
        }
    }
}

/// Runs a command line in a shell, with a time limit for curl.
fn paste(line: &str, home: &Path) -> Output {
    std::fs::write(home.join(".curlrc"), "max-time = 60\n").unwrap();
    Command::new("sh").args(["-c", line]).env("CURL_HOME", home).env("no_proxy", "*").output().unwrap()
}

/// Whether an optional tool is installed. If it is not, prints SKIPPED, or panics if `GATEWAY_REQUIRE_ALL=1`.
fn have(what: &str, check: &mut Command) -> bool {
    let there =
        check.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(there || !required, "{what} is missing, and GATEWAY_REQUIRE_ALL=1");
    if !there {
        // The test harness captures the output of eprintln and shows it for failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not on this machine");
    }
    there
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks the output of a pasted command line.
fn check(line: &str, seen: &str) {
    const SAID: &str = "You said: \"Hello\".";
    let stream = line.starts_with("curl -N");
    let is = |part: &str| line.contains(part);
    if is("[[status 429]]") {
        assert!(seen.starts_with("HTTP/1.1 429") && seen.contains("retry-after: 7"), "{seen}");
        assert!(seen.contains("rate_limit_exceeded"), "{seen}");
    } else if is("[[cut 5]]") {
        assert!(seen.contains("upstream_error") && !seen.contains("\"finish_reason\":\"stop\""), "{seen}");
    } else if is("/chat/completions") {
        if stream {
            assert!(seen.ends_with("data: [DONE]\n\n") && seen.matches("data: ").count() > 5, "{seen}");
        } else {
            assert!(
                json(seen)["choices"][0]["message"]["content"].as_str().unwrap().contains(SAID),
                "{seen}"
            );
            assert_eq!(json(seen)["model"], "gpt-4o");
        }
    } else if is("/responses") {
        if stream {
            assert!(seen.contains("event: response.completed"), "{seen}");
        } else {
            assert!(json(seen)["output"].to_string().contains("You said: "), "{seen}");
        }
    } else if is("/messages") {
        if stream {
            assert!(seen.contains("event: message_stop"), "{seen}");
        } else {
            assert!(json(seen)["content"][0]["text"].as_str().unwrap().contains(SAID), "{seen}");
        }
    } else if is("enerateContent") {
        if stream {
            assert!(
                seen.contains("\"finishReason\": \"STOP\"") && seen.matches("data: ").count() > 5,
                "{seen}"
            );
        } else {
            let text = &json(seen)["candidates"][0]["content"]["parts"][0]["text"];
            assert!(text.as_str().unwrap().contains(SAID), "{seen}");
        }
    } else if is("/converse") {
        let text = &json(seen)["output"]["message"]["content"][0]["text"];
        assert!(text.as_str().unwrap().contains(SAID), "{seen}");
    } else if is("/v1/models") {
        assert_eq!(json(seen)["data"].as_array().unwrap().len(), 22, "{seen}");
    } else if is("/metrics") {
        assert!(seen.contains("gateway_build_info"), "{seen}");
    } else if is("/healthz") {
        assert_eq!(seen, "ok\n");
    } else {
        panic!("nobody knows what this line does: {line}");
    }
}

/// The command lines of the documentation pages work with only the variables GW and KEY set.
#[test]
fn demo_commands_of_the_documentation_work() {
    if !have("curl", Command::new("curl").arg("--version")) {
        return;
    }
    let mut demo = Demo::start(&["--port", "0", "--admin-port", "0"]);
    let page = demo.ready();
    let word = |name: &str| {
        let line = page.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (gateway, key) = (word("gateway "), word("key "));
    let home = TempDir::new().unwrap();
    let mut count = 0;
    // Image that the command lines send.
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAAA1BMVEX/AAAZ4gk3AAAAD0lEQVR4nGNgGAWjYCABAAIAAAFAkz3hAAAAAElFTkSuQmCC";
    std::fs::write(home.path().join("picture.png"), STANDARD.decode_to_vec(picture).unwrap()).unwrap();
    for page in ["demo", "embeddings", "images", "rerank", "tasks", "token-counting", "video"] {
        let path = format!("{}/docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("    curl $GW")) {
            let line =
                format!("cd {}; GW={gateway} KEY={key}; curl -sS --fail $GW{line}", home.path().display());
            let output = paste(&line, home.path());
            let seen = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{line}: {} {seen}", String::from_utf8_lossy(&output.stderr));
            assert!(json(&seen).is_object(), "{line}: {seen}");
            count += 1;
        }
    }
    assert_eq!(count, 32, "lines");
}

#[test]
fn demo_printed_commands_work_and_requests_are_shown() {
    if !have("curl", Command::new("curl").arg("--version")) {
        return;
    }
    let mut demo = Demo::start(&["--port", "0", "--admin-port", "0"]);
    let page = demo.ready();
    assert!(!page.contains('\x1b'), "colours only for a terminal: {page}");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(lines.len(), 14, "{page}");
    let home = TempDir::new().unwrap();
    for line in &lines {
        let output = paste(line, home.path());
        let seen = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {} {seen}", String::from_utf8_lossy(&output.stderr));
        check(line, &seen);
    }
    let requests = |shown: &str| -> Vec<String> {
        let (_, after) = shown.split_once(READY).unwrap_or_default();
        after.lines().filter(|line| line.contains(" ms")).map(str::to_owned).collect()
    };
    // Requests to the admin port are not printed.
    let shown = demo.wait_for("a line for each request", |shown| requests(shown).len() >= lines.len() - 2);
    let shown = requests(&shown);
    assert_eq!(shown.len(), lines.len() - 2, "{shown:?}");
    assert!(shown.iter().filter(|line| line.contains(" 200  ")).count() == 11, "{shown:?}");
    assert!(
        shown.iter().any(|line| line.contains(" 429  ") && line.ends_with("upstream_rate_limit")),
        "{shown:?}"
    );
    assert!(shown.iter().any(|line| line.ends_with("stream  upstream_broken")), "{shown:?}");
    assert_eq!(demo.interrupt(), Some(0));
    let left: Vec<_> = std::fs::read_dir(demo.folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn demo_printed_sdk_snippets_work() {
    let python = std::env::var("GATEWAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imports = "import openai, anthropic\nfrom google import genai";
    let what = format!("{python} with the packages openai, anthropic and google-genai");
    if !have(&what, Command::new(&python).args(["-c", imports])) {
        return;
    }
    let mut demo = Demo::start(&["--port", "0", "--admin-port", "0"]);
    let page = demo.ready();
    let snippets = page.split_once("google-genai\n").unwrap().1.split_once("\nRequests").unwrap().0;
    let snippets: Vec<&str> = snippets.split("\n\n").collect();
    assert_eq!(snippets.len(), 3, "{snippets:?}");
    for snippet in snippets {
        let output = Command::new(&python).args(["-c", snippet]).env("no_proxy", "*").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{snippet}\n{said}\n{errors}");
        let answers = snippet.matches("print(").count();
        assert_eq!(said.matches("You said: \"Hello\".").count(), answers, "{snippet}\n{said}");
    }
}

#[test]
fn demo_port_in_use_is_reported() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .args(["demo", "--port", &port.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("port {port} cannot be used")) && said.contains("--port PORT"), "{said}");
}

#[test]
fn version_begins_with_that_of_the_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_model-gateway")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.trim_end().strip_prefix("model-gateway ").unwrap_or_else(|| panic!("{text}"));
    // A release build has its commit behind it.
    let (number, commit) = version.split_once(' ').unwrap_or((version, "()"));
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    let inside =
        commit.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{text}"));
    assert!(inside.chars().all(|c| c.is_ascii_alphanumeric()), "{text}");
}
