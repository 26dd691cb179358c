//! Request phase: reads, authenticates and admits a request, resolves its model and builds its first attempt.

use std::time::Instant;

use bytes::Bytes;
use pingora::http::RequestHeader;

use super::auth::{COUNTING, authenticate, authorize, authorize_named_models};
use super::context::Context;
use super::cors;
use super::fallback::{no_target, session};
use super::guardrail::requested_guardrail;
use super::images;
use super::invoke::tool_betas;
use super::listing::{ListingRequest, list_models};
use super::phase::RoutedRequest;
use super::refusals::{short, unknown_model};
use super::request_body::plain_length;
use super::request_id::RequestId;
use super::retry_state::RouteRequest;
use super::signed_request::{authenticate_signed, is_signed, verify_signature};
use super::trace::RequestTrace;
use crate::Client;
use crate::Gateway;
use crate::websocket::handshake;
use crate::websocket::origin::RequestOrigin;
use cloud::sigv4::PayloadHasher;
use codec::canonical::CachePolicy;
use codec::error::{ApiError, ErrorKind};
use codec::wire::form;
use codec::wire::images::reply::ImageReplyShape;
use codec::wire::models::Hints;
use codec::wire::path::{self, Action, Endpoint};
use codec::wire::request::{Body, BodyReader};
use codec::wire::tasks::TaskEndpoint;
use codec::wire::{Api, Format};
use driver::body_memory::MemoryPermit;
use driver::downstream::{is_head_sent, run_while_connected};
use driver::header_timeout::HeaderTimeoutStream;
use driver::names;
use driver::offload::{LARGE_BODY, run_blocking_if_large};
use json::JsonText;
use routing::account::Key;
use routing::account::estimate::InputEstimate;
use routing::route::pick::{Policy, mask};
use routing::route::{Named, RoutingTable, Target, upstream_api};

