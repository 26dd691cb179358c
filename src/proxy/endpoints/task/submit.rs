//! Submission of video tasks.
//!
//! The task is stored before the provider is called, so that a crash loses no task of a provider. The call continues
//! when the client disconnects.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::call::{TaskRequest, TaskRoute};
use super::record::{Form, TaskFacts, TaskState, pack, unpack};
use super::{STORE_TIMEOUT, TaskFormat, internal_error, new_id, unknown_task, utf8};
use crate::Client;
use crate::Gateway;
use crate::client::call::malformed_response;
use crate::client::fetch::FetchFault;
use crate::client::send::CallLog;
use crate::endpoints::record_calls;
use crate::gateway::attempt::Attempt;
use crate::gateway::cache_plan::CachePlan;
use crate::gateway::context::Context;
use crate::gateway::fallback::{no_target, not_offered};
use crate::gateway::phase::RoutedRequest;
use crate::gateway::request::{check_media, resolve_model};
use crate::gateway::selection::Selection;
use crate::gateway::stored::account;
use codec::canonical::video::{PictureRole, PictureSource, Video, VideoDialect, VideoShape};
use codec::canonical::{ElementLoss, Product};
use codec::error::{ApiError, ErrorKind};
use codec::provider::{ToolBetas, VideoStep};
use codec::wire::images::file::file;
use codec::wire::path::Endpoint;
use codec::wire::video::{answer, ask, read, write};
use codec::wire::{Api, form};
use driver::body_memory::RequestBudget;
use routing::account::ExpectedUsage;
use routing::route::pick::mask;
use routing::route::target_handle::TargetPermit;
use routing::route::{Target, upstream_api};
use storage::kv::NewTask;

/// Lifetime of a task: that of the provider which stores tasks longest.
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// Time after which the poller takes over a submission that has no answer.
const SUBMIT_LEASE: Duration = Duration::from_secs(15 * 60);
/// Delay of the first poll.
pub(super) const FIRST_POLL_DELAY: Duration = Duration::from_secs(5);
/// Maximum size of an image that the gateway downloads for a provider, in bytes.
const MAX_IMAGE: usize = 20 << 20;
/// Characters of a prompt that are stored.
const MAX_STORED_PROMPT: usize = 2_000;

/// Task submission: the facts of a new task and the upstream request that starts it.
pub(super) struct TaskSubmission {
    pub(super) facts: TaskFacts,
    pub(super) request: TaskRequest,
    /// Prefix of the task id.
    pub(super) prefix: &'static str,
    /// Idempotency key and its lifetime.
    pub(super) idempotency_key: Option<([u8; 32], Duration)>,
}

