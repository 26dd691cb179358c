//! `model-gateway run`, `configure`, `unconfigure` and `doctor`: coding clients that use the gateway.
//!
//! Contains the arguments of the commands; one file for each client ([`claude`], [`codex`], ...) says what it needs. A
//! plan is made first ([`plan`]) and then shown, started ([`launch`]) or written ([`configure`]). Requests to models must
//! not be made here, and files must be written by [`file`] only.

mod address;
mod aider;
mod change;
mod claude;
mod client;
mod codex;
mod configure;
mod crush;
mod doctor;
mod edit;
mod error;
mod file;
mod gateway_client;
mod gemini;
mod launch;
mod listing;
mod opencode;
mod overrides;
mod plan;
mod qwen;
mod receipt;
mod tool_session;
mod unconfigure;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::out::say;
use super::{complain, fail, style};
use address::{ClientKey, GatewayAddress};
use client::CodingClient;
use error::ClientSetupError;
use gateway_client::GatewayClient;
use listing::{GatewayModel, GatewayModels};
use plan::{ClientSetup, KEY_VARIABLE, LaunchPlan, UserEnvironment};

/// Exit status of a shell for a program that is not found.
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
struct GatewayOptions {
    /// Address of the gateway.
    #[arg(long, env = "MODEL_GATEWAY_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File with the key; default: the variable MODEL_GATEWAY_KEY.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Allow plain http to another machine: the key crosses the network in plain text.
    #[arg(long)]
    insecure: bool,
    /// Do not ask the gateway for its models.
    #[arg(long)]
    no_check: bool,
    /// Model to use.
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Context window of the model (tokens), if the gateway does not say it.
    #[arg(long, value_name = "TOKENS", requires = "model", value_parser = clap::value_parser!(u64).range(1..))]
    context_window: Option<u64>,
    /// Maximum output of the model (tokens), if the gateway does not say it.
    #[arg(long, value_name = "TOKENS", requires = "model", value_parser = clap::value_parser!(u64).range(1..))]
    max_output: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Client to start.
    client: CodingClient,
    #[command(flatten)]
    gateway: GatewayOptions,
    /// Show what would be set, and start nothing.
    #[arg(long)]
    print: bool,
    /// Arguments of the client, unchanged: everything from the first argument on that is no option of this command, or
    /// everything behind --.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct ConfigureArgs {
    /// Client to configure.
    client: CodingClient,
    #[command(flatten)]
    gateway: GatewayOptions,
    /// Write the key itself, where the settings could name the variable MODEL_GATEWAY_KEY instead. Claude Code, Gemini
    /// CLI and Aider cannot name a variable: their settings always get the key.
    #[arg(long)]
    key_in_file: bool,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Args)]
pub(super) struct UnconfigureArgs {
    /// Client whose settings to restore.
    client: CodingClient,
    /// Restore also keys that were changed after configure.
    #[arg(long)]
    force: bool,
    /// Keep the settings as they are, and remove the receipt and the copies of the files from before configure.
    #[arg(long, conflicts_with = "force")]
    forget: bool,
    /// Show what would be restored, and write nothing.
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Client to examine.
    client: CodingClient,
    #[command(flatten)]
    gateway: GatewayOptions,
    /// Also start the client with a task of two turns. This calls the model, which costs tokens.
    #[arg(long, requires = "model")]
    session: bool,
}

pub(super) fn run(options: &RunArgs) -> ExitCode {
    match start(options) {
        Ok(code) => ExitCode::from(code),
        Err(error @ ClientSetupError::NotInstalled { .. }) => {
            fail(error);
            ExitCode::from(NOT_FOUND)
        }
        Err(error) => fail(error),
    }
}

fn start(options: &RunArgs) -> Result<u8, ClientSetupError> {
    let user = UserEnvironment::of_process();
    let client = options.client;
    let program = if options.print { PathBuf::new() } else { launch::program(client, &user)? };
    let setup = setup(client, &options.gateway, false)?;
    if options.print {
        let temporary = Path::new("/tmp/model-gateway-run-XXXXXX");
        let plan = client.launch(&setup, &user, temporary, &options.arguments)?;
        remark(&plan.notes);
        for line in launch::lines(client.name(), &plan, temporary) {
            say!("{}", setup.key.redact(&line));
        }
        return Ok(0);
    }
    let temporary = launch::temporary_folder(&user)?;
    let plan: LaunchPlan = client.launch(&setup, &user, temporary.path(), &options.arguments)?;
    remark(&plan.notes);
    launch::launch(&program, &plan, temporary)
}

