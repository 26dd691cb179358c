//! The request: whose it is, what it asks for, and who will answer it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::ErrorType;
use pingora::http::RequestHeader;

use super::auth::{authenticate, permit, permit_named_models};
use super::chunks::Misframed;
use super::context::{Context, RequestId};
use super::exchange::while_there;
use super::fallback::{RouteRequest, not_offered};
use super::header_timeout::HeaderTimeoutStream;
use super::offload::{LARGE, apart_if_large};
use super::reply::has_begun;
use super::{Client, Gateway};
use super::{images, names};
use crate::account::Permission;
use crate::error::{ApiError, Kind, RetryAfter};
use crate::route::pick::mask;
use crate::route::{Model, Named, RoutingTable, Target, upstream_api};
use crate::wire::form;
use crate::wire::images::reply::Shape;
use crate::wire::models::{self, Hints, ListedModel, Page};
use crate::wire::path::{self, Action, Endpoint};
use crate::wire::request::{Body, BodyReader};
use crate::wire::tasks::Place;
use crate::wire::{Api, Format};

/// Bytes a second below which a body is cut off, once it has taken longer than two of its time-outs.
const MIN_BODY_RATE: u64 = 8 * 1024;

/// The label of endpoints that only count tokens, which cost nothing (specification, 4.3).
pub(super) const COUNTING: &str = "count_tokens";

/// Most entries of a page of the model listing (Anthropic and Gemini: 1000).
const MAX_PAGE: usize = 1000;

