//! Fallback: selects a target, prepares the attempt, and after a failure decides whether another target is tried.
//!
//! While the client has no byte of a response, a failure can be hidden if another target does better. [`RetryState`]
//! holds what the next attempt needs until then; a request with a single target has none. The selection itself and the
//! attribution of failures live in `route`; streams that break off later belong to `resume`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::context::{Attempt, Context, UpstreamResponse};
use super::plan::resolve_upstream_api;
use super::selection::{BodyRef, Selection};
use super::spans;
use crate::canonical::Thinking;
use crate::error::{ApiError, ErrorKind, RetryAfter};
use crate::proxy::Gateway;
use crate::proxy::driver::offload::run_blocking_if_large;
use crate::proxy::driver::outcome::ExchangeOutcome;
use crate::proxy::names;
use crate::route::affinity::fingerprint;
use crate::route::blame::{RetryDecision, classify, error_rank};
use crate::route::pick::{NoTarget, PickRequest, Policy, pick};
use crate::route::target_handle::TargetPermit;
use crate::route::{Model, Nanos, RetryRules};
use crate::translate::StoreOptions;
use crate::wire::path::Action;
use crate::wire::prompt;
use crate::wire::request::Body;
use crate::wire::{Api, Format};

/// Routing input: the properties of a request that do not depend on the target.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct RouteRequest<'w> {
    pub(in crate::proxy) model: &'w Arc<Model>,
    /// Name of the model in the request.
    pub(in crate::proxy) name: &'w str,
    pub(in crate::proxy) thinking: Thinking,
    pub(in crate::proxy) api: Api,
    pub(in crate::proxy) action: Option<Action>,
    pub(in crate::proxy) label: &'static str,
}

/// Retry state: what the next attempt needs, until the client has received its first byte. `None` for a model with one
/// target.
pub(in crate::proxy) struct RetryState {
    pub(in crate::proxy) model: Arc<Model>,
    /// Name of the model in the request; `None` if it is the model's id.
    name: Option<Box<str>>,
    pub(in crate::proxy) thinking: Thinking,
    pub(in crate::proxy) api: Api,
    pub(in crate::proxy) action: Option<Action>,
    label: &'static str,
    pub(in crate::proxy) body: Box<Body>,
    pub(in crate::proxy) pick_request: PickRequest,
    /// Number of targets tried.
    pub(in crate::proxy) targets_tried: u8,
    best: Option<BestError>,
}

impl RetryState {
    fn new(wanted: &RouteRequest<'_>, body: Box<Body>, ask: PickRequest) -> RetryState {
        let RouteRequest { model, name, thinking, api, action, label } = *wanted;
        let name = (*name != *model.id).then(|| name.into());
        RetryState {
            model: model.clone(),
            name,
            thinking,
            api,
            action,
            label,
            body,
            pick_request: ask,
            targets_tried: 0,
            best: None,
        }
    }

    fn mark_tried(&mut self, index: usize) {
        self.pick_request.tried |= 1 << index;
        self.targets_tried = self.targets_tried.saturating_add(1);
    }

    fn route_request(&self) -> RouteRequest<'_> {
        let RetryState { model, name, thinking, api, action, label, .. } = self;
        let name = name.as_deref().unwrap_or(&model.id);
        RouteRequest { model, name, thinking: *thinking, api: *api, action: *action, label }
    }
}

/// Most useful error of the attempts so far: the client receives it if all of them fail.
struct BestError {
    error: ApiError,
    body: Option<Bytes>,
    detail: Option<Box<str>>,
}

/// Returns a random number, uniform over all of `u64`.
pub(in crate::proxy) fn random_point() -> u64 {
    rand::Rng::next_u64(&mut rand::rng())
}

