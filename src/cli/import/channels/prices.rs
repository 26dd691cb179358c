//! Prices of New API and One API: ratios of 2 US dollars per million tokens.
//!
//! Source: `setting/ratio_setting/model_ratio.go` of New API ("1 === $0.002 / 1K tokens") and
//! `relay/billing/ratio/model.go` of One API.

// Money: arithmetic that overflows must not wrap.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use super::{cut, members, printable};
use crate::import::draft::ImportDraft;
use crate::import::json;
use crate::import::report::{FieldOutcome, FieldReport};
use routing::account::amount::{self, Amount, LARGEST, NANOS};

/// Price per million input tokens of the ratio 1.
const UNIT: i64 = 2;

/// Reads an option with a number for each model. Returns nano-units, or reports what is none.
fn ratios(
    report: &mut FieldReport,
    options: &BTreeMap<String, String>,
    name: &str,
    target: &str,
) -> BTreeMap<String, i64> {
    let Some(text) = options.get(name).filter(|text| !text.is_empty()) else { return BTreeMap::new() };
    let path = format!("options[{name}]");
    let Some(members) = json::read(text).ok().and_then(|node| members(&node)) else {
        report.row(path, FieldOutcome::Impossible, "", "not a JSON object of numbers");
        return BTreeMap::new();
    };
    report.row(path.clone(), FieldOutcome::Taken, target, "");
    let mut found = BTreeMap::new();
    for (model, node) in members {
        let number = match &node.value {
            crate::import::document::SourceValue::Number(text) => rounded(text),
            _ => None,
        };
        match number {
            Some(nanos) => {
                found.insert(model, nanos);
            }
            None => {
                let path = format!("{path}.{:?}", cut(&printable(&model), 80));
                report.row(path, FieldOutcome::Impossible, "", "not an amount that the gateway can count");
            }
        }
    }
    found
}

/// Parses a number in nano-units; more decimal places, which are those of a binary fraction, are cut off.
fn rounded(text: &str) -> Option<i64> {
    let exact = amount::parse(text).ok();
    exact.or_else(|| {
        let value = text.parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value))?;
        Some((value * 1e9) as i64)
    })
}

/// Multiplies two decimals in nano-units, rounded up: nothing becomes cheaper. `None` if the product is no amount.
fn product(one: i64, other: i64) -> Option<i64> {
    let product = i128::from(one).checked_mul(i128::from(other))?;
    let unit = i128::from(NANOS);
    let whole = product.checked_add(unit.checked_sub(1)?)?.checked_div(unit)?;
    i64::try_from(whole).ok().filter(|nanos| (0..=LARGEST).contains(nanos))
}

/// Sets the prices of the models of the result.
pub(super) fn read(draft: &mut ImportDraft, report: &mut FieldReport, options: &BTreeMap<String, String>) {
    let inputs = ratios(report, options, "ModelRatio", "model.price.input");
    let outputs = ratios(report, options, "CompletionRatio", "model.price.output");
    let cached = ratios(report, options, "CacheRatio", "model.price.cached_input");
    let written = ratios(report, options, "CreateCacheRatio", "model.price.cache_write");
    let requests = ratios(report, options, "ModelPrice", "model.price.request");
    let (mut guessed, mut free) = (Vec::new(), Vec::new());
    for model in &mut draft.models {
        if let Some(request) = requests.get(&model.id) {
            model.price.insert("request", Amount(*request).to_string());
            continue;
        }
        let input =
            inputs.get(&model.id).and_then(|ratio| ratio.checked_mul(UNIT)).filter(|nanos| *nanos <= LARGEST);
        let Some(input) = input else {
            free.push(format!("{:?}", model.id));
            continue;
        };
        model.price.insert("input", Amount(input).to_string());
        let output = outputs.get(&model.id).and_then(|ratio| product(input, *ratio));
        if output.is_none() {
            guessed.push(format!("{:?}", model.id));
        }
        model.price.insert("output", Amount(output.unwrap_or(input)).to_string());
        for (key, ratios) in [("cached_input", &cached), ("cache_write", &written)] {
            if let Some(amount) = ratios.get(&model.id).and_then(|ratio| product(input, *ratio)) {
                model.price.insert(key, Amount(amount).to_string());
            }
        }
    }
    if !guessed.is_empty() {
        report.remark(format!(
            "the database has no CompletionRatio of these models, and the source uses one of its own: their output has the price of \
             input until you set model.price.output: {}",
            guessed.join(", ")
        ));
    }
    if !free.is_empty() {
        report.remark(format!(
            "the database has no price of these models, which are free until you set model.price, or prices (docs/accounts.md): {}",
            free.join(", ")
        ));
    }
}

/// Returns the credit of a quota as a decimal, rounded down; `None` if it is no amount.
pub(super) fn credit(quota: i64, options: &BTreeMap<String, String>) -> Option<String> {
    // 500,000 is one dollar by default.
    let unit = match options.get("QuotaPerUnit").filter(|unit| !unit.is_empty()) {
        Some(unit) => rounded(unit)?,
        None => NANOS.checked_mul(500_000)?,
    };
    let nanos = i128::from(quota.max(0)).checked_mul(i128::from(NANOS))?.checked_mul(i128::from(NANOS))?;
    let nanos = i64::try_from(nanos.checked_div(i128::from(unit))?).ok()?;
    (nanos <= LARGEST).then(|| Amount(nanos).to_string())
}

/// Reports `GroupRatio`: the gateway has one price for all keys.
pub(super) fn report_groups(report: &mut FieldReport, path: &str, text: &str) {
    let one = |node: &crate::import::document::SourceNode| match &node.value {
        crate::import::document::SourceValue::Number(text) => amount::parse(text) == Ok(NANOS),
        _ => false,
    };
    match json::read(text).ok().and_then(|node| members(&node)) {
        Some(members) if members.iter().all(|(_, node)| one(node)) => {
            report.row(path, FieldOutcome::Taken, "model.price", "");
        }
        _ => {
            let reason = "a model has one price for all keys: make a model of its own, with its own price, for a group with another one";
            report.row(path, FieldOutcome::Impossible, "", reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_becomes_an_exact_credit_rounded_down() {
        let none = BTreeMap::new();
        assert_eq!(credit(2_500_000, &none).as_deref(), Some("5"));
        assert_eq!(credit(1, &none).as_deref(), Some("0.000002"));
        assert_eq!(credit(-5, &none).as_deref(), Some("0"));
        let third = BTreeMap::from([("QuotaPerUnit".to_owned(), "3".to_owned())]);
        assert_eq!(credit(1, &third).as_deref(), Some("0.333333333"));
        assert_eq!(credit(i64::MAX, &third), None);
        let zero = BTreeMap::from([("QuotaPerUnit".to_owned(), "0".to_owned())]);
        assert_eq!(credit(1, &zero), None);
    }

    #[test]
    fn ratios_become_prices_per_million() {
        assert_eq!(product(2_500_000_000, 4_000_000_000), Some(10_000_000_000));
        assert_eq!(product(1, 1), Some(1));
        assert_eq!(product(LARGEST, LARGEST), None);
        assert_eq!(rounded("0.075"), Some(75_000_000));
        assert_eq!(rounded("0.30000000000000004"), Some(300_000_000));
    }
}
