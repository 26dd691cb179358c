//! Proposed prices of one model at one provider, and how they become a row: factors where all kinds of tokens have them exactly,
//! prices where not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::Date;
use serde_json::Value;

use super::compare::is_rounded;
use codec::catalogue::{ListedPrice, LongRule, PriceFactor, parse_price, price_text};

/// Prices by kind of tokens, in nano-units per million.
pub(super) type Kinds = BTreeMap<&'static str, i64>;

/// Proposed entry of one model at one provider.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposal {
    /// Id of the provider in the catalogue.
    pub(super) provider: &'static str,
    /// Name of the model at the provider.
    pub(super) id: String,
    /// Rows by their first day.
    pub(super) rows: Vec<ProposedRow>,
    pub(super) context: Option<u64>,
    pub(super) input_limit: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) retires: Option<Date>,
    pub(super) successor: Option<String>,
    /// Reason why the entry cannot be imported.
    pub(super) refused: Option<String>,
}

/// Proposed price row.
#[derive(Clone, Debug, Default)]
pub(super) struct ProposedRow {
    pub(super) from: Option<Date>,
    pub(super) base: Kinds,
    /// Prices of service tiers.
    pub(super) tiers: BTreeMap<String, Kinds>,
    /// Prices of requests with more input.
    pub(super) long: BTreeMap<u64, Kinds>,
    /// Prices of requests with more input, by service tier.
    pub(super) long_tiers: BTreeMap<(String, u64), Kinds>,
    pub(super) search: Option<i64>,
    pub(super) regions: BTreeMap<String, PriceFactor>,
    /// Factors of tiers that the source states as such, or that the catalogue has.
    pub(super) tier_factors: BTreeMap<String, PriceFactor>,
    /// Factors of long requests that the catalogue has.
    pub(super) long_factors: Option<LongRule>,
    pub(super) free: bool,
}

/// Reads a number as a price in nano-units, times a power of ten. `None` if it is none, or no exact decimal.
pub(super) fn price_of(value: &Value, power: i32) -> Option<i64> {
    let number = match value {
        // The binary fraction stands for the shortest decimal; further digits are noise of a computation.
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse::<f64>().ok()?,
        _ => return None,
    };
    if !number.is_finite() {
        return None;
    }
    let text = format!("{number:.11e}");
    let (mantissa, exponent) = text.split_once('e')?;
    parse_price(&format!("{mantissa}e{}", exponent.parse::<i32>().ok()?.checked_add(power)?))
}

pub(super) fn factor_of(value: &Value) -> Option<PriceFactor> {
    PriceFactor::parse(&format!("{}", value.as_f64()?))
}

fn is_output(kind: &str) -> bool {
    kind == "reasoning" || kind.ends_with("output")
}

/// Returns the factor that leads from one price to another.
fn ratio(from: i64, to: i64) -> Option<PriceFactor> {
    PriceFactor::ratio(to.unsigned_abs(), from.unsigned_abs())
}

/// Returns the factor that all of these kinds have in common.
fn common(base: &Kinds, other: &Kinds, of: impl Fn(&str) -> bool) -> Option<PriceFactor> {
    let mut factors =
        other.iter().filter(|(kind, _)| of(kind)).map(|(kind, price)| ratio(*base.get(kind)?, *price));
    let first = factors.next()??;
    factors.all(|factor| factor == Some(first)).then_some(first)
}

/// Returns the kind whose price holds for a kind that has none.
pub(super) fn falls_back_to(kind: &str) -> Option<&'static str> {
    match kind {
        "input" | "output" => None,
        "cache_write_1h" | "cache_write_12h" => Some("cache_write"),
        "cached_audio_input" | "cached_image_input" => Some("cached_input"),
        _ if is_output(kind) => Some("output"),
        _ => Some("input"),
    }
}

