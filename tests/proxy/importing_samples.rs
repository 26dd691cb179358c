//! Public configurations of LiteLLM, imported: each model answers a request as its provider does.
//!
//! The configurations are those of `tests/importing.rs`: GATEWAY_SAMPLES, or else ../shared/samples. Simulated providers
//! take the places of the real ones: addresses, and credentials that are written out, are replaced by those of the
//! simulated provider, and variables have a value. Everything else of a configuration stays. Each model is then asked
//! twice: at the provider itself, in its own format, and at the gateway with the imported configuration. The first answer
//! is what LiteLLM passes on. Which provider that is, this test reads from the source, and not from the result of the import.

mod provider;
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::client::{ask, post_with};
use super::support::gateway::Gateway;
use super::support::setup::{KEY, Setup};
use super::support::sse;
use provider::{AWS_KEY, CREDENTIAL, Providers, Task};
use source::{Deployment, Source};

/// Master key of the configurations that read it from the environment.
const MASTER_KEY: &str = "sk-master-key-of-the-environment";

/// Models that no deployment is named after: those of aliases, and names in fallbacks that fit a pattern.
const DERIVED: [(&str, &str, &str); 4] = [
    ("litellm--oai_misc_config.yaml", "gpt-5-mini", "openai/gpt-5-mini"),
    ("litellm--oai_misc_config.yaml", "gpt-5.5", "openai/gpt-5.5"),
    ("litellm--proxy_server_config.yaml", "my-special-fake-model-alias-name", "openai/my-fake-model"),
    ("litellm--proxy_server_config.yaml", "my-special-fake-model-alias-name", "openai/my-fake-model-2"),
];

/// Models that the import leaves out, by the beginning of `litellm_params.model`. The report has the reason of each.
const WITHOUT_COUNTERPART: [&str; 6] = [
    "auto_router/",
    "mistralai/",
    "sagemaker/",
    "text-completion-codestral/",
    "text-completion-openai/",
    "unknown/",
];

/// Retries of a request that is answered with 429, and the pause before each.
const MAX_RETRIES: usize = 20;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Models of a configuration, by what became of them.
#[derive(Clone, Copy, Default)]
struct Outcomes {
    /// Names of models.
    models: usize,
    /// The gateway answers as the provider does.
    same: usize,
    /// The provider refuses the request itself, and so does the gateway.
    refused: usize,
    /// Patterns, which become templates.
    patterns: usize,
    /// The gateway has no counterpart: the model is unknown.
    absent: usize,
}

impl Outcomes {
    fn row(&self, name: &str) -> String {
        let Outcomes { models, same, refused, patterns, absent } = self;
        format!("| {name} | {models} | {same} | {refused} | {patterns} | {absent} |")
    }

    fn add(&mut self, other: &Outcomes) {
        self.models += other.models;
        self.same += other.same;
        self.refused += other.refused;
        self.patterns += other.patterns;
        self.absent += other.absent;
    }
}

