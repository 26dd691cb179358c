//! Process control: signals, notifications to systemd, and the status of the admin port.
//!
//! | signal | effect |
//! |---|---|
//! | SIGHUP | reload routes, keys and certificates; reopen the access log |
//! | SIGTERM | lame duck time, then drain: responses in progress end, with an error at the drain limit; a further one ends the lame duck time, or exits |
//! | SIGINT | drain at once; the second time: exit |
//! | SIGQUIT | transfer the listeners to the process that was started with `--upgrade`, then drain |
//! | SIGUSR2 | start this program with `--upgrade` and transfer the listeners to it |

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};

use super::admin_thread::AdminThread;
use super::listener_service::ListenerHandle;
use super::memory;
use super::open::StoreAddress;
use super::program_pages;
use super::systemd::notify;
use super::telemetry;
use super::tls::TlsEndpoints;
use super::upgrade::{ReadySocket, Successor, UpgradeError, transfer_listeners};
use super::watch::FileChanges;
use super::watchdog;
use crate::Gateway;
use crate::Shutdown;
use codec::tokens;
use config::{AdminTlsSettings, Environment, ReloadOutcome, Reloader, Settings, StoreSettings, TlsListener};
use observe::metrics::Metrics;
use observe::metrics::access_log::AccessLog;

/// Called when the gateway accepts requests.
pub type Started = Box<dyn FnOnce() + Send>;

/// Maximum time until the listeners accept.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time to write responses out after the drain limit is reached.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until a new process is ready to receive the listeners.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time from the last accept to the start of the drain after an upgrade. A connection is counted by its own task, and
/// one whose task has not run yet would be lost.
const ACCEPT_SETTLE: Duration = Duration::from_secs(1);
/// Maximum time that the access log may take to write its last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two sweeps of retired snapshots.
const SWEEP: Duration = Duration::from_secs(30);
/// Time without use after which the memory of a tokenizer vocabulary is released, at most twice this long.
const VOCABULARY_IDLE: Duration = Duration::from_secs(600);

/// Maximum number of reloads at a time. Further signals wait until one of them ends.
const MAX_RELOADS: usize = 4;

/// Who has asked for a reload in the audit log: a signal, or a changed file.
const HANGUP: &str = "signal:SIGHUP";
const WATCH: &str = "watch";

/// Retired snapshots that requests may still use. A background task drops them: dropping 100,000 keys takes
/// milliseconds.
#[derive(Clone, Default)]
pub(crate) struct RetiredSnapshots(Arc<Mutex<Vec<Arc<dyn Send + Sync>>>>);

impl RetiredSnapshots {
    pub(crate) fn push(&self, snapshot: Arc<dyn Send + Sync>) {
        self.0.lock().push(snapshot);
        self.sweep();
    }

    fn sweep(&self) {
        // The list has the only reference, so no request can obtain another one.
        self.0.lock().retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }
}

/// Returns the current Unix time in seconds.
pub(crate) fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// Signal handler: decides when Pingora shuts down.
pub(crate) struct Signals {
    pub(crate) settings: Settings,
    pub(crate) gateway: Gateway,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) retired: RetiredSnapshots,
    pub(crate) access_log: Arc<AccessLog>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) admin: AdminThread,
    pub(crate) upgrade: bool,
    pub(crate) listeners: Arc<ListenerHandle>,
    pub(crate) tls: Arc<TlsEndpoints>,
    /// Reloads when a file has changed.
    pub(crate) watch: bool,
    /// Path of gateway.toml.
    pub(crate) config_file: PathBuf,
    pub(crate) store_address: StoreAddress,
    /// Readiness socket of a process that takes over.
    pub(crate) ready_socket: Mutex<Option<ReadySocket>>,
    pub(crate) started: Mutex<Option<Started>>,
}

