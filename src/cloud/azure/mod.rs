//! Azure credentials: an application of Microsoft Entra ID that proves itself with a secret, a certificate or the token
//! of another platform, and the managed identity of the machine.
//!
//! Must not live here: the environment variables and files that name a credential (`config`).
//!
//! Source: Microsoft identity platform, "OAuth 2.0 client credentials flow"; Azure, "How to use managed identities for
//! Azure resources on an Azure VM to acquire an access token", "How to use managed identities for App Service".

mod entra;
mod exchange;
mod managed;

#[cfg(test)]
mod tests;

pub use entra::{AUTHORITY, ClientProof, EntraApplication, EntraCertificate};
pub use managed::{IDENTITY_HOST, IdentityEndpoint, ManagedIdentity};

use super::oauth::CredentialFileError;

/// Scope of Azure OpenAI (Azure OpenAI, "How to configure with Microsoft Entra ID authentication").
pub const SCOPE_OPENAI: &str = "https://cognitiveservices.azure.com/.default";
/// Scope of Claude in Foundry (Microsoft Foundry, "Deploy and use Claude models").
pub const SCOPE_FOUNDRY: &str = "https://ai.azure.com/.default";

/// Credential that issues access tokens for one scope.
#[derive(Clone, Debug, Hash)]
pub struct AzureCredential {
    scope: Box<str>,
    identity: AzureIdentity,
}

/// Identity whose tokens are issued.
#[derive(Clone, Debug, Hash)]
pub enum AzureIdentity {
    /// Application, which proves itself to Entra ID.
    Application(EntraApplication),
    /// Managed identity of the machine.
    Managed(ManagedIdentity),
}

impl AzureCredential {
    /// Creates a credential for a scope, which ends with `/.default`.
    ///
    /// # Errors
    /// Returns an error if the scope is none.
    pub fn new(scope: &str, identity: AzureIdentity) -> Result<Self, CredentialFileError> {
        let is_plain = scope.len() <= 256 && scope.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || scope.strip_suffix("/.default").is_none_or(str::is_empty) {
            let reason = "must be the address of a service with /.default at its end";
            return Err(CredentialFileError::field("scope", reason));
        }
        Ok(AzureCredential { scope: scope.into(), identity })
    }
}
