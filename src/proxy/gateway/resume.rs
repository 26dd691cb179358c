//! Continuation of broken streams: if a stream breaks off after the client received a part of it, another target
//! continues it, where the route allows that.
//!
//! The response so far is set aside while the next target is tried, and its writer continues when that target responds.
//! If no target can continue, the response is restored and ends with the error that it broke off with.

use std::time::Instant;

use super::attempt::{Attempt, Translation};
use super::context::Context;
use super::fallback::random_point;
use super::phase::UpstreamResponse;
use super::response_in_progress::ResponseInProgress;
use super::retry_state::RetryState;
use super::settle::Completion;
use super::suspended::SuspendedResponse;
use crate::Client;
use crate::Gateway;
use codec::error::ApiError;
use codec::translate::resume::{Continuation, Prefill, TranscriptLimits, Unfit, transcript_limits};
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{Exchange, TranslateRequest};
use codec::wire::path::Action;
use codec::wire::{Api, Format};
use driver::downstream::run_while_connected;
use driver::downstream::write;
use driver::hooks::ExchangeHooks as _;
use driver::outcome::{ExchangeOutcome, failed};
use observe::telemetry::facts::EventKind;
use routing::route::blame::{Blame, RetryDecision, classify};
use routing::route::candidates::RetryRefusal;
use routing::route::pick::mask;
use routing::route::{Target, upstream_api};

/// Reason why no target continues, as a metric label.
type ResumeFault = &'static str;

/// No output tokens remain of the client's limit.
const LIMIT: ResumeFault = "limit";

impl Context {
    /// Returns whether the route allows continuation and the request can be sent again.
    fn is_resumable(&self) -> bool {
        let state = self.phase.routed().and_then(|routed| routed.retry_state.as_ref());
        state.is_some_and(|state| state.model.routing.retry.resume)
    }

    /// Returns the stream in progress; `None` before the response head, and for any other response.
    fn stream(&self) -> Option<&ResponseInProgress> {
        match self.phase.response() {
            Some(UpstreamResponse::Stream(passing)) => Some(passing),
            _ => None,
        }
    }

    /// Returns whether another target could continue the response.
    pub(crate) fn can_resume(&self) -> bool {
        self.is_resumable() && self.stream().is_some_and(|passing| passing.exchange.unfit().is_none())
    }

    /// Records a transcript of the stream if another target may have to continue it.
    pub(crate) fn record_transcript(&self, exchange: &mut Exchange) {
        if self.is_resumable() {
            exchange.record_transcript();
        }
    }

    /// Sets the broken response aside. If the target that was to continue it failed before its response head, or with
    /// an error response, it is already set aside.
    ///
    /// # Errors
    /// Returns [`Unfit`] if the response or the request does not permit a continuation.
    fn suspend_response(
        &mut self,
        state: &RetryState,
        error: &ApiError,
    ) -> Result<&SuspendedResponse, Unfit> {
        if let Some(UpstreamResponse::Stream(passing)) = self.phase.response_mut() {
            // Count the delivered output now: what remains of the limit is computed from the usage.
            passing.exchange.cut();
            let prefill = passing.exchange.prefill()?;
            let written = passing.exchange.usage().output.unwrap_or(0);
            let limits = self.transcript_limits(state)?;
            let since = self.active.billing.nanos(Instant::now());
            let first_content = self.continued_content().or(self.record.first_content);
            let detail = self.record.detail.clone();
            self.phase.suspend(|exchange| {
                Box::new(SuspendedResponse {
                    exchange,
                    prefill,
                    remaining_tokens: limits.max_output.map(|most| most.saturating_sub(written)),
                    reply: limits.reply,
                    error: error.clone(),
                    detail,
                    since,
                    first_content,
                })
            });
        }
        self.phase.suspended().ok_or(Unfit::Content)
    }

    /// Returns the limits that the request sets for a continuation.
    fn transcript_limits(&self, state: &RetryState) -> Result<TranscriptLimits, Unfit> {
        let plan = self.attempt().ok_or(Unfit::Request)?;
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
            model: plan.reply_name(),
            id: self.id.as_str(),
            seed: self.seed(),
            now: self.record.unix_millis / 1000,
        };
        transcript_limits(&text, &ask)
    }

    /// Restores the response that was set aside: no target continues it.
    pub(crate) fn restore_suspended(&mut self) {
        let Some(suspended) = self.phase.take_suspended() else { return };
        let SuspendedResponse { exchange, first_content, detail, .. } = *suspended;
        self.phase.answer(UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange))));
        self.record.stream = true;
        self.record.first_content = first_content;
        self.record.detail = detail;
    }
}