impl ProposedRow {
    /// Takes over what the catalogue has and the source does not state: a row replaces the whole price. Returns what cannot be
    /// taken over, because it is an amount and no factor.
    pub(super) fn keep(&mut self, current: &ListedPrice) -> Vec<String> {
        let mut lost = Vec::new();
        for (tier, factor) in &current.tiers {
            if self.tiers.contains_key(&**tier) || self.tier_factors.contains_key(&**tier) {
                continue;
            }
            if current.odd.iter().any(|odd| odd.tier == *tier) {
                lost.push(format!("the tier {tier}"));
            } else {
                self.tier_factors.insert(tier.to_string(), *factor);
            }
        }
        for (region, factor) in &current.regions {
            self.regions.entry(region.to_string()).or_insert(*factor);
        }
        if self.long.is_empty() {
            self.long_factors = current.long;
            lost.extend((!current.steps.is_empty()).then(|| "prices of long requests".to_owned()));
        }
        self.search = self.search.or(current.search);
        let kinds = current.rates.iter().map(|rate| rate.kind).filter(|kind| !self.base.contains_key(kind));
        lost.extend(kinds.map(str::to_owned));
        lost.extend(current.request.map(|_| "request".to_owned()));
        lost.extend((!current.images.is_empty()).then(|| "image".to_owned()));
        lost.extend((!current.video_seconds.is_empty()).then(|| "video_second".to_owned()));
        lost
    }

    /// Removes the prices that are those of the kinds that they fall back to, and that no tier and no step repeats.
    pub(super) fn simplify(&mut self) {
        let others: Vec<&Kinds> =
            self.tiers.values().chain(self.long.values()).chain(self.long_tiers.values()).collect();
        let repeated = |kind: &str| others.iter().any(|kinds| kinds.contains_key(kind));
        let base = self.base.clone();
        self.base.retain(|kind, price| {
            let below = falls_back_to(kind).and_then(|below| base.get(below));
            below != Some(price) || repeated(kind)
        });
    }

    /// Returns the members of the price row as lines.
    ///
    /// # Errors
    /// Returns the reason why the gateway could not charge it exactly.
    pub(super) fn lines(&self) -> Result<String, String> {
        let mut out = String::new();
        if let Some(from) = self.from {
            let _ = writeln!(out, "from = {from}");
        }
        if self.free {
            out.push_str("free = true\n");
            return Ok(out);
        }
        for (kind, nanos) in &self.base {
            let _ = writeln!(out, "{kind} = {}", price_text(*nanos));
        }
        if let Some(search) = self.search {
            let _ = writeln!(out, "search = {}", price_text(search));
        }
        self.long_lines(&mut out);
        self.tier_lines(&mut out)?;
        if !self.regions.is_empty() {
            let _ = writeln!(out, "regions = {{ {} }}", factors(self.regions.iter()));
        }
        Ok(out)
    }

    /// Writes the prices of long requests.
    fn long_lines(&self, out: &mut String) {
        if let Some((above, kinds)) = self.long.first_key_value().filter(|_| self.long.len() == 1) {
            let input = common(&self.base, kinds, |kind| !is_output(kind));
            let output = common(&self.base, kinds, is_output);
            let complete = self.base.keys().all(|kind| kinds.contains_key(kind));
            let decimal = |factor: &PriceFactor| !factor.to_string().contains('/');
            let (input, output) = (input.filter(decimal), output.filter(decimal));
            if let (Some(input), Some(output), true) = (input, output, complete) {
                let (input_text, output_text) = (factor_text(input), factor_text(output));
                let _ = writeln!(
                    out,
                    "long = {{ above = {above}, input = {input_text}, output = {output_text} }}"
                );
                return;
            }
        }
        if let Some(long) = self.long_factors.filter(|_| self.long.is_empty()) {
            let (input, output) = (factor_text(long.input), factor_text(long.output));
            let _ = writeln!(out, "long = {{ above = {}, input = {input}, output = {output} }}", long.above);
        }
        if !self.long.is_empty() {
            let steps =
                self.long.iter().map(|(above, kinds)| format!("{{ above = {above}, {} }}", members(kinds)));
            let _ = writeln!(out, "steps = [ {} ]", steps.collect::<Vec<_>>().join(", "));
        }
    }

