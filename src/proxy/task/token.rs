//! Access tokens of the task group: issued to whoever has a key, and taken in its place.

use std::sync::Arc;

use super::super::auth::{authenticate, only_key, permit, two_keys, use_key};
use super::super::context::Context;
use super::super::{Client, Gateway};
use crate::account::{Key, Keys, TokenFault, Tokens};
use crate::error::{ApiError, Kind};
use crate::wire::path::Endpoint;
use crate::wire::tasks::{Place, answer, ask};

/// Largest request for a token.
const BODY: usize = 16 * 1024;

impl Gateway {
    /// Answers a request for a token. The key stands in a header, as everywhere, or in the body.
    pub(in crate::proxy) async fn reply_token(
        &self,
        client: &mut Client,
        ctx: &mut Context,
    ) -> Result<bool, ApiError> {
        let live = ctx.live.clone();
        let body = self.read_whole(client, ctx, BODY).await?;
        match super::utf8(&body).ok().and_then(ask::api_key) {
            Some(text) if only_key(client.req_header())?.is_some_and(|other| *other != *text) => {
                return Err(two_keys("a header", "the body"));
            }
            Some(text) => use_key(ctx, live.snapshot.keys.find(&text), &text)?,
            None => authenticate(client.req_header(), ctx)?,
        }
        let address = client.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        permit(ctx, address, &Endpoint::Group(Place::Token))?;
        self.check_account(ctx).await?;
        let Some(tokens) = live.snapshot.tokens.as_deref() else {
            let message = "This gateway issues no access tokens; send the key itself.";
            return Err(ApiError::new(Kind::UnknownPath, message));
        };
        let key = ctx.key.as_ref().ok_or_else(super::failed)?;
        let serial = rand::Rng::next_u64(&mut rand::rng());
        let issued = tokens.issue(key, ctx.now(), serial);
        let (token, seconds) = issued.ok_or_else(|| {
            ApiError::new(Kind::UnknownPath, "This gateway verifies access tokens and issues none.")
        })?;
        self.reply_json(client, ctx, answer::token(&token, seconds)).await
    }
}

/// The key that a token stands for.
pub(in crate::proxy) fn key_of<'k>(
    tokens: &Tokens,
    keys: &'k Keys,
    token: &str,
) -> Result<Option<&'k Arc<Key>>, ApiError> {
    match tokens.verify(token) {
        Ok(hash) => Ok(keys.of_hash(hash)),
        Err(TokenFault::Expired) => {
            Err(ApiError::new(Kind::ExpiredKey, "The access token has expired; ask for another one."))
        }
        Err(TokenFault::Invalid) => Err(ApiError::new(Kind::InvalidKey, "The access token is not valid.")),
    }
}
