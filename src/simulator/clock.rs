//! Time of day in the formats of the providers' responses.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since the Unix epoch, for `created` and `created_at`.
pub(super) fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Formats Unix seconds as RFC 3339 in UTC without fractions, e.g. `2026-05-28T22:16:00Z`.
pub(super) fn rfc3339(unix: u64) -> String {
    let (year, month, day) = civil(unix / 86_400);
    let second = unix % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Returns year, month and day for a number of days since the Unix epoch (Howard Hinnant's `civil_from_days`, for days
/// after 1970).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
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
