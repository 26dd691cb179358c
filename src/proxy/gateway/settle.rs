//! Settlement: charges a request exactly once, whatever its outcome, and before the end of its response is sent.
//!
//! Usage comes from the response's meter, prices from `account`.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::{Duration, Instant};

use super::billing::ChargedUsage;
use super::context::{Context, ResponseInProgress, UpstreamResponse};
use crate::account::UsageBound;
use crate::canonical::{Product, Usage};
use crate::error::ErrorKind;
use crate::ledger::{Settled, UsageRecord};
use crate::proxy::Gateway;
use crate::store::StoreError;
use crate::wire::watch::StreamEnd;

/// Longest time for which the end of a response waits for the confirmation of its charge. Usually that takes
/// microseconds. If the disk stalls and the end were sent before, the charge could be lost when the process ends.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

impl Context {
    /// Charges the request and writes its usage record; only the first call has an effect. `complete` is false for a
    /// response that will not reach its end. `None` if the request is settled already or has no ledger.
    pub(in crate::proxy) fn settle(&mut self, complete: bool) -> Option<Settled> {
        if !std::mem::take(&mut self.charges.open) {
            return None;
        }
        let charged = self.charge(complete);
        let now = Instant::now();
        let settled = self.settle_reservation(&charged, complete, now);
        // The ledger gets the record first: if the limits released their estimates before, the spend would count
        // nowhere in between.
        if !self.charges.grants.is_empty() {
            let ChargedUsage { usage, cost, .. } = charged;
            let tokens = usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
            let nanos = self.active.billing.nanos(now);
            for ticket in std::mem::take(&mut self.charges.grants) {
                ticket.settle(nanos, tokens, cost);
            }
        }
        self.charges.charged = Some(Box::new(charged));
        settled
    }

    /// Settles the reservation with the request's usage record. `None` without a ledger.
    fn settle_reservation(
        &mut self,
        charged: &ChargedUsage,
        complete: bool,
        now: Instant,
    ) -> Option<Settled> {
        let ChargedUsage { usage, cost, counted, .. } = *charged;
        let reservation = self.charges.reservation.take();
        let ledger = self.active.billing.ledger.as_deref()?;
        let record = &self.record;
        let target = self.attempt.as_ref().and_then(|plan| plan.target());
        let millis = |at: Instant| {
            u32::try_from(at.saturating_duration_since(record.started).as_millis()).unwrap_or(u32::MAX)
        };
        let key = self.key.as_ref();
        Some(ledger.settle(
            reservation,
            &UsageRecord {
                time: i64::try_from(record.unix_millis).unwrap_or(i64::MAX),
                request: self.id.as_str(),
                account: key.and_then(|key| Some(&*key.account.as_ref()?.name)).unwrap_or_default(),
                key: key.map(|key| &*key.name).unwrap_or_default(),
                model: record.model.as_deref().unwrap_or_default(),
                provider: target.map(|target| &*target.provider.name).unwrap_or_default(),
                target: target.map(|target| &*target.model).unwrap_or_default(),
                endpoint: self.endpoint.as_ref().map_or("", |endpoint| endpoint.label()),
                client_format: self.format.name(),
                provider_format: self.attempt.as_ref().map_or("", |plan| plan.api.name()),
                error: record.error.map_or("", ErrorKind::label),
                // A document is settled before its head is sent: status 0 then stands for the 200 that follows.
                status: if complete && record.status == 0 { 200 } else { record.status },
                attempts: u16::try_from(record.attempts).unwrap_or(u16::MAX),
                first_byte: record.first_content.or(record.head_received_at).map(millis),
                total: millis(now),
                stream: record.stream,
                counted,
                charge_id: "",
                usage,
                cost,
            },
        ))
    }

    /// Ends the accounting of a request whose task continues at the provider: its limits count the possible cost. The
    /// usage record is written when the task has ended.
    pub(in crate::proxy) fn transfer_to_task(&mut self, cost: i64) {
        self.charges.open = false;
        let nanos = self.active.billing.nanos(Instant::now());
        for ticket in std::mem::take(&mut self.charges.grants) {
            ticket.settle(nanos, 0, cost);
        }
    }

