//! Admission: whether a request may be made, by the limits of its key and account and by the balance that pays for it.
//!
//! Admission takes limit grants and a reservation. The headers that show what is left are in `rate_limit_headers`.
//! Settlement belongs to `billing`, the arithmetic of limits to `account`, balances to `store`.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::billing::{BudgetStatus, RateLimitStatus, RequestCharges};
use super::context::Context;
use super::phase::Identity;
use crate::Gateway;
use codec::canonical::TierRequest;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::wire::Format;
use codec::wire::path::Endpoint;
use codec::wire::request::Body;
use observe::telemetry::facts::EventKind;
use routing::account::{Account, Amount, ExpectedUsage, Key};
use routing::limits::Denied;
use routing::limits::LimitOwner;
use routing::limits::Remaining;
use routing::limits::{Calendar, Exceeded, LimitState, Scope, UsageLimits};
use routing::limits::{LimitRequest, Which};
use routing::route::Model;
use storage::ledger::{AccountId, ReserveError, ReserveOutcome};

/// Longest wait for a reservation, or for the coordinator's decision on a shared limit.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Limits to take grants of: scope, name, configuration and current state.
type Limited<'l> = (Scope, &'l Arc<str>, &'l UsageLimits, &'l Arc<LimitState>);

impl Identity {
    /// Whether the request needs limit grants or a reservation: it will be charged, and its key has limits or an
    /// account.
    pub(crate) fn needs_admission(&self) -> bool {
        self.accounting.is_open() && is_limited(&self.key)
    }
}

/// Whether a key has limits or an account.
fn is_limited(key: &Key) -> bool {
    key.account.is_some() || !key.rules.limits.is_empty()
}

impl Gateway {
    /// Admits a request: takes its limit grants and reserves the cost that is estimated from its body. Both are
    /// returned when the request ends, whatever its outcome.
    ///
    /// # Errors
    /// Returns the error for the client if a limit is reached, the balance is too low, or the ledger is unavailable.
    pub(crate) async fn admit(
        &self,
        ctx: &mut Context,
        model: &Model,
        body: &mut Body,
    ) -> Result<(), ApiError> {
        if let Some(request) = &body.image {
            let (made, input) = super::images::expected(request);
            let expected = ExpectedUsage { input, products: &[made], ..ExpectedUsage::default() };
            return self.admit_expected(ctx, model, &expected).await;
        }
        // Estimated while the body arrived.
        let input = ctx.phase.identity().map_or(0, |identity| identity.expected_input);
        let mut expected = ExpectedUsage { input, ..ExpectedUsage::default() };
        if ctx.phase.identity().is_some_and(Identity::needs_admission) {
            let most = body.output_caps();
            expected.output = most.output;
            expected.uncertain_output = most.unsure;
            expected.responses = most.answers.unwrap_or(1);
            let premium = model.price.premium_input();
            let automatic = premium.of_policy(ctx.cache_policy(model));
            expected.premium_input = premium.in_body(body.text.pieces()).or(automatic);
        }
        self.admit_expected(ctx, model, &expected).await
    }

