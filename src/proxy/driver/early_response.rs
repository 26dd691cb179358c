//! Early response (slow start): after `limits.slow_start` without upstream headers, the client of a stream receives
//! status 200 and then keep-alive filler of its format, so that no idle time-out on the way fires.
//!
//! The status cannot be changed afterwards: a later failure is reported inside the stream. The early head is therefore
//! sent late, and never to a client that expects a document. While head and filler are all that was sent, fallback
//! works as before.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};

use super::exchange_timer::ExchangeTimer;
use super::header_timeout::HeaderTimeoutStream;
use crate::error::ApiError;
use crate::proxy::Client;
use crate::proxy::Gateway;
use crate::proxy::gateway::billing::RequestCharges;
use crate::proxy::gateway::context::{Attempt, Context, RequestId, RequestRecord};
use crate::proxy::gateway::reply::{from_pingora, is_head_sent};
use crate::proxy::gateway::response::{add_ids, disable_buffering};
use crate::proxy::names;
use crate::route::Model;
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{Restore, Translated};
use crate::wire::codec::ReplyOptions;
use crate::wire::path::{Action, Endpoint};
use crate::wire::{Format, filler};

/// Request body on its way to a provider, with the position up to which it is written.
pub(in crate::proxy) struct RequestBody<'s> {
    /// Pieces of the body.
    pub(in crate::proxy) body: &'s [Bytes],
    /// Number of pieces that have been written.
    pub(in crate::proxy) pieces_sent: &'s mut usize,
    /// Length of all pieces, in bytes.
    pub(in crate::proxy) length: usize,
    /// Set when the whole body has been written.
    pub(in crate::proxy) body_sent: &'s mut bool,
}

/// Early response (`limits.slow_start`): head and keep-alive filler, sent to the client before the provider answers.
pub(in crate::proxy) struct EarlyResponse<'w> {
    id: &'w RequestId,
    format: Format,
    endpoint: Option<&'w Endpoint>,
    model: &'w Model,
    warning: Option<&'w HeaderValue>,
    charges: &'w RequestCharges,
    now: i64,
    status: &'w mut u16,
    response_bytes: &'w mut u64,
    head_sent: &'w mut bool,
}

impl RequestBody<'_> {
    /// Returns the next piece, `None` at the end; with `all`, the rest as one piece, which may be empty.
    pub(in crate::proxy) fn next(&mut self, all: bool) -> Option<Bytes> {
        let rest = self.body.get(*self.pieces_sent..).unwrap_or_default();
        let piece = match rest {
            [] => None,
            [piece, ..] if !all || rest.len() == 1 => {
                *self.pieces_sent += 1;
                Some(piece.clone())
            }
            several => {
                *self.pieces_sent = self.body.len();
                Some(Bytes::from(several.concat()))
            }
        };
        piece.or_else(|| all.then(Bytes::new))
    }

    /// Whether all pieces have been handed out.
    pub(in crate::proxy) fn is_finished(&self) -> bool {
        *self.pieces_sent >= self.body.len()
    }
}

impl Context {
    /// Splits the context into the request body for the upstream and the early response for the client, so that one can
    /// be written while the other is. `None` before a target is selected.
    pub(in crate::proxy) fn split_for_send(&mut self) -> Option<(RequestBody<'_>, EarlyResponse<'_>)> {
        let now = self.now();
        let Context { id, format, endpoint, attempt: plan, charges, record, early_head_sent: kept, .. } =
            self;
        let Attempt { model, body, body_len, pieces_sent: sent, warning, .. } = plan.as_deref_mut()?;
        let RequestRecord { request_sent: said, status, response_bytes, .. } = record;
        let speech = RequestBody { body, pieces_sent: sent, length: *body_len, body_sent: said };
        let waiting = EarlyResponse {
            id,
            format: *format,
            endpoint: endpoint.as_ref(),
            model,
            warning: warning.as_ref(),
            charges,
            now,
            status,
            response_bytes,
            head_sent: kept,
        };
        Some((speech, waiting))
    }
}

/// Whether the client's stream is one JSON array instead of server-sent events.
pub(in crate::proxy) fn is_array_stream(endpoint: Option<&Endpoint>) -> bool {
    endpoint.and_then(Endpoint::action) == Some(Action::Stream { sse: false })
}