/// Imports a configuration and starts a gateway with the result. Returns it with a key for all of its models.
async fn import(source: &Source) -> (Gateway, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), &source.text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
    command.args(["import", "litellm", "config.yaml"]).env_clear().current_dir(folder.path());
    command.env("AWS_REGION", source.region()).env("AZURE_API_VERSION", "2024-10-21");
    command.env("LITELLM_MASTER_KEY", MASTER_KEY);
    command.envs(source::MODEL_VARIABLES).envs(source.addresses.iter().map(|(name, url)| (name, url)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A file without contents is not written.
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let mut setup = Setup::new();
    setup.routes = read("routes.toml");
    let key = match source.master_key.as_deref() {
        Some(key) => {
            setup.keys = read("keys.toml");
            if key.starts_with("os.environ/") { MASTER_KEY.to_owned() } else { key.to_owned() }
        }
        // LiteLLM serves everybody then. The gateway serves keys only, so the operator creates some.
        None => KEY.to_owned(),
    };
    // The variables that only the environment of LiteLLM has are comments.
    let mut secrets: String =
        read("secrets.env").lines().fold(String::new(), |text, line| match line.strip_prefix('#') {
            Some(name) if name.ends_with('=') => format!("{text}{name}{CREDENTIAL}\n"),
            _ => format!("{text}{line}\n"),
        });
    secrets += &format!("AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}\n", AWS_KEY.0, AWS_KEY.1);
    let setup = setup
        .file("prices.toml", &read("prices.toml"))
        .file("secrets.env", &secrets)
        .file("start.sh", "set -a\n. \"$(dirname \"$0\")/secrets.env\"\nset +a\nexec \"$@\"\n");
    provider::check_addresses(&setup.routes);
    (Gateway::start(&setup).await, key)
}

/// Sends a request of a task to the gateway, as LiteLLM's clients do. Returns its answers, which are several for a
/// conversation: whole and streamed.
async fn answers(gateway: &Gateway, key: &str, model: &str, task: Task) -> Vec<Result<Value, (u16, String)>> {
    let (path, bodies) = match task {
        Task::Conversation => {
            let turns = json!([{ "role": "user", "content": provider::WORDS }]);
            let whole = json!({ "model": model, "messages": turns });
            let stream = json!({ "model": model, "messages": turns, "stream": true });
            ("/v1/chat/completions", vec![whole, stream])
        }
        Task::Embedding => ("/v1/embeddings", vec![json!({ "model": model, "input": provider::WORDS })]),
        Task::Image => ("/v1/images/generations", vec![json!({ "model": model, "prompt": provider::WORDS })]),
        Task::Rerank => {
            let body = json!({ "model": model, "query": provider::WORDS, "documents": provider::DOCUMENTS });
            ("/v1/rerank", vec![body])
        }
    };
    let authorization = format!("Bearer {key}");
    let mut answers = Vec::new();
    for body in bodies {
        let request = post_with(path, &[("authorization", &authorization)], body.to_string());
        let mut answer = ask(gateway.addr, request.clone()).await;
        // Clients repeat a request at the limit of a deployment, which counts a response until all of it is settled.
        for _ in 0..MAX_RETRIES {
            if answer.status() != 429 {
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            answer = ask(gateway.addr, request.clone()).await;
        }
        answers.push(match answer.status() {
            200 if body.get("stream").is_some() => Ok(json!(streamed(answer.text()))),
            200 => provider::essence(task, &answer.json()).ok_or_else(|| (200, answer.text().to_owned())),
            status => Err((status, answer.text().to_owned())),
        });
    }
    answers
}

/// Returns the text of a streamed conversation.
fn streamed(stream: &str) -> String {
    let events = sse::events(stream);
    let deltas = events.iter().filter(|event| event.data != "[DONE]").map(sse::Event::json);
    deltas.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// Asks each model of a configuration at its providers and at the gateway. Returns what became of the models, and the
/// differences.
async fn compare(file: &str, source: &Source, providers: &Providers) -> (Outcomes, Vec<String>) {
    let (gateway, key) = import(source).await;
    let derived = DERIVED.iter().filter(|(of, ..)| *of == file);
    let derived = derived.map(|(_, name, model)| Deployment::new(name, model, true));
    let mut models: Vec<(String, Vec<Deployment>)> = Vec::new();
    for deployment in source.deployments.iter().cloned().chain(derived) {
        match models.iter_mut().find(|(name, _)| *name == deployment.name) {
            Some((_, group)) => group.push(deployment),
            None => models.push((deployment.name.clone(), vec![deployment])),
        }
    }
    let mut outcomes = Outcomes { models: models.len(), ..Outcomes::default() };
    let mut faults = Vec::new();
    for (name, group) in &models {
        if group.iter().any(Deployment::is_pattern) {
            outcomes.patterns += 1;
            continue;
        }
        let task = group[0].task();
        let after = answers(&gateway, &key, name, task).await;
        let is = |status: u16| after.iter().all(|answer| answer.as_ref().is_err_and(|(of, _)| *of == status));
        let absent = |deployment: &Deployment| {
            WITHOUT_COUNTERPART.iter().any(|start| deployment.model.starts_with(start))
                || deployment.lacks_credential
        };
        if group.iter().all(absent) {
            if is(404) {
                outcomes.absent += 1;
            } else {
                faults.push(format!("{file}: {name} has no counterpart, and the gateway says {after:?}"));
            }
            continue;
        }
        // Any of the deployments may answer.
        let mut before = Vec::new();
        for deployment in group {
            before.extend(providers.answer(deployment, task).await);
        }
        if before.is_empty() && after.iter().all(Result::is_err) && !is(404) {
            outcomes.refused += 1;
        } else if after.iter().all(|answer| answer.as_ref().is_ok_and(|answer| before.contains(answer))) {
            outcomes.same += 1;
        } else {
            let shown: String = format!("{after:?}, and the provider {before:?}").chars().take(600).collect();
            faults.push(format!("{file}: {name}: the gateway says {shown}"));
        }
    }
    // Nothing else is served.
    let routes: toml::Table = gateway.read("routes.toml").parse().unwrap();
    for model in routes.get("model").and_then(toml::Value::as_array).into_iter().flatten() {
        let id = model["id"].as_str().unwrap();
        if !models.iter().any(|(name, _)| name == id) {
            faults.push(format!("{file}: {id} is served, and not in the source"));
        }
    }
    (outcomes, faults)
}

fn samples() -> Option<PathBuf> {
    let folder = std::env::var_os("GATEWAY_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/samples"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(!required, "no public configurations here (GATEWAY_SAMPLES names their folder)");
    eprintln!("SKIPPED: no public configurations here (GATEWAY_SAMPLES names their folder)");
    None
}

#[tokio::test]
async fn public_litellm_configurations_answer_as_their_providers_do() {
    let Some(folder) = samples() else { return };
    let entries = std::fs::read_dir(folder.join("litellm")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let providers = Providers::start().await;
    let mut rows = Vec::new();
    let mut all = Outcomes::default();
    let mut faults = Vec::new();
    for path in &files {
        let file = path.file_name().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(path).unwrap();
        let source = Source::read(&text, &providers);
        let (outcomes, differences) = compare(&file, &source, &providers).await;
        rows.push(outcomes.row(&source.origin));
        all.add(&outcomes);
        faults.extend(differences);
    }
    rows.push(all.row(&format!("all {}", files.len())));
    let table = rows.join("\n");
    eprintln!("{table}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(files.len() >= 31 && all.same >= 150, "{} configurations, {} models", files.len(), all.same);
    assert_eq!(all.models, all.same + all.refused + all.patterns + all.absent);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/importing.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "docs/importing.md has another table than\n{table}");
}
