//! `model-gateway import`: configurations of other gateways.
//!
//! One file or folder for each source (`litellm`, `channels` for New API and One API, `bifrost`, `portkey`) reads a
//! document and records the outcome of each of its fields in a `report`. What they have in common is a `draft`,
//! which `render` makes text of. The texts pass the checks of `model-gateway check` before a file is written.

mod bifrost;
mod budget;
mod channels;
mod document;
mod draft;
mod entries;
mod file;
mod json;
mod litellm;
mod portkey;
mod render;
mod report;
mod secrets;
#[cfg(test)]
mod tests;
mod text;
mod wildcard;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{fail, out};
use config::{self, Loaded};
use document::SourceFault;
use draft::ImportDraft;
use file::OutputFile;
use report::{FieldOutcome, FieldReport};
use routing::account::price;
use secrets::ImportVault;
pub use text::{ImportFormat, ImportTextError, import_text};

/// Largest configuration file.
const MAX_CONFIG: u64 = 16 << 20;
/// Largest file of keys or other table.
const MAX_TABLE: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// Import the config.yaml of LiteLLM's proxy, and its keys.
    ///
    /// The tables are JSON lines, one row each: \copy (select row_to_json(t) from "LiteLLM_VerificationToken" t) to
    /// keys.jsonl, and likewise "LiteLLM_TeamTable" and "LiteLLM_BudgetTable". They have hashes of keys: clients keep
    /// their keys.
    Litellm {
        #[command(flatten)]
        common: Common,
        /// Rows of "LiteLLM_VerificationToken", as JSON lines.
        #[arg(long, value_name = "FILE")]
        keys: Option<PathBuf>,
        /// Rows of "LiteLLM_TeamTable", as JSON lines.
        #[arg(long, value_name = "FILE", requires = "keys")]
        teams: Option<PathBuf>,
        /// Rows of "LiteLLM_BudgetTable", as JSON lines.
        #[arg(long, value_name = "FILE", requires = "keys")]
        budgets: Option<PathBuf>,
    },
    /// Import the SQLite database of New API, or a dump of it as SQL.
    NewApi(Common),
    /// Import the SQLite database of One API, or a dump of it as SQL.
    OneApi(Common),
    /// Import the config.json of Bifrost.
    Bifrost(Common),
    /// Import a config object of Portkey, which becomes one model, or the conf.json of its gateway.
    Portkey {
        #[command(flatten)]
        common: Common,
        /// Id of the model; that of the file by default. Targets without override_params.model serve the model of this name.
        #[arg(long, value_name = "MODEL")]
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// File to import.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to which the files are written; it is created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print the report and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Failure of an import.
#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error("{}{}", path.display(), shown(fault))]
    Field { path: PathBuf, fault: SourceFault },
    #[error("{0} exists already; --force replaces it, --out selects another folder")]
    Exists(String),
    #[error("the result is not a valid configuration, and nothing was written:\n{0}")]
    Invalid(config::Report),
}

fn shown(fault: &SourceFault) -> String {
    let place = if fault.line > 0 { format!(":{}:{}", fault.line, fault.column) } else { String::new() };
    let path = if fault.path.is_empty() { String::new() } else { format!(": {}", fault.path) };
    format!("{place}{path}: {}", fault.message)
}

/// Result of reading a source.
#[derive(Default)]
struct Imported {
    draft: ImportDraft,
    report: FieldReport,
}

