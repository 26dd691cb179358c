//! A proxy that forwards requests as they are and records the phases that it is called for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use pingora::connectors::ConnectorOptions;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};

use crate::attempt;
use crate::connection::Connections;
use crate::fault::{Fault, FaultBody};
use crate::hooks::{Delivery, DriverSettings, ExchangeHooks, HookFuture, StreamState, Upgrade, Written};
use crate::offload::Offload;
use crate::outcome::{DrainDeadline, ExchangeOutcome};
use crate::shutdown::{DrainGuard, Shutdown};
use codec::error::{ApiError, ErrorKind};
use codec::provider::Timeouts;
use observe::metrics::Metrics;

/// Who runs the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    Driver,
    /// Pingora's own loop, which reads the body itself.
    Pingora,
}

/// The proxy. Clones share one state.
#[derive(Clone)]
pub(super) struct Recorder(Arc<State>);

pub(super) struct State {
    upstream: SocketAddr,
    by: Loop,
    pub(super) phases: Mutex<Vec<&'static str>>,
    connections: Connections,
    shutdown: Arc<Shutdown>,
    offload: Offload,
    modules: HttpModules,
}

/// Body of one request, until it is sent.
#[derive(Default)]
pub(super) struct Ctx {
    body: Option<Bytes>,
    failed: bool,
}

impl Recorder {
    pub(super) fn new(upstream: SocketAddr, by: Loop) -> Self {
        Recorder(Arc::new(State {
            upstream,
            by,
            phases: Mutex::default(),
            connections: Connections::new(ConnectorOptions::new(4), Duration::from_secs(60)),
            shutdown: Shutdown::new(),
            offload: Offload::new(&Metrics::new().unwrap()),
            modules: HttpModules::new(),
        }))
    }

    pub(super) fn guard(&self) -> DrainGuard {
        self.shutdown.guard()
    }

    /// Records a phase. One that runs for each piece is recorded once.
    fn record(&self, phase: &'static str) {
        let mut phases = self.phases.lock().unwrap();
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    }
}

impl std::ops::Deref for Recorder {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

#[async_trait]
impl ProxyHttp for Recorder {
    type CTX = Ctx;

    fn new_ctx(&self) -> Ctx {
        Ctx::default()
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, _session: &mut Session, _ctx: &mut Ctx) -> Result<()> {
        self.record("early_request_filter");
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
        self.record("request_filter");
        if self.by == Loop::Driver {
            let mut body = BytesMut::new();
            while let Some(piece) = session.downstream_session.read_request_body().await? {
                body.extend_from_slice(&piece);
            }
            ctx.body = Some(body.freeze());
        }
        Ok(false)
    }

    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
        self.record("proxy_upstream_filter");
        if self.by == Loop::Pingora {
            return Ok(true);
        }
        let ended = std::pin::pin!(self.shutdown.ended());
        attempt::run(self, session, ctx, ended).await?;
        Ok(false)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
        self.record("upstream_peer");
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        upstream_request: &mut RequestHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        self.record("upstream_request_filter");
        if let Some(body) = &ctx.body {
            *upstream_request = RequestHeader::build("POST", b"/echo", None)?;
            upstream_request.insert_header("content-length", body.len().to_string())?;
        }
        upstream_request.insert_header("host", "provider.example")
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        ctx: &mut Ctx,
    ) -> Result<()> {
        self.record("request_body_filter");
        if self.by == Loop::Driver {
            *body = ctx.body.take();
        }
        Ok(())
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Ctx,
        e: Box<Error>,
    ) -> Box<Error> {
        self.record("fail_to_connect");
        if self.by == Loop::Driver { self.on_failure(ctx, e) } else { e }
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        e: Box<Error>,
        ctx: &mut Ctx,
        _client_reused: bool,
    ) -> Box<Error> {
        self.record("error_while_proxy");
        let mut e = if self.by == Loop::Driver { self.on_failure(ctx, e) } else { e };
        e.set_retry(false);
        e
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        _upstream_response: &mut ResponseHeader,
        _ctx: &mut Ctx,
    ) -> Result<()> {
        self.record("upstream_response_filter");
        Ok(())
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        upstream_response: &mut ResponseHeader,
        _ctx: &mut Ctx,
    ) -> Result<()> {
        self.record("response_filter");
        upstream_response.remove_header("connection");
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        _body: &mut Option<Bytes>,
        _end_of_stream: bool,
        _ctx: &mut Ctx,
    ) -> Result<Option<Duration>> {
        self.record("response_body_filter");
        Ok(None)
    }

    async fn fail_to_proxy(&self, session: &mut Session, _e: &Error, ctx: &mut Ctx) -> FailToProxy {
        self.record("fail_to_proxy");
        ctx.failed = true;
        let _ = session.respond_error(502).await;
        FailToProxy { error_code: 502, can_reuse_downstream: false }
    }

