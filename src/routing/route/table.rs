//! Routing table: models, their targets and providers. Immutable once a snapshot holds it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::affinity::fingerprint;
use super::alias::Aliases;
use super::breaker::Breaker;
use super::pick::TargetList;
use super::retry_budget::RetryBudget;
use super::rules::RoutingRules;
use super::target_handle::{TargetHandle, TargetLimits, TargetState};
use crate::account::{ExpectedUsage, Price};
use codec::canonical::image::ImageDialect;
use codec::canonical::{CachePolicy, Dialect, Region, RequestFeatures};
use codec::provider::{ModelRules, Provider, Timeouts};
use codec::wire::Api;
use json::EscapedString;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Target: one model at one provider.
#[derive(Clone, Debug)]
pub struct Target {
    /// Provider that serves the model.
    pub provider: Arc<Provider>,
    /// Model name at the provider.
    pub model: Box<str>,
    /// Name of the model that the one at the provider hides, such as the ARN of an inference profile. `None` if it hides
    /// none.
    pub family: Option<Box<str>>,
    /// Weight, tier, limits and shared state.
    pub handle: TargetHandle,
    /// Time-outs: the provider's, unless the model overrides them.
    pub timeouts: Timeouts,
    /// Abilities of the model, of a fallback those of its own `[[model]]`.
    pub abilities: ConfiguredAbilities,
    /// Price of requests that this target serves; `None` for the model's.
    pub price: Option<Arc<Price>>,
    /// Where this price stands. Without a price of its own it says nothing.
    pub price_origin: PriceOrigin,
    /// Region with a price of its own that serves the target; `None` if the list price applies.
    pub region: Option<Region>,
    /// Configured weight of a target that is drained, whose weight is 0 meanwhile. `None` if it is not drained.
    pub drained_weight: Option<u32>,
    /// How the model is served: see [`Target::rules`].
    rules: OnceLock<ModelRules>,
}

/// Limits of a model as the catalogue knows them (tokens). `None` if one of a target is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListedLimits {
    /// Most input of a request, if it is less than the context window.
    pub input: Option<u32>,
    /// Most output of a response.
    pub output: Option<u32>,
}

/// Where a price stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriceOrigin {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In the model's own table.
    Model,
    /// In the price file.
    PriceFile,
    /// In the catalogue.
    Catalogue,
}

/// Abilities of a model that the configuration states. `None`: those that are known of a model of this name apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredAbilities {
    /// Maximum output of a response (tokens).
    pub max_output_tokens: Option<u32>,
    /// Whether the model reads images.
    pub image_input: Option<bool>,
    /// Whether the model can call several tools in one turn.
    pub parallel_tool_calls: Option<bool>,
}

impl Target {
    /// Creates a target in the first tier, without limits.
    pub fn new(provider: Arc<Provider>, model: &str, weight: u32) -> Target {
        let handle = TargetHandle { weight, tier: 0, limits: TargetLimits::default(), state: Arc::default() };
        let abilities = ConfiguredAbilities::default();
        Target {
            timeouts: provider.timeouts,
            region: provider.region(model),
            provider,
            model: model.into(),
            family: None,
            handle,
            abilities,
            price: None,
            price_origin: PriceOrigin::default(),
            drained_weight: None,
            rules: OnceLock::new(),
        }
    }

    /// Returns the name by which the properties of the model are known.
    pub fn known_model(&self) -> &str {
        self.family.as_deref().unwrap_or(&self.model)
    }

    /// Returns whether the provider serves the model through `api`.
    pub fn serves(&self, api: Api) -> bool {
        self.rules().serves(api)
    }

    /// Returns how the model is served. It is looked up for the first request, or before.
    pub fn rules(&self) -> &ModelRules {
        self.rules.get_or_init(|| self.provider.model_rules(self.known_model()))
    }

    /// Returns the image profile of the model, which clients know as `known_as`.
    pub fn imaging(&self, known_as: &str) -> ImageDialect {
        self.provider.imaging(&self.model, self.rules().images, known_as)
    }

