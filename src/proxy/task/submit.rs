//! The submission of a video.
//!
//! The task is noted before the provider is called, so that no task of a provider is ever unknown here; the call goes
//! on when the client leaves.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::super::body_memory::Room;
use super::super::call::CallLog;
use super::super::context::{Attempt, Context};
use super::super::fallback::not_offered;
use super::super::fetch::FetchFault;
use super::super::plan::Selection;
use super::super::request::overloaded;
use super::super::request::{check_media, named};
use super::super::stored::account;
use super::super::upstream_route::UpstreamRoute;
use super::super::{Client, Gateway};
use super::call::{TaskRequest, TaskRoute};
use super::record::{Form, TaskFacts, TaskState, pack, unpack};
use super::{KEEPING, Words, broken, failed, new_id, unknown, utf8};
use crate::account::ExpectedUsage;
use crate::canonical::Product;
use crate::canonical::video::{PictureRole, PictureSource, Video, VideoDialect, VideoShape};
use crate::error::{ApiError, Kind};
use crate::provider::VideoStep;
use crate::route::pick::mask;
use crate::route::target_handle::TargetPermit;
use crate::route::{Target, upstream_api};
use crate::store::NewTask;
use crate::wire::images::file::file;
use crate::wire::video::{answer, ask, read, write};
use crate::wire::{Api, form};

/// How long a task is kept: as long as the provider that keeps them longest.
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// How long a provider may take to answer to a submission, before somebody else looks what became of it.
const SUBMITTING: Duration = Duration::from_secs(15 * 60);
/// When a task is looked after for the first time.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Largest picture that is brought for a provider.
const PICTURE: usize = 20 << 20;
/// How much of a prompt is kept.
const PROMPT: usize = 2_000;

/// Task submission: what a new task is and costs, before its provider has it.
pub(super) struct TaskSubmission {
    pub(super) facts: TaskFacts,
    pub(super) out: TaskRequest,
    /// What the id begins with.
    pub(super) prefix: &'static str,
    /// What makes it the same as another one, and for how long.
    pub(super) mark: Option<([u8; 32], Duration)>,
}

impl Gateway {
    /// Answers a submission. `named` is the model where the path names it, `from` the video that it is made from.
    pub(super) async fn reply_submit(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        in_path: Option<&str>,
        from: Option<&str>,
        words: Words,
    ) -> Result<bool, ApiError> {
        ctx.charges.open();
        let endpoint = ctx.endpoint.clone().ok_or_else(failed)?;
        let boundary = check_media(client.req_header(), &endpoint)?;
        let mut body = self.read_whole(client, ctx, self.limits.body).await?;
        if let Some(boundary) = boundary {
            body = form::to_json(&body, &boundary)?;
        }
        let text = utf8(&body)?;
        // A video is made anew by whoever made it.
        let source = match from.map(str::to_owned).or_else(|| ask::remix(text)) {
            Some(id) => Some(self.source(ctx, &id).await?),
            None => None,
        };
        let name = match (in_path, &source, ask::model(text)) {
            (Some(name), _, _) => name.to_owned(),
            (None, _, Ok(name)) => name.into_owned(),
            (None, Some((_, facts, _)), Err(_)) => facts.model.clone(),
            (None, None, Err(error)) => return Err(error),
        };
        let at = source.as_ref().map(|(_, facts, _)| (&*facts.provider, &*facts.target));
        let (road, _) = self.road(ctx, &name, Api::Videos, at)?;
        let target = road.target().ok_or_else(failed)?;
        let provider = &target.provider;
        let dialect = provider.video(&target.model);
        let mut video = ask::decode(text, &dialect)?;
        if !dialect.links {
            self.bring_pictures(&mut video).await?;
        }
        let video =
            Video { remix: video.remix.or(source.as_ref().map(|(id, ..)| id.as_str().into())), ..video };
        let upstream = source.as_ref().and_then(|(_, _, state)| state.upstream.as_deref());
        if let (Some(_), None) = (&video.remix, upstream) {
            return Err(unknown(video.remix.as_deref().unwrap_or_default()));
        }
        let mut request = BytesMut::new();
        let model = provider.video_model(&target.model);
        write::encode(&video, &dialect, model, upstream.is_some(), &mut request);
        let framed = video.picture(PictureRole::Last).is_some() && !dialect.listed;
        let step = match upstream {
            Some(id) => VideoStep::Remix(id),
            None => VideoStep::Submit { framed },
        };
        let path = provider.video_path(model, step).ok_or_else(|| not_offered(&name, Api::Videos))?;
        let out =
            TaskRequest { headers: provider.video_headers(), ..TaskRequest::post(path, request.freeze()) };
        self.tell_lost(ctx, "videos", &write::lost(&video, &dialect, upstream.is_some()))?;
        let mut facts = TaskFacts {
            remixed: video.remix.as_deref().map(str::to_owned),
            endpoint: "videos".to_owned(),
            ..facts_of(&video, &dialect)
        };
        if let Some((_, made, _)) = &source {
            // It is as long and as large as the one that it is made from.
            facts.millis = made.millis;
            facts.resolution.clone_from(&made.resolution);
            facts.size.clone_from(&made.size);
        }
        let prefix = prefix(dialect.shape);
        let order = TaskSubmission { facts, out, prefix, mark: None };
        let (id, facts) = self.begin_task(ctx, road, order).await?;
        let body = match words {
            Words::OpenAi => answer::openai(&super::view::view(&id, &facts, &TaskState::default())),
            Words::Google => answer::operation(&super::view::view(&id, &facts, &TaskState::default()), "", 0),
            Words::Own | Words::Group => answer::submitted(&id),
        };
        self.reply_json(client, ctx, body).await
    }

