//! Description and keys of an issuer (OpenID Connect Discovery 1.0, RFC 7517).

use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::OidcError;
use super::fetch::IssuerClient;
use config::{OidcSettings, is_safe_url};

/// Largest number of keys that are read.
const MAX_KEYS: usize = 100;

/// Description of an issuer: the members that the code flow needs.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    /// Page that asks the person.
    pub(super) authorization_endpoint: String,
    /// Address at which a code becomes a token.
    pub(super) token_endpoint: String,
    jwks_uri: String,
    /// Ways in which the gateway may prove its identity.
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    /// Whether answers name the issuer (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// Fetches the description.
    ///
    /// # Errors
    /// Returns an error if it cannot be fetched, is that of another issuer, or has addresses without TLS.
    pub(super) fn fetch(client: &IssuerClient, settings: &OidcSettings) -> Result<Self, OidcError> {
        let url = format!("{}/.well-known/openid-configuration", settings.issuer.trim_end_matches('/'));
        let metadata: Metadata = client.get(&url)?;
        let wrong = |reason: &str| Err(OidcError::Issuer { url, reason: reason.to_owned() });
        if metadata.issuer != settings.issuer {
            return wrong("the description is that of another issuer");
        }
        let addresses = [&metadata.authorization_endpoint, &metadata.token_endpoint, &metadata.jwks_uri];
        if !addresses.iter().all(|address| is_safe_url(address, true)) {
            return wrong("the description has an address without TLS");
        }
        Ok(metadata)
    }

    /// Returns whether the secret belongs in the form: only if the issuer knows no other way.
    pub(super) fn wants_secret_in_form(&self) -> bool {
        let has = |name: &str| self.token_endpoint_auth_methods_supported.iter().any(|method| method == name);
        has("client_secret_post") && !has("client_secret_basic")
    }

    /// Fetches the keys.
    ///
    /// # Errors
    /// Returns an error if they cannot be fetched.
    pub(super) fn keys(&self, client: &IssuerClient) -> Result<Vec<IssuerKey>, OidcError> {
        let set: KeySet = client.get(&self.jwks_uri)?;
        Ok(set.keys.iter().take(MAX_KEYS).filter_map(read_key).collect())
    }
}

/// Public key of an issuer, for one algorithm.
#[derive(Clone)]
pub(super) struct IssuerKey {
    /// Id (`kid`). `None` if it has none.
    pub(super) id: Option<String>,
    /// The only algorithm that the key verifies.
    pub(super) algorithm: Algorithm,
    /// Key.
    pub(super) key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<JsonKey>,
}

/// Key as JSON; members of other kinds of keys are not read.
#[derive(Deserialize)]
struct JsonKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Returns a key that signs with one of the permitted algorithms; `None` for others. The type of the key decides the
/// algorithm, never a token: a symmetric key is none.
fn read_key(json: &JsonKey) -> Option<IssuerKey> {
    if json.usage.as_deref().is_some_and(|usage| usage != "sig")
        || json.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify"))
    {
        return None;
    }
    let curve = json.crv.as_deref();
    let (name, algorithm, key) = match (json.kty.as_str(), curve) {
        ("RSA", _) => {
            let key = DecodingKey::from_rsa_components(json.n.as_deref()?, json.e.as_deref()?).ok()?;
            ("RS256", Algorithm::RS256, key)
        }
        ("EC", Some("P-256")) => {
            let key = DecodingKey::from_ec_components(json.x.as_deref()?, json.y.as_deref()?).ok()?;
            ("ES256", Algorithm::ES256, key)
        }
        ("OKP", Some("Ed25519")) => {
            ("EdDSA", Algorithm::EdDSA, DecodingKey::from_ed_components(json.x.as_deref()?).ok()?)
        }
        _ => return None,
    };
    let fits = json.alg.as_deref().is_none_or(|alg| alg == name);
    fits.then(|| IssuerKey { id: json.kid.clone(), algorithm, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_keys_are_public_and_sign() {
        let read = |text: &str| read_key(&serde_json::from_str(text).unwrap()).map(|key| key.algorithm);
        let ed = r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
        assert_eq!(read(&format!("{{{ed}}}")), Some(Algorithm::EdDSA));
        assert_eq!(read(&format!("{{{ed},\"use\":\"sig\",\"alg\":\"EdDSA\"}}")), Some(Algorithm::EdDSA));
        for more in ["\"use\":\"enc\"", "\"alg\":\"HS256\"", "\"alg\":\"none\"", "\"key_ops\":[\"sign\"]"] {
            assert_eq!(read(&format!("{{{ed},{more}}}")), None, "{more}");
        }
        assert_eq!(read(r#"{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}"#), None);
        assert_eq!(read(r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#), None);
        assert_eq!(read(r#"{"kty":"RSA","n":"AQAB"}"#), None);
    }
}
