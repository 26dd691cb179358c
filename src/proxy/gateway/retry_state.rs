//! What a request is routed by, and what is kept of it for its next attempt.

use std::sync::Arc;

use codec::canonical::Thinking;
use codec::provider::ToolBetas;
use codec::wire::Api;
use codec::wire::path::Action;
use codec::wire::request::Body;
use json::EscapedString;
use routing::route::Model;
use routing::route::candidates::Candidates;
use routing::route::pick::PickRequest;

/// Routing input: the properties of a request that do not depend on the target.
#[derive(Clone, Copy)]
pub(crate) struct RouteRequest<'w> {
    pub(crate) model: &'w Arc<Model>,
    /// Name of the model in the request.
    pub(crate) name: &'w str,
    /// Alias that names the model; responses have it as well. `None` if the request has none.
    pub(crate) alias: Option<&'w Arc<EscapedString>>,
    pub(crate) thinking: Thinking,
    pub(crate) api: Api,
    pub(crate) action: Option<Action>,
    pub(crate) label: &'static str,
    /// Hash of the client's session header, where affinity or prompt caching needs it. `None` if it sent none.
    pub(crate) session: Option<u64>,
    /// Beta features of the header that decide which members of tools a target takes.
    pub(crate) tool_betas: ToolBetas,
}

impl RouteRequest<'_> {
    /// Returns whether the client requests a stream, in the body or in the path.
    pub(super) fn is_stream(&self, body: &Body) -> bool {
        match self.action {
            Some(Action::Stream { .. }) => true,
            // Its response is a document always.
            Some(Action::Compact) => false,
            _ => body.stream,
        }
    }
}

/// Retry state: what the next attempt needs, until the client has received its first byte. `None` for a model with one
/// target.
pub(crate) struct RetryState {
    pub(crate) model: Arc<Model>,
    /// Name of the model in the request; `None` if it is the model's id.
    name: Option<Box<str>>,
    alias: Option<Arc<EscapedString>>,
    pub(crate) thinking: Thinking,
    pub(crate) api: Api,
    pub(crate) action: Option<Action>,
    label: &'static str,
    session: Option<u64>,
    tool_betas: ToolBetas,
    pub(crate) body: Box<Body>,
    /// Targets tried, limits of retries, and the best error so far.
    pub(crate) candidates: Candidates,
}

impl RetryState {
    pub(super) fn new(wanted: &RouteRequest<'_>, body: Box<Body>, ask: PickRequest) -> RetryState {
        let RouteRequest { model, name, alias, thinking, api, action, label, session, tool_betas } = *wanted;
        let name = (*name != *model.id).then(|| name.into());
        let candidates = Candidates::new(ask, model.routing.retry);
        let alias = alias.cloned();
        let model = model.clone();
        RetryState { model, name, alias, thinking, api, action, label, session, tool_betas, body, candidates }
    }

    /// Returns the routing input, and the body.
    pub(super) fn split(&mut self) -> (RouteRequest<'_>, &mut Body) {
        let RetryState { model, name, alias, body, .. } = self;
        let (name, alias) = (name.as_deref().unwrap_or(&model.id), alias.as_ref());
        let RetryState { thinking, api, action, label, session, tool_betas, .. } = *self;
        (RouteRequest { model, name, alias, thinking, api, action, label, session, tool_betas }, body)
    }
}
