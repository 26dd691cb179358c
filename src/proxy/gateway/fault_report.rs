//! Failure reports of targets: in the request's record, in metrics, and in the target's breakers.

use std::time::{Duration, Instant};

use super::context::Context;
use super::fallback::random_point;
use super::spans;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind, ErrorSource, RetryAfter};
use codec::wire::error as wire_error;
use codec::wire::finish_words;
use codec::wire::overflow;
use codec::wire::watch::StreamEnd;
use observe::telemetry::facts::EventKind;
use routing::route::Nanos;
use routing::route::blame::{Blame, classify};
use routing::route::target_handle::BreakerChange;

/// Restates a context overflow in the words of the client's format. A provider of the same format has used its own
/// words, which stay.
pub(super) fn restate_overflow(ctx: &Context, error: &mut ApiError) {
    if let Some(plan) = ctx.attempt().filter(|plan| plan.api.error_format() != ctx.format) {
        overflow::restate(ctx.format, error, ctx.expected_input(), plan.model.context_window);
    }
}

impl Gateway {
    /// Counts the duration of the latest attempt, which ends now, if metrics are exported.
    pub(super) fn count_attempt(&self, ctx: &Context, error: Option<ErrorKind>, now: Instant) {
        let record = &ctx.record;
        // Only the exporter needs it: `/metrics` alone has the durations of requests.
        if !self.telemetry.as_ref().is_some_and(|telemetry| telemetry.exporter.has_metrics()) {
            return;
        }
        // A failed attempt is counted before another target is selected, of which there may be none.
        let uncounted =
            record.last_attempt_at.filter(|_| record.counted_attempt_at != record.last_attempt_at);
        if let (Some(started), Some(attempt)) = (uncounted, ctx.attempt()) {
            let seconds = now.saturating_duration_since(started).as_secs_f64();
            attempt.upstream_route.series.attempt(&self.metrics, seconds, error.map(ErrorKind::label));
        }
    }

    /// Records the failure of a target that a fallback hides from the client.
    pub(crate) fn record_fallback(&self, ctx: &mut Context, kind: ErrorKind, status: Option<u16>) {
        let row = kind.row();
        self.count_attempt(ctx, Some(kind), Instant::now());
        ctx.record.counted_attempt_at = ctx.record.last_attempt_at;
        let Some(target) = ctx.target() else { return };
        if row.source == ErrorSource::Upstream {
            self.metrics.upstream_errors.with_label_values(&[&*target.provider.name, row.label]).inc();
        }
        let (provider, model) = (&target.provider.name, &target.model);
        let status = status.map(|status| format!(" {status}")).unwrap_or_default();
        let told = format!("{provider}/{model}: {}{status}", row.label);
        let tried = &mut ctx.record.tried;
        *tried = Some(match tried.take() {
            Some(before) => format!("{before}, {told}").into_boxed_str(),
            None => told.into_boxed_str(),
        });
    }

    /// Records the failure of a response that passed verbatim to its end: the client has the provider's own words.
    pub(super) fn note_failure(&self, ctx: &mut Context) {
        let Some(passing) = ctx.response_in_progress() else { return };
        if !passing.exchange.meter().has_failed() || ctx.record.error.is_some() {
            return;
        }
        let Some(error) = self.broken_off(ctx) else {
            // Whose fault an error in the middle of a stream is is not known: it was not read.
            ctx.record.error = Some(ErrorKind::UpstreamFailed);
            ctx.record.detail = Some("an error of the provider in its response".into());
            return;
        };
        self.blame(ctx, classify(&error, ctx.record.upstream_status).blame, &error);
        ctx.record.error = Some(error.kind);
        ctx.record.detail = Some(error.message.into());
    }

    /// Returns the error that the finish reason of a response means which passes verbatim. `None` if it did not break
    /// off, or has an error of the provider.
    pub(super) fn broken_off(&self, ctx: &Context) -> Option<ApiError> {
        let meter = ctx.response_in_progress()?.exchange.meter();
        if !meter.is_broken_off() || meter.end() == StreamEnd::Failed {
            return None;
        }
        let format = ctx.attempt()?.api.format()?;
        Some(self.first_frame(ctx, &finish_words::error_of(format, meter.finish())))
    }

    /// Reports a failure with its attribution to the target's breakers, and logs a breaker that opens.
    pub(crate) fn blame(&self, ctx: &mut Context, blame: Blame, error: &ApiError) {
        ctx.trace_failure(error.kind);
        let now = ctx.active.billing.nanos(Instant::now());
        let Some(plan) = ctx.attempt_mut() else { return };
        let Some(permit) = plan.permit.take() else { return };
        let Some(target) = plan.target() else { return };
        let wait = error.retry_after.as_ref().and_then(requested_cooldown);
        let rules = plan.model.routing.breaker;
        let changed = permit.failed(blame, wait, now, &rules, random_point());
        let (provider, model) = (&*target.provider.name, &*target.model);
        let reason = match changed {
            BreakerChange::Unchanged => return,
            BreakerChange::Target => "target",
            BreakerChange::Provider => "provider",
            BreakerChange::Credential => "credential",
        };
        self.metrics.targets_opened.with_label_values(&[provider, model, reason]).inc();
        let kind = error.kind.label();
        if changed == BreakerChange::Credential {
            tracing::error!(
                provider,
                model,
                "the provider rejects the gateway's credential: its breaker is open; check `credential`"
            );
        } else {
            tracing::warn!(
                provider,
                model,
                kind,
                scope = reason,
                "the breaker is open after too many failures"
            );
        }
        ctx.trace_event(EventKind::BreakerOpened(reason));
    }
}

/// Advises the client to wait for the cooldown of the target, at least a second, if a busy provider does not say how
/// long: Codex CLI gives up at a 429 without `retry-after`. A quota that is used up is not free again in time.
pub(super) fn advise_delay(ctx: &Context, error: &mut ApiError) {
    let busy = matches!(error.status, 429 | 503 | 529);
    if !busy || error.retry_after.is_some() || wire_error::is_quota_exhausted(error) {
        return;
    }
    let state = ctx.attempt().and_then(|attempt| attempt.permit.as_ref()).map(|permit| permit.state());
    let now = ctx.active.billing.nanos(Instant::now());
    let left = state.map_or(0, |state| state.cooldown_until().saturating_sub(now));
    let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
    error.retry_after = Some(RetryAfter::Advised(left.max(Duration::from_secs(1))));
}

/// Returns the cooldown that the provider requests, in nanoseconds. `None` if its header cannot be parsed.
fn requested_cooldown(wait: &RetryAfter) -> Option<Nanos> {
    let span = match wait {
        RetryAfter::Header(text) => spans::retry_after(text)?,
        // The advice is derived from the cooldown.
        RetryAfter::Advised(_) => return None,
        RetryAfter::Wait(_) | RetryAfter::Window { .. } => wait.delay()?,
    };
    Nanos::try_from(span.as_nanos()).ok()
}
