//! Whether a request may be made: limits of its key and account, and the balance that it will be charged to.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::billing::{RateLimitStatus, RequestCharges};
use super::context::Context;
use super::{Gateway, names};
use crate::account::gcra::Remaining;
use crate::account::limit::{LimitRequest, Which};
use crate::account::quota_lease::Denied;
use crate::account::{
    Amount, Calendar, Exceeded, ExpectedUsage, Key, LimitState, Price, Scope, UsageLimits, estimate,
};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::store::{AccountId, ReserveError, ReserveOutcome, Whose};
use crate::wire::request::Body;
use crate::wire::{Format, models};

/// How long a request waits for its reservation.
const RESERVING: Duration = Duration::from_secs(2);

/// Whose limits, and how much of them is taken.
type Limited<'l> = (Scope, &'l Arc<str>, &'l UsageLimits, &'l Arc<LimitState>);

impl Context {
    /// Whether anything is taken for the request before it is made: it costs something, and somebody has limits, or
    /// pays.
    pub(super) fn is_held(&self) -> bool {
        let limited = |key: &Arc<Key>| key.account.is_some() || !key.rules.limits.is_empty();
        self.charges.is_open() && self.key.as_ref().is_some_and(limited)
    }
}

impl Gateway {
    /// Lets a request in: takes its place in the limits and holds what it may cost. What is taken is given back when
    /// the request ends, whatever happens.
    pub(super) async fn admit(
        &self,
        ctx: &mut Context,
        price: &Price,
        body: &mut Body,
    ) -> Result<(), ApiError> {
        if let Some(request) = &body.image {
            let (made, input) = super::images::expected(request);
            let expected = ExpectedUsage { input, made: &[made], ..ExpectedUsage::default() };
            return self.hold(ctx, price, &expected).await;
        }
        let mut expected =
            ExpectedUsage { input: estimate::body(body.text.pieces()), ..ExpectedUsage::default() };
        if ctx.is_held() {
            let most = body.most();
            expected.output = most.output;
            expected.unsure = most.unsure;
            expected.answers = most.answers.unwrap_or(1);
            expected.dear = price.dear().in_body(body.text.pieces());
        }
        self.hold(ctx, price, &expected).await
    }

