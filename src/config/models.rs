//! `[[model]]` of routes.toml: models, their targets and fallbacks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::catalogue::CataloguePrices;
use super::fallbacks;
use super::node::{ConfigTable, Position, Value};
use super::price_rows;
use super::prices::PriceList;
use super::report::closest;
use super::routes::one_of;
use super::routing_rules;
use super::values::cache_policy;
use codec::provider::{Provider, Timeouts};
use codec::wire::Api;
use json::EscapedString;
use routing::account::Price;
use routing::route::target_handle::TargetLimits;
use routing::route::{ConfiguredAbilities, Model, Policy, PriceOrigin, RoutingRules, Target};

/// Largest weight. The sum of a thousand targets stays far below 2^64.
const MAX_WEIGHT: i64 = 1_000_000;
/// Largest limit of a target or a model, far beyond any provider's.
const MAX_LIMIT: i64 = 1_000_000_000;
/// Maximum number of names that a hint lists.
const MAX_LISTED: usize = 20;
/// Largest tier in the configuration. Fallbacks get higher ones.
const MAX_TIER: i64 = 15;

/// Context that was read before the models.
pub(super) struct ModelContext<'k> {
    /// Providers by their names; `None` for one with faults.
    pub(super) providers: &'k HashMap<String, Option<Arc<Provider>>>,
    /// Names of all providers in the order of the configuration, including those with faults.
    pub(super) names: &'k [String],
    pub(super) prices: &'k PriceList,
    /// Prices of targets whose model has none in the configuration.
    pub(super) catalogue: CataloguePrices<'k>,
    /// Routing rules for what a model does not configure.
    pub(super) defaults: RoutingRules,
    /// Place of `retry.continue` in the table `[retry]` of the main file.
    pub(super) resumes: Option<Position>,
}

/// Root tables of all files; the first is that of the main file.
pub(super) type Roots<'r, 'd> = &'r [ConfigTable<'d>];

/// Reports a fault at a position in one of the files.
pub(super) fn wrong_at(
    roots: Roots<'_, '_>,
    file: usize,
    mark: &Position,
    message: impl Into<String>,
    hint: impl Into<Option<String>>,
) {
    if let Some(root) = roots.get(file) {
        root.wrong_at(mark, message, hint);
    }
}

/// Model as configured, before its fallbacks are resolved.
pub(super) struct Draft {
    pub(super) model: Model,
    /// Index of the file that defines it.
    pub(super) file: usize,
    pub(super) targets: Position,
    pub(super) fallback: Vec<(Box<str>, Position)>,
    /// Whether a request that a fallback answers is charged at the price of the fallback.
    pub(super) pays_answered: bool,
    /// Setting that enables `retry.continue`. `None` if it is disabled.
    resumes: Option<ContinueSetting>,
}

/// Position of the `retry.continue` that applies to a model.
enum ContinueSetting {
    /// In the table of the model.
    Model(Position),
    /// In the table `[retry]`, which applies to all models.
    Global(Position),
}

