//! The gateway's own requests, outside of an exchange: calls of jobs and tasks, health checks, and downloads of remote
//! media.
//!
//! `send` sends one request on the driver's connections, and `body` reads its response: the only code here that
//! touches a connection. What a result or an error means is decided on top of them: by `call` for providers, by `fetch`
//! for remote media, by `issue` for token servers, and by `check` for health checks.
//!
//! Must not live here: the requests and responses of clients (`gateway`), and what the calls are for (`endpoints`).

pub(in crate::proxy) mod body;
pub(in crate::proxy) mod call;
pub(in crate::proxy) mod check;
pub(in crate::proxy) mod fetch;
pub(in crate::proxy) mod issue;
pub(in crate::proxy) mod probe_results;
pub(in crate::proxy) mod send;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::body_memory::BodyMemory;
use super::driver::connection::Connections;
use super::driver::dns::Resolver;
use crate::config::Limits;
use crate::metrics::Metrics;

/// Client for the gateway's own requests to providers and to the hosts of remote media.
pub(in crate::proxy) struct UpstreamClient {
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
    pub(in crate::proxy) fn new(
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
