//! Prices in the effective configuration.

use super::print::text;
use routing::account::price::{PriceConfig, Rates, TierPrice, TokenKind, UnitPrice, date};
use routing::account::{Amount, Price};

/// Formats a price: one row, or the list of its rows.
pub(super) fn price(price: &Price) -> String {
    let rows: Vec<String> =
        price.rows().map(|config| format!("{{ {} }}", members(config).join(", "))).collect();
    if let [only] = rows.as_slice() { only.clone() } else { format!("[{}]", rows.join(", ")) }
}

/// Formats the members of a row, each with its key.
pub(super) fn members(config: &PriceConfig) -> Vec<String> {
    let PriceConfig {
        days,
        free,
        rates: own,
        steps,
        long,
        tiers,
        regions,
        off_peak,
        images,
        video_seconds,
        search,
        request,
    } = config;
    let mut members = Vec::new();
    for (name, day) in [("from", days.from), ("until", days.until)] {
        members.extend(day.map(|day| format!("{name} = {}", date(day))));
    }
    if *free {
        members.push("free = true".to_owned());
    }
    members.extend(rates(own));
    for (name, amount) in [("search", search), ("request", request)] {
        members.extend(amount.map(|amount| format!("{name} = {}", Amount(amount))));
    }
    let mut list = |name: &str, entries: Vec<String>| {
        if !entries.is_empty() {
            members.push(format!("{name} = [{}]", entries.join(", ")));
        }
    };
    list("image", images.iter().map(unit).collect());
    list("video_second", video_seconds.iter().map(unit).collect());
    let step = |(above, more): &(u64, Rates)| {
        let mut members = rates(more);
        members.insert(0, format!("above = {above}"));
        format!("{{ {} }}", members.join(", "))
    };
    list("tiers", steps.iter().map(step).collect());
    list("service_tiers", tiers.iter().map(tier).collect());
    let region = |(region, factor): &(codec::canonical::Region, routing::account::price::Multiplier)| {
        format!("{{ region = {}, factor = {factor} }}", text(region.name()))
    };
    list("regions", regions.iter().map(region).collect());
    if let Some(long) = long {
        members.push(format!(
            "long = {{ above = {}, input = {}, output = {} }}",
            long.above, long.input, long.output
        ));
    }
    if let Some(hours) = off_peak {
        let peak: Vec<String> = hours.peak.iter().map(|hours| text(&hours.to_string())).collect();
        let holidays: Vec<String> = hours.holidays.iter().map(|day| date(*day)).collect();
        members.push(format!(
            "off_peak = {{ factor = {}, peak = [{}], holidays = [{}] }}",
            hours.factor,
            peak.join(", "),
            holidays.join(", ")
        ));
    }
    members
}

fn rates(rates: &Rates) -> Vec<String> {
    let configured =
        TokenKind::ALL.into_iter().filter_map(|kind| Some((kind.name(), rates.configured(kind)?)));
    configured.map(|(name, amount)| format!("{name} = {}", Amount(amount))).collect()
}

fn tier(price: &TierPrice) -> String {
    let mut members =
        vec![format!("tier = {}", text(price.tier.name())), format!("factor = {}", price.factor)];
    // A factor of one kind has no key of its own: catalogues have it.
    members.extend(price.odd.iter().map(|(kind, factor)| format!("{} = {factor} times", kind.name())));
    members.extend(rates(&price.rates));
    format!("{{ {} }}", members.join(", "))
}

fn unit(unit: &UnitPrice) -> String {
    let member = |name: &str, value: &Option<Box<str>>| {
        value.as_ref().map(|value| format!("{name} = {}, ", text(value))).unwrap_or_default()
    };
    let (size, quality) = (member("size", &unit.size), member("quality", &unit.quality));
    format!("{{ {size}{quality}each = {} }}", Amount(unit.price))
}
