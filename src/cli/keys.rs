//! `model-gateway keys`: administration of keys.toml.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use super::out::say;
use super::record::{CommandChange, recorded};
use super::{Conf, complain, fail, style};
use codec::canonical::time::rfc3339;
use codec::canonical::{ServiceTier, TierSet};
use config::{self, KeySettings, KeysFile, KeysFileChange, KeysFileError, StoreSettings};
use routing::account::{Losses, NewAccessKey, NewKey, Pattern, Permission, TierFallback, TierPolicy};

#[derive(Debug, Args)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key. It is printed once and not stored; keys.toml gets its hash.
    Create {
        /// Unique name of the key, for lists, logs and metrics.
        name: String,
        /// Permitted models, such as gpt-4o or "claude-*"; default: all.
        #[arg(long = "model", value_name = "PATTERN")]
        models: Vec<String>,
        /// Expiry time, such as 2027-01-31T00:00:00Z.
        #[arg(long, value_name = "TIME")]
        expires: Option<toml_edit::Datetime>,
        /// Policy for losses in translation: "allow" drops the element, "warn" also adds a response header, "refuse"
        /// rejects the request.
        #[arg(long, value_name = "POLICY", default_value = Losses::Warn.name(), value_parser = losses)]
        losses: Losses,
        /// Permitted service tier, such as standard or flex; default: all whose price is known.
        #[arg(long = "tier", value_name = "TIER", value_parser = service_tier)]
        tiers: Vec<ServiceTier>,
        /// What becomes of a request for another tier: "refuse" rejects it, "standard" serves it in the standard tier.
        #[arg(long, value_name = "POLICY", value_parser = tiers_else)]
        tiers_else: Option<TierFallback>,
        /// Account to charge (see model-gateway accounts create).
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Also create an access key for AWS SDKs. Its secret is written to a file beside keys.toml.
        #[arg(long)]
        aws: bool,
        #[command(flatten)]
        file: File,
    },
    /// List the keys.
    List {
        #[command(flatten)]
        file: File,
    },
    /// Enable a key.
    Enable {
        /// Name of the key.
        name: String,
        #[command(flatten)]
        file: File,
    },
    /// Give a key a new text. It is printed once and not stored; keys.toml gets its hash.
    Rotate {
        /// Name of the key.
        name: String,
        /// Time for which the old text stays valid beside the new one, such as 24h or 7d; default: none.
        #[arg(long, value_name = "TIME", value_parser = grace)]
        grace: Option<Duration>,
        #[command(flatten)]
        file: File,
    },
    /// Disable a key.
    Disable {
        /// Name of the key.
        name: String,
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Args)]
struct File {
    #[command(flatten)]
    conf: Conf,
    /// Keys file, instead of the one that the configuration names.
    #[arg(long, value_name = "FILE", conflicts_with = "conf")]
    keys: Option<PathBuf>,
}

