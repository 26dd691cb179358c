//! Execution of jobs: responses that the gateway builds from several provider calls (`codec::job`).
//!
//! A call uses the same means as an exchange: the route's head template, the provider's connections and time-outs, and
//! one more try if a pooled connection turns out to be closed. The response of a call is collected whole, and the
//! client receives nothing before the job is done (docs/decisions/008).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::record_calls;
use crate::Client;
use crate::Gateway;
use crate::client::call::{CallResponse, malformed_response, responses_too_large, to_get, upstream_error};
use crate::client::fetch::FetchFault;
use crate::client::send::{CallLog, RequestDestination, UpstreamRequest};
use crate::gateway::active_snapshot::ActiveSnapshot;
use crate::gateway::context::Context;
use crate::gateway::response_in_progress::SynthesizedResponse;
use crate::gateway::settle::Completion;
use crate::upstream_route::{UpstreamRoute, address_of, redact_secrets};
use codec::error::{ApiError, ErrorKind};
use codec::job::{CallDestination, Job, JobCall, JobFault, JobReply, RemoteMedia};
use codec::provider::Provider;
use codec::wire::error::ProviderError;
use driver::body_memory::RequestBudget;
use driver::downstream::client_gone;
use driver::offload::run_blocking_if_large;
use driver::outcome::{DrainDeadline, ExchangeOutcome, shutdown_error, timeout_error};
use routing::route::{Model, Target};

/// Concurrent calls of one job: enough to be fast, too few to exhaust a provider's limits at the expense of other
/// requests.
const MAX_CONCURRENT: usize = 4;

/// Route and deadline that all calls of a job share.
pub(crate) struct JobRoute {
    active: Arc<ActiveSnapshot>,
    upstream_route: Arc<UpstreamRoute>,
    model: Arc<Model>,
    target: usize,
    head: HeaderMap,
    deadline: tokio::time::Instant,
    repeatable: bool,
    /// Bytes that all responses and fetched media of the job may take together: a job holds them all until its end.
    budget: Arc<RequestBudget>,
}

impl JobRoute {
    fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    fn provider(&self) -> Option<&Arc<Provider>> {
        self.target().map(|target| &target.provider)
    }

    /// Builds the request of one call: the shared headers and those of this call. `None` for remote media, for a target
    /// that is gone, and for an address or media type that is not a valid header or URI.
    fn upstream_request(&self, call: &JobCall) -> Option<UpstreamRequest<'_>> {
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
        parts.uri = match &call.destination {
            CallDestination::Api(action) => self.upstream_route.uri(target, *action)?,
            CallDestination::Path(path) => address_of(&target.provider, path.to_string())?,
            CallDestination::Get(path) => {
                to_get(&mut parts);
                address_of(&target.provider, path.to_string())?
            }
            CallDestination::RemoteMedia(_) => return None,
        };
        Some(UpstreamRequest {
            destination: RequestDestination::Provider(self.active.addresses_of(&self.upstream_route)?),
            series: Some(&self.upstream_route.series),
            parts,
            body: (!matches!(call.destination, CallDestination::Get(_))).then(|| call.body.clone()),
            timeouts: target.timeouts,
            until: self.deadline,
            repeatable: self.repeatable || matches!(call.destination, CallDestination::Get(_)),
        })
    }
}

impl Gateway {
    /// Runs a job and sends the client its response. Ends early if the client disconnects or the process is restarting.
    pub(crate) async fn send_job(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        ended: &mut DrainDeadline<'_>,
    ) -> ExchangeOutcome {
        let Some(mut job) = ctx.attempt_mut().and_then(|plan| plan.job.take()) else {
            return ExchangeOutcome::Failed(malformed_response());
        };
        // Before the route is made, whose head names the attempt.
        ctx.start_attempt();
        let Some(way) = self.job_route(client, ctx, job.is_repeatable()) else {
            return ExchangeOutcome::Failed(malformed_response());
        };
        let way = Arc::new(way);
        let mut notes = CallLog::default();
        let end = {
            let work = pin!(self.run_rounds(&mut *job, &way, &mut notes));
            tokio::select! {
                // The job first: a job that is done in the same poll as a disconnect must be charged.
                biased;
                end = work => end,
                gone = client_gone(client) => Err(gone),
                () = ended.as_mut() => Err(shutdown_error()),
            }
        };
        let unknown = notes.outcome_unknown || notes.created;
        ctx.record.request_sent = notes.request_sent;
        record_calls(ctx, notes);
        match end {
            Ok(JobReply { body, usage, products, counted }) => {
                ctx.record_success(Instant::now());
                // Settle before the response is sent: a client must not receive a response that is not charged.
                let made = SynthesizedResponse { usage, products, counted };
                self.settle(ctx, Completion::Synthesized(&made)).await;
                match self.reply_pieces(client, ctx, body).await {
                    Ok(()) => ExchangeOutcome::Complete,
                    Err(error) => ExchangeOutcome::Failed(error),
                }
            }
            Err(error) => {
                // A call may have created something that the provider charges for. Without its retry state the request
                // is not repeated at another target.
                if unknown
                    && !job.is_repeatable()
                    && let Some(routed) = ctx.phase.routed_mut()
                {
                    routed.retry_state = None;
                }
                ExchangeOutcome::Failed(error)
            }
        }
    }

