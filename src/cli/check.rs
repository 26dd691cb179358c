//! `model-gateway check`: validation of a configuration.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use rustix::fs::{Access, access};

use super::out::{self, say};
use super::{Conf, complain, style};
use config::{self, Environment, Loaded, NoSecrets, Vault};
use proxy::{self, CredentialReport};
use routing::account::price;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    conf: Conf,
    /// Show the configuration in effect, with all defaults; secrets are masked.
    #[arg(long)]
    print: bool,
    /// Read neither credentials nor certificates: check a configuration on a machine that must not have them.
    #[arg(long)]
    no_secrets: bool,
    /// Request the short-lived credentials of providers at cloud platforms once, and report what is wrong with them.
    #[arg(long, conflicts_with = "no_secrets")]
    credentials: bool,
}

/// Credentials that systemd gives to the packaged service while it runs. root may read them.
const SERVICE_CREDENTIALS: &str = "/run/credentials/model-gateway.service";

/// Environment of an operator, with the credentials of the running service if systemd has given none to this process.
#[derive(Debug)]
struct OperatorEnvironment;

impl Vault for OperatorEnvironment {
    fn env(&self, name: &str) -> Option<String> {
        let own = Environment.env(name);
        let of_service = || {
            let is_readable = access(SERVICE_CREDENTIALS, Access::READ_OK).is_ok();
            is_readable.then(|| SERVICE_CREDENTIALS.to_owned())
        };
        own.or_else(|| if name == "CREDENTIALS_DIRECTORY" { of_service() } else { None })
    }

