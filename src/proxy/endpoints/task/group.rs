//! Task group: videos are submitted as tasks, images are waited for.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::call::{TaskRequest, TaskRoute};
use super::record::{Form, TaskFacts};
use super::submit::{TaskSubmission, video_submission};
use super::{internal_error, utf8};
use crate::Client;
use crate::Gateway;
use crate::gateway::context::Context;
use crate::gateway::fallback::not_offered;
use crate::gateway::request::check_media;
use codec::error::{ApiError, ErrorKind};
use codec::provider::{ProviderKind, VideoStep};
use codec::wire::Api;
use codec::wire::path::Endpoint;
use codec::wire::tasks::ask::{DecodedTask, ParsedTask, decode, words};
use codec::wire::tasks::{Task, answer, image};
use codec::wire::video::ask;
use json::JsonText;

/// Lifetime of an idempotency key.
const IDEMPOTENCY_TTL: Duration = Duration::from_secs(86_400);

impl Gateway {
    /// Serves a submission to the group.
    pub(super) async fn reply_group(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
        task: Task,
    ) -> Result<bool, ApiError> {
        ctx.open_charges();
        check_media(client.req_header(), endpoint)?;
        let (body, _permit) = self.read_whole(client, ctx, self.limits.body).await?;
        let body = utf8(body)?;
        let asked = decode(task, &body)?;
        let name = asked.model.clone().unwrap_or_else(|| task.name().into()).into_owned();
        // Another gateway that serves the group receives the request as it is, except for the model's name.
        if let Ok(road) = self.select_task_route(ctx, &name, Api::Tasks, None)
            && road.target().is_some_and(|target| target.provider.kind == ProviderKind::OpenAiCompatible)
        {
            let mark = idempotency_key(task, &asked, &body);
            let body = with_model(&body, &asked, &road)?;
            return self.forward(client, ctx, task, &asked, road, (body, mark)).await;
        }
        let mark = idempotency_key(task, &asked, &body);
        match &asked.what {
            DecodedTask::Image(image) => {
                let request = (**image).clone();
                let made = self.reply_images(client, ctx, &name, request, &asked.lost_settings, mark);
                Box::pin(made).await.map_err(|error| asked.named(error))
            }
            DecodedTask::Video(video) => {
                let road = self.select_task_route(ctx, &name, Api::Videos, None)?;
                let mut video = (**video).clone();
                let target = road.target().ok_or_else(internal_error)?;
                let dialect = target.rules().video;
                if !dialect.fetches_urls {
                    self.fetch_images(&mut video).await?;
                }
                ask::fit(&dialect, &mut video)?;
                let (order, mut lost) = video_submission(&road, &name, &video, "tasks", None)?;
                let order = TaskSubmission { idempotency_key: mark, ..order };
                lost.extend(asked.lost_settings.iter().cloned());
                self.warn_lost_settings(ctx, "tasks", &lost)?;
                let (id, _) = self.reserve_and_submit(ctx, road, order).await?;
                let body = answer::submitted(task, &id, ctx.id.as_str());
                self.reply_json(client, ctx, body).await
            }
            DecodedTask::Face(face) => {
                let road = self.select_task_route(ctx, &name, Api::Videos, None)?;
                let target = road.target().ok_or_else(internal_error)?;
                // Only DashScope replaces faces.
                if target.provider.kind != ProviderKind::DashScope {
                    return Err(not_offered(&name, Api::Tasks));
                }
                let mut body = BytesMut::new();
                image::encode_face(face, &target.model, &mut body);
                let step = VideoStep::Submit { framed: true };
                let path = target.provider.video_path(&target.model, step).ok_or_else(internal_error)?;
                let out = TaskRequest {
                    headers: target.provider.video_headers(),
                    ..TaskRequest::post(path, body.freeze())
                };
                self.warn_lost_settings(ctx, "tasks", &asked.lost_settings)?;
                let facts =
                    TaskFacts { form: Form::Nested, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
                let order = TaskSubmission { facts, request: out, prefix: "task_", idempotency_key: mark };
                let (id, _) = self.reserve_and_submit(ctx, road, order).await?;
                let body = answer::submitted(task, &id, ctx.id.as_str());
                self.reply_json(client, ctx, body).await
            }
        }
    }

    /// Forwards a request to another gateway that serves the group.
    async fn forward(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        task: Task,
        asked: &ParsedTask<'_>,
        road: TaskRoute,
        (body, mark): (Bytes, Option<SubmissionKey>),
    ) -> Result<bool, ApiError> {
        let prefix = road.target().ok_or_else(internal_error)?.provider.base.prefix().to_owned();
        let out = TaskRequest::post(format!("{prefix}/{}", task.name()), body);
        if let DecodedTask::Image(image) = &asked.what {
            return self.forward_images(client, ctx, road, out, image).await;
        }
        let mut facts = TaskFacts { form: Form::Group, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
        if let DecodedTask::Video(video) = &asked.what {
            facts.millis = video.seconds.unwrap_or(0).saturating_mul(1_000);
            facts.resolution = video.resolution.as_deref().unwrap_or_default().to_owned();
        }
        let order = TaskSubmission { facts, request: out, prefix: "task_", idempotency_key: mark };
        let (id, _) = self.reserve_and_submit(ctx, road, order).await?;
        let body = answer::submitted(task, &id, ctx.id.as_str());
        self.reply_json(client, ctx, body).await
    }
}

/// Idempotency key and its lifetime.
pub(super) type SubmissionKey = ([u8; 32], Duration);

/// Returns the idempotency key of a submission: a hash of its endpoint, its tag and its body. `None` without a tag.
fn idempotency_key(task: Task, asked: &ParsedTask<'_>, body: &str) -> Option<SubmissionKey> {
    let tag = asked.tag.as_deref()?;
    let mut hash = Sha256::new().chain_update(task.name()).chain_update(b"\0").chain_update(tag);
    hash.update(b"\0");
    words(body, |part| hash.update(part));
    Some((hash.finalize().into(), IDEMPOTENCY_TTL))
}

/// Returns the body for another gateway, with the model's name there. Unchanged if the request names no model.
fn with_model(body: &JsonText, asked: &ParsedTask<'_>, road: &TaskRoute) -> Result<Bytes, ApiError> {
    let target = road.target().ok_or_else(internal_error)?;
    match &asked.model {
        Some(model) if **model != *target.model => codec::wire::tasks::ask::rename(body, &target.model)
            .ok_or_else(|| {
                ApiError::new(ErrorKind::InvalidField, "The member 'model' cannot be read.").param("model")
            }),
        _ => Ok(body.as_bytes().clone()),
    }
}