pub(super) fn run(options: &ImportArgs) -> ExitCode {
    match import(&options.source) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn import(source: &Source) -> Result<(), ImportError> {
    let env = |name: &str| std::env::var(name).ok();
    let (name, common, imported) = match source {
        Source::Litellm { common, keys, teams, budgets } => {
            let tables = [keys, teams, budgets].map(|path| path.as_deref());
            ("LiteLLM", common, litellm::import(&common.file, tables, &env)?)
        }
        Source::NewApi(common) => {
            ("New API", common, channels::import(&common.file, channels::ChannelSource::NewApi)?)
        }
        Source::OneApi(common) => {
            ("One API", common, channels::import(&common.file, channels::ChannelSource::OneApi)?)
        }
        Source::Bifrost(common) => ("Bifrost", common, bifrost::import(&common.file, &env)?),
        Source::Portkey { common, name } => {
            ("Portkey", common, portkey::import(&common.file, name.as_deref())?)
        }
    };
    let Imported { mut draft, mut report } = imported;
    draft.separate_names();
    let base = common.file.file_name().unwrap_or_default().to_string_lossy();
    let files = texts(&draft, &format!("{base} of {name}"));
    let loaded = check(&common.out, &draft, &files).map_err(ImportError::Invalid)?;
    add_price_remarks(&draft, &loaded, &mut report);
    add_remarks(&draft, &mut report);
    let written = if common.dry_run { Vec::new() } else { file::write(&common.out, &files, common.force)? };
    let shown = Summary::new(name, &draft, &report, &written);
    let text = if common.json { shown.json() } else { shown.text(common) };
    out::write(text.as_bytes());
    Ok(())
}

/// Returns the files of the result. The first three are the configuration.
fn texts(draft: &ImportDraft, origin: &str) -> Vec<OutputFile> {
    let mut files = vec![
        OutputFile { name: "gateway.toml", text: render::gateway(draft, origin), mode: 0o644 },
        OutputFile { name: "routes.toml", text: render::routes(draft, origin), mode: 0o644 },
        OutputFile { name: "keys.toml", text: render::keys(draft, origin), mode: 0o644 },
    ];
    if let Some(text) = render::prices(draft, origin) {
        files.push(OutputFile { name: "prices.toml", text, mode: 0o644 });
    }
    if !draft.secrets.is_empty() {
        files.push(OutputFile { name: secrets::FILE, text: draft.secrets.text(), mode: 0o600 });
    }
    if let Some(text) = render::accounts(draft, origin) {
        files.push(OutputFile { name: "accounts.sh", text, mode: 0o700 });
    }
    files
}

/// Checks the texts as `model-gateway check` does, with the secrets of the import.
fn check(folder: &Path, draft: &ImportDraft, files: &[OutputFile]) -> Result<Loaded, config::Report> {
    let text = |at: usize| files.get(at).map_or("", |file| file.text.as_str());
    let vault = ImportVault(&draft.secrets);
    let prices = files.iter().find(|file| file.name == "prices.toml").map(|file| file.text.as_str());
    config::load_texts_with_prices(folder, [text(0), text(1), text(2)], prices, &vault)
}

/// Says which models without a price in the source have that of the catalogue, and which have none.
fn add_price_remarks(draft: &ImportDraft, loaded: &Loaded, report: &mut FieldReport) {
    let (mut listed, mut unpriced) = (Vec::new(), Vec::new());
    for draft in draft.models.iter().filter(|model| model.price.is_empty()) {
        let Some(model) = loaded.snapshot.routes.model(&draft.id) else { continue };
        let is_unpriced = model.is_unpriced(price::now());
        if is_unpriced { &mut unpriced } else { &mut listed }.push(draft.id.as_str());
    }
    if !listed.is_empty() {
        report.remark(format!(
            "the source has no price of these models; they have the list prices of the gateway's catalogue, which you must \
             compare with your contracts (model-gateway catalogue show MODEL): {}",
            listed.join(", ")
        ));
    }
    if !unpriced.is_empty() {
        let effect = if loaded.settings.refuse_unpriced {
            "and keys with an account are refused them"
        } else {
            "and they are free"
        };
        report.remark(format!(
            "no price of these models is known, {effect} until you set model.price, or prices (docs/accounts.md): {}",
            unpriced.join(", ")
        ));
    }
}

/// Adds what the operator has to do after any import.
fn add_remarks(draft: &ImportDraft, report: &mut FieldReport) {
    let missing: Vec<&str> = draft.secrets.missing().collect();
    if !missing.is_empty() {
        report.remark(format!(
            "set the environment variables {}: the gateway reads them at startup",
            missing.join(", ")
        ));
    }
    if draft.keys.is_empty() {
        report.remark("no key was imported, and the gateway serves no request without one: model-gateway keys create NAME");
    }
    if draft.models.is_empty() {
        report.remark("no model was imported: add [[model]] tables to routes.toml");
    }
    if !draft.accounts.is_empty() {
        report.remark(
            "run accounts.sh before the first request: it creates the accounts and credits their balances",
        );
    }
}

/// What is printed.
#[derive(Serialize)]
struct Summary<'r> {
    source: &'r str,
    providers: usize,
    models: usize,
    keys: usize,
    accounts: usize,
    taken: usize,
    changed: usize,
    impossible: usize,
    /// Written files; empty with `--dry-run`.
    files: Vec<String>,
    #[serde(flatten)]
    report: &'r FieldReport,
}

impl<'r> Summary<'r> {
    fn new(source: &'r str, draft: &ImportDraft, report: &'r FieldReport, files: &[PathBuf]) -> Summary<'r> {
        Summary {
            source,
            providers: draft.providers.len(),
            models: draft.models.len(),
            keys: draft.keys.len(),
            accounts: draft.accounts.len(),
            taken: report.count(FieldOutcome::Taken),
            changed: report.count(FieldOutcome::Changed),
            impossible: report.count(FieldOutcome::Impossible),
            files: files.iter().map(|path| path.display().to_string()).collect(),
            report,
        }
    }

    fn json(&self) -> String {
        // A structure of texts and numbers cannot fail to serialize.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn text(&self, common: &Common) -> String {
        let mut out = self.report.text();
        out += &format!(
            "{}: {} providers, {} models, {} keys; {} fields taken over, {} changed, {} not possible\n",
            self.source, self.providers, self.models, self.keys, self.taken, self.changed, self.impossible
        );
        if common.dry_run {
            out += "Nothing was written (--dry-run).\n";
        } else {
            let conf = common.out.join("gateway.toml");
            out += &format!("Written: {}\n", self.files.join(", "));
            out += &format!("Next: model-gateway check --conf {}\n", conf.display());
        }
        out
    }
}
