//! Compiles rows: families inherit, offers take over prices, names are indexed, and contradictions are reported.

use std::collections::HashMap;

use super::entry::{CatalogueModel, CatalogueProvider, Family, NameAlias, Offer, RowSource, replace_factors};
use super::facts::ModelFacts;
use super::fault::FaultList;
use super::layers::cover;
use super::names::{continuations, without_path, without_prefixes};
use super::price::ListedPrice;
use super::row::{AliasRow, Evidence, FamilyRow, FileRows, ModelRow, OfferRow, ProviderRow, ServingRow};
use super::serving::{NamePattern, Serving};
use super::words::RowStatus;
use super::{Catalogue, NameIndex};

/// Compiler of the rows of all files.
pub(super) struct Compiler<'f> {
    pub(super) faults: &'f FaultList,
    /// Names of the files.
    pub(super) files: Vec<&'f str>,
}

impl Compiler<'_> {
    /// Compiles rows. The result is of use only if no fault was added.
    pub(super) fn compile(&self, rows: FileRows) -> Catalogue {
        let providers: Vec<CatalogueProvider> =
            rows.providers.iter().map(|row| self.provider(row, &rows.providers)).collect();
        let families = self.families(&rows.families);
        let prefixes: Vec<Box<str>> =
            rows.providers.iter().filter_map(|row| row.strip.as_ref()).flatten().cloned().collect();
        let mut index = NameIndex { prefixes, ..NameIndex::default() };
        self.index_families(&rows.families, &mut index);
        let models = self.models(&rows, &families, &mut index);
        self.check_references(&rows, &index);
        let aliases = rows.aliases.iter().map(|row| self.alias(row)).collect::<Vec<_>>();
        for (at, alias) in aliases.iter().enumerate() {
            index.aliases.entry(alias.name.to_lowercase().into()).or_default().push(at);
        }
        let edition = rows.edition.unwrap_or_default();
        let files = self.files.iter().map(|name| Box::from(*name)).collect();
        let servings = rows.servings.iter().map(|row| self.serving(row, &providers, &families)).collect();
        Catalogue {
            edition,
            files,
            sources: rows.sources,
            providers,
            families,
            models,
            aliases,
            servings,
            index,
        }
    }

    fn wrong(&self, evidence: &Evidence, key: &str, message: String, hint: &str) {
        self.faults.add(evidence.place, key, message, Some(hint.to_owned()));
    }

    fn source(&self, evidence: &Evidence) -> RowSource {
        RowSource {
            file: self.files.get(evidence.place.file).copied().unwrap_or_default().into(),
            source: evidence.source.clone(),
            status: evidence.status.unwrap_or(RowStatus::Listed),
            disputed: evidence.disputed.clone(),
            note: evidence.note.clone(),
        }
    }

    fn provider(&self, row: &ProviderRow, all: &[ProviderRow]) -> CatalogueProvider {
        if let Some(same_as) = &row.same_as {
            let other = all.iter().find(|other| other.id == *same_as);
            if other.is_none_or(|other| other.same_as.is_some()) {
                let message = format!("no provider {same_as:?} with offers of its own");
                self.wrong(&row.evidence, "provider.same_as", message, "write the id of one");
            }
        }
        CatalogueProvider {
            id: row.id.clone(),
            same_as: row.same_as.clone(),
            strip: row.strip.clone().unwrap_or_default(),
            tier_names: row.tier_names.clone().unwrap_or_default(),
            asks: row.asks.clone(),
            tells: row.tells.clone(),
            region: row.region.clone(),
            lists: row.lists.clone(),
            family: row.family.clone(),
            off_peak: row.off_peak.clone(),
            source: self.source(&row.evidence),
        }
    }

    /// Resolves `like` for all families. Each is resolved once, so the time is linear.
    fn families(&self, rows: &[FamilyRow]) -> Vec<Family> {
        let at: HashMap<&str, usize> = rows.iter().enumerate().map(|(at, row)| (&*row.id, at)).collect();
        let mut resolved: Vec<Option<ModelFacts>> = vec![None; rows.len()];
        let mut visited = vec![false; rows.len()];
        for start in 0..rows.len() {
            // Walk up to a family that is resolved, or that inherits from none.
            let mut chain = Vec::new();
            let mut facts = ModelFacts::default();
            let mut next = Some(start);
            while let Some(current) = next {
                let Some(row) = rows.get(current) else { break };
                if let Some(Some(known)) = resolved.get(current) {
                    facts = known.clone();
                    break;
                }
                if visited.get(current).copied().unwrap_or(true) {
                    let message = format!("{:?} inherits from itself", row.id);
                    self.wrong(&row.evidence, "family.like", message, "break the circle of `like`");
                    break;
                }
                if let Some(visited) = visited.get_mut(current) {
                    *visited = true;
                }
                chain.push(current);
                next = row.like.as_ref().and_then(|like| {
                    let parent = at.get(&**like).copied();
                    if parent.is_none() {
                        let message = format!("no family {like:?}");
                        self.wrong(&row.evidence, "family.like", message, "write the id of a family");
                    }
                    parent
                });
            }
            for current in chain.into_iter().rev() {
                let Some(row) = rows.get(current) else { continue };
                row.facts.set(&mut facts);
                if let Some((message, hint)) = facts.contradiction() {
                    self.wrong(&row.evidence, "family", format!("{}: {message}", row.id), hint);
                }
                if let Some(place) = resolved.get_mut(current) {
                    *place = Some(facts.clone());
                }
            }
        }
        rows.iter()
            .zip(resolved)
            .map(|(row, facts)| Family {
                id: row.id.clone(),
                like: row.like.clone(),
                matches: row.matches.clone().unwrap_or_default(),
                guesses: row.guesses.clone().unwrap_or_default(),
                facts: facts.unwrap_or_default(),
                source: self.source(&row.evidence),
            })
            .collect()
    }

    fn index_families(&self, rows: &[FamilyRow], index: &mut NameIndex) {
        for (at, row) in rows.iter().enumerate() {
            let other = |at: usize| rows.get(at).map(|row| &*row.id).unwrap_or_default();
            for name in row.matches.iter().flatten() {
                if let Some(before) = index.matches.insert(name.clone(), at).filter(|before| *before != at) {
                    let message = format!("{name:?} is a name of the family {:?} too", other(before));
                    self.wrong(&row.evidence, "family.match", message, "leave it with one of them");
                }
            }
            for name in row.patterns.iter().flatten() {
                index.patterns.push((NamePattern::new(name), at));
            }
            for name in row.guesses.iter().flatten() {
                if let Some(before) = index.guesses.insert(name.clone(), at).filter(|before| *before != at) {
                    let message = format!("{name:?} is a guess of the family {:?} too", other(before));
                    self.wrong(&row.evidence, "family.guess", message, "leave it with one of them");
                }
                index.longest_guess = index.longest_guess.max(name.len());
            }
        }
        index.patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.length()));
    }

    fn models(&self, rows: &FileRows, families: &[Family], index: &mut NameIndex) -> Vec<CatalogueModel> {
        let by_id: HashMap<&str, usize> =
            families.iter().enumerate().map(|(at, family)| (&*family.id, at)).collect();
        let mut models = Vec::with_capacity(rows.models.len());
        for row in &rows.models {
            let family = row.family.as_deref().and_then(|id| by_id.get(id).copied());
            if family.is_none() {
                let message = match &row.family {
                    Some(id) => format!("{}: no family {id:?}", row.id),
                    None => format!("{}: names no family", row.id),
                };
                self.wrong(&row.evidence, "model.family", message, "write the id of a family");
            }
            let family = family.unwrap_or(0);
            let mut facts = families.get(family).map(|family| family.facts.clone()).unwrap_or_default();
            row.facts.set(&mut facts);
            if let Some((message, hint)) = facts.contradiction() {
                self.wrong(&row.evidence, "model", format!("{}: {message}", row.id), hint);
            }
            let place = models.len();
            let offers: Vec<Offer> = row.offers.iter().map(|offer| self.offer(row, offer)).collect();
            self.index_model(row, &offers, (place, family), families, index);
            let (context, input_limit, output) = (row.context, row.input_limit, row.output);
            let source = self.source(&row.evidence);
            models.push(CatalogueModel {
                id: row.id.clone(),
                family,
                context,
                input_limit,
                output,
                facts,
                offers,
                source,
            });
        }
        models
    }

    /// Indexes a model by its id and by its names at providers.
    fn index_model(
        &self,
        row: &ModelRow,
        offers: &[Offer],
        (model, family): (usize, usize),
        families: &[Family],
        index: &mut NameIndex,
    ) {
        let names = std::iter::once(&row.id).chain(offers.iter().map(|offer| &offer.name));
        let mut own: Vec<Box<str>> = names.map(|name| index.plain(name)).collect();
        own.sort_unstable();
        own.dedup();
        for name in own {
            let listed = continuations(&name).find_map(|name| index.matches.get(name)).copied();
            match listed {
                Some(other) if other != family => {
                    let other = families.get(other).map(|family| &*family.id).unwrap_or_default();
                    let message = format!("{name:?} is a name of the family {other:?}");
                    self.wrong(
                        &row.evidence,
                        "model.family",
                        message,
                        "write that family, or correct its names",
                    );
                }
                Some(_) => {}
                None => {
                    index.matches.insert(name.clone(), family);
                }
            }
            if let Some(before) = index.models.insert(name.clone(), model).filter(|before| *before != model) {
                let _ = before;
                let message = format!("{name:?} is a name of another model too");
                self.wrong(&row.evidence, "model", message, "write one row");
            }
        }
        for (at, offer) in offers.iter().enumerate() {
            let names = index.offers.entry(offer.provider.clone()).or_default();
            for name in [&offer.name, &row.id] {
                let plain = without_prefixes(&without_path(name), &index.prefixes).into();
                names.entry(plain).or_insert((model, at));
            }
        }
    }

    fn offer(&self, model: &ModelRow, row: &OfferRow) -> Offer {
        let mut prices = Vec::new();
        if let Some(same_as) = &row.same_as {
            match model.offers.iter().find(|other| other.provider == *same_as && other.same_as.is_none()) {
                Some(other) => prices.extend(
                    other
                        .prices
                        .iter()
                        .map(|price| replace_factors(price, row.tiers.as_ref(), row.regions.as_ref())),
                ),
                None => {
                    let message = format!("{}: no offer of {same_as:?} with prices of its own", model.id);
                    self.wrong(&row.evidence, "model.at.same_as", message, "write the provider of one");
                }
            }
        } else if row.tiers.is_some() || row.regions.is_some() {
            let message = format!("{}: tiers and regions without same_as", model.id);
            self.wrong(&row.evidence, "model.at", message, "write them in the price row");
        }
        let prices = cover(&prices, row.prices.clone());
        self.check_days(model, &prices);
        Offer {
            provider: row.provider.clone(),
            name: row.name.clone().unwrap_or_else(|| model.id.clone()),
            retires: row.retires,
            retires_not_before: row.retires_not_before,
            successor: row.successor.clone(),
            same_as: row.same_as.clone(),
            prices,
            source: self.source(&row.evidence),
        }
    }

    /// Reports days with two prices, and days between two prices that have none.
    fn check_days(&self, model: &ModelRow, prices: &[ListedPrice]) {
        for pair in prices.windows(2) {
            let [before, after] = pair else { continue };
            let next = before.until.and_then(|until| until.tomorrow().ok());
            let message = match (next, after.from) {
                (Some(next), Some(from)) if next == from => continue,
                (Some(next), Some(from)) if next < from => format!("{}: no price on {next}", model.id),
                _ => format!("{}: two prices on the same day", model.id),
            };
            let hint = "write the day before `from` of the next row as `until`".to_owned();
            self.faults.add(after.place, "model.at.price", message, Some(hint));
        }
    }

    fn serving(&self, row: &ServingRow, providers: &[CatalogueProvider], families: &[Family]) -> Serving {
        if !providers.iter().any(|provider| provider.id == row.provider) {
            let message = format!("no provider {:?}", row.provider);
            self.wrong(&row.evidence, "serving.provider", message, "write a [[provider]] with this id");
        }
        for id in row.families.iter().filter(|id| !families.iter().any(|family| family.id == **id)) {
            self.wrong(
                &row.evidence,
                "serving.families",
                format!("no family {id:?}"),
                "write the id of a family",
            );
        }
        Serving {
            provider: row.provider.clone(),
            families: row.families.clone(),
            makers: row.makers.clone(),
            facts: row.facts.clone(),
        }
    }

    fn alias(&self, row: &AliasRow) -> NameAlias {
        NameAlias {
            name: row.name.clone(),
            provider: row.provider.clone(),
            model: row.model.clone(),
            from: row.from,
            until: row.until,
            source: self.source(&row.evidence),
        }
    }

    /// Reports ids that name nothing.
    fn check_references(&self, rows: &FileRows, index: &NameIndex) {
        let providers: HashMap<&str, ()> = rows.providers.iter().map(|row| (&*row.id, ())).collect();
        let known = |model: &str| index.models.contains_key(&index.plain(model));
        for model in &rows.models {
            for offer in &model.offers {
                if !providers.contains_key(&*offer.provider) {
                    let message = format!("{}: no provider {:?}", model.id, offer.provider);
                    self.wrong(
                        &offer.evidence,
                        "model.at.provider",
                        message,
                        "write a [[provider]] with this id",
                    );
                }
                if let Some(successor) = offer.successor.as_deref().filter(|id| !known(id)) {
                    let message = format!("{}: no model {successor:?}", model.id);
                    self.wrong(&offer.evidence, "model.at.successor", message, "write the id of a model");
                }
            }
        }
        let mut named: HashMap<(&str, &str), Vec<&AliasRow>> = HashMap::new();
        for row in &rows.aliases {
            if !known(&row.model) {
                let message = format!("{}: no model {:?}", row.name, row.model);
                self.wrong(&row.evidence, "alias.model", message, "write the id of a model");
            }
            if !providers.contains_key(&*row.provider) {
                let message = format!("{}: no provider {:?}", row.name, row.provider);
                self.wrong(&row.evidence, "alias.provider", message, "write a [[provider]] with this id");
            }
            let others = named.entry((&row.provider, &row.name)).or_default();
            let days = (row.from, row.until);
            if others
                .iter()
                .any(|other| super::layers::common_days((other.from, other.until), days).is_some())
            {
                let message = format!("{}: two models on the same day", row.name);
                self.wrong(&row.evidence, "alias", message, "write from and until");
            }
            others.push(row);
        }
    }
}
