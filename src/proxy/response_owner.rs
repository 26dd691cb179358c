//! Whose a response is that its provider keeps. A provider knows the gateway's account alone and would let every key go on
//! from every response, so the gateway keeps who made which, and refuses to others what they would not find elsewhere.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Gateway;
use super::context::Context;
use super::stored::{previous_not_found, unavailable};
use crate::account::Key;
use crate::error::{ApiError, Kind};
use crate::store::{Pending, SealKey, StoreError};
use crate::wire::Api;
use crate::wire::request::Body;

/// How long the end of an answer waits until its owner is kept.
const CLAIMING: Duration = Duration::from_secs(1);
/// How long a request waits until the owner of what it goes on from is known.
const FINDING: Duration = Duration::from_secs(5);

/// What a request will own when its answer has come.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The provider may keep the answer.
    answer: bool,
    /// What the request goes on from, and nobody is known to own.
    adopted: Vec<String>,
}

/// Where the owner of an id stands.
fn key(id: &str) -> SealKey {
    Sha256::new_with_prefix(b"owner\0").chain_update(id.as_bytes()).finalize().into()
}

/// An account, or a key without one. They do not share names.
fn owner(key: &Key) -> String {
    match &key.account {
        Some(account) => format!("account:{}", account.name),
        None => format!("key:{}", key.name),
    }
}

impl Gateway {
    /// Whether the key owns what the request goes on from, as far as it is known.
    ///
    /// # Errors
    /// It is another's; or nobody's that is known, and those are refused; or it is not known at the moment.
    pub(super) async fn check_response_owner(
        &self,
        ctx: &mut Context,
        api: Api,
        body: &mut Body,
    ) -> Result<(), ApiError> {
        if api != Api::Responses {
            return Ok(());
        }
        let mut claims = Claims { answer: body.may_be_kept(), ..Claims::default() };
        for (member, id) in body.all_kept() {
            if id.is_empty() {
                let message = format!("'{member}' must name one response or conversation by its id.");
                return Err(ApiError::new(Kind::InvalidField, message).param(member));
            }
            let Some(own) = ctx.key.as_ref().map(|key| owner(key)) else { continue };
            let found = self.owners.owner(key(&id)).within(FINDING).await;
            self.count_store("owner", &found);
            match found.map_err(|error| unavailable(&error))? {
                Some(owner) if owner == own => {}
                Some(_) => return Err(not_found(member, &id)),
                None if self.keeps() && self.has_kept(ctx, &id).await? => {}
                None if self.refuse_foreign => return Err(not_found(member, &id)),
                None => claims.adopted.push(id),
            }
        }
        if claims.answer || !claims.adopted.is_empty() {
            ctx.claims = Some(Box::new(claims));
        }
        Ok(())
    }

    /// Keeps whose the answer is that has come to its end. What is returned is waited for before the end leaves, so that
    /// whoever has the id may go on from it at any gateway, and nobody else.
    pub(super) fn claim(&self, ctx: &mut Context) -> Vec<Pending<()>> {
        if ctx.claims.is_none() {
            return Vec::new();
        }
        let (Some(plan), Some(passing), Some(by)) = (&ctx.plan, ctx.passing(), &ctx.key) else {
            return Vec::new();
        };
        let id = passing.exchange.meter().id();
        // Where it is translated, the provider is told to keep nothing.
        if id.is_empty() || plan.api != Api::Responses {
            return Vec::new();
        }
        let (id, owner) = (id.to_owned(), owner(by));
        let Some(claims) = ctx.claims.take() else { return Vec::new() };
        let answer = claims.answer.then_some(id);
        answer.iter().chain(&claims.adopted).map(|id| self.owners.claim(key(id), &owner)).collect()
    }

    /// Waits until owners are kept. That they are not is no reason for the client not to get its answer.
    pub(super) async fn claimed(&self, ctx: &Context, all: Vec<Pending<()>>) {
        for pending in all {
            let outcome = pending.within(CLAIMING).await;
            self.count_store("claim", &outcome);
            if let Err(error) = outcome {
                warn(ctx, &error);
            }
        }
    }
}

fn warn(ctx: &Context, error: &StoreError) {
    let request = ctx.id.as_str();
    tracing::warn!(%error, request, "the owner of a response was not kept");
}

/// As if there were no such thing.
fn not_found(member: &'static str, id: &str) -> ApiError {
    if member == "conversation" {
        let message = format!("Conversation with id '{}' not found.", super::request::short(id));
        return ApiError::new(Kind::UnknownResponse, message).param(member);
    }
    previous_not_found(id)
}
