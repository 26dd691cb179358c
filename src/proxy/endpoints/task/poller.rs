//! Task poller: updates the state of tasks, on a client's query or in the background. The process that records the end
//! of a task charges it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::STORE_TIMEOUT;
use super::call::{TaskRoute, poll_request};
use super::record::{Form, TaskFacts, TaskState, pack, unpack};
use super::submit::lines;
use super::view::TaskView;
use crate::Gateway;
use crate::client::call::malformed_response;
use crate::client::send::CallLog;
use crate::endpoints::record_calls;
use crate::gateway::active_snapshot::ActiveSnapshot;
use crate::gateway::context::Context;
use codec::canonical::video::{Medium, Stage, VideoReport};
use codec::canonical::{Product, ServiceTier, Usage};
use codec::error::{ApiError, ErrorKind};
use codec::wire::Api;
use codec::wire::video::read;
use driver::outcome::timeout_error;
use routing::account::price::Terms;
use storage::kv::StoredTask;
use storage::ledger::{AccountId, Settled, UsageRecord};
use storage::store::StoreError;

/// Time between two searches for due tasks.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
/// Tasks that are polled concurrently.
const MAX_CONCURRENT: usize = 16;
/// Lease of a due task: no other process polls it meanwhile.
const LEASE: Duration = Duration::from_secs(60);
/// Maximum time of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(20);
/// Minimum time between two polls on client queries, in milliseconds.
const MIN_QUERY_INTERVAL: i64 = 1_000;
/// Time between two polls in the background.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Time between a failed poll and the next one in the background.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Time after which the charge of an ended task that is not confirmed is made again.
const CHARGE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum age of a task, in milliseconds. No provider works longer on one.
const MAX_TASK_AGE: i64 = 48 * 3_600_000;
/// Maximum time that a submission may lack a provider's task id, in milliseconds.
const SUBMIT_TIMEOUT: i64 = 10 * 60_000;
/// Age from which a reservation is checked against the task's state, which another process may have ended.
const RELEASE_AGE: Duration = Duration::from_secs(30);

/// Task poller: background service that polls tasks without waiting for a client's query.
pub(crate) struct TaskPoller(pub(crate) Gateway);

#[async_trait]
impl BackgroundService for TaskPoller {
    async fn start(&self, shutdown: ShutdownWatch) {
        let supervised = self.0.supervisor.add_new("watch-tasks");
        let run = || async {
            let mut shutdown = shutdown.clone();
            loop {
                tokio::select! {
                    _ = shutdown.changed() => return,
                    () = tokio::time::sleep(SEARCH_INTERVAL) => {}
                }
                self.0.poll_due().await;
            }
        };
        supervised.run_task_supervised(run).await;
    }
}

/// Returns the current time in Unix milliseconds.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

