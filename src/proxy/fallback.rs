//! From one target to the next: the choice, what is learnt from a failure, and whether the request is tried again.
//!
//! As long as the client has not been given a byte, whatever a target does can be hidden, if another one does better.
//! What is needed to ask another one is kept until then ([`RetryState`]); a request that has one target only keeps
//! nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::context::{Attempt, Context, UpstreamResponse};
use super::exchange::End;
use super::offload::apart_if_large;
use super::plan::{BodyRef, Selection, way_up};
use super::{Gateway, names, spans};
use crate::canonical::Thinking;
use crate::error::{ApiError, Kind, RetryAfter};
use crate::route::affinity::fingerprint;
use crate::route::blame::{Next, usefulness, verdict};
use crate::route::pick::{NoTarget, PickRequest, Policy, pick};
use crate::route::target_handle::TargetPermit;
use crate::route::{Model, Nanos, RetryRules};
use crate::translate::StoreOptions;
use crate::wire::path::Action;
use crate::wire::prompt;
use crate::wire::request::Body;
use crate::wire::{Api, Format};

/// Routing input: what a request wants, whichever target it goes to.
#[derive(Clone, Copy)]
pub(super) struct RouteRequest<'w> {
    pub(super) model: &'w Arc<Model>,
    /// The model as the client named it.
    pub(super) name: &'w str,
    pub(super) thinking: Thinking,
    pub(super) api: Api,
    pub(super) action: Option<Action>,
    pub(super) label: &'static str,
}

/// Retry state: what is kept of a request until the client has been given its first byte. `None` for a model with one
/// target.
pub(super) struct RetryState {
    pub(super) model: Arc<Model>,
    /// The model as the client named it, where that is not its id.
    name: Option<Box<str>>,
    pub(super) thinking: Thinking,
    pub(super) api: Api,
    pub(super) action: Option<Action>,
    label: &'static str,
    pub(super) body: Box<Body>,
    pub(super) ask: PickRequest,
    /// Targets that were asked.
    pub(super) asked: u8,
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
            ask,
            asked: 0,
            best: None,
        }
    }

    fn has_asked(&mut self, index: usize) {
        self.ask.tried |= 1 << index;
        self.asked = self.asked.saturating_add(1);
    }

    fn wanted(&self) -> RouteRequest<'_> {
        let RetryState { model, name, thinking, api, action, label, .. } = self;
        let name = name.as_deref().unwrap_or(&model.id);
        RouteRequest { model, name, thinking: *thinking, api: *api, action: *action, label }
    }
}

/// Most useful error of the attempts so far: the one that the client is told if all of them fail.
struct BestError {
    error: ApiError,
    body: Option<Bytes>,
    detail: Option<Box<str>>,
}

/// A random number that is uniform over all of `u64`.
pub(super) fn chance() -> u64 {
    rand::Rng::next_u64(&mut rand::rng())
}

impl Gateway {
    /// Chooses a target and prepares what goes there. `fitting` are the targets that can serve the request.
    pub(super) async fn choose(
        &self,
        ctx: &mut Context,
        head: &RequestHeader,
        wanted: RouteRequest<'_>,
        fitting: u64,
        mut body: Box<Body>,
    ) -> Result<(), ApiError> {
        let now = ctx.live.billing.nanos(ctx.record.complete.unwrap_or_else(Instant::now));
        let mut ask = PickRequest { now, tokens: ctx.charges.input, fitting, ..PickRequest::default() };
        let routing = &wanted.model.routing;
        let several = !fitting.is_power_of_two();
        if several {
            ask.point = chance();
            apart_if_large(body.text.len(), || {
                ask.fitting = self.at_home(wanted.model, wanted.api, fitting, &mut body);
                if routing.policy == Policy::Affinity {
                    ask.conversation = conversation(&head.headers, &mut body);
                }
            });
            wanted.model.budget.pay(&routing.retry.share);
        }
        let (index, permit) =
            pick(&**wanted.model, routing.policy, &ask).map_err(|nobody| full(nobody, now))?;
        let mut origin = None;
        let body = if several {
            BodyRef::Lent(&origin.insert(Box::new(RetryState::new(&wanted, body, ask))).body)
        } else {
            BodyRef::Own(body)
        };
        match self.prepare(ctx, wanted, index, permit, body).await {
            Ok(plan) => {
                if let Some(origin) = &mut origin {
                    origin.has_asked(index);
                    ctx.record.targets = origin.asked;
                }
                ctx.origin = origin;
                ctx.plan = Some(Box::new(plan));
                Ok(())
            }
            Err(error) if is_another_s(&error, &routing.retry) => {
                let Some(mut origin) = origin else { return Err(error) };
                origin.ask.tried |= 1 << index;
                ctx.origin = Some(origin);
                // Boxed: hardly any request is told to more than one target.
                Box::pin(self.next_target(ctx, Some(error))).await
            }
            Err(error) => Err(error),
        }
    }