impl Gateway {
    /// Serves a submission. `in_path` is the model from the path, `from` the id of the video to remix.
    pub(super) async fn reply_submit(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
        (in_path, from): (Option<&str>, Option<&str>),
        words: TaskFormat,
    ) -> Result<bool, ApiError> {
        ctx.open_charges();
        let boundary = check_media(client.req_header(), endpoint)?;
        let (mut body, _permit) = self.read_whole(client, ctx, self.limits.body).await?;
        if let Some(boundary) = boundary {
            body = form::to_json(&body, &boundary)?;
        }
        let body = utf8(body)?;
        let text = body.as_str();
        // Only the provider that made a video can remix it.
        let source = match from.map(str::to_owned).or_else(|| ask::remix(text)) {
            Some(id) => Some(self.remix_source(ctx, &id).await?),
            None => None,
        };
        let name = match (in_path, &source, ask::model(text)) {
            (Some(name), _, _) => name.to_owned(),
            (None, _, Ok(name)) => name.into_owned(),
            (None, Some((_, facts, _)), Err(_)) => facts.model.clone(),
            (None, None, Err(error)) => return Err(error),
        };
        let at = source.as_ref().map(|(_, facts, _)| (&*facts.provider, &*facts.target));
        let road = self.select_task_route(ctx, &name, Api::Videos, at)?;
        let target = road.target().ok_or_else(internal_error)?;
        let dialect = target.rules().video;
        let mut video = ask::decode(text, &dialect)?;
        if !dialect.fetches_urls {
            self.fetch_images(&mut video).await?;
        }
        let video =
            Video { remix: video.remix.or(source.as_ref().map(|(id, ..)| id.as_str().into())), ..video };
        let upstream = source.as_ref().and_then(|(_, _, state)| state.upstream.as_deref());
        if let (Some(_), None) = (&video.remix, upstream) {
            return Err(unknown_task(video.remix.as_deref().unwrap_or_default()));
        }
        let remixed = source.as_ref().and_then(|(_, made, _)| Some((made, upstream?)));
        let (order, lost) = video_submission(&road, &name, &video, "videos", remixed)?;
        self.warn_lost_settings(ctx, "videos", &lost)?;
        let (id, facts) = self.reserve_and_submit(ctx, road, order).await?;
        let body = match words {
            TaskFormat::OpenAi => answer::openai(&super::view::view(&id, &facts, &TaskState::default())),
            TaskFormat::Google => {
                answer::operation(&super::view::view(&id, &facts, &TaskState::default()), "", 0)
            }
            TaskFormat::Own | TaskFormat::Group => answer::submitted(&id),
        };
        self.reply_json(client, ctx, body).await
    }

    /// Downloads the images that are given by URL, for providers that accept only inline bytes.
    pub(super) async fn fetch_images(&self, video: &mut Video<'_>) -> Result<(), ApiError> {
        let room = RequestBudget::new(self.limits.body);
        for picture in &mut video.pictures {
            let PictureSource::Link(url) = &picture.source else { continue };
            let wrong = |what: String| {
                let message = format!("'{}' cannot be fetched: {what}.", picture.field);
                ApiError::new(ErrorKind::InvalidField, message).param(picture.field.to_string())
            };
            let bytes = self.upstream_client.fetch(url, MAX_IMAGE.min(self.limits.fetch), &room).await;
            let bytes = bytes.map_err(|fault| match fault {
                FetchFault::Busy => ApiError::overloaded(),
                fault => wrong(fault.to_string()),
            })?;
            let file = file(&bytes).ok_or_else(|| wrong("it is not an image".to_owned()))?;
            picture.source = PictureSource::Data {
                media: file.picture.media().into(),
                base64: base64_simd::STANDARD.encode_to_string(&bytes).into(),
            };
        }
        Ok(())
    }

