//! When a price holds: days in UTC, and hours of the week with a factor of their own.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

use super::factor::Multiplier;
use codec::canonical::time::{DAY_SECONDS, date_of_day};

/// Days on which a price holds, in UTC, both included. `None` has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Days {
    /// First day, in days since 1970.
    pub from: Option<i64>,
    /// Last day, in days since 1970.
    pub until: Option<i64>,
}

impl Days {
    /// Returns whether a point in time, in Unix seconds, is on one of the days.
    pub fn have(&self, at: i64) -> bool {
        let day = day_of(at);
        self.from.is_none_or(|from| from <= day) && self.until.is_none_or(|until| day <= until)
    }

    /// Returns whether there are bounds at all.
    pub fn are_bounded(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// Returns whether two sets of days have a day in common.
    pub fn overlap(&self, other: &Days) -> bool {
        let before =
            |one: &Days, other: &Days| one.until.zip(other.from).is_some_and(|(until, from)| until < from);
        !before(self, other) && !before(other, self)
    }
}

/// Returns the day of a point in time in Unix seconds, in days since 1970.
pub(super) fn day_of(at: i64) -> i64 {
    at.div_euclid(DAY_SECONDS)
}

/// Multiplier of the hours outside of peak hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffPeakRule {
    /// Multiplier outside of the peak hours.
    pub factor: Multiplier,
    /// Peak hours, in UTC.
    pub peak: Vec<PeakHours>,
    /// Days without peak hours, in days since 1970.
    pub holidays: Vec<i64>,
}

impl OffPeakRule {
    /// Returns the factor of a point in time in Unix seconds.
    pub fn at(&self, at: i64) -> Multiplier {
        let is_peak = self.peak.iter().any(|hours| hours.have(at));
        if is_peak && !self.holidays.contains(&day_of(at)) { Multiplier::ONE } else { self.factor }
    }
}

/// Peak hours on days of the week, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakHours {
    /// Days of the week, one bit each, from Monday.
    days: u8,
    /// First minute of the day.
    from: u16,
    /// Minute of the day at which the hours end.
    until: u16,
}

const WEEK: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

impl PeakHours {
    /// Returns the hours between two minutes of the day, on days of the week: one bit each, from Monday.
    pub const fn new(days: u8, from: u16, until: u16) -> PeakHours {
        PeakHours { days, from, until }
    }

    /// Parses hours such as `Mon-Fri 01:00-04:00`.
    ///
    /// # Errors
    /// Returns what would be right.
    pub fn parse(text: &str) -> Result<PeakHours, String> {
        let hint = || "write days and hours in UTC, such as \"Mon-Fri 01:00-04:00\"".to_owned();
        let (days, hours) = text.split_once(' ').ok_or_else(hint)?;
        let day =
            |name: &str| WEEK.iter().position(|day| *day == name).and_then(|day| u8::try_from(day).ok());
        let (first, last) = days.split_once('-').unwrap_or((days, days));
        let (first, last) = day(first).zip(day(last)).ok_or_else(hint)?;
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if !digits(hour) || !digits(minute) {
                return None;
            }
            let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
            let all = hour.saturating_mul(60).saturating_add(minute);
            (minute < 60 && all <= DAY_MINUTES).then_some(all)
        };
        let (from, until) = hours.split_once('-').ok_or_else(hint)?;
        let (from, until) = minute(from).zip(minute(until)).ok_or_else(hint)?;
        if from >= until || first > last {
            return Err("the first day and hour must be before the last".to_owned());
        }
        let days = (first..=last).fold(0, |days, day| days | 1 << day);
        Ok(PeakHours { days, from, until })
    }

    fn have(self, at: i64) -> bool {
        // 1970-01-01 was a Thursday.
        let weekday = day_of(at).saturating_add(3).rem_euclid(7);
        let minute = at.rem_euclid(DAY_SECONDS).div_euclid(60);
        i64::from(self.days) >> weekday & 1 != 0
            && (i64::from(self.from)..i64::from(self.until)).contains(&minute)
    }
}

