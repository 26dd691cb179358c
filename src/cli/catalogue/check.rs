//! `catalogue check`: what is missing or uncertain for the models of a configuration.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use jiff::civil::Date;

use super::super::out::say;
use super::super::{Conf, complain, style};
use codec::catalogue::{Catalogue, DatedPrice, How, RowStatus};
use config::{self, NoSecrets, catalogue_provider, today};
use routing::route::{Model, Target};

/// Days after which the edition of a catalogue is old: prices and ends change monthly.
const OLD: i64 = 45;
/// Days ahead for which ends of models are reported.
const ENDS_AHEAD: i64 = 60;
/// Days ahead for which a price without a successor is reported.
const PRICE_AHEAD: i64 = 14;

#[derive(Debug, Args)]
pub(super) struct CatalogueCheckArgs {
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn run(options: &CatalogueCheckArgs) -> ExitCode {
    let loaded = match config::load(&options.conf.conf, &NoSecrets) {
        Ok(loaded) => loaded,
        Err(report) => {
            report.problems.iter().for_each(complain);
            return ExitCode::FAILURE;
        }
    };
    let snapshot = &loaded.snapshot;
    let findings = Findings { catalogue: &snapshot.catalogue, day: today() };
    let mut remarks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for model in snapshot.routes.models() {
        for target in model.targets.iter().filter(|target| target.handle.tier < 16) {
            for remark in findings.of_target(model, target) {
                let models = remarks.entry(remark).or_default();
                if !models.contains(&model.id.to_string()) {
                    models.push(model.id.to_string());
                }
            }
        }
    }
    let age = findings.day.duration_since(snapshot.catalogue.edition()).as_secs() / 86_400;
    say!(
        "catalogue of {}, {age} days old: {}",
        snapshot.catalogue.edition(),
        snapshot.catalogue.files().join(" and ")
    );
    if age > OLD {
        say!("{} the edition is older than {OLD} days", style::bad("warning:"));
    }
    for (remark, models) in &remarks {
        say!("{} {remark}: {}", style::bad("warning:"), models.join(", "));
    }
    if remarks.is_empty() {
        say!("{} {} models", style::good("ok"), snapshot.routes.models().len());
    }
    ExitCode::SUCCESS
}

struct Findings<'c> {
    catalogue: &'c Catalogue,
    day: Date,
}

impl Findings<'_> {
    fn of_target(&self, model: &Model, target: &Target) -> Vec<String> {
        let mut remarks = Vec::new();
        let name = target.family.as_deref().unwrap_or(&target.model);
        match self.catalogue.family_of(name) {
            None => remarks.push("no facts are known".to_owned()),
            Some((family, How::Guessed)) => {
                remarks.push(format!("facts are guessed by those of {}", family.id));
            }
            Some((family, How::Listed)) => {
                if let Some(disputed) = &family.source.disputed {
                    remarks.push(format!("facts of {} are disputed ({disputed})", family.id));
                } else if family.source.status == RowStatus::Unverified {
                    remarks.push(format!("facts of {} are not verified", family.id));
                }
            }
        }
        let provider = catalogue_provider(self.catalogue, &target.provider);
        let prices = provider.map(|id| self.catalogue.prices(id, name)).unwrap_or_default();
        let own = target.price.as_deref().unwrap_or(&model.price);
        if own.is_empty() {
            remarks.push(match provider {
                None => format!(
                    "no price is known at {}, which the catalogue does not have",
                    target.provider.name
                ),
                Some(id) => format!("no price is known at {id}"),
            });
        }
        remarks.extend(self.of_prices(&prices));
        remarks
    }

    fn of_prices(&self, prices: &[DatedPrice<'_>]) -> Vec<String> {
        let mut remarks = Vec::new();
        let ahead = |day: Date| day.duration_since(self.day).as_secs() / 86_400;
        let holds = |price: &&DatedPrice<'_>| {
            price.from.is_none_or(|from| from <= self.day)
                && price.until.is_none_or(|until| self.day <= until)
        };
        let Some(price) = prices.iter().find(holds) else { return remarks };
        if let Some(day) = price.offer.retires.filter(|day| ahead(*day) <= ENDS_AHEAD) {
            let successor = price.offer.successor.as_deref().map(|id| format!(", successor {id}"));
            let verb = if day < self.day { "ended" } else { "ends" };
            remarks.push(format!("{} {verb} on {day}{}", price.model.id, successor.unwrap_or_default()));
        }
        if let Some(disputed) = &price.row.disputed {
            remarks.push(format!("the price of {} is disputed ({disputed})", price.model.id));
        } else if price.row.status == RowStatus::Unverified {
            remarks.push(format!("the price of {} is not verified", price.model.id));
        }
        if let Some(until) = price.until {
            let next = prices.iter().find(|other| other.from.is_some_and(|from| from > until));
            match next.and_then(|next| next.from) {
                Some(from) if ahead(from) <= ENDS_AHEAD => {
                    remarks.push(format!("the price of {} changes on {from}", price.model.id));
                }
                None if ahead(until) <= PRICE_AHEAD => {
                    remarks
                        .push(format!("the price of {} ends on {until}, and none follows", price.model.id));
                }
                _ => {}
            }
        }
        remarks
    }
}
