//! HTTP of the admin API: bodies that are read, and answers that are sent.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use serde_json::{Map, Value};

use super::body::AnswerBody;
use super::error::{AdminApiError, ErrorCode};
use super::route_table::AdminRoute;
use super::schema::BodyType;
use super::unique::repeated_member;
use routing::account::NewKey;

/// Largest body in bytes.
const BODY: usize = 256 << 10;
/// Largest body with whole files in bytes: a file of 100,000 keys.
const LARGE_BODY: usize = 32 << 20;
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest request id that is taken over from the client, in bytes.
const LONGEST_ID: usize = 64;

/// Reads a body: a JSON object. Pages of other origins can only send forms and plain text without asking, so that the
/// type is checked also for operations without a body.
///
/// # Errors
/// Returns an error if the body is none, too large or too late.
pub(super) async fn read_body<B>(
    route: &AdminRoute,
    headers: &HeaderMap,
    body: B,
) -> Result<Map<String, Value>, AdminApiError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let most = if route.id == "validateConfig" { LARGE_BODY } else { BODY };
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, most).collect()).await;
    let read = read.map_err(|_| AdminApiError::new(ErrorCode::Invalid, "the body did not arrive in time"))?;
    let read = read.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            AdminApiError::new(ErrorCode::TooLarge, format!("the body has more than {most} bytes"))
        } else {
            AdminApiError::new(ErrorCode::Invalid, "the body ended early")
        }
    })?;
    let bytes = read.to_bytes();
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json")
        && !media.eq_ignore_ascii_case("application/merge-patch+json")
    {
        let message = "send JSON, with content-type: application/json";
        return Err(AdminApiError::new(ErrorCode::UnsupportedType, message));
    }
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| AdminApiError::new(ErrorCode::Invalid, format!("the body is not JSON: {error}")))?;
    if let Some(name) = repeated_member(&bytes) {
        return Err(AdminApiError::field(&name, "the member is there twice"));
    }
    match value {
        Value::Object(members) if !matches!(route.body, BodyType::None) || members.is_empty() => Ok(members),
        Value::Object(_) => Err(AdminApiError::new(ErrorCode::Invalid, "the operation has no body")),
        _ => Err(AdminApiError::new(ErrorCode::Invalid, "the body must be a JSON object")),
    }
}

/// Returns a document of a type.
pub(super) fn whole(media: &'static str, text: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(text.into()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Returns a page that loads nothing and is shown in no frame.
pub(super) fn page(status: StatusCode, text: String) -> Response<AnswerBody> {
    const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let mut response = whole("text/html; charset=utf-8", text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Returns a redirect to an address.
///
/// # Errors
/// Returns an error if the address cannot be in a header.
pub(super) fn redirect(address: &str) -> Result<Response<AnswerBody>, AdminApiError> {
    let wrong = |_| AdminApiError::new(ErrorCode::Internal, "the address of the issuer cannot be sent");
    let location = HeaderValue::try_from(address).map_err(wrong)?;
    let mut response = page(StatusCode::FOUND, String::new());
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Returns the answer of an error.
pub(super) fn error_response(error: &AdminApiError, id: &str) -> Response<AnswerBody> {
    let mut response = whole("application/json", format!("{}\n", error.json(id)));
    let status: StatusCode = error.code.row().1;
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let (false, Ok(allow)) = (error.allow.is_empty(), HeaderValue::from_str(&error.allow)) {
        headers.insert(header::ALLOW, allow);
    }
    if error.code == ErrorCode::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"model-gateway\""));
    }
    response
}

/// Returns the client's request id if it is short and plain, otherwise a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let plain = |id: &&str| {
        (1..=LONGEST_ID).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match given.filter(plain) {
        Some(id) => id.to_owned(),
        // Random digits of a key that is not used.
        None => NewKey::generate()
            .map(|key| format!("adm_{}", key.text().chars().skip(4).take(20).collect::<String>()))
            .unwrap_or_else(|_| "adm_unknown".to_owned()),
    }
}
