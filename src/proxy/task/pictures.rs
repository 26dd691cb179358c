//! The pictures of the task group: a client waits for them, and has the same ones when it asks the same again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::call::CallLog;
use super::super::context::{Context, SynthesizedResponse, UpstreamResponse};
use super::super::exchange::silent;
use super::super::stored::account;
use super::super::{Client, Gateway, images};
use super::call::{TaskRequest, TaskRoute, refused};
use super::group::Mark;
use super::record::{TaskFacts, TaskState, pack, unpack};
use super::submit::of_account;
use super::{KEEPING, broken, failed, new_id};
use crate::account::ExpectedUsage;
use crate::canonical::image::ImageRequest;
use crate::canonical::{ElementLoss, Product, Usage};
use crate::error::ApiError;
use crate::job::image::{ImageJobRequest, Imaging};
use crate::job::{Body, Job as _, JobReply};
use crate::store::{NewTask, Settled};
use crate::wire::Api;
use crate::wire::error::ProviderError;
use crate::wire::images::reply::Shape;
use crate::wire::tasks::{answer, image};

/// How long pictures are waited for.
const PICTURES: Duration = Duration::from_secs(120);
/// How often it is looked whether a request that came before has its pictures.
const LOOKING: Duration = Duration::from_millis(250);
/// Largest answer that is kept for the same request: links are short, and pictures themselves are not kept.
const KEPT: usize = 64 * 1024;

/// What another request with the same tag and the same words has made of it.
enum Before {
    /// Nothing: this one is the first, under this id.
    First(String),
    /// This answer.
    Answered(Bytes),
    /// Something that is not kept.
    Unknown,
}

impl Gateway {
    /// Has pictures made, and waits for them.
    pub(super) async fn reply_images(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        name: &str,
        request: ImageRequest,
        unknown: &[ElementLoss],
        mark: Option<Mark>,
    ) -> Result<bool, ApiError> {
        let (road, _) = self.road(ctx, name, Api::Images, None)?;
        let target = road.target().ok_or_else(failed)?;
        let (product, input) = images::expected(&request);
        let job = Imaging::new(ImageJobRequest {
            request,
            edits: false,
            shape: Shape::Group,
            upstream: target.model.clone(),
            dialect: target.provider.imaging(&target.model, &road.model.id),
            now: ctx.record.unix_millis / 1_000,
        })?;
        self.tell_lost(ctx, "tasks", &[job.lost(), unknown].concat())?;
        let id = match mark {
            None => None,
            Some(mark) => match self.made_before(ctx, mark).await? {
                Before::First(id) => Some(id),
                Before::Answered(body) => return self.reply_json(client, ctx, body).await,
                Before::Unknown => None,
            },
        };
        let made = [product];
        let expected = ExpectedUsage { input, output: Some(0), made: &made, ..ExpectedUsage::default() };
        let outcome = match self.hold(ctx, &road.model.price, &expected).await {
            Ok(()) => Box::pin(self.draw_pictures(client, ctx, job)).await,
            Err(error) => Err(error),
        };
        if let Some(id) = id {
            self.keep_pictures(ctx, &id, outcome.as_ref().ok()).await;
        }
        let body = outcome?;
        self.reply_made(client, ctx, body).await.map(|()| true)
    }

    /// Makes the calls of a job, and charges what came of them.
    async fn draw_pictures(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut job: Imaging,
    ) -> Result<Body, ApiError> {
        let way = Arc::new(self.way(client, ctx, job.is_repeatable()).ok_or_else(failed)?);
        ctx.record.asked = Some(Instant::now());
        let mut notes = CallLog::default();
        let reply = tokio::time::timeout(PICTURES, self.work(&mut job, &way, &mut notes)).await;
        note(ctx, notes);
        let JobReply { body, usage, made: products, counted } = reply.unwrap_or_else(|_| Err(silent()))?;
        self.charge_pictures(ctx, SynthesizedResponse { usage, products, counted }).await;
        Ok(body)
    }

    /// Nobody has an answer that is not charged.
    async fn charge_pictures(&self, ctx: &mut Context, made: SynthesizedResponse) {
        ctx.answer = UpstreamResponse::Synthesized(made);
        match ctx.settle(true) {
            None => {}
            Some(Settled::Known(outcome)) => self.settled(ctx, outcome),
            Some(pending) => self.settling(ctx, pending).await,
        }
    }

