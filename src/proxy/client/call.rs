//! Provider calls: requests whose response is collected whole, and what a failure of one means to a client. Jobs, tasks
//! and health checks are built on them.
//!
//! Nothing here writes to a client: the caller decides what a result or an error is used for.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, header};

use super::UpstreamClient;
use super::body::{BodyError, OpenResponse};
use super::send::{CallLog, SendError, UpstreamRequest};
use crate::credentials::authorize::missing_credential;
use crate::gateway::reply::from_pingora;
use crate::gateway::spans::retry_delay;
use crate::upstream_route::redact_secrets;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::provider::Provider;
use codec::wire::error::{ProviderError, from_provider};
use driver::body_memory::{MemoryExceeded, MemoryTally};
use driver::encoding::ContentDecoder;
use driver::names;
use driver::outcome::{low_rate_error, resolution_error, timeout_error};
use driver::reader::MAX_ERROR_BODY;

/// Response lengths, in bytes, for which the buffer is allocated before the body arrives. The upper end is also the
/// most that is allocated in advance.
const PREALLOCATED: std::ops::Range<usize> = 64 << 10..64 << 20;

/// Complete response of a call.
pub(crate) struct CallResponse {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<RetryAfter>,
    /// Input tokens that the head reports, as InvokeModel of Amazon Bedrock does.
    pub(crate) input_tokens: Option<u64>,
    pub(crate) body: Bytes,
}

impl CallResponse {
    /// Whether the status is 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl SendError {
    /// Returns the client's error, and records the detail for the access log.
    fn into_api(self, log: &mut CallLog) -> ApiError {
        match self {
            SendError::Timeout => timeout_error(),
            SendError::NoHead => malformed_response(),
            SendError::Credential(reason) => {
                log.set_detail(reason);
                missing_credential()
            }
            SendError::Resolve(error) => {
                log.set_detail(error);
                resolution_error()
            }
            SendError::Connect(error) => {
                log.set_detail(&error);
                from_pingora(&error)
            }
            SendError::Connection(error) => {
                let error = error.into_up();
                log.set_detail(&error);
                from_pingora(&error)
            }
        }
    }
}

impl BodyError {
    /// Returns the client's error, and records the detail for the access log.
    pub(crate) fn into_api(self, log: &mut CallLog) -> ApiError {
        match self {
            BodyError::Timeout => timeout_error(),
            BodyError::LowRate => low_rate_error(),
            BodyError::Broken(error) => {
                log.set_detail(&error);
                from_pingora(&error.into_up())
            }
        }
    }
}

/// Reason why a body was not collected.
enum CollectError {
    Body(BodyError),
    Memory(MemoryExceeded),
    /// The body is larger than its limit.
    TooLarge,
}

impl From<BodyError> for CollectError {
    fn from(error: BodyError) -> Self {
        CollectError::Body(error)
    }
}

impl UpstreamClient {
    /// Sends a call and reads the response head.
    ///
    /// # Errors
    /// Returns the client's error if no response head arrives: the meaning of the connection error, or
    /// [`ErrorKind::UpstreamTimeout`] if it does not arrive in time.
    pub(crate) async fn call(
        &self,
        request: &UpstreamRequest<'_>,
        log: &mut CallLog,
    ) -> Result<OpenResponse, ApiError> {
        self.send(request, log).await.map_err(|error| error.into_api(log))
    }
}

impl OpenResponse {
    /// Returns when the provider permits a retry; `None` if it does not say.
    pub(crate) fn retry_after(&self) -> Option<RetryAfter> {
        retry_delay(self.headers())
    }