pub(super) fn run(options: &KeysArgs) -> ExitCode {
    let done = match &options.action {
        Action::Create { name, models, expires, losses, tiers, tiers_else, account, aws, file } => {
            let permitted = (!tiers.is_empty()).then(|| TierSet::of(tiers.iter().copied()));
            let entry = KeySettings {
                models: models.clone(),
                expires: *expires,
                losses: *losses,
                account: account.clone(),
                tiers: TierPolicy { permitted, otherwise: *tiers_else },
                access_key: None,
            };
            create(file, name, entry, *aws)
        }
        Action::List { file } => list(file),
        Action::Enable { name, file } => switch(file, name, true),
        Action::Disable { name, file } => switch(file, name, false),
        Action::Rotate { name, grace, file } => rotate(file, name, *grace),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error(transparent)]
    File(#[from] KeysFileError),
    #[error("{0}")]
    Conf(#[from] config::Report),
    #[error("random numbers are not available: {0}")]
    Random(String),
    #[error("{0}")]
    Name(&'static str),
}

fn losses(word: &str) -> Result<Losses, &'static str> {
    Losses::from_name(word).ok_or("write allow, warn or refuse")
}

fn service_tier(word: &str) -> Result<ServiceTier, String> {
    let names = || ServiceTier::NAMED.map(ServiceTier::name).join(", ");
    ServiceTier::from_name(word).ok_or_else(|| format!("write one of {}", names()))
}

fn tiers_else(word: &str) -> Result<TierFallback, &'static str> {
    TierFallback::from_name(word).ok_or("write refuse or standard")
}

fn grace(text: &str) -> Result<Duration, String> {
    config::parse_grace(text)
}

/// Saves a file, and records the change of a key before.
fn save(file: &File, keys: &KeysFile, action: &'static str, name: &str) -> Result<(), KeysFileError> {
    let KeysFileChange { details, text_before } = keys.change_of(name);
    let object = format!("key/{name}");
    let change = CommandChange { action, object, details, text_before: Some(text_before) };
    let conf = file.keys.is_none().then_some(&*file.conf.conf);
    recorded(conf, change, || keys.save())
}

/// Returns the files of keys, the main file first.
fn paths(file: &File) -> Result<Vec<PathBuf>, KeysError> {
    match &file.keys {
        Some(path) => Ok(vec![path.clone()]),
        None => Ok(config::key_files(&file.conf.conf)?),
    }
}

fn open_all(file: &File) -> Result<Vec<KeysFile>, KeysError> {
    paths(file)?.iter().map(|path| Ok(KeysFile::open(path)?)).collect()
}

fn create(file: &File, name: &str, mut entry: KeySettings, aws: bool) -> Result<(), KeysError> {
    for name in [Some(name), entry.account.as_deref()].into_iter().flatten() {
        if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
            return Err(KeysError::Name("a name must have 1 to 128 bytes and no control characters"));
        }
    }
    if entry.expires.is_some_and(|time| time.offset.is_none() || time.date.is_none()) {
        return Err(KeysError::Name(
            "--expires requires a date, a time and an offset, such as 2027-01-31T00:00:00Z",
        ));
    }
    if entry.models.iter().any(|pattern| pattern.trim().is_empty()) {
        return Err(KeysError::Name(
            "--model needs a name or a pattern such as \"claude-*\"; without --model all models are permitted. For a key that \
             permits none, write models = [] in the file",
        ));
    }
    remark_on_new(file, &entry.models);
    let mut files = open_all(file)?;
    for other in &mut files {
        if other.list()?.iter().any(|listed| listed.name == name) {
            return Err(KeysFileError::Exists(name.to_owned()).into());
        }
    }
    let Some(keys) = files.first_mut() else { return Ok(()) };
    let random = |error: &dyn std::fmt::Display| KeysError::Random(error.to_string());
    let key = NewKey::generate().map_err(|error| random(&error))?;
    let access = aws.then(NewAccessKey::generate).transpose().map_err(|error| random(&error))?;
    if let Some(access) = &access {
        entry.access_key = Some(keys.save_secret(access)?);
    }
    keys.add(name, key.hash(), &entry)?;
    save(file, keys, "key.create", name)?;
    match &access {
        // Print only the key to standard output, so that it can be piped into a secret store.
        None => say!("{}", key.text()),
        // In the form that a shell and an env file read.
        Some(access) => {
            say!("AWS_ACCESS_KEY_ID={}", access.id());
            say!("AWS_SECRET_ACCESS_KEY={}", access.secret());
            say!("AWS_BEARER_TOKEN_BEDROCK={}", key.text());
        }
    }
    complain(format_args!(
        "{}",
        style::faint("The key is not shown again. A running gateway applies it on SIGHUP.")
    ));
    Ok(())
}

/// Returns the ids of the configured models. `None` if they are not known: a file of keys is given, or the configuration is
/// not valid.
fn model_ids(file: &File) -> Option<Vec<String>> {
    if file.keys.is_some() {
        return None;
    }
    let loaded = config::load(&file.conf.conf, &config::NoSecrets).ok()?;
    Some(loaded.snapshot.routes.models().iter().map(|model| model.id.to_string()).collect())
}

fn permission(patterns: &[String]) -> Permission {
    Permission::Some(patterns.iter().map(|text| Pattern::new(text.as_str())).collect())
}

