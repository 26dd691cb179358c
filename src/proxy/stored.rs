//! Responses that the gateway keeps: found for a request that goes on from one, kept before an answer's end leaves, and
//! shown to those whose they are.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use rand::Rng as _;

use super::context::Context;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::store::{Found, Pending, Store, StoreError, StoredResponse};
use crate::wire::path::{self, Endpoint};
use crate::wire::responses::stored::{self, Page};

/// How long the end of an answer waits for its response to be kept. Longer, and the client waits for something that it
/// did not ask for.
const KEEPING: Duration = Duration::from_secs(1);
/// How long a request waits for what it goes on from, or asks to see.
const FINDING: Duration = Duration::from_secs(5);
/// Most items of a page (OpenAI API, "List input items").
const MAX_PAGE: usize = 100;
/// The member that names the response that a request goes on from.
const PREVIOUS: &str = "previous_response_id";

/// What is known of an answer that is to be kept, while it is on its way.
pub(super) struct ResponseKeeping {
    /// Its id.
    pub(super) id: String,
    /// The conversation that it belongs to.
    pub(super) items: Bytes,
}

/// An id that nobody can guess and that is given once.
pub(super) fn new_id() -> String {
    let mut random = rand::rng();
    format!("resp_{:016x}{:016x}", random.next_u64(), random.next_u64())
}

/// Whether an id may be one of the gateway's own. Those of providers are longer.
fn is_own_id(id: &str) -> bool {
    let digits = id.strip_prefix("resp_").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Gateway {
    /// Whether there is a place where responses are kept.
    pub(super) fn keeps(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.keeps_responses())
    }

    /// The conversation behind a response that a request goes on from.
    pub(super) async fn conversation(&self, ctx: &Context, id: &str) -> Result<Option<String>, ApiError> {
        let Some(store) = self.store.as_deref() else { return Ok(None) };
        let Some(found) = self.found(store, ctx, id).await? else {
            return Err(previous_not_found(id));
        };
        let joined = stored::with_answer(text(&found.items)?, text(&found.document)?);
        joined.map(Some).map_err(|_| unreadable())
    }

    /// Whether the gateway keeps a response of this id for the request's owner.
    pub(super) async fn has_kept(&self, ctx: &Context, id: &str) -> Result<bool, ApiError> {
        let Some(store) = self.store.as_deref().filter(|_| is_own_id(id)) else { return Ok(false) };
        let found = store.find(&account(ctx), id).within(FINDING).await;
        self.count_store("owner", &found);
        found.map(|found| found.is_some()).map_err(|error| unavailable(&error))
    }

    /// Keeps the answer that is about to end, if it is one that is kept. What is returned is waited for before the end
    /// leaves.
    pub(super) fn keep(&self, ctx: &mut Context) -> Option<Pending<()>> {
        let store = self.store.as_deref()?;
        let document = ctx.passing_mut()?.exchange.take_document()?;
        let keep = ctx.plan.as_mut()?.translation.as_mut()?.keep.take()?;
        let ResponseKeeping { id, items } = *keep;
        Some(store.keep(StoredResponse { account: account(ctx), id, items, document }))
    }

    /// Waits until an answer is kept. That it is not is no reason for the client not to get it.
    pub(super) async fn kept(&self, ctx: &Context, pending: Pending<()>) {
        let outcome = pending.within(KEEPING).await;
        self.count_store("keep", &outcome);
        if let Err(error) = outcome {
            let request = ctx.id.as_str();
            tracing::warn!(%error, request, "a response was not kept; the client has it nevertheless");
        }
    }

    /// Answers a request for what is kept.
    pub(super) async fn reply_stored(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        endpoint: &Endpoint,
    ) -> Result<bool, ApiError> {
        let head = client.req_header();
        let (Endpoint::Response { id } | Endpoint::ResponseItems { id }) = endpoint else { return Ok(false) };
        let store = self.store.as_deref().ok_or_else(|| not_found(id))?;
        let query = head.uri.query();
        let body = match endpoint {
            Endpoint::Response { .. } if head.method == Method::DELETE => {
                let removed = store.remove(&account(ctx), id).within(FINDING).await;
                self.count_store("remove", &removed);
                if !removed.map_err(|error| unavailable(&error))? {
                    return Err(not_found(id));
                }
                let mut out = BytesMut::new();
                stored::removed(id, &mut out);
                out.freeze()
            }
            Endpoint::Response { .. } => {
                if path::query_value(query, "stream").as_deref() == Some("true") {
                    let message = "A response that is complete cannot be streamed again.";
                    return Err(ApiError::new(Kind::Unsupported, message).param("stream"));
                }
                self.found(store, ctx, id).await?.ok_or_else(|| not_found(id))?.document
            }
            _ => {
                let page = page(query)?;
                let found = self.found(store, ctx, id).await?.ok_or_else(|| not_found(id))?;
                let mut out = BytesMut::with_capacity(found.items.len() + 256);
                if !stored::list(text(&found.items)?, id, &page, &mut out).map_err(|_| unreadable())? {
                    let message = "'after' is the id of no item of this response.";
                    return Err(ApiError::new(Kind::InvalidField, message).param("after"));
                }
                out.freeze()
            }
        };
        self.reply_json(client, ctx, body).await
    }

    async fn found(&self, store: &dyn Store, ctx: &Context, id: &str) -> Result<Option<Found>, ApiError> {
        let found = store.find(&account(ctx), id).within(FINDING).await;
        self.count_store("find", &found);
        let Some(found) = found.map_err(|error| unavailable(&error))? else { return Ok(None) };
        Ok(Some(Found { items: self.weighed(found.items)?, document: self.weighed(found.document)? }))
    }

    pub(super) fn count_store<T>(&self, operation: &'static str, outcome: &Result<T, StoreError>) {
        let result = outcome.as_ref().err().map_or("done", StoreError::label);
        self.metrics.store_operations.with_label_values(&[operation, result]).inc();
        if let Some(store) = &self.store {
            self.metrics.store_bytes.set(i64::try_from(store.size()).unwrap_or(i64::MAX));
        }
    }
}

