//! Renewer: a background task for each credential, which exchanges it with the token server before it ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinHandle;

use super::handle::CredentialHandle;
use crate::Gateway;
use crate::client::UpstreamClient;
use cloud::renewal::Standing;
use cloud::token::TokenError;
use observe::metrics::Metrics;
use sync::supervise::Supervised;

/// Longest exchange with a token server, over all its steps. It is far below the time by which a renewal leads the end.
const MAX_EXCHANGE: Duration = Duration::from_secs(60);

/// Background service that renews the credentials of providers.
pub(crate) struct CredentialRenewer(pub(crate) Gateway);

#[async_trait]
impl BackgroundService for CredentialRenewer {
    async fn start(&self, shutdown: ShutdownWatch) {
        let supervised = self.0.supervisor.add_new("credentials");
        let run = || async {
            let (mut shutdown, mut reloads) = (shutdown.clone(), self.0.reloads.subscribe());
            let mut tasks = Vec::new();
            loop {
                // Before the snapshot is read: a reload between the two must wake this task again.
                reloads.mark_unchanged();
                self.0.sync_renewals(&mut tasks, &supervised);
                tokio::select! {
                    // Requests in progress may still need a credential: the runtime ends this task with the process.
                    _ = shutdown.changed() => std::future::pending().await,
                    changed = reloads.changed() => if changed.is_err() { return },
                }
            }
        };
        supervised.run_task_supervised(run).await;
    }
}

/// Task that renews one credential; aborted on drop.
struct RenewalTask {
    handle: Arc<CredentialHandle>,
    task: JoinHandle<()>,
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        // A dropped task handle only detaches its task: the credential of a removed provider would be renewed on.
        self.task.abort();
    }
}

impl Gateway {
    /// Starts and stops renewal tasks according to the active snapshot.
    fn sync_renewals(&self, tasks: &mut Vec<RenewalTask>, supervised: &Arc<Supervised>) {
        let live = self.live.load();
        let wanted: Vec<&Arc<CredentialHandle>> = live.credentials().collect();
        for provider in live.snapshot.routes.providers().iter().filter(|provider| provider.cloud.is_none()) {
            // A fixed credential that states its end: nothing renews it, and the alert is all that announces the end.
            match provider.credential_end {
                Some(end) => {
                    let series = self.metrics.credential_end.with_label_values(&[&*provider.name]);
                    // Once, and not with each reload.
                    if series.get() != end
                        && let Some(warning) = provider.end_of_credential(unix_now())
                    {
                        tracing::warn!(provider = &*provider.name, "{warning}");
                    }
                    series.set(end);
                }
                // An error means that there was no such series.
                None => _ = self.metrics.credential_end.remove_label_values(&[&*provider.name]),
            }
        }
        tasks.retain(|task| {
            let stays = wanted.iter().any(|handle| Arc::ptr_eq(handle, &task.handle));
            if !stays && wanted.iter().all(|handle| handle.provider != task.handle.provider) {
                // An error means that there was no such series.
                let _ = self.metrics.credential_end.remove_label_values(&[&task.handle.provider]);
            }
            stays
        });
        for handle in wanted {
            if tasks.iter().any(|task| Arc::ptr_eq(handle, &task.handle)) {
                continue;
            }
            let (gateway, own, supervised) = (self.clone(), handle.clone(), supervised.clone());
            let task = tokio::spawn(async move {
                let run = || run_renewals(own.clone(), &gateway.upstream_client, &gateway.metrics);
                supervised.run_task_supervised(run).await;
            });
            tasks.push(RenewalTask { handle: handle.clone(), task });
        }
    }
}

/// Renews a credential whenever it is due, until the task is aborted.
async fn run_renewals(handle: Arc<CredentialHandle>, client: &UpstreamClient, metrics: &Metrics) {
    loop {
        // Created before the look at the schedule: a wake-up in between is not lost.
        let woken = handle.wake.notified();
        match handle.until_due() {
            Some(Duration::ZERO) => renew(&handle, client, metrics).await,
            Some(rest) => {
                let _ = tokio::time::timeout(rest, woken).await;
            }
            None => woken.await,
        }
    }
}

/// Exchanges a credential once.
pub(super) async fn renew(handle: &CredentialHandle, client: &UpstreamClient, metrics: &Metrics) {
    let requested = handle.begin();
    let source = &*handle.access().source;
    let exchanged = tokio::time::timeout(MAX_EXCHANGE, client.issue(source, &handle.skew)).await;
    let exchanged = exchanged.unwrap_or_else(|_| {
        let reason = format!("no credential within {} s", MAX_EXCHANGE.as_secs());
        Err(TokenError::Unreachable { server: "the token server", reason })
    });
    let accepted = exchanged.and_then(|(grant, server)| handle.accept(grant, requested, server));
    let provider = &*handle.provider;
    let outcome = accepted.as_ref().map_or_else(TokenError::label, |_| "issued");
    metrics.credential_renewals.with_label_values(&[provider, outcome]).inc();
    match accepted {
        Ok(life) => {
            let end =
                life.map_or(0, |life| unix_now().saturating_add(i64::try_from(life.as_secs()).unwrap_or(0)));
            metrics.credential_end.with_label_values(&[provider]).set(end);
            tracing::info!(
                provider,
                source = source.name(),
                life_seconds = life.map(|life| life.as_secs()),
                "a credential was issued"
            );
        }
        Err(error) => {
            let source = source.name();
            match handle.fail(&error) {
                Standing::Valid => {
                    tracing::warn!(provider, source, %error, "no new credential was issued; the present one is used on");
                }
                Standing::Outlived => {
                    tracing::error!(provider, source, %error, "the credential has expired and is used on, because none was issued");
                }
                Standing::Missing | Standing::Expired => {
                    tracing::error!(provider, source, %error, "there is no valid credential, and none was issued");
                }
            }
        }
    }
}

/// Returns the Unix time, in seconds.
pub(crate) fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
