//! Stored responses: loads them for requests that continue one, stores them before the end of a response is sent, and
//! serves them to their owners.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use rand::Rng as _;

use super::attempt::ResponseStorage;
use super::context::Context;
use crate::Client;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind};
use codec::wire::path::{self, Endpoint};
use codec::wire::responses::references::is_own_response;
use codec::wire::responses::stored::{self, ItemPage};
use json::with_whole_characters;
use storage::kv::{Found, Holder, Store, StoredResponse};
use storage::store::{Pending, StoreError};

/// Maximum time that the end of a response waits until the response is stored. The client did not ask for a longer
/// wait.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a request waits for the stored response that it continues or reads.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum items of a page (OpenAI API, "List input items").
const MAX_PAGE: usize = 100;
/// Request member with the id of the response to continue.
pub(super) const PREVIOUS: &str = "previous_response_id";

/// Returns a new response id: unique, with 128 random bits, so that it cannot be guessed.
pub(crate) fn new_id() -> String {
    let mut random = rand::rng();
    format!("resp_{:016x}{:016x}", random.next_u64(), random.next_u64())
}

impl Gateway {
    /// Returns whether responses are stored.
    pub(crate) fn stores_responses(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.stores_responses())
    }

    /// Loads the conversation up to and including a stored response. `None` if there is no store.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnknownResponse`] if the account has no response with this id.
    pub(crate) async fn conversation(&self, ctx: &Context, id: &str) -> Result<Option<String>, ApiError> {
        let Some(store) = self.store.as_deref() else { return Ok(None) };
        let Some(found) = self.load_stored(store, ctx, id).await? else {
            return Err(previous_not_found(id));
        };
        let joined = stored::with_answer(text(&found.items)?, text(&found.document)?);
        let joined = joined.map_err(|_| unreadable())?;
        // The response may have what a request may not.
        Ok(Some(match with_whole_characters(&joined) {
            Cow::Owned(whole) => whole,
            Cow::Borrowed(_) => joined,
        }))
    }

    /// Returns who has stored a response with this id in the gateway, from the point of view of the request's account.
    pub(crate) async fn holder(&self, ctx: &Context, id: &str) -> Result<Holder, ApiError> {
        // Ids of providers cost no query.
        let store = self.store.as_deref().filter(|store| store.stores_responses() && is_own_response(id));
        let Some(store) = store else { return Ok(Holder::NoAccount) };
        let found = store.holder(&account(ctx), id).within(LOAD_TIMEOUT).await;
        self.count_store("owner", &found);
        found.map_err(|error| unavailable(&error))
    }

    /// Starts to store a complete response. The caller waits for the result before it sends the end of the response.
    /// `None` if the response is not to be stored.
    pub(crate) fn store_response(&self, ctx: &mut Context) -> Option<Pending<()>> {
        let store = self.store.as_deref()?;
        let document = ctx.response_in_progress_mut()?.exchange.take_document()?;
        let keep = ctx.attempt_mut()?.translation.as_mut()?.storage.take()?;
        let ResponseStorage { id, items } = *keep;
        Some(store.store_response(StoredResponse { account: account(ctx), id, items, document }))
    }

    /// Waits until a response is stored. A failure is logged; the client gets its response anyway.
    pub(crate) async fn await_stored(&self, ctx: &Context, pending: Pending<()>) {
        let outcome = pending.within(STORE_TIMEOUT).await;
        self.count_store("keep", &outcome);
        if let Err(error) = outcome {
            let request = ctx.id.as_str();
            tracing::warn!(%error, request, "a response was not stored; the client has received it");
        }
    }

    /// Serves a stored response: its document, its input items, or its deletion.
    pub(crate) async fn reply_stored(
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
                let removed = store.remove(&account(ctx), id).within(LOAD_TIMEOUT).await;
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
                    return Err(ApiError::new(ErrorKind::Unsupported, message).param("stream"));
                }
                self.load_stored(store, ctx, id).await?.ok_or_else(|| not_found(id))?.document
            }
            _ => {
                let page = page(query)?;
                let found = self.load_stored(store, ctx, id).await?.ok_or_else(|| not_found(id))?;
                let mut out = BytesMut::with_capacity(found.items.len() + 256);
                if !stored::list(text(&found.items)?, id, &page, &mut out).map_err(|_| unreadable())? {
                    let message = "'after' is not the id of an item of this response.";
                    return Err(ApiError::new(ErrorKind::InvalidField, message).param("after"));
                }
                out.freeze()
            }
        };
        self.reply_json(client, ctx, body).await
    }

    async fn load_stored(
        &self,
        store: &dyn Store,
        ctx: &Context,
        id: &str,
    ) -> Result<Option<Found>, ApiError> {
        let found = store.find(&account(ctx), id).within(LOAD_TIMEOUT).await;
        self.count_store("find", &found);
        let Some(found) = found.map_err(|error| unavailable(&error))? else { return Ok(None) };
        // A stored conversation may be far larger than the request that names it.
        Ok(Some(Found {
            items: self.charge_memory(found.items)?,
            document: self.charge_memory(found.document)?,
        }))
    }

    /// Counts a store operation, and updates the gauge of the store's size.
    pub(crate) fn count_store<T>(&self, operation: &'static str, outcome: &Result<T, StoreError>) {
        let result = outcome.as_ref().err().map_or("done", StoreError::label);
        self.metrics.store_operations.with_label_values(&[operation, result]).inc();
        if let Some(store) = &self.store {
            self.metrics.store_bytes.set(i64::try_from(store.size()).unwrap_or(i64::MAX));
        }
    }
}

/// Returns the owner name that responses are stored under: the key's account, or else the key's name, so that one
/// secret may replace another.
pub(crate) fn account(ctx: &Context) -> String {
    ctx.key().map_or_else(String::new, |key| key.owner().to_owned())
}

pub(super) fn text(bytes: &Bytes) -> Result<&str, ApiError> {
    json::from_utf8(bytes).map_err(|_| unreadable())
}

fn page(query: Option<&str>) -> Result<ItemPage, ApiError> {
    let value = |name| path::query_value(query, name).filter(|value| !value.is_empty());
    let wrong = |name: &'static str, wanted: String| {
        ApiError::new(ErrorKind::InvalidField, format!("'{name}' must be {wanted}.")).param(name)
    };
    let mut page = ItemPage::default();
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
    let message = format!("Response with id '{}' not found.", super::refusals::short(id));
    ApiError::new(ErrorKind::UnknownResponse, message)
}

/// Returns the error of a response to continue that does not exist, or belongs to another account.
pub(crate) fn previous_not_found(id: &str) -> ApiError {
    let message = format!("Previous response with id '{}' not found.", super::refusals::short(id));
    let mut error = ApiError::new(ErrorKind::UnknownResponse, message).param(PREVIOUS).status(400);
    error.code = Some("previous_response_not_found".into());
    error
}

pub(crate) fn unavailable(error: &StoreError) -> ApiError {
    tracing::warn!(%error, "a stored response cannot be read or deleted");
    ApiError::new(ErrorKind::Internal, "The response store is not available; please try again.")
}

pub(super) fn unreadable() -> ApiError {
    ApiError::new(ErrorKind::Internal, "The stored response cannot be read.")
}