    /// Computes usage and cost of the request. A failed request costs nothing, unless part of a response was delivered
    /// or the client left while the provider was working.
    fn charge(&mut self, complete: bool) -> ChargedUsage {
        self.restore_suspended();
        let gone = self.record.status == 499 || self.record.error == Some(ErrorKind::ClientGone);
        let Some(plan) = &self.attempt else { return ChargedUsage::default() };
        let (usage, counted) = match &mut self.response {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => {
                let exchange = &mut passing.exchange;
                // A stream that was forwarded to its end may have ended with an error frame of the provider.
                if complete && exchange.meter().end() != StreamEnd::Failed {
                    exchange.complete();
                } else if gone || exchange.has_delivered() {
                    exchange.cut();
                } else {
                    return ChargedUsage::default();
                }
                (exchange.usage(), exchange.is_counted())
            }
            UpstreamResponse::Synthesized(made) => (made.usage, made.counted),
            // The provider works on the request and charges at least its input, although the client left.
            UpstreamResponse::Pending if gone && self.record.request_sent => {
                let input = self.charges.counted_request.tokens(
                    plan.upstream_route.family,
                    plan.api.format(),
                    self.charges.input,
                );
                (Usage { input: Some(input), output: Some(0), ..Usage::default() }, true)
            }
            UpstreamResponse::Pending | UpstreamResponse::Refused { .. } | UpstreamResponse::Done => {
                return ChargedUsage::default();
            }
        };
        let meter = self.response_in_progress().map(|passing| passing.exchange.meter());
        let possible = UsageBound {
            request_bytes: self.record.request_bytes.max(plan.body_len as u64),
            response_bytes: self.record.response_bytes.max(meter.map_or(0, |meter| meter.whole_bytes())),
            limit: self.charges.output_limit.and_then(|(limit, _)| limit),
            responses: self.charges.output_limit.map(|(_, answers)| answers),
        };
        // A provider's report may be wrong: no charge exceeds what the sizes and limits of the request allow.
        let bounded = possible.bound(&usage, || meter.is_some_and(|meter| meter.is_whole()));
        if let Some(bounded) = &bounded {
            let (request, model) = (self.id.as_str(), &*plan.model.id);
            let provider = plan.target().map_or("", |target| &*target.provider.name);
            let (reported, charged) = (reported_figures(&usage), reported_figures(bounded));
            tracing::error!(
                request,
                model,
                provider,
                ?reported,
                ?charged,
                "a provider reported more usage than the request allows; the charge is limited to the maximum"
            );
        }
        let charged = bounded.unwrap_or(usage);
        let made: &[Product] = match &self.response {
            UpstreamResponse::Synthesized(made) => &made.products,
            _ => &[],
        };
        let cost = plan.model.price.cost(&charged, made);
        ChargedUsage { usage: charged, cost, counted, bounded: bounded.is_some() }
    }
}

/// Returns the figures of a report for the log: input, output and searches.
fn reported_figures(usage: &Usage) -> [Option<u64>; 3] {
    [usage.input, usage.output, usage.searches]
}

/// Records a request whose task was dropped before it was settled.
impl Drop for Context {
    fn drop(&mut self) {
        if self.charges.open {
            if self.record.status == 0 || self.record.early_head_only {
                self.record.status = 499;
            }
            // A destructor cannot await the outcome.
            let _ = self.settle(false);
        }
    }
}

impl Gateway {
    /// Whether the end of the response is about to be sent. In a stream the last frame may precede the end of the body.
    pub(in crate::proxy) fn is_final_piece(&self, ctx: &Context, end: bool) -> bool {
        let terminated = |passing: &ResponseInProgress| {
            end || (ctx.record.stream && passing.exchange.meter().end() == StreamEnd::Terminated)
        };
        ctx.response_in_progress().is_some_and(terminated)
    }

    /// Settles a response whose end is about to be sent: its last frame, or the end of the body. `None` if it is not,
    /// or nothing is to be confirmed.
    pub(in crate::proxy) fn settle_at_end(&self, ctx: &mut Context, end: bool) -> Option<Settled> {
        if !self.is_final_piece(ctx, end) {
            return None;
        }
        self.record_sticky(ctx);
        ctx.settle(true)
    }

    /// Settles a request that ends without a complete response, before its client receives the error.
    pub(in crate::proxy) async fn settle_incomplete(&self, ctx: &mut Context) {
        match ctx.settle(false) {
            None => {}
            Some(Settled::Known(outcome)) => self.count_settlement(ctx, outcome),
            Some(pending) => Box::pin(self.await_settlement(ctx, pending)).await,
        }
    }

    /// Waits for the confirmation of a settlement. Without one the client gets its response nevertheless.
    pub(in crate::proxy) async fn await_settlement(&self, ctx: &Context, settled: Settled) {
        let outcome = settled.within(SETTLE_TIMEOUT).await;
        self.count_settlement(ctx, outcome);
    }

    /// Reports the outcome of a settlement without delaying the request.
    pub(in crate::proxy) fn settle_in_background(&self, ctx: &Context, settled: Settled) {
        match settled {
            Settled::Known(outcome) => self.count_settlement(ctx, outcome),
            Settled::Pending(pending) => {
                let (gateway, request) = (self.clone(), ctx.id.clone());
                tokio::spawn(async move {
                    let outcome = pending.within(SETTLE_TIMEOUT).await;
                    gateway.report_settlement(request.as_str(), outcome);
                });
            }
        }
    }

    /// Counts and logs a settlement that failed.
    pub(in crate::proxy) fn count_settlement(&self, ctx: &Context, outcome: Result<(), StoreError>) {
        self.report_settlement(ctx.id.as_str(), outcome);
    }

    fn report_settlement(&self, request: &str, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            self.metrics.ledger_failures.with_label_values(&["settle", error.label()]).inc();
            tracing::error!(%error, request, "a charge is not confirmed; the client has received its response");
        }
    }
}