    /// Returns the capability profile of the model for requests through `api`.
    pub fn dialect(&self, api: Api) -> Dialect<'_> {
        let known = self.provider.dialect(api, self.known_model());
        let ConfiguredAbilities { max_output_tokens, image_input, parallel_tool_calls } = self.abilities;
        let image_input = image_input.unwrap_or(known.image_input);
        let image = RequestFeatures::IMAGE;
        Dialect {
            model: &self.model,
            refuses: known.refuses.without(image).with(image.when(!image_input)),
            max_output: max_output_tokens.map_or(known.max_output, u64::from),
            image_input,
            parallel_tool_calls: parallel_tool_calls.unwrap_or(known.parallel_tool_calls),
            ..known
        }
    }

    /// Drains the target, or ends that. A drained target has the weight 0: no request selects it, and those in progress
    /// go on.
    fn set_drained(&mut self, drained: bool) {
        match (drained, self.drained_weight) {
            (true, None) => self.drained_weight = Some(std::mem::take(&mut self.handle.weight)),
            (false, Some(weight)) => {
                self.handle.weight = weight;
                self.drained_weight = None;
            }
            _ => {}
        }
    }

    /// Returns whether the target serves conversations. The provider's APIs alone do not determine it, because one
    /// provider serves all families of models.
    pub fn is_conversational(&self) -> bool {
        let chats = self.provider.apis.iter().any(|api| api.format().is_some());
        chats && self.rules().is_chat
    }
}

/// Model that clients can request.
#[derive(Clone, Debug)]
pub struct Model {
    /// Index in the table.
    pub index: usize,
    /// Model id that clients send.
    pub id: Box<str>,
    /// Model id, JSON-escaped, as it is written into responses.
    pub escaped_id: EscapedString,
    /// Owner (`owned_by` in model listings).
    pub owned_by: Box<str>,
    /// Release time in Unix seconds (`created` in model listings).
    pub created: i64,
    /// Context window (tokens). `None` if the configuration does not say it.
    pub context_window: Option<u32>,
    /// Limits that all targets have, as the catalogue knows them: for listings. They bound no request.
    pub listed: ListedLimits,
    /// Abilities that the configuration states.
    pub abilities: ConfiguredAbilities,
    /// Targets that serve the model.
    pub targets: Vec<Target>,
    /// Price of the model.
    pub price: Arc<Price>,
    /// Where the price stands.
    pub price_origin: PriceOrigin,
    /// Policy, retries and breaker thresholds.
    pub routing: RoutingRules,
    /// Prompt-cache policy of requests whose key has none of its own.
    pub prompt_cache: CachePolicy,
    /// Retry budget. Survives a reload.
    pub budget: Arc<RetryBudget>,
}

impl Model {
    /// Returns whether any target with a positive weight offers `api`.
    pub fn offers(&self, api: Api) -> bool {
        self.enabled_targets().any(|target| target.serves(api))
    }

    /// Returns where the price of requests that a target serves stands.
    pub fn price_origin_of(&self, target: &Target) -> PriceOrigin {
        if target.price.is_some() { target.price_origin } else { self.price_origin }
    }

    /// Returns the price of requests that a target serves: its own, or that of the model.
    pub fn price_at(&self, target: usize) -> &Price {
        self.targets.get(target).and_then(|target| target.price.as_deref()).unwrap_or(&self.price)
    }

    /// Returns the estimated cost of a request in nano-units, whichever target serves it: the highest of all prices.
    pub fn estimate(&self, expected: &ExpectedUsage<'_>) -> i64 {
        let priced = self.targets.iter().filter(|target| target.price.is_some() || target.region.is_some());
        let each = priced.map(|target| {
            let price = target.price.as_deref().unwrap_or(&self.price);
            // What the request asks for comes before where the target is.
            price.estimate(&ExpectedUsage { region: expected.region.or(target.region), ..*expected })
        });
        each.fold(self.price.estimate(expected), i64::max)
    }

    /// Returns whether a target with a positive weight may serve requests at this time, in Unix seconds, whose
    /// price is not known.
    pub fn is_unpriced(&self, at: i64) -> bool {
        let prices = self.enabled_targets().map(|target| target.price.as_deref().unwrap_or(&self.price));
        prices.into_iter().any(|price| price.is_unknown(at))
    }

    /// Returns the tier of a target. `None` if there is no such target.
    pub fn tier_of(&self, index: usize) -> Option<u8> {
        self.targets.get(index).map(|target| target.handle.tier)
    }

