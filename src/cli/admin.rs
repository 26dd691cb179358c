//! `model-gateway admin`: tokens of the admin API, and its document.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::out::{self, say};
use super::record::{CommandChange, recorded};
use super::{Conf, complain, fail, style};
use admin::openapi_document;
use config::{self, AdminTokensError, AdminTokensFile};
use routing::account::{AdminRole, NewKey};

#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a token of the admin API. It is printed once and not stored; admin.toml gets its hash.
    Create {
        /// Unique name of the token, which the audit log shows.
        name: String,
        /// Role: read, operate (drains targets, reloads, credits accounts) or admin (changes everything).
        #[arg(long, value_name = "ROLE", default_value = AdminRole::Read.name(), value_parser = role)]
        role: AdminRole,
        /// Expiry time, such as 2027-01-31T00:00:00Z.
        #[arg(long, value_name = "TIME")]
        expires: Option<toml_edit::Datetime>,
        #[command(flatten)]
        file: File,
    },
    /// List the tokens.
    List {
        #[command(flatten)]
        file: File,
    },
    /// Enable a token.
    Enable {
        /// Name of the token.
        name: String,
        #[command(flatten)]
        file: File,
    },
    /// Disable a token.
    Disable {
        /// Name of the token.
        name: String,
        #[command(flatten)]
        file: File,
    },
    /// Print the OpenAPI document of the admin API.
    Openapi,
}

#[derive(Debug, Args)]
struct File {
    #[command(flatten)]
    conf: Conf,
    /// Tokens file, instead of the one that the configuration names.
    #[arg(long, value_name = "FILE", conflicts_with = "conf")]
    tokens: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum AdminCommandError {
    #[error(transparent)]
    File(#[from] AdminTokensError),
    #[error("{0}")]
    Conf(#[from] config::Report),
    #[error("random numbers are not available: {0}")]
    Random(String),
    #[error("--expires requires a date, a time and an offset, such as 2027-01-31T00:00:00Z")]
    Expires,
}

fn role(word: &str) -> Result<AdminRole, String> {
    let names = || AdminRole::ALL.map(AdminRole::name).join(", ");
    AdminRole::from_name(word).ok_or_else(|| format!("one of {}", names()))
}

impl File {
    fn path(&self) -> Result<PathBuf, AdminCommandError> {
        match &self.tokens {
            Some(path) => Ok(path.clone()),
            None => Ok(config::admin_tokens_path(&self.conf.conf)?),
        }
    }
}

pub(super) fn run(options: &AdminArgs) -> ExitCode {
    let done = match &options.action {
        Action::Create { name, role, expires, file } => create(file, name, *role, *expires),
        Action::List { file } => list(file),
        Action::Enable { name, file } => switch(file, name, true),
        Action::Disable { name, file } => switch(file, name, false),
        Action::Openapi => openapi(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn create(
    file: &File,
    name: &str,
    role: AdminRole,
    expires: Option<toml_edit::Datetime>,
) -> Result<(), AdminCommandError> {
    if expires.is_some_and(|time| time.offset.is_none() || time.date.is_none()) {
        return Err(AdminCommandError::Expires);
    }
    let mut tokens = AdminTokensFile::open(&file.path()?)?;
    let token =
        NewKey::generate_admin_token().map_err(|error| AdminCommandError::Random(error.to_string()))?;
    tokens.add(name, token.hash(), role, expires)?;
    let expires = expires.map(|time| time.to_string());
    save(file, &tokens, "token.create", (name, json!({ "role": role.name(), "expires": expires })))?;
    // Print only the token to standard output, so that it can be piped into a secret store.
    say!("{}", token.text());
    complain(format_args!(
        "{}",
        style::faint("The token is not shown again. A running gateway applies it on SIGHUP.")
    ));
    Ok(())
}

/// Saves the file, and records the change of a token before.
fn save(
    file: &File,
    tokens: &AdminTokensFile,
    action: &'static str,
    (name, after): (&str, Value),
) -> Result<(), AdminTokensError> {
    let object = format!("token/{name}");
    let change = CommandChange { action, object, details: json!({ "after": after }), text_before: None };
    let conf = file.tokens.is_none().then_some(&*file.conf.conf);
    recorded(conf, change, || tokens.save(conf))
}

fn list(file: &File) -> Result<(), AdminCommandError> {
    let tokens = config::load_admin_access(&file.path()?, &config::NoSecrets)?.tokens;
    if tokens.is_empty() {
        say!("No tokens yet. To create one: model-gateway admin create NAME --role ROLE");
        return Ok(());
    }
    let width = tokens.iter().map(|token| token.name.chars().count()).max().unwrap_or(4).max(4);
    say!("{:width$}  {:8}  {:7}  expires", "name", "state", "role");
    for token in tokens {
        let state = if token.enabled { "enabled" } else { "disabled" };
        let expires = token.expires.map_or_else(|| "never".to_owned(), codec::canonical::time::rfc3339);
        say!("{:width$}  {state:8}  {:7}  {expires}", token.name, token.role.name());
    }
    Ok(())
}

fn switch(file: &File, name: &str, enabled: bool) -> Result<(), AdminCommandError> {
    let mut tokens = AdminTokensFile::open(&file.path()?)?;
    tokens.set_enabled(name, enabled)?;
    save(file, &tokens, "token.update", (name, json!({ "enabled": enabled })))?;
    let state = if enabled { "enabled" } else { "disabled" };
    say!("{name} is now {state}. A running gateway applies this on SIGHUP.");
    Ok(())
}

fn openapi() -> Result<(), AdminCommandError> {
    let text = format!("{:#}\n", openapi_document());
    out::write(text.as_bytes());
    Ok(())
}
