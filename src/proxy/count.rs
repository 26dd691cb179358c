//! Counting tokens: answered here, without a provider (specification, section 4.3).

use bytes::{Bytes, BytesMut};

use super::context::Context;
use super::exchange::while_there;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::route::Model;
use crate::tokens::{self, Family, Tally};
use crate::translate::decode_request;
use crate::wire::Format;
use crate::wire::count_tokens::{self, Count};
use crate::wire::responses::stored::{Conversation, wish};

impl Gateway {
    /// Answers with the tokens of a request.
    pub(super) async fn reply_count(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        format: Format,
        model: &Model,
        text: Bytes,
    ) -> Result<bool, ApiError> {
        let family = family(model);
        if !tokens::is_ready(family) {
            // Reading a vocabulary takes longer than anything else here: other requests of this thread go on meanwhile.
            let _ = tokio::task::spawn_blocking(move || tokens::prepare(family)).await;
        }
        let text = std::str::from_utf8(&text)
            .map_err(|_| ApiError::new(Kind::InvalidJson, "The request body is not UTF-8."))?;
        let longer = if format == Format::Responses { self.continued(ctx, text).await? } else { None };
        let text = longer.as_deref().unwrap_or(text);
        let mut out = BytesMut::with_capacity(128);
        let turn = while_there(client, self.offload.turn(text.len())).await??;
        turn.run(|| {
            let text = count_tokens::request(format, text)
                .map_err(|_| ApiError::new(Kind::InvalidJson, "The request body must be a JSON object."))?;
            count_tokens::encode(format, count(format, family, text)?, &mut out);
            Ok::<(), ApiError>(())
        })?;
        self.reply_json(client, ctx, out.freeze()).await
    }

    /// A request that goes on from a kept response, with the conversation before it.
    async fn continued(&self, ctx: &Context, text: &str) -> Result<Option<String>, ApiError> {
        let Some(id) = wish(text).previous.filter(|_| self.keeps()) else { return Ok(None) };
        let before = self.conversation(ctx, &id).await?.unwrap_or_default();
        Ok(Conversation::new(text, &before).ok().map(|all| all.request(text)))
    }
}

/// The family of the model as its first target knows it: the client's name for it may tell nothing.
pub(super) fn family(model: &Model) -> Family {
    let known = model.targets.iter().map(|target| Family::of(&target.model));
    known.chain([Family::of(&model.id)]).find(|family| *family != Family::Other).unwrap_or(Family::Other)
}

fn count(format: Format, family: Family, text: &str) -> Result<Count, ApiError> {
    let request = decode_request(format, text)?;
    let tally = Tally::of(&request);
    Ok(Count { total: tally.tokens(family), images: tally.images * tokens::IMAGE })
}
