//! Provider calls for tasks: with the route's head and time-outs, and without a client, which may have disconnected.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, header};

use crate::Gateway;
use crate::client::body::OpenResponse;
use crate::client::call::{malformed_response, to_get, upstream_error as provider_error};
use crate::client::send::{CallLog, RequestDestination, UpstreamRequest};
use crate::gateway::active_snapshot::ActiveSnapshot;
use crate::upstream_route::{UpstreamRoute, address_of};
use codec::error::{ApiError, RetryAfter};
use codec::provider::VideoStep;
use codec::wire::Api;
use codec::wire::error::ProviderError;
use driver::body_memory::RequestBudget;
use driver::names;
use json::Writer;
use observe::metrics::Metrics;
use routing::route::{Model, Target};

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
    /// Creates the route to the target `index` of a model. `None` if the snapshot has none for this API.
    pub(super) fn new(
        active: &Arc<ActiveSnapshot>,
        metrics: &Metrics,
        endpoint: &'static str,
        (model, index): (&Arc<Model>, usize),
        api: Api,
        request: String,
    ) -> Option<TaskRoute> {
        let upstream_route = active.upstream_route(metrics, endpoint, model, index, api)?;
        Some(TaskRoute {
            active: active.clone(),
            upstream_route,
            model: model.clone(),
            target: index,
            request,
        })
    }

    pub(super) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }

    /// Builds a call with the shared headers and those of this request. `None` if the target is gone or the path is not
    /// valid.
    fn upstream_request(&self, out: &TaskRequest) -> Option<UpstreamRequest<'_>> {
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
        Some(UpstreamRequest {
            destination: RequestDestination::Provider(self.active.addresses_of(&self.upstream_route)?),
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
    /// Sends a request to a task's provider and reads the response head.
    async fn send_task_request(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<OpenResponse, ApiError> {
        let request = road.upstream_request(out).ok_or_else(malformed_response)?;
        self.upstream_client.call(&request, notes).await
    }

    /// Calls a provider and reads the response head, for a body that is forwarded piece by piece.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the body is compressed: only a whole body is decoded.
    pub(super) async fn open_call(
        &self,
        road: &TaskRoute,
        out: &TaskRequest,
        notes: &mut CallLog,
    ) -> Result<OpenResponse, ApiError> {
        let response = self.send_task_request(road, out, notes).await?;
        let coding = response.text(&header::CONTENT_ENCODING);
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            notes.detail = Some("the response is compressed, which the request did not allow".into());
            return Err(malformed_response());
        }
        Ok(response)
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
        let response = self.send_task_request(road, out, notes).await?;
        if !response.is_success() {
            return Err(read_error(road, response, notes).await);
        }
        let most = self.limits.answer;
        let tally = self.memory.tally(&RequestBudget::new(most));
        Ok(response.collect_body(most, Some(tally), notes).await?.body)
    }
}

/// Maps a provider's error response to the client's error. A body that cannot be read counts as empty.
pub(super) async fn read_error(road: &TaskRoute, response: OpenResponse, notes: &mut CallLog) -> ApiError {
    let (status, retry_after) = (response.status, response.retry_after());
    let body = response.collect_body(0, None, notes).await.map(|response| response.body).unwrap_or_default();
    upstream_error(road, status, retry_after, &body, notes)
}

/// Maps an error body that a provider sent with a success status to the client's error.
pub(super) fn reported_error(road: &TaskRoute, body: &[u8], notes: &mut CallLog) -> ApiError {
    upstream_error(road, ProviderError::decode(body).status(), None, body, notes)
}

fn upstream_error(
    road: &TaskRoute,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut CallLog,
) -> ApiError {
    provider_error(road.target().map(|target| &target.provider), status, retry_after, body, notes)
}

/// Builds the poll request of a task. `None` if its provider has no such path.
pub(super) fn poll_request(road: &TaskRoute, upstream: &str) -> Option<TaskRequest> {
    let target = road.target()?;
    let provider = &target.provider;
    if road.upstream_route.api == Api::Tasks {
        let mut path = format!("{}/task/", provider.base.prefix());
        codec::wire::path::push_path_segment(&mut path, upstream);
        return Some(TaskRequest::get(path));
    }
    let path = provider.video_path(&target.model, VideoStep::Poll(upstream))?;
    if !provider.video_look_posts() {
        return Some(TaskRequest::get(path));
    }
    let mut body = BytesMut::new();
    let mut json = Writer::new(&mut body);
    json.begin_object().key("operationName").string(upstream).end_object();
    Some(TaskRequest { repeatable: true, ..TaskRequest::post(path, body.freeze()) })
}
