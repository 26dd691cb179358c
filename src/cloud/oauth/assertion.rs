//! Signed assertions (JWT, RFC 7519) in the compact serialization of RFC 7515.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;

use super::SecretText;
use crate::token::TokenError;

/// Signature algorithm of an assertion (RFC 7518, section 3.1). Both need an RSA key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AssertionAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PSS with SHA-256.
    Ps256,
}

impl AssertionAlgorithm {
    /// Returns the value of `alg`.
    pub const fn name(self) -> &'static str {
        match self {
            AssertionAlgorithm::Rs256 => "RS256",
            AssertionAlgorithm::Ps256 => "PS256",
        }
    }
}

/// Private key that signs assertions.
pub trait AssertionSigner: Send + Sync {
    /// Signs a message. `None` if the key cannot sign.
    fn sign(&self, algorithm: AssertionAlgorithm, message: &[u8]) -> Option<Vec<u8>>;

    /// Returns a hash of the key: equal for equal keys only.
    fn key_hash(&self) -> [u8; 32];
}

/// Shared signer, which compares by its key and is not printed.
#[derive(Clone)]
pub(crate) struct SharedSigner(pub(crate) Arc<dyn AssertionSigner>);

impl fmt::Debug for SharedSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Hash for SharedSigner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key_hash().hash(state);
    }
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
    #[serde(rename = "x5t#S256", skip_serializing_if = "Option::is_none")]
    thumbprint: Option<&'a str>,
}

/// Assertion before its signature.
pub(crate) struct Assertion<'a, C> {
    /// Signature algorithm.
    pub(crate) algorithm: AssertionAlgorithm,
    /// Id of the key (`kid`); `None` to leave it out.
    pub(crate) key_id: Option<&'a str>,
    /// SHA-256 of the certificate in base64url (`x5t#S256`); `None` to leave it out.
    pub(crate) thumbprint: Option<&'a str>,
    /// Claims.
    pub(crate) claims: C,
}

impl<C: Serialize> Assertion<'_, C> {
    /// Signs the assertion.
    ///
    /// # Errors
    /// Returns [`TokenError::Configuration`] if the key cannot sign.
    pub(crate) fn sign(&self, signer: &SharedSigner) -> Result<SecretText, TokenError> {
        let header =
            Header { alg: self.algorithm.name(), typ: "JWT", kid: self.key_id, thumbprint: self.thumbprint };
        let cannot = || TokenError::Configuration("the private key cannot sign".to_owned());
        let encode = |json: Vec<u8>| base64_simd::URL_SAFE_NO_PAD.encode_to_string(json);
        let mut text = encode(serde_json::to_vec(&header).map_err(|_| cannot())?);
        text.push('.');
        text.push_str(&encode(serde_json::to_vec(&self.claims).map_err(|_| cannot())?));
        let signature = signer.0.sign(self.algorithm, text.as_bytes()).ok_or_else(cannot)?;
        text.push('.');
        text.push_str(&encode(signature));
        Ok(SecretText::new(text))
    }
}
