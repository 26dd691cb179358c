//! Usage by several dimensions at once, independent of the database: the query, the addition of cells and records, and
//! the largest rows with the rest of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::UsageRecord;
use super::report::{UsageFilter, UsageSums};
use super::usage_cells::{CellBlock, MEASURES, Measures, NAMES, names};
use codec::canonical::time::date_of_day;

/// Largest number of dimensions of a query.
pub const MAX_DIMENSIONS: usize = 3;
/// Largest number of days of a query by hours without accounts and keys.
pub const MAX_HOUR_DAYS: i64 = 31;
/// Largest number of days of a query by hours with accounts or keys, and in a fleet.
pub const MAX_KEY_HOUR_DAYS: i64 = 7;
/// Hours of a day.
const HOURS: i64 = 24;
/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
/// Largest number of rows that are added up. Further ones are added to one row of their time.
const MAX_ROWS: usize = 1_000_000;

/// Dimension of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageDimension {
    /// Hour in UTC.
    Hour,
    /// Day in UTC.
    Day,
    /// Month in UTC.
    Month,
    /// Account.
    Account,
    /// Key.
    Key,
    /// Model, as clients name it.
    Model,
    /// Provider that answered.
    Provider,
    /// Kind of error; empty for requests that succeeded.
    Error,
}

impl UsageDimension {
    /// All dimensions.
    pub const ALL: [UsageDimension; 8] = [
        UsageDimension::Hour,
        UsageDimension::Day,
        UsageDimension::Month,
        UsageDimension::Account,
        UsageDimension::Key,
        UsageDimension::Model,
        UsageDimension::Provider,
        UsageDimension::Error,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            UsageDimension::Hour => "hour",
            UsageDimension::Day => "day",
            UsageDimension::Month => "month",
            UsageDimension::Account => "account",
            UsageDimension::Key => "key",
            UsageDimension::Model => "model",
            UsageDimension::Provider => "provider",
            UsageDimension::Error => "error",
        }
    }

    /// Returns the dimension of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.name() == name)
    }

    /// Returns the index of the name in a cell; `None` for a time.
    pub(crate) const fn name_index(self) -> Option<usize> {
        match self {
            UsageDimension::Hour | UsageDimension::Day | UsageDimension::Month => None,
            UsageDimension::Account => Some(0),
            UsageDimension::Key => Some(1),
            UsageDimension::Model => Some(2),
            UsageDimension::Provider => Some(3),
            UsageDimension::Error => Some(4),
        }
    }

    /// Returns the number of this time for an hour since 1970: the hour, the day, or the month since year 0.
    fn time(self, hour: i64) -> i64 {
        let day = hour.div_euclid(HOURS);
        match self {
            UsageDimension::Hour => hour,
            UsageDimension::Month => {
                let date = date_of_day(day);
                i64::from(date.year())
                    .saturating_mul(12)
                    .saturating_add(i64::from(date.month()).saturating_sub(1))
            }
            _ => day,
        }
    }
}

/// Query of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Period and names.
    pub filter: UsageFilter,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only this kind of error.
    pub error: Option<String>,
    /// What the rows are: at most [`MAX_DIMENSIONS`], each once, at most one of them a time.
    pub dimensions: Vec<UsageDimension>,
    /// Number of combinations of names with rows of their own: those that are the largest over the whole period. The rest
    /// is one row per time. `None` for all.
    pub top: Option<usize>,
    /// Figure by which names are the largest.
    pub order: UsageOrder,
}

