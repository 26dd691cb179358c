//! Going on at the provider that has the conversation: responses and conversations of the responses format stay where
//! they were made.

use super::Gateway;
use super::context::Context;
use crate::route::Model;
use crate::route::affinity::fingerprint;
use crate::route::sticky::StickyTarget;
use crate::wire::Api;
use crate::wire::request::Body;

impl Gateway {
    /// Of the targets that fit, the one that has what the request goes on from. All of them, if it goes on from nothing
    /// or nobody knows where that is.
    pub(super) fn at_home(&self, model: &Model, api: Api, fitting: u64, body: &mut Body) -> u64 {
        if api != Api::Responses {
            return fitting;
        }
        let home = body.kept().and_then(|kept| self.homes.find(fingerprint(0, &kept)));
        let lives_here = |home: StickyTarget| {
            let targets = model.targets.iter().take(crate::route::pick::MOST_TARGETS);
            let index = targets.into_iter().position(|target| home.is(target.seat.state.id))?;
            Some(1 << index & fitting).filter(|at| *at != 0)
        };
        home.and_then(lives_here).unwrap_or(fitting)
    }

    /// Remembers where a response is that its provider may have kept, before its client can go on from it.
    pub(super) fn remember_home(&self, ctx: &Context) {
        let Some(plan) = &ctx.plan else { return };
        if ctx.record.targets == 0 || plan.api != Api::Responses || plan.translation.is_some() {
            return;
        }
        let (Some(passing), Some(target)) = (ctx.passing(), plan.target()) else { return };
        let id = passing.exchange.meter().id();
        if !id.is_empty() {
            self.homes.remember(fingerprint(0, id.as_bytes()), target.seat.state.id);
        }
    }
}
