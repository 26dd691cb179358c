//! Session stickiness: a request that continues a stored response or conversation (responses format) goes to the target
//! that stores it.

use super::context::Context;
use crate::Gateway;
use codec::wire::Api;
use codec::wire::request::Body;
use routing::route::Model;
use routing::route::affinity::fingerprint;
use routing::route::sticky::StickyTarget;

impl Gateway {
    /// Returns the bit mask of the fitting targets, narrowed to the one that stores what the request continues.
    /// Unchanged if the request continues nothing, if the target is unknown, or if it does not fit.
    pub(crate) fn narrow_to_sticky(&self, model: &Model, api: Api, fitting: u64, body: &mut Body) -> u64 {
        if api != Api::Responses {
            return fitting;
        }
        let home = body.stored_id().and_then(|kept| self.sticky_table.find(fingerprint(0, &kept)));
        let lives_here = |home: StickyTarget| {
            let targets = model.targets.iter().take(routing::route::pick::MAX_TARGETS);
            let index = targets.into_iter().position(|target| home.matches(target.handle.state.id))?;
            Some(1 << index & fitting).filter(|at| *at != 0)
        };
        home.and_then(lives_here).unwrap_or(fitting)
    }

    /// Records which target may have stored a response. Must run before the client receives the end of the response,
    /// because the client can continue it from then on.
    pub(crate) fn record_sticky(&self, ctx: &Context) {
        let Some(plan) = ctx.attempt() else { return };
        if ctx.record.targets == 0 || plan.api != Api::Responses || plan.translation.is_some() {
            return;
        }
        let (Some(passing), Some(target)) = (ctx.response_in_progress(), plan.target()) else { return };
        let id = passing.exchange.meter().id();
        if !id.is_empty() {
            self.sticky_table.record(fingerprint(0, id.as_bytes()), target.handle.state.id);
        }
    }
}
