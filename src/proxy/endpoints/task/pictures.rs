//! Images of the task group: the client waits for them. A repeated request with the same tag receives the same
//! response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::call::{TaskRequest, TaskRoute, reported_error};
use super::group::SubmissionKey;
use super::record::{TaskFacts, TaskState, pack, unpack};
use super::submit::account_scoped_key;
use super::{STORE_TIMEOUT, internal_error, new_id};
use crate::Client;
use crate::Gateway;
use crate::client::call::malformed_response;
use crate::client::send::CallLog;
use crate::endpoints::record_calls;
use crate::gateway::context::Context;
use crate::gateway::images;
use crate::gateway::response_in_progress::SynthesizedResponse;
use crate::gateway::settle::Completion;
use crate::gateway::stored::account;
use codec::canonical::image::ImageRequest;
use codec::canonical::{ElementLoss, Product, Usage};
use codec::error::ApiError;
use codec::job::image::{ImageJob, ImageJobRequest};
use codec::job::{BodyPieces, Job as _, JobReply};
use codec::wire::Api;
use codec::wire::images::reply::ImageReplyShape;
use codec::wire::tasks::{answer, image};
use driver::outcome::timeout_error;
use routing::account::ExpectedUsage;
use storage::kv::NewTask;

/// Maximum time that a client waits for images.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between two checks whether an earlier request with the same idempotency key has its response.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum length of a stored response, in bytes: links are short, and inline images are not stored.
const MAX_STORED_RESPONSE: usize = 64 * 1024;

/// Result of the search for an earlier request with the same idempotency key.
enum EarlierRequest {
    /// There is none. This request is stored under this id.
    New(String),
    /// The earlier request has this response.
    Completed(Bytes),
    /// The stored record cannot be read.
    Unreadable,
}

impl Gateway {
    /// Serves an image request: runs the job and stores its response under the idempotency key.
    pub(super) async fn reply_images(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        name: &str,
        request: ImageRequest,
        unknown: &[ElementLoss],
        mark: Option<SubmissionKey>,
    ) -> Result<bool, ApiError> {
        let road = self.select_task_route(ctx, name, Api::Images, None)?;
        let target = road.target().ok_or_else(internal_error)?;
        let (product, input) = images::expected(&request);
        let job = ImageJob::new(ImageJobRequest {
            request,
            edits: false,
            shape: ImageReplyShape::Group,
            upstream: target.model.clone(),
            dialect: target.imaging(&road.model.id),
            now: ctx.record.unix_millis / 1_000,
        })?;
        self.warn_lost_settings(ctx, "tasks", &[job.lost(), unknown].concat())?;
        let id = match mark {
            None => None,
            Some(mark) => match self.find_earlier_request(ctx, mark).await? {
                EarlierRequest::New(id) => Some(id),
                EarlierRequest::Completed(body) => return self.reply_json(client, ctx, body).await,
                EarlierRequest::Unreadable => None,
            },
        };
        let made = [product];
        let expected = ExpectedUsage { input, output: Some(0), products: &made, ..ExpectedUsage::default() };
        let outcome = match self.admit_expected(ctx, &road.model, &expected).await {
            Ok(()) => Box::pin(self.run_image_job(client, ctx, job)).await,
            Err(error) => Err(error),
        };
        // Also after a failure: this frees the idempotency key, for which other requests may be waiting.
        if let Some(id) = id {
            self.store_images(ctx, &id, outcome.as_ref().ok()).await;
        }
        let body = outcome?;
        self.reply_pieces(client, ctx, body).await.map(|()| true)
    }

    /// Runs the job and charges it.
    async fn run_image_job(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut job: ImageJob,
    ) -> Result<BodyPieces, ApiError> {
        let way = Arc::new(self.job_route(client, ctx, job.is_repeatable()).ok_or_else(internal_error)?);
        ctx.record.first_attempt_at = Some(Instant::now());
        let mut notes = CallLog::default();
        let reply = tokio::time::timeout(IMAGE_TIMEOUT, self.run_rounds(&mut job, &way, &mut notes)).await;
        record_calls(ctx, notes);
        let JobReply { body, usage, products, counted } = reply.unwrap_or_else(|_| Err(timeout_error()))?;
        // Settle before the response is sent: a client must not receive a response that is not charged.
        let made = SynthesizedResponse { usage, products, counted };
        self.settle(ctx, Completion::Synthesized(&made)).await;
        Ok(body)
    }

