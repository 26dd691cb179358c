//! Access tokens (JWT, RFC 7519): short-lived substitutes for a key, signed so that every gateway of a fleet can verify
//! them without a shared store.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::{Deserialize, Serialize};

use super::key::{Key, KeyHash};

/// Scope claim of access tokens. A token with another scope is invalid.
const SCOPE: &str = "svc";
/// Minimum length of an HMAC secret, in bytes.
const SECRET: usize = 32;

/// Signature algorithm of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// HMAC with SHA-256: one secret signs and verifies.
    Hs256,
    /// Ed25519 (RFC 8037): a private key signs, a public key verifies.
    EdDsa,
}

impl Signature {
    /// All algorithms.
    pub const ALL: [Signature; 2] = [Signature::Hs256, Signature::EdDsa];

    /// Returns the name in the configuration and in the `alg` header of tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Signature::Hs256 => "HS256",
            Signature::EdDsa => "EdDSA",
        }
    }

    /// Returns the algorithm of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Signature> {
        Signature::ALL.into_iter().find(|signature| signature.name() == name)
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Signature::Hs256 => Algorithm::HS256,
            Signature::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// Key that signs or verifies tokens.
#[derive(Clone)]
pub struct TokenKey {
    id: Box<str>,
    signature: Signature,
    signs: Option<EncodingKey>,
    verifies: DecodingKey,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenKey({}, {}, ***)", self.id, self.signature.name())
    }
}

/// Reason why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyFault {
    /// The secret is too short.
    #[error("the secret must have at least {SECRET} bytes")]
    Short,
    /// The private key cannot be parsed.
    #[error("the private key must be PKCS#8 in base64: its PEM file without the first and the last line")]
    Private,
    /// The public key cannot be parsed.
    #[error(
        "the public key must be base64 of its 32 bytes, or its PEM file without the first and the last line"
    )]
    Public,
    /// Both keys are valid, but do not form a pair.
    #[error("the private key and the public key do not match")]
    Pair,
    /// The public key is missing.
    #[error("an EdDSA key requires its public key")]
    Missing,
}

impl TokenKey {
    /// Creates an HS256 key from a secret.
    ///
    /// # Errors
    /// Returns [`TokenKeyFault::Short`] if the secret has fewer than 32 bytes.
    pub fn hs256(id: &str, secret: &[u8]) -> Result<Self, TokenKeyFault> {
        if secret.len() < SECRET {
            return Err(TokenKeyFault::Short);
        }
        Ok(TokenKey {
            id: id.into(),
            signature: Signature::Hs256,
            signs: Some(EncodingKey::from_secret(secret)),
            verifies: DecodingKey::from_secret(secret),
        })
    }

    /// Creates an EdDSA key from a pair, or from the public key alone, which can only verify.
    ///
    /// # Errors
    /// Returns [`TokenKeyFault`] if a key cannot be parsed, or the two do not form a pair.
    pub fn eddsa(id: &str, private: Option<&str>, public: &str) -> Result<Self, TokenKeyFault> {
        let bytes = |text: &str| base64_simd::STANDARD.decode_to_vec(text.trim()).ok();
        let public = bytes(public).ok_or(TokenKeyFault::Public)?;
        // The raw key (32 bytes), or DER (RFC 8410): the raw key after a fixed header of 12 bytes.
        let raw = match public.len() {
            32 => public.get(..),
            44 => public.get(12..),
            _ => None,
        };
        let verifies = DecodingKey::from_ed_der(raw.ok_or(TokenKeyFault::Public)?);
        let signs = match private {
            Some(private) => Some(EncodingKey::from_ed_der(&bytes(private).ok_or(TokenKeyFault::Private)?)),
            None => None,
        };
        if let Some(signs) = &signs {
            // Sign and verify once: the wrong public key would otherwise only show when all tokens are rejected.
            let message = b"one pair";
            let signed = jsonwebtoken::crypto::sign(message, signs, Algorithm::EdDSA)
                .map_err(|_| TokenKeyFault::Private)?;
            let same = jsonwebtoken::crypto::verify(&signed, message, &verifies, Algorithm::EdDSA);
            if !same.is_ok_and(|same| same) {
                return Err(TokenKeyFault::Pair);
            }
        }
        Ok(TokenKey { id: id.into(), signature: Signature::EdDsa, signs, verifies })
    }