impl Gateway {
    /// The request's head has come.
    pub(super) fn begin(&self, client: &mut Client, ctx: &mut Context) {
        if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
            guarded.head_complete();
        }
        let head = client.req_header();
        ctx.id = RequestId::choose(head.headers.get(names::X_REQUEST_ID).map(|id| id.as_bytes()));
        // An h1 connection would inherit "keep alive for ever" from the request's head otherwise.
        let http10 = head.version < http::Version::HTTP_11;
        // Pingora has found a reason to close, if any: the client's wish, or two lengths in one head.
        let keep = !http10 && !self.shutdown.is_draining() && client.get_keepalive().is_some();
        client.set_keepalive(keep.then(|| self.limits.keepalive.as_secs().max(1)));
        client.set_read_timeout(Some(self.limits.body_timeout));
        client.set_write_timeout(Some(self.limits.write_timeout));
        // Bytes behind the body are the next request, not a reason to drop this one.
        client.set_pipelining_enabled(true);
    }

    /// Decides the request. True when it has been answered here.
    pub(super) async fn decide(&self, client: &mut Client, ctx: &mut Context) -> pingora::Result<bool> {
        match self.decide_or_fail(client, ctx).await {
            Ok(true) => Ok(true),
            Ok(false) => Ok(false),
            // Part of an answer has left; there is no room for another one.
            Err(error) if has_begun(client) => self.break_off(client, ctx, &error).await.map(|()| true),
            Err(error) => {
                self.reply_error(client, ctx, &error).await?;
                Ok(true)
            }
        }
    }

    async fn decide_or_fail(&self, client: &mut Client, ctx: &mut Context) -> Result<bool, ApiError> {
        let head = client.req_header();
        let query = head.uri.query();
        let target = path::parse(head.uri.path(), query);
        let shape = || hints(head, target.beta, query).shape();
        ctx.format = target.format().unwrap_or_else(|| match shape() {
            models::ListingShape::List => Format::Chat,
            models::ListingShape::Messages => Format::Messages,
            models::ListingShape::Generate => Format::Generate,
        });
        ctx.endpoint = target.endpoint;
        let endpoint = ctx.endpoint.clone().ok_or_else(|| unknown_path(head))?;
        if endpoint.is_unknown(head.method.as_str()) {
            if matches!(endpoint, Endpoint::Model { .. }) {
                ctx.format = Format::Generate;
            }
            return Err(unknown_path(head));
        }
        // Errors of all kinds have the shape of the answers, also where it is not known yet whose key it is.
        ctx.images = images::shape(ctx, head).unwrap_or(Some(Shape::Envelope));
        if !endpoint.allows(head.method.as_str()) {
            let message = format!(
                "{} is not allowed for this path; use {}.",
                short(head.method.as_str()),
                endpoint.allow()
            );
            return Err(ApiError::new(Kind::WrongMethod, message));
        }
        match &endpoint {
            Endpoint::Root => return self.reply_root(client, ctx).await,
            Endpoint::Group(Place::Token) => return Box::pin(self.reply_token(client, ctx)).await,
            _ => {}
        }
        if self.shutdown.in_flight() > self.limits.requests {
            return Err(overloaded());
        }
        authenticate(head, ctx)?;
        let address = client.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        permit(ctx, address, &endpoint)?;
        if is_unreserved(&endpoint) {
            self.check_account(ctx).await?;
        }
        ctx.images = images::shape(ctx, head)?;
        match &endpoint {
            Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => {
                return Box::pin(self.reply_stored(client, ctx, &endpoint)).await;
            }
            Endpoint::Video(_) | Endpoint::Group(_) => {
                return Box::pin(self.reply_task(client, ctx, &endpoint)).await;
            }
            Endpoint::Models | Endpoint::Model { .. } => {
                let body = list_models(&endpoint, shape(), query, ctx)?;
                return self.reply_json(client, ctx, body).await;
            }
            _ => {}
        }
        let form = check_media(head, &endpoint)?;
        let api = endpoint.api().ok_or_else(|| unknown_path(head))?;
        if endpoint.label() != COUNTING {
            ctx.charges.open();
        }
        let body = self.read_body(client, ctx, api, &endpoint, form).await?;
        ctx.record.complete = Some(Instant::now());
        if let Some(format) = endpoint.counts() {
            let live = ctx.live.clone();
            let name = endpoint.model().or(body.model.as_deref()).unwrap_or_default();
            let named = named(&live.snapshot.routes, ctx, name)?;
            let text = apart_if_large(body.text.len(), || body.text.into_contiguous());
            return Box::pin(self.reply_count(client, ctx, format, named.model, text)).await;
        }
        self.await_spent(client, ctx).await?;
        self.plan(client, ctx, api, &endpoint, body).await?;
        Ok(false)
    }

    /// Reads the whole body while it is checked.
    async fn read_body(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        api: Api,
        endpoint: &Endpoint,
        form: Option<String>,
    ) -> Result<Box<Body>, ApiError> {
        let batch = matches!(endpoint, Endpoint::Native { action: Action::BatchEmbed | Action::Predict, .. });
        let mut reader = match form {
            Some(boundary) => BodyReader::form(api, boundary),
            None => BodyReader::new(api, batch),
        };
        self.read_pieces(client, ctx, self.limits.body, |piece| reader.push(piece)).await?;
        // Forms are taken apart here, and images in a request of JSON.
        apart_if_large(ctx.record.request_bytes as usize, || reader.finish()).map(Box::new)
    }

    /// Reads the whole body, no more than `limit` bytes of it, and shows each piece.
    pub(super) async fn read_pieces(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        limit: usize,
        mut take: impl FnMut(Bytes) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let head = client.req_header();
        let announced = head.headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if announced.and_then(|length| length.trim().parse::<u64>().ok()).is_some_and(|n| n > limit as u64) {
            return Err(too_large(limit));
        }
        let expects = head.headers.get(http::header::EXPECT).is_some_and(|value| {
            value.as_bytes().eq_ignore_ascii_case(b"100-continue") && head.version == http::Version::HTTP_11
        });
        if expects {
            // Pingora leaves it to us; a client such as curl would wait a second for it.
            let keep = client.get_keepalive();
            client.write_continue_response().await.map_err(|_| gone())?;
            // Pingora takes whatever is written before the end of the body for a refusal of the rest.
            client.set_keepalive(keep);
        }
        let mut length = 0;
        let begun = Instant::now();
        let read = loop {
            match read_piece(client, self.limits.body_timeout).await {
                Ok(None) => break Ok(()),
                Ok(Some(piece)) if length + piece.len() > limit => break Err(too_large(limit)),
                Ok(Some(piece)) => {
                    length += piece.len();
                    if let Err(error) = take(piece) {
                        break Err(error);
                    }
                    if !self.memory.grow(&mut ctx.weight, length) {
                        break Err(overloaded());
                    }
                    // Each piece has a time of its own; together they must not be slower than a bad mobile network.
                    let earned = Duration::from_secs(length as u64 / MIN_BODY_RATE);
                    if begun.elapsed() > self.limits.body_timeout * 2 + earned {
                        break Err(slow_body());
                    }
                }
                Err(error) => {
                    // Where the next request would begin is not known.
                    client.set_keepalive(None);
                    break Err(body_error(&error));
                }
            }
        };
        ctx.record.request_bytes = length as u64;
        read
    }

    /// A body that is counted for as long as it lives, where all requests together may hold it.
    pub(super) fn weighed(&self, body: Bytes) -> Result<Bytes, ApiError> {
        let length = body.len();
        self.memory.weigh(body, length).ok_or_else(overloaded)
    }

    /// Finds the model and a target, and prepares what goes there.
    async fn plan(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        api: Api,
        endpoint: &Endpoint,
        mut body: Box<Body>,
    ) -> Result<(), ApiError> {
        let body_model = body.model.take();
        let name = endpoint.model().or(body_model.as_deref()).unwrap_or_default();
        let live = ctx.live.clone();
        let named = named(&live.snapshot.routes, ctx, name)?;
        let (model, thinking) = (named.model, named.thinking);
        permit_named_models(&live.snapshot.routes, ctx, &mut body)?;
        if body.is_about_kept() {
            Box::pin(self.check_response_owner(ctx, api, &mut body)).await?;
        }
        self.admit(ctx, &model.price, &mut body).await?;
        let fits = |target: &Target| {
            named.provider.is_none_or(|name| *name == *target.provider.name)
                && upstream_api(target, api).is_some()
        };
        let fitting = mask(&**model, |index| model.targets.get(index).is_some_and(fits));
        if fitting == 0 {
            return Err(not_offered(&model.id, api));
        }
        let wanted =
            RouteRequest { model, name, thinking, api, action: endpoint.action(), label: endpoint.label() };
        if body.text.len() < LARGE {
            return self.choose(ctx, client.req_header(), wanted, fitting, body).await;
        }
        // It may have to wait for its turn, and nobody works for a client that has left.
        let head = client.req_header().clone();
        while_there(client, Box::pin(self.choose(ctx, &head, wanted, fitting, body))).await?
    }
}

