//! Prices of one model at one provider: rows by day, with the factors that apply to them.

use jiff::civil::{Date, Time, Weekday};

use super::document::RowPlace;
use super::factor::PriceFactor;
use super::words::RowStatus;

/// Kinds of tokens that have a price, as the keys of a price row name them.
pub const TOKEN_KINDS: &[&str] = &[
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "cache_write_12h",
    "output",
    "reasoning",
    "audio_input",
    "cached_audio_input",
    "audio_output",
    "image_input",
    "cached_image_input",
    "image_output",
];

/// Price of one kind of tokens, in nano-units per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    /// Kind: one of [`TOKEN_KINDS`].
    pub kind: &'static str,
    /// Price in nano-units.
    pub nanos: i64,
}

/// Factors of requests whose input exceeds a number of tokens. They apply to the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongRule {
    /// Largest input, in tokens, to which the base price applies.
    pub above: u64,
    /// Factor of all kinds of input.
    pub input: PriceFactor,
    /// Factor of all kinds of output.
    pub output: PriceFactor,
}

/// Prices of requests whose input exceeds a number of tokens. They apply to the whole request; a kind that has none keeps that of
/// the step below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceStep {
    /// Largest input, in tokens, to which the step below applies.
    pub above: u64,
    /// Prices.
    pub rates: Vec<TokenRate>,
}

/// Prices of a service tier for kinds of tokens that are no multiple of the base price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTier {
    /// Tier.
    pub tier: Box<str>,
    /// Prices.
    pub rates: Vec<TokenRate>,
}

/// Price of one image or one second of video, by size and quality. The first row that fits counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRate {
    /// Size or resolution. `None` for all.
    pub size: Option<Box<str>>,
    /// Quality. `None` for all.
    pub quality: Option<Box<str>>,
    /// Price in nano-units.
    pub nanos: i64,
}

/// Price of a model at a provider during a range of days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPrice {
    /// First day, in UTC. `None` if the row has no beginning.
    pub from: Option<Date>,
    /// Last day, in UTC. `None` if the row has no end.
    pub until: Option<Date>,
    /// Base prices.
    pub rates: Vec<TokenRate>,
    /// Price of one web search, in nano-units.
    pub search: Option<i64>,
    /// Price of one request, in nano-units.
    pub request: Option<i64>,
    /// Prices of one image.
    pub images: Vec<UnitRate>,
    /// Prices of one second of video.
    pub video_seconds: Vec<UnitRate>,
    /// Factors of long requests.
    pub long: Option<LongRule>,
    /// Prices of long requests.
    pub steps: Vec<PriceStep>,
    /// Factors of service tiers. One that is not listed is not known to be served.
    pub tiers: Vec<(Box<str>, PriceFactor)>,
    /// Prices of tiers that are no multiples.
    pub odd: Vec<ListedTier>,
    /// Factors of regions. One that is not listed has the base price.
    pub regions: Vec<(Box<str>, PriceFactor)>,
    /// Whether the model is free on purpose.
    pub free: bool,
    /// Reason why the prices are not in the usual order: cached input at most input, input at most output.
    pub unusual: Option<Box<str>>,
    /// Where the row comes from.
    pub source: Box<str>,
    /// How far the row is confirmed.
    pub status: RowStatus,
    /// What other sources state.
    pub disputed: Option<Box<str>>,
    /// Remark.
    pub note: Option<Box<str>>,
    pub(super) place: RowPlace,
}

impl ListedPrice {
    /// Returns the base price of a kind of tokens, in nano-units per million.
    pub fn rate(&self, kind: &str) -> Option<i64> {
        self.rates.iter().find(|rate| rate.kind == kind).map(|rate| rate.nanos)
    }

    /// Returns the factor of a tier. `None` if the tier is not known to be served.
    pub fn tier(&self, name: &str) -> Option<PriceFactor> {
        self.tiers.iter().find(|(tier, _)| &**tier == name).map(|(_, factor)| *factor)
    }

    /// Returns whether the row holds on a day.
    pub fn holds_on(&self, day: Date) -> bool {
        self.from.is_none_or(|from| from <= day) && self.until.is_none_or(|until| day <= until)
    }