    /// Loads the task of the video to remix.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnknownTask`] if there is none, and [`ErrorKind::Unsupported`] if its provider makes no
    /// remixes.
    async fn remix_source(
        &self,
        ctx: &Context,
        id: &str,
    ) -> Result<(String, TaskFacts, TaskState), ApiError> {
        let found = self.tasks.tasks.task(&account(ctx), id).within(STORE_TIMEOUT).await;
        let task = self.count_operation("find_task", found)?.ok_or_else(|| unknown_task(id))?;
        let (facts, state): (TaskFacts, TaskState) =
            unpack(&task.facts).zip(unpack(&task.state)).ok_or_else(|| unknown_task(id))?;
        if facts.form != Form::Remix || state.upstream.is_none() {
            let message = format!("The video '{}' cannot be remixed.", crate::gateway::refusals::short(id));
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("remix_from_video_id"));
        }
        Ok((id.to_owned(), facts, state))
    }

    /// Selects the target of a task and sets the request's attempt: the target `at`, or one that offers the API.
    pub(super) fn select_task_route(
        &self,
        ctx: &mut Context,
        name: &str,
        api: Api,
        at: Option<(&str, &str)>,
    ) -> Result<TaskRoute, ApiError> {
        let live = ctx.active.clone();
        let named = resolve_model(&live.snapshot.routes, ctx, name)?;
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
            return Err(no_target(model, api, fits));
        }
        let (index, permit) = match at {
            // Only this target knows the task, so its limits do not apply.
            Some(_) => (fitting.trailing_zeros() as usize, None),
            None => {
                let (index, permit) = self.select_once(ctx, model, fitting)?;
                (index, Some(permit))
            }
        };
        let endpoint = ctx.endpoint().map_or("videos", |endpoint| endpoint.label());
        let request = ctx.id.as_str().to_owned();
        let road = TaskRoute::new(&live, &self.metrics, endpoint, (model, index), api, request);
        let road = road.ok_or_else(|| not_offered(&model.id, api))?;
        ctx.phase.ask(RoutedRequest::from(bodyless_attempt(&road, permit, api)));
        Ok(road)
    }

    /// Reserves the cost of a task, stores it, and submits it to the provider. Returns the id of an earlier task with
    /// the same idempotency key if there is one.
    pub(super) async fn reserve_and_submit(
        &self,
        ctx: &mut Context,
        road: TaskRoute,
        order: TaskSubmission,
    ) -> Result<(String, TaskFacts), ApiError> {
        let TaskSubmission { mut facts, request: out, prefix, idempotency_key: mark } = order;
        let out = TaskRequest { body: self.charge_memory(out.body)?, ..out };
        let made = [Product::Video { millis: facts.millis, resolution: facts.resolution.as_str().into() }];
        let tokens = if facts.form == Form::Bundled { tokens(facts.millis, &facts.resolution) } else { 0 };
        let expected = ExpectedUsage {
            output: Some(tokens),
            products: &made,
            at: ctx.record.unix_seconds(),
            ..ExpectedUsage::default()
        };
        facts.cost = road.model.price.estimate(&expected);
        self.admit_expected(ctx, &road.model, &expected).await?;
        set_request_facts(&mut facts, ctx, &road)?;
        let (owner, id) = (account(ctx), new_id(prefix));
        let task = NewTask {
            owner: owner.clone(),
            id: id.clone(),
            idempotency_key: mark.map(|(mark, span)| (account_scoped_key(&mark), span)),
            lifetime: LIFETIME,
            due: SUBMIT_LEASE,
            facts: pack(&facts),
            state: pack(&TaskState::default()),
        };
        let kept = self.tasks.tasks.submit(task).within(STORE_TIMEOUT).await;
        if let Some(known) = self.count_operation("submit_task", kept)? {
            // The end of this request refunds its reservation.
            return Ok((known, facts));
        }
        ctx.record.first_attempt_at = Some(Instant::now());
        let cost = facts.cost;
        let form = facts.form;
        // If the client disconnected and the call ended, a task could run at the provider that is unknown here.
        let (gateway, owned) = (self.clone(), owner.clone());
        let work = {
            let id = id.clone();
            async move {
                let mut notes = CallLog::default();
                let begun = gateway.submit(&road, &out, form, &owned, &id, &mut notes).await;
                (begun, notes)
            }
        };
        // The task outlives the request, so its reservation moves to the task service.
        if let Some(reservation) = ctx.charges_mut().and_then(|charges| charges.reservation.take()) {
            self.tasks.insert(&owner, &id, reservation);
        }
        let (begun, notes) = super::detached(work).await?;
        record_calls(ctx, notes);
        match begun {
            Ok(()) => {
                ctx.transfer_to_task(cost);
                Ok((id, facts))
            }
            Err(error) => {
                let released = self.tasks.release(&owner, &id);
                if let Some(charges) = ctx.charges_mut() {
                    charges.reservation = released;
                }
                Err(error)
            }
        }
    }

    /// Submits a task to the provider and stores the provider's id. Removes the task if the submission fails.
    async fn submit(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        form: Form,
        owner: &str,
        id: &str,
        notes: &mut CallLog,
    ) -> Result<(), ApiError> {
        let mut reported = false;
        let begun = match self.call_provider(road, out, notes).await {
            Ok(body) => upstream_id(form, &body).ok_or_else(|| {
                // Some providers send an error with a success status.
                let provider = codec::wire::error::ProviderError::decode(&body);
                if provider.message.is_empty() || provider.code.is_none() {
                    return malformed_response();
                }
                reported = true;
                super::call::reported_error(road, &body, notes)
            }),
            Err(error) => Err(error),
        };
        let upstream = match begun {
            Ok(upstream) => upstream,
            Err(error) => {
                let unanswered = notes.request_sent && notes.status.is_none();
                if unanswered || (notes.created && !reported) {
                    warn_unconfirmed(road, id, &error);
                }
                let forgotten = self.tasks.tasks.remove(owner, id).within(STORE_TIMEOUT).await;
                let _ = self.count_operation("forget_task", forgotten);
                return Err(error);
            }
        };
        let state = TaskState { upstream: Some(upstream), ..TaskState::default() };
        // Try twice: the provider already works on the task.
        for _ in 0..2 {
            let changed = self.tasks.tasks.change(owner, id, 0, pack(&state), Some(FIRST_POLL_DELAY));
            if self.count_operation("change_task", changed.within(STORE_TIMEOUT).await).is_ok() {
                return Ok(());
            }
        }
        Err(ApiError::new(
            ErrorKind::Internal,
            "The task has started but could not be recorded; please try again.",
        ))
    }
}

