//! Claude Code: environment variables, or the `env` member of settings.json.
//!
//! Names and precedence: <https://code.claude.com/docs/en/settings>, <https://code.claude.com/docs/en/llm-gateway>
//! (November 2026).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::edit::{FileSyntax, json_tree};
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::listing::GatewayModel;
use super::plan::{
    ClientSetup, FilePlan, KeyRole, LaunchPlan, PROVIDER, UserEnvironment, json_text, merge, read_json,
};
use routing::route::alias::DEFAULT_PREFIX;

const TITLE: &str = "Claude Code";
/// Context window (tokens) below which Claude Code's own reserves leave no room for a conversation.
const MIN_WINDOW: u64 = 48_000;
/// Variables by which another credential or another provider would be selected.
const OTHER_PROVIDERS: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
];
/// Variables of the model tiers, with the word that ids of the tier contain.
const TIERS: [(&str, &str); 4] = [
    ("ANTHROPIC_DEFAULT_FABLE_MODEL", "fable"),
    ("ANTHROPIC_DEFAULT_OPUS_MODEL", "opus"),
    ("ANTHROPIC_DEFAULT_SONNET_MODEL", "sonnet"),
    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "haiku"),
];

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    user.folder(TITLE, "CLAUDE_CONFIG_DIR", ".claude")
}

/// Variable by which versions before 2.1.330 load tools on demand behind a gateway, as later ones do by themselves. A value
/// of the user's stays.
const TOOL_SEARCH: (&str, &str) = ("ENABLE_TOOL_SEARCH", "true");

/// Returns the variables that point Claude Code at the gateway, the chosen model itself excluded.
fn variables(setup: &ClientSetup) -> BTreeMap<String, String> {
    let mut set = BTreeMap::from([
        ("ANTHROPIC_BASE_URL".to_owned(), setup.address.root().to_owned()),
        ("ANTHROPIC_AUTH_TOKEN".to_owned(), setup.key.expose().to_owned()),
        ("CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY".to_owned(), "1".to_owned()),
    ]);
    let Some(model) = &setup.model else { return set };
    let foreign = is_foreign(model);
    for (variable, tier) in TIERS {
        // Background requests use the small tier, which the gateway may not have.
        let named = setup
            .listing
            .models
            .iter()
            .find(|listed| !foreign && !is_foreign(listed) && listed.id.contains(tier));
        let of_tier = if model.id.contains(tier) { Some(model) } else { named };
        set.insert(variable.to_owned(), of_tier.unwrap_or(model).id.clone());
        if of_tier.is_none() {
            // Otherwise the list of models shows the tier's own name for another model.
            set.insert(format!("{variable}_NAME"), model.true_id().to_owned());
            set.insert(format!("{variable}_DESCRIPTION"), format!("{} by {PROVIDER}", model.true_id()));
        }
    }
    if foreign {
        set.insert("CLAUDE_CODE_SUBAGENT_MODEL".to_owned(), model.id.clone());
        // Otherwise each conversation begins with a line of its own, and no two of them share the prompt cache.
        set.insert("CLAUDE_CODE_ATTRIBUTION_HEADER".to_owned(), "0".to_owned());
    }
    if let Some(window) = model.window {
        set.insert("CLAUDE_CODE_MAX_CONTEXT_TOKENS".to_owned(), window.to_string());
    }
    if let Some(tokens) = model.max_output {
        set.insert("CLAUDE_CODE_MAX_OUTPUT_TOKENS".to_owned(), tokens.to_string());
    }
    set
}

/// Returns the model that a name is an alias of by the default prefix of aliases. `None` if it does not begin with it.
pub(super) fn alias_of(name: &str) -> Option<String> {
    name.strip_prefix(DEFAULT_PREFIX).filter(|rest| !rest.is_empty()).map(str::to_owned)
}

/// Whether Claude Code has no data of a model. An alias is as foreign as the model that it stands for.
fn is_foreign(model: &GatewayModel) -> bool {
    !model.true_id().to_ascii_lowercase().contains("claude")
}

/// Returns remarks on the context window of the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let Some(model) = &setup.model else {
        return vec![
            "Claude Code chooses the model; the gateway must have it. -m chooses another.".to_owned(),
        ];
    };
    let note = match model.window {
        Some(window) if window < MIN_WINDOW => format!(
            "{} has a context window of {window} tokens. Claude Code needs {MIN_WINDOW} or more: its reserves leave no room for a conversation.",
            model.id
        ),
        None if is_foreign(model) => format!(
            "the gateway does not say the context window of {}; Claude Code assumes one of its own models. State it with --context-window.",
            model.id
        ),
        _ => return Vec::new(),
    };
    vec![note]
}

