//! Health checks: a background task probes each provider that has a check configured, one probe at a time, over the
//! same connections as its requests.
//!
//! `route` evaluates the results. They are reported on the admin port and as metrics.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use http::HeaderValue;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinHandle;

use super::call::{malformed_response, to_get, upstream_error};
use super::probe_results::{LastProbe, ProbeResult};
use super::send::{CallLog, RequestDestination, UpstreamRequest};
use crate::Gateway;
use crate::gateway::active_snapshot::ActiveSnapshot;
use crate::gateway::provider_addresses::ProviderAddresses;
use crate::gateway::request_id::RequestId;
use crate::upstream_route::{address_of, template};
use admin::ProviderCheck;
use codec::error::ApiError;
use codec::provider::{Check, Provider, Timeouts};
use codec::wire::Api;
use driver::names;
use driver::outcome::timeout_error;
use json::Writer;
use routing::route::check::{ProbeChange, ProbeOutcome, ProbeState};
use sync::supervise::Supervised;

/// Longest response body that is read to its end so that its connection can be reused, in bytes. The connection of a
/// longer one is closed.
const MAX_BODY: usize = 1 << 20;
/// Longest delay of the first check of a provider. It is random, so that the checks do not coincide.
const MAX_FIRST_DELAY: Duration = Duration::from_secs(1);

/// Background service that runs the health checks.
pub(crate) struct Probes(pub(crate) Gateway);

#[async_trait]
impl BackgroundService for Probes {
    async fn start(&self, shutdown: ShutdownWatch) {
        let supervised = self.0.supervisor.add_new("checks");
        let run = || async {
            let (mut shutdown, mut reloads) = (shutdown.clone(), self.0.reloads.subscribe());
            let mut runners = Vec::new();
            loop {
                // Before the snapshot is read: a reload between the two must wake this task again.
                reloads.mark_unchanged();
                self.0.sync_runners(&mut runners, &supervised);
                tokio::select! {
                    _ = shutdown.changed() => return,
                    changed = reloads.changed() => if changed.is_err() { return },
                }
            }
        };
        supervised.run_task_supervised(run).await;
    }
}

/// Task that checks one provider; aborted on drop.
struct Runner {
    provider: Arc<Provider>,
    task: JoinHandle<()>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        // A dropped handle only detaches its task: the check of a removed provider would continue.
        self.task.abort();
    }
}

/// Whether a reload left everything unchanged that a check depends on, so that its task can continue.
fn has_same_check(one: &Provider, other: &Provider) -> bool {
    one.is_same_way(other)
        && one.check == other.check
        && one.apis.first() == other.apis.first()
        && one.api_version == other.api_version
        && one.http == other.http
        && one.headers == other.headers
        && one.roots == other.roots
}