    /// Collects and decodes the body, at most `most` bytes; of an error response only the first [`MAX_ERROR_BODY`]
    /// bytes. `tally` counts the memory of a successful body.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UpstreamBroken`] if the body is too large or cannot be decoded, an overload error if the
    /// memory budget is exhausted, and the client's error if the body breaks off.
    pub(crate) async fn collect_body(
        mut self,
        most: usize,
        tally: Option<MemoryTally>,
        log: &mut CallLog,
    ) -> Result<CallResponse, ApiError> {
        let (success, retry_after) = (self.is_success(), self.retry_after());
        let input_tokens = self.text(&names::X_AMZN_BEDROCK_INPUT).and_then(|text| text.trim().parse().ok());
        let status = error_status(self.status, self.text(&names::X_AMZN_ERRORTYPE));
        let decoder = ContentDecoder::new(self.text(&header::CONTENT_ENCODING).unwrap_or_default());
        let decoder = decoder.map_err(|error| {
            log.set_detail(error);
            malformed_response()
        })?;
        let plain = decoder.is_none();
        self.read_decoded(decoder, !success);
        // Error bodies are bounded by `MAX_ERROR_BODY`, so the memory budget need not count them.
        let mut tally = tally.filter(|_| success);
        // A large response states its length: allocate once, instead of moving the body each time the buffer grows.
        let length = self.length.and_then(|length| usize::try_from(length).ok());
        // The length of a compressed body is not that of the decoded one, and of an error only the beginning is kept.
        let ahead = length.filter(|length| *length > PREALLOCATED.start && plain && success);
        let capacity = ahead.map_or(0, |length| length.min(PREALLOCATED.end).min(most));
        let truncate_at = if success { usize::MAX } else { MAX_ERROR_BODY };
        let body = self.collect::<CollectError>(capacity, truncate_at, |collected, piece| {
            if let Some(tally) = &mut tally {
                tally.add(piece).map_err(CollectError::Memory)?;
            }
            if success && collected + piece > most { Err(CollectError::TooLarge) } else { Ok(()) }
        });
        let body = body.await.map_err(|error| match error {
            CollectError::Body(error) => error.into_api(log),
            CollectError::Memory(MemoryExceeded::ProcessLimit) => ApiError::overloaded(),
            CollectError::Memory(MemoryExceeded::RequestLimit) => responses_too_large(most),
            CollectError::TooLarge => {
                let message = format!("The upstream provider's response is larger than {most} bytes.");
                ApiError::new(ErrorKind::UpstreamBroken, message)
            }
        })?;
        let body = match tally {
            Some(tally) => tally.attach_permit(body),
            None => body,
        };
        Ok(CallResponse { status, retry_after, input_tokens, body })
    }
}

/// Size error: the responses that were collected for one request exceed `limit` bytes together.
pub(crate) fn responses_too_large(limit: usize) -> ApiError {
    let message = format!("The upstream provider's responses exceed {limit} bytes in total.");
    ApiError::new(ErrorKind::UpstreamBroken, message)
}

/// Turns the head of a call into that of a GET without a body.
pub(crate) fn to_get(parts: &mut Parts) {
    parts.method = Method::GET;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
}

/// Returns the status that says what an error response means. `exception` is its header `x-amzn-errortype`: AWS reports a
/// used-up quota as a bad request, and names it there only.
pub(crate) fn error_status(status: u16, exception: Option<&str>) -> u16 {
    let is_quota = exception.is_some_and(|name| name.contains("ServiceQuotaExceeded"));
    if is_quota && status == 400 { 429 } else { status }
}

/// Converts a provider's error response to the client's error, without the provider's secrets. `log` gets the original
/// message where it differs.
pub(crate) fn upstream_error(
    provider: Option<&Arc<Provider>>,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    log: &mut CallLog,
) -> ApiError {
    let reported = ProviderError::decode(body);
    // Providers quote the credential that they reject, which is the gateway's own: no client may read it.
    let detail = redact_secrets(provider, reported.message.clone());
    let mut error = from_provider(status, reported, retry_after);
    error.message = redact_secrets(provider, error.message.into_owned()).into();
    log.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
    error
}

/// Upstream error: the response could not be parsed.
pub(crate) fn malformed_response() -> ApiError {
    ApiError::new(ErrorKind::UpstreamBroken, "The upstream provider's response is not valid.")
}
