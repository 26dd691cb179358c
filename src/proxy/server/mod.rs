//! Server process: creates the gateway, its listeners and background services, and runs them on Pingora.

pub(crate) mod acceptor;
pub(crate) mod admin_thread;
pub(crate) mod client_certificate;
pub(crate) mod health;
pub(crate) mod listener_service;
pub(crate) mod listeners;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod playground;
pub(crate) mod program_pages;
pub(crate) mod proxy_header;
pub(crate) mod roots;
pub(crate) mod signals;
pub(crate) mod systemd;
pub(crate) mod telemetry;
pub(crate) mod tls;
pub(crate) mod upgrade;
pub(crate) mod watch;
pub(crate) mod watchdog;
mod worker_threads;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{RunArgs, Server as PingoraServer};
use pingora::services::background::background_service;
use pingora::services::listening::Service;

use crate::Gateway;
use crate::GatewayParts;
use crate::Shutdown;
use crate::client::check::Probes;
use crate::credentials::renewer::CredentialRenewer;
use crate::endpoints::task::poller::TaskPoller;
use acceptor::Acceptor;
use admin::{AdminApi, AdminApiParts, AdminTls};
use admin_thread::{AdminPort, AdminThread, ProcessControl};
use codec::tokens;
use config::{AccessLogSettings as LogTo, AdminAccess, Loaded, Reloader, Settings, Vault};
use driver::descriptors;
use driver::dns;
use driver::http2::Http2Server;
use driver::offload::run_blocking;
use listener_service::{ListenerHandle, ListenerService};
use listeners::ListenerTable;
use observe::metrics::access_log::{AccessLog, Destination};
use observe::metrics::{Metrics, MetricsError, log};
use observe::telemetry::TelemetryError;
use open::StoreAddress;
pub use signals::Started;
use signals::{RetiredSnapshots, SignalWatch, Signals};
use storage::store::StoreLock;
use sync::supervise::Supervisor;
use telemetry::StartedTelemetry;
use tls::TlsEndpoints;
use upgrade::ReadySocket;

/// Write buffer of a TLS connection, in bytes: the records of a head and of a typical JSON response leave in one write.
/// Plaintext has a buffer in `HeaderTimeoutStream`.
const TLS_WRITE_BUFFER: usize = 3 * 1024;
/// Read buffer of a TLS connection, in bytes: a TLS record has up to 16 KiB. Plaintext needs none, because heads and
/// bodies are read into buffers of their own.
const TLS_READ_BUFFER: usize = 16 * 1024;
/// Concurrent streams of a client's HTTP/2 connection. SDKs open one stream per request.
const H2_STREAMS: u32 = 250;
/// Flow-control windows of a client's HTTP/2 stream and connection, in bytes: with h2's default of 64 KiB, a 60 MB
/// upload over 50 ms of round-trip time would take a minute.
const H2_STREAM_WINDOW: u32 = 1 << 20;
const H2_CONNECTION_WINDOW: u32 = 8 << 20;
/// Time beyond the drain limit after which Pingora tears the runtimes down.
const GRACE: Duration = Duration::from_secs(10);

/// Reason why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be bound, or a file cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// The address or file.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A TLS listener cannot be set up.
    #[error("TLS listener {0}: {1}")]
    Tls(SocketAddr, String),
    /// A store or the ledger cannot be opened.
    #[error(transparent)]
    Store(#[from] open::StoreFault),
    /// The table of metrics is invalid.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The resolver cannot be set up.
    #[error("{0}")]
    Dns(String),
    /// Telemetry cannot be exported.
    #[error("telemetry: {0}")]
    Telemetry(#[from] TelemetryError),
}

impl From<dns::DnsError> for ServeError {
    fn from(error: dns::DnsError) -> Self {
        ServeError::Dns(error.to_string())
    }
}

/// Start options of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServeOptions {
    /// Takes the listeners over from a running process (`--upgrade`).
    pub upgrade: bool,
    /// Reloads when a file has changed (`--watch`).
    pub watch: bool,
}

/// Server that is ready to run.
pub struct Server {
    settings: Settings,
    options: ServeOptions,
    gateway: Gateway,
    reloader: Arc<Reloader>,
    retired: RetiredSnapshots,
    metrics: Arc<Metrics>,
    access_log: Arc<AccessLog>,
    shutdown: Arc<Shutdown>,
    config_file: PathBuf,
    admin_access: AdminAccess,
    store_address: StoreAddress,
    store_lock: Option<StoreLock>,
}

