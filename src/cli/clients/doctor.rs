//! `model-gateway doctor`: whether a client is installed, set up and able to use the gateway.

use super::change::changed_keys;
use super::client::CodingClient;
use super::configure::receipt_of;
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::gateway_client::GatewayClient;
use super::launch::{program, version};
use super::plan::{ClientSetup, UserEnvironment, session_id};
use super::receipt::SetupReceipt;
use super::{GatewayOptions, address_and_key, choose, overrides, tool_session};

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Good,
    /// The client works, but worse than it could.
    Note,
    /// The client cannot work.
    Fault,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    level: Level,
    pub(super) text: String,
}

impl Finding {
    pub(super) fn good(text: impl Into<String>) -> Self {
        Finding { level: Level::Good, text: text.into() }
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Finding { level: Level::Note, text: text.into() }
    }

    pub(super) fn fault(text: impl Into<String>) -> Self {
        Finding { level: Level::Fault, text: text.into() }
    }

    /// Whether the client can work.
    pub(super) fn is_good(&self) -> bool {
        self.level != Level::Fault
    }

    /// Returns the word that the finding is shown with.
    pub(super) fn word(&self) -> &'static str {
        match self.level {
            Level::Good => "ok",
            Level::Note => "note",
            Level::Fault => "fault",
        }
    }
}

/// Examines a client, and reports each finding as soon as it is known. `with_session` also starts the client, which calls
/// the model.
pub(super) fn examine(
    client: CodingClient,
    options: &GatewayOptions,
    with_session: bool,
    user: &UserEnvironment,
    report: &mut dyn FnMut(&Finding),
) {
    report(&check_program(client, user));
    let credentials = address_and_key(options);
    let key = credentials.as_ref().ok().map(|(_, key)| key.expose());
    check_settings(client, user, key).iter().for_each(&mut *report);
    let (address, key) = match credentials {
        Ok(credentials) => credentials,
        Err(error) => return report(&failed(&error)),
    };
    let gateway = GatewayClient::new(&address, &key);
    let asked = gateway.listing(client == CodingClient::Codex).and_then(|listing| {
        let model = choose(options, &listing, Some(&gateway))?;
        let (address, key, session) = (address.clone(), key.clone(), session_id()?);
        Ok(ClientSetup { address, key, model, listing, key_in_file: false, session })
    });
    let setup = match asked {
        Ok(setup) => setup,
        Err(error) => return report(&failed(&error)),
    };
    check_models(client, &setup).iter().for_each(&mut *report);
    match client {
        CodingClient::Claude => check_claude(&gateway, &setup).iter().for_each(&mut *report),
        CodingClient::Codex => report(&check_websocket(&gateway, setup.listing.websockets)),
        _ => {}
    }
    if with_session {
        tool_session::run(client, &setup, user).iter().for_each(report);
    }
}

/// Returns an error of a request to the gateway with words on what to do.
fn failed(error: &ClientSetupError) -> Finding {
    let advice = match error {
        ClientSetupError::Connect { .. } => ". Start the gateway, or name its address with --url",
        ClientSetupError::Unauthorized { status: 403, .. } => {
            ". The key may not be used from here, or not for this"
        }
        ClientSetupError::Unauthorized { .. } => ". Use a key of the gateway that exists and has not expired",
        _ => "",
    };
    Finding::fault(format!("gateway: {error}{advice}"))
}

/// Checks the program of a client.
fn check_program(client: CodingClient, user: &UserEnvironment) -> Finding {
    let found = program(client, user).and_then(|path| Ok((version(&path)?, path)));
    match found {
        Ok((version, path)) => Finding::good(format!("program: {}: {version}", path.display())),
        Err(error) => Finding::fault(format!("program: {error}")),
    }
}

/// Checks the settings that `configure` wrote.
fn check_settings(client: CodingClient, user: &UserEnvironment, key: Option<&str>) -> Vec<Finding> {
    match settings(client, user, key) {
        Ok(findings) => findings,
        Err(error) => vec![Finding::fault(format!("settings: {error}"))],
    }
}

