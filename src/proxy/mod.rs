//! The gateway on Pingora: listeners, request phases, upstream exchange, signals and upgrade. Only this module names
//! Pingora.
//!
//! [`Gateway`] implements `ProxyHttp`; each phase is one call into a submodule. `auth` authenticates, `request` reads
//! and routes, `admit` applies limits and reserves money, `upstream` builds the upstream request, `exchange` and
//! `answer` drive it on Pingora's connector (docs/decisions/002), `response` forwards or translates the response,
//! `billing` settles, and `finish` writes metrics and the log line. `job` combines several calls into a response,
//! `task` runs what takes minutes; both use `call`. `acceptor`, `tls` and `http1` serve client connections,
//! `connection` holds those to providers, `server` runs listeners, signals and upgrades.
//!
//! Must not live here: the meaning of formats (`wire`, `translate`), target selection (`route`, `provider`) and key
//! permissions (`account`).

mod acceptor;
mod active_snapshot;
mod addresses;
mod admit;
mod answer;
mod auth;
mod billing;
mod body_memory;
mod burst;
mod call;
mod check;
mod chunks;
mod coalesce;
mod connection;
mod context;
mod count;
mod dns;
mod early_response;
mod encoding;
mod exchange;
mod exchange_timer;
mod fallback;
mod fault_report;
mod fetch;
mod finish;
mod head;
mod header_timeout;
mod health;
mod http1;
mod idle_tracker;
mod images;
mod interim;
mod job;
mod listener_service;
mod lost;
mod memory;
mod names;
mod offload;
mod open;
mod peer;
mod plan;
mod pool;
mod reader;
mod remote_media;
mod reply;
mod request;
mod resend;
mod response;
mod response_owner;
mod resume;
mod roots;
mod server;
mod shutdown;
mod signals;
mod spans;
mod spent;
mod sticky;
mod stored;
mod task;
mod throughput;
mod tls;
mod upgrade;
mod upstream;
mod upstream_route;
mod vault;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::connectors::ConnectorOptions;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use tokio::sync::Semaphore;

pub use chunks::{Chunks, Misframed};
pub use context::Context;
pub use head::{HeadFault, HeadScan};
pub use open::StoreFault;
pub use server::{ServeError, ServeOptions, Server, Started};
pub use shutdown::Shutdown;

use crate::config::Limits;
use crate::kv::{OwnerStore, Store, TaskStore};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::metrics::access_log::AccessLog;
use crate::route::sticky::StickyTable;
use crate::snapshot::Snapshot;
use crate::supervise::Supervisor;
use active_snapshot::ActiveSnapshot;
use billing::Billing;
use connection::Connections;
use dns::Resolver;

/// Maximum time that the process waits for the ledger to close at its end.
const CLOSING: Duration = Duration::from_secs(5);

/// The gateway: configuration, limits, connections and stores. Clones share one state.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayInner>);

/// Shared state of [`Gateway`].
pub struct GatewayInner {
    live: ArcSwap<ActiveSnapshot>,
    limits: Limits,
    connections: Connections,
    resolver: Resolver,
    metrics: Arc<Metrics>,
    access_log: Arc<AccessLog>,
    shutdown: Arc<Shutdown>,
    store: Option<Arc<dyn Store>>,
    billing: Arc<Billing>,
    tasks: task::TaskService,
    owners: Arc<dyn OwnerStore>,
    refuse_foreign: bool,
    memory: body_memory::BodyMemory,
    offload: offload::Offload,
    /// Permits of concurrent downloads of remote media (`limits.fetches`).
    fetches: Arc<Semaphore>,
    sticky_table: StickyTable,
    probe_results: check::ProbeResults,
    supervisor: Arc<Supervisor>,
    /// Notifies of each installed configuration snapshot.
    reloads: tokio::sync::watch::Sender<()>,
}

/// Constituents of a [`Gateway`].
pub struct GatewayParts {
    /// First configuration snapshot: routes and keys.
    pub snapshot: Snapshot,
    /// Limits of requests, bodies and connections.
    pub limits: Limits,
    /// Metrics registry.
    pub metrics: Arc<Metrics>,
    /// Access log.
    pub access_log: Arc<AccessLog>,
    /// Shutdown state of the process.
    pub shutdown: Arc<Shutdown>,
    /// Store of responses and provider signatures. `None` if neither is stored.
    pub store: Option<Arc<dyn Store>>,
    /// Store of tasks.
    pub tasks: Arc<dyn TaskStore>,
    /// Store of owners: which account a response belongs to that its provider stores.
    pub owners: Arc<dyn OwnerStore>,
    /// Refuses requests that continue a response which was not created through this gateway.
    pub refuse_foreign: bool,
    /// Ledger of balances and usage. `None` if accounts are not charged.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// Supervisor of the threads that must run.
    pub supervisor: Arc<Supervisor>,
    /// File of root certificates, for systems without a certificate store.
    pub ca_file: Option<String>,
}

impl std::ops::Deref for Gateway {
    type Target = GatewayInner;

    fn deref(&self) -> &GatewayInner {
        &self.0
    }
}

