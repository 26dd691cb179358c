//! Join hints: whether the next large body of an API is likely to be needed in one piece.
//!
//! A body that is translated is needed in one piece, and so is a chat body in which a provider's deviations are looked for.
//! Others that are forwarded are not. The target is selected only when the body has arrived. Clients of an API mostly use the same models, so the last large body tells; the first one is
//! joined. If the hint is wrong, the body is copied once more: into one piece afterwards, or needlessly.

use std::sync::atomic::{AtomicU32, Ordering};

use codec::wire::Api;
use driver::offload::LARGE_BODY;

/// Hints for all APIs: one bit each, set if its last large body was not needed in one piece.
#[derive(Debug, Default)]
pub(crate) struct JoinHints(AtomicU32);

impl JoinHints {
    /// Returns whether the pieces of a body of `length` bytes should be joined while they arrive.
    pub(crate) fn should_join(&self, api: Api, length: usize) -> bool {
        length >= LARGE_BODY && self.0.load(Ordering::Relaxed) & bit(api) == 0
    }

    /// Records whether a body of `length` bytes was needed in one piece.
    pub(crate) fn record(&self, api: Api, length: usize, joined: bool) {
        // Written only if it changes, so that workers do not take the cache line from each other.
        if length < LARGE_BODY || self.should_join(api, length) == joined {
            return;
        }
        if joined {
            self.0.fetch_and(!bit(api), Ordering::Relaxed);
        } else {
            self.0.fetch_or(bit(api), Ordering::Relaxed);
        }
    }
}

fn bit(api: Api) -> u32 {
    1 << api as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_hint_is_that_of_the_last_large_body_of_the_api() {
        let hints = JoinHints::default();
        let (large, small) = (LARGE_BODY, LARGE_BODY - 1);
        assert!(hints.should_join(Api::Chat, large) && !hints.should_join(Api::Chat, small));
        hints.record(Api::Tasks, large, false);
        hints.record(Api::Chat, small, false);
        assert!(hints.should_join(Api::Chat, large) && !hints.should_join(Api::Tasks, large));
        hints.record(Api::Chat, large, false);
        assert!(!hints.should_join(Api::Chat, large));
        hints.record(Api::Chat, large, true);
        assert!(hints.should_join(Api::Chat, large) && !hints.should_join(Api::Tasks, large));
    }
}
