//! Queries, and rows that add up.

use proptest::prelude::*;

use super::*;
use crate::ledger::usage_cells::CellBuilder;

fn query(dimensions: &[UsageDimension]) -> UsageQuery {
    UsageQuery { dimensions: dimensions.to_vec(), ..UsageQuery::default() }
}

#[test]
fn usage_queries_that_cannot_be_answered_are_refused() {
    use UsageDimension::{Account, Day, Error, Hour, Key, Model, Month, Provider};
    let wrong = |query: UsageQuery| query.check().err().map(|(field, _)| field);
    assert_eq!(wrong(query(&[Day, Model, Provider])), None);
    for dimensions in [&[][..], &[Day, Month], &[Model, Model], &[Day, Model, Key, Error]] {
        assert_eq!(wrong(query(dimensions)), Some("group"), "{dimensions:?}");
    }
    for (dimensions, days, field) in [
        (&[Hour, Model][..], 31, None),
        (&[Hour, Model], 32, Some("from")),
        (&[Hour, Account], 7, None),
        (&[Hour, Account], 8, Some("from")),
    ] {
        let filter = UsageFilter { from: 100, to: 100 + days, ..UsageFilter::default() };
        assert_eq!(wrong(UsageQuery { filter, ..query(dimensions) }), field, "{dimensions:?} {days}");
    }
}

#[test]
fn usage_months_are_those_of_the_calendar() {
    let of = |day: i64| UsageDimension::Month.time(day * 24);
    assert_eq!((of(0), of(30), of(31), of(59)), (1970 * 12, 1970 * 12, 1970 * 12 + 1, 1970 * 12 + 2));
}

proptest! {
    /// Blocks and single sums give the same rows, and the rows of every arrangement add up to the total.
    #[test]
    fn usage_rows_add_up_to_the_total(
        cells in prop::collection::vec((0u32..24, prop::array::uniform5(0usize..4), 0i64..1_000_000), 1..80),
        dimensions in prop::sample::subsequence(UsageDimension::ALL.to_vec(), 1..=3),
        filter in prop::option::of(0usize..4),
        top in prop::option::of(0usize..6),
    ) {
        let query = UsageQuery { provider: filter.map(|name| ["", "a", "b", "c"][name].to_owned()), ..query(&dimensions) };
        prop_assume!(query.check().is_ok());
        let mut builder = CellBuilder::default();
        let (mut single, mut blocks) = (Breakdown::new(&query), Breakdown::new(&query));
        let mut expected = UsageSums::default();
        for (hour, names, cost) in &cells {
            let names = names.map(|name| ["", "a", "b", "c"][name]);
            let sums = UsageSums { requests: 1, cost: *cost, ..UsageSums::default() };
            builder.add(*hour, names, &sums);
            single.add(480 + i64::from(*hour), names, &sums);
            if query.provider.as_deref().is_none_or(|provider| provider == names[3]) {
                expected.add(&sums);
            }
        }
        let bytes = builder.finish();
        blocks.add_block(480, &CellBlock::read(&bytes).unwrap());
        let (single, blocks) = (single.finish(), blocks.finish());
        let sorted = |rows: &[BreakdownRow]| arrange(rows.to_vec(), UsageOrder::Cost);
        prop_assert_eq!(sorted(&single), sorted(&blocks));
        prop_assert_eq!(total(&single), expected);
        let largest = UsageQuery { top, order: UsageOrder::Requests, ..query.clone() };
        let mut arranged = Breakdown::new(&largest);
        arranged.add_block(480, &CellBlock::read(&bytes).unwrap());
        let arranged = arrange(arranged.finish(), UsageOrder::Requests);
        prop_assert_eq!(total(&arranged), expected);
        if let Some(top) = top {
            let names = |row: &BreakdownRow| -> Vec<DimensionValue> {
                row.values.iter().filter(|value| matches!(value, DimensionValue::Name(_))).cloned().collect()
            };
            let own: std::collections::BTreeSet<_> =
                arranged.iter().map(names).filter(|names| !names.is_empty()).collect();
            prop_assert!(own.len() <= top);
            // No name without a row of its own has more requests than one with such a row.
            let mut sums: std::collections::BTreeMap<_, i64> = std::collections::BTreeMap::new();
            for row in &blocks {
                *sums.entry(names(row)).or_default() += row.sums.requests;
            }
            let (inside, outside): (Vec<_>, Vec<_>) = sums.iter().partition(|(names, _)| own.contains(*names));
            let least = inside.iter().map(|(_, requests)| **requests).min().unwrap_or(i64::MAX);
            let has_names = dimensions.iter().any(|dimension| dimension.name_index().is_some());
            prop_assert!(!has_names || outside.iter().all(|(_, requests)| **requests <= least));
        }
    }
}