/// Warns of models that there are not, and of other gateways that will not know the key.
fn remark_on_new(file: &File, models: &[String]) {
    let warn = |text: &str| complain(format_args!("{} {text}", style::bad("warning:")));
    if let Some(ids) = model_ids(file).filter(|_| !models.is_empty()) {
        let ids = || ids.iter().map(String::as_str);
        for name in permission(models).unmatched(ids()) {
            warn(&config::no_such_model(name, ids()));
        }
    }
    let is_fleet = file.keys.is_none()
        && config::store(&file.conf.conf).is_ok_and(|store| matches!(store, StoreSettings::Valkey(_)));
    if is_fleet {
        warn(
            "gateways that share a store do not share keys: the key is valid at this gateway only, until its entry is in the \
             files of the others too",
        );
    }
}

/// Returns the permitted models as they are listed, with what matches none of the configured ones.
fn listed_models(models: Option<Vec<String>>, ids: Option<&[String]>) -> String {
    let Some(models) = models else { return "all".to_owned() };
    if models.is_empty() {
        return "none (permits nothing)".to_owned();
    }
    let Some(ids) = ids else { return models.join(", ") };
    let permission = permission(&models);
    let unmatched = permission.unmatched(ids.iter().map(String::as_str));
    let marked = models.iter().map(|name| match unmatched.contains(&name.as_str()) {
        true => format!("{name} (no such model)"),
        false => name.clone(),
    });
    let marked = marked.collect::<Vec<_>>().join(", ");
    if unmatched.len() == models.len() { format!("{marked}: permits nothing") } else { marked }
}

fn list(file: &File) -> Result<(), KeysError> {
    let mut listed = Vec::new();
    for keys in &mut open_all(file)? {
        listed.extend(keys.list()?);
    }
    if listed.is_empty() {
        say!("No keys yet. To create one: model-gateway keys create NAME");
        return Ok(());
    }
    let ids = model_ids(file);
    let width = listed.iter().map(|key| key.name.chars().count()).max().unwrap_or(4).max(4);
    say!(
        "{:width$}  {:8}  {:12}  {:25}  {:6}  {:12}  models",
        "name",
        "state",
        "sha256",
        "expires",
        "losses",
        "account"
    );
    for key in listed {
        let state = if key.enabled { "enabled" } else { "disabled" };
        let models = listed_models(key.models, ids.as_deref());
        let expires = key.expires.unwrap_or_else(|| "never".to_owned());
        let losses = key.losses.unwrap_or_else(|| Losses::default().name().to_owned());
        let account = key.account.unwrap_or_else(|| "-".to_owned());
        say!(
            "{:width$}  {state:8}  {:12}  {expires:25}  {losses:6}  {account:12}  {models}",
            key.name,
            key.hash
        );
    }
    Ok(())
}

fn switch(file: &File, name: &str, enabled: bool) -> Result<(), KeysError> {
    let state = if enabled { "enabled" } else { "disabled" };
    for mut keys in open_all(file)? {
        match keys.set_enabled(name, enabled) {
            Ok(true) => {
                save(file, &keys, "key.update", name)?;
                say!("{name} is now {state}. A running gateway applies this on SIGHUP.");
                return Ok(());
            }
            Ok(false) => {
                say!("{name} was already {state}.");
                return Ok(());
            }
            Err(KeysFileError::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(KeysFileError::Unknown(name.to_owned()).into())
}

fn rotate(file: &File, name: &str, grace: Option<Duration>) -> Result<(), KeysError> {
    let key = NewKey::generate().map_err(|error| KeysError::Random(error.to_string()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let grace = grace.map(|grace| (now, now.saturating_add(i64::try_from(grace.as_secs()).unwrap_or(0))));
    for mut keys in open_all(file)? {
        match keys.rotate(name, key.hash(), grace) {
            Ok(()) => {
                save(file, &keys, "key.rotate", name)?;
                say!("{}", key.text());
                let old = match grace {
                    Some((_, until)) => format!("The old text is valid until {}.", rfc3339(until)),
                    None => "The old text is refused from then on.".to_owned(),
                };
                let note =
                    format!("The key is not shown again. A running gateway applies it on SIGHUP. {old}");
                complain(format_args!("{}", style::faint(&note)));
                return Ok(());
            }
            Err(KeysFileError::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(KeysFileError::Unknown(name.to_owned()).into())
}
