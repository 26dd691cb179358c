//! The gateway's own requests, outside of an exchange: calls of jobs and tasks, health checks, and downloads of remote
//! media.
//!
//! `send` sends one request on the driver's connections, and `body` reads its response: the only code here that
//! touches a connection. What a result or an error means is decided on top of them: by `call` for providers, by `fetch`
//! for remote media, by `issue` for token servers, and by `check` for health checks.
//!
//! Must not live here: the requests and responses of clients (`gateway`), and what the calls are for (`endpoints`).

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod fetch;
pub(crate) mod issue;
pub(crate) mod probe_results;
pub(crate) mod send;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::Semaphore;

use config::Limits;
use driver::body_memory::BodyMemory;
use driver::connection::Connections;
use driver::dns::Resolver;
use observe::metrics::Metrics;

/// Client for the gateway's own requests to providers and to the hosts of remote media.
pub(crate) struct UpstreamClient {
    connections: Arc<Connections>,
    resolver: Resolver,
    limits: Limits,
    memory: BodyMemory,
    metrics: Arc<Metrics>,
    /// Permits of concurrent downloads of remote media (`limits.fetches`).
    fetches: Arc<Semaphore>,
}

impl UpstreamClient {
    /// Creates a client that shares connections, resolver and memory budget with the exchanges.
    pub(crate) fn new(
        connections: Arc<Connections>,
        resolver: Resolver,
        limits: Limits,
        memory: BodyMemory,
        metrics: Arc<Metrics>,
    ) -> Self {
        let fetches = Arc::new(Semaphore::new(limits.fetches.min(Semaphore::MAX_PERMITS)));
        UpstreamClient { connections, resolver, limits, memory, metrics, fetches }
    }
}
