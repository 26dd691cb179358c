//! Selected target of a request, and the body that is encoded for it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::cache_plan::CachePlan;
use crate::upstream_route::UpstreamRoute;
use codec::canonical::{Dialect, RequestFeatures};
use codec::provider::ToolBetas;
use codec::translate::CompactionOptions;
use codec::translate::verbatim::Changes;
use codec::wire::Api;
use codec::wire::path::Action;
use codec::wire::request::Body;
use codec::wire::spelling::Betas;
use json::{EscapedString, JsonRope, JsonText};
use routing::route::target_handle::TargetPermit;
use routing::route::{Model, Target, stop_sequence_api, upstream_api};

/// Request body, owned where it is used up or borrowed where it may have to be sent again.
pub(crate) enum BodyRef<'b> {
    Owned(Box<Body>),
    Borrowed(&'b mut Body),
}

impl BodyRef<'_> {
    pub(super) fn text(self) -> JsonRope {
        match self {
            BodyRef::Owned(body) => body.text,
            // Shares the text, does not copy it.
            BodyRef::Borrowed(body) => body.text.clone(),
        }
    }

    /// Returns the text in one piece. A body that may have to be sent again has it in one piece from then on, so that it is
    /// in memory once.
    pub(crate) fn into_contiguous(self) -> JsonText {
        match self {
            BodyRef::Owned(body) => body.text.into_contiguous(),
            BodyRef::Borrowed(body) => body.text.make_contiguous(),
        }
    }
}

impl Deref for BodyRef<'_> {
    type Target = Body;

    fn deref(&self) -> &Body {
        match self {
            BodyRef::Owned(body) => body,
            BodyRef::Borrowed(body) => body,
        }
    }
}

impl DerefMut for BodyRef<'_> {
    fn deref_mut(&mut self) -> &mut Body {
        match self {
            BodyRef::Owned(body) => body,
            BodyRef::Borrowed(body) => body,
        }
    }
}

/// Selected target of a request, with the client's and the upstream API.
pub(crate) struct Selection {
    pub(crate) model: Arc<Model>,
    /// Alias that names the model in the request. `None` if it has none.
    pub(crate) alias: Option<Arc<EscapedString>>,
    pub(crate) index: usize,
    /// Concurrency permit at the target. `None` for a request that is not subject to the target's limits.
    pub(crate) permit: Option<TargetPermit>,
    pub(crate) upstream_route: Arc<UpstreamRoute>,
    /// The API that the client speaks.
    pub(crate) api: Api,
    /// The API of the upstream request.
    pub(crate) upstream: Api,
    pub(crate) action: Option<Action>,
    pub(crate) stream: bool,
    /// Beta features that decide which members of tools the target takes.
    pub(crate) tool_betas: ToolBetas,
    /// What the body is adapted to: what the target refuses, without what the provider is asked about first.
    pub(crate) refuses: RequestFeatures,
    /// Whether the client's own choice of the target is tried first, so that members of its request are left to the provider.
    pub(crate) asks: bool,
    /// Prompt caching that is added to the body.
    pub(crate) caching: CachePlan,
    /// Compaction by the gateway; `None` for all other requests.
    pub(crate) compaction: Option<CompactionOptions>,
}

impl Selection {
    /// Returns the capability profile of the target's model for this request.
    pub(super) fn dialect<'t>(&self, target: &'t Target) -> Dialect<'t> {
        let dialect = Dialect {
            refuses: self.refuses,
            most_output: self.upstream_route.most_output(self.stream),
            ..self.upstream_route.dialect(target)
        };
        target.provider.with_betas(dialect, self.upstream, self.tool_betas)
    }

    /// Returns the changes to a response in the client's own format.
    pub(super) fn verbatim_changes(&self, target: &Target) -> Changes {
        let dialect = self.upstream_route.dialect(target);
        let has_envelopes = self.upstream == Api::Messages && dialect.own_envelopes;
        Changes {
            model: self.renamed(&target.model),
            issuer: has_envelopes.then(|| dialect.issuer.into()),
            ..Changes::default()
        }
    }

    /// Returns whether a body in the target's format may need edits for the target.
    pub(super) fn may_be_respelled(&self, body: &Body, target: &Target) -> bool {
        body.may_be_spelled()
            || self.held(body) != RequestFeatures::NONE
            || target.provider.invokes(self.upstream) && body.may_have_refused_members()
    }

    /// Returns what the body holds of what it is adapted to.
    pub(super) fn held(&self, body: &Body) -> RequestFeatures {
        body.held(self.refuses, self.upstream_route.most_output(self.stream))
    }

    /// Returns whether a target that the gateway chose takes a chat request once it is edited: whether no member of it is one that
    /// only the model which the client named takes.
    pub(super) fn accepts_edited(&self, body: &mut Body, target: &Target) -> bool {
        let dialect = self.dialect(target);
        if !body.is_settled_by_edits(self.held(body)) {
            return false;
        }
        let spelled = body.respelled(&dialect);
        let text = body.text.clone().edited(&spelled.edits).into_contiguous();
        let fits = |text: &str| codec::wire::chat::request::fits(text, &dialect);
        !spelled.encode_again && json::from_utf8(&text).is_ok_and(fits)
    }

    /// Returns the name of the model in the response.
    pub(super) fn reply_name(&self) -> &EscapedString {
        self.alias.as_deref().unwrap_or(&self.model.escaped_id)
    }

    /// Returns the name of the model that replaces the provider's in the response. `None` if both are the same.
    pub(super) fn renamed(&self, upstream: &str) -> Option<EscapedString> {
        (self.alias.is_some() || *upstream != *self.model.id).then(|| self.reply_name().clone())
    }
}

/// Returns the API to use at a target, and the beta features to enable in a header.
pub(crate) fn resolve_upstream_api(target: Option<&Target>, api: Api, body: &Body) -> (Api, Betas) {
    let upstream = target.and_then(|target| upstream_api(target, api)).unwrap_or(api);
    let needs_responses =
        |target: &Target| body.has_tools() && target.rules().needs_responses_for_tools(body.effort_setting());
    let upstream = match target {
        // The responses format has no stop sequences. If the request sets some, use the target's chat API.
        Some(target) if upstream == Api::Responses && api != upstream && body.has_stop_sequence() => {
            stop_sequence_api(target).filter(|_| !needs_responses(target)).unwrap_or(upstream)
        }
        Some(target) if upstream == Api::Chat && needs_responses(target) => Api::Responses,
        _ => upstream,
    };
    (upstream, if upstream == Api::Messages { body.betas() } else { Betas::default() })
}
