//! Continuation of broken streams: if a stream breaks off after the client received a part of it, another target
//! continues it, where the route allows that.
//!
//! The response so far is set aside while the next target is tried, and its writer continues when that target responds.
//! If no target can continue, the response is restored and ends with the error that it broke off with.

use std::time::Instant;

use super::context::{Attempt, Context, ResponseInProgress, UpstreamResponse};
use super::fallback::random_point;
use super::retry_state::RetryState;
use super::suspended::SuspendedResponse;
use crate::error::ApiError;
use crate::proxy::Client;
use crate::proxy::Gateway;
use crate::proxy::driver::downstream::run_while_connected;
use crate::proxy::driver::downstream::write;
use crate::proxy::driver::hooks::ExchangeHooks as _;
use crate::proxy::driver::outcome::{ExchangeOutcome, failed};
use crate::route::blame::{Blame, RetryDecision, classify};
use crate::route::candidates::RetryRefusal;
use crate::route::pick::mask;
use crate::route::{Target, upstream_api};
use crate::translate::resume::{Continuation, Prefill, TranscriptLimits, Unfit, transcript_limits};
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{Exchange, TranslateRequest};
use crate::wire::path::Action;
use crate::wire::{Api, Format};

/// Reason why no target continues, as a metric label.
type ResumeFault = &'static str;

/// No output tokens remain of the client's limit.
const LIMIT: ResumeFault = "limit";

impl Context {
    /// Returns whether the route allows continuation and the request can be sent again.
    fn is_resumable(&self) -> bool {
        self.retry_state.as_ref().is_some_and(|origin| origin.model.routing.retry.resume)
    }

    /// Returns whether another target could continue the response.
    pub(in crate::proxy) fn can_resume(&self) -> bool {
        let fit = |passing: &ResponseInProgress| passing.exchange.unfit().is_none();
        self.is_resumable() && matches!(&self.response, UpstreamResponse::Stream(passing) if fit(passing))
    }

    /// Records a transcript of the stream if another target may have to continue it.
    pub(in crate::proxy) fn record_transcript(&self, exchange: &mut Exchange) {
        if self.is_resumable() {
            exchange.record_transcript();
        }
    }

    /// Sets the broken response aside. If the target that was to continue it failed before its response head, it is
    /// already set aside.
    ///
    /// # Errors
    /// Returns [`Unfit`] if the response or the request does not permit a continuation.
    fn suspend_response(
        &mut self,
        state: &RetryState,
        error: &ApiError,
    ) -> Result<&SuspendedResponse, Unfit> {
        let mut passing = match std::mem::replace(&mut self.response, UpstreamResponse::Pending) {
            UpstreamResponse::Stream(passing) => passing,
            other => {
                self.response = other;
                let suspended = self.resume.as_deref().filter(|resume| resume.exchange.is_some());
                return suspended.ok_or(Unfit::Content);
            }
        };
        // Count the delivered output now: what remains of the limit is computed from the usage.
        passing.exchange.cut();
        let fit =
            passing.exchange.prefill().and_then(|prefill| Ok((prefill, self.transcript_limits(state)?)));
        let (prefill, limits) = match fit {
            Ok(fit) => fit,
            Err(unfit) => {
                self.response = UpstreamResponse::Stream(passing);
                return Err(unfit);
            }
        };
        let written = passing.exchange.usage().output.unwrap_or(0);
        let before = self.resume.take().and_then(|resume| resume.first_content);
        Ok(self.resume.insert(Box::new(SuspendedResponse {
            exchange: Some(passing.exchange),
            prefill,
            remaining_tokens: limits.max_output.map(|most| most.saturating_sub(written)),
            reply: limits.reply,
            error: error.clone(),
            detail: self.record.detail.clone(),
            since: self.active.billing.nanos(Instant::now()),
            first_content: before.or(self.record.first_content),
        })))
    }