    /// A place at one of the targets that fit, for what is begun once and never tried elsewhere.
    pub(super) fn place(
        &self,
        ctx: &Context,
        model: &Model,
        fitting: u64,
    ) -> Result<(usize, TargetPermit), ApiError> {
        let now = ctx.live.billing.nanos(Instant::now());
        let ask = PickRequest {
            now,
            tokens: ctx.charges.input,
            fitting,
            point: chance(),
            ..PickRequest::default()
        };
        pick(model, model.routing.policy, &ask).map_err(|nobody| full(nobody, now))
    }

    /// Chooses the next target of those that are left. One that cannot be told what is wanted is passed over where the
    /// route says so; `refused` is what one said to that already.
    pub(super) async fn next_target(
        &self,
        ctx: &mut Context,
        mut refused: Option<ApiError>,
    ) -> Result<(), ApiError> {
        loop {
            // Taken out, so that the rest of the request's state can be worked with.
            let Some(mut origin) = ctx.origin.take() else { return Err(gone_wrong()) };
            let routing = origin.model.routing;
            let (index, permit) = match pick(&*origin.model, routing.policy, &origin.ask) {
                Ok(picked) => picked,
                Err(nobody) => {
                    let error = refused.unwrap_or_else(|| full(nobody, origin.ask.now));
                    ctx.origin = Some(origin);
                    return Err(error);
                }
            };
            let body = BodyRef::Lent(&origin.body);
            match self.prepare(ctx, origin.wanted(), index, permit, body).await {
                Ok(plan) => {
                    origin.has_asked(index);
                    ctx.record.targets = origin.asked;
                    ctx.origin = Some(origin);
                    ctx.plan = Some(Box::new(plan));
                    return Ok(());
                }
                // A request that was answered in part has shown that it can be told, if not to everybody.
                Err(error)
                    if is_another_s(&error, &routing.retry)
                        || (ctx.resume.is_some() && error.kind == Kind::Unsupported) =>
                {
                    origin.ask.tried |= 1 << index;
                    ctx.origin = Some(origin);
                    refused.get_or_insert(error);
                }
                Err(error) => {
                    ctx.origin = Some(origin);
                    return Err(error);
                }
            }
        }
    }

