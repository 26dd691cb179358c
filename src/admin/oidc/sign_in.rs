//! The two steps of a sign-in: the browser is sent to the issuer, and comes back with a code.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::hmac;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use url::Url;

use super::fetch::{IssuerClient, form_encoded};
use super::id_token::{self, Expected, IdTokenFault};
use super::provider::{IssuerKey, Metadata};
use super::{IssuerIdentity, OidcError};
use crate::session::random_text;
use config::OidcSettings;

/// Time that a person may take, in seconds.
const SIGN_IN_TIME: i64 = 600;
/// Time after which the description and the keys of an issuer are fetched again.
const CACHED: Duration = Duration::from_secs(3_600);
/// Sign-ins that wait for the issuer at a time: they run on the threads of all operations.
const AT_A_TIME: usize = 2;
/// Longest code and longest name, in bytes.
const LONGEST: usize = 4_096;
const LONGEST_NAME: usize = 128;

/// Client of an issuer, for all sign-ins.
pub(crate) struct OidcClient {
    /// Key of the cookies. Another process cannot have written one.
    seal: Option<hmac::Key>,
    cached: Mutex<Option<Arc<Issuer>>>,
    places: Semaphore,
}

/// Description and keys of an issuer.
struct Issuer {
    settings: OidcSettings,
    fetched: Instant,
    client: IssuerClient,
    metadata: Metadata,
    keys: Mutex<Arc<Vec<IssuerKey>>>,
}

/// What belongs to a sign-in that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    state: String,
    nonce: String,
    verifier: String,
    /// Unix seconds.
    expires: i64,
}

/// Answer of the token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    access_token: Option<String>,
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

