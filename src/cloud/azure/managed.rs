//! Managed identities: tokens of the machine's own metadata server.

use http::{HeaderName, Method};

use super::entra::check_id;
use crate::cloud::oauth::{CredentialFileError, METADATA_TIMEOUT, SecretText, TokenEndpoint};
use crate::cloud::token::TokenRequest;

/// Address of the metadata server of a virtual machine; `AZURE_POD_IDENTITY_AUTHORITY_HOST` overrides it.
pub const IDENTITY_HOST: &str = "http://169.254.169.254";

/// Server that issues the tokens of a managed identity.
#[derive(Clone, Debug)]
pub enum IdentityEndpoint {
    /// Metadata server of a virtual machine, by its address.
    Machine(Box<str>),
    /// Server of App Service, Functions and Container Apps: `IDENTITY_ENDPOINT` and `IDENTITY_HEADER`.
    AppService {
        /// Address.
        url: Box<str>,
        /// Value of the header that proves that the caller is the application.
        header: SecretText,
    },
}

/// Managed identity.
#[derive(Clone, Debug, Hash)]
pub struct ManagedIdentity {
    url: TokenEndpoint,
    /// Header of App Service; `None` on a virtual machine.
    header: Option<SecretText>,
    /// Client id of an identity that is assigned by a user; `None` for that of the machine.
    client_id: Option<Box<str>>,
}

impl ManagedIdentity {
    /// Creates an identity. `client_id` selects one that is assigned by a user.
    ///
    /// # Errors
    /// Returns the field that is wrong.
    pub fn new(endpoint: IdentityEndpoint, client_id: Option<&str>) -> Result<Self, CredentialFileError> {
        if let Some(id) = client_id {
            check_id("client_id", id)?;
        }
        let (url, field, version, header) = match endpoint {
            IdentityEndpoint::Machine(host) => {
                let url = format!("{}/metadata/identity/oauth2/token", host.trim_end_matches('/'));
                (url, "AZURE_POD_IDENTITY_AUTHORITY_HOST", "2018-02-01", None)
            }
            IdentityEndpoint::AppService { url, header } => {
                (url.into_string(), "IDENTITY_ENDPOINT", "2019-08-01", Some(header))
            }
        };
        let url = TokenEndpoint::parse(&url)
            .map_err(|error| CredentialFileError::field(field, error.to_string()))?
            .with_query(&[("api-version", version)]);
        Ok(ManagedIdentity { url, header, client_id: client_id.map(Into::into) })
    }

    pub(super) fn secrets(&self) -> Vec<SecretText> {
        self.header.iter().cloned().collect()
    }

    pub(super) fn request(&self, scope: &str) -> TokenRequest {
        let resource = scope.strip_suffix("/.default").unwrap_or(scope);
        let mut query = vec![("resource", resource)];
        query.extend(self.client_id.as_deref().map(|id| ("client_id", id)));
        let url = self.url.with_query(&query).to_string();
        let request = TokenRequest::new(Method::GET, url, METADATA_TIMEOUT);
        match &self.header {
            Some(value) => request.with_header(HeaderName::from_static("x-identity-header"), value.expose()),
            None => request.with_header(HeaderName::from_static("metadata"), "true"),
        }
    }
}