impl Gateway {
    /// Creates a gateway.
    ///
    /// # Errors
    /// Returns a `DnsError` if the resolver cannot be set up.
    pub fn new(parts: GatewayParts) -> Result<Self, dns::DnsError> {
        let mut options = ConnectorOptions::new(parts.limits.pool);
        options.ca_file = parts.ca_file;
        let billing = Arc::new(Billing::new(parts.ledger));
        let live = ActiveSnapshot::new(parts.snapshot, billing.clone(), &parts.metrics, &parts.limits);
        let kept = parts.store.as_ref().map_or(0, |store| store.size());
        parts.metrics.store_bytes.set(i64::try_from(kept).unwrap_or(i64::MAX));
        let memory = body_memory::BodyMemory::new(parts.limits.memory);
        let fetches = Arc::new(Semaphore::new(parts.limits.fetches.min(Semaphore::MAX_PERMITS)));
        Ok(Gateway(Arc::new(GatewayInner {
            live: ArcSwap::from_pointee(live),
            connections: Connections::new(options, parts.limits.pool_idle),
            resolver: Resolver::new()?,
            limits: parts.limits,
            offload: offload::Offload::new(&parts.metrics),
            metrics: parts.metrics,
            access_log: parts.access_log,
            shutdown: parts.shutdown,
            store: parts.store,
            tasks: task::TaskService::new(parts.tasks),
            owners: parts.owners,
            refuse_foreign: parts.refuse_foreign,
            billing,
            memory,
            fetches,
            sticky_table: StickyTable::default(),
            probe_results: check::ProbeResults::default(),
            supervisor: parts.supervisor,
            reloads: tokio::sync::watch::Sender::new(()),
        })))
    }

    /// Returns why the gateway is not ready, for `/readyz`: a supervised thread has panicked and is not running again
    /// yet, or the ledger has a fault. `None` if it is ready.
    fn readiness_fault(&self) -> Option<String> {
        if let Some(thread) = self.supervisor.down() {
            return Some(format!("the thread {thread} is down"));
        }
        let fault = self.billing.ledger.as_ref()?.fault()?;
        Some(format!("accounts cannot be charged: {fault}"))
    }

    /// Updates the counters of thread restarts from the supervisor.
    fn refresh_threads(&self) {
        for (thread, restarts) in self.supervisor.restarts() {
            let counter = self.metrics.thread_restarts.with_label_values(&[thread]);
            counter.inc_by(restarts.saturating_sub(counter.get()));
        }
    }

    /// Closes the ledger at the end of the process: flushes what is settled and returns unused leases. Waits at most
    /// [`CLOSING`] for a server; what is not flushed then is left to the next process.
    async fn close(&self) {
        let Some(ledger) = &self.billing.ledger else { return };
        if let Err(error) = ledger.close().within(CLOSING).await {
            tracing::warn!(%error, "not all usage is written to the ledger; the next process writes the rest");
        }
    }

    /// Creates the context of a new request: it holds the active snapshot and counts as in flight.
    fn new_context(&self) -> Context {
        Context::new(self.live.load_full(), self.shutdown.enter(&self.metrics.in_flight))
    }

    /// Activates a configuration snapshot. Returns the previous one, which requests in progress may still use.
    pub fn install(&self, snapshot: Snapshot) -> Arc<dyn Send + Sync> {
        self.billing.sweep();
        let mut snapshot = snapshot;
        snapshot.routes.inherit(&self.live.load().snapshot.routes);
        let live = ActiveSnapshot::new(snapshot, self.billing.clone(), &self.metrics, &self.limits);
        live.inherit(&self.live.load());
        let before = self.live.swap(Arc::new(live));
        self.reloads.send_replace(());
        before
    }
}

/// Downstream session of a request.
type Client = pingora::protocols::http::ServerSession;

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        self.new_context()
    }

    // Empty on purpose: Pingora's default adds a compression module, which would run for every frame and is never
    // enabled.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<()> {
        self.start_request(&mut session.downstream_session, ctx);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        self.prepare_request(&mut session.downstream_session, ctx).await
    }

    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        let ended = std::pin::pin!(self.shutdown.ended());
        self.exchange(&mut session.downstream_session, ctx, ended).await?;
        Ok(false)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Context) -> Result<Box<HttpPeer>> {
        // Unreachable: the exchange is complete when `proxy_upstream_filter` returns false.
        Err(Error::new_in(ErrorType::InternalError))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream_request: &mut RequestHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        *upstream_request = self.upstream_head(&session.downstream_session, ctx)?;
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> Result<()> {
        *body = ctx.next_upstream_body(end_of_stream);
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        self.on_response_head(upstream_response, ctx)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        *upstream_response = self.client_head(session.req_header(), upstream_response, ctx, None);
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> Result<Option<Duration>> {
        let passed = self.forward_piece(body.take().unwrap_or_default(), end_of_stream, ctx)?;
        *body = (!passed.is_empty()).then_some(passed);
        Ok(None)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Context) -> FailToProxy {
        self.fail(&mut session.downstream_session, e, ctx).await
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Context) {
        self.finish(&session.downstream_session, e, ctx);
    }

    // The access log and the metrics report every failure, with the request id. Pingora's own line would repeat it for
    // every client that disconnects.
    fn suppress_error_log(&self, _session: &Session, _ctx: &Context, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Context,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gateway")
    }
}