/// Returns the number of worker threads: that of the settings, or else one for each processor.
fn workers(settings: &Settings) -> usize {
    match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

impl Server {
    /// Loads and opens everything that can fail before a port is opened: logs, stores, ledger and resolver.
    ///
    /// # Errors
    /// Returns [`ServeError`] if one of them fails.
    pub fn new(
        loaded: Loaded,
        vault: Box<dyn Vault + Send + Sync>,
        options: ServeOptions,
    ) -> Result<Self, ServeError> {
        let Loaded { settings, snapshot, baseline, file, admin_access } = loaded;
        memory::set_up(workers(&settings));
        let metrics = Arc::new(Metrics::new()?);
        let destination = match &settings.log.access {
            LogTo::Off => Destination::Off,
            LogTo::Stdout => Destination::Stdout,
            LogTo::File(path) => Destination::File(path.clone()),
        };
        let access_log = AccessLog::open(destination, metrics.log_dropped.clone())
            .map_err(|source| ServeError::Io { what: "access log".to_owned(), source })?;
        let access_log = Arc::new(access_log);
        let shutdown = Shutdown::new();
        let store_lock = open::lock(&settings, options.upgrade)?;
        let address = StoreAddress::new(&settings.store)?;
        let (store, ledger) = (open::store(&settings, &address)?, open::ledger(&settings, &address)?);
        let (tasks, owners) = open::tasks(&settings, &address)?;
        let supervisor = Arc::new(Supervisor::default());
        supervisor.add(store.iter().flat_map(|store| store.threads()));
        supervisor.add(tasks.threads());
        supervisor.add(ledger.iter().flat_map(|ledger| ledger.threads()));
        supervisor.add(access_log.thread().cloned());
        supervisor.add(log::thread());
        let telemetry = telemetry::start(&settings.telemetry, &metrics)?;
        supervisor.add(telemetry.iter().map(|started| started.telemetry.exporter.thread().clone()));
        let (telemetry, running) = telemetry.map(StartedTelemetry::split).unzip();
        let unset = routing::snapshot::Snapshot::default();
        let gateway = Gateway::new(GatewayParts {
            snapshot: unset,
            limits: settings.limits.clone(),
            websocket: settings.websocket,
            trusted_proxies: settings.trusted_proxies.clone(),
            cors: settings.cors.clone(),
            metrics: metrics.clone(),
            access_log: access_log.clone(),
            live_requests: Arc::default(),
            telemetry,
            shutdown: shutdown.clone(),
            store,
            tasks,
            owners,
            refuse_foreign: settings.retention.refuse_foreign,
            refuse_unpriced: settings.refuse_unpriced,
            ledger,
            supervisor,
            ca_file: roots::file()?,
        })?;
        if let Some(running) = running {
            running.set(gateway.downgrade());
        }
        let retired = RetiredSnapshots::default();
        let reloader = {
            let (gateway, retired) = (gateway.clone(), retired.clone());
            Reloader::new(
                settings.sources(),
                settings.reload,
                vault,
                (&snapshot, baseline),
                Box::new(move |snapshot| retired.push(gateway.install(snapshot))),
            )
        };
        gateway.install(snapshot);
        metrics.reload_time.set(signals::unix_now());
        let reloader = Arc::new(reloader);
        Ok(Server {
            settings,
            options,
            gateway,
            reloader,
            retired,
            metrics,
            access_log,
            shutdown,
            config_file: file,
            admin_access,
            store_address: address,
            store_lock,
        })
    }

    /// Returns the shutdown handle, for programs that embed the server.
    pub fn shutdown(&self) -> &Arc<Shutdown> {
        &self.shutdown
    }

    /// Runs the server until a signal stops it. The process exits when all responses are complete, or at the drain
    /// limit.
    ///
    /// # Errors
    /// Returns [`ServeError`] if a listener or the admin port cannot be set up.
    pub fn run(self, started: Started) -> Result<(), ServeError> {
        tokens::set_blocking(|work| run_blocking(work));
        let limits = &self.settings.limits;
        if let Some(low) = descriptors::prepare(limits.connections, limits.pool) {
            tracing::warn!(
                open_files = low.limit,
                connections = limits.connections,
                needed = low.needed,
                "the limit of open files is too low for limits.connections: connections beyond it are refused; raise it \
                 (ulimit -n, LimitNOFILE) or lower limits.connections"
            );
        }
        let conf = self.configuration();
        if !self.options.upgrade {
            self.check_ports()?;
        }
        let opt = Opt { upgrade: self.options.upgrade, ..Opt::default() };
        let mut server = PingoraServer::new_with_opt_and_conf(Some(opt), conf);
        let tls = TlsEndpoints::load(&self.settings.tls, &self.metrics)
            .map_err(|(listen, error)| ServeError::Tls(listen, error))?;
        let tls = Arc::new(tls);
        let service = self.service(&server.configuration, &tls);
        let ready_socket = if self.options.upgrade {
            let path = &self.settings.upgrade_socket;
            let failed = |source| ServeError::Io { what: format!("{}.ready", path.display()), source };
            Some(ReadySocket::open(path).map_err(failed)?)
        } else {
            None
        };
        // With `--upgrade`, this waits for the running process to transfer its listeners.
        server.bootstrap();
        let listeners = Arc::new(ListenerHandle::default());
        server.add_service(ListenerService { service, handle: listeners.clone() });
        server.add_service(background_service("tasks", TaskPoller(self.gateway.clone())));
        server.add_service(background_service("credentials", CredentialRenewer(self.gateway.clone())));
        server.add_service(background_service("checks", Probes(self.gateway.clone())));
        let supervised = self.gateway.supervisor.add_new("admin");
        let address = self.settings.admin;
        let socket = self.settings.admin_api.socket.clone();
        let admin_tls = self.settings.admin_api.tls.as_ref().map(AdminTls::load).transpose();
        let admin_tls = admin_tls.map_err(|error| ServeError::Tls(address, error.to_string()))?.map(Arc::new);
        let api = Arc::new(AdminApi::new(self.admin_parts(admin_tls, tls.clone(), &listeners)));
        let port = AdminPort { address, socket: socket.as_deref(), takes_over: self.options.upgrade };
        let admin = AdminThread::start(port, self.metrics.clone(), api, supervised)
            .map_err(|source| ServeError::Io { what: format!("admin port {address}"), source })?;
        let exporter = self.gateway.telemetry.as_ref().map(|telemetry| telemetry.exporter.clone());
        let signals = Signals {
            settings: self.settings,
            gateway: self.gateway,
            reloader: self.reloader,
            retired: self.retired,
            access_log: self.access_log.clone(),
            metrics: self.metrics,
            shutdown: self.shutdown,
            admin,
            upgrade: self.options.upgrade,
            listeners,
            tls,
            watch: self.options.watch,
            config_file: self.config_file,
            store_address: self.store_address,
            ready_socket: parking_lot::Mutex::new(ready_socket),
            started: parking_lot::Mutex::new(Some(started)),
        };
        // Held until the last response has ended.
        let _store_lock = self.store_lock;
        server.run(RunArgs { shutdown_signal: Box::new(SignalWatch(Arc::new(signals))) });
        self.access_log.close();
        telemetry::close(exporter.as_deref());
        Ok(())
    }

    fn admin_parts(
        &self,
        tls: Option<Arc<AdminTls>>,
        endpoints: Arc<TlsEndpoints>,
        listeners: &Arc<ListenerHandle>,
    ) -> AdminApiParts {
        let control = ProcessControl {
            reloader: self.reloader.clone(),
            shutdown: self.shutdown.clone(),
            gateway: self.gateway.clone(),
            retired: self.retired.clone(),
            store: self.settings.store.clone(),
            listeners: listeners.clone(),
            store_address: self.store_address.clone(),
            tls: endpoints,
        };
        AdminApiParts {
            control: Arc::new(control),
            reloader: self.reloader.clone(),
            settings: self.settings.clone(),
            config_file: self.config_file.clone(),
            access: self.admin_access.clone(),
            live: self.gateway.live_requests.clone(),
            metrics: self.metrics.clone(),
            tls,
        }
    }

    /// Checks that all addresses can be bound. Pingora would panic in a thread of its own if one is taken.
    fn check_ports(&self) -> Result<(), ServeError> {
        for address in self.settings.addresses() {
            let bound = std::net::TcpListener::bind(address);
            bound.map_err(|source| ServeError::Io { what: format!("listen on {address}"), source })?;
        }
        Ok(())
    }

    fn configuration(&self) -> ServerConf {
        ServerConf {
            threads: workers(&self.settings),
            upgrade_sock: self.settings.upgrade_socket.display().to_string(),
            // Last resort only: the process exits by itself when the last response is complete.
            grace_period_seconds: Some((self.settings.drain + GRACE).as_secs()),
            graceful_shutdown_timeout_seconds: Some(1),
            upstream_keepalive_pool_size: 1,
            ..ServerConf::default()
        }
    }

    fn service(&self, conf: &Arc<ServerConf>, tls: &TlsEndpoints) -> Service<Acceptor> {
        let mut h2 = pingora::protocols::http::v2::server::default_h2_options();
        h2.max_concurrent_streams(H2_STREAMS)
            .initial_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(self.settings.limits.head).unwrap_or(u32::MAX));
        let limits = self.settings.limits.clone();
        let http2 = Http2Server::new(self.gateway.clone(), h2, limits.keepalive);
        let table = ListenerTable::new(&self.settings, tls);
        let proxies = self.settings.trusted_proxies.clone();
        let front = Acceptor::new(self.gateway.clone(), http2, table, proxies, limits, self.metrics.clone());
        let mut service = Service::new("gateway".to_owned(), front);
        service.threads = Some(conf.threads);
        let http = self.settings.http.iter().map(|http| &http.listen);
        for address in self.settings.listen.iter().chain(http) {
            let listener = ListenerConfig::tcp(address.to_string()).l4_buffer(L4BufferSettings::unbuffered());
            service.add_listener(listener);
        }
        for tls in &self.settings.tls {
            // `Acceptor` makes the TLS handshake, so that it is counted and timed.
            let listener = ListenerConfig::tcp(tls.listen.to_string())
                .l4_buffer(L4BufferSettings::new(TLS_READ_BUFFER, TLS_WRITE_BUFFER));
            service.add_listener(listener);
        }
        service
    }
}