/// Reads a model. `ids` are those of earlier models, `file` is the index of its file.
pub(super) fn read(
    table: &ConfigTable<'_>,
    known: &ModelContext<'_>,
    ids: &mut HashSet<String>,
    file: usize,
) -> Option<Draft> {
    let id = table.require("id", "id = \"gpt-4o\"").and_then(|value| {
        let id = value.as_str()?.to_owned();
        if id.is_empty() || id.len() > 256 {
            value.wrong("an id must have 1 to 256 bytes", None);
        } else if ids.contains(&id) {
            value.wrong(format!("the model \"{id}\" is defined twice"), None);
        }
        Some(id)
    });
    let owned_by = table.string("owned_by");
    let created = table.integer("created", &(0..=253_402_300_799));
    let (context_window, abilities) = read_abilities(table);
    let price = table.get("price").and_then(|value| price_rows::read_price(&value));
    let policy = table.get("policy").and_then(|value| value.parsed(policy));
    let prompt_cache = table.get("prompt_cache").and_then(|value| value.parsed(cache_policy));
    let mut own = None;
    let retry = table.table("retry", |table| {
        own = table.get("continue").map(|value| value.position());
        routing_rules::read_retry(table, known.defaults.retry)
    });
    let retry = retry.unwrap_or(known.defaults.retry);
    let resumes =
        own.map(ContinueSetting::Model).or_else(|| known.resumes.clone().map(ContinueSetting::Global));
    let resumes = resumes.filter(|_| retry.resume);
    let timeouts = table.table("timeouts", read_timeouts).unwrap_or_default();
    let fallback = read_fallback(table);
    let pays_answered = pays_answered(table);
    let (mut targets, mut seen): (Vec<Target>, _) = (Vec::new(), HashSet::new());
    let list = table.require("targets", "targets = [{ provider = \"openai\", model = \"gpt-4o\" }]");
    if let Some(list) = &list {
        // Tiers are checked only if every target was read: a missing one would cause misleading faults.
        let mut complete = true;
        let count =
            list.elements(|element| match element.as_table(|table| read_target(table, known)).flatten() {
                Some(mut target) => {
                    timeouts.apply(&mut target.timeouts);
                    target.abilities = abilities;
                    if !seen.insert((target.provider.name.clone(), target.model.clone())) {
                        element.wrong("this target is listed twice", "remove one of the two".to_owned());
                    }
                    targets.push(target);
                }
                None => complete = false,
            });
        if count == Some(0) {
            list.wrong("a model must have at least one target", None);
        } else if complete {
            check(list, &targets);
        }
    }
    let (id, targets_at) = (id?, list?.position());
    ids.insert(id.clone());
    let (price, price_origin) = price_of(price, &id, &mut targets, known);
    let routing = RoutingRules {
        policy: policy.unwrap_or(known.defaults.policy),
        retry,
        breaker: known.defaults.breaker,
    };
    let least = abilities.max_output_tokens.unwrap_or(0);
    let window = || known.catalogue.context_window(&targets).filter(|window| *window >= least);
    let context_window = context_window.or_else(window);
    let listed = known.catalogue.limits(&targets, context_window);
    // Model listings show `owned_by` as the prefix of `{provider}/{model}`.
    let owned_by = owned_by.or_else(|| targets.first().map(|target| target.provider.name.to_string()));
    let model = Model {
        index: 0,
        escaped_id: EscapedString::from(id.as_str()),
        id: id.into_boxed_str(),
        owned_by: owned_by.unwrap_or_default().into_boxed_str(),
        created: created.unwrap_or(0),
        context_window,
        listed,
        abilities,
        targets,
        price,
        price_origin,
        routing,
        prompt_cache: prompt_cache.unwrap_or_default(),
        budget: Arc::default(),
    };
    let pays_answered = pays_answered.unwrap_or(true);
    Some(Draft { model, file, targets: targets_at, fallback, pays_answered, resumes })
}

/// Returns the price of a model and where it stands: its own, that of the price list by the client's name or else by the targets'
/// model names, or that of the catalogue, which each target gets for itself.
fn price_of(
    own: Option<Arc<Price>>,
    id: &str,
    targets: &mut [Target],
    known: &ModelContext<'_>,
) -> (Arc<Price>, PriceOrigin) {
    let names = std::iter::once(id).chain(targets.iter().map(|target| &*target.model));
    let price = own.map(|price| (price, PriceOrigin::Model));
    let price = price.or_else(|| Some((known.prices.find(names)?, PriceOrigin::PriceFile)));
    price.unwrap_or_else(|| known.catalogue.price_targets(targets))
}

/// Reads whether a fallback costs what the model that answered costs. `None` if nothing is said.
fn pays_answered(table: &ConfigTable<'_>) -> Option<bool> {
    table.get("fallback_price")?.parsed(|text| match text {
        "answered" => Ok(true),
        "requested" => Ok(false),
        other => Err(one_of(other, &["answered", "requested"])),
    })
}

fn read_fallback(table: &ConfigTable<'_>) -> Vec<(Box<str>, Position)> {
    let mut fallback = Vec::new();
    if let Some(list) = table.get("fallback") {
        list.elements(|element| {
            fallback.extend(element.as_str().map(|name| (name.into(), element.position())));
        });
    }
    fallback
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::from_name(name).ok_or_else(|| one_of(name, &Policy::ALL.map(Policy::name)))
}

/// Reads the context window (tokens) and the abilities of a model.
fn read_abilities(table: &ConfigTable<'_>) -> (Option<u32>, ConfiguredAbilities) {
    let (window, max_output_tokens) = read_token_limits(table);
    let image_input = table.boolean("image_input");
    let parallel_tool_calls = table.boolean("parallel_tool_calls");
    (window, ConfiguredAbilities { max_output_tokens, image_input, parallel_tool_calls })
}

