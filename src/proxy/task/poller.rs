//! Who looks after tasks: their clients when they ask, and the process for those whose clients do not. Whoever finds
//! out first that one has ended charges it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::BytesMut;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::Gateway;
use super::super::active_snapshot::ActiveSnapshot;
use super::super::call::CallLog;
use super::super::context::Context;
use super::KEEPING;
use super::call::{TaskRequest, TaskRoute};
use super::record::{Form, TaskFacts, TaskState, pack, unpack};
use super::submit::lines;
use super::view::TaskView;
use crate::canonical::video::{Medium, Report, Stage};
use crate::canonical::{Product, Usage};
use crate::error::{ApiError, Kind};
use crate::json::Writer;
use crate::provider::VideoStep;
use crate::store::{AccountId, Settled, StoredTask, UsageRecord};
use crate::wire::Api;
use crate::wire::video::read;

/// How often tasks are looked for that are due.
const PERIOD: Duration = Duration::from_secs(2);
/// Tasks that are looked after at a time.
const AT_ONCE: usize = 16;
/// How long one of them is this process's alone.
const LEASE: Duration = Duration::from_secs(60);
/// How long a provider may take to say how far a task is.
const LOOK: Duration = Duration::from_secs(20);
/// How often a provider is asked by its client's queries, in milliseconds.
const PATIENCE: i64 = 1_000;
/// How often a provider is asked without them.
const AGAIN: Duration = Duration::from_secs(15);
/// How long a provider may take to make a video, in milliseconds: no provider keeps one under way for longer.
const LONGEST: i64 = 48 * 3_600_000;
/// How long a submission may be without a provider's id, in milliseconds.
const NAMELESS: i64 = 10 * 60_000;
/// How often what is held is compared with what has ended elsewhere.
const RELEASE: Duration = Duration::from_secs(30);

/// Task poller: asks providers for the state of tasks whose clients do not.
pub(in crate::proxy) struct TaskPoller(pub(in crate::proxy) Gateway);

#[async_trait]
impl BackgroundService for TaskPoller {
    async fn start(&self, shutdown: ShutdownWatch) {
        let supervised = self.0.supervisor.add_new("watch-tasks");
        let run = || async {
            let mut shutdown = shutdown.clone();
            loop {
                tokio::select! {
                    _ = shutdown.changed() => return,
                    () = tokio::time::sleep(PERIOD) => {}
                }
                self.0.watch().await;
            }
        };
        supervised.keep_task(run).await;
    }
}

/// Unix milliseconds.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// How a provider is asked how far a task is.
pub(super) fn look(road: &TaskRoute, upstream: &str) -> Option<TaskRequest> {
    let target = road.target()?;
    let provider = &target.provider;
    if road.lane.api == Api::Tasks {
        let mut path = format!("{}/task/", provider.base.prefix());
        crate::wire::path::push_path_segment(&mut path, upstream);
        return Some(TaskRequest::get(path));
    }
    let path = provider.video_path(&target.model, VideoStep::Look(upstream))?;
    if !provider.video_look_posts() {
        return Some(TaskRequest::get(path));
    }
    let mut body = BytesMut::new();
    let mut json = Writer::new(&mut body);
    json.begin_object().key("operationName").string(upstream).end_object();
    Some(TaskRequest { repeatable: true, ..TaskRequest::post(path, body.freeze()) })
}

