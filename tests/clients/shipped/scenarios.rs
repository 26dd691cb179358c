//! The scenarios: which responses the provider gives, and what a user must see.

use std::fmt::Write as _;

use model_gateway::simulator::PrescribedResponse;
use serde_json::Value;

use super::client::Client;
use super::session::{Ended, Session, Upstream};
use super::usage::{self, Usage};
use crate::support::until;

/// Context window of the model, in tokens.
const WINDOW: u64 = 200_000;
/// Last words of the model in every scenario.
const FAREWELL: &str = "The work is complete and checked.";
/// Command with an output that its own text does not have, and that output. The pause is for Qwen Code 0.24, which now and
/// then reports no output of a command that ends at once.
const SUM: (&str, &str) = ("printf 'sum-%s-end\\n' 42 && sleep 0.5", "sum-42-end");
/// Word of the prescribed summary of a conversation.
const SUMMARY: &str = "handoff-4711";
/// Words of a generated response of the simulator.
const GENERATED: &str = "simulated by";
/// Command of 24,000 characters of output, below the length that Qwen Code cuts.
const LONG_OUTPUT: &str = "yes 'a line of the log' | head -n 1200";
/// Words of what Aider and Gemini CLI heard before the prompt.
const EARLIER: &str = "settings-0815";
/// Context window (tokens) of a conversation that is to be summarized.
const SMALL_WINDOW: u64 = 60_000;
/// Tokens of a conversation after which each client makes a summary.
const FULL: u64 = 50_000;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Tools over several turns.
    Tools,
    /// The same with the settings that `configure` writes.
    Configured,
    /// The same; the first stream breaks off, and the request of the second turn is answered with 429 and `retry-after`.
    Faults,
    /// The conversation fills the context window, and the client replaces it by a summary.
    Compaction,
    /// The same with a summary that the client requests of its provider, as Codex does of OpenAI.
    RemoteCompaction,
    /// Tools over several turns, with the client's output for programs, which displays the provider's usage.
    Usage,
}

impl Scenario {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scenario::Tools => "tools",
            Scenario::Configured => "configured",
            Scenario::Faults => "cut stream, 429",
            Scenario::Compaction => "compaction",
            Scenario::RemoteCompaction => "remote compaction",
            Scenario::Usage => "displayed usage",
        }
    }
}

/// Way in which a client sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    /// Responses API over a WebSocket. Codex only.
    WebSocket,
    /// HTTP after an attempt to open a WebSocket, which the gateway answers with 426. Codex only.
    HttpAfterRefusal,
    /// InvokeModel of Amazon Bedrock. Claude Code only.
    Invoke,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Http => "HTTP",
            Transport::WebSocket => "WebSocket",
            Transport::HttpAfterRefusal => "HTTP after 426",
            Transport::Invoke => "InvokeModel",
        }
    }
}

/// One run of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) client: Client,
    pub(super) upstream: Upstream,
    pub(super) scenario: Scenario,
    pub(super) transport: Transport,
}

impl Case {
    /// Format, scenario and transport, for messages.
    pub(super) fn title(self) -> String {
        format!("{}, {}, {}", self.upstream.name(), self.scenario.name(), self.transport.name())
    }
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) case: Case,
    /// `Err` has what a reader needs to find the fault.
    pub(super) result: Result<(), String>,
    pub(super) ended: Ended,
    pub(super) requests: usize,
    pub(super) hosts: Vec<String>,
}

fn text(text: &str) -> PrescribedResponse {
    PrescribedResponse { text: text.to_owned(), ..PrescribedResponse::default() }
}

fn call(text: &str, call: (String, Value)) -> PrescribedResponse {
    PrescribedResponse { text: text.to_owned(), calls: vec![call], ..PrescribedResponse::default() }
}

