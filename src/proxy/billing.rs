//! What a request cost: settled once, whatever happens, and before the end of its answer leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Gateway;
use super::context::{Context, UpstreamResponse};
use super::spent::Spending;
use crate::account::gcra::{Nanos, Remaining};
use crate::account::{Calendar, LimitGrant, LimitRegistry, UsageBound};
use crate::canonical::{Product, Usage};
use crate::error::Kind;
use crate::store::{Ledger, Reservation, Settled, StoreError, UsageRecord};
use crate::translate::CountedRequest;
use crate::wire::watch::StreamEnd;

/// How long the end of an answer waits for its charge to be confirmed. Usually that takes microseconds; where the disk
/// stands still, an end that left before could be lost to the end of the process.
const SETTLING: Duration = Duration::from_secs(10);

/// Accounting handles of the process: ledger, limit registry and clock.
pub(super) struct Billing {
    pub(super) ledger: Option<Arc<dyn Ledger>>,
    pub(super) gauges: LimitRegistry,
    pub(super) spending: Spending,
    epoch: Instant,
}

impl Billing {
    pub(super) fn new(ledger: Option<Arc<dyn Ledger>>) -> Self {
        let shared = ledger.as_ref().is_some_and(|ledger| ledger.limiter().is_some());
        let gauges = if shared { LimitRegistry::shared() } else { LimitRegistry::default() };
        Billing { ledger, gauges, spending: Spending::default(), epoch: Instant::now() }
    }

    /// A point in time as limits count it.
    pub(super) fn nanos(&self, at: Instant) -> Nanos {
        i64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(i64::MAX)
    }

    /// Forgets limits that nobody has touched for long.
    pub(super) fn sweep(&self) {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let calendar = Calendar::at(i64::try_from(unix.as_secs()).unwrap_or(i64::MAX));
        self.gauges.sweep(self.nanos(Instant::now()), &calendar);
    }
}

impl std::fmt::Debug for Billing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Till").field("gauges", &self.gauges).finish_non_exhaustive()
    }
}

/// Charges of one request: its limit grants and its reservation, until they are settled.
#[derive(Debug, Default)]
pub(super) struct RequestCharges {
    /// There is to be a record of the request, and there is none yet.
    open: bool,
    /// Of the account's balance.
    pub(super) reservation: Option<Reservation>,
    /// Of the key's limits and the account's.
    pub(super) tickets: Vec<LimitGrant>,
    /// What is left of limits, for the client to know.
    pub(super) left: Option<Box<RateLimitStatus>>,
    /// Input tokens that are expected.
    pub(super) input: u64,
    /// What was asked, where nothing was answered.
    pub(super) asked: CountedRequest,
    /// The client's own limit of an answer's output, and how many answers it wants: where that was looked at.
    pub(super) most: Option<(Option<u64>, u64)>,
    charged: Option<Box<ChargedUsage>>,
}

/// Remaining requests and tokens: the tighter of the key's and the account's limits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateLimitStatus {
    pub(super) requests: Option<Remaining>,
    pub(super) tokens: Option<Remaining>,
}

/// What a request was charged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChargedUsage {
    pub(super) usage: Usage,
    /// Nano-units.
    pub(super) cost: i64,
    /// Some of the usage was counted by the gateway.
    pub(super) counted: bool,
    /// The provider reported more than the request could have used.
    pub(super) bounded: bool,
}

impl RequestCharges {
    /// From now on the request will be recorded, however it ends.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    /// Whether the request will be recorded, and charged.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Input tokens that are expected.
    pub(super) fn expected_input(&self) -> u64 {
        self.input
    }

    /// What was charged, once that is known.
    pub(super) fn charged(&self) -> Option<&ChargedUsage> {
        self.charged.as_deref()
    }
}

impl Context {
    /// Charges the request and makes its record: once. `complete` tells an answer that has come to its end from one
    /// that will not.
    pub(super) fn settle(&mut self, complete: bool) -> Option<Settled> {
        if !std::mem::take(&mut self.charges.open) {
            return None;
        }
        let charged = self.charge(complete);
        let now = Instant::now();
        let settled = self.enter(&charged, complete, now);
        // Only what stands in the ledger is taken off what is held back of limits.
        if !self.charges.tickets.is_empty() {
            let ChargedUsage { usage, cost, .. } = charged;
            let tokens = usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
            let nanos = self.live.billing.nanos(now);
            for ticket in std::mem::take(&mut self.charges.tickets) {
                ticket.settle(nanos, tokens, cost);
            }
        }
        self.charges.charged = Some(Box::new(charged));
        settled
    }