    async fn logging(&self, _session: &mut Session, e: Option<&Error>, ctx: &mut Ctx) {
        self.record("logging");
        assert_eq!(e.is_some(), ctx.failed, "{e:?}");
    }
}

impl ExchangeHooks for Recorder {
    fn settings(&self) -> DriverSettings {
        DriverSettings {
            heartbeat: Duration::ZERO,
            keepalive: Duration::from_secs(60),
            head: 16 * 1024,
            frame: 1 << 20,
        }
    }

    fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn offload(&self) -> &Offload {
        &self.offload
    }

    fn modules(&self) -> &HttpModules {
        &self.modules
    }

    fn refuse_head(&self, error: &ApiError, _target: Option<&str>) -> (Box<ResponseHeader>, Bytes) {
        (Box::new(ResponseHeader::build(error.status, None).unwrap()), Bytes::new())
    }

    fn take_upgrade(&self, _ctx: &mut Ctx) -> Option<Upgrade> {
        None
    }

    fn timeouts(&self, _ctx: &Ctx) -> Timeouts {
        Timeouts::default()
    }

    fn is_job(&self, _ctx: &Ctx) -> bool {
        false
    }

    fn run_job<'h>(
        &'h self,
        _client: &'h mut ServerSession,
        _ctx: &'h mut Ctx,
        _ended: &'h mut DrainDeadline<'_>,
    ) -> HookFuture<'h, ExchangeOutcome> {
        Box::pin(async { unreachable!("no request is a job") })
    }

    fn websocket_provider(&self, _ctx: &Self::CTX) -> Option<Box<str>> {
        None
    }

    fn begin_attempt(&self, _ctx: &mut Ctx) {}

    fn resolve<'h>(&'h self, _ctx: &Ctx, _within: Duration) -> HookFuture<'h, Result<()>> {
        Box::pin(async { unreachable!("the address is known") })
    }

    fn on_connected(&self, _ctx: &mut Ctx, _reused: bool) {}

    fn on_resend(&self, _ctx: &mut Ctx, _reason: &'static str) {}

    fn on_failure(&self, _ctx: &mut Ctx, error: Box<Error>) -> Box<Error> {
        let told = ApiError::new(ErrorKind::UpstreamUnreachable, error.to_string());
        Fault::raise(told, FaultBody::None)
    }

    fn delivery(&self, _ctx: &Ctx) -> Delivery {
        Delivery::Stream
    }

    fn hold(&self, _ctx: &Ctx) -> Option<Duration> {
        None
    }

    fn stream_state(&self, _ctx: &Ctx) -> StreamState {
        StreamState::default()
    }

    fn is_opening(&self, _ctx: &Ctx, _frames: &[u8]) -> bool {
        false
    }

    fn error_of_frames(&self, _ctx: &Ctx, _frames: &[u8]) -> ApiError {
        ApiError::new(ErrorKind::UpstreamBroken, "The provider has sent an error.")
    }

    fn release_retry_state(&self, _ctx: &mut Ctx) {}

    fn has_remedy(&self, _ctx: &Ctx) -> bool {
        false
    }

    fn reauthorize<'h>(&'h self, _ctx: &'h mut Ctx, _within: Duration) -> HookFuture<'h, bool> {
        Box::pin(async { false })
    }

    fn before_write<'h>(&'h self, _ctx: &'h mut Ctx, _end: bool) -> Option<HookFuture<'h, ()>> {
        None
    }

    fn on_written(&self, _ctx: &mut Ctx, _written: Written) {}

    fn on_success(&self, _ctx: &mut Ctx) {}

    fn on_complete(&self, _ctx: &mut Ctx) {}

    fn filler(&self, _ctx: &mut Ctx) -> Bytes {
        Bytes::new()
    }

    fn slow_start(&self, _ctx: &Ctx) -> Option<Duration> {
        None
    }

    fn early_head(&self, _session: &Session, _ctx: &mut Ctx) -> Box<ResponseHeader> {
        Box::new(ResponseHeader::build(200, None).unwrap())
    }

    fn early_filler(&self, _ctx: &Ctx) -> Bytes {
        Bytes::new()
    }

    fn fall_back<'h>(
        &'h self,
        _ctx: &'h mut Ctx,
        error: ApiError,
        _body: Option<Bytes>,
    ) -> HookFuture<'h, std::result::Result<(), ExchangeOutcome>> {
        Box::pin(async { Err(ExchangeOutcome::Failed(error)) })
    }

    fn resume<'h>(
        &'h self,
        _client: &'h mut ServerSession,
        _ctx: &'h mut Ctx,
        error: ApiError,
    ) -> HookFuture<'h, std::result::Result<(), ExchangeOutcome>> {
        Box::pin(async { Err(ExchangeOutcome::Failed(error)) })
    }

    fn on_exchange_end(&self, _ctx: &mut Ctx) {}
}
