//! One catalogue file laid over another: the upper one replaces what it sets, key by key, and prices day by day.

use std::collections::HashMap;

use jiff::civil::Date;

use super::fault::FaultList;
use super::price::ListedPrice;
use super::row::{Evidence, FamilyRow, FileRows, ModelRow, OfferRow, ProviderRow};

/// Replaces the value if the upper row sets one.
fn set<T>(value: &mut Option<T>, upper: Option<T>) {
    if upper.is_some() {
        *value = upper;
    }
}

impl Evidence {
    fn lay_over(&mut self, upper: Evidence) {
        // The row is that of the upper file: a dispute of the lower one is settled.
        let source = if upper.source.is_empty() { std::mem::take(&mut self.source) } else { upper.source };
        let status = upper.status.or(self.status);
        *self = Evidence { source, status, ..upper };
    }
}

impl ProviderRow {
    fn lay_over(&mut self, upper: ProviderRow) {
        set(&mut self.same_as, upper.same_as);
        set(&mut self.strip, upper.strip);
        set(&mut self.tier_names, upper.tier_names);
        set(&mut self.asks, upper.asks);
        set(&mut self.tells, upper.tells);
        set(&mut self.region, upper.region);
        set(&mut self.lists, upper.lists);
        set(&mut self.family, upper.family);
        set(&mut self.off_peak, upper.off_peak);
        self.evidence.lay_over(upper.evidence);
    }
}

impl FamilyRow {
    fn lay_over(&mut self, upper: FamilyRow) {
        set(&mut self.like, upper.like);
        set(&mut self.matches, upper.matches);
        set(&mut self.guesses, upper.guesses);
        set(&mut self.patterns, upper.patterns);
        self.facts.lay_over(upper.facts);
        self.evidence.lay_over(upper.evidence);
    }
}

impl ModelRow {
    fn lay_over(&mut self, upper: ModelRow) {
        set(&mut self.family, upper.family);
        set(&mut self.context, upper.context);
        set(&mut self.input_limit, upper.input_limit);
        set(&mut self.output, upper.output);
        self.facts.lay_over(upper.facts);
        for offer in upper.offers {
            match self.offers.iter_mut().find(|lower| lower.provider == offer.provider) {
                Some(lower) => lower.lay_over(offer),
                None => self.offers.push(offer),
            }
        }
        self.evidence.lay_over(upper.evidence);
    }
}

impl OfferRow {
    fn lay_over(&mut self, upper: OfferRow) {
        set(&mut self.name, upper.name);
        set(&mut self.retires, upper.retires);
        set(&mut self.retires_not_before, upper.retires_not_before);
        set(&mut self.successor, upper.successor);
        if upper.same_as.is_some() {
            self.same_as = upper.same_as;
            self.prices.clear();
        }
        set(&mut self.tiers, upper.tiers);
        set(&mut self.regions, upper.regions);
        self.prices = cover(&self.prices, upper.prices);
        self.evidence.lay_over(upper.evidence);
    }
}

/// Returns the upper rows, and the lower ones on the days that no upper one covers, in the order of their days.
pub(super) fn cover(lower: &[ListedPrice], upper: Vec<ListedPrice>) -> Vec<ListedPrice> {
    let mut rows: Vec<ListedPrice> = Vec::new();
    for row in lower {
        let mut rest = vec![row.clone()];
        for over in &upper {
            rest = rest.into_iter().flat_map(|row| without_days(row, over)).collect();
        }
        rows.extend(rest);
    }
    rows.extend(upper);
    rows.sort_by_key(|row| row.from.unwrap_or(Date::MIN));
    rows
}

/// Cuts the days of `over` out of a row: at most one part before and one after is left.
fn without_days(row: ListedPrice, over: &ListedPrice) -> Vec<ListedPrice> {
    days_without((row.from, row.until), (over.from, over.until))
        .into_iter()
        .map(|(from, until)| ListedPrice { from, until, ..row.clone() })
        .collect()
}

/// First and last day of a range; `None` where it is open.
pub(super) type DayRange = (Option<Date>, Option<Date>);