/// Plans a start: variables, and settings of higher precedence if the user's settings have the same variables.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    temporary: &Path,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let mut plan = LaunchPlan { notes: notes(setup), ..LaunchPlan::default() };
    for (name, value) in variables(setup) {
        plan.set(&name, value);
    }
    if user.get(TOOL_SEARCH.0).is_none() {
        plan.set(TOOL_SEARCH.0, TOOL_SEARCH.1);
    }
    if let Some(model) = &setup.model {
        plan.set("ANTHROPIC_MODEL", &model.id);
    }
    plan.unset(&OTHER_PROVIDERS);
    let others = user.variables.keys().filter(|name| name.starts_with("CLAUDE_CODE_USE_"));
    plan.unset.extend(others.filter(|name| !OTHER_PROVIDERS.contains(&name.as_str())).cloned());

    let (given, rest) = split_settings(arguments);
    let given = given.map(|value| given_settings(&value, user)).transpose()?;
    let project = user.current.join(".claude");
    let files = [
        folder(user)?.join("settings.json"),
        project.join("settings.json"),
        project.join("settings.local.json"),
    ];
    let overrides = |settings: &Value| {
        let env = settings.get("env").and_then(Value::as_object);
        let is_ours = |name: &String| plan.set.contains_key(name) || plan.unset.contains(name);
        env.is_some_and(|env| env.keys().any(|name| name != TOOL_SEARCH.0 && is_ours(name)))
    };
    let needed = files
        .iter()
        .filter_map(|path| read_json(path))
        .chain(given.clone())
        .any(|settings| overrides(&settings));
    if !needed {
        plan.arguments = arguments.to_vec();
        return Ok(plan);
    }
    // Variables of settings files take precedence over the environment. Claude Code applies the last --settings only, so
    // the user's own are merged.
    let mut env: serde_json::Map<String, Value> =
        plan.set.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    // The value of a settings file takes precedence over the environment, so the user's stays.
    env.remove(TOOL_SEARCH.0);
    env.extend(plan.unset.iter().map(|name| (name.clone(), Value::from(""))));
    let mut settings = given.unwrap_or_else(|| json!({}));
    merge(&mut settings, json!({ "env": env }));
    plan.files.push(("settings.json", json_text(&settings)));
    plan.arguments = vec!["--settings".into(), temporary.join("settings.json").into()];
    plan.arguments.extend(rest);
    Ok(plan)
}

/// Separates the last value of `--settings` from the other arguments.
fn split_settings(arguments: &[OsString]) -> (Option<OsString>, Vec<OsString>) {
    let (mut given, mut rest) = (None, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            rest.push(argument.clone());
            rest.extend(arguments.by_ref().cloned());
        } else if text == "--settings" {
            given = arguments.next().cloned();
        } else if let Some(value) = text.strip_prefix("--settings=") {
            given = Some(value.into());
        } else {
            rest.push(argument.clone());
        }
    }
    (given, rest)
}

/// Reads the value of `--settings`: JSON text, or the path of a file.
fn given_settings(value: &OsString, user: &UserEnvironment) -> Result<Value, ClientSetupError> {
    let (path, text) = match value.to_str().filter(|text| text.trim_start().starts_with('{')) {
        Some(text) => (PathBuf::from("--settings"), text.to_owned()),
        None => {
            let file = SettingsFile::read(&user.current.join(value))?;
            if !file.exists() {
                return Err(ClientSetupError::File { path: file.path, what: "it does not exist".to_owned() });
            }
            (file.path, file.text)
        }
    };
    let settings = json_tree(&text).map_err(|fault| ClientSetupError::Syntax { path, fault })?;
    Ok(settings.unwrap_or_else(|| json!({})))
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    // Claude Code ignores a file with comments or trailing commas.
    let mut file = FilePlan::new(folder(user)?.join("settings.json"), FileSyntax::StrictJson);
    for (name, value) in variables(setup) {
        let role = match name.as_str() {
            "ANTHROPIC_BASE_URL" => KeyRole::Endpoint,
            "ANTHROPIC_AUTH_TOKEN" => KeyRole::Credential,
            _ => KeyRole::Plain,
        };
        file.set(&["env", name.as_str()], role, value);
    }
    file.set_default(&["env", TOOL_SEARCH.0], KeyRole::Plain, TOOL_SEARCH.1);
    // With two credentials, the other one may be sent to the gateway.
    for name in OTHER_PROVIDERS {
        file.remove(&["env", name], KeyRole::Credential);
    }
    file.remove(&["apiKeyHelper"], KeyRole::Credential);
    if let Some(model) = &setup.model {
        file.set(&["model"], KeyRole::Plain, model.id.as_str());
        file.remove(&["env", "ANTHROPIC_MODEL"], KeyRole::Plain);
    }
    Ok(vec![file])
}
