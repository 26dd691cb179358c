//! `model-gateway doctor --session`: the client itself, with a task that it can only do with a tool, in two turns.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::CodingClient;
use super::doctor::Finding;
use super::error::ClientSetupError;
use super::file::write_atomic;
use super::launch;
use super::plan::{ClientSetup, UserEnvironment, session_id};

/// Time-out of the session.
const TIMEOUT: Duration = Duration::from_secs(180);
/// File that the client has to read.
const FILE: &str = "model-gateway-doctor.txt";
/// Lines of a failed client's output that are shown.
const SHOWN: usize = 12;

/// What a client displays about a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DisplayedUsage {
    /// Input (tokens), with those read from a cache. `None` if the client shows none.
    input: Option<u64>,
    /// Context window (tokens) that the client assumes. `None` if it does not show it.
    window: Option<u64>,
}

/// Runs the session, and returns what it showed.
pub(super) fn run(client: CodingClient, setup: &ClientSetup, user: &UserEnvironment) -> Vec<Finding> {
    match attempt(client, setup, user) {
        Ok(findings) => findings,
        Err(error) => vec![Finding::fault(format!("session: {error}"))],
    }
}

fn attempt(
    client: CodingClient,
    setup: &ClientSetup,
    user: &UserEnvironment,
) -> Result<Vec<Finding>, ClientSetupError> {
    let program = launch::program(client, user)?;
    let work = launch::temporary_folder(user)?;
    let secret = session_id()?;
    let path = work.path().join(FILE);
    write_atomic(&path, &[&secret, "\n"], 0o600, None)?;
    // The settings of the current project must not matter.
    let user = UserEnvironment { current: work.path().to_owned(), ..user.clone() };
    let temporary = launch::temporary_folder(&user)?;
    let arguments = arguments(client).into_iter().map(Into::into).collect::<Vec<_>>();
    let plan = client.launch(setup, &user, temporary.path(), &arguments)?;
    let start = Instant::now();
    let ended = launch::capture(&program, &plan, temporary, work.path(), TIMEOUT)?;
    let seconds = start.elapsed().as_secs_f64();
    if ended.code != 0 || !ended.stdout.contains(&secret) {
        let what = if ended.code == 0 {
            "it did not find out what is in a file".to_owned()
        } else {
            format!("it ended with status {}", ended.code)
        };
        let output = format!("{}\n{}", ended.stdout, ended.stderr);
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n  ");
        return Ok(vec![Finding::fault(setup.key.redact(&format!(
            "session: {what}. The gateway's access log has the error of each request; its last lines were:\n  {tail}"
        )))]);
    }
    let mut findings = vec![Finding::good(format!(
        "session: the client read a file with a tool and answered, in {seconds:.1} s"
    ))];
    let usage = read_usage(client, &ended.stdout);
    match usage.input {
        Some(0) => findings.push(Finding::fault(
            "session: the client shows 0 input tokens, so it cannot know when a conversation is full: the provider \
             reports no usage"
                .to_owned(),
        )),
        Some(tokens) => findings.push(Finding::good(format!("session: the client shows {tokens} input tokens"))),
        None => {}
    }
    let known = setup.model.as_ref().and_then(|model| model.window);
    match (usage.window, known) {
        (Some(shown), Some(known)) if shown != known => findings.push(Finding::fault(format!(
            "session: the client assumes a context window of {shown} tokens instead of {known}, and summarizes at the wrong \
             time. Update it, or set the window with --context-window"
        ))),
        (Some(shown), _) => {
            findings.push(Finding::good(format!("session: the client assumes a context window of {shown} tokens")));
        }
        (None, _) => {}
    }
    Ok(findings)
}

