//! Authorization of upstream requests: the token or the signature in the head, just before it is sent.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::handle::{Authorization, CredentialHandle};
use super::renewer::unix_now;
use cloud::sigv4::{CanonicalRequest, PathEncoding, PayloadHash};
use codec::error::{ApiError, ErrorKind};
use codec::wire::error::ProviderError;

/// Header of the date of a signature.
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// Header of the session token.
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Header of the code of an error.
const X_AMZN_ERRORTYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// How a request was authorized, to judge its refusal by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizedWith {
    /// Number of the credential.
    number: u64,
    /// Difference of the clocks that the signature was dated by, in seconds.
    skew: i64,
    /// Unix time of the signature, in seconds, by the clock of this machine.
    time: i64,
    /// Whether the request was signed. Otherwise it carried a token.
    is_signed: bool,
}

/// Remedy for a refused authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The clocks differ: a signature with the time of the provider may be accepted.
    Clock,
    /// The credential with this number is not accepted any more.
    Credential(u64),
}

/// Judgement of a response by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The response has no remedy: a success, or a refusal of the request itself.
    Final,
    /// The refusal has a remedy.
    Remedy(Remedy),
    /// The head does not name the error: its body decides ([`CredentialHandle::judge_body`]).
    Unnamed,
}

/// Fault of the gateway: it has no credential for the provider.
pub(crate) fn missing_credential() -> ApiError {
    ApiError::new(ErrorKind::UpstreamAuth, "The gateway has no valid credential for the upstream provider.")
}

impl CredentialHandle {
    /// Authorizes a request. `target` is the path with the query exactly as it is sent; `payload` hashes the body and is
    /// called only for a signature, which covers the host and the content type: these two must not be changed later.
    ///
    /// # Errors
    /// Returns the error for the client if there is no valid credential.
    pub(crate) fn authorize(
        &self,
        method: &str,
        target: &str,
        headers: &mut HeaderMap,
        payload: impl FnOnce() -> PayloadHash,
    ) -> Result<AuthorizedWith, ApiError> {
        let issued = self.current().ok_or_else(missing_credential)?;
        let time = unix_now();
        let mut with = AuthorizedWith { number: issued.number, skew: 0, time, is_signed: false };
        match &issued.authorization {
            Authorization::Bearer(value) => {
                headers.insert(header::AUTHORIZATION, value.clone());
            }
            Authorization::Signature(signer) => {
                (with.skew, with.is_signed) = (self.skew.seconds(), true);
                let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
                let payload = payload();
                let mut covered = vec![("host", text(header::HOST).unwrap_or_default())];
                covered.extend(text(header::CONTENT_TYPE).map(|kind| ("content-type", kind)));
                let request = CanonicalRequest {
                    method,
                    target,
                    headers: &covered,
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

    /// Judges a response to a request that was authorized by its head: whether its refusal has a remedy.
    pub(crate) fn judge(&self, with: AuthorizedWith, status: u16, headers: &HeaderMap) -> Judgement {
        if !matches!(status, 400 | 401 | 403) {
            return Judgement::Final;
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let date = text(&header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        let date = date.and_then(|date| i64::try_from(date.as_secs()).ok());
        // Observed before the error is known: the body, which names it, has no date. Assertions are dated by it too.
        self.skew.observe(date, headers.contains_key(header::AGE), with.time, unix_now());
        if !with.is_signed {
            // A token server's token that a provider does not know any more (RFC 6750, section 3.1).
            let is_refused = status == 401;
            return if is_refused {
                Judgement::Remedy(Remedy::Credential(with.number))
            } else {
                Judgement::Final
            };
        }
        match text(&X_AMZN_ERRORTYPE) {
            Some(code) => {
                let code = code.split(':').next().unwrap_or_default();
                self.remedy_of(with, code).map_or(Judgement::Final, Judgement::Remedy)
            }
            None => Judgement::Unnamed,
        }
    }

    /// Judges a refusal that its head does not name ([`Judgement::Unnamed`]) by its body, of which the beginning is
    /// enough. `None` if it has no remedy.
    pub(crate) fn judge_body(&self, with: AuthorizedWith, status: u16, body: &[u8]) -> Option<Remedy> {
        let error = ProviderError::decode(body);
        let mut named = false;
        for code in [error.kind.as_deref(), error.code.as_deref()].into_iter().flatten() {
            // `namespace#Name:address`, as AWS writes it in `__type` and `code`.
            let code = code.rsplit('#').next().unwrap_or_default();
            let code = code.split(':').next().unwrap_or_default();
            if let Some(remedy) = self.remedy_of(with, code) {
                return Some(remedy);
            }
            named |= code.ends_with("Exception");
        }
        // Endpoints in the formats of OpenAI and Anthropic name the error in words of these formats, and some gateways
        // in front of AWS remove the name: the sentences of AWS are the same everywhere.
        let says = |sentence: &str| error.message.contains(sentence);
        let is_refused = status == 401
            || says("security token included in the request is")
            || says("Signature expired")
            || says("Signature not yet current");
        if named || !is_refused {
            return None;
        }
        // Any code of a clock error: the refusal is about the authorization, and only the clocks are in question.
        let is_clock = self.skew.explains("InvalidSignatureException", with.skew);
        Some(if is_clock { Remedy::Clock } else { Remedy::Credential(with.number) })
    }

    /// Returns the remedy for an error of AWS by its code; `None` if there is none.
    fn remedy_of(&self, with: AuthorizedWith, code: &str) -> Option<Remedy> {
        if self.skew.explains(code, with.skew) {
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