impl Gateway {
    /// Starts a request whose head has arrived: sets its id, its time-outs and the connection's keep-alive.
    pub(crate) fn start_request(&self, client: &mut Client, ctx: &mut Context) {
        if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
            guarded.head_complete();
        }
        let head = client.req_header();
        ctx.origin = RequestOrigin::of(head);
        ctx.address = self.client_address(client);
        if let Some(policy) = &self.cors {
            ctx.cors = Some(policy.decide(&head.headers));
        }
        ctx.id = RequestId::choose(head.headers.get(names::X_REQUEST_ID).map(|id| id.as_bytes()));
        if let Some(telemetry) = self.telemetry.as_ref().filter(|telemetry| telemetry.exporter.has_traces()) {
            ctx.trace = Some(RequestTrace::begin(head, ctx.address, &telemetry.trust));
        }
        // Set keep-alive explicitly: Pingora would otherwise take an unlimited one over from the request's head.
        let http10 = head.version < http::Version::HTTP_11;
        // `None` means that Pingora found a reason to close: the client's wish, or two lengths in one head.
        let keep = !http10 && !self.shutdown.is_stopping() && client.get_keepalive().is_some();
        client.set_keepalive(keep.then(|| self.limits.keepalive.as_secs().max(1)));
        client.set_read_timeout(Some(self.limits.body_timeout));
        client.set_write_timeout(Some(self.limits.write_timeout));
        // Without this, Pingora drops a request if the next one follows it in the same read.
        client.set_pipelining_enabled(true);
    }

    /// Handles a request up to its first upstream attempt. True if the response was sent here already.
    pub(crate) async fn prepare_request(
        &self,
        client: &mut Client,
        ctx: &mut Context,
    ) -> pingora::Result<bool> {
        match self.try_prepare_request(client, ctx).await {
            Ok(true) => Ok(true),
            Ok(false) => Ok(false),
            // A response head was sent already, so no error response can follow.
            Err(error) if is_head_sent(client) => {
                self.abort_response(client, ctx, &error).await.map(|()| true)
            }
            Err(error) => {
                self.reply_error(client, ctx, &error).await?;
                Ok(true)
            }
        }
    }

    async fn try_prepare_request(&self, client: &mut Client, ctx: &mut Context) -> Result<bool, ApiError> {
        let head = client.req_header();
        let query = head.uri.query();
        let target = path::parse(head.uri.path(), query);
        let shape = || hints(head, target.beta, query).shape();
        ctx.format = target.format().unwrap_or_else(|| shape().format());
        let endpoint = target.endpoint.ok_or_else(|| unknown_path(head))?;
        ctx.phase.receive(endpoint.clone());
        if ctx.cors.as_ref().is_some_and(|cors| cors.grant().is_some()) && cors::is_preflight(head) {
            return self.reply_preflight(client, ctx).await;
        }
        if endpoint.is_unknown(head.method.as_str()) {
            if matches!(endpoint, Endpoint::Model { .. }) {
                ctx.format = Format::Generate;
            }
            return Err(unknown_path(head));
        }
        // Errors have the shape of the endpoint's responses, also before the key is known.
        let image_shape = images::shape(&endpoint, None, head).unwrap_or(Some(ImageReplyShape::Envelope));
        ctx.phase.set_image_shape(image_shape);
        if endpoint == Endpoint::Responses && handshake::is_requested(head) {
            return self.accept_websocket(client, ctx, &endpoint).map(|()| true);
        }
        if !endpoint.allows(head.method.as_str()) {
            let message = format!(
                "{} is not allowed for this path; use {}.",
                short(head.method.as_str()),
                endpoint.allow()
            );
            return Err(ApiError::new(ErrorKind::WrongMethod, message));
        }
        match &endpoint {
            Endpoint::Root => return self.reply_root(client, ctx).await,
            Endpoint::Group(TaskEndpoint::Token) => return Box::pin(self.reply_token(client, ctx)).await,
            _ => {}
        }
        if !self.request_limit.admits(|| self.shutdown.in_flight()) {
            return Err(ApiError::overloaded());
        }
        let signed = is_signed(head, &endpoint);
        let key = if signed { authenticate_signed(head, ctx)? } else { authenticate(head, ctx)? };
        authorize(&key, client, ctx, &endpoint)?;
        if is_unreserved(&endpoint) {
            self.check_account(&key, ctx.format).await?;
        }
        ctx.phase.set_image_shape(images::shape(&endpoint, Some(&key), head)?);
        match &endpoint {
            Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => {
                return Box::pin(self.reply_stored(client, ctx, &endpoint)).await;
            }
            Endpoint::Video(_) | Endpoint::Group(_) => {
                return Box::pin(self.reply_task(client, ctx, &endpoint)).await;
            }
            Endpoint::Models | Endpoint::Model { .. } => {
                let request = ListingRequest::new(shape(), query, head);
                let body = list_models(&endpoint, &request, &ctx.active.snapshot.routes, &key)?;
                return self.reply_listing(client, ctx, body).await;
            }
            _ => {}
        }
        if ctx.is_invoke() {
            ctx.guardrail = requested_guardrail(&head.headers)?;
        }
        let form = check_media(head, &endpoint)?;
        let api = endpoint.api().ok_or_else(|| unknown_path(head))?;
        let (body, permit) = self.receive_body(client, ctx, (api, &endpoint), form, signed).await?;
        if ctx.origin.only_prepares() {
            return Box::pin(self.reply_prepared(client, ctx, &key, body)).await;
        }
        if let Some(format) = endpoint.counts() {
            let live = ctx.active.clone();
            let name = endpoint.model().or(body.model.as_deref()).unwrap_or_default();
            let named = resolve_model(&live.snapshot.routes, ctx, name)?;
            let text = self.text_to_count(ctx, &key, body).await?;
            return Box::pin(self.reply_count(client, ctx, format, named.model, text)).await;
        }
        self.await_spend(client, ctx).await?;
        self.build_attempt(client, ctx, &key, (api, &endpoint), (body, permit)).await?;
        Ok(false)
    }

    /// Returns the text of a body whose tokens are counted, with the items that it refers to.
    async fn text_to_count(
        &self,
        ctx: &Context,
        key: &Key,
        mut body: Box<Body>,
    ) -> Result<JsonText, ApiError> {
        if body.may_have_references() {
            Box::pin(self.resolve_references(ctx, key, &mut body)).await?;
        }
        Ok(run_blocking_if_large(body.text.len(), || body.text.into_contiguous()))
    }

    /// Reads the whole request body, and verifies the signature of a signed request. The request has a usage record from
    /// then on, or from the beginning if its key is known for certain.
    async fn receive_body(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        (api, endpoint): (Api, &Endpoint),
        form: Option<String>,
        signed: bool,
    ) -> Result<(Box<Body>, Option<MemoryPermit>), ApiError> {
        let is_charged = endpoint.label() != COUNTING && !ctx.origin.only_prepares();
        if is_charged && !signed {
            ctx.open_charges();
        }
        let mut hasher = signed.then(PayloadHasher::default);
        let received = self.read_body(client, ctx, (api, endpoint), form, &mut hasher).await?;
        if let Some(hasher) = hasher {
            verify_signature(client.req_header(), ctx, &hasher.finish())?;
            // A request that the owner of the key did not sign leaves no usage record.
            if is_charged {
                ctx.open_charges();
            }
        }
        ctx.record.body_received_at = Some(Instant::now());
        Ok(received)
    }

    /// Reads the whole request body, and scans and hashes it on the way. Returns it with its memory permit, `None` for a small body.
    async fn read_body(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        (api, endpoint): (Api, &Endpoint),
        form: Option<String>,
        hasher: &mut Option<PayloadHasher>,
    ) -> Result<(Box<Body>, Option<MemoryPermit>), ApiError> {
        let batch = matches!(endpoint, Endpoint::Native { action: Action::BatchEmbed | Action::Predict, .. });
        let is_form = form.is_some();
        let mut estimate = InputEstimate::default();
        let mut reader = match (form, endpoint) {
            (Some(boundary), _) => BodyReader::form(api, boundary),
            (None, Endpoint::Invoke { model, stream }) => BodyReader::invoke(model, *stream),
            (None, _) => BodyReader::new(api, batch),
        };
        let length = plain_length(&client.req_header().headers).filter(|length| *length <= self.limits.body);
        if let Some(length) = length.filter(|length| self.join_hints.should_join(api, *length)) {
            reader.join(length);
        }
        let take = |piece: Bytes| {
            if let Some(hasher) = hasher {
                hasher.update(&piece);
            }
            estimate.add(&piece);
            reader.push(piece).map(|()| reader.held())
        };
        let permit = self.read_pieces(client, ctx, self.limits.body, take).await?;
        // Forms, and images in JSON, are decoded here: move the worker's other tasks if the body is large.
        let body = run_blocking_if_large(ctx.record.request_bytes as usize, || reader.finish())?;
        if is_form {
            estimate = InputEstimate::of(body.text.pieces());
        }
        if let Some(identity) = ctx.phase.identity_mut() {
            identity.expected_input = estimate.tokens();
        }
        Ok((Box::new(body), permit))
    }

    /// Answers a request that only prepares the next one (`generate: false` over WebSocket): it has the permissions that
    /// the next one needs. No provider is called, and nothing is charged.
    async fn reply_prepared(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        key: &Key,
        mut body: Box<Body>,
    ) -> Result<bool, ApiError> {
        let live = ctx.active.clone();
        resolve_model(&live.snapshot.routes, ctx, body.model.as_deref().unwrap_or_default())?;
        authorize_named_models(&live.snapshot.routes, key, &mut body)?;
        if body.refers_to_stored() {
            self.check_response_owner(ctx, key, Api::Responses, &mut body).await?;
        }
        self.reply_json(client, ctx, Bytes::from_static(b"{}")).await
    }

    /// Charges a body to the memory budget until it is dropped.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Overloaded`] if the budget is exhausted.
    pub(crate) fn charge_memory(&self, body: Bytes) -> Result<Bytes, ApiError> {
        let length = body.len();
        self.memory.charge(body, length).ok_or_else(ApiError::overloaded)
    }

    /// Resolves the model, admits the request, selects a target and builds the attempt.
    async fn build_attempt(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        key: &Key,
        (api, endpoint): (Api, &Endpoint),
        (mut body, memory_permit): (Box<Body>, Option<MemoryPermit>),
    ) -> Result<(), ApiError> {
        let body_model = body.model.take();
        let name = endpoint.model().or(body_model.as_deref()).unwrap_or_default();
        let live = ctx.active.clone();
        let named = resolve_model(&live.snapshot.routes, ctx, name)?;
        let (model, thinking) = (named.model, named.thinking);
        authorize_named_models(&live.snapshot.routes, key, &mut body)?;
        let mut claims = None;
        if body.refers_to_stored() {
            claims = Box::pin(self.check_response_owner(ctx, key, api, &mut body)).await?;
            // The items that took the place of their references are input too.
            if let (true, Some(identity)) = (body.needs_store, ctx.phase.identity_mut()) {
                identity.expected_input = InputEstimate::of(body.text.pieces()).tokens();
            }
        }
        body = self.permit_tier(ctx, model, body)?;
        if let Some(most) = model.abilities.max_output_tokens.filter(|_| api.format().is_some()) {
            body.clamp_output(most.into());
        }
        self.admit(ctx, model, &mut body).await?;
        let fits = |target: &Target| {
            named.provider.is_none_or(|name| *name == *target.provider.name)
                && upstream_api(target, api).is_some()
        };
        let fitting = mask(&**model, |index| model.targets.get(index).is_some_and(fits));
        if fitting == 0 {
            return Err(no_target(model, api, fits));
        }
        let needs_session =
            model.routing.policy == Policy::Affinity || ctx.cache_policy(model) != CachePolicy::Off;
        let session = needs_session.then(|| session(&client.req_header().headers)).flatten();
        let wanted = RouteRequest {
            model,
            name,
            alias: named.alias.map(|alias| &alias.escaped_id),
            thinking,
            api,
            action: endpoint.action(),
            label: endpoint.label(),
            session,
            tool_betas: tool_betas(model, api, &client.req_header().headers),
        };
        let (attempt, retry_state) = if body.text.len() < LARGE_BODY {
            self.select_target(ctx, wanted, fitting, body).await?
        } else {
            // A large body may wait for its turn. Stop if the client disconnects meanwhile.
            let selecting = Box::pin(self.select_target(ctx, wanted, fitting, body));
            run_while_connected(client, selecting).await??
        };
        let stream = attempt.stream;
        ctx.phase.ask(RoutedRequest { attempt, retry_state, memory_permit, claims });
        if self.live_requests.has_listeners() {
            self.publish_start(ctx, stream);
        }
        Ok(())
    }
}