    /// Stores a request under its idempotency key, or waits for the response of the request that has the key already.
    async fn find_earlier_request(
        &self,
        ctx: &Context,
        (mark, span): SubmissionKey,
    ) -> Result<EarlierRequest, ApiError> {
        let owner = account(ctx);
        let until = tokio::time::Instant::now() + IMAGE_TIMEOUT;
        loop {
            let id = new_id("image_");
            let time = i64::try_from(ctx.record.unix_millis).unwrap_or(i64::MAX);
            let facts = TaskFacts { time, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
            let task = NewTask {
                owner: owner.clone(),
                id: id.clone(),
                idempotency_key: Some((account_scoped_key(&mark), span)),
                lifetime: span,
                // There is nothing to poll: due only after the record has expired.
                due: span.saturating_mul(2),
                facts: pack(&facts),
                state: pack(&TaskState::default()),
            };
            let kept = self.tasks.tasks.submit(task).within(STORE_TIMEOUT).await;
            let Some(known) = self.count_operation("submit_task", kept)? else {
                return Ok(EarlierRequest::New(id));
            };
            loop {
                let found = self.tasks.tasks.task(&owner, &known).within(STORE_TIMEOUT).await;
                // The earlier request has failed and its key is free: try to store this one.
                let Some(task) = self.count_operation("find_task", found)? else { break };
                let (facts, state) = (unpack::<TaskFacts>(&task.facts), unpack::<TaskState>(&task.state));
                let Some((facts, state)) = facts.zip(state) else { return Ok(EarlierRequest::Unreadable) };
                if let Some(answer) = state.answer {
                    return Ok(EarlierRequest::Completed(answer.into()));
                }
                let age = time.saturating_sub(facts.time);
                if age > i64::try_from(IMAGE_TIMEOUT.as_millis()).unwrap_or(i64::MAX) {
                    // The process of the earlier request ended before its response was complete.
                    let forgotten = self.tasks.tasks.remove(&owner, &known).within(STORE_TIMEOUT).await;
                    self.count_operation("forget_task", forgotten)?;
                    break;
                }
                if tokio::time::Instant::now() >= until {
                    return Err(timeout_error());
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        }
    }

    /// Stores the response for a repeated request. Frees the idempotency key if the request failed or the response is
    /// large.
    async fn store_images(&self, ctx: &Context, id: &str, body: Option<&BodyPieces>) {
        let owner = account(ctx);
        let small =
            body.filter(|body| body.len() <= MAX_STORED_RESPONSE).map(|body| body.clone().into_bytes());
        let text = small.and_then(|body| String::from_utf8(body.into()).ok());
        let outcome = match text {
            Some(answer) => {
                let state = TaskState { answer: Some(answer), ..TaskState::default() };
                self.tasks.tasks.change(&owner, id, 0, pack(&state), None).within(STORE_TIMEOUT).await
            }
            None => self.tasks.tasks.remove(&owner, id).within(STORE_TIMEOUT).await,
        };
        let _ = self.count_operation("change_task", outcome);
    }

    /// Forwards an image request to another gateway that serves the group.
    pub(super) async fn forward_images(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        road: TaskRoute,
        out: TaskRequest,
        image: &ImageRequest,
    ) -> Result<bool, ApiError> {
        let (product, input) = images::expected(image);
        let made = [product];
        let expected = ExpectedUsage { input, output: Some(0), products: &made, ..ExpectedUsage::default() };
        self.admit_expected(ctx, &road.model, &expected).await?;
        ctx.record.first_attempt_at = Some(Instant::now());
        let mut notes = CallLog::default();
        let asked = tokio::time::timeout(IMAGE_TIMEOUT, self.call_provider(&road, &out, &mut notes)).await;
        let asked = asked.unwrap_or_else(|_| Err(timeout_error()));
        let urls = asked.and_then(|body| image_urls(&road, &body, &mut notes));
        record_calls(ctx, notes);
        let urls = urls?;
        let [Product::Images { size, quality, .. }] = made else { return Err(internal_error()) };
        let products = vec![Product::Images { count: urls.len() as u64, size, quality }];
        let made = SynthesizedResponse { usage: Usage::default(), products, counted: false };
        self.settle(ctx, Completion::Synthesized(&made)).await;
        self.reply_json(client, ctx, answer::images(&urls)).await
    }
}

/// Returns the image URLs of a response.
fn image_urls(road: &TaskRoute, body: &Bytes, notes: &mut CallLog) -> Result<Vec<String>, ApiError> {
    let made = json::from_utf8(body)
        .ok()
        .and_then(|text| image::decode(text).ok())
        .ok_or_else(malformed_response)?;
    if !made.urls.is_empty() {
        return Ok(made.urls);
    }
    if !made.failed {
        return Err(malformed_response());
    }
    Err(reported_error(road, body, notes))
}
