//! Errors of the Converse format: HTTP bodies, and exceptions of a stream
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>, the section on errors).

use bytes::BytesMut;

use crate::error::{ApiError, ErrorKind, ErrorSource};
use framing::event_stream::{HeaderValue, MessageWriter, put_header};
use json::{Cursor, Writer};

/// Exceptions with their statuses: those of the service model of `bedrock-runtime` (botocore 1.44.8, November 2026), and
/// those that AWS answers before any service
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html>).
const EXCEPTIONS: [(&str, u16); 16] = [
    ("AccessDeniedException", 403),
    ("ConflictException", 400),
    ("ExpiredTokenException", 403),
    ("InternalServerException", 500),
    ("InvalidSignatureException", 403),
    ("MissingAuthenticationTokenException", 403),
    ("ModelErrorException", 424),
    ("ModelNotReadyException", 429),
    ("ModelTimeoutException", 408),
    ("ResourceNotFoundException", 404),
    ("ServiceQuotaExceededException", 400),
    ("ServiceUnavailableException", 503),
    ("ThrottlingException", 429),
    ("UnknownOperationException", 404),
    ("UnrecognizedClientException", 403),
    ("ValidationException", 400),
];

/// Returns the exception that a response of AWS names, without the address behind the name. `None` if it is none of the
/// service, or one that has another status.
pub fn named(name: &str, status: u16) -> Option<&'static str> {
    let name = name.split(':').next().unwrap_or_default();
    let name = name.rsplit('#').next().unwrap_or_default();
    EXCEPTIONS.iter().find(|row| **row == (name, status)).map(|(name, _)| *name)
}

/// Returns the name of the exception for an error: the value of `x-amzn-errortype`.
pub fn exception(error: &ApiError) -> &'static str {
    // The provider's own name is more precise than its status.
    let own = error.code.as_deref().filter(|_| error.kind.row().source == ErrorSource::Upstream);
    if let Some(name) = own.and_then(|code| named(code, error.status)) {
        return name;
    }
    match (error.kind, error.status) {
        (
            ErrorKind::ModelNotPermitted
            | ErrorKind::TierNotPermitted
            | ErrorKind::UnpricedModel
            | ErrorKind::EndpointNotPermitted
            | ErrorKind::NetworkNotPermitted
            | ErrorKind::CertificateNotPermitted,
            _,
        ) => "AccessDeniedException",
        (ErrorKind::InvalidSignature, _) => "InvalidSignatureException",
        (ErrorKind::InvalidKey | ErrorKind::DisabledKey, _) => "UnrecognizedClientException",
        (ErrorKind::ExpiredKey, _) => "ExpiredTokenException",
        (ErrorKind::MissingKey, _) => "MissingAuthenticationTokenException",
        (ErrorKind::UnknownPath | ErrorKind::WrongMethod, _) => "UnknownOperationException",
        (ErrorKind::UpstreamTimeout, _) => "ModelTimeoutException",
        (_, 401) => "UnrecognizedClientException",
        (_, 402 | 403) => "AccessDeniedException",
        (_, 404) => "ResourceNotFoundException",
        (_, 408) => "ModelTimeoutException",
        (_, 424) => "ModelErrorException",
        (_, 429) => "ThrottlingException",
        (_, 400..=499) => "ValidationException",
        // 529 is Anthropic's status for an overload.
        (_, 503 | 504 | 529) => "ServiceUnavailableException",
        _ => "InternalServerException",
    }
}

/// Returns the status with which clients receive an error: for errors of providers, and of the gateway itself, the one
/// that the service model has for the exception. SDKs decide by the status whether they repeat a request: botocore does so
/// after 500, 502, 503 and 504, not after 529.
pub fn status(error: &ApiError) -> u16 {
    if error.kind.row().source == ErrorSource::Downstream {
        // Statuses of HTTP itself and of a refused key.
        return error.status;
    }
    let name = exception(error);
    EXCEPTIONS.iter().find(|(known, _)| *known == name).map_or(error.status, |(_, status)| *status)
}

/// Writes `{"message","__type"}`. SDKs read the type from the header `x-amzn-errortype` first, and from this member if
/// the header is missing.
pub fn encode(error: &ApiError, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("message").string(&error.message);
    json.key("__type").string(exception(error)).end_object();
}

/// Writes an exception of a stream: one of the five that the service model defines.
pub fn encode_event(error: &ApiError, out: &mut BytesMut) {
    let name = match exception(error) {
        "ThrottlingException" => "throttlingException",
        "ServiceUnavailableException" => "serviceUnavailableException",
        "InternalServerException" if error.kind == ErrorKind::UpstreamBroken => "modelStreamErrorException",
        "InternalServerException" | "ModelTimeoutException" => "internalServerException",
        _ => "validationException",
    };
    let mut headers = Vec::with_capacity(128);
    for (header, value) in
        [(":exception-type", name), (":content-type", "application/json"), (":message-type", "exception")]
    {
        put_header(header, HeaderValue::Text(value), &mut headers);
    }
    let message = MessageWriter::begin(&headers, out);
    Writer::new(out).begin_object().key("message").string(&error.message).end_object();
    message.end(out);
}

/// Returns whether an error body has the shape of this format: an object with a message.
pub fn is_in_shape(body: &str) -> bool {
    let mut found = false;
    let mut json = Cursor::new(body);
    let read = crate::wire::watch::members(&mut json, |key, json| {
        let value = json.raw()?;
        found |= key.is("message") && value.as_str().is_some_and(|text| !text.is_empty());
        Ok(())
    });
    read.is_ok() && json.end().is_ok() && found
}
