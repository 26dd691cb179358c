//! The gateway on Pingora: the only folder that names its types.
//!
//! [`Gateway`] implements `ProxyHttp`; each phase is one call into a room of its own: `auth` finds whose it is,
//! `request` reads and decides, `admit` lets in what limits and balance permit, `upstream` addresses the provider,
//! `response` passes or translates the answer, `early_response` keeps a client whose answer does not begin, `stored`
//! keeps it where no provider does, `job` makes answers out of several calls, `task` looks after what takes minutes
//! (both through `call`, as `check` does, which asks providers how they are), `billing` settles what it cost, `finish`
//! counts and logs. The exchange itself is driven by `exchange` and `answer`, on Pingora's connector, through the same
//! rooms in Pingora's order (docs/decisions/002). Before it stand `acceptor` (connections and their limits), `tls`
//! (their handshakes) and `http1` (one connection's requests; `head` and `chunks` check their bytes), behind it
//! `connection` (providers' connections), around it `server` (listeners, signals, upgrade) and `shutdown`.
//!
//! Here must not live: what a format means (`wire`, `translate`), who answers (`route`, `provider`), who may ask
//! (`account`).

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
use crate::metrics::Metrics;
use crate::metrics::access_log::AccessLog;
use crate::route::sticky::StickyTable;
use crate::snapshot::Snapshot;
use crate::store::{Ledger, OwnerStore, Store, TaskStore};
use crate::supervise::Supervisor;
use active_snapshot::ActiveSnapshot;
use billing::Billing;
use connection::Connections;
use dns::Resolver;

/// How long the end of the process waits for the ledger.
const CLOSING: Duration = Duration::from_secs(5);

/// The gateway: what it decides by, and what it talks through. Clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// See [`Gateway`].
pub struct Inner {
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
    /// Places of those who follow links.
    fetches: Arc<Semaphore>,
    homes: StickyTable,
    checked: check::ProbeResults,
    supervisor: Arc<Supervisor>,
    /// Tells that routes and keys have been put in place.
    reloads: tokio::sync::watch::Sender<()>,
}

/// What a gateway is made of.
pub struct Parts {
    /// Routes and keys to begin with.
    pub snapshot: Snapshot,
    /// Bounds.
    pub limits: Limits,
    /// Series.
    pub metrics: Arc<Metrics>,
    /// Access log.
    pub access_log: Arc<AccessLog>,
    /// Stopping.
    pub shutdown: Arc<Shutdown>,
    /// Where responses are kept; nothing if they are not.
    pub store: Option<Arc<dyn Store>>,
    /// Where tasks are kept.
    pub tasks: Arc<dyn TaskStore>,
    /// Whose a response is that its provider keeps.
    pub owners: Arc<dyn OwnerStore>,
    /// Nobody goes on from what was not made through the gateway.
    pub refuse_foreign: bool,
    /// Where balances and usage are kept; nothing if they are not.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// Where threads are noted that have to run.
    pub supervisor: Arc<Supervisor>,
    /// A file of root certificates, where the system has none.
    pub ca_file: Option<String>,
}

impl std::ops::Deref for Gateway {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Gateway {
    /// Puts a gateway together.
    ///
    /// # Errors
    /// The resolver cannot be set up.
    pub fn new(parts: Parts) -> Result<Self, dns::DnsError> {
        let mut options = ConnectorOptions::new(parts.limits.pool);
        options.ca_file = parts.ca_file;
        let billing = Arc::new(Billing::new(parts.ledger));
        let live = ActiveSnapshot::new(parts.snapshot, billing.clone(), &parts.metrics, &parts.limits);
        let kept = parts.store.as_ref().map_or(0, |store| store.size());
        parts.metrics.store_bytes.set(i64::try_from(kept).unwrap_or(i64::MAX));
        let memory = body_memory::BodyMemory::new(parts.limits.memory);
        let fetches = Arc::new(Semaphore::new(parts.limits.fetches.min(Semaphore::MAX_PERMITS)));
        Ok(Gateway(Arc::new(Inner {
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
            homes: StickyTable::default(),
            checked: check::ProbeResults::default(),
            supervisor: parts.supervisor,
            reloads: tokio::sync::watch::Sender::new(()),
        })))
    }

    /// Why new requests are not welcome, in words, although the process runs: a thread has panicked and is not back
    /// yet, or accounts cannot be charged.
    fn fault(&self) -> Option<String> {
        if let Some(thread) = self.supervisor.down() {
            return Some(format!("the thread {thread} is down"));
        }
        let fault = self.billing.ledger.as_ref()?.fault()?;
        Some(format!("accounts cannot be charged: {fault}"))
    }

    /// Brings the series of threads up to date.
    fn refresh_threads(&self) {
        for (thread, restarts) in self.supervisor.restarts() {
            let counter = self.metrics.thread_restarts.with_label_values(&[thread]);
            counter.inc_by(restarts.saturating_sub(counter.get()));
        }
    }

    /// Brings what is settled to where it stays, and gives back what is set aside for this process: for its end. It
    /// does not wait long for a server that does not answer.
    async fn close(&self) {
        let Some(ledger) = &self.billing.ledger else { return };
        if let Err(error) = ledger.close().within(CLOSING).await {
            tracing::warn!(%error, "not all is brought to the ledger; the next process does it");
        }
    }

    /// What is known of a request that begins.
    fn new_context(&self) -> Context {
        Context::new(self.live.load_full(), self.shutdown.enter(&self.metrics.in_flight))
    }

    /// Puts new routes and keys in place; returns the old ones, which requests under way may still hold.
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

/// A client's side of a request.
type Client = pingora::protocols::http::ServerSession;

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        self.new_context()
    }

    // None: Pingora's default adds a compression module, which would run for every frame and is never switched on.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<()> {
        self.begin(&mut session.downstream_session, ctx);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        self.decide(&mut session.downstream_session, ctx).await
    }

    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        let ended = std::pin::pin!(self.shutdown.ended());
        self.exchange(&mut session.downstream_session, ctx, ended).await?;
        Ok(false)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Context) -> Result<Box<HttpPeer>> {
        // Never asked for: the exchange has taken place when `proxy_upstream_filter` returns.
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
        self.open_answer(upstream_response, ctx)
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
        let passed = self.pass(body.take().unwrap_or_default(), end_of_stream, ctx)?;
        *body = (!passed.is_empty()).then_some(passed);
        Ok(None)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Context) -> FailToProxy {
        self.fail(&mut session.downstream_session, e, ctx).await
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Context) {
        self.finish(&session.downstream_session, e, ctx);
    }

    // Whatever failed stands in the access log and in the metrics, with the request's id; Pingora's own line would
    // say it again for every client that goes away.
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
