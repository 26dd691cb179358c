//! Asks providers how they are, those that are to be asked: one call at a time for each, on the way of its requests.
//!
//! What follows from an answer is decided in `route`; what is said of it stands on the admin port and in the series.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use http::HeaderValue;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinHandle;

use super::active_snapshot::ActiveSnapshot;
use super::call::{CallLog, CallRequest, refused, to_look};
use super::context::RequestId;
use super::peer::ProviderAddresses;
use super::upstream_route::{address_of, template};
use super::{Gateway, names};
use crate::error::ApiError;
use crate::json::Writer;
use crate::provider::{Check, Provider, Timeouts};
use crate::route::check::{ProbeChange, ProbeOutcome, ProbeState};
use crate::supervise::Supervised;
use crate::wire::Api;

/// Of an answer so much is read, so that its connection can be used again; a longer one has said enough.
const MOST: usize = 1 << 20;
/// The first check of a provider comes within this time, so that not all come at once.
const FIRST: Duration = Duration::from_secs(1);

/// Looks after the providers that are to be checked.
pub(super) struct Probes(pub(super) Gateway);

#[async_trait]
impl BackgroundService for Probes {
    async fn start(&self, shutdown: ShutdownWatch) {
        let supervised = self.0.supervisor.add_new("checks");
        let run = || async {
            let (mut shutdown, mut reloads) = (shutdown.clone(), self.0.reloads.subscribe());
            let mut runners = Vec::new();
            loop {
                reloads.mark_unchanged();
                self.0.appoint(&mut runners, &supervised);
                tokio::select! {
                    _ = shutdown.changed() => return,
                    changed = reloads.changed() => if changed.is_err() { return },
                }
            }
        };
        supervised.keep_task(run).await;
    }
}