impl Gateway {
    /// Selects a target and prepares the attempt. `fitting` is the bit set of the targets that can serve the request.
    ///
    /// # Errors
    /// Returns the error for the client if every target is at its limits or the request cannot be encoded for one.
    pub(in crate::proxy) async fn select_target(
        &self,
        ctx: &mut Context,
        head: &RequestHeader,
        wanted: RouteRequest<'_>,
        fitting: u64,
        mut body: Box<Body>,
    ) -> Result<(), ApiError> {
        let now = ctx.active.billing.nanos(ctx.record.body_received_at.unwrap_or_else(Instant::now));
        let mut ask =
            PickRequest { now, tokens: ctx.charges.input, eligible: fitting, ..PickRequest::default() };
        let routing = &wanted.model.routing;
        // With a single target nothing can be retried: the body is consumed and no retry state is built.
        let several = !fitting.is_power_of_two();
        if several {
            ask.random_point = random_point();
            run_blocking_if_large(body.text.len(), || {
                ask.eligible = self.narrow_to_sticky(wanted.model, wanted.api, fitting, &mut body);
                if routing.policy == Policy::Affinity {
                    ask.conversation = conversation(&head.headers, &mut body);
                }
            });
            // Each request earns the model's retry budget its share.
            wanted.model.budget.deposit(&routing.retry.share);
        }
        let (index, permit) =
            pick(&**wanted.model, routing.policy, &ask).map_err(|nobody| all_limited_error(nobody, now))?;
        let mut origin = None;
        let body = if several {
            BodyRef::Borrowed(&origin.insert(Box::new(RetryState::new(&wanted, body, ask))).body)
        } else {
            BodyRef::Owned(body)
        };
        match self.prepare(ctx, wanted, index, permit, body).await {
            Ok(plan) => {
                if let Some(origin) = &mut origin {
                    origin.mark_tried(index);
                    ctx.record.targets = origin.targets_tried;
                }
                ctx.retry_state = origin;
                ctx.attempt = Some(Box::new(plan));
                Ok(())
            }
            Err(error) if may_fit_other_target(&error, &routing.retry) => {
                let Some(mut origin) = origin else { return Err(error) };
                origin.pick_request.tried |= 1 << index;
                ctx.retry_state = Some(origin);
                // Boxed: few requests are encoded for more than one target.
                Box::pin(self.next_target(ctx, Some(error))).await
            }
            Err(error) => Err(error),
        }
    }

    /// Selects a target and takes its permit, for work that is submitted once and never retried at another target
    /// (tasks).
    pub(in crate::proxy) fn select_once(
        &self,
        ctx: &Context,
        model: &Model,
        fitting: u64,
    ) -> Result<(usize, TargetPermit), ApiError> {
        let now = ctx.active.billing.nanos(Instant::now());
        let ask = PickRequest {
            now,
            tokens: ctx.charges.input,
            eligible: fitting,
            random_point: random_point(),
            ..PickRequest::default()
        };
        pick(model, model.routing.policy, &ask).map_err(|nobody| all_limited_error(nobody, now))
    }

    /// Selects the next target of those not tried yet, and prepares the attempt. A target for which the request cannot
    /// be encoded is skipped if the route allows it. `refused` is the encoding error of an earlier target; it is
    /// returned if no target is left.
    pub(in crate::proxy) async fn next_target(
        &self,
        ctx: &mut Context,
        mut refused: Option<ApiError>,
    ) -> Result<(), ApiError> {
        loop {
            // Taken out so that `ctx` can be borrowed mutably. Every path below puts it back.
            let Some(mut origin) = ctx.retry_state.take() else { return Err(internal_error()) };
            let routing = origin.model.routing;
            let (index, permit) = match pick(&*origin.model, routing.policy, &origin.pick_request) {
                Ok(picked) => picked,
                Err(nobody) => {
                    let error = refused.unwrap_or_else(|| all_limited_error(nobody, origin.pick_request.now));
                    ctx.retry_state = Some(origin);
                    return Err(error);
                }
            };
            let body = BodyRef::Borrowed(&origin.body);
            match self.prepare(ctx, origin.route_request(), index, permit, body).await {
                Ok(plan) => {
                    origin.mark_tried(index);
                    ctx.record.targets = origin.targets_tried;
                    ctx.retry_state = Some(origin);
                    ctx.attempt = Some(Box::new(plan));
                    return Ok(());
                }
                // A request with part of a response is encodable for some target at least: try the others.
                Err(error)
                    if may_fit_other_target(&error, &routing.retry)
                        || (ctx.resume.is_some() && error.kind == ErrorKind::Unsupported) =>
                {
                    origin.pick_request.tried |= 1 << index;
                    ctx.retry_state = Some(origin);
                    refused.get_or_insert(error);
                }
                Err(error) => {
                    ctx.retry_state = Some(origin);
                    return Err(error);
                }
            }
        }
    }

