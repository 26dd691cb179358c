//! Aider: variables and arguments, or .aider.conf.yml in the home folder.
//!
//! Names: <https://aider.chat/docs/config/options.html> and <https://aider.chat/docs/llms/openai-compat.html>
//! (November 2026).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::edit::FileSyntax;
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::listing::GatewayModel;
use super::plan::{
    ClientSetup, FilePlan, KeyRole, LaunchPlan, SESSION_HEADER, UserEnvironment, json_text, merge,
};

const TITLE: &str = "Aider";

/// Returns the folder of the user's settings: the home folder.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    user.home(TITLE, "")
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let unknown = setup.model.iter().filter(|model| model.window.is_none());
    unknown
        .map(|model| {
            format!(
                "the gateway does not say the context window of {}, so Aider cannot warn before it is full. State it with --context-window.",
                model.id
            )
        })
        .collect()
}

/// Returns the limits of a model. `None` if they are not known.
fn metadata(model: &GatewayModel) -> Option<Value> {
    let window = model.window?;
    let mut limits = json!({ "max_input_tokens": window, "litellm_provider": "openai", "mode": "chat" });
    if let Some(tokens) = model.max_output {
        merge(&mut limits, json!({ "max_output_tokens": tokens, "max_tokens": tokens }));
    }
    Some(limits)
}

/// Returns the name of a model for a provider with the interface of OpenAI.
fn name(model: &GatewayModel) -> String {
    format!("openai/{}", model.id)
}

/// Options of the models besides the main one. Without them, Aider takes a model of its own choice from the same address
/// for commit messages and summaries, which the gateway may not have.
const OTHER_MODELS: [&str; 2] = ["weak-model", "editor-model"];

/// Name of the model settings that apply to every model.
const EVERY_MODEL: &str = "aider/extra_params";

/// Whether the user has settings that a file of model settings would replace: such a file, or the same entry in one that
/// Aider finds by itself, in the home folder, the current one or the repository's.
fn has_model_settings(user: &UserEnvironment) -> bool {
    let home = user.get("HOME").map(PathBuf::from);
    let folders = user.current.ancestors().map(Path::to_owned).chain(home);
    let has =
        |path: PathBuf, word: &str| SettingsFile::read(&path).is_ok_and(|file| file.text.contains(word));
    user.get("AIDER_MODEL_SETTINGS_FILE").is_some()
        || folders.into_iter().any(|folder| {
            has(folder.join(".aider.conf.yml"), "model-settings-file")
                || has(folder.join(".aider.model.settings.yml"), EVERY_MODEL)
        })
}

/// Plans a start: variables, arguments, and a file of variables.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    temporary: &Path,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let model = setup.required_model(TITLE)?;
    let mut plan = LaunchPlan { notes: notes(setup), ..LaunchPlan::default() };
    let variables =
        [("OPENAI_API_BASE", setup.address.v1()), ("OPENAI_API_KEY", setup.key.expose().to_owned())];
    let mut file = String::new();
    for (name, value) in variables {
        file.push_str(&format!("{name}={value}\n"));
        plan.set(name, value);
    }
    plan.arguments = vec!["--model".into(), name(model).into()];
    for option in OTHER_MODELS {
        plan.arguments.extend([format!("--{option}").into(), name(model).into()]);
    }
    let given = |option: &str| {
        let text = arguments.iter().filter_map(|argument| argument.to_str());
        text.take_while(|argument| *argument != "--").any(|argument| {
            argument == option || argument.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        })
    };
    // A .env file in the folder of the project takes precedence over the environment; the file of an argument is read
    // last.
    if !given("--env-file") {
        plan.files.push(("variables.env", file));
        plan.arguments.extend(["--env-file".into(), temporary.join("variables.env").into()]);
    }
    if let Some(limits) = metadata(model).filter(|_| !given("--model-metadata-file")) {
        plan.files.push(("metadata.json", json_text(&json!({ name(model): limits }))));
        plan.arguments.extend(["--model-metadata-file".into(), temporary.join("metadata.json").into()]);
    }
    if !given("--model-settings-file") && !has_model_settings(user) {
        let headers = json!({ "extra_headers": { SESSION_HEADER: setup.session } });
        let settings = json!([{ "name": EVERY_MODEL, "extra_params": headers }]);
        plan.files.push(("settings.yml", json_text(&settings)));
        plan.arguments.extend(["--model-settings-file".into(), temporary.join("settings.yml").into()]);
    }
    plan.arguments.extend_from_slice(arguments);
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let model = setup.required_model(TITLE)?;
    let mut file = FilePlan::new(user.home(TITLE, ".aider.conf.yml")?, FileSyntax::Yaml);
    file.set(&["openai-api-base"], KeyRole::Endpoint, setup.address.v1());
    file.set(&["openai-api-key"], KeyRole::Credential, setup.key.expose());
    file.set(&["model"], KeyRole::Plain, name(model));
    for option in OTHER_MODELS {
        file.set(&[option], KeyRole::Plain, name(model));
    }
    let mut plans = vec![file];
    if let Some(limits) = metadata(model) {
        let mut file = FilePlan::new(user.home(TITLE, ".aider.model.metadata.json")?, FileSyntax::Json);
        file.set(&[name(model).as_str()], KeyRole::Plain, limits);
        plans.push(file);
    }
    Ok(plans)
}
