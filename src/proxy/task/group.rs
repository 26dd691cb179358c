//! The task group: videos that are begun, and pictures that are waited for.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::super::context::{Answer, Context, Made};
use super::super::fallback::not_offered;
use super::super::request::check_media;
use super::super::{Client, Gateway};
use super::call::{Notes, Out, Road, refused};
use super::note::{Facts, Form};
use super::submit::{Order, lines};
use super::{broken, failed, utf8};
use crate::account::Expected;
use crate::canonical::video::{PictureRole, Video};
use crate::canonical::{Product, Usage};
use crate::error::{ApiError, Kind};
use crate::store::Settled;
use crate::vendor::{Kind as VendorKind, VideoStep};
use crate::wire::Api;
use crate::wire::error::VendorError;
use crate::wire::tasks::ask::{Asked, Image, What, decode};
use crate::wire::tasks::{Task, answer, image};
use crate::wire::video::{ask, write};

/// How long a request's tag stands for the task that it began.
const TAGGED: Duration = Duration::from_secs(86_400);
/// How long pictures are waited for.
const PICTURES: Duration = Duration::from_secs(120);

impl Gateway {
    /// Answers a submission to the group.
    pub(super) async fn reply_group(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        task: Task,
    ) -> Result<bool, ApiError> {
        ctx.tab.open();
        let endpoint = ctx.endpoint.clone().ok_or_else(failed)?;
        check_media(client.req_header(), &endpoint)?;
        let body = self.read_whole(client, ctx, self.limits.body).await?;
        let asked = decode(task, utf8(&body)?)?;
        let name = asked.model.clone().unwrap_or_else(|| task.name().into()).into_owned();
        // Another gateway of the same group takes the request as it is.
        if let Ok((road, _)) = self.road(ctx, &name, Api::Tasks, None)
            && road.target().is_some_and(|target| target.provider.kind == VendorKind::OpenAiCompatible)
        {
            let body = with_model(&body, &asked, &road)?;
            return self.forward(client, ctx, task, &asked, road, body).await;
        }
        match &asked.what {
            What::Image(image) => self.reply_images(client, ctx, &name, image).await,
            What::Video(video) => {
                let (road, _) = self.road(ctx, &name, Api::Videos, None)?;
                let order = video_order(&road, &name, video, task, &asked)?;
                let (id, _) = self.begin_task(ctx, road, order).await?;
                let body = answer::submitted(task, &id, ctx.id.as_str());
                self.reply_json(client, ctx, body).await
            }
            What::Face(face) => {
                let (road, _) = self.road(ctx, &name, Api::Videos, None)?;
                let target = road.target().ok_or_else(failed)?;
                if target.provider.kind != VendorKind::DashScope {
                    return Err(not_offered(&name, Api::Tasks));
                }
                let mut body = BytesMut::new();
                image::encode_face(face, &target.model, &mut body);
                let step = VideoStep::Submit { framed: true };
                let path = target.provider.video_path(&target.model, step).ok_or_else(failed)?;
                let out = Out { headers: target.provider.video_headers(), ..Out::post(path, body.freeze()) };
                let facts = Facts { form: Form::Nested, endpoint: "tasks".to_owned(), ..Facts::default() };
                let order = Order { facts, out, prefix: "task_", mark: mark(task, &asked) };
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
        road: Road,
        body: Bytes,
    ) -> Result<bool, ApiError> {
        let prefix = road.target().ok_or_else(failed)?.provider.base.prefix().to_owned();
        let out = Out::post(format!("{prefix}/{}", task.name()), body);
        if let What::Image(image) = &asked.what {
            return self.make_images(client, ctx, road, out, image).await;
        }
        let mut facts = Facts { form: Form::Group, endpoint: "tasks".to_owned(), ..Facts::default() };
        if let What::Video(video) = &asked.what {
            facts.millis = video.seconds.unwrap_or(0).saturating_mul(1_000);
            facts.resolution = video.resolution.as_deref().unwrap_or_default().to_owned();
        }
        let order = Order { facts, out, prefix: "task_", mark: mark(task, asked) };
        let (id, _) = self.begin_task(ctx, road, order).await?;
        let body = answer::submitted(task, &id, ctx.id.as_str());
        self.reply_json(client, ctx, body).await
    }

    async fn reply_images(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        name: &str,
        image: &Image<'_>,
    ) -> Result<bool, ApiError> {
        let (road, _) = self.road(ctx, name, Api::Images, None)?;
        let target = road.target().ok_or_else(failed)?;
        let provider = &target.provider;
        let mut body = BytesMut::new();
        let path = match provider.kind {
            VendorKind::DashScope => {
                image::encode_nested(image, &target.model, &mut body);
                provider.own_path("/services/aigc/multimodal-generation/generation")
            }
            VendorKind::Gemini | VendorKind::Vertex => return Err(not_offered(name, Api::Tasks)),
            _ => {
                image::encode(image, &target.model, &mut body);
                provider.path(Api::Images, &target.model, None)
            }
        };
        let out = Out::post(path, body.freeze());
        self.make_images(client, ctx, road, out, image).await
    }

    /// Has pictures made, and waits for them.
    async fn make_images(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        road: Road,
        out: Out,
        image: &Image<'_>,
    ) -> Result<bool, ApiError> {
        let size: Box<str> = image.size.as_deref().unwrap_or_default().into();
        let product = |count| Product::Images { count, size: size.clone(), quality: Box::default() };
        let made = [product(image.count)];
        let expected = Expected { output: Some(0), made: &made, ..Expected::default() };
        self.hold(ctx, &road.model.price, &expected).await?;
        ctx.record.asked = Some(Instant::now());
        let mut notes = Notes::default();
        let asked = tokio::time::timeout(PICTURES, self.bring_answer(&road, &out, &mut notes)).await;
        let asked = asked.unwrap_or_else(|_| Err(super::super::exchange::silent()));
        let urls = asked.and_then(|body| pictures(&road, &body, &mut notes));
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.answered = notes.answered;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id;
        record.detail = notes.detail;
        let urls = urls?;
        let products = vec![product(urls.len() as u64)];
        ctx.answer = Answer::Made(Made { usage: Usage::default(), products, counted: false });
        // Nobody has an answer that is not charged.
        match ctx.settle(true) {
            None => {}
            Some(Settled::Known(outcome)) => self.settled(ctx, outcome),
            Some(pending) => self.settling(ctx, pending).await,
        }
        self.reply_json(client, ctx, answer::images(&urls)).await
    }
}

/// The addresses of the pictures in an answer.
fn pictures(road: &Road, body: &Bytes, notes: &mut Notes) -> Result<Vec<String>, ApiError> {
    let made = std::str::from_utf8(body).ok().and_then(|text| image::decode(text).ok()).ok_or_else(broken)?;
    if !made.urls.is_empty() {
        return Ok(made.urls);
    }
    if !made.failed {
        return Err(broken());
    }
    let vendor = VendorError::decode(body);
    Err(refused(road, super::super::response::status_of(&vendor), None, body, notes))
}

/// What makes a request the same as another one: its tag, at this endpoint.
fn mark(task: Task, asked: &Asked<'_>) -> Option<([u8; 32], Duration)> {
    let tag = asked.tag.as_deref()?;
    let hash = Sha256::new().chain_update(task.name()).chain_update(b"\0").chain_update(tag).finalize();
    Some((hash.into(), TAGGED))
}

/// What a vendor is asked for a video.
fn video_order(
    road: &Road,
    name: &str,
    video: &Video<'_>,
    task: Task,
    asked: &Asked<'_>,
) -> Result<Order, ApiError> {
    let target = road.target().ok_or_else(failed)?;
    let provider = &target.provider;
    let dialect = provider.video(&target.model);
    ask::fit(&dialect, video)?;
    let mut body = BytesMut::new();
    write::encode(video, &dialect, provider.video_model(&target.model), false, &mut body);
    let framed = video.picture(PictureRole::Last).is_some() && !dialect.listed;
    let path = provider.video_path(&target.model, VideoStep::Submit { framed });
    let path = path.ok_or_else(|| not_offered(name, Api::Videos))?;
    let out = Out { headers: provider.video_headers(), ..Out::post(path, body.freeze()) };
    let size = write::resolution(video, &dialect);
    let facts = Facts {
        form: Form::of(dialect.shape),
        millis: write::seconds(video, &dialect).saturating_mul(1_000),
        resolution: lines(&size),
        size,
        prompt: video.prompt.as_deref().unwrap_or_default().chars().take(2_000).collect(),
        endpoint: "tasks".to_owned(),
        ..Facts::default()
    };
    Ok(Order { facts, out, prefix: "task_", mark: mark(task, asked) })
}

/// The request as the other gateway gets it: with the model's name there, where it has one.
fn with_model(body: &Bytes, asked: &Asked<'_>, road: &Road) -> Result<Bytes, ApiError> {
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
