//! Answers that the gateway gives itself.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use pingora::http::ResponseHeader;
use pingora::proxy::FailToProxy;
use pingora::{Error, ErrorSource, ErrorType};

use super::context::Context;
use super::early_response::wants_array;
use super::reader::UNDECODABLE;
use super::{Client, Gateway, names};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::job::Body;
use crate::wire::error::ArrayState;
use crate::wire::images::{self, reply::Shape};
use crate::wire::path::Endpoint;
use crate::wire::{Format, count_tokens, error as wire_error, tasks};

/// How long the rest of a body that nobody wants is read, so that the client sees the answer and not a reset.
const LINGER: Duration = Duration::from_millis(500);
/// How much of it.
const LINGER_BYTES: usize = 4 << 20;

impl Gateway {
    /// Answers 200 with JSON.
    pub(super) async fn reply_json(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: Bytes,
    ) -> Result<bool, ApiError> {
        let head = self.own_head(client, ctx, 200, body.len(), "application/json");
        self.write_reply(client, ctx, head, body).await.map(|()| true).map_err(|error| gone(&error))
    }

    /// Answers 200 with JSON that leaves piece by piece.
    pub(super) async fn reply_made(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: Body,
    ) -> Result<(), ApiError> {
        let head = self.own_head(client, ctx, 200, body.len(), "application/json");
        self.write_pieces(client, ctx, head, body.into_steps()).await.map_err(|error| gone(&error))
    }

