//! The result of an import before it is text: what all sources have in common, with the rules of the configuration
//! that a source does not know, such as unique names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(super) use super::entries::{
    AccountDraft, DraftCredential, KeyDraft, LimitDraft, ModelDraft, ProviderDraft, TargetDraft, TimeoutDraft,
};
use super::secrets::Secrets;
use super::wildcard::WildcardDraft;
use codec::wire::Api;
use routing::account::KeyHash;

/// Most targets of a model in the configuration.
const MAX_TARGETS: usize = 64;
/// Largest weight in the configuration.
pub(super) const MAX_WEIGHT: u64 = 1_000_000;
/// Most models that patterns of the source may lead to.
const MAX_FROM_WILDCARDS: usize = 1_000;
/// In `key.models`: a name of no model, for a key that may use none. An empty list would be all of them.
pub(super) const NO_MODELS: &str = "none-permitted";
/// Longest name of an account, in bytes, without the number that makes it unique.
const MAX_ACCOUNT: usize = 112;
/// Largest limit in the configuration.
const MAX_LIMIT: u64 = 1_000_000_000;

/// The whole result.
#[derive(Clone, Default)]
pub(super) struct ImportDraft {
    /// `server.listen`.
    pub(super) listen: String,
    /// `server.cors.origins`.
    pub(super) origins: Vec<String>,
    /// `limits.requests`.
    pub(super) requests: Option<u64>,
    /// `limits.body` in MiB.
    pub(super) body_mebibytes: Option<u64>,
    /// `log.level`.
    pub(super) log_level: Option<&'static str>,
    /// `retry.attempts`.
    pub(super) attempts: Option<u64>,
    /// `breaker.failures`.
    pub(super) failures: Option<u64>,
    /// `breaker.cooldown` in milliseconds.
    pub(super) cooldown: Option<u64>,
    pub(super) providers: Vec<ProviderDraft>,
    pub(super) models: Vec<ModelDraft>,
    /// Patterns of the source, from which [`Self::ensure_model`] adds models.
    pub(super) wildcards: Vec<WildcardDraft>,
    /// Prices of targets that differ from those of their models, by the name of the entry in prices.toml.
    pub(super) prices: BTreeMap<String, BTreeMap<&'static str, String>>,
    from_wildcards: usize,
    pub(super) keys: Vec<KeyDraft>,
    pub(super) accounts: Vec<AccountDraft>,
    pub(super) secrets: Secrets,
    /// Positions of the models by name.
    index: HashMap<String, usize>,
    key_names: HashSet<String>,
    /// Last number of a name, so that 100,000 keys of one name are numbered in linear time.
    key_numbers: HashMap<String, u32>,
    key_hashes: HashMap<String, usize>,
    account_names: HashSet<String>,
    account_numbers: HashMap<String, u32>,
}

impl ImportDraft {
    /// Adds a provider, unless an equal one is there. Returns its name.
    pub(super) fn provider(&mut self, mut provider: ProviderDraft) -> String {
        if let Some(known) = self.providers.iter().find(|known| known.is_same(&provider)) {
            return known.name.clone();
        }
        let base = cut(&provider.name, 56);
        let base = if base.is_empty() { "provider".to_owned() } else { base };
        let taken = |name: &str| self.providers.iter().any(|known| known.name == name);
        provider.name = unique(&base, &mut 1, taken);
        let name = provider.name.clone();
        self.providers.push(provider);
        name
    }

