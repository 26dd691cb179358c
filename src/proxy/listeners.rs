//! The service of the listeners, and what Pingora keeps to itself of it: the sockets, and whether it accepts.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pingora::server::{ListenFds, RuntimeOpts, ShutdownWatch};
use pingora::services::Service as PingoraService;
use pingora::services::listening::Service;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::front::Front;

/// Whether connections are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Accepting {
    /// The listeners are being set up.
    #[default]
    NotYet,
    /// All of them accept.
    Now,
    /// None accepts any more, or none ever will.
    Ended,
}

/// The listening sockets of the process.
#[derive(Default)]
pub(super) struct Sockets {
    table: OnceLock<ListenFds>,
    workers: OnceLock<Handle>,
    accepting: watch::Sender<Accepting>,
}

impl Sockets {
    /// The sockets by their addresses, once the service has begun.
    pub(super) fn table(&self) -> Option<ListenFds> {
        self.table.get().cloned()
    }

    /// The runtime that serves connections, once it runs.
    pub(super) fn workers(&self) -> Option<&Handle> {
        self.workers.get()
    }

    /// Resolves when all listeners accept: true; or when they do not and never will.
    pub(super) async fn up(&self) -> bool {
        let mut accepting = self.accepting.subscribe();
        let state = accepting.wait_for(|state| *state != Accepting::NotYet).await;
        state.is_ok_and(|state| *state == Accepting::Now)
    }

    /// Resolves when no listener accepts any more.
    pub(super) async fn ended(&self) {
        let mut accepting = self.accepting.subscribe();
        let _ = accepting.wait_for(|state| *state == Accepting::Ended).await;
    }
}

/// The service whose listeners accept clients.
pub(super) struct Listeners {
    pub(super) service: Service<Front>,
    pub(super) sockets: Arc<Sockets>,
}

/// Says that nobody accepts when the service ends, also by a panic: Pingora panics where a port is taken.
struct End<'s>(&'s Sockets);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.accepting.send_replace(Accepting::Ended);
    }
}

#[async_trait]
impl PingoraService for Listeners {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let sockets = self.sockets.clone();
        let _end = End(&sockets);
        let addresses = PingoraService::listen_addresses(&self.service).unwrap_or_default();
        if let Some(fds) = &fds {
            // A socket of the process before this one that nobody accepts from would hold clients for ever.
            let closed = fds.lock().close_unclaimed(&addresses.iter().cloned().collect());
            if !closed.is_empty() {
                tracing::info!(?closed, "listeners of the old process are not in the configuration any more");
            }
            let _ = sockets.table.set(fds.clone());
        }
        let _ = sockets.workers.set(Handle::current());
        let all = || fds.as_ref().is_none_or(|fds| addresses.iter().all(|at| fds.lock().get(at).is_some()));
        let service =
            PingoraService::start_service(&mut self.service, fds.clone(), shutdown, listeners_per_fd);
        tokio::pin!(service);
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            tokio::select! {
                biased;
                () = &mut service => break,
                // Once every address has its socket, the listeners have been built.
                _ = looks.tick(), if *sockets.accepting.borrow() == Accepting::NotYet => {
                    if all() {
                        sockets.accepting.send_replace(Accepting::Now);
                    }
                }
            }
        }
    }

    fn name(&self) -> &str {
        PingoraService::name(&self.service)
    }

    fn threads(&self) -> Option<usize> {
        PingoraService::threads(&self.service)
    }

    fn runtime_opts_override(&self, global: &RuntimeOpts) -> Option<RuntimeOpts> {
        PingoraService::runtime_opts_override(&self.service, global)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        PingoraService::listen_addresses(&self.service)
    }
}
