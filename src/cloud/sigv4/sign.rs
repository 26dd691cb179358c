//! Signer of requests.

use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::canonical::Canonical;
use super::{ALGORITHM, CanonicalRequest, CredentialScope, Credentials, SigningDate, TERMINATOR, push_hex};

/// Headers that a signed request has in addition to the signed ones.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedHeaders {
    /// Value of `authorization`.
    pub authorization: String,
    /// Date, the value of `x-amz-date`.
    pub date: SigningDate,
    /// Value of `x-amz-security-token`; `None` for credentials without a session.
    pub session_token: Option<Box<str>>,
}

impl std::fmt::Debug for SignedHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret, and the signature is valid for minutes.
        f.debug_struct("SignedHeaders").field("date", &self.date.as_str()).finish_non_exhaustive()
    }
}

/// Signing key: derived from the secret, and valid for one day, region and service.
#[derive(Clone)]
pub struct SigningKey([u8; 32]);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Derives the key of a day (`YYYYMMDD`).
    pub fn derive(secret: &str, day: &str, scope: CredentialScope<'_>) -> Self {
        let mut key = mac(&["AWS4", secret].concat().into_bytes(), day.as_bytes());
        for part in [scope.region, scope.service, TERMINATOR] {
            key = mac(&key, part.as_bytes());
        }
        SigningKey(key)
    }

    /// Returns the signature of a canonical request.
    pub(super) fn signature(
        &self,
        canonical: &Canonical,
        date: &SigningDate,
        scope: CredentialScope<'_>,
    ) -> [u8; 32] {
        mac(&self.0, &string_to_sign(canonical, date, scope))
    }

    /// Returns whether this is the signature of a canonical request. Takes the same time for every wrong signature.
    pub(super) fn verify(
        &self,
        canonical: &Canonical,
        date: &SigningDate,
        scope: CredentialScope<'_>,
        signature: &[u8; 32],
    ) -> bool {
        let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return false };
        hmac.update(&string_to_sign(canonical, date, scope));
        hmac.verify_slice(signature).is_ok()
    }
}

/// Returns the HMAC of a text.
fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    // A key of any length is valid; the error exists for other algorithms.
    let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    hmac.update(text);
    hmac.finalize().into_bytes().into()
}

/// Returns the string to sign of a canonical request.
pub(super) fn string_to_sign(
    canonical: &Canonical,
    date: &SigningDate,
    scope: CredentialScope<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    for part in [ALGORITHM, "\n", date.as_str(), "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    push_scope(date, scope, &mut out);
    out.push(b'\n');
    canonical.push_hash(&mut out);
    out
}

fn push_scope(date: &SigningDate, scope: CredentialScope<'_>, out: &mut Vec<u8>) {
    for part in [date.day(), "/", scope.region, "/", scope.service, "/", TERMINATOR] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Signer of requests with one set of credentials.
#[derive(Debug)]
pub struct Signer {
    credentials: Credentials,
    region: Box<str>,
    service: Box<str>,
    /// Signing key of the last day, which four of the five HMACs of a signature are for.
    key: Mutex<Option<([u8; 8], SigningKey)>>,
}

impl Signer {
    /// Creates a signer of requests to one service in one region.
    pub fn new(credentials: Credentials, scope: CredentialScope<'_>) -> Self {
        Signer {
            credentials,
            region: scope.region.into(),
            service: scope.service.into(),
            key: Mutex::new(None),
        }
    }

    /// Returns the region and the service.
    pub fn scope(&self) -> CredentialScope<'_> {
        CredentialScope { region: &self.region, service: &self.service }
    }

    /// Signs a request at a Unix time, in seconds. The body and all signed headers must be sent as they are; nothing may
    /// change them later.
    pub fn sign(&self, request: &CanonicalRequest<'_>, unix_seconds: i64) -> SignedHeaders {
        let date = SigningDate::from_unix(unix_seconds);
        let token = self.credentials.session_token.as_deref();
        let canonical = request.build(&date, token);
        let signature = self.key_of(&date).signature(&canonical, &date, self.scope());
        let mut out = Vec::with_capacity(256);
        let id = &self.credentials.access_key_id;
        for part in [ALGORITHM, " Credential=", id, "/"] {
            out.extend_from_slice(part.as_bytes());
        }
        push_scope(&date, self.scope(), &mut out);
        for part in [", SignedHeaders=", &canonical.signed_headers, ", Signature="] {
            out.extend_from_slice(part.as_bytes());
        }
        push_hex(&signature, &mut out);
        SignedHeaders {
            authorization: String::from_utf8(out).unwrap_or_default(),
            date,
            session_token: self.credentials.session_token.clone(),
        }
    }

    fn key_of(&self, date: &SigningDate) -> SigningKey {
        let day: [u8; 8] = date.day().as_bytes().try_into().unwrap_or_default();
        let mut cached = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((cached_day, key)) if *cached_day == day => key.clone(),
            _ => {
                let key = SigningKey::derive(&self.credentials.secret_access_key, date.day(), self.scope());
                *cached = Some((day, key.clone()));
                key
            }
        }
    }
}