    /// Returns whether the price of a kind in a tier is the multiple of the base price, and only shown with fewer digits: the
    /// price of long requests in the tier is the exact multiple.
    fn shows_rounded(&self, tier: &str, kind: &str, factor: PriceFactor) -> bool {
        let exact = self.base.get(kind).and_then(|base| times(*base, factor));
        let shown = self.tiers.get(tier).and_then(|kinds| kinds.get(kind));
        let mut long =
            self.long_tiers.iter().filter(|((name, _), _)| name == tier).filter_map(|((_, above), kinds)| {
                Some((*kinds.get(kind)?, times(*self.long.get(above)?.get(kind)?, factor)))
            });
        exact.zip(shown).is_some_and(|(exact, shown)| is_rounded(exact, *shown))
            && long.next().is_some_and(|(price, product)| product == Some(price))
    }

    fn tier_lines(&self, out: &mut String) -> Result<(), String> {
        let mut tiers = self.tier_factors.clone();
        let mut odd: BTreeMap<&str, Kinds> = BTreeMap::new();
        for (tier, kinds) in &self.tiers {
            let main = ["input", "output"]
                .into_iter()
                .find_map(|kind| ratio(*self.base.get(kind)?, *kinds.get(kind)?));
            let Some(factor) = main else {
                return Err(format!("the tier {tier} has no price of input or output"));
            };
            for (kind, price) in kinds {
                let Some(base) = self.base.get(kind) else {
                    return Err(format!("{kind} has a price in the tier {tier} only"));
                };
                if ratio(*base, *price) != Some(factor) && !self.shows_rounded(tier, kind, factor) {
                    odd.entry(tier).or_default().insert(kind, *price);
                }
            }
            tiers.insert(tier.clone(), factor);
        }
        for ((tier, above), kinds) in &self.long_tiers {
            for (kind, price) in kinds {
                let long = self.long.get(above).and_then(|long| long.get(kind));
                let served = self.tiers.get(tier).and_then(|served| served.get(kind));
                let factor = served.zip(self.base.get(kind)).and_then(|(served, base)| ratio(*base, *served));
                let factor =
                    tiers.get(tier).filter(|main| self.shows_rounded(tier, kind, **main)).copied().or(factor);
                let expected = long.zip(factor).and_then(|(long, factor)| times(*long, factor));
                if expected != Some(*price) {
                    return Err(format!(
                        "{kind} of long requests in the tier {tier} is no product of factors"
                    ));
                }
            }
        }
        if !tiers.is_empty() {
            let _ = writeln!(out, "tiers = {{ {} }}", factors(tiers.iter()));
        }
        if !odd.is_empty() {
            let odd = odd.iter().map(|(tier, kinds)| format!("{tier} = {{ {} }}", members(kinds)));
            let _ = writeln!(out, "odd = {{ {} }}", odd.collect::<Vec<_>>().join(", "));
        }
        Ok(())
    }
}

/// Returns a price times a factor if that is exact.
fn times(price: i64, factor: PriceFactor) -> Option<i64> {
    let product = price.unsigned_abs().checked_mul(factor.numerator)?;
    let exact = product.checked_rem(factor.denominator)? == 0;
    exact.then(|| i64::try_from(product.checked_div(factor.denominator)?).ok()).flatten()
}

fn members(kinds: &Kinds) -> String {
    kinds
        .iter()
        .map(|(kind, nanos)| format!("{kind} = {}", price_text(*nanos)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn factor_text(factor: PriceFactor) -> String {
    let text = factor.to_string();
    if text.contains('/') { format!("{text:?}") } else { text }
}

fn factors<'f>(list: impl Iterator<Item = (&'f String, &'f PriceFactor)>) -> String {
    list.map(|(name, factor)| format!("{name:?} = {}", factor_text(*factor))).collect::<Vec<_>>().join(", ")
}
