//! Automatic prompt caching: what the gateway adds to a request so that its provider caches the prompt, and what became
//! of it.
//!
//! The places of breakpoints live in `canonical::breakpoints`, the edits in `wire`, the decision to pause in
//! `route::cache_yield`, the choice of the lifetime in `route::cache_lifetime`, and the causes of misses in
//! `route::cache_misses`.

use http::HeaderValue;

use super::attempt::Attempt;
use super::cache_plan::{CacheAction, CachePlan};
use super::context::Context;
use super::fallback::conversation;
use crate::Gateway;
use codec::canonical::{CachePolicy, Usage};
use codec::wire::Api;
use codec::wire::request::Body;
use driver::offload::run_blocking_if_large;
use routing::account::{Amount, CacheEffect};
use routing::route::affinity::fingerprint;
use routing::route::cache_misses::CacheMiss;
use routing::route::{Model, Target};

/// Shortest prompt that every provider caches, in tokens. Some models cache shorter ones; OpenAI, Anthropic and Google
/// name this number for most (documentation of November 2026).
const SHORTEST_CACHED: u64 = 1_024;

/// Prompt whose caching is planned.
pub(super) struct CachedPrompt<'b> {
    /// Hash of the client's session header. `None` if it sent none.
    pub(super) session: Option<u64>,
    pub(super) body: &'b Body,
}

impl Context {
    /// Returns the prompt-cache policy of the request: the key's, or the model's.
    pub(crate) fn cache_policy(&self, model: &Model) -> CachePolicy {
        self.key().and_then(|key| key.rules.prompt_cache).unwrap_or(model.prompt_cache)
    }

    /// Returns the name of the key that the request was made with; empty without keys.
    fn key_name(&self) -> &str {
        self.key().map_or("", |key| &key.name)
    }
}

impl Gateway {
    /// Plans the prompt caching of an attempt at a target through the API `upstream`.
    pub(super) fn plan_caching(
        &self,
        ctx: &Context,
        model: &Model,
        target: Option<&Target>,
        upstream: Api,
        prompt: &CachedPrompt<'_>,
    ) -> CachePlan {
        let policy = ctx.cache_policy(model);
        let target = target.filter(|_| policy != CachePolicy::Off && upstream.format().is_some());
        let Some(target) = target else { return CachePlan::default() };
        let mut plan = CachePlan { is_on: true, ..CachePlan::default() };
        if let Some(support) = target.rules().breakpoints(upstream) {
            plan.is_paused = !self.cache_yields.admits(ctx.key_name(), &model.id);
            let seconds = ctx.record.unix_millis / 1_000;
            let long_pays = policy == CachePolicy::Auto
                && self.cache_lifetimes.observe(ctx.key_name(), &model.id, seconds);
            plan.breakpoints = policy.rule(support, long_pays).filter(|_| !plan.is_paused);
        } else if target.provider.takes_cache_key(upstream) && prompt.body.wants_cache_key() {
            let conversation = conversation(prompt.session, prompt.body);
            // Owners are separate: with equal keys their conversations would share the provider's rate per key.
            let owner = ctx.key().map_or("", |key| key.owner());
            plan.key =
                conversation.map(|hash| format!("mgw-{:016x}", fingerprint(hash, owner.as_bytes())).into());
        }
        if self.cache_misses.watches(ctx.key_name(), &model.id) {
            let sections = || Box::new(prompt.body.prompt_sections(fingerprint));
            plan.sections = Some(run_blocking_if_large(prompt.body.text.len(), sections));
        }
        plan
    }

    /// Records whether a finished request with automatic prompt caching has read from the provider's cache. Returns why
    /// it has not, and counts that; `None` if it has, if its prompt is too short for any cache, or its provider does
    /// not report what it caches.
    pub(super) fn diagnose_caching(&self, ctx: &mut Context, usage: &Usage) -> Option<CacheMiss> {
        let sections = ctx.attempt_mut().and_then(|attempt| attempt.sections.take());
        let attempt = ctx.attempt().filter(|attempt| attempt.caching != CacheAction::Off)?;
        let reports = usage.cached.is_some() || usage.cache_write.is_some();
        if !reports || usage.input.unwrap_or(0) < SHORTEST_CACHED {
            return None;
        }
        let has_read = usage.cached.unwrap_or(0) > 0;
        let model = &attempt.model.id;
        let sections = sections.map(|sections| *sections);
        let miss = self.cache_misses.record(ctx.key_name(), model, sections, has_read)?;
        let provider = attempt.target().map_or("", |target| &*target.provider.name);
        self.metrics.cache_misses.with_label_values(&[&**model, provider, miss.label()]).inc();
        Some(miss)
    }

    /// Counts a finished request with automatic prompt caching, and records whether its reads repay its writes.
    pub(crate) fn count_caching(&self, ctx: &Context, usage: &Usage) {
        let Some(attempt) = ctx.attempt().filter(|attempt| attempt.caching != CacheAction::Off) else {
            return;
        };
        let Attempt { model, caching, .. } = attempt;
        let provider = attempt.target().map_or("", |target| &*target.provider.name);
        self.metrics.cache_requests.with_label_values(&[&*model.id, provider, caching.label()]).inc();
        if matches!(caching, CacheAction::Breakpoints(_))
            && usage.is_known()
            && self.cache_yields.record(ctx.key_name(), &model.id, usage)
        {
            let (key, model) = (ctx.key_name(), &*model.id);
            tracing::info!(key, model, "automatic prompt caching pauses: reads do not repay writes");
        }
    }
}

/// Returns the value of the `x-gateway-cache-usage` header: input tokens that were read from and written to the
/// provider's prompt cache, and what that saved, less what the writes cost more. `None` for a stream, whose usage
/// follows its head, and if the usage is unknown.
pub(super) fn cache_usage(ctx: &Context) -> Option<HeaderValue> {
    let usage = ctx.charged().map_or_else(|| ctx.usage(), |charged| charged.usage);
    let plan = ctx.attempt().filter(|_| !ctx.record.stream && usage.is_known())?;
    let read = usage.cached.unwrap_or(0);
    let written = usage.cache_writes().unwrap_or(0);
    let terms = ctx.terms(plan.target(), &usage);
    let CacheEffect { saved, surcharge } = plan.model.price_at(plan.target).cache_effect(&usage, &terms);
    let nanos = |effect: u64| i64::try_from(effect).unwrap_or(i64::MAX);
    let saved = Amount(nanos(saved).saturating_sub(nanos(surcharge)));
    HeaderValue::try_from(format!("read={read}; written={written}; saved={saved}")).ok()
}
