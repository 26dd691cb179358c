//! Everything that can go wrong with a request, in one table: what the client is told, whose fault it is, and under
//! which name it is counted.

use std::borrow::Cow;
use std::time::Duration;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client: its request, its key, its connection.
    Downstream,
    /// A provider: its answer, its silence, its refusal.
    Upstream,
    /// The gateway itself, or its configuration.
    Internal,
}

/// What went wrong. Each kind has one row in the table of [`Kind::row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request's head is not HTTP.
    InvalidHead,
    /// The request's head is larger than `limits.head`.
    HeadTooLarge,
    /// The request's head did not arrive in time.
    HeaderTimeout,
    /// The body is not JSON, not an object, or has a member twice.
    InvalidJson,
    /// A field is missing, has the wrong type or an impossible value.
    InvalidField,
    /// The request asks for something that the target cannot do.
    Unsupported,
    /// The body is compressed or of a type that is not JSON.
    UnsupportedMediaType,
    /// No key was sent.
    MissingKey,
    /// The key is unknown.
    InvalidKey,
    /// The key is known and switched off.
    DisabledKey,
    /// The key is known and its time is over.
    ExpiredKey,
    /// The key may not use this model.
    ModelNotPermitted,
    /// The key may not use this API.
    EndpointNotPermitted,
    /// The key may not be used from the client's network.
    NetworkNotPermitted,
    /// The key's account is switched off.
    DisabledAccount,
    /// The key's account does not exist.
    UnknownAccount,
    /// A rate or number is reached; later it is not.
    RateLimited,
    /// The request is larger than a rate ever permits.
    OverLimit,
    /// What may be spent in a day or month is spent.
    SpendLimit,
    /// The account's balance does not suffice.
    EmptyBalance,
    /// Balances cannot be asked for.
    LedgerUnavailable,
    /// No such model.
    UnknownModel,
    /// No such response is kept, or another account's.
    UnknownResponse,
    /// No such task is kept, or another account's.
    UnknownTask,
    /// What is asked of a task does not fit how far it is.
    TaskState,
    /// No such path.
    UnknownPath,
    /// The path exists, the method does not.
    WrongMethod,
    /// The body is larger than `limits.body`.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The client went away before the answer was complete.
    ClientGone,
    /// The gateway has more work than it may take on.
    Overloaded,
    /// The gateway is stopping and ended the answer at its drain limit.
    ShuttingDown,
    /// No connection to the provider: refused, unreachable, no address, TLS failure.
    UpstreamUnreachable,
    /// The provider did not answer in time, or stopped in the middle.
    UpstreamTimeout,
    /// The provider's answer is not what its API promises: no JSON, cut short, too large, wrong encoding.
    UpstreamBroken,
    /// The provider refused the gateway's own credential.
    UpstreamAuth,
    /// The provider limits the rate.
    UpstreamRateLimit,
    /// The provider refused the request as invalid.
    UpstreamRejected,
    /// The provider failed.
    UpstreamFailed,
    /// A fault of the gateway.
    Internal,
}

/// One row of the error table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind's name in metrics and logs.
    pub label: &'static str,
    /// Whose fault it is.
    pub source: Source,
    /// HTTP status towards the client, where the error does not carry one of its own.
    pub status: u16,
    /// `error.type` in the chat and responses formats.
    pub openai_type: &'static str,
    /// `error.code` in the chat and responses formats.
    pub openai_code: Option<&'static str>,
    /// `error.type` in the messages format (specification, section 7).
    pub messages_type: &'static str,
    /// `error.status` in the generate format.
    pub generate_status: &'static str,
    /// Whether the official SDKs should be told not to try again (`x-should-retry: false`).
    pub final_: bool,
}

impl Kind {
    /// All kinds, for the tables in docs and metrics.
    pub const ALL: [Kind; 40] = [
        Kind::InvalidHead,
        Kind::HeadTooLarge,
        Kind::HeaderTimeout,
        Kind::InvalidJson,
        Kind::InvalidField,
        Kind::Unsupported,
        Kind::UnsupportedMediaType,
        Kind::MissingKey,
        Kind::InvalidKey,
        Kind::DisabledKey,
        Kind::ExpiredKey,
        Kind::ModelNotPermitted,
        Kind::EndpointNotPermitted,
        Kind::NetworkNotPermitted,
        Kind::DisabledAccount,
        Kind::UnknownAccount,
        Kind::RateLimited,
        Kind::OverLimit,
        Kind::SpendLimit,
        Kind::EmptyBalance,
        Kind::LedgerUnavailable,
        Kind::UnknownModel,
        Kind::UnknownResponse,
        Kind::UnknownTask,
        Kind::TaskState,
        Kind::UnknownPath,
        Kind::WrongMethod,
        Kind::BodyTooLarge,
        Kind::BodyTimeout,
        Kind::ClientGone,
        Kind::Overloaded,
        Kind::ShuttingDown,
        Kind::UpstreamUnreachable,
        Kind::UpstreamTimeout,
        Kind::UpstreamBroken,
        Kind::UpstreamAuth,
        Kind::UpstreamRateLimit,
        Kind::UpstreamRejected,
        Kind::UpstreamFailed,
        Kind::Internal,
    ];