/// Logs a submission that the provider may have accepted. Without the provider's id the task can be neither polled nor
/// charged, but the provider may bill it: the log is the only trace for a comparison with the provider's invoice.
fn warn_unconfirmed(road: &TaskRoute, id: &str, error: &ApiError) {
    let provider = road.target().map_or("", |target| &*target.provider.name);
    let request = &road.request;
    tracing::warn!(
        %error, id, request, provider,
        "a provider did not confirm a submission; it may run and bill the task, which is not charged"
    );
}

/// Returns the provider's task id from its answer to a submission.
fn upstream_id(form: Form, body: &Bytes) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    match form.shape() {
        Some(shape) => read::submitted(shape, text).ok(),
        None => codec::wire::tasks::answer::upstream_id(text),
    }
}

/// Returns the stored form of an idempotency key, which cannot collide with other stored hashes.
pub(super) fn account_scoped_key(mark: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(b"task").chain_update(mark).finalize().into()
}

/// Sets the facts of a task that follow from its request and its route.
fn set_request_facts(facts: &mut TaskFacts, ctx: &Context, road: &TaskRoute) -> Result<(), ApiError> {
    let target = road.target().ok_or_else(internal_error)?;
    facts.time = i64::try_from(ctx.record.unix_millis).unwrap_or(i64::MAX);
    facts.request = ctx.id.as_str().to_owned();
    let key = ctx.key();
    let account = key.and_then(|key| key.account.as_ref());
    facts.account = account.map(|account| account.name.to_string()).unwrap_or_default();
    facts.key = key.map(|key| key.name.to_string()).unwrap_or_default();
    facts.model = road.model.id.to_string();
    facts.provider = target.provider.name.to_string();
    facts.target = target.model.to_string();
    Ok(())
}

/// Builds the attempt of a request that forwards no body.
fn bodyless_attempt(road: &TaskRoute, permit: Option<TargetPermit>, api: Api) -> Attempt {
    Selection {
        model: road.model.clone(),
        alias: None,
        index: road.target,
        permit,
        upstream_route: road.upstream_route.clone(),
        api,
        upstream: api,
        action: None,
        stream: false,
        asks: true,
        tool_betas: ToolBetas::default(),
        refuses: road.upstream_route.refuses(),
        caching: CachePlan::default(),
        compaction: None,
    }
    .into_attempt()
}

/// Returns the prefix of task ids. Clients of the remix-capable family recognize their ids by it.
const fn prefix(shape: VideoShape) -> &'static str {
    match shape {
        VideoShape::Remix => "video_",
        _ => "task_",
    }
}

