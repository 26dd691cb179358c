//! What was spent today and this month before this process, or these keys, began to count. The ledger is asked once for
//! all requests that wait for it, and they wait together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::admit::unavailable;
use super::billing::Billing;
use super::context::Context;
use super::exchange::client_gone;
use super::{Client, Gateway};
use crate::account::{Calendar, LimitState, Scope, UsageLimits};
use crate::error::ApiError;
use crate::store::StoreError;

/// How long the ledger may take to answer; no request waits longer.
const SPENT: Duration = Duration::from_secs(5);
/// How long after a failure the ledger is not asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of the question, once there is one.
type Told = watch::Receiver<Option<Result<(), StoreError>>>;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Spending(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The latest generation of keys for which it is known.
    known: u64,
    /// The generation for which the ledger is being asked.
    asked: Option<(u64, Told)>,
    /// When it failed last, and how.
    failed: Option<(Instant, StoreError)>,
}

impl Billing {
    /// Asks what was spent, if that is not known and nobody has asked. Nothing, if it is known.
    fn ask_spent(self: &Arc<Self>, generation: u64, calendar: &Calendar) -> Result<Option<Told>, StoreError> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let mut state = self.spending.0.lock();
        if state.known >= generation {
            return Ok(None);
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        // Whoever asks may have ended without an answer.
        if let Some((of, told)) = &state.asked
            && *of >= generation
            && told.has_changed().is_ok()
        {
            return Ok(Some(told.clone()));
        }
        let (tell, told) = watch::channel(None);
        state.asked = Some((generation, told.clone()));
        drop(state);
        let pending = ledger.spent_since(calendar.month_begins());
        let (billing, calendar) = (self.clone(), *calendar);
        tokio::spawn(async move {
            let outcome = pending.within(SPENT).await;
            if let Ok(rows) = &outcome {
                let rows = rows.iter().map(|row| (&*row.key, &*row.account, row.day, row.cost));
                billing.gauges.remember_spent(&calendar, rows);
            }
            let mut state = billing.spending.0.lock();
            state.asked.take_if(|(of, _)| *of == generation);
            match &outcome {
                Ok(_) => (state.known, state.failed) = (state.known.max(generation), None),
                Err(error) => state.failed = Some((Instant::now(), error.clone())),
            }
            drop(state);
            tell.send_replace(Some(outcome.map(drop)));
        });
        Ok(Some(told))
    }
}

/// Waits for the outcome.
async fn outcome(mut told: Told) -> Result<(), StoreError> {
    let outcome = match told.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone(),
        Err(_) => None,
    };
    outcome.unwrap_or_else(|| Err(StoreError::Failed("nobody asks any more".to_owned())))
}

impl Gateway {
    /// Waits until it is known what was spent, if the request needs that, or until its client leaves.
    pub(super) async fn await_spent(&self, client: &mut Client, ctx: &Context) -> Result<(), ApiError> {
        let Some(key) = ctx.key.clone().filter(|_| ctx.is_held()) else { return Ok(()) };
        let wants = |limits: &UsageLimits, gauge: &LimitState| limits.has_spend() && gauge.wants_spend();
        let gauges = &self.billing.gauges;
        let by_key = wants(&key.rules.limits, key.gauge(gauges));
        if !by_key && !key.account.as_ref().is_some_and(|of| wants(of.limits(), of.gauge(gauges))) {
            return Ok(());
        }
        let calendar = Calendar::at(ctx.now());
        // Boxed: hardly any request waits.
        Box::pin(async {
            tokio::select! {
                biased;
                known = self.ask_and_wait(ctx, &calendar) => known,
                gone = client_gone(client) => Err(gone),
            }
        })
        .await
    }

    /// Finds out what was spent, and tells it those limits that count it.
    pub(super) async fn know_spent(
        &self,
        ctx: &Context,
        limited: &[(Scope, &Arc<str>, &UsageLimits, &Arc<LimitState>)],
        calendar: &Calendar,
    ) -> Result<(), ApiError> {
        self.ask_and_wait(ctx, calendar).await?;
        for (scope, name, limits, gauge) in limited {
            if limits.has_spend() && gauge.wants_spend() {
                self.billing.gauges.tell_spent(*scope, name, gauge);
            }
        }
        Ok(())
    }

    async fn ask_and_wait(&self, ctx: &Context, calendar: &Calendar) -> Result<(), ApiError> {
        let known = match self.billing.ask_spent(ctx.live.snapshot.generation, calendar) {
            Ok(None) => return Ok(()),
            Ok(Some(told)) => outcome(told).await,
            Err(error) => Err(error),
        };
        known.map_err(|error| {
            self.metrics.ledger_failures.with_label_values(&["spent", error.label()]).inc();
            unavailable()
        })
    }
}

#[cfg(test)]
mod tests;
