//! RFC 3339 timestamps of providers and of the configuration.

/// Parses an RFC 3339 timestamp with an offset (`2026-04-02T17:03:50.399550Z`) into Unix time, in whole seconds.
/// Seconds may be absent, and a space may replace the `T`. Returns `None` for anything else. Every part is checked
/// against its range, so that the result cannot overflow.
pub fn unix_seconds(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', ' ', 't'])?;
    let (time, offset) = match rest.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let (time, offset) = rest.split_at_checked(rest.rfind(['+', '-'])?)?;
            let (hours, minutes) = offset.get(1..)?.split_once(':')?;
            let span = part(hours, 0, 23)? * 3_600 + part(minutes, 0, 59)? * 60;
            (time, if offset.starts_with('-') { -span } else { span })
        }
    };
    let mut date = date.splitn(3, '-');
    let (year, month) = (part(date.next()?, 0, 9_999)?, part(date.next()?, 1, 12)?);
    let day = part(date.next()?, 1, days_of(year, month))?;
    let mut time = time.split('.').next()?.splitn(3, ':');
    let (hour, minute) = (part(time.next()?, 0, 23)?, part(time.next()?, 0, 59)?);
    // 60 is a leap second.
    let second = time.next().map_or(Some(0), |second| part(second, 0, 60))?;
    // Years start in March here, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Parses 1 to 4 decimal digits. Returns `None` for other text or a number out of range.
fn part(text: &str, least: i64, most: i64) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|number| (least..=most).contains(number))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
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
