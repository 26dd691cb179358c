//! Automatic prompt caching: what the gateway adds to a request so that its provider caches the prompt, and what became
//! of it.
//!
//! The places of breakpoints live in `canonical::breakpoints`, the edits in `wire`, the decision to pause in
//! `route::cache_yield`.

use http::HeaderValue;

use super::context::{Attempt, Context};
use crate::canonical::{BreakpointRule, CachePolicy, Usage};
use crate::json::Edit;
use crate::proxy::Gateway;
use crate::route::affinity::fingerprint;
use crate::route::{Model, Target};
use crate::translate::PromptCaching;
use crate::wire::request::Body;
use crate::wire::{Api, prompt};

/// Prompt caching that is planned for one attempt. Nothing by default.
#[derive(Debug, Default)]
pub(in crate::proxy) struct CachePlan {
    is_on: bool,
    is_paused: bool,
    breakpoints: Option<BreakpointRule>,
    key: Option<Box<str>>,
}

impl CachePlan {
    /// Returns the plan for a request that is translated.
    pub(in crate::proxy) fn for_translation(&self) -> PromptCaching<'_> {
        PromptCaching { breakpoints: self.breakpoints, key: self.key.as_deref() }
    }

    /// Returns what was added to a translated request with this number of breakpoints.
    pub(in crate::proxy) fn translated(&self, breakpoints: u8) -> CacheAction {
        self.action(breakpoints, self.key.is_some())
    }

    /// Adds the edits of a body that is forwarded, and returns what they add.
    pub(in crate::proxy) fn edit(&self, body: &Body, edits: &mut Vec<Edit>) -> CacheAction {
        let key = self.key.as_deref().and_then(|key| body.set_cache_key(key));
        let has_key = key.is_some();
        edits.extend(key);
        let breakpoints = self.breakpoints.map(|rule| body.breakpoints(&rule)).unwrap_or_default();
        edits.extend(breakpoints.edits);
        self.action(breakpoints.marks, has_key)
    }

    fn action(&self, breakpoints: u8, has_key: bool) -> CacheAction {
        match breakpoints {
            _ if !self.is_on => CacheAction::Off,
            _ if self.is_paused => CacheAction::Paused,
            0 if has_key => CacheAction::Key,
            0 => CacheAction::None,
            count => CacheAction::Breakpoints(count),
        }
    }
}

/// What automatic prompt caching added to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) enum CacheAction {
    /// Automatic prompt caching is off for the request.
    #[default]
    Off,
    /// Nothing: the client has its own, the prompt is too short, or the provider takes neither breakpoints nor a key.
    None,
    /// Nothing, because the reads of the key do not repay its writes.
    Paused,
    /// A prompt-cache key.
    Key,
    /// This number of breakpoints.
    Breakpoints(u8),
}

impl CacheAction {
    /// Returns the label in metrics.
    fn label(self) -> &'static str {
        match self {
            CacheAction::Off | CacheAction::None => "none",
            CacheAction::Paused => "paused",
            CacheAction::Key => "key",
            CacheAction::Breakpoints(_) => "breakpoints",
        }
    }

    /// Returns the value of the `x-gateway-cache` header. `None` if automatic prompt caching is off.
    pub(in crate::proxy) fn header(self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static(match self {
            CacheAction::Off => return None,
            CacheAction::Breakpoints(1) => "breakpoints=1",
            CacheAction::Breakpoints(2) => "breakpoints=2",
            CacheAction::Breakpoints(3) => "breakpoints=3",
            CacheAction::Breakpoints(_) => "breakpoints=4",
            other => other.label(),
        }))
    }
}

impl Context {
    /// Returns the prompt-cache policy of the request: the key's, or the model's.
    pub(in crate::proxy) fn cache_policy(&self, model: &Model) -> CachePolicy {
        self.key().and_then(|key| key.rules.prompt_cache).unwrap_or(model.prompt_cache)
    }

    /// Returns the name of the key that the request was made with; empty without keys.
    fn key_name(&self) -> &str {
        self.key().map_or("", |key| &key.name)
    }
}

impl Gateway {
    /// Plans the prompt caching of an attempt at a target through the API `upstream`.
    pub(in crate::proxy) fn plan_caching(
        &self,
        ctx: &Context,
        model: &Model,
        target: Option<&Target>,
        upstream: Api,
        body: &Body,
    ) -> CachePlan {
        let lifetime = ctx.cache_policy(model).lifetime().filter(|_| upstream.format().is_some());
        let Some((lifetime, target)) = lifetime.zip(target) else { return CachePlan::default() };
        let mut plan = CachePlan { is_on: true, ..CachePlan::default() };
        if let Some(min_tokens) = target.provider.min_cached_tokens(upstream, &target.model) {
            plan.is_paused = !self.cache_yields.admits(ctx.key_name(), &model.id);
            plan.breakpoints = (!plan.is_paused).then_some(BreakpointRule { lifetime, min_tokens });
        } else if target.provider.takes_cache_key(upstream) && body.wants_cache_key() {
            let conversation = prompt::conversation(&mut body.clone(), fingerprint);
            // Owners are separate: with equal keys their conversations would share the provider's rate per key.
            let owner = ctx.key().map_or("", |key| key.owner());
            plan.key =
                conversation.map(|hash| format!("mgw-{:016x}", fingerprint(hash, owner.as_bytes())).into());
        }
        plan
    }

    /// Counts a finished request with automatic prompt caching, and records whether its reads repay its writes.
    pub(in crate::proxy) fn count_caching(&self, ctx: &Context, usage: &Usage) {
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