/// The next piece of the body.
async fn read_piece(client: &mut Client, wait: Duration) -> pingora::Result<Option<Bytes>> {
    if !client.is_http2() {
        return client.read_request_body().await;
    }
    // Pingora's own time-out is for HTTP/1 alone.
    match tokio::time::timeout(wait, client.read_request_body()).await {
        Ok(read) => read,
        Err(_) => Err(pingora::Error::new_down(ErrorType::ReadTimedout)),
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
    }
}

/// Header `<vendor>-version` of the specification (4.13). Its value is a date: `anthropic-version: 2023-06-01`.
/// Versions of programs (`x-stainless-runtime-version: v22.1.0`) do not count.
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

/// Endpoint that is served without a reservation. For the others the reservation checks the account.
fn is_unreserved(endpoint: &Endpoint) -> bool {
    use crate::wire::video::Place as Video;
    match endpoint {
        Endpoint::Models | Endpoint::Model { .. } => true,
        Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => true,
        Endpoint::Group(place) => matches!(place, Place::Query(_)),
        Endpoint::Video(place) => {
            !matches!(place, Video::Submit | Video::Create | Video::Remix(_) | Video::Predict { .. })
        }
        endpoint => endpoint.counts().is_some(),
    }
}

/// Bodies are JSON as it is; a compressed body would be read as nonsense. Some endpoints take forms too, of which this
/// is the boundary.
pub(super) fn check_media(head: &RequestHeader, endpoint: &Endpoint) -> Result<Option<String>, ApiError> {
    let header = |name| head.headers.get(name).map(|value: &http::HeaderValue| value.as_bytes());
    let encoding = header(http::header::CONTENT_ENCODING).unwrap_or(b"identity");
    if !encoding.eq_ignore_ascii_case(b"identity") {
        return Err(ApiError::new(
            Kind::UnsupportedMediaType,
            "Compressed request bodies are not supported; send the JSON without content-encoding.",
        ));
    }
    let kind = header(http::header::CONTENT_TYPE).unwrap_or_default();
    if endpoint.takes_forms()
        && let Some(boundary) = std::str::from_utf8(kind).ok().and_then(form::boundary)
    {
        return Ok(Some(boundary));
    }
    if kind.len() >= 10 && kind.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/")) {
        return Err(ApiError::new(Kind::UnsupportedMediaType, "Send the body as application/json."));
    }
    Ok(None)
}

/// The model of this name, if the key may use it.
pub(super) fn named<'t>(
    routes: &'t RoutingTable,
    ctx: &mut Context,
    name: &str,
) -> Result<Named<'t>, ApiError> {
    let named = routes.resolve(name).ok_or_else(|| unknown_model(name))?;
    let id = &named.model.id;
    ctx.record.model = Some(id.clone());
    if let Some(key) = &ctx.key
        && !key.rules.models.permits(id)
    {
        let message = format!("This API key may not use the model `{id}`.");
        return Err(ApiError::new(Kind::ModelNotPermitted, message).param("model"));
    }
    Ok(named)
}

