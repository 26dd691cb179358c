//! Prices of the catalogue as prices of models.

use jiff::civil::Date;

use codec::canonical::time::day_of_date;
use codec::canonical::{Region, ServiceTier};
use codec::catalogue::{self, DatedPrice, TokenRate, UnitRate};
use routing::account::price::{
    Days, LongFactors, Multiplier, OffPeakRule, PeakHours, PriceConfig, Rates, TierPrice, TokenKind,
    UnitPrice,
};

/// Converts the prices of a name at a provider, with the provider's hours, to the rows of a price.
pub(super) fn rows(prices: &[DatedPrice<'_>], hours: Option<&catalogue::ReducedHours>) -> Vec<PriceConfig> {
    prices.iter().map(|price| row(price, hours)).collect()
}

fn row(dated: &DatedPrice<'_>, hours: Option<&catalogue::ReducedHours>) -> PriceConfig {
    let row = dated.row;
    let base = rates(&row.rates);
    let tiers = row.tiers.iter().filter_map(|(name, factor)| {
        let odd = row.odd.iter().find(|odd| odd.tier == *name).map(|odd| rates(&odd.rates));
        Some(tier(ServiceTier::from_name(name)?, factor, &base, &odd.unwrap_or_default()))
    });
    let regions = row.regions.iter().filter_map(|(name, factor)| {
        let region =
            if &**name == "vertex_regional" { Some(Region::Regional) } else { Region::from_name(name) };
        Some((region?, rounded(factor)))
    });
    PriceConfig {
        days: Days { from: dated.from.map(day), until: dated.until.map(day) },
        free: row.free,
        rates: base,
        steps: row.steps.iter().map(|step| (step.above, rates(&step.rates))).collect(),
        long: row.long.as_ref().map(|long| LongFactors {
            above: long.above,
            input: rounded(&long.input),
            output: rounded(&long.output),
        }),
        tiers: tiers.collect(),
        regions: regions.collect(),
        off_peak: hours.map(|hours| OffPeakRule {
            factor: rounded(&hours.factor),
            peak: hours.peak.iter().map(|peak| PeakHours::new(peak.days, peak.from, peak.until)).collect(),
            holidays: hours.holidays.iter().copied().map(day).collect(),
        }),
        images: row.images.iter().map(unit).collect(),
        video_seconds: row.video_seconds.iter().map(unit).collect(),
        search: row.search,
        request: row.request,
    }
}

/// Returns the price of a tier. A ratio that is no decimal, such as 5/3, is applied to the amounts, so that it stays exact.
fn tier(tier: ServiceTier, ratio: &catalogue::PriceFactor, base: &Rates, odd: &Rates) -> TierPrice {
    let exact = Multiplier::from_ratio(ratio.numerator, ratio.denominator);
    let mut rates = Rates::default();
    for kind in TokenKind::ALL {
        let applied =
            base.configured(kind).filter(|_| exact.is_none()).and_then(|nanos| applied(nanos, ratio));
        if let Some(nanos) = odd.configured(kind).or(applied) {
            rates.set(kind, nanos);
        }
    }
    TierPrice { tier, factor: exact.unwrap_or_else(|| rounded(ratio)), odd: Vec::new(), rates }
}

/// Returns the exact product; `None` if it is no whole number of nano-units.
fn applied(nanos: i64, ratio: &catalogue::PriceFactor) -> Option<i64> {
    let product = i128::from(nanos) * i128::from(ratio.numerator);
    let denominator = i128::from(ratio.denominator);
    (product.checked_rem(denominator)? == 0).then(|| i64::try_from(product / denominator).ok()).flatten()
}

/// Returns a factor, rounded up to six decimal places.
fn rounded(ratio: &catalogue::PriceFactor) -> Multiplier {
    let scaled = u128::from(ratio.numerator) * 1_000_000;
    let millionths = scaled.div_ceil(u128::from(ratio.denominator.max(1)));
    u32::try_from(millionths).ok().and_then(Multiplier::from_millionths).unwrap_or(Multiplier::MAX)
}

fn rates(list: &[TokenRate]) -> Rates {
    let mut rates = Rates::default();
    for rate in list {
        if let Some(kind) = TokenKind::ALL.into_iter().find(|kind| kind.name() == rate.kind) {
            rates.set(kind, rate.nanos);
        }
    }
    rates
}

fn unit(unit: &UnitRate) -> UnitPrice {
    UnitPrice { size: unit.size.clone(), quality: unit.quality.clone(), price: unit.nanos }
}

fn day(date: Date) -> i64 {
    day_of_date(date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::canonical::Usage;
    use codec::canonical::time::unix_seconds;
    use codec::catalogue::{Catalogue, TOKEN_KINDS};
    use routing::account::Amount;
    use routing::account::price::{Price, Terms};

    fn price(provider: &str, name: &str) -> Price {
        let catalogue = Catalogue::embedded();
        let hours = catalogue.provider(provider).and_then(|provider| provider.off_peak.as_ref());
        Price::of_rows(rows(&catalogue.prices(provider, name), hours))
    }

    #[test]
    fn catalogue_words_are_those_of_prices() {
        for kind in TOKEN_KINDS {
            assert!(TokenKind::ALL.into_iter().any(|known| known.name() == *kind), "{kind}");
        }
        for offer in Catalogue::embedded().models().iter().flat_map(|model| &model.offers) {
            for row in &offer.prices {
                for (tier, _) in &row.tiers {
                    assert!(ServiceTier::from_name(tier).is_some(), "{tier}");
                }
                for (region, _) in &row.regions {
                    let known = &**region == "vertex_regional" || Region::from_name(region).is_some();
                    assert!(known, "{region}");
                }
            }
        }
    }

    /// Gemini 4 Argon doubles at midnight, without a new configuration.
    #[test]
    fn catalogue_price_of_the_day_of_a_request() {
        let usage = Usage { input: Some(1_000), output: Some(100), ..Usage::default() };
        let argon = price("gemini", "gemini-4-argon");
        let cost = |time: &str, tier| {
            let terms = Terms { at: unix_seconds(time).unwrap(), tier, region: None };
            Amount(argon.cost(&usage, &[], &terms)).to_string()
        };
        assert_eq!(cost("2026-11-30T23:59:59Z", ServiceTier::Standard), "0.003");
        assert_eq!(cost("2026-12-01T00:00:00Z", ServiceTier::Standard), "0.006");
        assert_eq!(cost("2026-12-01T00:00:00Z", ServiceTier::Priority), "0.0108");
    }

    #[test]
    fn catalogue_ratio_that_is_no_decimal_stays_exact() {
        let ratio = catalogue::PriceFactor { numerator: 5, denominator: 3 };
        let mut base = Rates::default();
        base.set(TokenKind::Input, 150_000_000);
        base.set(TokenKind::Output, 100_000_001);
        let made = tier(ServiceTier::Priority, &ratio, &base, &Rates::default());
        assert_eq!(made.rates.configured(TokenKind::Input), Some(250_000_000));
        assert_eq!(made.rates.configured(TokenKind::Output), None);
        assert_eq!(made.factor.to_string(), "1.666667");
    }
}