    /// Returns the tier that is used first. `None` if the model has no targets.
    pub fn lowest_tier(&self) -> Option<u8> {
        self.targets.iter().map(|target| target.handle.tier).min()
    }

    /// Returns the targets with a positive weight, those of fallbacks included.
    pub fn enabled_targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.handle.weight > 0)
    }
}

impl TargetList for Model {
    fn count(&self) -> usize {
        self.targets.len()
    }

    fn handle(&self, index: usize) -> Option<&TargetHandle> {
        self.targets.get(index).map(|target| &target.handle)
    }
}

/// Routing table: all models with their targets, and all providers.
#[derive(Debug, Default)]
pub struct RoutingTable {
    models: Vec<Arc<Model>>,
    by_id: Map<Box<str>, usize>,
    providers: Vec<Arc<Provider>>,
    aliases: Aliases,
}

impl RoutingTable {
    /// Builds the table. Ids must be unique; the first of two equal ones wins. Models that lead to the same target
    /// share its state.
    pub fn new(models: Vec<Model>, providers: Vec<Arc<Provider>>) -> Self {
        let mut table = RoutingTable { providers, ..RoutingTable::default() };
        let mut known = KnownTargets::default();
        for mut model in models {
            model.index = table.models.len();
            for target in &mut model.targets {
                target.handle.state = known.state(target);
            }
            let id = model.id.clone();
            if let std::collections::hash_map::Entry::Vacant(entry) = table.by_id.entry(id) {
                entry.insert(model.index);
                table.models.push(Arc::new(model));
            }
        }
        table
    }

    /// Adds the aliases of models for Claude Code. An empty prefix adds none.
    #[must_use]
    pub fn with_aliases(mut self, prefix: &str) -> Self {
        self.aliases = Aliases::new(prefix, &self.models, |id| self.by_id.contains_key(id));
        self
    }

    /// Returns the table with the targets drained for which `is_drained` returns true, and no others. Nothing else
    /// changes: states, budgets and providers are shared with this table.
    #[must_use]
    pub fn with_drained(&self, is_drained: impl Fn(&Target) -> bool) -> RoutingTable {
        let drain = |model: &Arc<Model>| {
            let mut model = Model::clone(model);
            for target in &mut model.targets {
                let drained = is_drained(target);
                target.set_drained(drained);
            }
            Arc::new(model)
        };
        let table = RoutingTable {
            models: self.models.iter().map(drain).collect(),
            by_id: self.by_id.clone(),
            providers: self.providers.clone(),
            aliases: Aliases::default(),
        };
        table.with_aliases(self.aliases.prefix())
    }

    /// Returns the aliases of models.
    pub fn aliases(&self) -> &Aliases {
        &self.aliases
    }

    /// Adopts the target states and retry budgets of an older table. A provider whose address or credential has changed
    /// starts without history. Must be called before the table is shared.
    pub fn inherit(&mut self, older: &RoutingTable) {
        let mut known = KnownTargets::default();
        let before: Map<&str, &Arc<Provider>> =
            older.providers.iter().map(|provider| (&*provider.name, provider)).collect();
        // Older providers whose breakers and states are valid: those with the same address and credential.
        let kept = self.providers.iter().filter_map(|provider| {
            let older = before.get(&*provider.name).filter(|before| before.is_same_way(provider))?;
            Some(Arc::as_ptr(older))
        });
        let kept: HashSet<*const Provider> = kept.collect();
        for target in older.models.iter().flat_map(|model| &model.targets) {
            if kept.contains(&Arc::as_ptr(&target.provider)) {
                let (name, state) = (&target.provider.name, &target.handle.state);
                known.provider_breakers.insert(name.clone(), state.provider_breaker.clone());
                known.targets.insert((name.clone(), target.model.clone()), state.clone());
            }
        }
        for model in &mut self.models {
            let before = older.model(&model.id).map(|before| before.budget.clone());
            // Succeeds for every model, because the table is not shared yet.
            let Some(model) = Arc::get_mut(model) else { continue };
            for target in &mut model.targets {
                target.handle.state = known.state(target);
            }
            model.budget = before.unwrap_or_else(|| model.budget.clone());
        }
    }

    /// Returns the model with this id, or `None` if there is none.
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(*self.by_id.get(id)?)
    }

    /// Returns all models in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// Returns all providers in the order of the configuration.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }
}

/// Target states by provider and model, and breakers by provider.
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
