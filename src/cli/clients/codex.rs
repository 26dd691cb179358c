//! Codex: a provider of its own in config.toml, or `-c` arguments. `OPENAI_BASE_URL` has no effect there.
//!
//! Keys: <https://developers.openai.com/codex/config-reference> (November 2026), and the strings of version 0.169.0.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;

use super::edit::FileSyntax;
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::plan::{ClientSetup, FilePlan, KEY_VARIABLE, KeyRole, LaunchPlan, PROVIDER, UserEnvironment};

const TITLE: &str = "Codex";
/// Provider of `run`. Another name than that of `configure`: an argument cannot remove keys that config.toml has.
const RUN_PROVIDER: &str = "model-gateway-run";
/// First version in which the settings of a repository cannot redirect requests with a key of the user's settings.
const SAFE_VERSION: [u64; 3] = [0, 129, 0];

/// Returns the folder of the user's settings.
pub(super) fn folder(user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    user.folder(TITLE, "CODEX_HOME", ".codex")
}

/// Returns remarks on the chosen model.
pub(super) fn notes(setup: &ClientSetup) -> Vec<String> {
    let note = match &setup.model {
        None => "Codex chooses the model; the gateway must have it. -m chooses another.".to_owned(),
        Some(model) if model.window.is_none() && !setup.listing.codex_catalogue => format!(
            "the gateway does not say the context window of {}; Codex assumes its own default. State it with --context-window.",
            model.id
        ),
        Some(_) => return Vec::new(),
    };
    vec![note]
}

/// Plans a start: `-c` arguments, and the key in the environment.
pub(super) fn launch(
    setup: &ClientSetup,
    user: &UserEnvironment,
    arguments: &[OsString],
) -> Result<LaunchPlan, ClientSetupError> {
    let mut plan = LaunchPlan { notes: notes(setup), ..LaunchPlan::default() };
    plan.set(KEY_VARIABLE, setup.key.expose());
    let provider = |key: &str| format!("model_providers.{RUN_PROVIDER}.{key}");
    let text = |value: &str| json!(value).to_string();
    let mut overrides = vec![
        ("model_provider".to_owned(), text(RUN_PROVIDER)),
        (provider("name"), text(PROVIDER)),
        (provider("base_url"), text(&setup.address.v1())),
        (provider("wire_api"), text("responses")),
        (provider("env_key"), text(KEY_VARIABLE)),
        (provider("supports_websockets"), setup.listing.websockets.to_string()),
    ];
    if setup.listing.codex_catalogue {
        overrides.push((provider("model_catalog_url"), text(&format!("{}/models", setup.address.v1()))));
    }
    let profile = active_profile(&folder(user)?.join("config.toml"));
    if let Some(profile) = &profile {
        overrides.push((format!("profiles.{profile}.model_provider"), text(RUN_PROVIDER)));
    }
    if let Some(model) = &setup.model {
        overrides.push(("model".to_owned(), text(&model.id)));
        if let Some(profile) = &profile {
            overrides.push((format!("profiles.{profile}.model"), text(&model.id)));
        }
        if let Some(window) = model.window {
            overrides.push(("model_context_window".to_owned(), window.to_string()));
        }
    }
    for (key, value) in overrides {
        plan.arguments.extend(["-c".into(), format!("{key}={value}").into()]);
    }
    plan.arguments.extend_from_slice(arguments);
    Ok(plan)
}

/// Returns the profile that config.toml selects: its provider and model take precedence over those at the top level.
fn active_profile(path: &std::path::Path) -> Option<String> {
    let text = SettingsFile::read(path).ok()?.text;
    let document: toml_edit::Document<&str> = toml_edit::Document::parse(text.as_str()).ok()?;
    let name = document.get("profile")?.as_str()?;
    document.get("profiles")?.get(name)?;
    let bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    bare.then(|| name.to_owned())
}

/// Plans the settings that `configure` writes.
pub(super) fn files(setup: &ClientSetup, user: &UserEnvironment) -> Result<Vec<FilePlan>, ClientSetupError> {
    let mut file = FilePlan::new(folder(user)?.join("config.toml"), FileSyntax::Toml);
    let provider = |key: &'static str| ["model_providers", PROVIDER, key];
    // Address and credential stand in the provider's own table, so its selection sends no credential elsewhere.
    file.set(&["model_provider"], KeyRole::Plain, PROVIDER);
    // A profile takes precedence over the keys at the top level.
    file.remove(&["profile"], KeyRole::Plain);
    if let Some(model) = &setup.model {
        file.set(&["model"], KeyRole::Plain, model.id.as_str());
        if let Some(window) = model.window {
            file.set(&["model_context_window"], KeyRole::Plain, window);
        }
    }
    file.set(&provider("name"), KeyRole::Plain, PROVIDER);
    file.set(&provider("base_url"), KeyRole::Endpoint, setup.address.v1());
    file.set(&provider("wire_api"), KeyRole::Plain, "responses");
    if setup.key_in_file {
        let bearer = format!("Bearer {}", setup.key.expose());
        file.set(&provider("http_headers"), KeyRole::Credential, json!({ "Authorization": bearer }));
        file.remove(&provider("env_key"), KeyRole::Credential);
    } else {
        file.set(&provider("env_key"), KeyRole::Credential, KEY_VARIABLE);
        file.remove(&provider("http_headers"), KeyRole::Credential);
    }
    file.set(&provider("supports_websockets"), KeyRole::Plain, setup.listing.websockets);
    if setup.listing.codex_catalogue {
        let url = format!("{}/models", setup.address.v1());
        file.set(&provider("model_catalog_url"), KeyRole::Plain, url);
    }
    Ok(vec![file])
}

/// Checks that a version of Codex keeps a key of its settings to their own provider. `version` is the output of
/// `codex --version`.
///
/// # Errors
/// Returns [`ClientSetupError::Refused`] if it is older than 0.129.0, or not understood.
pub(super) fn check_version(version: &str) -> Result<(), ClientSetupError> {
    let number = version.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let parts = number.map(|number| {
        let release = number.split(['-', '+']).next().unwrap_or_default();
        release.split('.').map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<u64>>>()
    });
    match parts.flatten() {
        Some(parts) if parts.as_slice() >= SAFE_VERSION.as_slice() => Ok(()),
        _ => Err(ClientSetupError::Refused(format!(
            "{:?} is not Codex 0.129.0 or later: before it, a repository's settings can send the key elsewhere. \
             Update Codex, or leave out --key-in-file",
            version.trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::check_version;

    #[test]
    fn version_before_0_129_is_refused() {
        for (version, accepted) in [
            ("codex-cli 0.169.0\n", true),
            ("codex-cli 0.129.0", true),
            ("codex-cli 1.0.0-alpha.2", true),
            ("codex-cli 0.128.9", false),
            ("codex-cli 0.99.0", false),
            ("something else", false),
            ("", false),
        ] {
            assert_eq!(check_version(version).is_ok(), accepted, "{version}");
        }
    }
}
