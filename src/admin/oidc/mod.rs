//! Sign-in at an issuer of identities: OpenID Connect Core 1.0, authorization code flow with PKCE (RFC 7636).
//!
//! The browser is sent to the issuer with a random state, nonce and code challenge; what belongs to them is in a cookie
//! that only this process can have written, so that nothing is held for those who never come back. The issuer's
//! description ([`provider`]) and keys are fetched and cached, the code is exchanged over a connection of the gateway's
//! own ([`fetch`]), and the identity token is verified ([`id_token`]). Here must not live: sessions, and which page of the
//! console is shown.

mod fetch;
mod id_token;
mod provider;
mod sign_in;
#[cfg(test)]
mod tests;

pub(super) use sign_in::OidcClient;

use routing::account::AdminRole;

/// Person whom an issuer has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuerIdentity {
    /// Name in the audit log: `oidc:` and the claim.
    pub(super) name: String,
    /// Role that the claims give.
    pub(super) role: AdminRole,
}

/// Reason why a person cannot sign in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OidcError {
    /// Too many people sign in at a time.
    #[error("too many sign-ins at a time")]
    Busy,
    /// The operating system provides no random numbers.
    #[error("random numbers are not available")]
    Random,
    /// The issuer does not answer as it must.
    #[error("{url}: {reason}")]
    Issuer {
        /// Address.
        url: String,
        /// Reason.
        reason: String,
    },
    /// The browser brings no cookie of a sign-in, an old one, or one of another process.
    #[error("the browser has not begun to sign in here, or too long ago")]
    NotBegun,
    /// The state is not the one that the browser was sent with.
    #[error("the state is another one than that of the browser")]
    State,
    /// The answer is that of another issuer (RFC 9207).
    #[error("the answer is that of another issuer")]
    OtherIssuer,
    /// The issuer refuses the person.
    #[error("the issuer refuses: {0}")]
    Refused(String),
    /// The identity token is not valid.
    #[error("the identity token is not valid: {0}")]
    Token(#[from] id_token::IdTokenFault),
    /// No claim gives a role.
    #[error("no value of the claim {claim:?} gives {name} a role")]
    NoRole {
        /// Claim.
        claim: String,
        /// Name of the person.
        name: String,
    },
}

impl OidcError {
    /// Returns what the page of the failure says.
    pub(super) const fn public_text(&self) -> &'static str {
        match self {
            OidcError::NotBegun | OidcError::State => {
                "The sign-in took too long, or began in another window. Try again."
            }
            OidcError::NoRole { .. } => {
                "You are known, but have no role here. Ask an administrator of this gateway."
            }
            OidcError::Refused(_) => "The issuer of identities has refused the sign-in.",
            OidcError::Busy => "Too many people sign in at this moment. Try again.",
            _ => "The sign-in has failed. The log of the gateway has the reason.",
        }
    }
}