    fn setting(&self, name: &str) -> Option<String> {
        Environment.setting(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        Environment.file(path)
    }

    fn instance_region(&self, endpoint: &str) -> Option<String> {
        Environment.instance_region(endpoint)
    }
}

pub(super) fn run(options: &CheckArgs) -> ExitCode {
    let vault: &dyn Vault = if options.no_secrets { &NoSecrets } else { &OperatorEnvironment };
    match config::load(&options.conf.conf, vault) {
        Ok(loaded) => {
            if options.print {
                out::write(config::effective(&loaded).as_bytes());
            } else {
                let routes = &loaded.snapshot.routes;
                say!(
                    "{} {}: {} models, {} providers, {} keys",
                    style::good("ok"),
                    options.conf.conf.display(),
                    routes.models().len(),
                    routes.providers().len(),
                    loaded.snapshot.keys.len()
                );
                if let Some(remark) = free_models(&loaded) {
                    say!("{}", style::faint(remark));
                }
                for warning in empty_files(&loaded).into_iter().chain(useless_keys(&loaded)) {
                    complain(format_args!("{} {warning}", style::bad("warning:")));
                }
            }
            for warning in ending_credentials(&loaded).into_iter().chain(ending_prices(&loaded)) {
                complain(format_args!("{} {warning}", style::bad("warning:")));
            }
            for warning in &loaded.settings.warnings {
                complain(format_args!("{} {warning}", style::bad("warning:")));
            }
            if options.credentials { check_credentials(&loaded) } else { ExitCode::SUCCESS }
        }
        Err(report) => {
            for problem in &report.problems {
                complain(format_args!("{problem}"));
            }
            let count = report.problems.len();
            complain(format_args!(
                "{} {count} {}",
                style::bad("error:"),
                if count == 1 { "fault" } else { "faults" }
            ));
            ExitCode::FAILURE
        }
    }
}

/// Requests the credentials of cloud platforms and prints the results. Fails if one of them was not issued.
fn check_credentials(loaded: &Loaded) -> ExitCode {
    let reports = match proxy::check_credentials(&loaded.snapshot, &loaded.settings.limits) {
        Ok(reports) => reports,
        Err(error) => {
            complain(format_args!("{} {error}", style::bad("error:")));
            return ExitCode::FAILURE;
        }
    };
    let mut code = ExitCode::SUCCESS;
    for CredentialReport { provider, source, outcome } in reports {
        match outcome {
            Ok(None) => say!("{} credential of {provider} ({source})", style::good("ok")),
            Ok(Some(life)) => {
                let minutes = life.as_secs() / 60;
                say!(
                    "{} credential of {provider} ({source}), valid for {minutes} minutes",
                    style::good("ok")
                );
            }
            Err(reason) => {
                complain(format_args!(
                    "{} credential of {provider} ({source}): {reason}",
                    style::bad("error:")
                ));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Returns warnings of keys that permit no model, and of their models that there are not: the first ones, and the
/// number of the others.
fn useless_keys(loaded: &Loaded) -> Vec<String> {
    const SHOWN: usize = 10;
    let ids = || loaded.snapshot.routes.models().iter().map(|model| &*model.id);
    let mut keys: Vec<_> = loaded
        .snapshot
        .keys
        .iter()
        .filter(|key| key.rules.models.permits_none(ids()) || !key.rules.models.unmatched(ids()).is_empty())
        .collect();
    keys.sort_by(|one, other| one.name.cmp(&other.name));
    let more = keys.len().saturating_sub(SHOWN);
    let text = |key: &&std::sync::Arc<routing::account::Key>| {
        let unmatched = key.rules.models.unmatched(ids());
        let what =
            unmatched.iter().map(|name| config::no_such_model(name, ids())).collect::<Vec<_>>().join(", ");
        match (key.rules.models.permits_none(ids()), what.is_empty()) {
            (true, true) => format!("key {:?} permits no model: its `models` are empty", key.name),
            (true, false) => format!("key {:?} permits no model: {what}", key.name),
            (false, _) => format!("key {:?}: {what}", key.name),
        }
    };
    let mut warnings: Vec<String> = keys.iter().take(SHOWN).map(text).collect();
    warnings.extend((more > 0).then(|| format!("{more} more keys have models that there are not")));
    warnings
}

/// Returns a text that lists the models without a price, if there are accounts that could be charged; otherwise `None`.
fn free_models(loaded: &Loaded) -> Option<String> {
    if !loaded.snapshot.keys.any_account() {
        return None;
    }
    let now = price::now();
    let models = loaded.snapshot.routes.models().iter();
    let free: Vec<&str> = models.filter(|model| model.is_unpriced(now)).map(|model| &*model.id).collect();
    let what = if loaded.settings.refuse_unpriced { "refused" } else { "free" };
    (!free.is_empty())
        .then(|| format!("models without a price, which are {what} for every account: {}", free.join(", ")))
}

/// Returns warnings about prices that end within two weeks without a row that follows.
fn ending_prices(loaded: &Loaded) -> Vec<String> {
    /// Time before the end of a price at which `check` warns, in seconds.
    const AHEAD: i64 = 14 * 86_400;
    let now = price::now();
    let models = loaded.snapshot.routes.models().iter();
    let ending = models.filter(|model| !model.price.is_unknown(now) && model.price.is_unknown(now + AHEAD));
    ending
        .map(|model| {
            let until = model.price.row_at(now).and_then(|row| row.days.until).map(price::date);
            let until = until.map(|day| format!(" on {day}")).unwrap_or_default();
            format!("model {}: its price ends{until}, and no row follows", model.id)
        })
        .collect()
}

/// Returns warnings about fixed credentials that end.
fn ending_credentials(loaded: &Loaded) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let providers = loaded.snapshot.routes.providers().iter();
    providers
        .filter_map(|provider| {
            Some(format!("provider {}: {}", provider.name, provider.end_of_credential(now)?))
        })
        .collect()
}

/// Returns warnings about files without models or keys: they are valid, but serve no request.
fn empty_files(loaded: &Loaded) -> Vec<String> {
    let snapshot = &loaded.snapshot;
    let counts = [
        (loaded.settings.routes.main(), "model", snapshot.routes.models().len(), "404"),
        (loaded.settings.keys.main(), "key", snapshot.keys.len(), "401"),
    ];
    let none = counts.into_iter().filter(|(_, _, count, _)| *count == 0);
    none.map(|(file, what, _, status)| {
        format!("{} has no {what}: every request gets the status {status}", file.display())
    })
    .collect()
}
