//! A response that broke off, until another target continues it (`resume`).

use std::time::Instant;

use codec::error::ApiError;
use codec::translate::Exchange;
use codec::translate::resume::{Prefill, PrefillState};
use codec::wire::codec::ReplyOptions;
use routing::route::Nanos;

/// State of a response that broke off.
pub(crate) struct SuspendedResponse {
    /// The response so far.
    pub(super) exchange: Exchange,
    pub(super) prefill: Prefill,
    /// Output tokens that remain of the client's limit. `None` without a limit.
    pub(super) remaining_tokens: Option<u64>,
    /// Reply options of the client's request, to end the response at its limit.
    pub(super) reply: ReplyOptions,
    /// Error that the stream broke off with.
    pub(super) error: ApiError,
    pub(super) detail: Option<Box<str>>,
    /// When the stream broke off.
    pub(super) since: Nanos,
    /// When the client received its first content.
    pub(crate) first_content: Option<Instant>,
}

impl SuspendedResponse {
    /// Returns the prefill state for the next target.
    pub(crate) fn prefill_state(&self) -> PrefillState<'_> {
        PrefillState { prefill: &self.prefill, remaining_tokens: self.remaining_tokens }
    }
}