    /// Notes a request with its mark; or waits for what the one that has the mark already is answered with.
    async fn made_before(&self, ctx: &Context, (mark, span): Mark) -> Result<Before, ApiError> {
        let owner = account(ctx);
        let until = tokio::time::Instant::now() + PICTURES;
        loop {
            let id = new_id("image_");
            let time = i64::try_from(ctx.record.unix_millis).unwrap_or(i64::MAX);
            let facts = TaskFacts { time, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
            let task = NewTask {
                owner: owner.clone(),
                id: id.clone(),
                mark: Some((of_account(&mark), span)),
                lifetime: span,
                // There is nothing to look after.
                due: span.saturating_mul(2),
                facts: pack(&facts),
                state: pack(&TaskState::default()),
            };
            let kept = self.tasks.tasks.submit(task).within(KEEPING).await;
            let Some(known) = self.noted("submit_task", kept)? else { return Ok(Before::First(id)) };
            loop {
                let found = self.tasks.tasks.task(&owner, &known).within(KEEPING).await;
                // It has failed, and its mark is free.
                let Some(task) = self.noted("find_task", found)? else { break };
                let (facts, state) = (unpack::<TaskFacts>(&task.facts), unpack::<TaskState>(&task.state));
                let Some((facts, state)) = facts.zip(state) else { return Ok(Before::Unknown) };
                if let Some(answer) = state.answer {
                    return Ok(Before::Answered(answer.into()));
                }
                let age = time.saturating_sub(facts.time);
                if age > i64::try_from(PICTURES.as_millis()).unwrap_or(i64::MAX) {
                    // Its process ended before it did.
                    let forgotten = self.tasks.tasks.forget(&owner, &known).within(KEEPING).await;
                    self.noted("forget_task", forgotten)?;
                    break;
                }
                if tokio::time::Instant::now() >= until {
                    return Err(silent());
                }
                tokio::time::sleep(LOOKING).await;
            }
        }
    }

    /// Keeps an answer for the same request; one that failed, or that is large, leaves its tag free.
    async fn keep_pictures(&self, ctx: &Context, id: &str, body: Option<&Body>) {
        let owner = account(ctx);
        let small = body.filter(|body| body.len() <= KEPT).map(|body| body.clone().into_bytes());
        let text = small.and_then(|body| String::from_utf8(body.into()).ok());
        let outcome = match text {
            Some(answer) => {
                let state = TaskState { answer: Some(answer), ..TaskState::default() };
                self.tasks.tasks.change(&owner, id, 0, pack(&state), None).within(KEEPING).await
            }
            None => self.tasks.tasks.forget(&owner, id).within(KEEPING).await,
        };
        let _ = self.noted("change_task", outcome);
    }

    /// Has another gateway of the group make pictures.
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
        let expected = ExpectedUsage { input, output: Some(0), made: &made, ..ExpectedUsage::default() };
        self.hold(ctx, &road.model.price, &expected).await?;
        ctx.record.asked = Some(Instant::now());
        let mut notes = CallLog::default();
        let asked = tokio::time::timeout(PICTURES, self.bring_answer(&road, &out, &mut notes)).await;
        let asked = asked.unwrap_or_else(|_| Err(silent()));
        let urls = asked.and_then(|body| pictures(&road, &body, &mut notes));
        note(ctx, notes);
        let urls = urls?;
        let [Product::Images { size, quality, .. }] = made else { return Err(failed()) };
        let products = vec![Product::Images { count: urls.len() as u64, size, quality }];
        self.charge_pictures(ctx, SynthesizedResponse { usage: Usage::default(), products, counted: false })
            .await;
        self.reply_json(client, ctx, answer::images(&urls)).await
    }
}

fn note(ctx: &mut Context, notes: CallLog) {
    let record = &mut ctx.record;
    record.attempts += notes.attempts;
    record.answered = notes.answered;
    record.upstream_status = notes.status;
    record.upstream_id = notes.id;
    record.detail = notes.detail;
}

/// The addresses of the pictures in an answer.
fn pictures(road: &TaskRoute, body: &Bytes, notes: &mut CallLog) -> Result<Vec<String>, ApiError> {
    let made = std::str::from_utf8(body).ok().and_then(|text| image::decode(text).ok()).ok_or_else(broken)?;
    if !made.urls.is_empty() {
        return Ok(made.urls);
    }
    if !made.failed {
        return Err(broken());
    }
    let provider = ProviderError::decode(body);
    Err(refused(road, super::super::response::status_of(&provider), None, body, notes))
}
