//! Impersonation: a token of one identity is exchanged for one of a service account.
//!
//! Source: IAM API, "projects.serviceAccounts.generateAccessToken".

use http::{HeaderValue, Method, header};
use serde_json::json;

use super::SCOPE;
use super::file::FileFields;
use crate::oauth::{CredentialFileError, SERVER_TIMEOUT, TokenEndpoint};
use crate::token::TokenRequest;

/// Life of a token in seconds, if the file names none: the longest without a policy of the organization.
const LIFE: u64 = 3_600;
/// Lives that a file may name, in seconds (AIP-4117).
const LIVES: std::ops::RangeInclusive<u64> = 600..=43_200;
/// Most delegates.
const MAX_DELEGATES: usize = 16;

/// Service account that a token is exchanged for.
#[derive(Clone, Debug, Hash)]
pub(super) struct Impersonation {
    url: TokenEndpoint,
    delegates: Vec<String>,
    /// Life of the token in seconds.
    lifetime: u64,
}

impl Impersonation {
    /// Reads the impersonation of a credential file; `None` if it names none.
    pub(super) fn parse(fields: FileFields<'_>) -> Result<Option<Self>, CredentialFileError> {
        let Some(url) = fields.endpoint("service_account_impersonation_url")? else { return Ok(None) };
        Ok(Some(Impersonation { url, delegates: delegates(fields)?, lifetime: lifetime(fields)? }))
    }

    /// Returns the request that exchanges a token.
    pub(super) fn request(&self, token: &str) -> TokenRequest {
        let mut body = json!({ "scope": [SCOPE], "lifetime": format!("{}s", self.lifetime) });
        if let Some(object) = body.as_object_mut().filter(|_| !self.delegates.is_empty()) {
            object.insert("delegates".to_owned(), json!(self.delegates));
        }
        let mut request = TokenRequest::new(Method::POST, self.url.to_string(), SERVER_TIMEOUT)
            .with_header(header::AUTHORIZATION, &format!("Bearer {token}"));
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.body = body.to_string().into_bytes();
        request
    }
}

fn delegates(fields: FileFields<'_>) -> Result<Vec<String>, CredentialFileError> {
    let Some(value) = fields.get("delegates") else { return Ok(Vec::new()) };
    let texts = value.as_array().filter(|all| all.len() <= MAX_DELEGATES);
    let texts: Option<Vec<String>> =
        texts.and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
    texts.ok_or_else(|| fields.wrong("delegates", "must be a list of at most 16 texts"))
}

fn lifetime(fields: FileFields<'_>) -> Result<u64, CredentialFileError> {
    let path = "service_account_impersonation";
    let Some(options) = fields.object(path, path)? else { return Ok(LIFE) };
    let Some(value) = options.get("token_lifetime_seconds") else { return Ok(LIFE) };
    let seconds = value.as_u64().filter(|seconds| LIVES.contains(seconds));
    seconds.ok_or_else(|| options.wrong("token_lifetime_seconds", "must be a number from 600 to 43200"))
}