/// Whose responses these are: those of the key's account, or of the key's name, so that a key may be replaced by
/// another.
pub(super) fn account(ctx: &Context) -> String {
    ctx.key.as_ref().map_or_else(String::new, |key| key.owner().to_owned())
}

fn text(bytes: &Bytes) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes).map_err(|_| unreadable())
}

fn page(query: Option<&str>) -> Result<Page, ApiError> {
    let value = |name| path::query_value(query, name).filter(|value| !value.is_empty());
    let wrong = |name: &'static str, wanted: String| {
        ApiError::new(Kind::InvalidField, format!("'{name}' must be {wanted}.")).param(name)
    };
    let mut page = Page::default();
    if let Some(limit) = value("limit") {
        let limit = limit.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
        page.limit = limit.ok_or_else(|| wrong("limit", format!("a number from 1 to {MAX_PAGE}")))?;
    }
    match value("order").as_deref() {
        None | Some("desc") => {}
        Some("asc") => page.descending = false,
        Some(_) => return Err(wrong("order", "'asc' or 'desc'".to_owned())),
    }
    page.after = value("after").map(Into::into);
    Ok(page)
}

fn not_found(id: &str) -> ApiError {
    let message = format!("Response with id '{}' not found.", super::request::short(id));
    ApiError::new(Kind::UnknownResponse, message)
}

/// No response is known by which a request could go on, or it is another account's.
pub(super) fn previous_not_found(id: &str) -> ApiError {
    let message = format!("Previous response with id '{}' not found.", super::request::short(id));
    let mut error = ApiError::new(Kind::UnknownResponse, message).param(PREVIOUS).status(400);
    error.code = Some("previous_response_not_found".into());
    error
}

pub(super) fn unavailable(error: &StoreError) -> ApiError {
    tracing::warn!(%error, "a kept response cannot be read or removed");
    ApiError::new(Kind::Internal, "The store of responses is not available; please try again.")
}

fn unreadable() -> ApiError {
    ApiError::new(Kind::Internal, "The stored response cannot be read.")
}
