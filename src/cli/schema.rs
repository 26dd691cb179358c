//! `model-gateway schema`: JSON Schemas of the configuration files.

use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::out;
use config::reference::ConfigFile;
use config::schema;

#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// Configuration file.
    #[arg(value_name = "FILE", value_parser = parser())]
    file: ConfigFile,
}

fn parser() -> impl clap::builder::TypedValueParser<Value = ConfigFile> {
    let names = PossibleValuesParser::new(ConfigFile::ALL.map(ConfigFile::name));
    names.try_map(|name| ConfigFile::from_name(&name).ok_or("no such file"))
}

pub(super) fn run(options: &SchemaArgs) -> ExitCode {
    out::write(schema(options.file).as_bytes());
    ExitCode::SUCCESS
}
