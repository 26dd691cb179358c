//! Calendar days and months in UTC, for spend limits.

use jiff::civil::Date;

use codec::canonical::time::{DAY_SECONDS, date_of_day, day_of_date};

/// Day and month as ascending numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    /// Days since 1970-01-01.
    pub day: i64,
    /// Months since the year 0.
    pub month: i64,
    /// Seconds until the next day.
    pub day_ends_in: u64,
    /// Seconds until the next month.
    pub month_ends_in: u64,
}

impl Calendar {
    /// Returns the day and month of a Unix time in seconds, in UTC. Months saturate at the years -9999 and 9999.
    pub fn at(unix: i64) -> Calendar {
        let day = unix.div_euclid(DAY_SECONDS);
        let date = date_of_day(day);
        let since_midnight = unix.rem_euclid(DAY_SECONDS);
        let until = |days: i64| u64::try_from(days * DAY_SECONDS - since_midnight).unwrap_or(0);
        Calendar {
            day,
            month: i64::from(date.year()) * 12 + i64::from(date.month()) - 1,
            day_ends_in: until(1),
            month_ends_in: until(i64::from(date.days_in_month() - date.day()) + 1),
        }
    }

    /// Returns the length of the month, in minutes.
    pub fn month_minutes(&self) -> u64 {
        let begun = u64::try_from(self.day.saturating_sub(self.month_begins())).unwrap_or(0);
        let ahead = self.month_ends_in.saturating_sub(self.day_ends_in) / 86_400;
        begun.saturating_add(ahead).saturating_add(1).saturating_mul(24 * 60)
    }

    /// Returns the first day of the month, in days since 1970-01-01.
    pub fn month_begins(&self) -> i64 {
        let year = i16::try_from(self.month.div_euclid(12));
        let month = i8::try_from(self.month.rem_euclid(12) + 1);
        let date = year.ok().zip(month.ok()).and_then(|(year, month)| Date::new(year, month, 1).ok());
        day_of_date(date.unwrap_or(if self.month < 0 { Date::MIN } else { Date::MAX }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_days_and_months_match_unix_time() {
        for (unix, day, year, month, first) in [
            (0, 0, 1970, 1, 0),
            (951_825_600, 11_016, 2000, 2, 10_988),
            (1_709_251_199, 19_782, 2024, 2, 19_754),
            (1_709_251_200, 19_783, 2024, 3, 19_783),
            (1_798_761_599, 20_818, 2026, 12, 20_788),
        ] {
            let calendar = Calendar::at(unix);
            assert_eq!((calendar.day, calendar.month), (day, year * 12 + month - 1), "{unix}");
            assert_eq!(calendar.month_begins(), first, "{unix}");
            let days = calendar.month_minutes() / (24 * 60);
            assert_eq!(days, if month == 2 { 29 } else { 31 }, "{unix}");
            let next = unix + i64::try_from(calendar.month_ends_in).unwrap();
            assert_eq!(Calendar::at(next).month, calendar.month + 1, "{unix}");
            assert_eq!(Calendar::at(next - 1).month, calendar.month, "{unix}");
        }
    }
    #[test]
    fn calendar_absurd_times_do_not_overflow() {
        for unix in [i64::MIN, i64::MIN + 1, -377_705_116_801, 253_402_300_800, i64::MAX] {
            let calendar = Calendar::at(unix);
            assert_eq!(calendar.day, unix.div_euclid(86_400), "{unix}");
            assert!((1..=86_400).contains(&calendar.day_ends_in), "{unix}");
            let month = calendar.month_begins();
            assert!(month >= 0 && unix > 0 || month < 0 && unix < 0, "{unix}");
        }
        for month in [i64::MIN, i64::MAX] {
            let _ = Calendar { month, ..Calendar::default() }.month_begins();
        }
    }
}