    /// Hands the ledger the request's record.
    fn enter(&mut self, charged: &ChargedUsage, complete: bool, now: Instant) -> Option<Settled> {
        let ChargedUsage { usage, cost, counted, .. } = *charged;
        let reservation = self.charges.reservation.take();
        let ledger = self.live.billing.ledger.as_deref()?;
        let record = &self.record;
        let target = self.plan.as_ref().and_then(|plan| plan.target());
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
                provider_format: self.plan.as_ref().map_or("", |plan| plan.api.name()),
                error: record.error.map_or("", Kind::label),
                // An answer that passes has its provider's status, which the client may not have seen yet.
                status: if complete && record.status == 0 { 200 } else { record.status },
                attempts: u16::try_from(record.attempts).unwrap_or(u16::MAX),
                first_byte: record.first_content.or(record.answered).map(millis),
                total: millis(now),
                stream: record.stream,
                counted,
                usage,
                cost,
            },
        ))
    }

    /// Ends the request while what it began goes on: its limits count what it may cost. Its record is made when the
    /// rest has ended.
    pub(super) fn hand_over(&mut self, cost: i64) {
        self.charges.open = false;
        let nanos = self.live.billing.nanos(Instant::now());
        for ticket in std::mem::take(&mut self.charges.tickets) {
            ticket.settle(nanos, 0, cost);
        }
    }

    /// What the request used and costs. Nothing, if it failed: unless something was delivered, or it is the client who
    /// left while its provider was at work.
    fn charge(&mut self, complete: bool) -> ChargedUsage {
        self.put_back();
        let gone = self.record.status == 499 || self.record.error == Some(Kind::ClientGone);
        let Some(plan) = &self.plan else { return ChargedUsage::default() };
        let (usage, counted) = match &mut self.answer {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => {
                let exchange = &mut passing.exchange;
                // A stream that passed to its end may have ended in its provider's error.
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
            UpstreamResponse::Pending if gone && self.record.said => {
                let input =
                    self.charges.asked.tokens(plan.lane.family, plan.api.format(), self.charges.input);
                (Usage { input: Some(input), output: Some(0), ..Usage::default() }, true)
            }
            UpstreamResponse::Pending | UpstreamResponse::Refused { .. } | UpstreamResponse::Done => {
                return ChargedUsage::default();
            }
        };
        let meter = self.passing().map(|passing| passing.exchange.meter());
        let possible = UsageBound {
            request_bytes: self.record.request_bytes.max(plan.body_len as u64),
            response_bytes: self.record.response_bytes.max(meter.map_or(0, |meter| meter.whole_bytes())),
            limit: self.charges.most.and_then(|(limit, _)| limit),
            answers: self.charges.most.map(|(_, answers)| answers),
        };
        let bounded = possible.bound(&usage, || meter.is_some_and(|meter| meter.is_whole()));
        if let Some(bounded) = &bounded {
            let (request, model) = (self.id.as_str(), &*plan.model.id);
            let provider = plan.target().map_or("", |target| &*target.provider.name);
            let (reported, charged) = (beyond(&usage), beyond(bounded));
            tracing::error!(
                request,
                model,
                provider,
                ?reported,
                ?charged,
                "a provider reported more usage than the request could have had; it is charged within bounds"
            );
        }
        let charged = bounded.unwrap_or(usage);
        let made: &[Product] = match &self.answer {
            UpstreamResponse::Synthesized(made) => &made.products,
            _ => &[],
        };
        let cost = plan.model.price.cost(&charged, made);
        ChargedUsage { usage: charged, cost, counted, bounded: bounded.is_some() }
    }
}

/// The figures of a report that are named in the log: input, output and searches.
fn beyond(usage: &Usage) -> [Option<u64>; 3] {
    [usage.input, usage.output, usage.searches]
}

/// A request that nobody ended, because its task was: it is recorded all the same.
impl Drop for Context {
    fn drop(&mut self) {
        if self.charges.open {
            if self.record.status == 0 || self.kept {
                self.record.status = 499;
            }
            // Nobody waits for it; the ledger does what it can.
            let _ = self.settle(false);
        }
    }
}

impl Gateway {
    /// Whether the end of the answer is about to leave. A whole answer is noted when it is complete; in a stream the
    /// end may stand before that of the body.
    pub(super) fn ends_here(&self, ctx: &Context, end: bool) -> bool {
        let terminated = |passing: &super::context::ResponseInProgress| {
            end || (ctx.record.stream && passing.exchange.meter().end() == StreamEnd::Terminated)
        };
        ctx.passing().is_some_and(terminated)
    }

    /// Settles an answer whose end is about to leave: its last frame, or the end of the body.
    pub(super) fn settle_at_end(&self, ctx: &mut Context, end: bool) -> Option<Settled> {
        if !self.ends_here(ctx, end) {
            return None;
        }
        self.remember_home(ctx);
        ctx.settle(true)
    }

    /// Settles a request that ends otherwise than with a complete answer, before its client is told so.
    pub(super) async fn settle_cut(&self, ctx: &mut Context) {
        match ctx.settle(false) {
            None => {}
            Some(Settled::Known(outcome)) => self.settled(ctx, outcome),
            Some(pending) => Box::pin(self.settling(ctx, pending)).await,
        }
    }

    /// Waits for a settlement. That it is not confirmed is no reason for the client not to get its answer.
    pub(super) async fn settling(&self, ctx: &Context, settled: Settled) {
        let outcome = settled.within(SETTLING).await;
        self.settled(ctx, outcome);
    }

    /// Takes note of a settlement that nobody waits for.
    pub(super) fn settled_behind(&self, ctx: &Context, settled: Settled) {
        match settled {
            Settled::Known(outcome) => self.settled(ctx, outcome),
            Settled::Pending(pending) => {
                let (gateway, request) = (self.clone(), ctx.id.clone());
                tokio::spawn(async move {
                    let outcome = pending.within(SETTLING).await;
                    gateway.note_settled(request.as_str(), outcome);
                });
            }
        }
    }

    /// Takes note of a settlement that failed.
    pub(super) fn settled(&self, ctx: &Context, outcome: Result<(), StoreError>) {
        self.note_settled(ctx.id.as_str(), outcome);
    }

    fn note_settled(&self, request: &str, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            self.metrics.ledger_failures.with_label_values(&["settle", error.label()]).inc();
            tracing::error!(%error, request, "a charge is not confirmed; the client has its answer nevertheless");
        }
    }
}
