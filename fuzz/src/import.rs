//! Target for the importers of other gateways' configurations.

use model_gateway::cli::import::{ImportFormat, ImportTextError, import_text};

/// A configuration of another gateway, after a line with its name, and for LiteLLM rows of keys after a line of `===`: what
/// the importer takes for one becomes a valid configuration, and the same one each time.
pub fn import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (name, text) = text.split_once('\n').unwrap_or(("litellm", text));
    let format = match name {
        "bifrost" => ImportFormat::Bifrost,
        "portkey" => ImportFormat::Portkey,
        "new-api" => ImportFormat::NewApi,
        "one-api" => ImportFormat::OneApi,
        _ => ImportFormat::Litellm,
    };
    let (text, keys) = text.split_once("\n===\n").unwrap_or((text, ""));
    let files = match import_text(format, text, keys) {
        Ok(files) => files,
        Err(ImportTextError::Source(message)) => return assert!(!message.is_empty()),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(import_text(format, text, keys).unwrap(), files);
}
