//! State that all requests share: configuration, limits, connections and stores.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora::Result;
use pingora::connectors::ConnectorOptions;
use pingora::modules::http::HttpModules;
use tokio::sync::Semaphore;

use super::active_snapshot::ActiveSnapshot;
use super::billing::Billing;
use super::compaction_seal::CompactionSecret;
use super::cors::CorsPolicy;
use super::drained::DrainedTargets;
use super::join_hints::JoinHints;
use crate::client::UpstreamClient;
use crate::client::probe_results::ProbeResults;
use crate::credentials::registry::CredentialRegistry;
use crate::endpoints::task::service::TaskService;
use config::{CorsRule, Limits};
use driver::body_memory::BodyMemory;
use driver::connection::Connections;
use driver::dns::{self, Resolver};
use driver::offload::Offload;
use driver::shutdown::Shutdown;
use observe::metrics::Metrics;
use observe::metrics::access_log::AccessLog;
use observe::metrics::live::LiveRequests;
use observe::telemetry::Telemetry;
use routing::account::{Network, TrustedProxies};
use routing::route::cache_lifetime::CacheLifetimeTable;
use routing::route::cache_misses::CacheMissTable;
use routing::route::cache_yield::CacheYieldTable;
use routing::route::sticky::StickyTable;
use routing::snapshot::Snapshot;
use storage::kv::{OwnerStore, Store, TaskStore};
use storage::ledger::Ledger;
use sync::SummedLimit;
use sync::supervise::Supervisor;

/// Maximum time that the process waits for the ledger to close at its end.
const CLOSING: Duration = Duration::from_secs(5);

/// The gateway: configuration, limits, connections and stores. Clones share one state.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayInner>);

/// Shared state of [`Gateway`].
pub struct GatewayInner {
    pub(crate) live: ArcSwap<ActiveSnapshot>,
    pub(crate) limits: Limits,
    /// `limits.requests`.
    pub(crate) request_limit: SummedLimit,
    /// Permits of open WebSockets. `None` if the responses API is not served over WebSocket.
    pub(crate) websockets: Option<Arc<Semaphore>>,
    pub(crate) trusted_proxies: TrustedProxies,
    /// Rules for web pages of other origins. `None` if there are none.
    pub(crate) cors: Option<CorsPolicy>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) resolver: Resolver,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: Arc<AccessLog>,
    pub(crate) live_requests: Arc<LiveRequests>,
    /// Telemetry. `None` if nothing is exported.
    pub(crate) telemetry: Option<GatewayTelemetry>,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) billing: Arc<Billing>,
    pub(crate) tasks: TaskService,
    pub(crate) owners: Arc<dyn OwnerStore>,
    pub(crate) refuse_foreign: bool,
    pub(crate) refuse_unpriced: bool,
    /// Secret of the compaction items that the gateway makes.
    pub(crate) compaction_secret: CompactionSecret,
    pub(crate) memory: BodyMemory,
    pub(crate) offload: Offload,
    pub(crate) join_hints: JoinHints,
    /// Client for the gateway's own requests: jobs, tasks, health checks and remote media.
    pub(crate) upstream_client: UpstreamClient,
    pub(crate) sticky_table: StickyTable,
    pub(crate) cache_yields: CacheYieldTable,
    pub(crate) cache_lifetimes: CacheLifetimeTable,
    pub(crate) cache_misses: CacheMissTable,
    pub(crate) probe_results: ProbeResults,
    /// Short-lived credentials of providers, which a reload keeps.
    pub(crate) credentials: CredentialRegistry,
    pub(crate) supervisor: Arc<Supervisor>,
    /// Pingora's modules: none.
    pub(crate) modules: HttpModules,
    /// Targets that operators have drained. Locked while a snapshot is installed.
    pub(crate) drained_targets: Mutex<DrainedTargets>,
    /// Notifies of each installed configuration snapshot.
    pub(crate) reloads: tokio::sync::watch::Sender<()>,
}

/// Telemetry, and which requests it concerns.
#[derive(Debug)]
pub struct GatewayTelemetry {
    /// Exporter.
    pub exporter: Arc<Telemetry>,
    /// Networks whose decision about sampling is followed.
    pub trust: Vec<Network>,
    /// Whether providers receive the trace context of the attempt.
    pub propagate: bool,
    /// Whether names of keys and accounts, and addresses of clients, are exported.
    pub names: bool,
}

/// Reference to a gateway that does not keep it.
#[derive(Clone)]
pub(crate) struct WeakGateway(Weak<GatewayInner>);

impl WeakGateway {
    /// Returns the gateway. `None` if it is dropped.
    pub(crate) fn upgrade(&self) -> Option<Gateway> {
        self.0.upgrade().map(Gateway)
    }
}

