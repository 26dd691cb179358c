//! Metadata server of Compute Engine, GKE and Cloud Run.
//!
//! Source: Compute Engine, "View and query VM metadata", "Create an access token for service accounts".

use http::{HeaderName, Method};

use super::SCOPE;
use crate::oauth::{CredentialFileError, METADATA_TIMEOUT, TokenEndpoint};
use crate::token::TokenRequest;

/// Host of the metadata server; `GCE_METADATA_HOST` overrides it.
pub const METADATA_HOST: &str = "metadata.google.internal";

/// Metadata server, and the service account whose tokens it gives.
#[derive(Clone, Debug, Hash)]
pub struct MetadataServer {
    token_url: TokenEndpoint,
}

impl MetadataServer {
    /// Creates the server of a host (`host` or `host:port`) for a service account of the machine: an e-mail address or
    /// `default`.
    ///
    /// # Errors
    /// Returns an error if the host is not on this machine or its link, or the account is no name of one.
    pub fn new(host: &str, account: &str) -> Result<Self, CredentialFileError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if account.is_empty() || !account.bytes().all(is_name) || account.starts_with('.') {
            let reason = "must be the e-mail address of a service account, or \"default\"";
            return Err(CredentialFileError::field("service_account", reason));
        }
        let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/{account}/token");
        let url = TokenEndpoint::parse(&url)
            .map_err(|error| CredentialFileError::field("GCE_METADATA_HOST", error.to_string()))?;
        Ok(MetadataServer { token_url: url.with_query(&[("scopes", SCOPE)]) })
    }

    pub(super) fn request(&self) -> TokenRequest {
        TokenRequest::new(Method::GET, self.token_url.to_string(), METADATA_TIMEOUT)
            .with_header(HeaderName::from_static("metadata-flavor"), "Google")
    }
}
