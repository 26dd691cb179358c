//! Admin port on a thread of its own, and the running gateway as it sees it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::listener_service::ListenerHandle;
use super::open::{self, StoreAddress};
use super::playground;
use super::signals::{RetiredSnapshots, report_reload, unix_now};
use super::tls::TlsEndpoints;
use crate::Gateway;
use crate::Shutdown;
use admin::{
    self, AdminApi, AdminListener, ExplainRequest, Explanation, GatewayControl, LimitUse, PlaygroundPart,
    PlaygroundRequest, ProviderCheck,
};
use config::{ReloadOutcome, Reloader, StoreSettings};
use json::Writer;
use observe::metrics::Metrics;
use routing::limits::{Calendar, LimitState, Scope, UsageLimits};
use routing::route::Nanos;
use routing::snapshot::Snapshot;
use storage::ledger::admin::LedgerAdmin;
use sync::supervise::Supervised;

/// Admin port on a thread of its own.
pub(crate) struct AdminThread {
    api: Arc<AdminApi>,
    stop: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
}

/// Where the admin port is served.
pub(crate) struct AdminPort<'p> {
    pub(crate) address: SocketAddr,
    /// Unix socket. `None` if none is configured.
    pub(crate) socket: Option<&'p Path>,
    /// Whether a running process serves them until this one takes over.
    pub(crate) takes_over: bool,
}

impl AdminThread {
    pub(crate) fn start(
        port: AdminPort<'_>,
        metrics: Arc<Metrics>,
        api: Arc<AdminApi>,
        supervised: Arc<Supervised>,
    ) -> std::io::Result<Self> {
        // A runtime of its own: the admin port responds even if every worker is busy.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(admin::BLOCKING_THREADS)
            .thread_name("admin-work")
            .build()?;
        let listener = {
            let _guard = runtime.enter();
            // First the address: who has it, has the socket of the same configuration, too.
            let tcp = admin::bind(port.address, port.takes_over)?;
            let socket = port.socket.map(|path| admin::bind_socket(path, port.takes_over)).transpose()?;
            AdminListener { tcp, socket }
        };
        api.recover_audit();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let served = api.clone();
        std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(async {
                let serve = || admin::serve(&listener, metrics.clone(), served.clone());
                tokio::select! {
                    () = supervised.run_task_supervised(serve) => {}
                    _ = stopped => {}
                }
            });
            // An operation that still runs must not hold the thread.
            runtime.shutdown_background();
        })?;
        Ok(AdminThread { api, stop: Mutex::new(Some(stop)) })
    }

    /// Returns the admin API.
    pub(crate) fn api(&self) -> &Arc<AdminApi> {
        &self.api
    }

    pub(crate) fn stop(&self) {
        if let Some(stop) = self.stop.lock().take() {
            let _ = stop.send(());
        }
    }
}

/// The running gateway, for the admin port.
pub(crate) struct ProcessControl {
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) gateway: Gateway,
    pub(crate) retired: RetiredSnapshots,
    pub(crate) store: StoreSettings,
    /// Its runtime runs the requests of the playground.
    pub(crate) listeners: Arc<ListenerHandle>,
    pub(crate) store_address: StoreAddress,
    pub(crate) tls: Arc<TlsEndpoints>,
}

/// Returns limits with what a state has used of them.
fn limit_use(
    limits: UsageLimits,
    state: &LimitState,
    account: Option<String>,
    (now, calendar): (Nanos, &Calendar),
) -> LimitUse {
    let (requests, tokens) = state.remaining(&limits, now);
    let spent = state.spent(calendar).filter(|_| !state.needs_spend());
    let oversized = state.oversized();
    LimitUse { limits, account, requests, tokens, in_flight: state.in_flight(), spent, oversized }
}