/// Returns the days of a range that another one does not have.
pub(super) fn days_without(range: DayRange, other: DayRange) -> Vec<DayRange> {
    let (first, last) = (range.0.unwrap_or(Date::MIN), range.1.unwrap_or(Date::MAX));
    let (from, until) = (other.0.unwrap_or(Date::MIN), other.1.unwrap_or(Date::MAX));
    if until < first || from > last {
        return vec![range];
    }
    let mut rest = Vec::new();
    if from > first {
        rest.push((range.0, from.yesterday().ok()));
    }
    if until < last {
        rest.push((until.tomorrow().ok(), range.1));
    }
    rest
}

/// Returns the days that two ranges share, or `None` if they share none.
pub(super) fn common_days(a: DayRange, b: DayRange) -> Option<DayRange> {
    let from = a.0.max(b.0);
    let until = match (a.1, b.1) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    (from.unwrap_or(Date::MIN) <= until.unwrap_or(Date::MAX)).then_some((from, until))
}

impl FileRows {
    /// Reports rows that stand twice in this file.
    pub(super) fn check_unique(&self, faults: &FaultList) {
        fn twice<'r>(faults: &FaultList, what: &str, rows: impl Iterator<Item = (&'r str, &'r Evidence)>) {
            let mut seen: HashMap<&str, ()> = HashMap::new();
            for (id, evidence) in rows {
                if seen.insert(id, ()).is_some() {
                    let hint = Some("write one row, with all of its keys".to_owned());
                    faults.add(evidence.place, what, format!("{id:?} has two rows"), hint);
                }
            }
        }
        twice(faults, "provider", self.providers.iter().map(|row| (&*row.id, &row.evidence)));
        twice(faults, "family", self.families.iter().map(|row| (&*row.id, &row.evidence)));
        twice(faults, "model", self.models.iter().map(|row| (&*row.id, &row.evidence)));
        for model in &self.models {
            twice(faults, "model.at", model.offers.iter().map(|row| (&*row.provider, &row.evidence)));
        }
    }

    /// Lays the rows of another file over these.
    pub(super) fn lay_over(&mut self, upper: FileRows) {
        self.edition = self.edition.max(upper.edition);
        for (key, text) in upper.sources {
            self.sources.retain(|(name, _)| *name != key);
            self.sources.push((key, text));
        }
        lay_over(&mut self.providers, upper.providers, |row| &row.id, ProviderRow::lay_over);
        lay_over(&mut self.families, upper.families, |row| &row.id, FamilyRow::lay_over);
        lay_over(&mut self.models, upper.models, |row| &row.id, ModelRow::lay_over);
        let named: HashMap<(Box<str>, Box<str>), ()> =
            upper.aliases.iter().map(|row| ((row.provider.clone(), row.name.clone()), ())).collect();
        self.aliases.retain(|row| !named.contains_key(&(row.provider.clone(), row.name.clone())));
        self.aliases.extend(upper.aliases);
        // The later row counts, fact by fact.
        self.servings.extend(upper.servings);
    }
}

fn lay_over<T>(lower: &mut Vec<T>, upper: Vec<T>, id: fn(&T) -> &Box<str>, lay: fn(&mut T, T)) {
    let at: HashMap<Box<str>, usize> =
        lower.iter().enumerate().map(|(at, row)| (id(row).clone(), at)).collect();
    for row in upper {
        match at.get(id(&row)).and_then(|at| lower.get_mut(*at)) {
            Some(below) => lay(below, row),
            None => lower.push(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn days_of_the_upper_range_are_cut_out() {
        let day = |day| Some(date(2026, 12, day));
        for (range, other, rest) in [
            ((None, None), (None, None), vec![]),
            ((None, None), (day(5), None), vec![(None, day(4))]),
            ((None, None), (day(5), day(9)), vec![(None, day(4)), (day(10), None)]),
            ((day(1), day(4)), (day(5), None), vec![(day(1), day(4))]),
            ((day(1), day(9)), (None, day(9)), vec![]),
            ((day(1), day(9)), (day(9), None), vec![(day(1), day(8))]),
        ] {
            assert_eq!(days_without(range, other), rest, "{range:?} {other:?}");
        }
        assert_eq!(common_days((None, day(4)), (day(4), None)), Some((day(4), day(4))));
        assert_eq!(common_days((None, day(4)), (day(5), None)), None);
        assert_eq!(common_days((None, None), (None, None)), Some((None, None)));
    }
}
