//! What the tests of the running gateway stand on: the gateway as a process, clients that write and read bytes, and
//! upstreams that do exactly what a test tells them.
//!
//! Here live sockets, framing, certificates and what a format looks like on the wire. Here must not live: what is
//! right (that is for the tests), and any code of the gateway, so that both cannot agree on the same mistake.

pub(crate) mod client;
pub(crate) mod form;
pub(crate) mod gateway;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod metrics;
pub(crate) mod reply;
pub(crate) mod setup;
pub(crate) mod sse;
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod valkey;

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::sync::watch;

/// How long anything may take before a test is given up: far more than it takes on a machine that is busy with
/// something else, so that it is never what decides a test that could pass.
const PATIENCE: Duration = Duration::from_secs(40);

/// Waits for a future, but not for ever.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("{place}: this did not happen within {PATIENCE:?}"),
        }
    }
}

/// Waits until something is true.
#[track_caller]
pub(crate) fn until<F: FnMut() -> bool>(mut holds: F) -> impl Future<Output = ()> {
    soon(async move {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// A door that is opened once, and that any number of others wait at.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(crate) fn new() -> Self {
        Gate(watch::channel(false).0)
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn passed(&self) {
        let mut opened = self.0.subscribe();
        let _ = opened.wait_for(|open| *open).await;
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.borrow()
    }
}
