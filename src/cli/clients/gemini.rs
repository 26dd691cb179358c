//! Gemini CLI: environment variables, and the kind of authentication in settings.json.
//!
//! Names: <https://geminicli.com/docs/reference/configuration> (November 2026), and the bundle of version 0.61.0.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::edit::FileSyntax;
use super::error::ClientSetupError;
use super::file::links;
use super::listing::GatewayModel;
use super::plan::{
    ClientSetup, FilePlan, KeyRole, LaunchPlan, SESSION_HEADER, UserEnvironment, json_text, merge, object,
    read_json,
};

const TITLE: &str = "Gemini CLI";
/// Variable with headers of requests: `name: value`, separated by commas.
const HEADERS: &str = "GEMINI_CLI_CUSTOM_HEADERS";
/// Name of the client's settings that its requests for a conversation extend.
const CHAT_BASE: &str = "chat-base";
/// Variable that names the folder with the folder `.gemini`, instead of the home folder.
const HOME: &str = "GEMINI_CLI_HOME";
/// Folders below `.gemini` in which the client keeps conversations, and files as they were before its edits.
const CONVERSATIONS: [&str; 2] = ["tmp", "history"];
/// Kind of authentication by a key. Without it, the address alone selects a kind that the client cannot use.
const API_KEY: &str = "gemini-api-key";
/// Context window (tokens) that the client assumes for models that it does not know.
const ASSUMED_WINDOW: u64 = 1_048_576;
/// The client's names for the models of its own requests, each with the name that it extends, if any. Without settings they
/// are models of Google; if the gateway has none of these, the client ends when it summarizes a conversation.
const OWN_REQUESTS: [(&str, Option<&str>); 9] = [
    ("chat-compression-default", None),
    ("chat-compression-3-pro", None),
    ("chat-compression-3-flash", None),
    ("chat-compression-3.1-flash-lite", None),
    ("chat-compression-2.5-pro", None),
    ("chat-compression-2.5-flash", None),
    ("chat-compression-2.5-flash-lite", None),
    // Detection of loops, search, correction of edits.
    ("gemini-3-flash-base", Some("base")),
    ("loop-detection-double-check", Some("base")),
];
/// Variables by which another credential or another service would be selected.
const OTHER_PROVIDERS: [&str; 5] = [
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_VERTEX_BASE_URL",
    "GEMINI_DEFAULT_AUTH_TYPE",
];

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    match user.get(HOME) {
        Some(home) => Ok(user.current.join(home).join(".gemini")),
        None => user.home(TITLE, ".gemini"),
    }
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let note = match &setup.model {
        None => "Gemini CLI chooses the model; the gateway must have it. -m chooses another.".to_owned(),
        Some(model) if model.window.is_none() && !model.id.contains("gemini") => format!(
            "the gateway does not say the context window of {}; Gemini CLI assumes {ASSUMED_WINDOW} tokens. State it with --context-window.",
            model.id
        ),
        Some(_) => return Vec::new(),
    };
    vec![note]
}

/// Returns the share of the assumed window at which the client must compress: half of the true window. `None` if the
/// true window is not known, or not smaller.
fn compression_threshold(model: &GatewayModel) -> Option<f64> {
    let window = model.window.filter(|window| *window < ASSUMED_WINDOW)?;
    // Five digits: 10 tokens of the assumed window.
    let share = window.saturating_mul(50_000) / ASSUMED_WINDOW;
    u32::try_from(share.max(1)).ok().map(|share| f64::from(share) / 100_000.0)
}