impl UsageQuery {
    /// Checks the query.
    ///
    /// # Errors
    /// Returns the parameter that is wrong, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let dimensions = &self.dimensions;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions.len()) {
            return Err(("group", format!("give one to {MAX_DIMENSIONS} dimensions")));
        }
        let times = dimensions.iter().filter(|dimension| dimension.name_index().is_none()).count();
        let twice = dimensions
            .iter()
            .enumerate()
            .any(|(at, one)| dimensions.iter().skip(at.saturating_add(1)).any(|other| other == one));
        if times > 1 || twice {
            return Err(("group", "give each dimension once, and one of hour, day and month".to_owned()));
        }
        let most = if self.has_keys() { MAX_KEY_HOUR_DAYS } else { MAX_HOUR_DAYS };
        if self.by_hour() && self.filter.to.saturating_sub(self.filter.from) > most {
            let hint = format!(
                "by hours, at most {MAX_HOUR_DAYS} days are summed, and {MAX_KEY_HOUR_DAYS} with accounts or keys"
            );
            return Err(("from", hint));
        }
        Ok(())
    }

    /// Returns whether the rows are hours.
    pub(crate) fn by_hour(&self) -> bool {
        self.dimensions.contains(&UsageDimension::Hour)
    }

    /// Returns whether the query needs the provider or the kind of error.
    pub(crate) fn has_outcome(&self) -> bool {
        let of = |dimension| self.dimensions.contains(&dimension);
        self.provider.is_some()
            || self.error.is_some()
            || of(UsageDimension::Provider)
            || of(UsageDimension::Error)
    }

    /// Returns whether the query needs the account or the key.
    pub(crate) fn has_keys(&self) -> bool {
        let of = |dimension| self.dimensions.contains(&dimension);
        self.filter.account.is_some()
            || self.filter.key.is_some()
            || of(UsageDimension::Account)
            || of(UsageDimension::Key)
    }

    /// Returns the names that cells must have, in the order of a cell.
    fn required(&self) -> [Option<&str>; NAMES] {
        let UsageFilter { account, key, model, .. } = &self.filter;
        [account, key, model, &self.provider, &self.error].map(|name| name.as_deref())
    }
}

/// Value of a dimension in a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DimensionValue {
    /// Hours or days since 1970-01-01, or months since year 0.
    Time(i64),
    /// Name.
    Name(Arc<str>),
    /// All names that have no row of their own.
    Others,
}

/// Row of a breakdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakdownRow {
    /// Values of the dimensions, in the order of the query.
    pub values: Vec<DimensionValue>,
    /// Sums.
    pub sums: UsageSums,
}

/// Figure by which rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageOrder {
    /// Cost.
    #[default]
    Cost,
    /// Requests.
    Requests,
    /// Failed requests.
    Failed,
    /// Input tokens.
    Input,
    /// Output tokens.
    Output,
}

impl UsageOrder {
    /// All orders, by name: the largest first.
    pub const NAMES: [(&'static str, UsageOrder); 5] = [
        ("-cost", UsageOrder::Cost),
        ("-requests", UsageOrder::Requests),
        ("-failed", UsageOrder::Failed),
        ("-input", UsageOrder::Input),
        ("-output", UsageOrder::Output),
    ];

    fn of(self, sums: &UsageSums) -> i64 {
        let [input, _, _, _, output, ..] = sums.usage;
        match self {
            UsageOrder::Cost => sums.cost,
            UsageOrder::Requests => sums.requests,
            UsageOrder::Failed => sums.failed,
            UsageOrder::Input => input,
            UsageOrder::Output => output,
        }
    }
}

/// Returns the sums of all rows.
pub fn total(rows: &[BreakdownRow]) -> UsageSums {
    rows.iter().fold(UsageSums::default(), |mut total, row| {
        total.add(&row.sums);
        total
    })
}

/// Orders rows: times in their order, then the largest first, and the rest of a time last.
pub fn arrange(mut rows: Vec<BreakdownRow>, order: UsageOrder) -> Vec<BreakdownRow> {
    let place = |row: &BreakdownRow| {
        let time = row.values.iter().find_map(|value| match value {
            DimensionValue::Time(time) => Some(*time),
            _ => None,
        });
        (time, row.values.contains(&DimensionValue::Others), Reverse(order.of(&row.sums)))
    };
    rows.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.values.cmp(&b.values)));
    rows
}

/// Addition of cells and records to the rows of a query.
pub(crate) struct Breakdown<'q> {
    query: &'q UsageQuery,
    numbers: HashMap<Arc<str>, i64, RandomState>,
    names: Vec<Arc<str>>,
    at: HashMap<[i64; MAX_DIMENSIONS], usize, RandomState>,
    rows: Vec<([i64; MAX_DIMENSIONS], Measures)>,
    /// Rows of the cells of a block; reused.
    targets: Vec<usize>,
}

/// Number of the names of rows beyond [`MAX_ROWS`].
const OTHERS: i64 = -1;

