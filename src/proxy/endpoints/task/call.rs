//! Provider calls for tasks: with the route's head and time-outs, and without a client, which may have disconnected.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, header};

use super::malformed_response;
use crate::error::{ApiError, RetryAfter};
use crate::proxy::Gateway;
use crate::proxy::client::call::{CallLog, CallRequest, OpenCall, to_get, upstream_error as refused_by};
use crate::proxy::gateway::active_snapshot::ActiveSnapshot;
use crate::proxy::gateway::body_memory::RequestBudget;
use crate::proxy::gateway::names;
use crate::proxy::gateway::upstream_route::{UpstreamRoute, address_of};
use crate::route::{Model, Target};

/// Upstream route of a task: the target, and the provider's addresses and credential.
#[derive(Clone)]
pub(super) struct TaskRoute {
    pub(super) active: Arc<ActiveSnapshot>,
    pub(super) upstream_route: Arc<UpstreamRoute>,
    pub(super) model: Arc<Model>,
    pub(super) target: usize,
    /// Id of the client's request, sent as `x-request-id`.
    pub(super) request: String,
}

impl TaskRoute {
    pub(super) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    /// Builds a call with the shared headers and those of this request. `None` if the target is gone or the path is not
    /// valid.
    fn call_request(&self, out: &TaskRequest) -> Option<CallRequest<'_>> {
        let target = self.target()?;
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = out.method.clone();
        parts.headers = self.upstream_route.head();
        parts.uri = address_of(&target.provider, out.path.clone())?;
        let looks = out.method == Method::GET;
        if looks {
            to_get(&mut parts);
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
            addresses: self.active.addresses_of(&self.upstream_route)?,
            series: Some(&self.upstream_route.series),
            parts,
            body: (!looks).then(|| out.body.clone()),
            timeouts,
            until: tokio::time::Instant::now() + timeouts.total,
            repeatable: looks || out.repeatable,
        })
    }
}

/// Upstream request of a task.
#[derive(Clone, Debug)]
pub(super) struct TaskRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// Whether the provider may receive the request twice. False for a submission, which would create two tasks.
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
    /// Calls a provider and reads the response head, for a body that is forwarded piece by piece.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the body is compressed: only a whole body is decoded.
    pub(super) async fn open_call(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<OpenCall, ApiError> {
        let reached = self.send_call(&road.call_request(out).ok_or_else(malformed_response)?, notes).await?;
        let coding = reached.text(&header::CONTENT_ENCODING);
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            notes.detail = Some("the response is compressed, which the request did not allow".into());
            return Err(malformed_response());
        }
        Ok(reached)
    }

    /// Calls a provider and collects the body of a success response.
    ///
    /// # Errors
    /// Returns the provider's error, mapped for the client, for any other status.
    pub(super) async fn call_provider(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<Bytes, ApiError> {
        let mut reached =
            self.send_call(&road.call_request(out).ok_or_else(malformed_response)?, notes).await?;
        if !(200..300).contains(&reached.status) {
            return Err(self.read_error(road, reached, notes).await);
        }
        let most = self.limits.answer;
        let tally = self.memory.tally(&RequestBudget::new(most));
        let heard = reached.collect_body(most, Some(tally), notes).await?;
        self.release_connection(reached);
        Ok(heard.body)
    }

    /// Maps a provider's error response to the client's error. A body that cannot be read counts as empty.
    pub(super) async fn read_error(
        &self,
        road: &TaskRoute,
        mut reached: OpenCall,
        notes: &mut CallLog,
    ) -> ApiError {
        let (status, retry_after) = (reached.status, reached.retry_after());
        let body = reached.collect_body(0, None, notes).await.map(|heard| heard.body).unwrap_or_default();
        self.release_connection(reached);
        upstream_error(road, status, retry_after, &body, notes)
    }
}

/// Maps a provider's error body to the client's error.
pub(super) fn upstream_error(
    road: &TaskRoute,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut CallLog,
) -> ApiError {
    refused_by(road.target().map(|target| &target.provider), status, retry_after, body, notes)
}
