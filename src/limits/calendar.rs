//! Calendar days and months in UTC, for spend limits.

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
    /// Returns the day and month of a Unix time in seconds, in UTC.
    pub fn at(unix: i64) -> Calendar {
        let day = unix.div_euclid(86_400);
        let (year, month) = civil(day);
        let next_month = first_day(if month == 12 { (year + 1, 1) } else { (year, month + 1) });
        let until = |day: i64| u64::try_from(day * 86_400 - unix).unwrap_or(0);
        Calendar {
            day,
            month: year * 12 + month - 1,
            day_ends_in: until(day + 1),
            month_ends_in: until(next_month),
        }
    }

    /// Returns the first day of the month, in days since 1970-01-01.
    pub fn month_begins(&self) -> i64 {
        first_day((self.month.div_euclid(12), self.month.rem_euclid(12) + 1))
    }
}

/// Returns year and month of a day since 1970-01-01 (Howard Hinnant's algorithm `civil_from_days`).
fn civil(day: i64) -> (i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let index = (5 * of_year + 2) / 153;
    let month = if index < 10 { index + 3 } else { index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month)
}

fn first_day((year, month): (i64, i64)) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
            let next = unix + i64::try_from(calendar.month_ends_in).unwrap();
            assert_eq!(Calendar::at(next).month, calendar.month + 1, "{unix}");
            assert_eq!(Calendar::at(next - 1).month, calendar.month, "{unix}");
        }
    }
}
