//! Time spans in upstream response headers (`retry-after`, rate-limit resets). Parsing never overflows and returns at
//! most one day.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, header};

use codec::canonical::time::unix_seconds;
use codec::error::RetryAfter;
use codec::wire::Format;
use driver::names;

/// Maximum of a parsed span: the longest limit of a provider is daily.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Returns when an error response permits a retry: `retry-after-ms` (OpenAI and Azure, in milliseconds), which is more
/// precise, else `retry-after`.
pub(crate) fn retry_delay(headers: &HeaderMap) -> Option<RetryAfter> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let millis = text(&names::RETRY_AFTER_MS).and_then(|text| text.trim().parse::<f64>().ok());
    match millis.and_then(|millis| span(millis / 1_000.0)) {
        Some(wait) => Some(RetryAfter::Wait(wait)),
        None => text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned())),
    }
}

/// Returns the names of the headers with the remaining requests and tokens of a provider's rate limits, each with that of
/// its reset.
pub(crate) const fn quota_headers(format: Format) -> [(HeaderName, HeaderName); 2] {
    match format {
        Format::Messages => [
            (names::ANTHROPIC_RATELIMIT_REQUESTS_REMAINING, names::ANTHROPIC_RATELIMIT_REQUESTS_RESET),
            (names::ANTHROPIC_RATELIMIT_TOKENS_REMAINING, names::ANTHROPIC_RATELIMIT_TOKENS_RESET),
        ],
        _ => [
            (names::X_RATELIMIT_REMAINING_REQUESTS, names::X_RATELIMIT_RESET_REQUESTS),
            (names::X_RATELIMIT_REMAINING_TOKENS, names::X_RATELIMIT_RESET_TOKENS),
        ],
    }
}

/// Returns when the exhausted rate limits of an error response are reset. `None` if its headers name none. `now` is the
/// Unix time in seconds.
pub(crate) fn quota_reset(headers: &HeaderMap, format: Format, now: i64) -> Option<RetryAfter> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let exhausted =
        quota_headers(format).into_iter().filter(|(left, _)| text(left).map(str::trim) == Some("0"));
    let resets = exhausted.filter_map(|(_, reset)| until_reset(text(&reset)?, now));
    resets.max().filter(|wait| !wait.is_zero()).map(RetryAfter::Wait)
}

/// Parses a `retry-after` header (RFC 9110, 10.2.3): seconds or a date. `None` if it is neither.
pub(crate) fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return span(seconds);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST))
}

/// Parses the time until a rate limit is reset. OpenAI sends a time span (`6m0s`, `20ms`), Anthropic a point in time,
/// others seconds. `now` is the Unix time in seconds. `None` if the text is none of these.
pub(crate) fn until_reset(text: &str, now: i64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return span(seconds);
    }
    if text.contains('T') {
        let seconds = unix_seconds(text)?.saturating_sub(now);
        return Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(LONGEST));
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
        total = total.saturating_add(span(number.parse::<f64>().ok()? * seconds)?).min(LONGEST);
        rest = next;
    }
    Some(total)
}

/// Converts seconds. `None` if they are negative or not a number.
fn span(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).map_or(LONGEST, |span| span.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_790_000_000;

    #[test]
    fn span_of_reset_and_retry_after_headers_is_parsed() {
        let millis = |text: &str| until_reset(text, NOW).map(|span| span.as_millis());
        for (text, expected) in [
            ("1s", Some(1_000)),
            ("6m0s", Some(360_000)),
            ("20ms", Some(20)),
            ("1m30.5s", Some(90_500)),
            ("2h", Some(7_200_000)),
            ("12", Some(12_000)),
            ("2026-09-21T14:13:40Z", Some(20_000)),
            ("2026-09-21T14:13:00Z", Some(0)),
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
    }

    #[test]
    fn span_absurd_is_capped_at_a_day_or_refused() {
        let long = "18000000000000000000s";
        for text in [long, &long.repeat(2), "1e300", "inf", "9999-12-31T23:59:59Z", "400000000000d"] {
            assert_eq!(until_reset(text, NOW), Some(LONGEST), "{text}");
        }
        let later = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(64_092_211_200));
        for text in [&*later, "999999999", "1e18", "99999999999999999999999999", "inf"] {
            assert_eq!(retry_after(text), Some(LONGEST), "{text}");
        }
        for text in ["-1", "-inf", "nan", "-1e300"] {
            assert_eq!((retry_after(text), until_reset(text, NOW)), (None, None), "{text}");
        }
        assert_eq!(until_reset("9223372036854775807-01-01T00:00:00Z", NOW), None);
        assert_eq!(until_reset("2026-09-21T14:13:40Z", i64::MIN), Some(LONGEST));
    }

    proptest! {
        /// An overflow panics in this build.
        #[test]
        fn span_arbitrary_header_never_overflows(
            text in "([-+:0-9a-zA-Z., ]{0,60})|([0-9]{1,30}(ms|s|m|h|d)){1,4}",
            now in any::<i64>(),
        ) {
            for span in [retry_after(&text), until_reset(&text, now)].into_iter().flatten() {
                prop_assert!(span <= LONGEST, "{text}: {span:?}");
            }
        }
    }
}
