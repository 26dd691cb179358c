//! `[provider.google]`: where the access tokens of Google Cloud come from.

use std::path::{Path, PathBuf};

use super::node::{ConfigTable, Value};
use super::routes::one_of;
use super::secret::{self, Vault};
use super::signing_key::rsa_signer;
use cloud::google::{GoogleCredential, METADATA_HOST, MetadataServer};
use codec::provider::ProviderKind;

/// Place of the credentials of `gcloud auth application-default login`, below the folder of gcloud's settings.
const GCLOUD_FILE: &str = "application_default_credentials.json";

/// Kinds of providers whose services take access tokens of Google Cloud.
pub(super) const KINDS: [ProviderKind; 3] =
    [ProviderKind::Vertex, ProviderKind::VertexAnthropic, ProviderKind::OpenAiCompatible];

/// Values of `source`.
pub(super) const SOURCES: [&str; 2] = ["default", "metadata"];

/// Where a credential comes from.
enum Origin {
    /// The places of Application Default Credentials, in their order.
    Default,
    /// The metadata server.
    Metadata,
    /// A credential file.
    File(PathBuf),
    /// An environment variable with the text of a credential file.
    Env(String),
}

/// Reads the credential of a provider. `None` after a fault, and if secrets are not read.
pub(super) fn read(value: &Value<'_>, folder: &Path, vault: &dyn Vault) -> Option<GoogleCredential> {
    let (origin, account) = value.as_table(|table| {
        let source = table.get("source").and_then(|value| {
            value.parsed(|text| match text {
                "default" => Ok(Origin::Default),
                "metadata" => Ok(Origin::Metadata),
                other => Err(one_of(other, &SOURCES)),
            })
        });
        let file = table.string("file").map(|path| Origin::File(path.into()));
        let env = table.string("env").map(Origin::Env);
        let account = table.string("service_account");
        (one_origin(table, [source, file, env]), account)
    })?;
    let origin = origin?;
    if account.is_some() && matches!(origin, Origin::File(_) | Origin::Env(_)) {
        let hint = "remove `service_account`, or set `source = \"metadata\"`".to_owned();
        value.wrong("service_account selects an account of the metadata server", hint);
    }
    if !vault.reads() {
        return None;
    }
    let account = account.as_deref().unwrap_or("default");
    let found = match origin {
        Origin::Default => find_default(account, vault),
        Origin::Metadata => metadata(account, vault),
        Origin::File(path) => secret::expand(&path, folder, vault).and_then(|path| read_file(&path, vault)),
        Origin::Env(name) => match vault.env(&name) {
            Some(text) => parse(&format!("the environment variable {name}"), &text, vault),
            None => Err(format!("the environment variable {name} is not set")),
        },
    };
    found.map_err(|reason| value.wrong(reason, None)).ok()
}

fn one_origin(table: &ConfigTable<'_>, origins: [Option<Origin>; 3]) -> Option<Origin> {
    let mut named: Vec<Origin> = origins.into_iter().flatten().collect();
    if named.len() != 1 {
        let hint = "for example: google = { source = \"default\" }, or { file = \"%d/google.json\" }";
        table.wrong("google must have exactly one of source, file and env", hint.to_owned());
        return None;
    }
    named.pop()
}

/// Finds the Application Default Credentials (AIP-4110): the file that the environment names, that of gcloud, and the
/// metadata server.
fn find_default(account: &str, vault: &dyn Vault) -> Result<GoogleCredential, String> {
    if let Some(path) = named(vault, "GOOGLE_APPLICATION_CREDENTIALS") {
        return read_file(Path::new(&path), vault)
            .map_err(|reason| format!("GOOGLE_APPLICATION_CREDENTIALS: {reason}"));
    }
    let settings = named(vault, "CLOUDSDK_CONFIG").map(PathBuf::from);
    let settings = settings.or_else(|| Some(Path::new(&named(vault, "HOME")?).join(".config/gcloud")));
    if let Some(path) = settings.map(|folder| folder.join(GCLOUD_FILE)) {
        match vault.file(&path) {
            Ok(text) => return parse(&path.display().to_string(), &text, vault),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    metadata(account, vault)
}

fn metadata(account: &str, vault: &dyn Vault) -> Result<GoogleCredential, String> {
    let host = named(vault, "GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned());
    MetadataServer::new(&host, account).map(GoogleCredential::metadata).map_err(|error| error.to_string())
}

/// Returns an environment variable that is not empty.
fn named(vault: &dyn Vault, name: &str) -> Option<String> {
    vault.env(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn read_file(path: &Path, vault: &dyn Vault) -> Result<GoogleCredential, String> {
    let text = vault.file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&path.display().to_string(), &text, vault)
}

fn parse(origin: &str, text: &str, vault: &dyn Vault) -> Result<GoogleCredential, String> {
    GoogleCredential::parse(text, &rsa_signer, &|name| vault.env(name))
        .map_err(|error| format!("{origin} is no credential of Google Cloud: {error}"))
}
