//! What the gateway notes of a target's failure: in the request's record, in metrics, and in the target's breaker.

use std::time::Instant;

use super::context::Context;
use super::fallback::chance;
use super::{Gateway, spans};
use crate::error::{ApiError, RetryAfter, Source};
use crate::route::Nanos;
use crate::route::blame::Blame;
use crate::route::target_handle::BreakerChange;

impl Gateway {
    /// Notes that a target failed that the client will not hear of.
    pub(super) fn note_fallback(&self, ctx: &mut Context, error: &ApiError, status: Option<u16>) {
        let row = error.kind.row();
        let Some(target) = ctx.plan.as_ref().and_then(|plan| plan.target()) else { return };
        if row.source == Source::Upstream {
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

    /// Takes note of whose fault a failure is.
    pub(super) fn blame(&self, ctx: &mut Context, blame: Blame, error: &ApiError) {
        let now = ctx.live.billing.nanos(Instant::now());
        let Some(plan) = &mut ctx.plan else { return };
        let Some(permit) = plan.permit.take() else { return };
        let Some(target) = plan.target() else { return };
        let wait = error.retry_after.as_ref().and_then(wait_of);
        let rules = plan.model.routing.breaker;
        let changed = permit.failed(blame, wait, now, &rules, chance());
        let (provider, model) = (&*target.provider.name, &*target.model);
        let reason = match changed {
            BreakerChange::Nothing => return,
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
                "the provider refuses the gateway's credential: it is left alone"
            );
        } else {
            tracing::warn!(provider, model, kind, scope = reason, "left alone after too many failures");
        }
    }
}

/// How long the provider asks to be left alone, in nanoseconds. `None` if its header cannot be read.
fn wait_of(wait: &RetryAfter) -> Option<Nanos> {
    let span = match wait {
        RetryAfter::Wait(span) => *span,
        RetryAfter::Header(text) => spans::retry_after(text)?,
    };
    Nanos::try_from(span.as_nanos()).ok()
}
