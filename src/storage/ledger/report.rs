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

/// Uncompressed bytes of records after which a page ends, however few records it has found: some hundred thousand records.
/// The next page goes on.
pub(crate) const PAGE_BYTES: usize = 32 << 20;

/// Longest text that records are searched for, in bytes.
pub const LONGEST_SEARCH: usize = 128;

/// Statuses of the records that a query chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// Statuses with this first digit.
    Class(u16),
    /// Requests that failed.
    Failed,
}

impl StatusFilter {
    /// Parses `2xx` to `5xx`, or `error`. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "error" => Some(StatusFilter::Failed),
            _ => {
                let digit = text.strip_suffix("xx")?.parse().ok()?;
                (2..=5).contains(&digit).then_some(StatusFilter::Class(digit))
            }
        }
    }
}

/// Query of single records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// Period and names.
    pub filter: UsageFilter,
    /// Only the request with this id.
    pub request: Option<String>,
    /// Only records of which an id, a name or an error has this text, in upper or lower case. At most [`LONGEST_SEARCH`]
    /// bytes.
    pub text: Option<String>,
    /// Only this provider; the empty name selects requests that none has answered.
    pub provider: Option<String>,
    /// Only this kind of error; the empty name selects requests that succeeded.
    pub error: Option<String>,
    /// Only such statuses.
    pub status: Option<StatusFilter>,
    /// Whether the latest records come first.
    pub newest_first: bool,
}

impl RecordQuery {
    /// Creates a query of all records that match a filter, the oldest first.
    pub(crate) fn of(filter: &UsageFilter) -> Self {
        RecordQuery { filter: filter.clone(), ..RecordQuery::default() }
    }

    /// Returns true if the query chooses the record.
    pub(crate) fn matches(&self, record: &UsageRecord<'_>) -> bool {
        let is = |required: &Option<String>, name: &str| {
            required.as_deref().is_none_or(|required| required == name)
        };
        let has_status = match self.status {
            None => true,
            Some(StatusFilter::Class(digit)) => record.status / 100 == digit,
            Some(StatusFilter::Failed) => record.failed(),
        };
        has_status
            && self.filter.matches(record)
            && is(&self.request, record.request)
            && is(&self.provider, record.provider)
            && is(&self.error, record.error)
            && self.text.as_deref().is_none_or(|text| record.texts().iter().any(|of| has_text(of, text)))
    }

    /// Returns whether a block can have records that the query chooses: it has every text that those have. `block` is not
    /// compressed. Much less work than to read its records.
    pub(crate) fn may_be_in(&self, block: &[u8]) -> bool {
        let UsageFilter { account, key, model, .. } = &self.filter;
        let names = [account, key, model, &self.request, &self.provider, &self.error];
        let has = |block: &[u8], text: &[u8]| memchr::memmem::find(block, text).is_some();
        names.into_iter().flatten().all(|name| has(block, name.as_bytes()))
            && self
                .text
                .as_deref()
                .is_none_or(|text| has(&block.to_ascii_lowercase(), text.to_ascii_lowercase().as_bytes()))
    }

    /// Returns the text of a position in the order of the query.
    pub(crate) fn cursor(&self, position: impl std::fmt::Display) -> String {
        if self.newest_first { format!("-{position}") } else { position.to_string() }
    }

    /// Returns the position of a cursor; `None` for one of the other order.
    pub(crate) fn position<'c>(&self, cursor: &'c str) -> Option<&'c str> {
        match (cursor.strip_prefix('-'), self.newest_first) {
            (Some(position), true) => Some(position),
            (None, false) => Some(cursor),
            _ => None,
        }
    }
}

fn has_text(text: &str, wanted: &str) -> bool {
    let wanted = wanted.as_bytes();
    wanted.is_empty() || text.as_bytes().windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_query_chooses_by_id_name_status_and_text() {
        let record = UsageRecord {
            time: 5 * DAY,
            request: "req_Ab1",
            provider: "openai",
            status: 429,
            error: "rate_limited",
            ..UsageRecord::default()
        };
        let mut block = Vec::new();
        record.encode(&mut block);
        let filter = UsageFilter { from: 5, to: 6, ..UsageFilter::default() };
        let all = RecordQuery::of(&filter);
        let text = |text: &str| Some(text.to_owned());
        assert!(all.matches(&record));
        for (query, expected) in [
            (RecordQuery { request: text("req_Ab1"), ..all.clone() }, true),
            (RecordQuery { request: text("req_Ab"), ..all.clone() }, false),
            (RecordQuery { text: text("REQ_AB"), ..all.clone() }, true),
            (RecordQuery { text: text("OpenAI"), ..all.clone() }, true),
            (RecordQuery { text: text("openai rate"), ..all.clone() }, false),
            (RecordQuery { provider: text(""), ..all.clone() }, false),
            (RecordQuery { error: text("rate_limited"), ..all.clone() }, true),
            (RecordQuery { error: text(""), ..all.clone() }, false),
            (RecordQuery { status: StatusFilter::parse("4xx"), ..all.clone() }, true),
            (RecordQuery { status: StatusFilter::parse("5xx"), ..all.clone() }, false),
            (RecordQuery { status: StatusFilter::parse("error"), ..all.clone() }, true),
        ] {
            assert_eq!(query.matches(&record), expected, "{query:?}");
            // A block with a record that is chosen is never left out.
            assert!(!expected || query.may_be_in(&block), "{query:?}");
        }
        for absent in [
            RecordQuery { request: text("req_ab1"), ..all.clone() },
            RecordQuery { text: text("openai rate"), ..all.clone() },
            RecordQuery { provider: text("azure"), ..all.clone() },
            RecordQuery::of(&UsageFilter { key: text("bob"), ..filter.clone() }),
        ] {
            assert!(!absent.may_be_in(&block), "{absent:?}");
        }
        for wrong in ["", "6xx", "1xx", "xx", "42x", "errors"] {
            assert_eq!(StatusFilter::parse(wrong), None, "{wrong}");
        }
        let newest = RecordQuery { newest_first: true, ..all.clone() };
        let position = RecordPosition { block: 7, index: 2 };
        for query in [&all, &newest] {
            let cursor = query.cursor(position);
            assert_eq!(query.position(&cursor).and_then(RecordPosition::parse), Some(position));
        }
        assert_eq!((all.position("-7.2"), newest.position("7.2")), (None, None));
    }
}
