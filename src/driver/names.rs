//! Header names as constants: a name that is given as a string is parsed at every lookup.

#![expect(missing_docs, reason = "each constant is the field that its name says")]

use http::HeaderName;

/// Returns the rank of a header that carries the client's session id, for session affinity; `None` for other headers.
/// Coding agents send these names. If a request has several, the lowest rank wins.
pub fn session(name: &str) -> Option<u8> {
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

pub const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
pub const ANTHROPIC_RATELIMIT_REQUESTS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-limit");
pub const ANTHROPIC_RATELIMIT_REQUESTS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-remaining");
pub const ANTHROPIC_RATELIMIT_REQUESTS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-reset");
pub const ANTHROPIC_RATELIMIT_TOKENS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-limit");
pub const ANTHROPIC_RATELIMIT_TOKENS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-remaining");
pub const ANTHROPIC_RATELIMIT_TOKENS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-reset");
pub const ANTHROPIC_RATELIMIT_UNIFIED_STATUS: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-status");
pub const ANTHROPIC_RATELIMIT_UNIFIED_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-reset");
pub const ANTHROPIC_RATELIMIT_UNIFIED_CLAIM: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-representative-claim");
pub const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_STATUS: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-status");
pub const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_UTILIZATION: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-utilization");
pub const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_THRESHOLD: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-surpassed-threshold");
pub const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_PERIOD: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-period");
pub const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_DISABLED_REASON: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-disabled-reason");
pub const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
pub const API_KEY: HeaderName = HeaderName::from_static("api-key");
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
pub const OPENAI_BETA: HeaderName = HeaderName::from_static("openai-beta");
pub const OPENAI_PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
pub const OPENAI_VERSION: HeaderName = HeaderName::from_static("openai-version");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub const SEC_WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
pub const SEC_WEBSOCKET_VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub const X_CODEX_PRIMARY_USED_PERCENT: HeaderName = HeaderName::from_static("x-codex-primary-used-percent");
pub const X_CODEX_PRIMARY_WINDOW_MINUTES: HeaderName =
    HeaderName::from_static("x-codex-primary-window-minutes");
pub const X_CODEX_PRIMARY_RESET_AT: HeaderName = HeaderName::from_static("x-codex-primary-reset-at");
pub const X_CODEX_SECONDARY_USED_PERCENT: HeaderName =
    HeaderName::from_static("x-codex-secondary-used-percent");
pub const X_CODEX_SECONDARY_WINDOW_MINUTES: HeaderName =
    HeaderName::from_static("x-codex-secondary-window-minutes");
pub const X_CODEX_SECONDARY_RESET_AT: HeaderName = HeaderName::from_static("x-codex-secondary-reset-at");
pub const X_CODEX_TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const X_GATEWAY_CACHE: HeaderName = HeaderName::from_static("x-gateway-cache");
pub const X_GATEWAY_CACHE_USAGE: HeaderName = HeaderName::from_static("x-gateway-cache-usage");
pub const X_GATEWAY_IMAGES: HeaderName = HeaderName::from_static("x-gateway-images");
pub const X_GATEWAY_WARNING: HeaderName = HeaderName::from_static("x-gateway-warning");
pub const X_GATEWAY_ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
pub const X_GATEWAY_TARGET: HeaderName = HeaderName::from_static("x-gateway-target");
pub const X_GATEWAY_WEBSOCKET: HeaderName = HeaderName::from_static("x-gateway-websocket");
pub const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
pub const X_MS_REGION: HeaderName = HeaderName::from_static("x-ms-region");
pub const X_RATELIMIT_LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
pub const X_RATELIMIT_LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
pub const X_RATELIMIT_REMAINING_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-requests");
pub const X_RATELIMIT_REMAINING_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
pub const X_RATELIMIT_RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
pub const X_RATELIMIT_RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");
pub const X_AMZN_ERRORTYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
pub const X_AMZN_BEDROCK_CACHE_READ: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-cache-read-input-token-count");
pub const X_AMZN_BEDROCK_CACHE_WRITE: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-cache-write-input-token-count");
pub const X_AMZN_BEDROCK_CONTENT_TYPE: HeaderName = HeaderName::from_static("x-amzn-bedrock-content-type");
pub const X_AMZN_BEDROCK_GUARDRAIL_ID: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-guardrailidentifier");
pub const X_AMZN_BEDROCK_GUARDRAIL_VERSION: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-guardrailversion");
pub const X_AMZN_BEDROCK_INPUT: HeaderName = HeaderName::from_static("x-amzn-bedrock-input-token-count");
pub const X_AMZN_BEDROCK_LATENCY: HeaderName = HeaderName::from_static("x-amzn-bedrock-invocation-latency");
pub const X_AMZN_BEDROCK_OUTPUT: HeaderName = HeaderName::from_static("x-amzn-bedrock-output-token-count");
pub const X_AMZN_BEDROCK_PERFORMANCE_LATENCY: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-performanceconfig-latency");
pub const X_AMZN_BEDROCK_REQUEST_METADATA: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-request-metadata");
pub const X_AMZN_BEDROCK_SERVICE_TIER: HeaderName = HeaderName::from_static("x-amzn-bedrock-service-tier");
pub const X_AMZN_BEDROCK_TRACE: HeaderName = HeaderName::from_static("x-amzn-bedrock-trace");
pub const X_AMZN_REQUESTID: HeaderName = HeaderName::from_static("x-amzn-requestid");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub const X_VENDOR_API_KEY: HeaderName = HeaderName::from_static("x-vendor-api-key");
