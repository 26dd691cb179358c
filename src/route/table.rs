//! The table of models, immutable once it is built.

use std::collections::HashMap;
use std::sync::Arc;

use super::affinity::fingerprint;
use super::breaker::Breaker;
use super::pick::Candidates;
use super::retry_budget::RetryBudget;
use super::rules::RoutingRules;
use super::target_handle::{TargetHandle, TargetLimits, TargetState};
use crate::account::Price;
use crate::json::EscapedString;
use crate::provider::{Provider, Timeouts};
use crate::wire::Api;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// One way to serve a model.
#[derive(Debug)]
pub struct Target {
    /// Who serves it.
    pub provider: Arc<Provider>,
    /// The model's name there.
    pub model: Box<str>,
    /// Its share among the targets of its tier, its limits, and what is known of it.
    pub seat: TargetHandle,
    /// How long is waited for it: the provider's times, or the model's own.
    pub timeouts: Timeouts,
}

impl Target {
    /// A target with this weight in the first tier, and without limits.
    pub fn new(provider: Arc<Provider>, model: &str, weight: u32) -> Target {
        let seat = TargetHandle { weight, tier: 0, limits: TargetLimits::default(), state: Arc::default() };
        Target { timeouts: provider.timeouts, provider, model: model.into(), seat }
    }
}

/// A model that clients may name.
#[derive(Debug)]
pub struct Model {
    /// Its index in the table.
    pub index: usize,
    /// The name that clients use.
    pub id: Box<str>,
    /// The name as it is put back into answers.
    pub escaped_id: EscapedString,
    /// Who made it, for listings.
    pub owned_by: Box<str>,
    /// When it was released, in Unix seconds, for listings.
    pub created: i64,
    /// Where it is served.
    pub targets: Vec<Target>,
    /// What it costs.
    pub price: Arc<Price>,
    /// How a target is chosen, and what happens when it fails.
    pub routing: RoutingRules,
    /// How many of its requests may still be tried again. Outlives a reload.
    pub budget: Arc<RetryBudget>,
}

impl Model {
    /// Whether any target offers an API.
    pub fn offers(&self, api: Api) -> bool {
        self.targets.iter().any(|target| target.seat.weight > 0 && target.provider.offers(api))
    }
}

impl Candidates for Model {
    fn count(&self) -> usize {
        self.targets.len()
    }

    fn seat(&self, index: usize) -> Option<&TargetHandle> {
        self.targets.get(index).map(|target| &target.seat)
    }
}

/// Routing table: all models with their targets, and all providers.
#[derive(Debug, Default)]
pub struct RoutingTable {
    models: Vec<Arc<Model>>,
    by_id: Map<Box<str>, usize>,
    providers: Vec<Arc<Provider>>,
}

impl RoutingTable {
    /// Builds the table. Ids must be unique; of two the first is kept. What is known of a target is one thing,
    /// whichever models lead to it.
    pub fn new(models: Vec<Model>, providers: Vec<Arc<Provider>>) -> Self {
        let mut table = RoutingTable { providers, ..RoutingTable::default() };
        let mut known = KnownTargets::default();
        for mut model in models {
            model.index = table.models.len();
            for target in &mut model.targets {
                target.seat.state = known.state(target);
            }
            let id = model.id.clone();
            if let std::collections::hash_map::Entry::Vacant(entry) = table.by_id.entry(id) {
                entry.insert(model.index);
                table.models.push(Arc::new(model));
            }
        }
        table
    }

    /// Takes over what an older table knows of targets and budgets that are in this one too. A provider that has
    /// another address or credential is another one. To be called before the table is used.
    pub fn inherit(&mut self, older: &RoutingTable) {
        let mut known = KnownTargets::default();
        for provider in &self.providers {
            let before = older.providers.iter().find(|before| before.is_same_way(provider));
            let targets = || older.models.iter().flat_map(|model| &model.targets);
            for target in targets().filter(|target| before.is_some_and(|b| Arc::ptr_eq(b, &target.provider)))
            {
                known
                    .provider_breakers
                    .insert(provider.name.clone(), target.seat.state.provider_breaker.clone());
                let key = (provider.name.clone(), target.model.clone());
                known.targets.insert(key, target.seat.state.clone());
            }
        }
        for model in &mut self.models {
            let before = older.model(&model.id).map(|before| before.budget.clone());
            // Nobody else has it yet.
            let Some(model) = Arc::get_mut(model) else { continue };
            for target in &mut model.targets {
                target.seat.state = known.state(target);
            }
            model.budget = before.unwrap_or_else(|| model.budget.clone());
        }
    }

    /// The model of this id.
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(*self.by_id.get(id)?)
    }

    /// All models in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// All providers in the order of the configuration.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }
}

/// What is known, by provider and by target.
#[derive(Default)]
struct KnownTargets {
    provider_breakers: Map<Box<str>, Arc<Breaker>>,
    targets: Map<(Box<str>, Box<str>), Arc<TargetState>>,
}

impl KnownTargets {
    fn state(&mut self, target: &Target) -> Arc<TargetState> {
        let provider = &target.provider.name;
        let breaker = self.provider_breakers.entry(provider.clone()).or_default().clone();
        let id = || fingerprint(fingerprint(0, provider.as_bytes()), target.model.as_bytes());
        let entry = self.targets.entry((provider.clone(), target.model.clone()));
        entry.or_insert_with(|| Arc::new(TargetState::new(id(), breaker))).clone()
    }
}