/// What asks one provider, until it is dropped.
struct Runner {
    provider: Arc<Provider>,
    task: JoinHandle<()>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Results of the last health check of each provider.
#[derive(Debug, Default)]
pub(super) struct ProbeResults(Mutex<HashMap<Box<str>, LastProbe>>);

#[derive(Clone, Copy, Debug)]
struct LastProbe {
    outcome: ProbeOutcome,
    status: Option<u16>,
    /// Unix seconds.
    time: i64,
}

/// Whether a provider is asked in the same way as before, so that a reload need not ask it anew.
fn is_asked_alike(one: &Provider, other: &Provider) -> bool {
    one.is_same_way(other)
        && one.check == other.check
        && one.apis.first() == other.apis.first()
        && one.api_version == other.api_version
        && one.http == other.http
        && one.headers == other.headers
        && one.roots == other.roots
}

/// A random part of a time.
fn part(span: Duration) -> Duration {
    let point = rand::Rng::next_u64(&mut rand::rng());
    let nanos = (u128::from(point) * span.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl Gateway {
    /// Sees to it that those providers are asked that are to be.
    fn appoint(&self, runners: &mut Vec<Runner>, supervised: &Arc<Supervised>) {
        let live = self.live.load();
        let providers = live.snapshot.routes.providers();
        let wanted = || providers.iter().filter(|provider| provider.check.is_some());
        runners.retain(|runner| wanted().any(|provider| is_asked_alike(&runner.provider, provider)));
        self.checked.0.lock().retain(|name, _| runners.iter().any(|runner| runner.provider.name == *name));
        for provider in wanted() {
            if runners.iter().all(|runner| runner.provider.name != provider.name) {
                let (gateway, name, supervised) = (self.clone(), provider.name.clone(), supervised.clone());
                let task = tokio::spawn(async move {
                    supervised.keep_task(|| gateway.clone().check_on(name.clone())).await;
                });
                runners.push(Runner { provider: provider.clone(), task });
            }
        }
    }

    /// Asks a provider again and again, until the caller ends it or it is not there any more.
    async fn check_on(self, name: Box<str>) {
        let mut checked = ProbeState::default();
        let mut rest = FIRST;
        loop {
            tokio::time::sleep(part(rest)).await;
            // The way to a provider is a new one with every reload.
            let live = self.live.load_full();
            let Some(link) = live.link_to(&name) else { return };
            let Some(check) = &link.provider().check else { return };
            let (outcome, status) = self.look_at(link, check).await;
            self.take_note(&live, link.provider(), outcome, status, &mut checked);
            let every = check.every;
            drop(live);
            // Between nine tenths of the time and all of it: who began at once does not stay together.
            rest = every / 10;
            tokio::time::sleep(every - rest).await;
        }
    }

    /// Asks a provider once.
    async fn look_at(&self, link: &ProviderAddresses, check: &Check) -> (ProbeOutcome, Option<u16>) {
        let mut notes = CallLog::default();
        let asked = tokio::time::timeout(check.timeout, self.ask_how_it_is(link, check, &mut notes)).await;
        let outcome = match asked.unwrap_or_else(|_| Err(super::exchange::silent())) {
            Ok(()) => ProbeOutcome::Well,
            Err(error) => {
                let (provider, detail) = (&*link.provider().name, notes.detail.as_deref());
                tracing::debug!(%error, provider, detail, "a check of a provider did not go well");
                ProbeOutcome::of(&error, notes.status)
            }
        };
        (outcome, notes.status)
    }

    async fn ask_how_it_is(
        &self,
        link: &ProviderAddresses,
        check: &Check,
        notes: &mut CallLog,
    ) -> Result<(), ApiError> {
        let provider = link.provider();
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers = template(provider, provider.apis.first().copied().unwrap_or(Api::Chat));
        parts.uri = address_of(provider, provider.check_path(check)).ok_or_else(super::call::broken)?;
        to_look(&mut parts);
        if let Ok(id) = HeaderValue::from_bytes(RequestId::choose(None).as_bytes()) {
            parts.headers.insert(names::X_REQUEST_ID, id);
        }
        let until = tokio::time::Instant::now() + check.timeout;
        let timeouts = Timeouts { first_byte: check.timeout, idle: check.timeout, ..provider.timeouts };
        let ask = CallRequest { link, series: None, parts, body: None, timeouts, until, repeatable: true };
        let mut reached = self.ask_provider(&ask, notes).await?;
        let (status, retry_after) = (reached.status, reached.retry_after());
        // That its head came is what counts; without its end the connection is closed.
        let heard = reached.hear(MOST, None, &mut CallLog::default()).await;
        self.read_out(reached);
        if status < 400 {
            return Ok(());
        }
        let body = heard.map(|heard| heard.body).unwrap_or_default();
        Err(refused(Some(provider), status, retry_after, &body, notes))
    }

    /// Takes over what a check says of a provider, and says what has changed.
    fn take_note(
        &self,
        live: &ActiveSnapshot,
        provider: &Arc<Provider>,
        outcome: ProbeOutcome,
        status: Option<u16>,
        checked: &mut ProbeState,
    ) {
        let name = &*provider.name;
        self.metrics.provider_checks.with_label_values(&[name, outcome.label()]).inc();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        self.checked.0.lock().insert(name.into(), LastProbe { outcome, status, time });
        let models = live.snapshot.routes.models().iter();
        let mut targets = models.flat_map(|model| model.targets.iter().map(move |target| (model, target)));
        let Some((model, target)) = targets.find(|(_, target)| Arc::ptr_eq(&target.provider, provider))
        else {
            return;
        };
        let now = live.billing.nanos(Instant::now());
        let point = rand::Rng::next_u64(&mut rand::rng());
        let breaker = &target.seat.state.provider_breaker;
        let news = checked.take(outcome, breaker, now, &model.routing.breaker, point);
        let reason = match news {
            ProbeChange::Nothing => return,
            ProbeChange::Back => {
                tracing::info!(provider = name, "the provider answers again: its targets may be asked");
                return;
            }
            ProbeChange::Gone => "provider",
            ProbeChange::Credential => "credential",
        };
        self.metrics.targets_opened.with_label_values(&[name, "", reason]).inc();
        if news == ProbeChange::Credential {
            tracing::error!(
                provider = name,
                "the provider refuses the gateway's credential: it is left alone"
            );
        } else {
            let kind = outcome.label();
            tracing::warn!(provider = name, kind, "left alone after too many checks that did not go well");
        }
    }

    fn each_check(&self, mut each: impl FnMut(&str, &LastProbe)) {
        let live = self.live.load();
        let board = self.checked.0.lock();
        for provider in live.snapshot.routes.providers() {
            if let Some(last) = board.get(&provider.name) {
                each(&provider.name, last);
            }
        }
    }

    /// Sets the series of the last checks.
    pub(super) fn refresh_checks(&self) {
        // Providers that are gone leave nothing behind.
        self.metrics.provider_well.reset();
        self.each_check(|name, last| {
            let well = last.outcome == ProbeOutcome::Well;
            self.metrics.provider_well.with_label_values(&[name]).set(i64::from(well));
        });
    }

    /// Writes the last checks of all providers that are checked.
    pub(super) fn write_checks(&self, json: &mut Writer<'_, Vec<u8>>) {
        json.begin_array();
        self.each_check(|name, last| {
            json.begin_object();
            json.key("provider").string(name);
            json.key("result").string(last.outcome.label());
            if let Some(status) = last.status {
                json.key("status").number(status);
            }
            json.key("time").string(&crate::wire::models::rfc3339(last.time));
            json.end_object();
        });
        json.end_array();
    }
}