    /// Returns the route of a job's calls. `None` if the request has no attempt yet, or no upstream head can be built
    /// for it.
    pub(crate) fn job_route(&self, client: &Client, ctx: &Context, repeatable: bool) -> Option<JobRoute> {
        let plan = ctx.attempt()?;
        let head = self.upstream_head(client, ctx, plan).ok()?;
        let total = plan.target()?.timeouts.total;
        Some(JobRoute {
            active: ctx.active.clone(),
            upstream_route: plan.upstream_route.clone(),
            model: plan.model.clone(),
            target: plan.target,
            head: head.headers.clone(),
            deadline: tokio::time::Instant::now() + total,
            repeatable,
            budget: RequestBudget::new(self.limits.answer),
        })
    }

    /// Runs all rounds of a job and returns its result.
    pub(crate) async fn run_rounds(
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
            self.charge_bodies(&mut calls)?;
            self.run_round(job, way, notes, &mut taken, calls).await?;
        }
        run_blocking_if_large(taken, || job.finish()).map_err(|fault| match fault {
            JobFault::Failed(body) => upstream_error(way.provider(), error_status(&body), None, &body, notes),
            JobFault::Broken(detail) => {
                notes.detail = Some(detail.into_boxed_str());
                malformed_response()
            }
            JobFault::Refused(mut error) => {
                let provider = way.target().map(|target| &target.provider);
                error.message = redact_secrets(provider, error.message.into_owned()).into();
                error
            }
        })
    }

    /// Charges the bodies of calls to the memory budget. Successive calls that share one body charge it once.
    fn charge_bodies(&self, calls: &mut [JobCall]) -> Result<(), ApiError> {
        let mut last: Option<(*const u8, Bytes)> = None;
        for call in calls {
            let at = call.body.as_ptr();
            let weighed = match &last {
                Some((same, weighed)) if *same == at && weighed.len() == call.body.len() => weighed.clone(),
                _ => self.charge_memory(std::mem::take(&mut call.body))?,
            };
            call.body = weighed.clone();
            last = Some((at, weighed));
        }
        Ok(())
    }

    /// Runs the calls of one round, at most [`MAX_CONCURRENT`] at a time. The first failure cancels the calls in
    /// progress. If several media fields of the client's request fail, the error names the first of them, whichever
    /// failed sooner, so that the response is the same each time.
    async fn run_round(
        &self,
        job: &mut dyn Job,
        way: &Arc<JobRoute>,
        notes: &mut CallLog,
        taken: &mut usize,
        calls: Vec<JobCall>,
    ) -> Result<(), ApiError> {
        let mut waiting: VecDeque<(usize, JobCall)> = calls.into_iter().enumerate().collect();
        // A round usually has one call, which needs no task of its own.
        if waiting.len() == 1 {
            if let Some((number, call)) = waiting.pop_front() {
                let output = self.run_call(way, &call, notes).await?;
                *taken += output.body.len();
                output.hand_over(job, number);
            }
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        let mut open = Vec::with_capacity(MAX_CONCURRENT);
        let mut failed: Option<(usize, ApiError)> = None;
        loop {
            while failed.is_none()
                && tasks.len() < MAX_CONCURRENT
                && let Some((number, call)) = waiting.pop_front()
            {
                // Downloads of the client's media that are in progress, by number. They decide below which error is
                // reported.
                if matches!(&call.destination, CallDestination::RemoteMedia(link) if link.field.is_some()) {
                    open.push(number);
                }
                let (gateway, way) = (self.clone(), way.clone());
                tasks.spawn(async move {
                    let mut notes = CallLog::default();
                    let brought = gateway.run_call(&way, &call, &mut notes).await;
                    (number, brought, notes)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok(()) };
            let (number, brought, noted) = done.map_err(|_| malformed_response())?;
            notes.add(noted);
            open.retain(|other| *other != number);
            match brought {
                Ok(output) => {
                    *taken += output.body.len();
                    output.hand_over(job, number);
                }
                Err(error) if failed.as_ref().is_none_or(|(other, _)| number < *other) => {
                    failed = Some((number, error));
                }
                Err(_) => {}
            }
            if let Some((first, error)) = failed.take() {
                // No earlier media download can fail any more. The return drops `tasks`, which cancels the other calls.
                if open.iter().all(|other| *other > first) {
                    return Err(error);
                }
                failed = Some((first, error));
            }
        }
    }

    /// Runs one call and returns its success body, or downloads remote media.
    async fn run_call(
        &self,
        way: &JobRoute,
        call: &JobCall,
        notes: &mut CallLog,
    ) -> Result<CallOutput, ApiError> {
        if !call.after.is_zero() {
            let until = tokio::time::Instant::now() + call.after;
            // Fail at once instead of waiting for a poll that would come too late.
            if until > way.deadline {
                return Err(timeout_error());
            }
            tokio::time::sleep_until(until).await;
        }
        match &call.destination {
            CallDestination::RemoteMedia(link) => {
                let most = link.max_bytes.unwrap_or(usize::MAX).min(self.limits.fetch);
                let download = Box::pin(self.upstream_client.fetch(&link.url, most, &way.budget));
                let fetched = timeout_at(way.deadline, download).await;
                let fetched = fetched.unwrap_or(Err(FetchFault::Slow));
                let from = if link.field.is_some() { "client" } else { "provider" };
                let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
                self.metrics.remote_fetches.with_label_values(&[from, result]).inc();
                let fetched = fetched.map_err(|fault| match fault {
                    FetchFault::Busy => ApiError::overloaded(),
                    FetchFault::TotalTooLarge => responses_too_large(self.limits.answer),
                    fault => fetch_error(link, &fault, notes),
                });
                fetched.map(|body| CallOutput { body, input_tokens: None })
            }
            _ => {
                let heard = self.call(way, call, notes).await?;
                let input_tokens = heard.input_tokens;
                success_body(way, heard, notes).map(|body| CallOutput { body, input_tokens })
            }
        }
    }

    /// Sends one call to the provider and returns its response, whatever the status.
    async fn call(
        &self,
        way: &JobRoute,
        call: &JobCall,
        notes: &mut CallLog,
    ) -> Result<CallResponse, ApiError> {
        let request = way.upstream_request(call).ok_or_else(malformed_response)?;
        let response = self.upstream_client.call(&request, notes).await?;
        let tally = self.memory.tally(&way.budget);
        let response = response.collect_body(self.limits.answer, Some(tally), notes).await?;
        // The response has been read whole, so the outcome of the call is known.
        notes.outcome_unknown = false;
        Ok(response)
    }
}

/// Result of a call: the success body, and the input tokens that the head reports.
struct CallOutput {
    body: Bytes,
    input_tokens: Option<u64>,
}

impl CallOutput {
    fn hand_over(self, job: &mut dyn Job, number: usize) {
        let CallOutput { body, input_tokens } = self;
        if let Some(tokens) = input_tokens {
            job.on_input_tokens(number, tokens);
        }
        run_blocking_if_large(body.len(), || job.on_response(number, body));
    }
}

/// Maps a failed download to the client's error. For an address that the client gave, the error reveals no more than
/// the client could find out itself; otherwise it would be a probe into the gateway's network.
fn fetch_error(link: &RemoteMedia, fault: &FetchFault, notes: &mut CallLog) -> ApiError {
    notes.detail = fault.detail().map(Into::into).or_else(|| Some(fault.to_string().into_boxed_str()));
    if let Some(field) = &link.field {
        let message = format!("'{field}' cannot be fetched: {fault}.");
        return ApiError::new(ErrorKind::InvalidField, message).param(field.to_string());
    }
    let (kind, message) = match fault {
        FetchFault::Slow => {
            (ErrorKind::UpstreamTimeout, "The upstream provider's output could not be fetched in time.")
        }
        FetchFault::Status(401..=410) => (
            ErrorKind::UpstreamBroken,
            "The upstream provider's link to its output is invalid or has expired.",
        ),
        _ => (ErrorKind::UpstreamBroken, "The upstream provider's output could not be fetched."),
    };
    ApiError::new(kind, message)
}

/// Returns the body of a success response.
///
/// # Errors
/// Returns the provider's error, mapped for the client, for any other status.
fn success_body(way: &JobRoute, heard: CallResponse, notes: &mut CallLog) -> Result<Bytes, ApiError> {
    if heard.is_success() {
        return Ok(heard.body);
    }
    Err(upstream_error(way.provider(), heard.status, heard.retry_after, &heard.body, notes))
}

/// Returns the status that fits an error body which a provider sent with status 200.
fn error_status(body: &[u8]) -> u16 {
    ProviderError::decode(body).status()
}