    /// Adds a target to a model, which is created if it does not exist yet. Equal targets become one with the sum of
    /// their weights and limits: the configuration has each target once. Returns `false` if the model has no room for
    /// another target.
    pub(super) fn target(&mut self, id: &str, origin: &str, target: TargetDraft) -> bool {
        if !self.index.contains_key(id) {
            let (id, origin) = (id.to_owned(), origin.to_owned());
            self.add_model(ModelDraft { id, origin, ..ModelDraft::default() });
        }
        let Some(model) = self.model(id) else { return false };
        let same =
            |known: &&mut TargetDraft| known.provider == target.provider && known.model == target.model;
        if let Some(known) = model.targets.iter_mut().find(same) {
            known.weight = known.weight.saturating_add(target.weight).min(MAX_WEIGHT);
            known.tier = known.tier.min(target.tier);
            let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?).min(MAX_LIMIT));
            known.concurrent = sum(known.concurrent, target.concurrent);
            known.requests_per_minute = sum(known.requests_per_minute, target.requests_per_minute);
            known.tokens_per_minute = sum(known.tokens_per_minute, target.tokens_per_minute);
            return true;
        }
        if model.targets.len() >= MAX_TARGETS {
            return false;
        }
        model.targets.push(target);
        true
    }

    /// Returns whether a model exists. One that only patterns lead to is added: those with the longest name apply.
    pub(super) fn ensure_model(&mut self, id: &str) -> bool {
        if self.index.contains_key(id) {
            return true;
        }
        let is_name = !self.wildcards.is_empty() && !id.is_empty() && id.len() <= 256 && !id.contains('*');
        if !is_name || self.from_wildcards >= MAX_FROM_WILDCARDS {
            return false;
        }
        let fits = |wildcard: &&WildcardDraft| wildcard.part(id).is_some();
        let Some(longest) = self.wildcards.iter().filter(fits).map(|wildcard| wildcard.id.len()).max() else {
            return false;
        };
        let found: Vec<WildcardDraft> = self
            .wildcards
            .iter()
            .filter(fits)
            .filter(|wildcard| wildcard.id.len() == longest)
            .cloned()
            .collect();
        for wildcard in found {
            let model = wildcard.model.replace('*', wildcard.part(id).unwrap_or_default());
            if model.len() <= 256 {
                self.target(id, &wildcard.origin, TargetDraft::new(wildcard.provider, model));
            }
        }
        self.from_wildcards += 1;
        self.index.contains_key(id)
    }

    /// Adds a model under a name that is not taken.
    pub(super) fn add_model(&mut self, model: ModelDraft) {
        self.index.insert(model.id.clone(), self.models.len());
        self.models.push(model);
    }

    /// Returns a model, or `None` if there is none of this name.
    pub(super) fn model(&mut self, id: &str) -> Option<&mut ModelDraft> {
        self.models.get_mut(*self.index.get(id)?)
    }

    fn find(&self, id: &str) -> Option<&ModelDraft> {
        self.models.get(*self.index.get(id)?)
    }

    /// Adds a fallback to a model.
    ///
    /// # Errors
    /// Returns the reason if one of the two does not exist, or the fallbacks would form a cycle.
    pub(super) fn fallback(&mut self, id: &str, other: &str) -> Result<(), &'static str> {
        let model = self.find(id).ok_or("the model does not exist in the result")?;
        if self.find(other).is_none() {
            return Err("the fallback does not exist in the result");
        }
        if id == other || self.behind(other).contains(&id) {
            return Err("the fallbacks would form a cycle, which the gateway refuses; remove one of them");
        }
        if model.fallback.iter().any(|known| known == other) {
            return Ok(());
        }
        if !self.can_replace(id, other) {
            return Err("the fallback serves none of the APIs of the model");
        }
        if let Some(model) = self.model(id) {
            model.fallback.push(other.to_owned());
        }
        Ok(())
    }

    /// Removes the last fallbacks of models that have too many targets with those of their fallbacks. Returns what was
    /// removed, for the operator.
    pub(super) fn settle_fallbacks(&mut self) -> Vec<String> {
        let mut remarks = Vec::new();
        // A model loses fallbacks only, so those in front of it that were within the limit stay within it.
        for at in 0..self.models.len() {
            while let Some(model) = self.models.get(at) {
                let count = |id: &str| self.find(id).map_or(0, |model| model.targets.len());
                let total = count(&model.id) + self.behind(&model.id).into_iter().map(count).sum::<usize>();
                if total <= MAX_TARGETS || model.fallback.is_empty() {
                    break;
                }
                let Some(model) = self.models.get_mut(at) else { break };
                let removed = model.fallback.pop().unwrap_or_default();
                remarks.push(format!(
                    "{:?} does not fall back to {removed:?}: a model can have at most {MAX_TARGETS} targets, including \
                     those of its fallbacks",
                    model.id
                ));
            }
        }
        remarks
    }

    /// Returns the fallbacks of a model, transitively.
    fn behind(&self, id: &str) -> HashSet<&str> {
        let mut found: HashSet<&str> = HashSet::new();
        let mut open: Vec<&ModelDraft> = self.find(id).into_iter().collect();
        while let Some(next) = open.pop() {
            for other in &next.fallback {
                if found.insert(other.as_str()) {
                    open.extend(self.find(other));
                }
            }
        }
        found
    }

    /// Returns whether a target of one model can serve an API of another one.
    fn can_replace(&self, id: &str, other: &str) -> bool {
        let apis = |id: &str| -> HashSet<Api> {
            let targets = self.find(id).into_iter().flat_map(|model| &model.targets);
            targets.flat_map(|target| self.capabilities(&target.provider)).collect()
        };
        !apis(id).is_disjoint(&apis(other))
    }

    /// Returns the APIs of a provider. The formats of conversations translate into each other, and count as one.
    fn capabilities(&self, provider: &str) -> HashSet<Api> {
        let provider = self.providers.iter().find(|known| known.name == provider);
        let apis = provider.iter().flat_map(|provider| match provider.apis {
            [] => provider.kind.default_apis(),
            apis => apis,
        });
        let api = |api: &Api| match api {
            api if api.format().is_some() => Some(Api::Chat),
            Api::EmbedContent => Some(Api::Embeddings),
            Api::CountTokens => None,
            api => Some(*api),
        };
        apis.filter_map(api).collect()
    }

    /// Brings the models into the form that the configuration requires: at least one usable target in each tier, and
    /// later tiers that can replace the first one. Returns what was changed, for the operator.
    pub(super) fn settle_models(&mut self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut models = std::mem::take(&mut self.models);
        for model in &mut models {
            let used = |model: &ModelDraft| -> BTreeSet<u8> {
                let used = model.targets.iter().filter(|target| target.weight > 0);
                used.map(|target| target.tier).collect()
            };
            let tiers = used(model);
            if tiers.is_empty() {
                continue;
            }
            // Only targets that are switched off: such a tier would never be used.
            model.targets.retain(|target| tiers.contains(&target.tier));
            for target in &mut model.targets {
                let rank = tiers.iter().position(|tier| *tier == target.tier).unwrap_or(0);
                target.tier = u8::try_from(rank.min(15)).unwrap_or(15);
            }
            let serving = |tier: u8| {
                model.targets.iter().filter(move |target| target.tier == tier && target.weight > 0)
            };
            let first: HashSet<Api> =
                serving(0).flat_map(|target| self.capabilities(&target.provider)).collect();
            let fits = |target: &TargetDraft| !self.capabilities(&target.provider).is_disjoint(&first);
            if (1..16).flat_map(serving).any(|target| !fits(target)) {
                model.targets.iter_mut().for_each(|target| target.tier = 0);
                remarks.push(format!("the targets of {:?} serve different APIs and are one tier", model.id));
            }
        }
        let (models, idle): (Vec<ModelDraft>, Vec<ModelDraft>) =
            models.into_iter().partition(|model| model.targets.iter().any(|target| target.weight > 0));
        self.index = models.iter().enumerate().map(|(at, model)| (model.id.clone(), at)).collect();
        self.models = models;
        remarks.extend(
            idle.iter().map(|model| {
                format!("the model {:?} is left out: all of its targets are disabled", model.id)
            }),
        );
        remarks
    }

    /// Returns whether a key with this hash exists.
    pub(super) fn has_key(&self, hash: &KeyHash) -> bool {
        self.key_hashes.contains_key(&hash.to_hex())
    }

    /// Adds a key under a unique name.
    ///
    /// # Errors
    /// Returns the name of the key that has the same hash.
    pub(super) fn key(&mut self, mut key: KeyDraft) -> Result<(), String> {
        let digits = key.hash.to_hex();
        if let Some(known) = self.key_hashes.get(&digits).and_then(|at| self.keys.get(*at)) {
            return Err(known.name.clone());
        }
        let base = cut(&printable(&key.name), 112);
        let base = if base.is_empty() { "key".to_owned() } else { base };
        let number = self.key_numbers.entry(base.clone()).or_insert(1);
        key.name = unique(&base, number, |name| self.key_names.contains(name));
        self.key_names.insert(key.name.clone());
        self.key_hashes.insert(digits, self.keys.len());
        self.keys.push(key);
        Ok(())
    }

    /// Adds an account under a unique name. Returns the name.
    pub(super) fn account(&mut self, mut account: AccountDraft) -> String {
        let base = cut(&printable(&account.name), MAX_ACCOUNT);
        let base = if base.is_empty() { "account".to_owned() } else { base };
        let number = self.account_numbers.entry(base.clone()).or_insert(1);
        let name = unique(&base, number, |name| self.account_names.contains(name));
        self.account_names.insert(name.clone());
        account.name.clone_from(&name);
        self.accounts.push(account);
        name
    }

    /// Renames keys without an account that have the name of an account: stored responses of both would belong to the
    /// same owner, which the configuration refuses.
    pub(super) fn separate_names(&mut self) {
        let accounts: HashSet<String> = self.keys.iter().filter_map(|key| key.account.clone()).collect();
        let accounts: HashSet<String> =
            accounts.into_iter().chain(self.accounts.iter().map(|account| account.name.clone())).collect();
        for key in self.keys.iter_mut().filter(|key| key.account.is_none()) {
            if accounts.contains(&key.name) {
                let taken = |name: &str| accounts.contains(name) || self.key_names.contains(name);
                key.name = unique(&format!("{}-key", key.name), &mut 1, taken);
                self.key_names.insert(key.name.clone());
            }
        }
    }
}

/// Returns the name, or the name with the next number after `number` that makes it unique.
fn unique(base: &str, number: &mut u32, taken: impl Fn(&str) -> bool) -> String {
    let mut name = base.to_owned();
    while taken(&name) {
        *number = number.saturating_add(1);
        name = format!("{base}-{number}");
    }
    name
}

/// Returns the beginning of a text, at most so many bytes.
pub(super) fn cut(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Returns a text without control characters, which names and comments must not have.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// Returns a limit within the range of the configuration, or `None` for 0, which sources use for "none".
pub(super) fn limit(number: u64) -> Option<u64> {
    (number > 0).then(|| number.min(MAX_LIMIT))
}
