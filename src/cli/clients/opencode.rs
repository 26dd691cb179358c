//! OpenCode: a provider with a list of models, in opencode.json or in `OPENCODE_CONFIG_CONTENT`.
//!
//! Keys: <https://opencode.ai/docs/config> and <https://opencode.ai/docs/providers> (November 2026), version 1.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::edit::{FileSyntax, json_tree};
use super::error::ClientSetupError;
use super::plan::{
    ClientSetup, FilePlan, KEY_VARIABLE, KeyRole, LaunchPlan, PROVIDER, UserEnvironment, merge, read_json,
};

const TITLE: &str = "OpenCode";
/// Variable with settings that are merged over those of all files.
const CONTENT: &str = "OPENCODE_CONFIG_CONTENT";
/// Maximum output (tokens) of a model whose limit is not known: the client's own default.
const DEFAULT_OUTPUT: u64 = 32_000;

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    Ok(user.xdg(TITLE, "XDG_CONFIG_HOME", ".config")?.join("opencode"))
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let unknown = setup.model.iter().filter(|model| model.window.is_none());
    unknown
        .map(|model| {
            format!(
                "the gateway does not say the context window of {}, so OpenCode never compacts a conversation. State it with --context-window.",
                model.id
            )
        })
        .collect()
}

/// Returns the provider with its models.
fn provider(setup: &ClientSetup, key: &str) -> Value {
    let models: Map<String, Value> = setup
        .models()
        .into_iter()
        .map(|model| {
            let mut entry = json!({ "name": model.id });
            if let Some(window) = model.window {
                let output = model.max_output.unwrap_or(DEFAULT_OUTPUT).min(window);
                merge(&mut entry, json!({ "limit": { "context": window, "output": output } }));
            }
            (model.id.clone(), entry)
        })
        .collect();
    json!({
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": { "baseURL": setup.address.v1(), "apiKey": key },
        "models": models,
    })
}

/// Plans a start: settings in a variable, which are merged over the user's files.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let model = format!("{PROVIDER}/{}", setup.required_model(TITLE)?.id);
    let mut plan = LaunchPlan { notes: notes(setup), arguments: arguments.to_vec(), ..LaunchPlan::default() };
    // The small model makes titles: without it, the client would send the conversation to a provider of its own choice.
    let ours = json!({
        "model": model,
        "small_model": model,
        "provider": { PROVIDER: provider(setup, &format!("{{env:{KEY_VARIABLE}}}")) },
    });
    let mut settings = match user.get(CONTENT) {
        Some(text) => json_tree(text)
            .map_err(|fault| ClientSetupError::Syntax { path: PathBuf::from(CONTENT), fault })?
            .unwrap_or_else(|| json!({})),
        None => json!({}),
    };
    merge(&mut settings, ours);
    plan.set(CONTENT, settings.to_string());
    plan.set(KEY_VARIABLE, setup.key.expose());
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let path = settings_path(&folder(user)?);
    // Version 2 names its keys differently; its settings would be ignored by version 1 and the other way around.
    if read_json(&path).is_some_and(|settings| settings.get("providers").is_some()) {
        let what = "it has the layout of OpenCode 2 (`providers`), which is not supported".to_owned();
        return Err(ClientSetupError::File { path, what });
    }
    let model = format!("{PROVIDER}/{}", setup.required_model(TITLE)?.id);
    let key =
        if setup.key_in_file { setup.key.expose().to_owned() } else { format!("{{env:{KEY_VARIABLE}}}") };
    let mut file = FilePlan::new(path, FileSyntax::Json);
    // Address and credential are in one value, so they are restored together.
    file.set(&["provider", PROVIDER], KeyRole::Credential, provider(setup, &key));
    file.set(&["model"], KeyRole::Plain, model.as_str());
    file.set(&["small_model"], KeyRole::Plain, model.as_str());
    Ok(vec![file])
}

/// Returns the settings file: the one that exists, of two the one that is read last.
fn settings_path(folder: &Path) -> PathBuf {
    let (with_comments, plain) = (folder.join("opencode.jsonc"), folder.join("opencode.json"));
    if with_comments.exists() { with_comments } else { plain }
}
