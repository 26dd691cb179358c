//! Authorization of upstream requests: the token or the signature in the head, just before it is sent.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::handle::{Authorization, CredentialHandle};
use super::renewer::unix_now;
use crate::cloud::sigv4::{CanonicalRequest, PathEncoding, PayloadHash};
use crate::error::{ApiError, ErrorKind};

/// Header of the date of a signature.
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// Header of the session token.
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Header of the code of an error.
const X_AMZN_ERRORTYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// How a request was authorized, to judge its refusal by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct AuthorizedWith {
    /// Number of the credential.
    number: u64,
    /// Difference of the clocks that the signature was dated by, in seconds.
    skew: i64,
    /// Unix time of the signature, in seconds, by the clock of this machine.
    time: i64,
}

/// Remedy for a refused authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Remedy {
    /// The clocks differ: a signature with the time of the provider may be accepted.
    Clock,
    /// The credential with this number is not accepted any more.
    Credential(u64),
}

/// Fault of the gateway: it has no credential for the provider.
pub(in crate::proxy) fn missing_credential() -> ApiError {
    ApiError::new(ErrorKind::UpstreamAuth, "The gateway has no valid credential for the upstream provider.")
}

impl CredentialHandle {
    /// Authorizes a request. `target` is the path with the query exactly as it is sent; `payload` hashes the body and is
    /// called only for a signature. All other headers may be changed later, but not the host.
    ///
    /// # Errors
    /// Returns the error for the client if there is no valid credential.
    pub(in crate::proxy) fn authorize(
        &self,
        method: &str,
        target: &str,
        headers: &mut HeaderMap,
        payload: impl FnOnce() -> PayloadHash,
    ) -> Result<AuthorizedWith, ApiError> {
        let issued = self.current().ok_or_else(missing_credential)?;
        let time = unix_now();
        let mut with = AuthorizedWith { number: issued.number, skew: 0, time };
        match &issued.authorization {
            Authorization::Bearer(value) => {
                headers.insert(header::AUTHORIZATION, value.clone());
            }
            Authorization::Signature(signer) => {
                with.skew = self.skew.seconds();
                let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
                let payload = payload();
                let request = CanonicalRequest {
                    method,
                    target,
                    headers: &[("host", host)],
                    payload: &payload,
                    path_encoding: PathEncoding::Normalized,
                };
                let signed = signer.sign(&request, time.saturating_add(with.skew));
                let secret = |text: &str| {
                    let mut value = HeaderValue::from_str(text).map_err(|_| missing_credential())?;
                    value.set_sensitive(true);
                    Ok::<_, ApiError>(value)
                };
                headers.insert(header::AUTHORIZATION, secret(&signed.authorization)?);
                headers.insert(X_AMZ_DATE, secret(signed.date.as_str())?);
                match signed.session_token.as_deref() {
                    Some(token) => _ = headers.insert(X_AMZ_SECURITY_TOKEN, secret(token)?),
                    None => _ = headers.remove(X_AMZ_SECURITY_TOKEN),
                }
            }
        }
        Ok(with)
    }

    /// Judges a response to a request that was authorized: whether its refusal has a remedy. `None` for success and for
    /// refusals that concern the request or the permissions of the credential.
    pub(in crate::proxy) fn judge(
        &self,
        with: AuthorizedWith,
        status: u16,
        headers: &HeaderMap,
    ) -> Option<Remedy> {
        if !matches!(status, 400 | 401 | 403) {
            return None;
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(code) = text(&X_AMZN_ERRORTYPE) else {
            // A token server's token that a provider does not know any more (RFC 6750, section 3.1).
            return (status == 401).then_some(Remedy::Credential(with.number));
        };
        let code = code.split(':').next().unwrap_or_default();
        let date = text(&header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        let date = date.and_then(|date| i64::try_from(date.as_secs()).ok());
        let cached = headers.contains_key(header::AGE);
        if self.skew.observe(date, cached, with.time, unix_now()) && self.skew.explains(code, with.skew) {
            return Some(Remedy::Clock);
        }
        let expired = matches!(
            code,
            "ExpiredTokenException"
                | "ExpiredToken"
                | "UnrecognizedClientException"
                | "InvalidClientTokenId"
                | "InvalidSignatureException"
        );
        expired.then_some(Remedy::Credential(with.number))
    }
}