impl Gateway {
    /// Polls the tasks that are due.
    async fn poll_due(&self) {
        self.release_ended().await;
        let due = self.tasks.tasks.due(MAX_CONCURRENT, LEASE).within(STORE_TIMEOUT).await;
        self.count_store("due_tasks", &due);
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "tasks that are due cannot be queried");
                return;
            }
        };
        let mut looking = JoinSet::new();
        for task in due {
            let gateway = self.clone();
            looking.spawn(async move {
                let (facts, state) = (unpack::<TaskFacts>(&task.facts), unpack::<TaskState>(&task.state));
                let Some((facts, state)) = facts.zip(state) else { return };
                let live = gateway.live.load_full();
                gateway.poll_and_store(&live, TaskView { task, facts, state }).await;
            });
        }
        while looking.join_next().await.is_some() {}
    }

    /// Releases the reservations of tasks that another process has ended.
    async fn release_ended(&self) {
        let held: Vec<(String, String)> = {
            let mut holds = self.tasks.reservations.lock();
            let old = holds.iter_mut().filter(|(_, hold)| hold.since.elapsed() > RELEASE_AGE);
            let old = old.take(MAX_CONCURRENT).map(|(key, hold)| {
                hold.since = std::time::Instant::now();
                key.clone()
            });
            old.collect()
        };
        for (owner, id) in held {
            let Ok(found) = self.tasks.tasks.task(&owner, &id).within(STORE_TIMEOUT).await else { continue };
            let ended =
                |task: &StoredTask| unpack::<TaskState>(&task.state).is_none_or(|state| state.has_ended());
            if found.as_ref().is_none_or(ended) {
                drop(self.tasks.release(&owner, &id));
            }
        }
    }

    /// Polls a task on a client's query, unless it was polled within [`MIN_QUERY_INTERVAL`].
    ///
    /// # Errors
    /// Returns [`ErrorKind::Internal`] if the poll panics.
    pub(super) async fn poll_on_query(
        &self,
        ctx: &mut Context,
        shown: TaskView,
    ) -> Result<TaskView, ApiError> {
        if shown.state.has_ended() || shown.state.asked + MIN_QUERY_INTERVAL > now() {
            return Ok(shown);
        }
        // If this poll finds the end of the task, it must charge it, whether or not the client stays.
        let (gateway, live) = (self.clone(), ctx.active.clone());
        let work = async move { gateway.poll_and_store(&live, shown).await };
        let (shown, notes) = super::detached(work).await?;
        // The poll's response head is not that of the response to the client.
        let head_received_at = ctx.record.head_received_at;
        record_calls(ctx, CallLog { head_received_at, ..notes });
        Ok(shown)
    }

    /// Polls a task, stores its new state, and charges it if it has ended.
    async fn poll_and_store(&self, live: &Arc<ActiveSnapshot>, mut shown: TaskView) -> (TaskView, CallLog) {
        let mut notes = CallLog::default();
        if shown.state.has_ended() {
            if shown.state.uncharged {
                self.charge_task(&mut shown).await;
            }
            return (shown, notes);
        }
        let age = now() - shown.facts.time;
        let report = match self.fetch_report(live, &shown, &mut notes).await {
            Ok(report) => report,
            Err(_) if age > MAX_TASK_AGE => {
                Some(failure_report("expired", "The provider did not report the outcome of the task."))
            }
            Err(error) => {
                let id = &shown.task.id;
                tracing::debug!(%error, id, "a provider did not report the status of a task");
                // A failed poll counts as one: queries must not add load to a provider that fails.
                shown.state.asked = now();
                let _ = self.change_task(&mut shown, Some(RETRY_INTERVAL)).await;
                return (shown, notes);
            }
        };
        let Some(report) = report else { return (shown, notes) };
        let report = if age > MAX_TASK_AGE && !report.stage.is_end() {
            failure_report("expired", "The provider did not finish the video in time.")
        } else {
            report
        };
        let ends = report.stage.is_end();
        let time = now();
        shown.state.update(report, time);
        shown.state.asked = time;
        // The end is stored before it is charged, because compare-and-swap selects the process that charges. Should
        // that process end in between, the task is due again, and the ledger ignores a second charge of the same task.
        shown.state.uncharged = ends && self.billing.ledger.is_some();
        if !ends {
            self.restore_reservation(&shown).await;
        }
        let due = match ends {
            true => shown.state.uncharged.then_some(CHARGE_INTERVAL),
            false => Some(POLL_INTERVAL),
        };
        // Compare-and-swap: of several processes that find the end of a task, only the one whose write succeeds charges
        // it.
        match self.change_task(&mut shown, due).await {
            Ok(true) if ends => self.charge_task(&mut shown).await,
            // False if another process has stored a newer state.
            Ok(_) => {}
            Err(error) => {
                let id = &shown.task.id;
                tracing::warn!(%error, id, "the status of a task cannot be stored");
            }
        }
        (shown, notes)
    }

    /// Stores the state of a task, and that it is due after `due`, or never if it is `None`. False if another process
    /// has changed the task since it was loaded.
    async fn change_task(&self, shown: &mut TaskView, due: Option<Duration>) -> Result<bool, StoreError> {
        let StoredTask { owner, id, version, .. } = &shown.task;
        let changed = self.tasks.tasks.change(owner, id, *version, pack(&shown.state), due);
        let changed = changed.within(STORE_TIMEOUT).await;
        self.count_store("change_task", &changed);
        shown.task.version += u64::from(changed == Ok(true));
        changed
    }

    /// Reserves the cost of a task again if the process that submitted it has ended, because its reservation ended with
    /// it. Not for a shared ledger: there that process may still run, and the other gateways know of its reservation.
    async fn restore_reservation(&self, shown: &TaskView) {
        let TaskView { task, facts, .. } = shown;
        let ledger = self.billing.ledger.as_deref().filter(|ledger| !ledger.is_shared());
        let (Some(ledger), Some(account)) = (ledger, AccountId::new(&facts.account)) else { return };
        if facts.cost <= 0 || self.tasks.has_reservation(&task.owner, &task.id) {
            return;
        }
        // If the balance no longer suffices, the task is charged at its end anyway.
        if let Ok(reservation) = ledger.reserve(&account, facts.cost).within(STORE_TIMEOUT).await {
            // Of two concurrent polls, the later one replaces the reservation of the other, which is refunded.
            self.tasks.insert(&task.owner, &task.id, reservation);
        }
    }

    /// Polls the provider and returns its report. `None` while the submission has not been answered.
    async fn fetch_report(
        &self,
        live: &Arc<ActiveSnapshot>,
        shown: &TaskView,
        notes: &mut CallLog,
    ) -> Result<Option<VideoReport>, ApiError> {
        let TaskView { facts, state, .. } = shown;
        let Some(upstream) = &state.upstream else {
            let lost = now() - facts.time > SUBMIT_TIMEOUT;
            return Ok(lost.then(|| {
                failure_report("lost", "The provider's response to the submission did not arrive.")
            }));
        };
        let unconfigured = || ApiError::new(ErrorKind::Internal, "the provider is no longer configured");
        let model = live.snapshot.routes.model(&facts.model).ok_or_else(unconfigured)?;
        let fits = |target: &&routing::route::Target| {
            *target.provider.name == *facts.provider && *target.model == *facts.target
        };
        let index = model.targets.iter().position(|target| fits(&target)).ok_or_else(unconfigured)?;
        let (api, endpoint) =
            if facts.form == Form::Group { (Api::Tasks, "tasks") } else { (Api::Videos, "videos") };
        let road = TaskRoute::new(live, &self.metrics, endpoint, (model, index), api, facts.request.clone());
        let road = road.ok_or_else(unconfigured)?;
        let out = poll_request(&road, upstream).ok_or_else(unconfigured)?;
        let asked = timeout(POLL_TIMEOUT, self.call_provider(&road, &out, notes)).await;
        let body = match asked.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(body) => body,
            // The provider has deleted the task, so later polls cannot succeed.
            Err(error) if matches!(error.status, 404 | 410) => {
                return Ok(Some(failure_report("expired", "The provider no longer knows the task.")));
            }
            Err(error) => return Err(error),
        };
        let text = json::from_utf8(&body).map_err(|_| malformed_response())?;
        let report = match facts.form.shape() {
            Some(shape) => read::looked(shape, text).ok(),
            None => codec::wire::tasks::answer::parse_report(text),
        };
        let mut report = report.ok_or_else(malformed_response)?;
        if facts.form == Form::Group
            && let Some(target) = road.target()
        {
            // Media at the other gateway requires the credential of this gateway, so its links must not reach a client.
            for medium in &mut report.media {
                if let Medium::Public(url) = medium
                    && super::source::local(&target.provider.base, url).is_some()
                {
                    *medium = Medium::Keyed(std::mem::take(url));
                }
            }
        }
        if let Some((code, message)) = report.fault.take() {
            let provider = road.target().map(|target| &target.provider);
            report.fault = Some((code, crate::upstream_route::redact_secrets(provider, message)));
        }
        Ok(Some(report))
    }

    /// Charges a task that has ended, writes its usage record, and stores that it is charged. May be called again for
    /// the same task: the ledger charges it once.
    async fn charge_task(&self, shown: &mut TaskView) {
        if self.settle_task(shown).await {
            shown.state.uncharged = false;
            // If the write fails, the task is due again; the ledger ignores a second charge.
            let _ = self.change_task(shown, None).await;
        }
    }

    /// Settles a task that has ended. Returns true if its charge is durable, or there is none to make.
    async fn settle_task(&self, shown: &TaskView) -> bool {
        let TaskView { task, facts, state } = shown;
        let reservation = self.tasks.release(&task.owner, &task.id);
        let Some(ledger) = self.billing.ledger.as_deref().filter(|_| state.uncharged) else { return false };
        let done = state.stage() == Some(Stage::Done);
        let live = self.live.load_full();
        let usage = Usage { output: state.tokens, ..Usage::default() };
        let cost = match live.snapshot.routes.model(&facts.model) {
            Some(model) if done => {
                // The provider reports the length of one video.
                let videos = state.media().count().max(1) as u64;
                let millis = state.millis.map_or(facts.millis, |millis| millis.saturating_mul(videos));
                // If the provider made another resolution than requested, and it has a price, that resolution is
                // charged.
                let reported = state.resolution.as_deref().map(lines);
                let reported = reported.filter(|reported| model.price.has_resolution_price(reported));
                let resolution = reported.as_deref().unwrap_or(&facts.resolution).into();
                // The price of the day on which the task was submitted.
                let terms = Terms { at: facts.time / 1_000, ..Terms::default() };
                model.price.cost(&usage, &[Product::Video { millis, resolution }], &terms)
            }
            // The model is not configured any more: charge the cost that was estimated at the start.
            None if done => facts.cost,
            _ => 0,
        };
        let time = now();
        let settled = ledger.settle(
            reservation,
            &UsageRecord {
                time: facts.time,
                request: &facts.request,
                account: &facts.account,
                key: &facts.key,
                model: &facts.model,
                provider: &facts.provider,
                target: &facts.target,
                endpoint: &facts.endpoint,
                client_format: "chat",
                provider_format: &facts.endpoint,
                error: if done { "" } else { ErrorKind::UpstreamFailed.label() },
                status: if done { 200 } else { 500 },
                attempts: 1,
                first_byte: None,
                total: u32::try_from(time - facts.time).unwrap_or(u32::MAX),
                stream: false,
                counted: false,
                tier: ServiceTier::Standard,
                charge_id: &task.id,
                usage,
                cost,
                // Videos have no prompt cache.
                cache_saved: 0,
                cache_surcharge: 0,
            },
        );
        let outcome = match settled {
            Settled::Known(outcome) => outcome,
            pending => pending.within(STORE_TIMEOUT).await,
        };
        if let Err(error) = &outcome {
            self.metrics.ledger_failures.with_label_values(&["settle", error.label()]).inc();
            tracing::error!(%error, id = task.id, "the charge of a task is not confirmed");
        }
        outcome.is_ok()
    }
}

/// Returns the report of a task that failed for a reason of the gateway.
fn failure_report(code: &str, message: &str) -> VideoReport {
    VideoReport {
        stage: Stage::Failed,
        fault: Some((code.to_owned(), message.to_owned())),
        ..VideoReport::default()
    }
}
