//! Official Python SDKs of the providers. `translation.py` has the requests and the expected results.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::providers::{MODELS, Providers};
use crate::support::setup::KEY;

/// Returns the Python interpreter if it has the modules of `imports`. Otherwise prints SKIPPED and returns `None`, or
/// panics if `GATEWAY_REQUIRE_ALL=1`.
pub(crate) fn python(imports: &str) -> Option<String> {
    let python = std::env::var("GATEWAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", imports])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(there || !required, "{python} lacks the SDKs, and GATEWAY_REQUIRE_ALL=1");
    if !there {
        // The test harness captures the output of eprintln and shows it for failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {python} lacks the packages of tests/requirements.txt");
    }
    there.then_some(python)
}

/// Runs the script with every SDK and every model for these features, and returns its output.
async fn run(python: &str, providers: &Providers, wishes: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/translation.py");
    let run = tokio::process::Command::new(python)
        .args([script, &format!("http://{}", providers.gateway.addr), KEY, wishes])
        .args(MODELS)
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(300), run).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    told
}

const IMPORTS: &str = "import openai, anthropic\nfrom google import genai";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdks_work_with_providers_of_every_format() {
    let Some(python) = python(IMPORTS) else { return };
    let providers = Providers::start().await;
    let told = run(&python, &providers, "text,stream,tool,structured,thinking,image,error").await;
    assert!(told.contains("112 passed, 0 failed"), "{told}");
}

/// SDKs must accept keep-alive filler before a response and an error after an early head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdks_wait_for_slow_providers() {
    let Some(python) = python(IMPORTS) else { return };
    let providers = Providers::start_late().await;
    let told = run(&python, &providers, "stream,tool,error,late").await;
    assert!(told.contains("64 passed, 0 failed"), "{told}");
    for model in MODELS {
        let slow = providers.gateway.metrics().await.sum("gateway_slow_starts_total", &[("model", model)]);
        assert!(slow > 0.0, "{model}");
    }
}