    /// Returns what is contradictory in the row, with what would be right.
    pub(super) fn contradiction(&self) -> Option<(String, &'static str)> {
        if self.from.zip(self.until).is_some_and(|(from, until)| from > until) {
            return Some(("until is before from".to_owned(), "write the first and the last day"));
        }
        let priced = self.rates.iter().any(|rate| rate.nanos > 0)
            || self.images.iter().chain(&self.video_seconds).any(|rate| rate.nanos > 0)
            || self.search.is_some_and(|price| price > 0)
            || self.request.is_some_and(|price| price > 0);
        if !priced && !self.free {
            return Some(("has no price".to_owned(), "write free = true if the model is free on purpose"));
        }
        if priced && self.free {
            return Some(("is free and has a price".to_owned(), "leave free out, or the prices"));
        }
        if let Some((tier, _)) = self.tiers.iter().find(|(tier, _)| &**tier == "standard") {
            return Some((
                format!("{tier} has a factor"),
                "the prices of the row are those of the standard tier",
            ));
        }
        if let Some(odd) = self.odd.iter().find(|odd| self.tier(&odd.tier).is_none()) {
            let message = format!("odd names the tier {:?}, which has no factor", odd.tier);
            return Some((message, "write the factor of its other kinds in tiers"));
        }
        if self.unusual.is_some() {
            return None;
        }
        // What is cached costs at most as much as what is not, and what is read as what is written.
        let pairs = [("cached_input", "input"), ("input", "output"), ("cached_audio_input", "audio_input")];
        for (less, more) in pairs {
            if let (Some(low), Some(high)) = (self.rate(less), self.rate(more))
                && low > high
            {
                let message = format!("{less} costs more than {more}");
                return Some((message, "if that is right, say why: unusual = \"...\""));
            }
        }
        None
    }
}

/// Hours outside of which a provider charges less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducedHours {
    /// PriceFactor outside of the windows.
    pub factor: PriceFactor,
    /// Windows of the full price.
    pub peak: Vec<PeakWindow>,
    /// Days without a window.
    pub holidays: Vec<Date>,
}

impl ReducedHours {
    /// Returns whether the full price applies at a time in UTC.
    pub fn is_peak(&self, day: Date, time: Time) -> bool {
        let minute = u16::from(time.hour().unsigned_abs())
            .saturating_mul(60)
            .saturating_add(u16::from(time.minute().unsigned_abs()));
        !self.holidays.contains(&day) && self.peak.iter().any(|window| window.contains(day.weekday(), minute))
    }
}

/// Range of minutes on some days of the week, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakWindow {
    /// Days, as bits from Monday.
    pub days: u8,
    /// First minute of the day.
    pub from: u16,
    /// Minute of the day at which the window ends.
    pub until: u16,
}

impl PeakWindow {
    /// Parses `Mon-Fri 01:00-04:00`. Returns `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<PeakWindow> {
        const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let day = |name: &str| DAYS.iter().position(|day| *day == name);
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            let total = hour.checked_mul(60)?.checked_add(minute)?;
            (minute < 60 && total <= 24 * 60).then_some(total)
        };
        let (days, times) = text.split_once(' ')?;
        let (first, last) = days.split_once('-').unwrap_or((days, days));
        let (first, last) = (day(first)?, day(last)?);
        let (from, until) = times.split_once('-')?;
        let (from, until) = (minute(from)?, minute(until)?);
        let days = (first..=last).fold(0, |days: u8, day| days | 1 << day);
        (days != 0 && from < until).then_some(PeakWindow { days, from, until })
    }

    fn contains(self, day: Weekday, minute: u16) -> bool {
        let day = day.to_monday_zero_offset().unsigned_abs();
        self.days & (1 << day) != 0 && (self.from..self.until).contains(&minute)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn off_peak_is_outside_of_the_windows_and_on_holidays() {
        let window = PeakWindow::parse("Mon-Fri 01:00-04:00").unwrap();
        let off_peak = ReducedHours {
            factor: PriceFactor::parse("0.5").unwrap(),
            peak: vec![window],
            holidays: vec![date(2026, 10, 1)],
        };
        // 2026-11-27 is a Friday.
        assert!(off_peak.is_peak(date(2026, 11, 27), time(1, 0, 0, 0)));
        assert!(off_peak.is_peak(date(2026, 11, 27), time(3, 59, 59, 0)));
        assert!(!off_peak.is_peak(date(2026, 11, 27), time(4, 0, 0, 0)));
        assert!(!off_peak.is_peak(date(2026, 11, 28), time(2, 0, 0, 0)));
        assert!(!off_peak.is_peak(date(2026, 10, 1), time(2, 0, 0, 0)));
        for wrong in
            ["Mon 01:00", "Mon-Fri 4:00-01:00", "Fri-Mon 01:00-02:00", "Mon 25:00-26:00", "x 1:00-2:00"]
        {
            assert_eq!(PeakWindow::parse(wrong), None, "{wrong}");
        }
    }
}