/// Returns whether a target can continue a response.
fn is_able(target: &Target, api: Api, prefill: &Prefill) -> bool {
    let Some(upstream) = upstream_api(target, api) else { return false };
    match upstream.format() {
        None => false,
        // The responses format has no prefill, and its provider stores what clients continue from.
        Some(Format::Responses) => prefill.is_empty() && api != Api::Responses,
        Some(_) => prefill.is_empty() || target.dialect(upstream).prefill,
    }
}

impl Gateway {
    /// Handles a broken stream: selects a target to continue it and prepares its attempt.
    ///
    /// # Errors
    /// Returns [`ExchangeOutcome`] if no target continues: the error for the client, or the completed response if the
    /// client's token limit is reached.
    pub(crate) async fn resume_stream(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: ApiError,
    ) -> Result<(), ExchangeOutcome> {
        let status = ctx.record.upstream_status;
        let verdict = classify(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let model = ctx.attempt().map(|plan| plan.model.clone());
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
        ctx.trace_event(EventKind::Continued(outcome));
        self.metrics.streams_continued.with_label_values(&[&*model.id, outcome]).inc();
        match asked {
            Ok(()) => Ok(()),
            Err(LIMIT) => Err(self.end_at_limit(client, ctx, error).await),
            Err(_) => {
                // The client has the frames of the first target, so it gets that target's error, not the one of a later
                // target.
                let error = ctx.phase.suspended().map_or(error, |suspended| suspended.error.clone());
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
        if let Some(passing) = ctx.stream() {
            if let Some(unfit) = passing.exchange.unfit() {
                return Err(unfit.label());
            }
            if next != RetryDecision::Yes {
                return Err("failure");
            }
        }
        // Taken out: put back only if another attempt follows.
        let state = ctx.phase.routed_mut().and_then(|routed| routed.retry_state.take());
        let Some(mut state) = state else { return Err(Unfit::Request.label()) };
        let attempt = self.start_continuation(ctx, &mut state, error, status).await?;
        ctx.set_next_attempt(attempt, state);
        Ok(())
    }

    /// Selects the target that continues the response and prepares its attempt.
    async fn start_continuation(
        &self,
        ctx: &mut Context,
        state: &mut RetryState,
        error: &ApiError,
        status: Option<u16>,
    ) -> Result<Attempt, ResumeFault> {
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
        let keep = ctx.attempt_mut().and_then(|plan| plan.translation.as_mut()?.storage.take());
        ctx.reset_response();
        let unselected = |_| RetryRefusal::Targets.label();
        let mut attempt = self.next_attempt(ctx, state).await.map_err(unselected)?;
        if let Some(translation) = &mut attempt.translation {
            translation.storage = keep;
        }
        Ok(attempt)
    }

    /// Returns the exchange that continues the response which was set aside.
    pub(crate) fn resumed_exchange(
        &self,
        plan: &Attempt,
        translation: &Translation,
        suspended: SuspendedResponse,
        arrival: Arrival,
    ) -> Exchange {
        let limit = if arrival == Arrival::Whole { self.limits.answer } else { self.limits.frame };
        let repeats =
            plan.target().is_some_and(|target| plan.upstream_route.dialect(target).quirks.repeats_prefill);
        let SuspendedResponse { exchange, prefill, .. } = suspended;
        exchange.resume(Continuation {
            route: Route { client: translation.client, provider: translation.provider, stream: true },
            arrival,
            reply: &translation.reply,
            restore: translation.restore.clone(),
            limit,
            prefill: &prefill,
            repeats,
        })
    }

    /// Ends a response that broke off when it had all the tokens that the client allows.
    async fn end_at_limit(&self, client: &mut Client, ctx: &mut Context, error: ApiError) -> ExchangeOutcome {
        let Some(suspended) = ctx.phase.take_suspended() else { return ExchangeOutcome::Failed(error) };
        let SuspendedResponse { exchange, prefill, reply, first_content, .. } = *suspended;
        let (exchange, tail) = exchange.end_at_limit(&reply, &prefill);
        ctx.record.first_content = first_content;
        ctx.record.detail = None;
        ctx.record.stream = true;
        ctx.phase.answer(UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange))));
        // Store and settle before the end is sent, as for any other response.
        if let Some(pending) = self.store_response(ctx) {
            self.await_stored(ctx, pending).await;
        }
        if let Some(pending) = self.store_signatures(ctx) {
            self.await_signatures_stored(ctx, pending).await;
        }
        self.await_claims(ctx).await;
        self.settle(ctx, Completion::Complete).await;
        ctx.record.response_bytes += tail.len() as u64;
        match write(client, None, tail, true).await {
            Ok(()) => ExchangeOutcome::Complete,
            Err(error) => failed(self.on_failure(ctx, error.into_down())),
        }
    }
}
