//! Access to a cloud platform: where a provider's short-lived credentials come from, and what they sign.

use std::sync::Arc;

use cloud::token::CredentialSource;

/// Access to a cloud platform.
#[derive(Clone, Debug)]
pub struct CloudAccess {
    /// Source of the credentials.
    pub source: Arc<dyn CredentialSource>,
    /// What a signature is valid for; `None` if the source issues tokens, which sign nothing.
    pub signing: Option<SigningScope>,
}

/// Region and service that signatures are valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningScope {
    /// Region, for example `us-east-1`.
    pub region: Box<str>,
    /// Signing name of the service, for example `bedrock`.
    pub service: Box<str>,
}

impl CloudAccess {
    /// Returns whether two ways of access lead to the same credentials and signatures.
    pub fn is_same(&self, other: &CloudAccess) -> bool {
        self.signing == other.signing && self.source.fingerprint() == other.source.fingerprint()
    }
}
