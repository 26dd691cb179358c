//! Identity tokens: JSON Web Tokens (RFC 7515, RFC 7519) of an issuer, verified as OpenID Connect Core 1.0 demands
//! (section 3.1.3.7).

use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::provider::IssuerKey;

/// Longest token in bytes.
const LONGEST: usize = 64 << 10;
/// Difference of clocks that is tolerated, in seconds.
const LEEWAY: i64 = 60;
/// Longest age of a token in seconds: it was issued for this sign-in.
const MAX_AGE: i64 = 600;

/// Reason why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdTokenFault {
    /// It is no signed token.
    #[error("it is no signed JSON Web Token")]
    Form,
    /// The header demands something that is not understood.
    #[error("its header has critical extensions")]
    Critical,
    /// The algorithm is none of those that are permitted.
    #[error("its algorithm is not RS256, ES256 or EdDSA")]
    Algorithm,
    /// No key of the issuer has signed it.
    #[error("no key of the issuer fits")]
    Key,
    /// The signature is wrong.
    #[error("its signature is wrong")]
    Signature,
    /// A claim is missing or wrong.
    #[error("the claim {0} is missing or wrong")]
    Claim(&'static str),
}

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'e> {
    /// Issuer.
    pub(super) issuer: &'e str,
    /// Id of the gateway at the issuer.
    pub(super) client_id: &'e str,
    /// Nonce of the sign-in.
    pub(super) nonce: &'e str,
    /// Access token that came along. `None` if there was none.
    pub(super) access_token: Option<&'e str>,
    /// Present time in Unix seconds.
    pub(super) now: i64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Verifies a token. Returns its claims.
///
/// # Errors
/// Returns the first fault. [`IdTokenFault::Key`] can mean that the issuer has new keys.
pub(super) fn verify(
    token: &str,
    keys: &[IssuerKey],
    expected: Expected<'_>,
) -> Result<Map<String, Value>, IdTokenFault> {
    if token.len() > LONGEST {
        return Err(IdTokenFault::Form);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(IdTokenFault::Form)?;
    let (head, claims) = message.split_once('.').ok_or(IdTokenFault::Form)?;
    // An encrypted token has five parts.
    if claims.contains('.') {
        return Err(IdTokenFault::Form);
    }
    let header: Header = serde_json::from_slice(&decode(head)?).map_err(|_| IdTokenFault::Form)?;
    if header.crit.is_some() {
        return Err(IdTokenFault::Critical);
    }
    let algorithm = match header.alg.as_str() {
        "RS256" => Algorithm::RS256,
        "ES256" => Algorithm::ES256,
        "EdDSA" => Algorithm::EdDSA,
        // `none` and HMAC among them: a public key is no secret.
        _ => return Err(IdTokenFault::Algorithm),
    };
    let key = find(keys, header.kid.as_deref(), algorithm).ok_or(IdTokenFault::Key)?;
    let signed = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key.key, algorithm);
    if !signed.is_ok_and(|signed| signed) {
        return Err(IdTokenFault::Signature);
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&decode(claims)?).map_err(|_| IdTokenFault::Form)?;
    check(&claims, expected).map_err(IdTokenFault::Claim)?;
    Ok(claims)
}

fn decode(part: &str) -> Result<Vec<u8>, IdTokenFault> {
    base64_simd::URL_SAFE_NO_PAD.decode_to_vec(part).map_err(|_| IdTokenFault::Form)
}

/// Returns the key that a header names; without a name, the only key that the issuer has for the algorithm.
fn find<'k>(keys: &'k [IssuerKey], id: Option<&str>, algorithm: Algorithm) -> Option<&'k IssuerKey> {
    let mut fitting = keys
        .iter()
        .filter(|key| key.algorithm == algorithm && id.is_none_or(|id| key.id.as_deref() == Some(id)));
    let key = fitting.next()?;
    fitting.next().is_none().then_some(key)
}

/// Checks the claims. Returns the name of the first that is missing or wrong.
fn check(claims: &Map<String, Value>, expected: Expected<'_>) -> Result<(), &'static str> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let need = |holds: bool, name: &'static str| if holds { Ok(()) } else { Err(name) };
    need(text("iss") == Some(expected.issuer), "iss")?;
    let is_ours = |value: &Value| value.as_str() == Some(expected.client_id);
    let others = match claims.get("aud") {
        Some(Value::Array(list)) => {
            need(list.iter().any(is_ours), "aud")?;
            list.iter().any(|value| !is_ours(value))
        }
        Some(one) => {
            need(is_ours(one), "aud")?;
            false
        }
        None => return Err("aud"),
    };
    // A token for several receivers must have been issued to this one.
    match claims.get("azp") {
        Some(party) => need(is_ours(party), "azp")?,
        None => need(!others, "azp")?,
    }
    // Fractions of seconds are permitted (RFC 7519, section 2).
    let time = |name: &str| claims.get(name).map(|value| value.as_f64().map(|seconds| seconds as i64));
    let (now, later) = (expected.now, expected.now.saturating_add(LEEWAY));
    let expires = time("exp").flatten().ok_or("exp")?;
    need(expires > now.saturating_sub(LEEWAY), "exp")?;
    let issued = time("iat").flatten().ok_or("iat")?;
    need(issued <= later && issued >= now.saturating_sub(MAX_AGE), "iat")?;
    if let Some(begin) = time("nbf") {
        need(begin.is_some_and(|begin| begin <= later), "nbf")?;
    }
    need(text("nonce") == Some(expected.nonce), "nonce")?;
    need(text("sub").is_some_and(|sub| (1..=255).contains(&sub.len())), "sub")?;
    if let Some(hash) = claims.get("at_hash") {
        let access = expected.access_token.ok_or("at_hash")?;
        // The left half of the hash (section 3.1.3.6). EdDSA with Ed25519 has no hash of its own; issuers use SHA-512 or
        // SHA-256 there.
        let digest = Sha256::digest(access);
        let half = |digest: &[u8]| {
            base64_simd::URL_SAFE_NO_PAD.encode_to_string(digest.get(..digest.len() / 2).unwrap_or_default())
        };
        let long = sha2::Sha512::digest(access);
        let is_hash = hash.as_str().is_some_and(|hash| hash == half(&digest) || hash == half(&long));
        need(is_hash, "at_hash")?;
    }
    Ok(())
}