    /// Answers those who look whether anybody is there.
    pub(super) async fn reply_root(&self, client: &mut Client, ctx: &mut Context) -> Result<bool, ApiError> {
        self.reply_json(client, ctx, Bytes::from_static(br#"{"service":"model-gateway"}"#)).await
    }

    /// Answers with an error in the client's format. Nothing is written to a client that has gone.
    pub(super) async fn reply_error(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
    ) -> pingora::Result<()> {
        self.note(ctx, error);
        if error.kind == Kind::ClientGone {
            client.set_keepalive(None);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down());
        }
        let id = ctx.id.as_str();
        let body = match &ctx.endpoint {
            Some(Endpoint::Group(_)) => Some(tasks::answer::error(error.status, &error.message)),
            Some(Endpoint::CountTokens) => count_tokens::error(error, id).map(bytes::BytesMut::freeze),
            _ if ctx.images == Some(Shape::Envelope) => {
                Some(images::reply::error(error, &wire_error::body(ctx.format, error, id)).freeze())
            }
            _ => None,
        };
        let body = body.unwrap_or_else(|| wire_error::body(ctx.format, error, id).freeze());
        self.reply_refusal(client, ctx, error, body).await
    }

    /// Answers with an error whose body is ready.
    pub(super) async fn reply_refusal(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
        body: Bytes,
    ) -> pingora::Result<()> {
        let mut head = self.own_head(client, ctx, error.status, body.len(), "application/json");
        add_error_headers(&mut head, error);
        if let (Kind::WrongMethod, Some(endpoint)) = (error.kind, &ctx.endpoint) {
            let _ = head.insert_header(header::ALLOW, endpoint.allow());
        }
        self.write_reply(client, ctx, head, body).await
    }

    /// A stopping process reads no further request: the answer says so, before a client sends one in vain.
    pub(super) fn close_if_stopping(&self, client: &mut Client) {
        if self.shutdown.is_draining() {
            client.set_keepalive(None);
        }
    }

    /// Remembers what ended a request.
    pub(super) fn note(&self, ctx: &mut Context, error: &ApiError) {
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
        let warning = ctx.plan.as_ref().and_then(|plan| plan.warning.as_ref());
        if let Some(warning) = warning.filter(|_| status == 200) {
            let _ = head.insert_header(names::X_GATEWAY_WARNING, warning.clone());
        }
        set_version(&mut head, client);
        head
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
        // Whoever has the answer may ask again at once, and finds its place and its money free.
        self.settle_cut(ctx).await;
        self.close_if_stopping(client);
        let unread = !client.is_body_done();
        if unread {
            // The rest of the body could be anything up to gigabytes: this connection ends here.
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
            // Closing with unread bytes in the socket makes the kernel send a reset, which can overtake the answer.
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

    /// Pingora's own loop gave up: says so to the client, if that is still possible.
    pub(super) async fn fail(&self, client: &mut Client, error: &Error, ctx: &mut Context) -> FailToProxy {
        if ctx.record.error.is_some() {
            // It has been told already, or there is nobody to tell.
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        let api_error = match ctx.failure.take() {
            Some(failure) => *failure,
            None => from_pingora(error),
        };
        if has_begun(client) {
            let _ = self.break_off(client, ctx, &api_error).await;
        } else {
            client.set_keepalive(None);
            let _ = self.reply_error(client, ctx, &api_error).await;
        }
        FailToProxy { error_code: api_error.status, can_reuse_downstream: false }
    }

    /// Ends a stream that cannot go on, in the format's own way; what is no stream is cut off.
    pub(super) async fn break_off(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: &ApiError,
    ) -> pingora::Result<()> {
        let status = ctx.record.status;
        self.note(ctx, error);
        ctx.record.status = status;
        if error.kind == Kind::ClientGone {
            client.set_keepalive(None);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client is gone").into_down());
        }
        // Whatever a provider had begun to say, nothing of it has left.
        let nothing = std::mem::take(&mut ctx.kept);
        ctx.record.stream |= nothing;
        self.settle_cut(ctx).await;
        let (format, id) = (ctx.format, ctx.id.clone());
        if nothing {
            let array = wants_array(ctx.endpoint.as_ref()).then_some(ArrayState::Nothing);
            let tail = wire_error::stream_tail(format, error, id.as_str(), array).freeze();
            ctx.record.response_bytes += tail.len() as u64;
            return client.write_response_body(tail, true).await.map_err(|error| error.into_down());
        }
        let streaming = ctx.record.stream;
        let Some(passing) = ctx.passing_mut().filter(|_| streaming) else {
            client.set_keepalive(None);
            client.shutdown().await;
            return Err(Error::explain(ErrorType::ConnectionClosed, "the answer broke off").into_up());
        };
        let tail = passing.exchange.fail(format, error, id.as_str());
        ctx.record.response_bytes += tail.len() as u64;
        // The body has its end, and the head said whether the connection stays: closing one that was promised would
        // break the next request, which may be on its way already.
        client.write_response_body(tail, true).await.map_err(|error| error.into_down())
    }
}

/// Whether the client has been given the head of an answer; a "100 Continue" is none.
pub(super) fn has_begun(client: &Client) -> bool {
    client.response_written().is_some_and(|head| !head.status.is_informational())
}

/// A response head; the status codes that reach this are valid ones.
pub(super) fn new_head(status: u16, headers: usize) -> Box<ResponseHeader> {
    let fallback = http::StatusCode::INTERNAL_SERVER_ERROR;
    let status = http::StatusCode::from_u16(status).unwrap_or(fallback);
    match ResponseHeader::build_no_case(status, Some(headers)) {
        Ok(head) => Box::new(head),
        // Building from a valid status does not fail; a default head says 200 and is never wanted here.
        Err(_) => Box::new(ResponseHeader::from(
            http::Response::builder().status(fallback).body(()).unwrap_or_default().into_parts().0,
        )),
    }
}

/// The head of an error that is told before there is a request.
pub(super) fn own_error_head(error: &ApiError, length: usize) -> Box<ResponseHeader> {
    let mut head = new_head(error.status, 8);
    let _ = head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length));
    add_error_headers(&mut head, error);
    head
}

/// Headers that every answer carries: the request's id under the name that the client's SDK reads.
pub(super) fn add_own_headers(head: &mut ResponseHeader, ctx: &Context) {
    if let Ok(id) = HeaderValue::from_bytes(ctx.id.as_bytes()) {
        if ctx.format == Format::Messages {
            let _ = head.insert_header(names::REQUEST_ID, id.clone());
        }
        let _ = head.insert_header(names::X_REQUEST_ID, id);
    }
    for (name, value) in ctx.charges.shown(ctx.format, ctx.now()).into_iter().chain(ctx.way()) {
        let _ = head.insert_header(name, value);
    }
}

/// Headers that tell an SDK whether and when to try again.
pub(super) fn add_error_headers(head: &mut ResponseHeader, error: &ApiError) {
    let wait = match &error.retry_after {
        Some(RetryAfter::Header(text)) => HeaderValue::from_str(text).ok(),
        Some(RetryAfter::Wait(wait)) => Some(HeaderValue::from(wait.as_millis().div_ceil(1000) as u64)),
        None => None,
    };
    if let Some(wait) = wait {
        let _ = head.insert_header(header::RETRY_AFTER, wait);
    }
    if error.kind.row().final_ {
        let _ = head.insert_header(names::X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
}

/// An HTTP/1.0 client gets an HTTP/1.0 answer.
pub(super) fn set_version(head: &mut ResponseHeader, client: &Client) {
    if client.req_header().version < http::Version::HTTP_11 {
        head.set_version(http::Version::HTTP_10);
    }
}

fn gone(error: &Error) -> ApiError {
    ApiError::new(Kind::ClientGone, error.to_string())
}

/// What an error of Pingora's means to the client.
pub(super) fn from_pingora(error: &Error) -> ApiError {
    use ErrorType::*;
    if *error.esource() == ErrorSource::Downstream {
        return match error.etype() {
            ReadTimedout => ApiError::new(Kind::BodyTimeout, "The request body did not arrive in time."),
            _ => ApiError::new(Kind::ClientGone, "The client closed the connection."),
        };
    }
    match error.etype() {
        ConnectTimedout | ConnectRefused | ConnectNoRoute | ConnectError | TLSHandshakeFailure
        | TLSHandshakeTimedout | InvalidCert | HandshakeError | BindError | SocketError
        | ConnectProxyFailure => {
            ApiError::new(Kind::UpstreamUnreachable, "The upstream provider cannot be reached.")
        }
        ReadTimedout | WriteTimedout => {
            ApiError::new(Kind::UpstreamTimeout, "The upstream provider did not answer in time.")
        }
        Custom(UNDECODABLE) => {
            ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer is not valid.")
        }
        InternalError => ApiError::new(Kind::Internal, "The gateway failed."),
        _ => ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer broke off."),
    }
}
