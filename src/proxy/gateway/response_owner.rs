//! Owners of responses that a provider stores. A provider knows only the gateway's account, and would let every key
//! continue every response. The gateway therefore stores which account or key created each response, and refuses it to
//! others.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::claims::Claims;
use super::context::Context;
use super::stored::{PREVIOUS, previous_not_found, unavailable};
use crate::Gateway;
use codec::error::{ApiError, ErrorKind};
use codec::wire::Api;
use codec::wire::request::Body;
use routing::account::Key;
use storage::kv::{Holder, StoreKey};
use storage::store::StoreError;

/// Maximum time that the end of a response waits for its owner to be stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a request waits for the owner of the response it continues.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the store key of an id's owner.
fn key(id: &str) -> StoreKey {
    Sha256::new_with_prefix(b"owner\0").chain_update(id.as_bytes()).finalize().into()
}

/// Returns the owner: an account, or a key without an account. The prefix keeps their names apart.
pub(super) fn owner(key: &Key) -> String {
    match &key.account {
        Some(account) => format!("account:{}", account.name),
        None => format!("key:{}", key.name),
    }
}

/// Owner of an id that a provider made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdOwner {
    /// The owner of the request.
    Asker,
    /// Another owner, or none that the configuration accepts.
    Other,
    /// None that the gateway knows.
    Unknown,
}

impl Gateway {
    /// Checks that the key owns the responses, conversations and items that the request refers to, and puts the items that
    /// the gateway stores in the place of their references. Returns the ownership to record when the response has arrived,
    /// `None` if there is none.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnknownResponse`] if one belongs to another owner, or has no known owner and the
    /// configuration refuses those; [`ErrorKind::InvalidField`] for an unreadable id; and an error if the store is
    /// unavailable.
    pub(crate) async fn check_response_owner(
        &self,
        ctx: &Context,
        by: &Key,
        api: Api,
        body: &mut Box<Body>,
    ) -> Result<Option<Box<Claims>>, ApiError> {
        if api != Api::Responses {
            return Ok(None);
        }
        let mut claims = Claims { answer: body.may_be_stored(), ..Claims::default() };
        for (member, id) in body.stored_ids() {
            if id.is_empty() {
                let message = format!("'{member}' must name one response or conversation by its id.");
                return Err(ApiError::new(ErrorKind::InvalidField, message).param(member));
            }
            // The own store comes first: it knows the owner of its ids for certain.
            match self.holder(ctx, &id).await? {
                Holder::Asker => body.needs_store |= member == PREVIOUS,
                Holder::OtherAccount => return Err(not_found(member, &id)),
                Holder::NoAccount => match self.foreign_owner(by, &id).await? {
                    // A conversation has no end: each use renews its entry. A response expires at its provider.
                    IdOwner::Asker if member == "conversation" => claims.adopted.push(id),
                    IdOwner::Asker => {}
                    IdOwner::Other => return Err(not_found(member, &id)),
                    IdOwner::Unknown => claims.adopted.push(id),
                },
            }
        }
        if body.may_have_references() {
            // Boxed: few requests have items with ids.
            claims.adopted.extend(Box::pin(self.resolve_references(ctx, by, body)).await?);
        }
        Ok((claims.answer || !claims.adopted.is_empty()).then(|| Box::new(claims)))
    }

    /// Returns the owner of an id that a provider made, as far as it decides whether the key may use it. The first key
    /// that uses an id whose owner is unknown owns it from then on, unless the configuration refuses such ids.
    pub(super) async fn foreign_owner(&self, by: &Key, id: &str) -> Result<IdOwner, ApiError> {
        // No provider makes such an id; it could pass for that of another one where spaces are cut off.
        if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(IdOwner::Other);
        }
        let found = self.owners.owner(key(id)).within(LOOKUP_TIMEOUT).await;
        self.count_store("owner", &found);
        Ok(match found.map_err(|error| unavailable(&error))? {
            Some(found) if found == owner(by) => IdOwner::Asker,
            None if !self.refuse_foreign => IdOwner::Unknown,
            _ => IdOwner::Other,
        })
    }

    /// Sends the owner of a response to the store as soon as the provider has sent the id, because a client that leaves
    /// before the end knows the id too. Only the first call with a known id has an effect.
    pub(crate) fn claim(&self, ctx: &mut Context) {
        let claims = ctx.phase.routed().and_then(|routed| routed.claims.as_ref());
        if claims.is_none_or(|claims| !claims.pending.is_empty()) {
            return;
        }
        let (Some(plan), Some(passing), Some(by)) = (ctx.attempt(), ctx.response_in_progress(), ctx.key())
        else {
            return;
        };
        let id = passing.exchange.meter().id();
        // A translated request tells the provider to store nothing, so there is no id to claim.
        if id.is_empty() || plan.api != Api::Responses {
            return;
        }
        let (id, owner) = (id.to_owned(), owner(by));
        let claims = ctx.phase.routed_mut().and_then(|routed| routed.claims.as_mut());
        let Some(claims) = claims else { return };
        let answer = claims.answer.then_some(id);
        let ids = answer.iter().chain(&claims.adopted);
        claims.pending = ids.map(|id| self.owners.claim(key(id), &owner)).collect();
    }

    /// Waits until the owners are stored, before the end of the response is sent, so that the owner can continue from
    /// it at any gateway, and other keys cannot. A failure is logged; the client gets its response anyway.
    pub(crate) async fn await_claims(&self, ctx: &mut Context) {
        self.claim(ctx);
        let claims = ctx.phase.routed_mut().and_then(|routed| routed.claims.take());
        let Some(claims) = claims else { return };
        for pending in claims.pending {
            let outcome = pending.within(STORE_TIMEOUT).await;
            self.count_store("claim", &outcome);
            if let Err(error) = outcome {
                warn(ctx, &error);
            }
        }
    }
}

fn warn(ctx: &Context, error: &StoreError) {
    let request = ctx.id.as_str();
    tracing::warn!(%error, request, "the owner of a response was not stored");
}

/// Returns the error of an unknown id, so that a key cannot find out which ids of others exist.
fn not_found(member: &'static str, id: &str) -> ApiError {
    if member == "conversation" {
        let message = format!("Conversation with id '{}' not found.", super::refusals::short(id));
        return ApiError::new(ErrorKind::UnknownResponse, message).param(member);
    }
    previous_not_found(id)
}
