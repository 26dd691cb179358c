//! Token counting endpoints: answered by the gateway, without a provider.

use bytes::BytesMut;

use crate::Client;
use crate::Gateway;
use crate::gateway::context::Context;
use codec::error::{ApiError, ErrorKind};
use codec::tokens::{self, Tally, TokenizerFamily};
use codec::translate::decode_request;
use codec::wire::Format;
use codec::wire::count_tokens::{self, Count};
use codec::wire::responses::stored::{Conversation, parse_storage};
use driver::downstream::run_while_connected;
use json::JsonText;
use routing::route::Model;

impl Gateway {
    /// Writes the token count of a request to the client.
    pub(crate) async fn reply_count(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        format: Format,
        model: &Model,
        text: JsonText,
    ) -> Result<bool, ApiError> {
        let family = ctx.active.tokenizer(model);
        if !tokens::is_ready(family) {
            // Loading a vocabulary takes longer than anything else here and would block the other requests of this
            // thread.
            let _ = tokio::task::spawn_blocking(move || tokens::prepare(family)).await;
        }
        let longer = if format == Format::Responses { self.with_history(ctx, &text).await? } else { None };
        let text = longer.as_deref().unwrap_or(&text);
        let mut out = BytesMut::with_capacity(128);
        let turn = run_while_connected(client, self.offload.acquire(text.len())).await??;
        turn.run(|| {
            let text = count_tokens::request(format, text).map_err(|_| {
                ApiError::new(ErrorKind::InvalidJson, "The request body must be a JSON object.")
            })?;
            count_tokens::encode(format, count(format, family, text)?, &mut out);
            Ok::<(), ApiError>(())
        })?;
        self.reply_json(client, ctx, out.freeze()).await
    }

    /// Returns a request that continues a stored response, with the conversation before it. `None` if it continues none
    /// or the gateway stores no responses.
    async fn with_history(&self, ctx: &Context, text: &str) -> Result<Option<String>, ApiError> {
        let Some(id) = parse_storage(text).previous.filter(|_| self.stores_responses()) else {
            return Ok(None);
        };
        let before = self.conversation(ctx, &id).await?.unwrap_or_default();
        Ok(Conversation::new(text, &before).ok().map(|all| all.request(text)))
    }
}

fn count(format: Format, family: TokenizerFamily, text: &str) -> Result<Count, ApiError> {
    let request = decode_request(format, text)?;
    let tally = Tally::of(&request);
    Ok(Count { total: tally.tokens(family), images: tally.images * tokens::IMAGE })
}
