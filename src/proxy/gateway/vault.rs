//! Provider signatures (thinking signatures and encrypted reasoning), stored for clients that do not send them back:
//! loaded before a request goes to the provider that issued them, stored before the end of a response is sent.
//!
//! An account finds only its own signatures. The store key contains the issuer, so that a provider receives only its
//! own.

use std::time::Duration;

use bytes::Bytes;

use super::attempt::Attempt;
use super::context::Context;
use super::remote_media::MediaFault;
use super::selection::Selection;
use super::stored::account;
use crate::Gateway;
use codec::canonical::Thinking;
use codec::error::{ApiError, ErrorKind};
use codec::translate::{SignatureKey, StoreOptions, StoredSignatures, issues_signatures};
use json::JsonText;
use storage::store::Pending;

/// Maximum time that a request or the end of a response waits for the store. Without the signatures a conversation
/// continues as far as the provider allows.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

impl Gateway {
    /// Returns whether a request may need stored signatures: it is translated for a model whose provider issues some.
    pub(crate) fn may_need_signatures(&self, chosen: &Selection) -> bool {
        let Some(provider) = chosen.upstream.format().filter(|_| chosen.api != chosen.upstream) else {
            return false;
        };
        self.store.is_some()
            && chosen
                .target()
                .is_ok_and(|target| issues_signatures(&chosen.upstream_route.dialect(target), provider))
    }

    /// Loads the signatures under these keys. Those that are not found are left out, as are all if the store is too
    /// slow.
    async fn load_signatures(&self, ctx: &Context, keys: Vec<SignatureKey>) -> Vec<(SignatureKey, Bytes)> {
        let Some(store) = self.store.as_deref() else { return Vec::new() };
        let found = store.load_signatures(&account(ctx), keys.clone()).within(STORE_TIMEOUT).await;
        self.count_store("recall", &found);
        match found {
            Ok(found) => keys.into_iter().zip(found).filter_map(|(key, value)| Some((key, value?))).collect(),
            Err(error) => {
                let request = ctx.id.as_str();
                tracing::warn!(%error, request, "provider signatures were not found in time");
                Vec::new()
            }
        }
    }

    /// Translates a request again, with the provider signatures that its turns lack, or with its remote media.
    pub(crate) async fn translate_with_signatures(
        &self,
        ctx: &Context,
        stuck: MediaFault,
        thinking: Thinking,
        text: &JsonText,
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, ApiError> {
        let (chosen, keys) = match stuck {
            MediaFault::Rejected(error) => return Err(error),
            MediaFault::NeedsFetch(stuck) => {
                return self.translate_with_media(ctx, *stuck, thinking, text, stored).await;
            }
            MediaFault::NeedsSignatures(bare) => *bare,
        };
        let found = self.load_signatures(ctx, keys).await;
        let stored = StoreOptions { signatures: Some(StoredSignatures(&found)), ..stored };
        match self.translate(ctx, chosen, thinking, text, stored).await {
            Ok(plan) => Ok(plan),
            Err(MediaFault::NeedsFetch(stuck)) => {
                self.translate_with_media(ctx, *stuck, thinking, text, stored).await
            }
            Err(MediaFault::Rejected(error)) => Err(error),
            // Unreachable: with looked-up signatures, even none, the encoder asks for no others.
            Err(MediaFault::NeedsSignatures(_)) => {
                Err(ApiError::new(ErrorKind::Internal, "Internal gateway error."))
            }
        }
    }

    /// Starts to store the provider signatures of a complete response. The caller waits for the result before it sends
    /// the end of the response. `None` if the response has none.
    pub(crate) fn store_signatures(&self, ctx: &mut Context) -> Option<Pending<()>> {
        let store = self.store.as_deref()?;
        let keepsake = ctx.response_in_progress_mut()?.exchange.take_signatures()?;
        let entries = keepsake.keys.into_iter().map(|key| (key, keepsake.record.clone())).collect();
        Some(store.store_signatures(&account(ctx), entries))
    }

    /// Waits until the signatures are stored. A failure is logged; the client gets its response anyway.
    pub(crate) async fn await_signatures_stored(&self, ctx: &Context, pending: Pending<()>) {
        let outcome = pending.within(STORE_TIMEOUT).await;
        self.count_store("remember", &outcome);
        if let Err(error) = outcome {
            let request = ctx.id.as_str();
            tracing::warn!(%error, request, "the signatures of a response were not stored");
        }
    }
}
