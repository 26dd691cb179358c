//! Rows of prices: the keys of `[model.price]`, which an entry of a price file has too.

use std::collections::HashSet;
use std::sync::Arc;

use super::node::{ConfigTable, Value};
use super::routes::one_of;
use codec::canonical::{Region, ServiceTier};
use routing::account::price::{
    Days, LongFactors, Multiplier, OffPeakRule, PeakHours, Price, PriceConfig, Rates, TierPrice, TokenKind,
    UnitPrice, date,
};

/// Reads the price of a model: one row, or a list of rows by date.
pub(super) fn read_price(value: &Value<'_>) -> Option<Arc<Price>> {
    let mut rows: Vec<PriceConfig> = Vec::new();
    if value.is_list() {
        value.elements(|element| {
            element.as_table(|table| {
                let row = read_row(table);
                check_days(&row, &rows, |message| element.wrong(message, None));
                rows.push(row);
            });
        });
    } else {
        rows.extend(value.as_table(read_row));
    }
    (!rows.is_empty()).then(|| Arc::new(Price::of_rows(rows)))
}

/// Reports a row whose days overlap with those of another one.
pub(super) fn check_days(row: &PriceConfig, others: &[PriceConfig], wrong: impl FnOnce(String)) {
    if let Some(other) = others.iter().find(|other| other.days.overlap(&row.days)) {
        let shown = |day: Option<i64>, open: &str| day.map_or_else(|| open.to_owned(), date);
        let (from, until) = (shown(other.days.from, "the beginning"), shown(other.days.until, "ever"));
        wrong(format!("another row of this price holds on some of these days, from {from} until {until}"));
    }
}

/// Reads one row of a price from a table that may have other keys too.
pub(super) fn read_row(table: &ConfigTable<'_>) -> PriceConfig {
    let mut bounds = HashSet::new();
    let mut steps: Vec<(u64, Rates)> = Vec::new();
    table.tables("tiers", |tier| {
        let above = read_above(tier);
        let rates = read_rates(tier);
        let Some(above) = above else { return };
        if !bounds.insert(above) {
            tier.wrong(format!("two tiers have the same above = {above}"), None);
        }
        steps.push((above, rates));
    });
    let free = table.get("free");
    let row = PriceConfig {
        days: read_days(table),
        free: free.as_ref().and_then(Value::as_bool).unwrap_or(false),
        rates: read_rates(table),
        steps,
        long: table.table("long", read_long),
        tiers: read_tiers(table),
        regions: read_regions(table),
        off_peak: table.table("off_peak", read_off_peak),
        images: read_units(table, "image", true),
        video_seconds: read_units(table, "video_second", false),
        search: table.amount("search"),
        request: table.amount("request"),
    };
    let priced = PriceConfig { free: false, ..row.clone() };
    if let Some(free) = free.filter(|_| row.free && !Price::new(priced).is_empty()) {
        free.wrong("a price that is free has no amounts", "remove one of the two".to_owned());
    }
    row
}

fn read_days(table: &ConfigTable<'_>) -> Days {
    let until = table.get("until");
    let days = Days {
        from: table.get("from").and_then(|value| value.as_day()),
        until: until.as_ref().and_then(|value| value.as_day()),
    };
    if let (Some(until), Some(true)) = (until, days.from.zip(days.until).map(|(from, until)| until < from)) {
        until.wrong("the last day is before the first", None);
    }
    days
}

fn read_above(table: &ConfigTable<'_>) -> Option<u64> {
    let above = table.require("above", "above = 200000")?.as_integer(&(1..=1_000_000_000))?;
    u64::try_from(above).ok()
}

fn read_rates(table: &ConfigTable<'_>) -> Rates {
    let mut rates = Rates::default();
    for kind in TokenKind::ALL {
        if let Some(nanos) = table.amount(kind.name()) {
            rates.set(kind, nanos);
        }
    }
    rates
}

