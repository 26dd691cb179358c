//! Spend before this process, or these keys, started to count: today's and this month's totals from the ledger. One
//! query serves all requests that need it, and they wait for it together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::admit::unavailable;
use super::billing::Billing;
use super::context::Context;
use super::phase::Identity;
use super::spend_queries::QueryReceiver;
use crate::Client;
use crate::Gateway;
use codec::error::ApiError;
use driver::downstream::client_gone;
use routing::limits::{Calendar, LimitState, Scope, UsageLimits};
use storage::store::StoreError;

/// Maximum time of the query; no request waits longer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after a failed query in which no other one is sent.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Billing {
    /// Starts a query, or joins the one that is running. `None` if the spend is loaded already.
    fn query_spend(
        self: &Arc<Self>,
        generation: u64,
        calendar: &Calendar,
    ) -> Result<Option<QueryReceiver>, StoreError> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let mut state = self.spend_queries.0.lock();
        if state.loaded_generation >= generation {
            return Ok(None);
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < RETRY_DELAY
        {
            return Err(error.clone());
        }
        // A sender that was dropped without an outcome means that the task is gone: start another query.
        if let Some((of, told)) = &state.running
            && *of >= generation
            && told.has_changed().is_ok()
        {
            return Ok(Some(told.clone()));
        }
        let (tell, told) = watch::channel(None);
        state.running = Some((generation, told.clone()));
        drop(state);
        let pending = ledger.spent_since(calendar.month_begins());
        let (billing, calendar) = (self.clone(), *calendar);
        tokio::spawn(async move {
            let outcome = pending.within(QUERY_TIMEOUT).await;
            if let Ok(rows) = &outcome {
                let rows = rows.iter().map(|row| (&*row.key, &*row.account, row.day, row.cost));
                billing.limit_states.load_spent(&calendar, rows);
            }
            let mut state = billing.spend_queries.0.lock();
            // A reload may have started a query for a later generation meanwhile. Leave that one.
            state.running.take_if(|(of, _)| *of == generation);
            match &outcome {
                Ok(_) => {
                    (state.loaded_generation, state.failed) = (state.loaded_generation.max(generation), None)
                }
                Err(error) => state.failed = Some((Instant::now(), error.clone())),
            }
            drop(state);
            tell.send_replace(Some(outcome.map(drop)));
        });
        Ok(Some(told))
    }
}

/// Waits for the outcome of a query.
async fn outcome(mut told: QueryReceiver) -> Result<(), StoreError> {
    let outcome = match told.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone(),
        Err(_) => None,
    };
    outcome.unwrap_or_else(|| Err(StoreError::Failed("the query has ended".to_owned())))
}

impl Gateway {
    /// Waits until the spend is loaded, if the key or its account has a spend limit, or until the client disconnects.
    pub(crate) async fn await_spend(&self, client: &mut Client, ctx: &Context) -> Result<(), ApiError> {
        let identity = ctx.phase.identity().filter(|identity| identity.needs_admission());
        let Some(Identity { key, .. }) = identity else { return Ok(()) };
        let wants = |limits: &UsageLimits, gauge: &LimitState| limits.has_spend() && gauge.needs_spend();
        let gauges = &self.billing.limit_states;
        let by_key = wants(&key.rules.limits, key.limit_state(gauges));
        if !by_key && !key.account.as_ref().is_some_and(|of| wants(of.limits(), of.limit_state(gauges))) {
            return Ok(());
        }
        let (calendar, generation) = (Calendar::at(ctx.now()), ctx.active.snapshot.generation);
        // Boxed to keep the caller's future small: hardly any request waits here.
        Box::pin(async {
            tokio::select! {
                biased;
                known = self.query_and_wait(generation, &calendar) => known,
                gone = client_gone(client) => Err(gone),
            }
        })
        .await
    }

    /// Loads the spend and sets it in the limit states that count it.
    pub(crate) async fn load_spend(
        &self,
        generation: u64,
        limited: &[(Scope, &Arc<str>, &UsageLimits, &Arc<LimitState>)],
        calendar: &Calendar,
    ) -> Result<(), ApiError> {
        self.query_and_wait(generation, calendar).await?;
        for (scope, name, limits, gauge) in limited {
            if limits.has_spend() && gauge.needs_spend() {
                self.billing.limit_states.apply_spent(*scope, name, gauge);
            }
        }
        Ok(())
    }

    async fn query_and_wait(&self, generation: u64, calendar: &Calendar) -> Result<(), ApiError> {
        let known = match self.billing.query_spend(generation, calendar) {
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