/// Counts and logs a reload.
pub(super) fn report_reload(metrics: &Metrics, outcome: &ReloadOutcome) {
    let result = if outcome.is_applied() { "applied" } else { "refused" };
    metrics.reloads.with_label_values(&[result]).inc();
    match &outcome.refused {
        None => {
            metrics.reload_time.set(unix_now());
            let ReloadOutcome { generation, models, keys, took, .. } = outcome;
            tracing::info!(generation, models, keys, ?took, "routes and keys were reloaded");
        }
        Some(report) => {
            for problem in &report.problems {
                tracing::error!(%problem, "the new configuration was rejected");
            }
            tracing::error!(generation = outcome.generation, "routes and keys are unchanged");
        }
    }
    for problem in outcome.access.iter().flat_map(|report| &report.problems) {
        tracing::error!(%problem, "the new tokens or the new certificate of the admin port were rejected");
    }
}

/// Adapter through which Pingora waits for [`Signals`].
pub(crate) struct SignalWatch(pub(crate) Arc<Signals>);

#[async_trait]
impl ShutdownSignalWatch for SignalWatch {
    async fn recv(&self) -> ShutdownSignal {
        let supervised = self.0.gateway.supervisor.add_new("signals");
        let listen = || async {
            match Streams::new() {
                Ok(streams) => self.0.handle_signals(streams).await,
                Err(error) => {
                    tracing::error!(%error, "signals cannot be received");
                    ShutdownSignal::FastShutdown
                }
            }
        };
        supervised.run_task_supervised(listen).await
    }
}

struct Streams {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    user: Signal,
}

impl Streams {
    fn new() -> std::io::Result<Self> {
        Ok(Streams {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }
}

/// A task beside the signal loop, at most one at a time. Dropping it aborts the task.
struct BackgroundTask<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> BackgroundTask<T> {
    fn is_running(&self) -> bool {
        self.0.is_some()
    }

    fn start(&mut self, work: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(tokio::spawn(work));
    }

    /// Aborts the task and waits until its values are dropped.
    async fn cancel(&mut self) {
        if let Some(running) = self.0.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// Waits for the task. `None` if it panicked. Waits for ever if there is no task.
    async fn join(&mut self) -> Option<T> {
        let outcome = match &mut self.0 {
            Some(running) => running.await.ok(),
            None => std::future::pending().await,
        };
        self.0 = None;
        outcome
    }
}

impl<T> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.abort();
        }
    }
}

impl Signals {
    async fn handle_signals(self: &Arc<Self>, mut streams: Streams) -> ShutdownSignal {
        // Before the gateway says that it is ready: what changes from then on is noticed.
        let mut changes = self.watch_files();
        if !self.announce().await {
            tracing::error!("the listeners did not start");
            return ShutdownSignal::FastShutdown;
        }
        tokio::spawn(watchdog::serve(self.listeners.clone()));
        tokio::spawn(memory::release_program_after_start(self.metrics.clone()));
        tokio::spawn(memory::trim_periodically(self.metrics.clone(), self.listeners.clone()));
        let mut sweep = tokio::time::interval(SWEEP);
        let mut release = tokio::time::interval(VOCABULARY_IDLE);
        let (mut reloads, mut waiting) = (JoinSet::new(), None);
        let mut upgrade = BackgroundTask(None);
        // Reloads and upgrades run as tasks, so that SIGTERM takes effect during a slow file or a hung process.
        let at_once = loop {
            tokio::select! {
                _ = streams.terminate.recv() => break false,
                _ = streams.interrupt.recv() => break true,
                () = changes.changed() => {
                    tracing::info!("configuration files have changed");
                    waiting = self.start_reload(&mut reloads, WATCH);
                }
                _ = streams.hangup.recv() => waiting = self.start_reload(&mut reloads, HANGUP),
                Some(_) = reloads.join_next() => if let Some(cause) = waiting.take() {
                    waiting = self.start_reload(&mut reloads, cause);
                },
                _ = streams.quit.recv() => if !upgrade.is_running() {
                    upgrade.start(self.clone().upgrade(false));
                },
                _ = streams.user.recv() => if !upgrade.is_running() {
                    upgrade.start(self.clone().upgrade(true));
                },
                outcome = upgrade.join() => match outcome {
                    Some(Ok(())) => {
                        tracing::info!("the new process accepts requests");
                        return self.stop(streams, true);
                    }
                    Some(Err(error)) => tracing::error!(%error, "the upgrade failed; this process continues"),
                    None => tracing::error!("the upgrade task failed; this process continues"),
                },
                _ = sweep.tick() => self.retired.sweep(),
                _ = release.tick() => if tokens::release_unused() > 0 {
                    tracing::debug!("unused tokenizer vocabularies were released");
                    tokio::task::spawn_blocking(memory::trim);
                },
            }
        };
        // Dropping the task kills a new process that does not serve yet.
        upgrade.cancel().await;
        notify(&[NotifyState::Stopping]);
        if !at_once {
            self.be_lame_duck(&mut streams).await;
        }
        tracing::info!(limit = ?self.settings.drain, in_flight = self.shutdown.in_flight(), "stopping");
        self.shutdown.drain();
        self.stop(streams, false)
    }

