//! Support for the tests of the running gateway: the gateway as a process, clients that write and read raw bytes, and
//! scripted upstreams.
//!
//! Here live sockets, framing, certificates and the formats on the wire. Assertions of correct behavior belong to the
//! tests. Code of the gateway must not be used here, so that both sides cannot share a mistake.

pub(crate) mod aws;
pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod compression;
pub(crate) mod form;
pub(crate) mod gateway;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod metrics;
pub(crate) mod ports;
pub(crate) mod reply;
pub(crate) mod setup;
pub(crate) mod sse;
pub(crate) mod tls;
pub(crate) mod token_server;
pub(crate) mod upstream;
pub(crate) mod valkey;

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::sync::watch;

/// Maximum duration of any wait before a test fails: much longer than needed on a busy machine, so that a slow machine
/// does not fail a correct gateway.
const PATIENCE: Duration = Duration::from_secs(40);

/// Awaits a future, and panics after `PATIENCE`.
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

/// Waits until a condition holds, and panics after `PATIENCE`.
#[track_caller]
pub(crate) fn until<F: FnMut() -> bool>(mut holds: F) -> impl Future<Output = ()> {
    soon(async move {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Gate that is opened once; any number of tasks can wait for it.
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