    /// The same for a request of which it is known what is expected of it.
    pub(super) async fn hold(
        &self,
        ctx: &mut Context,
        price: &Price,
        expected: &ExpectedUsage<'_>,
    ) -> Result<(), ApiError> {
        ctx.charges.input = expected.input;
        ctx.charges.most = ctx.is_held().then(|| {
            let unsure = Some(expected.unsure).filter(|unsure| *unsure > 0);
            (expected.output.max(unsure), expected.answers)
        });
        let Some(key) = ctx.key.clone().filter(|_| ctx.is_held()) else { return Ok(()) };
        let account = key.account.as_deref();
        let limits = &key.rules.limits;
        let cost = price.estimate(expected);
        let gauges = &self.billing.gauges;
        let mut limited: SmallVec<[Limited<'_>; 2]> = SmallVec::new();
        if !limits.is_empty() {
            limited.push((Scope::Key, &key.name, limits, key.gauge(gauges)));
        }
        if let Some(account) = account.filter(|account| !account.limits().is_empty()) {
            limited.push((Scope::Account, &account.name, account.limits(), account.gauge(gauges)));
        }
        if !limited.is_empty() {
            let ask = LimitRequest {
                now: self.billing.nanos(std::time::Instant::now()),
                calendar: Calendar::at(ctx.now()),
                tokens: expected.of_minute(),
                cost,
            };
            // Boxed: hardly any request has to wait for what was spent before.
            if limited.iter().any(|(_, _, limits, gauge)| limits.has_spend() && gauge.wants_spend()) {
                Box::pin(self.know_spent(ctx, &limited, &ask.calendar)).await?;
            }
            match self.take(ctx, &limited, &ask) {
                Some((_, Denied::NeedsCoordinator)) => {
                    Box::pin(self.take_shared(ctx, &limited, &ask)).await?
                }
                refused => self.place_taken(ctx, &limited, &ask, refused)?,
            }
        }
        let Some(account) = account else { return Ok(()) };
        let held = match (&self.billing.ledger, AccountId::shared(&account.name)) {
            (Some(ledger), Some(id)) => ledger.reserve(&id, cost),
            _ => ReserveOutcome::Known(Err(ReserveError::Unavailable)),
        };
        let held = match held {
            ReserveOutcome::Known(held) => held,
            pending => Box::pin(pending.within(RESERVING)).await,
        };
        match held {
            Ok(reservation) => ctx.charges.reservation = Some(reservation),
            Err(refused) => {
                // It never began.
                ctx.charges.tickets.drain(..).for_each(crate::account::LimitGrant::undo);
                return Err(self.unpaid(ctx, refused, cost));
            }
        }
        Ok(())
    }

    /// Takes the request's place in all limits, or in none: says whose limit lacks what.
    fn take(
        &self,
        ctx: &mut Context,
        limited: &[Limited<'_>],
        ask: &LimitRequest,
    ) -> Option<(Scope, Denied)> {
        for (scope, _, limits, gauge) in limited {
            match gauge.admit(limits, ask) {
                Ok(ticket) => ctx.charges.tickets.push(ticket),
                Err(lack) => {
                    ctx.charges.tickets.drain(..).for_each(crate::account::LimitGrant::undo);
                    return Some((*scope, lack));
                }
            }
        }
        None
    }

    /// The same, where gateways share the limits and this one has not enough of them in hand.
    async fn take_shared(
        &self,
        ctx: &mut Context,
        limited: &[Limited<'_>],
        ask: &LimitRequest,
    ) -> Result<(), ApiError> {
        let limiter = self.billing.ledger.as_ref().and_then(|ledger| ledger.limiter());
        let payer = ctx.key.as_ref().and_then(|key| key.account.as_ref()).map(|account| account.name.clone());
        for (scope, name, limits, gauge) in limited {
            let mut taken = gauge.admit(limits, ask);
            if let (Err(Denied::NeedsCoordinator), Some(limiter)) = (&taken, limiter) {
                let account = payer.clone().unwrap_or_default();
                let whose = Whose { account, key: (*scope == Scope::Key).then(|| (*name).clone()) };
                let asked = limiter.take(whose, gauge, limits, ask);
                taken = match tokio::time::timeout(RESERVING, asked).await {
                    Ok(Ok(taken)) => taken,
                    Ok(Err(_)) | Err(_) => Err(Denied::CoordinatorDown),
                };
            }
            match taken {
                Ok(ticket) => ctx.charges.tickets.push(ticket),
                Err(lack) => {
                    ctx.charges.tickets.drain(..).for_each(crate::account::LimitGrant::undo);
                    return self.place_taken(ctx, limited, ask, Some((*scope, lack)));
                }
            }
        }
        self.place_taken(ctx, limited, ask, None)
    }

    /// Notes what is left of the limits, and says why the request is refused, if it is.
    fn place_taken(
        &self,
        ctx: &mut Context,
        limited: &[Limited<'_>],
        ask: &LimitRequest,
        refused: Option<(Scope, Denied)>,
    ) -> Result<(), ApiError> {
        let mut lefts = RateLimitStatus::default();
        for (_, _, limits, gauge) in limited {
            let (requests, tokens) = gauge.left(limits, ask.now);
            lefts.requests = tighter(lefts.requests, requests);
            lefts.tokens = tighter(lefts.tokens, tokens);
        }
        if lefts.requests.is_some() || lefts.tokens.is_some() {
            ctx.charges.left = Some(Box::new(lefts));
        }
        match refused {
            None => Ok(()),
            Some((scope, Denied::LimitReached(exceeded))) => {
                let labels = [scope.name(), exceeded.which.name()];
                self.metrics.limit_refusals.with_label_values(&labels).inc();
                Err(refusal(scope, &exceeded, ask.cost, ctx.format))
            }
            Some((_, Denied::NeedsCoordinator | Denied::CoordinatorDown)) => {
                self.metrics.ledger_failures.with_label_values(&["limit", "unavailable"]).inc();
                Err(unavailable())
            }
        }
    }

    /// Account check for requests without a reservation: refuses a disabled and an unknown account. An unavailable
    /// ledger refuses nothing here.
    pub(super) async fn check_account(&self, ctx: &Context) -> Result<(), ApiError> {
        let account = ctx.key.as_ref().and_then(|key| key.account.as_ref());
        let id = account.and_then(|account| AccountId::shared(&account.name));
        let (Some(ledger), Some(id)) = (&self.billing.ledger, id) else { return Ok(()) };
        match ledger.reserve(&id, 0).within(RESERVING).await {
            Err(refused @ (ReserveError::UnknownAccount | ReserveError::Disabled)) => {
                Err(self.unpaid(ctx, refused, 0))
            }
            _ => Ok(()),
        }
    }

    /// Why nothing could be held.
    fn unpaid(&self, ctx: &Context, refused: ReserveError, cost: i64) -> ApiError {
        match refused {
            ReserveError::UnknownAccount => {
                ApiError::new(Kind::UnknownAccount, "The account of this API key does not exist.")
            }
            ReserveError::Disabled => {
                ApiError::new(Kind::DisabledAccount, "The account of this API key is disabled.")
            }
            ReserveError::Empty { available } => {
                self.metrics.limit_refusals.with_label_values(&["account", "balance"]).inc();
                let message = format!(
                    "The balance of your account is too low: this request may cost {}, and {} is available. Add \
                     credit and try again.",
                    Amount(cost),
                    Amount(available.max(0))
                );
                billing(Kind::EmptyBalance, message, ctx.format)
            }
            ReserveError::Unavailable => {
                self.metrics.ledger_failures.with_label_values(&["reserve", refused.label()]).inc();
                unavailable()
            }
        }
    }
}

pub(super) fn unavailable() -> ApiError {
    ApiError::new(Kind::LedgerUnavailable, "Balances cannot be checked at the moment; please try again.")
        .retry_after(Some(RetryAfter::Wait(Duration::from_secs(1))))
}

/// The messages format has a status of its own for what only money can mend.
fn billing(kind: Kind, message: String, format: Format) -> ApiError {
    let error = ApiError::new(kind, message);
    if format == Format::Messages { error.status(402) } else { error }
}

fn refusal(scope: Scope, exceeded: &Exceeded, cost: i64, format: Format) -> ApiError {
    let (whose, limit) = (scope.name(), exceeded.limit);
    let error = match (exceeded.which, exceeded.wait) {
        (Which::Requests, _) => {
            let message = format!("Rate limit reached: this {whose} may make {limit} requests per minute.");
            ApiError::new(Kind::RateLimited, message)
        }
        (Which::Tokens, Some(_)) => {
            let message = format!("Rate limit reached: this {whose} may use {limit} tokens per minute.");
            ApiError::new(Kind::RateLimited, message)
        }
        (Which::Tokens, None) => {
            let message = format!(
                "Request too large: this {whose} may use {limit} tokens per minute, and the request alone asks for more."
            );
            ApiError::new(Kind::OverLimit, message)
        }
        (Which::Concurrent, _) => {
            let message = format!("Rate limit reached: this {whose} may make {limit} requests at a time.");
            ApiError::new(Kind::RateLimited, message)
        }
        (Which::SpendPerDay | Which::SpendPerMonth, _) => {
            let span = if exceeded.which == Which::SpendPerDay { "day" } else { "month" };
            let limit = Amount(i64::try_from(limit).unwrap_or(i64::MAX));
            let message = format!(
                "Spending limit reached: this {whose} may spend {limit} a {span} (UTC), and this request may cost {}.",
                Amount(cost)
            );
            billing(Kind::SpendLimit, message, format)
        }
    };
    error.retry_after(exceeded.wait.map(RetryAfter::Wait))
}

fn tighter(one: Option<Remaining>, other: Option<Remaining>) -> Option<Remaining> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Rate-limit headers of a response.
type RateLimitHeaders = SmallVec<[(HeaderName, HeaderValue); 6]>;

impl RequestCharges {
    /// What is left of the limits, in the client's words: OpenAI's for both of its formats, Anthropic's for its own.
    /// Google has none.
    pub(super) fn shown(&self, format: Format, now: i64) -> RateLimitHeaders {
        let mut shown = RateLimitHeaders::new();
        let Some(lefts) = self.left.as_deref() else { return shown };
        let (requests, tokens) = match format {
            Format::Chat | Format::Responses => (
                [
                    names::X_RATELIMIT_LIMIT_REQUESTS,
                    names::X_RATELIMIT_REMAINING_REQUESTS,
                    names::X_RATELIMIT_RESET_REQUESTS,
                ],
                [
                    names::X_RATELIMIT_LIMIT_TOKENS,
                    names::X_RATELIMIT_REMAINING_TOKENS,
                    names::X_RATELIMIT_RESET_TOKENS,
                ],
            ),
            Format::Messages => (
                [
                    names::ANTHROPIC_RATELIMIT_REQUESTS_LIMIT,
                    names::ANTHROPIC_RATELIMIT_REQUESTS_REMAINING,
                    names::ANTHROPIC_RATELIMIT_REQUESTS_RESET,
                ],
                [
                    names::ANTHROPIC_RATELIMIT_TOKENS_LIMIT,
                    names::ANTHROPIC_RATELIMIT_TOKENS_REMAINING,
                    names::ANTHROPIC_RATELIMIT_TOKENS_RESET,
                ],
            ),
            Format::Generate => return shown,
        };
        for (left, [limit, remaining, reset]) in [(lefts.requests, requests), (lefts.tokens, tokens)] {
            let Some(left) = left else { continue };
            shown.push((limit, HeaderValue::from(left.limit)));
            shown.push((remaining, HeaderValue::from(left.remaining)));
            let text = match format {
                Format::Messages => {
                    let seconds = i64::try_from(left.reset.as_millis().div_ceil(1_000)).unwrap_or(0);
                    models::rfc3339(now.saturating_add(seconds))
                }
                _ => span(left.reset),
            };
            shown.extend(HeaderValue::try_from(text).ok().map(|value| (reset, value)));
        }
        shown
    }
}

/// A time span as OpenAI writes it: `20ms`, `1s`, `6m0s`.
fn span(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let seconds = match (rest / 1_000, rest % 1_000) {
        (seconds, 0) => format!("{seconds}s"),
        (0, millis) if minutes == 0 => return format!("{millis}ms"),
        (seconds, millis) => format!("{seconds}.{millis:03}").trim_end_matches('0').to_owned() + "s",
    };
    if minutes == 0 { seconds } else { format!("{minutes}m{seconds}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_written_as_clients_read_them() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_250, "1.25s"),
            (59_999, "59.999s"),
            (60_000, "1m0s"),
            (360_500, "6m0.5s"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn money_that_is_missing_has_the_status_of_the_format() {
        let exceeded =
            Exceeded { which: Which::SpendPerDay, limit: 2_500_000_000, wait: Some(Duration::from_secs(9)) };
        for format in Format::ALL {
            let error = refusal(Scope::Key, &exceeded, 1, format);
            assert_eq!(error.status, if format == Format::Messages { 402 } else { 429 });
            assert!(error.message.contains("may spend 2.5 a day"), "{}", error.message);
            assert!(error.kind.row().final_);
        }
    }
}