/// Returns a random part of a time span, uniformly distributed.
fn jitter(span: Duration) -> Duration {
    let point = rand::Rng::next_u64(&mut rand::rng());
    let nanos = (u128::from(point) * span.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl Gateway {
    /// Starts and stops check tasks according to the active snapshot.
    fn sync_runners(&self, runners: &mut Vec<Runner>, supervised: &Arc<Supervised>) {
        let live = self.live.load();
        let providers = live.snapshot.routes.providers();
        let wanted = || providers.iter().filter(|provider| provider.check.is_some());
        runners.retain(|runner| wanted().any(|provider| has_same_check(&runner.provider, provider)));
        self.probe_results.retain(|name| runners.iter().any(|runner| *runner.provider.name == *name));
        for provider in wanted() {
            if runners.iter().all(|runner| runner.provider.name != provider.name) {
                let (gateway, name, supervised) = (self.clone(), provider.name.clone(), supervised.clone());
                let result = self.probe_results.add(&name);
                let task = tokio::spawn(async move {
                    let run = || gateway.clone().run_checks(name.clone(), result.clone());
                    supervised.run_task_supervised(run).await;
                });
                runners.push(Runner { provider: provider.clone(), task });
            }
        }
    }

    /// Checks a provider periodically, until the task is aborted or the provider is no longer configured.
    async fn run_checks(self, name: Box<str>, result: Arc<ProbeResult>) {
        let mut checked = ProbeState::default();
        let mut rest = MAX_FIRST_DELAY;
        loop {
            tokio::time::sleep(jitter(rest)).await;
            // Every reload makes new addresses: take those of the active snapshot.
            let live = self.live.load_full();
            let Some(link) = live.addresses_by_name(&name) else { return };
            let Some(check) = &link.provider().check else { return };
            let (outcome, status) = self.probe(link, check).await;
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let time = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            result.set(LastProbe { outcome, status, time });
            self.record_probe(&live, link.provider(), outcome, &mut checked);
            let every = check.every;
            // Not held while it sleeps: it would keep the snapshot from before a reload in memory.
            drop(live);
            // A period lasts nine tenths of `every` to all of it: checks that started together spread out.
            rest = every / 10;
            tokio::time::sleep(every - rest).await;
        }
    }

    /// Checks a provider once, within `check.timeout`. Returns the outcome and the HTTP status, if a response arrived.
    async fn probe(&self, link: &ProviderAddresses, check: &Check) -> (ProbeOutcome, Option<u16>) {
        let mut notes = CallLog::default();
        let asked = tokio::time::timeout(check.timeout, self.send_probe(link, check, &mut notes)).await;
        let outcome = match asked.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(()) => ProbeOutcome::Healthy,
            Err(error) => {
                let (provider, detail) = (&*link.provider().name, notes.detail.as_deref());
                tracing::debug!(%error, provider, detail, "a health check of a provider failed");
                ProbeOutcome::of(&error, notes.status)
            }
        };
        (outcome, notes.status)
    }

    async fn send_probe(
        &self,
        link: &ProviderAddresses,
        check: &Check,
        notes: &mut CallLog,
    ) -> Result<(), ApiError> {
        let provider = link.provider();
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers = template(provider, provider.apis.first().copied().unwrap_or(Api::Chat));
        parts.uri = address_of(provider, provider.check_path(check)).ok_or_else(malformed_response)?;
        to_get(&mut parts);
        if let Ok(id) = HeaderValue::from_bytes(RequestId::choose(None).as_bytes()) {
            parts.headers.insert(names::X_REQUEST_ID, id);
        }
        let until = tokio::time::Instant::now() + check.timeout;
        let timeouts = Timeouts { first_byte: check.timeout, idle: check.timeout, ..provider.timeouts };
        let request = UpstreamRequest {
            destination: RequestDestination::Provider(link),
            series: None,
            parts,
            body: None,
            timeouts,
            until,
            repeatable: true,
        };
        let response = self.upstream_client.call(&request, notes).await?;
        let (status, retry_after) = (response.status, response.retry_after());
        // The head decides the outcome. An incomplete body only prevents the reuse of the connection.
        let collected = response.collect_body(MAX_BODY, None, &mut CallLog::default()).await;
        if status < 400 {
            return Ok(());
        }
        let body = collected.map(|response| response.body).unwrap_or_default();
        Err(upstream_error(Some(provider), status, retry_after, &body, notes))
    }

    /// Records the result of a check in metrics and in the provider's breaker, and logs a change of state.
    fn record_probe(
        &self,
        live: &ActiveSnapshot,
        provider: &Arc<Provider>,
        outcome: ProbeOutcome,
        checked: &mut ProbeState,
    ) {
        let name = &*provider.name;
        self.metrics.provider_checks.with_label_values(&[name, outcome.label()]).inc();
        let models = live.snapshot.routes.models().iter();
        // All targets of a provider share its breaker: any of them leads to it.
        let mut targets = models.flat_map(|model| model.targets.iter().map(move |target| (model, target)));
        let Some((model, target)) = targets.find(|(_, target)| Arc::ptr_eq(&target.provider, provider))
        else {
            return;
        };
        let now = live.billing.nanos(Instant::now());
        let point = rand::Rng::next_u64(&mut rand::rng());
        let breaker = &target.handle.state.provider_breaker;
        let news = checked.apply(outcome, breaker, now, &model.routing.breaker, point);
        let reason = match news {
            ProbeChange::Unchanged => return,
            ProbeChange::Closed => {
                tracing::info!(provider = name, "the provider is healthy again: its targets can be selected");
                return;
            }
            ProbeChange::Opened => "provider",
            ProbeChange::Credential => "credential",
        };
        self.metrics.targets_opened.with_label_values(&[name, "", reason]).inc();
        if news == ProbeChange::Credential {
            tracing::error!(
                provider = name,
                "the provider rejects the gateway's credential: its breaker is open; check `credential`"
            );
        } else {
            let kind = outcome.label();
            tracing::warn!(provider = name, kind, "the breaker is open after too many failed health checks");
        }
    }

    fn each_check(&self, mut each: impl FnMut(&str, &LastProbe)) {
        let live = self.live.load();
        for provider in live.snapshot.routes.providers() {
            if let Some(last) = self.probe_results.last(&provider.name) {
                each(&provider.name, &last);
            }
        }
    }

    /// Updates the metrics of the last checks.
    pub(crate) fn refresh_checks(&self) {
        // Remove the series of providers that are no longer configured.
        self.metrics.provider_well.reset();
        self.each_check(|name, last| {
            let well = last.outcome == ProbeOutcome::Healthy;
            self.metrics.provider_well.with_label_values(&[name]).set(i64::from(well));
        });
    }

    /// Writes the last check of each checked provider as JSON.
    pub(crate) fn write_checks(&self, json: &mut Writer<'_, Vec<u8>>) {
        json.begin_array();
        self.each_check(|name, last| {
            json.begin_object();
            json.key("provider").string(name);
            json.key("result").string(last.outcome.label());
            if let Some(status) = last.status {
                json.key("status").number(status);
            }
            json.key("time").string(&codec::canonical::time::rfc3339(last.time));
            json.end_object();
        });
        json.end_array();
    }

    /// Returns the last health check of a provider; `None` if it is not checked, or was not yet.
    pub(crate) fn last_check(&self, provider: &str) -> Option<ProviderCheck> {
        let last = self.probe_results.last(provider)?;
        Some(ProviderCheck { outcome: last.outcome.label(), status: last.status, time: last.time })
    }
}
