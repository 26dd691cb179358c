//! Task views: responses to queries and downloads.

use super::record::VideoEncoding;
use super::record::{TaskFacts, TaskState, unpack};
use super::{STORE_TIMEOUT, TaskFormat, internal_error, unknown_task};
use crate::Client;
use crate::Gateway;
use crate::gateway::context::Context;
use crate::gateway::stored::account;
use codec::canonical::video::{Medium, Stage};
use codec::error::{ApiError, ErrorKind};
use codec::wire::tasks::{ROOT, answer as group};
use codec::wire::video::answer::{self, View};
use codec::wire::video::ask;
use storage::kv::StoredTask;

/// Maximum length of a query body, in bytes.
const BODY: usize = 16 * 1024;
/// Lifetime of provider links to videos, in seconds.
const LINKS: i64 = 86_400;

/// Returns the state of a task for an encoder.
pub(super) fn view<'t>(id: &'t str, facts: &'t TaskFacts, state: &'t TaskState) -> View<'t> {
    // The provider reports the length of one video; the request's is that of all of them.
    let millis = state.millis.unwrap_or(facts.millis / facts.videos.max(1));
    View {
        id,
        model: &facts.model,
        stage: state.stage(),
        progress: state.progress,
        fault: state.fault.as_ref().map(|(code, message)| (&**code, &**message)),
        created: facts.time / 1_000,
        ended: state.ended.map(|time| time / 1_000),
        expires: state.ended.map(|time| time / 1_000 + LINKS).filter(|_| state.stage() == Some(Stage::Done)),
        seconds: millis / 1_000,
        size: &facts.size,
        prompt: &facts.prompt,
        remixed: facts.remixed.as_deref(),
    }
}

/// Task as it is shown to its client.
pub(super) struct TaskView {
    pub(super) task: StoredTask,
    pub(super) facts: TaskFacts,
    pub(super) state: TaskState,
}

impl Gateway {
    /// Loads a task of the request's owner and updates its state from the provider.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnknownTask`] if the owner has no task with this id, or its key may not use the model.
    pub(super) async fn load_task(&self, ctx: &mut Context, id: &str) -> Result<TaskView, ApiError> {
        let found = self.tasks.tasks.task(&account(ctx), id).within(STORE_TIMEOUT).await;
        let task = self.count_operation("find_task", found)?.ok_or_else(|| unknown_task(id))?;
        let (facts, state): (TaskFacts, TaskState) =
            unpack(&task.facts).zip(unpack(&task.state)).ok_or_else(internal_error)?;
        ctx.record.model = Some(facts.model.as_str().into());
        let permitted = ctx.key().is_none_or(|key| key.rules.models.permits(&facts.model));
        // The same error as for an unknown id, so that the key does not learn that the task exists.
        if !permitted {
            return Err(unknown_task(id));
        }
        let shown = TaskView { task, facts, state };
        self.poll_on_query(ctx, shown).await
    }

    /// Serves a query for the state of a task.
    pub(super) async fn reply_query(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
        words: TaskFormat,
    ) -> Result<bool, ApiError> {
        let shown = self.load_task(ctx, id).await?;
        let TaskView { facts, state, .. } = &shown;
        let view = view(id, facts, state);
        let media: Vec<Medium> = state.media().collect();
        let over = view.expires.is_some_and(|end| end <= ctx.now());
        let gone = View { fault: Some(("expired", "The provider's link to the video has expired.")), ..view };
        let public: Vec<&str> = media
            .iter()
            .filter_map(|medium| match medium {
                Medium::Public(url) => Some(url.as_str()),
                _ => None,
            })
            .collect();
        let body = match words {
            TaskFormat::OpenAi => answer::openai(&view),
            TaskFormat::Google => {
                let base = base(client);
                answer::operation(&view, &base, media.len())
            }
            TaskFormat::Group if over && !public.is_empty() => group::queried(&gone, None),
            TaskFormat::Group => match (public.first(), media.first()) {
                (None, Some(Medium::Keyed(_) | Medium::Inline | Medium::Content)) => {
                    // The group's endpoint accepts the group's access tokens, which its clients have.
                    let link = format!("{}{ROOT}/task/{id}/content", base(client));
                    group::queried(&view, Some(&link))
                }
                (url, _) => group::queried(&view, url.copied()),
            },
            TaskFormat::Own => match media.first() {
                Some(Medium::Public(_)) if over => answer::queried(&gone, &[]),
                // A keyed link requires the provider's credential, which must not reach a client. Send the video
                // instead.
                Some(medium @ (Medium::Keyed(_) | Medium::Inline)) => {
                    let frame = answer::queried_whole(&view);
                    return self.reply_video(client, ctx, &shown, medium, VideoEncoding::Whole(frame)).await;
                }
                _ => answer::queried(&view, &public),
            },
        };
        self.reply_json(client, ctx, body).await
    }

    /// Serves a query of Google's Vertex AI clients, whose response contains the video itself.
    pub(super) async fn reply_operation(
        &self,
        client: &mut Client,
        ctx: &mut Context,
    ) -> Result<bool, ApiError> {
        let (body, _permit) = self.read_whole(client, ctx, BODY).await?;
        let id = ask::operation(&super::utf8(body)?)?;
        let shown = self.load_task(ctx, &id).await?;
        let view = view(&id, &shown.facts, &shown.state);
        let Ok(medium) = completed_video(&shown, 0) else {
            return self.reply_json(client, ctx, answer::operation(&view, "", 0)).await;
        };
        let wrap = VideoEncoding::Whole(answer::operation_whole(&view));
        self.reply_video(client, ctx, &shown, &medium, wrap).await
    }

    /// Serves a download, for the model family whose query responses contain no link.
    pub(super) async fn reply_download(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
    ) -> Result<bool, ApiError> {
        let shown = self.load_task(ctx, id).await?;
        if shown.facts.form != super::record::Form::Remix {
            let message =
                "Videos of this model cannot be downloaded here: the status response has their URL.";
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("id"));
        }
        let medium = completed_video(&shown, 0)?;
        self.reply_video(client, ctx, &shown, &medium, VideoEncoding::Download(id.to_owned())).await
    }

    /// Serves the bytes of a video; `number` is its index in the task.
    pub(super) async fn reply_content(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
        number: usize,
    ) -> Result<bool, ApiError> {
        let shown = self.load_task(ctx, id).await?;
        let medium = completed_video(&shown, number)?;
        self.reply_video(client, ctx, &shown, &medium, VideoEncoding::Plain(number)).await
    }
}

/// Returns a video of a completed task.
///
/// # Errors
/// Returns [`ErrorKind::TaskState`] if the task has failed or has not ended.
fn completed_video(shown: &TaskView, number: usize) -> Result<Medium, ApiError> {
    let state = &shown.state;
    match (state.stage(), &state.fault) {
        (Some(Stage::Done), _) => state.media().nth(number).ok_or_else(|| unknown_task(&shown.task.id)),
        (Some(Stage::Failed), Some((code, message))) => {
            let mut error = ApiError::new(ErrorKind::TaskState, format!("There is no video: {message}"));
            error.code = Some(code.as_str().into());
            Err(error)
        }
        _ => Err(ApiError::new(ErrorKind::TaskState, "The video is not ready yet.")),
    }
}

/// Returns the base URL under which a client reached the gateway.
fn base(client: &Client) -> String {
    let head = client.req_header();
    let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
    let encrypted = client.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    format!("{}://{host}", if encrypted { "https" } else { "http" })
}
