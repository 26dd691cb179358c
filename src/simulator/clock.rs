//! Time of day in the formats of the providers' responses.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since the Unix epoch, for `created` and `created_at`.
pub(super) fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Formats Unix seconds as RFC 3339 in UTC without fractions, e.g. `2026-05-28T22:16:00Z`.
pub(super) fn rfc3339(unix: u64) -> String {
    let unix = i64::try_from(unix).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(unix).unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_formats_rfc3339_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_779_999_360), "2026-05-28T20:16:00Z");
    }
}
