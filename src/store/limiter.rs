//! Limits of keys and accounts that several gateways share.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::account::limit::LimitRequest;
use crate::account::quota_lease::Denied;
use crate::account::{LimitGrant, LimitState, UsageLimits};

/// Whose limits they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Whose {
    /// The account; empty for a key without one.
    pub account: Arc<str>,
    /// The key's name; nothing for the limits of the account itself.
    pub key: Option<Arc<str>>,
}

/// Counts limits for all gateways together.
///
/// Promises:
/// * What gateways let in together is never more than a limit permits, but for what was set aside before a time that
///   is looked at, and for what requests turn out to have used beyond what was expected of them.
/// * What a gateway has that ends is free again after a while.
/// * No method waits, and no outcome is waited for long.
pub trait Limiter: Send + Sync {
    /// Takes a request's part of limits of which the gauge has not enough in hand. What arrives after nobody waits any
    /// more is given back.
    fn take(
        &self,
        whose: Whose,
        gauge: &Arc<LimitState>,
        limits: &UsageLimits,
        ask: &LimitRequest,
    ) -> oneshot::Receiver<Result<LimitGrant, Denied>>;
}
