//! Fallback: selects a target, prepares the attempt, and after a failure decides whether another target is tried.
//!
//! While the client has no byte of a response, a failure can be hidden if another target does better. [`RetryState`]
//! holds what the next attempt needs until then; a request with a single target has none. The selection itself, the
//! attribution of failures and the decision whether another target is tried live in `route`; streams that break off
//! later belong to `resume`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::attempt::Attempt;
use super::compaction::CompactionPlan;
use super::context::Context;
use super::guardrail::check_guardrail;
use super::prompt_cache::CachedPrompt;
use super::refit::{Refit, asked_first, sought_late};
use super::retry_state::{RetryState, RouteRequest};
use super::selection::{BodyRef, Selection, resolve_upstream_api};
use super::spans;
use crate::Gateway;
use codec::canonical::Thinking;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::provider::ToolBetas;
use codec::translate::StoreOptions;
use codec::wire::Api;
use codec::wire::path::Action;
use codec::wire::prompt;
use codec::wire::request::Body;
use driver::names;
use driver::offload::run_blocking_if_large;
use driver::outcome::ExchangeOutcome;
use routing::route::affinity::fingerprint;
use routing::route::blame::classify;
use routing::route::candidates::{FailedAttempt, Next};
use routing::route::pick::{NoTarget, PickRequest, Policy, pick};
use routing::route::target_handle::TargetPermit;
use routing::route::{Model, Nanos, Target};

/// Returns a random number, uniform over all of `u64`.
pub(crate) fn random_point() -> u64 {
    rand::Rng::next_u64(&mut rand::rng())
}

impl Gateway {
    /// Selects a target and prepares the attempt. `fitting` is the bit set of the targets that can serve the request.
    /// Returns the attempt and the retry state, `None` with a single target.
    ///
    /// # Errors
    /// Returns the error for the client if every target is at its limits or the request cannot be encoded for one.
    pub(crate) async fn select_target(
        &self,
        ctx: &mut Context,
        wanted: RouteRequest<'_>,
        fitting: u64,
        mut body: Box<Body>,
    ) -> Result<(Box<Attempt>, Option<Box<RetryState>>), ApiError> {
        let now = ctx.active.billing.nanos(ctx.record.body_received_at.unwrap_or_else(Instant::now));
        let mut ask =
            PickRequest { now, tokens: ctx.expected_input(), eligible: fitting, ..PickRequest::default() };
        let routing = &wanted.model.routing;
        // With a single target nothing can be retried: the body is consumed and no retry state is built.
        if fitting.is_power_of_two() {
            let (index, permit) = pick(&**wanted.model, routing.policy, &ask)
                .map_err(|nobody| all_limited_error(nobody, now))?;
            ctx.record.stream = wanted.is_stream(&body);
            let attempt = self.prepare(ctx, wanted, index, permit, BodyRef::Owned(body), true).await?;
            return Ok((Box::new(attempt), None));
        }
        ask.random_point = random_point();
        run_blocking_if_large(body.text.len(), || {
            ask.eligible = self.narrow_to_sticky(wanted.model, wanted.api, fitting, &mut body);
            if routing.policy == Policy::Affinity {
                ask.conversation = conversation(wanted.session, &body);
            }
        });
        // Each request earns the model's retry budget its share.
        wanted.model.budget.deposit(&routing.retry.share);
        let mut state = Box::new(RetryState::new(&wanted, body, ask));
        let attempt = self.next_attempt(ctx, &mut state).await?;
        Ok((Box::new(attempt), Some(state)))
    }

    /// Selects a target and takes its permit, for work that is submitted once and never retried at another target
    /// (tasks).
    pub(crate) fn select_once(
        &self,
        ctx: &Context,
        model: &Model,
        fitting: u64,
    ) -> Result<(usize, TargetPermit), ApiError> {
        let now = ctx.active.billing.nanos(Instant::now());
        let ask = PickRequest {
            now,
            tokens: ctx.expected_input(),
            eligible: fitting,
            random_point: random_point(),
            ..PickRequest::default()
        };
        pick(model, model.routing.policy, &ask).map_err(|nobody| all_limited_error(nobody, now))
    }

