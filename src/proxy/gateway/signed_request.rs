//! Authentication of requests that an AWS SDK signed, with Signature Version 4 and an access key of keys.toml.
//!
//! A signature covers the body, so it is verified in two steps: [`authenticate_signed`] finds the key by its id and
//! checks what the head tells, and [`verify_signature`] checks the signature once the body has arrived. Nothing is
//! charged in between. Must not live here: the signature itself (`cloud::sigv4`).

use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST};
use pingora::http::RequestHeader;

use super::auth::{conflicting_keys, extract_key, set_key};
use super::context::Context;
use cloud::sigv4::{PayloadHash, Presented, SignatureError, SigningDate, is_normalized};
use codec::error::{ApiError, ErrorKind};
use codec::wire::path::{self, Endpoint};
use routing::account::Key;

/// Signing name of the service that the gateway stands for.
const SERVICE: &str = "bedrock";
/// Message of AWS for a signature that is another one than expected.
const MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS \
                        Secret Access Key and signing method. Consult the service documentation for details.";

/// Returns whether a request has a signature of AWS. Clients of other endpoints never sign.
pub(crate) fn is_signed(head: &RequestHeader, endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::Converse { .. } | Endpoint::Invoke { .. })
        && authorization(head).is_some_and(Presented::is_present)
}

/// Finds the key of a signed request, and checks everything but the signature itself.
///
/// # Errors
/// Returns the error for the client if the access key is unknown, disabled or expired, if the signature is malformed or
/// too old, or if the request has an API key too.
pub(crate) fn authenticate_signed(head: &RequestHeader, ctx: &mut Context) -> Result<Arc<Key>, ApiError> {
    if extract_key(head)?.is_some() {
        return Err(conflicting_keys("authorization", "an API key header"));
    }
    let now = ctx.now();
    let presented = presented(head, now)?;
    if head.headers.contains_key("x-amz-security-token") {
        return Err(unknown_token(
            "The security token included in the request is invalid. Access keys of this gateway have no session: unset \
             AWS_SESSION_TOKEN.",
        ));
    }
    let live = ctx.active.clone();
    let Some(access) = live.snapshot.keys.find_access_key(presented.access_key_id) else {
        return Err(unknown_token("The security token included in the request is invalid."));
    };
    let key = set_key(ctx, Some(&access.key), "").map_err(|error| error.status(403))?;
    if presented.scope.service != SERVICE {
        return Err(refused(format!("Credential should be scoped to correct service: '{SERVICE}'.")));
    }
    let payload = head.headers.get("x-amz-content-sha256").map(|hash| hash.as_bytes());
    if payload.is_some_and(|hash| hash.starts_with(b"UNSIGNED") || hash.starts_with(b"STREAMING")) {
        return Err(refused(
            "The body must be signed as a whole: UNSIGNED-PAYLOAD and streaming signatures are not supported.",
        ));
    }
    if head.headers.contains_key(http::header::CONTENT_ENCODING) {
        return Err(refused("A signed request must have no content encoding."));
    }
    presented.check(&headers(head), now).map_err(|error| signature_error(error, head, now))?;
    Ok(key)
}

/// Verifies the signature of a request whose body has arrived.
///
/// # Errors
/// Returns [`ErrorKind::InvalidSignature`] if it is not the signature of this request with the secret of its access key.
pub(crate) fn verify_signature(
    head: &RequestHeader,
    ctx: &Context,
    payload: &PayloadHash,
) -> Result<(), ApiError> {
    let now = ctx.now();
    let presented = presented(head, now)?;
    let Some(access) = ctx.active.snapshot.keys.find_access_key(presented.access_key_id) else {
        return Err(refused(MISMATCH));
    };
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    // A client signs the normal form of its path. Another path with the same one is not what it signed: AWS has no operation
    // there.
    if !is_normalized(target) {
        return Err(refused(MISMATCH));
    }
    let request = (head.method.as_str(), target);
    let verified = presented.verify(access.expose_secret(), request, &headers(head), payload, now);
    verified.map_err(|error| signature_error(error, head, now))
}

/// Returns the error for a request without a key whose signature is in its URL. `None` for any other request.
pub(crate) fn missing_signature(head: &RequestHeader) -> Option<ApiError> {
    path::query_value(head.uri.query(), "X-Amz-Signature")?;
    Some(refused("Presigned requests are not supported: send the signature in the authorization header."))
}

fn authorization(head: &RequestHeader) -> Option<&str> {
    head.headers.get(AUTHORIZATION)?.to_str().ok()
}

fn presented(head: &RequestHeader, now: i64) -> Result<Presented<'_>, ApiError> {
    let mut values = head.headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next().and_then(|value| value.to_str().ok()), values.next()) else {
        return Err(signature_error(SignatureError::Malformed, head, now));
    };
    Presented::parse(value).map_err(|error| signature_error(error, head, now))
}

/// Returns all headers. A value that is no text counts as empty: it can be part of no signature. Over HTTP/2 the host is part of the target, and signed as a header.
fn headers(head: &RequestHeader) -> Vec<(&str, &str)> {
    let mut headers: Vec<(&str, &str)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap_or_default()))
        .collect();
    if let Some(authority) = head.uri.authority().filter(|_| !head.headers.contains_key(HOST)) {
        headers.push(("host", authority.as_str()));
    }
    headers
}

fn refused(message: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorKind::InvalidSignature, message)
}

fn unknown_token(message: &'static str) -> ApiError {
    ApiError::new(ErrorKind::InvalidKey, message).status(403)
}

/// Returns the error for the client, in the words of AWS where its SDKs or their users look for them.
fn signature_error(error: SignatureError, head: &RequestHeader, now: i64) -> ApiError {
    match error {
        SignatureError::Mismatch => refused(MISMATCH),
        SignatureError::Expired => {
            let sent =
                head.headers.get("x-amz-date").and_then(|date| SigningDate::parse(date.to_str().ok()?));
            let Some(sent) = sent else { return refused(error.to_string()) };
            let (own, minutes) = (SigningDate::from_unix(now), 5);
            if sent.unix() < now {
                let end = SigningDate::from_unix(now.saturating_sub(minutes * 60));
                refused(format!(
                    "Signature expired: {} is now earlier than {} ({} - {minutes} min.)",
                    sent.as_str(),
                    end.as_str(),
                    own.as_str()
                ))
            } else {
                let end = SigningDate::from_unix(now.saturating_add(minutes * 60));
                refused(format!(
                    "Signature not yet current: {} is still later than {} ({} + {minutes} min.)",
                    sent.as_str(),
                    end.as_str(),
                    own.as_str()
                ))
            }
        }
        other => refused(other.to_string()),
    }
}
