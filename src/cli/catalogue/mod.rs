//! `model-gateway catalogue`: facts and prices of models, what is missing for a configuration, and proposals from public
//! catalogues.

mod check;
mod difference;
mod import;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{complain, style};
use codec::catalogue::{Catalogue, CatalogueFault};
use config::{self, NoSecrets};

#[derive(Debug, Args)]
pub(super) struct CatalogueArgs {
    #[command(subcommand)]
    command: CatalogueCommand,
}

#[derive(Debug, Subcommand)]
enum CatalogueCommand {
    /// Show what the catalogue knows about a model: facts, prices, and where each row comes from.
    Show(show::ShowArgs),
    /// Check the models of a configuration: those without facts or a price, ends ahead, and rows that are not certain.
    ///
    /// Exit status 0 if the configuration is valid, whatever is said about it.
    Check(check::CatalogueCheckArgs),
    /// Show what a file changes when it is laid over the catalogue of the gateway. Nothing is written.
    ///
    /// Exit status 0 if the file is valid, 1 if it is not.
    Diff(difference::DiffArgs),
    /// Make a file of price rows from a public catalogue, to be reviewed and then laid over that of the gateway.
    ///
    /// Prices, limits and ends only, never rules, and only of models that the gateway's catalogue has. What the gateway
    /// cannot charge exactly is refused and listed. Nothing takes effect by itself.
    Import(import::CatalogueImportArgs),
}

pub(super) fn run(options: &CatalogueArgs) -> ExitCode {
    match &options.command {
        CatalogueCommand::Show(options) => show::run(options),
        CatalogueCommand::Check(options) => check::run(options),
        CatalogueCommand::Diff(options) => difference::run(options),
        CatalogueCommand::Import(options) => import::run(options),
    }
}

/// Catalogue of a command: that of the gateway, of a configuration, or with a file laid over it.
#[derive(Debug, Args)]
struct CatalogueSource {
    /// Configuration file, whose catalogue is used.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    conf: Option<PathBuf>,
    /// File that is laid over the catalogue of the gateway.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl CatalogueSource {
    /// Reads the catalogue. Prints the faults and returns `None` if it is not valid.
    fn read(&self) -> Option<Arc<Catalogue>> {
        let path = match &self.conf {
            Some(conf) => match config::load_gateway(conf, &NoSecrets) {
                Ok(settings) => settings.catalogue,
                Err(report) => {
                    report.problems.iter().for_each(complain);
                    return None;
                }
            },
            None => self.file.clone(),
        };
        match path {
            Some(path) => read_over(&path).map(Arc::new),
            None => Some(Catalogue::embedded().clone()),
        }
    }
}

/// Reads a file and lays it over the catalogue of the gateway. Prints what is wrong and returns `None` if it is not valid.
fn read_over(path: &Path) -> Option<Catalogue> {
    let text = read_file(path)?;
    let name = path.display().to_string();
    Catalogue::overlaid(&[(&name, &text)]).map_err(|faults| print_faults(&faults)).ok()
}

/// Reads a file that the user names. Prints the error and returns `None` if that is not possible.
fn read_file(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| complain(format_args!("{} {}: {error}", style::bad("error:"), path.display()))).ok()
}

fn print_faults(faults: &[CatalogueFault]) {
    faults.iter().for_each(complain);
    let count = faults.len();
    complain(format_args!(
        "{} {count} {}",
        style::bad("error:"),
        if count == 1 { "fault" } else { "faults" }
    ));
}
