//! Calendar and RFC 3339 timestamps, in UTC: of providers, of the configuration, of logs and reports.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date};
use jiff::fmt::temporal::Pieces;

/// Seconds of a day. Unix time has no leap seconds.
pub const DAY_SECONDS: i64 = 86_400;
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
/// Unix times of the years 0 to 9999, which have four digits in RFC 3339.
const MIN_SECONDS: i64 = -62_167_219_200;
const MAX_SECONDS: i64 = 253_402_300_799;

/// Returns the date of a day, in days since 1970-01-01. Saturates at the years -9999 and 9999.
pub fn date_of_day(day: i64) -> Date {
    EPOCH.date().saturating_add(SignedDuration::from_secs(day.saturating_mul(DAY_SECONDS)))
}

/// Returns the days from 1970-01-01 to a date.
pub fn day_of_date(date: Date) -> i64 {
    date.duration_since(EPOCH.date()).as_secs() / DAY_SECONDS
}

/// Formats Unix seconds as `2025-05-14T00:00:00Z` (RFC 3339). Saturates at the years 0 and 9999.
pub fn rfc3339(seconds: i64) -> String {
    let seconds = SignedDuration::from_secs(seconds.clamp(MIN_SECONDS, MAX_SECONDS));
    format!("{}Z", EPOCH.saturating_add(seconds))
}

/// Parses an RFC 3339 timestamp with an offset (`2026-04-02T17:03:50.399550Z`) into Unix time, in whole seconds.
/// Seconds may be absent, and a space may replace the `T`. Returns `None` for anything else.
pub fn unix_seconds(text: &str) -> Option<i64> {
    // Pieces also parse other forms of ISO 8601, such as `20260402T170350+01[Europe/Berlin]`.
    let bytes = text.as_bytes();
    let has_separators =
        [(4, b'-'), (7, b'-'), (13, b':')].iter().all(|(at, byte)| bytes.get(*at) == Some(byte));
    let has_offset = matches!(bytes, [.., b'Z' | b'z'] | [.., b'+' | b'-', _, _, b':', _, _]);
    if !has_separators || !has_offset {
        return None;
    }
    let pieces = Pieces::parse(text).ok()?;
    let offset = i64::from(pieces.to_numeric_offset()?.seconds());
    if offset.abs() >= DAY_SECONDS {
        return None;
    }
    // Not a `Timestamp`: its range ends a day before the year 9999 does.
    let time = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH);
    // Before 1970 a fraction counts from the second below: `as_secs` rounds towards zero.
    let seconds = time.as_secs() - i64::from(time.subsec_nanos() < 0);
    // A leap second is parsed as the second before it.
    let leap = i64::from(bytes.get(16..19) == Some(b":60"));
    Some(seconds + leap - offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamp_with_offset_is_parsed() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2027-01-31T00:00:00Z", 1_801_353_600),
            ("2027-01-31 01:30:00.75+01:30", 1_801_353_600),
            ("2027-01-30T22:30:00-01:30", 1_801_353_600),
            ("2000-02-29T12:00:00z", 951_825_600),
            ("1969-12-31T23:59:59Z", -1),
            ("1969-12-31T23:59:58.5Z", -2),
            ("2024-02-29T12:00:00.5Z", 1_709_208_000),
            ("2026-04-02T17:03:50.399550Z", 1_775_149_430),
            ("2026-04-02T17:03Z", 1_775_149_380),
            ("9999-12-31T23:59:60Z", 253_402_300_800),
            ("0000-01-01T00:00:00Z", -62_167_219_200),
        ] {
            assert_eq!(unix_seconds(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn timestamp_invalid_text_is_none() {
        for text in [
            "",
            "T",
            "2027-01-31",
            "2027-01-31T00:00:00",
            "x-y-zT0:0Z",
            "2026-13-02T17:03:50Z",
            "2026-02-29T00:00:00Z",
            "2026-04-02T24:00:00Z",
            "2026-04-02T17:60:00Z",
            "2026-04-02T17:03:61Z",
            "2026-04-02T17:03:50+99:00",
            "2026-04-02T17:03:50+:",
            "2026-+4-02T17:03:50Z",
            "-2026-04-02T17:03:50Z",
            "9223372036854775807-01-01T00:00:00Z",
            "2026-04-02T9223372036854775807:03:50Z",
            "2026-04-02T17:03:50+9223372036854775807:00",
            "292277026596-12-04T15:30:08Z",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn timestamp_is_formatted() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (MIN_SECONDS, "0000-01-01T00:00:00Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
            (MAX_SECONDS, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn timestamp_other_iso_8601_forms_are_none() {
        for text in [
            "20260402T170350Z",
            "+002026-04-02T17:03:50Z",
            "2026-W14-4T17:03:50Z",
            "2026-04-02T17:03:50+01",
            "2026-04-02T17:03:50+0130",
            "2026-04-02T17:03:50+01:30:15",
            "2026-04-02T17:03:50+24:00",
            "2026-04-02T17:03:50Z[UTC]",
            "2026-04-02Z",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    proptest! {
        /// An overflow would panic here.
        #[test]
        fn timestamp_arbitrary_text_never_overflows(text in "[-+:0-9. TtZz]{0,40}") {
            if let Some(seconds) = unix_seconds(&text) {
                prop_assert!((-62_200_000_000..253_500_000_000).contains(&seconds), "{text}: {seconds}");
            }
        }

        #[test]
        fn timestamp_huge_numbers_never_panic(
            numbers in prop::array::uniform6(any::<i64>()),
            sign in "[-+]",
            offset in any::<(i64, i64)>(),
        ) {
            let [year, month, day, hour, minute, second] = numbers;
            let date = format!("{year}-{month}-{day}T{hour}:{minute}:{second}");
            let _ = unix_seconds(&format!("{date}Z"));
            let _ = unix_seconds(&format!("{date}{sign}{}:{}", offset.0, offset.1));
        }

        /// Reference implementation that counts day by day.
        #[test]
        fn timestamp_days_match_a_reference_calendar(year in 1970i64..2110, month in 1usize..13, day in 1i64..29) {
            let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let years: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
            let months: i64 = lengths[..month - 1].iter().sum::<i64>() + i64::from(month > 2 && leap(year));
            let expected = (years + months + day - 1) * 86_400;
            prop_assert_eq!(unix_seconds(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z")), Some(expected));
        }
    }
}
