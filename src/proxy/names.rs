//! Header names as constants: a name that is given as a string is parsed at every lookup.

use http::HeaderName;

/// Returns the rank of a header that carries the client's session id, for session affinity; `None` for other headers.
/// Coding agents send these names. If a request has several, the lowest rank wins.
pub(in crate::proxy) fn session(name: &str) -> Option<u8> {
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

pub(in crate::proxy) const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_REQUESTS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-limit");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_REQUESTS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-remaining");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_REQUESTS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-requests-reset");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_TOKENS_LIMIT: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-limit");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_TOKENS_REMAINING: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-remaining");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_TOKENS_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-tokens-reset");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_STATUS: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-status");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_RESET: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-reset");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_CLAIM: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-representative-claim");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_STATUS: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-status");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_UTILIZATION: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-utilization");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_THRESHOLD: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-surpassed-threshold");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_PERIOD: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-period");
pub(in crate::proxy) const ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_DISABLED_REASON: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-disabled-reason");
pub(in crate::proxy) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
pub(in crate::proxy) const API_KEY: HeaderName = HeaderName::from_static("api-key");
pub(in crate::proxy) const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
pub(in crate::proxy) const OPENAI_BETA: HeaderName = HeaderName::from_static("openai-beta");
pub(in crate::proxy) const OPENAI_PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
pub(in crate::proxy) const OPENAI_VERSION: HeaderName = HeaderName::from_static("openai-version");
pub(in crate::proxy) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
pub(in crate::proxy) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(in crate::proxy) const SEC_WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
pub(in crate::proxy) const SEC_WEBSOCKET_VERSION: HeaderName =
    HeaderName::from_static("sec-websocket-version");
pub(in crate::proxy) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(in crate::proxy) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(in crate::proxy) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
pub(in crate::proxy) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(in crate::proxy) const X_CODEX_PRIMARY_USED_PERCENT: HeaderName =
    HeaderName::from_static("x-codex-primary-used-percent");
pub(in crate::proxy) const X_CODEX_PRIMARY_WINDOW_MINUTES: HeaderName =
    HeaderName::from_static("x-codex-primary-window-minutes");
pub(in crate::proxy) const X_CODEX_PRIMARY_RESET_AT: HeaderName =
    HeaderName::from_static("x-codex-primary-reset-at");
pub(in crate::proxy) const X_CODEX_SECONDARY_USED_PERCENT: HeaderName =
    HeaderName::from_static("x-codex-secondary-used-percent");
pub(in crate::proxy) const X_CODEX_SECONDARY_WINDOW_MINUTES: HeaderName =
    HeaderName::from_static("x-codex-secondary-window-minutes");
pub(in crate::proxy) const X_CODEX_SECONDARY_RESET_AT: HeaderName =
    HeaderName::from_static("x-codex-secondary-reset-at");
pub(in crate::proxy) const X_CODEX_TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");
pub(in crate::proxy) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(in crate::proxy) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(in crate::proxy) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(in crate::proxy) const X_GATEWAY_CACHE: HeaderName = HeaderName::from_static("x-gateway-cache");
pub(in crate::proxy) const X_GATEWAY_CACHE_USAGE: HeaderName =
    HeaderName::from_static("x-gateway-cache-usage");
pub(in crate::proxy) const X_GATEWAY_IMAGES: HeaderName = HeaderName::from_static("x-gateway-images");
pub(in crate::proxy) const X_GATEWAY_WARNING: HeaderName = HeaderName::from_static("x-gateway-warning");
pub(in crate::proxy) const X_GATEWAY_ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
pub(in crate::proxy) const X_GATEWAY_TARGET: HeaderName = HeaderName::from_static("x-gateway-target");
pub(in crate::proxy) const X_GATEWAY_WEBSOCKET: HeaderName = HeaderName::from_static("x-gateway-websocket");
pub(in crate::proxy) const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
pub(in crate::proxy) const X_MS_REGION: HeaderName = HeaderName::from_static("x-ms-region");
pub(in crate::proxy) const X_RATELIMIT_LIMIT_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-limit-requests");
pub(in crate::proxy) const X_RATELIMIT_LIMIT_TOKENS: HeaderName =
    HeaderName::from_static("x-ratelimit-limit-tokens");
pub(in crate::proxy) const X_RATELIMIT_REMAINING_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-requests");
pub(in crate::proxy) const X_RATELIMIT_REMAINING_TOKENS: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-tokens");
pub(in crate::proxy) const X_RATELIMIT_RESET_REQUESTS: HeaderName =
    HeaderName::from_static("x-ratelimit-reset-requests");
pub(in crate::proxy) const X_RATELIMIT_RESET_TOKENS: HeaderName =
    HeaderName::from_static("x-ratelimit-reset-tokens");
pub(in crate::proxy) const X_AMZN_ERRORTYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
pub(in crate::proxy) const X_AMZN_BEDROCK_CACHE_READ: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-cache-read-input-token-count");
pub(in crate::proxy) const X_AMZN_BEDROCK_CACHE_WRITE: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-cache-write-input-token-count");
pub(in crate::proxy) const X_AMZN_BEDROCK_CONTENT_TYPE: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-content-type");
pub(in crate::proxy) const X_AMZN_BEDROCK_GUARDRAIL_ID: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-guardrailidentifier");
pub(in crate::proxy) const X_AMZN_BEDROCK_GUARDRAIL_VERSION: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-guardrailversion");
pub(in crate::proxy) const X_AMZN_BEDROCK_INPUT: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-input-token-count");
pub(in crate::proxy) const X_AMZN_BEDROCK_LATENCY: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-invocation-latency");
pub(in crate::proxy) const X_AMZN_BEDROCK_OUTPUT: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-output-token-count");
pub(in crate::proxy) const X_AMZN_BEDROCK_PERFORMANCE_LATENCY: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-performanceconfig-latency");
pub(in crate::proxy) const X_AMZN_BEDROCK_REQUEST_METADATA: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-request-metadata");
pub(in crate::proxy) const X_AMZN_BEDROCK_SERVICE_TIER: HeaderName =
    HeaderName::from_static("x-amzn-bedrock-service-tier");
pub(in crate::proxy) const X_AMZN_BEDROCK_TRACE: HeaderName = HeaderName::from_static("x-amzn-bedrock-trace");
pub(in crate::proxy) const X_AMZN_REQUESTID: HeaderName = HeaderName::from_static("x-amzn-requestid");
pub(in crate::proxy) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(in crate::proxy) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(in crate::proxy) const X_VENDOR_API_KEY: HeaderName = HeaderName::from_static("x-vendor-api-key");
