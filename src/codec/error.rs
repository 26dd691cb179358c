//! Error table: for every error that a request can end with, its status and codes in each client format, the side at
//! fault, and its metric label.
//!
//! Also [`ApiError`], the format-independent error value. The formats write it as JSON (`wire`), and `route::blame`
//! derives retry decisions from it.

use std::borrow::Cow;
use std::time::Duration;

/// Side at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSource {
    /// The client: its request, its key or its connection.
    Downstream,
    /// A provider: an invalid response, a time-out or an error response.
    Upstream,
    /// The gateway itself, or its configuration.
    Internal,
}

/// Error kind. Each kind has one row in the table of [`ErrorKind::row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request head is not valid HTTP.
    InvalidHead,
    /// The request head is larger than `limits.head`.
    HeadTooLarge,
    /// The request head did not arrive within `limits.header_timeout`.
    HeaderTimeout,
    /// The body is not JSON, is not an object, or has a duplicate member.
    InvalidJson,
    /// A field is missing, has the wrong type or has an invalid value.
    InvalidField,
    /// The target does not support a feature that the request uses.
    Unsupported,
    /// The body's type is not JSON.
    UnsupportedMediaType,
    /// The body has a content coding that the gateway does not decode, or several.
    UnsupportedEncoding,
    /// No key was sent.
    MissingKey,
    /// The key is unknown.
    InvalidKey,
    /// The key is disabled.
    DisabledKey,
    /// The key has expired.
    ExpiredKey,
    /// The AWS signature of the request is not valid.
    InvalidSignature,
    /// The key does not permit this model.
    ModelNotPermitted,
    /// The key or its account does not permit this service tier.
    TierNotPermitted,
    /// The model has no price, and requests of accounts need one.
    UnpricedModel,
    /// The key does not permit this API.
    EndpointNotPermitted,
    /// The key does not permit the client's network.
    NetworkNotPermitted,
    /// The key does not permit the client's certificate, or requires one.
    CertificateNotPermitted,
    /// The key's account is disabled.
    DisabledAccount,
    /// The key's account does not exist.
    UnknownAccount,
    /// A rate or concurrency limit is reached; a later attempt can succeed.
    RateLimited,
    /// The request alone exceeds a rate limit; a later attempt cannot succeed.
    OverLimit,
    /// The spend limit of a day or month is reached.
    SpendLimit,
    /// The request alone may cost more than a spend limit; a later attempt cannot succeed.
    OverSpendLimit,
    /// The account's balance is insufficient.
    EmptyBalance,
    /// The ledger is unavailable.
    LedgerUnavailable,
    /// The model does not exist.
    UnknownModel,
    /// The stored response does not exist or belongs to another account.
    UnknownResponse,
    /// The task does not exist or belongs to another account.
    UnknownTask,
    /// The operation is not possible in the task's present state.
    TaskState,
    /// The path does not exist.
    UnknownPath,
    /// The path does not support the method.
    WrongMethod,
    /// A WebSocket is requested where it is switched off, or in a version that is not supported.
    UpgradeRequired,
    /// The body is larger than `limits.body`.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The client disconnected before the response was complete.
    ClientGone,
    /// The gateway is overloaded.
    Overloaded,
    /// The gateway is shutting down and ended the response at its drain limit.
    ShuttingDown,
    /// No connection to the provider: refused, unreachable, no address, TLS failure.
    UpstreamUnreachable,
    /// The provider did not respond in time, or stalled in the middle of a response.
    UpstreamTimeout,
    /// The provider's response is invalid: no JSON, truncated, too large, or with a wrong encoding.
    UpstreamBroken,
    /// The provider rejected the gateway's credential.
    UpstreamAuth,
    /// The provider's rate limit is reached.
    UpstreamRateLimit,
    /// The provider rejected the request as invalid.
    UpstreamRejected,
    /// The provider rejected the request because it exceeds the context window of the model.
    ContextOverflow,
    /// The provider failed with a server error.
    UpstreamFailed,
    /// An internal error of the gateway.
    Internal,
}

