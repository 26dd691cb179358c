//! Early response (slow start): after `limits.slow_start` without upstream headers, the client of a stream receives
//! status 200 and then keep-alive filler of its format, so that no idle time-out on the way fires.
//!
//! The status cannot be changed afterwards: a later failure is reported inside the stream. The early head is therefore
//! sent late, and never to a client that expects a document. While head and filler are all that was sent, fallback
//! works as before.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use pingora::http::ResponseHeader;

use super::attempt::Attempt;
use super::context::Context;
use super::request_id::add_ids;
use super::response::{disable_buffering, stream_type};
use crate::Gateway;
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{Restore, Translated};
use codec::wire::codec::ReplyOptions;
use codec::wire::path::{Action, Endpoint};
use codec::wire::{Format, filler};
use driver::names;

/// Whether the client's stream is one JSON array instead of server-sent events.
pub(crate) fn is_array_stream(endpoint: Option<&Endpoint>) -> bool {
    endpoint.and_then(Endpoint::action) == Some(Action::Stream { sse: false })
}

impl Gateway {
    /// Returns the time until the early response; `None` if there is none: for documents, for jobs, or where
    /// `limits.slow_start` is zero.
    pub(crate) fn slow_start_delay(&self, ctx: &Context) -> Option<Duration> {
        let plan = ctx.attempt()?;
        // An event that reports a failure over a WebSocket has the status of the response, which is not fixed early; the
        // connection is kept alive by pings.
        let streams =
            !ctx.origin.is_websocket() && plan.stream && plan.job.is_none() && plan.api.format().is_some();
        // Without filler the connection would be as silent behind the head as before it.
        let streams = streams && !filler(ctx.format).is_empty() && !ctx.is_invoke();
        Some(self.limits.slow_start).filter(|span| streams && !span.is_zero())
    }

    /// Builds the head of a stream before any upstream response: without headers of the provider and without the
    /// target, and without the framing of its body.
    pub(crate) fn early_stream_head(&self, ctx: &Context) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        let mut ours = HeaderMap::with_capacity(8);
        let array = is_array_stream(ctx.endpoint());
        let kind = if array { "application/json" } else { stream_type(ctx.format) };
        ours.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        disable_buffering(&mut ours);
        if let Some(plan) = ctx.attempt() {
            self.metrics.slow_starts.with_label_values(&[&*plan.model.id]).inc();
        }
        if let Some(warning) = ctx.warning() {
            ours.insert(names::X_GATEWAY_WARNING, warning);
        }
        add_ids(&mut ours, ctx.format, &ctx.id);
        for (name, value) in ctx.rate_limit_headers() {
            ours.insert(name, value);
        }
        if let Some(cors) = &ctx.cors {
            ours.extend(cors.headers());
        }
        parts.headers = ours;
        ResponseHeader::from(parts)
    }
}

impl Attempt {
    /// Returns the translation of a response that arrives in another shape than the stream that the early head
    /// announced, and would otherwise be forwarded verbatim. `None` if no early head was sent or the shapes agree.
    pub(crate) fn translate_to_stream(
        &self,
        ctx: &Context,
        arrival: Arrival,
        limit: usize,
    ) -> Option<Box<Translated>> {
        let array = is_array_stream(ctx.endpoint());
        let promised = match self.api.format() {
            Some(Format::Converse) => Arrival::EventStream,
            _ if array => Arrival::Array,
            _ => Arrival::Events,
        };
        if !ctx.record.early_head_only || self.translation.is_some() || arrival == promised {
            return None;
        }
        let format = self.api.format()?;
        let reply = ReplyOptions {
            model: self.reply_name().clone(),
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