    /// Brings the pictures that lie behind addresses, for providers that do not.
    pub(super) async fn bring_pictures(&self, video: &mut Video<'_>) -> Result<(), ApiError> {
        let room = Room::new(self.limits.body);
        for picture in &mut video.pictures {
            let PictureSource::Link(url) = &picture.source else { continue };
            let wrong = |what: String| {
                let message = format!("'{}' cannot be brought: {what}.", picture.field);
                ApiError::new(Kind::InvalidField, message).param(picture.field.to_string())
            };
            let bytes = self.fetch(url, PICTURE.min(self.limits.fetch), &room).await;
            let bytes = bytes.map_err(|fault| match fault {
                FetchFault::Busy => overloaded(),
                fault => wrong(fault.to_string()),
            })?;
            let file = file(&bytes).ok_or_else(|| wrong("it is no image".to_owned()))?;
            picture.source = PictureSource::Data {
                media: file.picture.media().into(),
                base64: base64_simd::STANDARD.encode_to_string(&bytes).into(),
            };
        }
        Ok(())
    }

    /// The task that a video is made from.
    async fn source(&self, ctx: &Context, id: &str) -> Result<(String, TaskFacts, TaskState), ApiError> {
        let found = self.tasks.tasks.task(&account(ctx), id).within(KEEPING).await;
        let task = self.noted("find_task", found)?.ok_or_else(|| unknown(id))?;
        let (facts, state): (TaskFacts, TaskState) =
            unpack(&task.facts).zip(unpack(&task.state)).ok_or_else(|| unknown(id))?;
        if facts.form != Form::Remix || state.upstream.is_none() {
            let message = format!("The video '{}' cannot be made anew.", super::super::request::short(id));
            return Err(ApiError::new(Kind::Unsupported, message).param("remix_from_video_id"));
        }
        Ok((id.to_owned(), facts, state))
    }

    /// The way to the provider of a model: to one that is named, or to one of those that offer the API.
    pub(super) fn road(
        &self,
        ctx: &mut Context,
        name: &str,
        api: Api,
        at: Option<(&str, &str)>,
    ) -> Result<(TaskRoute, Api), ApiError> {
        let live = ctx.live.clone();
        let named = named(&live.snapshot.routes, ctx, name)?;
        let model = named.model;
        let fits = |target: &Target| match at {
            Some((provider, model)) => *target.provider.name == *provider && *target.model == *model,
            None => {
                named.provider.is_none_or(|name| *name == *target.provider.name)
                    && upstream_api(target, api).is_some()
            }
        };
        let fitting = mask(&**model, |index| model.targets.get(index).is_some_and(fits));
        if fitting == 0 {
            return Err(not_offered(&model.id, api));
        }
        let (index, permit) = match at {
            // Only whoever began it knows of it, at its limits or not.
            Some(_) => (fitting.trailing_zeros() as usize, None),
            None => {
                let (index, permit) = self.place(ctx, model, fitting)?;
                (index, Some(permit))
            }
        };
        let endpoint = ctx.endpoint.as_ref().map_or("videos", |endpoint| endpoint.label());
        let lane = live.lane(&self.metrics, endpoint, model, index, api);
        let lane = lane.ok_or_else(|| not_offered(&model.id, api))?;
        ctx.plan = Some(Box::new(bare(model, index, permit, &lane, api)));
        let request = ctx.id.as_str().to_owned();
        Ok((TaskRoute { live: live.clone(), lane, model: model.clone(), target: index, request }, api))
    }

