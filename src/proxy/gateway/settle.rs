//! Settlement: charges a request exactly once, whatever its outcome, and before the end of its response is sent.
//!
//! Usage comes from the response's meter, prices from `account`.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::{Duration, Instant};

use super::billing::{Accounting, ChargedUsage, RequestCharges};
use super::context::Context;
use super::phase::UpstreamResponse;
use super::response_in_progress::{ResponseInProgress, SynthesizedResponse};
use crate::Gateway;
use codec::canonical::{Product, Usage};
use codec::error::ErrorKind;
use codec::wire::watch::StreamEnd;
use driver::provider_socket::steering::SteerInbox;
use routing::account::UsageBound;
use storage::ledger::wal::PendingWrite;
use storage::ledger::{Settled, UsageRecord};
use storage::store::StoreError;

/// Longest time for which the end of a response waits for the confirmation of its charge. Usually that takes
/// microseconds. If the disk stalls and the end were sent before, the charge could be lost when the process ends.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a request ends, for its charge.
#[derive(Clone, Copy)]
pub(crate) enum Completion<'r> {
    /// The end of the response is about to be sent.
    Complete,
    /// The end of the response will not be sent.
    Incomplete,
    /// A response that the gateway has made itself is about to be sent.
    Synthesized(&'r SynthesizedResponse),
}

/// Settlement of a request: the caller waits for its confirmation, reports that in the background, or drops it.
#[must_use = "a failed charge must be reported"]
pub(crate) struct Settlement(Option<Settled>);

impl Settlement {
    /// Nothing is settled.
    const NONE: Settlement = Settlement(None);
}

impl Context {
    /// Charges the request and writes its usage record. Every end of a request comes here; only the first call finds
    /// charges, and has an effect.
    pub(crate) fn settle(&mut self, completion: Completion<'_>) -> Settlement {
        if let (Completion::Complete, Some(attempt)) = (completion, self.attempt_mut())
            && let Some(permit) = &mut attempt.permit
        {
            // The client may send its next request as soon as it has the end, before this one is finished here.
            permit.release_place();
        }
        let Some(charges) = self.take_charges() else { return Settlement::NONE };
        let charged = self.charge(&charges, completion);
        let now = Instant::now();
        let settled =
            charges.settle(&self.active.billing, &self.usage_record(&charged, completion, now), now);
        if let Some(identity) = self.phase.identity_mut() {
            identity.accounting = Accounting::Settled(Box::new(charged));
        }
        Settlement(settled)
    }

    /// Takes the charges out, to settle them or to transfer them to a task. `None` for a request that is free or
    /// settled.
    fn take_charges(&mut self) -> Option<RequestCharges> {
        self.phase.identity_mut().and_then(|identity| identity.accounting.take())
    }

