//! Signature that a client presents, and its verification.

use super::sign::SigningKey;
use super::{
    ALGORITHM, CanonicalRequest, CredentialScope, PathEncoding, PayloadHash, SigningDate, TERMINATOR,
};

/// Maximum difference between the date of a signature and the present time, in seconds. The one that AWS allows
/// (<https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html>).
pub const MAX_SKEW_SECONDS: i64 = 300;

/// Maximum number of signed headers. The SDKs sign at most ten.
const MAX_SIGNED_HEADERS: usize = 64;

/// Reason why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The header is not a signature of this algorithm.
    #[error("the authorization header is not a valid AWS4-HMAC-SHA256 signature")]
    Malformed,
    /// `x-amz-date` is missing, given twice, malformed or of another day than the credential scope.
    #[error("the x-amz-date header is missing, given twice, or does not match the signature")]
    Date,
    /// The date is too far from the present time.
    #[error("the signature has expired or is not yet valid; check the clock of the client")]
    Expired,
    /// A header that must be signed is not signed, or a signed header is missing.
    #[error("a header that must be signed is not signed, or is missing")]
    SignedHeaders,
    /// The body is not the signed one, or its hash is not part of the signature.
    #[error("the body does not match the signed hash")]
    Payload,
    /// The signature is not that of this request with this secret.
    #[error("the signature does not match the request")]
    Mismatch,
}

/// Signature that a client presents in its authorization header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented<'a> {
    /// Access key id, which selects the secret.
    pub access_key_id: &'a str,
    /// Region and service that the client signed for.
    pub scope: CredentialScope<'a>,
    /// Day of the credential scope, `YYYYMMDD`.
    day: &'a str,
    /// Names of the signed headers.
    signed_headers: &'a str,
    signature: [u8; 32],
}

impl<'a> Presented<'a> {
    /// Returns whether an authorization header has a signature of this algorithm, well-formed or not.
    pub fn is_present(authorization: &str) -> bool {
        authorization.starts_with(ALGORITHM)
    }

    /// Parses an authorization header.
    ///
    /// # Errors
    /// Returns [`SignatureError::Malformed`] if it is not a well-formed signature.
    pub fn parse(authorization: &'a str) -> Result<Self, SignatureError> {
        Presented::read(authorization).ok_or(SignatureError::Malformed)
    }

    fn read(authorization: &'a str) -> Option<Self> {
        let rest = authorization.strip_prefix(ALGORITHM)?;
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for part in rest.strip_prefix(' ')?.split(',') {
            let (name, value) = part.trim().split_once('=')?;
            let slot = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                _ => return None,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        // The id is the rest, because it may contain slashes itself.
        let mut parts = credential?.rsplitn(5, '/');
        let terminator = parts.next()?;
        let (service, region, day, access_key_id) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_complete = [access_key_id, region, service].iter().all(|part| !part.is_empty());
        (terminator == TERMINATOR && is_complete).then_some(())?;
        Some(Presented {
            access_key_id,
            scope: CredentialScope { region, service },
            day,
            signed_headers: signed_headers?,
            signature: digest(signature?)?,
        })
    }

    /// Checks what the head of a request tells, before its body has arrived: the date, and that all headers are signed
    /// that must be. Returns the date. `headers` are all headers of the request, `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// Returns [`SignatureError`] if the signature cannot be valid for this request at this time.
    pub fn check(&self, headers: &[(&str, &str)], now: i64) -> Result<SigningDate, SignatureError> {
        let find = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut dates = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-amz-date"));
        // The signature covers one date: of two, the second could be anything.
        let date = match (dates.next(), dates.next()) {
            (Some((_, value)), None) => SigningDate::parse(value.trim()),
            _ => None,
        };
        let date = date.filter(|date| date.day() == self.day).ok_or(SignatureError::Date)?;
        if date.unix().abs_diff(now) > MAX_SKEW_SECONDS.unsigned_abs() {
            return Err(SignatureError::Expired);
        }
        let names: Vec<&str> = self.signed_headers.split(';').collect();
        let is_sorted = names.windows(2).all(|pair| matches!(pair, [one, other] if one < other));
        if names.len() > MAX_SIGNED_HEADERS || !is_sorted {
            return Err(SignatureError::SignedHeaders);
        }
        // Headers that change the meaning of the request must not be exchangeable.
        let must_sign = |name: &str| {
            name.eq_ignore_ascii_case("host")
                || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
        };
        let all_signed = headers.iter().all(|(name, _)| !must_sign(name) || self.is_signed(name));
        let all_there = names.iter().all(|name| find(name).is_some());
        if all_signed && all_there && self.is_signed("host") && self.is_signed("x-amz-date") {
            Ok(date)
        } else {
            Err(SignatureError::SignedHeaders)
        }
    }

    /// Returns whether a header is signed.
    fn is_signed(&self, name: &str) -> bool {
        self.signed_headers.split(';').any(|signed| signed.eq_ignore_ascii_case(name))
    }

    /// Verifies the signature of a request. `headers` are all headers of the request, `target` is its path and query as
    /// received, `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// Returns [`SignatureError`] if the signature is not valid for this request, or not at this time.
    pub fn verify(
        &self,
        secret: &str,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
        payload: &PayloadHash,
        now: i64,
    ) -> Result<(), SignatureError> {
        let date = self.check(headers, now)?;
        // The hash of the body is signed in any case; a header that states it must state the same one.
        let mut declared =
            headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-amz-content-sha256"));
        if !declared.all(|(_, hash)| hash.trim() == payload.as_str()) {
            return Err(SignatureError::Payload);
        }
        let signed: Vec<(&str, &str)> = headers
            .iter()
            .filter(|(name, _)| self.is_signed(name) && !name.eq_ignore_ascii_case("x-amz-date"))
            .copied()
            .collect();
        let request = CanonicalRequest {
            method,
            target,
            headers: &signed,
            payload,
            path_encoding: PathEncoding::Normalized,
        };
        let canonical = request.build(&date, None);
        let key = SigningKey::derive(secret, self.day, self.scope);
        if key.verify(&canonical, &date, self.scope, &self.signature) {
            Ok(())
        } else {
            Err(SignatureError::Mismatch)
        }
    }
}

/// Parses 64 hexadecimal digits in lower case.
fn digest(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut out = [0; 32];
    if pairs.len() != out.len() || !rest.is_empty() {
        return None;
    }
    for (slot, [high, low]) in out.iter_mut().zip(pairs) {
        *slot = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}
