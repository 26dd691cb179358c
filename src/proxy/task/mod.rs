//! What takes a provider minutes: begun for a client, looked after when the client has left, shown to whose it is,
//! charged when it has ended (docs/decisions/012).
//!
//! Here live the way of a submission ([`submit`], and [`group`] for the task group, whose pictures are waited for:
//! [`pictures`]), the calls of the provider ([`call`]), what is noted of a task ([`note`]), who looks after it
//! ([`watch`]) and how it is shown ([`show`], [`stream`]). Here must not live: what a provider's words mean (`wire`),
//! where they are said (`provider`), and how tasks are kept (`store`).

mod call;
mod group;
mod pictures;
mod poller;
mod record;
mod stream;
mod submit;
mod token;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rand::Rng as _;

use super::context::Context;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::store::{Reservation, StoreError, TaskStore};
use crate::wire::path::{Endpoint, query_value};
use crate::wire::{tasks, video};

pub(super) use poller::TaskPoller;
pub(super) use token::key_of;

/// How long a request waits for the place of tasks.
const KEEPING: Duration = Duration::from_secs(5);

/// Task service: the task store, and the reservations of tasks that this process has begun or taken over.
pub(super) struct TaskService {
    tasks: Arc<dyn TaskStore>,
    holds: Mutex<HashMap<(String, String), TaskHold>>,
}

/// An amount that is held for a task.
struct TaskHold {
    reservation: Reservation,
    since: Instant,
}

impl TaskService {
    pub(super) fn new(tasks: Arc<dyn TaskStore>) -> Self {
        TaskService { tasks, holds: Mutex::default() }
    }

    fn hold(&self, owner: &str, id: &str, reservation: Reservation) {
        let hold = TaskHold { reservation, since: Instant::now() };
        self.holds.lock().insert((owner.to_owned(), id.to_owned()), hold);
    }

    fn holds_for(&self, owner: &str, id: &str) -> bool {
        self.holds.lock().contains_key(&(owner.to_owned(), id.to_owned()))
    }

    fn release(&self, owner: &str, id: &str) -> Option<Reservation> {
        let hold = self.holds.lock().remove(&(owner.to_owned(), id.to_owned()));
        hold.map(|hold| hold.reservation)
    }
}

/// An id that nobody can guess and that is given once.
fn new_id(prefix: &str) -> String {
    let mut random = rand::rng();
    format!("{prefix}{:016x}{:016x}", random.next_u64(), random.next_u64())
}

/// Which words a task is shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// The gateway's own.
    Own,
    /// Those of OpenAI's clients.
    OpenAi,
    /// Those of Google's clients.
    Google,
    /// The task group's.
    Group,
}

impl Gateway {
    /// Answers a request for a task.
    pub(super) async fn reply_task(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
    ) -> Result<bool, ApiError> {
        match endpoint {
            Endpoint::Group(tasks::Place::Submit(task)) => self.reply_group(client, ctx, *task).await,
            Endpoint::Group(tasks::Place::Query(id)) => self.reply_query(client, ctx, id, Words::Group).await,
            Endpoint::Group(tasks::Place::Content(id)) => self.reply_content(client, ctx, id, 0).await,
            Endpoint::Video(place) => match place {
                video::Place::Submit => self.reply_submit(client, ctx, None, None, Words::Own).await,
                video::Place::Create => self.reply_submit(client, ctx, None, None, Words::OpenAi).await,
                video::Place::Remix(id) => {
                    self.reply_submit(client, ctx, None, Some(id), Words::OpenAi).await
                }
                video::Place::Predict { model } => {
                    self.reply_submit(client, ctx, Some(model), None, Words::Google).await
                }
                video::Place::Query(id) => self.reply_query(client, ctx, id, Words::Own).await,
                video::Place::Retrieve(id) => self.reply_query(client, ctx, id, Words::OpenAi).await,
                video::Place::Operation(id) => self.reply_query(client, ctx, id, Words::Google).await,
                video::Place::Download => {
                    let query = client.req_header().uri.query();
                    let id = query_value(query, "id").filter(|id| !id.is_empty());
                    let id = id.ok_or_else(|| ApiError::missing("id"))?.into_owned();
                    self.reply_download(client, ctx, &id).await
                }
                video::Place::Fetch => self.reply_operation(client, ctx).await,
                video::Place::Content(id) => self.reply_content(client, ctx, id, 0).await,
                video::Place::File(name) => {
                    // The second video of a task is `{id}-1`.
                    let (id, number) = match name.rsplit_once('-') {
                        Some((id, number)) => (id, number.parse().map_err(|_| unknown(name))?),
                        None => (name.as_str(), 0),
                    };
                    self.reply_content(client, ctx, id, number).await
                }
            },
            _ => Ok(false),
        }
    }

    /// The whole body, as it came.
    async fn read_whole(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        limit: usize,
    ) -> Result<Bytes, ApiError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        self.read_pieces(client, ctx, limit, |piece| {
            pieces.push(piece);
            Ok(())
        })
        .await?;
        ctx.record.complete = Some(Instant::now());
        if pieces.len() == 1 {
            return Ok(pieces.swap_remove(0));
        }
        let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        Ok(whole.freeze())
    }

    /// Takes note of what the place of tasks did not do.
    fn noted<T>(&self, operation: &'static str, outcome: Result<T, StoreError>) -> Result<T, ApiError> {
        self.count_store(operation, &outcome);
        outcome.map_err(|error| {
            tracing::warn!(%error, operation, "a task cannot be read or kept");
            ApiError::new(Kind::Internal, "The store of tasks is not available; please try again.")
        })
    }
}

fn unknown(id: &str) -> ApiError {
    let message = format!("Task with id '{}' not found.", super::request::short(id));
    ApiError::new(Kind::UnknownTask, message)
}

fn utf8(bytes: &Bytes) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes).map_err(|_| ApiError::new(Kind::InvalidJson, "The request body is not UTF-8."))
}

fn broken() -> ApiError {
    ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer is not valid.")
}

fn failed() -> ApiError {
    ApiError::new(Kind::Internal, "The gateway failed.")
}
