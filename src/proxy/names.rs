//! Header names as constants: a name that is given as a string is parsed at every lookup.

use http::HeaderName;

/// Returns the rank of a header that carries the client's session id, for session affinity; `None` for other headers.
/// Coding agents send these names. If a request has several, the lowest rank wins.
pub(super) fn session(name: &str) -> Option<u8> {
    // The length alone rules out most names.
    if !matches!(name.len(), 10 | 12 | 15 | 18 | 24) {
        return None;
    }
    match name {
        "x-session-affinity" => Some(0),
        "x-claude-code-session-id" => Some(1),
        "session_id" => Some(2),
        "session-id" => Some(3),
        "x-session-id" => Some(4),
        "conversation_id" => Some(5),
        _ => None,
    }
}

pub(super) const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
pub(super) const ANTHROPIC_RATELIMIT_REQUESTS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-limit");
pub(super) const ANTHROPIC_RATELIMIT_REQUESTS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-remaining");
pub(super) const ANTHROPIC_RATELIMIT_REQUESTS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-reset");
pub(super) const ANTHROPIC_RATELIMIT_TOKENS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-limit");
pub(super) const ANTHROPIC_RATELIMIT_TOKENS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-remaining");
pub(super) const ANTHROPIC_RATELIMIT_TOKENS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-reset");
pub(super) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
pub(super) const API_KEY: HeaderName = HeaderName::from_static("api-key");
pub(super) const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
pub(super) const OPENAI_BETA: HeaderName = HeaderName::from_static("openai-beta");
pub(super) const OPENAI_PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
pub(super) const OPENAI_VERSION: HeaderName = HeaderName::from_static("openai-version");
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
pub(super) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(super) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
pub(super) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_GATEWAY_IMAGES: HeaderName = HeaderName::from_static("x-gateway-images");
pub(super) const X_GATEWAY_WARNING: HeaderName = HeaderName::from_static("x-gateway-warning");
pub(super) const X_GATEWAY_ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
pub(super) const X_GATEWAY_TARGET: HeaderName = HeaderName::from_static("x-gateway-target");
pub(super) const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
pub(super) const X_MS_REGION: HeaderName = HeaderName::from_static("x-ms-region");
pub(super) const X_RATELIMIT_LIMIT_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-limit-requests");
pub(super) const X_RATELIMIT_LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
pub(super) const X_RATELIMIT_REMAINING_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-requests");
pub(super) const X_RATELIMIT_REMAINING_TOKENS: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-tokens");
pub(super) const X_RATELIMIT_RESET_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-reset-requests");
pub(super) const X_RATELIMIT_RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(super) const X_VENDOR_API_KEY: HeaderName = HeaderName::from_static("x-vendor-api-key");