/// Reads the context window and the maximum output of a model, in tokens.
fn read_token_limits(table: &ConfigTable<'_>) -> (Option<u32>, Option<u32>) {
    let tokens = |value: &Value<'_>| value.as_integer(&(1..=MAX_LIMIT)).and_then(|n| u32::try_from(n).ok());
    let window = table.get("context_window").as_ref().and_then(tokens);
    let value = table.get("max_output_tokens");
    let output = value.as_ref().and_then(tokens);
    if let (Some(value), true) = (value, window.is_some() && output > window) {
        value.wrong("the maximum output is larger than the context window", None);
    }
    (window, output)
}

pub(super) fn is_same(one: &Target, other: &Target) -> bool {
    Arc::ptr_eq(&one.provider, &other.provider) && one.model == other.model
}

/// Reports tiers without a usable target, and targets that serve none of the APIs of the first tier.
fn check(list: &Value<'_>, targets: &[Target]) {
    let serving = |tier: u8| {
        targets.iter().filter(move |target| target.handle.tier == tier && target.handle.weight > 0)
    };
    let mut tiers: Vec<u8> = targets.iter().map(|target| target.handle.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    if targets.iter().all(|target| target.handle.weight == 0) {
        list.wrong("every target has weight 0", "give at least one of them a weight of 1 or more".to_owned());
        return;
    }
    for tier in &tiers {
        if serving(*tier).next().is_none() && tiers.len() > 1 {
            let message = format!("tier {tier} is never used: every target in it has weight 0");
            list.wrong(
                message,
                "give at least one of them a weight of 1 or more, or remove the tier".to_owned(),
            );
        }
    }
    let Some(first) = tiers.first() else { return };
    let replaced = api_set(serving(*first));
    for target in tiers.iter().skip(1).flat_map(|tier| serving(*tier)) {
        if api_set(std::iter::once(target)) & replaced == 0 {
            let message = format!("\"{}\" shares no API with the first tier", target.provider.name);
            list.wrong(
                message,
                "a later tier replaces the first one and must share an API with it".to_owned(),
            );
        }
    }
}

/// Returns the APIs that targets serve, as bits in the order of [`Api::ALL`]: a target can replace another one if they share one.
pub(super) fn api_set<'t>(targets: impl Iterator<Item = &'t Target>) -> u32 {
    let capability = |api: &Api| match api {
        // The four formats translate into each other, and so do the two embedding APIs.
        api if api.format().is_some() => Some(Api::Chat),
        Api::EmbedContent => Some(Api::Embeddings),
        // The gateway counts tokens itself, for every provider.
        Api::CountTokens => None,
        api => Some(*api),
    };
    let apis = targets.flat_map(|target| &target.provider.apis).filter_map(capability);
    let bits = apis.filter_map(|api| Api::ALL.iter().position(|known| *known == api));
    bits.fold(0, |set, bit| set | 1 << bit)
}

/// Time-outs of a model, which override those of its providers.
#[derive(Clone, Copy, Default)]
struct OwnTimes {
    connect: Option<std::time::Duration>,
    first_byte: Option<std::time::Duration>,
    idle: Option<std::time::Duration>,
    total: Option<std::time::Duration>,
    min_rate: Option<usize>,
    rate_window: Option<std::time::Duration>,
}

impl OwnTimes {
    fn apply(&self, times: &mut Timeouts) {
        times.connect = self.connect.unwrap_or(times.connect);
        times.first_byte = self.first_byte.unwrap_or(times.first_byte);
        times.idle = self.idle.unwrap_or(times.idle);
        times.total = self.total.unwrap_or(times.total);
        times.min_rate = self.min_rate.map_or(times.min_rate, |rate| rate as u64);
        times.rate_window = self.rate_window.unwrap_or(times.rate_window);
    }
}

fn read_timeouts(table: &ConfigTable<'_>) -> OwnTimes {
    OwnTimes {
        connect: table.duration("connect"),
        first_byte: table.duration("first_byte"),
        idle: table.duration("idle"),
        total: table.duration("total"),
        min_rate: table.size("min_rate"),
        rate_window: table.duration("rate_window"),
    }
}

