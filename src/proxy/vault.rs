//! Signatures and encrypted reasoning, kept for clients that send none back: found before a request goes to the vendor
//! that issued them, kept before the end of an answer leaves.
//!
//! An account finds its own and nothing else; a key holds the issuer, so a vendor gets back its own and nothing else.

use std::time::Duration;

use bytes::Bytes;

use super::Gateway;
use super::context::Context;
use super::plan::Chosen;
use super::stored::account;
use crate::canonical::Thinking;
use crate::store::Pending;
use crate::translate::{Key, bare_turns, issues_seals};

/// How long an answer's end or a request waits. Without what is kept a conversation goes on all the same, as far as the
/// vendor allows.
const WAIT: Duration = Duration::from_secs(1);

impl Gateway {
    /// Whether a request may need what is kept: it goes to another format, and to a model that issues seals.
    pub(super) fn may_recall(&self, chosen: &Chosen) -> bool {
        let Some(vendor) = chosen.upstream.format().filter(|_| chosen.api != chosen.upstream) else {
            return false;
        };
        self.store.is_some()
            && chosen.target().is_ok_and(|target| {
                issues_seals(&target.provider.dialect(chosen.upstream, &target.model), vendor)
            })
    }

    /// Finds what belongs to the turns of a request that have lost it.
    pub(super) async fn recall(
        &self,
        ctx: &Context,
        chosen: &Chosen,
        thinking: Thinking,
        body: &str,
    ) -> Vec<(Key, Bytes)> {
        let (Some(store), Ok(target)) = (self.store.as_deref(), chosen.target()) else { return Vec::new() };
        let (Some(client), Some(vendor)) = (chosen.api.format(), chosen.upstream.format()) else {
            return Vec::new();
        };
        let dialect = target.provider.dialect(chosen.upstream, &target.model);
        let keys = bare_turns(body, client, vendor, thinking, &dialect);
        if keys.is_empty() {
            return Vec::new();
        }
        let found = store.recall(&account(ctx), keys.clone()).within(WAIT).await;
        self.count_store("recall", &found);
        match found {
            Ok(found) => keys.into_iter().zip(found).filter_map(|(key, value)| Some((key, value?))).collect(),
            Err(error) => {
                let request = ctx.id.as_str();
                tracing::warn!(%error, request, "what a vendor wants back was not found in time");
                Vec::new()
            }
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