/// Edit of a file as Aider reads it from the text of a response.
fn aider_edit(file: &str, from: &str, to: &str) -> PrescribedResponse {
    text(&format!(
        "I edit the file now.\n\n{file}\n```\n<<<<<<< SEARCH\n{from}=======\n{to}>>>>>>> REPLACE\n```\n"
    ))
}

/// Returns the responses of the work: it leaves `alpha` in notes.txt, and `checked` in checked.txt, and puts the output of
/// [`SUM`] into the conversation.
fn work(client: Client, session: &Session) -> Vec<PrescribedResponse> {
    if client == Client::Aider {
        return vec![
            aider_edit("notes.txt", "", "beta\n"),
            // The test command fails first; its output is the next prompt.
            aider_edit("notes.txt", "beta\n", "alpha\n"),
            text(FAREWELL),
        ];
    }
    let notes = session.file("notes.txt");
    let shell = |command: &str| client.shell(command);
    vec![
        call(
            "I write the notes first.",
            client.write(session.model, &notes, "alpha\n").unwrap_or_else(|| shell("echo alpha > notes.txt")),
        ),
        call("", shell(&format!("test -s notes.txt && echo checked > checked.txt && {}", SUM.0))),
        call("Now I read them.", client.read(&notes).unwrap_or_else(|| shell("cat notes.txt"))),
        text(FAREWELL),
    ]
}

/// Inserts the responses to a run's failing requests and to its requests for a summary.
fn adapt(responses: &mut Vec<PrescribedResponse>, case: Case) {
    let Case { client, upstream, scenario, transport } = case;
    match scenario {
        Scenario::Tools | Scenario::Configured => {}
        Scenario::Usage => usage::prescribe(client, responses),
        Scenario::Faults => {
            let limited =
                PrescribedResponse { directives: "status 429 retry-after 1".to_owned(), ..text("") };
            responses.insert(1, limited);
            // Claude Code 2.1 does not repeat a request of InvokeModel whose stream failed after a complete block. Anthropic's
            // begins with one, of thinking without its text.
            if (transport, upstream) != (Transport::Invoke, Upstream::Messages) {
                let cut = PrescribedResponse { directives: "cut 3".to_owned(), ..responses[0].clone() };
                responses.insert(0, cut);
            }
        }
        Scenario::Compaction | Scenario::RemoteCompaction => {
            let prescribed = text(&format!("<summary>Remember {SUMMARY}.</summary>"));
            if client == Client::Aider {
                // It summarizes the history of the folder's earlier conversations, before the first prompt.
                return responses.insert(0, prescribed);
            }
            // Before the last response, the conversation is full.
            if client == Client::GeminiCli {
                // It summarizes what was before its last prompt.
                responses.insert(0, text(&format!("It holds {EARLIER}.")));
            }
            let last = responses.len() - 2;
            if client == Client::QwenCode {
                // It subtracts the tokens of the request for the summary from those of the conversation, so the true
                // ones must fill the window.
                let output = call("", client.shell(LONG_OUTPUT));
                responses.splice(last..=last, [output.clone(), output.clone(), output]);
            } else {
                responses[last].prompt_tokens = Some(FULL);
            }
            // The request for the summary follows. If it offers no tools, its response is generated.
            match (scenario, client) {
                (Scenario::RemoteCompaction, _) => responses.push(text(FAREWELL)),
                (_, Client::ClaudeCode) => responses.insert(last + 1, prescribed),
                _ => {}
            }
        }
    }
}