    /// Goes on to accept until the balancers before the gateway have noticed that it is not ready, or until a further
    /// signal.
    async fn be_lame_duck(&self, streams: &mut Streams) {
        let time = self.settings.lame_duck;
        if time.is_zero() {
            return;
        }
        tracing::info!(
            ?time,
            "not ready any more; connections are accepted until the lame duck time is over"
        );
        self.shutdown.become_lame_duck();
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            _ = streams.terminate.recv() => tracing::info!("a second signal ends the lame duck time"),
            _ = streams.interrupt.recv() => tracing::info!("a second signal ends the lame duck time"),
        }
    }

    /// Starts a reload beside those that run: one of them may have read its files before this signal, or wait for a file for ever.
    /// Returns the cause if so many run that it must wait for one of them.
    fn start_reload(
        self: &Arc<Self>,
        reloads: &mut JoinSet<()>,
        cause: &'static str,
    ) -> Option<&'static str> {
        if reloads.len() >= MAX_RELOADS {
            return Some(cause);
        }
        reloads.spawn(self.clone().reload(cause));
        None
    }

    /// Starts the drain task, which exits the process, and makes Pingora close the listeners.
    fn stop(self: &Arc<Self>, streams: Streams, replaced: bool) -> ShutdownSignal {
        if replaced {
            // The new process serves the admin port now.
            self.admin.stop();
        }
        let this = self.clone();
        tokio::spawn(async move { this.drain(streams, replaced).await });
        // Pingora's `GracefulUpgrade` would accept for five more seconds.
        ShutdownSignal::GracefulTerminate
    }

    /// Waits until every listener accepts, then reports readiness to systemd and to the process that is to be replaced.
    /// False if a listener does not accept in time.
    async fn announce(&self) -> bool {
        if !tokio::time::timeout(START_TIMEOUT, self.listeners.accepting()).await.unwrap_or(false) {
            return false;
        }
        for address in self.settings.addresses() {
            let reach = async {
                while tokio::net::TcpStream::connect(reachable(address)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            if tokio::time::timeout(START_TIMEOUT, reach).await.is_err() {
                return false;
            }
        }
        // Before the first request: what it needs is loaded again, and stays.
        let _ = tokio::task::spawn_blocking(program_pages::release).await;
        self.shutdown.serve();
        if let Some(started) = self.started.lock().take() {
            started();
        }
        if self.upgrade {
            notify(&[NotifyState::MainPid(std::process::id())]);
        }
        notify(&[NotifyState::Ready]);
        // Last: after this the old process stops accepting.
        if let Some(socket) = self.ready_socket.lock().take() {
            socket.confirm();
        }
        true
    }

    /// Starts to watch the files of the configuration, with `--watch`.
    fn watch_files(&self) -> FileChanges {
        if !self.watch {
            return FileChanges::none();
        }
        let (reloader, settings) = (self.reloader.clone(), &self.settings);
        let mut fixed = vec![settings.admin_api.tokens.clone()];
        fixed.extend(settings.telemetry.files.iter().cloned());
        fixed.extend(settings.tls.iter().flat_map(TlsListener::files));
        fixed.extend(settings.admin_api.tls.iter().flat_map(AdminTlsSettings::files));
        if let StoreSettings::Valkey(fleet) = &settings.store {
            fixed.extend(fleet.files(&Environment));
        }
        FileChanges::watch(self.config_file.clone(), move || {
            let mut files = reloader.watched_files();
            files.extend_from_slice(&fixed);
            files
        })
    }

    /// Reloads the configuration. `cause` is who has asked for it in the audit log.
    async fn reload(self: Arc<Self>, cause: &'static str) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, now]);
        }
        self.access_log.reopen();
        let api = self.admin.api().clone();
        // Reads files, and takes long with many keys: on a worker it would delay requests.
        let (tls, metrics) = (self.tls.clone(), self.metrics.clone());
        let (store, address) = (self.settings.store.clone(), self.store_address.clone());
        let exporter = self.gateway.telemetry.as_ref().map(|telemetry| telemetry.exporter.clone());
        let file = self.config_file.clone();
        let work = move || {
            if let Some(exporter) = &exporter {
                telemetry::renew(exporter, &file);
            }
            tls.reload(&metrics);
            if let Err(fault) = address.renew(&store) {
                tracing::error!(%fault, "the new URL of the store was rejected; the old one stays in effect");
            }
            let outcome = api.reload();
            api.record_reload(cause, &outcome);
            outcome
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => report_reload(&self.metrics, &outcome),
            Err(error) => tracing::error!(%error, "the reload failed"),
        }
        notify(&[NotifyState::Ready]);
    }

    /// Transfers the listeners to a new process. With `start`, starts that process.
    async fn upgrade(self: Arc<Self>, start: bool) -> Result<(), UpgradeError> {
        let socket = &self.settings.upgrade_socket;
        let successor = if start { Some(Successor::start(socket, TRANSFER_TIMEOUT).await?) } else { None };
        tracing::info!(in_flight = self.shutdown.in_flight(), "handing over to a new process");
        let (api, cause) =
            (self.admin.api().clone(), if start { "signal:SIGUSR2" } else { "signal:SIGQUIT" });
        let begun = {
            let api = api.clone();
            tokio::task::spawn_blocking(move || api.record_upgrade(cause)).await.ok()
        };
        let transferred = transfer_listeners(self.listeners.fds(), socket).await;
        if let Some(begun) = begun {
            let failure = transferred.as_ref().err().map(ToString::to_string);
            let record = move || api.record_upgraded(begun, failure.as_deref());
            let _ = tokio::task::spawn_blocking(record).await;
        }
        transferred?;
        if let Some(successor) = successor {
            successor.detach();
        }
        Ok(())
    }

    /// Waits for the responses in progress, closes the ledger and the logs, and exits the process.
    async fn drain(&self, mut streams: Streams, replaced: bool) {
        let answers = async {
            if replaced {
                self.listeners.closed().await;
                tracing::info!("no more connections are accepted");
                tokio::time::sleep(ACCEPT_SETTLE).await;
                self.shutdown.drain();
            }
            if tokio::time::timeout(self.settings.drain, self.shutdown.idle()).await.is_err() {
                tracing::warn!(in_flight = self.shutdown.in_flight(), "the drain limit is reached");
                self.shutdown.end();
                let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.shutdown.idle()).await;
            }
        };
        tokio::select! {
            () = answers => {}
            _ = streams.terminate.recv() => tracing::warn!("stopped by a second signal"),
            _ = streams.interrupt.recv() => tracing::warn!("stopped by a second signal"),
        }
        // HTTP/2 frames may still be queued when their requests are done. A connection closes when they are written.
        let closed = async {
            while self.metrics.connections.get() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(250), closed).await;
        // Flushes charges and returns leases to the coordinator.
        self.gateway.close().await;
        self.close().await;
        tracing::info!("stopped");
        observe::metrics::log::flush();
        std::process::exit(0);
    }

    /// Closes the access log and exports the last telemetry, because `exit` runs no destructors. Bounded by [`CLOSE_TIMEOUT`].
    async fn close(&self) {
        let access_log = self.access_log.clone();
        let exporter = self.gateway.telemetry.as_ref().map(|telemetry| telemetry.exporter.clone());
        let exported = tokio::task::spawn_blocking(move || telemetry::close(exporter.as_deref()));
        // A destination that blocks must not delay the exit.
        let written = tokio::task::spawn_blocking(move || access_log.close());
        if tokio::time::timeout(CLOSE_TIMEOUT, written).await.is_err() {
            tracing::warn!("the last lines of the access log could not be written");
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, exported).await;
    }
}

/// Returns a local address at which a listener is reachable: loopback for an unspecified address.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let mut address = listen;
    if listen.ip().is_unspecified() {
        address.set_ip(match listen {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
