//! Tasks: work that takes a provider minutes. A task is submitted for a client, polled also after the client has left,
//! shown to its owner only, and charged when it has ended (docs/decisions/013).
//!
//! This module has the submission (`submit`, and `group` for the task group, whose images are waited for: `pictures`),
//! the provider calls (`call`), the persisted state (`record`), the poller (`poller`), the responses to clients (`view`;
//! videos: `source`, `stream`) and the access tokens of the group (`token`). Must not live here: the meaning of provider
//! responses (`wire`), provider paths (`provider`), and the storage of tasks (`store`).

mod call;
mod group;
mod pictures;
pub(crate) mod poller;
mod record;
pub(crate) mod service;
mod source;
mod stream;
mod submit;
mod token;
mod view;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rand::Rng as _;

use crate::Client;
use crate::Gateway;
use crate::gateway::context::Context;
use codec::error::{ApiError, ErrorKind};
use codec::wire::path::{Endpoint, query_value};
use codec::wire::{tasks, video};
use driver::body_memory::MemoryPermit;
use json::JsonText;
use storage::store::StoreError;

/// Maximum time that a request waits for the task store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a new id with 128 random bits, so that it cannot be guessed.
fn new_id(prefix: &str) -> String {
    let mut random = rand::rng();
    format!("{prefix}{:016x}{:016x}", random.next_u64(), random.next_u64())
}

/// Response format of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskFormat {
    /// The gateway's own video endpoints.
    Own,
    /// OpenAI's video API.
    OpenAi,
    /// Google's `:predictLongRunning` operations.
    Google,
    /// The task group.
    Group,
}

impl Gateway {
    /// Serves a request to a task endpoint. False for any other endpoint.
    pub(crate) async fn reply_task(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
    ) -> Result<bool, ApiError> {
        match endpoint {
            Endpoint::Group(tasks::TaskEndpoint::Submit(task)) => {
                self.reply_group(client, ctx, endpoint, *task).await
            }
            Endpoint::Group(tasks::TaskEndpoint::Query(id)) => {
                self.reply_query(client, ctx, id, TaskFormat::Group).await
            }
            Endpoint::Group(tasks::TaskEndpoint::Content(id)) => self.reply_content(client, ctx, id, 0).await,
            Endpoint::Video(place) => match place {
                video::VideoEndpoint::Submit => {
                    self.reply_submit(client, ctx, endpoint, (None, None), TaskFormat::Own).await
                }
                video::VideoEndpoint::Create => {
                    self.reply_submit(client, ctx, endpoint, (None, None), TaskFormat::OpenAi).await
                }
                video::VideoEndpoint::Remix(id) => {
                    self.reply_submit(client, ctx, endpoint, (None, Some(id)), TaskFormat::OpenAi).await
                }
                video::VideoEndpoint::Predict { model } => {
                    self.reply_submit(client, ctx, endpoint, (Some(model), None), TaskFormat::Google).await
                }
                video::VideoEndpoint::Query(id) => self.reply_query(client, ctx, id, TaskFormat::Own).await,
                video::VideoEndpoint::Retrieve(id) => {
                    self.reply_query(client, ctx, id, TaskFormat::OpenAi).await
                }
                video::VideoEndpoint::Operation(id) => {
                    self.reply_query(client, ctx, id, TaskFormat::Google).await
                }
                video::VideoEndpoint::Download => {
                    let query = client.req_header().uri.query();
                    let id = query_value(query, "id").filter(|id| !id.is_empty());
                    let id = id.ok_or_else(|| ApiError::missing("id"))?.into_owned();
                    self.reply_download(client, ctx, &id).await
                }
                video::VideoEndpoint::Fetch => self.reply_operation(client, ctx).await,
                video::VideoEndpoint::Content(id) => self.reply_content(client, ctx, id, 0).await,
                video::VideoEndpoint::File(name) => {
                    // The second video of a task is `{id}-1`, and so on.
                    let (id, number) = match name.rsplit_once('-') {
                        Some((id, number)) => (id, number.parse().map_err(|_| unknown_task(name))?),
                        None => (name.as_str(), 0),
                    };
                    self.reply_content(client, ctx, id, number).await
                }
            },
            _ => Ok(false),
        }
    }

    /// Reads the whole request body, at most `limit` bytes. Returns it with its memory permit, `None` for a small body.
    async fn read_whole(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        limit: usize,
    ) -> Result<(Bytes, Option<MemoryPermit>), ApiError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut held = 0;
        let taking = |piece: Bytes| {
            held += piece.len();
            pieces.push(piece);
            Ok(held)
        };
        let permit = self.read_pieces(client, ctx, limit, taking).await?;
        ctx.record.body_received_at = Some(Instant::now());
        if pieces.len() == 1 {
            return Ok((pieces.swap_remove(0), permit));
        }
        let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        Ok((whole.freeze(), permit))
    }

    /// Counts an operation of the task store, and maps its failure to the client's error.
    fn count_operation<T>(
        &self,
        operation: &'static str,
        outcome: Result<T, StoreError>,
    ) -> Result<T, ApiError> {
        self.count_store(operation, &outcome);
        outcome.map_err(|error| {
            tracing::warn!(%error, operation, "a task cannot be read or stored");
            ApiError::new(ErrorKind::Internal, "The task store is not available; please try again.")
        })
    }
}

/// Runs work to its end, also if the client disconnects meanwhile.
///
/// # Errors
/// Returns [`ErrorKind::Internal`] if the work panics.
async fn detached<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, ApiError> {
    tokio::spawn(work).await.map_err(|_| internal_error())
}

fn unknown_task(id: &str) -> ApiError {
    let message = format!("Task with id '{}' not found.", crate::gateway::refusals::short(id));
    ApiError::new(ErrorKind::UnknownTask, message)
}

fn utf8(bytes: Bytes) -> Result<JsonText, ApiError> {
    JsonText::new(bytes).map_err(|_| ApiError::new(ErrorKind::InvalidJson, "The request body is not UTF-8."))
}

fn internal_error() -> ApiError {
    ApiError::new(ErrorKind::Internal, "Internal gateway error.")
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn detached_work_that_panics_is_an_internal_error() {
        let error = detached::<()>(async { panic!("on purpose") }).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ErrorKind::Internal, 500));
        assert_eq!(detached(async { 5 }).await.unwrap(), 5);
    }
}