/// Builds the submission of a video through an endpoint, and returns the settings that the provider does not support.
/// `remixed`: the facts of the task that is remixed, and its provider's id.
pub(super) fn video_submission(
    road: &TaskRoute,
    name: &str,
    video: &Video<'_>,
    endpoint: &str,
    remixed: Option<(&TaskFacts, &str)>,
) -> Result<(TaskSubmission, Vec<ElementLoss>), ApiError> {
    let target = road.target().ok_or_else(internal_error)?;
    let provider = &target.provider;
    let dialect = target.rules().video;
    let model = provider.video_model(&target.model);
    let mut body = BytesMut::new();
    write::encode(video, &dialect, model, remixed.is_some(), &mut body);
    let step = match remixed {
        Some((_, id)) => VideoStep::Remix(id),
        None => VideoStep::Submit { framed: video.picture(PictureRole::Last).is_some() && !dialect.listed },
    };
    let path = provider.video_path(model, step).ok_or_else(|| not_offered(name, Api::Videos))?;
    let request = TaskRequest { headers: provider.video_headers(), ..TaskRequest::post(path, body.freeze()) };
    let mut facts = TaskFacts {
        remixed: video.remix.as_deref().map(str::to_owned),
        endpoint: endpoint.to_owned(),
        ..facts_of(video, &dialect)
    };
    if let Some((made, _)) = remixed {
        // A remix has the length and the size of its source.
        (facts.millis, facts.videos) = (made.millis, made.videos);
        facts.resolution.clone_from(&made.resolution);
        facts.size.clone_from(&made.size);
    }
    let lost = write::lost(video, &dialect, remixed.is_some());
    Ok((TaskSubmission { facts, request, prefix: prefix(dialect.shape), idempotency_key: None }, lost))
}

/// Returns the facts of a requested video.
fn facts_of(video: &Video<'_>, dialect: &VideoDialect) -> TaskFacts {
    let videos = video.samples.unwrap_or(1);
    TaskFacts {
        form: Form::of(dialect.shape),
        millis: write::millis(video, dialect).saturating_mul(videos),
        videos,
        resolution: lines(&write::certain_resolution(video, dialect)),
        size: write::resolution(video, dialect),
        prompt: video.prompt.as_deref().unwrap_or_default().chars().take(MAX_STORED_PROMPT).collect(),
        ..TaskFacts::default()
    }
}

/// Returns the name of a resolution by its lines: `720p` for `1280x720`.
pub(super) fn lines(size: &str) -> String {
    let sides =
        size.split_once('x').and_then(|(w, h)| Some((w.parse::<u64>().ok()?, h.parse::<u64>().ok()?)));
    let name = sides.map_or_else(|| size.to_ascii_lowercase(), |(w, h)| format!("{}p", w.min(h)));
    if name == "2160p" { "4k".to_owned() } else { name }
}

/// Estimates the tokens of a video, for providers that bill tokens: the pixels of all frames, divided by 1024. An
/// unknown resolution counts as the largest.
fn tokens(millis: u64, resolution: &str) -> u64 {
    let height = resolution.trim_end_matches('p').parse().ok().filter(|height| *height >= LEAST_LINES);
    let height: u128 = height.unwrap_or(2_160);
    let frames = u128::from(millis.saturating_mul(24) / 1_000);
    let pixels = height.saturating_mul(height).saturating_mul(16) / 9;
    u64::try_from(pixels.saturating_mul(frames) / 1_024).unwrap_or(u64::MAX)
}

/// Lowest resolution of any provider, in lines.
const LEAST_LINES: u128 = 144;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolution_name_is_derived_from_the_size() {
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

    /// An unknown resolution, and one that no provider makes, is reserved as the largest. Nothing overflows.
    #[test]
    fn video_tokens_of_unknown_resolution_are_those_of_the_largest() {
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
