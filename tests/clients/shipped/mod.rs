//! Shipped coding clients against the gateway: the programs themselves, in pinned versions, without a terminal.
//!
//! `scripts/clients` installs them. Each runs with a home folder of its own against the gateway, with a simulated provider of
//! each format behind it that gives prescribed responses. The clients are in `client`, the scenarios in `scenarios`.
//! Requests in the clients' manner, without the clients, belong to `agents`.

mod client;
mod install;
mod outside;
mod scenarios;
mod session;
mod table;
mod usage;

use std::sync::LazyLock;
use std::thread::available_parallelism;

use client::Client;
use scenarios::{Case, Outcome, Scenario, Transport};
use session::Upstream;
use tokio::sync::Semaphore;

/// Maximum number of clients that run at the same time, of all tests: two per processor, because a client waits for about
/// half of its time.
static RUNNING: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(2 * available_parallelism().map_or(1, usize::from)));

/// Returns the cases of each scenario at providers of every format.
fn cases(client: Client, transport: Transport, scenarios: &[Scenario]) -> Vec<Case> {
    let each = Upstream::ALL.into_iter().flat_map(|upstream| {
        scenarios.iter().map(move |scenario| Case { client, upstream, scenario: *scenario, transport })
    });
    each.collect()
}

/// Tries every scenario of tools at providers of every format.
async fn try_tools(client: Client, transport: Transport) {
    let mut cases = cases(client, transport, &[Scenario::Tools, Scenario::Faults]);
    cases.push(Case { client, upstream: Upstream::Chat, scenario: Scenario::Configured, transport });
    try_all(client, cases).await;
}

/// Runs a client once for each case, several at the same time.
async fn try_all(client: Client, cases: Vec<Case>) {
    if !install::is_installed(client) {
        return;
    }
    let runs = cases.into_iter().map(|case| {
        tokio::spawn(async move {
            let _permit = RUNNING.acquire().await.unwrap();
            scenarios::try_out(case).await
        })
    });
    let mut outcomes = Vec::new();
    for run in runs.collect::<Vec<_>>() {
        outcomes.push(run.await.unwrap());
    }
    judge(client, &outcomes);
}

/// Prints the outcomes, and panics if one of them is not what a user expects.
fn judge(client: Client, outcomes: &[Outcome]) {
    table::print(client, outcomes);
    let faults: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            let fault = outcome.result.as_ref().err()?;
            Some(format!("{}:\n{fault}", outcome.case.title()))
        })
        .collect();
    assert!(faults.is_empty(), "{}\n{}", client.title(), faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_works_with_every_format() {
    try_tools(Client::ClaudeCode, Transport::Http).await;
}

/// As for Amazon Bedrock, with the gateway in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_for_bedrock_works_with_every_format() {
    let scenarios = [Scenario::Tools, Scenario::Faults, Scenario::Usage];
    try_all(Client::ClaudeCode, cases(Client::ClaudeCode, Transport::Invoke, &scenarios)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_works_with_every_format() {
    let cases = cases(Client::Codex, Transport::Http, &[Scenario::Tools, Scenario::Faults]);
    try_all(Client::Codex, cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_uses_a_websocket_with_every_format() {
    try_tools(Client::Codex, Transport::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_uses_http_if_the_gateway_refuses_websockets() {
    let cases = cases(Client::Codex, Transport::HttpAfterRefusal, &[Scenario::Tools]);
    try_all(Client::Codex, cases).await;
}

/// The model's context window, which the gateway lists, sets the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_compacts_with_every_format() {
    let cases = cases(Client::ClaudeCode, Transport::Http, &[Scenario::Compaction]);
    try_all(Client::ClaudeCode, cases).await;
}

/// Codex makes the summary itself: its provider is not named "OpenAI".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_compacts_with_every_format() {
    let cases = cases(Client::Codex, Transport::Http, &[Scenario::Compaction]);
    try_all(Client::Codex, cases).await;
}

/// The provider is named "OpenAI", so Codex requests the summary of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_compacts_remotely_with_every_format() {
    let mut all = cases(Client::Codex, Transport::Http, &[Scenario::RemoteCompaction]);
    all.extend(cases(Client::Codex, Transport::WebSocket, &[Scenario::RemoteCompaction]));
    try_all(Client::Codex, all).await;
}

/// The client asks for the summary twice, the second time for a better one, of the chosen model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_gemini_cli_compacts_with_every_format() {
    try_all(Client::GeminiCli, cases(Client::GeminiCli, Transport::Http, &[Scenario::Compaction])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_gemini_cli_works_with_every_format() {
    try_tools(Client::GeminiCli, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_opencode_compacts_with_every_format() {
    try_all(Client::OpenCode, cases(Client::OpenCode, Transport::Http, &[Scenario::Compaction])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_opencode_works_with_every_format() {
    try_tools(Client::OpenCode, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_qwen_code_compacts_with_every_format() {
    try_all(Client::QwenCode, cases(Client::QwenCode, Transport::Http, &[Scenario::Compaction])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_qwen_code_works_with_every_format() {
    try_tools(Client::QwenCode, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_crush_works_with_every_format() {
    try_tools(Client::Crush, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_aider_works_with_every_format() {
    try_tools(Client::Aider, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_aider_compacts_with_every_format() {
    try_all(Client::Aider, cases(Client::Aider, Transport::Http, &[Scenario::Compaction])).await;
}

/// The client's output for programs displays the usage that the provider reported.
async fn try_usage(client: Client, transport: Transport) {
    try_all(client, cases(client, transport, &[Scenario::Usage])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_displays_the_usage_of_every_format() {
    try_usage(Client::ClaudeCode, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_displays_the_usage_of_every_format() {
    try_usage(Client::Codex, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_displays_the_usage_of_a_websocket_of_every_format() {
    try_usage(Client::Codex, Transport::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_gemini_cli_displays_the_usage_of_every_format() {
    try_usage(Client::GeminiCli, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_opencode_displays_the_usage_of_every_format() {
    try_usage(Client::OpenCode, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_qwen_code_displays_the_usage_of_every_format() {
    try_usage(Client::QwenCode, Transport::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_aider_displays_the_usage_of_every_format() {
    try_usage(Client::Aider, Transport::Http).await;
}