/// Lists names for a hint, the first ones of many.
fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
    match names.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn read_target(table: &ConfigTable<'_>, known: &ModelContext<'_>) -> Option<Target> {
    let provider = table.require("provider", "provider = \"openai\"").and_then(|value| {
        let name = value.as_str()?;
        let found = known.providers.get(name);
        if found.is_none() {
            let names = if table.has_too_many_faults() { &[] } else { known.names };
            let hint = match closest(name, names.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None if known.names.is_empty() => "no [[provider]] is defined".to_owned(),
                None => format!("known: {}", listed(names)),
            };
            value.wrong(format!("no provider is named \"{name}\""), hint);
        }
        found.cloned().flatten()
    });
    let model = table.require("model", "model = \"gpt-4o-2024-11-20\"").and_then(|value| model_name(&value));
    let family = table.get("family").and_then(|value| model_name(&value));
    let weight = table.integer("weight", &(0..=MAX_WEIGHT)).unwrap_or(1);
    let tier = table.integer("tier", &(0..=MAX_TIER)).unwrap_or(0);
    let limit = |key| table.integer(key, &(1..=MAX_LIMIT)).and_then(|n| u64::try_from(n).ok());
    let limits = TargetLimits {
        concurrent: limit("concurrent").and_then(|n| u32::try_from(n).ok()),
        requests_per_minute: limit("requests_per_minute"),
        tokens_per_minute: limit("tokens_per_minute"),
    };
    let price = table.get("price").and_then(|value| {
        let name = value.as_str()?;
        let price = known.prices.find(std::iter::once(name));
        if price.is_none() {
            let hint = "name a model of the file that `prices` names".to_owned();
            value.wrong(format!("no entry of the price file matches \"{name}\""), hint);
        }
        price
    });
    let mut target = Target::new(provider?, &model?, u32::try_from(weight).unwrap_or(1));
    target.handle.tier = u8::try_from(tier).unwrap_or(0);
    target.handle.limits = limits;
    target.price = price;
    target.price_origin = PriceOrigin::PriceFile;
    target.family = family.map(String::into_boxed_str);
    Some(target)
}

/// Returns the name of a model at a provider.
fn model_name(value: &Value<'_>) -> Option<String> {
    let model = value.as_str()?.to_owned();
    if model.is_empty() || model.len() > 256 {
        value.wrong("a model name must have 1 to 256 bytes", None);
    }
    Some(model)
}

/// Returns the models, each with its own targets followed by those of its fallbacks, transitively.
pub(super) fn join(roots: Roots<'_, '_>, drafts: Vec<Draft>) -> Vec<Model> {
    let added = fallbacks::resolve(roots, &drafts);
    for (draft, added) in drafts.iter().zip(&added) {
        check_resumes(roots, draft, added);
    }
    let mut models: Vec<Model> = drafts.into_iter().map(|draft| draft.model).collect();
    for (model, more) in models.iter_mut().zip(added) {
        model.targets.extend(more);
    }
    models
}

/// Reports an enabled `retry.continue` that could never take effect: a stream is resumed by another target than the one
/// that began it, and that target must support prefill.
fn check_resumes(roots: Roots<'_, '_>, draft: &Draft, added: &[Target]) {
    let Some(resumes) = &draft.resumes else { return };
    let own = &draft.model.targets;
    let enabled = || own.iter().chain(added).filter(|target| target.handle.weight > 0);
    let able = |target: &Target| {
        let apis =
            target.provider.apis.iter().filter(|api| **api != Api::Responses && api.format().is_some());
        apis.into_iter().any(|api| target.provider.dialect(*api, target.known_model()).prefill)
    };
    let fault = if enabled().nth(1).is_none() {
        Some(("no second target can continue a stream", "add a second target or a fallback"))
    } else if !enabled().any(able) {
        let hint = "docs/providers.md lists the models that do; for your own server, \
                    set `prefill = true` on its provider";
        Some(("no target of this model supports prefill", hint))
    } else {
        None
    };
    match (resumes, fault) {
        (_, None) => {}
        (ContinueSetting::Model(mark), Some((message, hint))) => {
            wrong_at(roots, draft.file, mark, message, hint.to_owned())
        }
        (ContinueSetting::Global(mark), Some((message, hint)))
            if enabled().any(Target::is_conversational) =>
        {
            let message = format!("model \"{}\": {message}", draft.model.id);
            wrong_at(
                roots,
                0,
                mark,
                message,
                format!("{hint}; or set `retry = {{ continue = false }}` on the model"),
            );
        }
        (ContinueSetting::Global(_), Some(_)) => {}
    }
}
