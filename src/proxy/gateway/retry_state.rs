//! What a request is routed by, and what is kept of it for its next attempt.

use std::sync::Arc;

use crate::canonical::Thinking;
use crate::json::EscapedString;
use crate::provider::ToolBetas;
use crate::route::Model;
use crate::route::candidates::Candidates;
use crate::route::pick::PickRequest;
use crate::wire::Api;
use crate::wire::path::Action;
use crate::wire::request::Body;

/// Routing input: the properties of a request that do not depend on the target.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct RouteRequest<'w> {
    pub(in crate::proxy) model: &'w Arc<Model>,
    /// Name of the model in the request.
    pub(in crate::proxy) name: &'w str,
    /// Alias that names the model; responses have it as well. `None` if the request has none.
    pub(in crate::proxy) alias: Option<&'w Arc<EscapedString>>,
    pub(in crate::proxy) thinking: Thinking,
    pub(in crate::proxy) api: Api,
    pub(in crate::proxy) action: Option<Action>,
    pub(in crate::proxy) label: &'static str,
    /// Hash of the client's session header, where affinity or prompt caching needs it. `None` if it sent none.
    pub(in crate::proxy) session: Option<u64>,
    /// Beta features of the header that decide which members of tools a target takes.
    pub(in crate::proxy) tool_betas: ToolBetas,
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
pub(in crate::proxy) struct RetryState {
    pub(in crate::proxy) model: Arc<Model>,
    /// Name of the model in the request; `None` if it is the model's id.
    name: Option<Box<str>>,
    alias: Option<Arc<EscapedString>>,
    pub(in crate::proxy) thinking: Thinking,
    pub(in crate::proxy) api: Api,
    pub(in crate::proxy) action: Option<Action>,
    label: &'static str,
    session: Option<u64>,
    tool_betas: ToolBetas,
    pub(in crate::proxy) body: Box<Body>,
    /// Targets tried, limits of retries, and the best error so far.
    pub(in crate::proxy) candidates: Candidates,
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
