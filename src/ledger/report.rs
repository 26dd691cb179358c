//! Usage reports, independent of the database: what they group by, what they filter, and their sums.

use super::UsageRecord;
use super::record::KINDS;

/// Milliseconds of a day.
pub(crate) const DAY: i64 = 86_400_000;

/// Grouping of a usage report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGrouping {
    /// By day, in UTC.
    Day,
    /// By account.
    Account,
    /// By key.
    Key,
    /// By model, as clients name it.
    Model,
}

impl UsageGrouping {
    /// All groupings.
    pub const ALL: [UsageGrouping; 4] =
        [UsageGrouping::Day, UsageGrouping::Account, UsageGrouping::Key, UsageGrouping::Model];

    /// Returns the name of the grouping, which is also its column.
    pub fn name(self) -> &'static str {
        match self {
            UsageGrouping::Day => "day",
            UsageGrouping::Account => "account",
            UsageGrouping::Key => "key",
            UsageGrouping::Model => "model",
        }
    }
}

/// Filter of a usage report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Only this account; the empty name selects keys without an account.
    pub account: Option<String>,
    /// Only this key.
    pub key: Option<String>,
    /// Only this model.
    pub model: Option<String>,
    /// First day, in days since 1970-01-01, UTC.
    pub from: i64,
    /// End of the range, exclusive: the day after the last.
    pub to: i64,
}

impl UsageFilter {
    /// Returns true if a record is within the period and has the names.
    pub(crate) fn matches(&self, record: &UsageRecord<'_>) -> bool {
        let is = |required: &Option<String>, name: &str| {
            required.as_deref().is_none_or(|required| required == name)
        };
        (self.from.saturating_mul(DAY)..self.to.saturating_mul(DAY)).contains(&record.time)
            && is(&self.account, record.account)
            && is(&self.key, record.key)
            && is(&self.model, record.model)
    }
}

/// Position of a record: its block, and its index there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordPosition {
    /// Block in the order of the backend.
    pub(crate) block: i64,
    /// Index of the record in its block.
    pub(crate) index: usize,
}

impl RecordPosition {
    /// Parses two numbers with a dot in between. `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (block, index) = text.split_once('.')?;
        Some(RecordPosition { block: block.parse().ok()?, index: index.parse().ok()? })
    }
}

impl std::fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.block, self.index)
    }
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Number of requests.
    pub requests: i64,
    /// Number of failed requests.
    pub failed: i64,
    /// Charges in nano-units.
    pub cost: i64,
    /// Usage by kind, in the order of [`KINDS`].
    pub usage: [i64; KINDS.len()],
    /// Savings of prompt-cache reads against plain input, in nano-units.
    pub cache_saved: i64,
    /// Surcharges of prompt-cache writes against plain input, in nano-units. They are part of the charges.
    pub cache_surcharge: i64,
}

impl UsageSums {
    /// Adds other sums; saturates.
    pub fn add(&mut self, other: &UsageSums) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        self.cost = self.cost.saturating_add(other.cost);
        for (sum, more) in self.usage.iter_mut().zip(other.usage) {
            *sum = sum.saturating_add(more);
        }
        self.cache_saved = self.cache_saved.saturating_add(other.cache_saved);
        self.cache_surcharge = self.cache_surcharge.saturating_add(other.cache_surcharge);
    }
}

impl UsageSums {
    /// Returns true if one of the sums is saturated, so that the true value is unknown.
    pub fn is_beyond(&self) -> bool {
        let others = [self.requests, self.failed, self.cost, self.cache_saved, self.cache_surcharge];
        others.iter().chain(&self.usage).any(|sum| *sum == i64::MAX)
    }
}

/// Line of a usage report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Value of the grouping: a day as its number, or a name.
    pub name: String,
    /// Sums of the requests in this group.
    pub sums: UsageSums,
}

/// Converts to `i64`; saturates.
pub(crate) fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}