impl fmt::Display for PeakHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = |day: u32| WEEK.get(day as usize).copied().unwrap_or_default();
        let PeakHours { days, from, until } = *self;
        // All days that can be written are neighbors.
        let (first, last) = (days.trailing_zeros(), 7_u32.saturating_sub(days.leading_zeros()));
        write!(f, "{}", day(first))?;
        if last != first {
            write!(f, "-{}", day(last))?;
        }
        let hour = |minute: u16| (minute.div_euclid(60), minute.rem_euclid(60));
        let ((from, since), (until, to)) = (hour(from), hour(until));
        write!(f, " {from:02}:{since:02}-{until:02}:{to:02}")
    }
}

/// Returns the current time in Unix seconds.
pub fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// Formats a day, in days since 1970, as `2026-11-27`.
pub fn date(day: i64) -> String {
    date_of_day(day).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::canonical::time::unix_seconds;

    fn at(text: &str) -> i64 {
        unix_seconds(text).unwrap()
    }

    #[test]
    fn price_days_are_whole_days_in_utc() {
        let day = |text: &str| Some(day_of(at(&format!("{text}T00:00:00Z"))));
        let days = Days { from: day("2026-11-01"), until: day("2026-11-30") };
        assert!(!days.have(at("2026-10-31T23:59:59Z")));
        assert!(days.have(at("2026-11-01T00:00:00Z")));
        assert!(days.have(at("2026-11-30T23:59:59Z")));
        assert!(!days.have(at("2026-12-01T00:00:00Z")));
        assert!(Days::default().have(i64::MIN) && Days::default().have(i64::MAX));
        let next = Days { from: day("2026-12-01"), until: None };
        assert!(!days.overlap(&next) && !next.overlap(&days));
        assert!(days.overlap(&Days { from: day("2026-11-30"), until: None }));
        assert!(days.overlap(&Days::default()) && Days::default().overlap(&next));
        assert_eq!(date(days.until.unwrap()), "2026-11-30");
    }

    #[test]
    fn price_off_peak_is_outside_of_the_hours() {
        let peak = ["Mon-Fri 01:00-04:00", "Mon-Fri 06:00-10:00"].map(|text| PeakHours::parse(text).unwrap());
        let half = Multiplier::parse("0.5").unwrap();
        let holiday = day_of(at("2026-10-01T00:00:00Z"));
        let hours = OffPeakRule { factor: half, peak: peak.to_vec(), holidays: vec![holiday] };
        for (time, factor) in [
            // A Friday.
            ("2026-11-27T00:59:59Z", half),
            ("2026-11-27T01:00:00Z", Multiplier::ONE),
            ("2026-11-27T03:59:59Z", Multiplier::ONE),
            ("2026-11-27T04:00:00Z", half),
            ("2026-11-27T06:00:00Z", Multiplier::ONE),
            ("2026-11-27T10:00:00Z", half),
            ("2026-11-28T01:30:00Z", half),
            ("2026-11-29T01:30:00Z", half),
            ("2026-11-30T01:30:00Z", Multiplier::ONE),
            ("2026-10-01T01:30:00Z", half),
        ] {
            assert_eq!(hours.at(at(time)), factor, "{time}");
        }
    }

    #[test]
    fn price_peak_hours_are_parsed_and_shown() {
        for text in ["Mon-Fri 01:00-04:00", "Sun 00:00-24:00", "Tue 10:30-10:31"] {
            assert_eq!(PeakHours::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "Mon",
            "Mon 1:00-2:00",
            "Mon 02:00-01:00",
            "Fri-Mon 01:00-02:00",
            "Mon 01:00-24:01",
            "Mon 01:60-02:00",
            "mon 01:00-02:00",
            "Mon +1:00-02:00",
            "Mon 01:00-01:00",
            "Mon-Fri-Sat 01:00-02:00",
        ] {
            assert!(PeakHours::parse(text).is_err(), "{text}");
        }
    }
}
