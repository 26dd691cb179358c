//! Requests to the security token service (STS), and its responses, which are XML
//! (<https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>).

use std::time::Duration;

use http::{HeaderName, Method, header};

use super::document;
use crate::sigv4::{CanonicalRequest, CredentialScope, Credentials, PathEncoding, PayloadHash, Signer};
use crate::token::{Grant, TokenError, TokenRequest, excerpt};

/// Name in messages.
pub(super) const SERVER: &str = "the security token service";
/// Version of the API, which every request names.
pub(super) const VERSION: &str = "2011-06-15";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Address of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StsEndpoint {
    pub(super) region: Box<str>,
    pub(super) url: String,
}

impl StsEndpoint {
    /// Creates the address for a region; `url` replaces that of AWS.
    pub(super) fn new(region: &str, url: Option<&str>) -> Self {
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let url = url.map_or_else(|| format!("https://sts.{region}.{suffix}"), str::to_owned);
        StsEndpoint { region: region.into(), url: format!("{}/", url.trim_end_matches('/')) }
    }

    /// Returns a request without a signature.
    pub(super) fn request(&self, members: &[(&str, &str)]) -> TokenRequest {
        TokenRequest::new(Method::POST, &*self.url, TIMEOUT)
            .with_header(header::ACCEPT, "application/xml")
            .with_form(members)
    }

    /// Returns a request that is signed at a Unix time.
    pub(super) fn signed(
        &self,
        members: &[(&str, &str)],
        credentials: Credentials,
        now: i64,
    ) -> TokenRequest {
        let request = self.request(members);
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let payload = PayloadHash::of([&*request.body]);
        let signer = Signer::new(credentials, CredentialScope { region: &self.region, service: "sts" });
        let canonical = CanonicalRequest {
            method: "POST",
            target: path,
            headers: &[("host", host)],
            payload: &payload,
            path_encoding: PathEncoding::Normalized,
        };
        let signed = signer.sign(&canonical, now);
        let request = request
            .with_header(header::AUTHORIZATION, &signed.authorization)
            .with_header(HeaderName::from_static("x-amz-date"), signed.date.as_str());
        match signed.session_token.as_deref() {
            Some(token) => request.with_header(HeaderName::from_static("x-amz-security-token"), token),
            None => request,
        }
    }
}

/// Reads a response.
///
/// # Errors
/// Returns [`TokenError`] if it is an error, or has no valid credentials.
pub(super) fn parse(status: u16, body: &[u8]) -> Result<Grant, TokenError> {
    let text = String::from_utf8_lossy(body);
    if status != 200 {
        let code = element(&text, "Code").unwrap_or_default();
        let message = element(&text, "Message").unwrap_or_default();
        let reason =
            if code.is_empty() { excerpt(body) } else { excerpt(format!("{code}: {message}").as_bytes()) };
        return Err(TokenError::Refused { server: SERVER, status, reason });
    }
    let invalid = |reason: String| TokenError::Invalid { what: format!("the response of {SERVER}"), reason };
    let credentials =
        element(&text, "Credentials").ok_or_else(|| invalid("it has no credentials".to_owned()))?;
    let value = |name: &str| element(credentials, name).map(|text| unescape(text.trim()));
    let expiration = value("Expiration").ok_or_else(|| invalid("it has no expiration".to_owned()))?;
    document::grant(
        value("AccessKeyId"),
        value("SecretAccessKey"),
        Some(value("SessionToken").unwrap_or_default()),
        Some(expiration),
    )
    .map_err(invalid)
}

/// Returns the content of the first element of this name. The responses have no attributes on these elements, and no
/// element contains one of its own name.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content)
}

/// Replaces the five references that XML defines. Base64 has characters that servers may escape.
fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&amp;", "&")
}
