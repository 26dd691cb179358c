//! Ids of one model by geography (`us.anthropic.claude-...`), as factors of the prices without a geography.

use std::collections::BTreeMap;

use super::proposal::Proposal;
use codec::catalogue::PriceFactor;

/// Prefixes of ids by geography. `global.` is no region: it has the price without one.
const REGIONS: [&str; 8] = ["us.", "eu.", "apac.", "jp.", "au.", "in.", "us-gov.", "global."];

/// Provider and name as names are compared.
type Key = (&'static str, String);

/// Joins the proposals of one model by geography.
pub(super) fn merged(list: Vec<Proposal>) -> Vec<Proposal> {
    let mut proposals: BTreeMap<Key, Proposal> = BTreeMap::new();
    let mut regional = Vec::new();
    for mut proposal in list {
        let is_cloud = proposal.provider == "bedrock";
        let region = REGIONS.iter().find(|region| is_cloud && proposal.id.starts_with(**region));
        if let Some(region) = region {
            proposal.id = proposal.id.trim_start_matches(region).to_owned();
            regional.push((region.trim_end_matches('.'), proposal));
        } else {
            proposals.entry(key(&proposal)).or_insert(proposal);
        }
    }
    // A model that is sold by geography only has the price of `global.` as its own.
    let (global, others): (Vec<_>, Vec<_>) =
        regional.into_iter().partition(|(region, _)| *region == "global");
    for (_, proposal) in global {
        proposals.entry(key(&proposal)).or_insert(proposal);
    }
    for (region, proposal) in others {
        let at = key(&proposal);
        match proposals.get_mut(&at) {
            Some(base) => add_region(base, region, &proposal),
            None => {
                let refused = Some(format!("it has a price in {region} only, and none without a region"));
                proposals.insert(at, Proposal { refused, rows: Vec::new(), ..proposal });
            }
        }
    }
    proposals.into_values().collect()
}

fn key(proposal: &Proposal) -> Key {
    (proposal.provider, proposal.id.to_ascii_lowercase())
}

/// Adds the prices of a geography as a factor of those without one.
fn add_region(base: &mut Proposal, region: &str, other: &Proposal) {
    if base.refused.is_some() || other.refused.is_some() {
        base.refused = base.refused.take().or_else(|| other.refused.clone());
        return;
    }
    let (Some(row), Some(of_region)) = (base.rows.first_mut(), other.rows.first()) else { return };
    let factors: Vec<Option<PriceFactor>> = of_region
        .base
        .iter()
        .filter(|(_, price)| **price > 0)
        .map(|(kind, price)| PriceFactor::ratio(price.unsigned_abs(), row.base.get(kind)?.unsigned_abs()))
        .collect();
    match factors.first() {
        Some(Some(first)) if factors.iter().all(|factor| factor == &Some(*first)) => {
            if *first != PriceFactor::ONE {
                row.regions.insert(region.to_owned(), *first);
            }
        }
        _ => base.refused = Some(format!("the prices of {region} are no multiple of those without a region")),
    }
}
