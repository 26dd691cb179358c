//! Results of MiniMax: `base_resp`, a code and a message beside the response, whose HTTP status is 200 in any case.
//!
//! Codes of the table: MiniMax API reference, "Error codes", 2026-11.

use crate::wire::watch::named_members;
use json::RawJson;

/// Row of the table.
#[derive(Debug)]
pub(super) struct BaseRespError {
    /// Value of `status_code`.
    code: u64,
    /// Kind of the error: a word by which [`ProviderError::status`](super::error::ProviderError::status) knows it.
    pub(super) kind: &'static str,
}

const fn row(code: u64, kind: &'static str) -> BaseRespError {
    BaseRespError { code, kind }
}

/// Kind of a code without a row.
const OTHER: BaseRespError = row(0, "server_error");

/// Table of the codes.
#[rustfmt::skip] // a table reads as a table
const ERRORS: &[BaseRespError] = &[
    row(1000, "server_error"),          // unknown error
    row(1001, "timeout_error"),         // request timeout
    row(1002, "rate_limit_error"),      // rate limit
    row(1004, "authentication_error"),  // not authorized
    row(1008, "insufficient_quota"),    // insufficient balance
    row(1013, "server_error"),          // internal service error
    row(1024, "server_error"),          // internal error
    row(1026, "invalid_request_error"), // sensitive content in the input
    row(1027, "invalid_request_error"), // sensitive content in the output
    row(1033, "server_error"),          // system error
    row(1039, "rate_limit_error"),      // token limit
    row(1041, "rate_limit_error"),      // connection limit
    row(1042, "invalid_request_error"), // invisible characters
    row(2013, "invalid_request_error"), // invalid parameters
    row(2045, "rate_limit_error"),      // rate growth limit
    row(2049, "authentication_error"),  // invalid API key
    row(2056, "insufficient_quota"),    // usage limit of a plan
];

/// Returns the error for a code. `None` for 0, which means success.
pub(super) fn error(code: u64) -> Option<&'static BaseRespError> {
    (code != 0).then(|| ERRORS.iter().find(|row| row.code == code).unwrap_or(&OTHER))
}

/// Returns whether a `base_resp` is an error.
pub(super) fn is_error(value: RawJson<'_>) -> bool {
    let code = named_members(value, ["status_code"]).ok().and_then(|[code]| code?.as_u64());
    code.is_some_and(|code| code != 0)
}