/// Constituents of a [`Gateway`].
pub struct GatewayParts {
    /// First configuration snapshot: routes and keys.
    pub snapshot: Snapshot,
    /// Limits of requests, bodies and connections.
    pub limits: Limits,
    /// Whether the responses API is served over WebSocket too.
    pub websocket: bool,
    /// Proxies whose statements about the client are believed.
    pub trusted_proxies: TrustedProxies,
    /// Rules for web pages of other origins.
    pub cors: Vec<CorsRule>,
    /// Metrics registry.
    pub metrics: Arc<Metrics>,
    /// Access log.
    pub access_log: Arc<AccessLog>,
    /// Events of requests, for the admin API.
    pub live_requests: Arc<LiveRequests>,
    /// Telemetry. `None` if nothing is exported.
    pub telemetry: Option<GatewayTelemetry>,
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
    /// Refuses requests of keys with an account for models without a price.
    pub refuse_unpriced: bool,
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
        let in_flight = parts.shutdown.clone();
        parts.metrics.set_in_flight_source(move || in_flight.in_flight());
        let billing = Arc::new(Billing::new(parts.ledger));
        let credentials = CredentialRegistry::default();
        let live =
            ActiveSnapshot::new(parts.snapshot, billing.clone(), &parts.metrics, &parts.limits, &credentials);
        let kept = parts.store.as_ref().map_or(0, |store| store.size());
        parts.metrics.store_bytes.set(i64::try_from(kept).unwrap_or(i64::MAX));
        let memory = BodyMemory::new(parts.limits.memory);
        let connections = Arc::new(Connections::new(options, parts.limits.pool_idle));
        let resolver = Resolver::new()?;
        let upstream_client = UpstreamClient::new(
            connections.clone(),
            resolver.clone(),
            parts.limits.clone(),
            memory.clone(),
            parts.metrics.clone(),
        );
        Ok(Gateway(Arc::new(GatewayInner {
            live: ArcSwap::from_pointee(live),
            trusted_proxies: parts.trusted_proxies,
            cors: CorsPolicy::new(&parts.cors),
            connections,
            resolver,
            // Tokio panics above `MAX_PERMITS`.
            websockets: parts
                .websocket
                .then(|| Arc::new(Semaphore::new(parts.limits.websockets.min(Semaphore::MAX_PERMITS)))),
            request_limit: SummedLimit::new(parts.limits.requests),
            limits: parts.limits,
            offload: Offload::new(&parts.metrics),
            join_hints: JoinHints::default(),
            metrics: parts.metrics,
            access_log: parts.access_log,
            live_requests: parts.live_requests,
            telemetry: parts.telemetry,
            shutdown: parts.shutdown,
            store: parts.store,
            tasks: TaskService::new(parts.tasks),
            owners: parts.owners,
            refuse_foreign: parts.refuse_foreign,
            refuse_unpriced: parts.refuse_unpriced,
            compaction_secret: CompactionSecret::default(),
            billing,
            memory,
            upstream_client,
            sticky_table: StickyTable::default(),
            cache_yields: CacheYieldTable::default(),
            cache_lifetimes: CacheLifetimeTable::default(),
            cache_misses: CacheMissTable::default(),
            probe_results: ProbeResults::default(),
            credentials,
            supervisor: parts.supervisor,
            modules: HttpModules::new(),
            drained_targets: Mutex::default(),
            reloads: tokio::sync::watch::Sender::new(()),
        })))
    }

    /// Returns a reference that does not keep the gateway.
    pub(crate) fn downgrade(&self) -> WeakGateway {
        WeakGateway(Arc::downgrade(&self.0))
    }

    /// Returns why the gateway is not ready, for `/readyz`: a supervised thread has panicked and is not running again
    /// yet, or the ledger has a fault. `None` if it is ready.
    pub(crate) fn readiness_fault(&self) -> Option<String> {
        if let Some(thread) = self.supervisor.down() {
            return Some(format!("the thread {thread} is down"));
        }
        let fault = self.billing.ledger.as_ref()?.fault()?;
        Some(format!("accounts cannot be charged: {fault}"))
    }

    /// Updates the counters of thread restarts from the supervisor.
    pub(crate) fn refresh_threads(&self) {
        for (thread, restarts) in self.supervisor.restarts() {
            let counter = self.metrics.thread_restarts.with_label_values(&[thread]);
            counter.inc_by(restarts.saturating_sub(counter.get()));
        }
    }

    /// Closes the ledger at the end of the process: flushes what is settled and returns unused leases. Waits at most
    /// [`CLOSING`] for a server; what is not flushed then is left to the next process.
    pub(crate) async fn close(&self) {
        let Some(ledger) = &self.billing.ledger else { return };
        if let Err(error) = ledger.close().within(CLOSING).await {
            tracing::warn!(%error, "not all usage is written to the ledger; the next process writes the rest");
        }
    }

    /// Activates a configuration snapshot. Returns the previous one, which requests in progress may still use.
    pub fn install(&self, snapshot: Snapshot) -> Arc<dyn Send + Sync> {
        // Held while the snapshot is replaced: a target that is drained meanwhile must not be lost.
        let drained = self.drained_targets.lock();
        self.billing.sweep();
        let mut snapshot = snapshot;
        if !drained.is_empty() {
            snapshot.routes = drained.apply(&snapshot.routes);
        }
        snapshot.routes.inherit(&self.live.load().snapshot.routes);
        self.activate(snapshot)
    }

    fn activate(&self, snapshot: Snapshot) -> Arc<dyn Send + Sync> {
        let live = ActiveSnapshot::new(
            snapshot,
            self.billing.clone(),
            &self.metrics,
            &self.limits,
            &self.credentials,
        );
        live.inherit(&self.live.load());
        let before = self.live.swap(Arc::new(live));
        self.reloads.send_replace(());
        before
    }

    /// Drains a target in all models, or ends that. Returns the previous snapshot, or `None` if nothing changes: a
    /// drained target has no weight in a snapshot of its own, so that requests need not check for it.
    pub(crate) fn set_drained(
        &self,
        provider: &str,
        model: &str,
        is_drained: bool,
    ) -> Option<Arc<dyn Send + Sync>> {
        let mut drained = self.drained_targets.lock();
        if !drained.set(provider, model, is_drained) {
            return None;
        }
        let before = self.live.load();
        let snapshot = before.snapshot.with_routes(drained.apply(&before.snapshot.routes));
        Some(self.activate(snapshot))
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gateway")
    }
}
