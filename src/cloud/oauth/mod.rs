//! OAuth 2.0 (RFC 6749) as the token servers of Google and Azure speak it: forms, answers, assertions, addresses.
//!
//! [`super::google`] and [`super::azure`] build their exchanges of these parts. Must not live here: what only one of
//! the platforms has.

mod answer;
mod assertion;
mod endpoint;
mod file_error;
mod fingerprint;

#[cfg(test)]
mod tests;

use std::fmt;

pub use answer::{MAX_DOCUMENT, parse_token};
pub(super) use answer::{Reply, string_member};
pub(super) use assertion::{Assertion, SharedSigner};
pub use assertion::{AssertionAlgorithm, AssertionSigner};
pub use endpoint::{TokenEndpoint, TokenEndpointError};
pub use file_error::CredentialFileError;
pub(super) use fingerprint::fingerprint;

use std::time::Duration;

/// Time-out of a request to a token server on the internet. They answer in well under a second; the next attempt is
/// worth more than a long wait.
pub(super) const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time-out of a request to a metadata server, which is on the same machine or its link.
pub(super) const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Secret text: a token, a client secret or a refresh token. `Debug` masks it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretText(Box<str>);

impl SecretText {
    /// Wraps a text as a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        SecretText(text.into())
    }

    /// Returns the secret text, for the code that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
