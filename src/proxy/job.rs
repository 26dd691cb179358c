//! Jobs: answers that the gateway makes itself, out of calls of a provider.
//!
//! A call goes the same way as an exchange does: the lane's head, the provider's connections, its time-outs, one more
//! try where a connection from the pool had been closed. But its answer is collected, and nothing of it leaves before
//! the job is done (docs/decisions/008).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::active_snapshot::ActiveSnapshot;
use super::body_memory::Room;
use super::call::{CallLog, CallRequest, CallResponse, answers_too_large, broken, refused, to_look};
use super::context::{Context, SynthesizedResponse, UpstreamResponse};
use super::exchange::{End, Ended, client_gone, restarting, silent};
use super::fetch::FetchFault;
use super::offload::apart_if_large;
use super::request::overloaded;
use super::upstream::scrubbed;
use super::upstream_route::{UpstreamRoute, address_of};
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::job::{Job, JobCall, JobFault, JobReply, RemoteMedia, To};
use crate::provider::Provider;
use crate::route::{Model, Target};
use crate::store::Settled;
use crate::wire::error::ProviderError;

/// Calls of one job that are under way at a time: enough to be quick, too few to use a provider's limits up for others.
const AT_ONCE: usize = 4;

/// The way that all calls of a job go.
pub(super) struct JobRoute {
    live: Arc<ActiveSnapshot>,
    lane: Arc<UpstreamRoute>,
    model: Arc<Model>,
    target: usize,
    head: HeaderMap,
    deadline: tokio::time::Instant,
    repeatable: bool,
    /// What all answers together, and what lies behind links, may take: a job holds them all.
    room: Arc<Room>,
}

impl JobRoute {
    fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    fn provider(&self) -> Option<&Arc<Provider>> {
        self.target().map(|target| &target.provider)
    }

    /// A call, with the head of all and what differs.
    fn ask(&self, call: &JobCall) -> Option<CallRequest<'_>> {
        let target = self.target()?;
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.headers = self.head.clone();
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        if let Some(media) = &call.media {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media).ok()?);
        }
        for (name, value) in call.headers {
            parts.headers.insert(*name, HeaderValue::from_static(value));
        }
        parts.uri = match &call.to {
            To::Api(action) => self.lane.uri(target, *action)?,
            To::Path(path) => address_of(&target.provider, path.to_string())?,
            To::Look(path) => {
                to_look(&mut parts);
                address_of(&target.provider, path.to_string())?
            }
            To::Link(_) => return None,
        };
        Some(CallRequest {
            link: self.live.link(&self.lane)?,
            series: Some(&self.lane.series),
            parts,
            body: (!matches!(call.to, To::Look(_))).then(|| call.body.clone()),
            timeouts: target.timeouts,
            until: self.deadline,
            repeatable: self.repeatable || matches!(call.to, To::Look(_)),
        })
    }
}

impl Gateway {
    /// Does a job and brings the client its answer.
    pub(super) async fn run_job(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut job: Box<dyn Job>,
        ended: &mut Ended<'_>,
    ) -> End {
        let Some(way) = self.way(client, ctx, job.is_repeatable()) else { return End::Failed(broken()) };
        let way = Arc::new(way);
        ctx.turn();
        let mut notes = CallLog::default();
        let end = {
            let work = pin!(self.work(&mut *job, &way, &mut notes));
            tokio::select! {
                biased;
                end = work => end,
                gone = client_gone(client) => Err(gone),
                () = ended.as_mut() => Err(restarting()),
            }
        };
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.said = notes.said;
        record.answered = notes.answered;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id.take();
        record.detail = notes.detail.take();
        match end {
            Ok(JobReply { body, usage, made: products, counted }) => {
                ctx.answer = UpstreamResponse::Synthesized(SynthesizedResponse { usage, products, counted });
                ctx.answered_well(Instant::now());
                // Nobody has an answer that is not charged.
                match ctx.settle(true) {
                    None => {}
                    Some(Settled::Known(outcome)) => self.settled(ctx, outcome),
                    Some(pending) => Box::pin(self.settling(ctx, pending)).await,
                }
                match self.reply_made(client, ctx, body).await {
                    Ok(()) => End::Complete,
                    Err(error) => End::Failed(error),
                }
            }
            Err(error) => {
                // What may have been made must not be made again.
                let unknown = notes.unanswered || notes.created;
                if unknown && !job.is_repeatable() {
                    ctx.origin = None;
                }
                End::Failed(error)
            }
        }
    }