/// One row of the error table.
#[derive(Clone, Copy, Debug)]
pub struct ErrorRow {
    /// Metric label, also used in logs.
    pub label: &'static str,
    /// Side at fault.
    pub source: ErrorSource,
    /// HTTP status sent to the client, unless the error carries its own.
    pub status: u16,
    /// `error.type` in the chat and responses formats.
    pub openai_type: &'static str,
    /// `error.code` in the chat and responses formats.
    pub openai_code: Option<&'static str>,
    /// `error.type` in the messages format.
    pub messages_type: &'static str,
    /// `error.status` in the generate format.
    pub generate_status: &'static str,
    /// Whether a retry is pointless. The response then has `x-should-retry: false`, which the official SDKs obey.
    pub final_: bool,
}

impl ErrorKind {
    /// All kinds, for the tables in docs and metrics.
    pub const ALL: [ErrorKind; 48] = [
        ErrorKind::InvalidHead,
        ErrorKind::HeadTooLarge,
        ErrorKind::HeaderTimeout,
        ErrorKind::InvalidJson,
        ErrorKind::InvalidField,
        ErrorKind::Unsupported,
        ErrorKind::UnsupportedMediaType,
        ErrorKind::UnsupportedEncoding,
        ErrorKind::MissingKey,
        ErrorKind::InvalidKey,
        ErrorKind::DisabledKey,
        ErrorKind::ExpiredKey,
        ErrorKind::InvalidSignature,
        ErrorKind::ModelNotPermitted,
        ErrorKind::TierNotPermitted,
        ErrorKind::UnpricedModel,
        ErrorKind::EndpointNotPermitted,
        ErrorKind::NetworkNotPermitted,
        ErrorKind::CertificateNotPermitted,
        ErrorKind::DisabledAccount,
        ErrorKind::UnknownAccount,
        ErrorKind::RateLimited,
        ErrorKind::OverLimit,
        ErrorKind::SpendLimit,
        ErrorKind::OverSpendLimit,
        ErrorKind::EmptyBalance,
        ErrorKind::LedgerUnavailable,
        ErrorKind::UnknownModel,
        ErrorKind::UnknownResponse,
        ErrorKind::UnknownTask,
        ErrorKind::TaskState,
        ErrorKind::UnknownPath,
        ErrorKind::WrongMethod,
        ErrorKind::UpgradeRequired,
        ErrorKind::BodyTooLarge,
        ErrorKind::BodyTimeout,
        ErrorKind::ClientGone,
        ErrorKind::Overloaded,
        ErrorKind::ShuttingDown,
        ErrorKind::UpstreamUnreachable,
        ErrorKind::UpstreamTimeout,
        ErrorKind::UpstreamBroken,
        ErrorKind::UpstreamAuth,
        ErrorKind::UpstreamRateLimit,
        ErrorKind::UpstreamRejected,
        ErrorKind::ContextOverflow,
        ErrorKind::UpstreamFailed,
        ErrorKind::Internal,
    ];

