//! Responses that the gateway writes itself: JSON documents, errors, and the end of broken streams.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use pingora::http::ResponseHeader;
use pingora::proxy::FailToProxy;
use pingora::{Error, ErrorSource, ErrorType};

use super::context::Context;
use super::cors::CorsDecision;
use super::early_response::is_array_stream;
use super::request_encoding;
use super::settle::Completion;
use crate::Client;
use crate::Gateway;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::job::BodyPieces;
use codec::wire::error::ArrayState;
use codec::wire::images::{self, reply::ImageReplyShape};
use codec::wire::path::{self, Endpoint};
use codec::wire::{Format, converse, count_tokens, error as wire_error, tasks};
use driver::descriptors;
use driver::downstream::is_head_sent;
use driver::fault::{Fault, FaultBody};
use driver::names;
use driver::reader::UNDECODABLE;
use routing::route::Target;

/// Time for which the rest of an unread request body is read, so that the client receives the response and not a reset.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes of it that are read at most.
const LINGER_BYTES: usize = 4 << 20;

impl Gateway {
    /// Sends status 200 with a JSON body.
    pub(crate) async fn reply_json(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: Bytes,
    ) -> Result<bool, ApiError> {
        let head = self.own_head(client, ctx, 200, body.len(), "application/json");
        self.write_reply(client, ctx, head, body)
            .await
            .map(|()| true)
            .map_err(|error| disconnect_error(&error))
    }

    /// Sends a model listing. A header says whether the gateway serves the responses API over WebSocket, so that a client
    /// can be set up for it without an attempt to open one.
    pub(crate) async fn reply_listing(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: Bytes,
    ) -> Result<bool, ApiError> {
        let mut head = self.own_head(client, ctx, 200, body.len(), "application/json");
        if self.websockets.is_some() {
            let _ = head.insert_header(names::X_GATEWAY_WEBSOCKET, HeaderValue::from_static("responses"));
        }
        self.write_reply(client, ctx, head, body)
            .await
            .map(|()| true)
            .map_err(|error| disconnect_error(&error))
    }

    /// Sends status 200 with a JSON body, written piece by piece.
    pub(crate) async fn reply_pieces(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: BodyPieces,
    ) -> Result<(), ApiError> {
        let head = self.own_head(client, ctx, 200, body.len(), "application/json");
        self.write_pieces(client, ctx, head, body.into_steps())
            .await
            .map_err(|error| disconnect_error(&error))
    }

