//! Qwen Code: a model provider in settings.json, with the key in a variable that it names.
//!
//! Names: <https://qwenlm.github.io/qwen-code-docs> (November 2026), and the bundle of version 0.24.4.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::edit::FileSyntax;
use super::error::ClientSetupError;
use super::plan::{
    ClientSetup, FilePlan, KEY_VARIABLE, KeyRole, LaunchPlan, PROVIDER, SESSION_HEADER, UserEnvironment,
    json_text, merge, object, read_json,
};

const TITLE: &str = "Qwen Code";
/// Variable that names the settings of the system, which take precedence over the user's.
const SYSTEM_SETTINGS: &str = "QWEN_CODE_SYSTEM_SETTINGS_PATH";
/// Settings of the system if the variable is not set.
const SYSTEM_SETTINGS_FILE: &str = "/etc/qwen-code/settings.json";

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    user.folder(TITLE, "QWEN_HOME", ".qwen")
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let unknown = setup.model.iter().filter(|model| model.window.is_none());
    unknown
        .map(|model| {
            format!(
                "the gateway does not say the context window of {}; Qwen Code assumes one by the name. State it with --context-window.",
                model.id
            )
        })
        .collect()
}

/// Returns the models of the provider. `session` is the session id that their requests have.
fn models(setup: &ClientSetup, session: Option<&str>) -> Value {
    let models = setup.models().into_iter().map(|model| {
        let mut entry = json!({
            "id": model.id,
            "name": model.id,
            "envKey": KEY_VARIABLE,
            "baseUrl": setup.address.v1(),
        });
        if let Some(window) = model.window {
            merge(&mut entry, json!({ "generationConfig": { "contextWindowSize": window } }));
        }
        if let Some(tokens) = model.output_limit() {
            // Without it, the client asks for a default of its own first, and then for 64,000 tokens.
            merge(&mut entry, json!({ "generationConfig": { "samplingParams": { "max_tokens": tokens } } }));
        }
        if let Some(session) = session {
            merge(
                &mut entry,
                json!({ "generationConfig": { "customHeaders": { SESSION_HEADER: session } } }),
            );
        }
        entry
    });
    Value::Array(models.collect())
}

/// Plans a start: settings of the system with the provider, and the key in the environment.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    temporary: &Path,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let model = &setup.required_model(TITLE)?.id;
    let mut plan = LaunchPlan { notes: notes(setup), arguments: arguments.to_vec(), ..LaunchPlan::default() };
    let system = user.get(SYSTEM_SETTINGS).unwrap_or(SYSTEM_SETTINGS_FILE);
    let mut settings = read_json(&user.current.join(system)).unwrap_or_else(|| object([]));
    merge(
        &mut settings,
        json!({
            "modelProviders": { PROVIDER: models(setup, Some(&setup.session)) },
            "providerProtocol": { PROVIDER: "openai" },
            "security": { "auth": { "selectedType": "openai" } },
            "model": { "name": model },
        }),
    );
    plan.files.push(("settings.json", json_text(&settings)));
    plan.set(SYSTEM_SETTINGS, temporary.join("settings.json").to_string_lossy());
    plan.set(KEY_VARIABLE, setup.key.expose());
    plan.unset(&["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "QWEN_MODEL"]);
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let folder = folder(user)?;
    let model = &setup.required_model(TITLE)?.id;
    let mut settings = FilePlan::new(folder.join("settings.json"), FileSyntax::Json);
    settings.set(&["modelProviders", PROVIDER], KeyRole::Endpoint, models(setup, None));
    settings.set(&["providerProtocol", PROVIDER], KeyRole::Plain, "openai");
    settings.set(&["security", "auth", "selectedType"], KeyRole::Plain, "openai");
    settings.set(&["model", "name"], KeyRole::Plain, model.as_str());
    let mut plans = vec![settings];
    if setup.key_in_file {
        let mut variables = FilePlan::new(folder.join(".env"), FileSyntax::Env);
        variables.set(&[KEY_VARIABLE], KeyRole::Credential, setup.key.expose());
        plans.push(variables);
    }
    Ok(plans)
}
