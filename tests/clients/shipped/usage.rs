//! The token usage that a client displays in its output for programs, against the usage that the provider reported.

use model_gateway::simulator::PrescribedResponse;
use serde_json::Value;

use super::client::Client;
use super::scenarios::Case;
use super::session::Upstream;

/// Usage of a conversation, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Input, with the tokens read from a cache.
    pub(super) input: u64,
    /// Input tokens read from a cache. `None` for a client that does not display them.
    pub(super) cached: Option<u64>,
    /// Output, with the tokens of thinking.
    pub(super) output: u64,
    /// Context window. `None` for a client that does not display it.
    pub(super) window: Option<u64>,
}

/// Returns the arguments that make a client display its usage.
pub(super) fn arguments(client: Client) -> &'static [&'static str] {
    match client {
        Client::ClaudeCode | Client::GeminiCli | Client::QwenCode => &["--output-format", "json"],
        Client::Codex => &["--json"],
        Client::OpenCode => &["--format", "json"],
        // It counts the tokens of a stream itself.
        Client::Aider => &["--no-stream"],
        Client::Crush => &[],
    }
}

/// Prescribes a different usage of each response. Nothing of the first input is cached, half of the second, and all of later ones.
pub(super) fn prescribe(client: Client, responses: &mut [PrescribedResponse]) {
    for (turn, response) in (0_u64..).zip(responses) {
        // Aider rounds numbers from 1,000 on.
        let input = if client == Client::Aider { 212 + 2 * turn } else { 20_012 + 1_010 * turn };
        response.prompt_tokens = Some(input);
        response.output_tokens = Some(103 + 17 * turn);
        response.directives = format!("cached {}", input / 2 * turn.min(2));
    }
}

/// Returns the sum of the prescribed usage, as far as a client displays it.
pub(super) fn reported(case: Case, responses: &[PrescribedResponse], window: u64) -> Usage {
    // A zero does not replace the estimate that Claude Code got when a stream began, so the gateway leaves one token of an
    // input that was cached as a whole outside of the cache. It forwards a response of the same format unchanged.
    let minimum = u64::from(case.client == Client::ClaudeCode && case.upstream != Upstream::Messages);
    let cached = |response: &PrescribedResponse| {
        let cached = response.directives.strip_prefix("cached ")?.parse::<u64>().ok()?;
        Some(cached.min(response.prompt_tokens? - minimum))
    };
    Usage {
        input: responses.iter().filter_map(|response| response.prompt_tokens).sum(),
        cached: (case.client != Client::Aider).then(|| responses.iter().filter_map(cached).sum()),
        output: responses.iter().filter_map(|response| response.output_tokens).sum(),
        window: (case.client == Client::ClaudeCode).then_some(window),
    }
}

/// Returns the usage that a client displayed. `None` if there is none in its output.
pub(super) fn displayed(client: Client, stdout: &str) -> Option<Usage> {
    let lines = || stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let document = || serde_json::from_str::<Value>(&stdout[stdout.find(['{', '['])?..]).ok();
    match client {
        Client::ClaudeCode => {
            let result = document()?;
            let models = result["modelUsage"].as_object()?;
            let window = models.values().filter_map(|model| model["contextWindow"].as_u64()).min();
            let input = ["/input_tokens", "/cache_read_input_tokens", "/cache_creation_input_tokens"];
            let usage = read(&result["usage"], &input, input[1], &["/output_tokens"])?;
            Some(Usage { window, ..usage })
        }
        Client::Codex => {
            let end = lines().rfind(|event| event["type"] == "turn.completed")?;
            read(&end["usage"], &["/input_tokens"], "/cached_input_tokens", &["/output_tokens"])
        }
        Client::GeminiCli => {
            let result = document()?;
            let models = result["stats"]["models"].as_object()?.values();
            let output = ["/candidates", "/thoughts"];
            sum(models.map(|model| read(&model["tokens"], &["/prompt"], "/cached", &output)))
        }
        Client::OpenCode => {
            let steps = lines().filter(|event| event["type"] == "step_finish");
            let input = ["/input", "/cache/read", "/cache/write"];
            let output = ["/output", "/reasoning"];
            sum(steps.map(|step| read(&step["part"]["tokens"], &input, input[1], &output)))
        }
        Client::QwenCode => {
            let events = document()?;
            let result = events.as_array()?.iter().find(|event| event["type"] == "result")?;
            read(&result["usage"], &["/input_tokens"], "/cache_read_input_tokens", &["/output_tokens"])
        }
        Client::Aider => {
            let responses = stdout.lines().filter_map(|line| line.strip_prefix("Tokens: "));
            sum(responses.map(|line| {
                let (sent, received) = line.strip_suffix(" received.")?.split_once(" sent, ")?;
                let (input, output) = (sent.parse().ok()?, received.parse().ok()?);
                Some(Usage { input, cached: None, output, window: None })
            }))
        }
        Client::Crush => None,
    }
}

/// Reads usage, of which each part is the sum of the numbers at some paths. Returns `None` if one of them is missing.
fn read(value: &Value, input: &[&str], cached: &str, output: &[&str]) -> Option<Usage> {
    let number = |path: &&str| value.pointer(path).and_then(Value::as_u64);
    Some(Usage {
        input: input.iter().map(number).sum::<Option<u64>>()?,
        cached: Some(number(&cached)?),
        output: output.iter().map(number).sum::<Option<u64>>()?,
        window: None,
    })
}

/// Returns the sum of the usage of several responses. `None` without any, or if one of them has no usage.
fn sum(all: impl Iterator<Item = Option<Usage>>) -> Option<Usage> {
    all.reduce(|sum, one| {
        let (sum, one) = (sum?, one?);
        Some(Usage {
            input: sum.input + one.input,
            cached: sum.cached.zip(one.cached).map(|(sum, one)| sum + one),
            output: sum.output + one.output,
            window: None,
        })
    })?
}
