//! Date of a signature: `20261121T101112Z`, and `20261121` in the credential scope.

use jiff::civil::date;
use jiff::{SignedDuration, civil};

const EPOCH: civil::DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
/// Unix times of the years 0 to 9999, which have four digits.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Date of a signature, in UTC and whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningDate {
    /// `YYYYMMDDTHHMMSSZ`, in ASCII.
    text: [u8; 16],
    seconds: i64,
}

impl SigningDate {
    /// Creates the date from Unix seconds. Saturates at the years 0 and 9999.
    pub fn from_unix(seconds: i64) -> Self {
        let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
        let time = EPOCH.saturating_add(SignedDuration::from_secs(seconds));
        let digits = |value: i16, tens: i16| b'0' + u8::try_from(value / tens % 10).unwrap_or(0);
        let two = |value: i8| [digits(value.into(), 10), digits(value.into(), 1)];
        let year = [1_000, 100, 10, 1].map(|tens| digits(time.year(), tens));
        let ([a, b, c, d], [e, f], [g, h]) = (year, two(time.month()), two(time.day()));
        let ([i, j], [k, l], [m, n]) = (two(time.hour()), two(time.minute()), two(time.second()));
        SigningDate { text: [a, b, c, d, e, f, g, h, b'T', i, j, k, l, m, n, b'Z'], seconds }
    }

    /// Parses `YYYYMMDDTHHMMSSZ`. Returns `None` for any other text, and for a date that does not exist.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 16] = text.as_bytes().try_into().ok()?;
        let at = |range: std::ops::Range<usize>| {
            let digits = text.get(range)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i16>().ok())?
        };
        let small = |range| i8::try_from(at(range)?).ok();
        if bytes.get(8) != Some(&b'T') || bytes.get(15) != Some(&b'Z') {
            return None;
        }
        let day = civil::Date::new(at(0..4)?, small(4..6)?, small(6..8)?).ok()?;
        let time = civil::Time::new(small(9..11)?, small(11..13)?, small(13..15)?, 0).ok()?;
        let seconds = day.to_datetime(time).duration_since(EPOCH).as_secs();
        Some(SigningDate { text: bytes, seconds })
    }

    /// Returns `YYYYMMDDTHHMMSSZ`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Returns `YYYYMMDD`.
    pub fn day(&self) -> &str {
        self.as_str().get(..8).unwrap_or_default()
    }

    /// Returns the Unix time, in seconds.
    pub fn unix(&self) -> i64 {
        self.seconds
    }
}