    /// Answers a request for `/` or `/api/hello`, which some clients send to check that the server is up.
    pub(crate) async fn reply_root(&self, client: &mut Client, ctx: &mut Context) -> Result<bool, ApiError> {
        self.reply_json(client, ctx, Bytes::from_static(br#"{"service":"model-gateway"}"#)).await
    }

    /// Sends an error in the client's format. Writes nothing to a client that has disconnected.
    pub(crate) async fn reply_error(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
    ) -> pingora::Result<()> {
        self.record_error(ctx, error);
        if error.kind == ErrorKind::ClientGone {
            client.set_keepalive(None);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down());
        }
        let id = ctx.id.as_str();
        let body = match ctx.endpoint() {
            Some(Endpoint::Group(_)) => Some(tasks::answer::error(error.status, &error.message)),
            Some(Endpoint::CountTokens) => count_tokens::error(error, id).map(bytes::BytesMut::freeze),
            _ if ctx.phase.image_shape() == Some(ImageReplyShape::Envelope) => {
                Some(images::reply::error(error, &wire_error::body(ctx.format, error, id)).freeze())
            }
            _ => None,
        };
        let body = body.unwrap_or_else(|| wire_error::body(ctx.error_format(), error, id).freeze());
        self.reply_refusal(client, ctx, error, body).await
    }

    /// Sends an error whose body is encoded already.
    pub(crate) async fn reply_refusal(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
        body: Bytes,
    ) -> pingora::Result<()> {
        let status = client_status(ctx, error);
        let mut head = self.own_head(client, ctx, status, body.len(), "application/json");
        add_error_headers(&mut head, error);
        let millis = error.retry_after.as_ref().and_then(RetryAfter::milliseconds);
        if let Some(millis) = millis.filter(|_| reads_milliseconds(ctx.error_format())) {
            let _ = head.insert_header(names::RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        // A document that its provider broke off keeps its status.
        if ctx.error_format() == Format::Converse && error.status >= 400 {
            let name = HeaderValue::from_static(converse::error::exception(error));
            let _ = head.insert_header(names::X_AMZN_ERRORTYPE, name);
        }
        if let (ErrorKind::WrongMethod, Some(endpoint)) = (error.kind, ctx.endpoint()) {
            let _ = head.insert_header(header::ALLOW, endpoint.allow());
        }
        if error.kind == ErrorKind::UpgradeRequired && !client.is_http2() {
            // RFC 9110, section 15.5.22, and RFC 6455, section 4.4.
            let _ = head.insert_header(header::UPGRADE, HeaderValue::from_static("websocket"));
            if self.websockets.is_some() {
                let _ = head.insert_header(names::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
        }
        if error.kind == ErrorKind::UnsupportedEncoding {
            let _ = head.insert_header(header::ACCEPT_ENCODING, request_encoding::ACCEPTED);
        }
        self.write_reply(client, ctx, head, body).await
    }

    /// Disables keep-alive while the process is about to stop: the response then says `Connection: close`, before the client
    /// sends another request on a connection that is about to close.
    pub(crate) fn close_if_stopping(&self, client: &mut Client) {
        if self.shutdown.is_stopping() {
            client.set_keepalive(None);
        }
    }

    /// Records the error that ended a request.
    pub(crate) fn record_error(&self, ctx: &mut Context, error: &ApiError) {
        ctx.record.error = Some(error.kind);
        ctx.record.status = error.status;
    }

    fn own_head(
        &self,
        client: &Client,
        ctx: &Context,
        status: u16,
        length: usize,
        content_type: &'static str,
    ) -> Box<ResponseHeader> {
        let mut head = new_head(status, 8);
        let _ = head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length));
        add_own_headers(&mut head, ctx);
        if let Some(warning) = ctx.warning().filter(|_| status == 200) {
            let _ = head.insert_header(names::X_GATEWAY_WARNING, warning);
        }
        set_version(&mut head, client);
        head
    }

    /// Sends a response without a body.
    pub(crate) async fn write_empty(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut head: Box<ResponseHeader>,
    ) -> pingora::Result<()> {
        set_version(&mut head, client);
        self.write_reply(client, ctx, head, Bytes::new()).await
    }

    async fn write_reply(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        head: Box<ResponseHeader>,
        body: Bytes,
    ) -> pingora::Result<()> {
        self.write_pieces(client, ctx, head, std::iter::once(body)).await
    }

    async fn write_pieces(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        head: Box<ResponseHeader>,
        pieces: impl Iterator<Item = Bytes> + Send,
    ) -> pingora::Result<()> {
        let status = head.status.as_u16();
        // Settle before the response is sent: the client may send its next request at once, which must find the limits
        // and the reserved money released.
        self.settle(ctx, Completion::Incomplete).await;
        self.close_if_stopping(client);
        let unread = !client.is_body_done();
        if unread {
            // The rest of the body may be gigabytes: close the connection instead of reading it to the end.
            client.set_keepalive(None);
        }
        client.write_response_header(head).await.map_err(|error| error.into_down())?;
        ctx.record.status = status;
        let mut pieces = pieces.peekable();
        while let Some(piece) = pieces.next() {
            ctx.record.response_bytes += piece.len() as u64;
            let last = pieces.peek().is_none();
            client.write_response_body(piece, last).await.map_err(|error| error.into_down())?;
        }
        if unread {
            // Closing a socket with unread bytes makes the kernel send a reset, which can overtake the response.
            let _ = tokio::time::timeout(LINGER, async {
                let mut seen = 0;
                while let Ok(Some(piece)) = client.read_request_body().await {
                    seen += piece.len();
                    if seen > LINGER_BYTES {
                        break;
                    }
                }
            })
            .await;
        }
        Ok(())
    }

    /// Sends the error that ended a request to the client, if that is still possible.
    pub(crate) async fn fail(&self, client: &mut Client, error: &Error, ctx: &mut Context) -> FailToProxy {
        let failed = FailToProxy { error_code: 0, can_reuse_downstream: false };
        if ctx.record.error.is_some() {
            // The error was sent already, or the client has disconnected.
            return failed;
        }
        let fault = Fault::of(error);
        let internal = Fault { error: from_pingora(error), body: FaultBody::None };
        let Fault { error: told, body } = fault.unwrap_or(&internal);
        let sent = if is_head_sent(client) {
            self.abort_response(client, ctx, told).await
        } else if let FaultBody::Refusal(body) = body {
            self.record_error(ctx, told);
            self.reply_refusal(client, ctx, told, body.clone()).await
        } else {
            if fault.is_none() {
                // Pingora's own loop has failed: the state of the connection is unknown.
                client.set_keepalive(None);
            }
            self.reply_error(client, ctx, told).await
        };
        FailToProxy { error_code: told.status, can_reuse_downstream: sent.is_ok() && fault.is_some() }
    }

    /// Ends a stream with an error in the client's format. Any other response is cut off by closing the connection.
    pub(crate) async fn abort_response(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
    ) -> pingora::Result<()> {
        let status = ctx.record.status;
        self.record_error(ctx, error);
        ctx.record.status = status;
        if error.kind == ErrorKind::ClientGone {
            client.set_keepalive(None);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down());
        }
        // With an early head, no upstream byte has been forwarded: the error event is the only content of the stream.
        let nothing = std::mem::take(&mut ctx.record.early_head_only);
        ctx.record.stream |= nothing;
        self.settle(ctx, Completion::Incomplete).await;
        let (format, id) = (ctx.format, ctx.id.clone());
        if nothing {
            let array = is_array_stream(ctx.endpoint()).then_some(ArrayState::Nothing);
            let tail = wire_error::stream_tail(format, error, id.as_str(), array).freeze();
            ctx.record.response_bytes += tail.len() as u64;
            return client.write_response_body(tail, true).await.map_err(|error| error.into_down());
        }
        let streaming = ctx.record.stream;
        let Some(passing) = ctx.response_in_progress_mut().filter(|_| streaming) else {
            client.set_keepalive(None);
            client.shutdown().await;
            return Err(Error::explain(ErrorType::ConnectionClosed, "the response ended early").into_up());
        };
        let tail = passing.exchange.fail(format, error, id.as_str());
        let tail = passing.write(tail);
        ctx.record.response_bytes += tail.len() as u64;
        // The body ends regularly, and the head has announced whether the connection stays open. Closing an announced
        // keep-alive connection would break the next request, which may be on its way already.
        client.write_response_body(tail, true).await.map_err(|error| error.into_down())
    }
}

/// Returns the status with which the client receives an error.
fn client_status(ctx: &Context, error: &ApiError) -> u16 {
    // A document that its provider broke off, for which no target gave a better one.
    if error.status == 200 {
        return error.status;
    }
    let format = ctx.error_format();
    let is_own = |target: &Target| format == Format::Messages && !target.provider.standard_errors;
    if ctx.target().is_some_and(is_own) { error.status } else { wire_error::client_status(format, error) }
}

/// Creates a response head. Only valid status codes reach this function.
pub(crate) fn new_head(status: u16, headers: usize) -> Box<ResponseHeader> {
    let fallback = http::StatusCode::INTERNAL_SERVER_ERROR;
    let status = http::StatusCode::from_u16(status).unwrap_or(fallback);
    match ResponseHeader::build_no_case(status, Some(headers)) {
        Ok(head) => Box::new(head),
        // Unreachable: building from a valid status does not fail. A default head would have status 200.
        Err(_) => Box::new(ResponseHeader::from(
            http::Response::builder().status(fallback).body(()).unwrap_or_default().into_parts().0,
        )),
    }
}

/// Creates the error response to a request that is not valid HTTP, in the format of its path. `target` is the target of the
/// request in any form, if that much could be read: the headers, which some formats depend on, and an id are not known.
pub(crate) fn refusal(error: &ApiError, target: Option<&str>) -> (Box<ResponseHeader>, Bytes) {
    let target = target.unwrap_or("/");
    let target = target
        .split_once("://")
        .map_or(target, |(_, rest)| rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"));
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let parsed = path::parse(path, query);
    let endpoint = parsed.endpoint.as_ref();
    let format =
        endpoint.and_then(Endpoint::error_format).or_else(|| parsed.format()).unwrap_or(Format::Chat);
    let body = match endpoint {
        Some(Endpoint::Group(_)) => tasks::answer::error(error.status, &error.message),
        _ => wire_error::body(format, error, "").freeze(),
    };
    let mut head = new_head(error.status, 8);
    let _ = head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    add_error_headers(&mut head, error);
    if format == Format::Converse {
        let name = HeaderValue::from_static(converse::error::exception(error));
        let _ = head.insert_header(names::X_AMZN_ERRORTYPE, name);
    }
    (head, body)
}

/// Adds the headers of every response: the request id under the names that the client's SDK reads, the rate-limit
/// headers, and those about the target.
pub(crate) fn add_own_headers(head: &mut ResponseHeader, ctx: &Context) {
    if let Ok(id) = HeaderValue::from_bytes(ctx.id.as_bytes()) {
        let format = ctx.error_format();
        if format == Format::Messages {
            let _ = head.insert_header(names::REQUEST_ID, id.clone());
        }
        if format == Format::Converse {
            let _ = head.insert_header(names::X_AMZN_REQUESTID, id.clone());
        }
        let _ = head.insert_header(names::X_REQUEST_ID, id);
    }
    for (name, value) in ctx.rate_limit_headers().into_iter().chain(ctx.target_headers()) {
        let _ = head.insert_header(name, value);
    }
    for (name, value) in ctx.cors.iter().flat_map(CorsDecision::headers) {
        let _ = head.insert_header(name, value);
    }
}

/// Adds the headers that tell an SDK whether and when to retry.
pub(crate) fn add_error_headers(head: &mut ResponseHeader, error: &ApiError) {
    let wait = error.retry_after.as_ref().map(RetryAfter::header_value);
    let wait = wait.and_then(|wait| HeaderValue::from_str(&wait).ok());
    if let Some(wait) = wait {
        let _ = head.insert_header(header::RETRY_AFTER, wait);
    }
    if error.kind.row().final_ {
        let _ = head.insert_header(names::X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
}

/// Returns whether the SDKs of a format read `retry-after-ms`: those of OpenAI and Anthropic.
const fn reads_milliseconds(format: Format) -> bool {
    matches!(format, Format::Chat | Format::Messages | Format::Responses)
}

/// Sets version HTTP/1.0 in the response to an HTTP/1.0 client.
pub(crate) fn set_version(head: &mut ResponseHeader, client: &Client) {
    if client.req_header().version < http::Version::HTTP_11 {
        head.set_version(http::Version::HTTP_10);
    }
}

pub(crate) fn disconnect_error(error: &Error) -> ApiError {
    ApiError::new(ErrorKind::ClientGone, error.to_string())
}

/// Maps an error of Pingora to the client's error.
pub(crate) fn from_pingora(error: &Error) -> ApiError {
    use ErrorType::*;
    if *error.esource() == ErrorSource::Downstream {
        return match error.etype() {
            ReadTimedout => ApiError::new(ErrorKind::BodyTimeout, "The request body did not arrive in time."),
            _ => ApiError::new(ErrorKind::ClientGone, "The client closed the connection."),
        };
    }
    if error.root_cause().downcast_ref::<std::io::Error>().is_some_and(descriptors::is_exhausted) {
        return ApiError::overloaded();
    }
    match error.etype() {
        ConnectTimedout | ConnectRefused | ConnectNoRoute | ConnectError | TLSHandshakeFailure
        | TLSHandshakeTimedout | InvalidCert | HandshakeError | BindError | SocketError
        | ConnectProxyFailure => {
            ApiError::new(ErrorKind::UpstreamUnreachable, "The upstream provider cannot be reached.")
        }
        ReadTimedout | WriteTimedout => {
            broken_off(ErrorKind::UpstreamTimeout, "The upstream provider did not respond in time.")
        }
        Custom(UNDECODABLE) => {
            ApiError::new(ErrorKind::UpstreamBroken, "The upstream provider's response is not valid.")
        }
        InternalError => ApiError::new(ErrorKind::Internal, "Internal gateway error."),
        _ => broken_off(ErrorKind::UpstreamBroken, "The upstream provider's response ended early."),
    }
}

/// Returns the error for a response that broke off. An error inside a stream has no status, so clients decide by its words
/// whether they repeat the request: OpenCode 1.18.33 by these, which OpenAI's server errors have too.
pub(crate) fn broken_off(kind: ErrorKind, what: &str) -> ApiError {
    ApiError::new(kind, format!("{what} Please retry your request."))
}