    /// Returns the limits that the request sets for a continuation.
    fn transcript_limits(&self, state: &RetryState) -> Result<TranscriptLimits, Unfit> {
        let plan = self.attempt.as_ref().ok_or(Unfit::Request)?;
        let target = plan.target().ok_or(Unfit::Request)?;
        let client = state.api.format().ok_or(Unfit::Request)?;
        let dialect = plan.upstream_route.dialect(target);
        let text = state.body.text.clone().into_contiguous();
        let ask = TranslateRequest {
            client,
            provider: client,
            stream: true,
            array: matches!(state.action, Some(Action::Stream { sse: false })),
            thinking: state.thinking,
            dialect: &dialect,
            model: &state.model.escaped_id,
            id: self.id.as_str(),
            seed: self.seed(),
            now: self.record.unix_millis / 1000,
        };
        transcript_limits(&text, &ask)
    }

    /// Restores the response that was set aside: no target continues it.
    pub(in crate::proxy) fn restore_suspended(&mut self) {
        let Some(resume) = &mut self.resume else { return };
        let Some(exchange) = resume.exchange.take() else { return };
        self.response = UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange)));
        self.record.stream = true;
        self.record.first_content = resume.first_content;
        self.record.detail = resume.detail.take();
    }
}

/// Returns whether a target can continue a response.
fn is_able(target: &Target, api: Api, prefill: &Prefill) -> bool {
    let Some(upstream) = upstream_api(target, api) else { return false };
    match upstream.format() {
        None => false,
        // The responses format has no prefill, and its provider stores what clients continue from.
        Some(Format::Responses) => prefill.is_empty() && api != Api::Responses,
        Some(_) => prefill.is_empty() || target.provider.dialect(upstream, &target.model).prefill,
    }
}