    /// Selects a target of those not tried yet and prepares the attempt. A target for which the request cannot be
    /// encoded is skipped if another one may fit.
    ///
    /// # Errors
    /// Returns the first encoding error if no target is left, the rate-limit error if those left are at their limits.
    pub(crate) async fn next_attempt(
        &self,
        ctx: &mut Context,
        state: &mut RetryState,
    ) -> Result<Attempt, ApiError> {
        let mut refused = None;
        loop {
            let now = state.candidates.now();
            let (index, permit) = match state.candidates.pick(&*state.model, state.model.routing.policy) {
                Ok(picked) => picked,
                Err(nobody) => return Err(refused.unwrap_or_else(|| all_limited_error(nobody, now))),
            };
            // Fallbacks have higher tiers, also if the targets before them were passed over.
            let is_own = state.model.tier_of(index) == state.model.lowest_tier();
            let is_first = state.candidates.targets_tried() == 0 && is_own;
            let (wanted, body) = state.split();
            ctx.record.stream = wanted.is_stream(body);
            match self.prepare(ctx, wanted, index, permit, BodyRef::Borrowed(body), is_first).await {
                Ok(attempt) => {
                    // Only after the preparation: a target that cannot encode the request was not tried.
                    state.candidates.mark_tried(index);
                    ctx.record.targets = state.candidates.targets_tried();
                    return Ok(attempt);
                }
                Err(error) if state.candidates.skip(index, &error) => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Prepares an attempt at a target: as a job, verbatim with edits, or translated. With `asks`, the provider is asked
    /// first about what the client chose for its model.
    pub(super) async fn prepare(
        &self,
        ctx: &Context,
        wanted: RouteRequest<'_>,
        index: usize,
        permit: TargetPermit,
        body: BodyRef<'_>,
        asks: bool,
    ) -> Result<Attempt, ApiError> {
        let RouteRequest { model, name, alias, thinking, api, action, label, session, tool_betas } = wanted;
        let target = model.targets.get(index);
        let (upstream, betas) = resolve_upstream_api(target, api, &body);
        check_guardrail(ctx, target, upstream)?;
        let compacts = target.is_some_and(|target| target.provider.compacts(upstream));
        let is_compact = action == Some(Action::Compact);
        let CompactionPlan { body: opened, options: compaction } =
            match is_compact || body.may_have_compaction() {
                false => CompactionPlan::default(),
                // Boxed: few requests have compaction items.
                true => Box::pin(self.plan_compaction(ctx, &wanted, compacts, &body)).await?,
            };
        let mut body = opened.map_or(body, BodyRef::Owned);
        let lane = ctx.active.upstream_route(&self.metrics, label, model, index, upstream);
        let lane = lane.ok_or_else(|| not_offered(&model.id, api))?;
        // Providers with a reduced chat format get what fits it.
        let is_reduced = api == Api::Chat && target.is_some_and(|target| target.provider.needs_adaptation());
        let asks = asks && upstream == api && !is_reduced && ctx.phase.suspended().is_none();
        let doubtful = asked_first(asks, &lane, api, &body);
        let chosen = Selection {
            refuses: lane.refuses().without(doubtful).without(sought_late(asks)),
            asks,
            model: model.clone(),
            alias: alias.cloned(),
            index,
            permit: Some(permit),
            upstream_route: lane,
            api,
            upstream,
            // A provider that does not compact is asked for an ordinary response.
            action: action.filter(|_| compaction.is_none()),
            stream: wanted.is_stream(&body),
            tool_betas: tool_betas.with(ToolBetas::of(betas.named.iter().map(|name| &**name))),
            caching: self.plan_caching(ctx, model, target, upstream, &CachedPrompt { session, body: &body }),
            compaction,
        };
        let length = body.text.len();
        let turn = self.offload.acquire(if chosen.needs_parse(&body) { length } else { 0 }).await?;
        let prepared = if matches!(api, Api::Embeddings | Api::EmbedContent) {
            turn.run(|| chosen.embeddings_attempt(name, action, body))
        } else if api == Api::Rerank {
            turn.run(|| chosen.rerank_attempt(body))
        } else if let Some(request) = &body.image {
            turn.run(|| self.image_attempt(ctx, chosen, (**request).clone()))
        } else if upstream == api
            // The endpoint that compacts has no setting for reasoning.
            && (thinking == Thinking::Unset || is_compact)
            && chosen.compaction.is_none()
            && (!body.needs_store || is_compact)
            && ctx.phase.suspended().is_none()
            && turn.run(|| chosen.accepts_verbatim(&mut body))
        {
            self.join_hints.record(api, length, chosen.needs_adaptation());
            let refit = Refit::new(&wanted, index, doubtful, asks, &body);
            let passed = turn.run(|| chosen.forward_verbatim(name, body));
            let passed = passed.and_then(|passed| self.apply_respelling_losses(ctx, api.format(), passed));
            passed.map(|passed| Attempt { refit, ..passed })
        } else {
            self.join_hints.record(api, length, true);
            drop(turn);
            // With a permit: the joined text and its pieces are in memory at the same time, for a bounded number of bodies.
            let turn = self.offload.acquire(length).await?;
            let needs_store = body.needs_store;
            let text = turn.run(|| body.into_contiguous());
            if api == Api::Responses && (upstream != api || needs_store) && self.stores_responses() {
                // The translation takes a permit of its own, which it does not hold while it waits for the store.
                drop(turn);
                // Boxed: few requests wait for the store.
                Box::pin(self.translate_stored(ctx, chosen, thinking, text)).await
            } else {
                let stored = StoreOptions {
                    stores_signatures: self.may_need_signatures(&chosen),
                    ..StoreOptions::default()
                };
                let translated = turn.run(|| self.translate_once(ctx, chosen, thinking, &text, stored));
                drop(turn);
                match translated {
                    Ok(plan) => Ok(plan),
                    // Boxed: few requests need media or signatures to be fetched first.
                    Err(stuck) => {
                        Box::pin(self.translate_with_signatures(ctx, stuck, thinking, &text, stored)).await
                    }
                }
            }
        };
        prepared.map(|plan| Attempt { betas, ..plan })
    }

    /// Handles a failure that is not visible to the client yet: prepares the next target.
    ///
    /// # Errors
    /// Returns the error for the client if the failure allows no retry, or if targets, attempts, time or retry budget
    /// are exhausted. It is the most useful error of all attempts.
    pub(crate) async fn fall_back(
        &self,
        ctx: &mut Context,
        error: ApiError,
        body: Option<Bytes>,
    ) -> Result<(), ExchangeOutcome> {
        let status = ctx.record.upstream_status;
        let verdict = classify(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let outcome = |error, body| match body {
            Some(body) => ExchangeOutcome::UpstreamError(error, body),
            None => ExchangeOutcome::Failed(error),
        };
        // Taken out: put back if another attempt follows, otherwise no longer needed.
        let state = ctx.phase.routed_mut().and_then(|routed| routed.retry_state.take());
        let Some(mut state) = state else { return Err(outcome(error, body)) };
        let kind = error.kind;
        // The detail belongs to this failure: the error that the client gets may be that of another attempt.
        let failed = FailedAttempt { error, body, detail: ctx.record.detail.take() };
        let now = ctx.active.billing.nanos(Instant::now());
        let budget = &state.model.budget;
        let failed = match state.candidates.after_failure(verdict.next, failed, now, random_point(), budget) {
            Next::Retry => {
                self.record_fallback(ctx, kind, status);
                self.count_retry(ctx, kind.label());
                ctx.reset_response();
                match self.next_attempt(ctx, &mut state).await {
                    Ok(attempt) => {
                        ctx.set_next_attempt(attempt, state);
                        return Ok(());
                    }
                    Err(unselected) => state.candidates.take_failure(unselected),
                }
            }
            Next::Stop(failed) => failed,
            Next::Refused(reason, best) => {
                self.metrics.retries_refused.with_label_values(&[&*state.model.id, reason.label()]).inc();
                best
            }
        };
        ctx.record.detail = failed.detail;
        Err(outcome(failed.error, failed.body))
    }
}

impl Context {
    /// Resets the response state of a failed attempt; nothing of it was forwarded.
    pub(crate) fn reset_response(&mut self) {
        self.phase.ask_again();
        let record = &mut self.record;
        record.detail = None;
        record.request_sent = false;
        record.head_received_at = None;
        record.upstream_status = None;
        record.upstream_id = None;
        record.first_content = None;
    }

    /// Sets the attempt at the next target, and puts the retry state back for the one after it.
    pub(super) fn set_next_attempt(&mut self, attempt: Attempt, state: Box<RetryState>) {
        if let Some(routed) = self.phase.routed_mut() {
            *routed.attempt = attempt;
            routed.retry_state = Some(state);
        }
    }

    /// Returns the headers that name the target and the number of targets tried. Empty for a model with one target.
    pub(crate) fn target_headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let asked = self.record.targets;
        let target = (asked > 0).then(|| self.attempt()?.upstream_route.name.clone()).flatten();
        let target = target.map(|target| (names::X_GATEWAY_TARGET, target));
        let attempts = match asked {
            0 => None,
            // The usual case needs no allocation.
            1 => Some(HeaderValue::from_static("1")),
            more => Some(HeaderValue::from(u16::from(more))),
        };
        let attempts = attempts.map(|attempts| (names::X_GATEWAY_ATTEMPTS, attempts));
        target.into_iter().chain(attempts)
    }

    /// Returns how long the first frames of a stream may be held back for a fallback; `None` if there is no other
    /// target.
    pub(crate) fn hold_duration(&self) -> Option<Duration> {
        let state = self.phase.routed()?.retry_state.as_ref()?;
        Some(state.model.routing.retry.hold)
    }

    /// Records the provider's remaining quota from the rate-limit headers of a response.
    pub(crate) fn observe_quota(&self, headers: &HeaderMap) {
        let Some(plan) = self.attempt() else { return };
        let [requests, tokens] = spans::quota_headers(plan.api.error_format());
        fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
            headers.get(name).and_then(|value| value.to_str().ok())
        }
        // One pass over the headers costs less than two look-ups by name.
        let (mut left_requests, mut left_tokens) = (None, None);
        for (name, value) in headers {
            if *name == requests.0 {
                left_requests = value.to_str().ok();
            } else if *name == tokens.0 {
                left_tokens = value.to_str().ok();
            }
        }
        if left_requests.is_none() && left_tokens.is_none() {
            return;
        }
        let Some(permit) = &plan.permit else { return };
        let (now, unix) = (self.active.billing.nanos(Instant::now()), self.now());
        let learn = |left: Option<&str>, reset: &HeaderName| {
            let left = left?.trim().parse::<u64>().ok()?;
            let wait = spans::until_reset(text(headers, reset)?, unix)?;
            Some((left, now.saturating_add(Nanos::try_from(wait.as_nanos()).ok()?)))
        };
        if let Some((left, until)) = learn(left_requests, &requests.1) {
            permit.state().observe_requests(left, until, now);
        }
        if let Some((left, until)) = learn(left_tokens, &tokens.1) {
            permit.state().observe_tokens(left, until, now);
        }
    }
}

/// Returns the hash of the client's session header. `None` if it sent none.
pub(crate) fn session(headers: &HeaderMap) -> Option<u64> {
    session_header(headers).map(|session| fingerprint(0, session.as_bytes()))
}

/// Returns the client's session header. `None` if it sent none.
pub(super) fn session_header(headers: &HeaderMap) -> Option<&HeaderValue> {
    // One pass over the headers costs less than a look-up for each name.
    let session = headers.iter().filter_map(|(name, value)| Some((names::session(name.as_str())?, value)));
    // With several session headers, a fixed rank decides and not their order: the key must stay the same.
    session.min_by_key(|(rank, _)| *rank).map(|(_, session)| session)
}

/// Returns the fingerprint of the conversation, by which affinity and the prompt-cache key recognize it: that of the
/// session, or of the beginning of the prompt. `None` if there is neither.
pub(super) fn conversation(session: Option<u64>, body: &Body) -> Option<u64> {
    session.or_else(|| prompt::conversation(body, fingerprint))
}

/// Rate-limit error: all targets are at their limits. Advises to wait at least one second.
fn all_limited_error(nobody: NoTarget, now: Nanos) -> ApiError {
    let error = ApiError::new(
        ErrorKind::UpstreamRateLimit,
        "Every provider of this model is at its limit at the moment; please try again.",
    );
    let wait = match nobody {
        NoTarget::RateLimited(until) => u64::try_from(until.saturating_sub(now)).unwrap_or(0),
        NoTarget::Exhausted => 0,
    };
    error.retry_after(Some(RetryAfter::Wait(Duration::from_nanos(wait).max(Duration::from_secs(1)))))
}

/// Time after which a client may try again while all targets are drained: they are resumed by hand, or at a time.
const DRAINED_WAIT: Duration = Duration::from_secs(5);

/// Returns the error of a model none of whose targets takes a request. Those that an operator has drained may come back.
pub(crate) fn no_target(model: &Model, api: Api, fits: impl Fn(&Target) -> bool) -> ApiError {
    if !model.targets.iter().any(|target| target.drained_weight.is_some() && fits(target)) {
        return not_offered(&model.id, api);
    }
    let message = format!(
        "All targets of the model `{}` are out of service at the moment; please try again.",
        model.id
    );
    ApiError::new(ErrorKind::UpstreamUnreachable, message).retry_after(Some(RetryAfter::Wait(DRAINED_WAIT)))
}

pub(crate) fn not_offered(model: &str, api: Api) -> ApiError {
    let message = format!("The model `{model}` is not available through the {api} API.");
    ApiError::new(ErrorKind::Unsupported, message).param("model")
}
