//! Names of headers, known to the compiler: a name that is given as text is parsed for every lookup.

use std::time::{Duration, SystemTime};

use http::HeaderName;

/// Whether clients tell under this name which conversation a request belongs to: coding agents, and who wants to be
/// routed by it. The name with the lowest rank counts.
pub(super) fn session(name: &str) -> Option<u8> {
    // Most names are none of these by their length alone.
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

/// How long a `retry-after` header asks to wait: seconds, or a date.
pub(super) fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// How long it is until a limit is as if nothing had been taken: OpenAI writes a time span (`6m0s`, `20ms`), Anthropic
/// a point in time, others seconds. `now` is in Unix seconds.
pub(super) fn until_reset(text: &str, now: i64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    if text.contains('T') {
        let seconds = crate::config::unix_seconds(text)?.saturating_sub(now);
        return Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(end);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        rest = next;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_vendors_write_them() {
        let millis = |text: &str| until_reset(text, 1_790_000_000).map(|span| span.as_millis());
        for (text, expected) in [
            ("1s", Some(1_000)),
            ("6m0s", Some(360_000)),
            ("20ms", Some(20)),
            ("1m30.5s", Some(90_500)),
            ("2h", Some(7_200_000)),
            ("12", Some(12_000)),
            ("2026-09-21T14:13:40Z", Some(20_000)),
            ("", Some(0)),
            ("soon", None),
            ("5x", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("never"), None);
        let later = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(64_092_211_200));
        assert!(retry_after(&later).is_some_and(|span| span > Duration::from_secs(86_400)));
    }
}
