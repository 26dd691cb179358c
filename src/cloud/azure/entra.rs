//! Applications of Microsoft Entra ID (client credentials, RFC 6749, section 4.4).

use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::oauth::{
    Assertion, AssertionAlgorithm, AssertionSigner, CredentialFileError, SERVER_TIMEOUT, SecretText,
    SharedSigner, TokenEndpoint,
};
use crate::token::{TokenError, TokenRequest};

/// Authority of the public cloud; `AZURE_AUTHORITY_HOST` overrides it.
pub const AUTHORITY: &str = "https://login.microsoftonline.com";

/// Life of an assertion in seconds: "5-10 minutes" (Microsoft identity platform, "Certificate credentials").
const ASSERTION_LIFE: i64 = 600;
/// Seconds by which an assertion is dated back, for a token server whose clock is slow.
const ASSERTION_SKEW: i64 = 10;
/// Longest tenant and client id, in bytes. Both are usually UUIDs; a tenant can also be a domain name.
const MAX_ID: usize = 256;

/// Application and its proof.
#[derive(Clone, Debug, Hash)]
pub struct EntraApplication {
    token_url: TokenEndpoint,
    client_id: Box<str>,
    proof: ClientProof,
}

/// Proof of an application.
#[derive(Clone, Debug, Hash)]
pub enum ClientProof {
    /// Client secret.
    Secret(SecretText),
    /// Certificate, whose key signs an assertion for each token.
    Certificate(EntraCertificate),
    /// File with a token of another platform (workload identity federation), read again for each token.
    TokenFile(PathBuf),
}

/// Certificate with the signer of its private key.
#[derive(Clone, Debug, Hash)]
pub struct EntraCertificate {
    /// SHA-256 of the certificate in base64url.
    thumbprint: Box<str>,
    signer: SharedSigner,
}

impl EntraCertificate {
    /// Creates a certificate (DER) with the signer of its private key.
    pub fn new(certificate: &[u8], signer: Arc<dyn AssertionSigner>) -> Self {
        let thumbprint = base64_simd::URL_SAFE_NO_PAD.encode_to_string(Sha256::digest(certificate));
        EntraCertificate { thumbprint: thumbprint.into(), signer: SharedSigner(signer) }
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: String,
    iss: &'a str,
    sub: &'a str,
    jti: String,
    nbf: i64,
    iat: i64,
    exp: i64,
}

impl EntraApplication {
    /// Creates an application. `authority` is the address of Entra ID without the tenant.
    ///
    /// # Errors
    /// Returns the field that is wrong.
    pub fn new(
        authority: &str,
        tenant: &str,
        client_id: &str,
        proof: ClientProof,
    ) -> Result<Self, CredentialFileError> {
        check_id("tenant", tenant)?;
        check_id("client_id", client_id)?;
        let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let token_url = TokenEndpoint::parse(&url)
            .map_err(|error| CredentialFileError::field("authority", error.to_string()))?;
        Ok(EntraApplication { token_url, client_id: client_id.into(), proof })
    }

    pub(super) fn proof(&self) -> &ClientProof {
        &self.proof
    }

    /// Returns the assertion that a certificate signs.
    pub(super) fn assertion(
        &self,
        certificate: &EntraCertificate,
        now: i64,
    ) -> Result<SecretText, TokenError> {
        let issued = now.saturating_sub(ASSERTION_SKEW);
        // Entra ID wants a different id in each assertion, of all gateways with this certificate: the state is random.
        let random = foldhash::quality::RandomState::default();
        let unique = format!("{:x}{:x}", random.hash_one((now, 0)), random.hash_one((now, 1)));
        let claims = Claims {
            aud: self.token_url.to_string(),
            iss: &self.client_id,
            sub: &self.client_id,
            jti: unique,
            nbf: issued,
            iat: issued,
            exp: issued.saturating_add(ASSERTION_LIFE),
        };
        let thumbprint = Some(&*certificate.thumbprint);
        let assertion = Assertion { algorithm: AssertionAlgorithm::Ps256, key_id: None, thumbprint, claims };
        assertion.sign(&certificate.signer)
    }

    /// Returns the request with a client secret.
    pub(super) fn request_with_secret(&self, scope: &str, secret: &SecretText) -> TokenRequest {
        self.request(scope, &[("client_secret", secret.expose())])
    }

    /// Returns the request with an assertion (RFC 7523).
    pub(super) fn request_with_assertion(&self, scope: &str, assertion: &SecretText) -> TokenRequest {
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        self.request(scope, &[("client_assertion_type", kind), ("client_assertion", assertion.expose())])
    }

    fn request(&self, scope: &str, proof: &[(&str, &str)]) -> TokenRequest {
        let mut form =
            vec![("grant_type", "client_credentials"), ("client_id", &*self.client_id), ("scope", scope)];
        form.extend(proof);
        TokenRequest::new(Method::POST, self.token_url.to_string(), SERVER_TIMEOUT).with_form(&form)
    }
}

/// Checks a tenant or client id, which stands in a path or a query.
pub(super) fn check_id(field: &str, id: &str) -> Result<(), CredentialFileError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > MAX_ID || !id.bytes().all(is_plain) || id.starts_with('.') {
        let reason = "must have letters, digits, hyphens and dots only, such as a UUID";
        return Err(CredentialFileError::field(field, reason));
    }
    Ok(())
}
