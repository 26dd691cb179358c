//! End of a request: its metrics and its access log line, whatever its outcome.

use std::borrow::Cow;
use std::time::Instant;

use pingora::Error;

use super::billing::ChargedUsage;
use super::context::Context;
use super::phase::Phase;
use super::trace_export::{self, ExportDecision, trace_id_text};
use crate::Client;
use crate::Gateway;
use codec::canonical::{ServiceTier, Usage};
use codec::error::{ApiError, ErrorKind, ErrorSource};
use codec::wire::path::percent_decode;
use driver::fault::Fault;
use driver::header_timeout::HeaderTimeoutStream;
use observe::metrics::Finished;
use observe::metrics::access_log::{Line, RequestStart};
use routing::account::redact_keys;
use routing::route::cache_misses::CacheMiss;

impl Gateway {
    /// Updates the metrics and writes the access log line. Settles the request if it is not settled yet.
    pub(crate) fn finish(&self, client: &Client, error: Option<&Error>, ctx: &mut Context) {
        // A keep-alive connection awaits its next head from here on.
        if let Some(guarded) = client.stream().and_then(HeaderTimeoutStream::of) {
            guarded.await_head();
        }
        let now = Instant::now();
        if ctx.record.status == 0 {
            // The client left before a response was sent; nginx's status for that is 499.
            ctx.record.status = 499;
        }
        // What a fault means is in the record already.
        if let Some(error) = error.filter(|error| Fault::of(error).is_none())
            && ctx.record.detail.is_none()
        {
            ctx.record.detail = Some(error.to_string().into_boxed_str());
        }
        // Before the metrics and the log line, which report the charge.
        self.settle_in_background(ctx);
        let usage = usage(ctx);
        ctx.record.cache_miss = self.diagnose_caching(ctx, &usage);
        self.count(ctx, now);
        let exported = trace_export::decide(self.telemetry.as_ref(), ctx, now);
        if self.access_log.is_on() || self.live_requests.has_listeners() || exported.is_any() {
            self.log(client, ctx, exported, now);
        }
        ctx.phase = Phase::Done;
    }

    /// Counts a request whose head could not be read.
    pub(crate) fn count_broken_head(&self, error: &ApiError) {
        self.count_error(error.kind);
        let mut buffer = itoa::Buffer::new();
        let labels = ["unknown", "", "", buffer.format(error.status)];
        self.metrics.requests.with_label_values(&labels).inc();
    }

    fn count_error(&self, kind: ErrorKind) {
        let row = kind.row();
        let source = match row.source {
            ErrorSource::Downstream => "downstream",
            ErrorSource::Upstream => "upstream",
            ErrorSource::Internal => "internal",
        };
        self.metrics.errors.with_label_values(&[row.label, source]).inc();
    }

    fn count(&self, ctx: &Context, now: Instant) {
        let record = &ctx.record;
        let endpoint = ctx.endpoint().map_or("unknown", |endpoint| endpoint.label());
        if let Some(kind) = record.error {
            self.count_error(kind);
            let row = kind.row();
            if row.source == ErrorSource::Upstream
                && let Some(target) = ctx.target()
            {
                self.metrics.upstream_errors.with_label_values(&[&*target.provider.name, row.label]).inc();
            }
        }
        if ctx.charged().is_some_and(|charged| charged.bounded)
            && let Some(target) = ctx.target()
        {
            self.metrics.usage_bounded.with_label_values(&[&*target.provider.name]).inc();
        }
        if let Some(charged) = ctx.charged().filter(|charged| charged.tier != ServiceTier::Standard) {
            self.count_tier(ctx, charged);
        }
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        if let (Some(complete), Some(asked)) = (record.body_received_at, record.first_attempt_at) {
            self.metrics.overhead.observe(seconds(complete, asked));
        }
        let series = ctx.attempt().map(|plan| &plan.upstream_route.series);
        let Some(series) = series else {
            let mut buffer = itoa::Buffer::new();
            let labels = [endpoint, "", "", buffer.format(record.status)];
            self.metrics.requests.with_label_values(&labels).inc();
            self.metrics.request_bytes.with_label_values(&[endpoint]).inc_by(record.request_bytes);
            self.metrics.response_bytes.with_label_values(&[endpoint]).inc_by(record.response_bytes);
            return;
        };
        self.count_attempt(ctx, record.error, now);
        let usage = usage(ctx);
        self.count_caching(ctx, &usage);
        let effect = ctx.charged().map(|charged| charged.cache).unwrap_or_default();
        let done = Finished {
            status: record.status,
            seconds: seconds(record.started, now),
            first_token: record.first_content.filter(|_| record.stream).map(|at| seconds(record.started, at)),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            cost: ctx.charged().map_or(0, |charged| charged.cost.unsigned_abs()),
            cache_saved: effect.saved,
            cache_surcharge: effect.surcharge,
        };
        series.finish(&self.metrics, &done, &usage);
    }

    /// Counts a request that is charged in another service tier than the standard one.
    #[cold]
    fn count_tier(&self, ctx: &Context, charged: &ChargedUsage) {
        let Some(plan) = ctx.attempt() else { return };
        let provider = plan.target().map_or("", |target| &*target.provider.name);
        let labels = [&*plan.model.id, provider, charged.tier.name()];
        self.metrics.tier_requests.with_label_values(&labels).inc();
        self.metrics.tier_cost.with_label_values(&labels).inc_by(charged.cost.unsigned_abs());
        if charged.has_unpriced_tier {
            self.note_unpriced_tier(ctx, charged.tier);
        }
    }

