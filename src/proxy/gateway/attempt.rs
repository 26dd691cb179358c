//! Upstream attempt: what one try of a request sends, and what its response needs to be translated and stored.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use smallvec::SmallVec;

use super::cache_plan::CacheAction;
use super::refit::Refit;
use crate::credentials::authorize::{AuthorizedWith, Remedy};
use crate::upstream_route::UpstreamRoute;
use cloud::sigv4::PayloadHash;
use codec::canonical::RequestFeatures;
use codec::canonical::prompt_sections::PromptSections;
use codec::job::Job;
use codec::translate::{Restore, verbatim::Changes};
use codec::wire::codec::ReplyOptions;
use codec::wire::path::Action;
use codec::wire::spelling::Betas;
use codec::wire::{Api, Format};
use json::{EscapedString, Scanner};
use routing::route::target_handle::TargetPermit;
use routing::route::{Model, Target};

/// Upstream attempt: the target, edits and limits that were chosen for one try of a request.
pub(crate) struct Attempt {
    pub(crate) model: Arc<Model>,
    /// Alias that names the model in the request. `None` if it has none.
    pub(crate) alias: Option<Arc<EscapedString>>,
    pub(crate) target: usize,
    pub(crate) api: Api,
    pub(crate) action: Option<Action>,
    /// Whether the client requested a stream.
    pub(crate) stream: bool,
    /// Upstream request body, in pieces. It stays until the provider has answered, so that it can be resent.
    pub(crate) body: SmallVec<[Bytes; 2]>,
    pub(crate) body_len: usize,
    /// Number of pieces that the driver has taken.
    pub(crate) pieces_sent: usize,
    pub(crate) changes: Changes,
    /// Translation state; `None` if the provider speaks the client's format.
    pub(crate) translation: Option<Box<Translation>>,
    /// What automatic prompt caching added to the body.
    pub(crate) caching: CacheAction,
    /// Fingerprints of the prompt. `None` unless the requests of its key are watched for misses of the prompt cache.
    pub(crate) sections: Option<Box<PromptSections>>,
    /// Value of the `x-gateway-warning` header: elements that were not carried out as requested.
    pub(crate) warning: Option<HeaderValue>,
    /// Whether the body has what is added to it when it is first sent.
    pub(crate) is_completed: bool,
    /// Beta features whose opt-in header the provider requires.
    pub(crate) betas: Betas,
    /// Beta features that the body of a request to InvokeModel names, until the service has refused them.
    pub(crate) sent_betas: Box<[Box<str>]>,
    /// Whether the service has refused the beta features, so that the request is sent again without them.
    pub(crate) betas_refused: bool,
    /// The client's request, which is adapted if the provider refuses it as it is. `None` if there is nothing to adapt.
    pub(crate) refit: Option<Box<Refit>>,
    /// Whether the provider has refused the request as it is.
    pub(crate) is_unfit: bool,
    /// Features that the provider refused in the request before this one, which is without them.
    pub(crate) without: RequestFeatures,
    pub(crate) upstream_route: Arc<UpstreamRoute>,
    /// Concurrency permit at the target, until the outcome of the attempt is known.
    pub(crate) permit: Option<TargetPermit>,
    /// Hash of the body for signatures, so that a resend need not compute it again. `None` before the first signature.
    pub(crate) payload_hash: Option<PayloadHash>,
    /// How the request was authorized; `None` before it is sent, and for a fixed credential.
    pub(crate) authorized: Option<AuthorizedWith>,
    /// Remedy for an authorization that the provider has refused. `None` if there is none, or if it was tried already.
    pub(crate) remedy: Option<Remedy>,
    /// Whether the body of the provider's refusal decides about a remedy, because its head does not name the error.
    pub(crate) unnamed_refusal: bool,
    /// Whether a remedy was tried.
    pub(crate) reauthorized: bool,
    /// Job that makes the response out of several provider calls.
    pub(crate) job: Option<Box<dyn Job>>,
}

impl Attempt {
    pub(crate) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    /// Returns the name of the model in the response.
    pub(crate) fn reply_name(&self) -> &EscapedString {
        self.alias.as_deref().unwrap_or(&self.model.escaped_id)
    }

    /// Returns whether the opaque routing state of a turn passes between client and provider: both speak the responses
    /// format, and the provider has such a state.
    pub(crate) fn forwards_turn_state(&self) -> bool {
        self.translation.is_none()
            && self.target().is_some_and(|target| target.provider.has_turn_state(self.api))
    }

    /// Returns whether the request may go over a WebSocket: a stream of the responses API that the provider does not run
    /// in the background, which it supports over HTTP only.
    pub(crate) fn fits_websocket(&self) -> bool {
        const BACKGROUND: &[u8] = b"\"background\"";
        let is_stream = self.stream && self.api == Api::Responses && self.action != Some(Action::Compact);
        let is_named = || self.body.iter().any(|piece| memchr::memmem::find(piece, BACKGROUND).is_some());
        is_stream && self.job.is_none() && (!is_named() || !self.has_background())
    }

    /// Returns whether the body has the member `background`.
    fn has_background(&self) -> bool {
        static MEMBERS: [&str; 1] = ["background"];
        let mut scan = Scanner::new(&MEMBERS);
        let scanned = self.body.iter().try_for_each(|piece| scan.push(piece)).and_then(|()| scan.finish());
        scanned.map_or(true, |members| members.iter().any(|member| member.wanted == Some(0)))
    }

    /// Returns the next piece of the upstream body, `None` at its end; with `all`, the rest as one piece, which may be
    /// empty.
    pub(crate) fn next_body(&mut self, all: bool) -> Option<Bytes> {
        let rest = self.body.get(self.pieces_sent..).unwrap_or_default();
        let (piece, sent) = match rest {
            [] => (all.then(Bytes::new), 0),
            [piece, ..] if !all || rest.len() == 1 => (Some(piece.clone()), 1),
            several => (Some(Bytes::from(several.concat())), several.len()),
        };
        self.pieces_sent += sent;
        piece
    }
}

/// Translation state of a response.
pub(crate) struct Translation {
    pub(crate) client: Format,
    pub(crate) provider: Format,
    pub(crate) reply: Arc<ReplyOptions>,
    pub(crate) restore: Restore,
    /// Whether the client's stream is one JSON array instead of server-sent events.
    pub(crate) array: bool,
    /// State for storing the response; `None` if it is not stored.
    pub(crate) storage: Option<Box<ResponseStorage>>,
}

/// Storage data of a response in progress.
pub(crate) struct ResponseStorage {
    /// Id of the response.
    pub(crate) id: String,
    /// Conversation up to the response, as JSON items.
    pub(crate) items: Bytes,
}
