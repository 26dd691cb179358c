//! Attacks on identity tokens, each with its refusal.

use base64_simd::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, DecodingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::id_token::{Expected, IdTokenFault, verify};
use super::provider::IssuerKey;

const NOW: i64 = 1_800_000_000;
const ACCESS: &str = "access-token";

struct Signer {
    ed: Ed25519KeyPair,
    ec: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random).unwrap();
        Signer { ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(), ec, random }
    }

    fn keys(&self) -> Vec<IssuerKey> {
        let point = self.ec.public_key().as_ref();
        let (x, y) = (BASE64.encode_to_string(&point[1..33]), BASE64.encode_to_string(&point[33..65]));
        let ed = BASE64.encode_to_string(self.ed.public_key().as_ref());
        let key = |id: &str, algorithm, key| IssuerKey { id: Some(id.to_owned()), algorithm, key };
        vec![
            key("ed", Algorithm::EdDSA, DecodingKey::from_ed_components(&ed).unwrap()),
            key("ec", Algorithm::ES256, DecodingKey::from_ec_components(&x, &y).unwrap()),
        ]
    }

    fn ed(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.ed.sign(message.as_bytes());
        format!("{message}.{}", BASE64.encode_to_string(signature.as_ref()))
    }

    fn ec(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.ec.sign(&self.random, message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64.encode_to_string(signature.as_ref()))
    }
}

fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64.encode_to_string(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn head() -> Value {
    json!({ "alg": "EdDSA", "kid": "ed", "typ": "JWT" })
}

fn claims() -> Value {
    let digest = Sha256::digest(ACCESS);
    json!({
        "iss": "https://login.example", "aud": "gateway", "sub": "u-1", "nonce": "n-1",
        "exp": NOW + 300, "iat": NOW, "at_hash": BASE64.encode_to_string(&digest[..16]),
    })
}

/// Returns the claims with one that is changed; a null removes it.
fn with(name: &str, value: Value) -> Value {
    let mut all = claims();
    let members = all.as_object_mut().unwrap();
    if value.is_null() {
        members.remove(name)
    } else {
        members.insert(name.to_owned(), value)
    };
    all
}

fn check(token: &str, keys: &[IssuerKey]) -> Result<Map<String, Value>, IdTokenFault> {
    let expected = Expected {
        issuer: "https://login.example",
        client_id: "gateway",
        nonce: "n-1",
        access_token: Some(ACCESS),
        now: NOW,
    };
    verify(token, keys, expected)
}

#[test]
fn id_token_of_the_issuer_is_accepted() {
    let signer = Signer::new();
    let keys = signer.keys();
    assert_eq!(check(&signer.ed(&head(), &claims()), &keys).unwrap()["sub"], "u-1");
    let ec = json!({ "alg": "ES256", "kid": "ec" });
    assert!(check(&signer.ec(&ec, &claims()), &keys).is_ok());
    // Without an id, the only key for the algorithm is meant.
    assert!(check(&signer.ed(&json!({ "alg": "EdDSA" }), &claims()), &keys).is_ok());
    for accepted in [
        with("aud", json!(["gateway"])),
        with("azp", json!("gateway")),
        with("nbf", json!(NOW)),
        with("exp", json!(NOW - 30)),
        with("exp", json!(NOW as f64 + 0.5)),
        with("at_hash", Value::Null),
    ] {
        assert!(check(&signer.ed(&head(), &accepted), &keys).is_ok(), "{accepted}");
    }
    let mut several = with("aud", json!(["gateway", "other"]));
    several["azp"] = json!("gateway");
    assert!(check(&signer.ed(&head(), &several), &keys).is_ok());
}

#[test]
fn id_token_claims_that_do_not_fit_are_refused() {
    let signer = Signer::new();
    let keys = signer.keys();
    for (claim, value) in [
        ("iss", json!("https://login.example/")),
        ("iss", json!("https://hostile.test")),
        ("iss", json!(["https://login.example"])),
        ("iss", Value::Null),
        ("aud", json!("other")),
        ("aud", json!(["other"])),
        ("aud", json!([])),
        ("aud", json!({ "gateway": true })),
        ("aud", Value::Null),
        ("azp", json!("other")),
        ("azp", json!(["gateway"])),
        ("exp", json!(NOW - 61)),
        ("exp", json!((NOW + 300).to_string())),
        ("exp", Value::Null),
        ("iat", json!(NOW + 61)),
        ("iat", json!(NOW - 3_600)),
        ("iat", Value::Null),
        ("nbf", json!(NOW + 3_600)),
        ("nbf", json!("now")),
        ("nonce", json!("n-2")),
        ("nonce", json!("")),
        ("nonce", Value::Null),
        ("sub", json!("")),
        ("sub", json!(1)),
        ("sub", Value::Null),
        ("at_hash", json!("AAAAAAAAAAAAAAAAAAAAAA")),
        ("at_hash", json!("")),
    ] {
        let token = signer.ed(&head(), &with(claim, value.clone()));
        assert_eq!(check(&token, &keys), Err(IdTokenFault::Claim(claim)), "{claim} {value}");
    }
    // A token for several receivers that does not name the one it was issued to.
    let token = signer.ed(&head(), &with("aud", json!(["gateway", "other"])));
    assert_eq!(check(&token, &keys), Err(IdTokenFault::Claim("azp")));
    // A token of a sign-in without an access token.
    let expected = Expected {
        issuer: "https://login.example",
        client_id: "gateway",
        nonce: "n-1",
        access_token: None,
        now: NOW,
    };
    let token = signer.ed(&head(), &claims());
    assert_eq!(verify(&token, &keys, expected), Err(IdTokenFault::Claim("at_hash")));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each attack")]
fn id_token_signatures_that_prove_nothing_are_refused() {
    let signer = Signer::new();
    let keys = signer.keys();
    let good = signer.ed(&head(), &claims());
    let (start, signature) = good.rsplit_once('.').unwrap();
    let public = signer.ed.public_key().as_ref().to_vec();
    let hmac = |header: &Value, secret: &[u8]| {
        let message = message(header, &claims());
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", BASE64.encode_to_string(tag))
    };
    let unsigned = |alg: &str| format!("{}.", message(&json!({ "alg": alg }), &claims()));
    let stranger = Signer::new();
    let embedded = json!({ "alg": "EdDSA", "kid": "ed", "jwk": {
        "kty": "OKP", "crv": "Ed25519", "x": BASE64.encode_to_string(stranger.ed.public_key().as_ref()),
    } });
    let named = |name: &str, value: &str| json!({ "alg": "EdDSA", "kid": "ed", name: value });
    let changed = {
        let claims = with("sub", json!("u-2"));
        format!("{}.{signature}", message(&head(), &claims))
    };
    for (attack, token, fault) in [
        ("alg none", unsigned("none"), IdTokenFault::Algorithm),
        ("alg None", unsigned("None"), IdTokenFault::Algorithm),
        ("alg nOnE", unsigned("nOnE"), IdTokenFault::Algorithm),
        ("alg empty", unsigned(""), IdTokenFault::Algorithm),
        (
            "HMAC with the public key",
            hmac(&json!({ "alg": "HS256", "kid": "ed" }), &public),
            IdTokenFault::Algorithm,
        ),
        ("HMAC with nothing", hmac(&json!({ "alg": "HS256" }), b""), IdTokenFault::Algorithm),
        ("HMAC called EdDSA", hmac(&head(), &public), IdTokenFault::Signature),
        (
            "algorithm of another key",
            signer.ed(&json!({ "alg": "ES256", "kid": "ed" }), &claims()),
            IdTokenFault::Key,
        ),
        (
            "RSA key that is not there",
            signer.ed(&json!({ "alg": "RS256", "kid": "ed" }), &claims()),
            IdTokenFault::Key,
        ),
        ("PS256", signer.ed(&json!({ "alg": "PS256", "kid": "ed" }), &claims()), IdTokenFault::Algorithm),
        ("key of a stranger", stranger.ed(&head(), &claims()), IdTokenFault::Signature),
        ("key in the header", stranger.ed(&embedded, &claims()), IdTokenFault::Signature),
        (
            "key at an address",
            stranger.ed(&named("jku", "https://hostile.test/jwks"), &claims()),
            IdTokenFault::Signature,
        ),
        (
            "certificate at an address",
            stranger.ed(&named("x5u", "https://hostile.test/x"), &claims()),
            IdTokenFault::Signature,
        ),
        ("unknown kid", signer.ed(&json!({ "alg": "EdDSA", "kid": "other" }), &claims()), IdTokenFault::Key),
        (
            "kid with a path",
            signer.ed(&json!({ "alg": "EdDSA", "kid": "../../dev/null" }), &claims()),
            IdTokenFault::Key,
        ),
        (
            "kid with SQL",
            signer.ed(&json!({ "alg": "EdDSA", "kid": "ed' OR '1'='1" }), &claims()),
            IdTokenFault::Key,
        ),
        ("empty kid", signer.ed(&json!({ "alg": "EdDSA", "kid": "" }), &claims()), IdTokenFault::Key),
        (
            "kid that is no text",
            signer.ed(&json!({ "alg": "EdDSA", "kid": ["ed"] }), &claims()),
            IdTokenFault::Form,
        ),
        (
            "critical extension",
            signer.ed(&json!({ "alg": "EdDSA", "kid": "ed", "crit": ["x"], "x": 1 }), &claims()),
            IdTokenFault::Critical,
        ),
        (
            "payload that is not encoded",
            signer.ed(&json!({ "alg": "EdDSA", "b64": false, "crit": ["b64"] }), &claims()),
            IdTokenFault::Critical,
        ),
        ("claims changed", changed, IdTokenFault::Signature),
        ("signature removed", format!("{start}."), IdTokenFault::Signature),
        ("signature cut", good[..good.len() - 4].to_owned(), IdTokenFault::Signature),
        ("no signature part", start.to_owned(), IdTokenFault::Form),
        ("a part too many", format!("{good}.x"), IdTokenFault::Form),
        ("encrypted token", format!("{good}.x.y"), IdTokenFault::Form),
        ("JSON serialization", json!({ "payload": "x" }).to_string(), IdTokenFault::Form),
        ("padding", format!("{start}=.{signature}"), IdTokenFault::Signature),
        ("empty", String::new(), IdTokenFault::Form),
        ("too long", format!("{}{good}", "A".repeat(70_000)), IdTokenFault::Form),
    ] {
        assert_eq!(check(&token, &keys), Err(fault), "{attack}");
    }
    // A signature of ECDSA that is all zeros (CVE-2022-21449).
    let zeros = message(&json!({ "alg": "ES256", "kid": "ec" }), &claims());
    let zeros = format!("{zeros}.{}", BASE64.encode_to_string([0u8; 64]));
    assert_eq!(check(&zeros, &keys), Err(IdTokenFault::Signature));
    // Two keys of one id: which one is meant is not known.
    let twice: Vec<IssuerKey> = keys.iter().chain(&keys).cloned().collect();
    assert_eq!(check(&good, &twice), Err(IdTokenFault::Key));
    // The test's own signatures are sound.
    let key = UnparsedPublicKey::new(&ring::signature::ED25519, &public);
    let raw = BASE64.decode_to_vec(signature).unwrap();
    assert!(key.verify(start.as_bytes(), &raw).is_ok());
}
