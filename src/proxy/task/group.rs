//! The task group: videos that are begun, and pictures that are waited for.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::super::context::Context;
use super::super::fallback::not_offered;
use super::super::request::check_media;
use super::super::{Client, Gateway};
use super::call::{TaskRequest, TaskRoute};
use super::record::{Form, TaskFacts};
use super::submit::{TaskSubmission, facts_of, prefix};
use super::{failed, utf8};
use crate::canonical::ElementLoss;
use crate::canonical::video::{PictureRole, Video};
use crate::error::{ApiError, Kind};
use crate::provider::{Kind as ProviderKind, VideoStep};
use crate::wire::Api;
use crate::wire::tasks::ask::{Asked, What, decode, words};
use crate::wire::tasks::{Task, answer, image};
use crate::wire::video::{ask, write};

/// How long a request's tag stands for what it began.
const TAGGED: Duration = Duration::from_secs(86_400);

impl Gateway {
    /// Answers a submission to the group.
    pub(super) async fn reply_group(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        task: Task,
    ) -> Result<bool, ApiError> {
        ctx.charges.open();
        let endpoint = ctx.endpoint.clone().ok_or_else(failed)?;
        check_media(client.req_header(), &endpoint)?;
        let body = self.read_whole(client, ctx, self.limits.body).await?;
        let asked = decode(task, utf8(&body)?)?;
        let name = asked.model.clone().unwrap_or_else(|| task.name().into()).into_owned();
        // Another gateway of the same group takes the request as it is.
        if let Ok((road, _)) = self.road(ctx, &name, Api::Tasks, None)
            && road.target().is_some_and(|target| target.provider.kind == ProviderKind::OpenAiCompatible)
        {
            let mark = mark(task, &asked, utf8(&body)?);
            let body = with_model(&body, &asked, &road)?;
            return self.forward(client, ctx, task, &asked, road, (body, mark)).await;
        }
        let mark = mark(task, &asked, utf8(&body)?);
        match &asked.what {
            What::Image(image) => {
                let request = (**image).clone();
                let made = self.reply_images(client, ctx, &name, request, &asked.lost, mark);
                Box::pin(made).await.map_err(|error| asked.named(error))
            }
            What::Video(video) => {
                let (road, _) = self.road(ctx, &name, Api::Videos, None)?;
                let mut video = (**video).clone();
                if road.target().is_some_and(|target| !target.provider.video(&target.model).links) {
                    self.bring_pictures(&mut video).await?;
                }
                let (order, mut lost) = video_order(&road, &name, video, mark)?;
                lost.extend(asked.lost.iter().cloned());
                self.tell_lost(ctx, "tasks", &lost)?;
                let (id, _) = self.begin_task(ctx, road, order).await?;
                let body = answer::submitted(task, &id, ctx.id.as_str());
                self.reply_json(client, ctx, body).await
            }
            What::Face(face) => {
                let (road, _) = self.road(ctx, &name, Api::Videos, None)?;
                let target = road.target().ok_or_else(failed)?;
                if target.provider.kind != ProviderKind::DashScope {
                    return Err(not_offered(&name, Api::Tasks));
                }
                let mut body = BytesMut::new();
                image::encode_face(face, &target.model, &mut body);
                let step = VideoStep::Submit { framed: true };
                let path = target.provider.video_path(&target.model, step).ok_or_else(failed)?;
                let out = TaskRequest {
                    headers: target.provider.video_headers(),
                    ..TaskRequest::post(path, body.freeze())
                };
                self.tell_lost(ctx, "tasks", &asked.lost)?;
                let facts =
                    TaskFacts { form: Form::Nested, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
                let order = TaskSubmission { facts, out, prefix: "task_", mark };
                let (id, _) = self.begin_task(ctx, road, order).await?;
                let body = answer::submitted(task, &id, ctx.id.as_str());
                self.reply_json(client, ctx, body).await
            }
        }
    }

    /// Hands a request to another gateway of the same group.
    async fn forward(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        task: Task,
        asked: &Asked<'_>,
        road: TaskRoute,
        (body, mark): (Bytes, Option<Mark>),
    ) -> Result<bool, ApiError> {
        let prefix = road.target().ok_or_else(failed)?.provider.base.prefix().to_owned();
        let out = TaskRequest::post(format!("{prefix}/{}", task.name()), body);
        if let What::Image(image) = &asked.what {
            return self.forward_images(client, ctx, road, out, image).await;
        }
        let mut facts = TaskFacts { form: Form::Group, endpoint: "tasks".to_owned(), ..TaskFacts::default() };
        if let What::Video(video) = &asked.what {
            facts.millis = video.seconds.unwrap_or(0).saturating_mul(1_000);
            facts.resolution = video.resolution.as_deref().unwrap_or_default().to_owned();
        }
        let order = TaskSubmission { facts, out, prefix: "task_", mark };
        let (id, _) = self.begin_task(ctx, road, order).await?;
        let body = answer::submitted(task, &id, ctx.id.as_str());
        self.reply_json(client, ctx, body).await
    }
}

/// What makes a request the same as another one, and for how long.
pub(super) type Mark = ([u8; 32], Duration);

/// A request is the same as another one if its tag and what it says are, at this endpoint.
fn mark(task: Task, asked: &Asked<'_>, body: &str) -> Option<Mark> {
    let tag = asked.tag.as_deref()?;
    let mut hash = Sha256::new().chain_update(task.name()).chain_update(b"\0").chain_update(tag);
    hash.update(b"\0");
    words(body, |part| hash.update(part));
    Some((hash.finalize().into(), TAGGED))
}

/// What a provider is asked for a video, and what it is not told.
fn video_order(
    road: &TaskRoute,
    name: &str,
    mut video: Video<'_>,
    mark: Option<Mark>,
) -> Result<(TaskSubmission, Vec<ElementLoss>), ApiError> {
    let target = road.target().ok_or_else(failed)?;
    let provider = &target.provider;
    let dialect = provider.video(&target.model);
    ask::fit(&dialect, &mut video)?;
    let mut body = BytesMut::new();
    write::encode(&video, &dialect, provider.video_model(&target.model), false, &mut body);
    let framed = video.picture(PictureRole::Last).is_some() && !dialect.listed;
    let path = provider.video_path(&target.model, VideoStep::Submit { framed });
    let path = path.ok_or_else(|| not_offered(name, Api::Videos))?;
    let out = TaskRequest { headers: provider.video_headers(), ..TaskRequest::post(path, body.freeze()) };
    let facts = TaskFacts { endpoint: "tasks".to_owned(), ..facts_of(&video, &dialect) };
    let lost = write::lost(&video, &dialect, false);
    Ok((TaskSubmission { facts, out, prefix: prefix(dialect.shape), mark }, lost))
}

/// The request as the other gateway gets it: with the model's name there, where it has one.
fn with_model(body: &Bytes, asked: &Asked<'_>, road: &TaskRoute) -> Result<Bytes, ApiError> {
    let target = road.target().ok_or_else(failed)?;
    match &asked.model {
        Some(model) if **model != *target.model => {
            let text = utf8(body)?;
            crate::wire::tasks::ask::rename(text, &target.model).ok_or_else(|| {
                ApiError::new(Kind::InvalidField, "The member 'model' cannot be read.").param("model")
            })
        }
        _ => Ok(body.clone()),
    }
}
