//! Limits of keys and accounts that several gateways share.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::limits::{Denied, LimitGrant, LimitRequest, LimitState, UsageLimits};

/// Owner of a set of limits: an account, or one key of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitOwner {
    /// Account; empty for a key without one.
    pub account: Arc<str>,
    /// Name of the key. `None` for the limits of the account itself.
    pub key: Option<Arc<str>>,
}

/// Limiter for all gateways of a fleet together.
///
/// Guarantees:
/// * In any window, gateways together admit no more than a limit permits, plus what was leased before the window began,
///   plus what requests use beyond their estimates.
/// * The leases of a gateway that has ended expire and become available to the others.
/// * No method blocks, and each outcome arrives within a short time.
pub trait Limiter: Send + Sync {
    /// Grants a request from limits for which the local lease of `state` does not suffice. A grant that arrives after
    /// its receiver is gone is returned to the limits.
    fn take(
        &self,
        owner: LimitOwner,
        state: &Arc<LimitState>,
        limits: &UsageLimits,
        request: &LimitRequest,
    ) -> oneshot::Receiver<Result<LimitGrant, Denied>>;
}