/// Runs a client.
pub(super) async fn try_out(case: Case) -> Outcome {
    let Case { client, upstream, scenario, transport } = case;
    let compacts = matches!(scenario, Scenario::Compaction | Scenario::RemoteCompaction);
    let window = if compacts { SMALL_WINDOW } else { WINDOW };
    let session = Session::start(client, upstream, window, transport != Transport::HttpAfterRefusal).await;
    let mut responses = work(client, &session);
    adapt(&mut responses, case);
    if client == Client::Aider {
        std::fs::write(session.file("check.sh"), check_command()).unwrap();
        if compacts {
            std::fs::write(session.file(".aider.chat.history.md"), earlier_conversations()).unwrap();
        }
    }
    // Aider ends when the test command succeeds.
    let expected = if client == Client::Aider { responses.len() - 1 } else { responses.len() };
    let reported = usage::reported(case, &responses[..expected], window);
    session.prescribe(responses);
    let mut arguments = client.arguments("Do the work, please.");
    arguments.splice(0..0, options(case));
    if scenario == Scenario::Usage {
        arguments.extend(usage::arguments(client).iter().map(|word| (*word).to_owned()));
    }
    let ended = match scenario {
        Scenario::Configured => session.run_configured(&arguments).await,
        Scenario::Compaction if client == Client::GeminiCli => {
            // No tool is called before, because 0.61 sends each result twice when it resumes a conversation, which Google
            // refuses too.
            session.run(&client.arguments("What is file 0 for?")).await;
            arguments.splice(0..0, ["--resume", "latest"].map(str::to_owned));
            session.run(&arguments).await
        }
        _ if transport == Transport::Invoke => session.run_for_bedrock(&arguments, window).await,
        _ => session.run(&arguments).await,
    };
    let requests = session.requests().len();
    let endpoint = match (client, transport) {
        (Client::Codex, _) => Some("responses"),
        (_, Transport::Invoke) => Some("invoke"),
        _ => None,
    };
    if let Some(endpoint) = endpoint {
        // A client may end before its last line is written.
        until(|| turns(&session.gateway.access_log(), endpoint).len() >= requests).await;
    }
    let result = judge(case, &session, &ended, expected, reported, &session.gateway.access_log());
    Outcome { case, result, requests, hosts: session.hosts(), ended }
}

/// Returns the lines of the access log for requests of a response at an endpoint. A handshake is a GET.
fn turns<'a>(log: &'a [Value], endpoint: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["endpoint"] == endpoint && line["method"] == "POST").collect()
}

/// Returns a history of Aider that is larger than it keeps: a sixteenth of the context window.
fn earlier_conversations() -> String {
    // The latest exchanges stay.
    let exchange = |n: usize| {
        let holds = if n == 0 { EARLIER } else { "settings" };
        let text = "It is read at the start. ".repeat(100);
        format!("#### What is file {n} for?\n\nFile {n} holds {holds}. {text}\n\n")
    };
    (0..20)
        .map(exchange)
        .fold("# aider chat started at 2026-11-01 10:00:00\n\n".to_owned(), |all, one| all + &one)
}

/// Returns the arguments that a run needs.
fn options(case: Case) -> Vec<String> {
    if (case.client, case.scenario) == (Client::Aider, Scenario::Compaction) {
        return vec!["--restore-chat-history".to_owned()];
    }
    if case.client != Client::Codex {
        return Vec::new();
    }
    let limit = format!("model_auto_compact_token_limit={}", FULL / 2);
    let provider = |key: &str| format!("model_providers.model-gateway-run.{key}");
    let mut overrides = match case.scenario {
        Scenario::Compaction => vec![limit],
        // Codex requests the summary of a provider with this name.
        Scenario::RemoteCompaction => vec![limit, provider("name=\"OpenAI\"")],
        _ => Vec::new(),
    };
    match case.transport {
        Transport::Http => overrides.push(provider("supports_websockets=false")),
        // `run` and `configure` find out that the gateway serves WebSockets.
        Transport::WebSocket | Transport::Invoke => {}
        Transport::HttpAfterRefusal => overrides.push(provider("supports_websockets=true")),
    }
    overrides.into_iter().flat_map(|value| ["-c".to_owned(), value]).collect()
}

/// Returns the test command of Aider.
fn check_command() -> String {
    format!("if grep -q alpha notes.txt; then echo checked > checked.txt; else {}; exit 1; fi\n", SUM.0)
}