    /// Prepares an attempt at a target: as a job, verbatim with edits, or translated.
    async fn prepare(
        &self,
        ctx: &mut Context,
        wanted: RouteRequest<'_>,
        index: usize,
        permit: TargetPermit,
        body: BodyRef<'_>,
    ) -> Result<Attempt, ApiError> {
        let RouteRequest { model, name, thinking, api, action, label } = wanted;
        let (upstream, betas) = resolve_upstream_api(model.targets.get(index), api, &body);
        let lane = ctx.active.upstream_route(&self.metrics, label, model, index, upstream);
        let lane = lane.ok_or_else(|| not_offered(&model.id, api))?;
        let stream = body.stream || matches!(action, Some(Action::Stream { .. }));
        let permit = Some(permit);
        let chosen = Selection {
            model: model.clone(),
            index,
            permit,
            upstream_route: lane,
            api,
            upstream,
            action,
            stream,
        };
        ctx.record.stream = stream;
        let length = body.text.len();
        let turn = self.offload.acquire(if chosen.needs_parse(&body) { length } else { 0 }).await?;
        let prepared = if matches!(api, Api::Embeddings | Api::EmbedContent) {
            turn.run(|| chosen.embeddings_attempt(name, action, body))
        } else if api == Api::Rerank {
            turn.run(|| chosen.rerank_attempt(body))
        } else if let Some(request) = &body.image {
            turn.run(|| self.image_attempt(ctx, chosen, (**request).clone()))
        } else if upstream == api
            && thinking == Thinking::Unset
            && ctx.resume.is_none()
            && turn.run(|| chosen.accepts_verbatim(&body))
        {
            let passed = turn.run(|| chosen.forward_verbatim(name, body));
            passed.and_then(|passed| self.apply_respelling_losses(ctx, api.format(), passed))
        } else {
            // The translation takes an offload permit of its own, which it does not hold while it waits for the store.
            drop(turn);
            let text = run_blocking_if_large(length, || body.into_contiguous());
            if api == Api::Responses && upstream != api && self.stores_responses() {
                // Boxed: few requests wait for the store.
                Box::pin(self.translate_stored(ctx, chosen, thinking, text)).await
            } else {
                let stored = StoreOptions {
                    stores_signatures: self.may_need_signatures(&chosen),
                    ..StoreOptions::default()
                };
                match self.translate(ctx, chosen, thinking, &text, stored).await {
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
    pub(in crate::proxy) async fn fall_back(
        &self,
        ctx: &mut Context,
        error: ApiError,
        body: Option<Bytes>,
    ) -> Result<(), ExchangeOutcome> {
        let status = ctx.record.upstream_status;
        let verdict = classify(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let told = |error, body: Option<Bytes>| match body {
            Some(body) => ExchangeOutcome::UpstreamError(error, body),
            None => ExchangeOutcome::Failed(error),
        };
        let complete = ctx.record.body_received_at;
        let Some(origin) = ctx.retry_state.as_deref_mut() else { return Err(told(error, body)) };
        let retry = origin.model.routing.retry;
        let wanted = match verdict.next {
            RetryDecision::No => false,
            RetryDecision::Yes => true,
            RetryDecision::ContextLength => retry.context_length,
            RetryDecision::Unsupported => retry.unsupported,
        };
        if !wanted {
            return Err(told(error, body));
        }
        let detail = ctx.record.detail.take();
        // If all attempts fail, the client receives the most useful error and not the last one.
        if origin.best.as_ref().is_none_or(|best| error_rank(&error) > error_rank(&best.error)) {
            origin.best = Some(BestError { error: error.clone(), body, detail });
        }
        let late = complete.is_some_and(|complete| complete.elapsed() >= retry.deadline);
        let none_left = origin.pick_request.eligible & !origin.pick_request.tried == 0;
        // The budget comes last: it is charged only if nothing else prevents the retry.
        let refused = if none_left {
            Some("targets")
        } else if origin.targets_tried >= retry.attempts {
            Some("attempts")
        } else if late {
            Some("deadline")
        } else if !origin.model.budget.withdraw(&retry.share) {
            Some("budget")
        } else {
            None
        };
        if refused.is_none() {
            self.refresh_pick_request(ctx);
            self.record_fallback(ctx, &error, status);
            let reason = error.kind.label();
            self.count_retry(ctx, reason);
            ctx.reset_response();
            if self.next_target(ctx, None).await.is_ok() {
                return Ok(());
            }
        } else if let (Some(reason), Some(origin)) = (refused, ctx.retry_state.as_deref()) {
            let labels = [&*origin.model.id, reason];
            self.metrics.retries_refused.with_label_values(&labels).inc();
        }
        let best = ctx.retry_state.take().and_then(|origin| origin.best);
        Err(match best {
            Some(BestError { error, body, detail }) => {
                ctx.record.detail = detail;
                told(error, body)
            }
            None => told(error, None),
        })
    }

    /// Renews the time and the random point of the selection input: since the first selection, the failure has changed
    /// the state of the targets.
    pub(in crate::proxy) fn refresh_pick_request(&self, ctx: &mut Context) {
        let now = ctx.active.billing.nanos(Instant::now());
        if let Some(origin) = ctx.retry_state.as_deref_mut() {
            origin.pick_request.now = now;
            origin.pick_request.random_point = random_point();
        }
    }
}

impl Context {
    /// Resets the response state of a failed attempt; nothing of it was forwarded.
    pub(in crate::proxy) fn reset_response(&mut self) {
        self.response = UpstreamResponse::Pending;
        let record = &mut self.record;
        record.detail = None;
        record.request_sent = false;
        record.head_received_at = None;
        record.upstream_status = None;
        record.upstream_id = None;
        record.first_content = None;
    }

    /// Returns the headers that name the target and the number of targets tried. Empty for a model with one target.
    pub(in crate::proxy) fn target_headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let asked = self.record.targets;
        let target = (asked > 0).then(|| self.attempt.as_ref()?.upstream_route.name.clone()).flatten();
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
    pub(in crate::proxy) fn hold_duration(&self) -> Option<Duration> {
        self.retry_state.as_ref().map(|origin| origin.model.routing.retry.hold)
    }

    /// Records the provider's remaining quota from the rate-limit headers of a response.
    pub(in crate::proxy) fn observe_quota(&self, headers: &HeaderMap) {
        let Some(plan) = &self.attempt else { return };
        let [requests, tokens] = if plan.api.error_format() == Format::Messages {
            [
                (names::ANTHROPIC_RATELIMIT_REQUESTS_REMAINING, names::ANTHROPIC_RATELIMIT_REQUESTS_RESET),
                (names::ANTHROPIC_RATELIMIT_TOKENS_REMAINING, names::ANTHROPIC_RATELIMIT_TOKENS_RESET),
            ]
        } else {
            [
                (names::X_RATELIMIT_REMAINING_REQUESTS, names::X_RATELIMIT_RESET_REQUESTS),
                (names::X_RATELIMIT_REMAINING_TOKENS, names::X_RATELIMIT_RESET_TOKENS),
            ]
        };
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

/// Returns the affinity key of the conversation: a hash of the client's session header, or of the beginning of the
/// prompt. `None` if there is neither.
fn conversation(headers: &HeaderMap, body: &mut Body) -> Option<u64> {
    // One pass over the headers costs less than a look-up for each name.
    let session = headers.iter().filter_map(|(name, value)| Some((names::session(name.as_str())?, value)));
    if let Some((_, session)) = session.min_by_key(|(rank, _)| *rank) {
        return Some(fingerprint(0, session.as_bytes()));
    }
    prompt::conversation(body, fingerprint)
}

/// Whether a request that cannot be encoded for one target is tried at another one: for an unsupported feature if the
/// route says so, and always if it continues a response that this target does not have.
fn may_fit_other_target(error: &ApiError, retry: &RetryRules) -> bool {
    match error.kind {
        ErrorKind::Unsupported => retry.unsupported,
        ErrorKind::UnknownResponse => true,
        _ => false,
    }
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

pub(in crate::proxy) fn not_offered(model: &str, api: Api) -> ApiError {
    let message = format!("The model `{model}` is not available through the {api} API.");
    ApiError::new(ErrorKind::Unsupported, message).param("model")
}

fn internal_error() -> ApiError {
    ApiError::new(ErrorKind::Internal, "Internal gateway error.")
}
