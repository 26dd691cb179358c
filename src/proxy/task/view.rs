//! How a task is shown.

use super::super::context::Context;
use super::super::stored::account;
use super::super::{Client, Gateway};
use super::record::{TaskFacts, TaskState, unpack};
use super::stream::Wrap;
use super::{KEEPING, Words, failed, unknown};
use crate::canonical::video::{Medium, Stage};
use crate::error::{ApiError, Kind};
use crate::store::StoredTask;
use crate::wire::tasks::{ROOT, answer as group};
use crate::wire::video::answer::{self, View};
use crate::wire::video::ask;

/// Largest body of a query.
const BODY: usize = 16 * 1024;
/// How long providers' links are valid, in seconds.
const LINKS: i64 = 86_400;

/// A task as it is told.
pub(super) fn view<'t>(id: &'t str, facts: &'t TaskFacts, state: &'t TaskState) -> View<'t> {
    let samples = 1_000;
    View {
        id,
        model: &facts.model,
        stage: state.stage(),
        progress: state.progress,
        fault: state.fault.as_ref().map(|(code, message)| (&**code, &**message)),
        created: facts.time / 1_000,
        ended: state.ended.map(|time| time / 1_000),
        expires: state.ended.map(|time| time / 1_000 + LINKS).filter(|_| state.stage() == Some(Stage::Done)),
        seconds: state.millis.unwrap_or(facts.millis) / samples,
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
    /// The task of this id, as its provider has it now.
    pub(super) async fn shown(&self, ctx: &mut Context, id: &str) -> Result<TaskView, ApiError> {
        let found = self.tasks.tasks.task(&account(ctx), id).within(KEEPING).await;
        let task = self.noted("find_task", found)?.ok_or_else(|| unknown(id))?;
        let (facts, state): (TaskFacts, TaskState) =
            unpack(&task.facts).zip(unpack(&task.state)).ok_or_else(failed)?;
        ctx.record.model = Some(facts.model.as_str().into());
        let permitted = ctx.key.as_ref().is_none_or(|key| key.rules.models.permits(&facts.model));
        if !permitted {
            return Err(unknown(id));
        }
        let shown = TaskView { task, facts, state };
        Ok(self.asked_again(ctx, shown).await)
    }

    /// Answers a query.
    pub(super) async fn reply_query(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
        words: Words,
    ) -> Result<bool, ApiError> {
        let shown = self.shown(ctx, id).await?;
        let TaskView { facts, state, .. } = &shown;
        let view = view(id, facts, state);
        let media: Vec<Medium> = state.media().collect();
        let over = view.expires.is_some_and(|end| end <= ctx.now());
        let gone = View {
            fault: Some(("expired", "The provider's link to the video is not valid any more.")),
            ..view
        };
        let public: Vec<&str> = media
            .iter()
            .filter_map(|medium| match medium {
                Medium::Public(url) => Some(url.as_str()),
                _ => None,
            })
            .collect();
        let body = match words {
            Words::OpenAi => answer::openai(&view),
            Words::Google => {
                let base = base(client);
                answer::operation(&view, &base, media.len())
            }
            Words::Group if over && !public.is_empty() => group::queried(&gone, None),
            Words::Group => match (public.first(), media.first()) {
                (None, Some(Medium::Keyed(_) | Medium::Inline | Medium::Content)) => {
                    // It opens with the group's tokens.
                    let link = format!("{}{ROOT}/task/{id}/content", base(client));
                    group::queried(&view, Some(&link))
                }
                (url, _) => group::queried(&view, url.copied()),
            },
            Words::Own => match media.first() {
                Some(Medium::Public(_)) if over => answer::queried(&gone, &[]),
                // Nobody is given a link that wants the provider's credential: the video itself takes its place.
                Some(medium @ (Medium::Keyed(_) | Medium::Inline)) => {
                    let frame = answer::queried_whole(&view);
                    return self.reply_video(client, ctx, &shown, medium, Wrap::Whole(frame)).await;
                }
                _ => answer::queried(&view, &public),
            },
        };
        self.reply_json(client, ctx, body).await
    }

    /// Answers a query of Google's clients of Vertex AI, who get the video itself.
    pub(super) async fn reply_operation(
        &self,
        client: &mut Client,
        ctx: &mut Context,
    ) -> Result<bool, ApiError> {
        let body = self.read_whole(client, ctx, BODY).await?;
        let id = ask::operation(super::utf8(&body)?)?;
        let shown = self.shown(ctx, &id).await?;
        let view = view(&id, &shown.facts, &shown.state);
        let Ok(medium) = done(&shown, 0) else {
            return self.reply_json(client, ctx, answer::operation(&view, "", 0)).await;
        };
        let wrap = Wrap::Whole(answer::operation_whole(&view));
        self.reply_video(client, ctx, &shown, &medium, wrap).await
    }

    /// Answers a download: for the family whose queries have no address.
    pub(super) async fn reply_download(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
    ) -> Result<bool, ApiError> {
        let shown = self.shown(ctx, id).await?;
        if shown.facts.form != super::record::Form::Remix {
            let message =
                "Videos of this model are not downloaded here: their address is in the answer to the query.";
            return Err(ApiError::new(Kind::Unsupported, message).param("id"));
        }
        let medium = done(&shown, 0)?;
        self.reply_video(client, ctx, &shown, &medium, Wrap::Download(id.to_owned())).await
    }

    /// Answers with a video as it is.
    pub(super) async fn reply_content(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        id: &str,
        number: usize,
    ) -> Result<bool, ApiError> {
        let shown = self.shown(ctx, id).await?;
        let medium = done(&shown, number)?;
        self.reply_video(client, ctx, &shown, &medium, Wrap::Plain(number)).await
    }
}

/// The video of a task that is done.
fn done(shown: &TaskView, number: usize) -> Result<Medium, ApiError> {
    let state = &shown.state;
    match (state.stage(), &state.fault) {
        (Some(Stage::Done), _) => state.media().nth(number).ok_or_else(|| unknown(&shown.task.id)),
        (Some(Stage::Failed), Some((code, message))) => {
            let mut error = ApiError::new(Kind::TaskState, format!("There is no video: {message}"));
            error.code = Some(code.as_str().into());
            Err(error)
        }
        _ => Err(ApiError::new(Kind::TaskState, "The video is not ready yet.")),
    }
}

/// The address under which a client reached the gateway.
fn base(client: &Client) -> String {
    let head = client.req_header();
    let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
    let encrypted = client.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    format!("{}://{host}", if encrypted { "https" } else { "http" })
}