fn read_factor(table: &ConfigTable<'_>, key: &'static str) -> Option<Multiplier> {
    let value = table.get(key)?;
    match Multiplier::from_nanos(value.as_amount()?) {
        Ok(factor) => Some(factor),
        Err(hint) => {
            value.wrong("is not a factor", hint);
            None
        }
    }
}

fn require_factor(table: &ConfigTable<'_>) -> Multiplier {
    table.require("factor", "factor = 0.5");
    read_factor(table, "factor").unwrap_or_default()
}

fn read_long(table: &ConfigTable<'_>) -> LongFactors {
    LongFactors {
        above: read_above(table).unwrap_or(u64::MAX),
        input: read_factor(table, "input").unwrap_or_default(),
        output: read_factor(table, "output").unwrap_or_default(),
    }
}

fn read_tiers(table: &ConfigTable<'_>) -> Vec<TierPrice> {
    let mut tiers: Vec<TierPrice> = Vec::new();
    table.tables("service_tiers", |table| {
        let tier = table.require("tier", "tier = \"priority\"").and_then(|value| value.parsed(service_tier));
        let factor = read_factor(table, "factor").unwrap_or_default();
        let rates = read_rates(table);
        let Some(tier) = tier else { return };
        if tiers.iter().any(|other| other.tier == tier) {
            table.wrong(format!("the tier \"{}\" has two prices", tier.name()), None);
        }
        tiers.push(TierPrice { tier, factor, odd: Vec::new(), rates });
    });
    tiers
}

/// Parses the name of a service tier.
pub(super) fn service_tier(name: &str) -> Result<ServiceTier, String> {
    ServiceTier::from_name(name).ok_or_else(|| one_of(name, &ServiceTier::NAMED.map(ServiceTier::name)))
}

fn read_regions(table: &ConfigTable<'_>) -> Vec<(Region, Multiplier)> {
    let mut regions: Vec<(Region, Multiplier)> = Vec::new();
    table.tables("regions", |table| {
        let parse = |name: &str| {
            Region::from_name(name).ok_or_else(|| one_of(name, &Region::NAMED.map(Region::name)))
        };
        let region = table.require("region", "region = \"eu\"").and_then(|value| value.parsed(parse));
        let factor = require_factor(table);
        let Some(region) = region else { return };
        if regions.iter().any(|(other, _)| *other == region) {
            table.wrong(format!("the region \"{}\" has two factors", region.name()), None);
        }
        regions.push((region, factor));
    });
    regions
}

fn read_off_peak(table: &ConfigTable<'_>) -> OffPeakRule {
    let factor = require_factor(table);
    let (mut peak, mut holidays) = (Vec::new(), Vec::new());
    if let Some(list) = table.require("peak", "peak = [\"Mon-Fri 01:00-04:00\"]") {
        list.elements(|element| peak.extend(element.parsed(PeakHours::parse)));
    }
    if let Some(list) = table.get("holidays") {
        list.elements(|element| holidays.extend(element.as_day()));
    }
    OffPeakRule { factor, peak, holidays }
}

/// Reads one amount, or a list of prices by size and quality, of which the first match applies.
fn read_units(table: &ConfigTable<'_>, key: &'static str, quality: bool) -> Vec<UnitPrice> {
    let Some(value) = table.get(key) else { return Vec::new() };
    if !value.is_list() {
        return value
            .as_amount()
            .map(|each| UnitPrice { price: each, ..UnitPrice::default() })
            .into_iter()
            .collect();
    }
    let mut units = Vec::new();
    value.elements(|element| {
        element.as_table(|table| {
            let size = table.string("size").map(Into::into);
            let quality = if quality { table.string("quality").map(Into::into) } else { None };
            let each = table.require("each", "each = 0.04").and_then(|value| value.as_amount());
            units.extend(each.map(|each| UnitPrice { size, quality, price: each }));
        });
    });
    units
}