impl OidcClient {
    /// Creates a client.
    pub(crate) fn new() -> Self {
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new()).ok();
        OidcClient { seal, cached: Mutex::new(None), places: Semaphore::new(AT_A_TIME) }
    }

    /// Begins a sign-in. Returns the address at the issuer and the value of the browser's cookie. Blocks.
    ///
    /// # Errors
    /// Returns an error if the issuer cannot be asked for its description.
    pub(crate) fn begin(&self, settings: &OidcSettings) -> Result<(String, String), OidcError> {
        let _place = self.places.try_acquire().map_err(|_| OidcError::Busy)?;
        let issuer = self.issuer(settings)?;
        let random = || random_text().map_err(|_| OidcError::Random);
        let begun = Begun {
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            expires: unix_now().saturating_add(SIGN_IN_TIME),
        };
        let endpoint = &issuer.metadata.authorization_endpoint;
        let mut url = Url::parse(endpoint)
            .map_err(|error| OidcError::Issuer { url: endpoint.clone(), reason: error.to_string() })?;
        let challenge = base64_simd::URL_SAFE_NO_PAD.encode_to_string(Sha256::digest(&begun.verifier));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &settings.client_id)
            .append_pair("redirect_uri", &settings.redirect_uri)
            .append_pair("scope", &settings.scopes.join(" "))
            .append_pair("state", &begun.state)
            .append_pair("nonce", &begun.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok((url.into(), self.seal(&begun)?))
    }

    /// Finishes a sign-in: `sealed` is the browser's cookie, `query` what the issuer has sent along. Blocks.
    ///
    /// # Errors
    /// Returns the reason why the person may not sign in.
    pub(crate) fn finish(
        &self,
        settings: &OidcSettings,
        sealed: &str,
        query: Option<&str>,
    ) -> Result<IssuerIdentity, OidcError> {
        let begun =
            self.open(sealed).filter(|begun| begun.expires > unix_now()).ok_or(OidcError::NotBegun)?;
        let parameter = |name: &str| {
            let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
            let mut values = pairs.filter(|(known, _)| known == name).map(|(_, value)| value.into_owned());
            let value = values.next();
            // A parameter that is given twice is read differently by different programs.
            if values.next().is_some() { None } else { value }
        };
        if parameter("state").as_ref() != Some(&begun.state) {
            return Err(OidcError::State);
        }
        let _place = self.places.try_acquire().map_err(|_| OidcError::Busy)?;
        let issuer = self.issuer(settings)?;
        let named = parameter("iss");
        if named.as_ref().is_some_and(|named| *named != settings.issuer)
            || (named.is_none() && issuer.metadata.authorization_response_iss_parameter_supported)
        {
            return Err(OidcError::OtherIssuer);
        }
        if let Some(error) = parameter("error") {
            return Err(OidcError::Refused(error.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        let code = parameter("code").filter(|code| (1..=LONGEST).contains(&code.len()));
        let code = code.ok_or_else(|| OidcError::Refused("there is no code".to_owned()))?;
        let answer = issuer.exchange(&code, &begun.verifier)?;
        let claims = issuer.verify(&answer, &begun.nonce)?;
        identity(settings, &claims)
    }

    /// Returns the issuer, described anew if that was long ago or the settings have changed.
    fn issuer(&self, settings: &OidcSettings) -> Result<Arc<Issuer>, OidcError> {
        let cached = self.cached.lock().clone();
        if let Some(issuer) = cached
            && issuer.settings == *settings
            && issuer.fetched.elapsed() < CACHED
        {
            return Ok(issuer);
        }
        let client = IssuerClient::new(settings.ca.as_deref(), settings.issuer.starts_with("http:"))?;
        let metadata = Metadata::fetch(&client, settings)?;
        let keys = Mutex::new(Arc::new(metadata.keys(&client)?));
        let issuer =
            Arc::new(Issuer { settings: settings.clone(), fetched: Instant::now(), client, metadata, keys });
        *self.cached.lock() = Some(issuer.clone());
        Ok(issuer)
    }

    fn seal(&self, begun: &Begun) -> Result<String, OidcError> {
        let text = format!("{}.{}.{}.{}", begun.state, begun.nonce, begun.verifier, begun.expires);
        let tag = hmac::sign(self.seal.as_ref().ok_or(OidcError::Random)?, text.as_bytes());
        Ok(format!("{text}.{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(tag)))
    }

    /// Reads a cookie. `None` if this process has not written it.
    fn open(&self, sealed: &str) -> Option<Begun> {
        let (text, tag) = sealed.rsplit_once('.')?;
        let tag = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(tag).ok()?;
        hmac::verify(self.seal.as_ref()?, text.as_bytes(), &tag).ok()?;
        let mut parts = text.split('.').map(str::to_owned);
        let (state, nonce, verifier) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Begun { state, nonce, verifier, expires: parts.next()?.parse().ok()? })
    }
}

impl Issuer {
    /// Exchanges a code for tokens.
    fn exchange(&self, code: &str, verifier: &str) -> Result<TokenAnswer, OidcError> {
        let settings = &self.settings;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &settings.redirect_uri),
            ("code_verifier", verifier),
        ];
        let secret = settings.client_secret.as_ref().map(|secret| secret.expose().trim());
        let basic = secret.filter(|_| !self.metadata.wants_secret_in_form());
        if basic.is_none() {
            form.push(("client_id", &settings.client_id));
            form.extend(secret.map(|secret| ("client_secret", secret)));
        }
        let form: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", form_encoded(value))).collect();
        let basic = basic.map(|secret| (settings.client_id.as_str(), secret));
        self.client.post(&self.metadata.token_endpoint, &form.join("&"), basic)
    }

    /// Verifies the identity token. If no key fits, the keys are fetched again, once: the issuer may have new ones.
    fn verify(&self, answer: &TokenAnswer, nonce: &str) -> Result<Map<String, Value>, OidcError> {
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce,
            access_token: answer.access_token.as_deref(),
            now: unix_now(),
        };
        let keys = self.keys.lock().clone();
        match id_token::verify(&answer.id_token, &keys, expected) {
            Err(IdTokenFault::Key) => {
                let keys = Arc::new(self.metadata.keys(&self.client)?);
                *self.keys.lock() = keys.clone();
                Ok(id_token::verify(&answer.id_token, &keys, expected)?)
            }
            verified => Ok(verified?),
        }
    }
}

/// Returns the person that claims name, with its role.
fn identity(settings: &OidcSettings, claims: &Map<String, Value>) -> Result<IssuerIdentity, OidcError> {
    let name = claims.get(&settings.name_claim).and_then(Value::as_str);
    let sound = |name: &&str| (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    let name = name.filter(sound).ok_or(OidcError::Token(IdTokenFault::Claim("that names the person")))?;
    // An address that is not proven may be that of another person.
    if settings.name_claim == "email"
        && claims.get("email_verified").is_some_and(|verified| *verified != true)
    {
        return Err(OidcError::Token(IdTokenFault::Claim("email_verified")));
    }
    let values: Vec<&str> = match claims.get(&settings.role_claim) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let name = format!("oidc:{name}");
    match settings.role(values.into_iter()) {
        Some(role) => Ok(IssuerIdentity { name, role }),
        None => Err(OidcError::NoRole { claim: settings.role_claim.clone(), name }),
    }
}
