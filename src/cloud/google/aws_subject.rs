//! Subject tokens of AWS for workload identity federation: a signed request for the identity of the caller, which
//! Google's security token service sends on to AWS (Google Cloud, "Configure workload identity federation with AWS").

use std::fmt;
use std::hash::{Hash, Hasher};

use http::{HeaderName, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::file::{FileFields, Variables};
use crate::aws;
use crate::oauth::{CredentialFileError, METADATA_TIMEOUT, Reply, SecretText, TokenEndpoint};
use crate::sigv4::{CanonicalRequest, CredentialScope, Credentials, PathEncoding, PayloadHash, Signer};
use crate::token::{Credential, Step, StepResult, TokenError, TokenRequest};

/// Only environment of AWS that Google defines.
const ENVIRONMENT: &str = "aws1";
/// Name of the metadata service in messages.
const SERVER: &str = "the instance metadata service of AWS";
/// Placeholder of the region in the URL that is signed.
const REGION: &str = "{region}";
/// Header that binds the signed request to one identity pool.
const TARGET: &str = "x-goog-cloud-target-resource";
/// Longest session token, region and role of the metadata service, in bytes.
const MAX_TEXT: usize = 1_024;
/// Life of a session token of the metadata service, in seconds.
const TOKEN_LIFE: &str = "300";
/// Characters that stand for themselves in the token, which is an encoded JSON object.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const X_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const X_TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// Source of subject tokens at AWS: the environment, and where that has no value the metadata service.
#[derive(Clone)]
pub(super) struct AwsSubject {
    audience: Box<str>,
    /// URL of the request that is signed, with [`REGION`] in it.
    verification_url: Box<str>,
    region: Result<Box<str>, TokenEndpoint>,
    credentials: Result<Credentials, TokenEndpoint>,
    /// Where the session token of the metadata service comes from; `None` for its first version, which needs none.
    session_url: Option<TokenEndpoint>,
}

impl fmt::Debug for AwsSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSubject").field("audience", &self.audience).finish_non_exhaustive()
    }
}

impl Hash for AwsSubject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let AwsSubject { audience, verification_url, region, credentials, session_url } = self;
        (audience, verification_url, region, session_url).hash(state);
        let keys = credentials
            .as_ref()
            .map(|keys| (&keys.access_key_id, &keys.secret_access_key, keys.session_token.as_deref()));
        keys.hash(state);
    }
}

