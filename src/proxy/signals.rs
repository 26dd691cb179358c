//! What the process is told from outside, and what it tells: signals, systemd, the admin port.
//!
//! | signal | effect |
//! |---|---|
//! | SIGHUP | routes and keys are read again; the access log is opened again |
//! | SIGTERM, SIGINT | stop: no new requests, answers under way end, at the drain limit with an error; twice: at once |
//! | SIGQUIT | hand the listeners to the process that was started with `--upgrade`, then stop |
//! | SIGUSR2 | start the program anew with `--upgrade` and hand over to it |

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ExecutionPhase, ShutdownSignal, ShutdownSignalWatch};
use sd_notify::NotifyState;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;

use super::server::Started;
use super::{Gateway, Shutdown};
use crate::config::{Outcome, Reloader, Settings};
use crate::json::Writer;
use crate::metrics::Metrics;
use crate::metrics::access_log::AccessLog;
use crate::metrics::admin::{self, Status};
use crate::supervise::Supervised;

/// How long listeners may take to come up.
const START: Duration = Duration::from_secs(20);
/// How long answers may take to be written out after the last request has ended or was told to end.
const FLUSH: Duration = Duration::from_secs(2);
/// How long a new process may take until it waits for the listeners.
const HAND_OVER: Duration = Duration::from_secs(30);
/// How often old snapshots are looked at.
const SWEEP: Duration = Duration::from_secs(30);

/// Old snapshots that requests may still hold. They are dropped here and not by the last request: taking 100,000 keys
/// apart takes milliseconds.
#[derive(Clone, Default)]
pub(super) struct Retired(Arc<Mutex<Vec<Arc<dyn Send + Sync>>>>);

impl Retired {
    pub(super) fn keep(&self, snapshot: Arc<dyn Send + Sync>) {
        self.0.lock().push(snapshot);
        self.sweep();
    }

    fn sweep(&self) {
        self.0.lock().retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }
}

/// Seconds since the epoch.
pub(super) fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// The admin port on a thread of its own.
pub(super) struct AdminThread {
    stop: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
}

impl AdminThread {
    pub(super) fn start(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        status: Arc<dyn Status>,
        supervised: Arc<Supervised>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _guard = runtime.enter();
            admin::bind(address)?
        };
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(async {
                let serve = || admin::serve(&listener, metrics.clone(), status.clone());
                tokio::select! {
                    () = supervised.keep_task(serve) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(AdminThread { stop: Mutex::new(Some(stop)) })
    }

    fn stop(&self) {
        if let Some(stop) = self.stop.lock().take() {
            let _ = stop.send(());
        }
    }
}

/// What the admin port says.
pub(super) struct ProcessStatus {
    pub(super) reloader: Arc<Reloader>,
    pub(super) shutdown: Arc<Shutdown>,
    pub(super) gateway: Gateway,
}

impl Status for ProcessStatus {
    fn ready(&self) -> Result<(), Cow<'static, str>> {
        match () {
            () if self.shutdown.is_draining() => Err("draining".into()),
            // The admin port is up before the listeners are.
            () if !self.shutdown.is_serving() => Err("starting".into()),
            () => self.gateway.fault().map_or(Ok(()), |fault| Err(fault.into())),
        }
    }

    fn json(&self) -> String {
        let last = self.reloader.last();
        let mut out = Vec::new();
        let mut json = Writer::new(&mut out);
        json.begin_object();
        json.key("version").string(env!("CARGO_PKG_VERSION"));
        json.key("pid").number(std::process::id());
        json.key("draining").boolean(self.shutdown.is_draining());
        json.key("requests_in_flight").number(self.shutdown.in_flight());
        json.key("generation").number(last.generation);
        json.key("models").number(last.models).key("keys").number(last.keys);
        json.key("last_reload").begin_object();
        json.key("result").string(if last.refused.is_none() { "applied" } else { "refused" });
        let at = last.at.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs());
        json.key("time").string(&crate::wire::models::rfc3339(i64::try_from(at).unwrap_or(0)));
        json.key("milliseconds").number(u64::try_from(last.took.as_millis()).unwrap_or(u64::MAX));
        json.key("problems").begin_array();
        for problem in last.refused.iter().flat_map(|report| &report.problems) {
            json.string(&problem.to_string());
        }
        json.end_array().end_object();
        json.key("targets");
        self.gateway.write_health(&mut json);
        json.key("checks");
        self.gateway.write_checks(&mut json);
        json.end_object();
        String::from_utf8(out).unwrap_or_default()
    }

