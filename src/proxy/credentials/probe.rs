//! Check of credentials: each is requested once, without a running gateway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pingora::connectors::ConnectorOptions;

use super::handle::CredentialHandle;
use crate::client::UpstreamClient;
use crate::server::{ServeError, roots};
use config::Limits;
use driver::body_memory::BodyMemory;
use driver::connection::Connections;
use driver::dns::Resolver;
use observe::metrics::Metrics;
use routing::snapshot::Snapshot;

/// Result of the check of one provider's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialReport {
    /// Name of the provider.
    pub provider: String,
    /// Source in words.
    pub source: &'static str,
    /// Remaining life of the credential, `None` if it is not known or does not end; or what is wrong, without secrets.
    pub outcome: Result<Option<Duration>, String>,
}

/// Requests the short-lived credential of each provider once.
///
/// # Errors
/// Returns [`ServeError`] if the process cannot open connections at all.
pub fn check_credentials(snapshot: &Snapshot, limits: &Limits) -> Result<Vec<CredentialReport>, ServeError> {
    let providers = snapshot.routes.providers();
    let handles: Vec<CredentialHandle> =
        providers.iter().filter_map(|provider| CredentialHandle::new(provider)).collect();
    if handles.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |source: io::Error| ServeError::Io { what: "runtime".to_owned(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let mut options = ConnectorOptions::new(limits.pool);
    options.ca_file = roots::file()?;
    runtime.block_on(async {
        let client = UpstreamClient::new(
            Arc::new(Connections::new(options, limits.pool_idle)),
            Resolver::new()?,
            limits.clone(),
            BodyMemory::new(limits.memory),
            Arc::new(Metrics::new()?),
        );
        let mut reports = Vec::with_capacity(handles.len());
        for handle in &handles {
            reports.push(check(handle, &client).await);
        }
        Ok(reports)
    })
}

async fn check(handle: &CredentialHandle, client: &UpstreamClient) -> CredentialReport {
    let source = &*handle.access().source;
    let requested = handle.begin();
    let outcome = match client.issue(source, &handle.skew).await {
        Ok((grant, server)) => handle.accept(grant, requested, server),
        Err(error) => Err(error),
    };
    CredentialReport {
        provider: handle.provider.to_string(),
        source: source.name(),
        outcome: outcome.map_err(|error| error.to_string()),
    }
}