fn list_models(
    endpoint: &Endpoint,
    shape: models::ListingShape,
    query: Option<&str>,
    ctx: &Context,
) -> Result<Bytes, ApiError> {
    let permission = ctx.key.as_ref().map_or(&Permission::All, |key| &key.rules.models);
    let table = &ctx.live.snapshot.routes;
    let mut out = bytes::BytesMut::with_capacity(128 + table.models().len() * 96);
    if let Endpoint::Model { id } = endpoint {
        let model = table.model(id).filter(|model| permission.permits(&model.id));
        let model = model.ok_or_else(|| unknown_model(id))?;
        models::encode_one(shape, &entry(model), &mut out);
    } else {
        let permitted = table.models().iter().filter(|model| permission.permits(&model.id));
        let entries: Vec<ListedModel<'_>> = permitted.map(|model| entry(model)).collect();
        let page = page(shape, query)?;
        for (id, name) in [(&page.after, after_name(shape)), (&page.before, "before_id")] {
            // A page from the beginning in the place of the next one would go round for ever.
            if id.as_ref().is_some_and(|id| !entries.iter().any(|entry| *entry.id == **id)) {
                let message = format!("'{name}' is the place of no model in this list.");
                return Err(ApiError::new(Kind::InvalidField, message).param(name));
            }
        }
        models::encode_list(shape, &entries, &page, &mut out);
    }
    Ok(out.freeze())
}

fn entry(model: &Model) -> ListedModel<'_> {
    ListedModel { id: &model.id, owned_by: &model.owned_by, created: model.created, methods: methods(model) }
}

/// The native methods that a model can serve.
fn methods(model: &Model) -> &'static [&'static str] {
    let chats = Format::ALL.into_iter().any(|format| model.offers(format.api()));
    let embeds = model.offers(Api::Embeddings) || model.offers(Api::EmbedContent);
    match (chats, embeds) {
        (true, true) => {
            &["generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"]
        }
        (true, false) => &["generateContent", "streamGenerateContent", "countTokens"],
        (false, true) => &["embedContent", "batchEmbedContents"],
        (false, false) => &[],
    }
}

/// The parameter that says behind which model a page begins.
fn after_name(shape: models::ListingShape) -> &'static str {
    if shape == models::ListingShape::Generate { "pageToken" } else { "after_id" }
}

/// The part of the list that is asked for. Anthropic lists 20 and Gemini 50 a page when nothing is said.
fn page(shape: models::ListingShape, query: Option<&str>) -> Result<Page, ApiError> {
    let text = |name| path::query_value(query, name).filter(|value| !value.is_empty());
    let limit = |name: &'static str, default| match text(name).map(|value| value.parse::<usize>()) {
        None => Ok(Some(default)),
        Some(Ok(n)) if (1..=MAX_PAGE).contains(&n) => Ok(Some(n)),
        Some(_) => {
            let message = format!("'{name}' must be a number from 1 to {MAX_PAGE}.");
            Err(ApiError::new(Kind::InvalidField, message).param(name))
        }
    };
    Ok(match shape {
        models::ListingShape::List => Page::default(),
        models::ListingShape::Messages => Page {
            limit: limit("limit", 20)?,
            after: text("after_id").map(Into::into),
            before: text("before_id").map(Into::into),
        },
        models::ListingShape::Generate => {
            // Gemini takes 0 for nothing said, and what is too large for the largest.
            let large = text("pageSize").and_then(|value| value.parse::<u64>().ok());
            let limit = match large {
                Some(0) => Some(50),
                Some(n) if n > MAX_PAGE as u64 => Some(MAX_PAGE),
                _ => limit("pageSize", 50)?,
            };
            Page { limit, after: text("pageToken").map(Into::into), before: None }
        }
    })
}

/// A client's text, short enough for a message.
pub(super) fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

fn unknown_path(head: &RequestHeader) -> ApiError {
    let message = format!("Unknown path: {} {}", short(head.method.as_str()), short(head.uri.path()));
    ApiError::new(Kind::UnknownPath, message)
}

fn unknown_model(name: &str) -> ApiError {
    let message = format!("The model `{}` does not exist or you do not have access to it.", short(name));
    ApiError::new(Kind::UnknownModel, message).param("model")
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Kind::BodyTooLarge, format!("The request body is larger than {limit} bytes."))
}

/// The gateway has as much to do as it may take on.
pub(super) fn overloaded() -> ApiError {
    let message = "The gateway has too much to do at the moment; please try again.";
    ApiError::new(Kind::Overloaded, message).retry_after(Some(RetryAfter::Wait(Duration::from_secs(1))))
}

fn slow_body() -> ApiError {
    ApiError::new(Kind::BodyTimeout, "The request body did not arrive in time.")
}

fn gone() -> ApiError {
    ApiError::new(Kind::ClientGone, "The client closed the connection.")
}

fn body_error(error: &pingora::Error) -> ApiError {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    if io.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<Misframed>()) {
        return ApiError::new(Kind::InvalidField, "The request body is framed wrongly.");
    }
    match error.etype().as_str() {
        "ReadTimedout" => slow_body(),
        // The last two are names that Pingora gives where it reads chunks.
        "InvalidHTTPHeader" | "InvalidChunk" | "InvalidTrailerEnd" => {
            ApiError::new(Kind::InvalidField, "The request body is framed wrongly.")
        }
        _ => gone(),
    }
}