    /// Sends the live event of a request for which a target is selected.
    #[cold]
    pub(crate) fn publish_start(&self, ctx: &Context, stream: bool) {
        let target = ctx.target();
        self.live_requests.publish_start(&RequestStart {
            time: ctx.record.unix_millis,
            request_id: ctx.id.as_str(),
            endpoint: ctx.endpoint().map_or("unknown", |endpoint| endpoint.label()),
            key: ctx.key().map(|key| &*key.name),
            account: ctx.key().and_then(|key| Some(&*key.account.as_ref()?.name)),
            model: ctx.record.model.as_deref(),
            provider: target.map(|target| &*target.provider.name),
            upstream_model: target.map(|target| &*target.model),
            stream,
            request_bytes: ctx.record.request_bytes,
        });
    }

    fn log(&self, client: &Client, ctx: &Context, exported: ExportDecision, now: Instant) {
        let record = &ctx.record;
        let (session, head) = (client, client.req_header());
        let micros = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
        };
        let target = ctx.target();
        let meter = ctx.response_in_progress().map(|passing| passing.exchange.meter());
        let answer_id = meter.map(|meter| meter.id()).filter(|id| !id.is_empty());
        let path = redacted_path(ctx, head.uri.path());
        let trace = trace_id_text(ctx.trace.as_deref());
        let changed = record.cache_miss.and_then(changed_section);
        let line = Line {
            time: record.unix_millis,
            request_id: ctx.id.as_str(),
            trace_id: std::str::from_utf8(&trace).ok(),
            client: ctx.address,
            method: head.method.as_str(),
            path: &path,
            endpoint: ctx.endpoint().map_or("unknown", |endpoint| endpoint.label()),
            http: match head.version {
                http::Version::HTTP_2 => 20,
                http::Version::HTTP_11 => 11,
                _ => 10,
            },
            websocket: ctx.origin.is_websocket(),
            status: record.status,
            error: record.error.map(|kind| kind.label()),
            detail: record.detail.as_deref().filter(|_| record.error.is_some()),
            key: ctx.key().map(|key| &*key.name),
            account: ctx.key().and_then(|key| Some(&*key.account.as_ref()?.name)),
            model: record.model.as_deref(),
            provider: target.map(|target| &*target.provider.name),
            upstream_model: target.map(|target| &*target.model),
            upstream_status: record.upstream_status,
            upstream_id: record.upstream_id.as_deref().or(answer_id),
            stream: record.stream,
            finish: meter.map(|meter| meter.finish()),
            cache_changed: changed.as_deref(),
            usage: usage(ctx),
            cost: ctx.charged().map(|charged| charged.cost),
            tier: ctx.charged().map(|charged| charged.tier.name()).filter(|tier| *tier != "standard"),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            frames: meter.map_or(0, |meter| if record.stream { meter.frames() } else { 0 }),
            attempts: record.attempts,
            tried: record.tried.as_deref(),
            micros: micros(record.started, now),
            first_token_micros: record.first_content.map(|at| micros(record.started, at)),
            upstream_micros: record
                .last_attempt_at
                .zip(record.head_received_at)
                .map(|(from, to)| micros(from, to)),
        };
        if exported.is_any() {
            self.export(session, ctx, &line, exported, now);
        }
        self.access_log.write(&line);
        if self.live_requests.has_listeners() {
            self.live_requests.publish(&line);
        }
    }
}

/// Returns what differs in a prompt that the cache was missed with, for the log; `None` if there is no earlier one.
fn changed_section(miss: CacheMiss) -> Option<Cow<'static, str>> {
    match miss {
        CacheMiss::Unwatched => None,
        CacheMiss::Changed(section) => Some(section.to_string().into()),
        CacheMiss::Unchanged => Some(miss.label().into()),
    }
}

/// Largest number of path segments that are compared with the known keys.
const COMPARED: usize = 16;

/// Returns the path for the log, with API keys redacted that a client has put there by mistake.
fn redacted_path<'p>(ctx: &Context, path: &'p str) -> Cow<'p, str> {
    let decoded = percent_decode(path);
    let shown = match redact_keys(&decoded) {
        // Nothing is redacted: log the path as it was sent.
        Cow::Borrowed(_) => Cow::Borrowed(path),
        Cow::Owned(redacted) => Cow::Owned(redacted),
    };
    if ctx.record.error.is_none() {
        return shown;
    }
    // Keys that were not generated by the gateway have no recognizable form: look up their hashes.
    let keys = &ctx.active.snapshot.keys;
    // Each look-up hashes a segment, and a client may send thousands of them.
    let segments = decoded.split(['/', ':']).filter(|segment| !segment.is_empty()).take(COMPARED);
    let found: Vec<&str> = segments.filter(|segment| keys.knows(segment)).collect();
    found.into_iter().fold(shown, |shown, key| Cow::Owned(percent_decode(&shown).replace(key, "***")))
}

/// Returns the charged usage, or the metered one if the request is not charged.
fn usage(ctx: &Context) -> Usage {
    ctx.charged().map_or_else(|| ctx.usage(), |charged| charged.usage)
}
