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

use client::Client;
use scenarios::{Outcome, Scenario};
use session::Upstream;

/// Tries every scenario at providers of every format, one after the other: the clients themselves run at the same time.
async fn try_all(client: Client) {
    if !install::is_installed(client) {
        return;
    }
    let mut outcomes = Vec::new();
    for upstream in Upstream::ALL {
        for scenario in [Scenario::Tools, Scenario::Cut, Scenario::Limited] {
            outcomes.push(scenarios::try_out(client, upstream, scenario).await);
        }
    }
    outcomes.push(scenarios::try_out(client, Upstream::Chat, Scenario::Configured).await);
    judge(client, &outcomes);
}

/// Tries one scenario at providers of every format.
async fn try_one(client: Client, scenario: Scenario) {
    if !install::is_installed(client) {
        return;
    }
    let mut outcomes = Vec::new();
    for upstream in Upstream::ALL {
        outcomes.push(scenarios::try_out(client, upstream, scenario).await);
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
            Some(format!("{}, {}:\n{fault}", outcome.upstream.name(), outcome.scenario.name()))
        })
        .collect();
    assert!(faults.is_empty(), "{}\n{}", client.title(), faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_works_with_every_format() {
    try_all(Client::ClaudeCode).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_works_with_every_format() {
    try_all(Client::Codex).await;
}

/// The model's context window, which the gateway lists, sets the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_claude_code_compacts_with_every_format() {
    try_one(Client::ClaudeCode, Scenario::Compaction).await;
}

/// Codex makes the summary itself: its provider is not named "OpenAI".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_codex_compacts_with_every_format() {
    try_one(Client::Codex, Scenario::Compaction).await;
}

/// The provider is named "OpenAI", so Codex requests the summary of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs summaries that the gateway makes for Codex"]
async fn shipped_codex_compacts_remotely_with_every_format() {
    try_one(Client::Codex, Scenario::RemoteCompaction).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an endpoint for WebSockets"]
async fn shipped_codex_uses_a_websocket_with_every_format() {
    try_one(Client::Codex, Scenario::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_gemini_cli_works_with_every_format() {
    try_all(Client::GeminiCli).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_opencode_works_with_every_format() {
    try_all(Client::OpenCode).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_qwen_code_works_with_every_format() {
    try_all(Client::QwenCode).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_crush_works_with_every_format() {
    try_all(Client::Crush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_aider_works_with_every_format() {
    try_all(Client::Aider).await;
}