/// Returns the settings by which requests under a name of the client's are of a model, with their paths.
fn alias<'n>(
    name: &'n str,
    extends: Option<&'n str>,
    model: &'n str,
) -> impl Iterator<Item = (Vec<&'n str>, Value)> {
    let path = move |rest: &[&'n str]| [&["modelConfigs", "customAliases", name][..], rest].concat();
    let extends = extends.map(|extends| (path(&["extends"]), Value::from(extends)));
    extends.into_iter().chain([(path(&["modelConfig", "model"]), Value::from(model))])
}

/// Returns the settings that select the model, with their paths.
fn model_settings(model: &GatewayModel) -> Vec<(Vec<&str>, Value)> {
    let mut settings = Vec::new();
    if let Some(threshold) = compression_threshold(model) {
        settings.push((vec!["model", "compressionThreshold"], Value::from(threshold)));
    }
    for (name, extends) in OWN_REQUESTS {
        settings.extend(alias(name, extends, &model.id));
    }
    // Models of Google have settings of their own under their names.
    if let Some(tokens) = model.output_limit().filter(|_| !model.id.contains("gemini")) {
        settings.extend(alias(&model.id, Some(CHAT_BASE), &model.id));
        let config = ["modelConfig", "generateContentConfig", "maxOutputTokens"];
        let path = [&["modelConfigs", "customAliases", &model.id][..], &config].concat();
        settings.push((path, Value::from(tokens)));
    }
    settings
}

/// Returns the headers of requests: the user's, and the session of this start, unless the user's have one.
fn headers(own: Option<&str>, session: &str) -> String {
    let ours = format!("{SESSION_HEADER}: {session}");
    match own {
        Some(own) if own.to_ascii_lowercase().contains(SESSION_HEADER) => own.to_owned(),
        Some(own) => format!("{own}, {ours}"),
        None => ours,
    }
}

/// Plans a start: variables; and if the user's settings have another kind of authentication, a temporary home folder with
/// changed settings and links to everything else. (The client reads settings of the system from root's files only.)
///
/// # Errors
/// Returns [`ClientSetupError::NoHome`] if the user's settings cannot be found.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    temporary: &Path,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let mut plan = LaunchPlan { notes: notes(setup), arguments: arguments.to_vec(), ..LaunchPlan::default() };
    plan.set("GOOGLE_GEMINI_BASE_URL", setup.address.root());
    plan.set("GEMINI_API_KEY", setup.key.expose());
    plan.set(HEADERS, headers(user.get(HEADERS), &setup.session));
    plan.unset(&OTHER_PROVIDERS);
    let mut wanted = json!({ "security": { "auth": { "selectedType": API_KEY } } });
    if let Some(model) = &setup.model {
        plan.set("GEMINI_MODEL", &model.id);
        for (path, value) in model_settings(model) {
            let nested = path.iter().rev().fold(value, |inner, key| json!({ *key: inner }));
            merge(&mut wanted, nested);
        }
    }
    let folder = folder(user)?;
    let settings = read_json(&folder.join("settings.json")).unwrap_or_else(|| object([]));
    let mut changed = settings.clone();
    merge(&mut changed, wanted);
    if changed != settings {
        // The variables there would set another address.
        plan.links = links(&folder, ".gemini", &["settings.json", ".env"]);
        for missing in CONVERSATIONS.map(|name| folder.join(name)).into_iter().filter(|path| !path.exists()) {
            let name = missing.file_name().unwrap_or_default();
            plan.links.push((Path::new(".gemini").join(name), missing.clone()));
            plan.folders.push(missing);
        }
        plan.files.push((".gemini/settings.json", json_text(&changed)));
        plan.set(HOME, temporary.to_string_lossy());
    }
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let folder = folder(user)?;
    let mut variables = FilePlan::new(folder.join(".env"), FileSyntax::Env);
    variables.set(&["GOOGLE_GEMINI_BASE_URL"], KeyRole::Endpoint, setup.address.root());
    variables.set(&["GEMINI_API_KEY"], KeyRole::Credential, setup.key.expose());
    let mut settings = FilePlan::new(folder.join("settings.json"), FileSyntax::Json);
    settings.set(&["security", "auth", "selectedType"], KeyRole::Plain, API_KEY);
    if let Some(model) = &setup.model {
        settings.set(&["model", "name"], KeyRole::Plain, model.id.as_str());
        for (path, value) in model_settings(model) {
            settings.set(&path, KeyRole::Plain, value);
        }
    }
    Ok(vec![variables, settings])
}

#[cfg(test)]
mod tests {
    use super::{GatewayModel, compression_threshold, headers};

    #[test]
    fn headers_of_the_user_stay() {
        assert_eq!(headers(None, "s1"), "x-session-affinity: s1");
        assert_eq!(headers(Some("a: b"), "s1"), "a: b, x-session-affinity: s1");
        assert_eq!(headers(Some("X-Session-Affinity: own"), "s1"), "X-Session-Affinity: own");
    }

    #[test]
    fn compression_threshold_is_half_of_the_true_window() {
        let model = |window| GatewayModel { id: "x".to_owned(), window, ..GatewayModel::default() };
        assert_eq!(compression_threshold(&model(Some(131_072))), Some(0.0625));
        assert_eq!(compression_threshold(&model(Some(1))), Some(0.00001));
        assert_eq!(compression_threshold(&model(Some(2_000_000))), None);
        assert_eq!(compression_threshold(&model(None)), None);
    }
}