impl GatewayControl for ProcessControl {
    fn ready(&self) -> Result<(), Cow<'static, str>> {
        match () {
            () if self.shutdown.is_stopping() => Err("draining".into()),
            // The admin port is up before the listeners are.
            () if !self.shutdown.is_serving() => Err("starting".into()),
            () => self.gateway.readiness_fault().map_or(Ok(()), |fault| Err(fault.into())),
        }
    }

    fn status_json(&self) -> String {
        let last = self.reloader.last();
        let mut out = Vec::new();
        let mut json = Writer::new(&mut out);
        json.begin_object();
        json.key("version").string(observe::VERSION);
        json.key("pid").number(std::process::id());
        json.key("draining").boolean(self.shutdown.is_stopping());
        json.key("requests_in_flight").number(self.shutdown.in_flight());
        json.key("generation").number(last.generation);
        json.key("models").number(last.models).key("keys").number(last.keys);
        json.key("keys_at_this_gateway_only").boolean(matches!(self.store, StoreSettings::Valkey(_)));
        json.key("last_reload").begin_object();
        json.key("result").string(if last.is_applied() { "applied" } else { "refused" });
        let at = last.at.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs());
        json.key("time").string(&codec::canonical::time::rfc3339(i64::try_from(at).unwrap_or(0)));
        json.key("milliseconds").number(u64::try_from(last.took.as_millis()).unwrap_or(u64::MAX));
        json.key("problems").begin_array();
        for problem in last.faults() {
            json.string(&problem.to_string());
        }
        json.end_array().end_object();
        json.key("certificates").begin_array();
        for endpoint in self.tls.iter() {
            let state = endpoint.state();
            json.begin_object();
            json.key("listen").string(&endpoint.listen().to_string());
            json.key("not_after").string(&codec::canonical::time::rfc3339(state.validity.not_after));
            if let Some(fault) = &state.fault {
                json.key("refused").string(fault);
            }
            json.end_object();
        }
        json.end_array();
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

    fn is_draining(&self) -> bool {
        self.shutdown.is_stopping()
    }

    fn in_flight(&self) -> usize {
        self.shutdown.in_flight()
    }

    fn with_snapshot(&self, look: &mut dyn FnMut(&Snapshot, Nanos)) {
        let live = self.gateway.live.load_full();
        let now = live.billing.nanos(Instant::now());
        look(&live.snapshot, now);
    }

    fn last_check(&self, provider: &str) -> Option<ProviderCheck> {
        self.gateway.last_check(provider)
    }

    fn limits_in_use(&self, scope: Scope, name: &str) -> Option<LimitUse> {
        let live = self.gateway.live.load_full();
        let registry = &live.billing.limit_states;
        let (limits, state, account) = match scope {
            Scope::Key => {
                let key = live.snapshot.keys.iter().find(|key| *key.name == *name)?;
                let account = key.account.as_ref().map(|account| account.name.to_string());
                (key.rules.limits, key.limit_state(registry).clone(), account)
            }
            Scope::Account => {
                let account = live.snapshot.keys.account(name)?;
                (*account.limits(), account.limit_state(registry).clone(), None)
            }
        };
        let now = live.billing.nanos(Instant::now());
        Some(limit_use(limits, &state, account, (now, &Calendar::at(unix_now()))))
    }

    fn each_limit_in_use(&self, visit: &mut dyn FnMut(Scope, &str, LimitUse)) {
        let live = self.gateway.live.load_full();
        let registry = &live.billing.limit_states;
        let (now, calendar) = (live.billing.nanos(Instant::now()), Calendar::at(unix_now()));
        let at = (now, &calendar);
        // A look at an unused key must not make a state for it: there may be a million of them.
        let unused = if registry.are_shared() { LimitState::shared() } else { LimitState::new() };
        let keys = &live.snapshot.keys;
        for key in keys.iter().filter(|key| !key.rules.limits.is_empty()) {
            let state = registry.find(Scope::Key, &key.name);
            let account = key.account.as_ref().map(|account| account.name.to_string());
            let state = state.as_deref().unwrap_or(&unused);
            visit(Scope::Key, &key.name, limit_use(key.rules.limits, state, account, at));
        }
        for account in keys.accounts().filter(|account| !account.limits().is_empty()) {
            let state = registry.find(Scope::Account, &account.name);
            let state = state.as_deref().unwrap_or(&unused);
            visit(Scope::Account, &account.name, limit_use(*account.limits(), state, None, at));
        }
    }

    fn set_drained(&self, provider: &str, model: &str, drained: bool) -> bool {
        match self.gateway.set_drained(provider, model, drained) {
            Some(before) => {
                self.retired.push(before);
                true
            }
            None => false,
        }
    }

    fn explain(&self, request: &ExplainRequest<'_>) -> Option<Explanation> {
        self.gateway.explain(request)
    }

    fn submit(&self, request: PlaygroundRequest) -> Result<mpsc::Receiver<PlaygroundPart>, &'static str> {
        let runtime = self.listeners.runtime().ok_or("requests are not served yet")?;
        Ok(playground::submit(&self.gateway, runtime, request))
    }

    fn report_reload(&self, outcome: &ReloadOutcome) {
        report_reload(&self.gateway.metrics, outcome);
    }

    fn open_ledger(&self) -> Result<Box<dyn LedgerAdmin + Send>, String> {
        open::ledger_admin(&self.store, &self.store_address)
    }
}