    /// The kind's row.
    #[rustfmt::skip] // a table reads as a table
    pub const fn row(self) -> Row {
        use Source::{Downstream as D, Internal as I, Upstream as U};
        const fn row(
            label: &'static str, source: Source, status: u16, openai: (&'static str, Option<&'static str>),
            messages_type: &'static str, generate_status: &'static str, final_: bool,
        ) -> Row {
            Row { label, source, status, openai_type: openai.0, openai_code: openai.1, messages_type, generate_status, final_ }
        }
        const INVALID: &str = "invalid_request_error";
        match self {
            Kind::InvalidHead          => row("invalid_head",          D, 400, (INVALID, Some("invalid_request")),         "invalid_request",      "INVALID_ARGUMENT",   true),
            Kind::HeadTooLarge         => row("head_too_large",        D, 431, (INVALID, Some("request_too_large")),       "request_too_large",    "INVALID_ARGUMENT",   true),
            Kind::HeaderTimeout        => row("header_timeout",        D, 408, (INVALID, Some("request_timeout")),         "timeout_error",        "DEADLINE_EXCEEDED",  true),
            Kind::InvalidJson          => row("invalid_json",          D, 400, (INVALID, Some("invalid_json")),            "invalid_request",      "INVALID_ARGUMENT",   false),
            Kind::InvalidField         => row("invalid_field",         D, 400, (INVALID, None),                            "invalid_request",      "INVALID_ARGUMENT",   false),
            Kind::Unsupported          => row("unsupported",           D, 400, (INVALID, Some("unsupported_parameter")),   "invalid_request",      "INVALID_ARGUMENT",   false),
            Kind::UnsupportedMediaType => row("unsupported_media",     D, 415, (INVALID, Some("unsupported_media_type")),  "invalid_request",      "INVALID_ARGUMENT",   false),
            Kind::MissingKey           => row("missing_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            Kind::InvalidKey           => row("invalid_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            Kind::DisabledKey          => row("disabled_key",          D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            Kind::ExpiredKey           => row("expired_key",           D, 401, (INVALID, Some("invalid_api_key")),         "authentication_error", "UNAUTHENTICATED",    false),
            Kind::ModelNotPermitted    => row("model_not_permitted",   D, 403, ("permission_denied", Some("model_not_permitted")), "permission_error", "PERMISSION_DENIED", false),
            Kind::EndpointNotPermitted => row("endpoint_not_permitted", D, 403, ("permission_denied", Some("endpoint_not_permitted")), "permission_error", "PERMISSION_DENIED", false),
            Kind::NetworkNotPermitted  => row("network_not_permitted", D, 403, ("permission_denied", Some("network_not_permitted")), "permission_error", "PERMISSION_DENIED", false),
            Kind::DisabledAccount      => row("disabled_account",      D, 401, (INVALID, Some("account_disabled")),        "authentication_error", "UNAUTHENTICATED",    true),
            Kind::UnknownAccount       => row("unknown_account",       D, 401, (INVALID, Some("account_unknown")),         "authentication_error", "UNAUTHENTICATED",    true),
            Kind::RateLimited          => row("rate_limited",          D, 429, ("rate_limit_exceeded", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", false),
            Kind::OverLimit            => row("over_limit",            D, 429, ("rate_limit_exceeded", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", true),
            // The messages format has a status of its own for both: 402, which only it gets.
            Kind::SpendLimit           => row("spend_limit",           D, 429, ("insufficient_quota", Some("insufficient_quota")), "billing_error",  "RESOURCE_EXHAUSTED", true),
            Kind::EmptyBalance         => row("empty_balance",         D, 429, ("insufficient_quota", Some("insufficient_quota")), "billing_error",  "RESOURCE_EXHAUSTED", true),
            Kind::LedgerUnavailable    => row("ledger_unavailable",    I, 503, ("service_unavailable", Some("service_unavailable")), "svc_api_error",  "UNAVAILABLE",        false),
            Kind::UnknownModel         => row("unknown_model",         D, 404, (INVALID, Some("model_not_found")),         "not_found_error",      "NOT_FOUND",          false),
            Kind::UnknownResponse      => row("unknown_response",      D, 404, (INVALID, None),                            "not_found_error",      "NOT_FOUND",          false),
            Kind::UnknownTask          => row("unknown_task",          D, 404, (INVALID, Some("task_not_found")),          "not_found_error",      "NOT_FOUND",          false),
            Kind::TaskState            => row("task_state",            D, 409, (INVALID, Some("task_state")),              "invalid_request",      "FAILED_PRECONDITION", false),
            Kind::UnknownPath          => row("unknown_path",          D, 404, (INVALID, Some("unknown_url")),             "not_found_error",      "NOT_FOUND",          false),
            Kind::WrongMethod          => row("wrong_method",          D, 405, (INVALID, Some("method_not_allowed")),      "invalid_request",      "UNIMPLEMENTED",      false),
            Kind::BodyTooLarge         => row("body_too_large",        D, 413, (INVALID, Some("request_too_large")),       "request_too_large",    "INVALID_ARGUMENT",   false),
            // Not 408: every SDK would send the same slow body again at once.
            Kind::BodyTimeout          => row("body_timeout",          D, 408, (INVALID, Some("request_timeout")),         "timeout_error",        "DEADLINE_EXCEEDED",  true),
            Kind::ClientGone           => row("client_gone",           D, 499, (INVALID, Some("client_closed_request")),   "invalid_request",      "CANCELLED",          true),
            Kind::Overloaded           => row("overloaded",            I, 503, ("service_unavailable", Some("server_is_overloaded")), "overloaded_error", "UNAVAILABLE",  false),
            Kind::ShuttingDown         => row("shutting_down",         I, 503, ("service_unavailable", Some("service_unavailable")),  "svc_api_error",    "UNAVAILABLE",  false),
            Kind::UpstreamUnreachable  => row("upstream_unreachable",  U, 503, ("service_unavailable", Some("upstream_unreachable")), "upstream_error",   "UNAVAILABLE",  false),
            Kind::UpstreamTimeout      => row("upstream_timeout",      U, 504, ("timeout", Some("upstream_timeout")),      "upstream_error",       "DEADLINE_EXCEEDED",  false),
            Kind::UpstreamBroken       => row("upstream_broken",       U, 500, ("upstream_error", Some("upstream_error")), "upstream_error",       "INTERNAL",           false),
            Kind::UpstreamAuth         => row("upstream_auth",         U, 500, ("upstream_error", Some("upstream_auth")),  "upstream_error",       "INTERNAL",           true),
            Kind::UpstreamRateLimit    => row("upstream_rate_limit",   U, 429, ("rate_limit_error", Some("rate_limit_exceeded")), "rate_limit_error", "RESOURCE_EXHAUSTED", false),
            Kind::UpstreamRejected     => row("upstream_rejected",     U, 400, (INVALID, None),                            "invalid_request",      "INVALID_ARGUMENT",   false),
            Kind::UpstreamFailed       => row("upstream_failed",       U, 500, ("upstream_error", Some("upstream_error")), "upstream_error",       "INTERNAL",           false),
            Kind::Internal             => row("internal",              I, 500, ("server_error", Some("internal_error")),   "svc_api_error",        "INTERNAL",           false),
        }
    }

    /// The name in metrics and logs.
    pub const fn label(self) -> &'static str {
        self.row().label
    }
}

/// How long the client is asked to wait, as it was said upstream: passed on letter by letter where it was a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// The value of a `retry-after` header: seconds or an HTTP date.
    Header(String),
    /// A time that a provider gave in another place.
    Wait(Duration),
}

/// An error on its way to a client, in no format yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What went wrong.
    pub kind: Kind,
    /// HTTP status, where it is not the kind's own: an upstream error keeps the status that it came with.
    pub status: u16,
    /// What the client reads. No secret, no internal path, no address of a provider.
    pub message: Cow<'static, str>,
    /// The field that is at fault, as its path in the request.
    pub param: Option<Cow<'static, str>>,
    /// A code that a provider gave (`context_length_exceeded`), kept for clients that look at it.
    pub code: Option<Box<str>>,
    /// How long to wait.
    pub retry_after: Option<RetryAfter>,
}

impl ApiError {
    /// An error with its kind's status.
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        ApiError {
            kind,
            status: kind.row().status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn param(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(field.into());
        self
    }

    /// Replaces the kind's status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Says how long to wait.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<RetryAfter>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The error that a missing field gives, named as every provider's SDK users expect it.
    pub fn missing(field: &'static str) -> Self {
        ApiError::new(Kind::InvalidField, format!("Missing required parameter: '{field}'.")).param(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_has_a_name_and_a_status_of_its_own_side() {
        let mut labels = HashSet::new();
        for kind in Kind::ALL {
            let row = kind.row();
            assert!(labels.insert(row.label), "{} twice", row.label);
            match row.source {
                Source::Downstream => assert!((400..500).contains(&row.status), "{}", row.label),
                Source::Internal => assert!(row.status >= 500, "{}", row.label),
                Source::Upstream => assert!(row.status >= 400, "{}", row.label),
            }
        }
    }
}
