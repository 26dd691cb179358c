//! `model-gateway doctor`: whether a client is installed, set up and able to use the gateway.

use super::change::changed_keys;
use super::client::CodingClient;
use super::configure::receipt_of;
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::launch::{program, version};
use super::listing::{GatewayModel, GatewayModels};
use super::plan::UserEnvironment;
use super::receipt::SetupReceipt;

/// Result of one check.
pub(super) struct Finding {
    /// Whether the client can work.
    pub(super) good: bool,
    pub(super) text: String,
}

fn good(text: impl Into<String>) -> Finding {
    Finding { good: true, text: text.into() }
}

fn bad(text: impl Into<String>) -> Finding {
    Finding { good: false, text: text.into() }
}

/// Checks the program of a client.
pub(super) fn check_program(client: CodingClient, user: &UserEnvironment) -> Finding {
    let found = program(client, user).and_then(|path| Ok((version(&path)?, path)));
    match found {
        Ok((version, path)) => good(format!("{}: {version}", path.display())),
        Err(error) => bad(error.to_string()),
    }
}

/// Checks the settings that `configure` wrote.
pub(super) fn check_settings(client: CodingClient, user: &UserEnvironment) -> Vec<Finding> {
    match settings(client, user) {
        Ok(findings) => findings,
        Err(error) => vec![bad(error.to_string())],
    }
}

fn settings(client: CodingClient, user: &UserEnvironment) -> Result<Vec<Finding>, ClientSetupError> {
    let name = client.name();
    let Some(receipt) = SetupReceipt::load(&receipt_of(client, user)?)? else {
        return Ok(vec![good(format!(
            "settings: not configured; model-gateway run {name} needs no settings"
        ))]);
    };
    let mut findings = vec![good(format!("settings: configured for {}", receipt.gateway))];
    for part in &receipt.files {
        let path = part.path.display();
        let file = SettingsFile::read(&part.path)?;
        if !file.exists() {
            findings.push(bad(format!("{path} is not there any more")));
            continue;
        }
        let changed = changed_keys(&file.text, part)
            .map_err(|fault| ClientSetupError::Syntax { path: part.path.clone(), fault })?;
        for key in changed {
            findings.push(bad(format!("{path}: {} was changed since", key.path.join("."))));
        }
    }
    Ok(findings)
}

/// Checks the answer of the gateway.
pub(super) fn check_models(
    client: CodingClient,
    listing: &Result<GatewayModels, ClientSetupError>,
    model: Option<&GatewayModel>,
) -> Vec<Finding> {
    let listing = match listing {
        Ok(listing) => listing,
        Err(error) => return vec![bad(error.to_string())],
    };
    let count = listing.models.len();
    let known = listing.models.iter().filter(|model| model.window.is_some()).count();
    let mut findings = vec![good(format!(
        "gateway: the key is accepted; {count} models, {known} of them with their context window"
    ))];
    if client == CodingClient::Codex {
        let there = if listing.codex_catalogue { "has" } else { "has not" };
        findings.push(good(format!("gateway: it {there} the model catalogue of Codex")));
    }
    if let Some(model) = model {
        let limit =
            |value: Option<u64>| value.map_or("not known".to_owned(), |tokens| format!("{tokens} tokens"));
        findings.push(good(format!(
            "model {}: context window {}, maximum output {}",
            model.id,
            limit(model.window),
            limit(model.max_output)
        )));
    }
    findings
}
