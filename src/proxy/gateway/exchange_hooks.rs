//! The driver's hooks: what an exchange needs of the gateway beyond the phases of `ProxyHttp`. Each is one call into the
//! module that it concerns.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::modules::http::HttpModules;
use pingora::proxy::Session;

use super::authorize::wait_for_credential;
use super::context::Context;
use super::phase::{UpstreamResponse, internal_error};
use super::reply::{from_pingora, refusal};
use crate::{Client, Gateway};
use codec::error::ApiError;
use codec::provider::Timeouts;
use codec::translate::verbatim::Arrival;
use codec::translate::{Exchange, event_stream};
use codec::wire::{Format, chat, filler};
use driver::connection::Connections;
use driver::fault::{Fault, FaultBody};
use driver::hooks::{Delivery, DriverSettings, ExchangeHooks, HookFuture, StreamState, Upgrade, Written};
use driver::offload::Offload;
use driver::outcome::{DrainDeadline, ExchangeOutcome, resolution_error};
use driver::shutdown::Shutdown;
use observe::telemetry::facts::EventKind;

impl ExchangeHooks for Gateway {
    fn settings(&self) -> DriverSettings {
        let limits = &self.limits;
        DriverSettings {
            heartbeat: limits.heartbeat,
            keepalive: limits.keepalive,
            head: limits.head,
            frame: limits.frame,
        }
    }

    fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn offload(&self) -> &Offload {
        &self.offload
    }

    fn modules(&self) -> &HttpModules {
        &self.modules
    }

    fn refuse_head(&self, error: &ApiError, target: Option<&str>) -> (Box<ResponseHeader>, Bytes) {
        self.count_broken_head(error);
        refusal(error, target)
    }

    fn take_upgrade(&self, ctx: &mut Context) -> Option<Upgrade> {
        ctx.upgrade.take()
    }

    fn timeouts(&self, ctx: &Context) -> Timeouts {
        ctx.target().map(|target| target.timeouts).unwrap_or_default()
    }

    fn is_job(&self, ctx: &Context) -> bool {
        ctx.attempt().is_some_and(|plan| plan.job.is_some())
    }

