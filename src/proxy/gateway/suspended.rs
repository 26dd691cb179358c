//! A response that broke off, until another target continues it (`resume`).

use std::time::Instant;

use crate::error::ApiError;
use crate::route::Nanos;
use crate::translate::Exchange;
use crate::translate::resume::{Prefill, PrefillState};
use crate::wire::codec::ReplyOptions;

/// State of a response that broke off.
pub(in crate::proxy) struct SuspendedResponse {
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
    pub(in crate::proxy) first_content: Option<Instant>,
}

impl SuspendedResponse {
    /// Returns the prefill state for the next target.
    pub(in crate::proxy) fn prefill_state(&self) -> PrefillState<'_> {
        PrefillState { prefill: &self.prefill, remaining_tokens: self.remaining_tokens }
    }
}
