//! `catalogue import`: a file of price rows from a public catalogue. It is a proposal, which a person reviews; rules about
//! requests are never imported, because the public catalogues state them loosely.

mod compare;
mod genai_prices;
mod litellm;
mod models_dev;
mod proposal;
mod regions;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::super::out::say;
use super::super::{fail, style};
use super::print_faults;
use codec::catalogue::Catalogue;
use config::today;
use proposal::Proposal;
use report::{Permissions, Review};

#[derive(Debug, Args)]
pub(super) struct CatalogueImportArgs {
    /// Public catalogue that the file is of.
    #[arg(value_name = "SOURCE")]
    source: PublicCatalogue,
    /// File: `model_prices_and_context_window.json` of `LiteLLM`, `data.json` of genai-prices, or `api.json` of models.dev.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write, in the form of the catalogue. It must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Model whose price of 0 means that it is free. May be given several times.
    #[arg(long, value_name = "MODEL")]
    free: Vec<String>,
    /// Model whose price may be more than three times as high or as low as in the catalogue. May be given several times.
    #[arg(long, value_name = "MODEL")]
    accept: Vec<String>,
}

/// Public catalogue.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PublicCatalogue {
    /// Prices by day and tier, read by people; MIT.
    GenaiPrices,
    /// The widest coverage, with ends of models; MIT.
    Litellm,
    /// Context windows of everything else; MIT.
    ModelsDev,
}

impl PublicCatalogue {
    fn name(self) -> &'static str {
        match self {
            PublicCatalogue::GenaiPrices => "genai-prices",
            PublicCatalogue::Litellm => "litellm",
            PublicCatalogue::ModelsDev => "models.dev",
        }
    }

    fn read(self, document: &Value) -> Vec<Proposal> {
        match self {
            PublicCatalogue::GenaiPrices => genai_prices::read(document),
            PublicCatalogue::Litellm => litellm::read(document),
            PublicCatalogue::ModelsDev => models_dev::read(document),
        }
    }
}

pub(super) fn run(options: &CatalogueImportArgs) -> ExitCode {
    let Some(text) = super::read_file(&options.file) else { return ExitCode::FAILURE };
    let document = match serde_json::from_str::<Value>(&text) {
        Ok(document) => document,
        Err(error) => return fail(format_args!("{}: {error}", options.file.display())),
    };
    if options.out.exists() {
        return fail(format_args!("{} exists already", options.out.display()));
    }
    let proposals = options.source.read(&document);
    if proposals.is_empty() {
        let name = options.source.name();
        return fail(format_args!("{} has no models in the form of {name}", options.file.display()));
    }
    let permissions = Permissions { free: &options.free, accept: &options.accept };
    let review =
        match Review::of(Catalogue::embedded(), today(), proposals, &permissions, options.source.name()) {
            Ok(review) => review,
            Err(faults) => {
                print_faults(&faults);
                return fail("the proposal does not fit the catalogue, and is not written");
            }
        };
    review.lines.iter().for_each(|line| say!("{line}"));
    say!();
    say!(
        "{} same, {} new, {} differ, {} refused, {} not in the catalogue's families",
        review.same,
        review.new,
        review.differs,
        review.refused,
        review.foreign
    );
    if let Err(error) = std::fs::write(&options.out, &review.text) {
        return fail(format_args!("{}: {error}", options.out.display()));
    }
    let hint = format!("review {0}, then: catalogue = {0:?} in gateway.toml", options.out.display());
    say!("{}", style::faint(hint));
    if review.differs == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
