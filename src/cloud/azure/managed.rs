//! Managed identities: tokens of the machine's own metadata server.

use std::path::PathBuf;

use http::{HeaderName, Method, header};

use super::entra::check_id;
use crate::oauth::{CredentialFileError, METADATA_TIMEOUT, SecretText, TokenEndpoint};
use crate::token::TokenRequest;

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
    /// Server of a machine that Azure Arc manages, by its address (`IDENTITY_ENDPOINT`, beside `IMDS_ENDPOINT`).
    Arc(Box<str>),
}

/// Folder in which the agent of Azure Arc writes the proofs that it demands.
const ARC_FOLDER: &str = "/var/opt/azcmagent/tokens/";
/// Ending of the names of these files.
const ARC_ENDING: &str = ".key";
/// Largest proof, in bytes. Source: Azure Arc, "Authenticate against Azure resources with Azure Arc-enabled servers".
const MAX_ARC_PROOF: usize = 4_096;

/// Managed identity.
#[derive(Clone, Debug, Hash)]
pub struct ManagedIdentity {
    url: TokenEndpoint,
    /// Header of App Service; `None` on a virtual machine.
    header: Option<SecretText>,
    /// Whether the server answers the first request with a challenge (Azure Arc).
    is_arc: bool,
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
        let is_arc = matches!(endpoint, IdentityEndpoint::Arc(_));
        if is_arc && client_id.is_some() {
            let reason = "must not be set with Azure Arc, whose machines have one identity only";
            return Err(CredentialFileError::field("client_id", reason));
        }
        let (url, field, version, header) = match endpoint {
            IdentityEndpoint::Machine(host) => {
                let url = format!("{}/metadata/identity/oauth2/token", host.trim_end_matches('/'));
                (url, "AZURE_POD_IDENTITY_AUTHORITY_HOST", "2018-02-01", None)
            }
            IdentityEndpoint::AppService { url, header } => {
                (url.into_string(), "IDENTITY_ENDPOINT", "2019-08-01", Some(header))
            }
            IdentityEndpoint::Arc(url) => (url.into_string(), "IDENTITY_ENDPOINT", "2019-11-01", None),
        };
        let url = TokenEndpoint::parse(&url)
            .map_err(|error| CredentialFileError::field(field, error.to_string()))?
            .with_query(&[("api-version", version)]);
        Ok(ManagedIdentity { url, header, is_arc, client_id: client_id.map(Into::into) })
    }

    pub(super) fn secrets(&self) -> Vec<SecretText> {
        self.header.iter().cloned().collect()
    }

    pub(super) fn request(&self, scope: &str) -> TokenRequest {
        let resource = scope.strip_suffix("/.default").unwrap_or(scope);
        let mut query = vec![("resource", resource)];
        query.extend(self.client_id.as_deref().map(|id| ("client_id", id)));
        let url = self.url.with_query(&query).to_string();
        let mut request = TokenRequest::new(Method::GET, url, METADATA_TIMEOUT);
        request.reads_challenge = self.is_arc;
        match &self.header {
            Some(value) => request.with_header(HeaderName::from_static("x-identity-header"), value.expose()),
            None => request.with_header(HeaderName::from_static("metadata"), "true"),
        }
    }

    /// Returns the file with the proof that a challenge of Azure Arc demands: one of its agent, which only the
    /// administrators of the machine can write. Another file would be sent to a server that merely claims to be the agent.
    ///
    /// # Errors
    /// Returns the violated rule.
    pub(super) fn proof_file(challenge: &str) -> Result<PathBuf, &'static str> {
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let realm = parameters.trim().strip_prefix("realm=").filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let path = realm.ok_or("its challenge is not that of Azure Arc")?.trim_matches('"');
        let name = path.strip_prefix(ARC_FOLDER).and_then(|rest| rest.strip_suffix(ARC_ENDING));
        let is_name = name.is_some_and(|name| !name.is_empty() && !name.contains(['/', '\\']));
        is_name
            .then(|| PathBuf::from(path))
            .ok_or("its challenge names a file that is none of Azure Arc's agent")
    }

    /// Returns the request with the proof of a file.
    ///
    /// # Errors
    /// Returns the violated rule.
    pub(super) fn request_with_proof(
        &self,
        scope: &str,
        proof: &SecretText,
    ) -> Result<TokenRequest, &'static str> {
        if proof.expose().is_empty() || proof.expose().len() > MAX_ARC_PROOF {
            return Err("the proof that it demands is empty or larger than 4 KiB");
        }
        let mut request = self.request(scope);
        request.reads_challenge = false;
        Ok(request.with_header(header::AUTHORIZATION, &format!("Basic {}", proof.expose())))
    }
}