fn settings(
    client: CodingClient,
    user: &UserEnvironment,
    key: Option<&str>,
) -> Result<Vec<Finding>, ClientSetupError> {
    let name = client.name();
    let Some(receipt) = SetupReceipt::load(&receipt_of(client, user)?)? else {
        return Ok(vec![Finding::good(format!(
            "settings: not configured; model-gateway run {name} needs no settings"
        ))]);
    };
    let mut findings = vec![Finding::good(format!("settings: configured for {}", receipt.gateway))];
    for part in &receipt.files {
        let path = part.path.display();
        let file = SettingsFile::read(&part.path)?;
        if !file.exists() {
            findings.push(Finding::fault(format!(
                "settings: {path} is not there any more; write it again with model-gateway configure {name}"
            )));
            continue;
        }
        let changed = changed_keys(&file.text, part)
            .map_err(|fault| ClientSetupError::Syntax { path: part.path.clone(), fault })?;
        for key in changed {
            findings.push(Finding::fault(format!(
                "settings: {path}: {} was changed since; model-gateway configure {name} writes it again",
                key.path.join(".")
            )));
        }
    }
    findings.extend(overrides::check(client, user, &receipt, key));
    Ok(findings)
}

/// Checks the listing of the gateway, and what it says of the model.
fn check_models(client: CodingClient, setup: &ClientSetup) -> Vec<Finding> {
    let listing = &setup.listing;
    let count = listing.models.len();
    let known = listing.models.iter().filter(|model| model.window.is_some()).count();
    let text = format!(
        "gateway: the key is accepted; {count} models for conversations, {known} of them with their context window"
    );
    let mut findings = vec![if count == 0 {
        Finding::fault(format!("{text}. Permit the key a model"))
    } else {
        Finding::good(text)
    }];
    if client == CodingClient::Codex {
        findings.push(if listing.codex_catalogue {
            Finding::good("gateway: it has the model catalogue of Codex")
        } else {
            Finding::note("gateway: it has no model catalogue for Codex, which assumes windows of its own")
        });
    }
    if let Some(model) = &setup.model {
        let limit =
            |value: Option<u64>| value.map_or("not known".to_owned(), |tokens| format!("{tokens} tokens"));
        let alias = model.alias_of.as_ref().map(|id| format!(" (an alias of {id})")).unwrap_or_default();
        findings.push(Finding::good(format!(
            "model {}{alias}: context window {}, maximum output {}",
            model.id,
            limit(model.window),
            limit(model.max_output)
        )));
    }
    findings.extend(client.notes(setup).into_iter().map(|note| Finding::note(format!("model: {note}"))));
    findings
}

/// Checks the answers that only Claude Code requests: its list of models, and the number of tokens of a message.
fn check_claude(gateway: &GatewayClient<'_>, setup: &ClientSetup) -> Vec<Finding> {
    let mut findings = vec![match gateway.discovery() {
        Ok(models) => {
            let shown = models.iter().filter(|model| model.is_shown()).count();
            let text = format!("discovery: {} models, of which /model shows {shown}", models.len());
            if shown == 0 {
                Finding::note(format!(
                    "{text}: it shows names with claude or anthropic only. Set claude_alias in routes.toml"
                ))
            } else {
                Finding::good(text)
            }
        }
        Err(error) => Finding::note(format!("discovery: {error}; /model will not show the gateway's models")),
    }];
    if let Some(model) = &setup.model {
        findings.push(match gateway.count_tokens(&model.id) {
            Ok(_) => Finding::good(format!("count_tokens: it counts for {}", model.id)),
            Err(error) => Finding::note(format!("count_tokens: {error}; Claude Code estimates by itself")),
        });
    }
    findings
}

/// Checks the answer to a WebSocket handshake. `served` says whether the gateway serves WebSockets.
fn check_websocket(gateway: &GatewayClient<'_>, served: bool) -> Finding {
    match gateway.attempt_websocket() {
        Ok((426, true)) if served => Finding::good("websocket: the gateway serves it"),
        Ok((426, _)) if !served => Finding::good("websocket: the gateway serves none; Codex uses HTTP"),
        Ok((status, _)) if served => Finding::fault(format!(
            "websocket: the gateway serves it, but a handshake was answered with status {status}. Have the proxy in front of \
             the gateway pass the header upgrade, or switch it off with server.websocket = false"
        )),
        Ok((status, _)) => Finding::note(format!(
            "websocket: a handshake was answered with status {status} instead of 426, so Codex tries it again and again if \
             it is configured for WebSockets"
        )),
        Err(error) => Finding::fault(format!("websocket: {error}")),
    }
}