impl Gateway {
    /// Handles a broken stream: selects a target to continue it and prepares its attempt.
    ///
    /// # Errors
    /// Returns [`ExchangeOutcome`] if no target continues: the error for the client, or the completed response if the
    /// client's token limit is reached.
    pub(in crate::proxy) async fn resume_stream(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: ApiError,
    ) -> Result<(), ExchangeOutcome> {
        let status = ctx.record.upstream_status;
        let verdict = classify(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let model = ctx.attempt.as_ref().map(|plan| plan.model.clone());
        // An error of the gateway itself would occur at every target.
        let nobodys = verdict.blame == Blame::Gateway && verdict.next == RetryDecision::No;
        let Some(model) = model.filter(|model| model.routing.retry.resume && ctx.record.targets > 0) else {
            return Err(ExchangeOutcome::Failed(error));
        };
        if nobodys {
            ctx.restore_suspended();
            return Err(ExchangeOutcome::Failed(error));
        }
        // Encoding for the next target may have to wait for its turn. Stop if the client disconnects meanwhile.
        let asked = run_while_connected(client, self.prepare_resume(ctx, &error, verdict.next, status)).await;
        let asked = match asked {
            Ok(asked) => asked,
            Err(gone) => {
                ctx.restore_suspended();
                return Err(ExchangeOutcome::Failed(gone));
            }
        };
        let outcome = asked.err().unwrap_or("asked");
        self.metrics.streams_continued.with_label_values(&[&*model.id, outcome]).inc();
        match asked {
            Ok(()) => Ok(()),
            Err(LIMIT) => Err(self.end_at_limit(client, ctx, error).await),
            Err(_) => {
                // The client has the frames of the first target, so it gets that target's error, not the one of a later
                // target.
                let waits = ctx.resume.as_ref().filter(|resume| resume.exchange.is_some());
                let error = waits.map_or(error, |resume| resume.error.clone());
                ctx.restore_suspended();
                Err(ExchangeOutcome::Failed(error))
            }
        }
    }

    async fn prepare_resume(
        &self,
        ctx: &mut Context,
        error: &ApiError,
        next: RetryDecision,
        status: Option<u16>,
    ) -> Result<(), ResumeFault> {
        // Otherwise the target that was to continue the response has failed before its response head.
        if let UpstreamResponse::Stream(passing) = &ctx.response {
            if let Some(unfit) = passing.exchange.unfit() {
                return Err(unfit.label());
            }
            if next != RetryDecision::Yes {
                return Err("failure");
            }
        }
        let Some(mut state) = ctx.retry_state.take() else { return Err(Unfit::Request.label()) };
        let asked = self.start_continuation(ctx, &mut state, error, status).await;
        ctx.retry_state = Some(state);
        asked
    }

    /// Selects the target that continues the response and prepares its attempt.
    async fn start_continuation(
        &self,
        ctx: &mut Context,
        state: &mut RetryState,
        error: &ApiError,
        status: Option<u16>,
    ) -> Result<(), ResumeFault> {
        let suspended = ctx.suspend_response(state, error).map_err(Unfit::label)?;
        if suspended.remaining_tokens == Some(0) {
            return Err(LIMIT);
        }
        let RetryState { model, api, candidates, .. } = &mut *state;
        let able = |index| model.targets.get(index).is_some_and(|t| is_able(t, *api, &suspended.prefill));
        let (able, since) = (mask(&**model, able), suspended.since);
        let now = ctx.active.billing.nanos(Instant::now());
        let paid = candidates.after_break(able, since, now, random_point(), &model.budget);
        paid.map_err(RetryRefusal::label)?;
        self.record_fallback(ctx, error.kind, status);
        // The new attempt must store the response under the id that the client has already.
        let keep = ctx.attempt.as_mut().and_then(|plan| plan.translation.as_mut()?.storage.take());
        ctx.reset_response();
        let unselected = |_| RetryRefusal::Targets.label();
        let mut attempt = self.next_attempt(ctx, state).await.map_err(unselected)?;
        if let Some(translation) = &mut attempt.translation {
            translation.storage = keep;
        }
        ctx.attempt = Some(Box::new(attempt));
        Ok(())
    }

    /// Returns the exchange that continues the response which was set aside. `None` if there is none.
    pub(in crate::proxy) fn resumed_exchange(
        &self,
        plan: &Attempt,
        resume: Option<&mut Box<SuspendedResponse>>,
        arrival: Arrival,
    ) -> Option<Exchange> {
        let (resume, translation) = (resume?, plan.translation.as_deref()?);
        let waiting = resume.exchange.take()?;
        let limit = if arrival == Arrival::Whole { self.limits.answer } else { self.limits.frame };
        let repeats =
            plan.target().is_some_and(|target| plan.upstream_route.dialect(target).quirks.repeats_prefill);
        Some(waiting.resume(Continuation {
            route: Route { client: translation.client, provider: translation.provider, stream: true },
            arrival,
            reply: &translation.reply,
            restore: translation.restore.clone(),
            limit,
            prefill: &resume.prefill,
            repeats,
        }))
    }

    /// Ends a response that broke off when it had all the tokens that the client allows.
    async fn end_at_limit(&self, client: &mut Client, ctx: &mut Context, error: ApiError) -> ExchangeOutcome {
        let Some(resume) = &mut ctx.resume else { return ExchangeOutcome::Failed(error) };
        let Some(waiting) = resume.exchange.take() else { return ExchangeOutcome::Failed(error) };
        let (exchange, tail) = waiting.end_at_limit(&resume.reply, &resume.prefill);
        ctx.record.first_content = resume.first_content;
        ctx.record.detail = None;
        ctx.record.stream = true;
        ctx.response = UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange)));
        // Store and settle before the end is sent, as for any other response.
        if let Some(pending) = self.store_response(ctx) {
            self.await_stored(ctx, pending).await;
        }
        if let Some(pending) = self.store_signatures(ctx) {
            self.await_signatures_stored(ctx, pending).await;
        }
        self.await_claims(ctx).await;
        if let Some(settled) = ctx.settle(true) {
            self.await_settlement(ctx, settled).await;
        }
        ctx.record.response_bytes += tail.len() as u64;
        match write(client, None, tail, true).await {
            Ok(()) => ExchangeOutcome::Complete,
            Err(error) => failed(self.on_failure(ctx, error.into_down())),
        }
    }
}