impl Gateway {
    /// Returns the time until the early response; `None` if there is none: for documents, for jobs, or where
    /// `limits.slow_start` is zero.
    pub(in crate::proxy) fn slow_start_delay(&self, ctx: &Context) -> Option<Duration> {
        let plan = ctx.attempt.as_ref()?;
        let streams = plan.stream && plan.job.is_none() && plan.api.format().is_some();
        Some(self.limits.slow_start).filter(|span| streams && !span.is_zero())
    }

    /// Sends the early head, if no head was sent, and filler; schedules the next filler. Boxed: few requests need it.
    ///
    /// # Errors
    /// Returns the error of the client's connection.
    pub(in crate::proxy) fn send_early_keepalive<'f>(
        &'f self,
        client: &'f mut Client,
        waiting: &'f mut EarlyResponse<'_>,
        clock: &'f mut ExchangeTimer<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'f>> {
        Box::pin(async move {
            if !is_head_sent(client) {
                self.metrics.slow_starts.with_label_values(&[&*waiting.model.id]).inc();
                self.close_if_stopping(client);
            }
            let heartbeat = self.limits.heartbeat;
            let kept = waiting.write_keepalive(client, !heartbeat.is_zero()).await;
            clock.schedule_filler(heartbeat);
            kept.map_err(|error| from_pingora(&error.into_down()))
        })
    }
}

impl EarlyResponse<'_> {
    async fn write_keepalive(&mut self, client: &mut Client, fill: bool) -> pingora::Result<()> {
        // A client whose stream broke off and is being resumed has a head already.
        if !is_head_sent(client) {
            // Set before anything is written: from here on a failure cannot change the status.
            *self.head_sent = true;
            *self.status = 200;
            let head = Box::new(self.head(client.req_header()));
            if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of).filter(|_| fill) {
                guarded.cork();
            }
            client.write_response_header(head).await?;
            if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
                guarded.uncork();
            }
        }
        if !fill {
            return Ok(());
        }
        let filler = Bytes::from_static(filler(self.format).as_bytes());
        *self.response_bytes += filler.len() as u64;
        client.write_response_body(filler, false).await
    }

    /// Builds the head of a stream before any upstream response: without headers of the provider and without the
    /// target.
    fn head(&self, client: &RequestHeader) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        let mut ours = HeaderMap::with_capacity(8);
        let array = is_array_stream(self.endpoint);
        let kind = if array { "application/json" } else { "text/event-stream; charset=utf-8" };
        ours.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        match client.version {
            http::Version::HTTP_11 => {
                ours.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            http::Version::HTTP_2 => {}
            // HTTP/1.0: the end of the connection ends the body.
            _ => parts.version = http::Version::HTTP_10,
        }
        disable_buffering(&mut ours);
        if let Some(warning) = self.warning {
            ours.insert(names::X_GATEWAY_WARNING, warning.clone());
        }
        add_ids(&mut ours, self.format, self.id);
        for (name, value) in self.charges.rate_limit_headers(self.format, self.now) {
            ours.insert(name, value);
        }
        parts.headers = ours;
        ResponseHeader::from(parts)
    }
}

impl Attempt {
    /// Returns the translation of a response that arrives in another shape than the stream that the early head
    /// announced, and would otherwise be forwarded verbatim. `None` if no early head was sent or the shapes agree.
    pub(in crate::proxy) fn translate_to_stream(
        &self,
        ctx: &Context,
        arrival: Arrival,
        limit: usize,
    ) -> Option<Box<Translated>> {
        let array = is_array_stream(ctx.endpoint.as_ref());
        let promised = if array { Arrival::Array } else { Arrival::Events };
        if !ctx.early_head_sent || self.translation.is_some() || arrival == promised {
            return None;
        }
        let format = self.api.format()?;
        let reply = ReplyOptions {
            model: self.model.escaped_id.clone(),
            request: ctx.id.as_str().into(),
            seed: ctx.seed().into(),
            created: ctx.record.unix_millis / 1000,
            usage_wanted: !self.changes.drop_usage,
            show_thinking: true,
            array,
            ..ReplyOptions::default()
        };
        let route = Route { client: format, provider: format, stream: true };
        Some(Box::new(Translated::new(&route, arrival, Arc::new(reply), Restore::default(), limit)))
    }
}
