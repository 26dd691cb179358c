//! Requests of the target's own format whose settings its model may refuse.
//!
//! The profile of a model may be older than the model. A client that chose settings for the model that it named is
//! forwarded as it is, and the provider decides. If it refuses, the request is adapted and sent once more, and further
//! requests with the same features are adapted at once. A target that the gateway chose, and a conversation in which
//! another model has left something, are adapted in any case: there the client's settings are those of another model.

use super::attempt::Attempt;
use super::context::Context;
use super::retry_state::{RetryState, RouteRequest};
use super::selection::BodyRef;
use crate::Gateway;
use crate::upstream_route::UpstreamRoute;
use codec::canonical::RequestFeatures;
use codec::wire::Api;
use codec::wire::request::Body;
use routing::route::pick::PickRequest;

/// The client's request, to be adapted to the model.
pub(crate) struct Refit {
    /// Request and body, as another target would get them.
    state: RetryState,
    /// Index of the target.
    index: usize,
    /// What the provider may refuse.
    features: RequestFeatures,
}

impl Refit {
    /// Keeps a request; `None` if the provider refuses nothing of it. With `asks`, calls and results may not match, which is
    /// looked at after a refusal. The body shares its text with the one that is forwarded.
    pub(super) fn new(
        wanted: &RouteRequest<'_>,
        index: usize,
        features: RequestFeatures,
        asks: bool,
        body: &Body,
    ) -> Option<Box<Self>> {
        // Errors over a WebSocket are events, and come after the request has been accepted.
        let may_be_unmatched = asks && wanted.api != Api::Responses && body.has_tools();
        if features == RequestFeatures::NONE && !may_be_unmatched {
            return None;
        }
        let state = RetryState::new(wanted, Box::new(body.clone()), PickRequest::default());
        Some(Box::new(Refit { state, index, features }))
    }

    /// Returns whether the request holds something that the provider may refuse. Reads the conversation.
    pub(super) fn may_mend(&self) -> bool {
        let late = RequestFeatures::SOUGHT_LATE;
        self.features != RequestFeatures::NONE || self.state.body.features(late).intersects(late)
    }
}

/// Returns the features that are not looked for before the provider has refused the request, if the gateway `asks` it first.
pub(super) fn sought_late(asks: bool) -> RequestFeatures {
    RequestFeatures::SOUGHT_LATE.when(asks)
}

/// Returns what of a body's features the provider is asked about, instead of adapting the body at once. `refuses` is what
/// the model's profile says, `refused` what the provider has refused already, `most` is
/// the model's highest output limit.
pub(super) fn doubtful(
    refuses: RequestFeatures,
    refused: RequestFeatures,
    most: Option<u64>,
    api: Api,
    body: &Body,
) -> RequestFeatures {
    // Errors over a WebSocket are events, and come after the request has been accepted.
    if api == Api::Responses || !refuses.intersects(RequestFeatures::CHOICES) {
        return RequestFeatures::NONE;
    }
    let held = body.held(refuses.without(RequestFeatures::SOUGHT_LATE), most);
    let is_of_another = held.without(RequestFeatures::CHOICES) != RequestFeatures::NONE;
    if is_of_another || held.intersects(refused) { RequestFeatures::NONE } else { held }
}

/// Returns what of a body's features the provider is asked about at a target; nothing unless the gateway `asks`.
pub(super) fn asked_first(asks: bool, route: &UpstreamRoute, api: Api, body: &Body) -> RequestFeatures {
    match asks {
        true => doubtful(route.refuses(), route.refused(), route.most_output(body.stream), api, body),
        false => RequestFeatures::NONE,
    }
}

/// Returns whether the refusal of an attempt may concern what its body holds, so that the body must be kept.
pub(super) fn may_be_unfit(attempt: &Attempt, status: u16) -> bool {
    matches!(status, 400 | 422) && attempt.refit.is_some()
}

impl Gateway {
    /// Prepares an attempt that was refused to be sent again, adapted to the model. Returns false if it was not refused, or
    /// cannot be adapted.
    pub(super) async fn resend_adapted(&self, ctx: &mut Context) -> bool {
        let Some(attempt) = ctx.attempt_mut() else { return false };
        if !std::mem::take(&mut attempt.is_unfit) {
            return false;
        }
        let (Some(refit), Some(permit)) = (attempt.refit.take(), attempt.permit.take()) else { return false };
        let Refit { mut state, index, features } = *refit;
        let (wanted, body) = state.split();
        // Boxed: few requests are refused.
        match Box::pin(self.prepare(ctx, wanted, index, permit, BodyRef::Borrowed(body), false)).await {
            Ok(adapted) => {
                let Some(attempt) = ctx.attempt_mut() else { return false };
                *attempt = Attempt { without: features, ..adapted };
                ctx.reset_response();
                self.count_retry(ctx, "adapted");
                true
            }
            Err(_) => {
                // The provider's own words say what is wrong.
                ctx.drop_body();
                false
            }
        }
    }
}