    /// Returns the usage record of the request.
    fn usage_record(
        &self,
        charged: &ChargedUsage,
        completion: Completion<'_>,
        now: Instant,
    ) -> UsageRecord<'_> {
        let ChargedUsage { usage, cost, counted, cache, tier, .. } = *charged;
        let record = &self.record;
        let target = self.target();
        let millis = |at: Instant| {
            u32::try_from(at.saturating_duration_since(record.started).as_millis()).unwrap_or(u32::MAX)
        };
        let key = self.key();
        let complete = !matches!(completion, Completion::Incomplete);
        UsageRecord {
            time: i64::try_from(record.unix_millis).unwrap_or(i64::MAX),
            request: self.id.as_str(),
            account: key.and_then(|key| Some(&*key.account.as_ref()?.name)).unwrap_or_default(),
            key: key.map(|key| &*key.name).unwrap_or_default(),
            model: record.model.as_deref().unwrap_or_default(),
            provider: target.map(|target| &*target.provider.name).unwrap_or_default(),
            target: target.map(|target| &*target.model).unwrap_or_default(),
            endpoint: self.endpoint().map_or("", |endpoint| endpoint.label()),
            client_format: self.format.name(),
            provider_format: self.attempt().map_or("", |plan| plan.api.name()),
            error: record.error.map_or("", ErrorKind::label),
            // A document is settled before its head is sent: status 0 then stands for the 200 that follows.
            status: if complete && record.status == 0 { 200 } else { record.status },
            attempts: u16::try_from(record.attempts).unwrap_or(u16::MAX),
            first_byte: record.first_content.or(record.head_received_at).map(millis),
            total: millis(now),
            stream: record.stream,
            counted,
            tier,
            charge_id: "",
            usage,
            cost,
            cache_saved: cache.saved,
            cache_surcharge: cache.surcharge,
        }
    }

    /// Ends the accounting of a request whose task continues at the provider. `cost` is the possible cost in nano-units.
    pub(crate) fn transfer_to_task(&mut self, cost: i64) {
        if let Some(charges) = self.take_charges() {
            charges.transfer_to_task(&self.active.billing, cost);
        }
    }

    /// Computes usage and cost of the request. A failed request costs nothing, unless part of a response was delivered
    /// or the client left while the provider was working.
    fn charge(&mut self, charges: &RequestCharges, completion: Completion<'_>) -> ChargedUsage {
        // What was delivered before a break is charged, although no target has continued it.
        self.restore_suspended();
        let gone = self.record.status == 499 || self.record.error == Some(ErrorKind::ClientGone);
        if let Completion::Synthesized(made) = completion {
            return self.bounded_charge(charges, made.usage, made.counted, &made.products);
        }
        let (usage, counted) = match self.phase.response_mut() {
            Some(UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _)) => {
                let exchange = &mut passing.exchange;
                let end = exchange.meter().end();
                if exchange.meter().is_broken_off() && !exchange.has_delivered() {
                    return ChargedUsage::default();
                }
                // A stream that was forwarded to its end may have ended with an error frame of the provider. One that broke
                // off behind its last frame is a steered response without its successor.
                if end == StreamEnd::Terminated
                    || (matches!(completion, Completion::Complete) && end != StreamEnd::Failed)
                {
                    exchange.complete();
                } else if gone {
                    exchange.cut();
                } else if exchange.has_delivered() {
                    // The provider broke off: what it wrote beyond the request is its own fault. Of a client that leaves,
                    // all that it was sent is counted: its limit may be one that the provider ignores.
                    exchange.cut_within(charges.asked_output.unwrap_or(u64::MAX));
                } else {
                    return ChargedUsage::default();
                }
                (exchange.usage(), exchange.is_counted())
            }
            // The provider works on the request and charges at least its input, although the client left.
            None if gone && self.record.request_sent => {
                let Some(attempt) = self.attempt() else { return ChargedUsage::default() };
                let (family, format) = (attempt.upstream_route.family, attempt.api.format());
                let input = charges.counted_request.tokens(family, format, self.expected_input());
                (Usage { input: Some(input), output: Some(0), ..Usage::default() }, true)
            }
            Some(UpstreamResponse::Refused { .. }) | None => return ChargedUsage::default(),
        };
        self.bounded_charge(charges, usage, counted, &[])
    }

    /// Computes the charge of this usage and these products, limited to what the sizes and limits of the request allow.
    fn bounded_charge(
        &self,
        charges: &RequestCharges,
        usage: Usage,
        counted: bool,
        products: &[Product],
    ) -> ChargedUsage {
        let Some(plan) = self.attempt() else { return ChargedUsage::default() };
        let meter = self.response_in_progress().map(|passing| passing.exchange.meter());
        let possible = UsageBound {
            request_bytes: self.record.request_bytes.max(plan.body_len as u64),
            response_bytes: self.record.response_bytes.max(meter.map_or(0, |meter| meter.whole_bytes())),
            limit: charges.output_limit.and_then(|(limit, _)| limit),
            responses: charges
                .output_limit
                .map(|(_, answers)| answers.saturating_add(meter.map_or(0, |meter| meter.steered()))),
        };
        // A provider's report may be wrong: no charge exceeds what the sizes and limits of the request allow.
        let bounded = possible.bound(
            &usage,
            || meter.is_some_and(|meter| meter.is_whole()),
            || match meter {
                Some(meter) => meter.count_all().map(Some),
                None => [Some(self.expected_input()), None],
            },
        );
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
                "a provider reported more usage than the request allows; the gateway's own count is charged"
            );
        }
        let counted = counted || bounded.is_some();
        let charged = bounded.unwrap_or(usage);
        let price = plan.model.price_at(plan.target);
        let terms = self.terms(plan.target(), &charged);
        let (cost, cache) = (price.cost(&charged, products, &terms), price.cache_effect(&charged, &terms));
        let tier = terms.tier;
        let is_unpriced = tier.may_be_dearer() && !price.is_empty() && !price.has_tier(tier, terms.at);
        let bounded = bounded.is_some();
        ChargedUsage { usage: charged, cost, cache, counted, bounded, tier, has_unpriced_tier: is_unpriced }
    }
}

