//! Workload identity federation (`external_account`, AIP-4117): a token of another platform, the subject token, is
//! exchanged for one of Google's. It is read again for each exchange, because its platform replaces it.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Method, header};
use serde_json::{Value, json};

use super::SCOPE;
use super::aws_subject::{AwsSubject, AwsSubjectExchange, SubjectStep};
use super::file::{FileFields, Variables};
use crate::oauth::{
    CredentialFileError, METADATA_TIMEOUT, Reply, SERVER_TIMEOUT, SecretText, TokenEndpoint, string_member,
};
use crate::token::{Step, StepResult, TokenError, TokenRequest};

/// Most headers of the request for a subject token.
const MAX_HEADERS: usize = 16;

/// Sources of subject tokens that are not supported, and how messages name them.
const UNSUPPORTED: [(&str, &str); 2] = [("executable", "an executable"), ("certificate", "a certificate")];

#[derive(Clone, Debug, Hash)]
pub(super) struct ExternalAccount {
    audience: Box<str>,
    token_type: Box<str>,
    token_url: TokenEndpoint,
    source: SubjectSource,
    /// Value of `authorization` for the client of a workforce pool; `None` without one.
    client: Option<SecretText>,
    workforce_project: Option<Box<str>>,
}

/// Source of the subject token.
#[derive(Clone, Debug, Hash)]
enum SubjectSource {
    Document(SubjectDocument),
    Aws(Box<AwsSubject>),
}

/// Where a subject token is, and its format there.
#[derive(Clone, Debug, Hash)]
struct SubjectDocument {
    location: SubjectLocation,
    /// Member of a JSON object with the token; `None` if the token stands alone.
    member: Option<Box<str>>,
}

#[derive(Clone, Debug, Hash)]
enum SubjectLocation {
    File(PathBuf),
    Url { url: TokenEndpoint, headers: Vec<(HeaderName, SecretText)> },
}

impl ExternalAccount {
    pub(super) fn parse(fields: FileFields<'_>, env: Variables<'_>) -> Result<Self, CredentialFileError> {
        let path = "credential_source";
        let source = fields.object(path, path)?.ok_or_else(|| fields.wrong(path, "is missing"))?;
        let audience = fields.required("audience")?;
        let client = fields.text("client_id")?.map(|id| {
            let secret = fields.text("client_secret")?.unwrap_or_default();
            let basic = base64_simd::STANDARD.encode_to_string(format!("{id}:{secret}"));
            Ok(SecretText::new(format!("Basic {basic}")))
        });
        Ok(ExternalAccount {
            audience: audience.into(),
            token_type: fields.required("subject_token_type")?.into(),
            token_url: fields.required_endpoint("token_url")?,
            source: match source.get("environment_id") {
                Some(_) => SubjectSource::Aws(Box::new(AwsSubject::parse(source, audience, env)?)),
                None => SubjectSource::Document(SubjectDocument::parse(source)?),
            },
            client: client.transpose()?,
            workforce_project: fields.text("workforce_pool_user_project")?.map(Into::into),
        })
    }

    /// Takes the result of the last step towards the subject token. `progress` belongs to the exchange.
    ///
    /// # Errors
    /// Returns [`TokenError`] if there is no subject token.
    pub(super) fn advance(
        &self,
        progress: &mut AwsSubjectExchange,
        result: StepResult<'_>,
        now: i64,
    ) -> Result<SubjectStep, TokenError> {
        match (&self.source, result) {
            (SubjectSource::Aws(source), result) => progress.advance(source, result, now),
            (SubjectSource::Document(document), StepResult::Begin) => {
                Ok(SubjectStep::Next(document.first_step()))
            }
            (SubjectSource::Document(document), result) => document.subject(result).map(SubjectStep::Token),
        }
    }

    /// Returns the secrets of the request that exchanges a subject token.
    pub(super) fn secrets(&self, subject: SecretText) -> Vec<SecretText> {
        std::iter::once(subject).chain(self.client.clone()).collect()
    }

    /// Returns the request that exchanges a subject token (RFC 8693).
    pub(super) fn request(&self, subject: &SecretText) -> TokenRequest {
        // A client that authenticates itself has a project of its own.
        let project = self.workforce_project.as_deref().filter(|_| self.client.is_none());
        let options = project.map(|project| json!({ "userProject": project }).to_string());
        let mut form = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("audience", &self.audience),
            ("scope", SCOPE),
            ("subject_token_type", &self.token_type),
            ("subject_token", subject.expose()),
        ];
        form.extend(options.as_deref().map(|options| ("options", options)));
        let request =
            TokenRequest::new(Method::POST, self.token_url.to_string(), SERVER_TIMEOUT).with_form(&form);
        match &self.client {
            Some(client) => request.with_header(header::AUTHORIZATION, client.expose()),
            None => request,
        }
    }
}

