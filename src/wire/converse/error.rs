//! Errors of the Converse format: HTTP bodies, and exceptions of a stream
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>, the section on errors).

use bytes::BytesMut;

use crate::error::{ApiError, ErrorKind};
use crate::framing::event_stream::{HeaderValue, MessageWriter, put_header};
use crate::json::{Cursor, Writer};

/// Returns the name of the exception for an error: the value of `x-amzn-errortype`.
pub fn exception(error: &ApiError) -> &'static str {
    match (error.kind, error.status) {
        (
            ErrorKind::ModelNotPermitted
            | ErrorKind::EndpointNotPermitted
            | ErrorKind::NetworkNotPermitted
            | ErrorKind::CertificateNotPermitted,
            _,
        ) => "AccessDeniedException",
        (ErrorKind::InvalidSignature, _) => "InvalidSignatureException",
        (ErrorKind::InvalidKey | ErrorKind::DisabledKey, _) => "UnrecognizedClientException",
        (ErrorKind::ExpiredKey, _) => "ExpiredTokenException",
        (ErrorKind::MissingKey, _) => "MissingAuthenticationTokenException",
        (_, 401) => "UnrecognizedClientException",
        (_, 402 | 403) => "AccessDeniedException",
        (_, 404) => "ResourceNotFoundException",
        (_, 408 | 504) => "ModelTimeoutException",
        (_, 429) => "ThrottlingException",
        (_, 400..=499) => "ValidationException",
        (_, 503 | 529) => "ServiceUnavailableException",
        _ => "InternalServerException",
    }
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