    /// Returns the row of this kind.
    #[rustfmt::skip] // a table reads as a table
    pub const fn row(self) -> ErrorRow {
        use ErrorSource::{Downstream as D, Internal as I, Upstream as U};
        const fn row(
            label: &'static str, source: ErrorSource, status: u16, openai: (&'static str, Option<&'static str>),
            messages_type: &'static str, generate_status: &'static str, final_: bool,
        ) -> ErrorRow {
            ErrorRow { label, source, status, openai_type: openai.0, openai_code: openai.1, messages_type, generate_status, final_ }
        }
        const INVALID: &str = "invalid_request_error";
        match self {
            ErrorKind::InvalidHead          => row("invalid_head",          D, 400, (INVALID, Some("invalid_request")),         "invalid_request",      "INVALID_ARGUMENT",   true),
            ErrorKind::HeadTooLarge         => row("head_too_large",        D, 431, (INVALID, Some("request_too_large")),       "invalid_request",      "INVALID_ARGUMENT",   true),
            ErrorKind::HeaderTimeout        => row("header_timeout",        D, 408, (INVALID, Some("request_timeout")),         "invalid_request",      "DEADLINE_EXCEEDED",  true),
            ErrorKind::InvalidJson          => row("invalid_json",          D, 400, (INVALID, Some("invalid_json")),            "invalid_request",      "INVALID_ARGUMENT",   false),
            ErrorKind::InvalidField         => row("invalid_field",         D, 400, (INVALID, None),                            "invalid_request",      "INVALID_ARGUMENT",   false),
            ErrorKind::Unsupported          => row("unsupported",           D, 400, (INVALID, Some("unsupported_parameter")),   "invalid_request",      "INVALID_ARGUMENT",   false),
            ErrorKind::UnsupportedMediaType => row("unsupported_media",     D, 415, (INVALID, Some("unsupported_media_type")),  "invalid_request",      "INVALID_ARGUMENT",   false),
            ErrorKind::UnsupportedEncoding  => row("unsupported_encoding",  D, 415, (INVALID, Some("unsupported_encoding")),    "invalid_request",      "INVALID_ARGUMENT",   false),
            ErrorKind::MissingKey           => row("missing_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            ErrorKind::InvalidKey           => row("invalid_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            ErrorKind::DisabledKey          => row("disabled_key",          D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            ErrorKind::ExpiredKey           => row("expired_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            ErrorKind::InvalidSignature     => row("invalid_signature",     D, 403, (INVALID, Some("invalid_signature")),       "authentication_error", "UNAUTHENTICATED",    false),
            ErrorKind::ModelNotPermitted    => row("model_not_permitted",   D, 403, ("permission_denied", Some("model_not_permitted")), "authentication_error", "PERMISSION_DENIED", false),
            ErrorKind::TierNotPermitted     => row("tier_not_permitted",    D, 403, ("permission_denied", Some("service_tier_not_permitted")), "authentication_error", "PERMISSION_DENIED", true),
            ErrorKind::UnpricedModel        => row("unpriced_model",        D, 403, ("permission_denied", Some("model_without_price")), "authentication_error", "PERMISSION_DENIED", true),
            ErrorKind::EndpointNotPermitted => row("endpoint_not_permitted", D, 403, ("permission_denied", Some("endpoint_not_permitted")), "authentication_error", "PERMISSION_DENIED", false),
            ErrorKind::NetworkNotPermitted  => row("network_not_permitted", D, 403, ("permission_denied", Some("network_not_permitted")), "authentication_error", "PERMISSION_DENIED", false),
            ErrorKind::CertificateNotPermitted => row("certificate_not_permitted", D, 403, ("permission_denied", Some("certificate_not_permitted")), "authentication_error", "PERMISSION_DENIED", false),
            ErrorKind::DisabledAccount      => row("disabled_account",      D, 401, (INVALID, Some("account_disabled")),        "authentication_error", "UNAUTHENTICATED",    true),
            ErrorKind::UnknownAccount       => row("unknown_account",       D, 401, (INVALID, Some("account_unknown")),         "authentication_error", "UNAUTHENTICATED",    true),
            ErrorKind::RateLimited          => row("rate_limited",          D, 429, ("rate_limit_exceeded", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", false),
            ErrorKind::OverLimit            => row("over_limit",            D, 429, ("rate_limit_exceeded", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", true),
            ErrorKind::SpendLimit           => row("spend_limit",           D, 429, ("insufficient_quota", Some("insufficient_quota")), "billing_error",  "RESOURCE_EXHAUSTED", true),
            ErrorKind::OverSpendLimit       => row("over_spend_limit",      D, 429, ("insufficient_quota", Some("insufficient_quota")), "billing_error",  "RESOURCE_EXHAUSTED", true),
            // Clients of the messages format get 402 instead (see `proxy::gateway::admit`).
            ErrorKind::EmptyBalance         => row("empty_balance",         D, 429, ("insufficient_quota", Some("insufficient_quota")), "billing_error",  "RESOURCE_EXHAUSTED", true),
            ErrorKind::LedgerUnavailable    => row("ledger_unavailable",    I, 503, ("service_unavailable", Some("service_unavailable")), "svc_api_error",  "UNAVAILABLE",        false),
            ErrorKind::UnknownModel         => row("unknown_model",         D, 404, (INVALID, Some("model_not_found")),         "not_found_error",      "NOT_FOUND",          false),
            ErrorKind::UnknownResponse      => row("unknown_response",      D, 404, (INVALID, None),                            "not_found_error",      "NOT_FOUND",          false),
            ErrorKind::UnknownTask          => row("unknown_task",          D, 404, (INVALID, Some("task_not_found")),          "not_found_error",      "NOT_FOUND",          false),
            ErrorKind::TaskState            => row("task_state",            D, 409, (INVALID, Some("task_state")),              "invalid_request",      "FAILED_PRECONDITION", false),
            ErrorKind::UnknownPath          => row("unknown_path",          D, 404, (INVALID, Some("unknown_url")),             "not_found_error",      "NOT_FOUND",          false),
            ErrorKind::WrongMethod          => row("wrong_method",          D, 405, (INVALID, Some("method_not_allowed")),      "invalid_request",      "UNIMPLEMENTED",      false),
            ErrorKind::UpgradeRequired      => row("upgrade_required",      D, 426, (INVALID, Some("upgrade_required")),        "invalid_request",      "UNIMPLEMENTED",      false),
            ErrorKind::BodyTooLarge         => row("body_too_large",        D, 413, (INVALID, Some("request_too_large")),       "invalid_request",      "INVALID_ARGUMENT",   false),
            // `final_` because the official SDKs retry a 408: they would send the same slow body again at once.
            ErrorKind::BodyTimeout          => row("body_timeout",          D, 408, (INVALID, Some("request_timeout")),         "invalid_request",      "DEADLINE_EXCEEDED",  true),
            ErrorKind::ClientGone           => row("client_gone",           D, 499, (INVALID, Some("client_closed_request")),   "invalid_request",      "CANCELLED",          true),
            ErrorKind::Overloaded           => row("overloaded",            I, 503, ("service_unavailable", Some("server_is_overloaded")), "overloaded_error", "UNAVAILABLE",  false),
            ErrorKind::ShuttingDown         => row("shutting_down",         I, 503, ("service_unavailable", Some("service_unavailable")),  "svc_api_error",    "UNAVAILABLE",  false),
            ErrorKind::UpstreamUnreachable  => row("upstream_unreachable",  U, 503, ("service_unavailable", Some("upstream_unreachable")), "upstream_error",   "UNAVAILABLE",  false),
            ErrorKind::UpstreamTimeout      => row("upstream_timeout",      U, 504, ("timeout", Some("upstream_timeout")),      "upstream_error",       "DEADLINE_EXCEEDED",  false),
            ErrorKind::UpstreamBroken       => row("upstream_broken",       U, 500, ("upstream_error", Some("upstream_error")), "upstream_error",       "INTERNAL",           false),
            ErrorKind::UpstreamAuth         => row("upstream_auth",         U, 500, ("upstream_error", Some("upstream_auth")),  "upstream_error",       "INTERNAL",           true),
            ErrorKind::UpstreamRateLimit    => row("upstream_rate_limit",   U, 429, ("rate_limit_error", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", false),
            ErrorKind::UpstreamRejected     => row("upstream_rejected",     U, 400, (INVALID, None),                            "invalid_request",      "INVALID_ARGUMENT",   false),
            // The type and the words are Anthropic's own: clients recover by them (see `wire::overflow`).
            ErrorKind::ContextOverflow      => row("context_overflow",      U, 400, (INVALID, Some("context_length_exceeded")), "invalid_request_error", "INVALID_ARGUMENT",  false),
            ErrorKind::UpstreamFailed       => row("upstream_failed",       U, 500, ("upstream_error", Some("upstream_error")), "upstream_error",       "INTERNAL",           false),
            ErrorKind::Internal             => row("internal",              I, 500, ("server_error", Some("internal_error")),   "svc_api_error",        "INTERNAL",           false),
        }
    }

    /// Returns the metric label.
    pub const fn label(self) -> &'static str {
        self.row().label
    }
}

/// Retry delay from the provider. A header value is forwarded unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Value of a `retry-after` header: seconds or an HTTP date (RFC 9110, section 10.2.3).
    Header(String),
    /// Delay that the provider gave outside of a `retry-after` header.
    Wait(Duration),
    /// Delay that the gateway advises because the provider gave none: some clients give up at a 429 without a delay.
    Advised(Duration),
    /// Rest of the window of an exhausted budget, in seconds, and its end, in Unix seconds.
    Window {
        /// Seconds until the end.
        wait: u64,
        /// End of the window.
        resets_at: i64,
    },
}

impl RetryAfter {
    /// Returns the delay. `None` for a point in time: this module has no clock.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            RetryAfter::Header(text) => text.trim().parse().ok().map(Duration::from_secs),
            RetryAfter::Wait(wait) | RetryAfter::Advised(wait) => Some(*wait),
            RetryAfter::Window { wait, .. } => Some(Duration::from_secs(*wait)),
        }
    }

    /// Returns whether the gateway advises the delay, and the provider gave none.
    pub fn is_advised(&self) -> bool {
        matches!(self, RetryAfter::Advised(_))
    }

    /// Returns the value of a `retry-after-ms` header, which the SDKs of OpenAI and Anthropic prefer to `retry-after`.
    /// `None` if the delay is a whole number of seconds.
    pub fn milliseconds(&self) -> Option<u64> {
        let RetryAfter::Wait(wait) = self else { return None };
        u64::try_from(wait.as_millis()).ok().filter(|millis| millis % 1_000 != 0)
    }

    /// Returns the delay in seconds, rounded up from milliseconds. `None` for a point in time.
    pub fn seconds(&self) -> Option<u64> {
        self.delay().and_then(|delay| u64::try_from(delay.as_millis().div_ceil(1_000)).ok())
    }

    /// Returns the value of a `retry-after` header: one that the provider sent, or the delay in seconds, rounded up.
    pub fn header_value(&self) -> Cow<'_, str> {
        match self {
            RetryAfter::Header(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.seconds().unwrap_or_default().to_string()),
        }
    }
}

/// API error, independent of the client's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Error kind.
    pub kind: ErrorKind,
    /// HTTP status for the client. By default that of the kind; an upstream error keeps the provider's.
    pub status: u16,
    /// Message for the client. Must not contain secrets, internal paths or provider addresses.
    pub message: Cow<'static, str>,
    /// Invalid field, as its path in the request.
    pub param: Option<Cow<'static, str>>,
    /// Error code of the provider (for example `context_length_exceeded`), for clients that evaluate it.
    pub code: Option<Box<str>>,
    /// Retry delay.
    pub retry_after: Option<RetryAfter>,
}

impl ApiError {
    /// Overload error: a limit of the gateway is reached. Advises to wait a second.
    pub fn overloaded() -> Self {
        let error = ApiError::new(ErrorKind::Overloaded, "The gateway is overloaded; please try again.");
        error.retry_after(Some(RetryAfter::Wait(Duration::from_secs(1))))
    }

    /// Creates an error with the status of its kind.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        ApiError {
            kind,
            status: kind.row().status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// Sets the invalid field.
    #[must_use]
    pub fn param(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(field.into());
        self
    }

    /// Sets the HTTP status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Sets the retry delay.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<RetryAfter>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Returns whether the provider says when a retry may succeed.
    pub fn has_provider_delay(&self) -> bool {
        self.retry_after.as_ref().is_some_and(|wait| !wait.is_advised())
    }

    /// Returns the end of the window of an exhausted budget, in Unix seconds. `None` for other errors.
    pub fn resets_at(&self) -> Option<i64> {
        match self.retry_after {
            Some(RetryAfter::Window { resets_at, .. }) => Some(resets_at),
            _ => None,
        }
    }

    /// Creates the error for a missing field, with the message that OpenAI's API uses.
    pub fn missing(field: &'static str) -> Self {
        ApiError::new(ErrorKind::InvalidField, format!("Missing required parameter: '{field}'.")).param(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn error_kind_label_is_unique_and_status_fits_its_source() {
        let mut labels = HashSet::new();
        for kind in ErrorKind::ALL {
            let row = kind.row();
            assert!(labels.insert(row.label), "{} twice", row.label);
            match row.source {
                ErrorSource::Downstream => assert!((400..500).contains(&row.status), "{}", row.label),
                ErrorSource::Internal => assert!(row.status >= 500, "{}", row.label),
                ErrorSource::Upstream => assert!(row.status >= 400, "{}", row.label),
            }
        }
    }
}