    fn run_job<'h>(
        &'h self,
        client: &'h mut Client,
        ctx: &'h mut Context,
        ended: &'h mut DrainDeadline<'_>,
    ) -> HookFuture<'h, ExchangeOutcome> {
        Box::pin(self.send_job(client, ctx, ended))
    }

    fn websocket_provider(&self, ctx: &Context) -> Option<Box<str>> {
        let attempt = ctx.attempt()?;
        let provider = &attempt.target()?.provider;
        (provider.websocket && attempt.fits_websocket()).then(|| provider.name.clone())
    }

    fn begin_attempt(&self, ctx: &mut Context) {
        ctx.record.attempts += 1;
        ctx.start_attempt();
    }

    fn resolve<'h>(&'h self, ctx: &Context, within: Duration) -> HookFuture<'h, pingora::Result<()>> {
        // Clones: the future must not borrow the context, which the driver needs while it watches the client.
        let (live, route) = (ctx.active.clone(), ctx.attempt().map(|plan| plan.upstream_route.clone()));
        Box::pin(async move {
            let addresses = route.as_ref().and_then(|route| live.addresses_of(route));
            let addresses = addresses.ok_or_else(internal_error)?;
            let begun = Instant::now();
            if let Some(credential) = addresses.credential() {
                wait_for_credential(credential, within).await?;
            }
            let within = within.saturating_sub(begun.elapsed());
            match addresses.resolve(&self.resolver, within).await {
                Ok(_) => Ok(()),
                Err(error) => {
                    let mut raised = Fault::raise(resolution_error(), FaultBody::None);
                    raised.set_context(error.to_string());
                    Err(raised)
                }
            }
        })
    }

    fn on_connected(&self, ctx: &mut Context, reused: bool) {
        if let Some(plan) = ctx.attempt() {
            plan.upstream_route.series.exchange(reused);
        }
        ctx.trace_connection(reused);
    }

    fn on_resend(&self, ctx: &mut Context, reason: &'static str) {
        ctx.end_traced_attempt(Some(reason), Instant::now());
        self.count_retry(ctx, reason);
    }

    fn on_failure(&self, ctx: &mut Context, error: Box<Error>) -> Box<Error> {
        let known = Fault::of(&error).is_some();
        if ctx.record.detail.is_none() {
            // The type of a fault says nothing; its context has the reason.
            let reason = error.context.as_ref().filter(|_| known).map(|context| context.as_str().to_owned());
            ctx.record.detail = Some(reason.unwrap_or_else(|| error.to_string()).into_boxed_str());
        }
        if known { error } else { Fault::raise(from_pingora(&error), FaultBody::None) }
    }

    fn delivery(&self, ctx: &Context) -> Delivery {
        match ctx.phase.response() {
            Some(UpstreamResponse::Stream(passing)) => match &passing.exchange {
                Exchange::Translated(translated) if translated.arrival() == Arrival::Whole => {
                    Delivery::StreamOfDocument
                }
                _ => Delivery::Stream,
            },
            Some(UpstreamResponse::Refused { .. }) => Delivery::Error,
            Some(UpstreamResponse::Whole(..)) | None => Delivery::Document,
        }
    }

    fn hold(&self, ctx: &Context) -> Option<Duration> {
        ctx.hold_duration()
    }

    fn stream_state(&self, ctx: &Context) -> StreamState {
        let Some(passing) = ctx.response_in_progress() else { return StreamState::default() };
        let meter = passing.exchange.meter();
        StreamState {
            content: meter.content_frames() > 0,
            failed: meter.has_failed(),
            partial: passing.exchange.is_partial(),
        }
    }

    fn is_opening(&self, ctx: &Context, frames: &[u8]) -> bool {
        // Only the chat format counts a frame with the role alone as content.
        let Some(text) = std::str::from_utf8(frames).ok().filter(|_| ctx.format == Format::Chat) else {
            return false;
        };
        let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        if self.broken_off(ctx).is_some() {
            return data.all(|data| chat::watch::is_contentless(data.trim()));
        }
        if self.stream_state(ctx).failed {
            // The last frame is the error itself.
            data.next_back();
        }
        data.all(|data| chat::watch::is_opening(data.trim()))
    }

    fn error_of_frames(&self, ctx: &Context, frames: &[u8]) -> ApiError {
        if let Some(error) = self.broken_off(ctx) {
            return error;
        }
        let is_event_stream = ctx.error_format() == Format::Converse;
        let message = is_event_stream.then(|| event_stream::last_data(frames)).flatten();
        self.first_frame(ctx, message.as_deref().unwrap_or_else(|| last_data(frames)))
    }

    fn on_hold_released(&self, ctx: &mut Context) {
        ctx.trace_event(EventKind::HoldReleased);
    }

    fn release_retry_state(&self, ctx: &mut Context) {
        if ctx.phase.routed().is_some_and(|routed| routed.retry_state.is_some()) {
            ctx.release_retry_state();
        }
    }

    fn before_write<'h>(&'h self, ctx: &'h mut Context, end: bool) -> Option<HookFuture<'h, ()>> {
        // Store the response, its provider signatures and its ownership before the final bytes leave: the client may
        // continue from it at once.
        let stored = self.store_response(ctx);
        let signatures = self.store_signatures(ctx);
        let claims = ctx.phase.routed().is_some_and(|routed| routed.claims.is_some());
        if claims {
            self.claim(ctx);
        }
        let claims = claims && self.is_final_piece(ctx, end);
        if stored.is_some() || signatures.is_some() || claims {
            return Some(Box::pin(async move {
                if let Some(pending) = stored {
                    self.await_stored(ctx, pending).await;
                }
                if let Some(pending) = signatures {
                    self.await_signatures_stored(ctx, pending).await;
                }
                if claims {
                    self.await_claims(ctx).await;
                }
                let settlement = self.settle_at_end(ctx, end);
                if let Some(pending) = self.unconfirmed(ctx, settlement) {
                    self.await_settlement(ctx, pending).await;
                }
            }));
        }
        // Settle before the final bytes are forwarded: otherwise a crash could leave a delivered response uncharged.
        let settlement = self.settle_at_end(ctx, end);
        let pending = self.unconfirmed(ctx, settlement)?;
        Some(Box::pin(self.await_settlement(ctx, pending)))
    }

    fn on_written(&self, ctx: &mut Context, written: Written) {
        match written {
            Written::Head(status) => ctx.record.status = status,
            Written::Body(length) => {
                ctx.record.early_head_only = false;
                ctx.record.response_bytes += length as u64;
            }
            Written::EarlyHead(status) => {
                ctx.record.early_head_only = true;
                ctx.record.status = status;
            }
            Written::EarlyFiller(length) => ctx.record.response_bytes += length as u64,
            Written::Request => ctx.record.request_sent = true,
        }
    }

    fn on_success(&self, ctx: &mut Context) {
        if ctx.record.first_content.is_none() {
            ctx.record_success(Instant::now());
        }
    }

    fn on_complete(&self, ctx: &mut Context) {
        // An empty response is a success of the target, but has no time of first content.
        if ctx.record.first_content.is_none() && ctx.record.error.is_none() {
            ctx.record_success(Instant::now());
            ctx.record.first_content = ctx.continued_content();
        }
    }

    fn filler(&self, ctx: &mut Context) -> Bytes {
        // An event stream has no message that clients skip.
        let passing = ctx.response_in_progress_mut().filter(|passing| passing.writer.is_none());
        passing.map(|passing| passing.exchange.keep_alive()).unwrap_or_default()
    }

    fn slow_start(&self, ctx: &Context) -> Option<Duration> {
        self.slow_start_delay(ctx)
    }

    fn early_head(&self, _session: &Session, ctx: &mut Context) -> Box<ResponseHeader> {
        ctx.trace_event(EventKind::SlowStart);
        Box::new(self.early_stream_head(ctx))
    }

    fn early_filler(&self, ctx: &Context) -> Bytes {
        Bytes::from_static(filler(ctx.format).as_bytes())
    }

    fn fall_back<'h>(
        &'h self,
        ctx: &'h mut Context,
        error: ApiError,
        body: Option<Bytes>,
    ) -> HookFuture<'h, Result<(), ExchangeOutcome>> {
        Box::pin(Gateway::fall_back(self, ctx, error, body))
    }

    fn resume<'h>(
        &'h self,
        client: &'h mut Client,
        ctx: &'h mut Context,
        error: ApiError,
    ) -> HookFuture<'h, Result<(), ExchangeOutcome>> {
        Box::pin(self.resume_stream(client, ctx, error))
    }

    fn has_remedy(&self, ctx: &Context) -> bool {
        ctx.attempt()
            .is_some_and(|attempt| attempt.remedy.is_some() || attempt.betas_refused || attempt.is_unfit)
    }

    fn reauthorize<'h>(&'h self, ctx: &'h mut Context, within: Duration) -> HookFuture<'h, bool> {
        Box::pin(Gateway::reauthorize(self, ctx, within))
    }

    fn on_exchange_end(&self, ctx: &mut Context) {
        ctx.drop_body();
    }
}

impl Gateway {
    /// Counts a retry and rewinds the request body to its beginning.
    pub(crate) fn count_retry(&self, ctx: &mut Context, reason: &'static str) {
        ctx.trace_event(EventKind::Retry(reason));
        if let Some(plan) = ctx.attempt_mut() {
            plan.pieces_sent = 0;
            let provider = plan.model.targets.get(plan.target).map_or("", |target| &target.provider.name);
            self.metrics.upstream_retries.with_label_values(&[provider, reason]).inc();
        }
    }
}

/// Returns the data of the last SSE event in `frames`, from its first brace on.
fn last_data(frames: &[u8]) -> &[u8] {
    const DATA: &[u8] = b"data:";
    let at = memchr::memmem::rfind(frames, DATA).map_or(0, |at| at + DATA.len());
    let data = frames.get(at..).unwrap_or_default();
    let from = data.iter().position(|byte| *byte == b'{').unwrap_or(0);
    data.get(from..).unwrap_or_default()
}
