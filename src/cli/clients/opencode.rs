//! OpenCode: a provider with a list of models, in opencode.json or in `OPENCODE_CONFIG_CONTENT`.
//!
//! Keys: <https://opencode.ai/docs/config> and <https://opencode.ai/docs/providers> (November 2026), for version 2 also
//! <https://opencode.ai/docs/migrate-v1>.

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

/// Layout of the settings. Version 2 of OpenCode reads both, version 1 fails on the keys of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    V1,
    V2,
}

impl Layout {
    /// Returns the layout of settings: that of version 2 if they have a key that only it has.
    fn of(settings: &Value) -> Layout {
        let only_v2 = ["providers", "agents", "commands", "permissions", "plugins"];
        if only_v2.iter().any(|key| settings.get(key).is_some()) { Layout::V2 } else { Layout::V1 }
    }

    /// Returns the paths of the keys of the provider and of the model that makes titles. Without the latter, the client
    /// would send the conversation to a provider of its own choice.
    fn paths(self) -> ([&'static str; 2], &'static [&'static str]) {
        match self {
            Layout::V1 => (["provider", PROVIDER], &["small_model"]),
            Layout::V2 => (["providers", PROVIDER], &["agents", "title", "model"]),
        }
    }
}

/// Returns the provider with its models.
fn provider(setup: &ClientSetup, layout: Layout, key: &str) -> Value {
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
    let options = json!({ "baseURL": setup.address.v1(), "apiKey": key });
    match layout {
        Layout::V1 => json!({
            "npm": "@ai-sdk/openai-compatible",
            "name": PROVIDER,
            "options": options,
            "models": models,
        }),
        Layout::V2 => json!({
            "package": "aisdk:@ai-sdk/openai-compatible",
            "name": PROVIDER,
            "settings": options,
            "models": models,
        }),
    }
}

/// Plans a start: settings in a variable, which are merged over the user's files.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let model = format!("{PROVIDER}/{}", setup.required_model(TITLE)?.id);
    let mut plan = LaunchPlan { notes: notes(setup), arguments: arguments.to_vec(), ..LaunchPlan::default() };
    let mut settings = match user.get(CONTENT) {
        Some(text) => json_tree(text)
            .map_err(|fault| ClientSetupError::Syntax { path: PathBuf::from(CONTENT), fault })?
            .unwrap_or_else(|| json!({})),
        None => json!({}),
    };
    let layout = Layout::of(&settings);
    let (provider_path, title_model) = layout.paths();
    let ours = [
        (&["model"][..], model.as_str().into()),
        (title_model, model.as_str().into()),
        (&provider_path[..], provider(setup, layout, &format!("{{env:{KEY_VARIABLE}}}"))),
    ];
    for (path, value) in ours {
        merge(&mut settings, path.iter().rev().fold(value, |value, key| json!({ *key: value })));
    }
    plan.set(CONTENT, settings.to_string());
    plan.set(KEY_VARIABLE, setup.key.expose());
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let path = settings_path(&folder(user)?);
    let layout = read_json(&path).map_or(Layout::V1, |settings| Layout::of(&settings));
    let (provider_path, title_model) = layout.paths();
    let model = format!("{PROVIDER}/{}", setup.required_model(TITLE)?.id);
    let key =
        if setup.key_in_file { setup.key.expose().to_owned() } else { format!("{{env:{KEY_VARIABLE}}}") };
    let mut file = FilePlan::new(path, FileSyntax::Json);
    // Address and credential are in one value, so they are restored together.
    file.set(&provider_path, KeyRole::Credential, provider(setup, layout, &key));
    file.set(&["model"], KeyRole::Plain, model.as_str());
    file.set(title_model, KeyRole::Plain, model.as_str());
    Ok(vec![file])
}

/// Returns the settings file: the one that exists, of two the one that is read last.
fn settings_path(folder: &Path) -> PathBuf {
    let (with_comments, plain) = (folder.join("opencode.jsonc"), folder.join("opencode.json"));
    if with_comments.exists() { with_comments } else { plain }
}
