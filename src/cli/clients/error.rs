//! Errors of the commands for coding clients.

use std::io;
use std::path::PathBuf;

use super::edit::SyntaxFault;

/// Reason why a command for a coding client failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientSetupError {
    #[error("--url: {0}")]
    Url(String),
    #[error("no key: set MODEL_GATEWAY_KEY, or name a file with --key-file")]
    NoKey,
    #[error("the key of {from} is not valid: {what}")]
    Key { from: String, what: &'static str },
    #[error("cannot connect to {url}: {what}")]
    Connect { url: String, what: String },
    #[error("{url} refused the key of {from} (status {status})")]
    Unauthorized { url: String, from: String, status: u16 },
    #[error("{url} answered with status {status}; is this the address of a gateway?")]
    Status { url: String, status: u16 },
    #[error("{url} did not answer with a list of models: {what}")]
    Listing { url: String, what: String },
    #[error("-m: the gateway has no model {model:?}; it has {known}")]
    NoSuchModel { model: String, known: String },
    #[error("-m: {model} is no model for conversations; the gateway has {known}")]
    NotConversational { model: String, known: String },
    #[error("{client} needs a model: choose one with -m; the gateway has {known}")]
    ModelRequired { client: &'static str, known: String },
    #[error("the environment variable HOME is not set, so the settings of {0} cannot be found")]
    NoHome(&'static str),
    #[error("{} is not on the PATH; to install it: {install}", .program)]
    NotInstalled { program: &'static str, install: &'static str },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{}:{}: {}", .path.display(), .fault.line, .fault.what)]
    Syntax { path: PathBuf, fault: SyntaxFault },
    #[error("{}: {what}", .path.display())]
    File { path: PathBuf, what: String },
    #[error("{} is not a receipt of this program: {what}", .path.display())]
    Receipt { path: PathBuf, what: String },
    #[error("{client} is not configured by model-gateway: there is no receipt {}", .path.display())]
    NotConfigured { client: &'static str, path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

impl ClientSetupError {
    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        ClientSetupError::Io { what: what.into(), source }
    }
}
