//! Access tokens: short-lived stand-ins for a key, signed so that every gateway of a fleet knows them without asking anybody.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::{Deserialize, Serialize};

use super::key::{Key, KeyHash};

/// What tokens are for; a token that was signed for anything else is none.
const SCOPE: &str = "svc";
/// Fewest bytes of a secret that signs.
const SECRET: usize = 32;

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// HMAC with SHA-256: one secret signs and verifies.
    Hs256,
    /// Ed25519: a private key signs, a public one verifies.
    EdDsa,
}

impl Signature {
    /// Both.
    pub const ALL: [Signature; 2] = [Signature::Hs256, Signature::EdDsa];

    /// The name in the configuration and in tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Signature::Hs256 => "HS256",
            Signature::EdDsa => "EdDSA",
        }
    }

    /// The signature of this name.
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

/// A key that signs or verifies tokens.
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

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyFault {
    /// The secret is too short.
    #[error("a secret has at least {SECRET} bytes")]
    Short,
    /// It is no private key.
    #[error("the private key is PKCS#8 in base64: the lines of its PEM file without the first and the last")]
    Private,
    /// It is no public key.
    #[error("the public key is 32 bytes in base64, alone or at the end of what stands in its PEM file")]
    Public,
    /// Both are keys, but not of one pair.
    #[error("the private key and the public key are not of one pair")]
    Pair,
    /// There is nothing to verify with.
    #[error("an EdDSA key needs its public key")]
    Missing,
}

impl TokenKey {
    /// A key of one secret.
    ///
    /// # Errors
    /// It is too short.
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

    /// A pair of keys, or the public one alone, which verifies what another process signs.
    ///
    /// # Errors
    /// They are no keys, or not of one pair.
    pub fn eddsa(id: &str, private: Option<&str>, public: &str) -> Result<Self, TokenKeyFault> {
        let bytes = |text: &str| base64_simd::STANDARD.decode_to_vec(text.trim()).ok();
        let public = bytes(public).ok_or(TokenKeyFault::Public)?;
        // Alone, or behind the twelve bytes that say what it is.
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

    /// Its name in tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether it can sign.
    pub fn signs(&self) -> bool {
        self.signs.is_some()
    }
}

/// How tokens are issued and verified.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Who issues them.
    pub issuer: String,
    /// Whom they are for.
    pub audience: String,
    /// How long they are valid.
    pub lifetime: Duration,
    /// The first that can sign signs; all verify.
    pub keys: Vec<TokenKey>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Claims {
    iss: String,
    aud: String,
    /// Whose it is.
    sub: String,
    /// The hash of the key that it stands for.
    key: String,
    scope: String,
    iat: u64,
    exp: u64,
    jti: String,
}

/// Why a token does not stand for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It was not issued here, or not for this.
    #[error("the access token is not valid")]
    Invalid,
    /// Its time is over.
    #[error("the access token has expired")]
    Expired,
}

/// Whether a text has the form of a token: three parts, of which the first is an object.
pub fn is_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Tokens {
    /// Issues a token for a key, at `now` in Unix seconds: the token, and how long it is valid. Nothing where no key signs.
    pub fn issue(&self, key: &Key, now: i64, serial: u64) -> Option<(String, u64)> {
        let with = self.keys.iter().find(|key| key.signs())?;
        let now = u64::try_from(now).ok()?;
        // It does not outlive the key that it stands for.
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

    /// The hash of the key that a token stands for.
    ///
    /// # Errors
    /// It stands for none.
    pub fn verify(&self, token: &str) -> Result<KeyHash, TokenFault> {
        let invalid = |_| TokenFault::Invalid;
        let header = decode_header(token).map_err(invalid)?;
        let named = |key: &&TokenKey| header.kid.as_deref().is_none_or(|id| *id == *key.id);
        let mut fault = TokenFault::Invalid;
        for key in self.keys.iter().filter(named) {
            // What a token says of its own algorithm is compared, never followed.
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

    /// A pair that was made for these tests.
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
    fn a_token_stands_for_its_key_whichever_way_it_is_signed() {
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
    fn keys_are_replaced_without_breaking_tokens_that_are_out() {
        let before = tokens(vec![secret("old")]);
        let (token, _) = before.issue(&key(), now(), 1).unwrap();
        let during = tokens(vec![secret("new"), secret("old")]);
        assert!(during.verify(&token).is_ok());
        let (newer, _) = during.issue(&key(), now(), 2).unwrap();
        assert_eq!(before.verify(&newer), Err(TokenFault::Invalid));
        assert_eq!(tokens(vec![secret("new")]).verify(&token), Err(TokenFault::Invalid));
    }

    #[test]
    fn what_was_signed_otherwise_or_for_others_is_refused() {
        let ours = tokens(vec![secret("a")]);
        let (token, _) = ours.issue(&key(), now(), 1).unwrap();
        let (late, _) = ours.issue(&key(), now() - 61, 1).unwrap();
        assert_eq!(ours.verify(&late), Err(TokenFault::Expired));
        let other = Tokens { audience: "other".to_owned(), ..ours.clone() };
        assert_eq!(other.verify(&token), Err(TokenFault::Invalid));
        let other = Tokens { issuer: "other".to_owned(), ..ours.clone() };
        assert_eq!(other.verify(&token), Err(TokenFault::Invalid));
        // A public key is no secret: whoever signs with it as if it were one is not believed.
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
    fn keys_that_cannot_be_used_say_why() {
        assert_eq!(TokenKey::hs256("a", b"short").unwrap_err(), TokenKeyFault::Short);
        let eddsa = |private, public| TokenKey::eddsa("a", private, public).unwrap_err();
        assert_eq!(eddsa(None, "AAAA"), TokenKeyFault::Public);
        assert_eq!(eddsa(Some("AAAA"), PUBLIC), TokenKeyFault::Private);
        let other = base64_simd::STANDARD.encode_to_string([7u8; 32]);
        assert_eq!(eddsa(Some(PRIVATE), &other), TokenKeyFault::Pair);
        assert!(!format!("{:?}", secret("a")).contains("0123"));
    }
}
