//! Time spans as headers of providers tell them. Whatever stands there, nothing overflows, and nothing is longer than a
//! day.

use std::time::{Duration, SystemTime};

use crate::canonical::time::unix_seconds;

/// The longest span that is believed: the longest limit that a provider has is one of a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How long a `retry-after` header asks to wait: seconds, or a date.
pub(super) fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return span(seconds);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST))
}

/// How long it is until a limit is as if nothing had been taken: OpenAI writes a time span (`6m0s`, `20ms`), Anthropic
/// a point in time, others seconds. `now` is in Unix seconds.
pub(super) fn until_reset(text: &str, now: i64) -> Option<Duration> {
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

/// Seconds, unless they are negative or no number.
fn span(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).map_or(LONGEST, |span| span.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_790_000_000;

    #[test]
    fn times_are_read_as_providers_write_them() {
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
    fn absurd_spans_are_a_day() {
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
        /// Overflow would be a panic here.
        #[test]
        fn any_header_is_read_or_refused(
            text in "([-+:0-9a-zA-Z., ]{0,60})|([0-9]{1,30}(ms|s|m|h|d)){1,4}",
            now in any::<i64>(),
        ) {
            for span in [retry_after(&text), until_reset(&text, now)].into_iter().flatten() {
                prop_assert!(span <= LONGEST, "{text}: {span:?}");
            }
        }
    }
}
