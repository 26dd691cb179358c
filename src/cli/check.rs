//! `model-gateway check`

use std::process::ExitCode;

use clap::Args;

use super::{Conf, style};
use crate::config::{self, Environment, Loaded, Sealed, Vault};

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    conf: Conf,
    /// Show the configuration in effect, with all defaults; secrets are masked.
    #[arg(long)]
    print: bool,
    /// Read neither credentials nor certificates: check a configuration on a machine that must not have them.
    #[arg(long)]
    no_secrets: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    let vault: &dyn Vault = if options.no_secrets { &Sealed } else { &Environment };
    match config::load(&options.conf.conf, vault) {
        Ok(loaded) => {
            if options.print {
                print!("{}", config::effective(&loaded));
            } else {
                let routes = &loaded.snapshot.routes;
                println!(
                    "{} {}: {} models, {} providers, {} keys",
                    style::good("ok"),
                    options.conf.conf.display(),
                    routes.models().len(),
                    routes.providers().len(),
                    loaded.snapshot.keys.len()
                );
                if let Some(note) = free_models(&loaded) {
                    println!("{}", style::faint(note));
                }
                for note in empty(&loaded) {
                    eprintln!("{} {note}", style::bad("warning:"));
                }
            }
            ExitCode::SUCCESS
        }
        Err(report) => {
            for problem in &report.problems {
                eprintln!("{problem}");
            }
            let count = report.problems.len();
            eprintln!("{} {count} {}", style::bad("error:"), if count == 1 { "fault" } else { "faults" });
            ExitCode::FAILURE
        }
    }
}

/// What whoever charges for the use of models should know: those that nobody pays for.
fn free_models(loaded: &Loaded) -> Option<String> {
    if !loaded.snapshot.keys.any_account() {
        return None;
    }
    let models = loaded.snapshot.routes.models().iter();
    let free: Vec<&str> = models.filter(|model| model.price.is_empty()).map(|model| &*model.id).collect();
    (!free.is_empty()).then(|| format!("without a price, and so free for every account: {}", free.join(", ")))
}

/// What is sound and yet hardly meant: a gateway that answers nobody.
fn empty(loaded: &Loaded) -> Vec<String> {
    let snapshot = &loaded.snapshot;
    let counts = [
        (&loaded.settings.routes, "model", snapshot.routes.models().len(), "404"),
        (&loaded.settings.keys, "key", snapshot.keys.len(), "401"),
    ];
    let none = counts.into_iter().filter(|(_, _, count, _)| *count == 0);
    none.map(|(file, what, _, status)| {
        format!("{} has no {what}: every request is answered {status}", file.display())
    })
    .collect()
}