fn hints(head: &RequestHeader, beta: bool, query: Option<&str>) -> Hints {
    Hints {
        beta,
        provider_version: head.headers.contains_key(names::ANTHROPIC_VERSION)
            || head.headers.contains_key(names::X_API_KEY) && head.headers.iter().any(is_provider_version),
        google_key: head.headers.contains_key(names::X_GOOG_API_KEY)
            || head.headers.contains_key(names::X_VENDOR_API_KEY)
            || path::query_value(query, "key").is_some(),
        client_version: path::query_value(query, "client_version").is_some(),
    }
}

/// Returns whether a header is `<vendor>-version` of docs/specification.md, 4.13. Its value is a date:
/// `anthropic-version: 2023-06-01`. Versions of programs (`x-stainless-runtime-version: v22.1.0`) do not count.
fn is_provider_version((name, value): (&http::HeaderName, &http::HeaderValue)) -> bool {
    let provider = name.as_str().strip_suffix("-version");
    let date = value.as_bytes().get(..10).unwrap_or_default();
    let is_date = date.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    provider.is_some_and(|provider| provider != "api" && !provider.contains('-'))
        && !date.is_empty()
        && is_date
}

/// Returns whether an endpoint is served without a reservation. For the others the reservation checks the account.
fn is_unreserved(endpoint: &Endpoint) -> bool {
    use codec::wire::video::VideoEndpoint as Video;
    match endpoint {
        Endpoint::Models | Endpoint::Model { .. } => true,
        Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => true,
        Endpoint::Group(place) => matches!(place, TaskEndpoint::Query(_)),
        Endpoint::Video(place) => {
            !matches!(place, Video::Submit | Video::Create | Video::Remix(_) | Video::Predict { .. })
        }
        endpoint => endpoint.counts().is_some(),
    }
}