    /// Holds what a task may cost, notes it, and has its provider begin it.
    pub(super) async fn begin_task(
        &self,
        ctx: &mut Context,
        road: TaskRoute,
        order: TaskSubmission,
    ) -> Result<(String, TaskFacts), ApiError> {
        let TaskSubmission { mut facts, out, prefix, mark } = order;
        let out = TaskRequest { body: self.weighed(out.body)?, ..out };
        let made = [Product::Video { millis: facts.millis, resolution: facts.resolution.as_str().into() }];
        let tokens = if facts.form == Form::Bundled { tokens(facts.millis, &facts.resolution) } else { 0 };
        let expected = ExpectedUsage { output: Some(tokens), made: &made, ..ExpectedUsage::default() };
        facts.cost = road.model.price.estimate(&expected);
        self.hold(ctx, &road.model.price, &expected).await?;
        let target = road.target().ok_or_else(failed)?;
        facts.time = i64::try_from(ctx.record.unix_millis).unwrap_or(i64::MAX);
        facts.request = ctx.id.as_str().to_owned();
        let key = ctx.key.as_ref();
        facts.account = key
            .and_then(|key| key.account.as_ref())
            .map(|account| account.name.to_string())
            .unwrap_or_default();
        facts.key = key.map(|key| key.name.to_string()).unwrap_or_default();
        facts.model = road.model.id.to_string();
        facts.provider = target.provider.name.to_string();
        facts.target = target.model.to_string();
        let (owner, id) = (account(ctx), new_id(prefix));
        let task = NewTask {
            owner: owner.clone(),
            id: id.clone(),
            mark: mark.map(|(mark, span)| (of_account(&mark), span)),
            lifetime: LIFETIME,
            due: SUBMITTING,
            facts: pack(&facts),
            state: pack(&TaskState::default()),
        };
        let kept = self.tasks.tasks.submit(task).within(KEEPING).await;
        if let Some(known) = self.noted("submit_task", kept)? {
            // What was held is given back with the request.
            return Ok((known, facts));
        }
        ctx.record.asked = Some(Instant::now());
        let cost = facts.cost;
        let form = facts.form;
        // It goes on when the client leaves, or else a provider would make what nobody knows of.
        let (gateway, owned) = (self.clone(), owner.clone());
        let work = {
            let id = id.clone();
            async move {
                let mut notes = CallLog::default();
                let begun = gateway.hand_in(&road, &out, form, &owned, &id, &mut notes).await;
                (begun, notes)
            }
        };
        if let Some(reservation) = ctx.charges.reservation.take() {
            self.tasks.hold(&owner, &id, reservation);
        }
        let (begun, notes) = tokio::spawn(work).await.map_err(|_| failed())?;
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.answered = notes.answered;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id;
        record.detail = notes.detail;
        match begun {
            Ok(()) => {
                ctx.hand_over(cost);
                Ok((id, facts))
            }
            Err(error) => {
                ctx.charges.reservation = self.tasks.release(&owner, &id);
                Err(error)
            }
        }
    }

    /// Calls the provider and notes its id of the task. A task that it does not begin is forgotten.
    async fn hand_in(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        form: Form,
        owner: &str,
        id: &str,
        notes: &mut CallLog,
    ) -> Result<(), ApiError> {
        let begun = match self.bring_answer(road, out, notes).await {
            Ok(body) => upstream_id(form, &body).ok_or_else(|| {
                // Some tell what is wrong under a status that says otherwise.
                let provider = crate::wire::error::ProviderError::decode(&body);
                if provider.message.is_empty() || provider.code.is_none() {
                    return broken();
                }
                let status = super::super::response::status_of(&provider);
                super::call::refused(road, status, None, &body, notes)
            }),
            Err(error) => Err(error),
        };
        let upstream = match begun {
            Ok(upstream) => upstream,
            Err(error) => {
                let forgotten = self.tasks.tasks.forget(owner, id).within(KEEPING).await;
                let _ = self.noted("forget_task", forgotten);
                return Err(error);
            }
        };
        let state = TaskState { upstream: Some(upstream), ..TaskState::default() };
        // Twice: the provider is at work already.
        for _ in 0..2 {
            let changed = self.tasks.tasks.change(owner, id, 0, pack(&state), Some(FIRST_LOOK));
            if self.noted("change_task", changed.within(KEEPING).await).is_ok() {
                return Ok(());
            }
        }
        Err(ApiError::new(Kind::Internal, "The task has begun, and could not be noted; please try again."))
    }
}

