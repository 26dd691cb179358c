//! Calls of a provider for a task: with its lane's head and its time-outs, but without a client, who may have left.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, header};

use super::super::active_snapshot::ActiveSnapshot;
use super::super::body_memory::Room;
use super::super::call::{CallLog, CallRequest, Reached, refused as refused_by, to_look};
use super::super::upstream_route::{UpstreamRoute, address_of};
use super::super::{Gateway, names};
use super::broken;
use crate::error::{ApiError, RetryAfter};
use crate::route::{Model, Target};

/// Upstream route of a task: the provider, the address and the credential that it is asked with.
#[derive(Clone)]
pub(super) struct TaskRoute {
    pub(super) live: Arc<ActiveSnapshot>,
    pub(super) lane: Arc<UpstreamRoute>,
    pub(super) model: Arc<Model>,
    pub(super) target: usize,
    /// The request's id, which the provider may want to know.
    pub(super) request: String,
}

impl TaskRoute {
    pub(super) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    /// A call, with the head of the lane and what differs.
    fn ask(&self, out: &TaskRequest) -> Option<CallRequest<'_>> {
        let target = self.target()?;
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = out.method.clone();
        parts.headers = self.lane.head();
        parts.uri = address_of(&target.provider, out.path.clone())?;
        let looks = out.method == Method::GET;
        if looks {
            to_look(&mut parts);
            parts.headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        } else {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(out.body.len()));
        }
        for (name, value) in out.headers {
            parts.headers.insert(*name, HeaderValue::from_static(value));
        }
        if let Ok(id) = HeaderValue::from_str(&self.request) {
            parts.headers.insert(names::X_REQUEST_ID, id);
        }
        let timeouts = target.timeouts;
        Some(CallRequest {
            link: self.live.link(&self.lane)?,
            series: Some(&self.lane.series),
            parts,
            body: (!looks).then(|| out.body.clone()),
            timeouts,
            until: tokio::time::Instant::now() + timeouts.total,
            repeatable: looks || out.repeatable,
        })
    }
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct TaskRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// Whether a provider may get it twice: a submission would make two tasks.
    pub(super) repeatable: bool,
}

impl TaskRequest {
    pub(super) fn post(path: String, body: Bytes) -> TaskRequest {
        TaskRequest { method: Method::POST, path, body, headers: &[], repeatable: false }
    }

    pub(super) fn get(path: String) -> TaskRequest {
        TaskRequest { method: Method::GET, path, body: Bytes::new(), headers: &[], repeatable: true }
    }
}

impl Gateway {
    /// Calls a provider and waits for the head of an answer that leaves piece by piece, and so must be as it is.
    pub(super) async fn reach(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<Reached, ApiError> {
        let reached = self.ask_provider(&road.ask(out).ok_or_else(broken)?, notes).await?;
        let coding = reached.text(&header::CONTENT_ENCODING);
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            notes.detail = Some("the answer is compressed, and nobody asked for that".into());
            return Err(broken());
        }
        Ok(reached)
    }

    /// Calls a provider and collects its answer, which must be one of success.
    pub(super) async fn bring_answer(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<Bytes, ApiError> {
        let mut reached = self.ask_provider(&road.ask(out).ok_or_else(broken)?, notes).await?;
        if !(200..300).contains(&reached.status) {
            return Err(self.refusal(road, reached, notes).await);
        }
        let most = self.limits.answer;
        let tally = self.memory.tally(&Room::new(most));
        let heard = reached.hear(most, Some(tally), notes).await?;
        self.read_out(reached);
        Ok(heard.body)
    }

    /// What a provider's refusal means to the client, whatever becomes of its body.
    pub(super) async fn refusal(
        &self,
        road: &TaskRoute,
        mut reached: Reached,
        notes: &mut CallLog,
    ) -> ApiError {
        let (status, retry_after) = (reached.status, reached.retry_after());
        let body = reached.hear(0, None, notes).await.map(|heard| heard.body).unwrap_or_default();
        self.read_out(reached);
        refused(road, status, retry_after, &body, notes)
    }
}

/// What a refusal means to the client.
pub(super) fn refused(
    road: &TaskRoute,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut CallLog,
) -> ApiError {
    refused_by(road.target().map(|target| &target.provider), status, retry_after, body, notes)
}