pub(super) fn configure(options: &ConfigureArgs) -> ExitCode {
    match write_settings(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn write_settings(options: &ConfigureArgs) -> Result<(), ClientSetupError> {
    let user = UserEnvironment::of_process();
    let client = options.client;
    if client == CodingClient::Codex && options.key_in_file {
        match launch::program(client, &user) {
            Ok(program) => codex::check_version(&launch::version(&program)?)?,
            Err(_) => remark(&[
                "codex is not on the PATH; a version before 0.129.0 must not be used with these settings"
                    .to_owned(),
            ]),
        }
    }
    let setup = setup(client, &options.gateway, options.key_in_file)?;
    let configuration = configure::prepare(client, &setup, &user)?;
    remark(&client.notes(&setup));
    remark(configuration.notes());
    let lines: Vec<String> =
        configuration.lines().iter().map(|line| setup.key.redact(line).to_string()).collect();
    // Printed when it is done: a reader that closes the pipe ends the process.
    let written = if options.print { Ok(()) } else { configuration.write().map(|_| ()) };
    for line in lines {
        say!("{line}");
    }
    written?;
    if options.print {
        return Ok(());
    }
    let name = client.name();
    say!(
        "{} {name} uses {}. To undo it: model-gateway unconfigure {name}",
        style::good("ok"),
        setup.address.root()
    );
    if !configuration.has_key() {
        say!("The settings name the variable {KEY_VARIABLE}, which must have the key when {name} starts.");
    }
    Ok(())
}

pub(super) fn unconfigure(options: &UnconfigureArgs) -> ExitCode {
    let user = UserEnvironment::of_process();
    let name = options.client.name();
    let restored = restore_settings(options, &user);
    if !matches!(restored, Ok(true)) {
        remark(&unconfigure::backups(options.client, &user));
    }
    match restored {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail(format_args!(
            "some keys were changed after configure and stay; model-gateway unconfigure {name} --force restores them \
             too, and --forget keeps them all"
        )),
        Err(error) => fail(error),
    }
}

/// Returns whether all keys are restored, or are to stay.
fn restore_settings(options: &UnconfigureArgs, user: &UserEnvironment) -> Result<bool, ClientSetupError> {
    if options.forget {
        for line in unconfigure::forget(options.client, user, options.print)? {
            say!("{line}");
        }
        return Ok(true);
    }
    let restoration = unconfigure::prepare(options.client, user, options.force)?;
    let lines = restoration.lines();
    // Printed when it is done: a reader that closes the pipe ends the process.
    let written = if options.print { Ok(()) } else { restoration.write() };
    for line in lines {
        say!("{line}");
    }
    written?;
    Ok(restoration.is_complete())
}

pub(super) fn doctor(options: &DoctorArgs) -> ExitCode {
    let user = UserEnvironment::of_process();
    let mut failed = false;
    doctor::examine(options.client, &options.gateway, options.session, &user, &mut |finding| {
        failed |= !finding.is_good();
        let word = finding.word();
        let mark = if word == "ok" { style::good(word) } else { style::bad(word) };
        say!("{mark} {}", finding.text);
    });
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints remarks to standard error.
fn remark(notes: &[String]) {
    for note in notes {
        complain(format_args!("{} {note}", style::bad("note:")));
    }
}

fn address_and_key(options: &GatewayOptions) -> Result<(GatewayAddress, ClientKey), ClientSetupError> {
    let address = GatewayAddress::parse(&options.url, options.insecure)?;
    let key = match &options.key_file {
        Some(path) => {
            let file = file::SettingsFile::read(path)?;
            if !file.exists() {
                let what = "it does not exist".to_owned();
                return Err(ClientSetupError::File { path: path.clone(), what });
            }
            ClientKey::new(&file.text, &path.display().to_string())?
        }
        None => {
            let text = std::env::var(KEY_VARIABLE).map_err(|_| ClientSetupError::NoKey)?;
            ClientKey::new(&text, KEY_VARIABLE)?
        }
    };
    Ok((address, key))
}

/// Reads address and key, asks the gateway, and checks the model.
fn setup(
    client: CodingClient,
    options: &GatewayOptions,
    key_in_file: bool,
) -> Result<ClientSetup, ClientSetupError> {
    let (address, key) = address_and_key(options)?;
    let gateway = (!options.no_check).then(|| GatewayClient::new(&address, &key));
    let listing =
        gateway.as_ref().map(|gateway| gateway.listing(client == CodingClient::Codex)).transpose()?;
    let listing = listing.unwrap_or_default();
    let model = choose(options, &listing, gateway.as_ref())?;
    Ok(ClientSetup { address, key, model, listing, key_in_file, session: plan::session_id()? })
}

/// Returns the chosen model with its limits. `None` if the user chose none. `gateway` is `None` if it must not be asked.
fn choose(
    options: &GatewayOptions,
    listing: &GatewayModels,
    gateway: Option<&GatewayClient<'_>>,
) -> Result<Option<GatewayModel>, ClientSetupError> {
    let Some(id) = &options.model else { return Ok(None) };
    let error = || ClientSetupError::NoSuchModel { model: id.clone(), known: listing.named(id) };
    if !listing::is_model_id(id) {
        return Err(error());
    }
    if listing.others.contains(id) {
        let known = listing.named(id);
        return Err(ClientSetupError::NotConversational { model: id.clone(), known });
    }
    let found = match (listing.find(id), gateway) {
        (Some(found), _) => Some(found.clone()),
        // Requests may use more names than the listing has: aliases, and those of a provider.
        (None, Some(gateway)) => Some(gateway.model(id)?.ok_or_else(error)?),
        (None, None) => None,
    };
    let found = found.unwrap_or_default();
    let alias_of = found.alias_of.or_else(|| gateway.is_none().then(|| claude::alias_of(id)).flatten());
    Ok(Some(GatewayModel {
        id: id.clone(),
        window: options.context_window.or(found.window),
        max_output: options.max_output.or(found.max_output),
        alias_of,
    }))
}