    /// Returns the key id (`kid`) in tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns true if the key can sign.
    pub fn signs(&self) -> bool {
        self.signs.is_some()
    }
}

/// Issuing and verification of access tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Issuer (`iss`).
    pub issuer: String,
    /// Audience (`aud`).
    pub audience: String,
    /// Lifetime of a token.
    pub lifetime: Duration,
    /// Keys. The first one that can sign issues tokens; all of them verify.
    pub keys: Vec<TokenKey>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Claims {
    iss: String,
    aud: String,
    /// Owner of the key: its account, or its name.
    sub: String,
    /// Hash of the key that the token stands for.
    key: String,
    scope: String,
    iat: u64,
    exp: u64,
    jti: String,
}

/// Reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The token was not issued by this gateway, or for another purpose.
    #[error("the access token is not valid")]
    Invalid,
    /// The token has expired.
    #[error("the access token has expired")]
    Expired,
}

/// Returns true if a text has the form of a JWT: three parts, the first of which is a base64url JSON object.
pub fn is_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Tokens {
    /// Issues a token for a key, at `now` in Unix seconds. Returns the token and its lifetime in seconds; `None` if no
    /// key can sign.
    pub fn issue(&self, key: &Key, now: i64, serial: u64) -> Option<(String, u64)> {
        let with = self.keys.iter().find(|key| key.signs())?;
        let now = u64::try_from(now).ok()?;
        // A token must not outlive its key.
        let end = key.expires.and_then(|end| u64::try_from(end).ok()).unwrap_or(u64::MAX);
        let exp = now.saturating_add(self.lifetime.as_secs()).min(end);
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: self.audience.clone(),
            sub: key.owner().to_owned(),
            key: key.hash.to_hex(),
            scope: SCOPE.to_owned(),
            iat: now,
            exp,
            jti: format!("{serial:016x}"),
        };
        let header = Header { kid: Some(with.id.to_string()), ..Header::new(with.signature.algorithm()) };
        let token = encode(&header, &claims, with.signs.as_ref()?).ok()?;
        Some((token, exp - now))
    }

    /// Verifies a token and returns the hash of the key that it stands for.
    ///
    /// # Errors
    /// Returns [`TokenFault`] if the token is invalid or has expired.
    pub fn verify(&self, token: &str) -> Result<KeyHash, TokenFault> {
        let invalid = |_| TokenFault::Invalid;
        let header = decode_header(token).map_err(invalid)?;
        let named = |key: &&TokenKey| header.kid.as_deref().is_none_or(|id| *id == *key.id);
        let mut fault = TokenFault::Invalid;
        for key in self.keys.iter().filter(named) {
            // The algorithm is that of our key. Trusting the token's `alg` header would allow forgery with a public
            // key.
            let mut rules = Validation::new(key.signature.algorithm());
            rules.leeway = 0;
            rules.set_issuer(&[&self.issuer]);
            rules.set_audience(&[&self.audience]);
            rules.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
            match decode::<Claims>(token, &key.verifies, &rules) {
                Ok(found) if found.claims.scope == SCOPE => {
                    return KeyHash::from_hex(&found.claims.key).ok_or(TokenFault::Invalid);
                }
                Err(error) if *error.kind() == jsonwebtoken::errors::ErrorKind::ExpiredSignature => {
                    fault = TokenFault::Expired;
                }
                _ => {}
            }
        }
        Err(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    /// Public test key: RFC 8032, section 7.1, test 1.
    const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g";
    const PUBLIC: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

    fn now() -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
    }

    fn tokens(keys: Vec<TokenKey>) -> Tokens {
        Tokens {
            issuer: "gateway".to_owned(),
            audience: "svc".to_owned(),
            lifetime: Duration::from_secs(60),
            keys,
        }
    }

    fn secret(id: &str) -> TokenKey {
        TokenKey::hs256(id, format!("{id}-0123456789-0123456789-0123456789").as_bytes()).unwrap()
    }

    fn key() -> Key {
        Key::new(KeyHash::of("k"), "alice", Arc::default())
    }

    #[test]
    fn token_signed_by_hs256_or_eddsa_identifies_its_key() {
        for with in [secret("a"), TokenKey::eddsa("a", Some(PRIVATE), PUBLIC).unwrap()] {
            let tokens = tokens(vec![with]);
            let (token, seconds) = tokens.issue(&key(), now(), 7).unwrap();
            assert_eq!(seconds, 60);
            assert!(is_token(&token));
            assert_eq!(tokens.verify(&token), Ok(KeyHash::of("k")));
        }
        let only_verifies = tokens(vec![TokenKey::eddsa("a", None, PUBLIC).unwrap()]);
        assert!(only_verifies.issue(&key(), now(), 7).is_none());
    }

    #[test]
    fn token_key_rotation_keeps_issued_tokens_valid() {
        let before = tokens(vec![secret("old")]);
        let (token, _) = before.issue(&key(), now(), 1).unwrap();
        let during = tokens(vec![secret("new"), secret("old")]);
        assert!(during.verify(&token).is_ok());
        let (newer, _) = during.issue(&key(), now(), 2).unwrap();
        assert_eq!(before.verify(&newer), Err(TokenFault::Invalid));
        assert_eq!(tokens(vec![secret("new")]).verify(&token), Err(TokenFault::Invalid));
    }

    #[test]
    fn token_expired_forged_or_for_another_audience_is_refused() {
        let ours = tokens(vec![secret("a")]);
        let (token, _) = ours.issue(&key(), now(), 1).unwrap();
        let (late, _) = ours.issue(&key(), now() - 61, 1).unwrap();
        assert_eq!(ours.verify(&late), Err(TokenFault::Expired));
        let other = Tokens { audience: "other".to_owned(), ..ours.clone() };
        assert_eq!(other.verify(&token), Err(TokenFault::Invalid));
        let other = Tokens { issuer: "other".to_owned(), ..ours.clone() };
        assert_eq!(other.verify(&token), Err(TokenFault::Invalid));
        // Key confusion: a token signed with the public key as an HMAC secret is rejected.
        let pair = tokens(vec![TokenKey::eddsa("a", None, PUBLIC).unwrap()]);
        let forged = tokens(vec![TokenKey::hs256("a", PUBLIC.as_bytes()).unwrap()]);
        let (forged, _) = forged.issue(&key(), now(), 1).unwrap();
        assert_eq!(pair.verify(&forged), Err(TokenFault::Invalid));
        let parts: Vec<&str> = token.split('.').collect();
        let none = base64_simd::URL_SAFE_NO_PAD.encode_to_string(br#"{"alg":"none","typ":"JWT"}"#);
        for bad in [
            format!("{none}.{}.", parts[1]),
            format!("{}.{}.{}", parts[0], parts[1], "AAAA"),
            format!("{}.{}.{}", parts[0], parts[0], parts[2]),
            "eyJ..".to_owned(),
            String::new(),
        ] {
            assert_eq!(ours.verify(&bad), Err(TokenFault::Invalid), "{bad}");
        }
    }

    #[test]
    fn token_key_that_is_invalid_is_refused_with_a_reason() {
        assert_eq!(TokenKey::hs256("a", b"short").unwrap_err(), TokenKeyFault::Short);
        let eddsa = |private, public| TokenKey::eddsa("a", private, public).unwrap_err();
        assert_eq!(eddsa(None, "AAAA"), TokenKeyFault::Public);
        assert_eq!(eddsa(Some("AAAA"), PUBLIC), TokenKeyFault::Private);
        let other = base64_simd::STANDARD.encode_to_string([7u8; 32]);
        assert_eq!(eddsa(Some(PRIVATE), &other), TokenKeyFault::Pair);
        assert!(!format!("{:?}", secret("a")).contains("0123"));
    }
}