impl AwsSubject {
    /// Reads the source of a credential file.
    ///
    /// # Errors
    /// Returns the field that is missing or wrong.
    pub(super) fn parse(
        fields: FileFields<'_>,
        audience: &str,
        env: Variables<'_>,
    ) -> Result<Self, CredentialFileError> {
        if fields.required("environment_id")? != ENVIRONMENT {
            return Err(fields.wrong("environment_id", "must be aws1, the only version that is supported"));
        }
        let env = |name: &str| env(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let field = "regional_cred_verification_url";
        let verification_url = fields.required(field)?;
        // Parsed with a region in place: braces are no characters of a URL.
        TokenEndpoint::parse(&verification_url.replace(REGION, "us-east-1"))
            .map_err(|error| fields.wrong(field, error.to_string()))?;
        let region = match env("AWS_REGION").or_else(|| env("AWS_DEFAULT_REGION")) {
            Some(region) => Ok(region.into()),
            None => Err(fields
                .endpoint("region_url")?
                .ok_or_else(|| fields.wrong("region_url", "is missing, and AWS_REGION is not set either"))?),
        };
        let credentials = match (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => Ok(Credentials {
                access_key_id: id.into(),
                secret_access_key: secret.into(),
                session_token: env("AWS_SESSION_TOKEN").map(Into::into),
            }),
            _ => Err(fields
                .endpoint("url")?
                .ok_or_else(|| fields.wrong("url", "is missing, and AWS_ACCESS_KEY_ID is not set either"))?),
        };
        Ok(AwsSubject {
            audience: audience.into(),
            verification_url: verification_url.into(),
            region,
            credentials,
            session_url: fields.endpoint("imdsv2_session_token_url")?,
        })
    }

    /// Returns the subject token: the signed request in JSON, encoded as a part of a URL.
    fn token(&self, region: &str, credentials: Credentials, now: i64) -> SecretText {
        let url = self.verification_url.replace(REGION, region);
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let signer = Signer::new(credentials, CredentialScope { region, service: "sts" });
        let payload = PayloadHash::of([]);
        let request = CanonicalRequest {
            method: "POST",
            target: &target,
            headers: &[("host", host), (TARGET, &self.audience)],
            payload: &payload,
            path_encoding: PathEncoding::Normalized,
        };
        let signed = signer.sign(&request, now);
        let mut headers = vec![
            json!({"key": "Authorization", "value": signed.authorization}),
            json!({"key": "host", "value": host}),
            json!({"key": "x-amz-date", "value": signed.date.as_str()}),
        ];
        if let Some(token) = signed.session_token.as_deref() {
            headers.push(json!({"key": "x-amz-security-token", "value": token}));
        }
        headers.push(json!({"key": TARGET, "value": &*self.audience}));
        let request = json!({"url": url, "method": "POST", "headers": headers}).to_string();
        SecretText::new(utf8_percent_encode(&request, UNRESERVED).to_string())
    }
}

/// Next step towards a subject token.
pub(super) enum SubjectStep {
    Next(Step),
    Token(SecretText),
}

/// Request to the metadata service whose response is awaited.
#[derive(Clone, Copy, Debug, Default)]
enum Awaited {
    #[default]
    Nothing,
    Session,
    Zone,
    Role,
    Credentials,
}

/// Progress towards a subject token: what the metadata service has answered so far.
#[derive(Default)]
pub(super) struct AwsSubjectExchange {
    awaited: Awaited,
    session: Option<SecretText>,
    region: Option<Box<str>>,
    credentials: Option<Credentials>,
}

impl AwsSubjectExchange {
    /// Takes the result of the last step.
    ///
    /// # Errors
    /// Returns [`TokenError`] if the metadata service does not answer or answers wrongly.
    pub(super) fn advance(
        &mut self,
        source: &AwsSubject,
        result: StepResult<'_>,
        now: i64,
    ) -> Result<SubjectStep, TokenError> {
        let secrets: Vec<SecretText> = self.session.iter().cloned().collect();
        let reply = Reply { server: SERVER, secrets: &secrets };
        match self.awaited {
            Awaited::Nothing => {
                self.region = source.region.as_ref().ok().cloned();
                self.credentials = source.credentials.as_ref().ok().cloned();
            }
            Awaited::Session => {
                self.session = Some(SecretText::new(
                    text(reply.body(result)?)
                        .ok_or_else(|| reply.invalid("the session token is malformed"))?,
                ));
            }
            Awaited::Zone => {
                // A zone is a region with a letter behind it.
                let zone = text(reply.body(result)?).ok_or_else(|| reply.invalid("the zone is malformed"))?;
                let region = zone.strip_suffix(|last: char| last.is_ascii_lowercase());
                let region = region.filter(|region| region.ends_with(|last: char| last.is_ascii_digit()));
                self.region = Some(region.ok_or_else(|| reply.invalid("the zone is malformed"))?.into());
            }
            Awaited::Role => {
                let role = text(reply.body(result)?).filter(|role| !role.contains(['/', '?', '#']));
                let role = role.ok_or_else(|| reply.invalid("the name of the role is malformed"))?;
                let Err(url) = &source.credentials else { return Err(reply.invalid("none was requested")) };
                let url = url.to_string();
                let url = format!("{}/{role}", url.trim_end_matches('/'));
                return Ok(self.get(Awaited::Credentials, url));
            }
            Awaited::Credentials => {
                let grant = aws::parse_credentials(SERVER, reply.body(result)?)?;
                let Credential::Aws(credentials) = grant.credential else {
                    return Err(reply.invalid("it has no keys"));
                };
                self.credentials = Some(credentials);
            }
        }
        Ok(self.next(source, now))
    }

    /// Returns the next request, or the token once nothing is missing.
    fn next(&mut self, source: &AwsSubject, now: i64) -> SubjectStep {
        if let (Some(region), Some(credentials)) = (&self.region, &self.credentials) {
            return SubjectStep::Token(source.token(region, credentials.clone(), now));
        }
        if let (Some(url), None) = (&source.session_url, &self.session) {
            self.awaited = Awaited::Session;
            let request = TokenRequest::new(Method::PUT, url.to_string(), METADATA_TIMEOUT);
            return SubjectStep::Next(Step::Send(request.with_header(X_TOKEN_TTL, TOKEN_LIFE)));
        }
        match (&self.region, &source.region, &source.credentials) {
            (None, Err(url), _) => self.get(Awaited::Zone, url.to_string()),
            (_, _, Err(url)) => self.get(Awaited::Role, url.to_string()),
            // Values of the environment are taken at the beginning.
            (_, Ok(_), Ok(keys)) | (Some(_), _, Ok(keys)) => {
                let region = self.region.clone().unwrap_or_default();
                SubjectStep::Token(source.token(&region, keys.clone(), now))
            }
        }
    }

    fn get(&mut self, awaited: Awaited, url: String) -> SubjectStep {
        self.awaited = awaited;
        let request = TokenRequest::new(Method::GET, url, METADATA_TIMEOUT);
        SubjectStep::Next(Step::Send(match &self.session {
            Some(session) => request.with_header(X_TOKEN, session.expose()),
            None => request,
        }))
    }
}

/// Returns the text of a response of one line; `None` if it is none.
fn text(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let is_sound =
        !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_sound.then_some(text)
}
