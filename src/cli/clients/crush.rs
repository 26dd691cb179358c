//! Crush: a block of commands in crushrc, which is a shell script.
//!
//! Commands: <https://github.com/charmbracelet/crush/blob/main/docs/config/README.md> (November 2026).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::edit::FileSyntax;
use super::error::ClientSetupError;
use super::file::{SettingsFile, links};
use super::plan::{
    ClientSetup, FilePlan, KEY_VARIABLE, KeyRole, LaunchPlan, PROVIDER, SESSION_HEADER, UserEnvironment,
    json_text, read_json,
};

const TITLE: &str = "Crush";
/// Variable that names the folder of the user's settings.
const FOLDER: &str = "CRUSH_GLOBAL_CONFIG";
/// Variable that names the folder of the client's own state.
const STATE: &str = "CRUSH_GLOBAL_DATA";
/// File with the state, and with settings in the older form.
const JSON_FILE: &str = "crush.json";

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    match user.get(FOLDER) {
        Some(folder) => Ok(user.current.join(folder)),
        None => Ok(user.xdg(TITLE, "XDG_CONFIG_HOME", ".config")?.join("crush")),
    }
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let unknown = setup.model.iter().filter(|model| model.window.is_none());
    unknown
        .map(|model| {
            format!(
                "the gateway does not say the context window of {}, so Crush never summarizes in time. State it with --context-window.",
                model.id
            )
        })
        .collect()
}

/// Quotes a text for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the commands that add the provider and select the model. `key` is a word of the shell, `session` the session
/// id that the provider's requests have.
fn commands(setup: &ClientSetup, key: &str, session: Option<&str>) -> Result<String, ClientSetupError> {
    let chosen = setup.required_model(TITLE)?;
    let name = |id: &str| quote(&format!("{PROVIDER}/{id}"));
    let mut script = format!(
        "provider add {PROVIDER} --name {PROVIDER} --type openai-compat --base-url {} --api-key {key}",
        quote(&setup.address.v1())
    );
    if let Some(session) = session {
        let _ = write!(script, " --extra-header {SESSION_HEADER} {}", quote(session));
    }
    for model in setup.models() {
        let _ = write!(script, "\nmodel add {} --name {}", name(&model.id), quote(&model.id));
        if let Some(window) = model.window {
            let _ = write!(script, " --context-window {window}");
        }
        if let Some(tokens) = model.max_output {
            let _ = write!(script, " --default-max-tokens {tokens}");
        }
    }
    let _ = write!(script, "\nmodel large {0}\nmodel small {0}", name(&chosen.id));
    Ok(script)
}

/// Returns the folder of the client's own state.
fn state_folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    match user.get(STATE) {
        Some(folder) => Ok(user.current.join(folder)),
        None => Ok(user.xdg(TITLE, "XDG_DATA_HOME", ".local/share")?.join("crush")),
    }
}

/// Returns the provider of the large model that the client's own dialog has selected. `None` if none was selected.
pub(super) fn selected_provider(user: &UserEnvironment) -> Option<String> {
    let state = read_json(&state_folder(user).ok()?.join(JSON_FILE))?;
    state.pointer("/models/large/provider")?.as_str().map(str::to_owned)
}

/// Replaces the folder of the client's state if a model is selected in it, as the client's own dialog does: such a
/// selection takes precedence over crushrc. The credentials of other providers stay where they are.
fn drop_selection(
    plan: &mut LaunchPlan,
    user: &UserEnvironment,
    temporary: &Path,
) -> Result<(), ClientSetupError> {
    let folder = state_folder(user)?;
    let Some(mut state) = read_json(&folder.join(JSON_FILE)) else { return Ok(()) };
    let Some(members) = state.as_object_mut() else { return Ok(()) };
    if members.remove("models").is_none() {
        return Ok(());
    }
    members.remove("providers");
    plan.files.push(("state/crush.json", json_text(&state)));
    plan.links.extend(links(&folder, "state", &[JSON_FILE]));
    plan.set(STATE, temporary.join("state").to_string_lossy());
    Ok(())
}

/// Plans a start: a temporary folder of settings that reads the user's own first.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    temporary: &Path,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let mut plan = LaunchPlan { notes: notes(setup), arguments: arguments.to_vec(), ..LaunchPlan::default() };
    let own = folder(user)?;
    let (script, old) = (own.join("crushrc"), SettingsFile::read(&own.join(JSON_FILE))?);
    let mut text = String::new();
    if script.exists() {
        // Its relative paths are relative to its own folder.
        let own = quote(&own.to_string_lossy());
        let _ = writeln!(text, "cd {own}\nsource {}", quote(&script.to_string_lossy()));
    }
    let _ = writeln!(text, "{}", commands(setup, &format!("\"${KEY_VARIABLE}\""), Some(&setup.session))?);
    plan.files.push(("crushrc", text));
    if old.exists() {
        plan.files.push((JSON_FILE, old.text));
    }
    drop_selection(&mut plan, user, temporary)?;
    plan.set(FOLDER, temporary.to_string_lossy());
    plan.set(KEY_VARIABLE, setup.key.expose());
    Ok(plan)
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let key = if setup.key_in_file { quote(setup.key.expose()) } else { format!("\"${KEY_VARIABLE}\"") };
    let mut file = FilePlan::new(folder(user)?.join("crushrc"), FileSyntax::Shell);
    file.set(&["commands"], KeyRole::Credential, commands(setup, &key, None)?);
    Ok(vec![file])
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn shell_words_are_quoted() {
        assert_eq!(quote("a b$(c)"), "'a b$(c)'");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
