//! Import of texts that are in memory, without files and without an environment: what the fuzz target calls.

use std::path::Path;

use super::document::{FieldResult, SourceFault};
use super::{Imported, bifrost, channels, check, json, litellm, portkey, shown, texts, yaml};

/// Format of a text that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// config.yaml of LiteLLM.
    Litellm,
    /// config.json of Bifrost.
    Bifrost,
    /// Config object or conf.json of Portkey.
    Portkey,
    /// Dump of New API's SQLite database.
    NewApi,
    /// Dump of One API's SQLite database.
    OneApi,
}

/// Failure of importing a text.
#[derive(Debug, thiserror::Error)]
pub enum ImportTextError {
    /// The text is not one of its format.
    #[error("{0}")]
    Source(String),
    /// The result is not a valid configuration: a fault of the importer.
    #[error("the result is not valid:\n{0}")]
    Invalid(config::Report),
}

/// Imports a text, and for LiteLLM the rows of its keys as JSON lines. Returns the names and the texts of the result's
/// files, which have passed the checks of `model-gateway check`.
///
/// # Errors
/// Returns an error if the text is not one of its format. [`ImportTextError::Invalid`] must not occur.
pub fn import_text(
    format: ImportFormat,
    text: &str,
    keys: &str,
) -> Result<Vec<(&'static str, String)>, ImportTextError> {
    let fault = |fault: SourceFault| ImportTextError::Source(shown(&fault));
    let Imported { mut draft, .. } = match format {
        ImportFormat::Litellm => read_litellm(text, keys).map_err(fault)?,
        ImportFormat::Bifrost => {
            json::read(text).and_then(|document| bifrost::read(&document, &|_| None)).map_err(fault)?
        }
        ImportFormat::Portkey => {
            let name = portkey::ModelName { text: "model", is_given: true };
            json::read(text).and_then(|document| portkey::read(&document, &name)).map_err(fault)?
        }
        ImportFormat::NewApi => {
            channels::of_script(text, channels::ChannelSource::NewApi).map_err(ImportTextError::Source)?
        }
        ImportFormat::OneApi => {
            channels::of_script(text, channels::ChannelSource::OneApi).map_err(ImportTextError::Source)?
        }
    };
    draft.separate_names();
    let files = texts(&draft, "a text");
    check(Path::new("."), &draft, &files).map_err(ImportTextError::Invalid)?;
    Ok(files.into_iter().map(|file| (file.name, file.text)).collect())
}

fn read_litellm(text: &str, keys: &str) -> FieldResult<Imported> {
    let mut imported = litellm::read(&yaml::read(text)?, &|_| None)?;
    let mut reader = litellm::KeyReader::new(&mut imported);
    for row in litellm::key_rows(keys)? {
        reader.key(&row)?;
    }
    reader.finish();
    Ok(imported)
}