/// Checks what the user sees, and that the results of the tools reached the provider.
fn judge(
    case: Case,
    session: &Session,
    ended: &Ended,
    expected: usize,
    reported: Usage,
    log: &[Value],
) -> Result<(), String> {
    let Case { client, scenario, transport, .. } = case;
    let mut faults = String::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            let _ = writeln!(faults, "  * not so: {what}");
        }
    };
    let requests = session.requests();
    expect(ended.status == Some(0), "the exit status is 0");
    expect(session.read("notes.txt").trim() == "alpha", "notes.txt was written");
    expect(session.read("checked.txt").trim() == "checked", "checked.txt was written");
    if client != Client::Aider {
        expect(ended.stdout.contains(FAREWELL), "the last text is shown");
    }
    let enough = requests.len() == expected || scenario == Scenario::RemoteCompaction;
    expect(enough, &format!("{} of {expected} responses were requested", requests.len()));
    let last = requests.last().map(Value::to_string).unwrap_or_default();
    match scenario {
        Scenario::Compaction | Scenario::RemoteCompaction => {
            // A provider that makes the summary itself may have encrypted it.
            let encrypted = scenario == Scenario::RemoteCompaction;
            let words = match client {
                Client::ClaudeCode | Client::Aider => SUMMARY,
                // What follows looks like its own markup to it, and is cut off.
                Client::QwenCode => "You said: ",
                _ => GENERATED,
            };
            let summary = last.contains(words);
            expect(encrypted || summary, "the summary is in the last request");
            let replaced = match client {
                Client::Aider | Client::GeminiCli => !last.contains(EARLIER),
                _ => !last.contains(SUM.1),
            };
            expect(replaced, "the conversation before it is not");
        }
        _ => expect(last.contains(SUM.1), "the output of the command reached the provider"),
    }
    if scenario == Scenario::Usage {
        let displayed = usage::displayed(client, &ended.stdout);
        expect(displayed == Some(reported), &format!("the usage is {reported:?}; displayed: {displayed:?}"));
    }
    if transport == Transport::Invoke {
        expect(turns(log, "invoke").len() >= requests.len(), "every turn came through InvokeModel");
    }
    if client == Client::Codex {
        let turns = turns(log, "responses");
        let over_websocket = turns.iter().filter(|line| line["websocket"] == true).count();
        let wanted = if transport == Transport::WebSocket { turns.len() } else { 0 };
        expect(turns.len() >= requests.len(), "every turn has a line in the access log");
        expect(over_websocket == wanted, &format!("every turn came over {}", transport.name()));
        // `run` and `configure` find out from the model listing whether the gateway serves WebSockets.
        let refusals = usize::from(transport == Transport::HttpAfterRefusal);
        let refused = log.iter().filter(|line| line["error"] == "upgrade_required").count();
        expect(refused == refusals, &format!("{refused} of {refusals} handshakes were refused"));
    }
    if faults.is_empty() { Ok(()) } else { Err(report(&faults, ended, log, requests.last())) }
}

/// Returns what a reader needs to find the faults of a run: the ends of its output and of its last request, and the log.
fn report(faults: &str, ended: &Ended, log: &[Value], last: Option<&Value>) -> String {
    let tail = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    };
    let log: Vec<String> = log.iter().map(Value::to_string).collect();
    // The end of the conversation, without its beginning and the tools.
    let turns = ["messages", "input", "contents"].iter().find_map(|name| last?[name].as_array());
    let turns = turns.map(|turns| turns.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
    format!(
        "{faults}  status {:?}\n--- stdout\n{}\n--- stderr\n{}\n--- access log\n{}\n--- last request\n{}\n",
        ended.status,
        tail(&ended.stdout),
        tail(&ended.stderr),
        log.join("\n"),
        tail(&turns.unwrap_or_default()),
    )
}
