//! Google credentials: the files that Application Default Credentials name, and the metadata server.
//!
//! [`GoogleCredential::parse`] reads a credential file; the credential issues access tokens step by step
//! ([`super::token`]). Must not live here: the order in which credentials are looked for (`config`).
//!
//! Source: Google Cloud, "Authenticate by using Application Default Credentials"; AIP-4110, AIP-4112, AIP-4115, AIP-4117
//! (<https://google.aip.dev/auth>).

mod aws_subject;
mod exchange;
mod external;
mod file;
mod impersonation;
mod metadata;

#[cfg(test)]
mod tests;

pub use file::{MakeSigner, Variables};
pub use metadata::{METADATA_HOST, MetadataServer};

use super::oauth::{SecretText, SharedSigner, TokenEndpoint};
use external::ExternalAccount;
use impersonation::Impersonation;

/// Scope of all tokens: every API of the project that the account may use.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Credential that issues access tokens.
#[derive(Clone, Debug, Hash)]
pub struct GoogleCredential {
    base: BaseCredential,
    impersonation: Option<Impersonation>,
    quota_project: Option<Box<str>>,
}

#[derive(Clone, Debug, Hash)]
enum BaseCredential {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    ExternalAccount(ExternalAccount),
    Metadata(MetadataServer),
}

/// Key of a service account.
#[derive(Clone, Debug, Hash)]
struct ServiceAccount {
    email: Box<str>,
    key_id: Option<Box<str>>,
    signer: SharedSigner,
    token_url: TokenEndpoint,
    /// Whether Google's services accept the assertion itself in place of a token, so that none is requested (AIP-4111).
    self_signs: bool,
}

/// Refresh token of a user, as `gcloud auth application-default login` stores it.
#[derive(Clone, Debug, Hash)]
struct AuthorizedUser {
    client_id: Box<str>,
    client_secret: SecretText,
    refresh_token: SecretText,
    /// Whether the client proves itself in the header `authorization`, and not in the form.
    is_basic: bool,
    token_url: TokenEndpoint,
}

impl GoogleCredential {
    /// Creates the credential of the machine's metadata server.
    pub fn metadata(server: MetadataServer) -> Self {
        GoogleCredential { base: BaseCredential::Metadata(server), impersonation: None, quota_project: None }
    }

    /// Returns the project that is charged for the calls (`x-goog-user-project`); `None` if the file names none.
    pub fn quota_project(&self) -> Option<&str> {
        self.quota_project.as_deref()
    }
}