    /// Admits a request whose expected usage is known.
    ///
    /// # Errors
    /// Returns the same errors as `admit`.
    pub(crate) async fn admit_expected(
        &self,
        ctx: &mut Context,
        model: &Model,
        expected: &ExpectedUsage<'_>,
    ) -> Result<(), ApiError> {
        let hint = ctx.phase.endpoint().and_then(Endpoint::output_limit_member);
        let Some(identity) = ctx.phase.identity_mut() else { return Ok(()) };
        let Identity { key, accounting, expected_input, remaining, asked, .. } = identity;
        let TierRequest { tiers, region, .. } = *asked;
        let expected = &ExpectedUsage { at: ctx.record.unix_seconds(), tiers, region, ..*expected };
        *expected_input = expected.input;
        let Some(charges) = accounting.charges_mut().filter(|_| is_limited(key)) else { return Ok(()) };
        self.check_price(key, model, expected.at)?;
        // The client's own output limit later bounds the usage that a provider may report.
        let unsure = Some(expected.uncertain_output).filter(|unsure| *unsure > 0);
        charges.output_limit = Some((expected.output.max(unsure), expected.responses));
        charges.asked_output = expected
            .output
            .map(|output| output.max(expected.uncertain_output).saturating_mul(expected.responses.max(1)));
        let account = key.account.as_deref();
        let limits = &key.rules.limits;
        let cost = model.estimate(expected);
        let gauges = &self.billing.limit_states;
        let mut limited: SmallVec<[Limited<'_>; 2]> = SmallVec::new();
        if !limits.is_empty() {
            limited.push((Scope::Key, &key.name, limits, key.limit_state(gauges)));
        }
        if let Some(account) = account.filter(|account| !account.limits().is_empty()) {
            limited.push((Scope::Account, &account.name, account.limits(), account.limit_state(gauges)));
        }
        if !limited.is_empty() {
            let ask = LimitRequest {
                now: self.billing.nanos(std::time::Instant::now()),
                calendar: Calendar::at(ctx.record.unix_seconds()),
                tokens: expected.minute_tokens(),
                cost,
            };
            // The spend of today and this month from before this process started must be known first. Boxed: only the
            // first requests of a key wait for it.
            if limited.iter().any(|(_, _, limits, gauge)| limits.has_spend() && gauge.needs_spend()) {
                let generation = ctx.active.snapshot.generation;
                Box::pin(self.load_spend(generation, &limited, &ask.calendar)).await?;
            }
            let denied = match take_grants(charges, &limited, &ask) {
                Some((_, Denied::NeedsCoordinator)) => {
                    let payer = account.map(|account| account.name.clone()).unwrap_or_default();
                    Box::pin(self.take_shared_grants(charges, payer, &limited, &ask)).await
                }
                denied => denied,
            };
            // Also for a denied request, whose error response has the rate-limit headers too.
            let own = if denied.is_none() { cost } else { 0 };
            *remaining = remaining_quota(&limited, &ask, ctx.record.unix_seconds(), own);
            if let Some(denied) = denied {
                if let (scope, Denied::LimitReached(exceeded)) = &denied {
                    let (scope, limit) = (scope.name(), exceeded.which.name());
                    if let Some(trace) = &mut ctx.trace {
                        trace.event(EventKind::LimitRefused { scope, limit });
                    }
                }
                return Err(self.denied_error(denied, (&ask, hint), ctx.record.unix_seconds()));
            }
        }
        let Some(account) = account else { return Ok(()) };
        let held = match (&self.billing.ledger, AccountId::shared(&account.name)) {
            (Some(ledger), Some(id)) => ledger.reserve(&id, cost),
            // Without a ledger no account can pay. The request would be free.
            _ => ReserveOutcome::Known(Err(ReserveError::Unavailable)),
        };
        let held = match held {
            ReserveOutcome::Known(held) => held,
            pending => Box::pin(pending.within(RESERVE_TIMEOUT)).await,
        };
        match held {
            Ok(reservation) => charges.reservation = Some(reservation),
            Err(refused) => {
                // The request is not made: return it to the rate limits as well.
                charges.grants.drain(..).for_each(routing::limits::LimitGrant::undo);
                return Err(self.reserve_error(refused, cost, account, ctx.format));
            }
        }
        Ok(())
    }

    /// Takes the grants of limits that a fleet shares. Consults the coordinator where the local lease does not suffice.
    /// Returns the scope and the reason of the first denial, `None` if all are granted. `payer` is the name of the
    /// account.
    async fn take_shared_grants(
        &self,
        charges: &mut RequestCharges,
        payer: Arc<str>,
        limited: &[Limited<'_>],
        ask: &LimitRequest,
    ) -> Option<(Scope, Denied)> {
        let limiter = self.billing.ledger.as_ref().and_then(|ledger| ledger.limiter());
        for (scope, name, limits, gauge) in limited {
            let mut taken = gauge.admit(limits, ask);
            if let (Err(Denied::NeedsCoordinator), Some(limiter)) = (&taken, limiter) {
                let whose = LimitOwner {
                    account: payer.clone(),
                    key: (*scope == Scope::Key).then(|| (*name).clone()),
                };
                let asked = limiter.take(whose, gauge, limits, ask);
                // A grant that arrives after the time-out finds no receiver, and returns what it took.
                taken = match tokio::time::timeout(RESERVE_TIMEOUT, asked).await {
                    Ok(Ok(taken)) => taken,
                    Ok(Err(_)) | Err(_) => Err(Denied::CoordinatorDown),
                };
            }
            match taken {
                Ok(ticket) => charges.grants.push(ticket),
                Err(denied) => {
                    charges.grants.drain(..).for_each(routing::limits::LimitGrant::undo);
                    return Some((*scope, denied));
                }
            }
        }
        None
    }

    /// Converts a denied limit to the client's error, and counts it. `hint` is the member with which the client can ask for
    /// less; `now` is in Unix seconds.
    fn denied_error(
        &self,
        (scope, denied): (Scope, Denied),
        (ask, hint): (&LimitRequest, Option<&str>),
        now: i64,
    ) -> ApiError {
        match denied {
            Denied::LimitReached(exceeded) => {
                let labels = [scope.name(), exceeded.which.name()];
                self.metrics.limit_refusals.with_label_values(&labels).inc();
                limit_error(scope, &exceeded, (ask, hint), now)
            }
            Denied::NeedsCoordinator | Denied::CoordinatorDown => {
                self.metrics.ledger_failures.with_label_values(&["limit", "unavailable"]).inc();
                unavailable()
            }
        }
    }

    /// Account check for requests without a reservation.
    ///
    /// # Errors
    /// Returns an error if the account is disabled or unknown, but not if the ledger is unavailable.
    pub(crate) async fn check_account(&self, key: &Key, format: Format) -> Result<(), ApiError> {
        let Some(account) = &key.account else { return Ok(()) };
        let id = AccountId::shared(&account.name);
        let (Some(ledger), Some(id)) = (&self.billing.ledger, id) else { return Ok(()) };
        // A reservation of zero checks the account and holds none of its balance.
        match ledger.reserve(&id, 0).within(RESERVE_TIMEOUT).await {
            Err(refused @ (ReserveError::UnknownAccount | ReserveError::Disabled)) => {
                Err(self.reserve_error(refused, 0, account, format))
            }
            _ => Ok(()),
        }
    }

    /// Converts a failed reservation to the client's error, and counts it.
    fn reserve_error(&self, refused: ReserveError, cost: i64, account: &Account, format: Format) -> ApiError {
        match refused {
            ReserveError::UnknownAccount => {
                let message =
                    "The account of this API key does not exist: it has no balance and was never credited.";
                ApiError::new(ErrorKind::UnknownAccount, message.to_owned() + not_the_limit(account.limits()))
            }
            ReserveError::Disabled => {
                ApiError::new(ErrorKind::DisabledAccount, "The account of this API key is disabled.")
            }
            ReserveError::Empty { available } => {
                self.metrics.limit_refusals.with_label_values(&["account", "balance"]).inc();
                let (cost, available) = (Amount(cost), Amount(available.max(0)));
                let message = format!(
                    "The balance of your account is too low: this request may cost {cost}, and {available} is \
                     available. Add credit and try again.{}",
                    not_the_limit(account.limits())
                );
                let error = ApiError::new(ErrorKind::EmptyBalance, message);
                // The messages format has a status for what only the payer can resolve.
                if format == Format::Messages { error.status(402) } else { error }
            }
            ReserveError::Unavailable => {
                self.metrics.ledger_failures.with_label_values(&["reserve", refused.label()]).inc();
                unavailable()
            }
        }
    }
}

/// What is said of the spend limits of an account without money, which are taken for its budget.
fn not_the_limit(limits: &UsageLimits) -> &'static str {
    if limits.has_spend() {
        " The account's spend limit is not the reason: a limit is no credit."
    } else {
        ""
    }
}

/// Takes the grants of all limits, or of none. Returns the scope and the reason of the first denial, `None` if all are
/// granted.
fn take_grants(
    charges: &mut RequestCharges,
    limited: &[Limited<'_>],
    ask: &LimitRequest,
) -> Option<(Scope, Denied)> {
    for (scope, _, limits, gauge) in limited {
        // All or none: a grant that stays would use up a limit for a request that is not made.
        match gauge.admit(limits, ask) {
            Ok(ticket) => charges.grants.push(ticket),
            Err(denied) => {
                charges.grants.drain(..).for_each(routing::limits::LimitGrant::undo);
                return Some((*scope, denied));
            }
        }
    }
    None
}

/// Returns the remaining quota for the rate-limit headers. `None` if requests, tokens and spend are not limited. `now` is
/// in Unix seconds, `own` what this request has reserved, in nano-units: it is not spent yet.
fn remaining_quota(
    limited: &[Limited<'_>],
    ask: &LimitRequest,
    now: i64,
    own: i64,
) -> Option<Box<RateLimitStatus>> {
    let mut lefts = RateLimitStatus::default();
    let Calendar { day_ends_in, month_ends_in, .. } = ask.calendar;
    for (_, _, limits, gauge) in limited {
        let (requests, tokens) = gauge.remaining(limits, ask.now);
        lefts.requests = tighter(lefts.requests, requests);
        lefts.tokens = tighter(lefts.tokens, tokens);
        let Some((day, month)) = gauge.spent(&ask.calendar).filter(|_| limits.has_spend()) else { continue };
        let ends = |wait: u64| now.saturating_add(i64::try_from(wait).unwrap_or(0));
        let (of_day, of_month) = (24 * 60, ask.calendar.month_minutes());
        let (day, month) = (day.saturating_sub(own), month.saturating_sub(own));
        lefts.day = lefts.day.max(budget(limits.spend_per_day, day, of_day, ends(day_ends_in)));
        lefts.month = lefts.month.max(budget(limits.spend_per_month, month, of_month, ends(month_ends_in)));
    }
    let RateLimitStatus { requests, tokens, day, month } = lefts;
    let any = requests.is_some() || tokens.is_some() || day.is_some() || month.is_some();
    any.then(|| Box::new(lefts))
}

/// Returns the used part of a budget. `None` without one.
fn budget(limit: Option<i64>, spent: i64, minutes: u64, resets_at: i64) -> Option<BudgetStatus> {
    let limit = i128::from(limit?).max(1);
    let used = (i128::from(spent.max(0)) * 1_000 / limit).min(1_000);
    Some(BudgetStatus { used: u32::try_from(used).unwrap_or(1_000), minutes, resets_at })
}

pub(crate) fn unavailable() -> ApiError {
    ApiError::new(ErrorKind::LedgerUnavailable, "Balances cannot be checked at the moment; please try again.")
        .retry_after(Some(RetryAfter::Wait(Duration::from_secs(1))))
}

fn limit_error(
    scope: Scope,
    exceeded: &Exceeded,
    (ask, hint): (&LimitRequest, Option<&str>),
    now: i64,
) -> ApiError {
    let (whose, limit) = (scope.name(), exceeded.limit);
    let cost = Amount(ask.cost);
    let advice = || match hint {
        Some(member) => format!("Set a lower {member}, shorten the input, or ask for a higher limit."),
        None => "Ask for less at a time, or for a higher limit.".to_owned(),
    };
    let error = match (exceeded.which, exceeded.wait) {
        (Which::Requests, _) => {
            let message = format!("Rate limit reached: this {whose} may make {limit} requests per minute.");
            ApiError::new(ErrorKind::RateLimited, message)
        }
        (Which::Tokens, Some(_)) => {
            let message = format!("Rate limit reached: this {whose} may use {limit} tokens per minute.");
            ApiError::new(ErrorKind::RateLimited, message)
        }
        (Which::Tokens, None) => {
            let message = format!(
                "Request too large: this {whose} may use {limit} tokens per minute, and this request alone needs {}. \
                 Waiting does not help. {}",
                ask.tokens,
                advice()
            );
            ApiError::new(ErrorKind::OverLimit, message)
        }
        (Which::Concurrent, _) => {
            let message = format!("Rate limit reached: this {whose} may make {limit} requests at a time.");
            ApiError::new(ErrorKind::RateLimited, message)
        }
        (Which::SpendPerDay | Which::SpendPerMonth, wait) => {
            let span = if exceeded.which == Which::SpendPerDay { "day" } else { "month" };
            let limit = Amount(i64::try_from(limit).unwrap_or(i64::MAX));
            if wait.is_none() {
                let message = format!(
                    "Request too large: this {whose} may spend {limit} a {span} (UTC), and this request alone may cost \
                     {cost}. Waiting does not help. {}",
                    advice()
                );
                return ApiError::new(ErrorKind::OverSpendLimit, message);
            }
            let message = format!(
                "Spending limit reached: this {whose} may spend {limit} a {span} (UTC), and this request may cost {cost}."
            );
            // Not 402 in the messages format, as for an empty balance: the limit ends with its window, and Claude Code expects
            // a gateway's spend limit as 429 with `billing_error` (protocol text of Claude Code 2.1.330).
            let error = ApiError::new(ErrorKind::SpendLimit, message);
            return error.retry_after(wait.map(|wait| window(wait, now)));
        }
    };
    error.retry_after(exceeded.wait.map(RetryAfter::Wait))
}

/// Returns the rest of a budget's window that begins at `now`, in Unix seconds.
fn window(wait: Duration, now: i64) -> RetryAfter {
    let wait = wait.as_secs();
    RetryAfter::Window { wait, resets_at: now.saturating_add(i64::try_from(wait).unwrap_or(0)) }
}

fn tighter(one: Option<Remaining>, other: Option<Remaining>) -> Option<Remaining> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spend_limit_refusal_is_429_until_the_window_ends() {
        let exceeded =
            Exceeded { which: Which::SpendPerDay, limit: 2_500_000_000, wait: Some(Duration::from_secs(9)) };
        let ask = LimitRequest { cost: 1, ..LimitRequest::default() };
        let error = limit_error(Scope::Key, &exceeded, (&ask, None), 100);
        assert_eq!((error.resets_at(), error.status), (Some(109), 429));
        assert!(error.message.contains("may spend 2.5 a day"), "{}", error.message);
        assert!(error.kind.row().final_);
    }

    #[test]
    fn spend_limit_below_the_cost_of_a_request_names_amounts_and_what_helps() {
        let ask = LimitRequest { cost: 41_000_000, tokens: 9, ..LimitRequest::default() };
        let exceeded = Exceeded { which: Which::SpendPerDay, limit: 10_000_000, wait: None };
        let error = limit_error(Scope::Key, &exceeded, (&ask, Some("max_tokens")), 100);
        assert_eq!((error.kind, error.status, error.retry_after), (ErrorKind::OverSpendLimit, 429, None));
        assert_eq!(
            error.message,
            "Request too large: this key may spend 0.01 a day (UTC), and this request alone may cost 0.041. Waiting does \
             not help. Set a lower max_tokens, shorten the input, or ask for a higher limit."
        );
        let exceeded = Exceeded { which: Which::Tokens, limit: 5, wait: None };
        let error = limit_error(Scope::Account, &exceeded, (&ask, None), 100);
        assert_eq!((error.kind, &error.retry_after), (ErrorKind::OverLimit, &None));
        assert!(
            error.message.contains("5 tokens per minute") && error.message.contains("needs 9"),
            "{error}"
        );
    }
}