/// Returns the arguments that give a client the task, without a terminal and with tools that only read.
fn arguments(client: CodingClient) -> Vec<String> {
    let prompt = format!(
        "Read the file {FILE} in the current folder with one of your tools. Then answer with its content, and nothing else."
    );
    let words: &[&str] = match client {
        CodingClient::Claude => &["-p", &prompt, "--output-format", "json", "--allowedTools", "Read"],
        CodingClient::Codex => {
            &["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", &prompt]
        }
        CodingClient::Gemini => &["--skip-trust", "--output-format", "json", "-p", &prompt],
        CodingClient::Opencode => &["run", "--format", "json", &prompt],
        CodingClient::Qwen => &["--output-format", "json", "-p", &prompt],
        CodingClient::Crush => &["run", "--quiet", &prompt],
        // It has no tools; the file is part of the prompt.
        CodingClient::Aider => &[
            "--yes-always",
            "--no-git",
            "--no-pretty",
            "--no-check-update",
            "--read",
            FILE,
            "--message",
            &prompt,
        ],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Reads what a client shows about its tokens.
fn read_usage(client: CodingClient, stdout: &str) -> DisplayedUsage {
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64);
    let lines = || stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Some clients write remarks before the document.
    let document = || {
        let at = stdout.find(['{', '['])?;
        serde_json::from_str::<Value>(stdout.get(at..)?).ok()
    };
    let sum = |value: &Value, paths: &[&str]| {
        let found: Vec<u64> = paths.iter().filter_map(|path| number(value, path)).collect();
        (!found.is_empty()).then(|| found.iter().fold(0_u64, |sum, tokens| sum.saturating_add(*tokens)))
    };
    match client {
        CodingClient::Claude => {
            let Some(result) = document() else { return DisplayedUsage::default() };
            let names = [
                "/usage/input_tokens",
                "/usage/cache_read_input_tokens",
                "/usage/cache_creation_input_tokens",
            ];
            let models = result.get("modelUsage").and_then(Value::as_object);
            let windows =
                models.into_iter().flatten().filter_map(|(_, model)| number(model, "/contextWindow"));
            DisplayedUsage { input: sum(&result, &names), window: windows.min() }
        }
        CodingClient::Codex => {
            let input = lines().filter_map(|event| number(&event, "/usage/input_tokens")).next_back();
            DisplayedUsage { input, window: None }
        }
        CodingClient::Gemini => {
            let Some(result) = document() else { return DisplayedUsage::default() };
            let models = result.pointer("/stats/models").and_then(Value::as_object);
            let inputs =
                models.into_iter().flatten().filter_map(|(_, model)| number(model, "/tokens/prompt"));
            DisplayedUsage { input: inputs.reduce(u64::saturating_add), window: None }
        }
        CodingClient::Opencode => {
            let names = ["/part/tokens/input", "/part/tokens/cache/read", "/part/tokens/cache/write"];
            DisplayedUsage {
                input: lines().filter_map(|event| sum(&event, &names)).next_back(),
                window: None,
            }
        }
        CodingClient::Qwen => {
            let events = document().and_then(|document| document.as_array().cloned()).unwrap_or_default();
            let result =
                events.into_iter().find(|event| event.get("type").is_some_and(|kind| kind == "result"));
            DisplayedUsage {
                input: result.and_then(|result| number(&result, "/usage/input_tokens")),
                window: None,
            }
        }
        CodingClient::Crush | CodingClient::Aider => DisplayedUsage::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CodingClient, DisplayedUsage, read_usage};

    #[test]
    fn usage_is_read_from_the_output_of_each_client() {
        for (client, output, input, window) in [
            (
                CodingClient::Claude,
                r#"{"usage":{"input_tokens":5,"cache_read_input_tokens":7},"modelUsage":{"a":{"contextWindow":200000}}}"#,
                Some(12),
                Some(200_000),
            ),
            (
                CodingClient::Codex,
                "{\"type\":\"turn.started\"}\n{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":9}}\n",
                Some(9),
                None,
            ),
            (
                CodingClient::Gemini,
                "a remark\n{\"response\":\"x\",\"stats\":{\"models\":{\"m\":{\"tokens\":{\"prompt\":4}}}}}",
                Some(4),
                None,
            ),
            (
                CodingClient::Opencode,
                "{\"type\":\"step_finish\",\"part\":{\"tokens\":{\"input\":3,\"cache\":{\"read\":8}}}}",
                Some(11),
                None,
            ),
            (CodingClient::Qwen, r#"[{"type":"result","usage":{"input_tokens":6}}]"#, Some(6), None),
            (CodingClient::Aider, "done", None, None),
            (CodingClient::Claude, "no document", None, None),
        ] {
            assert_eq!(read_usage(client, output), DisplayedUsage { input, window }, "{output}");
        }
    }
}
