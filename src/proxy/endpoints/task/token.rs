//! Access tokens of the task group: issued for an API key, and accepted in its place.

use crate::Client;
use crate::Gateway;
use crate::gateway::auth::{authenticate, authorize, conflicting_keys, extract_key, set_key};
use crate::gateway::context::Context;
use codec::error::{ApiError, ErrorKind};
use codec::wire::path::Endpoint;
use codec::wire::tasks::{TaskEndpoint, answer, ask};

/// Maximum length of a token request, in bytes.
const BODY: usize = 16 * 1024;

impl Gateway {
    /// Serves a token request. The API key is in a header, as everywhere, or in the body.
    pub(crate) async fn reply_token(&self, client: &mut Client, ctx: &mut Context) -> Result<bool, ApiError> {
        let live = ctx.active.clone();
        let (body, _permit) = self.read_whole(client, ctx, BODY).await?;
        let key = match super::utf8(body).ok().and_then(|text| ask::api_key(&text)) {
            Some(text) if extract_key(client.req_header())?.is_some_and(|other| *other != *text) => {
                return Err(conflicting_keys("a header", "the body"));
            }
            Some(text) => set_key(ctx, live.snapshot.keys.find(&text), &text)?,
            None => authenticate(client.req_header(), ctx)?,
        };
        authorize(&key, client, ctx, &Endpoint::Group(TaskEndpoint::Token))?;
        self.check_account(&key, ctx.format).await?;
        let Some(tokens) = live.snapshot.tokens.as_deref() else {
            let message = "This gateway issues no access tokens; send the key itself.";
            return Err(ApiError::new(ErrorKind::UnknownPath, message));
        };
        let serial = rand::Rng::next_u64(&mut rand::rng());
        let issued = tokens.issue(&key, ctx.now(), serial);
        let (token, seconds) = issued.ok_or_else(|| {
            ApiError::new(ErrorKind::UnknownPath, "This gateway verifies access tokens and issues none.")
        })?;
        self.reply_json(client, ctx, answer::token(&token, seconds)).await
    }
}