/// The provider's id of a task.
fn upstream_id(form: Form, body: &Bytes) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    match form.shape() {
        Some(shape) => read::submitted(shape, text).ok(),
        None => crate::wire::tasks::answer::upstream_id(text),
    }
}

/// A mark as it is kept: of no other kind of thing.
pub(super) fn of_account(mark: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(b"task").chain_update(mark).finalize().into()
}

/// What a request's plan is when nothing passes through.
fn bare(
    model: &std::sync::Arc<crate::route::Model>,
    index: usize,
    permit: Option<TargetPermit>,
    lane: &std::sync::Arc<UpstreamRoute>,
    api: Api,
) -> Attempt {
    let chosen = Selection {
        model: model.clone(),
        index,
        permit,
        lane: lane.clone(),
        api,
        upstream: api,
        action: None,
        stream: false,
    };
    chosen.plan()
}

/// What the ids of tasks begin with: those of the remix-capable family must be known by it.
pub(super) const fn prefix(shape: VideoShape) -> &'static str {
    match shape {
        VideoShape::Remix => "video_",
        _ => "task_",
    }
}

/// What is noted of a video that is to be made.
pub(super) fn facts_of(video: &Video<'_>, dialect: &VideoDialect) -> TaskFacts {
    TaskFacts {
        form: Form::of(dialect.shape),
        millis: write::millis(video, dialect).saturating_mul(video.samples.unwrap_or(1)),
        resolution: lines(&write::certain_resolution(video, dialect)),
        size: write::resolution(video, dialect),
        prompt: video.prompt.as_deref().unwrap_or_default().chars().take(PROMPT).collect(),
        ..TaskFacts::default()
    }
}

/// A resolution by its lines: `720p` for `1280x720`.
pub(super) fn lines(size: &str) -> String {
    let sides =
        size.split_once('x').and_then(|(w, h)| Some((w.parse::<u64>().ok()?, h.parse::<u64>().ok()?)));
    let name = sides.map_or_else(|| size.to_ascii_lowercase(), |(w, h)| format!("{}p", w.min(h)));
    if name == "2160p" { "4k".to_owned() } else { name }
}

/// Tokens that a video is billed for by providers who bill tokens: pixels of all frames, by the thousand. Of an unknown
/// resolution it is the most.
fn tokens(millis: u64, resolution: &str) -> u64 {
    let height = resolution.trim_end_matches('p').parse().ok().filter(|height| *height >= LEAST_LINES);
    let height: u128 = height.unwrap_or(2_160);
    let frames = u128::from(millis.saturating_mul(24) / 1_000);
    let pixels = height.saturating_mul(height).saturating_mul(16) / 9;
    u64::try_from(pixels.saturating_mul(frames) / 1_024).unwrap_or(u64::MAX)
}

/// The lowest resolution that any provider has.
const LEAST_LINES: u128 = 144;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_lines() {
        for (size, name) in [
            ("1280x720", "720p"),
            ("720x1280", "720p"),
            ("720P", "720p"),
            ("3840x2160", "4k"),
            ("2160p", "4k"),
            ("4k", "4k"),
            ("", ""),
            ("x", "x"),
        ] {
            assert_eq!(lines(size), name, "{size}");
        }
    }

    /// What is not known, and what no provider makes, is held as the largest; nothing overflows.
    #[test]
    fn no_resolution_is_held_for_less_than_it_may_cost() {
        let most = tokens(5_000, "4k");
        assert_eq!(tokens(5_000, "720p"), 720 * 720 * 16 / 9 * 120 / 1_024);
        for resolution in
            ["", "1p", "0p", "1x1", "none", "-720p", "99999999999999999999999999999999999999999p"]
        {
            assert_eq!(tokens(5_000, resolution), most, "{resolution}");
        }
        for resolution in ["4294967296p", "18446744073709551615p", "340282366920938463463374607431768211455p"]
        {
            assert!(tokens(5_000, resolution) > most, "{resolution}");
            assert_eq!(tokens(u64::MAX, resolution), u64::MAX, "{resolution}");
        }
    }
}