impl<'q> Breakdown<'q> {
    pub(crate) fn new(query: &'q UsageQuery) -> Self {
        Breakdown {
            query,
            numbers: HashMap::default(),
            names: Vec::new(),
            at: HashMap::default(),
            rows: Vec::new(),
            targets: Vec::new(),
        }
    }

    fn number(&mut self, name: &str) -> i64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = i64::try_from(self.names.len()).unwrap_or(i64::MAX);
        let name: Arc<str> = name.into();
        self.numbers.insert(name.clone(), number);
        self.names.push(name);
        number
    }

    fn row(&mut self, mut key: [i64; MAX_DIMENSIONS]) -> usize {
        if let Some(at) = self.at.get(&key) {
            return *at;
        }
        if self.rows.len() >= MAX_ROWS {
            for (slot, dimension) in key.iter_mut().zip(&self.query.dimensions) {
                if dimension.name_index().is_some() {
                    *slot = OTHERS;
                }
            }
            if let Some(at) = self.at.get(&key) {
                return *at;
            }
        }
        let at = self.rows.len();
        self.at.insert(key, at);
        self.rows.push((key, [0; MEASURES]));
        at
    }

    /// Adds sums of an hour since 1970 with these names, if they fit the names of the query. The period is not checked.
    pub(crate) fn add(&mut self, hour: i64, names: [&str; NAMES], sums: &UsageSums) {
        let fits =
            |(required, name): (&Option<&str>, &&str)| required.is_none_or(|required| required == *name);
        if !self.query.required().iter().zip(&names).all(fits) {
            return;
        }
        let mut key = [0; MAX_DIMENSIONS];
        let query = self.query;
        for (slot, dimension) in key.iter_mut().zip(&query.dimensions) {
            *slot = match dimension.name_index() {
                None => dimension.time(hour),
                Some(index) => self.number(names.get(index).copied().unwrap_or_default()),
            };
        }
        let at = self.row(key);
        if let Some((_, row)) = self.rows.get_mut(at) {
            for (sum, more) in row.iter_mut().zip(sums.measures()) {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// Adds a record if it is within the period and has the names of the query.
    pub(crate) fn add_record(&mut self, record: &UsageRecord<'_>) {
        if self.query.filter.matches(record) {
            let mut buffer = String::new();
            let hour = record.time.div_euclid(HOUR);
            let (sums, names) = (UsageSums::of(record), names(record, &mut buffer));
            self.add(hour, names, &sums);
        }
    }

    /// Adds the cells of a block that begins at an hour since 1970.
    pub(crate) fn add_block(&mut self, first_hour: i64, block: &CellBlock<'_>) {
        const SKIPPED: usize = usize::MAX;
        let query = self.query;
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        targets.resize(block.len(), 0);
        for (index, required) in query.required().into_iter().enumerate() {
            let Some(required) = required else { continue };
            let wanted = block.names.iter().position(|name| *name == required);
            let wanted = wanted.map_or(u64::MAX, |wanted| wanted as u64);
            block.name_numbers(index, |at, number| {
                if let (true, Some(target)) = (number != wanted, targets.get_mut(at)) {
                    *target = SKIPPED;
                }
            });
        }
        let numbers: Vec<i64> = if query.dimensions.iter().any(|dimension| dimension.name_index().is_some()) {
            block.names.iter().map(|name| self.number(name)).collect()
        } else {
            Vec::new()
        };
        let mut keys = vec![[0i64; MAX_DIMENSIONS]; block.len()];
        for (slot, dimension) in query.dimensions.iter().enumerate() {
            let mut set = |at: usize, value: i64| {
                if let Some(key) = keys.get_mut(at).and_then(|key| key.get_mut(slot)) {
                    *key = value;
                }
            };
            match dimension.name_index() {
                Some(index) => block.name_numbers(index, |at, number| {
                    let number = usize::try_from(number).ok().and_then(|number| numbers.get(number));
                    set(at, number.copied().unwrap_or(OTHERS));
                }),
                None if *dimension == UsageDimension::Hour => block.hours(|at, hour| {
                    set(at, first_hour.saturating_add(i64::try_from(hour).unwrap_or(0)));
                }),
                None => {
                    let time = dimension.time(first_hour);
                    (0..block.len()).for_each(|at| set(at, time));
                }
            }
        }
        // Neighbours often have the same row: cells are ordered by their names.
        let mut last: Option<([i64; MAX_DIMENSIONS], usize)> = None;
        for (target, key) in targets.iter_mut().zip(keys).filter(|(target, _)| **target != SKIPPED) {
            *target = match last {
                Some((before, at)) if before == key => at,
                _ => self.row(key),
            };
            last = Some((key, *target));
        }
        for measure in 0..MEASURES {
            block.figures(measure, |at, value| {
                let target = targets.get(at).copied().unwrap_or(SKIPPED);
                let sum = self.rows.get_mut(target).and_then(|(_, row)| row.get_mut(measure));
                if let Some(sum) = sum {
                    *sum = sum.saturating_add_unsigned(value);
                }
            });
        }
        self.targets = targets;
    }

    /// Keeps the rows of the combinations of names that are the largest over the whole period, and adds the others up to one
    /// row per time. Rows have numbers in place of names here: with texts, each would cost more than its sums.
    fn keep_largest(&mut self, top: usize) {
        let query = self.query;
        let time = query.dimensions.iter().position(|dimension| dimension.name_index().is_none());
        if time.is_some() && query.dimensions.len() == 1 {
            return;
        }
        let mut combinations: HashMap<[i64; MAX_DIMENSIONS], usize, RandomState> = HashMap::default();
        let mut sums: Vec<([i64; MAX_DIMENSIONS], i64)> = Vec::new();
        let mut of_rows = Vec::with_capacity(self.rows.len());
        for (key, measures) in &self.rows {
            let mut names = *key;
            if let Some(slot) = time.and_then(|at| names.get_mut(at)) {
                *slot = 0;
            }
            let at = *combinations.entry(names).or_insert_with(|| {
                sums.push((names, 0));
                sums.len().saturating_sub(1)
            });
            if let Some((_, sum)) = sums.get_mut(at) {
                *sum = sum.saturating_add(query.order.of(&UsageSums::from_measures(measures)));
            }
            of_rows.push(at);
        }
        let text = |number: i64| usize::try_from(number).ok().and_then(|number| self.names.get(number));
        let named = sums.iter().enumerate().filter(|(_, (names, _))| !names.contains(&OTHERS));
        let mut largest: Vec<_> =
            named.map(|(at, (names, sum))| (Reverse(*sum), names.map(text), at)).collect();
        largest.sort_unstable();
        let mut is_own = vec![false; sums.len()];
        for (_, _, at) in largest.into_iter().take(top) {
            if let Some(own) = is_own.get_mut(at) {
                *own = true;
            }
        }
        let mut kept = Vec::new();
        let mut rest: HashMap<i64, Measures, RandomState> = HashMap::default();
        for ((key, measures), at) in std::mem::take(&mut self.rows).into_iter().zip(of_rows) {
            if is_own.get(at) == Some(&true) {
                kept.push((key, measures));
                continue;
            }
            let when = time.and_then(|at| key.get(at)).copied().unwrap_or(0);
            for (sum, more) in rest.entry(when).or_insert([0; MEASURES]).iter_mut().zip(measures) {
                *sum = sum.saturating_add(more);
            }
        }
        kept.extend(rest.into_iter().map(|(when, measures)| {
            let mut key = [OTHERS; MAX_DIMENSIONS];
            if let Some(slot) = time.and_then(|at| key.get_mut(at)) {
                *slot = when;
            }
            (key, measures)
        }));
        self.rows = kept;
    }

    /// Returns the rows, in no order.
    pub(crate) fn finish(mut self) -> Vec<BreakdownRow> {
        if let Some(top) = self.query.top {
            self.keep_largest(top);
        }
        let name = |number: i64| {
            let name = usize::try_from(number).ok().and_then(|number| self.names.get(number));
            name.map_or(DimensionValue::Others, |name| DimensionValue::Name(name.clone()))
        };
        let row = |(key, measures): &([i64; MAX_DIMENSIONS], Measures)| {
            let value = |(dimension, value): (&UsageDimension, &i64)| match dimension.name_index() {
                None => DimensionValue::Time(*value),
                Some(_) => name(*value),
            };
            BreakdownRow {
                values: self.query.dimensions.iter().zip(key).map(value).collect(),
                sums: UsageSums::from_measures(measures),
            }
        };
        self.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests;
