//! Clients that wait for a stream whose provider does not begin to answer: they are given the head of one, and then
//! what means nothing in their format, so that neither they nor a proxy on the way give up.
//!
//! A head is a status that cannot be changed any more: whatever fails behind it is told inside the stream. So it comes
//! late, and never to a client that wants a document. Nothing else changes: as long as this is all that has left, the
//! request is tried elsewhere as before.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};

use super::billing::RequestCharges;
use super::context::{Attempt, Context, RequestId, RequestRecord};
use super::exchange_timer::ExchangeTimer;
use super::header_timeout::HeaderTimeoutStream;
use super::reply::{from_pingora, has_begun};
use super::response::{add_ids, keep_flowing};
use super::{Client, Gateway, names};
use crate::error::ApiError;
use crate::route::Model;
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{Restore, Translated};
use crate::wire::codec::ReplyOptions;
use crate::wire::path::{Action, Endpoint};
use crate::wire::{Format, filler};

/// Request body on its way to a provider: what has been written and what is still to be written.
pub(super) struct RequestBody<'s> {
    /// In pieces.
    pub(super) body: &'s [Bytes],
    /// Pieces that have been handed out.
    pub(super) sent: &'s mut usize,
    /// The length of all.
    pub(super) length: usize,
    /// All of it has gone.
    pub(super) said: &'s mut bool,
}

/// Early response: head and keep-alive filler that a client is sent before the provider answers (`limits.slow_start`).
pub(super) struct EarlyResponse<'w> {
    id: &'w RequestId,
    format: Format,
    endpoint: Option<&'w Endpoint>,
    model: &'w Model,
    warning: Option<&'w HeaderValue>,
    charges: &'w RequestCharges,
    now: i64,
    status: &'w mut u16,
    response_bytes: &'w mut u64,
    kept: &'w mut bool,
}

impl RequestBody<'_> {
    /// The next piece; with `all`, everything that is left as one.
    pub(super) fn next(&mut self, all: bool) -> Option<Bytes> {
        let rest = self.body.get(*self.sent..).unwrap_or_default();
        let piece = match rest {
            [] => None,
            [piece, ..] if !all || rest.len() == 1 => {
                *self.sent += 1;
                Some(piece.clone())
            }
            several => {
                *self.sent = self.body.len();
                Some(Bytes::from(several.concat()))
            }
        };
        piece.or_else(|| all.then(Bytes::new))
    }

    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        *self.sent >= self.body.len()
    }
}

impl Context {
    /// Both sides of the wait for an answer, so that each can be served while the other one is.
    pub(super) fn sides(&mut self) -> Option<(RequestBody<'_>, EarlyResponse<'_>)> {
        let now = self.now();
        let Context { id, format, endpoint, plan, charges, record, kept, .. } = self;
        let Attempt { model, body, body_len, sent, warning, .. } = plan.as_deref_mut()?;
        let RequestRecord { said, status, response_bytes, .. } = record;
        let speech = RequestBody { body, sent, length: *body_len, said };
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
            kept,
        };
        Some((speech, waiting))
    }
}

/// Whether the client's stream is one JSON array.
pub(super) fn wants_array(endpoint: Option<&Endpoint>) -> bool {
    endpoint.and_then(Endpoint::action) == Some(Action::Stream { sse: false })
}

impl Gateway {
    /// How long the client waits until it is given something although its answer has not begun. Nothing for those who
    /// are given nothing before.
    pub(super) fn patience(&self, ctx: &Context) -> Option<Duration> {
        let plan = ctx.plan.as_ref()?;
        let streams = plan.stream && plan.job.is_none() && plan.api.format().is_some();
        Some(self.limits.slow_start).filter(|span| streams && !span.is_zero())
    }

    /// Gives a client that waits its head, if it has none, and what means nothing. Boxed: hardly any client has to be
    /// kept.
    pub(super) fn keep_waiting<'f>(
        &'f self,
        client: &'f mut Client,
        waiting: &'f mut EarlyResponse<'_>,
        clock: &'f mut ExchangeTimer<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'f>> {
        Box::pin(async move {
            if !has_begun(client) {
                self.metrics.slow_starts.with_label_values(&[&*waiting.model.id]).inc();
                self.close_if_stopping(client);
            }
            let heartbeat = self.limits.heartbeat;
            let kept = waiting.keep(client, !heartbeat.is_zero()).await;
            clock.wait_on(heartbeat);
            kept.map_err(|error| from_pingora(&error.into_down()))
        })
    }
}

impl EarlyResponse<'_> {
    async fn keep(&mut self, client: &mut Client, fill: bool) -> pingora::Result<()> {
        // One whose answer broke off, and who waits for another target to go on with it, has the head of that answer.
        if !has_begun(client) {
            // Before anything is written: what fails from here on cannot be told with a status.
            *self.kept = true;
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

    /// The head of a stream of which nothing is known yet: neither who will answer nor what it says besides.
    fn head(&self, client: &RequestHeader) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        let mut ours = HeaderMap::with_capacity(8);
        let array = wants_array(self.endpoint);
        let kind = if array { "application/json" } else { "text/event-stream; charset=utf-8" };
        ours.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        match client.version {
            http::Version::HTTP_11 => {
                ours.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            http::Version::HTTP_2 => {}
            // The end of the connection is the end of the answer.
            _ => parts.version = http::Version::HTTP_10,
        }
        keep_flowing(&mut ours);
        if let Some(warning) = self.warning {
            ours.insert(names::X_GATEWAY_WARNING, warning.clone());
        }
        add_ids(&mut ours, self.format, self.id);
        for (name, value) in self.charges.shown(self.format, self.now) {
            ours.insert(name, value);
        }
        parts.headers = ours;
        ResponseHeader::from(parts)
    }
}

impl Attempt {
    /// How an answer is brought to a client that has been promised a stream, where it arrives as something else and
    /// would pass as it is: by the way over the hub.
    pub(super) fn promised(&self, ctx: &Context, arrival: Arrival, limit: usize) -> Option<Box<Translated>> {
        let array = wants_array(ctx.endpoint.as_ref());
        let promised = if array { Arrival::Array } else { Arrival::Events };
        if !ctx.kept || self.translation.is_some() || arrival == promised {
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