    /// Prepares what goes to a target.
    async fn prepare(
        &self,
        ctx: &mut Context,
        wanted: RouteRequest<'_>,
        index: usize,
        permit: TargetPermit,
        body: BodyRef<'_>,
    ) -> Result<Attempt, ApiError> {
        let RouteRequest { model, name, thinking, api, action, label } = wanted;
        let (upstream, betas) = way_up(model.targets.get(index), api, &body);
        let lane = ctx.live.lane(&self.metrics, label, model, index, upstream);
        let lane = lane.ok_or_else(|| not_offered(&model.id, api))?;
        let stream = body.stream || matches!(action, Some(Action::Stream { .. }));
        let permit = Some(permit);
        let chosen = Selection { model: model.clone(), index, permit, lane, api, upstream, action, stream };
        ctx.record.stream = stream;
        let length = body.text.len();
        let turn = self.offload.turn(if chosen.is_read(&body) { length } else { 0 }).await?;
        let prepared = if matches!(api, Api::Embeddings | Api::EmbedContent) {
            turn.run(|| chosen.embed(name, action, body))
        } else if api == Api::Rerank {
            turn.run(|| chosen.rank(body))
        } else if let Some(request) = &body.image {
            turn.run(|| self.draw(ctx, chosen, (**request).clone()))
        } else if upstream == api
            && thinking == Thinking::Unsaid
            && ctx.resume.is_none()
            && turn.run(|| chosen.passes(&body))
        {
            let passed = turn.run(|| chosen.pass_on(name, body));
            passed.and_then(|passed| self.weigh_respelled(ctx, api.format(), passed))
        } else {
            // The translation has a turn of its own, which it does not keep while it waits for the store.
            drop(turn);
            let text = apart_if_large(length, || body.into_contiguous());
            if api == Api::Responses && upstream != api && self.keeps() {
                // Boxed: hardly any request has to wait for the store.
                Box::pin(self.translate_kept(ctx, chosen, thinking, text)).await
            } else {
                let stored = StoreOptions { remembers: self.may_recall(&chosen), ..StoreOptions::default() };
                match self.translate(ctx, chosen, thinking, &text, stored).await {
                    Ok(plan) => Ok(plan),
                    // Boxed: hardly any request lacks anything.
                    Err(stuck) => Box::pin(self.translate_with(ctx, stuck, thinking, &text, stored)).await,
                }
            }
        };
        prepared.map(|plan| Attempt { betas, ..plan })
    }

    /// What is to be done after a failure that the client has not seen: the next target, or what the client is told.
    pub(super) async fn fall_back(
        &self,
        ctx: &mut Context,
        error: ApiError,
        body: Option<Bytes>,
    ) -> Result<(), End> {
        let status = ctx.record.upstream_status;
        let verdict = verdict(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let told = |error, body: Option<Bytes>| match body {
            Some(body) => End::Refused(error, body),
            None => End::Failed(error),
        };
        let complete = ctx.record.complete;
        let Some(origin) = ctx.origin.as_deref_mut() else { return Err(told(error, body)) };
        let retry = origin.model.routing.retry;
        let wanted = match verdict.next {
            Next::No => false,
            Next::Yes => true,
            Next::ContextLength => retry.context_length,
            Next::Unsupported => retry.unsupported,
        };
        if !wanted {
            return Err(told(error, body));
        }
        let detail = ctx.record.detail.take();
        if origin.best.as_ref().is_none_or(|best| usefulness(&error) > usefulness(&best.error)) {
            origin.best = Some(BestError { error: error.clone(), body, detail });
        }
        let late = complete.is_some_and(|complete| complete.elapsed() >= retry.deadline);
        let none_left = origin.ask.fitting & !origin.ask.tried == 0;
        let refused = if none_left {
            Some("targets")
        } else if origin.asked >= retry.attempts {
            Some("attempts")
        } else if late {
            Some("deadline")
        } else if !origin.model.budget.take(&retry.share) {
            Some("budget")
        } else {
            None
        };
        if refused.is_none() {
            self.look_anew(ctx);
            self.note_fallback(ctx, &error, status);
            let reason = error.kind.label();
            self.count_retry(ctx, reason);
            ctx.begin_again();
            if self.next_target(ctx, None).await.is_ok() {
                return Ok(());
            }
        } else if let (Some(reason), Some(origin)) = (refused, ctx.origin.as_deref()) {
            let labels = [&*origin.model.id, reason];
            self.metrics.retries_refused.with_label_values(&labels).inc();
        }
        let best = ctx.origin.take().and_then(|origin| origin.best);
        Err(match best {
            Some(BestError { error, body, detail }) => {
                ctx.record.detail = detail;
                told(error, body)
            }
            None => told(error, None),
        })
    }

    /// A failure has told more about the targets than the time of the request's beginning does.
    pub(super) fn look_anew(&self, ctx: &mut Context) {
        let now = ctx.live.billing.nanos(Instant::now());
        if let Some(origin) = ctx.origin.as_deref_mut() {
            origin.ask.now = now;
            origin.ask.point = chance();
        }
    }
}

impl Context {
    /// Forgets what another target said: nobody has heard of it.
    pub(super) fn begin_again(&mut self) {
        self.answer = UpstreamResponse::Pending;
        self.failure = None;
        let record = &mut self.record;
        record.detail = None;
        record.said = false;
        record.answered = None;
        record.upstream_status = None;
        record.upstream_id = None;
        record.first_content = None;
    }

