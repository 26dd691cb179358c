//! What differs between a proposed row and the price in effect: prices of each kind, of long requests and of service tiers,
//! and factors of regions. What the source does not state is not compared.

use std::collections::BTreeSet;

use super::proposal::{ProposedRow, falls_back_to};
use codec::catalogue::{ListedPrice, PriceFactor, price_text};

/// Nano-units in a cent: sources that round show cents, or parts of them.
const CENT: i64 = 10_000_000;

/// Returns what differs, with both values. A price that is rounded to cents or finer is the same as the one that it stands for.
pub(super) fn differences(row: &ProposedRow, current: &ListedPrice) -> Vec<String> {
    let mut out = Vec::new();
    let mut price = |what: &str, before: Option<i64>, after: i64| {
        if before.is_none_or(|before| !is_rounded(before, after)) {
            let before = before.map_or_else(|| "none".to_owned(), price_text);
            out.push(format!("{what} {before} -> {}", price_text(after)));
        }
    };
    for (kind, after) in &row.base {
        price(kind, current.listed(kind, None, None), *after);
    }
    for (above, kinds) in &row.long {
        for (kind, after) in kinds {
            let before = current.listed(kind, None, Some(*above));
            price(&format!("{kind} above {above}"), before, *after);
        }
    }
    for (tier, kinds) in &row.tiers {
        for (kind, after) in kinds {
            price(&format!("{kind} in {tier}"), current.listed(kind, Some(tier), None), *after);
        }
    }
    if let Some(after) = row.search {
        price("search", current.search.or(Some(0)), after);
    }
    // A price that the source has nowhere above a number may still be one of the catalogue.
    if !row.long.is_empty() {
        let thresholds: BTreeSet<u64> = current.thresholds().collect();
        for above in thresholds.iter().filter(|above| !row.long.contains_key(above)) {
            out.push(format!("prices above {above} -> none"));
        }
    }
    let mut factor = |what: &str, before: Option<PriceFactor>, after: PriceFactor| {
        if before != Some(after) {
            let before = before.map_or_else(|| "none".to_owned(), |factor| factor.to_string());
            out.push(format!("{what} {before} -> {after}"));
        }
    };
    for (tier, after) in &row.tier_factors {
        factor(tier, current.factor_of(tier), *after);
    }
    for (region, after) in &row.regions {
        let before = current.regions.iter().find(|(name, _)| **name == **region).map(|(_, factor)| *factor);
        factor(&format!("region {region}"), before.or(Some(PriceFactor::ONE)), *after);
    }
    out
}

/// Returns whether a price is the other one, or that one rounded to the decimal places that it has.
pub(super) fn is_rounded(exact: i64, shown: i64) -> bool {
    if exact == shown {
        return true;
    }
    // The place of the last digit that is not 0, at most a cent.
    let mut unit = CENT;
    while unit > 1 && shown.checked_rem(unit) != Some(0) {
        unit = unit.checked_div(10).unwrap_or(1);
    }
    let is_finer = exact.checked_rem(unit) != Some(0);
    is_finer && exact.abs_diff(shown).saturating_mul(2) <= unit.unsigned_abs()
}

/// Prices of a catalogue's row as a request would be charged.
trait Listed {
    /// Returns the price of a kind in a tier, for inputs longer than a number of tokens.
    fn listed(&self, kind: &str, tier: Option<&str>, above: Option<u64>) -> Option<i64>;

    /// Returns the factor of a tier: `fast` and `priority` stand for each other.
    fn factor_of(&self, tier: &str) -> Option<PriceFactor>;

    /// Returns the numbers of tokens above which other prices apply.
    fn thresholds(&self) -> impl Iterator<Item = u64>;
}

impl Listed for ListedPrice {
    fn listed(&self, kind: &str, tier: Option<&str>, above: Option<u64>) -> Option<i64> {
        // A price that the catalogue leaves out is that of another kind.
        let mut chain = std::iter::successors(Some(kind), |kind| falls_back_to(kind));
        let kind = chain.find(|kind| self.rate(kind).is_some())?;
        let mut price = self.rate(kind)?;
        if let Some(tier) = tier {
            let odd = self.odd.iter().find(|odd| &*odd.tier == tier);
            if let Some(rate) = odd.and_then(|odd| odd.rates.iter().find(|rate| rate.kind == kind)) {
                return Some(rate.nanos);
            }
            price = times(price, self.factor_of(tier)?)?;
        }
        let Some(above) = above else { return Some(price) };
        if let Some(long) = self.long.filter(|long| long.above <= above) {
            let is_output = kind == "reasoning" || kind.ends_with("output");
            price = times(price, if is_output { long.output } else { long.input })?;
        }
        let steps = self.steps.iter().rev().filter(|step| step.above <= above);
        let of_step =
            steps.map(|step| &step.rates).find_map(|rates| rates.iter().find(|rate| rate.kind == kind));
        Some(of_step.map_or(price, |rate| rate.nanos))
    }

    fn factor_of(&self, tier: &str) -> Option<PriceFactor> {
        let other = match tier {
            "fast" => "priority",
            "priority" => "fast",
            other => other,
        };
        self.tier(tier).or_else(|| self.tier(other))
    }

    fn thresholds(&self) -> impl Iterator<Item = u64> {
        self.long.iter().map(|long| long.above).chain(self.steps.iter().map(|step| step.above))
    }
}

/// Returns a price times a factor, rounded up to a nano-unit.
fn times(price: i64, factor: PriceFactor) -> Option<i64> {
    let product = u128::from(price.unsigned_abs()) * u128::from(factor.numerator);
    i64::try_from(product.div_ceil(u128::from(factor.denominator.max(1)))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_price_is_the_same_to_cents_and_finer() {
        // In nano-units: 0.125 and 0.13, 0.0028 and 0.003; but 0.28 is not 0.3, and 0.13 is not 0.12.
        for (exact, shown) in [(125_000_000, 130_000_000), (125_000_000, 120_000_000), (2_800_000, 3_000_000)]
        {
            assert!(is_rounded(exact, shown), "{exact} {shown}");
        }
        for (exact, shown) in [
            (280_000_000, 300_000_000),
            (130_000_000, 120_000_000),
            (130_000_000, 125_000_000),
            (125_000_000, 140_000_000),
            (1_000_000_000, 1_010_000_000),
        ] {
            assert!(!is_rounded(exact, shown), "{exact} {shown}");
        }
    }
}
