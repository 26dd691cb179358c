//! Values that are written as text.

use std::time::Duration;

use proptest::prelude::*;

use crate::config::report::{closest, place};
use crate::config::values::{address, duration, size, unix_seconds};

#[test]
fn sizes_have_units() {
    for (text, bytes) in [
        ("0B", 0),
        ("100B", 100),
        ("512KiB", 512 << 10),
        ("64 MiB", 64 << 20),
        ("2GiB", 2 << 30),
        ("3kB", 3_000),
        ("3KB", 3_000),
        ("3MB", 3_000_000),
        ("3GB", 3_000_000_000),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in [
        "",
        "64",
        "MiB",
        "-1B",
        "1.5MiB",
        "64mib",
        "64 MiB ",
        "99999999999999999999B",
        "18014398509481984KiB",
    ] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn time_spans_have_units() {
    for (text, millis) in [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("5min", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("0s", 0),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "30", "s", "-1s", "1.5s", "30S", "1w", "18446744073709551615h"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn addresses_are_not_names() {
    assert!(address("127.0.0.1:8080").is_ok() && address("[::]:80").is_ok());
    for text in ["localhost:80", "127.0.0.1", ":80", "::1:80", "127.0.0.1:66000"] {
        assert!(address(text).is_err(), "{text}");
    }
}

#[test]
fn points_in_time_have_an_offset() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2027-01-31T00:00:00Z", 1_801_353_600),
        ("2027-01-31 01:30:00.75+01:30", 1_801_353_600),
        ("2027-01-30T22:30:00-01:30", 1_801_353_600),
        ("2000-02-29T12:00:00z", 951_825_600),
        ("1969-12-31T23:59:59Z", -1),
    ] {
        assert_eq!(unix_seconds(text), Some(seconds), "{text}");
    }
    for text in ["2027-01-31", "2027-01-31T00:00:00", "", "T", "x-y-zT0:0Z"] {
        assert_eq!(unix_seconds(text), None, "{text}");
    }
}

#[test]
fn a_place_counts_characters() {
    let text = "a = 1\né = \"ü\" x\n";
    assert_eq!(place(text, 0), (1, 1));
    assert_eq!(place(text, text.find('x').unwrap()), (2, 9));
    assert_eq!(place(text, text.len()), (3, 1));
}

#[test]
fn what_is_meant_is_close() {
    let known = ["openai", "anthropic", "gemini"];
    assert_eq!(closest("opneai", known), Some("openai"));
    assert_eq!(closest("gemni", known), Some("gemini"));
    assert_eq!(closest("mistral", known), None);
    assert_eq!(closest("x", []), None);
}

proptest! {
    #[test]
    fn any_text_is_refused_or_read(text in "[-+:0-9a-zA-Z .TZ]{0,24}") {
        let _ = (size(&text), duration(&text), address(&text), unix_seconds(&text));
    }

    /// The slow twin: counting days one by one.
    #[test]
    fn dates_are_counted_as_a_calendar_counts(year in 1970i64..2110, month in 1usize..13, day in 1i64..29) {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let years: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
        let months: i64 = lengths[..month - 1].iter().sum::<i64>() + i64::from(month > 2 && leap(year));
        let expected = (years + months + day - 1) * 86_400;
        prop_assert_eq!(unix_seconds(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z")), Some(expected));
    }
}