    fn refresh(&self) {
        self.gateway.refresh_health();
        self.gateway.refresh_checks();
        self.gateway.refresh_threads();
    }
}

/// Listens for signals; Pingora asks it what to do.
pub(super) struct Signals {
    pub(super) settings: Settings,
    pub(super) gateway: Gateway,
    pub(super) reloader: Arc<Reloader>,
    pub(super) retired: Retired,
    pub(super) access_log: Arc<AccessLog>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) shutdown: Arc<Shutdown>,
    pub(super) admin: AdminThread,
    pub(super) upgrade: bool,
    pub(super) phases: broadcast::Receiver<ExecutionPhase>,
    pub(super) started: Mutex<Option<Started>>,
}

/// Pingora's handle on the signals.
pub(super) struct Watch(pub(super) Arc<Signals>);

#[async_trait]
impl ShutdownSignalWatch for Watch {
    async fn recv(&self) -> ShutdownSignal {
        let supervised = self.0.gateway.supervisor.add_new("signals");
        let listen = || async {
            match Streams::new() {
                Ok(streams) => self.0.listen(streams).await,
                Err(error) => {
                    tracing::error!(%error, "signals cannot be received");
                    ShutdownSignal::FastShutdown
                }
            }
        };
        supervised.keep_task(listen).await
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

impl Signals {
    async fn listen(self: &Arc<Self>, mut streams: Streams) -> ShutdownSignal {
        if !self.announce().await {
            tracing::error!("the listeners did not come up");
            return ShutdownSignal::FastShutdown;
        }
        let mut sweep = tokio::time::interval(SWEEP);
        let mut watchdog = sd_notify::watchdog_enabled().map(|period| tokio::time::interval(period / 2));
        loop {
            tokio::select! {
                _ = streams.hangup.recv() => self.reload().await,
                _ = streams.terminate.recv() => break,
                _ = streams.interrupt.recv() => break,
                _ = streams.quit.recv() => return self.hand_over(streams),
                _ = streams.user.recv() => {
                    if self.start_successor().await {
                        return self.hand_over(streams);
                    }
                }
                _ = sweep.tick() => self.retired.sweep(),
                () = tick(&mut watchdog) => notify(&[NotifyState::Watchdog]),
            }
        }
        tracing::info!(limit = ?self.settings.drain, in_flight = self.shutdown.in_flight(), "stopping");
        notify(&[NotifyState::Stopping]);
        self.shutdown.drain();
        let this = self.clone();
        tokio::spawn(async move { this.drain(streams, false).await });
        ShutdownSignal::GracefulTerminate
    }

    /// Waits until the listeners accept, then says so to whoever started the process.
    async fn announce(&self) -> bool {
        let tls = self.settings.tls.iter().map(|tls| tls.listen);
        for address in self.settings.listen.iter().copied().chain(tls) {
            let reach = async {
                while tokio::net::TcpStream::connect(reachable(address)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            if tokio::time::timeout(START, reach).await.is_err() {
                return false;
            }
        }
        self.shutdown.serve();
        if let Some(started) = self.started.lock().take() {
            started();
        }
        if self.upgrade {
            notify(&[NotifyState::MainPid(std::process::id())]);
        }
        notify(&[NotifyState::Ready]);
        true
    }

    async fn reload(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, now]);
        }
        self.access_log.reopen();
        let reloader = self.reloader.clone();
        match tokio::task::spawn_blocking(move || reloader.reload()).await {
            Ok(outcome) => self.tell(&outcome),
            Err(error) => tracing::error!(%error, "the reload failed"),
        }
        notify(&[NotifyState::Ready]);
    }

    fn tell(&self, outcome: &Outcome) {
        let result = if outcome.refused.is_none() { "applied" } else { "refused" };
        self.metrics.reloads.with_label_values(&[result]).inc();
        match &outcome.refused {
            None => {
                self.metrics.reload_time.set(unix_now());
                let Outcome { generation, models, keys, took, .. } = outcome;
                tracing::info!(generation, models, keys, ?took, "routes and keys were read again");
            }
            Some(report) => {
                for problem in &report.problems {
                    tracing::error!(%problem, "the new configuration was refused");
                }
                tracing::error!(generation = outcome.generation, "routes and keys stay as they were");
            }
        }
    }

    /// Starts the program that stands where this one was started from, and waits until it wants the listeners.
    async fn start_successor(&self) -> bool {
        let socket = &self.settings.upgrade_socket;
        let _ = std::fs::remove_file(socket);
        let mut child = match successor() {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(%error, "the new process cannot be started");
                return false;
            }
        };
        let waiting = async {
            loop {
                if socket.exists() {
                    return true;
                }
                if let Ok(Some(status)) = child.try_wait() {
                    tracing::error!(%status, "the new process ended; this one goes on");
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ready = tokio::time::timeout(HAND_OVER, waiting).await.unwrap_or(false);
        if !ready {
            let _ = child.start_kill();
        }
        // The new process outlives this one.
        std::mem::forget(child);
        ready
    }

    fn hand_over(self: &Arc<Self>, streams: Streams) -> ShutdownSignal {
        tracing::info!(in_flight = self.shutdown.in_flight(), "handing over to a new process");
        // From now on the new process answers on the admin port alone.
        self.admin.stop();
        let this = self.clone();
        tokio::spawn(async move { this.drain(streams, true).await });
        ShutdownSignal::GracefulUpgrade
    }

    /// Waits for the answers under way, and ends the process.
    async fn drain(&self, mut streams: Streams, upgrade: bool) {
        let mut phases = self.phases.resubscribe();
        // During an upgrade the old process accepts for some seconds more; nothing is over before that.
        if upgrade {
            loop {
                match phases.recv().await {
                    Ok(ExecutionPhase::ShutdownGracePeriod) | Err(broadcast::error::RecvError::Closed) => {
                        break;
                    }
                    _ => {}
                }
            }
        }
        self.shutdown.drain();
        tokio::select! {
            () = self.shutdown.idle() => {}
            () = tokio::time::sleep(self.settings.drain) => {
                tracing::warn!(in_flight = self.shutdown.in_flight(), "the drain limit is reached");
                self.shutdown.end();
                let _ = tokio::time::timeout(FLUSH, self.shutdown.idle()).await;
            }
            _ = streams.terminate.recv() => tracing::warn!("told twice to stop"),
            _ = streams.interrupt.recv() => tracing::warn!("told twice to stop"),
        }
        // HTTP/2 frames may be queued although their requests are done; connections close when they are written.
        let closed = async {
            while self.metrics.connections.get() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(250), closed).await;
        self.gateway.close().await;
        self.access_log.close();
        tracing::info!("stopped");
        crate::metrics::log::flush();
        std::process::exit(0);
    }
}

async fn tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Tells systemd; without it nobody listens, which is no error.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

fn successor() -> std::io::Result<Child> {
    let program = std::env::current_exe()?;
    // A program that was replaced is "deleted" under its old name and stands there anew.
    let program = program.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments.push("--upgrade".into());
    }
    Command::new(program).args(arguments).spawn()
}

/// An address at which a listener can be reached from here.
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