    pub(super) fn way(&self, client: &Client, ctx: &Context, repeatable: bool) -> Option<JobRoute> {
        let head = self.upstream_head(client, ctx).ok()?;
        let plan = ctx.plan.as_ref()?;
        let total = plan.target()?.timeouts.total;
        Some(JobRoute {
            live: ctx.live.clone(),
            lane: plan.lane.clone(),
            model: plan.model.clone(),
            target: plan.target,
            head: head.headers.clone(),
            deadline: tokio::time::Instant::now() + total,
            repeatable,
            room: Room::new(self.limits.answer),
        })
    }

    /// All rounds of a job.
    pub(super) async fn work(
        &self,
        job: &mut dyn Job,
        way: &Arc<JobRoute>,
        notes: &mut CallLog,
    ) -> Result<JobReply, ApiError> {
        let mut taken = 0;
        loop {
            let mut calls = job.next();
            if calls.is_empty() {
                break;
            }
            self.weigh_bodies(&mut calls)?;
            self.round(job, way, notes, &mut taken, calls).await?;
        }
        apart_if_large(taken, || job.finish()).map_err(|fault| match fault {
            JobFault::Failed(body) => refused(way.provider(), error_status(&body), None, &body, notes),
            JobFault::Broken(detail) => {
                notes.detail = Some(detail.into_boxed_str());
                broken()
            }
            JobFault::Refused(mut error) => {
                let provider = way.target().map(|target| &target.provider);
                error.message = scrubbed(provider, error.message.into_owned()).into();
                error
            }
        })
    }

    /// Counts the bodies of calls; one that several share is counted once.
    fn weigh_bodies(&self, calls: &mut [JobCall]) -> Result<(), ApiError> {
        let mut last: Option<(*const u8, Bytes)> = None;
        for call in calls {
            let at = call.body.as_ptr();
            let weighed = match &last {
                Some((same, weighed)) if *same == at && weighed.len() == call.body.len() => weighed.clone(),
                _ => self.weighed(std::mem::take(&mut call.body))?,
            };
            call.body = weighed.clone();
            last = Some((at, weighed));
        }
        Ok(())
    }