/// Returns the figures of a report for the log: input, output and searches.
fn reported_figures(usage: &Usage) -> [Option<u64>; 3] {
    [usage.input, usage.output, usage.searches]
}

/// Records a request whose task was dropped before it was settled.
impl Drop for Context {
    fn drop(&mut self) {
        if self.phase.identity().is_some_and(|identity| identity.accounting.is_open()) {
            if self.record.status == 0 || self.record.early_head_only {
                self.record.status = 499;
            }
            // A destructor cannot await the outcome.
            let _ = self.settle(Completion::Incomplete);
        }
    }
}

impl Gateway {
    /// Whether the end of the response is about to be sent. In a stream the last frame may precede the end of the body.
    pub(crate) fn is_final_piece(&self, ctx: &Context, end: bool) -> bool {
        let terminated = |passing: &ResponseInProgress| {
            let is_terminated = ctx.record.stream && passing.exchange.meter().end() == StreamEnd::Terminated;
            // A steered response may have a successor, which the type of its last event does not tell.
            end || (is_terminated && !ctx.origin.inbox().is_some_and(SteerInbox::is_used))
        };
        ctx.response_in_progress().is_some_and(terminated)
    }

    /// Settles a response whose end is about to be sent: its last frame, or the end of the body. Settles nothing before.
    pub(crate) fn settle_at_end(&self, ctx: &mut Context, end: bool) -> Settlement {
        if !self.is_final_piece(ctx, end) {
            return Settlement::NONE;
        }
        // Before the end leaves: the client may continue the response at once, which must reach the same target.
        self.record_sticky(ctx);
        self.note_failure(ctx);
        ctx.settle(Completion::Complete)
    }

    /// Settles a request and waits for the confirmation, before its client receives the end of the response or the
    /// error. Without a confirmation the client gets its response nevertheless.
    pub(crate) async fn settle(&self, ctx: &mut Context, completion: Completion<'_>) {
        let settlement = ctx.settle(completion);
        if let Some(pending) = self.unconfirmed(ctx, settlement) {
            // Boxed: few settlements have to be waited for.
            Box::pin(self.await_settlement(ctx, pending)).await;
        }
    }

    /// Returns a settlement that is still being written. Reports one whose outcome is known.
    pub(crate) fn unconfirmed(&self, ctx: &Context, settlement: Settlement) -> Option<PendingWrite> {
        match settlement.0? {
            Settled::Known(outcome) => {
                self.report_settlement(ctx.id.as_str(), outcome);
                None
            }
            Settled::Pending(pending) => Some(pending),
        }
    }

    /// Waits for the confirmation of a settlement.
    pub(crate) async fn await_settlement(&self, ctx: &Context, pending: PendingWrite) {
        let outcome = pending.within(SETTLE_TIMEOUT).await;
        self.report_settlement(ctx.id.as_str(), outcome);
    }

    /// Settles a request that is over, without waiting for the confirmation.
    pub(crate) fn settle_in_background(&self, ctx: &mut Context) {
        let settlement = ctx.settle(Completion::Incomplete);
        if let Some(pending) = self.unconfirmed(ctx, settlement) {
            let (gateway, request) = (self.clone(), ctx.id.clone());
            // The connection need not wait, but a charge that fails must be reported.
            tokio::spawn(async move {
                let outcome = pending.within(SETTLE_TIMEOUT).await;
                gateway.report_settlement(request.as_str(), outcome);
            });
        }
    }

    /// Counts and logs a settlement that failed.
    fn report_settlement(&self, request: &str, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            self.metrics.ledger_failures.with_label_values(&["settle", error.label()]).inc();
            tracing::error!(%error, request, "a charge is not confirmed; the client has received its response");
        }
    }
}
