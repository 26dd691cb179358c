//! AWS credentials, and the scope of a signature.

use std::fmt;

/// AWS credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Access key id. It is not secret: every signed request contains it.
    pub access_key_id: Box<str>,
    /// Secret access key.
    pub secret_access_key: Box<str>,
    /// Session token of temporary credentials; `None` for the credentials of a user.
    pub session_token: Option<Box<str>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret and the token must not get into a log.
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Region and service that a signature is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialScope<'a> {
    /// Region, for example `us-east-1`.
    pub region: &'a str,
    /// Signing name of the service, for example `bedrock`.
    pub service: &'a str,
}
