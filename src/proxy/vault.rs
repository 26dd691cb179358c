//! Signatures and encrypted reasoning, kept for clients that send none back: found before a request goes to the
//! provider that issued them, kept before the end of an answer leaves.
//!
//! An account finds its own and nothing else; a key holds the issuer, so a provider gets back its own and nothing else.

use std::time::Duration;

use bytes::Bytes;

use super::Gateway;
use super::context::{Attempt, Context};
use super::plan::Selection;
use super::remote_media::MediaFault;
use super::stored::account;
use crate::canonical::Thinking;
use crate::error::{ApiError, Kind};
use crate::store::Pending;
use crate::translate::{Key, Recalled, StoreOptions, issues_seals};

/// How long an answer's end or a request waits. Without what is kept a conversation goes on all the same, as far as the
/// provider allows.
const WAIT: Duration = Duration::from_secs(1);

impl Gateway {
    /// Whether a request may need what is kept: it goes to another format, and to a model that issues seals.
    pub(super) fn may_recall(&self, chosen: &Selection) -> bool {
        let Some(provider) = chosen.upstream.format().filter(|_| chosen.api != chosen.upstream) else {
            return false;
        };
        self.store.is_some()
            && chosen.target().is_ok_and(|target| issues_seals(&chosen.lane.dialect(target), provider))
    }

    /// Finds what belongs to the turns of a request that have lost it.
    async fn recall(&self, ctx: &Context, keys: Vec<Key>) -> Vec<(Key, Bytes)> {
        let Some(store) = self.store.as_deref() else { return Vec::new() };
        let found = store.recall(&account(ctx), keys.clone()).within(WAIT).await;
        self.count_store("recall", &found);
        match found {
            Ok(found) => keys.into_iter().zip(found).filter_map(|(key, value)| Some((key, value?))).collect(),
            Err(error) => {
                let request = ctx.id.as_str();
                tracing::warn!(%error, request, "what a provider wants back was not found in time");
                Vec::new()
            }
        }
    }

    /// Translates a request once more, with what its turns have lost and what lies behind its addresses.
    pub(super) async fn translate_with(
        &self,
        ctx: &Context,
        stuck: MediaFault,
        thinking: Thinking,
        text: &[u8],
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, ApiError> {
        let (chosen, keys) = match stuck {
            MediaFault::Told(error) => return Err(error),
            MediaFault::Linked(stuck) => {
                return self.translate_linked(ctx, *stuck, thinking, text, stored).await;
            }
            MediaFault::Bare(bare) => *bare,
        };
        let found = self.recall(ctx, keys).await;
        let stored = StoreOptions { recalled: Some(Recalled(&found)), ..stored };
        match self.translate(ctx, chosen, thinking, text, stored).await {
            Ok(plan) => Ok(plan),
            Err(MediaFault::Linked(stuck)) => {
                self.translate_linked(ctx, *stuck, thinking, text, stored).await
            }
            Err(MediaFault::Told(error)) => Err(error),
            Err(MediaFault::Bare(_)) => Err(ApiError::new(Kind::Internal, "The gateway failed.")),
        }
    }

    /// Keeps the seals of the answer that is about to end, if it has any. What is returned is waited for before the end
    /// leaves.
    pub(super) fn remember(&self, ctx: &mut Context) -> Option<Pending<()>> {
        let store = self.store.as_deref()?;
        let keepsake = ctx.passing_mut()?.exchange.take_keepsake()?;
        let entries = keepsake.keys.into_iter().map(|key| (key, keepsake.record.clone())).collect();
        Some(store.remember(&account(ctx), entries))
    }

    /// Waits until the seals are kept. That they are not is no reason for the client not to get its answer.
    pub(super) async fn remembered(&self, ctx: &Context, pending: Pending<()>) {
        let outcome = pending.within(WAIT).await;
        self.count_store("remember", &outcome);
        if let Err(error) = outcome {
            let request = ctx.id.as_str();
            tracing::warn!(%error, request, "the signatures of an answer were not kept");
        }
    }
}