impl SubjectDocument {
    fn parse(fields: FileFields<'_>) -> Result<Self, CredentialFileError> {
        for (field, source) in UNSUPPORTED {
            if fields.get(field).is_some() {
                let reason =
                    format!("takes tokens from {source}, which is not supported: use a file or a URL");
                return Err(fields.wrong(field, reason));
            }
        }
        let location = match (fields.text("file")?, fields.endpoint("url")?) {
            (Some(file), None) => SubjectLocation::File(PathBuf::from(file)),
            (None, Some(url)) => SubjectLocation::Url { url, headers: parse_headers(fields)? },
            (Some(_), Some(_)) => return Err(fields.wrong("file", "must not stand beside `url`")),
            (None, None) => return Err(fields.wrong("file", "is missing, and there is no `url` either")),
        };
        let Some(format) = fields.object("format", "credential_source.format")? else {
            return Ok(SubjectDocument { location, member: None });
        };
        let member = match format.text("type")? {
            None | Some("text") => None,
            Some("json") => Some(format.required("subject_token_field_name")?.into()),
            Some(_) => return Err(format.wrong("type", "must be \"text\" or \"json\"")),
        };
        Ok(SubjectDocument { location, member })
    }

    /// Returns the step that brings the subject token.
    fn first_step(&self) -> Step {
        match &self.location {
            SubjectLocation::File(path) => Step::Read(path.clone()),
            SubjectLocation::Url { url, headers } => {
                let request = TokenRequest::new(Method::GET, url.to_string(), METADATA_TIMEOUT);
                let add = |request: TokenRequest, (name, value): &(HeaderName, SecretText)| {
                    request.with_header(name.clone(), value.expose())
                };
                Step::Send(headers.iter().fold(request, add))
            }
        }
    }

    /// Returns the subject token of the first step's result.
    fn subject(&self, result: StepResult<'_>) -> Result<SecretText, TokenError> {
        match &self.location {
            SubjectLocation::File(path) => {
                let shown = path.display();
                match result {
                    StepResult::File(text) => {
                        self.token_in(text.as_bytes()).map_err(|reason| TokenError::Invalid {
                            what: format!("the token file {shown}"),
                            reason: reason.to_owned(),
                        })
                    }
                    StepResult::Unreadable(reason) => Err(TokenError::Configuration(format!(
                        "the token file {shown} cannot be read: {reason}"
                    ))),
                    _ => Err(TokenError::Configuration(format!("the token file {shown} was not read"))),
                }
            }
            SubjectLocation::Url { headers, .. } => {
                let secrets: Vec<SecretText> = headers.iter().map(|(_, value)| value.clone()).collect();
                let reply = Reply { server: "the server of subject tokens", secrets: &secrets };
                let body = reply.body(result)?;
                self.token_in(body).map_err(|reason| reply.invalid(reason))
            }
        }
    }

    /// Returns the token in the bytes of the source.
    fn token_in(&self, bytes: &[u8]) -> Result<SecretText, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
        let token = match &self.member {
            None => text.trim().to_owned(),
            Some(member) => {
                let value: Value = serde_json::from_str(text).map_err(|_| "it is no JSON")?;
                string_member(&value, member).ok_or("it lacks the member with the token")?.trim().to_owned()
            }
        };
        if token.is_empty() { Err("it is empty") } else { Ok(SecretText::new(token)) }
    }
}

/// Reads the headers of the request for a subject token.
fn parse_headers(fields: FileFields<'_>) -> Result<Vec<(HeaderName, SecretText)>, CredentialFileError> {
    let Some(value) = fields.get("headers") else { return Ok(Vec::new()) };
    let wrong = || fields.wrong("headers", "must be an object of at most 16 headers with texts");
    let object = value.as_object().filter(|all| all.len() <= MAX_HEADERS).ok_or_else(wrong)?;
    let headers = object.iter().map(|(name, value)| {
        let value = value.as_str().filter(|text| HeaderValue::from_str(text).is_ok())?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, SecretText::new(value)))
    });
    headers.collect::<Option<Vec<_>>>().ok_or_else(wrong)
}