/// Checks the body's media type. Returns the multipart boundary if the body is a form that the endpoint
/// accepts.
///
/// # Errors
/// Returns [`ErrorKind::UnsupportedMediaType`] for a form at an endpoint that accepts only JSON.
pub(crate) fn check_media(head: &RequestHeader, endpoint: &Endpoint) -> Result<Option<String>, ApiError> {
    let kind = head.headers.get(http::header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    if endpoint.accepts_forms()
        && let Some(boundary) = std::str::from_utf8(kind).ok().and_then(form::boundary)
    {
        return Ok(Some(boundary));
    }
    if kind.len() >= 10 && kind.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/")) {
        return Err(ApiError::new(ErrorKind::UnsupportedMediaType, "Send the body as application/json."));
    }
    Ok(None)
}

/// Resolves a model name. The error is `UnknownModel`, or `ModelNotPermitted` if the key may not use the model.
pub(crate) fn resolve_model<'t>(
    routes: &'t RoutingTable,
    ctx: &mut Context,
    name: &str,
) -> Result<Named<'t>, ApiError> {
    let named = routes.resolve(name).ok_or_else(|| unknown_model(name))?;
    let id = &named.model.id;
    ctx.record.model = Some(id.clone());
    if ctx.key().is_some_and(|key| !key.rules.models.permits(id)) {
        let message = format!("This API key may not use the model `{id}`.");
        return Err(ApiError::new(ErrorKind::ModelNotPermitted, message).param("model"));
    }
    Ok(named)
}

fn unknown_path(head: &RequestHeader) -> ApiError {
    let message = format!("Unknown path: {} {}", short(head.method.as_str()), short(head.uri.path()));
    ApiError::new(ErrorKind::UnknownPath, message)
}
