//! Compaction of conversations of the responses format: for a provider that has none, the gateway requests a summary and
//! seals it, and opens its own items in later requests.
//!
//! Here is decided, per target, what a request with compaction items becomes. Keys and encryption live in
//! `compaction_seal`, the items and their texts in `wire::responses::compaction`, the response in `translate`.

use bytes::Bytes;

use super::compaction_seal::{is_own, open, seal};
use super::context::Context;
use super::response_owner::owner;
use super::retry_state::RouteRequest;
use super::selection::BodyRef;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind};
use codec::translate::CompactionOptions;
use codec::wire::Api;
use codec::wire::codec::Sealer;
use codec::wire::path::Action;
use codec::wire::request::{Body, BodyReader};
use codec::wire::responses::compaction::{CompactionItems, unreadable};
use driver::offload::run_blocking_if_large;

/// What a request with compaction items becomes for one target.
#[derive(Default)]
pub(crate) struct CompactionPlan {
    /// Body with opened items; `None` if the client's body stays as it is.
    pub(crate) body: Option<Box<Body>>,
    /// Compaction by the gateway; `None` if the request asks for none, or the provider does it.
    pub(crate) options: Option<CompactionOptions>,
}

impl Gateway {
    /// Plans the compaction of a request for a target. Without compaction items, and unless the endpoint compacts, the
    /// plan is empty. `compacts` tells whether the provider makes and reads such items itself.
    ///
    /// # Errors
    /// Returns the error for the client if an item is invalid, or if neither the target nor the gateway, for this
    /// owner, can read it.
    pub(crate) async fn plan_compaction(
        &self,
        ctx: &Context,
        wanted: &RouteRequest<'_>,
        compacts: bool,
        body: &BodyRef<'_>,
    ) -> Result<CompactionPlan, ApiError> {
        let conversation = wanted.action == Some(Action::Compact);
        let (true, Some(by)) = (conversation || body.may_have_compaction(), ctx.key()) else {
            return Ok(CompactionPlan::default());
        };
        let text = run_blocking_if_large(body.text.len(), || body.text.clone().into_contiguous());
        let found = run_blocking_if_large(text.len(), || CompactionItems::read(&text))?;
        if conversation && found.is_triggered() {
            let message = "'compaction_trigger' is an item of requests to /v1/responses.";
            return Err(ApiError::new(ErrorKind::InvalidField, message).param("input"));
        }
        let own = found.items.iter().any(|item| is_own(&item.encrypted));
        let makes = (conversation || found.is_triggered()) && !compacts;
        if let Some(foreign) = found.items.iter().find(|item| !compacts && !is_own(&item.encrypted)) {
            let why = "another provider made it, and only that one can read it. Send the request to a model of that \
                       provider, or the conversation without the item.";
            return Err(unreadable(ErrorKind::Unsupported, foreign.index, why));
        }
        if !own && !makes {
            return Ok(CompactionPlan::default());
        }
        let (secret, owner) = (self.compaction_secret.get(&*self.owners).await?, owner(by));
        let summaries: Result<Vec<Option<String>>, ApiError> = found
            .items
            .iter()
            .map(|item| match is_own(&item.encrypted) {
                false => Ok(None),
                true => open(&secret, &owner, &item.encrypted).map(Some).ok_or_else(|| {
                    let why = "it was changed, has expired, or belongs to another key.";
                    unreadable(ErrorKind::InvalidField, item.index, why)
                }),
            })
            .collect();
        let summaries = summaries?;
        let replaced = own || (makes && found.is_triggered());
        let body = if replaced {
            let rewritten = run_blocking_if_large(text.len(), || found.rewritten(&text, &summaries, makes));
            Some(self.scan_again(rewritten)?)
        } else {
            None
        };
        let options = makes.then(|| CompactionOptions {
            seal: Sealer::new(move |text| seal(&secret, &owner, text)),
            conversation,
        });
        Ok(CompactionPlan { body, options })
    }

    /// Scans the text of a request body that differs from the client's.
    pub(super) fn scan_again(&self, text: String) -> Result<Box<Body>, ApiError> {
        let text = self.charge_memory(Bytes::from(text))?;
        run_blocking_if_large(text.len(), || {
            let mut reader = BodyReader::new(Api::Responses, false);
            reader.push(text)?;
            reader.finish().map(Box::new)
        })
    }
}
