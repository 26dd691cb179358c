//! Pingora service of the listeners, with access to its listening sockets and its state.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ListenFds, RuntimeOpts, ShutdownWatch};
use pingora::services::Service as PingoraService;
use pingora::services::listening::Service;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::acceptor::Acceptor;

/// Time between two reads of the socket table while the listeners are bound.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// State of the listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListenerState {
    /// The sockets are being bound.
    #[default]
    Starting,
    /// All listeners accept connections.
    Accepting,
    /// No listener accepts connections, and none will.
    Closed,
}

/// Handle on the listeners of the process.
#[derive(Default)]
pub(crate) struct ListenerHandle {
    fds: OnceLock<ListenFds>,
    runtime: OnceLock<Handle>,
    state: watch::Sender<ListenerState>,
}

impl ListenerHandle {
    /// Returns the listening sockets by address. `None` before the service has started.
    pub(crate) fn fds(&self) -> Option<ListenFds> {
        self.fds.get().cloned()
    }

    /// Returns the runtime of the workers. `None` before the service has started.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.runtime.get()
    }

    /// Waits until the listeners accept. False if they have failed.
    pub(crate) async fn accepting(&self) -> bool {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| *state != ListenerState::Starting).await;
        state.is_ok_and(|state| *state == ListenerState::Accepting)
    }

    /// Waits until no listener accepts any more.
    pub(crate) async fn closed(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state == ListenerState::Closed).await;
    }
}

/// Wrapper of Pingora's listening service that reports to a [`ListenerHandle`].
pub(crate) struct ListenerService {
    pub(crate) service: Service<Acceptor>,
    pub(crate) handle: Arc<ListenerHandle>,
}

/// Sets [`ListenerState::Closed`] when the service ends, also by a panic: Pingora panics if a port cannot be bound.
struct CloseGuard<'h>(&'h ListenerHandle);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.0.state.send_replace(ListenerState::Closed);
    }
}

#[async_trait]
impl PingoraService for ListenerService {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let handle = self.handle.clone();
        let _guard = CloseGuard(&handle);
        let addresses = PingoraService::listen_addresses(&self.service).unwrap_or_default();
        if let Some(fds) = &fds {
            // An inherited socket without an acceptor would keep its clients waiting in the backlog.
            let closed = fds.lock().close_unclaimed(&addresses.iter().cloned().collect());
            if !closed.is_empty() {
                tracing::info!(?closed, "inherited listeners that are no longer configured were closed");
            }
            let _ = handle.fds.set(fds.clone());
        }
        let _ = handle.runtime.set(Handle::current());
        // Pingora adds each socket to the table when it is bound.
        let bound = || fds.as_ref().is_none_or(|fds| addresses.iter().all(|at| fds.lock().get(at).is_some()));
        let service =
            PingoraService::start_service(&mut self.service, fds.clone(), shutdown, listeners_per_fd);
        tokio::pin!(service);
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = &mut service => break,
                _ = poll.tick(), if *handle.state.borrow() == ListenerState::Starting => {
                    if bound() {
                        handle.state.send_replace(ListenerState::Accepting);
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