    /// The calls of one round, some of them at a time. What is under way when one fails is given up; but of several
    /// links of a client that fail it is told of the first, whichever failed sooner.
    async fn round(
        &self,
        job: &mut dyn Job,
        way: &Arc<JobRoute>,
        notes: &mut CallLog,
        taken: &mut usize,
        calls: Vec<JobCall>,
    ) -> Result<(), ApiError> {
        let mut waiting: VecDeque<(usize, JobCall)> = calls.into_iter().enumerate().collect();
        if waiting.len() == 1 {
            if let Some((number, call)) = waiting.pop_front() {
                let body = self.bring(way, &call, notes).await?;
                *taken += body.len();
                apart_if_large(body.len(), || job.heard(number, body));
            }
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        let mut open = Vec::with_capacity(AT_ONCE);
        let mut failed: Option<(usize, ApiError)> = None;
        loop {
            while failed.is_none()
                && tasks.len() < AT_ONCE
                && let Some((number, call)) = waiting.pop_front()
            {
                if matches!(&call.to, To::Link(link) if link.field.is_some()) {
                    open.push(number);
                }
                let (gateway, way) = (self.clone(), way.clone());
                tasks.spawn(async move {
                    let mut notes = CallLog::default();
                    let brought = gateway.bring(&way, &call, &mut notes).await;
                    (number, brought, notes)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok(()) };
            let (number, brought, noted) = done.map_err(|_| broken())?;
            notes.add(noted);
            open.retain(|other| *other != number);
            match brought {
                Ok(body) => {
                    *taken += body.len();
                    apart_if_large(body.len(), || job.heard(number, body));
                }
                Err(error) if failed.as_ref().is_none_or(|(other, _)| number < *other) => {
                    failed = Some((number, error));
                }
                Err(_) => {}
            }
            if let Some((first, error)) = failed.take() {
                if open.iter().all(|other| *other > first) {
                    return Err(error);
                }
                failed = Some((first, error));
            }
        }
    }

    /// What a call brings: an answer that is none of an error, or what lies behind a link.
    async fn bring(&self, way: &JobRoute, call: &JobCall, notes: &mut CallLog) -> Result<Bytes, ApiError> {
        if !call.after.is_zero() {
            let until = tokio::time::Instant::now() + call.after;
            if until > way.deadline {
                return Err(silent());
            }
            tokio::time::sleep_until(until).await;
        }
        match &call.to {
            To::Link(link) => {
                let most = link.most.unwrap_or(usize::MAX).min(self.limits.fetch);
                let fetched =
                    timeout_at(way.deadline, Box::pin(self.fetch(&link.url, most, &way.room))).await;
                let fetched = fetched.unwrap_or(Err(FetchFault::Slow));
                let from = if link.field.is_some() { "client" } else { "provider" };
                let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
                self.metrics.links.with_label_values(&[from, result]).inc();
                fetched.map_err(|fault| match fault {
                    FetchFault::Busy => overloaded(),
                    FetchFault::Together => answers_too_large(self.limits.answer),
                    fault => unfetched(link, &fault, notes),
                })
            }
            _ => {
                let heard = self.call(way, call, notes).await?;
                accepted(way, heard, notes)
            }
        }
    }

    /// One call.
    async fn call(
        &self,
        way: &JobRoute,
        call: &JobCall,
        notes: &mut CallLog,
    ) -> Result<CallResponse, ApiError> {
        let mut reached = self.ask_provider(&way.ask(call).ok_or_else(broken)?, notes).await?;
        let heard = reached.hear(self.limits.answer, Some(self.memory.tally(&way.room)), notes).await?;
        notes.unanswered = false;
        self.read_out(reached);
        Ok(heard)
    }
}

/// What it means to the client that nothing could be brought. Where its own link leads to is not told beyond what it
/// could see itself.
fn unfetched(link: &RemoteMedia, fault: &FetchFault, notes: &mut CallLog) -> ApiError {
    notes.detail = fault.detail().map(Into::into).or_else(|| Some(fault.to_string().into_boxed_str()));
    if let Some(field) = &link.field {
        let message = format!("'{field}' cannot be brought: {fault}.");
        return ApiError::new(Kind::InvalidField, message).param(field.to_string());
    }
    let (kind, message) = match fault {
        FetchFault::Slow => {
            (Kind::UpstreamTimeout, "What the upstream provider made could not be brought in time.")
        }
        FetchFault::Status(401..=410) => (
            Kind::UpstreamBroken,
            "The upstream provider's link to what it made is not valid, or not any more.",
        ),
        _ => (Kind::UpstreamBroken, "What the upstream provider made could not be brought."),
    };
    ApiError::new(kind, message)
}

/// The body of an answer that is none of an error.
fn accepted(way: &JobRoute, heard: CallResponse, notes: &mut CallLog) -> Result<Bytes, ApiError> {
    if heard.is_success() {
        return Ok(heard.body);
    }
    Err(refused(way.provider(), heard.status, heard.retry_after, &heard.body, notes))
}

/// The status that an error would have had that came with 200.
fn error_status(body: &[u8]) -> u16 {
    super::response::status_of(&ProviderError::decode(body))
}