impl Gateway {
    /// Looks after what is due.
    async fn watch(&self) {
        self.release_ended().await;
        let due = self.tasks.tasks.due(AT_ONCE, LEASE).within(KEEPING).await;
        self.count_store("due_tasks", &due);
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "tasks that are due cannot be found");
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
                gateway.advance(&live, TaskView { task, facts, state }).await;
            });
        }
        while looking.join_next().await.is_some() {}
    }

    /// Gives back what is held for tasks that another process has seen end.
    async fn release_ended(&self) {
        let held: Vec<(String, String)> = {
            let mut holds = self.tasks.holds.lock();
            let old = holds.iter_mut().filter(|(_, hold)| hold.since.elapsed() > RELEASE);
            let old = old.take(AT_ONCE).map(|(key, hold)| {
                hold.since = std::time::Instant::now();
                key.clone()
            });
            old.collect()
        };
        for (owner, id) in held {
            let Ok(found) = self.tasks.tasks.task(&owner, &id).within(KEEPING).await else { continue };
            let ended =
                |task: &StoredTask| unpack::<TaskState>(&task.state).is_none_or(|state| state.has_ended());
            if found.as_ref().is_none_or(ended) {
                drop(self.tasks.release(&owner, &id));
            }
        }
    }

    /// A task as its provider has it now, if it has not been asked just before.
    pub(super) async fn asked_again(&self, ctx: &mut Context, shown: TaskView) -> TaskView {
        if shown.state.has_ended() || shown.state.asked + PATIENCE > now() {
            return shown;
        }
        // It goes on when the client leaves: whoever finds out that a task has ended charges it.
        let (gateway, live) = (self.clone(), ctx.live.clone());
        let work = async move { gateway.advance(&live, shown).await };
        match tokio::spawn(work).await {
            Ok((shown, notes)) => {
                let record = &mut ctx.record;
                record.attempts += notes.attempts;
                record.upstream_status = notes.status;
                record.upstream_id = notes.id;
                record.detail = notes.detail;
                shown
            }
            Err(_) => TaskView {
                task: StoredTask::default(),
                facts: TaskFacts::default(),
                state: TaskState::default(),
            },
        }
    }

    /// Asks the provider how far a task is, and notes it; charges it when it has ended.
    async fn advance(&self, live: &Arc<ActiveSnapshot>, mut shown: TaskView) -> (TaskView, CallLog) {
        let mut notes = CallLog::default();
        if shown.state.has_ended() {
            return (shown, notes);
        }
        let age = now() - shown.facts.time;
        let report = match self.report(live, &shown, &mut notes).await {
            Ok(report) => report,
            Err(_) if age > LONGEST => {
                Some(ended("expired", "The provider never said what became of the task."))
            }
            Err(error) => {
                // It is asked again when its lease is over.
                let id = &shown.task.id;
                tracing::debug!(%error, id, "a provider does not say how far a task is");
                return (shown, notes);
            }
        };
        let Some(report) = report else { return (shown, notes) };
        let report = if age > LONGEST && !report.stage.is_end() {
            ended("expired", "The provider did not make the video in time.")
        } else {
            report
        };
        let ends = report.stage.is_end();
        let time = now();
        shown.state.update(report, time);
        shown.state.asked = time;
        let StoredTask { owner, id, version, .. } = &shown.task;
        if !ends {
            self.hold_again(&shown).await;
        }
        let due = (!ends).then_some(AGAIN);
        let changed = self.tasks.tasks.change(owner, id, *version, pack(&shown.state), due);
        let changed = changed.within(KEEPING).await;
        self.count_store("change_task", &changed);
        match changed {
            Ok(true) => {
                shown.task.version += 1;
                if ends {
                    self.charge_task(&shown).await;
                }
            }
            // Somebody else was faster.
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, id, "how far a task is cannot be kept"),
        }
        (shown, notes)
    }

    /// Holds what a task may cost, if the process that began it has ended: what that one held, it holds no more. Where
    /// gateways share balances it may be at work still, and the others know what it holds.
    async fn hold_again(&self, shown: &TaskView) {
        let TaskView { task, facts, .. } = shown;
        let ledger = self.billing.ledger.as_deref().filter(|ledger| !ledger.is_shared());
        let (Some(ledger), Some(account)) = (ledger, AccountId::new(&facts.account)) else { return };
        if facts.cost <= 0 || self.tasks.holds_for(&task.owner, &task.id) {
            return;
        }
        // Where the balance does not suffice any more, the task is charged at its end all the same.
        if let Ok(reservation) = ledger.reserve(&account, facts.cost).within(KEEPING).await {
            // Of two who look at once the later one keeps its own; what the other held is given back.
            self.tasks.hold(&task.owner, &task.id, reservation);
        }
    }

    /// What the provider says of a task; nothing while it has not begun it.
    async fn report(
        &self,
        live: &Arc<ActiveSnapshot>,
        shown: &TaskView,
        notes: &mut CallLog,
    ) -> Result<Option<Report>, ApiError> {
        let TaskView { facts, state, .. } = shown;
        let Some(upstream) = &state.upstream else {
            let lost = now() - facts.time > NAMELESS;
            return Ok(lost.then(|| ended("lost", "The provider's answer to the submission did not arrive.")));
        };
        let unconfigured = || ApiError::new(Kind::Internal, "the provider is not configured any more");
        let model = live.snapshot.routes.model(&facts.model).ok_or_else(unconfigured)?;
        let fits = |target: &&crate::route::Target| {
            *target.provider.name == *facts.provider && *target.model == *facts.target
        };
        let index = model.targets.iter().position(|target| fits(&target)).ok_or_else(unconfigured)?;
        let (api, endpoint) =
            if facts.form == Form::Group { (Api::Tasks, "tasks") } else { (Api::Videos, "videos") };
        let lane = live.lane(&self.metrics, endpoint, model, index, api).ok_or_else(unconfigured)?;
        let request = facts.request.clone();
        let road = TaskRoute { live: live.clone(), lane, model: model.clone(), target: index, request };
        let out = look(&road, upstream).ok_or_else(unconfigured)?;
        let asked = timeout(LOOK, self.bring_answer(&road, &out, notes)).await;
        let body = match asked.unwrap_or_else(|_| Err(super::super::exchange::silent())) {
            Ok(body) => body,
            // What a provider does not know any more will never be.
            Err(error) if matches!(error.status, 404 | 410) => {
                return Ok(Some(ended("expired", "The provider does not know of the task any more.")));
            }
            Err(error) => return Err(error),
        };
        let text = std::str::from_utf8(&body).map_err(|_| super::broken())?;
        let report = match facts.form.shape() {
            Some(shape) => read::looked(shape, text).ok(),
            None => crate::wire::tasks::answer::looked(text),
        };
        let mut report = report.ok_or_else(super::broken)?;
        if facts.form == Form::Group
            && let Some(target) = road.target()
        {
            // What lies at the other gateway opens with the credential that it has given.
            for medium in &mut report.media {
                if let Medium::Public(url) = medium
                    && super::stream::local(&target.provider.base, url).is_some()
                {
                    *medium = Medium::Keyed(std::mem::take(url));
                }
            }
        }
        if let Some((code, message)) = report.fault.take() {
            let provider = road.target().map(|target| &target.provider);
            report.fault = Some((code, super::super::upstream::scrubbed(provider, message)));
        }
        Ok(Some(report))
    }

    /// Charges a task that has ended, and makes its record. It is called once for each.
    async fn charge_task(&self, shown: &TaskView) {
        let TaskView { task, facts, state } = shown;
        let reservation = self.tasks.release(&task.owner, &task.id);
        let Some(ledger) = self.billing.ledger.as_deref() else { return };
        let done = state.stage() == Some(Stage::Done);
        let live = self.live.load_full();
        let usage = Usage { output: state.tokens, ..Usage::default() };
        let cost = match live.snapshot.routes.model(&facts.model) {
            Some(model) if done => {
                // A provider that says how long one is says it of each.
                let videos = state.media().count().max(1) as u64;
                let millis = state.millis.map_or(facts.millis, |millis| millis.saturating_mul(videos));
                // Where the provider makes another resolution than it was asked for, that one is paid.
                let reported = state.resolution.as_deref().map(lines);
                let reported = reported.filter(|reported| model.price.knows_resolution(reported));
                let resolution = reported.as_deref().unwrap_or(&facts.resolution).into();
                model.price.cost(&usage, &[Product::Video { millis, resolution }])
            }
            // It was priced when it began.
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
                error: if done { "" } else { Kind::UpstreamFailed.label() },
                status: if done { 200 } else { 500 },
                attempts: 1,
                first_byte: None,
                total: u32::try_from(time - facts.time).unwrap_or(u32::MAX),
                stream: false,
                counted: false,
                usage,
                cost,
            },
        );
        let outcome = match settled {
            Settled::Known(outcome) => outcome,
            pending => pending.within(KEEPING).await,
        };
        if let Err(error) = outcome {
            self.metrics.ledger_failures.with_label_values(&["settle", error.label()]).inc();
            tracing::error!(%error, id = task.id, "the charge of a task is not confirmed");
        }
    }
}

/// A task that will never have a video.
fn ended(code: &str, message: &str) -> Report {
    Report { stage: Stage::Failed, fault: Some((code.to_owned(), message.to_owned())), ..Report::default() }
}