    /// Headers that tell which target answered after how many were asked, where there are several.
    pub(super) fn way(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let asked = self.record.targets;
        let target = (asked > 0).then(|| self.plan.as_ref()?.lane.name.clone()).flatten();
        let target = target.map(|target| (names::X_GATEWAY_TARGET, target));
        let attempts = match asked {
            0 => None,
            // Nearly always; what is not written needs no memory.
            1 => Some(HeaderValue::from_static("1")),
            more => Some(HeaderValue::from(u16::from(more))),
        };
        let attempts = attempts.map(|attempts| (names::X_GATEWAY_ATTEMPTS, attempts));
        target.into_iter().chain(attempts)
    }

    /// How long the beginning of a stream may be held back for that.
    pub(super) fn hold(&self) -> Option<Duration> {
        self.origin.as_ref().map(|origin| origin.model.routing.retry.hold)
    }

    /// Takes over what the head of an answer says of the provider's limits.
    pub(super) fn learn(&self, headers: &HeaderMap) {
        let Some(plan) = &self.plan else { return };
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
        // One look at each name costs less than looking for two.
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
        let (now, unix) = (self.live.billing.nanos(Instant::now()), self.now());
        let learn = |left: Option<&str>, reset: &HeaderName| {
            let left = left?.trim().parse::<u64>().ok()?;
            let wait = spans::until_reset(text(headers, reset)?, unix)?;
            Some((left, now.saturating_add(Nanos::try_from(wait.as_nanos()).ok()?)))
        };
        if let Some((left, until)) = learn(left_requests, &requests.1) {
            permit.state().learn_requests(left, until, now);
        }
        if let Some((left, until)) = learn(left_tokens, &tokens.1) {
            permit.state().learn_tokens(left, until, now);
        }
    }
}

/// What stands for the conversation: what its client calls it, or how its prompt begins.
fn conversation(headers: &HeaderMap, body: &mut Body) -> Option<u64> {
    // One look at each header costs less than looking for each of the names.
    let session = headers.iter().filter_map(|(name, value)| Some((names::session(name.as_str())?, value)));
    if let Some((_, session)) = session.min_by_key(|(rank, _)| *rank) {
        return Some(fingerprint(0, session.as_bytes()));
    }
    prompt::conversation(body, fingerprint)
}

/// Whether a request that cannot be told to one target is told to another: what one cannot do, where the route says so;
/// and what goes on from a response that one does not have.
fn is_another_s(error: &ApiError, retry: &RetryRules) -> bool {
    match error.kind {
        Kind::Unsupported => retry.unsupported,
        Kind::UnknownResponse => true,
        _ => false,
    }
}

/// All targets are at their limits.
fn full(nobody: NoTarget, now: Nanos) -> ApiError {
    let error = ApiError::new(
        Kind::UpstreamRateLimit,
        "Every provider of this model is at its limit at the moment; please try again.",
    );
    let wait = match nobody {
        NoTarget::RateLimited(until) => u64::try_from(until.saturating_sub(now)).unwrap_or(0),
        NoTarget::Exhausted => 0,
    };
    error.retry_after(Some(RetryAfter::Wait(Duration::from_nanos(wait).max(Duration::from_secs(1)))))
}

pub(super) fn not_offered(model: &str, api: Api) -> ApiError {
    let message = format!("The model `{model}` is not available through the {api} API.");
    ApiError::new(Kind::Unsupported, message).param("model")
}

fn gone_wrong() -> ApiError {
    ApiError::new(Kind::Internal, "The gateway failed.")
}
